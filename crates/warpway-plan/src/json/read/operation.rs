//! From JSON: operations and references. An operation is collected key by key, whatever its name, and then made of
//! what it needs; keys may come in any order.

use std::sync::Arc;

use serde::de::Deserializer;

use super::slot::{Context, Key, Keys, Object, Read, Slot, SwitchClaim, optional, required};
use crate::check::{Clipped, Notes};
use crate::ir::{
    Action, BufferKind, ChannelType, DataKind, DataOperation, Fold, GroupMember, Location, Operation,
    Pipeline, ReduceOp, Reference, Via,
};

/// The name of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Name {
    Nop,
    Barrier,
    Signal { relaxed: bool },
    Wait { relaxed: bool },
    Flush,
    Acquire,
    Release,
    Pipeline,
    Data(DataKind),
}

impl Name {
    const CONTROL: &'static [(Self, &'static str)] = &[
        (Self::Nop, "nop"),
        (Self::Barrier, "barrier"),
        (Self::Signal { relaxed: false }, "signal"),
        (Self::Signal { relaxed: true }, "rlxsignal"),
        (Self::Wait { relaxed: false }, "wait"),
        (Self::Wait { relaxed: true }, "rlxwait"),
        (Self::Flush, "flush"),
        (Self::Acquire, "sem_acquire"),
        (Self::Release, "sem_release"),
        (Self::Pipeline, "pipeline"),
    ];

    fn from_name(name: &str) -> Option<Self> {
        let control = Self::CONTROL.iter().find(|(_, known)| *known == name).map(|(value, _)| *value);
        control.or_else(|| DataKind::from_name(name).map(Self::Data))
    }

    /// The keys that mean something to it. For operations on data those that the plan can hold.
    fn keys(self) -> &'static [&'static str] {
        match self {
            Self::Nop => &[],
            Self::Barrier => &["barrier_id", "num_threadblocks"],
            Self::Signal { .. } | Self::Wait { .. } | Self::Flush => &["channel_type", "channel_ids"],
            Self::Acquire | Self::Release => &["semaphore_ids"],
            Self::Pipeline => &["iter_context", "ops"],
            Self::Data(_) => {
                &["channel_type", "channel_ids", "src_buff", "dst_buff", "tbg_info", "reduce_op", "order"]
            }
        }
    }
}

/// An operation as the file has it.
#[derive(Default)]
pub(in crate::json) struct OperationFile {
    name: Option<Name>,
    /// The outer `None`: no such key, or a wrong one; the inner: "none".
    channel_type: Option<Option<ChannelType>>,
    channels: Vec<u32>,
    sources: Vec<Reference>,
    destinations: Vec<Reference>,
    group: Option<GroupMember>,
    reduce_op: Option<ReduceOp>,
    order: Option<Vec<u32>>,
    barrier: u32,
    blocks: u32,
    semaphores: Vec<u32>,
    iteration: IterationFile,
    body: Vec<Operation>,
    location: Option<Arc<Location>>,
    // The lone glre of MSCCL++.
    buffer: Option<BufferKind>,
    offset: u64,
    size: u64,
    destination: Option<Reference>,
}

/// What the lone glre of MSCCL++ has instead of references.
const PRINTED_GLRE: &[&str] = &["buffer_type", "buffer_offset", "size", "dst_chunk"];

