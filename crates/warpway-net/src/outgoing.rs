//! What a link still has to send, and who sends it.
//!
//! Whoever finds [`Queue::active`] unset sets it and owns the output until nothing is left: a caller that
//! posts to an idle link sends at once, without waking a thread. When the socket is full, or the caller has
//! sent [`INLINE_BYTES`], ownership passes to the sending thread through its poller. A posting thread never
//! waits for another link, and holds the queue's lock for a few instructions only.

use std::collections::VecDeque;
use std::sync::MutexGuard;
use std::sync::atomic::Ordering;

use rustix::io::Errno;
use warpway_core::connection::Position;
use warpway_core::memory::RegisteredMemory;
use warpway_core::trace::Operation;
use warpway_core::{Error, Result, Timeout};

use crate::frame::{HEADER_BYTES, Header, Kind, PIECE_BYTES};
use crate::link::Link;
use crate::lock;
use crate::staged::{STAGED_PIECE_BYTES, Staged};
use crate::vectors::{self, RawBuffer};

/// What a posting thread sends itself before it leaves the rest to the sending thread.
pub(crate) const INLINE_BYTES: u64 = 256 << 10;

/// What the sending thread sends of one link before it turns to the next.
pub(crate) const BURST_BYTES: u64 = 4 << 20;

/// The most payload in one system call.
const CALL_BYTES: u64 = 512 << 10;

/// Headers and small payloads gathered into one system call.
const HEAD_BYTES: usize = 4096;

/// Words gathered behind a payload.
const TAIL_BYTES: usize = 8 * HEADER_BYTES;

/// Payloads up to this size are copied behind their headers, so that many fit into one call.
const COPIED_BYTES: u64 = 512;

/// An operation that waits to be sent; it gets its position when it is queued.
pub(crate) enum Posted {
    Word { kind: Kind, position: u64, memory: u64, offset: u64, operand: u64 },
    Write(Write),
}

impl Posted {
    fn at(mut self, number: u64) -> Self {
        let (Self::Word { position, .. } | Self::Write(Write { position, .. })) = &mut self;
        *position = number;
        self
    }
}

/// A write, as far as it has not been sent.
pub(crate) struct Write {
    pub(crate) position: u64,
    /// Id in the peer's table.
    pub(crate) memory: u64,
    pub(crate) offset: u64,
    /// Keeps the bytes until they are sent.
    pub(crate) source: RegisteredMemory,
    pub(crate) source_offset: u64,
    /// Bytes for which no header has been made.
    pub(crate) left: u64,
    /// The source is memory of a device, which this engine reads through host buffers.
    pub(crate) staged: bool,
}

/// What waits on a link. Locked for short.
#[derive(Default)]
pub(crate) struct Queue {
    pub(crate) operations: VecDeque<Posted>,
    refusals: VecDeque<Header>,
    /// Highest position applied here, and the highest that the peer knows of.
    applied: u64,
    told: u64,
    /// Nothing more will be posted here.
    pub(crate) closing: bool,
    pub(crate) goodbye_sent: bool,
    /// The peer will post nothing more.
    pub(crate) peer_done: bool,
    /// Somebody owns the output.
    pub(crate) active: bool,
}

impl Queue {
    /// True if the peer must be told something about its operations.
    pub(crate) fn owes_control(&self) -> bool {
        self.applied > self.told || !self.refusals.is_empty()
    }
}

/// What is being sent. Belongs to whoever has set `Queue::active`.
#[derive(Default)]
pub(crate) struct Output {
    head: Vec<u8>,
    head_sent: usize,
    /// Pieces of `current` that are in memory of a device, or on their way to the host. Dropped before it.
    staged: Staged,
    /// The write whose piece follows the head.
    current: Option<Write>,
    /// Unsent bytes of that piece.
    body: u64,
    /// Words behind the last piece of a write, which leave with it: one system call, and the receiver wakes once.
    tail: Vec<u8>,
    tail_sent: usize,
    /// The sending thread's poller knows the socket.
    registered: bool,
}

impl Output {
    fn is_empty(&self) -> bool {
        self.head_sent == self.head.len() && self.body == 0 && self.tail_sent == self.tail.len()
    }

    /// Notes that `sent` bytes have left.
    fn advance(&mut self, sent: u64) {
        let head = sent.min((self.head.len() - self.head_sent) as u64);
        self.head_sent += head as usize;
        let body = (sent - head).min(self.body);
        self.body -= body;
        self.tail_sent += (sent - head - body).min((self.tail.len() - self.tail_sent) as u64) as usize;
        self.staged.advance(body, self.body);
        if let Some(write) = &mut self.current {
            write.source_offset += body;
            if self.body == 0 && write.left == 0 {
                self.current = None;
            }
        }
    }

    /// Drops everything; the socket is lost.
    pub(crate) fn clear(&mut self) {
        // Waits for what is being read.
        self.staged = Staged::default();
        self.begin();
        (self.body, self.current) = (0, None);
    }

