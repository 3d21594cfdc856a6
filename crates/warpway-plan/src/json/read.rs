//! From JSON: the plan, its ranks and their tables.

use std::collections::BTreeSet;

use serde::de::Deserializer;

use super::slot::{Context, Key, Object, Read, Slot, SwitchClaim, optional, required};
use crate::check::{Finding, Noted, Notes, check};
use crate::ir::{
    BufferKind, ChannelEntry, ChannelRefs, ChannelType, Collective, Extension, Operation, Plan, Protocol,
    RankGroup, RankPlan, RemoteBuffer, RemoteBufferRefs, SizeIds, ThreadBlock,
};

/// A plan that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadPlan {
    /// The plan; [`Plan::check`] finds no error in it.
    pub plan: Plan,
    /// Keys that were ignored (V106); at most a hundred.
    pub warnings: Vec<Finding>,
    /// How many more there were.
    pub more_warnings: u64,
}

/// A file that is no plan.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// Not JSON.
    #[error("not JSON: line {line}, column {column}: {message}")]
    Syntax {
        /// From 1.
        line: usize,
        /// From 1; 0 if the file ends at the line's start.
        column: usize,
        /// What is wrong.
        message: String,
    },
    /// JSON, but no plan: V101 to V111.
    #[error("{}", Listed(errors, *more_errors))]
    NoPlan {
        /// Those of the reader come first, then those of [`Plan::check`]; each in the order of the file. One at
        /// least, a hundred at most.
        errors: Vec<Finding>,
        /// How many more there were.
        more_errors: u64,
        /// What would only have been noted.
        warnings: Vec<Finding>,
    },
}

/// The first finding and how many follow.
struct Listed<'f>(&'f [Finding], u64);

impl std::fmt::Display for Listed<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self([first, others @ ..], more) = self else { return f.write_str("no plan") };
        write!(f, "no plan: {first}")?;
        match (others.len() as u64).saturating_add(*more) {
            0 => Ok(()),
            others => write!(f, " (and {others} more)"),
        }
    }
}

impl Plan {
    /// Reads a plan. Numbers are exact, keys may come in any order, those of the older forms (switch entries with
    /// `buff`, blocks without `remote_buffer_refs`, ranks without `semaphores`, the lone `glre` of MSCCL++) are
    /// understood. Time and memory are linear in the length of `json`, whatever it contains.
    ///
    /// The file of the plan is right in its form (V1), not in its meaning: that is the verifier's.
    ///
    /// # Errors
    /// [`ReadError::Syntax`] at the first byte that is not JSON, [`ReadError::NoPlan`] with all findings otherwise.
    pub fn from_json(json: &[u8]) -> Result<ReadPlan, ReadError> {
        let text = std::str::from_utf8(json).map_err(|error| {
            let before = &json[..error.valid_up_to()];
            let line_start = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            ReadError::Syntax {
                line: before.iter().filter(|byte| **byte == b'\n').count() + 1,
                column: before.len() - line_start + 1,
                message: "not UTF-8".into(),
            }
        })?;
        let mut deserializer = serde_json::Deserializer::from_str(text);
        let mut context = Context::default();
        let mut file = PlanFile::default();
        let result = Slot::new(&mut deserializer, &mut context).object(&mut file);
        result.and_then(|_| deserializer.end()).map_err(|error| {
            let message = error.to_string();
            let place = format!(" at line {} column {}", error.line(), error.column());
            ReadError::Syntax {
                line: error.line(),
                column: error.column(),
                message: message.strip_suffix(&place).unwrap_or(&message).to_owned(),
            }
        })?;
        let plan = file.plan(&context);
        // An operation or table that could not be read has left a placeholder, right in its form; only a list of
        // ranks that could not be read would be found wrong twice.
        if !(plan.ranks.is_empty() && context.notes.n_errors() > 0) {
            check(&plan, &mut context.notes);
        }
        let Noted { errors, more_errors, warnings, more_warnings } = context.notes.finish();
        match errors.is_empty() {
            true => Ok(ReadPlan { plan, warnings, more_warnings }),
            false => Err(ReadError::NoPlan { errors, more_errors, warnings }),
        }
    }
}

