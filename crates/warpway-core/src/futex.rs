//! A word to sleep on, which may be shared between processes. Under loom it is a model of one, without
//! time: a wake-up that gets lost shows as a deadlock.

use std::time::Duration;

use crate::sync::{AtomicU32, Ordering};

/// All-zero bytes are a valid value.
#[derive(Debug, Default)]
#[cfg_attr(not(loom), repr(transparent))]
pub(crate) struct Futex {
    word: AtomicU32,
    #[cfg(loom)]
    sleepers: model::Sleepers,
}

impl Futex {
    /// The word at zero.
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// What [`wait`](Self::wait) compares with.
    pub(crate) fn load(&self) -> u32 {
        self.word.load(Ordering::SeqCst)
    }

    /// Changes the word and wakes everybody who sleeps on it.
    pub(crate) fn ring(&self) {
        self.word.fetch_add(1, Ordering::SeqCst);
        self.wake_all();
    }

    /// Sleeps at most `limit` while the word is `expected`; may wake for no reason.
    #[cfg(not(loom))]
    pub(crate) fn wait(&self, expected: u32, limit: Duration) {
        use rustix::thread::futex::{Flags, wait};
        let limit = rustix::time::Timespec {
            tv_sec: limit.as_secs().min(i64::MAX as u64) as i64,
            tv_nsec: i64::from(limit.subsec_nanos()),
        };
        // Every outcome (woken, value changed, timed out, interrupted) means the same: test again.
        let _ = wait(&self.word, Flags::empty(), expected, Some(&limit));
    }

    #[cfg(not(loom))]
    fn wake_all(&self) {
        use rustix::thread::futex::{Flags, wake};
        // Fails only for an address that is not mapped, which a reference cannot be.
        let _ = wake(&self.word, Flags::empty(), i32::MAX as u32);
    }

    /// Compares and falls asleep in one step with respect to `wake_all`, as the kernel does, and never
    /// wakes by itself.
    #[cfg(loom)]
    pub(crate) fn wait(&self, expected: u32, _limit: Duration) {
        let queue = self.sleepers.lock();
        if self.load() == expected {
            self.sleepers.sleep(queue);
        }
    }

    #[cfg(loom)]
    fn wake_all(&self) {
        let queue = self.sleepers.lock();
        self.sleepers.wake_all();
        drop(queue);
    }
}

#[cfg(loom)]
mod model {
    use std::sync::PoisonError;

    use loom::sync::{Condvar, Mutex, MutexGuard};

    /// The kernel's queue of one futex.
    #[derive(Debug)]
    pub(super) struct Sleepers {
        queue: Mutex<()>,
        woken: Condvar,
    }

    impl Default for Sleepers {
        fn default() -> Self {
            Self { queue: Mutex::new(()), woken: Condvar::new() }
        }
    }

    impl Sleepers {
        pub(super) fn lock(&self) -> MutexGuard<'_, ()> {
            self.queue.lock().unwrap_or_else(PoisonError::into_inner)
        }

        pub(super) fn sleep(&self, queue: MutexGuard<'_, ()>) {
            drop(self.woken.wait(queue).unwrap_or_else(PoisonError::into_inner));
        }

        pub(super) fn wake_all(&self) {
            self.woken.notify_all();
        }
    }
}
