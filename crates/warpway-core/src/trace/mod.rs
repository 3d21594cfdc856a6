//! The flight recorder: the last operations of a communicator, for the moment after a failure.

mod recorder;

pub use recorder::{FlightRecorder, Operation, OperationState, RecordId, RecordedOperation, Request};
