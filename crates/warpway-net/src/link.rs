//! One authenticated socket to one peer: counters, failure, orderly end.
//!
//! Locks are taken in the order input, output, queue, watchers; `kept` while no other is taken. Only the receiving thread takes `input`; `output` belongs
//! to whoever has set `Queue::active` (see `outgoing.rs`).

use std::any::Any;
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use rustix::net::Shutdown;
use warpway_core::connection::{CompletionListener, ConnectionError, Position};
use warpway_core::trace::Operation;
use warpway_core::transport::Transport;
use warpway_core::wait::{EventCount, GaveUp, WaitSite, Waiter};
use warpway_core::{Deadline, Error, Result, Timeout};

use crate::frame::{Header, Kind, Reason};
use crate::incoming::Input;
use crate::job::JobId;
use crate::lock;
use crate::outgoing::{Output, Queue};
use crate::reactor::Pollers;

/// How long news of a rank's death may come after its sockets have closed. The receiving thread waits this
/// long, once per broken link.
const NEWS: Duration = Duration::from_millis(200);

/// What a link is made from.
pub(crate) struct LinkParts {
    /// Names the link in the pollers.
    pub(crate) key: u64,
    /// Connected, authenticated, non-blocking.
    pub(crate) socket: OwnedFd,
    pub(crate) job: JobId,
    /// Rank of the other side in the communicator, for errors and the health.
    pub(crate) peer: u32,
    /// Rank of the other side in the job, which owns the memories that can be reached.
    pub(crate) owner: u32,
    /// Endpoint here, for messages.
    pub(crate) object: u64,
    pub(crate) waiter: Waiter,
    pub(crate) pollers: Arc<Pollers>,
    /// Operations that may wait to be sent.
    pub(crate) queue_limit: u64,
    /// How long posting waits for room in the queue.
    pub(crate) stall_timeout: Duration,
}

/// See the module's page.
pub(crate) struct Link {
    pub(crate) parts: LinkParts,
    pub(crate) queue: Mutex<Queue>,
    pub(crate) output: Mutex<Output>,
    pub(crate) input: Mutex<Input>,
    /// Operations posted; written under `queue`.
    pub(crate) posted: AtomicU64,
    /// Operations that the peer has applied.
    completed: AtomicU64,
    /// Rung when `completed` grows or the link fails.
    progress: EventCount,
    /// Told when `completed` grows or the link fails.
    watchers: Mutex<Vec<Weak<dyn CompletionListener>>>,
    /// What must live until the peer has applied a position, by position.
    kept: Mutex<VecDeque<(u64, Arc<dyn Any + Send + Sync>)>>,
    /// Rung when the queue gets shorter or the link fails.
    pub(crate) space: EventCount,
    /// Why nothing can be posted any more.
    failure: OnceLock<ConnectionError>,
    /// Why nothing can be sent any more; what has come is still read.
    pub(crate) send_problem: OnceLock<String>,
    /// The socket is of no use any more: finished in good order, or broken.
    ended: AtomicBool,
}

impl Link {
    pub(crate) fn new(parts: LinkParts) -> Self {
        Self {
            parts,
            queue: Mutex::default(),
            output: Mutex::default(),
            input: Mutex::default(),
            posted: AtomicU64::new(0),
            completed: AtomicU64::new(0),
            progress: EventCount::new(),
            watchers: Mutex::default(),
            kept: Mutex::default(),
            space: EventCount::new(),
            failure: OnceLock::new(),
            send_problem: OnceLock::new(),
            ended: AtomicBool::new(false),
        }
    }

    /// The failure as an error, if there is one. A failure of the communicator says more: a rank that gave up
    /// because of another one closes its sockets, too.
    pub(crate) fn check(&self) -> Result<()> {
        let Some(failure) = self.failure.get() else { return Ok(()) };
        if matches!(failure, ConnectionError::Broken { .. } | ConnectionError::Closed { .. }) {
            self.parts.waiter.health.check()?;
        }
        Err(failure.clone().into())
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.failure.get().is_some()
    }

