//! Counts of signals, waits, barriers and semaphores (V3).
//!
//! What keeps the run from ending is explained by `deadlock.rs` instead, so that each problem is told once.

use std::collections::{BTreeMap, BTreeSet};

use super::findings::Findings;
use super::report::{Diagnostic, Place};
use super::schedule::{Blocker, Schedule, signalled};
use super::trace::{Channel, ChannelId, NO_PARTNER, Trace};
use super::walk::sites;
use crate::ir::{Action, ChannelType, Via};
use crate::topology::Topology;

/// V301: channels that are signalled or waited on, but that the peer does not have.
pub(super) fn partners(topology: &Topology<'_>, findings: &mut Findings) {
    for site in sites(topology.plan()) {
        let (via, channels, what) = match site.action {
            Action::Signal { via, channels, .. } => (*via, channels, "signals"),
            Action::Wait { via, channels, .. } => (*via, channels, "waits"),
            Action::Data(data) if data.kind.signals() => {
                let port = data.channel_type == Some(ChannelType::Port);
                (if port { Via::Port } else { Via::Memory }, &data.channels, "signals")
            }
            _ => continue,
        };
        let channel_type = match via {
            Via::Memory => ChannelType::Memory,
            Via::Port => ChannelType::Port,
        };
        for position in channels {
            let Some(channel) = topology.channel_at(site.of_block, channel_type, *position) else { continue };
            let Some(link) = topology.link(site.rank, via, channel) else { continue };
            if topology.partner(site.rank, via, channel).is_none() {
                let (rank, peer, ordinal) = (site.rank, link.peer, link.ordinal);
                let message = format!(
                    "{what} on {channel_type} channel {rank}->{peer} #{ordinal}, which has no partner {peer}->{rank} \
                     #{ordinal}"
                );
                let hint = format!("add a {channel_type} channel to rank {rank} on rank {peer}");
                findings.push(Diagnostic::error(301, message).at(site.place()).hint(hint));
            }
        }
    }
}

/// What happens on one channel, as its owner sees it.
#[derive(Debug, Default)]
struct Traffic {
    /// Places (block, step), in program order of each block; several items of one step count each.
    signals: Vec<(usize, usize)>,
    waits: Vec<(usize, usize)>,
}

/// V302 to V307 for one unrolled plan. Returns the barriers of V304, by rank and number.
pub(super) fn check(trace: &Trace<'_>, schedule: &Schedule, findings: &mut Findings) -> BTreeSet<(u32, u32)> {
    let mut traffic: Vec<Traffic> = Vec::new();
    traffic.resize_with(trace.channels.len(), Traffic::default);
    let mut barriers: BTreeMap<(u32, u32), Barrier> = BTreeMap::new();
    let mut semaphores: BTreeMap<(u32, u32), Balance> = BTreeMap::new();
    for (block, of_block) in trace.blocks.iter().enumerate() {
        for at in of_block.steps.clone() {
            let action = trace.steps[at].action;
            for channel in signalled(trace, block, action) {
                traffic[channel as usize].signals.push((block, at));
            }
            match action {
                Action::Wait { via, channels, .. } => {
                    for channel in channels.iter().filter_map(|p| trace.channel(block, *via, *p)) {
                        traffic[channel as usize].waits.push((block, at));
                    }
                }
                Action::Barrier { id, blocks } => {
                    let barrier = barriers.entry((of_block.rank, *id)).or_default();
                    barrier.sizes.insert(*blocks);
                    barrier.passages.entry(block).or_insert(at);
                }
                Action::Acquire { semaphores: ids } | Action::Release { semaphores: ids } => {
                    for id in ids {
                        let balance =
                            semaphores.entry((of_block.rank, *id)).or_insert(Balance::at(block, at));
                        match action {
                            Action::Acquire { .. } => balance.acquires += 1,
                            _ => balance.releases += 1,
                        }
                    }
                }
                _ => {}
            }
        }
    }
    channels(trace, schedule, &traffic, findings);
    semaphores_return(trace, schedule, &semaphores, findings);
    barriers_match(trace, &barriers, findings)
}

fn channels(trace: &Trace<'_>, schedule: &Schedule, traffic: &[Traffic], findings: &mut Findings) {
    let stuck: BTreeSet<ChannelId> = schedule
        .blocked
        .values()
        .filter_map(|(_, blocker)| match blocker {
            Blocker::Signal { channel, .. } => Some(*channel),
            _ => None,
        })
        .collect();
    for (sender, Channel { partner, via, .. }) in trace.channels.iter().enumerate() {
        if *partner == NO_PARTNER {
            continue;
        }
        let (signals, waits) = (&traffic[sender].signals, &traffic[*partner as usize].waits);
        let name = trace.channel_name(sender as ChannelId);
        if signals.len() != waits.len() && !stuck.contains(partner) {
            let longer = if signals.len() > waits.len() { signals } else { waits };
            let Some(&(block, step)) = longer.last() else { continue };
            let message = format!("{} signals, but {} waits on {name}", signals.len(), waits.len());
            let hint = "each signal needs one wait; what is left over is taken by the next launch";
            findings.push(Diagnostic::error(302, message).at(trace.place(block, step)).hint(hint));
        }
        for (rule, list, what) in [(306, waits, "wait"), (307, signals, "signal")] {
            several(trace, (rule, list, what), &name, findings);
        }
        let one = |list: &[(usize, usize)]| list.windows(2).all(|pair| pair[0].0 == pair[1].0);
        if one(signals) && one(waits) {
            kinds(trace, (*via, &name), signals, waits, findings);
        }
    }
}

