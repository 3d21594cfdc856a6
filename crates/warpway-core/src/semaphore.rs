//! Semaphores: a token on each side that the other side raises.
//!
//! A token lies where the waiter is. On a GPU kernels wait for it, and a peer raises it in one of two ways: its kernels
//! add to it, or its host (a proxy, as a rule) makes it equal to the number of signals sent, through the connection.
//! One semaphore is used in one of the two ways only, as the second one overwrites what the first one adds.

use std::fmt;
use std::sync::{Arc, Mutex};

use crate::connection::{Connection, ConnectionError, Position, Put, Span};
use crate::deadline::Timeout;
use crate::error::{Error, Result};
use crate::health::lock;
use crate::memory::{MappedToken, MemoryError, RegisteredMemory};
use crate::sync::{AtomicU64, Ordering};
use crate::token::Token;
use crate::trace::Operation;
use crate::transport::{DeviceKind, Transport};
use crate::wait::{WaitSite, Waiter};

/// One token of a token memory.
#[derive(Debug, Clone)]
pub struct TokenSlot {
    /// A memory registered with [`Access::TOKENS`](crate::memory::Access::TOKENS), or a peer's.
    pub memory: RegisteredMemory,
    /// Offset of the token, a multiple of 64.
    pub offset: u64,
    /// Returns the token to its pool when the last clone is dropped; `None` for a peer's token.
    pub lease: Option<Arc<dyn std::any::Any + Send + Sync>>,
}

impl TokenSlot {
    /// The token, if the CPU can reach it here.
    ///
    /// # Errors
    /// As [`RegisteredMemory::token`].
    pub fn token(&self) -> Result<&Token> {
        Ok(self.memory.token(NAME, self.offset)?)
    }

    /// Its address for the device that it lies on.
    ///
    /// # Errors
    /// As [`RegisteredMemory::token_address`].
    pub fn address(&self) -> Result<u64> {
        Ok(self.memory.token_address(NAME, self.offset)?)
    }
}

/// The operation in errors.
const NAME: &str = "semaphore";

/// A pair of tokens and the connection between them. Counters are monotonic and never reset.
///
/// Each signal is taken by exactly one wait or poll; several threads may do either at once. A wait that
/// gives up takes nothing.
#[derive(Clone)]
pub struct Semaphore(Arc<Inner>);

struct Inner {
    connection: Connection,
    inbound: TokenSlot,
    remote: TokenSlot,
    /// `None` where kernels wait for it.
    inbound_token: Option<MappedToken>,
    /// `None` where the peer's token is reached by messages, or lies on a GPU.
    remote_token: Option<MappedToken>,
    /// How many signals have been sent by [`Semaphore::signal`]; locked while one is.
    sent: Mutex<u64>,
    /// How many signals have been taken.
    taken: AtomicU64,
    waiter: Waiter,
    id: u64,
}

impl Semaphore {
    /// Joins a local token that the peer knows with the peer's token. `id` names it in errors.
    ///
    /// # Errors
    /// If one of them is no token, or the local one has no address.
    pub fn new(connection: Connection, inbound: TokenSlot, remote: TokenSlot, id: u64) -> Result<Self> {
        inbound.address()?;
        remote.memory.require(NAME, connection.transport())?;
        remote.memory.check_word(NAME, remote.offset)?;
        let inbound_token = mapped(&inbound)?;
        let remote_token = mapped(&remote)?;
        let mut waiter = connection.waiter().clone();
        if connection.transport() != Transport::SharedMemory {
            // A thread of this process must run before the signal can come: do not hold its core.
            waiter.policy = waiter.policy.without_spinning();
        }
        let taken = AtomicU64::new(0);
        Ok(Self(Arc::new(Inner {
            connection,
            inbound,
            remote,
            inbound_token,
            remote_token,
            sent: Mutex::default(),
            taken,
            waiter,
            id,
        })))
    }

    /// Raises the peer's token by one, after all earlier operations of the connection.
    ///
    /// # Errors
    /// Those of the connection; what it has not posted counts as not sent.
    pub fn signal(&self) -> Result<()> {
        let Inner { connection, remote, .. } = &*self.0;
        self.send(|value| connection.raise(&remote.memory, remote.offset, value))
    }

