//! What is measured, and which elements each rank gives and gets.

use std::fmt;

use warpway::DataType;
use warpway::plan::ReduceOp;
use warpway_collectives::Function;

/// What all sizes of a run have in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Subject {
    pub(super) operation: Operation,
    pub(super) data_type: DataType,
    pub(super) op: ReduceOp,
    pub(super) root: u32,
    pub(super) n_ranks: u32,
}

/// What all ranks do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    Collective(Function),
    /// Each sends to the next one, and receives from the one before, at once.
    SendRecv,
}

/// One size, out of place or in place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Case {
    /// Bytes of the larger buffer.
    pub(super) bytes: u64,
    pub(super) in_place: bool,
}

/// The elements of one rank. Part r is `counts[r]` elements of the larger buffer from `offsets[r]` on; of an all_to_all_v,
/// those for rank r, which are as many as those from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) counts: Vec<u64>,
    pub(super) offsets: Vec<u64>,
    pub(super) input: Range,
    pub(super) output: Range,
    /// Of the one buffer, in place.
    pub(super) whole: u64,
}

/// Elements from `start` on; of a buffer of its own, or in place of the one buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) start: u64,
    pub(super) len: u64,
}

impl From<Function> for Operation {
    fn from(function: Function) -> Self {
        Self::Collective(function)
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Operation {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Collective(function) => function.name(),
            Self::SendRecv => "send_recv",
        }
    }

    pub(super) fn collective(self) -> Option<Function> {
        match self {
            Self::Collective(function) => Some(function),
            Self::SendRecv => None,
        }
    }

    pub(super) fn reduces(self) -> bool {
        self.collective().is_some_and(Function::reduces)
    }

    pub(super) fn is_rooted(self) -> bool {
        self.collective().is_some_and(Function::is_rooted)
    }

    fn is_sized(self) -> bool {
        self.collective().is_some_and(Function::is_sized)
    }

    pub(super) fn is_barrier(self) -> bool {
        self == Self::Collective(Function::Barrier)
    }
}

impl Subject {
    /// Size of an element.
    pub(super) fn element(&self) -> u64 {
        self.data_type.bytes()
    }

    /// True if every rank has one part, as long as the others'.
    fn has_equal_parts(&self) -> bool {
        use Function::{AllGather, AllToAll, Gather, ReduceScatter, Scatter};
        matches!(self.operation.collective(), Some(AllGather | AllToAll | Gather | ReduceScatter | Scatter))
    }

    /// Sizes are multiples of this.
    pub(super) fn granule(&self) -> u64 {
        let parts = if self.has_equal_parts() { u64::from(self.n_ranks) } else { 1 };
        self.element() * parts
    }

    /// What nccl-tests calls the count: elements of a part, or of all where there are no parts.
    pub(super) fn count(&self, bytes: u64) -> u64 {
        bytes / self.granule()
    }

    /// Bytes of the buffers of all ranks together.
    pub(super) fn footprint(&self, case: Case) -> u64 {
        let buffers = (0..self.n_ranks).map(|rank| {
            let Shape { input, output, whole, .. } = self.shape(case, rank);
            if case.in_place { whole } else { input.len + output.len }
        });
        buffers.sum::<u64>() * self.element()
    }

    /// Of a call's bytes divided by its time, what the busiest link carries at least: see [`super`].
    pub(super) fn bus_factor(&self) -> f64 {
        use Function::{AllReduce, Barrier, Broadcast, Reduce};
        let n = f64::from(self.n_ranks);
        match self.operation.collective() {
            Some(AllReduce) => 2.0 * (n - 1.0) / n,
            Some(Broadcast | Reduce) | None => 1.0,
            Some(Barrier) => 0.0,
            _ => (n - 1.0) / n,
        }
    }

    /// Elements that rank `from` has for rank `to` where counts differ.
    ///
    /// Weights 1 to n, the largest of which takes what is left over; the peers in `benchmarks/peers` do the same.
    fn uneven(&self, all: u64, from: u32, to: u32) -> u64 {
        let n = u64::from(self.n_ranks);
        let total = n * (n + 1) / 2;
        let place = match self.operation.collective() {
            Some(Function::AllToAllV) => (u64::from(from) + u64::from(to)) % n,
            _ => u64::from(to),
        };
        let unit = all / total;
        if place + 1 == n { all - unit * (total - n) } else { unit * (place + 1) }
    }

    /// Elements that rank `from` has for rank `to`.
    fn part(&self, all: u64, from: u32, to: u32) -> u64 {
        if self.operation.is_sized() { self.uneven(all, from, to) } else { all / u64::from(self.n_ranks) }
    }

    /// Where, in the parts of rank `from`, that for rank `to` begins.
    pub(super) fn offset(&self, bytes: u64, from: u32, to: u32) -> u64 {
        let all = bytes / self.element();
        (0..to).map(|before| self.part(all, from, before)).sum()
    }

