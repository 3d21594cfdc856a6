//! Point to point: around the ring of ranks, this rank to the next, itself if it is alone.

use warpway::{Buffer, Communicator, ProxyService, RegisteredMemory, Result, Transport};

use super::link::{Kind, Link};
use super::{SIZES, compare};
use crate::pattern::byte;

const MARGIN: u64 = 96;
const CANARY: u8 = 0xa9;
const ROUNDS: u64 = 2;
/// Where data begins at the target and at the origin, beyond the margin.
const OFFSETS: [(u64, u64); 3] = [(0, 0), (5, 11), (16, 3)];

/// Every way from a rank to the next one: all sizes, offsets, refilled buffers, canaries around.
pub fn channels(comm: &Communicator, transport: Transport) -> Result<()> {
    let mut kinds = vec![Kind::Port, Kind::Connection];
    if transport == Transport::SharedMemory {
        kinds.extend([Kind::Blocks(1), Kind::Blocks(3)]);
    }
    let ring = Ring::new(comm, transport)?;
    for kind in kinds {
        ring.check(kind)?;
    }
    if transport == Transport::SharedMemory {
        ring.check_get()?;
    }
    ring.check_atomic_add()
}

struct Ring<'a> {
    comm: &'a Communicator,
    service: ProxyService,
    peers: Vec<warpway::Peer>,
    next: u32,
    previous: u32,
    source: Buffer<u8>,
    target: Buffer<u8>,
    /// Of the next rank, and of the previous one.
    remote: [RegisteredMemory; 2],
    /// The previous rank's source.
    origin: RegisteredMemory,
}

impl<'a> Ring<'a> {
    fn new(comm: &'a Communicator, transport: Transport) -> Result<Self> {
        let (own, n) = (comm.rank(), comm.n_ranks());
        let (next, previous) = ((own + 1) % n, (own + n - 1) % n);
        let peers = comm.connect_all(Some(transport))?;
        let length = SIZES.iter().max().unwrap_or(&0) + 32 + 2 * MARGIN;
        let (source, target) = (comm.alloc(length)?, comm.alloc(length)?);
        let (to, from) = (&peers[next as usize], &peers[previous as usize]);
        // One memory goes both ways on each link; two ranks, or one, have a single link for both.
        to.send_memory(&target)?;
        to.send_memory(&source)?;
        let (remote, origin) = if next == previous {
            let (target, source) = (to.recv_memory()?, to.recv_memory()?);
            ([target.clone(), target], source)
        } else {
            from.send_memory(&target)?;
            from.send_memory(&source)?;
            let (before, origin) = (from.recv_memory()?, from.recv_memory()?);
            let (after, _) = (to.recv_memory()?, to.recv_memory()?);
            ([after, before], origin)
        };
        let service = comm.proxy_service()?;
        Ok(Self { comm, service, peers, next, previous, source, target, remote, origin })
    }

    /// Links to the next and from the previous rank. Even ranks begin with the next: no circle of waits.
    fn links(&self, kind: Kind) -> Result<(Link, Link)> {
        let make = |rank: u32, remote| {
            let peer = &self.peers[rank as usize];
            Link::new(self.comm, kind, &self.service, peer, &self.source, remote)
        };
        let (to, from) = (|| make(self.next, &self.remote[0]), || make(self.previous, &self.remote[1]));
        if self.next == self.previous {
            // Two links on one pair; the lower rank's first is the higher rank's second.
            let (first, second) = (to()?, if self.next == self.comm.rank() { None } else { Some(to()?) });
            return Ok(match second {
                None => {
                    let second = to()?;
                    (first, second)
                }
                Some(second) if self.comm.rank() == 0 => (first, second),
                Some(second) => (second, first),
            });
        }
        if self.comm.rank().is_multiple_of(2) {
            let to = to()?;
            Ok((to, from()?))
        } else {
            let from = from()?;
            Ok((to()?, from))
        }
    }

