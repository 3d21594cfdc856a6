//! What is simulated: the message, and how launches follow each other.

use std::collections::BTreeMap;

use super::SimulateError;
use crate::data_type::DataType;
use crate::ir::{BufferKind, Collective, Plan};
use crate::layout::{ChunkTable, LayoutRequest, MessageLayout, MessageSizes, SizeRows};
use crate::repairs::Repairs;

/// What is simulated.
#[derive(Debug, Clone)]
pub struct Request<'r> {
    /// How many bytes chunks have.
    pub sizes: Sizes<'r>,
    /// Type of the elements.
    pub data_type: DataType,
    /// Bytes of data in a packet: 8 or 4.
    pub packet_payload: u64,
    /// What the executor adds to the plan.
    pub repairs: Repairs,
    /// Launches that follow each other; the last one counts. The first finds no data in anybody's cache.
    pub rounds: u32,
    /// Keep what every block did when, for drawings and the critical path.
    pub record: bool,
    /// Ranks of each host, in order, if not as the machine says.
    pub ranks_per_host: Option<Vec<u32>>,
}

/// How many bytes chunks have.
#[derive(Debug, Clone)]
pub enum Sizes<'r> {
    /// Bytes of the larger buffer of a rank, as benchmarks count; rounded up to what divides among the ranks. In
    /// plans with sized chunks all chunks are equal.
    Message(u64),
    /// Plans with sized chunks: one table per rank.
    Tables(&'r [ChunkTable]),
}

impl Request<'_> {
    /// A message of `f32`, four launches, everything recorded.
    pub fn message(bytes: u64) -> Self {
        Self {
            sizes: Sizes::Message(bytes),
            data_type: DataType::Float32,
            packet_payload: 8,
            repairs: Repairs::default(),
            rounds: 4,
            record: true,
            ranks_per_host: None,
        }
    }

    pub(super) fn layout(&self, plan: &Plan) -> Result<MessageLayout, SimulateError> {
        let element = self.data_type.bytes();
        let is_sized = plan.ranks.iter().any(|rank| rank.size_ids.is_some());
        let made;
        let sizes = match self.sizes {
            Sizes::Tables(tables) => MessageSizes::Sized(tables),
            Sizes::Message(bytes) if is_sized => {
                made = even_tables(plan, bytes, element)?;
                MessageSizes::Sized(&made)
            }
            Sizes::Message(bytes) => message(plan, bytes, element),
        };
        let request = LayoutRequest { sizes, element_size: element, packet_payload: self.packet_payload };
        MessageLayout::new(plan, &request).map_err(SimulateError::Layout)
    }
}

/// The rank with the most chunks in one buffer, and their number.
fn largest(plan: &Plan) -> (u32, u64) {
    let chunks = plan.ranks.iter().map(|rank| rank.input_chunks.max(rank.output_chunks));
    // Of equals the first.
    let first = (0..).zip(chunks).max_by_key(|(rank, chunks)| (*chunks, std::cmp::Reverse(*rank)));
    first.unwrap_or((0, 0))
}

fn message(plan: &Plan, bytes: u64, element: u64) -> MessageSizes<'static> {
    let (rank, most) = largest(plan);
    let counts = plan.ranks.get(rank as usize).map_or((0, 0), |rank| (rank.input_chunks, rank.output_chunks));
    let least = match counts {
        (0, other) | (other, 0) => other,
        (input, output) => input.min(output),
    };
    // How often the smaller buffer fits the larger one.
    let times = most.checked_div(least).unwrap_or(1).max(1);
    // Other collectives have a short last chunk.
    let granule = match plan.collective {
        Collective::Test | Collective::Custom => {
            most.saturating_mul(plan.buffer_alignment.max(element).max(8))
        }
        Collective::AllToAll => u64::from(plan.n_ranks()).saturating_mul(element),
        _ => times.saturating_mul(element),
    };
    let bytes = bytes.checked_next_multiple_of(granule.max(1)).unwrap_or(bytes);
    let share = |chunks: u64| match chunks {
        0 => 0,
        _ if chunks == most => bytes,
        _ => bytes / times,
    };
    MessageSizes::Message { rank, input_bytes: share(counts.0), output_bytes: share(counts.1) }
}

/// Equal chunks, one after the other.
fn even_tables(plan: &Plan, bytes: u64, element: u64) -> Result<Vec<ChunkTable>, SimulateError> {
    let (_, most) = largest(plan);
    let chunk = (bytes / most.max(1)).checked_next_multiple_of(element).unwrap_or(bytes);
    let table = |(number, rank): (u32, &crate::ir::RankPlan)| {
        let ids = rank.size_ids.clone().unwrap_or_default();
        let extents: BTreeMap<u64, u64> =
            [&ids.input, &ids.output, &ids.scratch].into_iter().flatten().map(|id| (*id, chunk)).collect();
        let places = |buffer| (0..rank.chunks(buffer)).map(|at| at.saturating_mul(chunk)).collect();
        let rows = SizeRows { extents, input: places(BufferKind::Input), output: places(BufferKind::Output) };
        ChunkTable::new(number, rank, &rows, element).map_err(SimulateError::Layout)
    };
    (0..).zip(&plan.ranks).map(table).collect()
}
