//! The tables of ranks and blocks: channels, remote buffers, semaphores.

use serde::de::Deserializer;

use super::slot::{Key, Object, Read, Slot, optional, required};
use crate::ir::{
    BufferKind, ChannelEntry, ChannelRefs, ChannelType, RankGroup, RemoteBuffer, RemoteBufferRefs,
};

#[derive(Default)]
pub(in crate::json) struct SemaphoreFile {
    pub(super) init_value: u64,
}

impl Object for SemaphoreFile {
    const KEYS: &'static [Key] = &[required("init_value", "a number")];

    fn field<'de, D: Deserializer<'de>>(&mut self, _: &str, slot: Slot<'_, D>) -> Result<(), D::Error> {
        self.init_value = slot.number()?.unwrap_or_default();
        Ok(())
    }
}

impl Read for SemaphoreFile {
    fn read<'de, D: Deserializer<'de>>(slot: Slot<'_, D>) -> Result<Self, D::Error> {
        let mut value = Self::default();
        slot.object(&mut value)?;
        Ok(value)
    }
}

#[derive(Default)]
pub(in crate::json) struct ChannelRefsFile {
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
pub(in crate::json) struct BufferRefsFile {
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
pub(in crate::json) struct ChannelEntryFile {
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
pub(in crate::json) struct GroupFile {
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
pub(in crate::json) struct RemoteBufferFile {
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

impl Read for GroupFile {
    fn read<'de, D: Deserializer<'de>>(slot: Slot<'_, D>) -> Result<Self, D::Error> {
        let mut value = Self::default();
        slot.object(&mut value)?;
        Ok(value)
    }
}
