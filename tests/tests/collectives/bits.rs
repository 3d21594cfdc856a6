//! Floats that do not come out even, by every algorithm that folds: the same bits on all ranks, at every call, in every run,
//! and as near to the exact result as the plan's roundings allow.

use std::time::Duration;

use warpway::collectives::{Algorithm, Function, Task, World, catalogue};
use warpway::{Call, Communicator, DataType, ReduceOp, Result, in_process_with};
use warpway_tests::matrix::{layout, mix};

use crate::matrix::on_hosts;

/// Elements of what a rank gets.
const ELEMENTS: u64 = 1003;
const TYPES: [DataType; 8] = [
    DataType::Float32,
    DataType::Float16,
    DataType::Bfloat16,
    DataType::Float8E4m3fn,
    DataType::Float8E4m3fnuz,
    DataType::Float8E5m2,
    DataType::Float8E5m2fnuz,
    DataType::Float8E4m3b15,
];

/// The code of a number from 1/32 to 1/8: sums of eight are normal numbers of every type.
fn code(data_type: DataType, rank: u32, at: u64) -> u32 {
    let (mantissa, bias) = layout(data_type).unwrap();
    let mixed = mix(u64::from(rank) + 1, at);
    let exponent = (bias - 5) as u32 + (mixed >> 60) as u32 % 2;
    exponent << mantissa | mixed as u32 & ((1 << mantissa) - 1)
}

fn value(data_type: DataType, code: u32) -> f64 {
    let (mantissa, bias) = layout(data_type).unwrap();
    let fraction = f64::from(code & ((1 << mantissa) - 1)) / f64::from(1u32 << mantissa);
    (1.0 + fraction) * 2f64.powi((code >> mantissa) as i32 - bias)
}

fn input(data_type: DataType, rank: u32, elements: u64) -> Vec<u8> {
    let bytes = |code: u32| code.to_le_bytes().into_iter().take(data_type.bytes() as usize);
    (0..elements).flat_map(|at| bytes(code(data_type, rank, at))).collect()
}

/// Elements of a rank's input and output.
fn lengths(function: Function, n: u64) -> (u64, u64) {
    match function {
        Function::ReduceScatter | Function::ReduceScatterV => (n * ELEMENTS, ELEMENTS),
        _ => (ELEMENTS, ELEMENTS),
    }
}

/// Three calls; this rank's outputs.
fn calls(
    comm: &Communicator,
    algorithm: &Algorithm,
    data_type: DataType,
    op: ReduceOp,
) -> Result<[Vec<u8>; 3]> {
    let (function, n) = (algorithm.function, u64::from(comm.n_ranks()));
    let (from, to) = lengths(function, n);
    let data = input(data_type, comm.rank(), from);
    let counts = vec![ELEMENTS; n as usize];
    let registered = comm.alloc::<u8>(2 * n * ELEMENTS * data_type.bytes())?;
    let mut outputs = [(); 3].map(|()| vec![0u8; (to * data_type.bytes()) as usize]);
    for (turn, output) in (0..).zip(&mut outputs) {
        // Late, another one each time.
        if turn == comm.rank() {
            std::thread::sleep(Duration::from_micros(300));
        }
        let bytes = output.len() as u64;
        let own = registered.view_of(0, bytes);
        let out = if turn == 1 { own } else { (&mut output[..]).into() };
        let call = Call::new(function, (&data[..]).into(), out, data_type)
            .with_op(op)
            .with_algorithm(algorithm.name);
        comm.collective(&if function.is_sized() { call.with_counts(&counts) } else { call })?;
        if turn == 1 {
            registered.read(0, output)?;
        }
    }
    comm.barrier()?;
    Ok(outputs)
}

/// By rank: outputs of calls, in two communicators.
fn outputs(hosts: &[u32], algorithm: &Algorithm, data_type: DataType, op: ReduceOp) -> Vec<Vec<Vec<u8>>> {
    let run = || in_process_with(&on_hosts(hosts), |comm| calls(comm, algorithm, data_type, op)).unwrap();
    run().into_iter().zip(run()).map(|(one, two)| one.into_iter().chain(two).collect()).collect()
}

fn check(hosts: &[u32], algorithm: &'static Algorithm, data_type: DataType, op: ReduceOp) {
    let (function, n) = (algorithm.function, hosts.len() as u32);
    let task = Task::new(function, World::by_host(hosts)).with_op(op);
    if (algorithm.fits)(&task).is_err() {
        return;
    }
    let roundings = f64::from(algorithm.prove(&task).unwrap().report().roundings.unwrap_or(0));
    let context = format!("{algorithm:?} of {data_type}, {op}, hosts {hosts:?}, {roundings} roundings");
    let found = outputs(hosts, algorithm, data_type, op);
    for (rank, outputs) in (0u32..).zip(&found) {
        // Of a reduce only the root has a result.
        if function == Function::Reduce && rank > 0 {
            continue;
        }
        assert!(outputs.iter().all(|output| *output == outputs[0]), "{context}: rank {rank} has other bits");
        if function == Function::AllReduce {
            assert_eq!(outputs[0], found[0][0], "{context}: rank {rank} has other bits than rank 0");
        }
        let scattered = matches!(function, Function::ReduceScatter | Function::ReduceScatterV);
        let first = if scattered { u64::from(rank) * ELEMENTS } else { 0 };
        let (mantissa, _) = layout(data_type).unwrap();
        for at in 0..ELEMENTS {
            let values = (0..n).map(|from| value(data_type, code(data_type, from, first + at)));
            let exact = values.sum::<f64>() / if op == ReduceOp::Avg { f64::from(n) } else { 1.0 };
            let size = data_type.bytes() as usize;
            let mut bytes = [0; 4];
            bytes[..size].copy_from_slice(&outputs[0][at as usize * size..][..size]);
            let result = value(data_type, u32::from_le_bytes(bytes));
            // Half a unit of the last place for each rounding, and what accumulators of 24 bits lose; the type of 15
            // rounds to halves first.
            let twice = if data_type == DataType::Float8E4m3b15 { 2f64.powi(-11) } else { 0.0 };
            let unit = 2f64.powi(-(mantissa as i32 + 1)) + twice;
            let allowed = exact * (roundings * unit * 1.001 + f64::from(2 * n) * 2f64.powi(-24));
            assert!(
                (result - exact).abs() <= allowed,
                "{context}: rank {rank}, element {at}: {result}, not {exact}"
            );
        }
    }
}

fn every_algorithm(worlds: &[&[u32]]) {
    let folding = catalogue().filter(|algorithm| algorithm.function.reduces());
    for (at, algorithm) in folding.enumerate() {
        for (turn, hosts) in worlds.iter().enumerate() {
            // Each type by each algorithm on one of the worlds.
            for data_type in TYPES.into_iter().skip((at + turn) % worlds.len()).step_by(worlds.len()) {
                check(hosts, algorithm, data_type, ReduceOp::Sum);
            }
            check(hosts, algorithm, TYPES[(at + turn) % TYPES.len()], ReduceOp::Avg);
        }
    }
}

#[test]
fn bits_are_the_same_on_one_host() {
    every_algorithm(&[&[0; 3], &[0; 4], &[0; 7]]);
}

#[test]
fn bits_are_the_same_between_hosts() {
    every_algorithm(&[&[0, 1, 1], &[0, 0, 1, 1]]);
}
