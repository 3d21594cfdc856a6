//! Semaphores: a token on each side that the other side raises.

use std::fmt;
use std::sync::Arc;

use crate::connection::{Connection, ConnectionError};
use crate::deadline::Timeout;
use crate::error::Result;
use crate::memory::{MappedToken, RegisteredMemory};
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
    /// The token, if it has an address here.
    pub fn token(&self) -> Result<&Token> {
        Ok(self.memory.token("semaphore", self.offset)?)
    }
}

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
    inbound_token: MappedToken,
    /// `None` where the peer's token is reached by messages.
    remote_token: Option<MappedToken>,
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
        let inbound_token = inbound.memory.mapped_token("semaphore", inbound.offset)?;
        let remote_token = remote.memory.mapped_token("semaphore", remote.offset).ok();
        remote.memory.require("semaphore", connection.transport())?;
        remote.memory.check_word("semaphore", remote.offset)?;
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
            taken,
            waiter,
            id,
        })))
    }

    /// Raises the peer's token by one, after all earlier operations of the connection.
    pub fn signal(&self) -> Result<()> {
        let Inner { connection, remote, .. } = &*self.0;
        connection.atomic_add(&remote.memory, remote.offset, 1).map(drop)
    }

    /// Takes one signal if there is one.
    pub fn poll(&self) -> Result<bool> {
        Ok(self.take(&self.0.inbound_token).is_ok())
    }

    /// Waits for one signal and takes it; what the peer wrote before it is visible then.
    ///
    /// # Errors
    /// [`WaitError`](crate::wait::WaitError) naming the peer, on timeout, abort or the peer's death.
    pub fn wait(&self, timeout: Timeout) -> Result<()> {
        self.wait_with(&self.0.waiter, timeout)
    }

    /// The same with another back-off than the connection's, for blocks that share cores.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn wait_with(&self, waiter: &Waiter, timeout: Timeout) -> Result<()> {
        let token = &*self.0.inbound_token;
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

    /// The local token, mapped.
    #[inline]
    pub fn inbound_token(&self) -> &Token {
        &self.0.inbound_token
    }

    /// The peer's token.
    ///
    /// # Errors
    /// `mem.transport` if it has no address here.
    #[inline]
    pub fn remote_token(&self) -> Result<&Token> {
        match &self.0.remote_token {
            Some(token) => Ok(token),
            None => self.0.remote.token(),
        }
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
