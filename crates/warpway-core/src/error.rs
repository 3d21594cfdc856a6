//! Errors: one narrow enum per concern, joined in [`Error`].
//!
//! Every error has a numeric [`ErrorCode`] (shared with C callers and Python), a stable string id
//! ([`Error::id`]) and, where they are known, the rank that failed and the peer concerned. Foreign
//! causes are kept as numbers and text so that errors are `Clone`: an asynchronous failure is handed
//! out again by every later call on the communicator.

use std::time::Duration;

use crate::bootstrap::BootstrapError;
use crate::channel::ChannelError;
use crate::collective::CollectiveError;
use crate::communicator::ExchangeError;
use crate::config::ConfigError;
use crate::connection::ConnectionError;
use crate::execution::ExecutionError;
use crate::gpu::GpuError;
use crate::health::Failure;
use crate::launch::LaunchError;
use crate::memory::MemoryError;
use crate::point_to_point::PointToPointError;
use crate::proxy::ProxyError;
use crate::trace::DumpError;
use crate::wait::{GaveUp, WaitError};
use crate::wire::WireError;

/// Result of this crate's calls.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The seven codes of the stable interface; the numbers are fixed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(i32)]
pub enum ErrorCode {
    /// A call of the operating system failed.
    SystemError = 0,
    /// A broken invariant inside the library.
    InternalError = 1,
    /// A peer reported a failure or disappeared.
    RemoteError = 2,
    /// The caller's mistake: bad argument, wrong state, out of bounds, unsupported request.
    InvalidUsage = 3,
    /// A deadline passed.
    Timeout = 4,
    /// The communicator or the operation was aborted.
    Aborted = 5,
    /// A plan was rejected or its execution failed.
    ExecutorError = 6,
}

impl ErrorCode {
    /// A sentence for people, for every code.
    pub fn text(self) -> &'static str {
        match self {
            Self::SystemError => "a system call failed",
            Self::InternalError => "an invariant inside the library is broken",
            Self::RemoteError => "a peer failed or disappeared",
            Self::InvalidUsage => "invalid usage",
            Self::Timeout => "the deadline passed",
            Self::Aborted => "aborted",
            Self::ExecutorError => "plan execution failed",
        }
    }
}

/// A failed call of the operating system.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{call} failed: {} (errno {errno}){}", std::io::Error::from_raw_os_error(*errno), advice(.hint))]
pub struct SystemError {
    /// The call, with the object it was made on (`"mmap of 4096 bytes"`).
    pub call: String,
    /// The number the call left.
    pub errno: i32,
    /// What the user may do about it, if anything is known.
    pub hint: Option<&'static str>,
}

fn advice(hint: &Option<&'static str>) -> String {
    hint.map(|h| format!("; {h}")).unwrap_or_default()
}

impl SystemError {
    /// From a `rustix` result.
    pub fn new(call: impl Into<String>, errno: rustix::io::Errno) -> Self {
        Self { call: call.into(), errno: errno.raw_os_error(), hint: None }
    }

    /// From a `std::io` error; an error without a number is recorded as 0.
    pub fn from_io(call: impl Into<String>, error: &std::io::Error) -> Self {
        Self { call: call.into(), errno: error.raw_os_error().unwrap_or(0), hint: None }
    }

    /// Adds advice.
    pub fn with_hint(mut self, hint: &'static str) -> Self {
        self.hint = Some(hint);
        self
    }
}

/// Something this machine or build does not have: absent hardware is a value, not a panic.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} is unavailable: {why}{separator}{hint}", separator = if .why.contains('\n') { "\n" } else { "; " })]
pub struct Unavailable {
    /// The thing asked for (`"transport Ib(0)"`).
    pub what: String,
    /// Why it is not there.
    pub why: String,
    /// What to use or set instead.
    pub hint: &'static str,
}

