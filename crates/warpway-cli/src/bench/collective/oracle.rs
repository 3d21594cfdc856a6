//! What each rank gives, and what it must find, without running anything.
//!
//! Data repeats with a period that is a prime number of elements, begun elsewhere by each rank and in each round: data
//! of another rank, another round or another place differs, and a gibibyte is checked as fast as memory is read.

use warpway_collectives::Function;

use super::super::numbers::Numbers;
use super::super::pattern;
use super::case::{Case, Subject};

/// Elements; the greatest prime below 2¹⁴.
const PERIOD: u64 = 16_381;

/// The data of one round.
pub(super) struct Round {
    /// By rank.
    given: Vec<Table>,
    /// What all of them fold to; nothing for functions that do not fold.
    folded: Table,
}

/// A period of elements.
struct Table {
    bytes: Vec<u8>,
}

/// Elements of a buffer from `start` on that must be a table's from `phase` on.
pub(super) struct Segment<'a> {
    table: &'a Table,
    start: u64,
    len: u64,
    phase: u64,
}

impl Round {
    /// An error if results cannot be checked exactly.
    pub(super) fn new(subject: &Subject, round: u64) -> anyhow::Result<Self> {
        let table =
            |element: &dyn Fn(u64) -> Vec<u8>| Table { bytes: (0..PERIOD).flat_map(element).collect() };
        let ranks = 0..subject.n_ranks;
        if !subject.operation.reduces() {
            let size = subject.element();
            let bytes = |rank, at: u64| {
                (at * size..(at + 1) * size).map(|at| pattern::byte(round, rank, at)).collect()
            };
            let given = ranks.map(|rank| table(&|at| bytes(rank, at))).collect();
            return Ok(Self { given, folded: Table { bytes: Vec::new() } });
        }
        let numbers = Numbers::new(subject.data_type, subject.op, subject.n_ranks)?;
        Ok(Self {
            given: ranks.map(|rank| table(&|at| numbers.input(round, rank, at))).collect(),
            folded: table(&|at| numbers.folded(round, at)),
        })
    }

    /// The input of `rank`: elements of its input buffer from 0 on.
    pub(super) fn input(&self, rank: u32, len: u64) -> Segment<'_> {
        Segment { table: &self.given[rank as usize], start: 0, len, phase: 0 }
    }

    /// What the output of `rank` must be, in pieces from its first element on; nothing where anything is right.
    pub(super) fn output(&self, subject: &Subject, case: Case, rank: u32) -> Vec<Segment<'_>> {
        use Function::{
            AllGather, AllGatherV, AllReduce, AllToAll, AllToAllV, Barrier, Broadcast, Gather, Reduce,
            ReduceScatter, ReduceScatterV, Scatter,
        };
        let shape = subject.shape(case, rank);
        let all = shape.output.len;
        let at = shape.offsets[rank as usize];
        let (folded, given) = (&self.folded, |rank: u32| &self.given[rank as usize]);
        let whole = |table, phase| vec![Segment { table, start: 0, len: all, phase }];
        // Rank q's piece lies in place q.
        let of_each = |phase: &dyn Fn(u32) -> u64| {
            let places = (0..).zip(shape.offsets.iter().zip(&shape.counts));
            places
                .map(|(q, (start, len))| Segment {
                    table: given(q),
                    start: *start,
                    len: *len,
                    phase: phase(q),
                })
                .collect()
        };
        let Some(function) = subject.operation.collective() else {
            return whole(given((rank + subject.n_ranks - 1) % subject.n_ranks), 0);
        };
        match function {
            AllReduce | Reduce => whole(folded, 0),
            ReduceScatter | ReduceScatterV => whole(folded, at),
            Broadcast => whole(given(subject.root), 0),
            Scatter => whole(given(subject.root), at),
            Gather if rank != subject.root => Vec::new(),
            AllGather | AllGatherV | Gather => of_each(&|_| 0),
            AllToAll | AllToAllV => of_each(&|q| subject.offset(case.bytes, q, rank)),
            Barrier => Vec::new(),
        }
    }
}

impl Segment<'_> {
    /// Its place in the buffer, in elements.
    pub(super) fn start(&self) -> u64 {
        self.start
    }

    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// The bytes of elements `from..from + len` of the segment, as slices of at most a period.
    pub(super) fn slices(&self, from: u64, len: u64, element: u64) -> impl Iterator<Item = &[u8]> {
        let (mut at, mut left) = (self.phase + from, len);
        std::iter::from_fn(move || {
            let start = at % PERIOD;
            let count = left.min(PERIOD - start);
            (at, left) = (at + count, left - count);
            let range = (start * element) as usize..((start + count) * element) as usize;
            (count > 0).then(|| &self.table.bytes[range])
        })
    }

    /// How many elements of `found`, which are the segment's from `from` on, are not what they must be.
    pub(super) fn differing(&self, found: &[u8], from: u64, element: u64) -> u64 {
        let mut wrong = 0;
        let mut rest = found;
        for right in self.slices(from, found.len() as u64 / element, element) {
            let (part, behind) = rest.split_at(right.len());
            rest = behind;
            if part != right {
                let size = element as usize;
                wrong += part.chunks(size).zip(right.chunks(size)).filter(|(a, b)| a != b).count() as u64;
            }
        }
        wrong
    }
}

