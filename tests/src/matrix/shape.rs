//! What lies where: the buffers of one rank before and after a call, by the definition of the function.

use warpway::ReduceOp;
use warpway::collectives::Function;

use super::case::Case;
use super::mix;
use super::number::Numbers;

/// Elements that a call writes into a rank's output.
struct Segment {
    place: u64,
    source: Source,
    first: u64,
    len: u64,
}

enum Source {
    Rank(u32),
    Fold,
}

/// Counts by rank and where the parts lie, as the call takes them.
#[derive(Debug, Clone, Default)]
pub(super) struct Parts {
    pub(super) counts: Vec<u64>,
    pub(super) places: Vec<u64>,
}

impl Parts {
    fn new(case: &Case, counts: Vec<u64>, salt: u64) -> Self {
        let mut places = vec![0; counts.len()];
        let mut end = 0;
        let mut order: Vec<usize> = (0..counts.len()).collect();
        if case.displaced {
            order.sort_by_key(|rank| mix(case.seed ^ salt, *rank as u64));
        }
        for rank in order {
            let gap = if case.displaced { mix(case.seed ^ salt, 1000 + rank as u64) % 4 } else { 0 };
            places[rank] = end + gap;
            end = places[rank] + counts[rank];
        }
        Self { counts, places }
    }

    /// Elements from the first to the end of the last.
    fn extent(&self) -> u64 {
        self.counts.iter().zip(&self.places).map(|(count, place)| count + place).max().unwrap_or(0)
    }

    fn of(&self, rank: u32) -> (u64, u64) {
        (self.places[rank as usize], self.counts[rank as usize])
    }
}

/// See the module's page. Lengths in elements.
pub(super) struct Shape {
    pub(super) input: u64,
    pub(super) output: u64,
    /// In place: the buffer, and where the input lies in it.
    pub(super) whole: u64,
    pub(super) input_at: u64,
    pub(super) output_at: u64,
    segments: Vec<Segment>,
    /// Of functions with counts by rank; those to send and those to receive of all_to_all_v.
    pub(super) parts: Vec<Parts>,
}

impl Shape {
    pub(super) fn new(case: &Case, rank: u32, n: u32) -> Self {
        let (count, me, is_root) = (case.elements, u64::from(rank), rank == case.root);
        let all = count * u64::from(n);
        let fold = |place, first, len| Segment { place, source: Source::Fold, first, len };
        let of = |place, rank, first, len| Segment { place, source: Source::Rank(rank), first, len };
        let gathered = || (0..n).map(|from| of(u64::from(from) * count, from, 0, count)).collect();
        let shape = |input, output, segments: Vec<Segment>| Self {
            input,
            output,
            whole: input.max(output),
            input_at: 0,
            output_at: 0,
            segments,
            parts: Vec::new(),
        };
        match case.function {
            Function::AllReduce => shape(count, count, vec![fold(0, 0, count)]),
            Function::AllGather => Self { input_at: me * count, ..shape(count, all, gathered()) },
            Function::ReduceScatter => {
                Self { output_at: me * count, ..shape(all, count, vec![fold(0, me * count, count)]) }
            }
            Function::Broadcast if is_root => shape(count, count, vec![of(0, rank, 0, count)]),
            Function::Broadcast => shape(0, count, vec![of(0, case.root, 0, count)]),
            Function::Reduce if is_root => shape(count, count, vec![fold(0, 0, count)]),
            Function::Reduce => shape(count, 0, vec![]),
            Function::Gather if is_root => Self { input_at: me * count, ..shape(count, all, gathered()) },
            Function::Gather => shape(count, 0, vec![]),
            Function::Scatter => {
                let own = vec![of(0, case.root, me * count, count)];
                if is_root {
                    Self { output_at: me * count, ..shape(all, count, own) }
                } else {
                    shape(0, count, own)
                }
            }
            Function::AllToAll => {
                let parts = (0..n).map(|from| of(u64::from(from) * count, from, me * count, count));
                shape(all, all, parts.collect())
            }
            Function::AllGatherV => {
                let parts = Parts::new(case, (0..n).map(|from| case.count(from, from)).collect(), 7);
                let place = |from: u32| parts.of(from);
                let segments = (0..n).map(|from| of(place(from).0, from, 0, place(from).1)).collect();
                let (at, own) = place(rank);
                Self { input_at: at, parts: vec![parts.clone()], ..shape(own, parts.extent(), segments) }
            }
            Function::ReduceScatterV => {
                let parts = Parts::new(case, (0..n).map(|to| case.count(to, to)).collect(), 7);
                let (at, own) = parts.of(rank);
                Self {
                    output_at: at,
                    parts: vec![parts.clone()],
                    ..shape(parts.extent(), own, vec![fold(0, at, own)])
                }
            }
            Function::AllToAllV => {
                // In place a part comes to where the part for that rank was.
                let salt = |receives: bool| if receives && !case.in_place { 99 } else { 7 };
                let sends = |from: u32| {
                    let counts = (0..n).map(|to| case.count(from, to)).collect();
                    Parts::new(case, counts, salt(false) ^ u64::from(from) << 8)
                };
                let receives = (0..n).map(|from| case.count(from, rank)).collect();
                let receives = Parts::new(case, receives, salt(true) ^ me << 8);
                let segment = |from: u32| {
                    let (first, len) = sends(from).of(rank);
                    of(receives.of(from).0, from, first, len)
                };
                let (own, segments) = (sends(rank), (0..n).map(segment).collect());
                let (input, output) = (own.extent(), receives.extent());
                Self { parts: vec![own, receives], ..shape(input, output, segments) }
            }
            Function::Barrier => shape(0, 0, vec![]),
        }
    }

    /// The rank's input.
    pub(super) fn input_bytes(&self, numbers: &Numbers, rank: u32) -> Vec<u8> {
        numbers.of_rank(rank, 0, self.input)
    }

    /// Writes what the call is to write, into the output or, in place, the whole buffer.
    pub(super) fn write_result(&self, case: &Case, numbers: &Numbers, buffer: &mut [u8]) {
        let size = case.data_type.bytes();
        let base = if case.in_place { self.output_at } else { 0 };
        for Segment { place, source, first, len } in &self.segments {
            let bytes = match source {
                Source::Rank(from) => numbers.of_rank(*from, *first, *len),
                Source::Fold => numbers.of_fold(*first, *len),
            };
            buffer[((base + place) * size) as usize..][..bytes.len()].copy_from_slice(&bytes);
        }
    }
}

/// The inputs of a case: of functions that do not fold the operator says nothing.
pub(super) fn numbers(case: &Case, n: u32) -> Numbers {
    let op = if case.function.reduces() { case.op } else { ReduceOp::Sum };
    Numbers::new(case.data_type, op, n, case.seed)
}
