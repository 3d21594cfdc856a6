//! Which processors a process may use, so that the ranks of a host find out how many they have together.
//!
//! A launcher that pins each rank to a processor of its own leaves each with a mask of one: only the union of the
//! masks says that all can run at the same time.

use std::fs;
use std::path::Path;

use rustix::thread::{CpuSet, sched_getaffinity};

/// Words of a mask that travel: 4096 processors.
pub(super) const MAX_WORDS: usize = 64;

/// See the module's page.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Processors {
    /// Bit n % 64 of word n / 64: it may run on processor n. Empty if that is not known.
    mask: Vec<u64>,
    /// What its control groups let it use, in thousandths of a processor.
    quota: Option<u64>,
}

impl Processors {
    /// From a mask (bit n % 64 of word n / 64) and a quota in thousandths of a processor.
    pub fn new(mask: &[u64], quota: Option<u64>) -> Self {
        let length = mask.iter().rposition(|word| *word != 0).map_or(0, |last| last + 1).min(MAX_WORDS);
        Self { mask: mask.iter().take(length).copied().collect(), quota }
    }

    /// Of the calling thread, which is what threads that it starts inherit.
    pub fn of_this_thread() -> Self {
        let mut mask = vec![0u64; CpuSet::MAX_CPU / 64];
        // Unknown where the machine has more processors than the call can tell.
        if let Ok(set) = sched_getaffinity(None) {
            for processor in (0..CpuSet::MAX_CPU).filter(|processor| set.is_set(*processor)) {
                mask[processor / 64] |= 1 << (processor % 64);
            }
        }
        Self::new(&mask, control_group_quota())
    }

    /// The mask, without zero words at its end; empty if it is not known.
    pub fn mask(&self) -> &[u64] {
        &self.mask
    }

    /// The tightest limit of its control groups, in thousandths of a processor.
    pub fn quota(&self) -> Option<u64> {
        self.quota
    }

    /// How many the mask holds.
    pub fn count(&self) -> usize {
        self.mask.iter().map(|word| word.count_ones() as usize).sum()
    }

    fn contains(&self, other: &Self) -> bool {
        let mine = self.mask.iter().copied().chain(std::iter::repeat(0));
        other.mask.iter().zip(mine).all(|(theirs, mine)| theirs & !mine == 0)
    }

    /// Whether each of `ranks`, the ranks of this host including this one, has a processor as far as this one can
    /// tell: together they have as many as there are ranks, and those that can run nowhere else than this one
    /// find room here. `None` if some mask is not known.
    pub fn suffice_for(&self, ranks: &[&Self]) -> Option<bool> {
        if self.mask.is_empty() || ranks.iter().any(|rank| rank.mask.is_empty()) {
            return None;
        }
        let mut union = vec![0; MAX_WORDS];
        for rank in ranks {
            union.iter_mut().zip(&rank.mask).for_each(|(all, word)| *all |= word);
        }
        // Ranks of one container report the same quota, which they share; of several, the sum is at least this.
        let quota = ranks.iter().map(|rank| rank.quota.unwrap_or(u64::MAX)).max().unwrap_or(u64::MAX);
        let together = Self { mask: union, quota: None }.count().min((quota / 1000) as usize);
        let confined = ranks.iter().filter(|rank| self.contains(rank)).count();
        Some(ranks.len() <= together && confined <= self.count())
    }
}

/// The tightest limit of this process's control groups.
fn control_group_quota() -> Option<u64> {
    let root = Path::new("/sys/fs/cgroup");
    let membership = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let path = membership.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or("/");
    let own = root.join(path.trim_start_matches('/'));
    let second = own
        .ancestors()
        .take_while(|folder| folder.starts_with(root))
        .filter_map(|folder| parse_quota(&fs::read_to_string(folder.join("cpu.max")).ok()?))
        .min();
    let first = || {
        let read = |name: &str| fs::read_to_string(root.join("cpu").join(name)).ok();
        parse_quota(&format!("{} {}", read("cpu.cfs_quota_us")?.trim(), read("cpu.cfs_period_us")?.trim()))
    };
    second.or_else(first)
}

/// "150000 100000" (quota and period) is 1500; "max 100000" and "-1 100000" are none.
fn parse_quota(text: &str) -> Option<u64> {
    let (quota, period) = text.trim().split_once(' ')?;
    let (quota, period): (u64, u64) = (quota.parse().ok()?, period.parse().ok()?);
    quota.checked_mul(1000)?.checked_div(period)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What each of the ranks with these masks decides.
    fn decisions(ranks: &[(&[u64], Option<u64>)]) -> Vec<Option<bool>> {
        let ranks: Vec<_> = ranks.iter().map(|(mask, quota)| Processors::new(mask, *quota)).collect();
        let all: Vec<_> = ranks.iter().collect();
        ranks.iter().map(|rank| rank.suffice_for(&all)).collect()
    }

    #[test]
    fn ranks_spin_if_all_of_them_can_run() {
        let (yes, no) = (Some(true), Some(false));
        // Pinned to one processor each, as launchers do.
        assert_eq!(decisions(&[(&[1], None), (&[2], None)]), [yes, yes]);
        assert_eq!(decisions(&[(&[1], None), (&[0, 0, 8], None)]), [yes, yes]);
        // To the same one.
        assert_eq!(decisions(&[(&[4], None), (&[4], None)]), [no, no]);
        // Not pinned.
        assert_eq!(decisions(&[(&[3], None), (&[3], None)]), [yes, yes]);
        assert_eq!(decisions(&[(&[3], None), (&[3], None), (&[3], None)]), [no, no, no]);
        assert_eq!(decisions(&[(&[1], None)]), [yes]);
        assert_eq!(decisions(&[(&[1], None), (&[1], None), (&[6], None), (&[6], None)]), [no, no, no, no]);
        // Enough in all, but two share one: they notice, the other need not care.
        assert_eq!(decisions(&[(&[1], None), (&[1], None), (&[14], None)]), [no, no, yes]);
        // A quota counts whatever the masks say; a part of a processor is none.
        assert_eq!(decisions(&[(&[1], Some(2000)), (&[2], Some(2000))]), [yes, yes]);
        assert_eq!(decisions(&[(&[1], Some(1999)), (&[2], Some(1999))]), [no, no]);
        assert_eq!(decisions(&[(&[1], Some(500)), (&[2], None)]), [yes, yes]);
        assert_eq!(decisions(&[(&[1], Some(0))]), [no]);
        // Nobody knows.
        assert_eq!(decisions(&[(&[1], None), (&[], None)]), [None, None]);
        assert_eq!(decisions(&[(&[1], None), (&[0, 0], None)]), [None, None]);
    }

    #[test]
    fn quotas_are_in_thousandths_of_a_processor() {
        assert_eq!(parse_quota("150000 100000\n"), Some(1500));
        assert_eq!(parse_quota("50000 100000"), Some(500));
        for none in ["max 100000\n", "-1 100000", "", "1", "1 0", "x y"] {
            assert_eq!(parse_quota(none), None, "{none:?}");
        }
    }

    #[test]
    fn this_thread_runs_somewhere() {
        let here = Processors::of_this_thread();
        assert!(here.count() >= std::thread::available_parallelism().map_or(1, usize::from));
        assert_eq!(Processors::new(here.mask(), here.quota()), here);
    }
}
