//! The plan, its ranks and their blocks.

use std::collections::BTreeSet;

use serde::de::Deserializer;

use super::slot::{Context, Key, Object, Read, Slot, SwitchClaim, optional, required};
use super::tables::SemaphoreFile;
use crate::check::Notes;
use crate::ir::{
    BufferKind, ChannelEntry, ChannelType, Collective, Extension, Operation, Plan, Protocol, RankPlan,
    SizeIds, ThreadBlock,
};

/// The top of the file.
#[derive(Default)]
pub(in crate::json) struct PlanFile {
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
    pub(super) fn plan(self, context: &Context) -> Plan {
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
pub(in crate::json) struct RankFile {
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

impl Read for ThreadBlock {
    fn read<'de, D: Deserializer<'de>>(slot: Slot<'_, D>) -> Result<Self, D::Error> {
        let mut value = Self::default();
        slot.object(&mut value)?;
        Ok(value)
    }
}
