//! The numbering of a plan: channels, remote buffers, barriers and semaphores of a rank, and which of them each
//! block names by position.

use std::collections::HashMap;

use super::step::Block;
use crate::ir::{BufferKind, ChannelType, RemoteBuffer, Via};

/// Different numbers in order of first use.
#[derive(Debug, Clone, Default)]
pub(crate) struct Positions {
    numbers: Vec<u32>,
    index: HashMap<u32, u32>,
}

impl Positions {
    /// The position of a number, which is appended if it is new.
    pub(crate) fn of(&mut self, number: u32) -> u32 {
        *self.index.entry(number).or_insert_with(|| {
            self.numbers.push(number);
            (self.numbers.len() - 1) as u32
        })
    }

    /// The numbers by position.
    pub(crate) fn numbers(&self) -> &[u32] {
        &self.numbers
    }
}

/// What a block names by position.
#[derive(Debug, Clone, Default)]
pub(crate) struct BlockTables {
    pub(crate) memory: Positions,
    pub(crate) port: Positions,
    /// Numbers of the rank's switch channels.
    pub(crate) switch: Positions,
    pub(crate) remote_memory: Positions,
    pub(crate) remote_port: Positions,
}

impl BlockTables {
    pub(crate) fn channels(&mut self, via: Via) -> &mut Positions {
        match via {
            Via::Memory => &mut self.memory,
            Via::Port => &mut self.port,
        }
    }

    pub(crate) fn remote(&mut self, via: Via) -> &mut Positions {
        match via {
            Via::Memory => &mut self.remote_memory,
            Via::Port => &mut self.remote_port,
        }
    }

    pub(crate) fn remote_numbers(&self, access: ChannelType) -> &[u32] {
        match access {
            ChannelType::Memory => self.remote_memory.numbers(),
            ChannelType::Port => self.remote_port.numbers(),
            ChannelType::Switch => &[],
        }
    }
}

/// What a program has said about one rank.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rank {
    pub(crate) scratch_chunks: u64,
    pub(crate) scratch_ids: Vec<u64>,
    /// Peers of the memory channels.
    pub(crate) memory: Vec<u32>,
    /// Peers of the port channels.
    pub(crate) port: Vec<u32>,
    /// True if the first port channel is older than the first memory channel.
    pub(crate) port_first: bool,
    /// Program-wide numbers of the switch channels.
    pub(crate) switch: Vec<u32>,
    pub(crate) remote_buffers: Vec<RemoteBuffer>,
    remote_index: HashMap<(u32, BufferKind), u32>,
    barriers: HashMap<Vec<u32>, u32>,
    pub(crate) semaphores: Vec<u64>,
    pub(crate) blocks: Vec<Block>,
}

impl Rank {
    /// Adds a channel; answers its number.
    pub(crate) fn add_channel(&mut self, via: Via, peer: u32) -> u32 {
        self.port_first |= via == Via::Port && self.memory.is_empty();
        let peers = match via {
            Via::Memory => &mut self.memory,
            Via::Port => &mut self.port,
        };
        peers.push(peer);
        (peers.len() - 1) as u32
    }

    /// Peers of the channels of one type.
    pub(crate) fn peers(&self, via: Via) -> &[u32] {
        match via {
            Via::Memory => &self.memory,
            Via::Port => &self.port,
        }
    }

    /// The number of a peer's buffer, to be reached one way.
    pub(crate) fn remote_buffer(&mut self, owner: u32, buffer: BufferKind, via: Via) -> u32 {
        let number = *self.remote_index.entry((owner, buffer)).or_insert_with(|| {
            let (memory_access, port_access) = (false, false);
            self.remote_buffers.push(RemoteBuffer { rank: owner, buffer, memory_access, port_access });
            (self.remote_buffers.len() - 1) as u32
        });
        if let Some(entry) = self.remote_buffers.get_mut(number as usize) {
            entry.memory_access |= via == Via::Memory;
            entry.port_access |= via == Via::Port;
        }
        number
    }

    /// The number of the barrier of a list of blocks.
    pub(crate) fn barrier(&mut self, blocks: &[u32]) -> u32 {
        let next = self.barriers.len() as u32;
        match self.barriers.get(blocks) {
            Some(id) => *id,
            None => *self.barriers.entry(blocks.to_vec()).or_insert(next),
        }
    }

    /// A block; those below it come into being with it.
    pub(crate) fn block(&mut self, block: u32) -> &mut Block {
        let count = block as usize + 1;
        if self.blocks.len() < count {
            self.blocks.resize_with(count, Block::default);
        }
        &mut self.blocks[block as usize]
    }
}
