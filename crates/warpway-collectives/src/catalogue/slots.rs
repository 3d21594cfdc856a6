//! Places in the scratch of every rank for what each rank sends it.

use warpway_plan::{Buffer, BuildError, Chunk};

use super::draft::Draft;

/// A slot of equal size for every pair of ranks, in the scratch of the one that receives.
pub(super) struct Slots {
    /// By receiver.
    buffers: Vec<Buffer>,
    chunks: u64,
}

impl Slots {
    /// Of that many chunks each.
    pub(super) fn new(d: &mut Draft<'_>, chunks: u64) -> Result<Self, BuildError> {
        let n = d.n();
        let of_rank = |rank| d.p.scratch(rank, u64::from(n) * chunks);
        Ok(Self { buffers: (0..n).map(of_rank).collect::<Result<_, _>>()?, chunks })
    }

    /// The slot at rank `to` for what comes from rank `from`.
    pub(super) fn at(&self, to: u32, from: u32) -> Result<Chunk, BuildError> {
        let first = u64::from(from) * self.chunks;
        self.buffers[to as usize].chunk(first..first + self.chunks)
    }

    /// Chunk `chunk` of the slot at rank `to` for what comes from rank `from`.
    pub(super) fn chunk_at(&self, to: u32, from: u32, chunk: u64) -> Result<Chunk, BuildError> {
        let first = u64::from(from) * self.chunks + chunk;
        self.buffers[to as usize].chunk(first..first + 1)
    }

    /// The slots at a rank for all others, in rank order.
    pub(super) fn others(&self, at: u32) -> Result<Vec<Chunk>, BuildError> {
        let n = self.buffers.len() as u32;
        (0..n).filter(|from| *from != at).map(|from| self.at(at, from)).collect()
    }
}
