//! A set of integers as disjoint, non-adjacent ranges.

use std::collections::BTreeMap;

/// See the module's page.
#[derive(Debug, Clone, Default)]
pub(super) struct IntervalSet(BTreeMap<u64, u64>);

impl IntervalSet {
    /// Adds `start..end`; returns true if any of it was in the set before.
    pub(super) fn insert(&mut self, mut start: u64, mut end: u64) -> bool {
        if start >= end {
            return false;
        }
        let mut overlaps = false;
        // Ranges that begin at or before `end` and end at or after `start` are merged with the new one.
        while let Some((&s, &e)) = self.0.range(..=end).next_back() {
            if e < start {
                break;
            }
            overlaps |= s < end && start < e;
            self.0.remove(&s);
            start = start.min(s);
            end = end.max(e);
        }
        self.0.insert(start, end);
        overlaps
    }

    /// True if all of `start..end` is in the set.
    pub(super) fn covers(&self, start: u64, end: u64) -> bool {
        self.first_gap(start, end).is_none()
    }

    /// The first of `start..end` that is not in the set.
    pub(super) fn first_gap(&self, start: u64, end: u64) -> Option<u64> {
        let behind = self.0.range(..=start).next_back().map_or(start, |(_, e)| (*e).max(start));
        (behind < end).then_some(behind)
    }

    /// True if any of `start..end` is in the set.
    pub(super) fn touches(&self, start: u64, end: u64) -> bool {
        start < end && self.0.range(..end).next_back().is_some_and(|(_, e)| *e > start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Against a list of booleans.
    #[test]
    fn ranges_merge_and_cover() {
        let (mut set, mut model, mut state) = (IntervalSet::default(), [false; 64], 7_u64);
        let mut next = |limit: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % limit
        };
        for turn in 0..2_000 {
            let start = next(64) as usize;
            let end = (start + next(9) as usize).min(64);
            let (range, wide) = (&model[start..end], (start as u64, end as u64));
            assert_eq!(set.covers(wide.0, wide.1), range.iter().all(|x| *x), "{turn}: {start}..{end}");
            let gap = (start..end).find(|at| !model[*at]).map(|at| at as u64);
            assert_eq!(set.first_gap(wide.0, wide.1), gap, "{turn}: {start}..{end}");
            assert_eq!(set.touches(wide.0, wide.1), range.iter().any(|x| *x), "{turn}: {start}..{end}");
            if next(4) == 0 {
                let before = model[start..end].iter().any(|x| *x);
                assert_eq!(set.insert(wide.0, wide.1), before);
                model[start..end].fill(true);
            }
            if turn % 50 == 0 {
                (set, model) = (IntervalSet::default(), [false; 64]);
            }
        }
    }
}
