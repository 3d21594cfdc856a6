//! Form of one operation: lists, channels, folds.

use super::shape::{Row, Shape, Target};
use super::{Checker, Step};
use crate::ir::{
    Action, BufferKind, ChannelEntry, ChannelType, DataKind, DataOperation, Extension, Form, Operation,
    RankPlan, ReduceOp, Reference, ThreadBlock,
};

/// What references of a rank resolve to, as far as packets need it.
pub(super) struct Tables<'p> {
    rank: &'p RankPlan,
    /// Buffer of each switch channel, by channel index.
    switch_buffers: Vec<BufferKind>,
}

impl<'p> Tables<'p> {
    pub(super) fn of(rank: &'p RankPlan) -> Self {
        let switch_buffers = rank.channels.iter().flat_map(|entry| match entry {
            ChannelEntry::Switch { buffer, groups } => vec![*buffer; groups.len()],
            _ => Vec::new(),
        });
        Self { rank, switch_buffers: switch_buffers.collect() }
    }

    /// The buffer a reference points into; `None` if it points nowhere, which is the verifier's to say (V2).
    fn buffer(
        &self,
        block: &ThreadBlock,
        via: Option<ChannelType>,
        reference: &Reference,
    ) -> Option<BufferKind> {
        match *reference {
            Reference::Local { buffer, .. } => Some(buffer),
            Reference::Remote { position, .. } => {
                let index = *block.remote_buffers_of(via?).get(position as usize)?;
                self.rank.remote_buffers.get(index as usize).map(|remote| remote.buffer)
            }
            Reference::Switch { position, .. } => {
                let index = *block.channels_of(ChannelType::Switch).get(position as usize)?;
                self.switch_buffers.get(index as usize).copied()
            }
        }
    }
}

