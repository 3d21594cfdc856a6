//! Every signal needs a wait at the other end.

use std::collections::BTreeMap;

use super::PassResult;
use crate::builder::{BuildError, BuildProblem, Program, Site, StepAction, SyncKind, flat};
use crate::ir::{ChannelType, Via};

/// Refuses a program in which the calls that signal from one rank to another, by type of channel, are not as many as
/// the calls that wait for them. A call in a pipeline counts once.
pub(crate) fn check(program: &Program) -> PassResult {
    let mut calls: BTreeMap<(u32, u32, Via), (u64, u64)> = BTreeMap::new();
    for (rank, entry) in (0..).zip(&program.ranks) {
        for block in &entry.blocks {
            let peer = |via: Via, position: u32| {
                let table = match via {
                    Via::Memory => &block.tables.memory,
                    Via::Port => &block.tables.port,
                };
                let channel = *table.numbers().get(position as usize)?;
                entry.peers(via).get(channel as usize).copied()
            };
            for step in flat(&block.steps) {
                let (via, positions, signals) = match &step.action {
                    StepAction::Sync(sync) => match sync.kind {
                        SyncKind::Signal(via) | SyncKind::RelaxedSignal(via) => (via, &sync.ids, true),
                        SyncKind::Wait(via) | SyncKind::RelaxedWait(via) => (via, &sync.ids, false),
                        SyncKind::Flush | SyncKind::Acquire | SyncKind::Release => continue,
                    },
                    StepAction::Data(data) if data.operation.kind.signals() => {
                        let port = data.operation.channel_type == Some(ChannelType::Port);
                        (if port { Via::Port } else { Via::Memory }, &data.operation.channels, true)
                    }
                    _ => continue,
                };
                for peer in positions.iter().filter_map(|position| peer(via, *position)) {
                    if signals {
                        calls.entry((rank, peer, via)).or_default().0 += 1;
                    } else {
                        calls.entry((peer, rank, via)).or_default().1 += 1;
                    }
                }
            }
        }
    }
    for ((from, to, via), (signals, waits)) in calls {
        if signals != waits {
            let site = Site { operation: "program", rank: Some(from), block: None, location: None };
            let problem = BuildProblem::SignalWaitMismatch { from, to, via, signals, waits };
            return Err(BuildError::new(site, problem));
        }
    }
    Ok(())
}
