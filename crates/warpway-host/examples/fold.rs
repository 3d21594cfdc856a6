//! Speed of folds, against plain loops over the same bytes.
//!
//! `cargo run --release -p warpway-host --example fold [MiB per buffer [type...]]`
//!
//! Figures count the bytes of all sources and of the destination once each, in GB/s (10^9).

use std::hint::black_box;
use std::num::NonZeroU32;
use std::ptr::NonNull;
use std::time::{Duration, Instant};

use warpway_host::{FoldKernel, FoldSource};
use warpway_plan::{DataType, ReduceOp};

fn main() {
    let mebibytes: usize = std::env::args().nth(1).and_then(|a| a.parse().ok()).unwrap_or(64);
    let named: Vec<DataType> = std::env::args().skip(2).filter_map(|a| a.parse().ok()).collect();
    let types = if named.is_empty() { DataType::ALL.to_vec() } else { named };
    for (label, bytes) in [("64 KiB", 64 << 10), (&*format!("{mebibytes} MiB"), mebibytes << 20)] {
        println!("{label} per buffer");
        references(bytes);
        let all: Vec<ReduceOp> = ReduceOp::NAMED.iter().map(|(op, _)| *op).collect();
        print!("{:>18}", "");
        for op in &all {
            print!("{:>9} x2", op.name());
        }
        println!("{:>9} x8", "sum");
        for &data_type in &types {
            print!("{data_type:>18}");
            for op in &all {
                print!("{:>12.1}", fold(data_type, *op, 2, bytes));
            }
            println!("{:>12.1}", fold(data_type, ReduceOp::Sum, 8, bytes));
        }
    }
}

/// What the memory gives to loops without arithmetic worth the name.
fn references(bytes: usize) {
    let a = vec![1.5f32; bytes / 4];
    let b = vec![2.5f32; bytes / 4];
    let mut c = vec![0f32; bytes / 4];
    let copied = rate(bytes * 2, || black_box(&mut c).copy_from_slice(black_box(&a)));
    let added = rate(bytes * 3, || {
        for ((c, a), b) in black_box(&mut c).iter_mut().zip(black_box(&a)).zip(black_box(&b)) {
            *c = a + b;
        }
    });
    println!("    memcpy {copied:.1}, c[i] = a[i] + b[i] of f32 {added:.1}");
}

fn fold(data_type: DataType, op: ReduceOp, count: usize, bytes: usize) -> f64 {
    // Ordinary numbers of every type: neither NaN nor subnormal.
    let sources: Vec<Vec<u8>> = (0..count).map(|k| vec![0x31 + k as u8; bytes]).collect();
    let mut destination = vec![0u8; bytes];
    let target = NonNull::from(&mut destination[..]).cast::<u8>();
    let kernel = FoldKernel::new(data_type, op, NonZeroU32::MIN.saturating_add(count as u32 - 1));
    let list: Vec<FoldSource> =
        sources.iter().map(|s| FoldSource { address: NonNull::from(&s[..]).cast(), input: true }).collect();
    let per_second = rate(bytes * (count + 1), || {
        // SAFETY: all buffers live, have `bytes` bytes and are distinct.
        unsafe { kernel.fold_into(black_box(&list), bytes as u64, true, &[target]) }
    });
    black_box(&destination);
    per_second
}

/// The best of several rounds, in GB/s.
fn rate(bytes: usize, mut work: impl FnMut()) -> f64 {
    let mut best = f64::MAX;
    let repeat = ((4 << 20) / bytes).max(1);
    work();
    let end = Instant::now() + Duration::from_millis(120);
    loop {
        let start = Instant::now();
        for _ in 0..repeat {
            work();
        }
        best = best.min(start.elapsed().as_secs_f64() / repeat as f64);
        if Instant::now() >= end {
            return bytes as f64 / best / 1e9;
        }
    }
}