impl Object for OperationFile {
    const KEYS: &'static [Key] = &[
        required("name", "the name of an operation"),
        optional("src_buff"),
        optional("dst_buff"),
        optional("channel_ids"),
        optional("channel_type"),
        optional("tbg_info"),
        optional("reduce_op"),
        optional("order"),
        optional("barrier_id"),
        optional("num_threadblocks"),
        optional("semaphore_ids"),
        optional("iter_context"),
        optional("ops"),
        optional("loc"),
        optional("buffer_type"),
        optional("buffer_offset"),
        optional("size"),
        optional("dst_chunk"),
    ];

    fn field<'de, D: Deserializer<'de>>(&mut self, key: &str, slot: Slot<'_, D>) -> Result<(), D::Error> {
        match key {
            "name" => {
                let data = DataKind::NAMED.iter().map(|(kind, name)| (Name::Data(*kind), *name));
                self.name =
                    slot.named(102, Name::from_name, || Name::CONTROL.iter().copied().chain(data).collect())?;
            }
            "src_buff" => self.sources = slot.list()?,
            "dst_buff" => self.destinations = slot.list()?,
            "channel_ids" => self.channels = slot.list()?,
            "channel_type" => {
                let from_name = |name: &str| match name {
                    "none" => Some(None),
                    name => ChannelType::from_name(name).map(Some),
                };
                let names = || {
                    let types = ChannelType::NAMED.iter().map(|(value, name)| (Some(*value), *name));
                    types.chain([(None, "none")]).collect()
                };
                self.channel_type = slot.named(103, from_name, names)?;
            }
            "tbg_info" => {
                let mut file = GroupMemberFile::default();
                slot.object(&mut file)?;
                self.group = Some(GroupMember { member: file.member, size: file.size });
            }
            "reduce_op" => {
                self.reduce_op = slot.named(103, ReduceOp::from_name, || ReduceOp::NAMED.to_vec())?
            }
            "order" => self.order = Some(slot.list()?),
            "barrier_id" => self.barrier = slot.position()?.unwrap_or_default(),
            "num_threadblocks" => self.blocks = slot.position()?.unwrap_or_default(),
            "semaphore_ids" => self.semaphores = slot.list()?,
            "iter_context" => {
                slot.object(&mut self.iteration)?;
            }
            // A pipeline within a pipeline is refused as a whole (V107); this also bounds the recursion.
            "ops" if slot.context.notes.path.count("ops") > 2 => slot.skip()?,
            "ops" => self.body = slot.list()?,
            "loc" => self.location = read_location(slot)?,
            "buffer_type" => {
                self.buffer = slot.named(103, BufferKind::from_name, || BufferKind::NAMED.to_vec())?
            }
            "buffer_offset" => self.offset = slot.number()?.unwrap_or_default(),
            "size" => self.size = slot.number()?.unwrap_or_default(),
            "dst_chunk" => self.destination = Some(Reference::read(slot)?),
            _ => slot.skip()?,
        }
        Ok(())
    }
}

impl Read for Operation {
    fn read<'de, D: Deserializer<'de>>(slot: Slot<'_, D>) -> Result<Self, D::Error> {
        let Slot { deserializer, context } = slot;
        let errors = context.notes.n_errors();
        let mut file = OperationFile::default();
        let keys = Slot::new(deserializer, &mut *context).object(&mut file)?;
        let location = file.location.take();
        let action = match (keys, file.name) {
            // What is mistyped would be found missing as well.
            (Some(keys), Some(name)) if context.notes.n_errors() == errors => {
                file.action(name, keys, context)
            }
            _ => Action::Nop,
        };
        Ok(match context.notes.n_errors() == errors {
            true => Self { action, location },
            // Stands for what could not be read; nothing more is found wrong with it.
            false => Action::Nop.into(),
        })
    }
}

