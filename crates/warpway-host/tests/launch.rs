//! Kernel launch: blocks, barriers, semaphores, and how failures end a launch.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use warpway_core::launch::LaunchError;
use warpway_core::trace::FlightRecorder;
use warpway_core::wait::{WaitPolicy, Waiter};
use warpway_core::{Error, ErrorCode, Health, Timeout};
use warpway_host::{DeviceSemaphore, Launcher, MAX_BLOCKS};

const PATIENCE: Timeout = Timeout::after(Duration::from_secs(60));

fn launcher() -> (Launcher, Arc<Health>) {
    let health = Arc::new(Health::new(3));
    let recorder = Arc::new(FlightRecorder::new(64));
    let waiter = Waiter::new(Arc::clone(&health), recorder, WaitPolicy::for_ranks(1));
    (Launcher::new(waiter).with_timeout(PATIENCE), health)
}

#[test]
fn each_block_runs_once_and_one_block_stays_on_the_caller() {
    let (launcher, _) = launcher();
    for blocks in [1, 2, 3, 17, 64] {
        let runs: Vec<AtomicU32> = (0..blocks).map(|_| AtomicU32::new(0)).collect();
        let caller = std::thread::current().id();
        launcher
            .launch(blocks, |block| {
                assert_eq!(block.blocks(), blocks);
                assert_eq!(block.index() == 0, std::thread::current().id() == caller);
                runs[block.index() as usize].fetch_add(1, Ordering::Relaxed);
                Ok(())
            })
            .unwrap();
        assert!(runs.iter().all(|n| n.load(Ordering::Relaxed) == 1), "{blocks} blocks");
    }
}

#[test]
fn numbers_of_blocks_that_cannot_run_are_refused() {
    let (launcher, health) = launcher();
    for blocks in [0, MAX_BLOCKS + 1, u32::MAX] {
        let error = launcher.launch(blocks, |_| Ok(())).unwrap_err();
        assert_eq!(error.id(), "launch.blocks");
    }
    assert!(!health.is_failed(), "a refused launch did nothing");
}

#[test]
fn barriers_separate_phases() {
    let (launcher, _) = launcher();
    for blocks in [1u64, 2, 5] {
        let sum = AtomicU64::new(0);
        launcher
            .launch(blocks as u32, |block| {
                for phase in 1..=200 {
                    sum.fetch_add(phase, Ordering::Relaxed);
                    block.barrier()?;
                    // Every block has added this phase, and none the next one.
                    assert_eq!(sum.load(Ordering::Relaxed), blocks * phase * (phase + 1) / 2);
                    block.barrier()?;
                }
                Ok(())
            })
            .unwrap();
    }
}

#[test]
fn semaphores_admit_as_many_as_they_have_units() {
    let (launcher, _) = launcher();
    for (blocks, units) in [(2, 1), (8, 1), (8, 3)] {
        let semaphore = DeviceSemaphore::new(units);
        let (inside, most, entries) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
        launcher
            .launch(blocks, |block| {
                for _ in 0..200 {
                    semaphore.acquire(block)?;
                    most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    entries.fetch_add(1, Ordering::Relaxed);
                    std::thread::yield_now();
                    inside.fetch_sub(1, Ordering::SeqCst);
                    semaphore.release();
                }
                Ok(())
            })
            .unwrap();
        assert_eq!(entries.into_inner(), u64::from(blocks) * 200);
        assert!(most.into_inner() <= units);
        assert_eq!(semaphore.free(), units as i64);
    }
}

#[test]
fn the_first_error_ends_the_launch_and_fails_the_communicator() {
    let (launcher, health) = launcher();
    let error = launcher
        .launch(4, |block| {
            if block.index() == 2 {
                return Err(LaunchError::Blocks { rank: 3, blocks: 77, limit: 1 }.into());
            }
            block.barrier()
        })
        .unwrap_err();
    assert!(matches!(error, Error::Launch(LaunchError::Blocks { blocks: 77, .. })), "{error}");
    assert_eq!(health.check().unwrap_err().id(), "launch.blocks");
    // Every later launch returns the failure.
    let error = launcher.launch(1, |_| Ok(())).unwrap_err();
    assert_eq!(error.id(), "launch.blocks");
}

#[test]
fn a_panic_becomes_an_error_and_the_threads_stay_usable() {
    for culprit in [0, 2] {
        let (launcher, health) = launcher();
        let error = launcher
            .launch(3, |block| {
                assert!(block.index() != culprit, "block {culprit} has had enough");
                block.barrier()
            })
            .unwrap_err();
        let Error::Launch(LaunchError::Panicked { rank: 3, block, blocks: 3, message }) = error else {
            panic!("another error: {error}");
        };
        assert_eq!((block, message), (culprit, format!("block {culprit} has had enough")));
        assert_eq!(health.check().unwrap_err().code(), ErrorCode::InternalError);
        drop(launcher); // Joins the workers, of which one has caught a panic.
    }
}

#[test]
fn a_block_that_skips_a_barrier_is_found() {
    let (launcher, _) = launcher();
    let error =
        launcher.launch(3, |block| if block.index() == 1 { Ok(()) } else { block.barrier() }).unwrap_err();
    assert_eq!(error.id(), "launch.barrier", "{error}");
    assert!(error.to_string().contains("have returned"), "{error}");
}

#[test]
fn aborting_ends_waiting_blocks() {
    let (launcher, health) = launcher();
    let semaphore = DeviceSemaphore::new(0);
    let error = std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(50));
            health.abort("enough");
        });
        launcher.launch(3, |block| semaphore.acquire(block)).unwrap_err()
    });
    assert_eq!(error.code(), ErrorCode::Aborted, "{error}");
}

#[test]
fn waits_between_blocks_time_out() {
    let (launcher, _) = launcher();
    let launcher = launcher.with_timeout(Timeout::after(Duration::from_millis(50)));
    let semaphore = DeviceSemaphore::new(0);
    let error = launcher.launch(1, |block| semaphore.acquire(block)).unwrap_err();
    assert_eq!(error.code(), ErrorCode::Timeout, "{error}");
}

/// Launches on one launcher that need each other (ranks as threads, blocks that launch) all run.
#[test]
fn launches_overlap_and_nest() {
    let (launcher, _) = launcher();
    let (ping, pong) = (DeviceSemaphore::new(0), DeviceSemaphore::new(0));
    std::thread::scope(|scope| {
        let other = launcher.clone();
        let (ping, pong) = (&ping, &pong);
        scope.spawn(move || {
            other
                .launch(2, |block| {
                    ping.acquire(block)?;
                    pong.release();
                    Ok(())
                })
                .unwrap();
        });
        launcher
            .launch(2, |block| {
                ping.release();
                pong.acquire(block)
            })
            .unwrap();
    });
    let runs = AtomicU32::new(0);
    launcher
        .launch(3, |block| {
            launcher.launch(2, |inner| {
                runs.fetch_add(1, Ordering::Relaxed);
                inner.barrier()
            })?;
            block.barrier()
        })
        .unwrap();
    assert_eq!(runs.into_inner(), 6);
}
