//! Which bytes of input and output are the same in a plan that works in place.

use super::MessageLayout;
use crate::ir::{BufferKind, Collective};

/// Byte `input` of the input is byte `output` of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Alias {
    /// Byte of the input.
    pub input: u64,
    /// Byte of the output.
    pub output: u64,
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
