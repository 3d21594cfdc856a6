//! Cost of recording one operation (start and complete), alone and from several threads.
//! `cargo bench -p warpway-core --bench flight_recorder`

use std::sync::Arc;
use std::time::Instant;

use warpway_core::trace::{FlightRecorder, Operation, Request};

const OPERATIONS: u64 = 2_000_000;

fn record(recorder: &FlightRecorder) {
    for object in 0..OPERATIONS {
        let request =
            Request { operation: Operation::Write, peer: Some(1), object, bytes: 8, offset: object * 8 };
        let id = recorder.start(std::hint::black_box(request));
        recorder.complete(std::hint::black_box(id));
    }
}

fn nanoseconds_each(threads: u64) -> f64 {
    let recorder = Arc::new(FlightRecorder::new(256));
    let started = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| record(&recorder));
        }
    });
    started.elapsed().as_nanos() as f64 / OPERATIONS as f64
}

fn main() {
    for threads in [1, 2, 4] {
        let mut samples: Vec<f64> = (0..7).map(|_| nanoseconds_each(threads)).collect();
        samples.sort_by(f64::total_cmp);
        println!("{threads} threads: {:.1} ns per operation of each thread (median of 7)", samples[3]);
    }
}
