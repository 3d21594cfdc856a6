//! One channel per peer, by shared memory or through a proxy, behind the calls a collective makes.

use warpway::core::channel::PortChannelHandle;
use warpway::{BlockChannel, ProxyService, RegisteredMemory, Result, Share, Transport};

use super::session::Session;

/// Channels from a local memory to a memory of every peer; `None` at this rank's own place.
pub(super) struct Links {
    links: Vec<Option<Link>>,
    rank: u32,
}

enum Link {
    Memory(BlockChannel),
    Port(PortChannelHandle),
}

impl Links {
    /// `source` is what is put, `destination` where puts of the peers arrive here.
    pub(super) fn new(
        session: &Session,
        source: &RegisteredMemory,
        destination: &RegisteredMemory,
    ) -> Result<Self> {
        for peer in others(session) {
            session.peers()[peer as usize].send_memory(destination)?;
        }
        let mut service: Option<ProxyService> = None;
        let mut links = Vec::new();
        for (rank, peer) in (0..).zip(session.peers()) {
            if rank == session.rank() {
                links.push(None);
                continue;
            }
            let remote = peer.recv_memory()?;
            links.push(Some(if peer.connection().transport() == Transport::SharedMemory {
                Link::Memory(session.comm().block_channel(&peer.memory_channel(source, &remote)?)?)
            } else {
                let service = match &service {
                    Some(service) => service,
                    None => service.insert(session.comm().proxy_service()?),
                };
                Link::Port(peer.port_channel(service, source, &remote)?.device_handle())
            }));
        }
        Ok(Self { links, rank: session.rank() })
    }

    /// Puts `bytes` at `origin` to every peer's `target` and signals. The nearest following rank comes first,
    /// so that not all ranks write to the same peer at once.
    pub(super) fn put_to_all(&self, target: u64, origin: u64, bytes: u64) -> Result<()> {
        for link in self.in_turn() {
            link.put_with_signal(target, origin, bytes)?;
        }
        Ok(())
    }

    /// Puts `bytes` at `origin` to one peer's `target` and signals it.
    pub(super) fn put_to(&self, peer: u32, target: u64, origin: u64, bytes: u64) -> Result<()> {
        match self.links.get(peer as usize) {
            Some(Some(link)) => link.put_with_signal(target, origin, bytes),
            _ => Ok(()),
        }
    }

    /// Signals every peer.
    pub(super) fn signal_all(&self) -> Result<()> {
        self.in_turn().try_for_each(Link::signal)
    }

    /// Takes one signal of every peer.
    pub(super) fn wait_for_all(&self) -> Result<()> {
        self.links.iter().flatten().try_for_each(Link::wait)
    }

    /// Returns once the sources of all puts may be reused.
    pub(super) fn flush(&self) -> Result<()> {
        self.links.iter().flatten().try_for_each(Link::flush)
    }

    /// The memory channel to `peer`, if its memory is mapped.
    pub(super) fn memory(&self, peer: u32) -> Option<&BlockChannel> {
        match self.links.get(peer as usize)?.as_ref()? {
            Link::Memory(channel) => Some(channel),
            Link::Port(_) => None,
        }
    }

    fn in_turn(&self) -> impl Iterator<Item = &Link> {
        let (before, after) = self.links.split_at(self.rank as usize);
        after.iter().chain(before).flatten()
    }
}

impl Link {
    fn put_with_signal(&self, target: u64, origin: u64, bytes: u64) -> Result<()> {
        match self {
            Self::Memory(channel) => {
                channel.put(target, origin, bytes, Share::ALL)?;
                channel.signal()
            }
            Self::Port(channel) => channel.put_with_signal(target, origin, bytes).map(drop),
        }
    }

    fn signal(&self) -> Result<()> {
        match self {
            Self::Memory(channel) => channel.signal(),
            Self::Port(channel) => channel.signal().map(drop),
        }
    }

    fn wait(&self) -> Result<()> {
        match self {
            Self::Memory(channel) => channel.wait(),
            Self::Port(channel) => channel.wait(),
        }
    }

    fn flush(&self) -> Result<()> {
        match self {
            Self::Memory(_) => Ok(()),
            Self::Port(channel) => channel.flush().map(drop),
        }
    }
}

/// All ranks but this one.
pub(super) fn others(session: &Session) -> impl Iterator<Item = u32> {
    let own = session.rank();
    (0..session.n_ranks()).filter(move |rank| *rank != own)
}

/// What the report calls the transport of the session's links.
pub(super) fn transport_name(session: &Session) -> &'static str {
    if session.n_ranks() == 1 {
        return "none";
    }
    let shared = others(session)
        .all(|rank| session.peers()[rank as usize].connection().transport() == Transport::SharedMemory);
    if shared { "shared" } else { "tcp" }
}
