//! Folds in rank order: the same order on every rank, so the same bits.

use warpway_plan::{BuildError, Chunk, Reduction};

use super::draft::Draft;

impl Draft<'_> {
    /// Reads one chunk of every rank in the list, folds them in list order and leaves the result here. `me` must be in the
    /// list, with a chunk of its own.
    pub(super) fn read_and_fold(
        &mut self,
        me: u32,
        chunks: &[Chunk],
        result: Chunk,
    ) -> Result<(), BuildError> {
        let others: Vec<Chunk> = chunks.iter().filter(|chunk| chunk.rank() != me).copied().collect();
        let Some(own) = chunks.iter().position(|chunk| chunk.rank() == me) else { return Ok(()) };
        if others.is_empty() {
            return self.copy_own(result, chunks[own]);
        }
        let peers: Vec<u32> = others.iter().map(|chunk| chunk.rank()).collect();
        let channels = self.near(me, &peers)?;
        let order = own_at(own, others.len());
        let fold = Reduction::of(chunks[own], &others).into(result).ordered(&order).with(self.task.reduce_op);
        self.p.read_reduce_all(&channels, fold, self.crew.blocks())
    }

    /// Folds a raw chunk of rank `own` and the packets of all others, which come in rank order.
    pub(super) fn fold_packets(
        &mut self,
        own: Chunk,
        others: &[Chunk],
        result: Chunk,
    ) -> Result<(), BuildError> {
        if others.is_empty() {
            return self.copy_own(result, own);
        }
        let order = own_at(own.rank() as usize, others.len());
        let fold = Reduction::of(own, others).into(result).ordered(&order).with(self.task.reduce_op);
        self.p.reduce_packets(fold, self.crew.blocks())
    }

    /// The same of raw chunks that others have put here.
    pub(super) fn fold_slots(
        &mut self,
        own: Chunk,
        others: &[Chunk],
        result: Chunk,
    ) -> Result<(), BuildError> {
        if others.is_empty() {
            return self.copy_own(result, own);
        }
        let order = own_at(own.rank() as usize, others.len());
        let fold = Reduction::of(own, others).into(result).ordered(&order).with(self.task.reduce_op);
        self.p.reduce(fold, self.crew.blocks())
    }
}

/// The order of a fold whose first source belongs at a position among the others.
pub(super) fn own_at(position: usize, others: usize) -> Vec<u32> {
    let others = 1..=others as u32;
    let (before, behind) = others.partition::<Vec<u32>, _>(|other| *other <= position as u32);
    before.into_iter().chain([0]).chain(behind).collect()
}