/// The top of the file.
#[derive(Default)]
pub(super) struct PlanFile {
    name: String,
    collective: Option<Collective>,
    protocol: Option<Protocol>,
    in_place: bool,
    reuse_resources: bool,
    double_scratch: bool,
    threads_per_block: Option<u32>,
    buffer_alignment: Option<u64>,
    min_message_size: u64,
    max_message_size: Option<u64>,
    ranks: Vec<RankPlan>,
    extensions: Vec<ListedExtension>,
}

impl Object for PlanFile {
    const KEYS: &'static [Key] = &[
        required("name", "a string"),
        required("collective", "the name of a collective"),
        required("protocol", "\"Simple\" or \"LL\""),
        required("inplace", "true or false"),
        optional("reuse_resources"),
        required("gpus", "a list of ranks"),
        optional("num_threads_per_block"),
        optional("use_double_scratch_buffer"),
        optional("buffer_alignment"),
        optional("min_message_size"),
        optional("max_message_size"),
        optional("extensions"),
    ];

    fn field<'de, D: Deserializer<'de>>(&mut self, key: &str, slot: Slot<'_, D>) -> Result<(), D::Error> {
        match key {
            "name" => self.name = slot.text()?.unwrap_or_default().into_owned(),
            "collective" => {
                self.collective = slot.named(103, Collective::from_name, || Collective::NAMED.to_vec())?
            }
            "protocol" => {
                self.protocol = slot.named(103, Protocol::from_name, || Protocol::NAMED.to_vec())?
            }
            "inplace" => self.in_place = slot.boolean()?,
            "reuse_resources" => self.reuse_resources = slot.boolean()?,
            "use_double_scratch_buffer" => self.double_scratch = slot.boolean()?,
            "num_threads_per_block" => self.threads_per_block = slot.position()?,
            "buffer_alignment" => self.buffer_alignment = slot.number()?,
            "min_message_size" => self.min_message_size = slot.number()?.unwrap_or_default(),
            "max_message_size" => self.max_message_size = slot.number()?,
            "gpus" => self.ranks = slot.list()?,
            "extensions" => self.extensions = slot.list()?,
            _ => slot.skip()?,
        }
        Ok(())
    }
}

impl PlanFile {
    fn plan(self, context: &Context) -> Plan {
        let mut extensions: BTreeSet<Extension> = self.extensions.into_iter().filter_map(|e| e.0).collect();
        // The shape that MSCCL++ prints needs no listing; the one that Warpway will write does.
        if context.printed_glre {
            extensions.insert(Extension::LoadReduce);
        }
        Plan {
            name: self.name,
            collective: self.collective.unwrap_or(Collective::Custom),
            protocol: self.protocol.unwrap_or(Protocol::Simple),
            in_place: self.in_place,
            reuse_resources: self.reuse_resources,
            double_scratch: self.double_scratch,
            threads_per_block: self.threads_per_block.unwrap_or(1024),
            buffer_alignment: self.buffer_alignment.unwrap_or(16),
            min_message_size: self.min_message_size,
            max_message_size: self.max_message_size.unwrap_or(u64::MAX),
            ranks: self.ranks,
            extensions,
        }
    }
}

/// `None` for a name that nothing goes by.
struct ListedExtension(Option<Extension>);

impl Read for ListedExtension {
    fn read<'de, D: Deserializer<'de>>(slot: Slot<'_, D>) -> Result<Self, D::Error> {
        slot.named(110, Extension::from_name, || Extension::NAMED.to_vec()).map(Self)
    }
}

/// A rank as the file has it.
#[derive(Default)]
pub(super) struct RankFile {
    rank: RankPlan,
    input_size_ids: Vec<u64>,
    output_size_ids: Vec<u64>,
    scratch_size_ids: Vec<u64>,
}

