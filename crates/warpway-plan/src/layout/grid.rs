//! Where chunks of inputs and outputs lie: at equal steps, in blocks with a short last chunk, or as a table says.
//!
//! Sizes that do not divide evenly (`test` and `custom` plans refuse them): a collective works on *blocks*, what
//! one rank contributes or gets. A block of B bytes has P chunks of C bytes each, C a whole number of units; the
//! last chunks are shorter, or empty, where P x C exceeds B.

use std::sync::Arc;

use super::sized::ChunkTable;
use super::{Extent, Geometry, LayoutError};
use crate::ir::{BufferKind, Collective};

#[derive(Debug, Clone)]
pub(super) enum Grid {
    /// Chunk k at k x C.
    Even,
    /// Blocks of `block` bytes in `period` chunks.
    Ragged { period: u64, block: u64 },
    /// By rank.
    Sized(Arc<[ChunkTable]>),
}

/// What lies at a position of a run of chunks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Located {
    /// Byte in the buffer.
    pub(super) offset: u64,
    /// Bytes from here on that lie one after the other, those without data included.
    pub(super) run: u64,
    /// How many of them have data; they come first.
    pub(super) valid: u64,
}

impl Grid {
    /// First byte of chunk `chunk` of an input or output.
    pub(super) fn start(&self, chunk: u64, chunk_bytes: u64) -> Option<u64> {
        match self {
            Self::Even => chunk.checked_mul(chunk_bytes),
            Self::Ragged { period, block } => {
                let within = (chunk % period).saturating_mul(chunk_bytes).min(*block);
                (chunk / period).checked_mul(*block)?.checked_add(within)
            }
            Self::Sized(_) => None,
        }
    }

    pub(super) fn chunk(
        &self,
        rank: u32,
        buffer: BufferKind,
        chunk: u64,
        chunk_bytes: u64,
    ) -> Option<Extent> {
        match self {
            Self::Even => Some(Extent { offset: self.start(chunk, chunk_bytes)?, bytes: chunk_bytes }),
            Self::Ragged { period, block } => {
                let before = (chunk % period).saturating_mul(chunk_bytes);
                let bytes = block.saturating_sub(before).min(chunk_bytes);
                Some(Extent { offset: self.start(chunk, chunk_bytes)?, bytes })
            }
            Self::Sized(tables) => tables.get(rank as usize)?.chunk(buffer, chunk),
        }
    }

    /// The byte `position` of the run of full-sized chunks that starts at chunk `index`. Not for tables.
    pub(super) fn locate(&self, index: u64, position: u64, chunk_bytes: u64) -> Option<Located> {
        match self {
            Self::Even => {
                let offset = index.checked_mul(chunk_bytes)?.checked_add(position)?;
                Some(Located { offset, run: u64::MAX, valid: u64::MAX })
            }
            Self::Ragged { period, block } => {
                let chunk = index.checked_add(position / chunk_bytes)?;
                let padded = period.checked_mul(chunk_bytes)?;
                let within = (chunk % period) * chunk_bytes + position % chunk_bytes;
                let valid = block.saturating_sub(within);
                let offset = (chunk / period).checked_mul(*block)?.checked_add(within.min(*block))?;
                Some(Located { offset, run: padded - within, valid })
            }
            Self::Sized(_) => None,
        }
    }
}

/// Chunks of a block, and blocks of input and output, of one rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Blocks {
    period: u64,
    input: u64,
    output: u64,
}

impl Geometry {
    /// Grid and C of a message.
    pub(super) fn grid(
        &self,
        rank: u32,
        bytes: [u64; 2],
        unit: u64,
        element: u64,
    ) -> Result<(Grid, u64), LayoutError> {
        if rank >= self.n_ranks() {
            return Err(LayoutError::Rank { rank, ranks: self.n_ranks() });
        }
        if let Some(chunk) = self.even_chunk(rank, bytes, unit) {
            return Ok((Grid::Even, chunk));
        }
        let counts = [self.chunks(rank, BufferKind::Input), self.chunks(rank, BufferKind::Output)];
        if matches!(self.collective(), Collective::Test | Collective::Custom) {
            return Err(self.why_uneven(rank, counts, bytes, unit));
        }
        let blocks = self.blocks(rank)?;
        for other in 0..self.n_ranks() {
            let expected = self.blocks(other)?.period;
            if expected != blocks.period {
                return Err(LayoutError::Period { rank, found: blocks.period, other, expected });
            }
        }
        let block = self.block_bytes(blocks, bytes, element)?;
        let chunk = block.div_ceil(blocks.period).checked_next_multiple_of(unit);
        Ok((Grid::Ragged { period: blocks.period, block }, chunk.ok_or(LayoutError::Overflow)?))
    }

