//! Where ranks are, and what they share there: memory, cores, interfaces, links.

use super::SimulateError;
use super::flows::{Flows, ResourceId};
use super::machine::{HostKind, Machine, Nic};

/// See the module's page.
#[derive(Debug)]
pub(super) struct Hosts {
    hosts: Vec<Host>,
    /// By rank.
    ranks: Vec<RankPlace>,
    links: Vec<Link>,
    wire_latency_ns: f64,
    switch_ns: f64,
}

#[derive(Debug)]
struct Host {
    kind: HostKind,
    memory: ResourceId,
    cores: ResourceId,
    nics: Vec<NicPlace>,
    is_crowded: bool,
}

#[derive(Debug)]
struct NicPlace {
    nic: Nic,
    out: ResourceId,
    into: ResourceId,
    /// When the next message may begin; with `in_turn`, whether one is being sent.
    free_at: f64,
    busy: bool,
}

#[derive(Debug)]
struct RankPlace {
    host: usize,
    nic: usize,
    /// Out of the rank, into it.
    link: Option<[ResourceId; 2]>,
}

#[derive(Debug)]
struct Link {
    name: String,
    /// By host.
    inside: Vec<bool>,
    latency_ns: f64,
    out: ResourceId,
    into: ResourceId,
}

/// Between two ranks of different hosts.
pub(super) struct Route {
    pub(super) rate: f64,
    pub(super) latency_ns: f64,
    pub(super) uses: Vec<(ResourceId, f64)>,
}

impl Hosts {
    /// Places ranks, `blocks` of which run on each, and makes the resources.
    pub(super) fn new(
        machine: &Machine,
        ranks_per_host: Option<&[u32]>,
        blocks: &[u32],
        flows: &mut Flows,
    ) -> Result<Self, SimulateError> {
        let n_ranks = blocks.len() as u32;
        let given = ranks_per_host.map_or_else(|| machine.ranks_per_host(), <[u32]>::to_vec);
        let room: u64 = given.iter().map(|ranks| u64::from(*ranks)).sum();
        if room < u64::from(n_ranks) {
            return Err(SimulateError::Room { n_ranks, room });
        }
        let mut hosts = Vec::new();
        let mut places = Vec::with_capacity(blocks.len());
        for (number, ranks) in given.iter().enumerate() {
            let left = blocks.len() - places.len();
            let here = (*ranks as usize).min(left);
            if here == 0 && ranks_per_host.is_none() {
                break;
            }
            let Some(kind) = machine.host(number).cloned() else { break };
            let running: u64 = blocks[places.len()..places.len() + here].iter().map(|b| u64::from(*b)).sum();
            for local in 0..here {
                let link = kind.rank_link.map(|rate| [flows.resource(rate), flows.resource(rate)]);
                let nic = if kind.nics.is_empty() { 0 } else { local % kind.nics.len() };
                places.push(RankPlace { host: number, nic, link });
            }
            let mut nic = |nic: &Nic| {
                let [out, into] = [(); 2].map(|()| flows.resource(nic.rate));
                NicPlace { nic: *nic, out, into, free_at: 0.0, busy: false }
            };
            let nics = kind.nics.iter().map(&mut nic).collect();
            hosts.push(Host {
                memory: flows.resource(1.0),
                cores: flows.resource(f64::from(kind.cores)),
                nics,
                is_crowded: running > u64::from(kind.cores),
                kind,
            });
        }
        let links = machine.links.iter().map(|link| Link {
            name: link.name.clone(),
            inside: (0..hosts.len() as u32).map(|host| link.inside.contains(&host)).collect(),
            latency_ns: link.latency_ns,
            out: flows.resource(link.rate),
            into: flows.resource(link.rate),
        });
        Ok(Self {
            links: links.collect(),
            hosts,
            ranks: places,
            wire_latency_ns: machine.wire_latency_ns,
            switch_ns: machine.costs.switch_ns,
        })
    }

    pub(super) fn host_of(&self, rank: u32) -> usize {
        self.ranks[rank as usize].host
    }

    pub(super) fn same_host(&self, a: u32, b: u32) -> bool {
        self.host_of(a) == self.host_of(b)
    }

