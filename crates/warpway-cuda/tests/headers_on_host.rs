//! The device headers compiled by a host C++ compiler: what needs no GPU is checked without one.
//!
//! Uses `$CXX` or `c++`. Without a compiler the tests say so and pass, except where `CI` is set.
#![allow(clippy::unwrap_used, clippy::panic, reason = "test code")]

mod host_compiler;
mod samples;

use std::io::{Read, Write};
use std::num::NonZeroU32;
use std::process::{Command, Stdio};
use std::ptr::NonNull;

use samples::{Random, element};
use warpway_host::{FoldKernel, FoldSource};
use warpway_plan::{DataType, ReduceOp};

/// A program of `device/tests/host` that says itself what is wrong.
fn passes(name: &str, options: &[&str]) {
    let Some(program) = host_compiler::compile(name, &[&["-O1"], options].concat()) else { return };
    let output = Command::new(&program).output().unwrap();
    std::fs::remove_file(program).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn protocols_of_one_thread() {
    passes("protocols", &[]);
}

#[test]
fn protocols_of_one_thread_with_checks() {
    passes("protocols", &["-DWARPWAY_DEVICE_CHECKS"]);
}

#[test]
fn bulk_copies_on_an_emulated_engine() {
    passes("bulk", &[]);
}

const TYPES: [DataType; 15] = [
    DataType::Int32,
    DataType::Uint32,
    DataType::Float16,
    DataType::Float32,
    DataType::Bfloat16,
    DataType::Float8E4m3fn,
    DataType::Float8E4m3fnuz,
    DataType::Float8E5m2,
    DataType::Float8E5m2fnuz,
    DataType::Uint8,
    DataType::Float8E4m3b15,
    DataType::Int8,
    DataType::Int64,
    DataType::Uint64,
    DataType::Float64,
];
const SIZES: [usize; 15] = [4, 4, 2, 4, 2, 1, 1, 1, 1, 1, 1, 1, 8, 8, 8];
/// By NCCL's numbers, which the device uses.
const OPERATORS: [ReduceOp; 5] = [ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Max, ReduceOp::Min, ReduceOp::Avg];
const ELEMENTS: usize = 1 << 16;

/// The bits are those of the host engine for every type and operator, one to four sources, inputs and partial results.
#[test]
fn folds_give_the_bits_of_the_host_engine() {
    let Some(program) = host_compiler::compile("folds", &["-O1"]) else { return };
    let mut child = Command::new(&program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut calls, mut results) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let mut random = Random(88_172_645_463_325_252);
    for (number, (data_type, size)) in TYPES.into_iter().zip(SIZES).enumerate() {
        for n in 1..=4 {
            let data: Vec<Vec<u8>> = (0..n)
                .map(|s| {
                    let code = |i| element(size, s, i, &mut random).to_le_bytes();
                    (0..ELEMENTS).map(code).flat_map(|code| code.into_iter().take(size)).collect()
                })
                .collect();
            let source = |(s, data): (usize, &Vec<u8>)| FoldSource {
                address: NonNull::from(&data[..]).cast(),
                input: s % 2 == 0,
            };
            let sources: Vec<FoldSource> = data.iter().enumerate().map(source).collect();
            for (op_number, op) in OPERATORS.into_iter().enumerate() {
                for (ranks, last) in [(1, true), (3, true), (7, false)] {
                    let mut expected = vec![0u8; ELEMENTS * size];
                    let kernel = FoldKernel::new(data_type, op, NonZeroU32::new(ranks).unwrap());
                    let out = NonNull::from(&mut expected[..]).cast();
                    // SAFETY: sources and result live, have as many bytes as given, and are distinct.
                    unsafe { kernel.fold_into(&sources, (ELEMENTS * size) as u64, last, &[out]) };

                    for word in [number as u32, op_number as u32, ranks, last.into(), n as u32, 0] {
                        calls.write_all(&word.to_ne_bytes()).unwrap();
                    }
                    calls.write_all(&(ELEMENTS as u64).to_ne_bytes()).unwrap();
                    for (source, data) in sources.iter().zip(&data) {
                        calls.write_all(&u32::from(source.input).to_ne_bytes()).unwrap();
                        calls.write_all(data).unwrap();
                    }
                    calls.flush().unwrap();
                    let mut found = vec![0u8; ELEMENTS * size];
                    results.read_exact(&mut found).unwrap();
                    if let Some(i) = (0..ELEMENTS * size).find(|i| found[*i] != expected[*i]) {
                        let at = i / size * size..i / size * size + size;
                        let entered: Vec<_> = data.iter().map(|data| &data[at.clone()]).collect();
                        panic!(
                            "{data_type:?} {op:?} of {entered:x?}, {ranks} ranks, last {last}: {:x?} instead of {:x?}",
                            &found[at.clone()],
                            &expected[at.clone()]
                        );
                    }
                }
            }
        }
    }
    drop(calls);
    assert!(child.wait().unwrap().success());
    std::fs::remove_file(program).unwrap();
}
