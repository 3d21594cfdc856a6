//! Connections: ordered one-sided writes and word updates to one peer.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::deadline::Deadline;
use crate::endpoint::Endpoint;
use crate::error::{ErrorCode, Result, seconds};
use crate::memory::{Access, RegisteredMemory};
use crate::trace::{Operation, Request};
use crate::transport::{DeviceKind, Transport};
use crate::wait::Waiter;

/// Endpoints and connections.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectionError {
    /// The two endpoints do not fit.
    #[error("cannot connect {local} here with {remote} of rank {peer}: {why}")]
    Incompatible {
        /// Transport here.
        local: Transport,
        /// Transport there.
        remote: Transport,
        /// The peer.
        peer: u32,
        /// The rule that is broken.
        why: &'static str,
    },
    /// The peer could not be reached, or did not answer in time.
    #[error("connecting to rank {peer} by {transport} failed after {}: {why}", seconds(.elapsed))]
    Unreachable {
        /// The peer.
        peer: u32,
        /// The transport.
        transport: Transport,
        /// Time spent.
        elapsed: Duration,
        /// Each address tried, with its error.
        why: String,
    },
    /// The connection broke; everything posted and not completed is lost.
    #[error("connection of rank {rank} to rank {peer} by {transport} broke during {operation}: {why}")]
    Broken {
        /// The rank whose end says so.
        rank: u32,
        /// The peer.
        peer: u32,
        /// The transport.
        transport: Transport,
        /// What was going on.
        operation: Operation,
        /// The system's or the peer's words.
        why: String,
    },
    /// The peer has closed the connection in good order: it posts nothing more, and what it has not read it does not need.
    #[error(
        "rank {peer} has closed its connection to rank {rank} by {transport}; {open} operations were not acknowledged"
    )]
    Closed {
        /// The rank whose end says so.
        rank: u32,
        /// The peer.
        peer: u32,
        /// The transport.
        transport: Transport,
        /// Operations posted here whose completion is not known.
        open: u64,
    },
    /// The peer refused an operation (a range or access its own table does not permit).
    #[error("rank {peer} refused {operation} by {transport}: {why}")]
    Refused {
        /// The peer.
        peer: u32,
        /// The transport.
        transport: Transport,
        /// The operation.
        operation: Operation,
        /// The peer's words.
        why: String,
    },
    /// A flush did not complete in time.
    #[error(
        "flush of the connection to rank {peer} by {transport} timed out: position {completed} of {wanted} reached"
    )]
    FlushTimeout {
        /// The peer.
        peer: u32,
        /// The transport.
        transport: Transport,
        /// Position the flush waited for.
        wanted: u64,
        /// Position reached.
        completed: u64,
    },
}

impl ConnectionError {
    /// The numeric code.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Incompatible { .. } => ErrorCode::InvalidUsage,
            Self::Unreachable { .. } | Self::Broken { .. } | Self::Closed { .. } | Self::Refused { .. } => {
                ErrorCode::RemoteError
            }
            Self::FlushTimeout { .. } => ErrorCode::Timeout,
        }
    }

    /// A stable id.
    pub fn id(&self) -> &'static str {
        match self {
            Self::Incompatible { .. } => "conn.incompatible",
            Self::Unreachable { .. } => "conn.unreachable",
            Self::Broken { .. } => "conn.broken",
            Self::Closed { .. } => "conn.closed",
            Self::Refused { .. } => "conn.refused",
            Self::FlushTimeout { .. } => "conn.flush_timeout",
        }
    }

    /// The peer concerned.
    pub fn peer(&self) -> Option<u32> {
        match self {
            Self::Incompatible { peer, .. }
            | Self::Unreachable { peer, .. }
            | Self::Broken { peer, .. }
            | Self::Closed { peer, .. }
            | Self::Refused { peer, .. }
            | Self::FlushTimeout { peer, .. } => Some(*peer),
        }
    }
}

/// Number of operations posted on a connection up to and including one of them; the first is 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Position(pub u64);

/// A range of one memory; checked before it reaches an engine.
#[derive(Debug, Clone, Copy)]
pub struct Span<'a> {
    /// The memory.
    pub memory: &'a RegisteredMemory,
    /// First byte.
    pub offset: u64,
}

