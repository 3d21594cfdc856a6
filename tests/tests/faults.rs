//! Ranks that stop, abort, leave, panic or die while others work with them.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "test code, which the lints do not recognise outside of #[test]"
)]

use rustix::process::Signal;
use warpway::ErrorCode;
use warpway_tests::{End, Job, Leftovers, Line, Settings};

const WAYS: [&str; 2] = ["shared", "tcp"];

fn run(settings: &Settings) -> Vec<End> {
    Job::start(env!("CARGO_BIN_EXE_rank"), settings).finish(&[], &Leftovers::default())
}

/// A rank that hangs is found by the time limits of those that wait for it, each in its own call.
#[test]
fn a_stopped_rank_is_named_by_every_wait() {
    for way in WAYS {
        let mut job =
            Job::start(env!("CARGO_BIN_EXE_rank"), &Settings::new(4, &format!("sleep {way}")).impatient());
        job.await_mark(0..4, "ready");
        job.signal(0, Signal::STOP);
        let ends = job.finish_stopped(0, &Leftovers::default());
        let first = ends.iter().map(End::fault).min_by_key(|fault| fault.at_ns).unwrap();
        assert_eq!((first.code, first.culprit), (ErrorCode::Timeout as i32, Some(0)), "{first:?}");
        for end in &ends {
            let fault = end.fault();
            assert_eq!(fault.culprit, Some(0), "{way}: {fault:?}");
            let operation = ["wait", "bootstrap_recv", "connect"][end.rank as usize - 1];
            assert!(fault.message.contains(operation), "{way}: {fault:?}");
        }
    }
}

#[test]
fn an_abort_ends_all_waits_and_is_quoted() {
    for way in WAYS {
        let ends = run(&Settings::new(3, &format!("abort {way}")));
        for end in &ends {
            let fault = end.fault();
            assert_eq!((fault.id.as_str(), fault.culprit), ("aborted", Some(2)), "{way}: {fault:?}");
            assert_eq!(fault.code, ErrorCode::Aborted as i32);
            assert!(fault.message.contains("enough of it"), "{fault:?}");
        }
    }
}

#[test]
fn a_rank_that_leaves_ends_the_waits_for_it_only_after_what_it_sent() {
    for way in WAYS {
        let ends = run(&Settings::new(3, &format!("leave {way}")));
        ends[2].succeeded();
        for end in &ends[..2] {
            let fault = end.fault();
            assert!(end.lines.contains(&Line::Mark("signalled".into())), "{way}: {end:?}");
            assert_eq!((fault.id.as_str(), fault.culprit), ("peer.left", Some(2)), "{way}: {fault:?}");
            assert_eq!(fault.code, ErrorCode::RemoteError as i32);
        }
    }
}

#[test]
fn a_panic_in_a_kernel_is_an_error_everywhere() {
    for way in WAYS {
        let ends = run(&Settings::new(3, &format!("panic {way}")));
        let own = ends[2].fault();
        assert_eq!(own.id, "launch.panicked", "{way}: {own:?}");
        for end in &ends[..2] {
            let fault = end.fault();
            assert_eq!((fault.id.as_str(), fault.culprit), ("peer.failed", Some(2)), "{way}: {fault:?}");
            assert!(
                fault.message.contains("out of bounds") && fault.message.contains("block 1"),
                "{fault:?}"
            );
        }
    }
}

#[test]
fn an_error_in_a_kernel_reaches_all_ranks() {
    for way in WAYS {
        let ends = run(&Settings::new(3, &format!("kernel-error {way}")));
        assert_eq!(ends[2].fault().id, "internal", "{:?}", ends[2]);
        for end in &ends[..2] {
            let fault = end.fault();
            assert_eq!((fault.id.as_str(), fault.culprit), ("peer.failed", Some(2)), "{way}: {fault:?}");
            assert!(fault.message.contains("a kernel may return errors"), "{fault:?}");
        }
    }
}

/// Four ranks in halves {0, 1} and {2, 3}, and all in a second communicator in reverse order; 3 is killed.
#[test]
fn a_child_without_the_dead_rank_works_on() {
    for way in WAYS {
        for _ in 0..3 {
            let mut job = Job::start(env!("CARGO_BIN_EXE_rank"), &Settings::new(4, &format!("halves {way}")));
            job.await_mark(0..4, "ready");
            job.kill(3);
            let ends = job.finish(&[3], &Leftovers::default());
            for end in &ends[..2] {
                let culprits: Vec<_> = end.met().iter().map(|f| (f.id.as_str(), f.culprit)).collect();
                // The dead rank's number in the world, and in the second communicator.
                assert_eq!(culprits, [("peer.died", Some(3)), ("peer.died", Some(0))], "{way}: {end:?}");
                assert!(end.lines.contains(&Line::Mark("half works".into())), "{way}: {end:?}");
                assert_eq!(end.fault().culprit, Some(3), "{way}: {end:?}");
            }
            // Its own partner: number 1 of the half, number 0 of the second.
            assert_eq!(ends[2].met()[0].culprit, Some(1), "{way}: {:?}", ends[2]);
            assert_eq!(ends[2].fault().culprit, Some(0), "{way}: {:?}", ends[2]);
        }
    }
}