    /// The same, directly after a write by its connection. After an error the bytes may have been written.
    pub(crate) fn write_and_signal(&self, put: Put<'_>) -> Result<()> {
        let Inner { connection, remote, .. } = &*self.0;
        let token = Span { memory: &remote.memory, offset: remote.offset };
        self.send(|value| connection.write_and_raise(put, token, value))
    }

    /// Posts the next value of the peer's token.
    fn send(&self, post: impl FnOnce(u64) -> Result<Position>) -> Result<()> {
        let Inner { connection, remote, .. } = &*self.0;
        // Held while it is posted, so that the values of several threads arrive in order.
        let mut sent = lock(&self.0.sent);
        let position = post(*sent + 1)?;
        *sent += 1;
        drop(sent);
        if let Some(lease) = &remote.lease {
            // The token goes back to its owner, who gives it to somebody else, only when this has arrived.
            connection.keep(position, lease);
        }
        Ok(())
    }

    /// Takes one signal if there is one.
    ///
    /// # Errors
    /// `mem.device` if kernels wait for the semaphore.
    pub fn poll(&self) -> Result<bool> {
        Ok(self.take(self.inbound_token()?).is_ok())
    }

    /// Waits for one signal and takes it; what the peer wrote before it is visible then.
    ///
    /// # Errors
    /// [`WaitError`](crate::wait::WaitError) naming the peer, on timeout, abort or the peer's death; `mem.device` if
    /// kernels wait for the semaphore.
    pub fn wait(&self, timeout: Timeout) -> Result<()> {
        self.wait_with(&self.0.waiter, timeout)
    }

    /// The same with another back-off than the connection's, for blocks that share cores.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn wait_with(&self, waiter: &Waiter, timeout: Timeout) -> Result<()> {
        let token = self.inbound_token()?;
        let site = || {
            let taken = self.0.taken.load(Ordering::Relaxed);
            WaitSite {
                operation: Operation::Wait,
                peer: Some(self.0.connection.peer()),
                object: self.0.id,
                sequence: taken,
                expected: taken + 1,
            }
        };
        waiter.wait(site, timeout, Some(token.event()), || self.take(token))?;
        Ok(())
    }

    /// The connection it was built on.
    pub fn connection(&self) -> &Connection {
        &self.0.connection
    }

    /// The token that the peer raises.
    pub fn inbound(&self) -> &TokenSlot {
        &self.0.inbound
    }

    /// The token that this side raises.
    pub fn remote(&self) -> &TokenSlot {
        &self.0.remote
    }

    /// The local token, for the CPU.
    ///
    /// # Errors
    /// `mem.device` if kernels wait for it.
    #[inline]
    pub fn inbound_token(&self) -> Result<&Token> {
        match &self.0.inbound_token {
            Some(token) => Ok(token),
            None => Err(self.waits_on_gpu()),
        }
    }

    /// The peer's token, for the CPU.
    ///
    /// # Errors
    /// `mem.transport` if it has no address here, `mem.device` if it lies on a GPU.
    #[inline]
    pub fn remote_token(&self) -> Result<&Token> {
        match &self.0.remote_token {
            Some(token) => Ok(token),
            None => self.0.remote.token(),
        }
    }

    /// Address of the local token for whoever waits for it: kernels of the GPU it lies on, or the CPU.
    ///
    /// # Errors
    /// As [`TokenSlot::address`].
    pub fn inbound_address(&self) -> Result<u64> {
        self.0.inbound.address()
    }

    /// Address of the peer's token for kernels here that raise it.
    ///
    /// # Errors
    /// `mem.transport` if it has no address here; a proxy raises it then.
    pub fn remote_address(&self) -> Result<u64> {
        self.0.remote.address()
    }

    /// The counter of signals taken; device handles of this semaphore share it.
    pub fn taken(&self) -> &AtomicU64 {
        &self.0.taken
    }

    /// Names the semaphore in errors and records.
    pub fn id(&self) -> u64 {
        self.0.id
    }

    /// Takes one signal, or returns the counter seen.
    fn take(&self, token: &Token) -> Result<(), u64> {
        let taken = &self.0.taken;
        // Relaxed: the counter only divides signals among waiters; the token's load orders the data.
        let mut seen = taken.load(Ordering::Relaxed);
        loop {
            let inbound = token.load();
            if inbound <= seen {
                return Err(inbound);
            }
            match taken.compare_exchange_weak(seen, seen + 1, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Ok(()),
                Err(now) => seen = now,
            }
        }
    }

    #[cold]
    fn waits_on_gpu(&self) -> Error {
        let device = self.0.inbound.memory.region().map_or(-1, |region| region.device().id);
        let hint = "kernels wait for this semaphore; give them its device handle";
        MemoryError::OnDevice { operation: "waiting for a semaphore", device, hint }.into()
    }

    fn require(&self, fits: bool, why: &'static str) -> Result<(), ConnectionError> {
        if fits {
            return Ok(());
        }
        let connection = &self.0.connection;
        Err(ConnectionError::Incompatible {
            local: connection.transport(),
            remote: connection.remote_transport(),
            peer: connection.peer(),
            why,
        })
    }

    fn is_on(&self, kind: DeviceKind) -> bool {
        self.0.connection.local().device.kind == kind
    }
}

