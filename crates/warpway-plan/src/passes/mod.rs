//! What happens to a program before it is a plan, one pass a file, in this order:
//!
//! | pass | what it does |
//! |---|---|
//! | `balance.rs` | refuses a program whose signals and waits do not match |
//! | `unused.rs` | finds multicast results that nobody reads, for fusion |
//! | `fusion/` | joins adjacent operations of a block |
//! | `data_sync.rs` | block barriers around synchronisation, as marked |
//! | `auto_sync.rs` | block barriers between conflicting accesses of a block |
//! | `instances.rs` | copies of the program side by side |
//!
//! [`Compat::Mscclpp`] gives what MSCCL++'s own passes give, known defects included. The default avoids the defects; it
//! inserts a block barrier wherever they do, and more where they miss a hazard.

mod access;
mod auto_sync;
mod balance;
mod data_sync;
mod fusion;
mod instances;
mod intervals;
mod unused;

use std::fmt;
use std::sync::Arc;

use crate::builder::{Alias, BuildError, Program, Step};
use crate::ir::{BufferKind, Location};

pub(crate) use balance::check as check_balance;
pub(crate) use instances::{Shift, replicate, replicated};
pub(crate) use unused::mark as mark_unused;

/// Whose defects a plan has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Compat {
    /// Nobody's.
    #[default]
    None,
    /// Those of MSCCL++, for plans that must equal its own. Programs that need an extension are refused.
    Mscclpp,
}

/// Something that is probably not meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuildWarning {
    /// The rank.
    pub rank: u32,
    /// The block.
    pub block: u32,
    /// The line of the operation that is to blame.
    pub location: Option<Arc<Location>>,
    /// What.
    pub kind: WarningKind,
}

/// What is probably not meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WarningKind {
    /// The operation before this one reduces into the same chunk, and this one does not read it.
    OverwrittenReduce,
    /// The operation before this one moves other data to the same place.
    OverwrittenTransfer,
}

impl fmt::Display for BuildWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.kind {
            WarningKind::OverwrittenReduce => "dead store: earlier reduce is overwritten",
            WarningKind::OverwrittenTransfer => "dead store: earlier transfer is overwritten",
        };
        write!(f, "rank {}, block {}", self.rank, self.block)?;
        if let Some(location) = &self.location {
            write!(f, ", {}:{}", location.file, location.line)?;
        }
        write!(f, ": {what}")
    }
}

/// What the passes over one block know of its surroundings.
pub(crate) struct Scope<'p> {
    pub(crate) rank: u32,
    pub(crate) block: u32,
    pub(crate) compat: Compat,
    /// The one name of places that input and output share.
    pub(crate) alias: Alias,
    /// Buffers of the block's switch channels, by position.
    pub(crate) switch_buffers: Vec<BufferKind>,
    pub(crate) warnings: &'p mut Vec<BuildWarning>,
}

impl Scope<'_> {
    pub(crate) fn warn(&mut self, location: Option<&Arc<Location>>, kind: WarningKind) {
        let (rank, block, location) = (self.rank, self.block, location.cloned());
        self.warnings.push(BuildWarning { rank, block, location, kind });
    }
}

/// Fusion and block barriers of one block.
pub(crate) fn run_block(mut steps: Vec<Step>, program: &Program, scope: &mut Scope<'_>) -> Vec<Step> {
    if program.options().fusion {
        steps = fusion::fuse(steps, scope);
    }
    steps = data_sync::insert(steps);
    if program.options().auto_sync {
        steps = auto_sync::insert(steps, scope);
    }
    steps
}

/// The result of a pass that may refuse.
pub(crate) type PassResult<T = ()> = Result<T, BuildError>;
