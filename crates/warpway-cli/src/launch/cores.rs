//! Which cores a rank may use.
//!
//! Ranks of a job wait for each other without sleeping, so the scheduler sees nothing to balance: two that it once puts on one
//! core stay there for seconds, and each hop between them takes a switch of threads. As mpirun does, the launcher therefore
//! gives each rank cores of its own where there are enough.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// How the launcher's cores are divided among the ranks.
pub(super) struct Cores {
    /// The launcher's, ascending.
    all: Vec<usize>,
    n_ranks: usize,
}

impl Cores {
    /// `None` where there are fewer cores than ranks, or the system does not say.
    pub(super) fn divided(n_ranks: u32) -> Option<Self> {
        let allowed = sched_getaffinity(None).ok()?;
        let all: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core)).collect();
        let n_ranks = usize::try_from(n_ranks).ok()?;
        (n_ranks > 0 && n_ranks <= all.len()).then_some(Self { all, n_ranks })
    }

    /// Those of a rank: neighbours, as many as others have or one more.
    fn of_rank(&self, rank: u32) -> &[usize] {
        let start = |rank: usize| rank.saturating_mul(self.all.len()) / self.n_ranks;
        let rank = rank as usize;
        self.all.get(start(rank)..start(rank + 1)).unwrap_or(&self.all)
    }

    /// What `start` starts inherits the rank's cores. Where the system does not permit it, all of them.
    pub(super) fn with<T>(&self, rank: u32, start: impl FnOnce() -> T) -> T {
        let set = |cores: &[usize]| {
            let mut set = CpuSet::new();
            cores.iter().for_each(|core| set.set(*core));
            sched_setaffinity(None, &set)
        };
        let bound = set(self.of_rank(rank)).is_ok();
        let started = start();
        if bound {
            // It has just been allowed.
            let _ = set(&self.all);
        }
        started
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_core_belongs_to_one_rank() {
        for (cores, n_ranks) in [(1, 1), (2, 2), (7, 3), (8, 3), (64, 9), (5, 5)] {
            let all: Vec<usize> = (0..cores).map(|core| core * 3 + 1).collect();
            let cores = Cores { all: all.clone(), n_ranks };
            let shares: Vec<&[usize]> = (0..n_ranks as u32).map(|rank| cores.of_rank(rank)).collect();
            assert_eq!(shares.concat(), all);
            let sizes = shares.iter().map(|share| share.len());
            assert!(sizes.clone().max().unwrap() - sizes.min().unwrap() <= 1, "{shares:?}");
        }
    }

    #[test]
    fn more_ranks_than_cores_share_them_all() {
        assert!(Cores::divided(65_536).is_none());
        assert!(Cores::divided(1).is_some());
    }
}
