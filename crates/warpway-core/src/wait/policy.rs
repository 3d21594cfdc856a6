//! How waits back off, and how spinning adapts to the machine.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// How a wait backs off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WaitPolicy {
    /// Tests before the first yield.
    pub spins: u32,
    /// Yields before the first sleep.
    pub yields: u32,
    /// The longest single sleep; also how late an abort is noticed at worst.
    pub slice: Duration,
}

impl WaitPolicy {
    /// For `runnable` ranks (or blocks) that share `cores` cores: spinning pays only where each has a core.
    pub fn for_load(runnable: usize, cores: usize) -> Self {
        Self::spinning_if(runnable <= cores)
    }

    /// Spins only if whoever is waited for can run meanwhile.
    pub fn spinning_if(each_has_a_core: bool) -> Self {
        let spins = if each_has_a_core { 4000 } else { 0 };
        Self { spins, yields: 200, slice: Duration::from_millis(10) }
    }

    /// For `ranks` ranks of this host, each with one runnable thread, on the cores that this process may use.
    pub fn for_ranks(ranks: usize) -> Self {
        // Follows the affinity mask and the container's quota; unknown means be polite.
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self::for_load(ranks, cores)
    }

    /// The same for a condition that another thread of this process brings about: it needs the core.
    pub fn without_spinning(self) -> Self {
        Self { spins: 0, yields: self.yields.min(8), ..self }
    }

    /// Sleeps almost at once: for service threads that must not take a core from anybody.
    pub fn patient() -> Self {
        Self { spins: 0, yields: 1, slice: Duration::from_millis(10) }
    }
}

/// How long spinning has paid lately. Where two ranks share a core after all (another program took one, the
/// scheduler put them together), whoever spins keeps the other from running: each fruitless spin halves the
/// next, each fruitful one doubles it again.
#[derive(Debug)]
// std's atomic also under loom: a hint that orders nothing would only multiply the states.
pub(super) struct SpinBudget(std::sync::atomic::AtomicU32);

impl Default for SpinBudget {
    fn default() -> Self {
        Self(u32::MAX.into())
    }
}

impl SpinBudget {
    /// Long enough for a reply that is under way between two cores.
    const LEAST: u32 = 64;

    pub(super) fn get(&self, policy: &WaitPolicy) -> u32 {
        // Relaxed, here and below: a hint, which orders nothing.
        policy.spins.min(self.0.load(Relaxed))
    }

    pub(super) fn paid(&self, spun: u32, policy: &WaitPolicy) {
        if spun < policy.spins {
            self.0.store(spun.saturating_mul(2), Relaxed);
        }
    }

    pub(super) fn wasted(&self, spun: u32) {
        self.0.store((spun / 2).max(Self::LEAST), Relaxed);
    }
}
