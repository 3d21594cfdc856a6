//! Collectives of the communicator.

use anyhow::Context as _;
use warpway::collectives::{Function, World, catalogue};
use warpway_tests::matrix::{self, Case, Counted, Verdict, mix, play_all, repeat};
use warpway_tests::{Line, SEED};

use super::join;

pub(super) fn matrix(setting: usize, full: bool) -> anyhow::Result<()> {
    let comm = join()?;
    if !full {
        let (_, cases) = matrix::sample(SEED).into_iter().nth(setting).context("a setting")?;
        play_all(&comm, cases)?.say();
        return Ok(());
    }
    let setting = matrix::settings().into_iter().nth(setting).context("a setting")?;
    let mut verdict = Verdict::default();
    for (algorithm, cases) in matrix::product(&setting, SEED) {
        // Plans are kept as long as the communicator: a communicator for each algorithm.
        let part = comm.split(0, comm.rank() as i32)?.context("a part with all ranks")?;
        verdict.add(play_all(&part, cases).with_context(|| format!("{algorithm:?}"))?);
    }
    verdict.say();
    Ok(())
}

pub(super) fn sequence(turns: u64, seed: u64) -> anyhow::Result<()> {
    let comm = join()?;
    let world = World::one_host(comm.n_ranks());
    let verdict = matrix::sequence(&comm, &world, seed, turns, |turn| {
        let Counted { descriptors, threads, shared_mappings, resident } = Counted::now();
        let counts = [
            ("descriptors", descriptors),
            ("threads", threads),
            ("mappings", shared_mappings),
            ("resident", resident),
        ];
        for (name, count) in counts {
            Line::Figure(format!("{name}@{turn}"), count).say();
        }
    })?;
    verdict.say();
    Ok(())
}

pub(super) fn endless(function: &str, hosts: &[u32]) -> anyhow::Result<()> {
    let function = Function::from_name(function).context("a function")?;
    let (comm, world) = (join()?, World::by_host(hosts));
    let cases: Vec<Case> = catalogue()
        .filter(|algorithm| algorithm.function == function)
        .flat_map(|algorithm| {
            [1, 3000, 200_000].map(|elements| Case::new(function, elements, 1).by(algorithm))
        })
        .filter(|case| case.fits(&world))
        .collect();
    anyhow::ensure!(!cases.is_empty(), "no algorithm for {function} on hosts {hosts:?}");
    for turn in 0u64.. {
        for (at, case) in (0..).zip(&cases) {
            let root = mix(turn, at) as u32 % comm.n_ranks();
            // The first round sets everything up, once for each root.
            let roots = if turn == 0 { 0..comm.n_ranks() } else { root..root + 1 };
            for root in roots {
                repeat(&comm, &Case { root, ..*case }, 3)?;
            }
        }
        if turn == 0 {
            Line::mark("ready");
        }
    }
    Ok(())
}
