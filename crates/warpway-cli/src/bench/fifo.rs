//! Rate of the FIFO: push, poll, pop, with the 64-bit fields of a port channel's requests.

use std::sync::Arc;
use std::time::{Duration, Instant};

use warpway::core::Health;
use warpway::core::fifo::{Fifo, SemaphoreId, Trigger, TriggerKind};
use warpway::core::trace::FlightRecorder;
use warpway::core::wait::{WaitPolicy, Waiter};
use warpway::{Result, Timeout};

use super::Arguments;
use super::report::{Report, Row};
use super::statistics::Samples;

/// Triggers of one sample, all producers together.
const TRIGGERS: u64 = 2_000_000;
const SIZE: u64 = 512;
const LIMIT: Timeout = Timeout::after(Duration::from_secs(30));

pub(super) fn run(arguments: &Arguments, report: &mut Report) -> Result<()> {
    for &producers in &arguments.producers {
        let name = if producers == 1 {
            "fifo, 1 producer".to_owned()
        } else {
            format!("fifo, {producers} producers")
        };
        report.begin(&name, 0);
        let mut wrong = 0;
        let mut microseconds = Vec::new();
        // The first sample warms up.
        for sample in 0..=arguments.batches {
            let Sample { elapsed, wrong: w } = sample_of(u64::from(producers.max(1)))?;
            wrong += w;
            if sample > 0 {
                microseconds.push(elapsed.as_secs_f64() * 1e6 / TRIGGERS as f64);
            }
        }
        let samples = Samples::new(microseconds);
        let mut row = Row::new(name, 0, &samples);
        row.blocks = producers;
        row.million_per_s = Some(1.0 / samples.median());
        row.errors = wrong;
        report.push(row);
    }
    Ok(())
}

struct Sample {
    elapsed: Duration,
    /// Triggers that were lost, repeated, torn or out of their producer's order.
    wrong: u64,
}

fn sample_of(producers: u64) -> Result<Sample> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let waiter = Waiter::new(
        Arc::new(Health::new(0)),
        Arc::new(FlightRecorder::new(16)),
        WaitPolicy::for_load(producers as usize + 1, cores),
    );
    let mut fifo = Fifo::new(SIZE, waiter)?;
    let each = TRIGGERS / producers;
    let start = Instant::now();
    let (wrong, pushed) = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..producers)
            .map(|producer| {
                let handle = fifo.handle();
                scope.spawn(move || {
                    (0..each).try_for_each(|n| handle.push(&trigger(producer, n), LIMIT).map(drop))
                })
            })
            .collect();
        let wrong = consume(&mut fifo, producers, each);
        let pushed: Result<()> = threads
            .into_iter()
            .try_for_each(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        (wrong, pushed)
    });
    pushed?;
    Ok(Sample { elapsed: start.elapsed(), wrong })
}

fn consume(fifo: &mut Fifo, producers: u64, each: u64) -> u64 {
    let mut next = vec![0; producers as usize];
    let (mut taken, mut wrong, mut idle) = (0, 0, 0u32);
    while taken < each * producers {
        match fifo.poll() {
            Some(found) => {
                let right = found.is_ok_and(|found| {
                    let producer = found.value as u64;
                    let expected = next.get_mut(producer as usize).map(|n| std::mem::replace(n, *n + 1));
                    expected.is_some_and(|n| found == trigger(producer, n))
                });
                wrong += u64::from(!right);
                fifo.pop();
                taken += 1;
                idle = 0;
            }
            None if idle < 100 => {
                idle += 1;
                std::hint::spin_loop();
            }
            None => std::thread::yield_now(),
        }
    }
    wrong
}

/// Every field depends on producer and number, so that a torn element shows.
fn trigger(producer: u64, n: u64) -> Trigger {
    let kind = TriggerKind::DATA | TriggerKind::FLAG;
    Trigger {
        destination_offset: n,
        source_offset: n << 33,
        size: n,
        value: producer as i64,
        ..Trigger::new(kind, SemaphoreId::from_bits(n as u32))
    }
}
