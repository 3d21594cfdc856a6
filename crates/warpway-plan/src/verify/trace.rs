//! The plan unrolled: every step of every block, pipelines taken apart, numbers resolved.

use std::ops::Range;

use super::extent::Slice;
use super::report::{Diagnostic, OpPath, Place};
use super::scale::Scale;
use crate::ir::{Action, ChannelType, Plan, Via};
use crate::repairs::Repairs;
use crate::topology::Topology;

/// Number of a directed memory or port channel: one end, seen by its owner. Dense.
pub(super) type ChannelId = u32;

/// A channel without partner.
pub(super) const NO_PARTNER: ChannelId = u32::MAX;

/// One end of a memory or port channel.
#[derive(Debug, Clone, Copy)]
pub(super) struct Channel {
    /// Who signals, puts and waits on it.
    pub(super) owner: u32,
    /// Who is at the other end.
    pub(super) peer: u32,
    /// Memory or port.
    pub(super) via: Via,
    /// Among the owner's channels of the type to that peer.
    pub(super) ordinal: u32,
    /// The other end, or [`NO_PARTNER`].
    pub(super) partner: ChannelId,
}

/// One step of a block. Numbers of blocks count through all ranks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Step<'p> {
    /// What is done; never a pipeline.
    pub(super) action: &'p Action,
    /// Where it stands in the block's list.
    pub(super) path: OpPath,
    /// The slice, inside pipelines.
    pub(super) slice: Option<Slice>,
}

/// The steps of one block.
#[derive(Debug, Clone)]
pub(super) struct BlockTrace {
    /// Rank.
    pub(super) rank: u32,
    /// Number within the rank.
    pub(super) block: u32,
    /// Its steps in [`Trace::steps`].
    pub(super) steps: Range<usize>,
}

/// See the module's page. References are valid: geometry has been checked before.
#[derive(Debug)]
pub(super) struct Trace<'p> {
    pub(super) topology: &'p Topology<'p>,
    pub(super) scale: Scale,
    /// What the executor is assumed to add; nothing in the first examination.
    pub(super) repairs: Repairs,
    /// After how many slices those of a pipeline come back to the same raw scratch; `None`: never.
    pub(super) window: Option<u64>,
    /// By number, rank after rank.
    pub(super) blocks: Vec<BlockTrace>,
    /// Block after block, in program order.
    pub(super) steps: Vec<Step<'p>>,
    /// By number.
    pub(super) channels: Vec<Channel>,
    /// First channel number of a rank, memory then port.
    first_channel: Vec<[u32; 2]>,
    /// Number of the first block of each rank, and one more.
    first_block: Vec<usize>,
}

impl<'p> Trace<'p> {
    /// Unrolls a plan whose references are valid.
    ///
    /// # Errors
    /// V409 if it has more than `budget` steps.
    pub(super) fn new(
        topology: &'p Topology<'p>,
        scale: Scale,
        budget: u64,
    ) -> Result<Self, Box<Diagnostic>> {
        let plan = topology.plan();
        let (channels, first_channel) = number_channels(topology);
        let mut trace = Self {
            topology,
            scale,
            repairs: Repairs::default(),
            window: None,
            blocks: Vec::new(),
            steps: Vec::new(),
            channels,
            first_channel,
            first_block: vec![0],
        };
        for (rank, of_rank) in (0..).zip(&plan.ranks) {
            for (block, of_block) in (0..).zip(&of_rank.blocks) {
                let start = trace.steps.len();
                for (index, operation) in (0..).zip(&of_block.operations) {
                    match &operation.action {
                        Action::Pipeline(pipeline) => {
                            let slices = scale.slice(pipeline.unit_size).and_then(|units| {
                                scale.iterations(pipeline.num_chunks, units).map(|count| (units, count))
                            });
                            let (units, iterations) = slices.unwrap_or((0, u64::MAX));
                            let more = iterations.saturating_mul(pipeline.body.len().max(1) as u64);
                            if more.saturating_add(trace.steps.len() as u64) > budget {
                                return Err(too_long(Place::op(rank, block, OpPath { index, inner: None })));
                            }
                            for iteration in 0..iterations {
                                let slice = Some(Slice { iteration, units });
                                for (inner, operation) in (0..).zip(&pipeline.body) {
                                    let path = OpPath { index, inner: Some(inner) };
                                    trace.steps.push(Step { action: &operation.action, path, slice });
                                }
                            }
                        }
                        action => {
                            let path = OpPath { index, inner: None };
                            trace.steps.push(Step { action, path, slice: None });
                        }
                    }
                }
                if trace.steps.len() as u64 > budget {
                    return Err(too_long(Place::rank(rank)));
                }
                let steps = start..trace.steps.len();
                trace.blocks.push(BlockTrace { rank, block, steps });
            }
            trace.first_block.push(trace.blocks.len());
        }
        Ok(trace)
    }

