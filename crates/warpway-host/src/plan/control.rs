//! The control memory of a communicator's plans: who has started which launch, and with what.
//!
//! Each rank has one, which all others write to: a bell that wakes its packet readers; for every writer two counters
//! (the last launch started, the last one ended) and a ring of records. Ranks of this host map it (`Corner`); to those
//! of other hosts the same words are sent (`far.rs`). Whoever reads finds the same either way.

use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

use warpway_core::communicator::{Communicator, Exchange};
use warpway_core::connection::Connection;
use warpway_core::deadline::Deadline;
use warpway_core::memory::{Access, MappedToken, RegisteredMemory};
use warpway_core::token::TOKEN_BYTES;
use warpway_core::transport::{Transport, TransportFlags};
use warpway_core::wait::EventCount;
use warpway_core::{Error, Result};

use super::far::FarCorner;
use super::hosts::Hosts;
use super::record::{WAITS, Words, with_extents};
use super::slots::{Found, RING_BYTES, Slots};
use super::{NO_REGION, TAG};
use crate::buffer::SharedBuffer;

/// How long a rank that fails waits for others to have read why.
const SETTLING: Duration = Duration::from_secs(2);

/// See the module's page.
#[derive(Debug)]
pub(super) struct Control {
    bell: MappedToken,
    /// By writer: what that rank has written here.
    here: Vec<Corner>,
    /// By owner: where this rank writes there.
    there: Vec<There>,
    /// This rank's control memory as ranks of other hosts write to it; kept registered.
    _far: Option<[RegisteredMemory; 2]>,
}

/// What one rank writes into the memory of another.
#[derive(Debug)]
struct Corner {
    started: MappedToken,
    ended: MappedToken,
    records: Slots,
}

/// The control memory of another rank.
#[derive(Debug)]
enum There {
    /// Of this host: this rank's corner, and the owner's bell.
    Mapped(Corner, MappedToken),
    /// Of another host.
    Far(Box<FarCorner>),
}

/// Where the parts of a writer's corner are.
#[derive(Debug, Clone, Copy)]
pub(super) struct CornerOffsets {
    pub(super) started: u64,
    pub(super) ended: u64,
    pub(super) records: u64,
}

/// What is known of a peer's launch.
#[allow(clippy::large_enum_variant, reason = "lives on the stack for a moment; a launch allocates nothing")]
pub(super) enum Peer {
    /// It has not started; the last launch that it has started with this rank.
    Behind(u64),
    /// It has started this launch, with this record.
    Here(Words),
    /// It has started a launch of that number in which this rank has no part.
    Apart,
    /// It is so far ahead that the record is gone.
    Gone,
}

impl Control {
    /// Collective.
    pub(super) fn new(comm: &Communicator, hosts: &Hosts, deadline: Deadline) -> Result<Self> {
        let (rank, n) = (comm.rank(), comm.n_ranks());
        let bytes = records(n) + u64::from(n) * RING_BYTES;
        let region = SharedBuffer::allocate(bytes)?.region().cloned().ok_or(NO_REGION)?;
        let register =
            |transport, access| comm.register_memory(region.clone(), TransportFlags::from(transport), access);
        let own = register(Transport::SharedMemory, Access::ALL | Access::TOKENS)?;
        // Words of a memory of tokens are counters only, so the records of far ranks come by a second one.
        let far = match hosts.far() {
            [] => None,
            _ => Some([
                register(Transport::Ethernet, Access::ALL | Access::TOKENS)?,
                register(Transport::Ethernet, Access::ALL)?,
            ]),
        };
        for peer in (0..n).filter(|peer| *peer != rank) {
            let memories = match &far {
                Some(far) if hosts.is_far(peer) => &far[..],
                _ => std::slice::from_ref(&own),
            };
            for memory in memories {
                comm.send_memory(memory, peer, TAG)?;
            }
        }
        let receive = |peer| -> Result<Vec<Exchange<RegisteredMemory>>> {
            let count = if peer == rank { 0 } else { 1 + usize::from(hosts.is_far(peer)) };
            (0..count).map(|_| comm.recv_memory(peer, TAG)).collect()
        };
        let pending = (0..n).map(receive).collect::<Result<Vec<_>>>()?;
        let mut there = Vec::new();
        for exchanges in pending {
            let mut memories = Vec::new();
            for exchange in exchanges {
                memories.push(exchange.wait(deadline)?);
            }
            if memories.iter().any(|memory| memory.size() != bytes) {
                let what = "all ranks' have one size";
                return Err(Error::Internal { place: "plan control memory", what });
            }
            let mapped = |memory: &RegisteredMemory| -> Result<There> {
                Ok(There::Mapped(Corner::new(memory, rank, n)?, token(memory, 0)?))
            };
            there.push(match &memories[..] {
                [tokens, records] => {
                    There::Far(Box::new(FarCorner::new(tokens, records, CornerOffsets::of(rank, n))))
                }
                [memory] => mapped(memory)?,
                _ => mapped(&own)?,
            });
        }
        let here = (0..n).map(|writer| Corner::new(&own, writer, n)).collect::<Result<_>>()?;
        Ok(Self { bell: token(&own, 0)?, here, there, _far: far })
    }