/// V306 and V307: blocks that use one channel without an order between them.
fn several(
    trace: &Trace<'_>,
    (rule, list, what): (u16, &[(usize, usize)], &str),
    name: &str,
    findings: &mut Findings,
) {
    let Some(first) = list.first() else { return };
    let Some(other) = list.iter().find(|(block, _)| *block != first.0) else { return };
    let message = format!("several blocks {what} on {name}: which one gets which signal is open");
    let hint = "use a channel per block, or order the blocks by a barrier or a semaphore";
    let diagnostic = Diagnostic::warning(rule, message).hint(hint);
    findings.push(diagnostic.at(trace.place(first.0, first.1)).at(trace.place(other.0, other.1)));
}

/// V303. On a port channel a relaxed signal is as strong as the other.
fn kinds(
    trace: &Trace<'_>,
    (via, name): (Via, &str),
    signals: &[(usize, usize)],
    waits: &[(usize, usize)],
    findings: &mut Findings,
) {
    for (number, (signal, wait)) in (1..).zip(signals.iter().zip(waits)) {
        let signal_relaxed = matches!(trace.steps[signal.1].action, Action::Signal { relaxed: true, .. });
        let wait_relaxed = matches!(trace.steps[wait.1].action, Action::Wait { relaxed: true, .. });
        if signal_relaxed == wait_relaxed || (via == Via::Port && signal_relaxed) {
            continue;
        }
        let (weak, strong) = if signal_relaxed { ("signal", "wait") } else { ("wait", "signal") };
        let message =
            format!("{weak} {number} on {name} is relaxed, its {strong} is not: the pair counts as relaxed");
        let hint = format!("relax both, or make the {weak} order data");
        let at = |(block, step): (usize, usize)| trace.place(block, step);
        findings.push(Diagnostic::warning(303, message).at(at(*signal)).at(at(*wait)).hint(hint));
    }
}

#[derive(Debug, Default)]
struct Barrier {
    /// As the operations say.
    sizes: BTreeSet<u32>,
    /// First step by block.
    passages: BTreeMap<usize, usize>,
}

/// V304. With more participants than places, who meets whom is open, so a run that ends says nothing. With fewer,
/// or with unequal numbers of passages, the run gets stuck (V404).
fn barriers_match(
    trace: &Trace<'_>,
    barriers: &BTreeMap<(u32, u32), Barrier>,
    findings: &mut Findings,
) -> BTreeSet<(u32, u32)> {
    let mut miscounted = BTreeSet::new();
    for ((rank, id), Barrier { sizes, passages }) in barriers {
        let Some((first, step)) = passages.first_key_value() else { continue };
        let participants = passages.len();
        let size = sizes.first().map_or(0, |size| *size as usize);
        let message = if sizes.len() > 1 {
            format!("operations of barrier {id} of rank {rank} name {sizes:?} blocks")
        } else if size < participants {
            format!("barrier {id} of rank {rank} is for {size} blocks, but {participants} take part")
        } else {
            continue;
        };
        miscounted.insert((*rank, *id));
        let hint = "every participant passes a barrier equally often, and num_threadblocks is their number";
        findings.push(Diagnostic::error(304, message).at(trace.place(*first, *step)).hint(hint));
    }
    miscounted
}

#[derive(Debug)]
struct Balance {
    place: (usize, usize),
    acquires: u64,
    releases: u64,
}

impl Balance {
    fn at(block: usize, step: usize) -> Self {
        Self { place: (block, step), acquires: 0, releases: 0 }
    }
}

/// V305.
fn semaphores_return(
    trace: &Trace<'_>,
    schedule: &Schedule,
    semaphores: &BTreeMap<(u32, u32), Balance>,
    findings: &mut Findings,
) {
    for ((rank, id), Balance { place, acquires, releases }) in semaphores {
        let stuck = schedule.blocked.iter().any(|(block, (_, blocker))| {
            trace.blocks[*block].rank == *rank && *blocker == Blocker::Semaphore { id: *id }
        });
        if acquires != releases && !stuck {
            let message = format!(
                "semaphore {id} of rank {rank} is released {releases} times and acquired {acquires} times: it does \
                 not return to its initial value"
            );
            let at: Place = trace.place(place.0, place.1);
            findings.push(Diagnostic::error(305, message).at(at).hint("release as often as you acquire"));
        }
    }
}
