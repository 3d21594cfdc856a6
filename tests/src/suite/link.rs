//! A way to put bytes into a peer's memory and to tell it, by memory channel, port channel or connection.

use warpway::core::channel::PortChannelHandle;
use warpway::{
    BlockChannel, Buffer, Communicator, Peer, ProxyService, RegisteredMemory, Result, Semaphore, Timeout,
};

/// The ways there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A memory channel in a kernel of this many blocks.
    Blocks(u32),
    /// A port channel.
    Port,
    /// The connection, and a semaphore.
    Connection,
}

/// From a local memory to one of the peer's.
pub(super) enum Link {
    Blocks {
        comm: Communicator,
        channel: BlockChannel,
        blocks: u32,
    },
    Port {
        channel: PortChannelHandle,
    },
    Connection {
        peer: Peer,
        source: RegisteredMemory,
        remote: RegisteredMemory,
        semaphore: Semaphore,
        timeout: Timeout,
    },
}

impl Link {
    pub(super) fn new(
        comm: &Communicator,
        kind: Kind,
        service: &ProxyService,
        peer: &Peer,
        source: &Buffer<u8>,
        remote: &RegisteredMemory,
    ) -> Result<Self> {
        let timeout = comm.config().device_timeout;
        Ok(match kind {
            Kind::Blocks(blocks) => {
                let channel = comm.block_channel(&peer.memory_channel(source, remote)?)?;
                Self::Blocks { comm: comm.clone(), channel, blocks }
            }
            Kind::Port => Self::Port { channel: peer.port_channel(service, source, remote)?.device_handle() },
            Kind::Connection => Self::Connection {
                peer: peer.clone(),
                source: source.memory().clone(),
                remote: remote.clone(),
                semaphore: peer.semaphore()?,
                timeout,
            },
        })
    }

    pub(super) fn put_with_signal(&self, target: u64, origin: u64, size: u64) -> Result<()> {
        match self {
            Self::Blocks { comm, channel, blocks } => comm.launch(*blocks, |block| {
                channel.put(target, origin, size, block.share())?;
                block.barrier()?;
                if block.index() == 0 { channel.signal() } else { Ok(()) }
            }),
            Self::Port { channel } => channel.put_with_signal(target, origin, size).map(drop),
            Self::Connection { peer, source, remote, semaphore, .. } => {
                peer.connection().write(remote, target, source, origin, size)?;
                semaphore.signal()
            }
        }
    }

    pub(super) fn wait(&self) -> Result<()> {
        match self {
            Self::Blocks { comm, channel, .. } => comm.launch(1, |_| channel.wait()),
            Self::Port { channel } => channel.wait(),
            Self::Connection { semaphore, timeout, .. } => semaphore.wait(*timeout),
        }
    }

    /// Returns once sources may be written again.
    pub(super) fn flush(&self) -> Result<()> {
        match self {
            Self::Blocks { .. } => Ok(()),
            Self::Port { channel } => channel.flush().map(drop),
            Self::Connection { peer, timeout, .. } => peer.connection().flush(timeout.start()),
        }
    }
}