/// A copy between two ranges, each of `size` bytes.
#[derive(Debug, Clone, Copy)]
pub struct Put<'a> {
    /// Where to.
    pub destination: Span<'a>,
    /// Where from.
    pub source: Span<'a>,
    /// How much.
    pub size: u64,
}

/// A value for a remote word.
#[derive(Debug, Clone, Copy)]
pub struct Store<'a> {
    /// The word.
    pub destination: Span<'a>,
    /// What it becomes.
    pub value: u64,
}

/// What an engine provides for one connection. Arguments have been validated by [`Connection`].
///
/// Operations take effect at the destination in the order of the calls. Calls come from several threads;
/// the engine orders them. A call may block for flow control only for as long as this connection's own
/// queue is full, and gives up when the communicator fails.
pub trait RawConnection: Send + Sync {
    /// Copies `size` bytes; the source may be reused once [`completed`](Self::completed) reaches the position.
    fn write(&self, destination: Span<'_>, source: Span<'_>, size: u64) -> Result<Position>;

    /// Makes the remote word equal `value`, after everything posted before.
    fn store(&self, destination: Span<'_>, value: u64) -> Result<Position>;

    /// [`store`](Self::store) for each of them in turn, for engines that save something by having all at once. The
    /// position is that of the last one. After an error some may have been posted.
    fn store_all(&self, stores: &[Store<'_>]) -> Result<Position> {
        stores
            .iter()
            .try_fold(self.posted(), |_, Store { destination, value }| self.store(*destination, *value))
    }

    /// Adds to the remote word, after everything posted before.
    fn add(&self, destination: Span<'_>, delta: i64) -> Result<Position>;

    /// Makes ready what the first [`add`](Self::add) would make ready, which may wait for kernels on the device.
    ///
    /// # Errors
    /// Those of what is missing; the first addition will fail with them, all other operations work.
    fn prepare_add(&self) -> Result<()> {
        Ok(())
    }

    /// Makes the counter of a remote token equal `value`, after everything posted before; `value` is one more than at
    /// the last raise of this token, so that adding one does the same.
    fn raise(&self, destination: Span<'_>, value: u64) -> Result<Position> {
        let _ = value;
        self.add(destination, 1)
    }

    /// [`write`](Self::write) and then [`raise`](Self::raise), for engines that save something by having both at once.
    /// The position is that of the second. After an error the first may have been posted.
    fn write_and_raise(&self, put: Put<'_>, token: Span<'_>, value: u64) -> Result<Position> {
        self.write(put.destination, put.source, put.size)?;
        self.raise(token, value)
    }

    /// Keeps `what` at least until the operation at `position` has arrived; dropping it may call back into the core, so
    /// no lock is held then. Default: keeps nothing.
    fn keep(&self, position: Position, what: &Arc<dyn Any + Send + Sync>) {
        let _ = (position, what);
    }

    /// The highest position up to which everything is complete here and ordered there.
    ///
    /// # Errors
    /// If the connection has failed; positions then stay incomplete for ever.
    fn completed(&self) -> Result<Position>;

    /// Waits until `completed` reaches `position`.
    fn flush(&self, position: Position, deadline: Deadline) -> Result<()>;

    /// The position of the last operation posted.
    fn posted(&self) -> Position;

    /// Operations in flight above which a proxy serves other connections first.
    fn max_write_queue_size(&self) -> u64;

    /// Operations posted and not known to be complete. An engine that has to ask for completions need not do so while
    /// there are few.
    ///
    /// # Errors
    /// As [`completed`](Self::completed).
    fn in_flight(&self) -> Result<u64> {
        // Posted first: it only grows, so the difference cannot be negative.
        let posted = self.posted().0;
        Ok(posted.saturating_sub(self.completed()?.0))
    }

    /// Lets go of what complete operations have needed. True once nothing is left to let go of. For engines that find out
    /// what is complete only when they are asked: whoever posts, and has nothing else to do, asks now and then.
    ///
    /// # Errors
    /// As [`completed`](Self::completed).
    fn let_go(&self) -> Result<bool> {
        Ok(true)
    }

    /// Tells `listener`, while it lives, of every growth of [`completed`](Self::completed) and of a failure.
    ///
    /// Between the growth and the call lies a sequentially consistent fence: a listener that notes what it
    /// waits for, fences, and then finds it incomplete is sure to be told.
    ///
    /// False: this connection tells nobody, and has to be asked.
    fn watch(&self, _listener: Weak<dyn CompletionListener>) -> bool {
        false
    }
}

/// Who is told how far a connection has come.
pub trait CompletionListener: Send + Sync {
    /// Everything up to `completed` is complete; `None`: the connection has failed. On a thread of the engine,
    /// so it must not block.
    fn advanced(&self, completed: Option<Position>);
}

/// A connection to one peer. Cheap to clone, `Send + Sync`.
///
/// Operations of one connection take effect in posting order; [`flush`](Self::flush) covers what was
/// posted before it and nothing else. Two connections are not ordered with each other.
#[derive(Clone)]
pub struct Connection(Arc<Inner>);

struct Inner {
    raw: Box<dyn RawConnection>,
    local: Endpoint,
    remote: Endpoint,
    /// Rank of the peer in the communicator that made the connection.
    peer: u32,
    waiter: Waiter,
    /// What must outlive the connection: the scope of the communicator that made it.
    keeper: Option<Arc<dyn Any + Send + Sync>>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(keeper) = self.keeper.take() {
            // The news that this rank has left goes another way, and must not overtake what it has still sent.
            self.raw.keep(self.raw.posted(), &keeper);
        }
    }
}

/// A connection that may be gone.
#[derive(Clone)]
pub struct WeakConnection(Weak<Inner>);

impl WeakConnection {
    /// The connection, while some clone of it lives.
    pub fn upgrade(&self) -> Option<Connection> {
        self.0.upgrade().map(Connection)
    }

    /// True if `connection` is a clone of it.
    pub fn is(&self, connection: &Connection) -> bool {
        std::ptr::eq(self.0.as_ptr(), Arc::as_ptr(&connection.0))
    }
}

impl Connection {
    /// Wraps what an engine made. `peer` is the peer's rank in the communicator `waiter` belongs to.
    pub fn new(
        raw: Box<dyn RawConnection>,
        local: Endpoint,
        remote: Endpoint,
        peer: u32,
        waiter: Waiter,
    ) -> Self {
        Self(Arc::new(Inner { raw, local, remote, peer, waiter, keeper: None }))
    }

    /// The same, and `keeper` lives as long as the connection. No effect once the connection has been cloned.
    pub fn keeping(mut self, keeper: Arc<dyn Any + Send + Sync>) -> Self {
        if let Some(inner) = Arc::get_mut(&mut self.0) {
            inner.keeper = Some(keeper);
        }
        self
    }

    /// Does not keep the connection.
    pub fn downgrade(&self) -> WeakConnection {
        WeakConnection(Arc::downgrade(&self.0))
    }

    /// Posts a one-sided copy of `size` bytes. The source may be reused after [`flush`](Self::flush).
    ///
    /// # Errors
    /// Ranges outside the memories, a missing transport or permission, a broken connection, a failed
    /// communicator. Nothing has been written then, except where the connection broke midway.
    pub fn write(
        &self,
        destination: &RegisteredMemory,
        destination_offset: u64,
        source: &RegisteredMemory,
        source_offset: u64,
        size: u64,
    ) -> Result<Position> {
        let (destination, source) = (
            Span { memory: destination, offset: destination_offset },
            Span { memory: source, offset: source_offset },
        );
        self.check_put(Put { destination, source, size })?;
        self.post(Operation::Write, destination.offset, size, || self.0.raw.write(destination, source, size))
    }

    /// Sets `source` to `new` and makes the remote 64-bit word equal to it, after all earlier operations
    /// of this connection.
    ///
    /// # Errors
    /// As [`write`](Self::write); also if the offset is not a multiple of 8.
    pub fn update_and_sync(
        &self,
        destination: &RegisteredMemory,
        destination_offset: u64,
        source: &mut u64,
        new: u64,
    ) -> Result<Position> {
        const NAME: &str = "update_and_sync";
        self.check_word(NAME, destination, destination_offset)?;
        let span = Span { memory: destination, offset: destination_offset };
        let position =
            self.post(Operation::UpdateAndSync, destination_offset, 8, || self.0.raw.store(span, new))?;
        *source = new;
        Ok(position)
    }

    /// Makes each remote word equal its value, one after the other, after all earlier operations of this connection.
    ///
    /// # Errors
    /// As [`update_and_sync`](Self::update_and_sync). Unless the connection broke, either all are posted or none.
    pub fn store_all(&self, stores: &[Store<'_>]) -> Result<Position> {
        for Store { destination, .. } in stores {
            self.check_word("store_all", destination.memory, destination.offset)?;
        }
        let offset = stores.first().map_or(0, |store| store.destination.offset);
        self.post(Operation::UpdateAndSync, offset, 8 * stores.len() as u64, || self.0.raw.store_all(stores))
    }

    /// Adds `delta` to the remote 64-bit word (wrapping), after all earlier operations of this connection.
    ///
    /// # Errors
    /// As [`update_and_sync`](Self::update_and_sync).
    pub fn atomic_add(
        &self,
        destination: &RegisteredMemory,
        destination_offset: u64,
        delta: i64,
    ) -> Result<Position> {
        const NAME: &str = "atomic_add";
        self.check_word(NAME, destination, destination_offset)?;
        let span = Span { memory: destination, offset: destination_offset };
        self.post(Operation::AtomicAdd, destination_offset, 8, || self.0.raw.add(span, delta))
    }

    /// Makes ready what the first [`atomic_add`](Self::atomic_add) would make ready, which may wait for kernels on the
    /// device. Changes nothing else.
    ///
    /// # Errors
    /// Those of what is missing: additions will fail with them, all other operations work.
    pub fn prepare_atomic_add(&self) -> Result<()> {
        self.0.raw.prepare_add()
    }

    /// Makes a token of the peer equal `value`, one more than at the last time.
    pub(crate) fn raise(&self, token: &RegisteredMemory, offset: u64, value: u64) -> Result<Position> {
        const NAME: &str = "signal";
        self.check_word(NAME, token, offset)?;
        let span = Span { memory: token, offset };
        self.post(Operation::AtomicAdd, offset, 8, || self.0.raw.raise(span, value))
    }

    /// The same after a [`write`](Self::write), by one call of the engine. If it fails the bytes may have been written,
    /// which are not complete ever.
    pub(crate) fn write_and_raise(&self, put: Put<'_>, token: Span<'_>, value: u64) -> Result<Position> {
        self.check_put(put)?;
        self.check_word("signal", token.memory, token.offset)?;
        let Inner { waiter, raw, .. } = &*self.0;
        waiter.health.check_during(Operation::Write)?;
        // Lines of their own, as by two calls.
        let write = self.request(Operation::Write, put.destination.offset, put.size);
        let raise = self.request(Operation::AtomicAdd, token.offset, 8);
        let records = [write, raise].map(|request| waiter.recorder.start(request));
        let result = raw.write_and_raise(put, token, value).map_err(|e| e.during(Operation::Write));
        records.into_iter().for_each(|record| self.close(record, &result));
        result
    }

    /// Keeps `what` until an operation is complete, where the engine needs that.
    pub(crate) fn keep(&self, position: Position, what: &Arc<dyn Any + Send + Sync>) {
        self.0.raw.keep(position, what);
    }

    /// Waits until everything posted before the call is complete here and ordered there. Later traffic
    /// does not delay it.
    pub fn flush(&self, deadline: Deadline) -> Result<()> {
        self.flush_to(self.0.raw.posted(), deadline)
    }

    /// Waits for one position.
    pub fn flush_to(&self, position: Position, deadline: Deadline) -> Result<()> {
        self.0.waiter.health.check_during(Operation::Flush)?;
        if self.completed()? >= position {
            return Ok(());
        }
        let request = self.request(Operation::Flush, 0, 0);
        let record = self.0.waiter.recorder.start(request);
        let result = self.0.raw.flush(position, deadline).map_err(|e| e.during(Operation::Flush));
        self.close(record, &result);
        result
    }

    /// The position to wait for; does not block.
    pub fn try_flush(&self) -> Position {
        self.0.raw.posted()
    }

    /// The highest position that is complete.
    pub fn completed(&self) -> Result<Position> {
        self.0.raw.completed().map_err(|e| e.during(Operation::Flush))
    }

    /// Tells `listener` how far the connection has come, see [`RawConnection::watch`]. False if it cannot.
    pub fn watch(&self, listener: Weak<dyn CompletionListener>) -> bool {
        self.0.raw.watch(listener)
    }

    /// Transport of this side.
    pub fn transport(&self) -> Transport {
        self.0.local.transport
    }

    /// Transport of the other side.
    pub fn remote_transport(&self) -> Transport {
        self.0.remote.transport
    }

    /// The endpoint here.
    pub fn local(&self) -> &Endpoint {
        &self.0.local
    }

    /// The endpoint there.
    pub fn remote(&self) -> &Endpoint {
        &self.0.remote
    }

    /// The same for all clones, different for two connections that live at the same time.
    pub(crate) fn key(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }

    /// Rank of the peer in the communicator that made the connection.
    pub fn peer(&self) -> u32 {
        self.0.peer
    }

    /// The communicator's health, recorder and back-off.
    pub fn waiter(&self) -> &Waiter {
        &self.0.waiter
    }

    /// Operations in flight above which a proxy serves other connections first.
    pub fn max_write_queue_size(&self) -> u64 {
        self.0.raw.max_write_queue_size()
    }

    /// Operations posted and not known to be complete.
    ///
    /// # Errors
    /// As [`completed`](Self::completed).
    pub fn in_flight(&self) -> Result<u64> {
        self.0.raw.in_flight()
    }

    /// Lets go of what complete operations have needed; see [`RawConnection::let_go`].
    pub(crate) fn let_go(&self) -> Result<bool> {
        self.0.raw.let_go().map_err(|e| e.during(Operation::Flush))
    }

    fn check_put(&self, put: Put<'_>) -> Result<()> {
        const NAME: &str = "write";
        let Put { destination, source, size } = put;
        destination.memory.require(NAME, self.transport())?;
        destination.memory.require_access(NAME, Access::WRITE)?;
        destination.memory.check_range(NAME, destination.offset, size)?;
        source.memory.address(NAME, source.offset, size)?;
        Ok(())
    }

    fn check_word(&self, name: &'static str, destination: &RegisteredMemory, offset: u64) -> Result<()> {
        destination.require(name, self.transport())?;
        destination.require_access(name, Access::ATOMIC)?;
        destination.check_word(name, offset)?;
        Ok(())
    }

    fn request(&self, operation: Operation, offset: u64, bytes: u64) -> Request {
        Request { operation, peer: Some(self.0.peer), object: self.0.local.id, bytes, offset }
    }

    fn post(
        &self,
        operation: Operation,
        offset: u64,
        bytes: u64,
        post: impl FnOnce() -> Result<Position>,
    ) -> Result<Position> {
        self.0.waiter.health.check_during(operation)?;
        let record = self.0.waiter.recorder.start(self.request(operation, offset, bytes));
        let result = post().map_err(|e| e.during(operation));
        self.close(record, &result);
        result
    }

    fn close<T>(&self, record: crate::trace::RecordId, result: &Result<T>) {
        match result {
            Ok(_) => self.0.waiter.recorder.complete(record),
            Err(error) => self.0.waiter.recorder.fail(record, error),
        }
    }
}

/// The rules for joining two endpoints, the same for every engine. Errors name the owner of `remote` as `peer`.
pub fn check_compatible(local: &Endpoint, remote: &Endpoint, peer: u32) -> Result<(), ConnectionError> {
    let refuse = |why| {
        Err(ConnectionError::Incompatible { local: local.transport, remote: remote.transport, peer, why })
    };
    let cpu = |e: &Endpoint| e.device.kind == DeviceKind::Cpu;
    let gpu_without_id = |e: &Endpoint| e.device.kind == DeviceKind::Gpu && e.device.id < 0;
    match local.transport {
        _ if local.transport == Transport::Unknown || remote.transport == Transport::Unknown => {
            refuse("an endpoint has no transport; choose one")
        }
        _ if !local.transport.same_family(remote.transport) => refuse("the transports differ"),
        _ if gpu_without_id(local) || gpu_without_id(remote) => refuse("a GPU endpoint has no device id"),
        Transport::CudaIpc if cpu(local) && cpu(remote) => refuse("CudaIpc needs a GPU on at least one side"),
        Transport::SharedMemory if !cpu(local) || !cpu(remote) => {
            refuse("SharedMemory joins CPU endpoints only")
        }
        Transport::SharedMemory if local.host != remote.host => {
            refuse("SharedMemory does not reach another host; use Ethernet")
        }
        _ => Ok(()),
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("peer", &self.0.peer)
            .field("transport", &self.transport())
            .finish_non_exhaustive()
    }
}
