//! The world as hosts and lanes: the l-th ranks of all hosts are lane l, and talk to each other over the wire.
//!
//! There are as many lanes as the smallest host has ranks, so every lane has a rank on every host. Ranks beyond have no lane;
//! they are served by those that have.

use crate::world::World;

/// See the module's page.
#[derive(Debug)]
pub(super) struct Lanes {
    hosts: Vec<Vec<u32>>,
    n_lanes: u32,
}

impl Lanes {
    /// Hosts by their lowest rank, ranks ascending.
    pub(super) fn new(world: &World) -> Self {
        let hosts = world.hosts();
        let n_lanes = hosts.iter().map(Vec::len).min().unwrap_or(0) as u32;
        Self { hosts, n_lanes }
    }

    /// The same with the host of `root` first, and `root` as the first of its host: lane 0 begins at the root.
    pub(super) fn from_root(world: &World, root: u32) -> Self {
        let mut lanes = Self::new(world);
        if let Some(at) = lanes.hosts.iter().position(|ranks| ranks.contains(&root)) {
            lanes.hosts.rotate_left(at);
            lanes.hosts[0].sort_by_key(|rank| (*rank != root, *rank));
        }
        lanes
    }

    /// How many hosts.
    pub(super) fn n_hosts(&self) -> u32 {
        self.hosts.len() as u32
    }

    /// How many lanes.
    pub(super) fn n_lanes(&self) -> u32 {
        self.n_lanes
    }

    /// The rank of a lane on a host. On hosts with fewer ranks than `lane` the count starts again.
    pub(super) fn rank(&self, host: u32, lane: u32) -> u32 {
        let ranks = &self.hosts[host as usize];
        ranks[lane as usize % ranks.len()]
    }

    /// All ranks of a host, ascending.
    pub(super) fn host(&self, host: u32) -> Vec<u32> {
        let mut ranks = self.hosts[host as usize].clone();
        ranks.sort_unstable();
        ranks
    }

    /// Host and number on it of a rank.
    pub(super) fn place(&self, rank: u32) -> (u32, u32) {
        let on_host = |ranks: &Vec<u32>| ranks.iter().position(|other| *other == rank);
        let found = (0..).zip(&self.hosts).find_map(|(host, ranks)| Some((host, on_host(ranks)? as u32)));
        found.unwrap_or_default()
    }

    /// The other ranks of a rank's host, ascending.
    pub(super) fn near(&self, rank: u32) -> Vec<u32> {
        let (host, _) = self.place(rank);
        self.host(host).into_iter().filter(|other| *other != rank).collect()
    }

    /// The ranks that have this rank's number on the other hosts: they serve it there, in order of hosts.
    pub(super) fn servers(&self, rank: u32) -> Vec<u32> {
        let (host, number) = self.place(rank);
        self.others(host).map(|other| self.rank(other, number)).collect()
    }

    /// The ranks of other hosts that this rank serves on its host, in order of hosts.
    pub(super) fn served(&self, rank: u32) -> Vec<u32> {
        let (host, _) = self.place(rank);
        let others = self.others(host).flat_map(|other| self.host(other));
        others.filter(|far| self.rank(host, self.place(*far).1) == rank).collect()
    }

    /// The other hosts, in order.
    pub(super) fn others(&self, host: u32) -> impl Iterator<Item = u32> + use<> {
        (0..self.n_hosts()).filter(move |other| *other != host)
    }
}
