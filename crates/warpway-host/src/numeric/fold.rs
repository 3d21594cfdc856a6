//! Folds of memory.

use std::num::NonZeroU32;
use std::ptr::NonNull;

use warpway_plan::{DataType, ReduceOp};

use crate::copy::copy;

#[cfg(target_arch = "x86_64")]
use super::converted::ConvertedFloat16;
use super::environment::DefaultEnvironment;
use super::format::{Bfloat16, E4m3b15, E4m3fn, E4m3fnuz, E5m2, E5m2fnuz, Float16, Format};
use super::kernel::{Call, Kernel, Level, select};
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
/// and the result is rounded once, to nearest even. NaN results are canonical. The bits are the same on
/// every processor and whatever the thread has set for its floating-point unit.
///
/// ```
/// use std::num::NonZeroU32;
/// use std::ptr::NonNull;
///
/// use warpway_host::{FoldKernel, FoldSource};
/// use warpway_plan::{DataType, ReduceOp};
///
/// let mut a = [1.0f32, 2.0, 3.0];
/// let b = [0.5f32, 0.5, -3.0];
/// let result = NonNull::from(&mut a).cast();
/// let sources = [result, NonNull::from(&b).cast()].map(|address| FoldSource { address, input: true });
/// let sum = FoldKernel::new(DataType::Float32, ReduceOp::Sum, NonZeroU32::MIN);
/// // SAFETY: both arrays live and have 12 bytes; the destination is exactly the first source.
/// unsafe { sum.fold_into(&sources, 12, true, &[result]) };
/// assert_eq!(a, [1.5, 2.5, 0.0]);
/// ```
#[derive(Debug, Clone, Copy)]
pub struct FoldKernel {
    kernel: Kernel,
    data_type: DataType,
    ranks: NonZeroU32,
}

impl FoldKernel {
    /// Bytes of the tiles that [`fold`](Self::fold) hands out, but for the last one: whole elements of every
    /// type, whole packets, and at home in a first-level cache together with as much of several sources.
    pub const TILE: usize = 4 << 10;

    /// Chooses the loop. `ranks` is what a mean divides by; other operators ignore it.
    pub fn new(data_type: DataType, op: ReduceOp, ranks: NonZeroU32) -> Self {
        Self::at_level(Level::best(), data_type, op, ranks)
    }

    /// The level must be available.
    pub(super) fn at_level(level: Level, data_type: DataType, op: ReduceOp, ranks: NonZeroU32) -> Self {
        let kernel = match data_type {
            DataType::Int32 => integer::<i32>(op, level),
            DataType::Uint32 => integer::<u32>(op, level),
            DataType::Float16 => match level {
                Level::Baseline => float::<Float16, Float16>(op, level),
                #[cfg(target_arch = "x86_64")]
                Level::Avx2 | Level::Avx512 => float::<ConvertedFloat16, Float16>(op, level),
            },
            DataType::Float32 => float::<f32, f32>(op, level),
            DataType::Bfloat16 => float::<Bfloat16, Bfloat16>(op, level),
            DataType::Float8E4m3fn => float::<E4m3fn, E4m3fn>(op, level),
            DataType::Float8E4m3fnuz => float::<E4m3fnuz, E4m3fnuz>(op, level),
            DataType::Float8E5m2 => float::<E5m2, E5m2>(op, level),
            DataType::Float8E5m2fnuz => float::<E5m2fnuz, E5m2fnuz>(op, level),
            DataType::Uint8 => integer::<u8>(op, level),
            DataType::Float8E4m3b15 => float::<E4m3b15, E4m3b15>(op, level),
            DataType::Int8 => integer::<i8>(op, level),
            DataType::Int64 => integer::<i64>(op, level),
            DataType::Uint64 => integer::<u64>(op, level),
            DataType::Float64 => float::<f64, f64>(op, level),
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
        unsafe { self.run(sources, 0, last, out.as_mut_ptr(), out.len()) }
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
        let mut tile = Tile::EMPTY;
        let bytes = self.whole(bytes);
        for offset in (0..bytes).step_by(Self::TILE) {
            let out = &mut tile.0[..Self::TILE.min(bytes - offset)];
            // SAFETY: `offset` and the length of `out` stay within `bytes`; the tile is a local.
            unsafe { self.run(sources, offset, last, out.as_mut_ptr(), out.len()) };
            emit(offset as u64, out)?;
        }
        Ok(())
    }

    /// Folds `bytes` bytes into every destination. Bytes beyond whole elements are left out.
    ///
    /// # Safety
    /// Sources and destinations must be mapped for `bytes` bytes. A destination may lie exactly where a source
    /// lies; otherwise they must not overlap, and two destinations never.
    pub unsafe fn fold_into(
        &self,
        sources: &[FoldSource],
        bytes: u64,
        last: bool,
        destinations: &[NonNull<u8>],
    ) {
        let Some((first, others)) = destinations.split_first() else { return };
        let bytes = self.whole(bytes);
        let step = if others.is_empty() { bytes.max(1) } else { Self::TILE };
        for offset in (0..bytes).step_by(step) {
            let part = step.min(bytes - offset);
            // SAFETY: the part lies within `bytes`. The others are copied while it is in the nearest cache.
            unsafe {
                let result = first.add(offset);
                self.run(sources, offset, last, result.as_ptr(), part);
                for other in others {
                    copy(other.add(offset), result, part as u64);
                }
            }
        }
    }

    /// A mapped range fits `usize`.
    fn whole(&self, bytes: u64) -> usize {
        (bytes - bytes % self.data_type.bytes()) as usize
    }

    /// # Safety
    /// As [`Kernel`].
    unsafe fn run(&self, sources: &[FoldSource], offset: usize, last: bool, out: *mut u8, bytes: usize) {
        let call = Call { sources, offset, setting: Setting { ranks: self.ranks.get(), last } };
        let _environment = DefaultEnvironment::enter();
        // SAFETY: the caller's word; the kernel's level is available.
        unsafe { (self.kernel)(&call, out, bytes) }
    }
}

/// Room for a tile. Whole cache lines.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Tile(pub(crate) [u8; FoldKernel::TILE]);

impl Tile {
    pub(crate) const EMPTY: Self = Self([0; FoldKernel::TILE]);
}

fn integer<T>(op: ReduceOp, level: Level) -> Kernel
where
    T: Divide + Format<Bits = T, Accumulator = T> + Ordered<Bits = T>,
{
    match op {
        ReduceOp::Sum => select::<Sum<T>>(level),
        ReduceOp::Min => select::<Minimum<T>>(level),
        ReduceOp::Max => select::<Maximum<T>>(level),
        ReduceOp::Prod => select::<Product<T>>(level),
        ReduceOp::Avg => select::<Quotient<T>>(level),
    }
}

/// `F` rounds, `T` orders.
fn float<F, T>(op: ReduceOp, level: Level) -> Kernel
where
    F: Format<Accumulator: Reciprocal>,
    T: Ordered,
{
    match op {
        ReduceOp::Sum => select::<Sum<F>>(level),
        ReduceOp::Min => select::<Minimum<T>>(level),
        ReduceOp::Max => select::<Maximum<T>>(level),
        ReduceOp::Prod => select::<Product<F>>(level),
        ReduceOp::Avg => select::<Mean<F>>(level),
    }
}
