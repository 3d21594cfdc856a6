//! Disjoint ranges of chunks, each with a value.

use std::collections::BTreeMap;
use std::ops::Range;

/// Ranges of one buffer. Putting a range in replaces what it covers, so n steps take n log n. Ranges that touch and have
/// equal values are one.
#[derive(Debug, Clone)]
pub(crate) struct Intervals<T> {
    /// End and value by start.
    ranges: BTreeMap<u64, (u64, T)>,
}

impl<T> Default for Intervals<T> {
    fn default() -> Self {
        Self { ranges: BTreeMap::new() }
    }
}

impl<T: Clone + PartialEq> Intervals<T> {
    pub(crate) fn clear(&mut self) {
        self.ranges.clear();
    }

    /// The ranges that have a chunk in common with this one, in ascending order.
    pub(crate) fn overlapping(&self, range: Range<u64>) -> impl Iterator<Item = (Range<u64>, &T)> {
        let before = self.ranges.range(..range.start).next_back();
        let reaching = before.filter(move |(_, (end, _))| *end > range.start && range.start < range.end);
        let inside = (range.start < range.end).then(|| self.ranges.range(range));
        reaching
            .into_iter()
            .chain(inside.into_iter().flatten())
            .map(|(start, (end, value))| (*start..*end, value))
    }

    /// Gives a range a value, and takes it away from whatever covered it.
    pub(crate) fn insert(&mut self, range: Range<u64>, value: T) {
        if range.is_empty() {
            return;
        }
        self.remove(range.clone());
        let Range { mut start, mut end } = range;
        if let Some((left, (left_end, left_value))) = self.ranges.range(..start).next_back()
            && (*left_end, left_value) == (start, &value)
        {
            start = *left;
        }
        if let Some((right_end, right_value)) = self.ranges.get(&end)
            && *right_value == value
        {
            let right = std::mem::replace(&mut end, *right_end);
            self.ranges.remove(&right);
        }
        self.ranges.insert(start, (end, value));
    }

    /// All ranges in ascending order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Range<u64>, &T)> {
        self.ranges.iter().map(|(start, (end, value))| (*start..*end, value))
    }

    /// Takes a range away from whatever covers it.
    pub(crate) fn remove(&mut self, range: Range<u64>) {
        let covered: Vec<u64> = self.overlapping(range.clone()).map(|(covered, _)| covered.start).collect();
        for start in covered {
            let Some((end, value)) = self.ranges.remove(&start) else { continue };
            if start < range.start {
                self.ranges.insert(start, (range.start, value.clone()));
            }
            if end > range.end {
                self.ranges.insert(range.end, (end, value));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Against an array with one value per chunk.
        #[test]
        fn equals_an_array(steps in prop::collection::vec((0u64..40, 0u64..12, prop::option::of(0u8..5)), 0..60)) {
            let mut intervals = Intervals::default();
            let mut array = [None; 64];
            for (start, size, value) in steps {
                let range = start..start + size;
                match value {
                    Some(value) => intervals.insert(range.clone(), value),
                    None => intervals.remove(range.clone()),
                }
                array[range.start as usize..range.end as usize].fill(value);
                for (at, expected) in (0..).zip(&array) {
                    let mut found = intervals.overlapping(at..at + 1);
                    prop_assert_eq!(found.next().map(|(_, value)| *value), *expected);
                    prop_assert!(found.next().is_none());
                }
                let ranges: Vec<_> = intervals.iter().collect();
                prop_assert!(ranges.windows(2).all(|pair| pair[0].0.end < pair[1].0.start || pair[0].1 != pair[1].1));
                let all = intervals.overlapping(0..64).map(|(range, _)| range.end - range.start).sum::<u64>();
                prop_assert_eq!(all as usize, array.iter().flatten().count());
            }
            prop_assert_eq!(intervals.overlapping(7..7).count(), 0);
        }
    }
}
