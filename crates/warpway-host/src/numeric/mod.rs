//! Arithmetic on host memory: folds of any data type and operator, with the bits that `plan-format.md` 5.4
//! and `device.md` 12 lay down for every engine.
//!
//! | file | holds |
//! |---|---|
//! | `fold.rs` | [`FoldKernel`]: which loop runs, and tile by tile over any length |
//! | `kernel.rs` | the loop over elements, compiled for several processors |
//! | `operator.rs` | sum, product, mean, minimum, maximum of one element |
//! | `format.rs`, `ordered.rs` | one data type: exact value and rounding; order |
//! | `converted.rs` | binary16 by the conversion instructions of x86 |
//! | `environment.rs` | the processor's rounding mode and flushing of subnormals |
//!
//! Choices where the contracts are silent: a fold of one source is rounded like any other; types without
//! infinity saturate and so does `float8_e5m2` (an infinite source of a sum counts as infinite within the
//! fold); minimum and maximum give one of their operands bit for bit, infinities included; a NaN within a
//! `float8_e4m3b15` fold becomes 1.875, since that type has none.

#[cfg(target_arch = "x86_64")]
mod converted;
mod environment;
mod fold;
mod format;
mod kernel;
mod operator;
mod ordered;
#[cfg(test)]
mod tests;

pub(crate) use fold::Tile;
pub use fold::{FoldKernel, FoldSource};
