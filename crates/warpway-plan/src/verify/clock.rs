//! What a block knows: which earlier steps it comes after, and which ranks have started.
//!
//! Clocks are sparse and shared. A block's own time is not in its clock but beside it, so that a barrier of the
//! block copies nothing; clocks change only where something is learned from others.

use std::rc::Rc;

/// Who counts time: a block (segments, from 1), or the requests of one thread to one port channel.
pub(super) type Thread = u32;

/// A count of a [`Thread`]. A clock that holds 0 of a block knows that the block's rank has started.
pub(super) type Time = u32;

/// The accesses of a thread at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Position {
    pub(super) thread: Thread,
    pub(super) time: Time,
}

/// The last time of each thread that is known to be over. Sorted by thread; never empty entries.
#[derive(Debug, Clone, Default)]
pub(super) struct Clock(Option<Rc<[Position]>>);

impl Clock {
    fn entries(&self) -> &[Position] {
        self.0.as_deref().unwrap_or(&[])
    }

    /// True if a position is known to be over.
    pub(super) fn covers(&self, at: Position) -> bool {
        let entries = self.entries();
        entries
            .binary_search_by_key(&at.thread, |e| e.thread)
            .is_ok_and(|found| entries.get(found).is_some_and(|e| e.time >= at.time))
    }

    /// The time known of a thread.
    pub(super) fn get(&self, thread: Thread) -> Option<Time> {
        let entries = self.entries();
        let found = entries.binary_search_by_key(&thread, |e| e.thread).ok()?;
        entries.get(found).map(|e| e.time)
    }

    /// With more positions, in any order.
    pub(super) fn with(&self, more: &[Position]) -> Self {
        if more.iter().all(|at| self.covers(*at)) {
            return self.clone();
        }
        let mut more = more.to_vec();
        more.sort_unstable();
        Self(Some(merge(self.entries(), &more).into()))
    }

    /// What one of both knows.
    pub(super) fn join(&self, other: &Self) -> Self {
        match (&self.0, &other.0) {
            (_, None) => self.clone(),
            (None, _) => other.clone(),
            (Some(a), Some(b)) if Rc::ptr_eq(a, b) => self.clone(),
            (Some(a), Some(b)) => {
                let merged = merge(a, b);
                // The one that knew it all is kept, so that equal clocks stay shared.
                if merged[..] == a[..] {
                    self.clone()
                } else if merged[..] == b[..] {
                    other.clone()
                } else {
                    Self(Some(merged.into()))
                }
            }
        }
    }

    fn is_same(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Some(a), Some(b)) => Rc::ptr_eq(a, b),
            (None, None) => true,
            _ => false,
        }
    }
}

/// Two sorted lists become one; of a thread that is in both, or twice in one, the later time.
fn merge(a: &[Position], b: &[Position]) -> Vec<Position> {
    let mut merged: Vec<Position> = Vec::with_capacity(a.len() + b.len());
    let (mut a, mut b) = (a.iter().copied().peekable(), b.iter().copied().peekable());
    loop {
        let next = match (a.peek(), b.peek()) {
            (Some(x), Some(y)) if x <= y => a.next(),
            (_, Some(_)) => b.next(),
            (Some(_), None) => a.next(),
            (None, None) => return merged,
        };
        let Some(next) = next else { return merged };
        match merged.last_mut() {
            Some(last) if last.thread == next.thread => last.time = last.time.max(next.time),
            _ => merged.push(next),
        }
    }
}

/// A set of ranks.
#[derive(Debug, Clone, Default)]
pub(super) struct RankSet(Option<Rc<[u64]>>);

impl RankSet {
    fn words(&self) -> &[u64] {
        self.0.as_deref().unwrap_or(&[])
    }

    pub(super) fn of(ranks: impl Iterator<Item = u32>) -> Self {
        let mut words = Vec::new();
        for rank in ranks {
            let word = rank as usize / 64;
            if words.len() <= word {
                words.resize(word + 1, 0);
            }
            words[word] |= 1 << (rank % 64);
        }
        if words.is_empty() { Self(None) } else { Self(Some(words.into())) }
    }

