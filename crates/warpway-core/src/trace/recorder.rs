//! A ring of the last N operations: sequence, operation, peer, sizes, state, times.

use std::fmt::{self, Display};
use std::sync::Mutex;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::health::lock;
use crate::wait::WaitSite;

/// Everything that can appear in a record or in a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Operation {
    /// Joining the job: check-in at the root until all links stand.
    BootstrapInit,
    /// `Bootstrap::send`.
    BootstrapSend,
    /// `Bootstrap::recv`.
    BootstrapRecv,
    /// `Bootstrap::all_gather`.
    BootstrapAllGather,
    /// `Bootstrap::broadcast`.
    BootstrapBroadcast,
    /// `Bootstrap::barrier` and `group_barrier`.
    BootstrapBarrier,
    /// `Communicator::split`.
    Split,
    /// Waiting for a peer's memory record.
    RecvMemory,
    /// Importing (mapping) a peer's memory.
    ImportMemory,
    /// Connecting to a peer.
    Connect,
    /// Building a semaphore with a peer.
    BuildSemaphore,
    /// Publishing a buffer one-sidedly and waiting for acknowledgements.
    Publish,
    /// `Connection::write`.
    Write,
    /// `Connection::update_and_sync`.
    UpdateAndSync,
    /// `Connection::atomic_add`.
    AtomicAdd,
    /// `Connection::flush` or a channel's flush.
    Flush,
    /// A channel's put.
    Put,
    /// A channel's get.
    Get,
    /// A semaphore's signal.
    Signal,
    /// A semaphore's wait.
    Wait,
    /// Reading packets.
    ReadPackets,
    /// Pushing to a FIFO whose slot is still occupied.
    FifoPush,
    /// Waiting until a FIFO element has been consumed.
    FifoSync,
    /// A request handled by a proxy.
    ProxyRequest,
    /// A barrier between blocks of one kernel.
    GridBarrier,
    /// A kernel, from launch until its blocks have ended.
    Launch,
}

impl Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The serialised names are the public ones.
        match serde_json::to_value(self) {
            Ok(serde_json::Value::String(name)) => f.write_str(&name),
            _ => f.write_str("operation"),
        }
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
    /// Ended with this error.
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

/// Names one recorded operation; its line may have been overwritten since.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordId(u64);

/// See the module's page.
#[derive(Debug)]
pub struct FlightRecorder {
    epoch: Instant,
    capacity: usize,
    ring: Mutex<Ring>,
}

#[derive(Debug)]
struct Ring {
    next: u64,
    lines: Vec<RecordedOperation>,
}

impl FlightRecorder {
    /// Keeps the last `capacity` operations (at least one).
    pub fn new(capacity: usize) -> Self {
        let capacity = capacity.max(1);
        Self {
            epoch: Instant::now(),
            capacity,
            ring: Mutex::new(Ring { next: 0, lines: Vec::with_capacity(capacity) }),
        }
    }

    /// Records the beginning of an operation.
    pub fn start(&self, request: Request) -> RecordId {
        let started_ns = self.now();
        let mut ring = lock(&self.ring);
        let sequence = ring.next;
        ring.next += 1;
        let Request { operation, peer, object, bytes, offset } = request;
        let state = OperationState::Started;
        let line = RecordedOperation {
            sequence,
            operation,
            peer,
            object,
            bytes,
            offset,
            state,
            started_ns,
            ended_ns: 0,
        };
        let slot = (sequence % self.capacity as u64) as usize;
        if slot < ring.lines.len() {
            ring.lines[slot] = line;
        } else {
            ring.lines.push(line);
        }
        RecordId(sequence)
    }

    /// Records a wait that is about to sleep.
    pub fn start_wait(&self, site: &WaitSite) -> RecordId {
        let WaitSite { operation, peer, object, .. } = *site;
        self.start(Request { operation, peer, object, bytes: 0, offset: 0 })
    }

    /// The operation ended well.
    pub fn complete(&self, id: RecordId) {
        self.end(id, OperationState::Completed);
    }

    /// The operation ended with an error.
    pub fn fail(&self, id: RecordId, error: &dyn Display) {
        self.end(id, OperationState::Failed(error.to_string()));
    }

    /// The lines that are still there, oldest first.
    pub fn snapshot(&self) -> Vec<RecordedOperation> {
        let mut lines = lock(&self.ring).lines.clone();
        lines.sort_by_key(|line| line.sequence);
        lines
    }

    fn end(&self, id: RecordId, state: OperationState) {
        let ended_ns = self.now();
        let mut ring = lock(&self.ring);
        let slot = (id.0 % self.capacity as u64) as usize;
        if let Some(line) = ring.lines.get_mut(slot).filter(|line| line.sequence == id.0) {
            line.state = state;
            line.ended_ns = ended_ns;
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.epoch.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}
