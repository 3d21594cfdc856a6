//! Canonical units: positions inside chunks that hold for every size.
//!
//! A chunk is [`Scale::chunk`] units long. Units are chosen so that the pieces of all thread-block groups and the
//! slices of all pipelines begin and end on whole units; they stand for no number of bytes. Two accesses may be
//! compared piece by piece only if they cut the same item the same way ([`Cut`]); otherwise each counts as its
//! whole item, because where the pieces of real sizes end depends on the size.

use crate::ir::{Action, Plan};

/// Groups beyond this many parts per chunk are not told apart exactly: their pieces count as whole items.
const MOST_PARTS: u64 = 1 << 24;

/// See the module's page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Scale {
    /// Units of one chunk.
    pub(super) chunk: u64,
    /// Units of one common part of all pipeline units.
    part: u64,
    /// Bytes of that common part; 0 without pipelines.
    part_bytes: u64,
}

impl Scale {
    /// For chunks of `multiple` times the largest pipeline unit. `None` if units cannot be counted in 64 bits.
    pub(super) fn new(plan: &Plan, multiple: u64) -> Option<Self> {
        let Parts { parts, common, largest } = Parts::of(plan);
        if common == 0 {
            return Some(Self { chunk: parts, part: parts, part_bytes: 0 });
        }
        let chunk = (largest / common).checked_mul(multiple)?.checked_mul(parts)?;
        Some(Self { chunk, part: parts, part_bytes: common })
    }

    /// For chunks of `bytes` bytes. `None` if units cannot be counted in 64 bits, and for empty chunks.
    pub(super) fn of_chunk(plan: &Plan, bytes: u64) -> Option<Self> {
        let Parts { parts, common, .. } = Parts::of(plan);
        if common == 0 {
            return Some(Self { chunk: parts, part: parts, part_bytes: 0 });
        }
        if bytes == 0 {
            return None;
        }
        let common = gcd(common, bytes);
        Some(Self { chunk: (bytes / common).checked_mul(parts)?, part: parts, part_bytes: common })
    }

    /// Units of a pipeline's slice.
    pub(super) fn slice(&self, unit_size: u64) -> Option<u64> {
        unit_size.checked_div(self.part_bytes)?.checked_mul(self.part)
    }

    /// Iterations of a pipeline over `num_chunks` chunks in slices of `slice` units.
    pub(super) fn iterations(&self, num_chunks: u64, slice: u64) -> Option<u64> {
        Some(num_chunks.checked_mul(self.chunk)?.div_ceil(slice.max(1)))
    }
}

/// What a plan cuts chunks into.
struct Parts {
    /// Common multiple of the sizes of groups.
    parts: u64,
    /// Greatest common divisor of the slices of pipelines, in bytes; 0 without pipelines.
    common: u64,
    /// The largest slice.
    largest: u64,
}

impl Parts {
    fn of(plan: &Plan) -> Self {
        let (mut parts, mut common, mut largest) = (1_u64, 0_u64, 0_u64);
        for (_, _, operation) in plan.operations() {
            match &operation.action {
                Action::Data(data) => {
                    let size = data.group.map_or(1, |g| u64::from(g.size.max(1)));
                    let next = lcm(parts, size).filter(|n| *n <= MOST_PARTS);
                    parts = next.unwrap_or(parts);
                }
                Action::Pipeline(pipeline) => {
                    common = gcd(common, pipeline.unit_size);
                    largest = largest.max(pipeline.unit_size);
                }
                _ => {}
            }
        }
        Self { parts, common, largest }
    }
}

/// How an item is cut into pieces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Cut {
    /// Units of the item. The item begins at the access's chunk.
    pub(super) item: u64,
    /// Members of the group; 1 without one.
    pub(super) members: u32,
    /// Units of a slice; 0 outside of pipelines.
    pub(super) slice: u64,
}

/// Greatest common divisor; of 0 and n it is n.
fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

fn lcm(a: u64, b: u64) -> Option<u64> {
    (a / gcd(a, b)).checked_mul(b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_parts() {
        assert_eq!((gcd(0, 6), gcd(12, 18), gcd(7, 5)), (6, 6, 1));
        assert_eq!((lcm(4, 6), lcm(1, 9), lcm(u64::MAX, 2)), (Some(12), Some(9), None));
    }
}
