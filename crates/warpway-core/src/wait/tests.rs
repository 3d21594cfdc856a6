//! Waits, one at a time.

use std::sync::atomic::AtomicU64;

use super::*;
use crate::sync::Ordering;

fn waiter(policy: WaitPolicy) -> Waiter {
    Waiter::new(Arc::new(Health::new(7)), Arc::new(FlightRecorder::new(8)), policy)
}

fn site(peer: u32) -> WaitSite {
    WaitSite { operation: Operation::Wait, peer: Some(peer), object: 5, sequence: 2, expected: 3 }
}

const SLEEPY: WaitPolicy = WaitPolicy { spins: 0, yields: 0, slice: Duration::from_millis(2) };

/// A poll that takes one item each time it succeeds must have taken exactly one when the wait returns.
/// The value and the end of the wait both come after one test and before the next look at the
/// reasons to give up, as when this thread is not scheduled for a while.
#[test]
fn a_value_that_comes_just_before_a_failure_counts() {
    for policy in [WaitPolicy::patient(), WaitPolicy::for_load(2, 1)] {
        for calls_until_failure in [1, 2, 3, 17] {
            let waiter = waiter(policy);
            let mut calls = 0;
            let poll = || {
                calls += 1;
                // One test before `wait` leaves its fast path.
                match calls {
                    n if n == calls_until_failure + 1 => {
                        waiter.health.abort("right after the value");
                        Err(3)
                    }
                    n if n > calls_until_failure + 1 => Ok(n),
                    _ => Err(0),
                }
            };
            let found = waiter.wait(|| site(1), Timeout::after(Duration::from_secs(10)), None, poll);
            assert_eq!(found.unwrap(), calls_until_failure + 2);
        }
    }
}

#[test]
fn a_value_that_comes_just_before_the_deadline_counts() {
    let waiter = waiter(WaitPolicy::patient());
    let mut calls = 0;
    let poll = || {
        calls += 1;
        if calls == 2 {
            std::thread::sleep(Duration::from_millis(20));
        }
        if calls > 2 { Ok(calls) } else { Err(0) }
    };
    let found = waiter.wait(|| site(1), Timeout::after(Duration::from_millis(1)), None, poll);
    assert_eq!(found.unwrap(), 3);
}

#[test]
fn what_the_last_test_before_sleep_takes_is_returned() {
    for succeed_at in 0..8 {
        let (mut polls, mut taken) = (0, 0);
        let event = EventCount::new();
        let poll = || {
            polls += 1;
            if polls > succeed_at {
                taken += 1;
                return Ok(taken);
            }
            Err(0)
        };
        let value =
            waiter(SLEEPY).wait(|| site(1), Timeout::from(Duration::from_secs(5)), Some(&event), poll);
        assert_eq!((value.unwrap(), taken), (1, 1), "success at poll {succeed_at}");
    }
}

#[test]
fn spinning_that_does_not_pay_is_given_up_until_it_pays_again() {
    let policy = WaitPolicy { spins: 4000, yields: 10_000, slice: Duration::from_millis(1) };
    let waiter = waiter(policy);
    // Polls before the first yield of a wait whose condition comes at poll `succeed_at`.
    let spun = |succeed_at: u32| {
        let mut polls = 0;
        let poll = || {
            polls += 1;
            if polls > succeed_at { Ok(()) } else { Err(0) }
        };
        waiter.wait(|| site(1), Timeout::from(Duration::from_secs(5)), None, poll).unwrap();
        waiter.spins.get(&policy)
    };
    let falling: Vec<u32> = (0..8).map(|_| spun(5000)).collect();
    assert_eq!(falling, [2000, 1000, 500, 250, 125, 64, 64, 64]);
    let rising: Vec<u32> = (0..8).map(|_| spun(10)).collect();
    assert_eq!(rising, [128, 256, 512, 1024, 2048, 4000, 4000, 4000]);
    assert_eq!(spun(0), 4000, "a condition that holds at once says nothing about spinning");
}

#[test]
fn every_way_to_give_up_names_the_peer_and_is_recorded() {
    let limit = Timeout::from(Duration::from_millis(20));
    let never = || Err::<(), _>(1);
    let timed = waiter(SLEEPY);
    let error = timed.wait(|| site(4), limit, None, never).unwrap_err();
    assert!(matches!(error.reason, GaveUp::TimedOut) && error.rank == 7 && error.observed == 1, "{error}");
    assert!(error.to_string().contains("rank 4"), "{error}");
    let lines = timed.recorder.snapshot();
    assert_eq!((lines.len(), lines[0].peer), (1, Some(4)));

    let aborted = waiter(SLEEPY);
    aborted.health.abort("enough");
    let error = aborted.wait(|| site(4), Timeout::NONE, Some(&EventCount::new()), never).unwrap_err();
    assert_eq!((error.code(), error.id()), (ErrorCode::Aborted, "aborted"));

    let left = waiter(SLEEPY);
    left.health.note_departure(4);
    let error = left.wait(|| site(4), Timeout::NONE, Some(&EventCount::new()), never).unwrap_err();
    assert_eq!((error.code(), error.id()), (ErrorCode::RemoteError, "peer.left"));
}

#[test]
fn a_notified_sleeper_wakes_long_before_its_slice_ends() {
    let slow = WaitPolicy { slice: Duration::from_secs(60), ..SLEEPY };
    let (event, value) = (EventCount::new(), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..3 {
            let waiter = waiter(slow);
            let (event, value) = (&event, &value);
            scope.spawn(move || {
                let poll = || match value.load(Ordering::Acquire) {
                    3 => Ok(()),
                    other => Err(other),
                };
                waiter.wait(|| site(0), Timeout::from(Duration::from_secs(60)), Some(event), poll).unwrap();
            });
        }
        std::thread::sleep(Duration::from_millis(30));
        value.store(3, Ordering::Release);
        event.notify();
    });
}
