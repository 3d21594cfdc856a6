//! Why blocks stay blocked (V401 to V405).
//!
//! Each blocked block waits for something that other blocks would give. If nobody is left who gives it, that is
//! the reason; else the blocks that would are blocked themselves, and some of them wait for each other in a circle.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use super::accesses::Mode;
use super::counterexample::Counterexamples;
use super::explore;
use super::findings::Findings;
use super::report::{Diagnostic, Region};
use super::schedule::{Blocker, Schedule, signalled};
use super::trace::{ChannelId, NO_PARTNER, Trace};
use crate::ir::{Action, BufferKind, Form};

/// A block and the step it stands at, or will never reach.
type At = (usize, usize);
/// The blocks that never end: the step they stand at, and why.
type Stuck = BTreeMap<usize, (usize, Blocker)>;

/// Explains the blocked blocks of a run, or of another order in which the plan does not end. Returns true if there
/// are any. Barriers (rank, number) that have been `explained` already are not told again.
pub(super) fn check(
    trace: &Trace<'_>,
    schedule: &Schedule,
    mut explained: BTreeSet<(u32, u32)>,
    findings: &mut Findings,
) -> bool {
    let other;
    let blocked = if schedule.blocked.is_empty() {
        other = explore::other_orders(trace, findings).unwrap_or_default();
        &other
    } else {
        &schedule.blocked
    };
    if blocked.is_empty() {
        return false;
    }
    let providers = Providers::of(trace, blocked);
    // How blocks came to where they stand; only for the order that was followed.
    let mut examples = None;
    let mut reached = |stands: Vec<At>| match schedule.blocked.is_empty() {
        true => Vec::new(),
        false => {
            examples.get_or_insert_with(|| Counterexamples::new(trace, schedule)).reached(stands.into_iter())
        }
    };
    let mut waits_for: BTreeMap<usize, Vec<At>> = BTreeMap::new();
    for (&block, &(step, blocker)) in blocked {
        let mut who = providers.of_blocker(trace, block, blocker);
        // All of a barrier's blocks must come.
        if let Some(absent) = absentees(trace, blocked, (block, step), blocker)
            && who.len() < absent
        {
            who.clear();
        }
        if who.is_empty() {
            // One message for all blocks that stand at the same barrier.
            let shared = match blocker {
                Blocker::Barrier { id } => explained.insert((trace.blocks[block].rank, id)),
                _ => true,
            };
            if shared {
                let found = missing(trace, blocked, (block, step), blocker);
                let steps = match findings.has_enough_of(found.rule.0) {
                    true => Vec::new(),
                    false => reached(vec![(block, step)]),
                };
                findings.push(found.schedule(steps));
            }
        }
        waits_for.insert(block, who);
    }
    let circles = circles(&waits_for);
    for circle in circles {
        let stands = circle.iter().filter_map(|(block, _)| Some((*block, blocked.get(block)?.0)));
        let steps = reached(stands.collect());
        findings.push(cyclic(trace, blocked, &circle).schedule(steps));
    }
    true
}

/// The steps that never happen and would give something, by what they give; per block only the first.
#[derive(Default)]
struct Providers {
    signals: HashMap<ChannelId, BTreeMap<usize, usize>>,
    barriers: HashMap<(u32, u32), BTreeMap<usize, usize>>,
    releases: HashMap<(u32, u32), BTreeMap<usize, usize>>,
    /// Writes of packets that somebody waits for, by rank and first missing unit.
    packets: BTreeMap<(u32, u64), BTreeMap<usize, usize>>,
}

impl Providers {
    fn of(trace: &Trace<'_>, blocked: &Stuck) -> Self {
        let mut found = Self::default();
        for (_, blocker) in blocked.values() {
            if let Blocker::Packets { read, missing } = blocker {
                found.packets.entry((read.extent.rank, *missing)).or_default();
            }
        }
        let mut accesses = Vec::new();
        for (&block, &(step, _)) in blocked {
            let rank = trace.blocks[block].rank;
            for at in step..trace.blocks[block].steps.end {
                let action = trace.steps[at].action;
                for channel in signalled(trace, block, action) {
                    found.signals.entry(channel).or_default().entry(block).or_insert(at);
                }
                match action {
                    // The barrier a block stands at it has reached.
                    Action::Barrier { id, .. } if at > step => {
                        found.barriers.entry((rank, *id)).or_default().entry(block).or_insert(at);
                    }
                    Action::Release { semaphores } => {
                        for id in semaphores {
                            found.releases.entry((rank, *id)).or_default().entry(block).or_insert(at);
                        }
                    }
                    Action::Data(data) if data.kind.uses_packets() && !found.packets.is_empty() => {
                        accesses.clear();
                        trace.accesses(block, &trace.steps[at], &mut accesses);
                        let writes =
                            accesses.iter().filter(|a| (a.mode, a.form) == (Mode::Write, Form::Packets));
                        for write in writes.map(|access| access.extent).filter(|extent| !extent.is_empty()) {
                            let range = (write.rank, write.start)..(write.rank, write.end);
                            for (_, list) in found.packets.range_mut(range) {
                                list.entry(block).or_insert(at);
                            }
                        }
                    }
                    _ => {}
                }
            }
        }
        found
    }

