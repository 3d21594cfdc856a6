//! The threads behind a launcher. A worker runs one block after another and sleeps in between.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use warpway_core::wait::{EventCount, WaitPolicy};
use warpway_core::{Result, SystemError};

/// What a worker is asked to do.
pub(crate) type Task = Box<dyn FnOnce() + Send>;

/// How long an idle worker sleeps before it looks again, although it is always woken.
const NAP: Duration = Duration::from_secs(5);

/// All workers of a launcher, and which of them are idle.
#[derive(Default)]
pub(crate) struct Workers {
    idle: Mutex<Vec<Arc<Mailbox>>>,
    threads: Mutex<Vec<(Arc<Mailbox>, JoinHandle<()>)>>,
}

impl Workers {
    /// Takes `count` idle workers, starting new ones where there are too few.
    pub(crate) fn take(&self, count: usize, policy: WaitPolicy) -> Result<Vec<Arc<Mailbox>>> {
        let mut idle = lock(&self.idle);
        let from = idle.len().saturating_sub(count);
        let mut taken = idle.split_off(from);
        drop(idle);
        while taken.len() < count {
            match self.start(policy) {
                Ok(worker) => taken.push(worker),
                Err(error) => {
                    self.put_back(taken);
                    return Err(error);
                }
            }
        }
        Ok(taken)
    }

    /// Returns workers whose tasks have ended.
    pub(crate) fn put_back(&self, workers: Vec<Arc<Mailbox>>) {
        lock(&self.idle).extend(workers);
    }

    fn start(&self, policy: WaitPolicy) -> Result<Arc<Mailbox>> {
        let mailbox = Arc::new(Mailbox::default());
        let mut threads = lock(&self.threads);
        let thread = std::thread::Builder::new()
            .name(format!("warpway-block-{}", threads.len()))
            .spawn({
                let mailbox = Arc::clone(&mailbox);
                move || mailbox.serve(policy)
            })
            .map_err(|error| {
                SystemError::from_io(format!("starting thread {} for a block", threads.len()), &error)
                    .with_hint("see the limit on processes (ulimit -u)")
            })?;
        threads.push((Arc::clone(&mailbox), thread));
        Ok(mailbox)
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        let threads = std::mem::take(&mut *lock(&self.threads));
        for (mailbox, _) in &threads {
            mailbox.stop();
        }
        for (_, thread) in threads {
            // A worker catches the panics of its tasks, so there is no result to lose.
            let _ = thread.join();
        }
    }
}

/// Where one worker gets its tasks.
#[derive(Default)]
pub(crate) struct Mailbox {
    task: Mutex<Option<Task>>,
    state: AtomicU32,
    event: EventCount,
}

const EMPTY: u32 = 0;
const FULL: u32 = 1;
const STOP: u32 = 2;

impl Mailbox {
    /// Hands over a task; the worker must be idle.
    pub(crate) fn post(&self, task: Task) {
        *lock(&self.task) = Some(task);
        // Release: the worker sees the task once it sees FULL; pairs with the load in `serve`.
        self.state.store(FULL, Ordering::Release);
        self.event.notify();
    }

    fn stop(&self) {
        self.state.store(STOP, Ordering::Release);
        self.event.notify();
    }

    fn serve(&self, policy: WaitPolicy) {
        // Pairs with `post` and `stop`.
        let called = || self.state.load(Ordering::Acquire) != EMPTY;
        loop {
            // Kernels often follow each other closely; yielding would only disturb whoever else works.
            for _ in 0..policy.spins {
                if called() {
                    break;
                }
                std::hint::spin_loop();
            }
            while !called() {
                self.event.sleep_unless(NAP, called);
            }
            if self.state.load(Ordering::Acquire) == STOP {
                return;
            }
            let task = lock(&self.task).take();
            // Before the task runs: at its end the worker is idle again and may be called at once.
            self.state.store(EMPTY, Ordering::Release);
            if let Some(task) = task {
                task();
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
