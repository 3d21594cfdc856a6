//! Triggers per second through a FIFO, push to pop.
//! `cargo bench -p warpway-core --bench fifo`

use std::sync::Arc;
use std::time::{Duration, Instant};

use warpway_core::fifo::{Fifo, SemaphoreId, Trigger, TriggerKind};
use warpway_core::trace::FlightRecorder;
use warpway_core::wait::{WaitPolicy, Waiter};
use warpway_core::{Health, Timeout};

const TRIGGERS: u64 = 4_000_000;
const SAMPLES: usize = 11;
const LIMIT: Timeout = Timeout::after(Duration::from_secs(30));

fn fifo(threads: usize) -> Fifo {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let waiter = Waiter::new(
        Arc::new(Health::new(0)),
        Arc::new(FlightRecorder::new(16)),
        WaitPolicy::for_load(threads, cores),
    );
    #[allow(clippy::unwrap_used, reason = "512 is a power of two")]
    Fifo::new(512, waiter).unwrap()
}

fn trigger(n: u64) -> Trigger {
    let kind = TriggerKind::DATA | TriggerKind::FLAG;
    Trigger { size: n, source_offset: n << 12, ..Trigger::new(kind, SemaphoreId::from_bits(1)) }
}

fn push(handle: &warpway_core::fifo::FifoHandle, n: u64) {
    if let Err(error) = handle.push(&trigger(n), LIMIT) {
        eprintln!("{error}");
        std::process::exit(1);
    }
}

/// Takes one trigger if there is one, and returns its size.
fn take(fifo: &mut Fifo) -> Option<u64> {
    let size = fifo.poll()?.map_or(0, |trigger| trigger.size);
    fifo.pop();
    Some(size)
}

/// One thread does everything: the cost without a second core.
fn alternating() -> Duration {
    let mut fifo = fifo(1);
    let handle = fifo.handle();
    let started = Instant::now();
    let mut sum = 0;
    for n in 0..TRIGGERS {
        push(&handle, n);
        sum += take(&mut fifo).unwrap_or(0);
    }
    check(sum, 1);
    started.elapsed()
}

/// `producers` threads push, this one consumes.
fn concurrent(producers: u64) -> Duration {
    let mut fifo = fifo(producers as usize + 1);
    let handle = fifo.handle();
    let each = TRIGGERS / producers;
    let started = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..producers {
            scope.spawn(|| (0..each).for_each(|n| push(&handle, n)));
        }
        let (mut taken, mut sum, mut idle) = (0, 0, 0);
        while taken < each * producers {
            if let Some(size) = take(&mut fifo) {
                (taken, sum, idle) = (taken + 1, sum + size, 0);
            } else if idle < 100 {
                idle += 1;
                std::hint::spin_loop();
            } else {
                std::thread::yield_now();
            }
        }
        check(sum, producers);
    });
    started.elapsed()
}

fn check(sum: u64, producers: u64) {
    let each = TRIGGERS / producers;
    assert_eq!(sum, producers * (each * (each - 1) / 2), "a trigger was lost or torn");
}

fn report(name: &str, run: impl Fn() -> Duration) {
    run();
    let mut rates: Vec<f64> = (0..SAMPLES).map(|_| TRIGGERS as f64 / run().as_secs_f64() / 1e6).collect();
    rates.sort_by(f64::total_cmp);
    let (low, median, high) = (rates[0], rates[SAMPLES / 2], rates[SAMPLES - 1]);
    println!("{name:<28} {median:6.1} M triggers/s (median of {SAMPLES}; {low:.1} to {high:.1})");
}

fn main() {
    report("one thread, alternating", alternating);
    report("1 producer, 1 consumer", || concurrent(1));
    report("4 producers, 1 consumer", || concurrent(4));
}
