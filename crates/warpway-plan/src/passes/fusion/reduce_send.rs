//! A fold followed by sending its result, locally or to peers, is one operation.

use crate::ir::{ChannelType, DataKind, DataOperation, Reference};
use crate::passes::{Compat, Scope};

/// The current fold takes in the next operation if that sends its result.
pub(super) fn reduce_then_send(
    current: &mut DataOperation,
    next: &mut DataOperation,
    compat: Compat,
) -> bool {
    use DataKind::*;
    if current.group != next.group {
        return false;
    }
    let memory = next.channel_type == Some(ChannelType::Memory);
    let result = current.destinations.first();
    let packet_copy = current.destinations.get(1);
    let (kind, sent) = match (current.kind, next.kind) {
        (Reduce | ReduceSend, Put) if memory => (ReduceSend, result),
        (ReadReduce | ReadReduceSend, Put) if memory => (ReadReduceSend, result),
        (ReducePackets | ReduceSendPackets, PutPackets) if memory => (ReduceSendPackets, result),
        (ReducePackets, CopyPackets) => (ReduceCopyPackets, result),
        (ReduceCopyPackets | ReduceCopySendPackets, PutPackets) if memory => (ReduceCopySendPackets, result),
        (ReduceCopyPackets | ReduceCopySendPackets, ReadPutPackets) if memory => {
            (ReduceCopySendPackets, packet_copy)
        }
        _ => return false,
    };
    // MSCCL++ looks at the first source only (X17).
    let compared = if compat == Compat::Mscclpp { 1 } else { next.sources.len() };
    if sent.is_none() || next.sources.iter().take(compared).any(|source| Some(source) != sent) {
        return false;
    }
    current.kind = kind;
    if memory {
        current.channel_type = Some(ChannelType::Memory);
    }
    current.destinations.append(&mut next.destinations);
    true
}

/// Multicast load-reduce into a chunk, then multicast store of that chunk. The joined operation does not write the
/// chunk, which is harmless if the store does, or if nobody reads it (X3).
pub(super) fn load_reduce_store(
    current: &mut DataOperation,
    next: &mut DataOperation,
    unused_later: bool,
    scope: &Scope<'_>,
) -> bool {
    let [Reference::Switch { position, index, size }] = current.sources[..] else { return false };
    let [Reference::Switch { position: to, index: offset, size: stored }] = next.destinations[..] else {
        return false;
    };
    if current.destinations != next.sources || position != to || size != stored {
        return false;
    }
    let destination_index = match scope.compat {
        // It forgets the offset of the store (X2).
        Compat::Mscclpp => index,
        Compat::None => {
            let chunk = current.destinations.first().and_then(|chunk| match *chunk {
                Reference::Local { buffer, index, .. } => Some(scope.alias.resolve(buffer, index)),
                _ => None,
            });
            let buffer = scope.switch_buffers.get(position as usize);
            let region = buffer.map(|buffer| scope.alias.resolve(*buffer, offset));
            if chunk != region && !unused_later {
                return false;
            }
            offset
        }
    };
    current.kind = DataKind::GroupLoadReduceStore;
    current.destinations = vec![Reference::Switch { position, index: destination_index, size }];
    true
}
