//! Sizes: how many bytes each chunk of a message has, and where they lie.
//!
//! A plan counts in chunks. [`MessageLayout`] turns these into bytes for one message: chunk size, places of
//! chunks in their buffers, the share of a member of a block group, the slices of a pipeline, the sizes of the
//! scratch areas. Pure arithmetic on 64-bit numbers, every step checked; nothing is allocated in proportion to
//! a number in the file.
//!
//! ```
//! use warpway_plan::{BufferKind, Collective, MessageLayout, LayoutRequest, MessageSizes, Plan, RankPlan};
//!
//! let rank = RankPlan { input_chunks: 4, output_chunks: 4, ..RankPlan::default() };
//! # let mut plan = Plan { name: String::new(), collective: Collective::AllReduce, protocol: warpway_plan::Protocol::Simple,
//! #   in_place: false, reuse_resources: false, double_scratch: false, threads_per_block: 1024, buffer_alignment: 16,
//! #   min_message_size: 0, max_message_size: u64::MAX, ranks: vec![], extensions: Default::default() };
//! plan.ranks = vec![rank.clone(), rank];
//! // 100 bytes in 4 chunks of 16-byte units: the last chunk is short.
//! let sizes = MessageSizes::Message { rank: 0, input_bytes: 100, output_bytes: 100 };
//! let layout = MessageLayout::new(&plan, &LayoutRequest { sizes, element_size: 4, packet_payload: 8 })?;
//! assert_eq!(layout.chunk_bytes(), 32);
//! let third = layout.chunk(0, BufferKind::Input, 3).unwrap();
//! assert_eq!((third.offset, third.bytes), (96, 4));
//! # Ok::<(), warpway_plan::LayoutError>(())
//! ```

mod error;
mod geometry;
mod grid;
mod in_place;
mod pieces;
mod scratch;
mod sized;
mod split;
#[cfg(test)]
mod tests;

pub use error::LayoutError;
pub use geometry::Geometry;
pub use in_place::Alias;
pub use pieces::{Piece, Pieces, Placement};
pub use scratch::{AreaBytes, REUSED_SCRATCH_BYTES};
pub use sized::{ChunkTable, SizeRows};
pub use split::split;

use crate::ir::{BufferKind, Pipeline, Plan};
use grid::Grid;

/// What a launch says of its message.
#[derive(Debug, Clone)]
pub struct LayoutRequest<'r> {
    /// The sizes.
    pub sizes: MessageSizes<'r>,
    /// Bytes of one element, a power of two.
    pub element_size: u64,
    /// Bytes of data in one packet, 8 or 4, or 64 for lines of 128 bytes; matters only for plans with packets.
    pub packet_payload: u64,
}

/// Where the sizes of chunks come from.
#[derive(Debug, Clone)]
pub enum MessageSizes<'r> {
    /// The bytes of one rank's buffers.
    Message {
        /// The rank.
        rank: u32,
        /// Its input.
        input_bytes: u64,
        /// Its output.
        output_bytes: u64,
    },
    /// All chunks have so many bytes; what the verifier asks for.
    Chunk(u64),
    /// Plans with sized chunks: one table per rank.
    Sized(&'r [ChunkTable]),
}

/// A run of bytes in a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Extent {
    /// First byte.
    pub offset: u64,
    /// Number of bytes.
    pub bytes: u64,
}

/// The bytes of one message of a plan. See the module's page.
#[derive(Debug, Clone)]
pub struct MessageLayout {
    geometry: Geometry,
    grid: Grid,
    /// A: the unit of splitting.
    unit: u64,
    /// C.
    chunk_bytes: u64,
    /// Cs where it differs from C (reuse mode) or does not depend on it (sized chunks), else `None`.
    reused: Option<u64>,
    payload: u64,
}

