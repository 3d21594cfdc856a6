//! From the first call of a program that uses its GPUs already until two ranks have exchanged data by a kernel.

use std::time::Instant;

use anyhow::ensure;
use warpway::{Communicator, Config, Context, Result, Transport, in_process};
use warpway_cuda::bench::FirstExchange;
use warpway_cuda::{Context as GpuContext, Driver};

use super::start::{Clock, Part};

/// How the last part is called, which is all of them together.
pub(super) const ALL: &str = "from the first call to the first exchange";
/// What a rank says when its clock may start.
pub(super) const READY: &str = "ready";
/// Of the message.
const WORDS: u64 = 1001;

/// The parts, each of the slower rank, then [`ALL`]. Driver and contexts come before the clock, as they are there in a program that uses GPUs.
pub(super) fn run(devices: [i32; 2], config: &Config) -> anyhow::Result<Vec<Part>> {
    let driver = Driver::open(&config.cuda_driver)?;
    let [first, second] = devices.map(|device| GpuContext::primary(&driver, device));
    let contexts = [first?, second?];
    let begin = Instant::now();
    let context = Context::from_env()?;
    let ranks = in_process(2, &context, |comm| {
        let at = comm.rank() as usize;
        let _current = contexts[at].enter()?;
        start(comm, begin)
    })?;
    ensure!(ranks.iter().all(|(_, wrong)| *wrong == 0), "the ranks have exchanged wrong data");
    Ok(slower(ranks.into_iter().map(|(parts, _)| parts)))
}

/// The same of one rank of two processes, on its device: says that it is ready, and waits for a line before the clock starts.
pub(super) fn run_rank(device: i32, config: &Config) -> anyhow::Result<Vec<Part>> {
    let driver = Driver::open(&config.cuda_driver)?;
    let context = GpuContext::primary(&driver, device)?;
    let _current = context.enter()?;
    println!("{READY}");
    std::io::stdin().read_line(&mut String::new())?;
    let begin = Instant::now();
    let (parts, wrong) = start(&Communicator::from_env()?, begin)?;
    ensure!(wrong == 0, "the ranks have exchanged wrong data");
    Ok(parts)
}

/// One rank's parts, and the words that came wrong.
fn start(comm: &Communicator, begin: Instant) -> Result<(Vec<Part>, u64)> {
    let mut clock = Clock::default();
    clock.since(begin, "bootstrap");
    let gpu = clock.part("GPU and engine", || comm.gpu())?;
    let (source, received) = clock.part("two buffers, one filled", || -> Result<_> {
        let (source, received) = (gpu.alloc::<u64>(WORDS)?, gpu.alloc::<u64>(WORDS)?);
        source.write(0, &numbers(comm.rank())).map(|()| (source, received))
    })?;
    let peer = clock.part("connection", || comm.connect_by(1 - comm.rank(), Transport::CudaIpc))?;
    let channel = clock.part("channel", || {
        let remote = peer.exchange_memory(&received)?;
        gpu.memory_channel(&peer.memory_channel(&source, &remote)?)
    })?;
    let exchange = clock.part("kernel loaded", || FirstExchange::load(&gpu))?;
    let found = clock.part("first exchange", || {
        exchange.run(&channel)?;
        received.to_vec()
    })?;
    clock.since(begin, ALL);
    let wrong = found.iter().zip(numbers(peer.rank())).filter(|(found, right)| **found != *right).count();
    comm.barrier()?;
    Ok((clock.parts, wrong as u64))
}

/// Other numbers for each rank.
fn numbers(rank: u32) -> Vec<u64> {
    (0..WORDS).map(|i| (i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(rank)).collect()
}

/// Part by part that of the rank that took longer: what one rank gains the other one waits for.
pub(super) fn slower(ranks: impl Iterator<Item = Vec<Part>>) -> Vec<Part> {
    ranks
        .reduce(|one, other| {
            one.into_iter().zip(other).map(|(a, b)| if a.ms >= b.ms { a } else { b }).collect()
        })
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_is_that_of_the_slower_rank() {
        let parts = |ms: [f64; 2]| {
            ["a", "b"].into_iter().zip(ms).map(|(name, ms)| Part { name: name.into(), ms }).collect()
        };
        let all: Vec<Part> = parts([3.0, 2.0]);
        assert_eq!(slower([parts([1.0, 2.0]), parts([3.0, 1.0])].into_iter()), all);
    }
}
