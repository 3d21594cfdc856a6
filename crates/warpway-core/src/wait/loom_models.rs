//! Models of every sleep: no wake-up is lost.

use loom::sync::Arc;
use loom::thread;

use super::*;
use crate::sync::{AtomicU64, Ordering};
use crate::token::Token;

/// The sleeping part of [`Waiter::wait`]: without spinning and without time, so that only a wake-up
/// ends it.
fn wait_until(event: &EventCount, mut ready: impl FnMut() -> bool) {
    let mut done = ready();
    while !done {
        event.sleep_unless(Duration::MAX, || {
            done = ready();
            done
        });
        done = done || ready();
    }
}

#[test]
fn loom_an_added_token_wakes_its_owner() {
    loom::model(|| {
        let token = Arc::new(Token::new());
        let signaller = thread::spawn({
            let token = Arc::clone(&token);
            move || token.add(1)
        });
        wait_until(token.event(), || token.load() == 1);
        signaller.join().unwrap();
    });
}

#[test]
fn loom_a_stored_token_wakes_its_owner() {
    loom::model(|| {
        let token = Arc::new(Token::new());
        let signaller = thread::spawn({
            let token = Arc::clone(&token);
            move || token.store(5)
        });
        wait_until(token.event(), || token.load() == 5);
        signaller.join().unwrap();
    });
}

/// Also a relaxed word outside the token, as packets are.
#[test]
fn loom_a_packet_wakes_its_reader() {
    loom::model(|| {
        let shared = Arc::new((AtomicU64::new(0), EventCount::new()));
        let writer = thread::spawn({
            let shared = Arc::clone(&shared);
            move || {
                shared.0.store(9, Ordering::Relaxed);
                shared.1.notify();
            }
        });
        wait_until(&shared.1, || shared.0.load(Ordering::Relaxed) == 9);
        writer.join().unwrap();
    });
}

#[test]
fn loom_two_signallers_are_both_seen() {
    // Unbounded, three threads take minutes; more than two preemptions have never been needed to
    // break a protocol of this kind.
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(|| {
        let token = Arc::new(Token::new());
        let signallers = [(); 2].map(|()| {
            let token = Arc::clone(&token);
            thread::spawn(move || token.add(1))
        });
        wait_until(token.event(), || token.load() == 2);
        for signaller in signallers {
            signaller.join().unwrap();
        }
    });
}

#[test]
fn loom_one_signal_wakes_two_sleepers() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(|| {
        let token = Arc::new(Token::new());
        let waiter = thread::spawn({
            let token = Arc::clone(&token);
            move || wait_until(token.event(), || token.load() == 1)
        });
        let signaller = thread::spawn({
            let token = Arc::clone(&token);
            move || token.add(1)
        });
        wait_until(token.event(), || token.load() == 1);
        waiter.join().unwrap();
        signaller.join().unwrap();
    });
}

/// The data written before a signal is visible to whoever sees it.
#[test]
fn loom_a_signal_carries_data() {
    loom::model(|| {
        let shared = Arc::new((AtomicU64::new(0), Token::new()));
        let signaller = thread::spawn({
            let shared = Arc::clone(&shared);
            move || {
                shared.0.store(42, Ordering::Relaxed);
                shared.1.add(1);
            }
        });
        wait_until(shared.1.event(), || shared.1.load() == 1);
        assert_eq!(shared.0.load(Ordering::Relaxed), 42);
        signaller.join().unwrap();
    });
}

/// The models can fail: a signaller that does not look for sleepers loses a wake-up.
#[test]
#[should_panic(expected = "deadlock")]
fn loom_a_lost_wake_up_is_a_deadlock() {
    loom::model(|| {
        let shared = Arc::new((AtomicU64::new(0), EventCount::new()));
        let writer = thread::spawn({
            let shared = Arc::clone(&shared);
            move || shared.0.store(9, Ordering::Release)
        });
        wait_until(&shared.1, || shared.0.load(Ordering::Acquire) == 9);
        writer.join().unwrap();
    });
}