    /// The plan.
    pub(super) fn plan(&self) -> &'p Plan {
        self.topology.plan()
    }

    /// The blocks of a rank, by number.
    pub(super) fn blocks_of(&self, rank: u32) -> Range<usize> {
        let at = rank as usize;
        self.first_block[at]..self.first_block[at + 1]
    }

    /// The block of a step.
    pub(super) fn block_of(&self, step: usize) -> usize {
        self.blocks.partition_point(|block| block.steps.end <= step)
    }

    /// The number of a channel that a block names by position.
    pub(super) fn channel(&self, block: usize, via: Via, position: u32) -> Option<ChannelId> {
        let BlockTrace { rank, block, .. } = self.blocks[block];
        let of_block = &self.plan().ranks[rank as usize].blocks[block as usize];
        let channel_type = match via {
            Via::Memory => ChannelType::Memory,
            Via::Port => ChannelType::Port,
        };
        let index = *of_block.channels_of(channel_type).get(position as usize)?;
        self.channel_by_index(rank, via, index)
    }

    /// The number of a rank's channel by its channel index.
    pub(super) fn channel_by_index(&self, rank: u32, via: Via, index: u32) -> Option<ChannelId> {
        self.topology.link(rank, via, index)?;
        Some(self.first_channel[rank as usize][via as usize] + index)
    }

    /// Where a step stands.
    pub(super) fn place(&self, block: usize, step: usize) -> Place {
        let BlockTrace { rank, block, .. } = self.blocks[block];
        let Step { path, slice, .. } = self.steps[step];
        Place { iteration: slice.map(|s| s.iteration), ..Place::op(rank, block, path) }
    }

    /// A channel, for people: `memory channel 1->0 #0`.
    pub(super) fn channel_name(&self, channel: ChannelId) -> String {
        let Channel { owner, peer, via, ordinal, .. } = self.channels[channel as usize];
        let kind = match via {
            Via::Memory => "memory",
            Via::Port => "port",
        };
        format!("{kind} channel {owner}->{peer} #{ordinal}")
    }
}

fn number_channels(topology: &Topology<'_>) -> (Vec<Channel>, Vec<[u32; 2]>) {
    let n_ranks = topology.plan().n_ranks();
    let ends = |rank, via| topology.rank(rank).map_or(&[][..], |channels| channels.links(via));
    let mut first = Vec::with_capacity(n_ranks as usize);
    let mut count = 0;
    for rank in 0..n_ranks {
        let memory = count;
        let port = memory + ends(rank, Via::Memory).len() as u32;
        count = port + ends(rank, Via::Port).len() as u32;
        first.push([memory, port]);
    }
    let mut channels = Vec::with_capacity(count as usize);
    for owner in 0..n_ranks {
        for via in [Via::Memory, Via::Port] {
            for (index, link) in (0..).zip(ends(owner, via)) {
                let partner = topology
                    .partner(owner, via, index)
                    .map_or(NO_PARTNER, |at| first[link.peer as usize][via as usize] + at);
                channels.push(Channel { owner, peer: link.peer, via, ordinal: link.ordinal, partner });
            }
        }
    }
    (channels, first)
}

fn too_long(place: Place) -> Box<Diagnostic> {
    let message = "the plan has more steps than are examined, pipelines taken apart";
    let hint = "raise the limit, or check with fewer pipeline units per chunk";
    Box::new(Diagnostic::error(409, message).at(place).hint(hint))
}
