//! Collectives against their peers over whole ranges of sizes: held by `cargo xtask bench collectives`, kept under
//! `benchmarks/results`, shown in `benchmarks/RESULTS.md`, in README.md and as a drawing in `docs`.

mod contest;
mod drawing;
mod file;
mod page;
mod summary;

pub(crate) use contest::{Arguments, hold};
pub(crate) use drawing::{draw, path as drawing_path};
pub(crate) use file::{File, all};
pub(crate) use page::{page, title};
pub(crate) use summary::{sample, summary};
