//! One of three ranks is killed, at many moments of everything that ranks do: the others are told who died,
//! soon, nobody hangs or crashes, and nothing is left behind.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "test code, which the lints do not recognise outside of #[test]"
)]

use std::sync::Mutex;
use std::time::Duration;

use warpway_tests::{Fault, Job, Leftovers, Meeting, Settings, in_parallel};

/// Each with fresh ranks, another victim and another moment.
const REPETITIONS: u32 = 20;
/// Survivors must know by then. Half of them, at least: another load on the machine may slow a few down.
const DETECTION: Duration = Duration::from_secs(2);

/// What the survivors say.
struct Expectation {
    /// Ids of errors that tell a death.
    ids: &'static [&'static str],
    /// Operations of which one must appear in the error's phase or text.
    operations: &'static [&'static str],
    /// Operations of which one must appear in each survivor's dump; none if there is no communicator yet.
    recorded: &'static [&'static str],
}

/// Kills a rank of three once all have made `mark`, after 0 to 38 ms.
fn kill(settings: &Settings, mark: &str, expected: &Expectation) {
    let times = Mutex::new(Vec::new());
    in_parallel(REPETITIONS, |turn| {
        let victim = turn % 3;
        let mut job = Job::start(env!("CARGO_BIN_EXE_rank"), settings);
        job.await_mark(0..3, mark);
        std::thread::sleep(Duration::from_micros(u64::from(turn * turn) * 100));
        let leftovers = Leftovers::default();
        if mark != "started" {
            // From the check-in on every rank listens.
            leftovers.observe(&job.processes());
        }
        let at = job.kill(victim);
        let context = format!("turn {turn}, rank {victim} killed");
        job.finish_with(&[victim], &leftovers, |ends, dumps| {
            assert_eq!(ends.len(), 2);
            for end in ends {
                judge(&context, victim, end.fault(), expected);
                times.lock().unwrap().push(end.fault().at_ns.saturating_sub(at));
                // A dump is written when the communicator fails; a call of its own may have failed before.
                let local = !["peer.died", "peer.failed", "conn.broken"].contains(&end.fault().id.as_str());
                if expected.recorded.is_empty() || local {
                    continue;
                }
                let own = dumps.iter().find(|d| d.rank == end.rank && d.failure.is_some());
                let own = own.unwrap_or_else(|| panic!("{context}: no dump of rank {}: {end:#?}", end.rank));
                let failure = own.failure.as_ref().unwrap();
                assert_eq!(failure.culprit, Some(victim), "{context}: {failure:?}");
                let named = |o: &str| own.operations.iter().any(|line| line.operation.name() == o);
                assert!(expected.recorded.iter().any(|o| named(o)), "{context}: {:?}", own.operations);
            }
        });
    });
    report(times.into_inner().unwrap());
}

fn judge(context: &str, victim: u32, fault: &Fault, expected: &Expectation) {
    assert_eq!(fault.culprit, Some(victim), "{context}: {fault:?}");
    assert!(expected.ids.contains(&fault.id.as_str()), "{context}: {fault:?}");
    // Ranks that are missing are listed.
    let name = if fault.id == "bootstrap.missing" { victim.to_string() } else { format!("rank {victim}") };
    assert!(fault.message.contains(&name), "{context}: {fault:?}");
    let named = |operation: &&str| fault.phase.contains(operation) || fault.message.contains(operation);
    assert!(expected.operations.iter().any(named), "{context}: {fault:?}");
}

fn report(mut times: Vec<u64>) {
    times.sort_unstable();
    let at = |share: usize| Duration::from_nanos(times[(times.len() - 1) * share / 100]);
    println!(
        "{} survivors knew after {:?} (median), {:?} (95 %), {:?} (last)",
        times.len(),
        at(50),
        at(95),
        at(100)
    );
    assert!(at(50) < DETECTION, "the median is {:?}", at(50));
}

/// A fourth rank never comes, so that the check-in stays open. A victim that had not yet checked in is only
/// missed at the deadline.
fn kill_at_check_in(meeting: Meeting) {
    let settings = Settings { n_ranks: 4, started: 3, meeting, ..Settings::new(4, "barrier").impatient() };
    let expected = Expectation {
        ids: &["peer.died", "bootstrap.missing", "bootstrap.unreachable"],
        operations: &["check-in", "checked in", "root"],
        recorded: &[],
    };
    kill(&settings, "started", &expected);
}

#[test]
fn at_check_in_over_unix_sockets() {
    kill_at_check_in(Meeting::Unix);
}

#[test]
fn at_check_in_over_tcp() {
    kill_at_check_in(Meeting::Tcp);
}

#[test]
fn while_the_others_wait_at_the_bootstrap() {
    let expected = Expectation {
        ids: &["peer.died"],
        operations: &["bootstrap_barrier"],
        recorded: &["bootstrap_barrier"],
    };
    kill(&Settings::new(3, "barrier"), "joined", &expected);
    kill(&Settings { meeting: Meeting::Tcp, ..Settings::new(3, "barrier") }, "joined", &expected);
}

/// Who finds the broken connection first tells the others: `peer.failed` there.
const DEATH: &[&str] = &["peer.died", "conn.broken", "peer.failed"];

fn connecting(way: &str) {
    let operations =
        &["connect", "memory", "import", "write", "flush", "semaphore", "bootstrap_barrier", "tcp"];
    let recorded = &["connect", "send_memory", "recv_memory"];
    let ids = &[
        "peer.died",
        "peer.failed",
        "conn.broken",
        "conn.unreachable",
        "mem.import",
        "bootstrap.descriptor",
    ];
    kill(&Settings::new(3, &format!("connect {way}")), "ready", &Expectation { ids, operations, recorded });
}

#[test]
fn while_connecting_by_shared_memory() {
    connecting("shared");
}

#[test]
fn while_connecting_by_tcp() {
    connecting("tcp");
}

#[test]
fn during_puts_of_blocks() {
    let expected = Expectation {
        ids: DEATH,
        operations: &["launch", "kernel", "put", "barrier"],
        recorded: &["launch"],
    };
    kill(&Settings::new(3, "put"), "ready", &expected);
}

fn writing(way: &str) {
    let expected = Expectation { ids: DEATH, operations: &["write", "flush", "tcp"], recorded: &["write"] };
    kill(&Settings::new(3, &format!("write {way}")), "ready", &expected);
}

#[test]
fn during_writes_to_shared_memory() {
    writing("shared");
}

#[test]
fn during_writes_over_tcp() {
    writing("tcp");
}

fn waiting(way: &str) {
    // A wait is recorded once it leaves the fast path; the kernel that waits, from the beginning.
    let expected = Expectation { ids: DEATH, operations: &["wait"], recorded: &["wait", "launch"] };
    kill(&Settings::new(3, &format!("wait {way}")), "ready", &expected);
}

#[test]
fn while_waiting_for_signals_in_shared_memory() {
    waiting("shared");
}

#[test]
fn while_waiting_for_signals_over_tcp() {
    waiting("tcp");
}

fn proxying(way: &str) {
    let operations = &["wait", "flush", "proxy_request", "fifo_push", "write", "tcp"];
    let recorded = &["wait", "write", "flush", "proxy_request"];
    let expected = Expectation { ids: DEATH, operations, recorded };
    kill(&Settings::new(3, &format!("proxy {way}")), "ready", &expected);
}

#[test]
fn during_requests_of_a_proxy_in_shared_memory() {
    proxying("shared");
}

#[test]
fn during_requests_of_a_proxy_over_tcp() {
    proxying("tcp");
}