impl MessageLayout {
    /// Checks the sizes and computes the layout. For many messages of one plan, make a [`Geometry`] once.
    ///
    /// # Errors
    /// A size that the plan does not take, with the numbers that would do.
    pub fn new(plan: &Plan, request: &LayoutRequest<'_>) -> Result<Self, LayoutError> {
        Geometry::new(plan).layout(request)
    }

    /// Bytes of a full chunk. In plans with sized chunks, of the largest.
    pub fn chunk_bytes(&self) -> u64 {
        self.chunk_bytes
    }

    /// Bytes of what one rank contributes or gets, where they do not divide evenly into chunks.
    pub fn block_bytes(&self) -> Option<u64> {
        match self.grid {
            Grid::Ragged { block, .. } => Some(block),
            Grid::Even | Grid::Sized(_) => None,
        }
    }

    /// True if some chunk of a message that does not divide evenly has no data, the same on all ranks. Chunks of sized
    /// plans are empty as their tables say.
    pub fn has_empty_chunks(&self) -> bool {
        match self.grid {
            Grid::Even => self.chunk_bytes == 0,
            Grid::Ragged { period, block } => {
                period.saturating_sub(1).saturating_mul(self.chunk_bytes) >= block
            }
            Grid::Sized(_) => true,
        }
    }

    /// Bytes that splitting never cuts: the plan's alignment, at least an element and, in plans with packets,
    /// a payload.
    pub fn unit(&self) -> u64 {
        self.unit
    }

    /// Bytes of data in one packet.
    pub fn packet_payload(&self) -> u64 {
        self.payload
    }

    /// What was computed from the plan alone.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The data of one chunk of `rank`'s buffer. `None` for scratch beyond 64 bits and for chunks that a sized
    /// plan does not have.
    ///
    /// Chunk numbers beyond the buffer's count are computed all the same: bounds are the verifier's concern.
    pub fn chunk(&self, rank: u32, buffer: BufferKind, chunk: u64) -> Option<Extent> {
        let scratch = self.scratch_chunk_bytes();
        match (buffer, &self.grid) {
            (BufferKind::Scratch, Grid::Sized(tables)) => {
                let bytes = tables.get(rank as usize)?.scratch.get(usize::try_from(chunk).ok()?).copied()?;
                Some(Extent { offset: chunk.checked_mul(scratch)?, bytes })
            }
            (BufferKind::Scratch, _) => Some(Extent { offset: chunk.checked_mul(scratch)?, bytes: scratch }),
            (_, grid) => grid.chunk(rank, buffer, chunk, self.chunk_bytes),
        }
    }

    /// Bytes of data that `rank`'s input or output has; 0 for the scratch, whose size [`area`](Self::area) says.
    pub fn buffer_bytes(&self, rank: u32, buffer: BufferKind) -> u64 {
        if buffer == BufferKind::Scratch {
            return 0;
        }
        if let Grid::Sized(tables) = &self.grid {
            return tables.get(rank as usize).map_or(0, |table| table.reach(buffer));
        }
        let end = self.grid.start(self.geometry.chunks(rank, buffer), self.chunk_bytes);
        end.unwrap_or(u64::MAX)
    }

    /// How often the body of a pipeline runs.
    ///
    /// # Errors
    /// A slice that would cut elements or packets, or of no bytes.
    pub fn iterations(&self, pipeline: &Pipeline) -> Result<u64, LayoutError> {
        if pipeline.unit_size == 0 || !pipeline.unit_size.is_multiple_of(self.unit) {
            return Err(LayoutError::Slice { slice: pipeline.unit_size, unit: self.unit });
        }
        let bytes = match (&self.grid, pipeline.size_id) {
            (Grid::Sized(tables), Some(id)) => {
                tables.iter().find_map(|table| table.extent_of(id)).unwrap_or_default()
            }
            _ => pipeline.num_chunks.checked_mul(self.chunk_bytes).ok_or(LayoutError::Overflow)?,
        };
        Ok(bytes.div_ceil(pipeline.unit_size))
    }
}
