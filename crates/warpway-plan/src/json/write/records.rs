//! The objects of the file, as the writer sees them: their keys, in the order of MSCCL++'s DSL, and the values.

use crate::ir::{
    Action, ChannelEntry, ChannelRefs, ChannelType, DataKind, Location, Operation, Plan, RankGroup, RankPlan,
    Reference, RemoteBuffer, RemoteBufferRefs, ThreadBlock, Via,
};

/// Something that is written as one object.
pub(super) trait Record {
    /// In the order in which they are written.
    const KEYS: &'static [&'static str];
    /// In alphabetical order.
    const SORTED: &'static [&'static str];

    /// The value of one of `KEYS`, if it has one; `position` is that in its list.
    fn value(&self, key: &str, position: usize) -> Option<Value<'_>>;
}

/// A value that is still to be written.
pub(super) enum Value<'p> {
    Boolean(bool),
    Number(u64),
    Text(&'p str),
    Location(&'p Location),
    Names(Vec<&'static str>),
    Positions(&'p [u32]),
    Numbers(&'p [u64]),
    Counts(Counts),
    Records(Records<'p>),
}

/// A list of objects.
pub(super) enum Records<'p> {
    Ranks(&'p [RankPlan]),
    Blocks(&'p [ThreadBlock]),
    Operations(&'p [Operation]),
    Channels(&'p [ChannelEntry]),
    Groups(&'p [RankGroup]),
    RemoteBuffers(&'p [RemoteBuffer]),
    ChannelRefs(&'p [ChannelRefs]),
    BufferRefs(&'p [RemoteBufferRefs]),
    Semaphores(&'p [u64]),
    References(&'p [Reference]),
    /// The sources of a multicast store.
    Stored(&'p [Reference]),
}

/// A small object of numbers.
pub(super) enum Counts {
    Group { member: u32, size: u32 },
    Iteration { unit_size: u64, num_chunks: u64, size_id: Option<u64> },
}

/// Both constants of a [`Record`] from one list.
macro_rules! keys {
    ($($key:literal),+ $(,)?) => {
        const KEYS: &'static [&'static str] = &[$($key),+];
        const SORTED: &'static [&'static str] = &sorted([$($key),+]);
    };
}

const fn sorted<const N: usize>(mut keys: [&'static str; N]) -> [&'static str; N] {
    let mut end = 1;
    while end < N {
        let mut at = end;
        while at > 0 && is_less(keys[at].as_bytes(), keys[at - 1].as_bytes()) {
            (keys[at], keys[at - 1]) = (keys[at - 1], keys[at]);
            at -= 1;
        }
        end += 1;
    }
    keys
}

const fn is_less(a: &[u8], b: &[u8]) -> bool {
    let mut at = 0;
    while at < a.len() && at < b.len() {
        if a[at] != b[at] {
            return a[at] < b[at];
        }
        at += 1;
    }
    a.len() < b.len()
}

impl Record for Plan {
    keys! {
        "name", "collective", "protocol", "inplace", "reuse_resources", "gpus", "num_threads_per_block",
        "use_double_scratch_buffer", "buffer_alignment", "min_message_size", "max_message_size", "extensions",
    }

    fn value(&self, key: &str, _: usize) -> Option<Value<'_>> {
        Some(match key {
            "name" => Value::Text(&self.name),
            "collective" => Value::Text(self.collective.name()),
            "protocol" => Value::Text(self.protocol.name()),
            "inplace" => Value::Boolean(self.in_place),
            "reuse_resources" => Value::Boolean(self.reuse_resources),
            "gpus" => Value::Records(Records::Ranks(&self.ranks)),
            "num_threads_per_block" => Value::Number(u64::from(self.threads_per_block)),
            "use_double_scratch_buffer" => Value::Boolean(self.double_scratch),
            "buffer_alignment" => Value::Number(self.buffer_alignment),
            "min_message_size" => Value::Number(self.min_message_size),
            "max_message_size" => Value::Number(self.max_message_size),
            "extensions" if !self.extensions.is_empty() => {
                let mut names: Vec<_> = self.extensions.iter().map(|extension| extension.name()).collect();
                names.sort_unstable();
                Value::Names(names)
            }
            _ => return None,
        })
    }
}

impl Record for RankPlan {
    keys! {
        "id", "input_chunks", "output_chunks", "scratch_chunks", "threadblocks", "channels", "remote_buffers",
        "semaphores", "input_size_ids", "output_size_ids", "scratch_size_ids",
    }

    fn value(&self, key: &str, position: usize) -> Option<Value<'_>> {
        Some(match key {
            "id" => Value::Number(position as u64),
            "input_chunks" => Value::Number(self.input_chunks),
            "output_chunks" => Value::Number(self.output_chunks),
            "scratch_chunks" => Value::Number(self.scratch_chunks),
            "threadblocks" => Value::Records(Records::Blocks(&self.blocks)),
            "channels" => Value::Records(Records::Channels(&self.channels)),
            "remote_buffers" => Value::Records(Records::RemoteBuffers(&self.remote_buffers)),
            "semaphores" => Value::Records(Records::Semaphores(&self.semaphores)),
            "input_size_ids" => Value::Numbers(&self.size_ids.as_ref()?.input),
            "output_size_ids" => Value::Numbers(&self.size_ids.as_ref()?.output),
            "scratch_size_ids" => {
                let ids = &self.size_ids.as_ref()?.scratch;
                (!ids.is_empty()).then_some(Value::Numbers(ids))?
            }
            _ => return None,
        })
    }
}

impl Record for ThreadBlock {
    keys! { "id", "ops", "channels", "remote_buffer_refs" }

    fn value(&self, key: &str, position: usize) -> Option<Value<'_>> {
        Some(match key {
            "id" => Value::Number(position as u64),
            "ops" => Value::Records(Records::Operations(&self.operations)),
            "channels" => Value::Records(Records::ChannelRefs(&self.channels)),
            "remote_buffer_refs" => Value::Records(Records::BufferRefs(&self.remote_buffers)),
            _ => return None,
        })
    }
}

impl Record for Operation {
    keys! {
        "name", "iter_context", "ops", "barrier_id", "num_threadblocks", "semaphore_ids", "src_buff", "dst_buff",
        "channel_ids", "channel_type", "reduce_op", "order", "tbg_info", "loc",
    }

    fn value(&self, key: &str, _: usize) -> Option<Value<'_>> {
        if key == "loc" {
            return self.location.as_deref().map(Value::Location);
        }
        match &self.action {
            Action::Nop => name(key, "nop"),
            Action::Barrier { id, blocks } => match key {
                "barrier_id" => Some(Value::Number(u64::from(*id))),
                "num_threadblocks" => Some(Value::Number(u64::from(*blocks))),
                _ => name(key, "barrier"),
            },
            Action::Signal { via, relaxed, channels } => {
                on_channels(key, if *relaxed { "rlxsignal" } else { "signal" }, *via, channels)
            }
            Action::Wait { via, relaxed, channels } => {
                on_channels(key, if *relaxed { "rlxwait" } else { "wait" }, *via, channels)
            }
            Action::Flush { channels } => on_channels(key, "flush", Via::Port, channels),
            Action::Acquire { semaphores } => match key {
                "semaphore_ids" => Some(Value::Positions(semaphores)),
                _ => name(key, "sem_acquire"),
            },
            Action::Release { semaphores } => match key {
                "semaphore_ids" => Some(Value::Positions(semaphores)),
                _ => name(key, "sem_release"),
            },
            Action::Data(data) => match key {
                "src_buff" => Some(Value::Records(match data.kind {
                    DataKind::GroupStore | DataKind::GroupStorePackets => Records::Stored(&data.sources),
                    _ => Records::References(&data.sources),
                })),
                "dst_buff" => Some(Value::Records(Records::References(&data.destinations))),
                "channel_ids" => (!data.channels.is_empty()).then_some(Value::Positions(&data.channels)),
                "channel_type" => data.channel_type.map(|channel_type| Value::Text(channel_type.name())),
                "reduce_op" => data.fold.as_ref().map(|fold| Value::Text(fold.op.name())),
                "order" => data.fold.as_ref()?.order.as_deref().map(Value::Positions),
                "tbg_info" => {
                    data.group.map(|g| Value::Counts(Counts::Group { member: g.member, size: g.size }))
                }
                _ => name(key, data.kind.name()),
            },
            Action::Pipeline(pipeline) => match key {
                "iter_context" => Some(Value::Counts(Counts::Iteration {
                    unit_size: pipeline.unit_size,
                    num_chunks: pipeline.num_chunks,
                    size_id: pipeline.size_id,
                })),
                "ops" => Some(Value::Records(Records::Operations(&pipeline.body))),
                _ => name(key, "pipeline"),
            },
        }
    }
}

fn name<'p>(key: &str, name: &'static str) -> Option<Value<'p>> {
    (key == "name").then_some(Value::Text(name))
}

fn on_channels<'p>(key: &str, operation: &'static str, via: Via, channels: &'p [u32]) -> Option<Value<'p>> {
    let channel_type = match via {
        Via::Memory => ChannelType::Memory,
        Via::Port => ChannelType::Port,
    };
    match key {
        "channel_ids" => Some(Value::Positions(channels)),
        "channel_type" => Some(Value::Text(channel_type.name())),
        _ => name(key, operation),
    }
}

impl Record for Counts {
    keys! { "unit_size", "num_chunks", "size_id", "tb_id", "tbg_size" }

    fn value(&self, key: &str, _: usize) -> Option<Value<'_>> {
        let number = match (self, key) {
            (Self::Group { member, .. }, "tb_id") => u64::from(*member),
            (Self::Group { size, .. }, "tbg_size") => u64::from(*size),
            (Self::Iteration { unit_size, .. }, "unit_size") => *unit_size,
            (Self::Iteration { num_chunks, .. }, "num_chunks") => *num_chunks,
            (Self::Iteration { size_id, .. }, "size_id") => (*size_id)?,
            _ => return None,
        };
        Some(Value::Number(number))
    }
}

impl Record for Reference {
    keys! { "type", "buffer_id", "switch_channel_id", "index", "size" }

    fn value(&self, key: &str, _: usize) -> Option<Value<'_>> {
        Some(match (self, key) {
            (_, "index") => Value::Number(self.index()),
            (_, "size") => Value::Number(self.size()),
            (Self::Local { buffer, .. }, "type") => Value::Text(buffer.name()),
            (Self::Remote { position, .. }, "buffer_id") => Value::Number(u64::from(*position)),
            (Self::Switch { position, .. }, "switch_channel_id") => Value::Number(u64::from(*position)),
            _ => return None,
        })
    }
}

/// A source of a multicast store: MSCCL++ writes whose chunk it is, though it cannot be another rank's.
pub(super) struct Stored<'p> {
    pub(super) reference: &'p Reference,
    pub(super) rank: u64,
}

impl Record for Stored<'_> {
    keys! { "rank", "type", "buffer_id", "switch_channel_id", "index", "size" }

    fn value(&self, key: &str, position: usize) -> Option<Value<'_>> {
        match key {
            "rank" => matches!(self.reference, Reference::Local { .. }).then_some(Value::Number(self.rank)),
            _ => self.reference.value(key, position),
        }
    }
}

impl Record for ChannelEntry {
    keys! { "channel_type", "connected_to", "buffer_type", "rank_groups" }

    fn value(&self, key: &str, _: usize) -> Option<Value<'_>> {
        Some(match (self, key) {
            (Self::Memory(_), "channel_type") => Value::Text(ChannelType::Memory.name()),
            (Self::Port(_), "channel_type") => Value::Text(ChannelType::Port.name()),
            (Self::Switch { .. }, "channel_type") => Value::Text(ChannelType::Switch.name()),
            (Self::Memory(peers) | Self::Port(peers), "connected_to") => Value::Positions(peers),
            (Self::Switch { buffer, .. }, "buffer_type") => Value::Text(buffer.name()),
            (Self::Switch { groups, .. }, "rank_groups") => Value::Records(Records::Groups(groups)),
            _ => return None,
        })
    }
}

impl Record for RankGroup {
    keys! { "size", "ranks" }

    fn value(&self, key: &str, _: usize) -> Option<Value<'_>> {
        Some(match key {
            "size" => Value::Number(self.size),
            _ => Value::Positions(&self.ranks),
        })
    }
}

impl Record for RemoteBuffer {
    keys! { "rank", "type", "access_channel_types" }

    fn value(&self, key: &str, _: usize) -> Option<Value<'_>> {
        let memory = self.memory_access.then_some(ChannelType::Memory);
        let port = self.port_access.then_some(ChannelType::Port);
        Some(match key {
            "rank" => Value::Number(u64::from(self.rank)),
            "type" => Value::Text(self.buffer.name()),
            _ => Value::Names(memory.into_iter().chain(port).map(ChannelType::name).collect()),
        })
    }
}

impl Record for ChannelRefs {
    keys! { "channel_type", "channel_ids" }

    fn value(&self, key: &str, _: usize) -> Option<Value<'_>> {
        Some(match key {
            "channel_type" => Value::Text(self.channel_type.name()),
            _ => Value::Positions(&self.channels),
        })
    }
}

impl Record for RemoteBufferRefs {
    keys! { "access_channel_type", "remote_buffer_ids" }

    fn value(&self, key: &str, _: usize) -> Option<Value<'_>> {
        Some(match key {
            "access_channel_type" => Value::Text(self.access.name()),
            _ => Value::Positions(&self.buffers),
        })
    }
}

/// A semaphore is its initial value.
impl Record for u64 {
    keys! { "init_value" }

    fn value(&self, _: &str, _: usize) -> Option<Value<'_>> {
        Some(Value::Number(*self))
    }
}
