//! Launches: what was asked for, and whether a device could do it.

use std::fmt::Write;

use super::image::Description;

/// A kernel with its arguments.
#[derive(Debug)]
pub(super) struct Launch {
    pub(super) function: Description,
    pub(super) grid: [u32; 3],
    pub(super) block: [u32; 3],
    /// Dynamic shared memory.
    pub(super) shared: u32,
    pub(super) cooperative: bool,
    /// The parameter area: each parameter at its aligned offset.
    pub(super) arguments: Vec<u8>,
}

/// A launch as it is written down.
#[derive(Debug)]
pub(super) struct Launched {
    pub(super) text: String,
}

impl Launch {
    /// The parameter at a position as a number; `None` if there is none or it is not of 1 to 8 bytes.
    pub(super) fn number(&self, position: usize) -> Option<u64> {
        let (mut offset, mut bytes) = (0, [0; 8]);
        for (at, (size, alignment)) in self.function.parameters.iter().enumerate() {
            offset = place(offset, *alignment);
            if at == position {
                bytes.get_mut(..*size)?.copy_from_slice(self.arguments.get(offset..offset + size)?);
                return Some(u64::from_le_bytes(bytes));
            }
            offset += size;
        }
        None
    }

    /// One line: name, device, grid, block, shared memory, cooperative, arguments in hexadecimal.
    pub(super) fn written(&self, device: usize) -> Launched {
        let three = |[x, y, z]: [u32; 3]| format!("{x},{y},{z}");
        let mut text = format!(
            "{} {device} {} {} {} {} ",
            self.function.name,
            three(self.grid),
            three(self.block),
            self.shared,
            self.cooperative
        );
        for byte in &self.arguments {
            let _ = write!(text, "{byte:02x}");
        }
        Launched { text }
    }
}

/// The next multiple of an alignment.
pub(super) fn place(offset: usize, alignment: usize) -> usize {
    offset.next_multiple_of(alignment.max(1))
}

/// What a multiprocessor has, and how much of it a block takes. The figures of sm_90.
pub(super) mod limits {
    pub(in super::super) const THREADS_PER_BLOCK: i32 = 1024;
    pub(in super::super) const THREADS_PER_MULTIPROCESSOR: i32 = 2048;
    pub(in super::super) const BLOCKS_PER_MULTIPROCESSOR: i32 = 32;
    pub(in super::super) const REGISTERS: i32 = 65_536;
    /// Of a block that has not asked for more.
    pub(in super::super) const SHARED: i32 = 48 << 10;
    /// Of a block that has asked.
    pub(in super::super) const SHARED_OPT_IN: i32 = 227 << 10;
    pub(in super::super) const SHARED_PER_MULTIPROCESSOR: i32 = 228 << 10;
    /// Taken by the system for each block.
    pub(in super::super) const SHARED_RESERVED: i32 = 1 << 10;
}

/// How many blocks of a function fit into a multiprocessor, 0 if none does.
///
/// Registers are given out per warp in units of 256, shared memory in units of 128 bytes.
pub(super) fn resident(function: &Description, threads: i32, dynamic_shared: i64) -> i32 {
    let warps = (threads + 31) / 32;
    let per_warp = (function.registers.max(1) * 32 + 255) / 256 * 256;
    let shared = (i64::from(function.shared + limits::SHARED_RESERVED) + dynamic_shared + 127) / 128 * 128;
    let by_threads = limits::THREADS_PER_MULTIPROCESSOR / (warps * 32).max(1);
    let by_registers = limits::REGISTERS / (per_warp * warps).max(1);
    let by_shared = i64::from(limits::SHARED_PER_MULTIPROCESSOR) / shared;
    by_threads.min(by_registers).min(by_shared as i32).min(limits::BLOCKS_PER_MULTIPROCESSOR)
}
