//! Tables of measurements, by which a selector chooses.
//!
//! `warpway tune` writes them, people may edit them: JSON with the machine and the library that they were measured on.
//! A table of another machine or catalogue is *stale*; who reads one says so and does without.
//!
//! | file | question it answers |
//! |---|---|
//! | `table.rs` | what a table says, and what it says of a task |
//! | `file.rs` | how it is written and read, and what may be wrong with it |
//! | `origin.rs` | where it was measured, and whether it still holds |

mod file;
mod origin;
mod table;

pub use file::BadTable;
pub use origin::{Library, Machine, Origin};
pub use table::{Row, Sizes, Table, Timing};
