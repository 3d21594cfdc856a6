//! Other orders: where several blocks take from one semaphore, or wait on one channel, who comes first may decide
//! whether the plan ends (V409 beyond a bound).

use std::collections::{BTreeMap, BTreeSet, HashSet};

use super::accesses::waits_for_packets;
use super::findings::Findings;
use super::report::Diagnostic;
use super::schedule::{Arbiter, Blocker, Machine, Resource, State};
use super::trace::Trace;
use crate::ir::Action;

/// States that are looked at; each costs memory in proportion to the blocks, so their product counts.
const MOST_STATES: usize = 20_000;
/// States times blocks.
const MOST_CELLS: usize = 4 << 20;
/// Steps that are run, all orders together.
const MOST_STEPS: u64 = 20_000_000;

impl Arbiter for BTreeSet<Resource> {
    fn holds(&self, resource: Resource) -> bool {
        self.contains(&resource)
    }
}

/// An order in which some blocks never end: the step they stand at, and why.
type Stuck = BTreeMap<usize, (usize, Blocker)>;

/// Tries the orders of a plan that ends in one of them. Reports V409 if there are too many.
pub(super) fn other_orders(trace: &Trace<'_>, findings: &mut Findings) -> Option<Stuck> {
    let contested = contested(trace);
    let first = contested.keys().next().copied()?;
    let machine = Machine::new(trace, contested.keys().copied().collect::<BTreeSet<_>>());
    let most_states = MOST_STATES.min(MOST_CELLS / trace.blocks.len().max(1)).max(1);
    let mut seen: HashSet<Vec<(usize, usize)>> = HashSet::new();
    let mut steps = 0;
    let mut open = vec![machine.start()];
    while let Some(mut state) = open.pop() {
        steps += machine.settle(&mut state);
        state.order.clear();
        let key = state.next.iter().copied().zip(state.progress.iter().copied()).collect();
        if !seen.insert(key) {
            continue;
        }
        let choices: Vec<usize> = choices(&state);
        if choices.is_empty() && !state.blockers.is_empty() {
            return Some(state.blocked());
        }
        steps += (state.next.len() * choices.len()) as u64;
        if seen.len() + open.len() + choices.len() > most_states || steps > MOST_STEPS {
            findings.push(undecided(trace, first, &contested));
            return None;
        }
        for block in choices {
            let mut next = state.clone();
            next.grant(block);
            open.push(next);
        }
    }
    None
}

/// The parked blocks that could go on.
fn choices(state: &State) -> Vec<usize> {
    let able = state.parked.iter().filter(|(_, resource)| state.available(**resource) > 0);
    able.map(|(block, _)| *block).collect()
}

fn undecided(
    trace: &Trace<'_>,
    resource: Resource,
    contested: &BTreeMap<Resource, BTreeSet<usize>>,
) -> Diagnostic {
    let (what, rank) = match resource {
        Resource::Semaphore(rank, id) => (format!("semaphore {id} of rank {rank}"), rank),
        Resource::Channel(channel) => (trace.channel_name(channel), trace.channels[channel as usize].owner),
    };
    let message = format!(
        "{} blocks compete for {what}, and there are too many orders to try them all",
        contested.get(&resource).map_or(0, BTreeSet::len)
    );
    let hint = "give each pair of blocks a semaphore or a channel of its own";
    Diagnostic::warning(409, message).at(super::report::Place::rank(rank)).hint(hint)
}

/// What more than one block takes from, with these blocks. Left out are semaphores that every block gives back
/// before it waits for anything else: they are never the reason that a plan does not end.
fn contested(trace: &Trace<'_>) -> BTreeMap<Resource, BTreeSet<usize>> {
    let mut takers: BTreeMap<Resource, BTreeSet<usize>> = BTreeMap::new();
    for (at, block) in trace.blocks.iter().enumerate() {
        for step in &trace.steps[block.steps.clone()] {
            match step.action {
                Action::Acquire { semaphores } => {
                    for id in semaphores {
                        takers.entry(Resource::Semaphore(block.rank, *id)).or_default().insert(at);
                    }
                }
                Action::Wait { via, channels, .. } => {
                    for channel in channels.iter().filter_map(|p| trace.channel(at, *via, *p)) {
                        takers.entry(Resource::Channel(channel)).or_default().insert(at);
                    }
                }
                _ => {}
            }
        }
    }
    takers.retain(|resource, blocks| blocks.len() > 1 && !is_lock(trace, *resource, blocks));
    takers
}

/// True if all blocks release the semaphore after each acquire, with no wait in between.
fn is_lock(trace: &Trace<'_>, resource: Resource, blocks: &BTreeSet<usize>) -> bool {
    let Resource::Semaphore(_, id) = resource else { return false };
    blocks.iter().all(|block| {
        let mut held = false;
        for step in &trace.steps[trace.blocks[*block].steps.clone()] {
            let waits = match step.action {
                Action::Acquire { semaphores } if !held && semaphores.as_slice() == [id] => {
                    held = true;
                    continue;
                }
                Action::Acquire { semaphores } => held || semaphores.contains(&id),
                Action::Release { semaphores } if held && semaphores.contains(&id) => {
                    held = false;
                    continue;
                }
                Action::Wait { .. } | Action::Barrier { .. } => held,
                Action::Data(data) => held && waits_for_packets(data),
                _ => false,
            };
            if waits {
                return false;
            }
        }
        !held
    })
}
