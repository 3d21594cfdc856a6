//! Signals and semaphores as counters: which posts a take cannot do without.

use std::collections::BTreeMap;

use super::clock::{Knowledge, Time};
use super::path::Node;

/// A signal or a release of a semaphore.
#[derive(Debug, Clone)]
pub(super) struct Post {
    pub(super) knowledge: Knowledge,
    pub(super) relaxed: bool,
    pub(super) step: usize,
    pub(super) node: Node,
}

/// A block that posts.
#[derive(Debug, Default)]
pub(super) struct Poster {
    /// In the whole plan.
    pub(super) posts: u64,
    /// Number of the last relaxed one, from 1.
    pub(super) last_relaxed: u64,
    pub(super) happened: Vec<Post>,
}

/// Posts that wait to be taken, and who takes them: one end of a channel, or a semaphore.
#[derive(Debug, Default)]
pub(super) struct Counter {
    /// What it holds at the start.
    pub(super) initial: u64,
    /// By posting block.
    pub(super) posters: BTreeMap<usize, Poster>,
    /// By taking block: how many it has taken.
    pub(super) takers: BTreeMap<usize, u64>,
    /// Any post or take is relaxed.
    pub(super) relaxed: bool,
    /// Two threads of a block post or take without order between them: which comes first is open.
    pub(super) ambiguous: bool,
    /// Who was the last to post, and to take, while counting: block, segment, thread.
    pub(super) last: [Option<(usize, Time, u32)>; 2],
}

impl Counter {
    /// True if a block's last take may have got a relaxed post, or an earlier one of its takes what this one needs.
    pub(super) fn may_be_relaxed(&self, block: usize) -> bool {
        let last = self.posters.values().next().map_or(0, |poster| poster.last_relaxed);
        match (self.ambiguous, self.posters.len(), self.takers.len()) {
            (false, 0 | 1, 0 | 1) => false,
            // It has got a post with at least its own number.
            (false, 0 | 1, _) => self.takers.get(&block).is_none_or(|taken| *taken <= last),
            _ => self.relaxed,
        }
    }

    /// Counting: one more post (0) or take (1).
    pub(super) fn meet(&mut self, which: usize, at: (usize, Time, u32), relaxed: bool) {
        let last = self.last[which].replace(at);
        self.ambiguous |= last.is_some_and(|l| (l.0, l.1) == (at.0, at.1) && l.2 != at.2);
        self.relaxed |= relaxed;
    }

    /// The posts that a block's next take cannot do without. It may come out of turn: others may take before it, and
    /// every post of other blocks may come before those of a given one.
    pub(super) fn take(&mut self, block: usize) -> Vec<Post> {
        let taken = self.takers.entry(block).or_default();
        *taken += 1;
        let needed = *taken;
        let total: u64 = self.posters.values().map(|poster| poster.posts).sum();
        let mut posts = Vec::new();
        for poster in self.posters.values() {
            let without = self.initial.saturating_add(total - poster.posts);
            if let Some(number) = needed.checked_sub(without).and_then(|n| n.checked_sub(1)) {
                posts.extend(poster.happened.get(number as usize).cloned());
            }
        }
        posts
    }
}
