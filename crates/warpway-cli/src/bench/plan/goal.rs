//! What the result of a collective must be, computed from the inputs of all ranks.

use anyhow::bail;
use warpway::DataType;
use warpway::plan::{Action, Collective, Plan, ReduceOp};

use super::super::numbers::Numbers;
use super::super::pattern;

/// See the module's page.
pub(super) struct Goal {
    collective: Collective,
    n_ranks: u32,
    root: u32,
    elements: Elements,
}

enum Elements {
    /// Bytes that nobody computes with.
    Bytes,
    /// Whole numbers.
    Numbers(Numbers),
}

/// What a rank may find.
pub(super) struct Expected<'a> {
    goal: &'a Goal,
    rank: u32,
    round: u64,
    bytes: u64,
}

impl Goal {
    /// An error if results cannot be checked exactly.
    pub(super) fn new(plan: &Plan, data_type: DataType, root: u32) -> anyhow::Result<Self> {
        use Collective::{AllReduce, Custom, Reduce, ReduceScatter, Test};
        let (collective, n_ranks) = (plan.collective, plan.n_ranks());
        let elements = match collective {
            Test | Custom => {
                bail!("{}: a plan of collective `{collective}` has no result to check against", plan.name)
            }
            AllReduce | ReduceScatter | Reduce => {
                let op = plan.operations().find_map(|(_, _, operation)| match &operation.action {
                    Action::Data(data) => data.fold.as_ref().map(|fold| fold.op),
                    _ => None,
                });
                Elements::Numbers(Numbers::new(data_type, op.unwrap_or(ReduceOp::Sum), n_ranks)?)
            }
            _ => Elements::Bytes,
        };
        Ok(Self { collective, n_ranks, root, elements })
    }

    /// What a rank gives.
    pub(super) fn input(&self, rank: u32, round: u64, bytes: u64) -> Vec<u8> {
        self.given(rank, round, 0, bytes)
    }

    /// What a rank must find; `None` where anything is right.
    pub(super) fn expect(&self, rank: u32, round: u64, bytes: u64) -> Option<Expected<'_>> {
        let only_root = matches!(self.collective, Collective::Reduce | Collective::Gather);
        (!only_root || rank == self.root).then_some(Expected { goal: self, rank, round, bytes })
    }

    /// `bytes` bytes of a rank's input, from byte `from` on.
    fn given(&self, rank: u32, round: u64, from: u64, bytes: u64) -> Vec<u8> {
        match &self.elements {
            Elements::Bytes => (from..from + bytes).map(|at| pattern::byte(round, rank, at)).collect(),
            Elements::Numbers(numbers) => {
                let size = numbers.data_type().bytes();
                let elements = from / size..(from + bytes) / size;
                elements.flat_map(|at| numbers.input(round, rank, at)).collect()
            }
        }
    }

    /// The fold of all ranks' inputs.
    fn folded(&self, round: u64, from: u64, bytes: u64) -> Vec<u8> {
        let Elements::Numbers(numbers) = &self.elements else { return Vec::new() };
        let size = numbers.data_type().bytes();
        (from / size..(from + bytes) / size).flat_map(|at| numbers.folded(round, at)).collect()
    }
}

impl Expected<'_> {
    /// In how many ways a result may be right: a send may come from any one rank.
    pub(super) fn choices(&self) -> u32 {
        if self.goal.collective == Collective::SendRecv { self.goal.n_ranks } else { 1 }
    }

    /// The bytes, in one of the ways.
    pub(super) fn of(&self, choice: u32) -> Vec<u8> {
        use Collective::{AllGather, AllToAll, Broadcast, Gather, ReduceScatter, Scatter, SendRecv};
        let Self { goal, rank, round, bytes } = *self;
        let (n, own) = (u64::from(goal.n_ranks), u64::from(rank));
        let of_each = |from: u64, part: u64| -> Vec<u8> {
            (0..goal.n_ranks).flat_map(|peer| goal.given(peer, round, from, part)).collect()
        };
        match goal.collective {
            AllGather | Gather => of_each(0, bytes / n),
            AllToAll => of_each(own * (bytes / n), bytes / n),
            Broadcast => goal.given(goal.root, round, 0, bytes),
            Scatter => goal.given(goal.root, round, own * bytes, bytes),
            SendRecv => {
                // The rank before this one first, this one last.
                let from = (rank + goal.n_ranks - 1 - choice) % goal.n_ranks;
                goal.given(from, round, 0, bytes)
            }
            ReduceScatter => goal.folded(round, own * bytes, bytes),
            _ => goal.folded(round, 0, bytes),
        }
    }
}