impl Checker<'_> {
    /// `inner`: within a pipeline.
    pub(super) fn operation(
        &mut self,
        tables: &Tables<'_>,
        block: &ThreadBlock,
        operation: &Operation,
        inner: bool,
    ) {
        match &operation.action {
            Action::Nop | Action::Barrier { .. } => {}
            Action::Signal { channels, .. } | Action::Wait { channels, .. } | Action::Flush { channels } => {
                self.not_empty("channel_ids", channels);
            }
            Action::Acquire { semaphores } | Action::Release { semaphores } => {
                self.not_empty("semaphore_ids", semaphores);
            }
            Action::Data(data) => self.data(tables, block, data),
            Action::Pipeline(_) if inner => {
                self.notes.note(107, "a pipeline within a pipeline", "another operation");
            }
            Action::Pipeline(pipeline) => {
                self.notes.path.push(Step::Key("iter_context"));
                if pipeline.unit_size == 0 {
                    self.notes.note_key("unit_size", 109, 0, "1 or more");
                }
                if pipeline.size_id.is_some() {
                    self.uses(Extension::SizedChunks, "size_id");
                }
                self.notes.path.pop();
                self.each("ops", &pipeline.body, |checker, o| checker.operation(tables, block, o, true));
            }
        }
    }

    fn not_empty(&mut self, key: &'static str, list: &[u32]) {
        if list.is_empty() {
            self.notes.note_key(key, 105, "an empty list", "one or more");
        }
    }

    fn data(&mut self, tables: &Tables<'_>, block: &ThreadBlock, data: &DataOperation) {
        let shape = Shape::of(data.kind);
        if !shape.channel_types.contains(&data.channel_type) {
            let expected = format!("{} for `{}`", shape.channel_type_names(), data.kind);
            match data.channel_type {
                None => self.notes.note_key("channel_type", 105, "nothing", expected),
                Some(found) => self.notes.note_key("channel_type", 108, format!("`{found}`"), expected),
            }
        }
        let whole = self.row("src_buff", data, &data.sources, shape.sources)
            & self.row("dst_buff", data, &data.destinations, shape.destinations);
        if whole && shape.is_paired() && data.sources.len() != data.destinations.len() {
            let found =
                format!("{} sources and {} destinations", data.sources.len(), data.destinations.len());
            self.notes.note(105, found, "as many of one as of the other");
        }
        if data.kind.uses_packets() {
            self.packets_lie_in_scratch(tables, block, data);
        }
        self.channels(data);
        self.fold(data);
        if data.kind == DataKind::GroupLoadReduce {
            self.uses(Extension::LoadReduce, "name");
        }
    }

    /// True if the list has a length that the operation takes.
    fn row(&mut self, key: &'static str, data: &DataOperation, list: &[Reference], row: Row) -> bool {
        if !row.accepts(list.len()) {
            let expected = format!("{} for `{}`", row.lengths(), data.kind);
            let found = match list.len() {
                0 => "no references".into(),
                1 => "1 reference".into(),
                n => format!("{n} references"),
            };
            self.notes.note_key(key, 105, found, expected);
            return false;
        }
        for (position, reference) in list.iter().enumerate() {
            let found = Target::of(reference);
            if let Some(expected) = row.target(position).filter(|expected| *expected != found) {
                self.notes.path.push(Step::Key(key));
                self.notes.within(Step::Index(position), |notes| {
                    notes.note(105, found.name(), format!("{} for `{}`", expected.name(), data.kind));
                });
                self.notes.path.pop();
            }
        }
        true
    }

    fn packets_lie_in_scratch(&mut self, tables: &Tables<'_>, block: &ThreadBlock, data: &DataOperation) {
        let sources = data.sources.iter().enumerate().map(|(j, r)| ("src_buff", j, r, data.source_form(j)));
        let destinations =
            data.destinations.iter().enumerate().map(|(j, r)| ("dst_buff", j, r, data.destination_form(j)));
        for (key, position, reference, form) in sources.chain(destinations) {
            // V608 is the verifier's: it knows whether the source holds packets.
            let forwarded = data.kind == DataKind::PutPackets && key == "src_buff";
            if form == Form::Raw || forwarded {
                continue;
            }
            let buffer = tables.buffer(block, data.channel_type, reference);
            if let Some(buffer) = buffer.filter(|buffer| *buffer != BufferKind::Scratch) {
                self.notes.path.push(Step::Key(key));
                self.notes.within(Step::Index(position), |notes| {
                    notes.note(
                        105,
                        format!("a reference into buffer `{buffer}`"),
                        "`s`: packets lie in scratch",
                    );
                });
                self.notes.path.pop();
            }
        }
    }

    fn channels(&mut self, data: &DataOperation) {
        use DataKind::*;
        let port = data.channel_type == Some(ChannelType::Port);
        let found = data.channels.len();
        let needed = match data.kind {
            Get => Some(data.sources.len()),
            Put | PutPackets | PutWithSignal | PutWithSignalAndFlush if port => Some(data.sources.len()),
            ReadPutPackets if port => Some(data.destinations.len()),
            // One thread signals each of them, however many items there are.
            PutWithSignal => Some(found.max(1)),
            _ => None,
        };
        match (data.kind, needed) {
            (_, Some(needed)) if found != needed => {
                let expected = format!("{needed}, one for each item of `{}`", data.kind);
                match found {
                    0 => self.notes.note_key("channel_ids", 105, "nothing", expected),
                    _ => self.notes.note_key("channel_ids", 105, format!("{found} channels"), expected),
                }
            }
            (_, Some(_)) | (Put | PutPackets | ReadPutPackets, None) => {}
            (kind, None) if found > 0 => {
                self.notes.note_key("channel_ids", 106, "a list", format!("none: `{kind}` ignores it"));
            }
            _ => {}
        }
    }

    fn fold(&mut self, data: &DataOperation) {
        let kind = data.kind;
        let folds = kind.is_fold() || kind.is_switch_fold();
        let Some(fold) = &data.fold else {
            if folds {
                self.notes.note_key("reduce_op", 105, "nothing", format!("an operator for `{kind}`"));
            }
            return;
        };
        if let Some(order) = &fold.order {
            if !kind.is_fold() {
                self.notes.note_key(
                    "order",
                    111,
                    "an order",
                    format!("none: `{kind}` is no fold of listed sources"),
                );
            } else if !is_permutation(order, data.sources.len()) {
                let expected = format!("each position of the {} sources once", data.sources.len());
                self.notes.note_key("order", 111, List(order), expected);
            } else {
                self.uses(Extension::Order, "order");
            }
        } else if !folds {
            self.notes.note_key(
                "reduce_op",
                106,
                format!("`{}`", fold.op),
                format!("none: `{kind}` ignores it"),
            );
        }
        if folds && matches!(fold.op, ReduceOp::Prod | ReduceOp::Avg) {
            self.uses(Extension::ReduceOp, "reduce_op");
        }
    }
}

fn is_permutation(order: &[u32], length: usize) -> bool {
    if order.len() != length {
        return false;
    }
    let mut seen = vec![false; length];
    order.iter().all(|position| match seen.get_mut(*position as usize) {
        Some(seen) => !std::mem::replace(seen, true),
        None => false,
    })
}

/// A list of numbers in a message, cut where it gets long.
struct List<'l>(&'l [u32]);

impl std::fmt::Display for List<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        const LONGEST: usize = 16;
        f.write_str("[")?;
        for (index, number) in self.0.iter().take(LONGEST).enumerate() {
            write!(f, "{}{number}", if index > 0 { ", " } else { "" })?;
        }
        f.write_str(if self.0.len() > LONGEST { ", …]" } else { "]" })
    }
}
