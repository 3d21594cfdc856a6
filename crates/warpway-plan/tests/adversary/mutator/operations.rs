//! The same operation, with one of its numbers or lists changed.

use warpway_plan::{
    Action, BufferKind, ChannelType, DataKind, DataOperation, Fold, GroupMember, Plan, ReduceOp, Reference,
    ThreadBlock, Via,
};

type Changed = Vec<(&'static str, Action)>;

/// What an operation of a block may be changed to.
pub(super) fn changes(plan: &Plan, (rank, block): (usize, usize), action: &Action) -> Changed {
    let rank = &plan.ranks[rank];
    let block = &rank.blocks[block];
    let mut out = Changed::new();
    match action {
        Action::Nop => {}
        Action::Barrier { id, blocks } => {
            let other = if *id == 0 { 1 } else { id - 1 };
            out.push(("other id of", Action::Barrier { id: other, blocks: *blocks }));
            for blocks in [blocks - 1, blocks + 1] {
                out.push(("other number of blocks of", Action::Barrier { id: *id, blocks }));
            }
        }
        Action::Signal { via, relaxed, channels } => {
            let (via, relaxed) = (*via, *relaxed);
            let make = |channels| Action::Signal { via, relaxed, channels };
            lists(&mut out, channels, positions(block, via), make);
            out.push((
                "other order of",
                Action::Signal { via, relaxed: !relaxed, channels: channels.clone() },
            ));
            out.push((
                "other way of",
                Action::Signal { via: other(via), relaxed, channels: channels.clone() },
            ));
            out.push(("reverse", Action::Wait { via, relaxed, channels: channels.clone() }));
        }
        Action::Wait { via, relaxed, channels } => {
            let (via, relaxed) = (*via, *relaxed);
            let make = |channels| Action::Wait { via, relaxed, channels };
            lists(&mut out, channels, positions(block, via), make);
            out.push(("other order of", Action::Wait { via, relaxed: !relaxed, channels: channels.clone() }));
            out.push(("other way of", Action::Wait { via: other(via), relaxed, channels: channels.clone() }));
            out.push(("reverse", Action::Signal { via, relaxed, channels: channels.clone() }));
        }
        Action::Flush { channels } => {
            lists(&mut out, channels, positions(block, Via::Port), |channels| Action::Flush { channels });
        }
        Action::Acquire { semaphores } => {
            let known = rank.semaphores.len() as u32;
            lists(&mut out, semaphores, known, |semaphores| Action::Acquire { semaphores });
            out.push(("reverse", Action::Release { semaphores: semaphores.clone() }));
        }
        Action::Release { semaphores } => {
            let known = rank.semaphores.len() as u32;
            lists(&mut out, semaphores, known, |semaphores| Action::Release { semaphores });
            out.push(("reverse", Action::Acquire { semaphores: semaphores.clone() }));
        }
        Action::Data(data) => {
            for (what, changed) in data_changes(block, data) {
                out.push((what, Action::Data(Box::new(changed))));
            }
        }
        Action::Pipeline(pipeline) => {
            let mut edit = |what, unit_size, num_chunks| {
                let changed = warpway_plan::Pipeline { unit_size, num_chunks, ..(**pipeline).clone() };
                out.push((what, Action::Pipeline(Box::new(changed))));
            };
            let (unit, chunks) = (pipeline.unit_size, pipeline.num_chunks);
            edit("larger unit of", unit * 2, chunks);
            edit("smaller unit of", unit / 2, chunks);
            edit("more chunks of", unit, chunks + 1);
            edit("fewer chunks of", unit, chunks.saturating_sub(1));
        }
    }
    out
}

fn other(via: Via) -> Via {
    match via {
        Via::Memory => Via::Port,
        Via::Port => Via::Memory,
    }
}

fn positions(block: &ThreadBlock, via: Via) -> u32 {
    let channel_type = match via {
        Via::Memory => ChannelType::Memory,
        Via::Port => ChannelType::Port,
    };
    block.channels_of(channel_type).len() as u32
}

/// Lists of ids with one dropped, doubled or replaced, or two exchanged.
fn lists(out: &mut Changed, ids: &[u32], known: u32, make: impl Fn(Vec<u32>) -> Action) {
    for (what, changed) in list_changes(ids, known) {
        out.push((what, make(changed)));
    }
}

fn list_changes(ids: &[u32], known: u32) -> Vec<(&'static str, Vec<u32>)> {
    let mut out = Vec::new();
    for at in 0..ids.len() {
        let edit = |change: &dyn Fn(&mut Vec<u32>)| {
            let mut changed = ids.to_vec();
            change(&mut changed);
            changed
        };
        out.push((
            "drop an id of",
            edit(&|ids| {
                ids.remove(at);
            }),
        ));
        out.push(("double an id of", edit(&|ids| ids.insert(at, ids[at]))));
        if at + 1 < ids.len() {
            out.push(("exchange ids of", edit(&|ids| ids.swap(at, at + 1))));
        }
        // One beyond the last is out of range.
        for id in 0..=known {
            out.push(("other id of", edit(&|ids| ids[at] = id)));
        }
    }
    out
}

/// Kinds that take the same shape of lists.
fn similar(kind: DataKind) -> &'static [DataKind] {
    use DataKind::*;
    match kind {
        Put | PutWithSignal | PutWithSignalAndFlush | PutPackets => {
            &[Put, PutWithSignal, PutWithSignalAndFlush, PutPackets]
        }
        Copy | CopyPackets | UnpackPackets => &[Copy, CopyPackets, UnpackPackets],
        Reduce | ReducePackets => &[Reduce, ReducePackets],
        ReduceSend | ReadReduceSend | ReduceSendPackets => &[ReduceSend, ReduceSendPackets],
        GroupStore | GroupStorePackets => &[GroupStore, GroupStorePackets],
        _ => &[],
    }
}

