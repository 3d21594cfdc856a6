//! Every type, width, operator and accumulator that the switch has, on 2, 3, 4 and 8 members.

use warpway_plan::{DataType, ReduceOp};

use crate::emulator::{Emulator, Shape, What};
use crate::oracle::{Accumulator, How, fold};
use crate::samples::{Random, element};

/// One test, since compiling the program takes longer than all calls.
#[test]
fn kernels_by_threads() {
    let Some(mut emulator) = Emulator::start() else { return };
    folds_have_the_bits_of_the_host_engine(&mut emulator);
    additions_round_each_time(&mut emulator);
    additions_at_once_are_all_there(&mut emulator);
    stores_reach_all_members(&mut emulator);
    emulator.finish();
}

/// Names of `switch.cu`, sizes of an element, vectors.
const TYPES: [(&str, DataType, usize, &[usize]); 7] = [
    ("i32", DataType::Int32, 4, &[1]),
    ("u32", DataType::Uint32, 4, &[1]),
    ("f32", DataType::Float32, 4, &[1, 2, 4]),
    ("f16", DataType::Float16, 2, &[2, 4, 8]),
    ("bf16", DataType::Bfloat16, 2, &[2, 4, 8]),
    ("e4m3", DataType::Float8E4m3fn, 1, &[4, 8, 16]),
    ("e5m2", DataType::Float8E5m2, 1, &[4, 8, 16]),
];
const MEMBERS: [u32; 4] = [2, 3, 4, 8];

/// What the switch makes of a type: the ends of the kernels' names, and what they mean.
fn folds(data_type: DataType) -> Vec<(&'static str, How)> {
    use Accumulator::{Half, InType, Wide};
    let how = |op, accumulator| How { data_type, op, accumulator };
    let order = [("_min", how(ReduceOp::Min, Wide)), ("_max", how(ReduceOp::Max, Wide))];
    let (sums, order): (Vec<_>, &[_]) = match data_type {
        DataType::Float32 => (vec![("", how(ReduceOp::Sum, Wide))], &[]),
        DataType::Int32 | DataType::Uint32 => (vec![("", how(ReduceOp::Sum, Wide))], &order),
        DataType::Float16 | DataType::Bfloat16 => {
            (vec![("", how(ReduceOp::Sum, Wide)), ("_in_type", how(ReduceOp::Sum, InType))], &order)
        }
        _ => {
            let half = how(ReduceOp::Sum, Half);
            (vec![("", half), ("_in_half", half), ("_in_type", how(ReduceOp::Sum, InType))], &order)
        }
    };
    [sums, order.to_vec()].concat()
}

/// One memory per member.
fn memories(members: u32, elements: usize, size: usize, random: &mut Random) -> Vec<Vec<u8>> {
    (0..members as usize)
        .map(|m| {
            let one = |i: usize| element(size, 2 + m, i * 251 + m, random).to_le_bytes();
            (0..elements).map(one).flat_map(|code| code.into_iter().take(size)).collect()
        })
        .collect()
}

fn compare(found: &[u8], expected: &[u8], size: usize, what: impl Fn() -> String) {
    assert_eq!(found.len(), expected.len());
    let Some(at) = (0..found.len()).find(|at| found[*at] != expected[*at]) else { return };
    let element = at / size * size..at / size * size + size;
    panic!(
        "{}: element {} is {:x?}, not {:x?}",
        what(),
        at / size,
        &found[element.clone()],
        &expected[element]
    );
}

/// Each rank reduces its part and stores it to all: in the order of the members, and from any other on.
fn folds_have_the_bits_of_the_host_engine(emulator: &mut Emulator) {
    let mut random = Random(362_436_069_521_288_629);
    for (name, data_type, size, widths) in TYPES {
        for width in widths {
            for (end, how) in folds(data_type) {
                for members in MEMBERS {
                    let first = random.next() as u32 % members;
                    let (threads, vectors) = (1 + random.next() as u32 % 4, 1 + random.next() % 40);
                    let shape = Shape { members, threads, first, vectors };
                    let part = width * size * vectors as usize;
                    let data =
                        memories(members, width * vectors as usize * members as usize, size, &mut random);
                    let kernel = format!("{name}x{width}{end}");
                    let answer = emulator.run(What::Fold, &kernel, width * size, shape, &[&data]);

                    let in_order: Vec<&[u8]> =
                        (0..members).map(|i| &data[((first + i) % members) as usize][..]).collect();
                    let expected = fold(how, &in_order);
                    for (m, memory) in answer.memories.iter().enumerate() {
                        compare(memory, &expected, size, || format!("{kernel} {shape:?}, memory {m}"));
                    }
                    for (m, read) in answer.read.iter().enumerate() {
                        let part = &expected[m * part..(m + 1) * part];
                        compare(read, part, size, || format!("{kernel} {shape:?}, read by {m}"));
                    }
                }
            }
        }
    }
}