    /// Who would end the wait of a block.
    fn of_blocker(&self, trace: &Trace<'_>, block: usize, blocker: Blocker) -> Vec<At> {
        let rank = trace.blocks[block].rank;
        let list = match blocker {
            Blocker::Signal { channel, .. } => {
                let partner = trace.channels[channel as usize].partner;
                (partner != NO_PARTNER).then(|| self.signals.get(&partner)).flatten()
            }
            Blocker::Barrier { id } => self.barriers.get(&(rank, id)),
            Blocker::Semaphore { id } => self.releases.get(&(rank, id)),
            Blocker::Packets { read, missing } => self.packets.get(&(read.extent.rank, missing)),
        };
        let mut who: Vec<At> = list.into_iter().flatten().map(|(block, step)| (*block, *step)).collect();
        // Itself only if there is nobody else; at a barrier never.
        let is_barrier = matches!(blocker, Blocker::Barrier { .. });
        if is_barrier || who.len() > 1 {
            who.retain(|at| at.0 != block);
        }
        who
    }
}

/// The blocks that stand at a barrier.
fn standing(trace: &Trace<'_>, blocked: &Stuck, (rank, id): (u32, u32)) -> impl Iterator<Item = usize> {
    let here = move |(block, (_, blocker)): (&usize, &(usize, Blocker))| {
        let same = *blocker == Blocker::Barrier { id } && trace.blocks[*block].rank == rank;
        same.then_some(*block)
    };
    blocked.iter().filter_map(here)
}

/// How many blocks are missing at the barrier that a block stands at.
fn absentees(trace: &Trace<'_>, blocked: &Stuck, at: At, blocker: Blocker) -> Option<usize> {
    let Blocker::Barrier { id } = blocker else { return None };
    let Action::Barrier { blocks, .. } = trace.steps[at.1].action else { return None };
    let here = standing(trace, blocked, (trace.blocks[at.0].rank, id)).count();
    Some((*blocks as usize).saturating_sub(here))
}

/// V402 to V405: nobody gives what a block waits for.
fn missing(trace: &Trace<'_>, blocked: &Stuck, at: At, blocker: Blocker) -> Diagnostic {
    let place = trace.place(at.0, at.1);
    let rank = trace.blocks[at.0].rank;
    let diagnostic = match blocker {
        Blocker::Signal { channel, number } => {
            let owner = trace.channels[channel as usize].peer;
            let sent = match number - 1 {
                0 => "none is".to_owned(),
                1 => "only 1 is".to_owned(),
                some => format!("only {some} are"),
            };
            let channel = sender_name(trace, channel);
            let message = format!("{place} waits for signal {number} on {channel}, but {sent} sent");
            let hint = format!("add a signal on rank {owner}, or drop the wait");
            Diagnostic::error(402, message).hint(hint)
        }
        Blocker::Barrier { id } => {
            let size = match trace.steps[at.1].action {
                Action::Barrier { blocks, .. } => *blocks,
                _ => 0,
            };
            let blocks: Vec<u32> =
                standing(trace, blocked, (rank, id)).map(|b| trace.blocks[b].block).collect();
            let message = format!(
                "{place} waits at barrier {id} for {size} blocks, but only blocks {blocks:?} come to it"
            );
            Diagnostic::error(404, message)
                .hint("set num_threadblocks to the number of blocks that pass it equally often")
        }
        Blocker::Semaphore { id } => {
            let message = format!("{place} acquires semaphore {id}, which nobody releases any more");
            Diagnostic::error(405, message)
                .hint("release it in another block, or give it a greater initial value")
        }
        Blocker::Packets { read, .. } => {
            let (first, end) = read.extent.chunks(&trace.scale);
            let owner = read.extent.rank;
            let message = format!(
                "{place} reads packets in scratch chunks {first}..{end} of rank {owner} that nobody writes"
            );
            let region = Region { rank: owner, buffer: BufferKind::Scratch, chunks: (first, end) };
            Diagnostic::error(403, message).region(region).hint("send the packets, or read others")
        }
    };
    diagnostic.at(place)
}

