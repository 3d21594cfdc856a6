//! epoll, and a waker that interrupts it from other threads.

use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use rustix::io::Errno;

use crate::error::SystemError;

/// Reported for the waker; sockets use other numbers.
pub(super) const WAKER: u64 = 0;

/// What a socket is ready for. An error or the end counts as both, so that the next call finds it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ready {
    pub(super) token: u64,
    pub(super) read: bool,
    pub(super) write: bool,
}

/// Interrupts [`Poller::wait`] from any thread. Wakes before a wait count for that wait.
#[derive(Debug)]
pub(super) struct Waker {
    event: OwnedFd,
    raised: AtomicBool,
}

impl Waker {
    /// One system call at most per wait of the poller.
    pub(super) fn wake(&self) {
        // SeqCst: whoever sees the flag lowered in `lower` also finds what was queued before this call.
        if !self.raised.swap(true, Ordering::SeqCst) {
            // Fails only if the counter is full, and then it is raised.
            let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
        }
    }

    fn lower(&self) {
        let _ = rustix::io::read(&self.event, &mut [0; 8]);
        self.raised.store(false, Ordering::SeqCst);
    }
}

/// See the module's page.
pub(super) struct Poller {
    epoll: OwnedFd,
    waker: Arc<Waker>,
}

impl Poller {
    pub(super) fn new() -> Result<Self, SystemError> {
        let failed = |call| move |errno| SystemError::new(call, errno);
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(failed("epoll_create1"))?;
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(failed("eventfd"))?;
        let waker = Arc::new(Waker { event, raised: AtomicBool::new(false) });
        epoll::add(&epoll, &waker.event, epoll::EventData::new_u64(WAKER), epoll::EventFlags::IN)
            .map_err(failed("epoll_ctl"))?;
        Ok(Self { epoll, waker })
    }

    pub(super) fn waker(&self) -> Arc<Waker> {
        Arc::clone(&self.waker)
    }

    /// Watches a socket until it is closed or removed.
    pub(super) fn add(&self, socket: &OwnedFd, token: u64, write: bool) -> Result<(), Errno> {
        epoll::add(&self.epoll, socket, epoll::EventData::new_u64(token), interest(true, write))
    }

    pub(super) fn modify(&self, socket: &OwnedFd, token: u64, read: bool, write: bool) -> Result<(), Errno> {
        epoll::modify(&self.epoll, socket, epoll::EventData::new_u64(token), interest(read, write))
    }

    /// Waits for sockets, the waker or the clock, and stores what is ready.
    pub(super) fn wait(&self, ready: &mut Vec<Ready>, until: Option<Instant>) -> Result<(), SystemError> {
        let limit = until.map(|at| {
            let left = at.saturating_duration_since(Instant::now());
            // A millisecond more than needed, so that the deadline has passed when the wait ends.
            let millis = left.as_millis().min(60_000) as i64 + i64::from(!left.is_zero());
            Timespec { tv_sec: millis / 1000, tv_nsec: millis % 1000 * 1_000_000 }
        });
        ready.clear();
        let mut space = [MaybeUninit::<epoll::Event>::uninit(); 64];
        let (events, _) = match epoll::wait(&self.epoll, &mut space, limit.as_ref()) {
            Ok(split) => split,
            Err(Errno::INTR) => return Ok(()),
            Err(errno) => return Err(SystemError::new("epoll_wait", errno)),
        };
        for event in events {
            let (flags, token) = (event.flags, event.data.u64());
            if token == WAKER {
                self.waker.lower();
            }
            let broken = flags.intersects(epoll::EventFlags::ERR | epoll::EventFlags::HUP);
            ready.push(Ready {
                token,
                read: broken || flags.contains(epoll::EventFlags::IN),
                write: broken || flags.contains(epoll::EventFlags::OUT),
            });
        }
        Ok(())
    }
}

fn interest(read: bool, write: bool) -> epoll::EventFlags {
    let mut flags = epoll::EventFlags::empty();
    flags.set(epoll::EventFlags::IN, read);
    flags.set(epoll::EventFlags::OUT, write);
    flags
}