/// One member after the other adds: each sum is rounded where it lies, each memory keeps its own start.
fn additions_round_each_time(emulator: &mut Emulator) {
    let mut random = Random(521_288_629_362_436_069);
    for (name, data_type, size, widths) in &TYPES[..5] {
        for width in *widths {
            for members in MEMBERS {
                let vectors = 1 + random.next() % 40;
                let shape = Shape { members, threads: 3, first: 0, vectors };
                let elements = width * vectors as usize;
                let (data, addends) = (
                    memories(members, elements, *size, &mut random),
                    memories(members, elements, *size, &mut random),
                );
                let kernel = format!("{name}x{width}");
                let answer = emulator.run(What::AddInTurn, &kernel, width * size, shape, &[&data, &addends]);
                let how = How { data_type: *data_type, op: ReduceOp::Sum, accumulator: Accumulator::InType };
                for (m, memory) in answer.memories.iter().enumerate() {
                    let sources: Vec<&[u8]> =
                        std::iter::once(&data[m]).chain(&addends).map(Vec::as_slice).collect();
                    let what = || format!("{kernel} {shape:?}, memory {m}");
                    compare(memory, &fold(how, &sources), *size, what);
                }
            }
        }
    }
}

/// All members add at once: no addition is lost. Sums of small integers are exact in any order.
fn additions_at_once_are_all_there(emulator: &mut Emulator) {
    let code = |data_type: DataType, value: u32| -> u32 {
        let float = (value as f32).to_bits();
        match data_type {
            DataType::Int32 | DataType::Uint32 => value,
            DataType::Float32 => float,
            DataType::Bfloat16 => float >> 16,
            // Of numbers that are not subnormal: another bias, fewer places.
            _ => {
                if value == 0 {
                    0
                } else {
                    (float >> 13) - (112 << 10)
                }
            }
        }
    };
    for (name, data_type, size, widths) in &TYPES[..5] {
        for width in *widths {
            for members in MEMBERS {
                let shape = Shape { members, threads: 4, first: 0, vectors: 9 };
                let memory = |value: &dyn Fn(u32) -> u32| -> Vec<u8> {
                    let one = |i| code(*data_type, value(i)).to_le_bytes();
                    (0..*width as u32 * 9).map(one).flat_map(|code| code.into_iter().take(*size)).collect()
                };
                let data: Vec<_> = (0..members).map(|m| memory(&|i| (i + m) % 5)).collect();
                let addends: Vec<_> = (0..members).map(|m| memory(&|i| (i * 3 + m * 7) % 16)).collect();
                let kernel = format!("{name}x{width}");
                let answer = emulator.run(What::AddAtOnce, &kernel, width * size, shape, &[&data, &addends]);
                for (m, found) in answer.memories.iter().enumerate() {
                    let sum = |i| {
                        (i + m as u32) % 5 + (0..members).map(|from| (i * 3 + from * 7) % 16).sum::<u32>()
                    };
                    compare(found, &memory(&sum), *size, || format!("{kernel} {shape:?}, memory {m}"));
                }
            }
        }
    }
}

/// Stores move bits, of NaN too.
fn stores_reach_all_members(emulator: &mut Emulator) {
    let mut random = Random(88_172_645_463_325_252);
    let vectors = [
        ("f64x1", 8),
        ("i32x2", 8),
        ("i32x4", 16),
        ("u32x2", 8),
        ("u32x4", 16),
        ("u8x4", 4),
        ("e4m3x4", 4),
        ("e4m3x8", 8),
        ("e4m3x16", 16),
        ("e5m2x4", 4),
        ("e5m2x8", 8),
        ("e5m2x16", 16),
    ];
    for (name, bytes) in vectors {
        for members in MEMBERS {
            let shape = Shape { members, threads: 2, first: 0, vectors: 1 + random.next() % 30 };
            let part = bytes * shape.vectors as usize;
            let data = memories(members, part, 1, &mut random);
            let answer = emulator.run(What::Store, name, bytes, shape, &[&data]);
            for (m, memory) in answer.memories.iter().enumerate() {
                compare(memory, &data.concat(), bytes, || format!("{name} {shape:?}, memory {m}"));
            }
        }
    }
}