/// Any error of the core and its engines.
///
/// Its `Debug` is its message too, because `fn main() -> warpway::Result<()>` and `unwrap` print that; the
/// structure is in the variants, whose `Debug` shows it.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Joining a job or exchanging messages with its ranks.
    #[error(transparent)]
    Bootstrap(#[from] BootstrapError),
    /// A serialised handle could not be read.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// Configuration or environment.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Allocation, registration, import or range of memory.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// Endpoints and connections.
    #[error(transparent)]
    Connection(#[from] ConnectionError),
    /// Exchange of handles between two ranks of a communicator.
    #[error(transparent)]
    Exchange(#[from] ExchangeError),
    /// Calls on channels.
    #[error(transparent)]
    Channel(#[from] ChannelError),
    /// Kernels.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// Collectives.
    #[error(transparent)]
    Collective(#[from] CollectiveError),
    /// Plans.
    #[error(transparent)]
    Execution(#[from] ExecutionError),
    /// Sends and receives.
    #[error(transparent)]
    PointToPoint(#[from] PointToPointError),
    /// FIFO and proxy service.
    #[error(transparent)]
    Proxy(#[from] ProxyError),
    /// A bounded wait gave up.
    #[error(transparent)]
    Wait(#[from] WaitError),
    /// Dumps of the flight recorder.
    #[error(transparent)]
    Trace(#[from] DumpError),
    /// The operating system.
    #[error(transparent)]
    System(#[from] SystemError),
    /// A GPU, its driver or a kernel for it.
    #[error(transparent)]
    Gpu(#[from] GpuError),
    /// Absent hardware or feature.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// The communicator had failed before or during this call.
    #[error(transparent)]
    Failed(#[from] Failure),
    /// A broken invariant; please report it.
    #[error("internal error in {place}: {what}")]
    Internal {
        /// Module and function.
        place: &'static str,
        /// The invariant that does not hold.
        what: &'static str,
    },
}

impl Error {
    /// The numeric code.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Bootstrap(e) => e.code(),
            Self::Wire(_) | Self::Config(_) | Self::Unavailable(_) => ErrorCode::InvalidUsage,
            Self::Memory(e) => e.code(),
            Self::Connection(e) => e.code(),
            Self::Exchange(e) => e.code(),
            Self::Channel(e) => e.code(),
            Self::Launch(e) => e.code(),
            Self::Collective(e) => e.code(),
            Self::Execution(e) => e.code(),
            Self::PointToPoint(e) => e.code(),
            Self::Proxy(e) => e.code(),
            Self::Wait(e) => e.code(),
            Self::Trace(e) => e.code(),
            Self::System(_) => ErrorCode::SystemError,
            Self::Gpu(e) => e.code(),
            Self::Failed(f) => f.code(),
            Self::Internal { .. } => ErrorCode::InternalError,
        }
    }

    /// A stable id for programs and tests (`mem.bounds`, `wire.version`, …).
    pub fn id(&self) -> &'static str {
        match self {
            Self::Bootstrap(e) => e.id(),
            Self::Wire(e) => e.id(),
            Self::Config(e) => e.id(),
            Self::Memory(e) => e.id(),
            Self::Connection(e) => e.id(),
            Self::Exchange(e) => e.id(),
            Self::Channel(e) => e.id(),
            Self::Launch(e) => e.id(),
            Self::Collective(e) => e.id(),
            Self::Execution(e) => e.id(),
            Self::PointToPoint(e) => e.id(),
            Self::Proxy(e) => e.id(),
            Self::Wait(e) => e.id(),
            Self::Trace(e) => e.id(),
            Self::System(_) => "system",
            Self::Gpu(e) => e.id(),
            Self::Unavailable(_) => "unavailable",
            Self::Failed(f) => f.id(),
            Self::Internal { .. } => "internal",
        }
    }

    /// The other rank concerned, where one is known.
    pub fn peer(&self) -> Option<u32> {
        match self {
            Self::Bootstrap(e) => e.peer(),
            Self::Memory(e) => e.peer(),
            Self::Connection(e) => e.peer(),
            Self::Exchange(e) => e.peer(),
            Self::Channel(e) => e.peer(),
            Self::Collective(e) => e.peer(),
            Self::Execution(e) => e.peer(),
            Self::PointToPoint(e) => e.peer(),
            Self::Wait(e) => e.site.peer,
            Self::Gpu(e) => e.peer(),
            Self::Failed(f) => f.culprit,
            _ => None,
        }
    }

    /// The same as the caller of `operation` learns it; see [`Failure::during`].
    pub fn during(self, operation: impl std::fmt::Display) -> Self {
        match self {
            Self::Failed(failure) => Self::Failed(failure.during(operation)),
            other => other,
        }
    }

    /// The rank to blame, where one is known: of a wait that ended because the communicator failed, the
    /// rank behind the failure, whomever the wait was for ([`peer`](Self::peer) says that).
    pub fn culprit(&self) -> Option<u32> {
        match self {
            Self::Wait(e) => match &e.reason {
                GaveUp::Failed(failure) => failure.culprit,
                GaveUp::TimedOut | GaveUp::PeerLeft => e.site.peer,
            },
            Self::Execution(ExecutionError::Step { cause, .. }) => cause.culprit(),
            Self::Gpu(GpuError::Kernel(failure)) => failure.culprit(),
            other => other.peer(),
        }
    }
}

impl std::fmt::Debug for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

/// Seconds with three decimals, for messages.
pub(crate) fn seconds(duration: &Duration) -> String {
    format!("{:.3} s", duration.as_secs_f64())
}
