//! Pipelines that run ahead of each other: what is accepted for all sizes must end at all of them.

use warpway_plan::verify::{Options, Rule, Severity, Sizes, Verdict, verify};
use warpway_plan::{BuildError, CollectiveShape, DataSync, Plan, Program, ProgramOptions};

use super::{only, strict};

const UNIT: u64 = 1024;

/// Who lets whom run ahead, and by how much.
enum Credits {
    /// By signals before the pipelines.
    Signals(u64),
    /// By the initial value of a semaphore.
    Initial(u64),
    /// By releases before the pipelines.
    Releases(u64),
}

/// A local copy in slices. Block 0 copies, `stages` blocks pass the news of each slice on; each stage gives the one
/// before it so many credits. The last one begins when block 0 is done if `late`, which it never is once the
/// pipelines are longer than all credits together.
fn chain(stages: u32, credits: u64, late: bool, chunks: u64) -> Result<Plan, BuildError> {
    let mut p = Program::new(ProgramOptions::new("chain", CollectiveShape::all_reduce(1, chunks)))?;
    let done = p.semaphore(0, 0)?;
    let mut links = Vec::new();
    for _ in 0..stages {
        links.push((p.semaphore(0, 0)?, p.semaphore(0, credits)?));
    }
    if late {
        p.acquire(done, stages, DataSync::None)?;
    }
    p.pipeline(UNIT, chunks, |p| {
        p.acquire(links[0].1, 0, DataSync::After)?;
        p.copy(p.output(0)?.whole(), p.input(0)?.whole(), 0)?;
        p.release(links[0].0, 0, DataSync::Before)?;
        for stage in 1..=stages {
            let (news, room) = links[stage as usize - 1];
            if let Some((next, free)) = links.get(stage as usize).copied() {
                p.acquire(free, stage, DataSync::None)?;
                p.acquire(news, stage, DataSync::After)?;
                p.release(next, stage, DataSync::Before)?;
            } else {
                p.acquire(news, stage, DataSync::After)?;
            }
            p.release(room, stage, DataSync::Before)?;
        }
        Ok(())
    })?;
    p.release(done, 0, DataSync::Before)?;
    if !late {
        p.acquire(done, stages, DataSync::None)?;
    }
    p.finish()
}

/// Two ranks, one sends slices to the other, which gives credits for them and begins when the sender is done.
fn send(credits: &Credits) -> Result<Plan, BuildError> {
    let mut p = Program::new(ProgramOptions::new("send", CollectiveShape::broadcast(2, 1)))?;
    let (there, back) = (p.memory_channel(0, 1)?, p.memory_channel(1, 0)?);
    let (told, tell) = (p.memory_channel(0, 1)?, p.memory_channel(1, 0)?);
    let (initial, released) = match *credits {
        Credits::Signals(_) => (0, 0),
        Credits::Initial(n) => (n, 0),
        Credits::Releases(n) => (0, n),
    };
    let room = p.semaphore(0, initial)?;
    let signals = if let Credits::Signals(n) = *credits { n } else { 0 };
    p.copy(p.output(0)?.whole(), p.input(0)?.whole(), 0)?;
    // Block 1 of rank 0 hears of room and says so to block 0.
    (0..signals).try_for_each(|_| p.signal(back, 0, DataSync::None))?;
    (0..released).try_for_each(|_| p.release(room, 1, DataSync::None))?;
    p.wait(tell, 0, DataSync::After)?;
    p.pipeline(UNIT, 1, |p| {
        if signals > 0 {
            p.wait(there, 0, DataSync::After)?;
        } else {
            p.acquire(room, 0, DataSync::After)?;
        }
        p.put(there, p.output(1)?.whole(), p.input(0)?.whole(), 0)?;
        p.signal(there, 0, DataSync::Before)?;
        p.wait(back, 0, DataSync::After)?;
        p.signal(back, 0, DataSync::Before)?;
        if signals == 0 {
            p.wait(there, 1, DataSync::After)?;
            p.release(room, 1, DataSync::Before)?;
        }
        Ok(())
    })?;
    p.signal(told, 0, DataSync::Before)?;
    (0..signals).try_for_each(|_| p.wait(there, 0, DataSync::None))?;
    (0..released).try_for_each(|_| p.acquire(room, 1, DataSync::None))?;
    p.finish()
}

/// Each is fine in pipelines of one, two and three iterations, and stuck in longer ones.
#[test]
fn credits_that_run_out() {
    let default = Options::default();
    for credits in [3, 5, 40] {
        for credits in [Credits::Signals(credits), Credits::Initial(credits), Credits::Releases(credits)] {
            let report = verify(&send(&credits).unwrap(), &default);
            // Warned of besides: the peer may not have started yet.
            let errors = report.diagnostics.iter().filter(|d| d.severity == Severity::Error);
            assert_eq!(errors.map(|d| d.rule).collect::<Vec<_>>(), [Rule(401)], "{:?}", report.diagnostics);
        }
    }
}

/// The credits of all stages add up.
#[test]
fn credits_add_up() {
    for (stages, credits) in [(1, 4), (3, 2), (9, 3)] {
        let good = verify(&chain(stages, credits, false, 1).unwrap(), &strict());
        assert_eq!((good.verdict, good.sizes), (Verdict::Accept, Some(Sizes::Any)), "{:?}", good.diagnostics);
        only(401, &verify(&chain(stages, credits, true, 1).unwrap(), &strict()));
    }
}