    pub(super) fn contains(&self, rank: u32) -> bool {
        self.words().get(rank as usize / 64).is_some_and(|word| word >> (rank % 64) & 1 == 1)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        (0..).zip(self.words()).flat_map(|(at, word)| {
            (0..64_u32).filter(move |bit| word >> bit & 1 == 1).map(move |bit| at * 64 + bit)
        })
    }

    pub(super) fn union(&self, other: &Self) -> Self {
        let (a, b) = (self.words(), other.words());
        let within = |x: &[u64], y: &[u64]| {
            x.iter().enumerate().all(|(at, word)| word & !y.get(at).copied().unwrap_or(0) == 0)
        };
        if within(b, a) {
            return self.clone();
        }
        if within(a, b) {
            return other.clone();
        }
        let word = |of: &[u64], at| of.get(at).copied().unwrap_or(0);
        Self(Some((0..a.len().max(b.len())).map(|at| word(a, at) | word(b, at)).collect()))
    }

    pub(super) fn intersection(&self, other: &Self) -> Self {
        Self(Some(self.words().iter().zip(other.words()).map(|(a, b)| a & b).collect()))
    }

    fn is_same(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Some(a), Some(b)) => Rc::ptr_eq(a, b),
            (None, None) => true,
            _ => false,
        }
    }
}

/// See the module's page.
#[derive(Debug, Clone, Default)]
pub(super) struct Knowledge {
    /// Data: what these did may be used.
    pub(super) clock: Clock,
    /// Ranks whose start comes before, with order to the data.
    pub(super) started: RankSet,
    /// The same by any edge, relaxed pairs included.
    pub(super) executed: RankSet,
}

impl Knowledge {
    /// Only that it happens later, nothing about data.
    pub(super) fn execution_only(&self) -> Self {
        Self { executed: self.executed.clone(), ..Self::default() }
    }

    pub(super) fn join(&self, other: &Self) -> Self {
        Self {
            clock: self.clock.join(&other.clock),
            started: self.started.union(&other.started),
            executed: self.executed.union(&other.executed),
        }
    }

    fn is_same(&self, other: &Self) -> bool {
        self.clock.is_same(&other.clock)
            && self.started.is_same(&other.started)
            && self.executed.is_same(&other.executed)
    }

    /// What at least one of them knows. Pairs are joined first, so that long lists cost no more than their
    /// contents times a logarithm.
    pub(super) fn join_all(mut list: Vec<Self>) -> Self {
        list.dedup_by(|a, b| a.is_same(b));
        while list.len() > 1 {
            let mut half: Vec<Self> = Vec::with_capacity(list.len().div_ceil(2));
            for pair in list.chunks(2) {
                match pair {
                    [a, b] => half.push(a.join(b)),
                    one => half.extend(one.iter().cloned()),
                }
            }
            list = half;
        }
        list.pop().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Against a map.
    #[test]
    fn clocks_join() {
        let mut state = 5_u64;
        let mut next = |limit: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((state >> 33) % limit) as u32
        };
        for _ in 0..300 {
            let mut lists = Vec::new();
            let mut model: BTreeMap<u32, u32> = BTreeMap::new();
            for _ in 0..next(5) {
                let more: Vec<_> =
                    (0..next(6)).map(|_| Position { thread: next(8), time: next(4) }).collect();
                for at in &more {
                    let time = model.entry(at.thread).or_default();
                    *time = (*time).max(at.time);
                }
                lists.push(Knowledge { clock: Clock::default().with(&more), ..Knowledge::default() });
            }
            let joined = Knowledge::join_all(lists).clock;
            for thread in 0..8 {
                assert_eq!(joined.get(thread), model.get(&thread).copied());
                for time in 0..4 {
                    let known = model.get(&thread).is_some_and(|t| *t >= time);
                    assert_eq!(joined.covers(Position { thread, time }), known);
                }
            }
        }
    }

    #[test]
    fn sets_of_ranks() {
        let a = RankSet::of([1, 70].into_iter());
        let b = RankSet::of([3, 70, 200].into_iter());
        assert_eq!(a.union(&b).iter().collect::<Vec<_>>(), [1, 3, 70, 200]);
        assert_eq!(a.intersection(&b).iter().collect::<Vec<_>>(), [70]);
        assert!(b.contains(200) && !a.contains(200) && !a.contains(3));
    }
}
