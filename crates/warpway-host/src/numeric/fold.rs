//! Folds of memory.

use std::convert::Infallible;
use std::num::NonZeroU32;
use std::ptr::NonNull;

use warpway_plan::{DataType, ReduceOp};

use crate::copy::copy_in;

use super::environment::DefaultEnvironment;
use super::format::{Bfloat16, E4m3b15, E4m3fn, E4m3fnuz, E5m2, E5m2fnuz, Float16, Format};
use super::kernel::{Call, Kernel, select};
use super::operator::{Divide, Maximum, Mean, Minimum, Product, Quotient, Reciprocal, Setting, Sum};
use super::ordered::Ordered;

/// One source of a fold: elements of the fold's type at any alignment.
#[derive(Debug, Clone, Copy)]
pub struct FoldSource {
    /// Of the first element.
    pub address: NonNull<u8>,
    /// True for a contribution as the user gave it, false for the result of another fold. A mean of floats
    /// scales inputs only; nothing else asks.
    pub input: bool,
}

/// A fold of one data type by one operator. Cheap to copy; made once per launch.
///
/// Sources enter in the order given, in `float32` (`float64` for itself; integers wrap in their type),
/// and the result is rounded once, to nearest even. NaN results are canonical.
#[derive(Debug, Clone, Copy)]
pub struct FoldKernel {
    kernel: Kernel,
    data_type: DataType,
    ranks: NonZeroU32,
}

impl FoldKernel {
    /// Bytes of the tiles that [`fold`](Self::fold) hands out, but for the last one: whole elements of every
    /// type, whole packets, and at home in a first-level cache together with as much of two sources.
    pub const TILE: usize = 8 << 10;

    /// Chooses the loop. `ranks` is what a mean divides by; other operators ignore it.
    pub fn new(data_type: DataType, op: ReduceOp, ranks: NonZeroU32) -> Self {
        let kernel = match data_type {
            DataType::Int32 => integer::<i32>(op),
            DataType::Uint32 => integer::<u32>(op),
            DataType::Float16 => float::<Float16>(op),
            DataType::Float32 => float::<f32>(op),
            DataType::Bfloat16 => float::<Bfloat16>(op),
            DataType::Float8E4m3fn => float::<E4m3fn>(op),
            DataType::Float8E4m3fnuz => float::<E4m3fnuz>(op),
            DataType::Float8E5m2 => float::<E5m2>(op),
            DataType::Float8E5m2fnuz => float::<E5m2fnuz>(op),
            DataType::Uint8 => integer::<u8>(op),
            DataType::Float8E4m3b15 => float::<E4m3b15>(op),
            DataType::Int8 => integer::<i8>(op),
            DataType::Int64 => integer::<i64>(op),
            DataType::Uint64 => integer::<u64>(op),
            DataType::Float64 => float::<f64>(op),
        };
        Self { kernel, data_type, ranks }
    }
    /// Of the elements.
    pub fn data_type(&self) -> DataType {
        self.data_type
    }

    /// Folds as many elements as fit `out`. With no source, `out` stays as it is. `last` says that the result
    /// enters no other fold: there a mean of integers is divided.
    ///
    /// # Safety
    /// Each source must be mapped for the length of `out` and share no byte with it. Sources may share bytes
    /// with each other.
    pub unsafe fn tile(&self, sources: &[FoldSource], last: bool, out: &mut [u8]) {
        // SAFETY: the caller's word.
        unsafe { self.tile_at(sources, 0, last, out) }
    }

    /// Folds `bytes` bytes tile by tile and hands out each result with its offset, in ascending order. `emit`
    /// may write where a source lies, at the same offset: that part has been read. Bytes beyond whole
    /// elements are left out; without a source there is no result.
    ///
    /// # Errors
    /// That of `emit`, which ends the fold.
    ///
    /// # Safety
    /// Each source must be mapped for `bytes` bytes.
    pub unsafe fn fold<E>(
        &self,
        sources: &[FoldSource],
        bytes: u64,
        last: bool,
        mut emit: impl FnMut(u64, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        if sources.is_empty() {
            return Ok(());
        }
        let mut tile = Tile([0; Self::TILE]);
        // A mapped range fits `usize`.
        let bytes = (bytes - bytes % self.data_type.bytes()) as usize;
        for offset in (0..bytes).step_by(Self::TILE) {
            let out = &mut tile.0[..Self::TILE.min(bytes - offset)];
            // SAFETY: `offset` and the length of `out` stay within `bytes`; the tile is a local.
            unsafe { self.tile_at(sources, offset, last, out) };
            emit(offset as u64, out)?;
        }
        Ok(())
    }

    /// Folds `bytes` bytes and copies the result to every destination. A destination may be a source.
    ///
    /// # Safety
    /// Sources and destinations must be mapped for `bytes` bytes. A destination may lie exactly where a source
    /// lies; otherwise they must not overlap.
    pub unsafe fn fold_into(
        &self,
        sources: &[FoldSource],
        bytes: u64,
        last: bool,
        destinations: &[NonNull<u8>],
    ) {
        let emit = |offset: u64, tile: &[u8]| {
            for destination in destinations {
                // SAFETY: the tile's place lies within `bytes` of the destination; the tile is a local.
                unsafe { copy_in(destination.add(offset as usize), tile) };
            }
            Ok::<(), Infallible>(())
        };
        // SAFETY: the caller's word.
        let Ok(()) = unsafe { self.fold(sources, bytes, last, emit) };
    }

    /// # Safety
    /// As [`tile`](Self::tile), `offset` bytes into each source.
    unsafe fn tile_at(&self, sources: &[FoldSource], offset: usize, last: bool, out: &mut [u8]) {
        let call = Call { sources, offset, setting: Setting { ranks: self.ranks.get(), last } };
        let _environment = DefaultEnvironment::enter();
        // SAFETY: the caller's word; the kernel was selected on this machine.
        unsafe { (self.kernel)(&call, out) }
    }
}

/// Whole cache lines.
#[repr(align(64))]
struct Tile([u8; FoldKernel::TILE]);

fn integer<T>(op: ReduceOp) -> Kernel
where
    T: Divide + Format<Bits = T, Accumulator = T> + Ordered<Bits = T>,
{
    match op {
        ReduceOp::Sum => select::<Sum<T>>(),
        ReduceOp::Min => select::<Minimum<T>>(),
        ReduceOp::Max => select::<Maximum<T>>(),
        ReduceOp::Prod => select::<Product<T>>(),
        ReduceOp::Avg => select::<Quotient<T>>(),
    }
}

fn float<T>(op: ReduceOp) -> Kernel
where
    T: Format<Accumulator: Reciprocal> + Ordered,
{
    match op {
        ReduceOp::Sum => select::<Sum<T>>(),
        ReduceOp::Min => select::<Minimum<T>>(),
        ReduceOp::Max => select::<Maximum<T>>(),
        ReduceOp::Prod => select::<Product<T>>(),
        ReduceOp::Avg => select::<Mean<T>>(),
    }
}
