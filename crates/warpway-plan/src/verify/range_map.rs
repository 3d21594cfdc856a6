//! A value for every integer, as disjoint ranges of equal values.

use std::collections::BTreeMap;
use std::ops::Range;

/// Values of neighbouring ranges that can be kept as one.
pub(super) trait Coalesce: Clone {
    /// True if one range may stand for both. May answer false for equal values.
    fn coalesces(&self, other: &Self) -> bool;
}

/// See the module's page. What was never set has the value of the gaps.
#[derive(Debug, Clone)]
pub(super) struct RangeMap<V> {
    /// Start to end and value.
    ranges: BTreeMap<u64, (u64, V)>,
    gap: V,
}

impl<V: Coalesce> RangeMap<V> {
    /// The same value everywhere.
    pub(super) fn new(gap: V) -> Self {
        Self { ranges: BTreeMap::new(), gap }
    }

    /// The ranges that were set.
    pub(super) fn len(&self) -> usize {
        self.ranges.len()
    }

    /// `range` as consecutive ranges, each with its value.
    pub(super) fn segments(&self, range: Range<u64>) -> Segments<'_, V> {
        let before = self.ranges.range(..=range.start).next_back();
        let first =
            before.filter(|(_, (end, _))| *end > range.start).map_or(range.start, |(start, _)| *start);
        let set = match range.is_empty() {
            true => self.ranges.range(0..0),
            false => self.ranges.range(first..range.end),
        };
        Segments { set: set.peekable(), gap: &self.gap, at: range.start, end: range.end }
    }

    /// Sets one value for all of `range`.
    pub(super) fn set(&mut self, range: Range<u64>, value: V) {
        if !range.is_empty() {
            self.take(range.clone());
            self.insert(range, value);
        }
    }

    /// Replaces the value of every segment of `range`.
    pub(super) fn update(&mut self, range: Range<u64>, mut new: impl FnMut(Range<u64>, V) -> V) {
        for (segment, value) in self.take(range) {
            let value = new(segment.clone(), value);
            self.insert(segment, value);
        }
    }

    /// Cuts the segments of `range` out.
    fn take(&mut self, range: Range<u64>) -> Vec<(Range<u64>, V)> {
        if range.is_empty() {
            return Vec::new();
        }
        self.split(range.start);
        self.split(range.end);
        let (mut taken, mut at) = (Vec::with_capacity(1), range.start);
        while let Some((&start, _)) = self.ranges.range(at..range.end).next() {
            let Some((end, value)) = self.ranges.remove(&start) else { break };
            if at < start {
                taken.push((at..start, self.gap.clone()));
            }
            taken.push((start..end, value));
            at = end;
        }
        if at < range.end {
            taken.push((at..range.end, self.gap.clone()));
        }
        taken
    }

    /// Makes sure that no range goes across `at`.
    fn split(&mut self, at: u64) {
        if let Some((_, (end, value))) = self.ranges.range_mut(..at).next_back()
            && *end > at
        {
            let behind = (*end, value.clone());
            *end = at;
            self.ranges.insert(at, behind);
        }
    }

    /// Fills a hole, joining it with its neighbours.
    fn insert(&mut self, range: Range<u64>, value: V) {
        let Range { start, mut end } = range;
        if let Some((next_end, next)) = self.ranges.get(&end)
            && value.coalesces(next)
        {
            let behind = *next_end;
            self.ranges.remove(&end);
            end = behind;
        }
        if let Some((_, (previous_end, previous))) = self.ranges.range_mut(..start).next_back()
            && *previous_end == start
            && previous.coalesces(&value)
        {
            *previous_end = end;
            return;
        }
        self.ranges.insert(start, (end, value));
    }
}

/// Segments of a range, in order and without holes.
pub(super) struct Segments<'m, V> {
    set: std::iter::Peekable<std::collections::btree_map::Range<'m, u64, (u64, V)>>,
    gap: &'m V,
    at: u64,
    end: u64,
}

impl<'m, V> Iterator for Segments<'m, V> {
    type Item = (Range<u64>, &'m V);

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.end {
            return None;
        }
        let start = self.at;
        let (until, value) = match self.set.peek() {
            Some((from, (until, value))) if **from <= start => {
                let found = (*until, value);
                self.set.next();
                found
            }
            Some((from, _)) => (**from, self.gap),
            None => (self.end, self.gap),
        };
        self.at = until.min(self.end);
        Some((start..self.at, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Coalesce for u8 {
        fn coalesces(&self, other: &Self) -> bool {
            self == other
        }
    }

    /// Against a list of bytes.
    #[test]
    fn behaves_like_a_list() {
        let (mut map, mut model, mut state) = (RangeMap::new(0_u8), [0_u8; 64], 11_u64);
        let mut next = |limit: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % limit
        };
        for turn in 0..3_000 {
            let start = next(64);
            let range = start..(start + next(12)).min(64);
            match next(3) {
                0 => {
                    let value = next(3) as u8;
                    map.set(range.clone(), value);
                    model[range.start as usize..range.end as usize].fill(value);
                }
                1 => {
                    map.update(range.clone(), |_, old| (old + 1) % 3);
                    model[range.start as usize..range.end as usize]
                        .iter_mut()
                        .for_each(|m| *m = (*m + 1) % 3);
                }
                _ => {
                    let mut at = range.start;
                    for (segment, value) in map.segments(range.clone()) {
                        assert_eq!(segment.start, at, "{turn}");
                        assert!(segment.start < segment.end, "{turn}");
                        at = segment.end;
                        assert!(
                            model[segment.start as usize..segment.end as usize].iter().all(|m| m == value),
                            "{turn}: {segment:?} {value}"
                        );
                    }
                    assert_eq!(at, range.end, "{turn}");
                }
            }
        }
        // Neighbours are joined, so there are no more ranges than changes of value and holes.
        assert!(map.len() <= model.windows(2).filter(|w| w[0] != w[1]).count() + 1);
        map.set(0..64, 1);
        assert_eq!(map.len(), 1);
    }
}
