//! The control memory of a communicator's plans: who has started which launch, and with what.
//!
//! Each rank has one, mapped by all others: a bell that wakes its packet readers; for every writer two counters
//! (the last launch started, the last one ended) and a ring of records.

use warpway_core::communicator::Communicator;
use warpway_core::deadline::Deadline;
use warpway_core::memory::{Access, MappedToken, RegisteredMemory};
use warpway_core::token::TOKEN_BYTES;
use warpway_core::transport::TransportFlags;
use warpway_core::wait::EventCount;
use warpway_core::{Error, Result};

use super::record::{Words, with_extents};
use super::slots::{Found, RING_BYTES, Slots};
use super::{NO_REGION, TAG};
use crate::buffer::SharedBuffer;

/// See the module's page.
#[derive(Debug)]
pub(super) struct Control {
    bell: MappedToken,
    /// By writer: what that rank has written here.
    here: Vec<Corner>,
    /// By owner: what this rank writes there, and the owner's bell.
    there: Vec<(Corner, MappedToken)>,
}

/// What one rank writes into the memory of another.
#[derive(Debug)]
struct Corner {
    started: MappedToken,
    ended: MappedToken,
    records: Slots,
}

/// What is known of a peer's launch.
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
    pub(super) fn new(comm: &Communicator, deadline: Deadline) -> Result<Self> {
        let (rank, n) = (comm.rank(), comm.n_ranks());
        let bytes = records(n) + u64::from(n) * RING_BYTES;
        let region = SharedBuffer::allocate(bytes)?.region().cloned().ok_or(NO_REGION)?;
        let flags = TransportFlags::from(warpway_core::transport::Transport::SharedMemory);
        let own = comm.register_memory(region, flags, Access::ALL | Access::TOKENS)?;
        for peer in (0..n).filter(|peer| *peer != rank) {
            comm.send_memory(&own, peer, TAG)?;
        }
        let mut pending = Vec::new();
        for peer in 0..n {
            pending.push(if peer == rank { None } else { Some(comm.recv_memory(peer, TAG)?) });
        }
        let mut there = Vec::new();
        for exchange in pending {
            let memory = match exchange {
                Some(exchange) => exchange.wait(deadline)?,
                None => own.clone(),
            };
            let expected =
                || Error::Internal { place: "plan control memory", what: "all ranks' have one size" };
            (memory.size() == bytes).then_some(()).ok_or_else(expected)?;
            there.push((Corner::new(&memory, rank, n)?, token(&memory, 0)?));
        }
        let here = (0..n).map(|writer| Corner::new(&own, writer, n)).collect::<Result<_>>()?;
        Ok(Self { bell: token(&own, 0)?, here, there })
    }

    /// Tells `peers` that this rank has started launch `sequence`.
    /// `extents` are the digests for the peers, where there are any.
    pub(super) fn announce(&self, sequence: u64, record: &Words, peers: &[u32], extents: &[u64]) {
        for (number, peer) in peers.iter().enumerate() {
            let Some((corner, _)) = self.there.get(*peer as usize) else { continue };
            match extents.get(number) {
                Some(digest) => corner.records.write(sequence, &with_extents(record, *digest)),
                None => corner.records.write(sequence, record),
            }
            corner.started.store(sequence);
        }
    }

    /// Tells `peers` that this rank's launch has ended.
    pub(super) fn announce_end(&self, sequence: u64, peers: &[u32]) {
        for (corner, _) in peers.iter().filter_map(|peer| self.there.get(*peer as usize)) {
            corner.ended.store(sequence);
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

    /// Wakes whoever waits for packets on `rank`.
    pub(super) fn ring(&self, rank: u32) {
        if let Some((_, bell)) = self.there.get(rank as usize) {
            bell.event().notify();
        }
    }
}

impl Corner {
    fn new(memory: &RegisteredMemory, writer: u32, n: u32) -> Result<Self> {
        let (writer, n) = (u64::from(writer), u64::from(n));
        Ok(Self {
            started: token(memory, 1 + writer)?,
            ended: token(memory, 1 + n + writer)?,
            records: Slots::new(memory, (1 + 2 * n) * TOKEN_BYTES + writer * RING_BYTES)?,
        })
    }
}

/// Where the rings begin.
fn records(n: u32) -> u64 {
    (1 + 2 * u64::from(n)) * TOKEN_BYTES
}

fn token(memory: &RegisteredMemory, number: u64) -> Result<MappedToken> {
    Ok(memory.mapped_token("plan control memory", number * TOKEN_BYTES)?)
}