    /// From now on a rank of another host is told by this connection. Data goes by it, too, so that whoever has got data
    /// of a launch has got the record before it.
    pub(super) fn connect(&self, peer: u32, connection: &Connection) {
        if let Some(There::Far(corner)) = self.there.get(peer as usize) {
            corner.connect(connection);
        }
    }

    /// Tells `peers` that this rank has started launch `sequence`.
    /// `extents` are the digests for the peers, where there are any. A `quiet` call wakes nobody: the caller
    /// [rings](Self::ring) all of them soon.
    ///
    /// # Errors
    /// Those of a connection to a rank of another host.
    pub(super) fn announce(
        &self,
        sequence: u64,
        record: &Words,
        peers: &[u32],
        extents: &[u64],
        quiet: bool,
    ) -> Result<()> {
        for (number, peer) in peers.iter().enumerate() {
            let Some(there) = self.there.get(*peer as usize) else { continue };
            let adapted;
            let record = match extents.get(number) {
                Some(digest) => {
                    adapted = with_extents(record, *digest);
                    &adapted
                }
                None => record,
            };
            match there {
                There::Mapped(corner, _) => {
                    corner.records.write(sequence, record);
                    match quiet {
                        true => corner.started.store_quietly(sequence),
                        false => corner.started.store(sequence),
                    }
                }
                There::Far(corner) => corner.announce(sequence, record)?,
            }
        }
        Ok(())
    }

    /// Tells `ranks`, which know of this rank's launch `sequence`, whom it waits for in it.
    ///
    /// # Errors
    /// As [`announce`](Self::announce).
    pub(super) fn announce_wait(&self, sequence: u64, ranks: &[u32], waits_for: Option<u32>) -> Result<()> {
        let word = waits_for.map_or(0, |rank| u64::from(rank) + 1);
        for there in ranks.iter().filter_map(|rank| self.there.get(*rank as usize)) {
            match there {
                There::Mapped(corner, _) => corner.records.put(sequence, WAITS, word),
                There::Far(corner) => corner.put(sequence, WAITS, word)?,
            }
        }
        Ok(())
    }

    pub(super) fn n_ranks(&self) -> usize {
        self.there.len()
    }

    /// All ranks but one.
    pub(super) fn others(&self, rank: u32) -> impl Iterator<Item = u32> + use<> {
        (0..self.there.len() as u32).filter(move |other| *other != rank)
    }

    /// True if this rank can tell `rank` of its steps.
    pub(super) fn reaches(&self, rank: u32) -> bool {
        match self.there.get(rank as usize) {
            Some(There::Mapped(..)) => true,
            Some(There::Far(corner)) => corner.is_connected(),
            None => false,
        }
    }

    /// Tells `peers` that this rank's launch has ended.
    ///
    /// # Errors
    /// As [`announce`](Self::announce).
    pub(super) fn announce_end(&self, sequence: u64, peers: &[u32]) -> Result<()> {
        for there in peers.iter().filter_map(|peer| self.there.get(*peer as usize)) {
            match there {
                There::Mapped(corner, _) => corner.ended.store(sequence),
                There::Far(corner) => corner.announce_end(sequence)?,
            }
        }
        Ok(())
    }

