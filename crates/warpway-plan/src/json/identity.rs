//! What makes two plans the same.

use std::fmt;

use sha2::{Digest as _, Sha256};

use super::write::Style;
use crate::ir::Plan;

/// SHA-256 of a plan's canonical JSON, displayed in hexadecimal.
///
/// It is that of the plan as Warpway writes it, not of the file: white space, the order of keys, defaults and older
/// forms make no difference, anything that an executor or the verifier may see does. Source locations do not count.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PlanIdentity(pub [u8; 32]);

impl fmt::Display for PlanIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for PlanIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PlanIdentity({self})")
    }
}

impl Plan {
    /// What ranks compare before they prepare a plan together. Linear in the size of the plan: keep it.
    pub fn identity(&self) -> PlanIdentity {
        let mut hash = Sha256::new();
        self.pieces(Style::Canonical, false, |text| hash.update(text.as_bytes()));
        PlanIdentity(hash.finalize().into())
    }
}
