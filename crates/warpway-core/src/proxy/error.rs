//! What can be wrong with FIFO requests and proxies.

use crate::error::ErrorCode;

/// FIFO and proxy service.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ProxyError {
    /// A FIFO whose size is not a power of two, or is out of range.
    #[error(
        "a FIFO of {size} elements is not possible: the size must be a power of two from 2 to {}",
        crate::fifo::MAX_FIFO_SIZE
    )]
    FifoSize {
        /// The size asked for.
        size: u64,
    },
    /// A request field that its encoding does not hold.
    #[error("FIFO request: {field} = {value} does not fit")]
    Range {
        /// The field.
        field: &'static str,
        /// Its value.
        value: u64,
    },
    /// An id that names nothing, or something that has been removed.
    #[error("{kind} id {id:#010x} is stale or unknown to the proxy service")]
    StaleId {
        /// `memory` or `semaphore`.
        kind: &'static str,
        /// The id.
        id: u32,
    },
    /// A request with a kind no producer writes.
    #[error("FIFO request of unknown kind {kind:#x}")]
    Kind {
        /// The kind.
        kind: u64,
    },
    /// A registry is full.
    #[error("the {kind} registry is full ({limit} entries)")]
    Full {
        /// `memory` or `semaphore`.
        kind: &'static str,
        /// How many it holds.
        limit: u64,
    },
    /// A call that does not fit the state or the arguments.
    #[error("{operation}: {why}")]
    Usage {
        /// The call.
        operation: &'static str,
        /// What is wrong.
        why: &'static str,
    },
    /// The service was stopped before the request completed.
    #[error("the proxy service was stopped before request {position} completed")]
    Stopped {
        /// Position of the request.
        position: u64,
    },
    /// The thread of a proxy did not end in time because its handler does not return.
    #[error("the proxy's handler has not returned {} after the deadline; its thread ends once it does", crate::error::seconds(.grace))]
    Stuck {
        /// Time given beyond the deadline.
        grace: std::time::Duration,
    },
    /// A handler panicked; the service goes on.
    #[error("the handler of the proxy panicked: {message}")]
    Panicked {
        /// Its message.
        message: String,
    },
}

impl ProxyError {
    /// The numeric code.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Stopped { .. } => ErrorCode::Aborted,
            Self::Stuck { .. } => ErrorCode::Timeout,
            Self::Panicked { .. } => ErrorCode::InternalError,
            _ => ErrorCode::InvalidUsage,
        }
    }

    /// A stable id.
    pub fn id(&self) -> &'static str {
        match self {
            Self::FifoSize { .. } => "fifo.size",
            Self::Range { .. } => "fifo.range",
            Self::StaleId { .. } => "proxy.stale_id",
            Self::Kind { .. } => "fifo.kind",
            Self::Full { .. } => "proxy.full",
            Self::Usage { .. } => "proxy.usage",
            Self::Stopped { .. } => "proxy.stopped",
            Self::Stuck { .. } => "proxy.stuck",
            Self::Panicked { .. } => "proxy.panicked",
        }
    }
}
