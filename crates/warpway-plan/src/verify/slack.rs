//! How far pipelines can run ahead of each other, which is how long they must be for the run of one length to stand
//! for all longer ones.
//!
//! What a pipeline takes from a channel or a semaphore in its iteration k was given in iteration k of the pipeline
//! at the other side, or some iterations earlier if more was given before both began: by the initial value of a
//! semaphore, by signals and releases outside of pipelines (credits). A circle of waits that includes the ends of
//! pipelines closes only when they are longer than all the credits on the way. Such a way enters a pipeline once, so
//! the credits add up to no more than [`Slack::iterations`].

use std::collections::{BTreeMap, BTreeSet};

use super::walk::{Site, sites};
use crate::ir::{Action, ChannelType, Plan, Via};
use crate::topology::Topology;

/// See the module's page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Slack {
    /// Iterations that one pipeline can be ahead of another one, at most.
    pub(super) iterations: u64,
    /// True if what is taken in an iteration was given in one too, and as often: then nothing changes in pipelines
    /// that are longer than the slack.
    pub(super) is_steady: bool,
}

/// What pipelines give each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Resource {
    /// Signals that arrive on this channel (rank, type, channel index).
    Channel(u32, Via, u32),
    Semaphore(u32, u32),
    Barrier(u32, u32),
    /// Packets, wherever they are: they make no pipeline run ahead.
    Packets,
}

/// A pipeline: rank, block, operation.
type PipelineAt = (u32, u32, u32);

/// A pipeline that gives or takes.
#[derive(Debug, Clone, Copy)]
struct Inside {
    pipeline: PipelineAt,
    /// How often its block did so outside of pipelines before it.
    before: u64,
    /// How often in one iteration.
    rate: u64,
}

/// What one block gives or takes.
#[derive(Debug, Default)]
struct OfBlock {
    outside: u64,
    inside: Vec<Inside>,
}

/// Who gives to one resource, or who takes from it.
#[derive(Debug, Default)]
struct Side(BTreeMap<(u32, u32), OfBlock>);

impl Side {
    /// Once more. Calls are in the order of the file.
    fn add(&mut self, site: &Site<'_>) {
        let of_block = self.0.entry((site.rank, site.block)).or_default();
        if site.pipeline.is_none() {
            of_block.outside += 1;
            return;
        }
        let pipeline = (site.rank, site.block, site.path.index);
        match of_block.inside.last_mut() {
            Some(last) if last.pipeline == pipeline => last.rate += 1,
            _ => of_block.inside.push(Inside { pipeline, before: of_block.outside, rate: 1 }),
        }
    }

    fn pipelines(&self) -> impl Iterator<Item = PipelineAt> + '_ {
        self.blocks().flat_map(|inside| inside.iter().map(|i| i.pipeline))
    }

    /// The pipelines of each block that has some.
    fn blocks(&self) -> impl Iterator<Item = &[Inside]> {
        self.0.values().map(|of| of.inside.as_slice()).filter(|inside| !inside.is_empty())
    }

    /// How often blocks without pipelines do it: at any time.
    fn loose(&self) -> u64 {
        self.0.values().filter(|of| of.inside.is_empty()).map(|of| of.outside).sum()
    }

    fn outside(&self) -> u64 {
        self.0.values().map(|of| of.outside).sum()
    }
}

#[derive(Debug, Default)]
struct Traffic {
    gives: Side,
    takes: Side,
}

impl Traffic {
    /// By how many one side can be ahead of the other, if every iteration takes what one iteration gave.
    fn lead(&self, resource: Resource, initial: u64) -> Option<u64> {
        let alike = |a: &[Inside], b: &[Inside]| a.iter().map(|i| i.rate).eq(b.iter().map(|i| i.rate));
        let lead = |a: &[Inside], b: &[Inside], initial: u64| {
            let pairs = a.iter().zip(b);
            pairs.map(|(a, b)| a.before.saturating_add(initial).abs_diff(b.before)).max().unwrap_or(0)
        };
        let takers: Vec<&[Inside]> = self.takes.blocks().collect();
        let first = takers.first().copied().unwrap_or_default();
        match resource {
            Resource::Packets => Some(0),
            // Each passage takes what all others give.
            Resource::Barrier(..) => {
                let mut others = takers.iter();
                let steady = others.all(|other| alike(first, other));
                steady.then(|| takers.iter().map(|other| lead(first, other, 0)).max().unwrap_or(0))
            }
            // Who of several gets what is open.
            Resource::Channel(..) | Resource::Semaphore(..) => {
                let givers: Vec<&[Inside]> = self.gives.blocks().collect();
                let from = givers.first().copied().unwrap_or_default();
                let steady = givers.len() <= 1 && takers.len() <= 1 && alike(from, first);
                let loose = self.gives.loose().saturating_add(self.takes.loose());
                steady.then(|| lead(from, first, initial).saturating_add(loose))
            }
        }
    }
}

