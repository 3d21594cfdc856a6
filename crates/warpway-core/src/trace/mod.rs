//! The flight recorder: the last operations of a communicator, for the moment after a failure.
//!
//! Every communicator records its operations in a ring ([`FlightRecorder`]; 19 ns each). A
//! [`DumpService`] writes the ring to a file on the first failure, on a signal and on request, and
//! answers on a status socket. [`chrome_trace`] turns dumps of several ranks into one picture.

mod clock;
mod dump;
mod error;
mod operation;
mod perfetto;
mod recorder;
mod service;
mod status;

pub use dump::{DUMP_VERSION, DumpIdentity, DumpReason, DumpSource, FailureRecord, FlightDump};
pub use error::DumpError;
pub use operation::{Operation, OperationState, RecordedOperation, Request};
pub use perfetto::chrome_trace;
pub use recorder::{FlightRecorder, RecordId};
pub use service::{DumpConfig, DumpService};
pub use status::{STATUS_PREFIX, fetch_status, status_name, status_sockets};

/// The guide's samples are run as tests.
#[cfg(doctest)]
#[doc = include_str!("../../../../docs/flight-recorder.md")]
struct Guide;