impl OperationFile {
    /// `keys` are those that the file has.
    fn action(self, name: Name, keys: Keys, context: &mut Context) -> Action {
        let has = |key: &str| keys.has::<Self>(key);
        let printed_glre =
            name == Name::Data(DataKind::GroupLoadReduce) && PRINTED_GLRE.iter().any(|key| has(key));
        let notes = &mut context.notes;
        for key in keys.names::<Self>() {
            let known = ["name", "loc"].contains(&key) || name.keys().contains(&key);
            // "none" says nothing, wherever it stands.
            let empty = key == "channel_type" && self.channel_type == Some(None);
            if !(known || empty || (printed_glre && PRINTED_GLRE.contains(&key))) {
                // An order says that the author takes the operation for a fold.
                match key {
                    "order" => notes.note_key(key, 111, "an order", "none: the operation is no fold"),
                    _ => notes.note_key(key, 106, "a value", "none: the operation ignores it"),
                }
            }
        }
        let mut needs = |key, what: &str| {
            if !has(key) {
                notes.note_key(key, 105, "nothing", what);
            }
        };
        match name {
            Name::Nop => Action::Nop,
            Name::Barrier => {
                needs("barrier_id", "the number of a barrier");
                needs("num_threadblocks", "a number of blocks");
                Action::Barrier { id: self.barrier, blocks: self.blocks }
            }
            Name::Signal { relaxed } => {
                needs("channel_ids", "a list of channel positions");
                Action::Signal { via: self.via(notes), relaxed, channels: self.channels }
            }
            Name::Wait { relaxed } => {
                needs("channel_ids", "a list of channel positions");
                Action::Wait { via: self.via(notes), relaxed, channels: self.channels }
            }
            Name::Flush => {
                needs("channel_ids", "a list of channel positions");
                match self.channel_type.flatten() {
                    Some(ChannelType::Port) => {}
                    Some(other) => {
                        notes.note_key(
                            "channel_type",
                            108,
                            format!("`{other}`"),
                            "`port`: only ports have requests",
                        );
                    }
                    None => notes.note_key("channel_type", 105, "nothing", "`port`"),
                }
                Action::Flush { channels: self.channels }
            }
            Name::Acquire | Name::Release => {
                needs("semaphore_ids", "a list of semaphores");
                match name {
                    Name::Acquire => Action::Acquire { semaphores: self.semaphores },
                    _ => Action::Release { semaphores: self.semaphores },
                }
            }
            Name::Pipeline => {
                needs("iter_context", "unit_size and num_chunks");
                needs("ops", "a list of operations");
                let IterationFile { unit_size, num_chunks, size_id } = self.iteration;
                Action::Pipeline(Box::new(Pipeline { unit_size, num_chunks, size_id, body: self.body }))
            }
            Name::Data(_) if printed_glre => self.printed_glre(keys, context),
            Name::Data(kind) => {
                needs("src_buff", "a list of references");
                needs("dst_buff", "a list of references");
                if self.order.is_some() && self.reduce_op.is_none() {
                    match kind.is_fold() {
                        true => {
                            notes.note_key("reduce_op", 105, "nothing", format!("an operator for `{kind}`"))
                        }
                        false => notes.note_key("order", 111, "an order", "none: the operation is no fold"),
                    }
                }
                Action::Data(Box::new(DataOperation {
                    kind,
                    channel_type: self.channel_type.flatten(),
                    sources: self.sources,
                    destinations: self.destinations,
                    channels: self.channels,
                    fold: self.reduce_op.map(|op| Fold { op, order: self.order }),
                    group: self.group,
                }))
            }
        }
    }

    fn via(&self, notes: &mut Notes) -> Via {
        const EXPECTED: &str = "`memory` or `port`";
        match self.channel_type.flatten() {
            Some(ChannelType::Memory) => Via::Memory,
            Some(ChannelType::Port) => Via::Port,
            Some(ChannelType::Switch) => {
                notes.note_key("channel_type", 108, "`switch`", EXPECTED);
                Via::Memory
            }
            None => {
                notes.note_key("channel_type", 105, "nothing", EXPECTED);
                Via::Memory
            }
        }
    }

    /// The lone glre as MSCCL++ prints it: without lists of references, and in some versions without operator or
    /// channel type.
    fn printed_glre(self, keys: Keys, context: &mut Context) -> Action {
        let notes = &mut context.notes;
        for key in ["src_buff", "dst_buff"].iter().filter(|key| keys.has::<Self>(key)) {
            notes.note_key(key, 105, "a list beside `dst_chunk`", "one form of `glre`, not both");
        }
        for key in PRINTED_GLRE.iter().chain(&["channel_ids"]).filter(|key| !keys.has::<Self>(key)) {
            notes.note_key(key, 105, "nothing", "a value, as in the other keys of this `glre`");
        }
        let position = self.channels.first().copied().unwrap_or_default();
        if self.channels.len() != 1 && keys.has::<Self>("channel_ids") {
            notes.note_key("channel_ids", 105, format!("{} channels", self.channels.len()), "exactly 1");
        }
        if let (Some(buffer), Some(place)) = (self.buffer, notes.path.place()) {
            let block = place.block.unwrap_or_default() as usize;
            context.claims.push(SwitchClaim { operation: notes.path.clone(), block, position, buffer });
        }
        context.printed_glre = true;
        Action::Data(Box::new(DataOperation {
            kind: DataKind::GroupLoadReduce,
            channel_type: self.channel_type.unwrap_or(Some(ChannelType::Switch)),
            sources: vec![Reference::Switch { position, index: self.offset, size: self.size }],
            destinations: self.destination.into_iter().collect(),
            channels: Vec::new(),
            fold: Some(Fold { op: self.reduce_op.unwrap_or(ReduceOp::Sum), order: self.order }),
            group: self.group,
        }))
    }
}

