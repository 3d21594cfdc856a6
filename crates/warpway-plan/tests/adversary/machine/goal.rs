//! What each collective promises, lane by lane.

use warpway_plan::Collective;

use super::memory::Value;
use super::program::Part;
use crate::random::mix;

/// The roots of rooted collectives.
const ROOT: u32 = 0;

/// Lane `lane` of chunk `chunk` of a rank's input in a launch.
pub(super) fn input(rank: u32, (chunk, lane): (u32, u32), launch: u32) -> Value {
    let place = u64::from(rank) << 48 | u64::from(chunk) << 24 | u64::from(lane);
    Value::input(mix(mix(place).wrapping_add(u64::from(launch) * 0x1234_5677)))
}

/// What a rank's output holds after a launch.
pub(super) struct Goal<'p> {
    part: &'p Part,
    launch: u32,
}

impl<'p> Goal<'p> {
    pub(super) fn new(part: &'p Part, launch: u32) -> Self {
        Self { part, launch }
    }

    /// The value of a lane of chunk `k` of `rank`'s output; `None` if nothing is promised. `sender` is the rank
    /// whose input a send-receive brings.
    pub(super) fn output(&self, rank: u32, (k, lane): (u32, u32), sender: u32) -> Option<Value> {
        let n = self.part.ranks.len() as u32;
        let inputs = |q: u32| self.part.ranks[q as usize].input.len() as u32;
        let outputs = self.part.ranks[rank as usize].output.len() as u32;
        let of = |q, chunk| Some(input(q, (chunk, lane), self.launch));
        match self.part.collective {
            Collective::AllReduce => Some(self.fold((k, lane))),
            Collective::Reduce => (rank == ROOT).then(|| self.fold((k, lane))),
            Collective::ReduceScatter => Some(self.fold((rank * outputs + k, lane))),
            Collective::Gather if rank != ROOT => None,
            Collective::AllGather | Collective::Gather => {
                let each = inputs(0).max(1);
                of(k / each, k % each)
            }
            Collective::AllToAll => {
                let each = (inputs(rank) / n).max(1);
                of(k / each, rank * each + k % each)
            }
            Collective::SendRecv => of(sender, k),
            Collective::Broadcast => of(ROOT, k),
            Collective::Scatter => of(ROOT, rank * outputs + k),
            _ => None,
        }
    }

    fn fold(&self, place: (u32, u32)) -> Value {
        let first = input(0, place, self.launch);
        (1..self.part.ranks.len() as u32)
            .fold(first, |sum, q| sum.join(input(q, place, self.launch), self.part.reduce_op))
    }
}