impl Object for RankFile {
    const KEYS: &'static [Key] = &[
        required("id", "the position in the list"),
        required("input_chunks", "a number of chunks"),
        required("output_chunks", "a number of chunks"),
        required("scratch_chunks", "a number of chunks"),
        required("threadblocks", "a list of blocks"),
        required("channels", "a list of channels"),
        required("remote_buffers", "a list of remote buffers"),
        optional("semaphores"),
        optional("input_size_ids"),
        optional("output_size_ids"),
        optional("scratch_size_ids"),
    ];

    fn field<'de, D: Deserializer<'de>>(&mut self, key: &str, slot: Slot<'_, D>) -> Result<(), D::Error> {
        match key {
            "id" => read_id(slot)?,
            "input_chunks" => self.rank.input_chunks = slot.number()?.unwrap_or_default(),
            "output_chunks" => self.rank.output_chunks = slot.number()?.unwrap_or_default(),
            "scratch_chunks" => self.rank.scratch_chunks = slot.number()?.unwrap_or_default(),
            "threadblocks" => self.rank.blocks = slot.list()?,
            "channels" => self.rank.channels = slot.list()?,
            "remote_buffers" => self.rank.remote_buffers = slot.list()?,
            "semaphores" => {
                let semaphores: Vec<SemaphoreFile> = slot.list()?;
                self.rank.semaphores = semaphores.into_iter().map(|semaphore| semaphore.init_value).collect();
            }
            "input_size_ids" => self.input_size_ids = slot.list()?,
            "output_size_ids" => self.output_size_ids = slot.list()?,
            "scratch_size_ids" => self.scratch_size_ids = slot.list()?,
            _ => slot.skip()?,
        }
        Ok(())
    }
}

impl Read for RankPlan {
    fn read<'de, D: Deserializer<'de>>(slot: Slot<'_, D>) -> Result<Self, D::Error> {
        let Slot { deserializer, context } = slot;
        let mut file = RankFile::default();
        let keys = Slot::new(deserializer, context).object(&mut file)?.unwrap_or_default();
        let sized = ["input_size_ids", "output_size_ids", "scratch_size_ids"];
        if sized.iter().any(|key| keys.has::<RankFile>(key)) {
            file.rank.size_ids = Some(SizeIds {
                input: file.input_size_ids,
                output: file.output_size_ids,
                scratch: file.scratch_size_ids,
            });
        }
        check_claims(&file.rank, std::mem::take(&mut context.claims), &mut context.notes);
        Ok(file.rank)
    }
}

/// The buffers that lone glres name must be those of their channels.
fn check_claims(rank: &RankPlan, claims: Vec<SwitchClaim>, notes: &mut Notes) {
    if claims.is_empty() {
        return;
    }
    let mut buffers: Vec<BufferKind> = Vec::new();
    for entry in &rank.channels {
        if let ChannelEntry::Switch { buffer, groups } = entry {
            buffers.extend(std::iter::repeat_n(*buffer, groups.len()));
        }
    }
    for claim in claims {
        let channels = rank.blocks.get(claim.block).map_or(&[][..], |b| b.channels_of(ChannelType::Switch));
        let channel = channels.get(claim.position as usize);
        // A position that points nowhere is the verifier's (V205).
        let Some(buffer) = channel.and_then(|channel| buffers.get(*channel as usize)) else { continue };
        if *buffer != claim.buffer {
            let above = std::mem::replace(&mut notes.path, claim.operation);
            notes.note_key(
                "buffer_type",
                105,
                format!("`{}`", claim.buffer),
                format!("`{buffer}`, as its channel"),
            );
            notes.path = above;
        }
    }
}

/// The number of a rank or block is its position (V104).
fn read_id<'de, D: Deserializer<'de>>(slot: Slot<'_, D>) -> Result<(), D::Error> {
    let Slot { deserializer, context } = slot;
    let id = Slot::new(deserializer, context).number()?;
    let notes = &mut context.notes;
    if let (Some(id), Some(position)) = (id, notes.path.index())
        && id != position
    {
        notes.note(104, id, format!("{position}, its position"));
    }
    Ok(())
}

#[derive(Default)]
pub(super) struct SemaphoreFile {
    init_value: u64,
}

impl Object for SemaphoreFile {
    const KEYS: &'static [Key] = &[required("init_value", "a number")];

    fn field<'de, D: Deserializer<'de>>(&mut self, _: &str, slot: Slot<'_, D>) -> Result<(), D::Error> {
        self.init_value = slot.number()?.unwrap_or_default();
        Ok(())
    }
}

/// Objects that are read as they are.
macro_rules! read_object {
    ($($type:ty),+) => {$(
        impl Read for $type {
            fn read<'de, D: Deserializer<'de>>(slot: Slot<'_, D>) -> Result<Self, D::Error> {
                let mut value = Self::default();
                slot.object(&mut value)?;
                Ok(value)
            }
        }
    )+};
}

read_object!(SemaphoreFile, ThreadBlock, GroupFile);

