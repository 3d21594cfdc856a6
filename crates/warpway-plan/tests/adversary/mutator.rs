//! Plans with one thing wrong: every operation dropped, doubled, moved, pointed elsewhere, resized.

mod operations;

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use warpway_plan::{Action, BufferKind, ChannelEntry, Operation, Plan};

use operations::changes;

/// A plan that differs from a correct one in one place.
pub(crate) struct Mutant {
    /// What was done to what kind of operation; mutants of one class have much in common.
    pub(crate) class: String,
    /// Where.
    pub(crate) place: String,
    pub(crate) plan: Plan,
}

/// An operation of a plan.
#[derive(Debug, Clone, Copy)]
struct Site {
    rank: usize,
    block: usize,
    at: usize,
    inner: Option<usize>,
}

impl Site {
    /// The list that the operation stands in, and its position.
    fn list(self, plan: &mut Plan) -> (&mut Vec<Operation>, usize) {
        let operations = &mut plan.ranks[self.rank].blocks[self.block].operations;
        let Some(inner) = self.inner else { return (operations, self.at) };
        match &mut operations[self.at].action {
            Action::Pipeline(pipeline) => (&mut pipeline.body, inner),
            _ => unreachable!("only pipelines have inner operations"),
        }
    }
}

/// All mutants of a plan, without those that are equal to it or to an earlier one.
pub(crate) fn mutants(plan: &Plan) -> Vec<Mutant> {
    let mut out = Collector { seen: HashSet::from([hash(plan)]), mutants: Vec::new() };
    for site in sites(plan) {
        mutate(plan, site, &mut out);
    }
    mutate_tables(plan, &mut out);
    out.mutants
}

struct Collector {
    seen: HashSet<u64>,
    mutants: Vec<Mutant>,
}

impl Collector {
    fn add(&mut self, class: String, place: String, mut plan: Plan) {
        plan.extensions = plan.used_extensions();
        if self.seen.insert(hash(&plan)) {
            self.mutants.push(Mutant { class, place, plan });
        }
    }
}

fn hash(plan: &Plan) -> u64 {
    let mut hasher = DefaultHasher::new();
    format!("{plan:?}").hash(&mut hasher);
    hasher.finish()
}

fn sites(plan: &Plan) -> Vec<Site> {
    let mut sites = Vec::new();
    for (rank, r) in plan.ranks.iter().enumerate() {
        for (block, b) in r.blocks.iter().enumerate() {
            for (at, operation) in b.operations.iter().enumerate() {
                sites.push(Site { rank, block, at, inner: None });
                if let Action::Pipeline(pipeline) = &operation.action {
                    sites.extend((0..pipeline.body.len()).map(|inner| Site {
                        rank,
                        block,
                        at,
                        inner: Some(inner),
                    }));
                }
            }
        }
    }
    sites
}

fn mutate(plan: &Plan, site: Site, out: &mut Collector) {
    let place = format!("{site:?}");
    let mut source = plan.clone();
    let (list, at) = site.list(&mut source);
    let (action, length) = (list[at].action.clone(), list.len());
    let name = action.name();
    let mut edit = |what: &str, change: &dyn Fn(&mut Vec<Operation>, usize)| {
        let mut mutant = plan.clone();
        let (list, at) = site.list(&mut mutant);
        change(list, at);
        out.add(format!("{what} {name}"), place.clone(), mutant);
    };
    edit("drop", &|list, at| {
        list.remove(at);
    });
    edit("duplicate", &|list, at| list.insert(at, list[at].clone()));
    if at + 1 < length {
        edit("swap", &|list, at| list.swap(at, at + 1));
    }
    edit("to the front", &|list, at| {
        let operation = list.remove(at);
        list.insert(0, operation);
    });
    edit("to the end", &|list, at| {
        let operation = list.remove(at);
        list.push(operation);
    });
    if let (Action::Pipeline(pipeline), None) = (&action, site.inner) {
        edit("unroll", &|list, at| {
            list.splice(at..=at, pipeline.body.iter().cloned());
        });
    }
    for (what, changed) in changes(plan, (site.rank, site.block), &action) {
        edit(what, &|list, at| list[at].action = changed.clone());
    }
    if site.inner.is_none() {
        for other in (0..plan.ranks[site.rank].blocks.len()).filter(|b| *b != site.block) {
            let mut mutant = plan.clone();
            let blocks = &mut mutant.ranks[site.rank].blocks;
            let operation = blocks[site.block].operations.remove(site.at);
            let to = &mut blocks[other].operations;
            to.insert(site.at.min(to.len()), operation);
            out.add(format!("to another block {name}"), place.clone(), mutant);
        }
    }
}

/// Changes to what the operations refer to.
fn mutate_tables(plan: &Plan, out: &mut Collector) {
    let mut edit = |what: &str, place: String, change: &dyn Fn(&mut Plan)| {
        let mut mutant = plan.clone();
        change(&mut mutant);
        out.add(what.to_owned(), place, mutant);
    };
    edit("flip double_scratch", String::new(), &|plan| plan.double_scratch = !plan.double_scratch);
    edit("flip in_place", String::new(), &|plan| plan.in_place = !plan.in_place);
    let n = plan.ranks.len() as u32;
    for (r, rank) in plan.ranks.iter().enumerate() {
        for (s, init) in rank.semaphores.iter().enumerate() {
            for value in [init + 1, init.saturating_sub(1)] {
                let place = format!("rank {r} semaphore {s}");
                edit("initial value of a semaphore", place, &|plan| plan.ranks[r].semaphores[s] = value);
            }
        }
        for (b, remote) in rank.remote_buffers.iter().enumerate() {
            for owner in (0..n).filter(|q| *q != remote.rank) {
                let place = format!("rank {r} remote buffer {b}");
                edit("owner of a remote buffer", place, &|p| p.ranks[r].remote_buffers[b].rank = owner);
            }
            for buffer in BufferKind::ALL {
                let place = format!("rank {r} remote buffer {b}");
                edit("kind of a remote buffer", place, &|p| p.ranks[r].remote_buffers[b].buffer = buffer);
            }
        }
        for (c, entry) in rank.channels.iter().enumerate() {
            let (ChannelEntry::Memory(peers) | ChannelEntry::Port(peers)) = entry else { continue };
            for at in 0..peers.len() {
                for peer in 0..n {
                    let place = format!("rank {r} channel entry {c} position {at}");
                    edit("peer of a channel", place, &|plan| {
                        let (ChannelEntry::Memory(peers) | ChannelEntry::Port(peers)) =
                            &mut plan.ranks[r].channels[c]
                        else {
                            return;
                        };
                        peers[at] = peer;
                    });
                }
            }
        }
    }
}
