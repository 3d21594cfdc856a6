//! Sizes that a plan does not take.

use crate::ir::{BufferKind, Collective};

/// See the module's page.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LayoutError {
    /// Half an element.
    #[error("buffer {buffer} has {bytes} bytes, which is no whole number of {element}-byte elements")]
    Element {
        /// The buffer.
        buffer: BufferKind,
        /// Its size.
        bytes: u64,
        /// Bytes of an element.
        element: u64,
    },
    /// The element or packet size is none.
    #[error(
        "an element of {element} bytes with packets of {payload} bytes of data: element sizes are powers of two, payloads 4, 8, or 64 for lines"
    )]
    Format {
        /// Bytes of an element.
        element: u64,
        /// Bytes of data in a packet.
        payload: u64,
    },
    /// Outside the range that the plan was made for.
    #[error(
        "a message of {bytes} bytes is outside the plan's range of {min} to {max} bytes; choose another plan for it"
    )]
    Range {
        /// The checked size: input bytes, for all-gather output bytes.
        bytes: u64,
        /// The least.
        min: u64,
        /// The greatest.
        max: u64,
    },
    /// A plan of collective `test` or `custom` takes whole chunks only.
    #[error(
        "buffer {buffer} of {bytes} bytes cannot be divided into {chunks} equal chunks of whole {unit}-byte units; \
         pad it to a multiple of {chunks} x {unit} bytes"
    )]
    Indivisible {
        /// The buffer.
        buffer: BufferKind,
        /// Its size.
        bytes: u64,
        /// The rank's chunks of that buffer.
        chunks: u64,
        /// What a chunk is a multiple of.
        unit: u64,
    },
    /// A block of the collective is no whole number of elements.
    #[error(
        "buffer {buffer} of {bytes} bytes does not hold {blocks} equal blocks of whole {element}-byte elements"
    )]
    Blocks {
        /// The buffer.
        buffer: BufferKind,
        /// Its size.
        bytes: u64,
        /// The blocks it holds by the collective.
        blocks: u64,
        /// Bytes of an element.
        element: u64,
    },
    /// Input and output are not of one message.
    #[error(
        "input and output have {input} and {output} bytes, but with {input} bytes of input {collective} has {expected} of output"
    )]
    Unequal {
        /// The collective.
        collective: Collective,
        /// Input bytes.
        input: u64,
        /// Output bytes.
        output: u64,
        /// Output bytes that would fit.
        expected: u64,
    },
    /// No rule gives the bytes of a chunk.
    #[error(
        "rank {rank} has {input} chunks of input and {output} of output, from which {collective} gives no chunk size"
    )]
    Counts {
        /// The rank.
        rank: u32,
        /// The collective.
        collective: Collective,
        /// Chunks of input.
        input: u64,
        /// Chunks of output.
        output: u64,
    },
    /// The ranks divide their blocks differently, so that chunks of one number have different bytes.
    #[error(
        "rank {rank} divides a block into {found} chunks, rank {other} into {expected}: such a plan takes only sizes that divide evenly"
    )]
    Period {
        /// A rank.
        rank: u32,
        /// Chunks of a block there.
        found: u64,
        /// Another rank.
        other: u32,
        /// Chunks of a block there.
        expected: u64,
    },
    /// There is no such rank, or no table of it.
    #[error("there is no rank {rank} in a plan for {ranks} ranks")]
    Rank {
        /// The rank asked for.
        rank: u32,
        /// Ranks of the plan.
        ranks: u32,
    },
    /// Slices of a pipeline that would cut elements or packets.
    #[error("a pipeline's unit_size of {slice} bytes is no multiple of {unit} bytes, which must not be cut")]
    Slice {
        /// Bytes of a slice.
        slice: u64,
        /// What it must be a multiple of.
        unit: u64,
    },
    /// A chunk of the message does not fit its place in scratch of fixed size.
    #[error(
        "a chunk of {bytes} bytes does not fit the {room} bytes that each scratch chunk has; only raw data of \
         pipelines over single chunks may be larger, where the room holds as many whole slices as the proof asks for; \
         prepare it with larger ones"
    )]
    Reused {
        /// Bytes of the chunk.
        bytes: u64,
        /// Bytes of a scratch chunk.
        room: u64,
    },
    /// A group member that does not exist.
    #[error("member {member} of a group of {size} blocks")]
    Member {
        /// Its number.
        member: u32,
        /// Blocks of the group.
        size: u32,
    },
    /// The plan has sized chunks and the request brings no table, or the reverse.
    #[error("a plan with sized chunks needs a table of sizes at each launch, other plans take none")]
    Table,
    /// A row of the table is wrong.
    #[error("rank {rank}, buffer {buffer}, chunk {chunk}: {why}")]
    Row {
        /// The rank.
        rank: u32,
        /// The buffer.
        buffer: BufferKind,
        /// The chunk.
        chunk: u64,
        /// What is wrong with it.
        why: &'static str,
    },
    /// References that go beyond what the owner has.
    #[error("a reference to {size} chunks from chunk {index} on goes beyond buffer {buffer} of its owner")]
    Reference {
        /// The buffer.
        buffer: BufferKind,
        /// First chunk.
        index: u64,
        /// Number of chunks.
        size: u64,
    },
    /// A size or an offset that does not fit 64 bits.
    #[error("an offset of this message does not fit 64 bits")]
    Overflow,
}
