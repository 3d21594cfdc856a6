//! Which bytes of input and output are the same in a plan that works in place.

use super::{Geometry, MessageLayout};
use crate::ir::{BufferKind, Collective};

/// Byte `input` of the input is byte `output` of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Alias {
    /// Byte of the input.
    pub input: u64,
    /// Byte of the output.
    pub output: u64,
}

/// Chunk `input + i` of the input is chunk `output + i` of the output, for `i` below `count`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct AliasedChunks {
    pub(super) input: u64,
    pub(super) output: u64,
    pub(super) count: u64,
}

impl AliasedChunks {
    pub(super) fn holds_input(self, chunk: u64) -> bool {
        chunk.checked_sub(self.input).is_some_and(|number| number < self.count)
    }
}

impl Geometry {
    /// How the buffers of `rank` lie in each other, in chunks; `None` if they are apart.
    pub(super) fn aliased_chunks(&self, rank: u32) -> Option<AliasedChunks> {
        let [inputs, outputs] =
            [BufferKind::Input, BufferKind::Output].map(|buffer| self.chunks(rank, buffer));
        if !self.in_place() || inputs == 0 || outputs == 0 {
            return None;
        }
        let share = |chunks: u64| u64::from(rank).saturating_mul(chunks);
        let (input, output) = match self.collective() {
            Collective::AllGather | Collective::Gather => (0, share(inputs)),
            Collective::ReduceScatter | Collective::Scatter => (share(outputs), 0),
            _ => (0, 0),
        };
        let count = inputs.saturating_sub(input).min(outputs.saturating_sub(output));
        Some(AliasedChunks { input, output, count })
    }
}

impl MessageLayout {
    /// How the buffers of `rank` lie in each other; `None` if they are apart.
    pub fn alias(&self, rank: u32) -> Option<Alias> {
        let geometry = self.geometry();
        let both =
            geometry.chunks(rank, BufferKind::Input) > 0 && geometry.chunks(rank, BufferKind::Output) > 0;
        if !geometry.in_place() || !both {
            return None;
        }
        let share = |buffer| u64::from(rank).saturating_mul(self.buffer_bytes(rank, buffer));
        match geometry.collective() {
            Collective::AllGather | Collective::Gather => {
                Some(Alias { input: 0, output: share(BufferKind::Input) })
            }
            Collective::ReduceScatter | Collective::Scatter => {
                Some(Alias { input: share(BufferKind::Output), output: 0 })
            }
            _ => Some(Alias { input: 0, output: 0 }),
        }
    }
}