#[cfg(test)]
mod tests {
    use warpway::DataType;
    use warpway::plan::ReduceOp;

    use super::super::case::Operation;
    use super::*;

    fn bytes_of(segment: &Segment<'_>, element: u64) -> Vec<u8> {
        segment.slices(0, segment.len(), element).flatten().copied().collect()
    }

    /// Of one rank: by the definition of the function, from all inputs.
    fn expected(subject: &Subject, case: Case, rank: u32, inputs: &[Vec<u64>]) -> Vec<u64> {
        let all = (case.bytes / 8) as usize;
        let sums = || (0..all).map(|at| inputs.iter().map(|input| input[at]).sum::<u64>());
        let shape = subject.shape(case, rank);
        let own = shape.offsets[rank as usize] as usize..;
        let own = own.start..own.start + shape.counts[rank as usize] as usize;
        let root = &inputs[subject.root as usize];
        let Some(function) = subject.operation.collective() else {
            return inputs[(rank as usize + inputs.len() - 1) % inputs.len()].clone();
        };
        match function {
            Function::AllReduce => sums().collect(),
            Function::Reduce if rank == subject.root => sums().collect(),
            Function::ReduceScatter | Function::ReduceScatterV => sums().collect::<Vec<_>>()[own].to_vec(),
            Function::AllGather | Function::AllGatherV => inputs.concat(),
            Function::Gather if rank == subject.root => inputs.concat(),
            Function::Broadcast => root.clone(),
            Function::Scatter => root[own].to_vec(),
            Function::AllToAll | Function::AllToAllV => {
                let piece = |from: u32| {
                    let shape = subject.shape(case, from);
                    let at = shape.offsets[rank as usize] as usize;
                    inputs[from as usize][at..at + shape.counts[rank as usize] as usize].to_vec()
                };
                (0..subject.n_ranks).flat_map(piece).collect()
            }
            _ => Vec::new(),
        }
    }

    #[test]
    fn results_are_what_the_functions_define() {
        let n_ranks = 3;
        let collectives = Function::NAMED.iter().map(|(function, _)| Operation::from(*function));
        for operation in collectives.chain([Operation::SendRecv]) {
            for elements in [3, 33, 60_000] {
                let subject =
                    Subject { operation, data_type: DataType::Uint64, op: ReduceOp::Sum, root: 2, n_ranks };
                let case = Case { bytes: 8 * elements, in_place: false };
                let round = Round::new(&subject, 5).unwrap();
                let words = |bytes: Vec<u8>| -> Vec<u64> {
                    bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect()
                };
                let inputs: Vec<Vec<u64>> = (0..n_ranks)
                    .map(|rank| words(bytes_of(&round.input(rank, subject.shape(case, rank).input.len), 8)))
                    .collect();
                for rank in 0..n_ranks {
                    let segments = round.output(&subject, case, rank);
                    let found: Vec<u64> =
                        segments.iter().flat_map(|segment| words(bytes_of(segment, 8))).collect();
                    assert_eq!(
                        found,
                        expected(&subject, case, rank, &inputs),
                        "{operation} {elements} {rank}"
                    );
                }
            }
        }
    }

    #[test]
    fn wrong_elements_are_counted() {
        let subject = Subject {
            operation: Function::AllGather.into(),
            data_type: DataType::Float16,
            op: ReduceOp::Sum,
            root: 0,
            n_ranks: 2,
        };
        let round = Round::new(&subject, 1).unwrap();
        let segment = round.input(1, 50_000);
        let mut found = bytes_of(&segment, 2);
        assert_eq!(segment.differing(&found, 0, 2), 0);
        assert_eq!(segment.differing(&found[2 * 20_000..], 20_000, 2), 0);
        for at in [0, 1, 16_381 * 2, 99_999] {
            found[at] ^= 0x10;
        }
        assert_eq!(segment.differing(&found, 0, 2), 3);
        // The data of a neighbour, of another round, or of another place.
        let of = |round: u64, rank| bytes_of(&Round::new(&subject, round).unwrap().input(rank, 50_000), 2);
        for other in [of(1, 0), of(2, 1), [&found[4096..], &found[..4096]].concat()] {
            assert!(segment.differing(&other, 0, 2) > 49_000);
        }
    }
}
