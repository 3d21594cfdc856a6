//! Positions, indices and chunk numbers that mean something (V201 to V208, V210, V902).
//!
//! What passes here can be resolved: everything behind relies on it.

use super::findings::Findings;
use super::report::{Diagnostic, Place, Region};
use super::walk::{Site, sites};
use crate::ir::{Action, BufferKind, ChannelType, DataOperation, Plan, Reference, Via};
use crate::topology::Topology;

/// Barriers are numbered below this.
const BARRIERS: u32 = 4096;

/// Checks the tables of ranks and blocks, then every operation.
pub(super) fn check(topology: &Topology<'_>, findings: &mut Findings) {
    let plan = topology.plan();
    for rank in 0..plan.n_ranks() {
        tables(topology, rank, findings);
    }
    for site in sites(plan) {
        match site.action {
            Action::Signal { via, channels, .. } | Action::Wait { via, channels, .. } => {
                positions(&site, channel_type(*via), channels, findings);
            }
            Action::Flush { channels } => positions(&site, ChannelType::Port, channels, findings),
            Action::Acquire { semaphores } | Action::Release { semaphores } => {
                let count = site.of_rank.semaphores.len();
                for id in semaphores.iter().filter(|id| **id as usize >= count) {
                    let message = format!("semaphore {id} does not exist: rank {} has {count}", site.rank);
                    findings.push(Diagnostic::error(210, message).at(site.place()));
                }
            }
            Action::Barrier { id, .. } if *id >= BARRIERS => {
                let message = format!("barrier {id} is out of range: barriers are numbered below {BARRIERS}");
                findings.push(Diagnostic::error(210, message).at(site.place()));
            }
            Action::Data(data) => data_operation(topology, &site, data, findings),
            Action::Nop | Action::Barrier { .. } | Action::Pipeline(_) => {}
        }
    }
}

fn channel_type(via: Via) -> ChannelType {
    match via {
        Via::Memory => ChannelType::Memory,
        Via::Port => ChannelType::Port,
    }
}

/// The lists of a rank and of its blocks.
fn tables(topology: &Topology<'_>, rank: u32, findings: &mut Findings) {
    let plan = topology.plan();
    let of_rank = &plan.ranks[rank as usize];
    let at = Place::rank(rank);
    let Some(channels) = topology.rank(rank) else { return };
    for via in [Via::Memory, Via::Port] {
        for (index, link) in channels.links(via).iter().enumerate() {
            if let Some(why) = no_peer(plan, rank, link.peer) {
                let message = format!("{} channel {index} {why}", channel_type(via));
                findings.push(Diagnostic::error(202, message).at(at.clone()));
            }
        }
    }
    for (index, channel) in channels.switch.iter().enumerate() {
        let mut members = channel.group.ranks.clone();
        members.sort_unstable();
        let twice = members.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0]);
        let why = match (members.last(), twice) {
            (None, _) => "has no members".to_owned(),
            (Some(last), _) if *last >= plan.n_ranks() => {
                format!("has member {last}, which is not a rank of the plan")
            }
            (_, Some(twice)) => format!("has member {twice} twice"),
            _ => continue,
        };
        findings.push(Diagnostic::error(205, format!("switch channel {index} {why}")).at(at.clone()));
    }
    for (index, remote) in of_rank.remote_buffers.iter().enumerate() {
        if let Some(why) = no_peer(plan, rank, remote.rank) {
            findings.push(Diagnostic::error(204, format!("remote buffer {index} {why}")).at(at.clone()));
        }
    }
    for (block, of_block) in (0..).zip(&of_rank.blocks) {
        let at = Place { block: Some(block), ..at.clone() };
        for refs in &of_block.channels {
            let count = match refs.channel_type {
                ChannelType::Memory => channels.memory.len(),
                ChannelType::Port => channels.port.len(),
                ChannelType::Switch => channels.switch.len(),
            };
            for channel in refs.channels.iter().filter(|channel| **channel as usize >= count) {
                let kind = refs.channel_type;
                let message = format!("{kind} channel {channel} does not exist: rank {rank} has {count}");
                findings.push(Diagnostic::error(202, message).at(at.clone()));
            }
        }
        for refs in &of_block.remote_buffers {
            let count = of_rank.remote_buffers.len();
            for index in refs.buffers.iter().filter(|index| **index as usize >= count) {
                let message = format!("remote buffer {index} does not exist: rank {rank} has {count}");
                findings.push(Diagnostic::error(204, message).at(at.clone()));
            }
        }
    }
}

/// Why `peer` is no peer of `rank`.
fn no_peer(plan: &Plan, rank: u32, peer: u32) -> Option<String> {
    if peer >= plan.n_ranks() {
        Some(format!("belongs to rank {peer}, but the plan has {} ranks", plan.n_ranks()))
    } else if peer == rank {
        Some("belongs to the rank itself".to_owned())
    } else {
        None
    }
}

/// V201: channel positions of an operation.
fn positions(site: &Site<'_>, channel_type: ChannelType, positions: &[u32], findings: &mut Findings) {
    let count = site.of_block.channels_of(channel_type).len();
    for position in positions.iter().filter(|position| **position as usize >= count) {
        let message = format!(
            "position {position} is beyond the list of {channel_type} channels of the block, which has {count}"
        );
        findings.push(Diagnostic::error(201, message).at(site.place()));
    }
}