fn data_changes(block: &ThreadBlock, data: &DataOperation) -> Vec<(&'static str, DataOperation)> {
    let mut out = Vec::new();
    let mut edit = |what: &'static str, change: &dyn Fn(&mut DataOperation)| {
        let mut changed = data.clone();
        change(&mut changed);
        out.push((what, changed));
    };
    for kind in similar(data.kind) {
        edit("other kind of", &|d| d.kind = *kind);
    }
    if data.channel_type.is_some() {
        edit("other way of", &|d| {
            d.channel_type = match d.channel_type {
                Some(ChannelType::Memory) => Some(ChannelType::Port),
                _ => Some(ChannelType::Memory),
            };
        });
    }
    let channels_of = data.channel_type.map_or(0, |t| block.channels_of(t).len() as u32);
    for (what, channels) in list_changes(&data.channels, channels_of) {
        edit(what, &|d| d.channels.clone_from(&channels));
    }
    let remotes = data.channel_type.map_or(0, |t| block.remote_buffers_of(t).len() as u32);
    for (destination, list) in [(false, &data.sources), (true, &data.destinations)] {
        for (at, reference) in list.iter().enumerate() {
            let mut change = |what, changed: Reference| {
                edit(what, &|d| {
                    let list = if destination { &mut d.destinations } else { &mut d.sources };
                    list[at] = changed;
                });
            };
            let (index, size) = (reference.index(), reference.size());
            for index in [index.wrapping_sub(1), index + 1] {
                change("other index of", with(reference, index, size));
            }
            for size in [size.saturating_sub(1), size + 1] {
                change("other size of one reference of", with(reference, index, size));
            }
            match *reference {
                Reference::Local { index, size, .. } => {
                    for buffer in BufferKind::ALL {
                        change("other buffer of", Reference::Local { buffer, index, size });
                    }
                }
                Reference::Remote { index, size, .. } => {
                    for position in 0..=remotes {
                        change("other remote buffer of", Reference::Remote { position, index, size });
                    }
                }
                Reference::Switch { index, size, .. } => {
                    for position in 0..=channels_of {
                        change("other multicast channel of", Reference::Switch { position, index, size });
                    }
                }
            }
            let list_of = |d: &mut DataOperation, change: &dyn Fn(&mut Vec<Reference>)| {
                change(if destination { &mut d.destinations } else { &mut d.sources });
            };
            edit("drop a reference of", &|d| {
                list_of(d, &|list| {
                    list.remove(at);
                });
            });
            edit("double a reference of", &|d| list_of(d, &|list| list.insert(at, list[at])));
            if at + 1 < list.len() {
                edit("exchange references of", &|d| list_of(d, &|list| list.swap(at, at + 1)));
            }
        }
    }
    for more in [false, true] {
        edit("other size of", &|d| {
            for reference in d.sources.iter_mut().chain(&mut d.destinations) {
                let size = if more { reference.size() + 1 } else { reference.size().saturating_sub(1) };
                *reference = with(reference, reference.index(), size);
            }
        });
        edit("shift", &|d| {
            for reference in d.sources.iter_mut().chain(&mut d.destinations) {
                let index = if more { reference.index() + 1 } else { reference.index().saturating_sub(1) };
                *reference = with(reference, index, reference.size());
            }
        });
    }
    match data.group {
        Some(GroupMember { member, size }) => {
            edit("no group of", &|d| d.group = None);
            for member in [member.wrapping_sub(1), member + 1] {
                edit("other member of", &|d| d.group = Some(GroupMember { member, size }));
            }
            for size in [size - 1, size + 1] {
                edit("other group size of", &|d| d.group = Some(GroupMember { member, size }));
            }
        }
        None => edit("group of", &|d| d.group = Some(GroupMember { member: 0, size: 2 })),
    }
    if data.fold.is_some() {
        edit("other operator of", &|d| d.fold = Some(Fold { op: ReduceOp::Max, order: None }));
        let reversed: Vec<u32> = (0..data.sources.len() as u32).rev().collect();
        edit("other order of", &|d| {
            d.fold = d.fold.take().map(|fold| Fold { order: Some(reversed.clone()), ..fold });
        });
        edit("wrong order of", &|d| {
            d.fold = d.fold.take().map(|fold| Fold { order: Some(vec![0; d.sources.len()]), ..fold });
        });
    }
    out
}

fn with(reference: &Reference, index: u64, size: u64) -> Reference {
    match *reference {
        Reference::Local { buffer, .. } => Reference::Local { buffer, index, size },
        Reference::Remote { position, .. } => Reference::Remote { position, index, size },
        Reference::Switch { position, .. } => Reference::Switch { position, index, size },
    }
}
