//! Floats that do not come out even: the rounding of the format's section 5.4, bit for bit, the same on all ranks and
//! at every launch.

use warpway::plan::verify::{Options, VerifiedPlan};
use warpway::plan::{Plan, ReduceOp, testing};
use warpway::{DataType, PlanLaunch, in_process};

use crate::results::with_operator;
use crate::rig::context;

const ELEMENTS: u64 = 1003;

/// Sign, exponent and mantissa.
#[derive(Clone, Copy)]
struct Layout {
    bytes: u64,
    mantissa: u32,
    bias: i32,
}

impl Layout {
    fn of(data_type: DataType) -> Self {
        let (bytes, mantissa, bias) = match data_type {
            DataType::Float16 => (2, 10, 15),
            DataType::Bfloat16 => (2, 7, 127),
            DataType::Float8E4m3fn => (1, 3, 7),
            DataType::Float8E4m3fnuz => (1, 3, 8),
            DataType::Float8E5m2 => (1, 2, 15),
            DataType::Float8E5m2fnuz => (1, 2, 16),
            DataType::Float8E4m3b15 => (1, 3, 15),
            other => panic!("no layout of {other}"),
        };
        Self { bytes, mantissa, bias }
    }

    /// Of a positive finite code.
    fn decode(self, code: u32) -> f64 {
        let (exponent, fraction) = ((code >> self.mantissa) as i32, code & ((1 << self.mantissa) - 1));
        let unit = f64::from(1u32 << self.mantissa);
        match exponent {
            0 => f64::from(fraction) / unit * 2f64.powi(1 - self.bias),
            _ => (1.0 + f64::from(fraction) / unit) * 2f64.powi(exponent - self.bias),
        }
    }

    /// The nearest code of a positive value in the type's range. Codes grow with their values, so the two neighbours
    /// are found by bisection; `ties_up` is away from zero, otherwise the even one.
    fn encode(self, value: f64, ties_up: bool) -> u32 {
        let (mut below, mut above) = (0, 1 << (8 * self.bytes - 1));
        while above - below > 1 {
            let middle = (below + above) / 2;
            if self.decode(middle) <= value { below = middle } else { above = middle }
        }
        let (down, up) = (value - self.decode(below), self.decode(above) - value);
        if down == 0.0 || down < up {
            below
        } else if up < down || ties_up || below % 2 == 1 {
            above
        } else {
            below
        }
    }
}

/// A positive value of moderate size that the type holds; every element and rank another.
fn code(layout: Layout, rank: u32, element: u64) -> u32 {
    let mixed = (element * 8 + u64::from(rank) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33;
    let (low, high) = (layout.encode(0.125, false), layout.encode(1.5, false));
    low + (mixed % u64::from(high - low)) as u32
}

/// Every input times 1/n in single precision, added in rank order, rounded once.
fn average(data_type: DataType, layout: Layout, n: u32, element: u64) -> u32 {
    let share = 1.0f32 / n as f32;
    let value = |rank| layout.decode(code(layout, rank, element)) as f32 * share;
    let sum = (1..n).fold(value(0), |sum, rank| sum + value(rank));
    match data_type {
        // By way of halves.
        DataType::Float8E4m3b15 => {
            let half = Layout::of(DataType::Float16);
            layout.encode(half.decode(half.encode(f64::from(sum), false)), true)
        }
        _ => layout.encode(f64::from(sum), false),
    }
}

/// The outputs of `launches` launches, by rank and launch.
fn outputs(plan: &Plan, data_type: DataType, input: &(impl Fn(u32) -> Vec<u8> + Sync)) -> Vec<[Vec<u8>; 2]> {
    let proof = VerifiedPlan::new(plan.clone(), &Options::default()).unwrap();
    in_process(plan.n_ranks(), &context(), |comm| {
        let prepared = comm.prepare(&proof)?;
        let data = input(comm.rank());
        let bytes = data.len() as u64;
        let memory = comm.alloc::<u8>(2 * bytes)?;
        let launch = || -> warpway::Result<Vec<u8>> {
            memory.write(0, &data)?;
            let out = if plan.in_place { 0 } else { bytes };
            prepared.run(&PlanLaunch::new(
                memory.view_of(0, bytes),
                memory.view_of(out, bytes),
                data_type,
            ))?;
            let mut output = vec![0; data.len()];
            memory.read(out, &mut output)?;
            // A peer may still read this rank's memory until it has ended, too.
            comm.barrier()?;
            Ok(output)
        };
        Ok([launch()?, launch()?])
    })
    .unwrap()
}

#[test]
fn averages_round_once() {
    for n in [2, 3, 5, 8] {
        let plan = with_operator(testing::all_reduce_packets(n).unwrap(), ReduceOp::Avg);
        for data_type in DataType::ALL {
            if !data_type.is_float() || data_type.bytes() > 2 {
                continue;
            }
            let layout = Layout::of(data_type);
            let bytes = |code: u32| code.to_le_bytes().into_iter().take(layout.bytes as usize);
            let input = |rank| (0..ELEMENTS).flat_map(|element| bytes(code(layout, rank, element))).collect();
            let expected: Vec<u8> =
                (0..ELEMENTS).flat_map(|element| bytes(average(data_type, layout, n, element))).collect();
            for (rank, found) in outputs(&plan, data_type, &input).iter().enumerate() {
                for output in found {
                    let wrong = output.iter().zip(&expected).position(|(a, b)| a != b);
                    assert_eq!(wrong, None, "{data_type}, rank {rank} of {n}");
                }
            }
        }
    }
}

/// Numbers of very unequal size, with both signs: any other order gives other bits.
fn unequal(rank: u32, element: u64) -> f32 {
    let mixed = (element * 8 + u64::from(rank) + 1).wrapping_mul(0xd129_0d3c_8b5f_4a2d);
    let exponent = 117 + (mixed >> 59) as u32 % 20;
    f32::from_bits((mixed >> 20) as u32 & 0x807f_ffff | exponent << 23)
}

#[test]
fn sums_have_the_same_bits_everywhere_and_always() {
    for n in 3..=8 {
        let input = |rank| (0..ELEMENTS).flat_map(|at| unequal(rank, at).to_le_bytes()).collect();
        let sum = |first: u32, element: u64| {
            let others = (0..n).filter(|rank| *rank != first);
            others.fold(unequal(first, element), |sum, rank| sum + unequal(rank, element))
        };
        // In rank order; and each chunk from the rank that folds it.
        let in_order: Vec<f32> = (0..ELEMENTS).map(|element| sum(0, element)).collect();
        let one_hop = outputs(&testing::all_reduce_packets(n).unwrap(), DataType::Float32, &input);
        let two_hop = outputs(&testing::all_reduce_two_shot(n).unwrap(), DataType::Float32, &input);
        let bytes = |sums: &[f32]| -> Vec<u8> { sums.iter().flat_map(|sum| sum.to_le_bytes()).collect() };
        assert!(one_hop.iter().flatten().all(|output| *output == bytes(&in_order)), "{n} ranks");
        // A chunk's bytes: a share of the message, in units of 16 bytes.
        let chunk = (ELEMENTS * 4).div_ceil(u64::from(n)).next_multiple_of(16) / 4;
        let by_chunk: Vec<f32> =
            (0..ELEMENTS).map(|element| sum((element / chunk) as u32, element)).collect();
        assert!(two_hop.iter().flatten().all(|output| *output == bytes(&by_chunk)), "{n} ranks");
        // The data can tell the difference.
        assert!(in_order.iter().zip(&by_chunk).filter(|(a, b)| a != b).count() > 20);
    }
}
