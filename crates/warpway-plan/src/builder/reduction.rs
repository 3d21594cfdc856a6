//! Operations that join several chunks to one.

use super::error::{BuildError, BuildProblem};
use super::handles::{Blocks, Chunk, MemoryChannel};
use super::program::{Context, Program};
use super::transfer::{Draft, Operand};
use crate::ir::{DataKind, Fold, ReduceOp};

/// What is joined, how, and where the result goes.
///
/// ```
/// # use warpway_plan::{CollectiveShape, Program, ProgramOptions, ReduceOp, Reduction};
/// # let mut p = Program::new(ProgramOptions::new("max", CollectiveShape::test(1, 2, 1)))?;
/// let [a, b] = [p.input(0)?.chunk(0..1)?, p.input(0)?.chunk(1..2)?];
/// p.reduce(Reduction::of(a, &[b]).into(p.output(0)?.whole()).with(ReduceOp::Max), 0)?;
/// # Ok::<(), warpway_plan::BuildError>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Reduction<'a> {
    first: Chunk,
    others: &'a [Chunk],
    destination: Option<Chunk>,
    op: ReduceOp,
    order: Option<&'a [u32]>,
}

impl<'a> Reduction<'a> {
    /// The sum of a local chunk and others, into the local chunk, in list order.
    pub fn of(first: Chunk, others: &'a [Chunk]) -> Self {
        Self { first, others, destination: None, op: ReduceOp::Sum, order: None }
    }

    /// The result goes elsewhere.
    #[must_use]
    pub fn into(self, destination: Chunk) -> Self {
        Self { destination: Some(destination), ..self }
    }

    /// Another operator than the sum.
    #[must_use]
    pub fn with(self, op: ReduceOp) -> Self {
        Self { op, ..self }
    }

    /// The sources enter in this order: 0 is the first chunk, 1 and up the others.
    #[must_use]
    pub fn ordered(self, order: &'a [u32]) -> Self {
        Self { order: Some(order), ..self }
    }

    fn destination(&self) -> Chunk {
        self.destination.unwrap_or(self.first)
    }
}