fn data_operation(topology: &Topology<'_>, site: &Site<'_>, data: &DataOperation, findings: &mut Findings) {
    if let Some(channel_type) = data.channel_type {
        positions(site, channel_type, &data.channels, findings);
    }
    for item in data.items() {
        let at = site.item(item.first.0);
        let sizes = || item.sources.iter().chain(item.destinations).map(Reference::size);
        let (least, most) = (sizes().min().unwrap_or(0), sizes().max().unwrap_or(0));
        if least != most {
            let message = format!("references of one item have {least} and {most} chunks");
            findings.push(Diagnostic::error(207, message).at(at.clone()).hint("give all the same size"));
        } else if most == 0 {
            findings.push(Diagnostic::warning(208, "the references are empty").at(at.clone()));
        }
    }
    let items = data.items().count();
    for (list, joined) in [(&data.sources, data.kind.joins()), (&data.destinations, data.kind.joins())] {
        for (position, reference) in list.iter().enumerate() {
            let item = if joined { 0 } else { position.min(items.saturating_sub(1)) };
            self::reference(topology, site, data, (reference, item), findings);
        }
    }
    if data.channel_type == Some(ChannelType::Port) {
        port_peers(topology, site, data, findings);
    }
}

/// V204: a port leads to the owner of what is put through it.
fn port_peers(topology: &Topology<'_>, site: &Site<'_>, data: &DataOperation, findings: &mut Findings) {
    for (j, (destination, channel)) in data.destinations.iter().zip(&data.channels).enumerate() {
        let Reference::Remote { position, .. } = *destination else { continue };
        let owner = topology.remote_at(site.rank, site.of_block, ChannelType::Port, position);
        let index = topology.channel_at(site.of_block, ChannelType::Port, *channel);
        let link = index.and_then(|index| topology.link(site.rank, Via::Port, index));
        let (Some(owner), Some(link)) = (owner, link) else { continue };
        if owner.rank != link.peer {
            let message = format!(
                "port channel {channel} of the block leads to rank {}, the destination belongs to rank {}",
                link.peer, owner.rank
            );
            let at = site.item(if data.kind.joins() { 0 } else { j });
            findings.push(Diagnostic::error(204, message).at(at).hint("name the channel to the owner"));
        }
    }
}

/// V203 to V206 and V902 for one reference.
fn reference(
    topology: &Topology<'_>,
    site: &Site<'_>,
    data: &DataOperation,
    (reference, item): (&Reference, usize),
    findings: &mut Findings,
) {
    let at = site.item(item);
    match *reference {
        Reference::Local { buffer, .. } => {
            bounds(topology.plan(), &at, (site.rank, buffer), reference, findings);
        }
        Reference::Remote { position, .. } => {
            let access = data.channel_type.unwrap_or(ChannelType::Memory);
            let list = site.of_block.remote_buffers_of(access);
            let Some(index) = list.get(position as usize) else {
                let count = list.len();
                let message = format!(
                    "buffer_id {position} is beyond the {access} list of the block, which has {count}"
                );
                findings.push(Diagnostic::error(203, message).at(at));
                return;
            };
            // An index that does not exist has been found in the tables.
            let Some(remote) = site.of_rank.remote_buffers.get(*index as usize) else { return };
            match topology.remote_at(site.rank, site.of_block, access, position) {
                Some(target) => {
                    let target = (target.rank, target.buffer);
                    bounds(topology.plan(), &at, target, reference, findings);
                }
                None if remote.rank < topology.plan().n_ranks() => {
                    let message = format!("remote buffer {index} does not list {access} access");
                    findings.push(Diagnostic::error(203, message).at(at));
                }
                None => {}
            }
        }
        Reference::Switch { position, .. } => {
            let list = site.of_block.channels_of(ChannelType::Switch);
            if list.get(position as usize).is_none() {
                let count = list.len();
                let message = format!(
                    "switch_channel_id {position} is beyond the list of the block, which has {count}"
                );
                findings.push(Diagnostic::error(205, message).at(at));
                return;
            }
            let Some(channel) = topology.switch_at(site.rank, site.of_block, position) else { return };
            let members = channel.group.ranks.iter().filter(|m| **m < topology.plan().n_ranks());
            // The member with the fewest chunks decides.
            let least = members.min_by_key(|m| topology.plan().ranks[**m as usize].chunks(channel.buffer));
            if let Some(member) = least {
                bounds(topology.plan(), &at, (*member, channel.buffer), reference, findings);
            }
            if !channel.group.ranks.contains(&site.rank) {
                let message = format!("rank {} is not a member of its switch channel {position}", site.rank);
                findings.push(Diagnostic::error(902, message).at(at));
            }
        }
    }
}

/// V206.
fn bounds(
    plan: &Plan,
    at: &Place,
    (owner, buffer): (u32, BufferKind),
    reference: &Reference,
    findings: &mut Findings,
) {
    let Some(of_owner) = plan.ranks.get(owner as usize) else { return };
    let (index, size, chunks) = (reference.index(), reference.size(), of_owner.chunks(buffer));
    let end = index.checked_add(size);
    if end.is_some_and(|end| end <= chunks) {
        return;
    }
    let message = format!(
        "chunks {index}..{} exceed buffer {buffer} of rank {owner}, which has {chunks}",
        end.map_or_else(|| "2^64".to_owned(), |end| end.to_string()),
    );
    let region = Region { rank: owner, buffer, chunks: (index, end.unwrap_or(u64::MAX)) };
    findings.push(Diagnostic::error(206, message).at(at.clone()).region(region));
}