    /// Forgets the frames that have been sent.
    fn begin(&mut self) {
        self.head.clear();
        self.tail.clear();
        (self.head_sent, self.tail_sent) = (0, 0);
    }

    fn push(&mut self, header: &Header) {
        self.head.extend_from_slice(&header.encode());
    }

    /// Makes the header of the next piece of the current write.
    fn begin_piece(&mut self) {
        let Some(write) = &mut self.current else { return };
        let length = write.left.min(if write.staged { STAGED_PIECE_BYTES } else { PIECE_BYTES });
        let header = Header {
            kind: Kind::Write,
            reason: None,
            position: write.position,
            memory: write.memory,
            offset: write.offset,
            length,
            operand: write.left,
        };
        write.offset += length;
        write.left -= length;
        self.body = length;
        self.push(&header);
    }

    fn push_operation(&mut self, posted: Posted) -> Result<()> {
        match posted {
            Posted::Word { kind, position, memory, offset, operand } => {
                self.push(&Header { kind, reason: None, position, memory, offset, length: 0, operand });
            }
            Posted::Write(write) => {
                let copied = write.left <= COPIED_BYTES && !write.staged;
                self.current = Some(write);
                self.begin_piece();
                if copied {
                    self.copy_body()?;
                }
            }
        }
        Ok(())
    }

    /// Moves words that follow the current write behind its last piece.
    fn push_tail(&mut self, operations: &mut VecDeque<Posted>) {
        let is_last = |write: &Write| write.left == 0;
        while self.current.as_ref().is_some_and(is_last) && self.tail.len() < TAIL_BYTES {
            let Some(Posted::Word { kind, position, memory, offset, operand }) = operations.front() else {
                break;
            };
            let (kind, position, memory) = (*kind, *position, *memory);
            let header = Header {
                kind,
                reason: None,
                position,
                memory,
                offset: *offset,
                length: 0,
                operand: *operand,
            };
            self.tail.extend_from_slice(&header.encode());
            operations.pop_front();
        }
    }

    /// Brings the piece to be sent to the host, if it is not there. Not under the queue's lock: it waits for a copy.
    fn stage(&mut self) -> Result<()> {
        match &self.current {
            Some(write) if write.staged && self.body > 0 => self.staged.fetch(write, self.body),
            _ => Ok(()),
        }
    }

    /// Moves a small payload behind its header.
    fn copy_body(&mut self) -> Result<()> {
        let Some(write) = self.current.take() else { return Ok(()) };
        let length = std::mem::take(&mut self.body);
        let source = write.source.pointer("write", write.source_offset, length)?;
        let (begin, length) = (self.head.len(), length as usize);
        self.head.resize(begin + length, 0);
        // SAFETY: the source range lies in a region that `write.source` keeps mapped (checked by `pointer`);
        // the destination are the `length` bytes just added; a fresh vector does not overlap the source.
        unsafe { source.as_ptr().copy_to_nonoverlapping(self.head[begin..].as_mut_ptr(), length) };
        Ok(())
    }
}

impl Link {
    /// Queues operations that follow each other and sends what can be sent at once: small ones leave by one system call.
    /// Waits while the queue is full, which they may then exceed by their number. The position of the last one.
    pub(crate) fn post(
        &self,
        operation: Operation,
        all: impl IntoIterator<Item = Posted>,
    ) -> Result<Position> {
        let mut queue = self.reserve(operation)?;
        self.check()?;
        let mut position = self.posted.load(Ordering::Relaxed);
        for posted in all {
            position += 1;
            queue.operations.push_back(posted.at(position));
        }
        // Release: `posted` is read without the lock.
        self.posted.store(position, Ordering::Release);
        // They are posted now; if sending fails, that shows in `completed` and in the next call.
        self.pump_unless_active(queue, INLINE_BYTES);
        Ok(Position(position))
    }

