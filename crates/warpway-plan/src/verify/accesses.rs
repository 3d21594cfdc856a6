//! What a step reads and writes: references resolved, cut to the piece of the step.

use super::extent::{Extent, Slice, piece};
use super::trace::{Step, Trace};
use crate::ir::{Action, BufferKind, ChannelType, DataKind, DataOperation, Form, Reference};

/// Reading or writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Mode {
    Read,
    Write,
}

/// One access of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Access {
    pub(super) extent: Extent,
    pub(super) mode: Mode,
    pub(super) form: Form,
    /// Position of the reference in its list, sources and destinations counted apart.
    pub(super) position: u32,
    /// The item that it belongs to: `first.0` of [`crate::ir::Item`].
    pub(super) item: u32,
    /// Done by the proxy, some time after the step.
    pub(super) asynchronous: bool,
    /// Through multicast: one access per member.
    pub(super) switch: bool,
}

impl Trace<'_> {
    /// The buffers that a reference of `block` stands for: one, or one per member of a multicast group.
    pub(super) fn targets(
        &self,
        block: usize,
        data: &DataOperation,
        reference: &Reference,
    ) -> Vec<(u32, BufferKind)> {
        let of = &self.blocks[block];
        let in_plan = &self.plan().ranks[of.rank as usize].blocks[of.block as usize];
        match *reference {
            Reference::Local { buffer, .. } => vec![(of.rank, buffer)],
            Reference::Remote { position, .. } => {
                let access = match data.channel_type {
                    Some(ChannelType::Port) => ChannelType::Port,
                    _ => ChannelType::Memory,
                };
                let target = self.topology.remote_at(of.rank, in_plan, access, position);
                target.map(|t| (t.rank, t.buffer)).into_iter().collect()
            }
            Reference::Switch { position, .. } => {
                let channel = self.topology.switch_at(of.rank, in_plan, position);
                channel.map_or_else(Vec::new, |c| c.group.ranks.iter().map(|r| (*r, c.buffer)).collect())
            }
        }
    }

    /// After how many slices those of `reference` come back to the same bytes, if they do: see `window.rs`.
    pub(super) fn window_of(
        &self,
        data: &DataOperation,
        reference: &Reference,
        buffer: BufferKind,
        form: Form,
    ) -> Option<u64> {
        let comes_back = buffer == BufferKind::Scratch
            && form == Form::Raw
            && data.group.is_none()
            && reference.size() == 1;
        self.window.filter(|_| comes_back)
    }

    /// Appends the accesses of a step to `out`, item by item, reads before writes. Nothing for synchronisation.
    pub(super) fn accesses(&self, block: usize, step: &Step<'_>, out: &mut Vec<Access>) {
        let Action::Data(data) = step.action else { return };
        let port = data.channel_type == Some(ChannelType::Port);
        // `rppkt` reads its packets itself, in every form; the proxy does the rest.
        let waits_itself = data.kind == DataKind::ReadPutPackets;
        for item in data.items() {
            let reads = item.sources.iter().zip(item.first.0..).map(|(r, at)| (r, at, Mode::Read));
            let writes = item.destinations.iter().zip(item.first.1..).map(|(r, at)| (r, at, Mode::Write));
            for (reference, at, mode) in reads.chain(writes) {
                let form = match mode {
                    Mode::Read => data.source_form(at),
                    Mode::Write => data.destination_form(at),
                };
                let switch = matches!(reference, Reference::Switch { .. });
                for target in self.targets(block, data, reference) {
                    let slice =
                        step.slice.map(|slice| match self.window_of(data, reference, target.1, form) {
                            Some(slices) => Slice { iteration: slice.iteration % slices, ..slice },
                            None => slice,
                        });
                    if let Some(extent) = piece(&self.scale, data, slice, reference, target) {
                        out.push(Access {
                            extent,
                            mode,
                            form,
                            position: at as u32,
                            item: item.first.0 as u32,
                            asynchronous: port && !(waits_itself && mode == Mode::Read),
                            switch,
                        });
                    }
                }
            }
        }
    }
}

/// True if a step waits for the packets that it reads.
pub(super) fn waits_for_packets(data: &DataOperation) -> bool {
    data.kind.uses_packets()
        && !(data.kind == DataKind::PutPackets && data.channel_type == Some(ChannelType::Port))
}
