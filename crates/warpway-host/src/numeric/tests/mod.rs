//! Folds and conversions against slow, exact oracles.

mod conversions;
mod data;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod environment;
mod folds;
mod soft;
