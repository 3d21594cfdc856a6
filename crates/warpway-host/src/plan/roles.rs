//! Which ranks a plan makes one rank work with, and how.

use std::collections::BTreeSet;

use warpway_plan::{Action, BufferKind, ChannelEntry, ChannelType, Plan, Reference, ThreadBlock, Topology};

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
    /// What their operations do with the input.
    pub(super) input_uses: Uses,
    /// And with the output.
    pub(super) output_uses: Uses,
    /// Owners of scratch that this rank touches.
    pub(super) scratch_owners: Vec<u32>,
    /// Ranks that touch this rank's scratch.
    pub(super) scratch_users: Vec<u32>,
}

/// What other ranks do with a buffer: the first of them that reads it, and the first that writes to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Uses {
    pub(super) reader: Option<u32>,
    pub(super) writer: Option<u32>,
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
        let [input_uses, output_uses] = uses(plan, rank);
        Self {
            others,
            peers,
            owners,
            users,
            input_users,
            output_users,
            input_uses,
            output_uses,
            scratch_owners,
            scratch_users,
        }
    }
}

/// What the operations of other ranks do with the input and the output of `rank`.
fn uses(plan: &Plan, rank: u32) -> [Uses; 2] {
    let topology = Topology::new(plan);
    let mut uses = [Uses::default(); 2];
    for (user, block, operation) in plan.operations() {
        let Action::Data(data) = &operation.action else { continue };
        let block = plan.ranks.get(user as usize).and_then(|ranks| ranks.blocks.get(block as usize));
        let Some(block) = block.filter(|_| user != rank) else { continue };
        let access = data.channel_type.unwrap_or(ChannelType::Memory);
        let touched = |reference: &Reference| touched(&topology, rank, (user, block, access), reference);
        for buffer in data.sources.iter().filter_map(touched) {
            uses[buffer].reader.get_or_insert(user);
        }
        for buffer in data.destinations.iter().filter_map(touched) {
            uses[buffer].writer.get_or_insert(user);
        }
    }
    uses
}

/// 0 if a reference of an operation of `user` lies in the input of `rank`, 1 if in its output.
fn touched(
    topology: &Topology<'_>,
    rank: u32,
    (user, block, access): (u32, &ThreadBlock, ChannelType),
    reference: &Reference,
) -> Option<usize> {
    let buffer = match *reference {
        Reference::Local { .. } => return None,
        Reference::Remote { position, .. } => {
            let target = topology.remote_at(user, block, access, position)?;
            (target.rank == rank).then_some(target.buffer)?
        }
        Reference::Switch { position, .. } => {
            let channel = topology.switch_at(user, block, position)?;
            channel.group.ranks.contains(&rank).then_some(channel.buffer)?
        }
    };
    match buffer {
        BufferKind::Input => Some(0),
        BufferKind::Output => Some(1),
        BufferKind::Scratch => None,
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

#[cfg(test)]
mod tests {
    use warpway_plan::{CollectiveShape, Program, ProgramOptions, ReduceOp};

    use super::*;

    #[test]
    fn readers_and_writers_of_each_buffer() {
        let shape = CollectiveShape::test(4, 2, 2);
        let mut p = Program::new(ProgramOptions::new("mixed", shape)).unwrap();
        let chunk = |buffer: warpway_plan::Buffer| buffer.chunk(0..=0).unwrap();
        // 1 and 3 read the input of 0, 2 writes to its output; 0 reads the output of 2 and writes to the input of 3.
        for reader in [3, 1] {
            let channel = p.memory_channel(reader, 0).unwrap();
            p.get(channel, chunk(p.output(reader).unwrap()), chunk(p.input(0).unwrap()), 0).unwrap();
        }
        let channel = p.memory_channel(2, 0).unwrap();
        p.put(channel, chunk(p.output(0).unwrap()), chunk(p.input(2).unwrap()), 0).unwrap();
        let channel = p.memory_channel(0, 2).unwrap();
        p.get(channel, chunk(p.output(0).unwrap()), chunk(p.output(2).unwrap()), 0).unwrap();
        let channel = p.memory_channel(0, 3).unwrap();
        p.put(channel, chunk(p.input(3).unwrap()), chunk(p.input(0).unwrap()), 0).unwrap();
        let plan = p.finish().unwrap();
        let uses = |reader, writer| Uses { reader, writer };
        let found = [0, 1, 2, 3].map(|rank| Roles::of(&plan, rank)).map(|r| (r.input_uses, r.output_uses));
        let nobody = uses(None, None);
        let expected = [
            (uses(Some(1), None), uses(None, Some(2))),
            (nobody, nobody),
            (nobody, uses(Some(0), None)),
            (uses(None, Some(0)), nobody),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn members_of_a_switch_channel_touch_each_others_buffers() {
        let mut p = Program::new(ProgramOptions::new("switch", CollectiveShape::test(3, 3, 3))).unwrap();
        let switch = p.switch_channel(&[0, 1, 2], BufferKind::Input).unwrap();
        for me in [2, 0] {
            let (region, mine) = (switch.region(me, 0, 1), p.output(me).unwrap().chunk(0..=0).unwrap());
            match me {
                0 => p.switch_broadcast(region, mine, 0).unwrap(),
                _ => p.switch_reduce(region, mine, 0, ReduceOp::Sum).unwrap(),
            }
        }
        let roles = Roles::of(&p.finish().unwrap(), 1);
        assert_eq!(roles.input_uses, Uses { reader: Some(2), writer: Some(0) });
        assert_eq!(roles.output_uses, Uses::default());
    }
}