    fn check(&self, kind: Kind) -> Result<()> {
        let (to, from) = self.links(kind)?;
        // A rank alone signals itself, through the one link that both ends share.
        let from = if self.next == self.comm.rank() { &to } else { &from };
        let mut round = 0;
        for size in SIZES {
            for (target, origin) in OFFSETS {
                for _ in 0..ROUNDS {
                    round += 1;
                    self.refill(round, size, origin)?;
                    self.comm.barrier()?;
                    to.put_with_signal(MARGIN + target, MARGIN + origin, size)?;
                    from.wait()?;
                    self.landed(&format!("{kind:?}"), round, MARGIN + target, size)?;
                    to.flush()?;
                }
            }
        }
        self.comm.barrier()
    }

    /// Kernels read the previous rank's source.
    fn check_get(&self) -> Result<()> {
        let peer = &self.peers[self.previous as usize];
        let signal = peer_channel(self, peer)?;
        let channel = self.comm.block_channel(&signal)?;
        for (round, size) in (100..).zip(SIZES) {
            self.refill(round, size, 0)?;
            self.comm.barrier()?;
            self.comm.launch(2, |block| channel.get(MARGIN + 7, MARGIN, size, block.share()))?;
            self.landed("get", round, MARGIN + 7, size)?;
            self.comm.barrier()?;
        }
        Ok(())
    }

    /// Additions of all kinds meet in one word.
    fn check_atomic_add(&self) -> Result<()> {
        const TIMES: u64 = 100;
        let counter = self.comm.alloc::<u64>(2)?;
        let n = u64::from(self.comm.n_ranks());
        let everybody = || self.peers.iter();
        for peer in everybody() {
            peer.send_memory(&counter)?;
        }
        let timeout = self.comm.config().setup_timeout;
        let remotes = everybody().map(|peer| peer.recv_memory()).collect::<Result<Vec<_>>>()?;
        for (peer, remote) in everybody().zip(&remotes) {
            for turn in 0..TIMES {
                let delta = if turn.is_multiple_of(2) { i64::MAX } else { 3 - i64::MAX };
                peer.connection().atomic_add(remote, 8, delta)?;
            }
        }
        for peer in everybody() {
            peer.connection().flush(timeout.start())?;
        }
        self.comm.barrier()?;
        let expected = [0, n * TIMES / 2 * 3];
        compare(self.comm, "atomic_add", &counter.to_vec()?, |at| expected[at as usize])
    }

    fn refill(&self, round: u64, size: u64, origin: u64) -> Result<()> {
        self.source.fill(!CANARY)?;
        self.target.fill(CANARY)?;
        let data: Vec<u8> = (0..size).map(|at| byte(round, self.comm.rank(), at)).collect();
        Ok(self.source.write(MARGIN + origin, &data)?)
    }

    fn landed(&self, what: &str, round: u64, begin: u64, size: u64) -> Result<()> {
        let expected = |at: u64| match at.checked_sub(begin) {
            Some(at) if at < size => byte(round, self.previous, at),
            _ => CANARY,
        };
        let what = format!("{what}, round {round}, {size} bytes at {begin}");
        compare(self.comm, &what, &self.target.to_vec()?, expected)
    }
}

/// A channel that gets from the previous rank's source; its counterpart serves the next rank.
fn peer_channel(ring: &Ring<'_>, peer: &warpway::Peer) -> Result<warpway::MemoryChannel> {
    let to = &ring.peers[ring.next as usize];
    if ring.next == ring.previous {
        return peer.memory_channel(&ring.target, &ring.origin);
    }
    // The next rank's channel needs a counterpart here.
    if ring.comm.rank().is_multiple_of(2) {
        to.signal_channel()?;
        peer.memory_channel(&ring.target, &ring.origin)
    } else {
        let channel = peer.memory_channel(&ring.target, &ring.origin)?;
        to.signal_channel()?;
        Ok(channel)
    }
}
