//! Who wrote a chunk last. Asked only for chunks that are wrong, so the run itself need not remember.

use std::collections::BTreeMap;

use super::in_place::home;
use super::report::Place;
use super::schedule::Schedule;
use super::trace::Trace;
use crate::ir::{Action, BufferKind, Form};

/// A raw chunk, in the buffer where it lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct ChunkAt {
    pub(super) rank: u32,
    pub(super) buffer: BufferKind,
    pub(super) chunk: u64,
}

/// The operations that wrote the chunks last; those that nobody wrote are missing.
pub(super) fn last_writers(
    trace: &Trace<'_>,
    schedule: &Schedule,
    chunks: impl Iterator<Item = ChunkAt>,
) -> BTreeMap<ChunkAt, Place> {
    let mut open: BTreeMap<(u32, BufferKind), Vec<u64>> = BTreeMap::new();
    for ChunkAt { rank, buffer, chunk } in chunks {
        open.entry((rank, buffer)).or_default().push(chunk);
    }
    let mut found = BTreeMap::new();
    for &(block, step) in schedule.order.iter().rev() {
        if open.is_empty() {
            break;
        }
        let (block, step) = (block as usize, step as usize);
        let Some(Action::Data(data)) = trace.steps.get(step).map(|s| s.action) else { continue };
        for (at, reference) in data.destinations.iter().enumerate() {
            if data.destination_form(at) == Form::Packets {
                continue;
            }
            for (rank, named) in trace.targets(block, data, reference) {
                let (buffer, first) = home(trace.plan(), rank, named);
                let Some(wanted) = open.get_mut(&(rank, buffer)) else { continue };
                let start = first.saturating_add(reference.index());
                let written = start..start.saturating_add(reference.size());
                wanted.retain(|chunk| {
                    let hit = written.contains(chunk);
                    if hit {
                        found
                            .entry(ChunkAt { rank, buffer, chunk: *chunk })
                            .or_insert_with(|| trace.place(block, step));
                    }
                    !hit
                });
                if wanted.is_empty() {
                    open.remove(&(rank, buffer));
                }
            }
        }
    }
    found
}
