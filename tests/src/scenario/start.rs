//! Joining.

use anyhow::Context as _;
use warpway::{Communicator, Config, Context, Environment, UniqueId};
use warpway_tests::{Line, monotonic_ns};

pub(super) fn barrier() -> anyhow::Result<()> {
    Line::mark("started");
    let comm = super::join()?;
    for turn in 0u64.. {
        if turn == 1 {
            Line::mark("joined");
        }
        // Rank 0 comes late each time, so that the others are found waiting.
        if comm.rank() == 0 {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        comm.barrier()?;
    }
    Ok(())
}

pub(super) fn join() -> anyhow::Result<()> {
    let start = monotonic_ns();
    let comm = super::join()?;
    Line::Figure("joined_us".into(), (monotonic_ns() - start) / 1000).say();
    comm.barrier()?;
    Ok(())
}

pub(super) fn join_id(digits: &str) -> anyhow::Result<()> {
    let byte = |at: usize| digits.get(at..at + 2).and_then(|byte| u8::from_str_radix(byte, 16).ok());
    let bytes: Option<Vec<u8>> = (0..digits.len()).step_by(2).map(byte).collect();
    let id = UniqueId::from_bytes(&bytes.context("not hexadecimal digits")?).map_err(warpway::Error::from)?;
    let config = Config::read(&Environment::of_process()?)?.config;
    let (rank, n_ranks) = (config.rank.context("no rank")?, config.world_size.context("no size")?);
    let comm: Communicator = Context::new(config).join_id(&id, rank, n_ranks)?;
    comm.barrier()?;
    Ok(())
}
