//! Which blocks hold which bytes in their caches: what another one wrote last has to come from there.

use std::collections::{BTreeMap, HashMap};

use crate::ir::{BufferKind, Form};

/// A memory: rank, buffer, form, half.
pub(super) type Place = (u32, BufferKind, Form, bool);

/// See the module's page. Bytes that nobody has touched yet are nobody's.
#[derive(Debug, Default)]
pub(super) struct Caches {
    places: HashMap<Place, Holders>,
}

/// Stretches by their first byte; none overlaps.
#[derive(Debug, Default)]
struct Holders(BTreeMap<u64, Stretch>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Stretch {
    end: u64,
    /// Ascending.
    blocks: Vec<usize>,
}

impl Caches {
    /// A block reads; how many of the bytes others hold and it does not.
    pub(super) fn read(&mut self, place: Place, start: u64, bytes: u64, block: usize) -> u64 {
        let holders = self.places.entry(place).or_default();
        holders.touch(start, start + bytes, |blocks| {
            let foreign = !blocks.is_empty() && !blocks.contains(&block);
            if let Err(at) = blocks.binary_search(&block) {
                blocks.insert(at, block);
            }
            foreign
        })
    }

    /// A block writes; how many of the bytes others hold, too.
    pub(super) fn write(&mut self, place: Place, start: u64, bytes: u64, block: usize) -> u64 {
        let holders = self.places.entry(place).or_default();
        let foreign = holders.touch(start, start + bytes, |blocks| {
            let foreign = blocks.iter().any(|other| *other != block);
            blocks.clear();
            blocks.push(block);
            foreign
        });
        holders.join(start, start + bytes);
        foreign
    }
}

impl Holders {
    /// Calls `change` for each stretch of the range; the bytes of those for which it says true.
    fn touch(&mut self, start: u64, end: u64, mut change: impl FnMut(&mut Vec<usize>) -> bool) -> u64 {
        if start >= end {
            return 0;
        }
        self.cut(start);
        self.cut(end);
        let mut counted = 0;
        let mut at = start;
        let mut gaps = Vec::new();
        for (first, stretch) in self.0.range_mut(start..end) {
            if at < *first {
                gaps.push((at, *first));
            }
            if change(&mut stretch.blocks) {
                counted += stretch.end - first;
            }
            at = stretch.end;
        }
        if at < end {
            gaps.push((at, end));
        }
        for (first, end) in gaps {
            let mut blocks = Vec::new();
            change(&mut blocks);
            self.0.insert(first, Stretch { end, blocks });
        }
        counted
    }

    /// Lets a stretch begin at `at`.
    fn cut(&mut self, at: u64) {
        let Some((first, stretch)) = self.0.range_mut(..at).next_back() else { return };
        if *first < at && stretch.end > at {
            let rest = Stretch { end: stretch.end, blocks: stretch.blocks.clone() };
            stretch.end = at;
            self.0.insert(at, rest);
        }
    }

    /// Makes one stretch of what has the same holders now.
    fn join(&mut self, start: u64, end: u64) {
        let Some(blocks) = self.0.get(&start).map(|stretch| stretch.blocks.clone()) else { return };
        let inner: Vec<u64> = self.0.range(start..end).map(|(first, _)| *first).collect();
        for first in inner {
            self.0.remove(&first);
        }
        self.0.insert(start, Stretch { end, blocks });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_from_who_holds_them() {
        let mut caches = Caches::default();
        let place = (0, BufferKind::Output, Form::Raw, false);
        assert_eq!(caches.read(place, 0, 100, 0), 0, "nobody held them");
        assert_eq!(caches.read(place, 50, 100, 1), 50, "0 held half of them");
        assert_eq!(caches.read(place, 0, 100, 0), 0, "0 still holds its own");
        assert_eq!(caches.write(place, 20, 40, 0), 10, "1 held [50, 60)");
        assert_eq!(caches.write(place, 20, 40, 0), 0, "now nobody else does");
        assert_eq!(caches.read(place, 0, 150, 1), 60, "all before 60 is 0's alone");
        assert_eq!(caches.read((1, BufferKind::Output, Form::Raw, false), 0, 9, 5), 0, "another memory");
        assert_eq!(caches.write(place, 0, 0, 7), 0);
    }
}