impl Program {
    /// Joins local chunks.
    ///
    /// # Errors
    /// [`BuildProblem::Empty`], [`BuildProblem::WrongRank`], [`BuildProblem::SizeMismatch`],
    /// [`BuildProblem::BadOrder`], [`BuildProblem::BlockOutOfRange`].
    #[track_caller]
    pub fn reduce<'g>(
        &mut self,
        reduction: Reduction<'_>,
        blocks: impl Into<Blocks<'g>>,
    ) -> Result<(), BuildError> {
        let blocks = blocks.into();
        let at = self.context("reduce", reduction.first.rank, blocks.first());
        self.push_fold(&at, DataKind::Reduce, &[], reduction, blocks)
    }

    /// Joins a local raw chunk and packets of local scratch.
    ///
    /// # Errors
    /// As those of [`reduce`](Self::reduce), and [`BuildProblem::NotScratch`].
    #[track_caller]
    pub fn reduce_packets<'g>(
        &mut self,
        reduction: Reduction<'_>,
        blocks: impl Into<Blocks<'g>>,
    ) -> Result<(), BuildError> {
        let blocks = blocks.into();
        let at = self.context("reduce_packets", reduction.first.rank, blocks.first());
        for other in reduction.others {
            at.scratch("other chunk", *other)?;
        }
        self.push_fold(&at, DataKind::ReducePackets, &[], reduction, blocks)
    }

    /// Joins a local chunk and chunks of the peer of a channel.
    ///
    /// # Errors
    /// As those of [`reduce`](Self::reduce), and [`BuildProblem::UnknownHandle`].
    #[track_caller]
    pub fn read_reduce<'g>(
        &mut self,
        channel: MemoryChannel,
        reduction: Reduction<'_>,
        blocks: impl Into<Blocks<'g>>,
    ) -> Result<(), BuildError> {
        let blocks = blocks.into();
        let at = self.context("read_reduce", channel.owner, blocks.first());
        self.check_channel(&at, channel.into())?;
        let channels = vec![channel; reduction.others.len()];
        self.push_fold(&at, DataKind::ReadReduce, &channels, reduction, blocks)
    }

    /// [`read_reduce`](Self::read_reduce) from several peers in one operation. Each of the other chunks lies at the peer of
    /// one of the channels, in any order.
    ///
    /// # Errors
    /// As those of [`read_reduce`](Self::read_reduce); [`BuildProblem::UnknownHandle`] for a chunk of a rank that no channel
    /// leads to.
    #[track_caller]
    pub fn read_reduce_all<'g>(
        &mut self,
        channels: &[MemoryChannel],
        reduction: Reduction<'_>,
        blocks: impl Into<Blocks<'g>>,
    ) -> Result<(), BuildError> {
        let blocks = blocks.into();
        let rank = reduction.first.rank;
        let at = self.context("read_reduce_all", rank, blocks.first());
        for channel in channels {
            self.check_channel(&at, (*channel).into())?;
            let (expected, found) = (rank, channel.owner);
            at.require(expected == found, || BuildProblem::WrongRank { role: "channel", expected, found })?;
        }
        let mut used = Vec::with_capacity(reduction.others.len());
        for other in reduction.others {
            let channel = channels.iter().find(|channel| channel.peer == other.rank);
            used.push(*channel.ok_or_else(|| at.error(BuildProblem::UnknownHandle { what: "channel" }))?);
        }
        self.push_fold(&at, DataKind::ReadReduce, &used, reduction, blocks)
    }

    /// `channels`: one for each of the other chunks, or none if they are local.
    fn push_fold(
        &mut self,
        at: &Context,
        kind: DataKind,
        channels: &[MemoryChannel],
        reduction: Reduction<'_>,
        blocks: Blocks<'_>,
    ) -> Result<(), BuildError> {
        let Reduction { first, others, op, .. } = reduction;
        let rank = channels.first().map_or(first.rank, |channel| channel.owner);
        self.check_rank(at, rank)?;
        at.require(!others.is_empty(), || BuildProblem::Empty { what: "other chunks" })?;
        self.check_chunk(at, "first chunk", first, rank)?;
        for (number, other) in others.iter().enumerate() {
            let others_rank = channels.get(number).map_or(rank, |channel| channel.peer);
            self.check_chunk(at, "other chunk", *other, others_rank)?;
            self.check_equal(at, "other chunk", *other, first)?;
        }
        let destination = reduction.destination();
        self.check_chunk(at, "destination", destination, rank)?;
        self.check_equal(at, "destination", destination, first)?;
        let order = checked_order(at, reduction.order, others.len() + 1)?;
        let operand = |chunk: &Chunk| match channels.is_empty() {
            true => Operand::Local(*chunk),
            false => Operand::Remote(*chunk),
        };
        let sources = std::iter::once(Operand::Local(first)).chain(others.iter().map(operand)).collect();
        self.push_data(
            at,
            rank,
            blocks,
            Draft {
                kind,
                channel: channels.first().copied().map(Into::into),
                sources,
                destinations: vec![Operand::Local(destination)],
                fold: Some(Fold { op, order }),
                identity: 0,
            },
        )
    }
}

/// The order of `count` sources, if it is another than that of the list.
fn checked_order(at: &Context, order: Option<&[u32]>, count: usize) -> Result<Option<Vec<u32>>, BuildError> {
    let Some(order) = order else { return Ok(None) };
    let mut sorted = order.to_vec();
    sorted.sort_unstable();
    let complete = sorted.len() == count && (0..).zip(&sorted).all(|(at, position)| at == *position);
    at.require(complete, || BuildProblem::BadOrder { sources: count })?;
    Ok((order != sorted).then(|| order.to_vec()))
}
