//! Operations in one line, as reports and listings show them: `put i[0] -> rank 1 o[0] (memory)`.

use std::fmt::Write as _;

use crate::ir::{Action, ChannelType, DataOperation, Operation, Plan, Reference, ThreadBlock, Via};
use crate::topology::Topology;
use crate::verify::OpPath;

/// So many elements of a list are shown.
const SHOWN: usize = 8;

/// Says in words what the numbers of a plan's operations mean. Made once per plan: it resolves all channels.
#[derive(Debug)]
pub struct Notation<'p> {
    topology: Topology<'p>,
}

impl<'p> Notation<'p> {
    /// Of any plan, right or wrong; numbers that point nowhere are shown with a question mark.
    pub fn new(plan: &'p Plan) -> Self {
        Self { topology: Topology::new(plan) }
    }

    /// The operation at a place, if there is one.
    pub fn operation(&self, rank: u32, block: u32, path: OpPath) -> Option<&'p Operation> {
        let block = self.block(rank, block)?;
        let outer = block.operations.get(path.index as usize)?;
        match (path.inner, &outer.action) {
            (None, _) => Some(outer),
            (Some(inner), Action::Pipeline(pipeline)) => pipeline.body.get(inner as usize),
            (Some(_), _) => None,
        }
    }

    /// The block of that number of a rank, if there is one.
    pub fn block(&self, rank: u32, block: u32) -> Option<&'p ThreadBlock> {
        self.topology.plan().ranks.get(rank as usize)?.blocks.get(block as usize)
    }

    /// One line for an operation of a block of a rank.
    pub fn line(&self, rank: u32, block: &ThreadBlock, operation: &Operation) -> String {
        match &operation.action {
            Action::Nop => "nop".into(),
            Action::Barrier { id, blocks } => format!("barrier {id} of {blocks} blocks"),
            Action::Signal { via, relaxed, channels } => {
                let name = if *relaxed { "rlxsignal" } else { "signal" };
                format!("{name} {} ({})", self.peers(rank, block, *via, channels), channel_type(*via))
            }
            Action::Wait { via, relaxed, channels } => {
                let name = if *relaxed { "rlxwait" } else { "wait" };
                format!("{name} {} ({})", self.peers(rank, block, *via, channels), channel_type(*via))
            }
            Action::Flush { channels } => {
                format!("flush {} (port)", self.peers(rank, block, Via::Port, channels))
            }
            Action::Acquire { semaphores } => {
                format!("sem_acquire {}", list(semaphores, |id| id.to_string()))
            }
            Action::Release { semaphores } => {
                format!("sem_release {}", list(semaphores, |id| id.to_string()))
            }
            Action::Data(data) => self.data(rank, block, data),
            Action::Pipeline(pipeline) => {
                let chunks = match pipeline.size_id {
                    Some(id) => format!("chunks of size id {id}"),
                    None => format!("{} chunks", pipeline.num_chunks),
                };
                format!("pipeline over {chunks} in units of {} bytes", pipeline.unit_size)
            }
        }
    }

    fn data(&self, rank: u32, block: &ThreadBlock, data: &DataOperation) -> String {
        let references = |references: &[Reference]| {
            list(references, |reference| self.reference(rank, block, data.channel_type, reference))
        };
        let mut line =
            format!("{} {} -> {}", data.kind, references(&data.sources), references(&data.destinations));
        let mut notes = Vec::new();
        if let Some(fold) = &data.fold {
            notes.push(fold.op.to_string());
            if let Some(order) = &fold.order {
                notes.push(format!("order {}", list(order, |position| position.to_string())));
            }
        }
        notes.extend(data.channel_type.map(|channel_type| channel_type.to_string()));
        notes.extend(data.group.map(|group| format!("member {} of {}", group.member, group.size)));
        if !notes.is_empty() {
            // Writing into a string does not fail.
            let _ = write!(line, " ({})", notes.join(", "));
        }
        line
    }

    fn reference(
        &self,
        rank: u32,
        block: &ThreadBlock,
        access: Option<ChannelType>,
        reference: &Reference,
    ) -> String {
        let chunks = match reference.size() {
            1 => format!("[{}]", reference.index()),
            size => format!("[{}..{}]", reference.index(), u128::from(reference.index()) + u128::from(size)),
        };
        match *reference {
            Reference::Local { buffer, .. } => format!("{buffer}{chunks}"),
            Reference::Remote { position, .. } => {
                let target = access.and_then(|access| self.topology.remote_at(rank, block, access, position));
                match target {
                    Some(target) => format!("rank {} {}{chunks}", target.rank, target.buffer),
                    None => format!("remote buffer {position}?{chunks}"),
                }
            }
            Reference::Switch { position, .. } => match self.topology.switch_at(rank, block, position) {
                Some(channel) => {
                    let members = list(&channel.group.ranks, u32::to_string);
                    format!("ranks {{{members}}} {}{chunks}", channel.buffer)
                }
                None => format!("switch channel {position}?{chunks}"),
            },
        }
    }

    /// The peers of channels; the ordinal is shown where it is not the first channel to that peer.
    fn peers(&self, rank: u32, block: &ThreadBlock, via: Via, positions: &[u32]) -> String {
        let peers = list(positions, |position| {
            let channel = self.topology.channel_at(block, channel_type(via), *position);
            match channel.and_then(|channel| self.topology.link(rank, via, channel)) {
                Some(link) if link.ordinal == 0 => link.peer.to_string(),
                Some(link) => format!("{}#{}", link.peer, link.ordinal),
                None => format!("?{position}"),
            }
        });
        format!("{} {peers}", if positions.len() == 1 { "rank" } else { "ranks" })
    }
}

fn channel_type(via: Via) -> ChannelType {
    match via {
        Via::Memory => ChannelType::Memory,
        Via::Port => ChannelType::Port,
    }
}

fn list<T>(elements: &[T], show: impl Fn(&T) -> String) -> String {
    let mut shown: Vec<String> = elements.iter().take(SHOWN).map(show).collect();
    if elements.len() > SHOWN {
        shown.push(format!("… {} more", elements.len() - SHOWN));
    }
    shown.join(", ")
}
