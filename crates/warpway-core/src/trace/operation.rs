//! What can be recorded: operations, their states and the lines of the recorder.

use std::fmt::{self, Display};

use serde::{Deserialize, Serialize};

/// Declares [`Operation`] together with its public names, so that there is one list to extend.
macro_rules! operations {
    ($($(#[doc = $doc:literal])+ $variant:ident = $name:literal,)+) => {
        /// Everything that can appear in a record or in a wait.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[non_exhaustive]
        #[repr(u8)]
        pub enum Operation {
            $($(#[doc = $doc])+ #[serde(rename = $name)] $variant,)+
        }

        impl Operation {
            /// Every operation, in the order of their numbers.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The public name: in errors, dumps and traces.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),+ }
            }
        }
    };
}

operations! {
    /// Joining the job: check-in at the root until all links stand.
    BootstrapInit = "bootstrap_init",
    /// `Bootstrap::send`.
    BootstrapSend = "bootstrap_send",
    /// `Bootstrap::recv`.
    BootstrapRecv = "bootstrap_recv",
    /// `Bootstrap::all_gather`.
    BootstrapAllGather = "bootstrap_all_gather",
    /// `Bootstrap::broadcast`.
    BootstrapBroadcast = "bootstrap_broadcast",
    /// `Bootstrap::barrier` and `group_barrier`.
    BootstrapBarrier = "bootstrap_barrier",
    /// `Communicator::split`.
    Split = "split",
    /// Sending a memory record, until the peer has imported it.
    SendMemory = "send_memory",
    /// Waiting for a peer's memory record.
    RecvMemory = "recv_memory",
    /// Importing (mapping) a peer's memory.
    ImportMemory = "import_memory",
    /// Connecting to a peer.
    Connect = "connect",
    /// Building a semaphore with a peer.
    BuildSemaphore = "build_semaphore",
    /// Publishing a buffer one-sidedly and waiting for acknowledgements.
    Publish = "publish",
    /// `Connection::write`.
    Write = "write",
    /// `Connection::update_and_sync`.
    UpdateAndSync = "update_and_sync",
    /// `Connection::atomic_add`.
    AtomicAdd = "atomic_add",
    /// `Connection::flush` or a channel's flush.
    Flush = "flush",
    /// A channel's put.
    Put = "put",
    /// A channel's get.
    Get = "get",
    /// A semaphore's signal.
    Signal = "signal",
    /// A semaphore's wait.
    Wait = "wait",
    /// Reading packets.
    ReadPackets = "read_packets",
    /// Pushing to a FIFO whose slot is still occupied.
    FifoPush = "fifo_push",
    /// Waiting until a FIFO element has been consumed.
    FifoSync = "fifo_sync",
    /// A request handled by a proxy.
    ProxyRequest = "proxy_request",
    /// A barrier between blocks of one kernel.
    GridBarrier = "grid_barrier",
    /// A kernel, from launch until its blocks have ended.
    Launch = "launch",
    /// Sending to a rank.
    Send = "send",
    /// Receiving from a rank.
    Recv = "recv",
    /// Sends and receives that progress together.
    Group = "group",
}

impl Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// How far an operation has come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OperationState {
    /// Begun.
    Started,
    /// Ended well.
    Completed,
    /// Ended with this error (shortened to 1 KiB).
    Failed(String),
}

/// What is recorded when an operation begins.
#[derive(Debug, Clone, Copy)]
pub struct Request {
    /// The operation.
    pub operation: Operation,
    /// The rank it concerns.
    pub peer: Option<u32>,
    /// Channel, semaphore, connection, tag or slot.
    pub object: u64,
    /// Payload bytes.
    pub bytes: u64,
    /// Offset at the destination.
    pub offset: u64,
}

/// One line of the recorder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedOperation {
    /// Position in the communicator's history, from 0.
    pub sequence: u64,
    /// The operation.
    pub operation: Operation,
    /// The rank it concerns.
    pub peer: Option<u32>,
    /// Channel, semaphore, connection, tag or slot.
    pub object: u64,
    /// Payload bytes.
    pub bytes: u64,
    /// Offset at the destination.
    pub offset: u64,
    /// How far it has come.
    pub state: OperationState,
    /// Nanoseconds since the recorder was made.
    pub started_ns: u64,
    /// The same for its end; 0 while it runs.
    pub ended_ns: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_round_trip() {
        for (number, operation) in Operation::ALL.iter().enumerate() {
            assert_eq!(*operation as usize, number);
            let json = serde_json::to_string(operation).unwrap();
            assert_eq!(json, format!("\"{operation}\""));
            assert_eq!(serde_json::from_str::<Operation>(&json).unwrap(), *operation);
        }
        assert_eq!(Operation::ALL.last(), Some(&Operation::Group));
        assert_eq!(Operation::BootstrapAllGather.to_string(), "bootstrap_all_gather");
    }
}