/// The token for the CPU, if the CPU can reach it here.
fn mapped(slot: &TokenSlot) -> Result<Option<MappedToken>> {
    match slot.memory.region() {
        Some(region) if region.device().kind == DeviceKind::Cpu => {
            Ok(Some(slot.memory.mapped_token(NAME, slot.offset)?))
        }
        Some(_) => slot.address().map(|_| None),
        None => Ok(None),
    }
}

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Semaphore").field("id", &self.0.id).field("connection", &self.0.connection).finish()
    }
}

/// Host to host, any transport but CudaIpc.
#[derive(Debug, Clone)]
pub struct Host2HostSemaphore(Semaphore);

impl Host2HostSemaphore {
    /// # Errors
    /// `conn.incompatible` for a GPU endpoint or CudaIpc.
    pub fn new(semaphore: Semaphore) -> Result<Self> {
        let fits =
            semaphore.is_on(DeviceKind::Cpu) && semaphore.0.connection.transport() != Transport::CudaIpc;
        semaphore.require(fits, "a host-to-host semaphore needs a CPU endpoint and not CudaIpc")?;
        Ok(Self(semaphore))
    }

    /// See [`Semaphore::signal`].
    pub fn signal(&self) -> Result<()> {
        self.0.signal()
    }

    /// See [`Semaphore::poll`].
    pub fn poll(&self) -> Result<bool> {
        self.0.poll()
    }

    /// See [`Semaphore::wait`].
    pub fn wait(&self, timeout: Timeout) -> Result<()> {
        self.0.wait(timeout)
    }
}

/// Block to block through mapped memory: SharedMemory on the host engine, CudaIpc on GPUs.
#[derive(Debug, Clone)]
pub struct MemoryDevice2DeviceSemaphore(Semaphore);

impl MemoryDevice2DeviceSemaphore {
    /// # Errors
    /// `conn.incompatible` unless the peer's token is mapped here.
    pub fn new(semaphore: Semaphore) -> Result<Self> {
        let fits = match semaphore.0.connection.transport() {
            Transport::SharedMemory => semaphore.is_on(DeviceKind::Cpu),
            Transport::CudaIpc => semaphore.is_on(DeviceKind::Gpu),
            _ => false,
        };
        semaphore.require(fits, "a memory channel needs SharedMemory (CPU) or CudaIpc (GPU); a port channel works by any transport")?;
        Ok(Self(semaphore))
    }

    /// The semaphore below.
    pub fn semaphore(&self) -> &Semaphore {
        &self.0
    }
}

/// A peer's host or adapter to a GPU, or to the blocks of the host engine; any transport.
#[derive(Debug, Clone)]
pub struct Host2DeviceSemaphore(Semaphore);

impl Host2DeviceSemaphore {
    /// Wraps the semaphore; every transport can signal a device.
    pub fn new(semaphore: Semaphore) -> Self {
        Self(semaphore)
    }

    /// The semaphore below.
    pub fn semaphore(&self) -> &Semaphore {
        &self.0
    }
}