    /// What `rank` gives and gets.
    pub(super) fn shape(&self, case: Case, rank: u32) -> Shape {
        use Function::{
            AllGather, AllGatherV, Barrier, Broadcast, Gather, Reduce, ReduceScatter, ReduceScatterV, Scatter,
        };
        let all = if self.operation.is_barrier() { 0 } else { case.bytes / self.element() };
        let counts: Vec<u64> = (0..self.n_ranks).map(|to| self.part(all, rank, to)).collect();
        let offsets: Vec<u64> = (0..self.n_ranks).map(|to| self.offset(case.bytes, rank, to)).collect();
        let (own, at) = (counts[rank as usize], offsets[rank as usize]);
        let root = rank == self.root;
        let (whole, part, none) =
            (Range { start: 0, len: all }, Range { start: at, len: own }, Range { start: 0, len: 0 });
        // Ranks that are not the root have a buffer as long as their part.
        let alone = Range { start: 0, len: own };
        let (input, output) = match self.operation.collective() {
            Some(AllGather | AllGatherV) => (part, whole),
            Some(ReduceScatter | ReduceScatterV) => (whole, part),
            Some(Broadcast) => (if root || case.in_place { whole } else { none }, whole),
            Some(Reduce) => (whole, if root { whole } else { none }),
            Some(Gather) if root => (part, whole),
            Some(Gather) => (alone, none),
            Some(Scatter) if root => (whole, part),
            Some(Scatter) => (none, alone),
            Some(Barrier) => (none, none),
            _ => (whole, whole),
        };
        let whole = (input.start + input.len).max(output.start + output.len);
        let mut shape = Shape { counts, offsets, input, output, whole };
        if !case.in_place {
            (shape.input.start, shape.output.start) = (0, 0);
        }
        shape
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject(function: Function, n_ranks: u32) -> Subject {
        Subject {
            operation: function.into(),
            data_type: DataType::Float32,
            op: ReduceOp::Sum,
            root: 1,
            n_ranks,
        }
    }

    fn range(start: u64, len: u64) -> Range {
        Range { start, len }
    }

    #[test]
    fn parts_lie_where_the_conventions_say() {
        let shape = |function, rank, in_place| {
            let shape = subject(function, 4).shape(Case { bytes: 64, in_place }, rank);
            (shape.input, shape.output, shape.whole)
        };
        let (none, all, part) = (range(0, 0), range(0, 16), range(0, 4));
        assert_eq!(shape(Function::AllReduce, 2, true), (all, all, 16));
        assert_eq!(shape(Function::AllGather, 2, false), (part, all, 16));
        assert_eq!(shape(Function::AllGather, 2, true), (range(8, 4), all, 16));
        assert_eq!(shape(Function::ReduceScatter, 3, true), (all, range(12, 4), 16));
        assert_eq!(shape(Function::Broadcast, 1, false), (all, all, 16));
        assert_eq!(shape(Function::Broadcast, 0, false), (none, all, 16));
        assert_eq!(shape(Function::Reduce, 0, true), (all, none, 16));
        assert_eq!(shape(Function::Gather, 1, true), (range(4, 4), all, 16));
        assert_eq!(shape(Function::Gather, 2, true), (part, none, 4));
        assert_eq!(shape(Function::Scatter, 1, true), (all, range(4, 4), 16));
        assert_eq!(shape(Function::Scatter, 0, false), (none, part, 4));
        assert_eq!(shape(Function::Barrier, 0, false), (none, none, 0));
    }

    #[test]
    fn uneven_parts_add_up_and_agree_between_ranks() {
        for n in 1..=5 {
            for elements in [0, 1, n - 1, 100, 1001] {
                let case = Case { bytes: 4 * u64::from(elements), in_place: false };
                let gather = subject(Function::AllGatherV, n);
                let shapes: Vec<Shape> = (0..n).map(|rank| gather.shape(case, rank)).collect();
                assert!(shapes.iter().all(|shape| shape.counts == shapes[0].counts));
                assert_eq!(shapes.iter().map(|shape| shape.input.len).sum::<u64>(), u64::from(elements));

                let exchange = subject(Function::AllToAllV, n);
                let shapes: Vec<Shape> = (0..n).map(|rank| exchange.shape(case, rank)).collect();
                for (from, to) in (0..n as usize).flat_map(|from| (0..n as usize).map(move |to| (from, to))) {
                    assert_eq!(shapes[from].counts[to], shapes[to].counts[from]);
                }
                assert!(shapes.iter().all(|shape| shape.counts.iter().sum::<u64>() == u64::from(elements)));
            }
        }
        assert_eq!(
            subject(Function::AllGatherV, 3).shape(Case { bytes: 56, in_place: false }, 0).counts,
            [2, 4, 8]
        );
    }

    /// The factors that nccl-tests documents (doc/PERFORMANCE.md).
    #[test]
    fn bus_factors_are_those_of_nccl_tests() {
        let factor = |function| subject(function, 4).bus_factor();
        assert_eq!(factor(Function::AllReduce), 1.5);
        for function in [Function::AllGather, Function::ReduceScatter, Function::AllToAll, Function::Gather] {
            assert_eq!(factor(function), 0.75);
        }
        assert_eq!([factor(Function::Broadcast), factor(Function::Reduce)], [1.0; 2]);
        let around = Subject { operation: Operation::SendRecv, ..subject(Function::Barrier, 4) };
        assert_eq!(around.bus_factor(), 1.0);
    }

    #[test]
    fn sizes_are_whole_elements_of_every_rank() {
        assert_eq!([Function::AllGather, Function::AllReduce].map(|f| subject(f, 3).granule()), [12, 4]);
        assert_eq!([Function::AllGather, Function::AllReduce].map(|f| subject(f, 3).count(24)), [2, 6]);
    }
}
