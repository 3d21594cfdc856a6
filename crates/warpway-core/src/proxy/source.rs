//! Requests that come from a device: a ring that the proxy has to look at, because no device can wake a thread.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::error::Result;
use crate::fifo::EncodedTrigger;

/// In the tail of a device's ring and in [`ProgressWord`]s: the proxy has stopped, and what is not counted below will
/// never be done. A device that waits for it gives up; that is never a success.
pub const PROXY_STOPPED: u64 = 1 << 63;

/// A FIFO that a device fills. Its memory belongs to the engine; the proxy knows positions.
///
/// [`front`](Self::front) and [`publish_tail`](Self::publish_tail) are called by one thread at a time. No call may wait
/// for work of the device: a kernel that waits for the proxy would never end.
pub trait TriggerSource: Send + Sync {
    /// Slots of the ring.
    fn size(&self) -> u64;

    /// The element at `position`, once all of it is there. Called with ever the same position until it is.
    fn front(&self, position: u64) -> Option<EncodedTrigger>;

    /// Elements consumed, with release at system scope; bit 63: see [`PROXY_STOPPED`].
    fn publish_tail(&self, tail: u64);

    /// Positions that producers have taken, also those not written yet. Only asked by a proxy that stops.
    ///
    /// # Errors
    /// If the device does not answer.
    fn head(&self) -> Result<u64>;

    /// A new word for the flushes of one connection, 0.
    ///
    /// # Errors
    /// If there is no memory.
    fn progress_word(&self) -> Result<Arc<dyn ProgressWord>>;
}

/// A 64-bit word that the proxy writes and kernels poll; lives at least as long as the value.
pub trait ProgressWord: Send + Sync {
    /// Stores with release at system scope.
    fn store(&self, value: u64);

    /// Where kernels find it.
    fn address(&self) -> u64;
}

impl fmt::Debug for dyn TriggerSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TriggerSource").field("size", &self.size()).finish_non_exhaustive()
    }
}

/// How a proxy looks at a [`TriggerSource`] while nothing comes.
///
/// First it tests as fast as it can, since the next request of a running kernel is a fraction of a microsecond away;
/// then it yields between tests for as long as a kernel is likely to go on (launches of one step of a program follow
/// each other within a millisecond or two); then it naps, the longer the longer nothing has come, so
/// that a request waits at most about a sixteenth of the pause before it, and an idle proxy costs nearly nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PollPolicy {
    /// Tests before the first yield.
    pub spins: u32,
    /// How long after the last request no nap is taken.
    pub awake: Duration,
    /// Naps are no shorter: a timer does not ring earlier, whatever it is set to.
    pub shortest_nap: Duration,
    /// And no longer.
    pub longest_nap: Duration,
}

impl PollPolicy {
    /// Spins only if whoever else runs on the cores can go on meanwhile.
    pub fn spinning_if(each_has_a_core: bool) -> Self {
        Self {
            spins: if each_has_a_core { 4000 } else { 0 },
            awake: Duration::from_millis(2),
            shortest_nap: Duration::from_micros(50),
            longest_nap: Duration::from_micros(500),
        }
    }

    /// The nap after nothing has come for `idle`; `None` while it is too early for one.
    pub(super) fn nap(&self, idle: Duration) -> Option<Duration> {
        let longest = self.longest_nap.max(self.shortest_nap);
        (idle >= self.awake).then(|| (idle / 16).clamp(self.shortest_nap, longest))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn naps_grow_with_the_pause_within_their_bounds() {
        let policy = PollPolicy::spinning_if(false);
        let nap = |idle_us: u64| policy.nap(Duration::from_micros(idle_us)).map(|nap| nap.as_micros());
        let naps = [0, 1_999, 2_000, 4_800, 8_000, 1_000_000].map(nap);
        assert_eq!(naps, [None, None, Some(125), Some(300), Some(500), Some(500)]);
        let eager = PollPolicy { awake: Duration::ZERO, ..policy };
        assert_eq!(eager.nap(Duration::ZERO), Some(Duration::from_micros(50)));
        let odd = PollPolicy { awake: Duration::ZERO, longest_nap: Duration::ZERO, ..policy };
        assert_eq!(odd.nap(Duration::from_secs(1)), Some(odd.shortest_nap), "no panic, no empty nap");
    }
}