    pub(super) fn kind(&self, rank: u32) -> &HostKind {
        &self.hosts[self.host_of(rank)].kind
    }

    /// Memory and cores of the rank's host.
    pub(super) fn shared(&self, rank: u32) -> (ResourceId, ResourceId) {
        let host = &self.hosts[self.host_of(rank)];
        (host.memory, host.cores)
    }

    /// Of a rank's link within its host: out, into.
    pub(super) fn rank_link(&self, rank: u32) -> Option<[ResourceId; 2]> {
        self.ranks[rank as usize].link
    }

    /// How long news takes to be seen on the rank's host.
    pub(super) fn flight(&self, rank: u32, nanoseconds: f64) -> f64 {
        let crowded = self.hosts[self.host_of(rank)].is_crowded;
        nanoseconds + if crowded { self.switch_ns } else { 0.0 }
    }

    /// What traffic between two ranks of different hosts crosses.
    pub(super) fn route(&self, from: u32, to: u32) -> Route {
        let ([source, target], [out_nic, in_nic]) =
            ([from, to].map(|rank| self.host_of(rank)), [from, to].map(|rank| self.ranks[rank as usize].nic));
        let mut route = Route { rate: f64::INFINITY, latency_ns: self.wire_latency_ns, uses: Vec::new() };
        if let (Some(out), Some(into)) =
            (self.hosts[source].nics.get(out_nic), self.hosts[target].nics.get(in_nic))
        {
            route.rate = out.nic.rate.min(into.nic.rate);
            route.uses.extend([(out.out, 1.0), (into.into, 1.0)]);
        }
        for link in &self.links {
            match (link.inside[source], link.inside[target]) {
                (true, false) => route.uses.push((link.out, 1.0)),
                (false, true) => route.uses.push((link.into, 1.0)),
                _ => continue,
            }
            route.latency_ns += link.latency_ns;
        }
        route
    }

    /// Asks the rank's interface to send a message at `now`: the time at which it may, if not now; `None` if it may
    /// when another message has been sent.
    pub(super) fn may_send(&mut self, rank: u32, now: f64) -> Option<f64> {
        let RankPlace { host, nic, .. } = self.ranks[rank as usize];
        let Some(place) = self.hosts[host].nics.get_mut(nic) else { return Some(now) };
        if place.busy {
            return None;
        }
        if place.free_at > now {
            return Some(place.free_at);
        }
        match place.nic.in_turn {
            true => place.busy = true,
            false => place.free_at = now + place.nic.message_ns,
        }
        Some(now)
    }

    /// The rank's interface has sent a message.
    pub(super) fn has_sent(&mut self, rank: u32, now: f64) {
        let RankPlace { host, nic, .. } = self.ranks[rank as usize];
        if let Some(place) = self.hosts[host].nics.get_mut(nic).filter(|place| place.busy) {
            (place.busy, place.free_at) = (false, now + place.nic.message_ns);
        }
    }

    /// Which interface a rank uses, as a number among all.
    pub(super) fn nic_of(&self, rank: u32) -> (usize, usize) {
        let place = &self.ranks[rank as usize];
        (place.host, place.nic)
    }

    /// Everything that is shared, by name.
    pub(super) fn resources(&self) -> Vec<(String, ResourceId, bool)> {
        let mut list = Vec::new();
        let several = self.hosts.len() > 1;
        for (number, host) in self.hosts.iter().enumerate() {
            list.push((format!("memory of host {number}"), host.memory, false));
            for (at, nic) in host.nics.iter().enumerate().filter(|_| several) {
                list.push((format!("nic {at} of host {number}, out"), nic.out, true));
                list.push((format!("nic {at} of host {number}, in"), nic.into, true));
            }
        }
        for link in &self.links {
            list.push((format!("{}, out", link.name), link.out, true));
            list.push((format!("{}, in", link.name), link.into, true));
        }
        for (rank, place) in (0..).zip(&self.ranks) {
            if let Some(link) = place.link {
                list.push((format!("link of rank {rank}, out"), link[0], true));
                list.push((format!("link of rank {rank}, in"), link[1], true));
            }
        }
        list
    }
}
