//! What two ranks that talk have in common, seen from one of them: mailboxes, and how far both rings are.

use std::future::Future;
use std::pin::Pin;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};

use warpway_core::Result;
use warpway_core::communicator::{Communicator, Exchange};
use warpway_core::connection::{CompletionListener, Connection};
use warpway_core::endpoint::EndpointConfig;
use warpway_core::memory::{Access, RegisteredMemory};
use warpway_core::transport::{Transport, TransportFlags};

use super::layout::{DESCRIPTOR_WORDS, Layout, N_DESCRIPTORS, TAKEN, padded};
use super::link::{Bell, Far, Link, Near};
use super::mailbox::Mailbox;
use super::{NO_REGION, TAG};
use crate::buffer::SharedBuffer;
use crate::plan::{Imports, Slots};

/// Payload that is asked for before it is known to have come. More than a core has under way at once gains nothing.
const PREFETCHED_BYTES: u64 = 2048;

/// See the module's page.
#[derive(Debug)]
pub(super) struct Pair {
    pub(super) peer: u32,
    pub(super) here: Mailbox,
    pub(super) link: Link,
    pub(super) out: Outbox,
    pub(super) inbox: Inbox,
    /// Messages sent and received, complete or begun.
    pub(super) sent: u64,
    pub(super) received: u64,
    /// Where the peer knows buffers of this rank, and this rank buffers of the peer.
    pub(super) published: Slots,
    pub(super) imports: Imports,
}

/// How far the ring at the peer is.
#[derive(Debug)]
pub(super) struct Outbox {
    /// Descriptors sent.
    posted: u64,
    /// Payload laid out.
    position: u64,
    /// Payload laid out up to each of the last descriptors.
    ends: [u64; N_DESCRIPTORS as usize],
    /// Descriptors that the peer had taken when this rank last looked, and their payload.
    taken: u64,
    freed: u64,
}

/// How far the ring here is.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    taken: u64,
    position: u64,
    /// What the sender has been told.
    told: u64,
    told_position: u64,
}

impl Pair {
    fn new(peer: u32, here: Mailbox, link: Link) -> Self {
        Self {
            peer,
            here,
            link,
            out: Outbox { posted: 0, position: 0, ends: [0; N_DESCRIPTORS as usize], taken: 0, freed: 0 },
            inbox: Inbox::default(),
            sent: 0,
            received: 0,
            published: Slots::default(),
            imports: Imports::default(),
        }
    }

    pub(super) fn is_far(&self) -> bool {
        matches!(self.link, Link::Far(_))
    }

    /// True if the peer may do that with a memory of this rank, by the way between the two.
    pub(super) fn may(&self, memory: &RegisteredMemory, access: Access) -> bool {
        let transport = if self.is_far() { Transport::Ethernet } else { Transport::SharedMemory };
        memory.is_local() && memory.transports().has(transport) && memory.access().contains(access)
    }

    /// True if a descriptor with so much payload may be sent now.
    #[inline]
    pub(super) fn has_room(&mut self, payload: u64) -> bool {
        if self.out.has_room(self.here.layout, payload) {
            return true;
        }
        // Acquire: the peer has read what it gives back; pairs with its `tell`.
        let taken = self.here.word(TAKEN).load(Ordering::Acquire);
        if taken > self.out.taken && taken <= self.out.posted {
            (self.out.taken, self.out.freed) = (taken, self.out.ends[(taken % N_DESCRIPTORS) as usize]);
        }
        self.out.has_room(self.here.layout, payload)
    }

    /// Number of the next descriptor to be sent.
    pub(super) fn next_number(&self) -> u64 {
        self.out.posted + 1
    }

    /// Sends a descriptor; [`has_room`](Self::has_room) has said that there is room.
    ///
    /// # Safety
    /// The payload must be readable, and no part of a mailbox.
    #[inline]
    pub(super) unsafe fn post(
        &mut self,
        mut descriptor: [u64; DESCRIPTOR_WORDS],
        payload: Option<(NonNull<u8>, u64)>,
    ) -> Result<()> {
        let (number, position) = (self.out.posted + 1, self.out.position);
        descriptor[0] = number;
        // SAFETY: the caller's word; there is room, so the peer has taken what lay there before.
        unsafe { self.link.post(number, &descriptor, position, payload) }?;
        self.out.posted = number;
        self.out.position += payload.map_or(0, |(_, bytes)| padded(bytes));
        self.out.ends[(number % N_DESCRIPTORS) as usize] = self.out.position;
        Ok(())
    }

    /// The next descriptor that the peer has sent, if it has come.
    #[inline]
    pub(super) fn peek(&self) -> Option<[u64; DESCRIPTOR_WORDS]> {
        let number = self.inbox.taken + 1;
        self.link.has_come(&self.here, number).then(|| self.here.descriptor(number))
    }

    /// While the next descriptor is awaited: so much payload may be on its way already, and lines that have come by the time
    /// the descriptor does need not be waited for then.
    #[inline]
    pub(super) fn await_payload(&self, bytes: u64) {
        if !self.is_far() {
            self.here.prefetch(self.inbox.position, bytes.min(PREFETCHED_BYTES));
        }
    }

