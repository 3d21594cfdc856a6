//! The names of the file for everything that has one.

use super::{BufferKind, ChannelType, Collective, DataKind, Extension, Protocol, ReduceOp};

/// Defines `name`, `from_name` and the list of all values.
macro_rules! names {
    ($type:ty { $($variant:ident = $name:literal),+ $(,)? }) => {
        impl $type {
            /// Every value.
            pub const NAMED: &'static [(Self, &'static str)] = &[$((Self::$variant, $name)),+];

            /// Its name in the file.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name),+
                }
            }

            /// The value of that name, if there is one.
            pub fn from_name(name: &str) -> Option<Self> {
                match name {
                    $($name => Some(Self::$variant),)+
                    _ => None,
                }
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}

names!(Collective {
    AllReduce = "allreduce",
    AllGather = "allgather",
    ReduceScatter = "reducescatter",
    AllToAll = "alltoall",
    SendRecv = "sendrecv",
    Broadcast = "broadcast",
    Reduce = "reduce",
    Gather = "gather",
    Scatter = "scatter",
    Test = "test",
    Custom = "custom",
});

names!(Protocol { Simple = "Simple", LowLatency = "LL" });

names!(Extension {
    LoadReduce = "glre",
    Order = "order",
    ReduceOp = "reduce_op",
    SizedChunks = "sized_chunks",
    ScratchCredits = "scratch_credits",
});

names!(ChannelType { Memory = "memory", Port = "port", Switch = "switch" });

names!(BufferKind { Input = "i", Output = "o", Scratch = "s" });

names!(ReduceOp { Sum = "sum", Min = "min", Max = "max", Prod = "prod", Avg = "avg" });

names!(DataKind {
    Copy = "copy",
    Put = "put",
    PutWithSignal = "pws",
    PutWithSignalAndFlush = "pwsf",
    Get = "get",
    PutPackets = "ppkt",
    CopyPackets = "cpkt",
    UnpackPackets = "upkt",
    ReadPutPackets = "rppkt",
    Reduce = "re",
    ReduceSend = "res",
    ReadReduce = "rre",
    ReadReduceSend = "rres",
    ReducePackets = "repkt",
    ReduceSendPackets = "respkt",
    ReduceCopyPackets = "recpkt",
    ReduceCopySendPackets = "recspkt",
    GroupLoadReduce = "glre",
    GroupLoadReduceStore = "glres",
    GroupStore = "gstore",
    GroupStorePackets = "gstorepkt",
});