/// V401. `circle`: each block with the step of the next one that would end its wait.
fn cyclic(trace: &Trace<'_>, blocked: &Stuck, circle: &[(usize, At)]) -> Diagnostic {
    let mut message = "cyclic wait: ".to_owned();
    let mut places = Vec::with_capacity(circle.len());
    let mut signals_only = true;
    for (at, &(block, (provider, step))) in circle.iter().enumerate() {
        let Some(&(stands, blocker)) = blocked.get(&block) else { continue };
        let here = trace.place(block, stands);
        let source = trace.place(provider, step);
        if at == 0 {
            message += &here.to_string();
        }
        let rank = trace.blocks[block].rank;
        message += &match blocker {
            Blocker::Signal { channel, number } => {
                format!(" waits for signal {number} on {}, sent by {source}", sender_name(trace, channel))
            }
            Blocker::Barrier { id } => format!(" waits at barrier {id} of rank {rank} for {source}"),
            Blocker::Semaphore { id } => {
                format!(" waits for semaphore {id} of rank {rank}, released by {source}")
            }
            Blocker::Packets { read, .. } => {
                let (first, end) = read.extent.chunks(&trace.scale);
                let owner = read.extent.rank;
                format!(
                    " waits for packets in scratch chunks {first}..{end} of rank {owner}, written by {source}"
                )
            }
        };
        signals_only &= matches!(blocker, Blocker::Signal { .. });
        if at + 1 < circle.len()
            && let Some((next_stands, _)) = blocked.get(&provider)
        {
            message += &format!(", which is behind {}, which", trace.place(provider, *next_stands));
        }
        places.push(here);
    }
    let hint = match signals_only {
        true => "signal before waiting on at least one side",
        false => "let one block of the circle give what the others wait for before it waits itself",
    };
    let mut diagnostic = Diagnostic::error(401, message).hint(hint);
    diagnostic.places = places;
    diagnostic
}

/// The channel that a waiter's signals come over, as the sender calls it.
fn sender_name(trace: &Trace<'_>, channel: ChannelId) -> String {
    match trace.channels[channel as usize].partner {
        NO_PARTNER => trace.channel_name(channel),
        partner => trace.channel_name(partner),
    }
}

/// One shortest circle through the least block of every set of blocks that wait for each other.
fn circles(waits_for: &BTreeMap<usize, Vec<At>>) -> Vec<Vec<(usize, At)>> {
    let mut found = Vec::new();
    for component in components(waits_for) {
        let Some(&start) = component.iter().next() else { continue };
        // Breadth first within the component, back to the start.
        let mut from: BTreeMap<usize, (usize, At)> = BTreeMap::new();
        let mut queue = VecDeque::from([start]);
        let mut last = None;
        'search: while let Some(block) = queue.pop_front() {
            for &at in waits_for.get(&block).into_iter().flatten() {
                if at.0 == start {
                    last = Some((block, at));
                    break 'search;
                }
                if component.contains(&at.0) && !from.contains_key(&at.0) {
                    from.insert(at.0, (block, at));
                    queue.push_back(at.0);
                }
            }
        }
        let Some((mut block, at)) = last else { continue };
        let mut circle = vec![(block, at)];
        while block != start {
            let Some(&(before, at)) = from.get(&block) else { break };
            circle.push((before, at));
            block = before;
        }
        circle.reverse();
        found.push(circle);
    }
    found
}

/// Strongly connected components with a circle in them (Tarjan), without recursion.
fn components(waits_for: &BTreeMap<usize, Vec<At>>) -> Vec<BTreeSet<usize>> {
    #[derive(Clone, Copy)]
    struct Node {
        index: usize,
        low: usize,
        on_stack: bool,
    }
    let mut nodes: BTreeMap<usize, Node> = BTreeMap::new();
    let (mut stack, mut found) = (Vec::new(), Vec::new());
    for &root in waits_for.keys() {
        if nodes.contains_key(&root) {
            continue;
        }
        let enter = |block, nodes: &mut BTreeMap<usize, Node>, stack: &mut Vec<usize>| {
            let index = nodes.len();
            nodes.insert(block, Node { index, low: index, on_stack: true });
            stack.push(block);
        };
        enter(root, &mut nodes, &mut stack);
        let mut path = vec![(root, 0)];
        while let Some((block, edge)) = path.last_mut() {
            let block = *block;
            let next = waits_for.get(&block).and_then(|list| list.get(*edge)).map(|at| at.0);
            *edge += 1;
            if let Some(next) = next {
                match nodes.get(&next).copied() {
                    None => {
                        enter(next, &mut nodes, &mut stack);
                        path.push((next, 0));
                    }
                    Some(node) if node.on_stack => {
                        if let Some(own) = nodes.get_mut(&block) {
                            own.low = own.low.min(node.index);
                        }
                    }
                    Some(_) => {}
                }
                continue;
            }
            path.pop();
            let Some(own) = nodes.get(&block).copied() else { continue };
            if let Some((parent, _)) = path.last()
                && let Some(parent) = nodes.get_mut(parent)
            {
                parent.low = parent.low.min(own.low);
            }
            if own.low == own.index {
                let mut component = BTreeSet::new();
                while let Some(member) = stack.pop() {
                    if let Some(node) = nodes.get_mut(&member) {
                        node.on_stack = false;
                    }
                    component.insert(member);
                    if member == block {
                        break;
                    }
                }
                let on_itself = waits_for.get(&block).is_some_and(|list| list.iter().any(|at| at.0 == block));
                if component.len() > 1 || on_itself {
                    found.push(component);
                }
            }
        }
    }
    found
}