/// Looks at what pipelines give each other.
pub(super) fn slack(topology: &Topology<'_>) -> Slack {
    let mut traffic: BTreeMap<Resource, Traffic> = BTreeMap::new();
    for site in sites(topology.plan()) {
        visit(topology, &site, &mut traffic);
    }
    traffic.retain(|_, Traffic { gives, takes }| gives.pipelines().chain(takes.pipelines()).next().is_some());
    let mut is_steady = true;
    // The most by which a pipeline and those that it takes from can be apart.
    let mut leads: BTreeMap<PipelineAt, u64> = BTreeMap::new();
    for (resource, of) in &traffic {
        let initial = initial(topology.plan(), *resource);
        let lead = of.lead(*resource, initial);
        is_steady &= lead.is_some();
        let lead = lead.unwrap_or_else(|| initial.saturating_add(of.gives.outside().max(of.takes.outside())));
        for pipeline in of.takes.pipelines() {
            let most = leads.entry(pipeline).or_default();
            *most = lead.max(*most);
        }
    }
    Slack { iterations: most_together(&traffic, &leads), is_steady }
}

fn initial(plan: &Plan, resource: Resource) -> u64 {
    let Resource::Semaphore(rank, id) = resource else { return 0 };
    let of_rank = plan.ranks.get(rank as usize);
    of_rank.and_then(|rank| rank.semaphores.get(id as usize)).copied().unwrap_or(0)
}

fn visit(topology: &Topology<'_>, site: &Site<'_>, traffic: &mut BTreeMap<Resource, Traffic>) {
    let channel_of = |via, position: u32| {
        let channel_type = match via {
            Via::Memory => ChannelType::Memory,
            Via::Port => ChannelType::Port,
        };
        topology.channel_at(site.of_block, channel_type, position)
    };
    let signalled = |via, position| {
        let channel = channel_of(via, position)?;
        let peer = topology.link(site.rank, via, channel)?.peer;
        Some(Resource::Channel(peer, via, topology.partner(site.rank, via, channel)?))
    };
    let mut gives = |resource| traffic.entry(resource).or_default().gives.add(site);
    match site.action {
        Action::Signal { via, channels, .. } => {
            channels.iter().filter_map(|position| signalled(*via, *position)).for_each(gives);
        }
        Action::Release { semaphores } => {
            semaphores.iter().for_each(|id| gives(Resource::Semaphore(site.rank, *id)));
        }
        Action::Acquire { semaphores } => {
            let resources = semaphores.iter().map(|id| Resource::Semaphore(site.rank, *id));
            resources.for_each(|resource| traffic.entry(resource).or_default().takes.add(site));
        }
        Action::Wait { via, channels, .. } => {
            let channels = channels.iter().filter_map(|position| channel_of(*via, *position));
            let resources = channels.map(|channel| Resource::Channel(site.rank, *via, channel));
            resources.for_each(|resource| traffic.entry(resource).or_default().takes.add(site));
        }
        Action::Barrier { id, .. } => {
            traffic.entry(Resource::Barrier(site.rank, *id)).or_default().takes.add(site);
        }
        Action::Data(data) => {
            if data.kind.signals() {
                let port = data.channel_type == Some(ChannelType::Port);
                let via = if port { Via::Port } else { Via::Memory };
                data.channels.iter().filter_map(|position| signalled(via, *position)).for_each(&mut gives);
            }
            if data.kind.uses_packets() {
                gives(Resource::Packets);
            }
        }
        Action::Nop | Action::Flush { .. } | Action::Pipeline(_) => {}
    }
}

/// The greatest sum of the leads of pipelines that have to do with each other, directly or through others.
fn most_together(traffic: &BTreeMap<Resource, Traffic>, leads: &BTreeMap<PipelineAt, u64>) -> u64 {
    let mut resources: BTreeMap<PipelineAt, Vec<Resource>> = BTreeMap::new();
    for (resource, Traffic { gives, takes }) in traffic {
        for pipeline in gives.pipelines().chain(takes.pipelines()) {
            resources.entry(pipeline).or_default().push(*resource);
        }
    }
    let (mut most, mut seen) = (0, BTreeSet::new());
    let mut seen_resources = BTreeSet::new();
    for start in resources.keys() {
        let (mut sum, mut open) = (0_u64, vec![*start]);
        while let Some(pipeline) = open.pop() {
            if !seen.insert(pipeline) {
                continue;
            }
            sum = sum.saturating_add(leads.get(&pipeline).copied().unwrap_or(0));
            for resource in resources.get(&pipeline).into_iter().flatten() {
                if let Some(Traffic { gives, takes }) =
                    traffic.get(resource).filter(|_| seen_resources.insert(*resource))
                {
                    open.extend(gives.pipelines().chain(takes.pipelines()));
                }
            }
        }
        most = sum.max(most);
    }
    most
}