impl Object for ThreadBlock {
    const KEYS: &'static [Key] = &[
        required("id", "the position in the list"),
        required("ops", "a list of operations"),
        required("channels", "a list of channels"),
        optional("remote_buffer_refs"),
    ];

    fn field<'de, D: Deserializer<'de>>(&mut self, key: &str, slot: Slot<'_, D>) -> Result<(), D::Error> {
        match key {
            "id" => read_id(slot)?,
            "ops" => self.operations = slot.list::<Operation>()?,
            "channels" => self.channels = slot.list()?,
            "remote_buffer_refs" => self.remote_buffers = slot.list()?,
            _ => slot.skip()?,
        }
        Ok(())
    }
}

#[derive(Default)]
pub(super) struct ChannelRefsFile {
    channel_type: Option<ChannelType>,
    channels: Vec<u32>,
}

impl Object for ChannelRefsFile {
    const KEYS: &'static [Key] = &[
        required("channel_type", "the type of a channel"),
        required("channel_ids", "a list of channel indices"),
        // Written by older versions, read by none.
        optional("buff"),
    ];

    fn field<'de, D: Deserializer<'de>>(&mut self, key: &str, slot: Slot<'_, D>) -> Result<(), D::Error> {
        match key {
            "channel_type" => {
                self.channel_type = slot.named(103, ChannelType::from_name, || ChannelType::NAMED.to_vec())?
            }
            "channel_ids" => self.channels = slot.list()?,
            _ => slot.skip()?,
        }
        Ok(())
    }
}

impl Read for ChannelRefs {
    fn read<'de, D: Deserializer<'de>>(slot: Slot<'_, D>) -> Result<Self, D::Error> {
        let mut file = ChannelRefsFile::default();
        slot.object(&mut file)?;
        let channel_type = file.channel_type.unwrap_or(ChannelType::Memory);
        Ok(Self { channel_type, channels: file.channels })
    }
}

#[derive(Default)]
pub(super) struct BufferRefsFile {
    access: Option<ChannelType>,
    buffers: Vec<u32>,
}

impl Object for BufferRefsFile {
    const KEYS: &'static [Key] = &[
        required("access_channel_type", "\"memory\" or \"port\""),
        required("remote_buffer_ids", "a list of remote buffer indices"),
    ];

    fn field<'de, D: Deserializer<'de>>(&mut self, key: &str, slot: Slot<'_, D>) -> Result<(), D::Error> {
        match key {
            "access_channel_type" => {
                self.access = slot.named(103, ChannelType::from_name, || ACCESSES.to_vec())?
            }
            _ => self.buffers = slot.list()?,
        }
        Ok(())
    }
}

/// How a remote buffer may be reached.
const ACCESSES: &[(ChannelType, &str)] = &[(ChannelType::Memory, "memory"), (ChannelType::Port, "port")];

impl Read for RemoteBufferRefs {
    fn read<'de, D: Deserializer<'de>>(slot: Slot<'_, D>) -> Result<Self, D::Error> {
        let mut file = BufferRefsFile::default();
        slot.object(&mut file)?;
        Ok(Self { access: file.access.unwrap_or(ChannelType::Memory), buffers: file.buffers })
    }
}

#[derive(Default)]
pub(super) struct ChannelEntryFile {
    channel_type: Option<ChannelType>,
    peers: Vec<u32>,
    buffer: Option<BufferKind>,
    groups: Vec<GroupFile>,
}

impl Object for ChannelEntryFile {
    const KEYS: &'static [Key] = &[
        required("channel_type", "the type of a channel"),
        optional("connected_to"),
        optional("buffer_type"),
        // The same, in older versions.
        optional("buff"),
        optional("rank_groups"),
    ];

    fn field<'de, D: Deserializer<'de>>(&mut self, key: &str, slot: Slot<'_, D>) -> Result<(), D::Error> {
        match key {
            "channel_type" => {
                self.channel_type = slot.named(103, ChannelType::from_name, || ChannelType::NAMED.to_vec())?
            }
            "connected_to" => self.peers = slot.list()?,
            "buffer_type" | "buff" => {
                self.buffer = slot.named(103, BufferKind::from_name, || BufferKind::NAMED.to_vec())?
            }
            "rank_groups" => self.groups = slot.list()?,
            _ => slot.skip()?,
        }
        Ok(())
    }
}

