//! What an executor adds to a plan that is right except for a habit of MSCCL++ programs.

/// The repairs that verification found necessary, one field per row of the profiles' table. Nothing to add is the
/// default; a plan that passes the strict profile needs none.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Repairs {
    /// Relaxed signals and waits that must order data (V504, V905).
    pub ordered_pairs: Vec<OrderedPair>,
    /// Each rank learns that a peer has started before it touches the peer's buffers (V507).
    pub start_handshake: bool,
    /// Port puts are complete before the launch ends (V511).
    pub flush_at_end: bool,
    /// A launch ends when every peer has reached the end of its own (V509, V604).
    pub closing_handshake: bool,
}

impl Repairs {
    /// All of them: what makes any plan as safe as the executor can.
    pub fn all(ordered_pairs: Vec<OrderedPair>) -> Self {
        Self { ordered_pairs, start_handshake: true, flush_at_end: true, closing_handshake: true }
    }

    /// True if nothing is to be added.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A relaxed signal and its wait: operations by rank, block and path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OrderedPair {
    /// The signal.
    pub signal: OperationPlace,
    /// The wait.
    pub wait: OperationPlace,
}

/// An operation of a plan.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OperationPlace {
    /// Rank.
    pub rank: u32,
    /// Block of the rank.
    pub block: u32,
    /// Position in the block, and in the pipeline at that position.
    pub path: (u32, Option<u32>),
}
