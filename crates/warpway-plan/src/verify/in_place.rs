//! Where the chunks of input and output lie if they are one memory.

use std::ops::Range;

use crate::ir::{BufferKind, Collective, Plan};

/// The buffer that holds the chunks of `buffer`, and the number of the first of them there. It is `buffer`
/// itself, from 0, unless the plan works in place.
pub(super) fn home(plan: &Plan, rank: u32, buffer: BufferKind) -> (BufferKind, u64) {
    let Some(of_rank) = plan.ranks.get(rank as usize) else { return (buffer, 0) };
    let (inputs, outputs) = (of_rank.input_chunks, of_rank.output_chunks);
    if !plan.in_place || inputs == 0 || outputs == 0 {
        return (buffer, 0);
    }
    match (plan.collective, buffer) {
        (_, BufferKind::Scratch) => (buffer, 0),
        (Collective::AllGather | Collective::Gather, BufferKind::Input) => {
            (BufferKind::Output, u64::from(rank).saturating_mul(inputs))
        }
        (Collective::ReduceScatter | Collective::Scatter, BufferKind::Output) => {
            (BufferKind::Input, u64::from(rank).saturating_mul(outputs))
        }
        (Collective::AllGather | Collective::Gather, _) => (BufferKind::Output, 0),
        _ => (BufferKind::Input, 0),
    }
}

/// Consecutive chunks of one buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct View {
    pub(super) buffer: BufferKind,
    pub(super) chunks: Range<u64>,
}

impl View {
    fn new(buffer: BufferKind, first: u64, count: u64) -> Self {
        Self { buffer, chunks: first..first.saturating_add(count) }
    }

    /// Number of chunks.
    pub(super) fn len(&self) -> u64 {
        self.chunks.end - self.chunks.start
    }
}

/// Where the input of a rank lies. A plan in place may leave the input out and name only the output.
pub(super) fn inputs(plan: &Plan, rank: u32) -> View {
    let (inputs, outputs) = counts(plan, rank);
    if plan.in_place && inputs == 0 {
        let share = outputs / u64::from(plan.n_ranks().max(1));
        return match plan.collective {
            Collective::AllGather | Collective::Gather => {
                View::new(BufferKind::Output, u64::from(rank).saturating_mul(share), share)
            }
            Collective::ReduceScatter | Collective::Scatter => View::new(BufferKind::Input, 0, 0),
            _ => View::new(BufferKind::Output, 0, outputs),
        };
    }
    let (buffer, first) = home(plan, rank, BufferKind::Input);
    View::new(buffer, first, inputs)
}

/// Where the output of a rank lies. A plan in place may leave the output out and name only the input.
pub(super) fn outputs(plan: &Plan, rank: u32) -> View {
    let (inputs, outputs) = counts(plan, rank);
    if plan.in_place && outputs == 0 {
        let share = inputs / u64::from(plan.n_ranks().max(1));
        return match plan.collective {
            Collective::ReduceScatter | Collective::Scatter => {
                View::new(BufferKind::Input, u64::from(rank).saturating_mul(share), share)
            }
            Collective::AllGather | Collective::Gather => View::new(BufferKind::Output, 0, 0),
            _ => View::new(BufferKind::Input, 0, inputs),
        };
    }
    let (buffer, first) = home(plan, rank, BufferKind::Output);
    View::new(buffer, first, outputs)
}

fn counts(plan: &Plan, rank: u32) -> (u64, u64) {
    plan.ranks.get(rank as usize).map_or((0, 0), |r| (r.input_chunks, r.output_chunks))
}
