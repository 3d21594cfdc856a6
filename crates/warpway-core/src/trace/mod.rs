//! The flight recorder: the last operations of a communicator, for the moment after a failure.

mod clock;
mod operation;
mod recorder;

pub use operation::{Operation, OperationState, RecordedOperation, Request};
pub use recorder::{FlightRecorder, RecordId};
