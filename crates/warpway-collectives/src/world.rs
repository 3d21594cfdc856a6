//! The ranks and their hosts.

/// Which rank runs on which host. All ranks of a job give the same.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct World {
    host_of: Vec<u32>,
}

impl World {
    /// All ranks on one host.
    pub fn one_host(n_ranks: u32) -> Self {
        Self { host_of: vec![0; n_ranks as usize] }
    }

    /// That many ranks on each host, in rank order.
    pub fn of_hosts(ranks_per_host: &[u32]) -> Self {
        let ranks = |(host, n): (u32, &u32)| (0..*n).map(move |_| host);
        Self { host_of: (0..).zip(ranks_per_host).flat_map(ranks).collect() }
    }

    /// The host of each rank, by any numbers that are equal for ranks of one host. Hosts are numbered anew by their lowest rank.
    pub fn by_host<H: PartialEq>(hosts: &[H]) -> Self {
        let mut seen: Vec<&H> = Vec::new();
        let number = |host| {
            let at = seen.iter().position(|other| *other == host).unwrap_or_else(|| {
                seen.push(host);
                seen.len() - 1
            });
            at as u32
        };
        Self { host_of: hosts.iter().map(number).collect() }
    }

    /// How many ranks.
    pub fn n_ranks(&self) -> u32 {
        self.host_of.len() as u32
    }

    /// How many hosts.
    pub fn n_hosts(&self) -> u32 {
        self.host_of.iter().max().map_or(0, |last| last + 1)
    }

    /// The host of a rank; `None` for a rank that does not exist.
    pub fn host(&self, rank: u32) -> Option<u32> {
        self.host_of.get(rank as usize).copied()
    }

    /// The ranks of each host, ascending.
    pub fn hosts(&self) -> Vec<Vec<u32>> {
        let mut hosts = vec![Vec::new(); self.n_hosts() as usize];
        for (rank, host) in (0..).zip(&self.host_of) {
            if let Some(ranks) = hosts.get_mut(*host as usize) {
                ranks.push(rank);
            }
        }
        hosts
    }

    /// Ranks per host, if every host has as many.
    pub fn ranks_per_host(&self) -> Option<u32> {
        let hosts = self.hosts();
        let first = hosts.first()?.len();
        hosts.iter().all(|ranks| ranks.len() == first).then_some(first as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_numbered_by_their_lowest_rank() {
        let world = World::by_host(&["b", "a", "b", "c"]);
        assert_eq!(world.hosts(), [vec![0, 2], vec![1], vec![3]]);
        assert_eq!((world.n_ranks(), world.n_hosts(), world.ranks_per_host()), (4, 3, None));
        assert_eq!((world.host(3), world.host(4)), (Some(2), None));
        assert_eq!(World::of_hosts(&[2, 2]), World::by_host(&[7, 7, 9, 9]));
        assert_eq!(World::of_hosts(&[2, 2]).ranks_per_host(), Some(2));
        assert_eq!(World::one_host(3), World::of_hosts(&[3]));
    }
}
