//! Time to start a job: launch, bootstrap, barrier, end.

use std::time::Instant;

use warpway::Communicator;

use super::Arguments;
use super::report::{Report, Row};
use super::statistics::Samples;

/// Launches the ranks as often as there are batches. Each sample runs from before the launch until the last
/// rank has ended, so it is an upper bound of "until all are past a barrier".
pub(super) fn run(arguments: &Arguments) -> anyhow::Result<u8> {
    let mut report = Report::new(0, arguments.n_ranks(), arguments.form());
    let mut microseconds = Vec::new();
    for _ in 0..arguments.batches {
        report.begin("start", 0);
        let begin = Instant::now();
        let code = super::launch_ranks(arguments.n_ranks())?;
        if code != 0 {
            return Ok(code);
        }
        microseconds.push(begin.elapsed().as_secs_f64() * 1e6);
    }
    report.push(Row::new("start", 0, &Samples::new(microseconds)));
    report.finish()
}

/// One of the ranks.
pub(super) fn rank() -> anyhow::Result<u8> {
    let comm = Communicator::from_env()?;
    comm.make_barrier()?.wait()?;
    Ok(0)
}
