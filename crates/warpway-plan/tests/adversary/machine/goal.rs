//! What each collective promises, lane by lane.

use warpway_plan::Collective;

use super::memory::Value;
use super::program::Program;
use crate::random::mix;

/// The roots of rooted collectives.
const ROOT: u32 = 0;

/// Lane `lane` of a rank's input in a launch.
pub(super) fn input(rank: u32, lane: u32, launch: u32) -> Value {
    Value::input(mix(
        mix(u64::from(rank) << 32 | u64::from(lane)).wrapping_add(u64::from(launch) * 0x1234_5677)
    ))
}

/// What a rank's output holds after a launch.
pub(super) struct Goal<'p> {
    program: &'p Program,
    launch: u32,
}

impl<'p> Goal<'p> {
    pub(super) fn new(program: &'p Program, launch: u32) -> Self {
        Self { program, launch }
    }

    /// The value of lane `lane` of `rank`'s output; `None` if nothing is promised. `sender` is the rank whose
    /// input a send-receive brings.
    pub(super) fn output(&self, rank: u32, lane: u32, sender: u32) -> Option<Value> {
        let inputs = |r: u32| self.program.ranks[r as usize].input.1;
        let outputs = self.program.ranks[rank as usize].output.1;
        let n = self.program.ranks.len() as u32;
        match self.program.collective {
            Collective::AllReduce => Some(self.fold(lane)),
            Collective::Reduce => (rank == ROOT).then(|| self.fold(lane)),
            Collective::ReduceScatter => Some(self.fold(rank * outputs + lane)),
            Collective::Gather if rank != ROOT => None,
            Collective::AllGather | Collective::Gather => {
                let each = inputs(0).max(1);
                Some(input(lane / each, lane % each, self.launch))
            }
            Collective::AllToAll => {
                let each = (inputs(0) / n).max(1);
                Some(input(lane / each, rank * each + lane % each, self.launch))
            }
            Collective::SendRecv => Some(input(sender, lane, self.launch)),
            Collective::Broadcast => Some(input(ROOT, lane, self.launch)),
            Collective::Scatter => Some(input(ROOT, rank * outputs + lane, self.launch)),
            _ => None,
        }
    }

    fn fold(&self, lane: u32) -> Value {
        let first = input(0, lane, self.launch);
        (1..self.program.ranks.len() as u32)
            .fold(first, |sum, q| sum.join(input(q, lane, self.launch), self.program.reduce_op))
    }
}
