//! What a data operation of a block moves: lanes of its share, slice and chunks, resolved to addresses.

use warpway_plan::{BufferKind, ChannelType, DataOperation, Form, GroupMember, Reference};

use super::{Lowering, Result, Window};
use crate::machine::program::{Movement, Region, chunk_lanes, op_number};

/// A reference of an operation.
struct Resolved {
    write: bool,
    form: Form,
    /// One buffer, or those of a multicast group.
    owners: Vec<(u32, BufferKind)>,
}

impl Lowering<'_> {
    /// What is moved, with the number of the item.
    pub(super) fn movements(&self, data: &DataOperation, window: Window) -> Result<Vec<(u32, Movement)>> {
        let mut movements = Vec::new();
        let op = data.fold.as_ref().map_or(0, |fold| op_number(fold.op));
        if data.fold.as_ref().is_some_and(|fold| fold.order.is_some()) {
            let mut order: Vec<usize> = data.fold_order().collect();
            order.sort_unstable();
            if order != (0..data.sources.len()).collect::<Vec<_>>() {
                return Err(self.wrong("an order that is no permutation"));
            }
        }
        for (number, item) in (0u32..).zip(data.items()) {
            let chunks = item.sources[0].size();
            if item.sources.iter().chain(item.destinations).any(|r| r.size() != chunks) {
                return Err(self.wrong("sizes differ"));
            }
            let mut references = Vec::new();
            for (j, reference) in item.sources.iter().enumerate() {
                let form = data.source_form(item.first.0 + j);
                references.push(Resolved { write: false, form, owners: self.owners(data, reference)? });
            }
            for (j, reference) in item.destinations.iter().enumerate() {
                let form = data.destination_form(item.first.1 + j);
                references.push(Resolved { write: true, form, owners: self.owners(data, reference)? });
            }
            let indices = || item.sources.iter().chain(item.destinations).map(Reference::index);
            // Equal chunks are one run of lanes; otherwise each is moved by itself.
            let even = self.size.missing == 0 && !self.sized();
            let (pieces, of) = if even { (u64::from(chunks > 0), chunks as u32) } else { (chunks, 1) };
            for piece in 0..pieces {
                let lanes = match even {
                    true => of.checked_mul(self.size.lanes).filter(|l| *l < 1 << 20),
                    false => self.common_lanes(&references, indices(), piece),
                };
                let lanes = lanes.ok_or_else(|| self.wrong("chunks of no common size"))?;
                let (skip, count) = self.share(lanes, data.group, window)?;
                let last = data.group.is_none_or(|g| g.member + 1 == g.size);
                let pads = !even && !self.sized() && last && window.is_none();
                let padding = if pads { self.size.lanes - lanes } else { 0 };
                let mut movement = Movement { lanes: count, padding, op, ..Movement::default() };
                for (Resolved { write, form, owners }, index) in references.iter().zip(indices()) {
                    let list = if *write { &mut movement.writes } else { &mut movement.reads };
                    for (owner, buffer) in owners {
                        list.push(self.region((*owner, *buffer), index + piece, *form, skip)?);
                    }
                }
                if movement.op == 0 && movement.reads.len() > 1 {
                    return Err(self.wrong("several sources and no fold"));
                }
                movements.push((number, movement));
            }
        }
        Ok(movements)
    }

    fn sized(&self) -> bool {
        self.topology.plan().ranks.iter().any(|rank| rank.size_ids.is_some())
    }

    /// Lanes that one chunk of every reference has: the fewest, or those of the common size id.
    fn common_lanes(
        &self,
        references: &[Resolved],
        indices: impl Iterator<Item = u64>,
        piece: u64,
    ) -> Option<u32> {
        let plan = self.topology.plan();
        let mut all = Vec::new();
        for (Resolved { owners, .. }, index) in references.iter().zip(indices) {
            for (owner, buffer) in owners {
                let sized = plan.ranks[*owner as usize].size_ids.as_ref();
                let id = sized.map(|ids| match buffer {
                    BufferKind::Input => ids.input.get((index + piece) as usize),
                    BufferKind::Output => ids.output.get((index + piece) as usize),
                    BufferKind::Scratch => ids.scratch.get((index + piece) as usize),
                });
                all.push((id, chunk_lanes(plan, *owner, (*buffer, index + piece), self.size)?));
            }
        }
        if self.sized() && all.iter().any(|(id, _)| *id != all[0].0) {
            return None;
        }
        all.iter().map(|(_, lanes)| *lanes).min()
    }

    /// The lanes of an operation that this block does now: those of its group member, then of the window.
    fn share(&self, lanes: u32, group: Option<GroupMember>, window: Window) -> Result<(u32, u32)> {
        let (mut first, mut count) = (0, lanes);
        if let Some(GroupMember { member, size }) = group {
            if member >= size {
                return Err(self.wrong("no such group member"));
            }
            let (each, more) = (lanes / size, lanes % size);
            first = member * each + member.min(more);
            count = each + u32::from(member < more);
        }
        if let Some((from, unit)) = window {
            let skipped = from.min(count);
            (first, count) = (first + skipped, (count - skipped).min(unit));
        }
        Ok((first, count))
    }

    /// A run of lanes of a buffer, from `skip` lanes behind the beginning of a chunk on.
    fn region(&self, of: (u32, BufferKind), chunk: u64, form: Form, skip: u32) -> Result<Region> {
        let (owner, buffer) = of;
        let lanes = &self.program.ranks()[owner as usize];
        let scratch = buffer == BufferKind::Scratch;
        if form == Form::Packets && !scratch {
            return Err(self.wrong("packets outside the scratch"));
        }
        let in_scratch = |(start, _): (u32, u32)| start + chunk as u32 * self.size.lanes;
        let (start, length) = match (form, buffer) {
            (Form::Packets, _) => (in_scratch(lanes.slots), lanes.slots.1),
            (_, BufferKind::Scratch) => (in_scratch(lanes.raw), lanes.raw.1),
            (_, BufferKind::Input) => (lanes.input[chunk as usize].0, 0),
            (_, BufferKind::Output) => (lanes.output[chunk as usize].0, 0),
        };
        Ok(Region {
            start: start + skip,
            odd: if self.topology.plan().double_scratch { length } else { 0 },
            packets: form == Form::Packets,
            callers: (!scratch).then_some(owner),
        })
    }

    /// The buffers that a reference stands for, its chunks being within each.
    fn owners(&self, data: &DataOperation, reference: &Reference) -> Result<Vec<(u32, BufferKind)>> {
        let owners = match *reference {
            Reference::Local { buffer, .. } => vec![(self.rank, buffer)],
            Reference::Remote { position, .. } => {
                let access = data.channel_type.unwrap_or(ChannelType::Switch);
                let target = self.topology.remote_at(self.rank, self.block, access, position);
                let target = target.ok_or_else(|| self.wrong("no such remote buffer"))?;
                if target.rank == self.rank {
                    return Err(self.wrong("its own buffer as a remote one"));
                }
                vec![(target.rank, target.buffer)]
            }
            Reference::Switch { position, .. } => {
                let channel = self.topology.switch_at(self.rank, self.block, position);
                let channel = channel.ok_or_else(|| self.wrong("no such switch channel"))?;
                if !channel.group.ranks.contains(&self.rank) {
                    return Err(self.wrong("not a member of the switch channel"));
                }
                channel.group.ranks.iter().map(|member| (*member, channel.buffer)).collect()
            }
        };
        for (owner, buffer) in &owners {
            let rank = self.topology.plan().ranks.get(*owner as usize);
            let chunks = rank.ok_or_else(|| self.wrong("no such rank"))?.chunks(*buffer);
            if reference.index().checked_add(reference.size()).is_none_or(|end| end > chunks) {
                return Err(self.wrong("beyond the buffer's chunks"));
            }
        }
        Ok(owners)
    }
}
