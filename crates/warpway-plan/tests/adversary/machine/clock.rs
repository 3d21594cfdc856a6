//! Vector clocks: per block the segments, per port the requests that are known to be complete.

/// Entry `c` counts what is complete of component `c`.
pub(super) type Clock = Vec<u32>;

pub(super) fn join(into: &mut [u32], other: &[u32]) {
    for (mine, theirs) in into.iter_mut().zip(other) {
        *mine = (*mine).max(*theirs);
    }
}

/// Clocks that were given back, so that a run allocates few.
#[derive(Debug, Default)]
pub(super) struct Pool(Vec<Clock>);

impl Pool {
    pub(super) fn copy(&mut self, of: &[u32]) -> Clock {
        let mut clock = self.0.pop().unwrap_or_default();
        clock.clear();
        clock.extend_from_slice(of);
        clock
    }

    pub(super) fn give_back(&mut self, clock: Clock) {
        self.0.push(clock);
    }
}