/// `"file:line"`.
fn read_location<'de, D: Deserializer<'de>>(slot: Slot<'_, D>) -> Result<Option<Arc<Location>>, D::Error> {
    let Slot { deserializer, context } = slot;
    let Some(text) = Slot::new(deserializer, &mut *context).text()? else { return Ok(None) };
    let parsed = text.rsplit_once(':').and_then(|(file, line)| {
        // `parse` would take a sign as well.
        let line = line.bytes().all(|byte| byte.is_ascii_digit()).then(|| line.parse().ok())??;
        Some(Arc::new(Location { file: file.to_owned(), line }))
    });
    if parsed.is_none() {
        let found = format!("\"{}\"", Clipped(&text));
        context.notes.note(101, found, "\"file:line\"");
    }
    Ok(parsed)
}

#[derive(Default)]
pub(in crate::json) struct GroupMemberFile {
    member: u32,
    size: u32,
}

impl Object for GroupMemberFile {
    const KEYS: &'static [Key] =
        &[required("tb_id", "the number within the group"), required("tbg_size", "the number of members")];

    fn field<'de, D: Deserializer<'de>>(&mut self, key: &str, slot: Slot<'_, D>) -> Result<(), D::Error> {
        match key {
            "tb_id" => self.member = slot.position()?.unwrap_or_default(),
            _ => self.size = slot.position()?.unwrap_or_default(),
        }
        Ok(())
    }
}

#[derive(Default)]
pub(in crate::json) struct IterationFile {
    unit_size: u64,
    num_chunks: u64,
    size_id: Option<u64>,
}

impl Object for IterationFile {
    const KEYS: &'static [Key] =
        &[required("unit_size", "bytes"), required("num_chunks", "a number of chunks"), optional("size_id")];

    fn field<'de, D: Deserializer<'de>>(&mut self, key: &str, slot: Slot<'_, D>) -> Result<(), D::Error> {
        match key {
            "unit_size" => self.unit_size = slot.number()?.unwrap_or_default(),
            "num_chunks" => self.num_chunks = slot.number()?.unwrap_or_default(),
            _ => self.size_id = slot.number()?,
        }
        Ok(())
    }
}

#[derive(Default)]
pub(in crate::json) struct ReferenceFile {
    buffer: Option<BufferKind>,
    remote: u32,
    switch: u32,
    index: u64,
    size: u64,
}

impl Object for ReferenceFile {
    const KEYS: &'static [Key] = &[
        optional("type"),
        optional("buffer_id"),
        optional("switch_channel_id"),
        required("index", "a chunk"),
        required("size", "a number of chunks"),
    ];
    const OPEN: bool = true;

    fn field<'de, D: Deserializer<'de>>(&mut self, key: &str, slot: Slot<'_, D>) -> Result<(), D::Error> {
        match key {
            "type" => self.buffer = slot.named(103, BufferKind::from_name, || BufferKind::NAMED.to_vec())?,
            "buffer_id" => self.remote = slot.position()?.unwrap_or_default(),
            "switch_channel_id" => self.switch = slot.position()?.unwrap_or_default(),
            "index" => self.index = slot.number()?.unwrap_or_default(),
            _ => self.size = slot.number()?.unwrap_or_default(),
        }
        Ok(())
    }
}

impl Read for Reference {
    fn read<'de, D: Deserializer<'de>>(slot: Slot<'_, D>) -> Result<Self, D::Error> {
        let Slot { deserializer, context } = slot;
        let mut file = ReferenceFile::default();
        let keys = Slot::new(deserializer, &mut *context).object(&mut file)?;
        let ReferenceFile { buffer, remote, switch, index, size } = file;
        let has = |key: &str| keys.is_some_and(|keys| keys.has::<ReferenceFile>(key));
        Ok(match (has("type"), has("buffer_id"), has("switch_channel_id")) {
            (true, false, false) => {
                Self::Local { buffer: buffer.unwrap_or(BufferKind::Scratch), index, size }
            }
            (false, true, false) => Self::Remote { position: remote, index, size },
            (false, false, true) => Self::Switch { position: switch, index, size },
            (local, remote, switch) => {
                let expected = "one of `type`, `buffer_id` and `switch_channel_id`";
                if keys.is_some() {
                    let count = usize::from(local) + usize::from(remote) + usize::from(switch);
                    context.notes.note(101, format!("{count} of them"), expected);
                }
                Self::Local { buffer: BufferKind::Scratch, index, size }
            }
        })
    }
}
