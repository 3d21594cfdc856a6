//! Which references each data operation takes, and over which channels it goes.

use crate::ir::{ChannelType, DataKind, Reference};

/// What a reference points into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
    Local,
    Remote,
    Switch,
}

impl Target {
    pub(super) fn of(reference: &Reference) -> Self {
        match reference {
            Reference::Local { .. } => Self::Local,
            Reference::Remote { .. } => Self::Remote,
            Reference::Switch { .. } => Self::Switch,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Local => "a local reference (`type`)",
            Self::Remote => "a remote reference (`buffer_id`)",
            Self::Switch => "a switch reference (`switch_channel_id`)",
        }
    }
}

/// A list of references: some of given targets, then, if `rest` is given, one or more of that target.
#[derive(Debug, Clone, Copy)]
pub(super) struct Row {
    pub(super) leading: &'static [Target],
    pub(super) rest: Option<Target>,
}

impl Row {
    pub(super) fn accepts(&self, length: usize) -> bool {
        match self.rest {
            Some(_) => length > self.leading.len(),
            None => length == self.leading.len(),
        }
    }

    /// The target at a position.
    pub(super) fn target(&self, position: usize) -> Option<Target> {
        self.leading.get(position).copied().or(self.rest)
    }

    /// The lengths it accepts, in words.
    pub(super) fn lengths(&self) -> String {
        match (self.rest, self.leading.len()) {
            (Some(_), leading) => format!("{} or more", leading + 1),
            (None, length) => format!("exactly {length}"),
        }
    }
}

/// What one kind of operation looks like.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    pub(super) sources: Row,
    pub(super) destinations: Row,
    /// `None` in it stands for no channel.
    pub(super) channel_types: &'static [Option<ChannelType>],
}

impl Shape {
    /// The tables of plan-format.md, 5.3 to 5.6.
    pub(super) fn of(kind: DataKind) -> Self {
        use DataKind::*;
        use Target::*;
        const LOCAL: Row = Row { leading: &[Local], rest: None };
        const LOCALS: Row = Row { leading: &[], rest: Some(Local) };
        const REMOTES: Row = Row { leading: &[], rest: Some(Remote) };
        const SWITCH: Row = Row { leading: &[Switch], rest: None };
        const LOCAL_LOCALS: Row = Row { leading: &[Local], rest: Some(Local) };
        const LOCAL_REMOTES: Row = Row { leading: &[Local], rest: Some(Remote) };
        const TWO_LOCALS: Row = Row { leading: &[Local, Local], rest: None };
        const TWO_LOCALS_REMOTES: Row = Row { leading: &[Local, Local], rest: Some(Remote) };

        let (sources, destinations) = match kind {
            Copy | CopyPackets | UnpackPackets => (LOCAL, LOCAL),
            Put | PutWithSignal | PutWithSignalAndFlush | PutPackets => (LOCALS, REMOTES),
            Get => (REMOTES, LOCALS),
            ReadPutPackets => (LOCAL, REMOTES),
            Reduce | ReducePackets => (LOCAL_LOCALS, LOCAL),
            ReduceSend | ReduceSendPackets => (LOCAL_LOCALS, LOCAL_REMOTES),
            ReadReduce => (LOCAL_REMOTES, LOCAL),
            ReadReduceSend => (LOCAL_REMOTES, LOCAL_REMOTES),
            ReduceCopyPackets => (LOCAL_LOCALS, TWO_LOCALS),
            ReduceCopySendPackets => (LOCAL_LOCALS, TWO_LOCALS_REMOTES),
            GroupLoadReduce => (SWITCH, LOCAL),
            GroupLoadReduceStore => (SWITCH, SWITCH),
            GroupStore | GroupStorePackets => (LOCAL, SWITCH),
        };
        let channel_types: &[Option<ChannelType>] = match kind {
            Copy | CopyPackets | UnpackPackets | Reduce | ReducePackets | ReduceCopyPackets => &[None],
            Put | PutWithSignal | PutPackets | ReadPutPackets => {
                &[Some(ChannelType::Memory), Some(ChannelType::Port)]
            }
            PutWithSignalAndFlush => &[Some(ChannelType::Port)],
            Get | ReduceSend | ReadReduce | ReadReduceSend | ReduceSendPackets | ReduceCopySendPackets => {
                &[Some(ChannelType::Memory)]
            }
            GroupLoadReduce | GroupLoadReduceStore | GroupStore | GroupStorePackets => {
                &[Some(ChannelType::Switch)]
            }
        };
        Self { sources, destinations, channel_types }
    }

    /// Their names, in words.
    pub(super) fn channel_type_names(&self) -> String {
        let names = self.channel_types.iter().map(|t| t.map_or("`none`".into(), |t| format!("`{t}`")));
        names.collect::<Vec<String>>().join(" or ")
    }

    /// True if source `j` goes to destination `j`.
    pub(super) fn is_paired(&self) -> bool {
        self.sources.leading.is_empty() && self.destinations.leading.is_empty()
    }
}