    /// C, if input and output are whole numbers of equal chunks of whole units. 0 in a plan that only synchronises.
    fn even_chunk(&self, rank: u32, bytes: [u64; 2], unit: u64) -> Option<u64> {
        if self.has_no_chunks() {
            return Some(0);
        }
        let counts = [self.chunks(rank, BufferKind::Input), self.chunks(rank, BufferKind::Output)];
        let mut chunk = None;
        for (count, bytes) in counts.into_iter().zip(bytes).filter(|(count, _)| *count > 0) {
            let this = bytes / count;
            if !bytes.is_multiple_of(unit) || !(bytes / unit).is_multiple_of(count) {
                return None;
            }
            if chunk.is_some_and(|chunk| chunk != this) {
                return None;
            }
            chunk = Some(this);
        }
        chunk
    }

    fn why_uneven(&self, rank: u32, counts: [u64; 2], bytes: [u64; 2], unit: u64) -> LayoutError {
        let collective = self.collective();
        let [input, output] = counts;
        for (buffer, (chunks, bytes)) in
            [BufferKind::Input, BufferKind::Output].into_iter().zip(counts.into_iter().zip(bytes))
        {
            if chunks > 0 && !(bytes.is_multiple_of(unit) && (bytes / unit).is_multiple_of(chunks)) {
                return LayoutError::Indivisible { buffer, bytes, chunks, unit };
            }
        }
        match (bytes[0].checked_div(input)).and_then(|chunk| chunk.checked_mul(output)) {
            Some(expected) => {
                LayoutError::Unequal { collective, input: bytes[0], output: bytes[1], expected }
            }
            None => LayoutError::Counts { rank, collective, input, output },
        }
    }

    fn blocks(&self, rank: u32) -> Result<Blocks, LayoutError> {
        let collective = self.collective();
        let (n, input, output) = (
            u64::from(self.n_ranks()),
            self.chunks(rank, BufferKind::Input),
            self.chunks(rank, BufferKind::Output),
        );
        let period = match collective {
            Collective::AllReduce | Collective::SendRecv | Collective::Broadcast | Collective::Reduce => {
                input.max(output)
            }
            Collective::AllGather | Collective::Gather if input > 0 => input,
            Collective::AllGather | Collective::Gather => output / n,
            Collective::ReduceScatter | Collective::Scatter if output > 0 => output,
            Collective::ReduceScatter | Collective::Scatter => input / n,
            Collective::AllToAll => input.max(output) / n,
            Collective::Test | Collective::Custom => 0,
        };
        let counts = || LayoutError::Counts { rank, collective, input, output };
        let blocks = |chunks: u64| match chunks.checked_rem(period) {
            Some(0) if chunks / period <= n => Ok(chunks / period),
            _ => Err(counts()),
        };
        Ok(Blocks { period, input: blocks(input)?, output: blocks(output)? })
    }

    /// B.
    fn block_bytes(&self, blocks: Blocks, bytes: [u64; 2], element: u64) -> Result<u64, LayoutError> {
        let (buffer, count, of) = match blocks.input {
            0 => (BufferKind::Output, blocks.output, bytes[1]),
            _ => (BufferKind::Input, blocks.input, bytes[0]),
        };
        // The caller has checked that a block has chunks, so one of the two counts is not zero.
        let block = of.checked_div(count).unwrap_or(0);
        if block.checked_mul(count) != Some(of) || !block.is_multiple_of(element) {
            return Err(LayoutError::Blocks { buffer, bytes: of, blocks: count, element });
        }
        let expected = block.checked_mul(blocks.output).ok_or(LayoutError::Overflow)?;
        if blocks.output > 0 && bytes[1] != expected {
            let [input, output] = bytes;
            return Err(LayoutError::Unequal { collective: self.collective(), input, output, expected });
        }
        Ok(block)
    }
}
