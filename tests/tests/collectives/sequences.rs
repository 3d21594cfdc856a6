//! Long random sequences of collectives on one communicator: functions, algorithms, types, sizes, kinds of buffers and
//! roots in any order, ranks late at random. What a process holds does not grow meanwhile.

use std::sync::Mutex;
use std::time::Duration;

use warpway::collectives::World;
use warpway::in_process;
use warpway_tests::matrix::{Counted, Verdict, sequence};
use warpway_tests::{End, Job, Leftovers, Line, SEED, Settings};

use crate::oracle::context;

/// Bytes by which memory may grow for each rank of a process: what is kept of calls, and what allocators keep. It is the same
/// after two thousand calls and after a hundred thousand.
const RESIDENT_SLACK: u64 = 3 << 20;

/// Threads of blocks besides a rank's own: with four blocks at most, three. They leave when nobody has needed them for a while,
/// so either count may find all of them or none.
const BLOCK_THREADS: u64 = 3;

fn constant(n: u32, in_process: u64, before: Counted, after: Counted) {
    let growth = after.resident.saturating_sub(before.resident);
    println!("{n} ranks: {before:?}; {growth} bytes more at the end");
    let grown = after.descriptors > before.descriptors
        || after.threads > before.threads + BLOCK_THREADS * in_process
        || after.shared_mappings > before.shared_mappings;
    assert!(!grown, "{n} ranks: {before:?}, {after:?}");
    assert!(growth <= RESIDENT_SLACK * in_process, "{n} ranks: {before:?}, {after:?}");
}

pub(crate) fn threads(n: u32, turns: u64) -> Verdict {
    let counted = Mutex::new(Vec::new());
    let played = in_process(n, &context(), |comm| {
        sequence(comm, &World::one_host(n), SEED, turns, |_| {
            if comm.rank() == 0 {
                counted.lock().unwrap().push(Counted::now());
            }
        })
    });
    let mut all = Verdict::default();
    played.unwrap().into_iter().for_each(|verdict| all.add(verdict));
    assert_eq!(all.failed, 0, "{:#?}", all.failures);
    let counted = counted.into_inner().unwrap();
    constant(n, u64::from(n), counted[0], counted[1]);
    all
}

/// What a rank said that it holds at a turn.
fn held(end: &End, turn: u64) -> Counted {
    let figure = |name: &str| {
        let name = format!("{name}@{turn}");
        let found = end.lines.iter().find_map(|line| match line {
            Line::Figure(other, value) if *other == name => Some(*value),
            _ => None,
        });
        found.unwrap_or_else(|| panic!("no {name}: {end:?}"))
    };
    Counted {
        descriptors: figure("descriptors"),
        threads: figure("threads"),
        shared_mappings: figure("mappings"),
        resident: figure("resident"),
    }
}

pub(crate) fn processes(n: u32, turns: u64, patience: Duration) -> Verdict {
    let scenario = format!("collectives --turns {turns} --seed {SEED}");
    let settings = Settings { patience, ..Settings::new(n, &scenario) };
    let ends = Job::start(env!("CARGO_BIN_EXE_rank"), &settings).finish(&[], &Leftovers::default());
    ends.iter().for_each(End::succeeded);
    let all = Verdict::heard(ends.iter().flat_map(|end| &end.lines));
    assert_eq!(all.failed, 0, "{:#?}", all.failures);
    ends.iter().for_each(|end| constant(n, 1, held(end, 0), held(end, turns)));
    all
}

#[test]
fn two_thousand_collectives_of_threads() {
    [2, 3].into_iter().for_each(|n| drop(threads(n, 2000)));
}

#[test]
fn two_thousand_collectives_of_processes() {
    processes(4, 2000, Duration::from_secs(60));
}
