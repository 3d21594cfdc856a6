//! Which ranks a plan makes one rank work with, and how.

use std::collections::BTreeSet;

use warpway_plan::{BufferKind, ChannelEntry, Plan};

/// All lists are ascending and without the rank itself.
#[derive(Debug, Clone, Default)]
pub(super) struct Roles {
    /// All ranks.
    pub(super) others: Vec<u32>,
    /// Ranks with which anything is exchanged.
    pub(super) peers: Vec<u32>,
    /// Owners of inputs and outputs that this rank touches.
    pub(super) owners: Vec<u32>,
    /// Ranks that touch this rank's input or output.
    pub(super) users: Vec<u32>,
    /// Of these, those that touch the input.
    pub(super) input_users: Vec<u32>,
    /// Of these, those that touch the output.
    pub(super) output_users: Vec<u32>,
    /// Owners of scratch that this rank touches.
    pub(super) scratch_owners: Vec<u32>,
    /// Ranks that touch this rank's scratch.
    pub(super) scratch_users: Vec<u32>,
}

/// (who touches, whose, which buffer); buffers of no kind are channels.
type Relation = (u32, u32, Option<BufferKind>);

impl Roles {
    /// Of `rank`, by the tables of the plan.
    pub(super) fn of(plan: &Plan, rank: u32) -> Self {
        let mut sets: [BTreeSet<u32>; 7] = Default::default();
        let [peers, owners, users, input_users, output_users, scratch_owners, scratch_users] = &mut sets;
        for (toucher, owner, buffer) in relations(plan) {
            let other = match (toucher == rank, owner == rank) {
                (true, false) => owner,
                (false, true) => toucher,
                _ => continue,
            };
            peers.insert(other);
            match (buffer, toucher == rank) {
                (None, _) => continue,
                (Some(BufferKind::Scratch), true) => scratch_owners.insert(other),
                (Some(BufferKind::Scratch), false) => scratch_users.insert(other),
                (Some(_), true) => owners.insert(other),
                (Some(BufferKind::Input), false) => input_users.insert(other) | users.insert(other),
                (Some(BufferKind::Output), false) => output_users.insert(other) | users.insert(other),
            };
        }
        let [peers, owners, users, input_users, output_users, scratch_owners, scratch_users] =
            sets.map(|set| set.into_iter().collect::<Vec<u32>>());
        let others = (0..plan.n_ranks()).filter(|other| *other != rank).collect();
        Self { others, peers, owners, users, input_users, output_users, scratch_owners, scratch_users }
    }
}

fn relations(plan: &Plan) -> impl Iterator<Item = Relation> + '_ {
    (0..).zip(&plan.ranks).flat_map(|(rank, entry)| {
        let buffers = entry.remote_buffers.iter().map(move |remote| (rank, remote.rank, Some(remote.buffer)));
        let channels = entry.channels.iter().flat_map(move |channel| match channel {
            ChannelEntry::Memory(peers) | ChannelEntry::Port(peers) => {
                peers.iter().map(|peer| (rank, *peer, None)).collect::<Vec<Relation>>()
            }
            ChannelEntry::Switch { buffer, groups } => {
                let members =
                    groups.iter().filter(|group| group.ranks.contains(&rank)).flat_map(|g| &g.ranks);
                members.map(|member| (rank, *member, Some(*buffer))).collect()
            }
        });
        buffers.chain(channels)
    })
}
