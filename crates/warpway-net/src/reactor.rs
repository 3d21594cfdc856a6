//! The two threads of an engine: one reads and accepts, one sends what callers could not send at once.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use rustix::io::Errno;
use warpway_core::SystemError;

use crate::accept::Strays;
use crate::link::Link;
use crate::lock;
use crate::outgoing::BURST_BYTES;
use crate::service::{Shared, Source, collapse};

/// Key of the bell in both pollers.
const BELL: u64 = 0;

/// Events taken at once.
const EVENTS: usize = 64;

/// Where the threads wait.
pub(crate) struct Pollers {
    readable: OwnedFd,
    writable: OwnedFd,
    /// Readable once the engine stops; never read, so both threads see it.
    bell: OwnedFd,
}

impl Pollers {
    pub(crate) fn new() -> Result<Self, SystemError> {
        let epoll = || epoll::create(CreateFlags::CLOEXEC).map_err(|e| SystemError::new("epoll_create1", e));
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let bell = bell.map_err(|e| SystemError::new("eventfd", e))?;
        let pollers = Self { readable: epoll()?, writable: epoll()?, bell };
        for poller in [&pollers.readable, &pollers.writable] {
            epoll::add(poller, &pollers.bell, EventData::new_u64(BELL), EventFlags::IN)
                .map_err(|e| SystemError::new("epoll_ctl", e))?;
        }
        Ok(pollers)
    }

    /// Calls the receiving thread whenever there is something to read.
    pub(crate) fn watch_readable(&self, socket: impl AsFd, key: u64) -> Result<(), Errno> {
        epoll::add(&self.readable, socket, EventData::new_u64(key), EventFlags::IN)
    }

    /// Calls the receiving thread again, or no more, for a socket that it knows.
    pub(crate) fn pause_readable(&self, socket: impl AsFd, key: u64, paused: bool) -> Result<(), Errno> {
        let events = if paused { EventFlags::empty() } else { EventFlags::IN };
        epoll::modify(&self.readable, socket, EventData::new_u64(key), events)
    }

    /// Calls the sending thread once, as soon as the socket takes bytes.
    pub(crate) fn watch_writable(&self, link: &Link, first: bool) -> Result<(), Errno> {
        let (socket, key) = (&link.parts.socket, EventData::new_u64(link.parts.key));
        let events = EventFlags::OUT | EventFlags::ONESHOT;
        if first {
            epoll::add(&self.writable, socket, key, events)
        } else {
            epoll::modify(&self.writable, socket, key, events)
        }
    }

    /// Forgets a socket.
    pub(crate) fn ignore(&self, socket: impl AsFd) {
        // Either may not know it.
        let _ = epoll::delete(&self.readable, socket.as_fd());
        let _ = epoll::delete(&self.writable, socket.as_fd());
    }

    /// Forgets a socket that has not become a link.
    pub(crate) fn ignore_readable(&self, socket: impl AsFd) {
        let _ = epoll::delete(&self.readable, socket);
    }

    /// Wakes both threads for good.
    pub(crate) fn ring(&self) {
        // Cannot fail: the counter is far from its end.
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }
}

/// The receiving thread.
pub(crate) fn receive_loop(shared: &Shared) {
    let mut strays = Strays::default();
    let mut events = Vec::with_capacity(EVENTS);
    let mut touched = Vec::with_capacity(EVENTS);
    while next_events(shared, &shared.pollers.readable, &mut events, strays.next_deadline()) {
        for event in events.drain(..) {
            let key = event.data.u64();
            // In a statement of its own, so that the table is not locked meanwhile.
            let source = lock(&shared.sources).get(&key).cloned();
            match source {
                Some(Source::Link(link)) => {
                    if !link.has_ended() {
                        link.receive(&shared.table);
                    }
                    touched.push(link);
                }
                Some(Source::Listener(job, index)) => strays.accept(shared, &job, index, key),
                None => strays.advance(shared, key),
            }
        }
        // Acknowledgements come last: one for all that an event brought, and often a frame that a caller
        // has sent meanwhile has taken it along.
        for link in touched.drain(..) {
            link.send_control();
            if link.has_ended() {
                shared.forget(&link);
            }
        }
        strays.expire(shared);
    }
}

/// The sending thread.
pub(crate) fn send_loop(shared: &Shared) {
    let mut events = Vec::with_capacity(EVENTS);
    while next_events(shared, &shared.pollers.writable, &mut events, None) {
        for event in events.drain(..) {
            let source = lock(&shared.sources).get(&event.data.u64()).cloned();
            if let Some(Source::Link(link)) = source
                && !link.has_ended()
            {
                link.pump(BURST_BYTES);
            }
        }
    }
}

/// Fills `events`; false once the engine stops.
fn next_events(
    shared: &Shared,
    poller: &OwnedFd,
    events: &mut Vec<epoll::Event>,
    timeout: Option<Duration>,
) -> bool {
    events.clear();
    let timeout = timeout.map(|t| Timespec {
        tv_sec: i64::try_from(t.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(t.subsec_nanos()),
    });
    match epoll::wait(poller, spare_capacity(events), timeout.as_ref()) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(errno) => {
            collapse(shared, &SystemError::new("epoll_wait", errno));
            return false;
        }
    }
    !shared.stopping.load(Ordering::Acquire)
}
