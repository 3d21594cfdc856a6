//! What a choice depends on.

use warpway_plan::DataType;

use crate::task::Task;

/// A call, as far as it decides about its algorithm. All ranks give the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request<'a> {
    /// What is to be done; its `n_blocks` does not count.
    pub task: Task,
    /// Bytes of the larger one of a rank's buffers, input or output, as the function makes them: n × count of a gather,
    /// on all ranks. `None` where ranks do not know it alike (all_to_all_v).
    pub bytes: Option<u64>,
    /// What the buffers hold.
    pub data_type: DataType,
    /// Blocks that have a processor of their own, on the rank that has the fewest.
    pub room: u32,
    /// The algorithm that the caller wants.
    pub algorithm: Option<&'a str>,
    /// The number of blocks that the caller wants.
    pub blocks: Option<u32>,
}

impl<'a> Request<'a> {
    /// float32, one block, and no wishes.
    pub fn new(task: Task, bytes: u64) -> Self {
        Self {
            task,
            bytes: Some(bytes),
            data_type: DataType::Float32,
            room: 1,
            algorithm: None,
            blocks: None,
        }
    }

    /// The same with an algorithm of the caller's choice.
    pub fn with_algorithm(self, name: &'a str) -> Self {
        Self { algorithm: Some(name), ..self }
    }
}