    /// True once the pollers should forget the socket.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    pub(crate) fn posted(&self) -> Position {
        Position(self.posted.load(Ordering::Acquire))
    }

    pub(crate) fn completed(&self) -> Position {
        // Pairs with the Release store in `acknowledged`.
        Position(self.completed.load(Ordering::Acquire))
    }

    /// The peer has applied everything up to `position`.
    pub(crate) fn acknowledged(&self, position: u64) -> Result<(), &'static str> {
        if position > self.posted.load(Ordering::Acquire) || position < self.completed.load(Ordering::Relaxed)
        {
            return Err("an acknowledgement of something that was not sent");
        }
        self.completed.store(position, Ordering::Release);
        self.progress.notify();
        self.tell(Some(Position(position)));
        self.release(position);
        self.end_if_finished(&lock(&self.queue));
        Ok(())
    }

    /// Keeps `what` until the peer has applied `position`, or nothing more will reach it by this link.
    pub(crate) fn keep(&self, position: Position, what: &Arc<dyn Any + Send + Sync>) {
        let mut kept = lock(&self.kept);
        // Under the lock: whoever raises `completed` or sets `failure` takes it afterwards.
        if self.completed() < position && !self.has_failed() {
            let at = kept.partition_point(|(other, _)| *other <= position.0);
            kept.insert(at, (position.0, Arc::clone(what)));
        }
    }

    fn release(&self, position: u64) {
        let mut kept = lock(&self.kept);
        let released = kept.partition_point(|(other, _)| *other <= position);
        let released: Vec<_> = kept.drain(..released).collect();
        // Dropping them may call back into the core.
        drop(kept);
        drop(released);
    }

    /// Adds somebody to be told, and forgets those that are gone.
    pub(crate) fn watch(&self, listener: Weak<dyn CompletionListener>) {
        let mut watchers = lock(&self.watchers);
        watchers.retain(|watcher| watcher.strong_count() > 0);
        watchers.push(listener);
    }

    /// Called after `progress.notify`, which has the fence that `RawConnection::watch` promises.
    fn tell(&self, completed: Option<Position>) {
        // The lock is not held during the call: dropping the last reference here may close this link.
        let next = |index: usize| lock(&self.watchers).get(index).map(Weak::upgrade);
        for watcher in (0..).map_while(next).flatten() {
            watcher.advanced(completed);
        }
    }

    /// The peer refused the operation that `header` describes: this side of the link fails, nothing else. Waits a moment
    /// for news, as [`lost`](Self::lost) does.
    pub(crate) fn refused(&self, header: &Header) {
        let reason = header.reason.map_or("no reason given", |reason| reason.text());
        let operation = match header.operand {
            kind if kind == Kind::Store as u64 => Operation::UpdateAndSync,
            kind if kind == Kind::Add as u64 => Operation::AtomicAdd,
            _ => Operation::Write,
        };
        let bytes = if operation == Operation::Write { header.length } else { 8 };
        let why = format!(
            "{reason} (operation {}: memory {:#x}, offset {}, {bytes} bytes)",
            header.position, header.memory, header.offset
        );
        let Self { parts: LinkParts { peer, .. }, .. } = self;
        // A rank that gives up because another one died drops its memories, too.
        if matches!(header.reason, Some(Reason::Stale | Reason::Withdrawn)) {
            self.await_news(NEWS);
        }
        self.fail(ConnectionError::Refused { peer: *peer, transport: Transport::Ethernet, operation, why });
        self.end_if_finished(&lock(&self.queue));
    }

    /// The socket has ended. Unless both sides were done with it, the communicator has failed.
    ///
    /// Waits a moment for news from the control plane: if the peer has died, or has given up because another
    /// rank died, that is the failure, and not this socket.
    pub(crate) fn lost(&self, phase: &'static str, why: &str) {
        self.end(phase, why, NEWS);
    }

    /// The peer has broken the protocol.
    pub(crate) fn violated(&self, what: &str) {
        self.end("tcp receive", &format!("the peer broke the protocol: {what}"), Duration::ZERO);
    }

    fn end(&self, phase: &'static str, why: &str, patience: Duration) {
        if self.ended.swap(true, Ordering::AcqRel) {
            return;
        }
        let (posted, completed) = (self.posted().0, self.completed().0);
        let (peer_done, closing) = {
            let queue = lock(&self.queue);
            (queue.peer_done, queue.closing)
        };
        let open = posted - completed.min(posted);
        // A peer that has said goodbye has got all that it waited for: what is still under way to it is of no use to anybody.
        let orderly = peer_done || (closing && (open == 0 || self.has_failed()));
        let (peer, transport) = (self.parts.peer, Transport::Ethernet);
        let health = &self.parts.waiter.health;
        let rank = health.rank();
        let error = match orderly {
            true => ConnectionError::Closed { rank, peer, transport, open },
            false => {
                let operation = if open > 0 { Operation::Write } else { Operation::Wait };
                let sending = self.send_problem.get().map(|why| format!(" ({why})")).unwrap_or_default();
                let why = format!("{why}{sending}; {open} of {posted} operations posted here are lost");
                ConnectionError::Broken { rank, peer, transport, operation, why }
            }
        };
        let blame = !orderly && !health.has_departed(peer);
        tracing::debug!(%error, blame, "link lost");
        if blame {
            self.await_news(patience);
            // First: whoever sees the connection fail finds the communicator failed.
            health.fail_local(phase, Some(peer), error.clone().into());
        }
        self.fail(error);
        self.shut_down();
    }

    /// Until the control plane has told of a failure, which then comes first.
    fn await_news(&self, patience: Duration) {
        let until = Deadline::after(patience);
        while !self.parts.waiter.health.is_failed() && !until.expired() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Nothing can be posted any more; what was queued is dropped and everybody who waits is woken.
    fn fail(&self, error: ConnectionError) {
        if self.failure.set(error).is_err() {
            return;
        }
        // Posting tests `failure` under the queue's lock, so nothing is queued after this.
        let dropped = std::mem::take(&mut lock(&self.queue).operations);
        self.progress.notify();
        self.tell(None);
        self.space.notify();
        drop(dropped);
        self.release(u64::MAX);
    }

    /// Waits until `position` is complete.
    pub(crate) fn flush(&self, position: Position, deadline: Deadline) -> Result<()> {
        let site = || self.site(Operation::Flush, position.0);
        let waited = self.parts.waiter.wait(site, Timeout::from(deadline), Some(&self.progress), || {
            let completed = self.completed();
            if completed >= position {
                return Ok(Ok(()));
            }
            self.check().map_or_else(|error| Ok(Err(error)), |()| Err(completed.0))
        });
        match waited {
            Ok(result) => result,
            Err(error) if matches!(error.reason, GaveUp::TimedOut) => Err(ConnectionError::FlushTimeout {
                peer: self.parts.peer,
                transport: Transport::Ethernet,
                wanted: position.0,
                completed: error.observed,
            }
            .into()),
            Err(error) => Err(Error::Wait(error)),
        }
    }

    /// Waits until nothing posted here is open any more and the peer knows what was applied here, for an orderly end. True
    /// if that is so.
    pub(crate) fn drain(&self, deadline: Deadline) -> bool {
        let told = || {
            let queue = lock(&self.queue);
            !queue.active && !queue.owes_control()
        };
        let done = || self.completed() >= self.posted() && (self.has_ended() || told());
        let settled = || self.has_failed() || done();
        let health = &self.parts.waiter.health;
        while !settled() && !health.is_failed() && !deadline.expired() {
            self.progress.sleep_unless(Duration::from_millis(10), settled);
        }
        settled()
    }

    /// Ends the link once both sides are done and everything is acknowledged. Called with `queue` locked.
    pub(crate) fn end_if_finished(&self, queue: &Queue) {
        let done = queue.goodbye_sent && queue.peer_done && !queue.active && !queue.owes_control();
        if done && (self.has_failed() || self.completed() == self.posted()) {
            self.ended.store(true, Ordering::Release);
            self.shut_down();
        }
    }

    /// No more bytes in either direction. What the kernel holds is still sent; the pollers see the end and
    /// forget the socket.
    pub(crate) fn shut_down(&self) {
        // Fails only if the peer has closed already.
        let _ = rustix::net::shutdown(&self.parts.socket, Shutdown::Both);
    }

    pub(crate) fn site(&self, operation: Operation, sequence: u64) -> WaitSite {
        let LinkParts { peer, object, .. } = self.parts;
        WaitSite { operation, peer: Some(peer), object, sequence, expected: sequence }
    }
}