    /// Copies payload of the next descriptor.
    ///
    /// # Safety
    /// `bytes` bytes must be writable at `destination`, and no part of a mailbox.
    pub(super) unsafe fn drain(&self, destination: NonNull<u8>, bytes: u64) {
        // SAFETY: the caller's word; until it is taken the sender does not write there again.
        unsafe { self.here.drain(self.inbox.position, destination, bytes) };
    }

    /// Number of the next descriptor to be taken.
    pub(super) fn next_taken(&self) -> u64 {
        self.inbox.taken + 1
    }

    /// Gives the next descriptor back, with so much payload. The sender learns it in time, in quarters of a ring: each
    /// message would cost a fence otherwise.
    #[inline]
    pub(super) fn take(&mut self, payload: u64) -> Result<()> {
        let inbox = &mut self.inbox;
        inbox.taken += 1;
        inbox.position += padded(payload);
        let due = inbox.taken - inbox.told >= N_DESCRIPTORS / 4
            || inbox.position - inbox.told_position >= self.here.layout.payload / 4;
        if due {
            (inbox.told, inbox.told_position) = (inbox.taken, inbox.position);
            self.link.tell(TAKEN, &[inbox.taken])?;
        }
        Ok(())
    }
}

impl Outbox {
    #[inline]
    fn has_room(&self, layout: Layout, payload: u64) -> bool {
        self.posted - self.taken < N_DESCRIPTORS
            && self.position + padded(payload) - self.freed <= layout.payload
    }
}

/// A pair that is being set up: both ranks do it when they first have a message for each other.
pub(super) struct Connecting {
    peer: u32,
    here: Mailbox,
    sent: [Exchange<()>; 2],
    bell: Exchange<RegisteredMemory>,
    mailbox: Exchange<RegisteredMemory>,
    /// Between hosts.
    connection: Option<Exchange<Connection>>,
}

impl Connecting {
    /// Tells the peer where the mailbox is.
    pub(super) fn start(comm: &Communicator, peer: u32, bell: &Bell, transport: Transport) -> Result<Self> {
        let near = transport == Transport::SharedMemory;
        let layout = if near { Layout::NEAR } else { Layout::FAR };
        let here = allocate(comm, layout, transport)?;
        let connection = match near {
            true => None,
            false => Some(comm.connect(EndpointConfig::cpu(transport), peer, TAG)?),
        };
        let sent = [comm.send_memory(&bell.memory, peer, TAG)?, comm.send_memory(&here.memory, peer, TAG)?];
        let [bell, mailbox] = [comm.recv_memory(peer, TAG)?, comm.recv_memory(peer, TAG)?];
        Ok(Self { peer, here, sent, bell, mailbox, connection })
    }

    /// The pair, once both sides have what they need. `Err(self)` until then; the bell rings when there is news.
    pub(super) fn poll(mut self, comm: &Communicator, bell: &Arc<Bell>) -> Result<Result<Pair, Self>> {
        let waker = Waker::from(Arc::clone(bell));
        let mut context = Context::from_waker(&waker);
        // A message may end here before the peer reads it: it must have imported all it needs of this rank.
        for sent in &mut self.sent {
            let Some(()) = outcome(sent, &mut context)? else { return Ok(Err(self)) };
        }
        let Some(their_bell) = outcome(&mut self.bell, &mut context)? else { return Ok(Err(self)) };
        let Some(there) = outcome(&mut self.mailbox, &mut context)? else { return Ok(Err(self)) };
        let layout = self.here.layout;
        let link = match &mut self.connection {
            None => Link::Near(Near {
                there: Mailbox::new(there, layout)?,
                bell: their_bell.mapped_token("bell", 0)?,
            }),
            Some(connection) => {
                let Some(connection) = outcome(connection, &mut context)? else { return Ok(Err(self)) };
                let listener: Arc<dyn CompletionListener> = Arc::<Bell>::clone(bell);
                connection.watch(Arc::downgrade(&listener));
                let mirror = allocate(comm, layout, Transport::Ethernet)?;
                Link::Far(Far::new(connection, there, their_bell, mirror))
            }
        };
        Ok(Ok(Pair::new(self.peer, self.here, link)))
    }
}

/// A fresh mailbox of this rank.
fn allocate(comm: &Communicator, layout: Layout, transport: Transport) -> Result<Mailbox> {
    let region = SharedBuffer::allocate(layout.bytes())?.region().cloned().ok_or(NO_REGION)?;
    Mailbox::new(comm.register_memory(region, TransportFlags::from(transport), Access::ALL)?, layout)
}

fn outcome<T: Clone>(exchange: &mut Exchange<T>, context: &mut Context<'_>) -> Result<Option<T>> {
    match Pin::new(exchange).poll(context) {
        Poll::Ready(result) => result.map(Some),
        Poll::Pending => Ok(None),
    }
}
