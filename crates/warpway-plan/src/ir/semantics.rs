//! What each data operation does with its lists: which references hold packets, which belong together.

use super::{Action, Operation};
use super::{ChannelType, DataKind, DataOperation, Extension, Plan, ReduceOp, Reference};
use std::collections::BTreeSet;

/// How data lies in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Form {
    /// As the caller knows it.
    Raw,
    /// Payload and flags, twice the bytes; in the packet area of the scratch.
    Packets,
}

/// References of one operation that are processed together: every destination gets what the sources give.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Item<'o> {
    /// Positions of `sources` and `destinations` in the lists of the operation start here.
    pub first: (usize, usize),
    /// One reference, or the sources of a fold in list order.
    pub sources: &'o [Reference],
    /// One reference or more.
    pub destinations: &'o [Reference],
}

impl DataKind {
    /// True if the operation joins its sources to one value.
    pub fn is_fold(self) -> bool {
        matches!(
            self,
            Self::Reduce
                | Self::ReduceSend
                | Self::ReadReduce
                | Self::ReadReduceSend
                | Self::ReducePackets
                | Self::ReduceSendPackets
                | Self::ReduceCopyPackets
                | Self::ReduceCopySendPackets
        )
    }

    /// True if the multicast hardware folds.
    pub fn is_switch_fold(self) -> bool {
        matches!(self, Self::GroupLoadReduce | Self::GroupLoadReduceStore)
    }

    /// True if one list of destinations gets the value of all sources, instead of item `j` from source `j`.
    pub fn joins(self) -> bool {
        self.is_fold() || self == Self::ReadPutPackets
    }

    /// The form of a source, by its position in the list.
    pub fn source_form(self, channel_type: Option<ChannelType>, position: usize) -> Form {
        let packets = match self {
            Self::UnpackPackets | Self::ReadPutPackets | Self::GroupStorePackets => true,
            Self::PutPackets => channel_type == Some(ChannelType::Port),
            Self::ReducePackets
            | Self::ReduceSendPackets
            | Self::ReduceCopyPackets
            | Self::ReduceCopySendPackets => position > 0,
            _ => false,
        };
        if packets { Form::Packets } else { Form::Raw }
    }

    /// The form of a destination, by its position in the list.
    pub fn destination_form(self, position: usize) -> Form {
        let packets = match self {
            Self::PutPackets | Self::CopyPackets | Self::ReadPutPackets | Self::GroupStorePackets => true,
            Self::ReduceSendPackets | Self::ReduceCopyPackets | Self::ReduceCopySendPackets => position > 0,
            _ => false,
        };
        if packets { Form::Packets } else { Form::Raw }
    }

    /// True if any reference of the operation holds packets.
    pub fn uses_packets(self) -> bool {
        matches!(
            self,
            Self::PutPackets
                | Self::CopyPackets
                | Self::UnpackPackets
                | Self::ReadPutPackets
                | Self::ReducePackets
                | Self::ReduceSendPackets
                | Self::ReduceCopyPackets
                | Self::ReduceCopySendPackets
                | Self::GroupStorePackets
        )
    }

    /// True if the operation ends with a signal on each of its channels.
    pub fn signals(self) -> bool {
        matches!(self, Self::PutWithSignal | Self::PutWithSignalAndFlush)
    }
}

impl DataOperation {
    /// The references that are processed together, in list order. Lists of different length (V105) give the
    /// items that are complete.
    pub fn items(&self) -> impl Iterator<Item = Item<'_>> {
        let joined = self.kind.joins();
        let count = if joined { 1 } else { self.sources.len().min(self.destinations.len()) };
        (0..count).map(move |j| match joined {
            true => Item { first: (0, 0), sources: &self.sources, destinations: &self.destinations },
            false => {
                Item { first: (j, j), sources: &self.sources[j..=j], destinations: &self.destinations[j..=j] }
            }
        })
    }

    /// The form of the source at a position.
    pub fn source_form(&self, position: usize) -> Form {
        self.kind.source_form(self.channel_type, position)
    }

    /// The form of the destination at a position.
    pub fn destination_form(&self, position: usize) -> Form {
        self.kind.destination_form(position)
    }

    /// Positions of the sources in the order in which they enter the fold. Not checked: `order` may be no
    /// permutation (V111).
    pub fn fold_order(&self) -> impl Iterator<Item = usize> + '_ {
        let order = self.fold.as_ref().and_then(|fold| fold.order.as_deref());
        (0..self.sources.len()).map(move |at| order.and_then(|o| o.get(at)).map_or(at, |p| *p as usize))
    }
}

impl Plan {
    /// All operations with their rank and block; those of a pipeline follow it.
    pub fn operations(&self) -> impl Iterator<Item = (u32, u32, &Operation)> {
        (0..).zip(&self.ranks).flat_map(|(rank, plan)| {
            (0..).zip(&plan.blocks).flat_map(move |(block, b)| {
                b.operations.iter().flat_map(move |operation| {
                    let body = match &operation.action {
                        Action::Pipeline(pipeline) => pipeline.body.as_slice(),
                        _ => &[],
                    };
                    std::iter::once(operation).chain(body).map(move |o| (rank, block, o))
                })
            })
        })
    }

    /// The extensions that its contents need.
    pub fn used_extensions(&self) -> BTreeSet<Extension> {
        let mut used = BTreeSet::new();
        // It shows nowhere else.
        if self.has_scratch_credits() {
            used.insert(Extension::ScratchCredits);
        }
        if self.ranks.iter().any(|rank| rank.size_ids.is_some()) {
            used.insert(Extension::SizedChunks);
        }
        for (_, _, operation) in self.operations() {
            match &operation.action {
                Action::Data(data) => {
                    if data.kind == DataKind::GroupLoadReduce {
                        used.insert(Extension::LoadReduce);
                    }
                    if let Some(fold) = &data.fold {
                        if matches!(fold.op, ReduceOp::Prod | ReduceOp::Avg) {
                            used.insert(Extension::ReduceOp);
                        }
                        if fold.order.is_some() {
                            used.insert(Extension::Order);
                        }
                    }
                }
                Action::Pipeline(pipeline) if pipeline.size_id.is_some() => {
                    used.insert(Extension::SizedChunks);
                }
                _ => {}
            }
        }
        used
    }

    /// True if the executor sees to it that scratch is not written before it is free ([`Extension::ScratchCredits`]).
    pub fn has_scratch_credits(&self) -> bool {
        self.extensions.contains(&Extension::ScratchCredits)
    }

    /// Number of ranks.
    pub fn n_ranks(&self) -> u32 {
        self.ranks.len() as u32
    }
}