impl Read for ChannelEntry {
    fn read<'de, D: Deserializer<'de>>(slot: Slot<'_, D>) -> Result<Self, D::Error> {
        let Slot { deserializer, context } = slot;
        let mut file = ChannelEntryFile::default();
        let keys = Slot::new(deserializer, &mut *context).object(&mut file)?;
        let placeholder = Self::Memory(Vec::new());
        let (Some(keys), Some(channel_type)) = (keys, file.channel_type) else { return Ok(placeholder) };
        let has = |key: &str| keys.has::<ChannelEntryFile>(key);
        let notes = &mut context.notes;
        let unused: &[&'static str] = match channel_type {
            ChannelType::Switch => &["connected_to"],
            _ => &["buffer_type", "buff", "rank_groups"],
        };
        for key in unused.iter().filter(|key| has(key)) {
            notes.note_key(key, 106, "a value", format!("none: `{channel_type}` channels ignore it"));
        }
        let mut missing = |key, what: &str| {
            if !has(key) {
                notes.note_key(key, 101, "nothing", what);
            }
        };
        Ok(match channel_type {
            ChannelType::Memory | ChannelType::Port => {
                missing("connected_to", "a list of ranks");
                match channel_type {
                    ChannelType::Port => Self::Port(file.peers),
                    _ => Self::Memory(file.peers),
                }
            }
            ChannelType::Switch => {
                missing("rank_groups", "a list of groups");
                if !has("buff") {
                    missing("buffer_type", "\"i\", \"o\" or \"s\"");
                } else if has("buffer_type") {
                    notes.note_key("buff", 101, "a second value", "`buffer_type` alone");
                }
                let groups =
                    file.groups.into_iter().map(|g| RankGroup { size: g.size, ranks: g.ranks }).collect();
                Self::Switch { buffer: file.buffer.unwrap_or(BufferKind::Scratch), groups }
            }
        })
    }
}

#[derive(Default)]
pub(super) struct GroupFile {
    size: u64,
    ranks: Vec<u32>,
}

impl Object for GroupFile {
    const KEYS: &'static [Key] =
        &[required("size", "the number of ranks"), required("ranks", "a list of ranks")];

    fn field<'de, D: Deserializer<'de>>(&mut self, key: &str, slot: Slot<'_, D>) -> Result<(), D::Error> {
        match key {
            "size" => self.size = slot.number()?.unwrap_or_default(),
            _ => self.ranks = slot.list()?,
        }
        Ok(())
    }
}

#[derive(Default)]
pub(super) struct RemoteBufferFile {
    rank: u32,
    buffer: Option<BufferKind>,
    accesses: Vec<Access>,
}

impl Object for RemoteBufferFile {
    const KEYS: &'static [Key] = &[
        required("rank", "the owner"),
        required("type", "\"i\", \"o\" or \"s\""),
        required("access_channel_types", "a list of \"memory\" and \"port\""),
    ];

    fn field<'de, D: Deserializer<'de>>(&mut self, key: &str, slot: Slot<'_, D>) -> Result<(), D::Error> {
        match key {
            "rank" => self.rank = slot.position()?.unwrap_or_default(),
            "type" => self.buffer = slot.named(103, BufferKind::from_name, || BufferKind::NAMED.to_vec())?,
            _ => self.accesses = slot.list()?,
        }
        Ok(())
    }
}

struct Access(Option<ChannelType>);

impl Read for Access {
    fn read<'de, D: Deserializer<'de>>(slot: Slot<'_, D>) -> Result<Self, D::Error> {
        let known = |name: &str| ACCESSES.iter().find(|(_, known)| *known == name).map(|(access, _)| *access);
        slot.named(103, known, || ACCESSES.to_vec()).map(Self)
    }
}

impl Read for RemoteBuffer {
    fn read<'de, D: Deserializer<'de>>(slot: Slot<'_, D>) -> Result<Self, D::Error> {
        let mut file = RemoteBufferFile::default();
        slot.object(&mut file)?;
        let has = |access| file.accesses.iter().any(|found| found.0 == Some(access));
        Ok(Self {
            rank: file.rank,
            // A placeholder must not be found wrong again; packets may go to scratch.
            buffer: file.buffer.unwrap_or(BufferKind::Scratch),
            memory_access: has(ChannelType::Memory),
            port_access: has(ChannelType::Port),
        })
    }
}