    /// Waits until ranks of other hosts have what they were told; not long, and whoever is not reached is left out.
    ///
    /// A failure goes by the mesh, which has no order with the connections. A rank that fails because of what another one
    /// has launched settles first: then that one finds the record that explains the failure when it learns of it.
    pub(super) fn settle(&self) {
        let deadline = Deadline::after(SETTLING);
        for there in &self.there {
            if let There::Far(corner) = there {
                corner.settle(deadline);
            }
        }
    }

    /// What `peer` has said of launch `sequence`.
    pub(super) fn peer(&self, peer: u32, sequence: u64) -> Peer {
        let Some(corner) = self.here.get(peer as usize) else { return Peer::Behind(0) };
        // Mostly it is there, and the line of the counter can stay with the writer.
        if let Found::Record(words) = corner.records.read(sequence) {
            return Peer::Here(words);
        }
        let started = corner.started.load();
        if started < sequence {
            return Peer::Behind(started);
        }
        // The counter is raised after the record is written.
        match corner.records.read(sequence) {
            Found::Record(words) => Peer::Here(words),
            Found::Earlier => Peer::Apart,
            Found::Later => Peer::Gone,
        }
    }

    /// The last launch that `peer` has started, as far as it has told this rank.
    pub(super) fn begun(&self, peer: u32) -> u64 {
        self.here.get(peer as usize).map_or(0, |corner| corner.started.load())
    }

    /// What this rank has told `peer` of launch `sequence`, a rank of this host.
    pub(super) fn told(&self, peer: u32, sequence: u64) -> Option<Words> {
        match self.there.get(peer as usize)? {
            There::Mapped(corner, _) => match corner.records.read(sequence) {
                Found::Record(words) => Some(words),
                Found::Earlier | Found::Later => None,
            },
            There::Far(_) => None,
        }
    }

    /// What `peer` notifies when it starts a launch.
    pub(super) fn started(&self, peer: u32) -> Option<&EventCount> {
        self.here.get(peer as usize).map(|corner| corner.started.event())
    }

    /// The last launch that `peer` has ended, and what it notifies then.
    pub(super) fn ended(&self, peer: u32) -> Option<(u64, &EventCount)> {
        self.here.get(peer as usize).map(|corner| (corner.ended.load(), corner.ended.event()))
    }

    /// What writers of packets notify.
    pub(super) fn bell(&self) -> &EventCount {
        self.bell.event()
    }

    /// True if `peer` has launched `sequence` with a record that begins with these words.
    #[inline]
    pub(super) fn agrees(&self, peer: u32, sequence: u64, words: &[u64]) -> bool {
        self.here.get(peer as usize).is_some_and(|corner| corner.records.begins_with(sequence, words))
    }

    /// Has what `peer` says of launch `sequence` fetched.
    #[inline]
    pub(super) fn fetch(&self, peer: u32, sequence: u64) {
        if let Some(corner) = self.here.get(peer as usize) {
            corner.records.fetch(sequence);
        }
    }

    /// Wakes whoever waits for packets on `ranks`, or for this rank's launch. Ranks of other hosts are told otherwise.
    pub(super) fn ring(&self, ranks: &[u32]) {
        // Orders packets, and launches that were told without a word, before the look at who sleeps; one for all.
        fence(Ordering::SeqCst);
        for rank in ranks {
            if let Some(There::Mapped(corner, bell)) = self.there.get(*rank as usize) {
                bell.event().notify_after_rmw();
                corner.started.event().notify_after_rmw();
            }
        }
    }
}

impl CornerOffsets {
    fn of(writer: u32, n: u32) -> Self {
        let (number, all) = (u64::from(writer), u64::from(n));
        Self {
            started: (1 + number) * TOKEN_BYTES,
            ended: (1 + all + number) * TOKEN_BYTES,
            records: records(n) + number * RING_BYTES,
        }
    }
}

impl Corner {
    fn new(memory: &RegisteredMemory, writer: u32, n: u32) -> Result<Self> {
        let CornerOffsets { started, ended, records } = CornerOffsets::of(writer, n);
        let records = Slots::new(memory, records)?;
        Ok(Self { started: token(memory, started)?, ended: token(memory, ended)?, records })
    }
}

/// Where the rings begin.
fn records(n: u32) -> u64 {
    (1 + 2 * u64::from(n)) * TOKEN_BYTES
}

fn token(memory: &RegisteredMemory, offset: u64) -> Result<MappedToken> {
    Ok(memory.mapped_token("plan control memory", offset)?)
}