    fn reserve(&self, operation: Operation) -> Result<MutexGuard<'_, Queue>> {
        let room = || {
            let queue = lock(&self.queue);
            let length = queue.operations.len() as u64;
            if length < self.parts.queue_limit || self.has_failed() { Ok(queue) } else { Err(length) }
        };
        if let Ok(queue) = room() {
            return Ok(queue);
        }
        let site = || self.site(operation, self.posted().0 + 1);
        let timeout = Timeout::after(self.parts.stall_timeout);
        self.parts.waiter.wait(site, timeout, Some(&self.space), room).map_err(Error::Wait)
    }

    /// Notes what has been applied here, for the next frames to the peer.
    pub(crate) fn note_applied(&self, applied: u64) {
        lock(&self.queue).applied = applied;
    }

    /// Queues a refusal.
    pub(crate) fn note_refusal(&self, header: Header) {
        lock(&self.queue).refusals.push_back(header);
    }

    /// The peer will post nothing more.
    pub(crate) fn note_goodbye(&self) {
        let mut queue = lock(&self.queue);
        queue.peer_done = true;
        self.end_if_finished(&queue);
    }

    /// Sends acknowledgements and refusals that nobody else is about to send.
    pub(crate) fn send_control(&self) {
        let queue = lock(&self.queue);
        if queue.owes_control() {
            self.pump_unless_active(queue, INLINE_BYTES);
        }
    }

    /// Nothing more will be posted: says goodbye once the queue is empty.
    pub(crate) fn close(&self) {
        let mut queue = lock(&self.queue);
        queue.closing = true;
        self.pump_unless_active(queue, INLINE_BYTES);
    }

    fn pump_unless_active(&self, mut queue: MutexGuard<'_, Queue>, budget: u64) {
        if !queue.active && !self.has_ended() {
            queue.active = true;
            drop(queue);
            self.pump(budget);
        }
    }

    /// Sends until nothing is left, the socket is full or `budget` bytes have left. Only the owner of
    /// `active` may call it; in the last two cases ownership passes to the sending thread.
    pub(crate) fn pump(&self, mut budget: u64) {
        let problem = {
            let mut output = lock(&self.output);
            loop {
                if output.is_empty() {
                    match self.refill(&mut output) {
                        Ok(true) => {}
                        Ok(false) => return,
                        Err(error) => break error.to_string(),
                    }
                }
                if let Err(error) = output.stage() {
                    break error.to_string();
                }
                let sent = if budget == 0 { Err(Errno::AGAIN) } else { self.send_some(&output) };
                match sent {
                    Ok(sent) => {
                        output.advance(sent);
                        budget = budget.saturating_sub(sent);
                    }
                    Err(Errno::INTR) => {}
                    Err(Errno::AGAIN) => {
                        let first = !std::mem::replace(&mut output.registered, true);
                        match self.parts.pollers.watch_writable(self, first) {
                            Ok(()) => return,
                            Err(errno) => break format!("epoll_ctl failed: {errno}"),
                        }
                    }
                    Err(errno @ (Errno::PIPE | Errno::CONNRESET)) => {
                        // Acknowledgements may have come before the socket closed: the receiving thread reads them, and
                        // then finds its end.
                        let _ = self.send_problem.set(format!("sending failed: {errno}"));
                        output.clear();
                        self.shut_down();
                        return;
                    }
                    Err(errno) => break format!("sending failed: {errno}"),
                }
            }
        };
        self.lost("tcp send", &problem);
    }

    /// One system call.
    fn send_some(&self, output: &Output) -> Result<u64, Errno> {
        let head = RawBuffer::reading(output.head.get(output.head_sent..).unwrap_or_default());
        let length = output.body.min(CALL_BYTES);
        let body = output.current.as_ref().filter(|_| length > 0);
        let body = body.and_then(|w| match output.staged.bytes() {
            None => w.source.pointer("write", w.source_offset, length).ok(),
            staged => staged,
        });
        let body = body.map_or(RawBuffer::reading(&[]), |pointer| RawBuffer::new(pointer, length as usize));
        let tail = output.tail.get(output.tail_sent..).filter(|_| length == output.body);
        let tail = RawBuffer::reading(tail.unwrap_or_default());
        // SAFETY: head and tail are live slices; the body lies in a region that `current` keeps mapped, in the
        // range that `pointer` has checked, or in the buffer that holds the piece.
        let sent = unsafe { vectors::send(&self.parts.socket, [head, body, tail]) }?;
        Ok(sent as u64)
    }

    /// Takes the next frames from the queue; gives the output up and returns false if there are none.
    fn refill(&self, output: &mut Output) -> Result<bool> {
        output.begin();
        let mut queue = lock(&self.queue);
        if queue.applied > queue.told {
            queue.told = queue.applied;
            output.push(&Header::control(Kind::Ack, queue.applied));
        }
        while let Some(refusal) = queue.refusals.pop_front() {
            output.push(&refusal);
        }
        let before = queue.operations.len();
        if output.current.is_some() {
            output.begin_piece();
        }
        while output.current.is_none() && output.head.len() < HEAD_BYTES - HEADER_BYTES {
            let Some(posted) = queue.operations.pop_front() else { break };
            output.push_operation(posted)?;
        }
        output.push_tail(&mut queue.operations);
        let idle = output.current.is_none() && queue.operations.is_empty();
        if idle && queue.closing && !queue.goodbye_sent {
            queue.goodbye_sent = true;
            output.push(&Header::control(Kind::Goodbye, 0));
        }
        let any = !output.is_empty();
        if !any {
            queue.active = false;
            self.end_if_finished(&queue);
        }
        let taken = queue.operations.len() < before;
        drop(queue);
        if taken {
            self.space.notify();
        }
        Ok(any)
    }
}
