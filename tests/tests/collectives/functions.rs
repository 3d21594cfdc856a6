//! Every method, in and out of place, on slices and on registered memory, sizes from nothing on.

use warpway::collectives::catalogue;
use warpway::{Buffer, Call, Communicator, Counts, DataType, Function, ReduceOp, Result};

use crate::oracle::{input, ranks, sums, value};

const SIZES: [u64; 5] = [0, 1, 17, 1000, 40_001];
const CANARY: i32 = -77;

/// Runs `check(comm, round, elements per rank)` for several numbers of ranks and sizes, twice each.
fn each(check: impl Fn(&Communicator, u64, u64) -> Result<()> + Sync) {
    for n in [1, 2, 3, 4] {
        ranks(n, |comm| {
            for (round, count) in (0..).zip(SIZES.into_iter().chain(SIZES)) {
                check(comm, round, count)?;
            }
            comm.barrier()
        });
    }
}

/// A buffer with these elements between canaries.
struct Guarded(Buffer<i32>);

impl Guarded {
    fn new(comm: &Communicator, data: &[i32]) -> Result<Self> {
        let buffer = comm.alloc(data.len() as u64 + 2)?;
        buffer.write(0, &[CANARY])?;
        buffer.write(1, data)?;
        buffer.write(data.len() as u64 + 1, &[CANARY])?;
        Ok(Self(buffer))
    }

    fn part(&self) -> warpway::Part<'_, i32> {
        self.0.part(1, self.0.len() - 2)
    }

    fn data(&self) -> Vec<i32> {
        let all = self.0.to_vec().unwrap();
        assert_eq!([all[0], all[all.len() - 1]], [CANARY; 2]);
        all[1..all.len() - 1].to_vec()
    }
}

#[test]
fn all_reduce() {
    each(|comm, round, count| {
        let (own, expected) = (input(round, comm.rank(), count), sums(round, comm.n_ranks(), 0, count));
        let mut x = own.clone();
        comm.all_reduce(&mut x, ReduceOp::Sum)?;
        assert_eq!(x, expected);
        let mut output = vec![CANARY; count as usize];
        comm.all_reduce_into(&own, &mut output, ReduceOp::Sum)?;
        assert_eq!(output, expected);
        let (from, to) = (Guarded::new(comm, &own)?, Guarded::new(comm, &vec![0; count as usize])?);
        comm.all_reduce_into(from.part(), to.part(), ReduceOp::Sum)?;
        assert_eq!((from.data(), to.data()), (own, expected.clone()));
        comm.all_reduce(from.part(), ReduceOp::Sum)?;
        assert_eq!(from.data(), expected);
        // A rank with a slice, the others with registered memory.
        let to = Guarded::new(comm, &input(round, comm.rank(), count))?;
        let mut x = input(round, comm.rank(), count);
        if comm.rank() == 0 {
            comm.all_reduce(&mut x, ReduceOp::Sum)?;
        } else {
            comm.all_reduce(to.part(), ReduceOp::Sum)?;
            x = to.data();
        }
        assert_eq!(x, expected);
        Ok(())
    });
}

#[test]
fn all_gather() {
    each(|comm, round, count| {
        let n = comm.n_ranks();
        let own = input(round, comm.rank(), count);
        let expected: Vec<i32> = (0..n).flat_map(|rank| input(round, rank, count)).collect();
        let mut output = vec![CANARY; expected.len()];
        comm.all_gather(&own, &mut output)?;
        assert_eq!(output, expected);
        let mut data = vec![CANARY; expected.len()];
        data[(u64::from(comm.rank()) * count) as usize..][..count as usize].copy_from_slice(&own);
        let whole = Guarded::new(comm, &data)?;
        comm.all_gather_in_place(&mut data)?;
        assert_eq!(data, expected);
        comm.all_gather_in_place(whole.part())?;
        assert_eq!(whole.data(), expected);
        Ok(())
    });
}

#[test]
fn reduce_scatter() {
    each(|comm, round, count| {
        let (n, first) = (comm.n_ranks(), u64::from(comm.rank()) * count);
        let mut own = input(round, comm.rank(), count * u64::from(n));
        let expected = sums(round, n, first, count);
        let mut output = vec![CANARY; count as usize];
        comm.reduce_scatter(&own, &mut output, ReduceOp::Sum)?;
        assert_eq!(output, expected);
        comm.reduce_scatter_in_place(&mut own, ReduceOp::Sum)?;
        assert_eq!(own[first as usize..][..count as usize], expected);
        Ok(())
    });
}

#[test]
fn all_to_all() {
    each(|comm, round, count| {
        let (n, me) = (u64::from(comm.n_ranks()), comm.rank());
        let mut own = input(round, me, count * n);
        let part = |from: u32| (0..count).map(move |at| value(round, from, u64::from(me) * count + at));
        let expected: Vec<i32> = (0..comm.n_ranks()).flat_map(part).collect();
        let mut output = vec![CANARY; own.len()];
        comm.all_to_all(&own, &mut output)?;
        assert_eq!(output, expected);
        if catalogue_in_place(comm, Function::AllToAll) {
            comm.all_to_all_in_place(&mut own)?;
            assert_eq!(own, expected);
        }
        Ok(())
    });
}

/// Whether there is an algorithm that works in place.
fn catalogue_in_place(comm: &Communicator, function: Function) -> bool {
    use warpway::collectives::{Task, World};
    let task = Task::new(function, World::one_host(comm.n_ranks())).in_place();
    catalogue().any(|algorithm| algorithm.function == function && (algorithm.fits)(&task).is_ok())
}

#[test]
fn broadcast() {
    each(|comm, round, count| {
        for root in 0..comm.n_ranks() {
            let expected = input(round, root, count);
            let at_root = comm.rank() == root;
            let mut data = if at_root { expected.clone() } else { vec![CANARY; count as usize] };
            let whole = Guarded::new(comm, &data)?;
            comm.broadcast(&mut data, root)?;
            assert_eq!(data, expected);
            comm.broadcast(whole.part(), root)?;
            assert_eq!(whole.data(), expected);
            let mut output = vec![CANARY; count as usize];
            let given = if at_root { &expected[..] } else { &[] };
            comm.broadcast_into(given, &mut output, root)?;
            assert_eq!(output, expected);
        }
        Ok(())
    });
}

#[test]
fn reduce() {
    each(|comm, round, count| {
        for root in 0..comm.n_ranks() {
            let (own, at_root) = (input(round, comm.rank(), count), comm.rank() == root);
            let expected = sums(round, comm.n_ranks(), 0, count);
            let mut data = own.clone();
            comm.reduce(&mut data, ReduceOp::Sum, root)?;
            assert_eq!(data, if at_root { expected.clone() } else { own.clone() });
            let mut output = vec![CANARY; if at_root { count as usize } else { 0 }];
            comm.reduce_into(&own, &mut output, ReduceOp::Sum, root)?;
            assert!(!at_root || output == expected);
        }
        Ok(())
    });
}

#[test]
fn gather() {
    each(|comm, round, count| {
        let n = comm.n_ranks();
        let expected: Vec<i32> = (0..n).flat_map(|rank| input(round, rank, count)).collect();
        for root in 0..n {
            let (own, at_root) = (input(round, comm.rank(), count), comm.rank() == root);
            let mut output = vec![CANARY; if at_root { expected.len() } else { 0 }];
            comm.gather(&own, &mut output, root)?;
            assert!(!at_root || output == expected);
            let mut data = own.clone();
            if at_root {
                data = vec![CANARY; expected.len()];
                data[(u64::from(root) * count) as usize..][..count as usize].copy_from_slice(&own);
            }
            comm.gather_in_place(&mut data, root)?;
            assert_eq!(data, if at_root { expected.clone() } else { own });
        }
        Ok(())
    });
}

#[test]
fn scatter() {
    each(|comm, round, count| {
        let n = comm.n_ranks();
        for root in 0..n {
            let at_root = comm.rank() == root;
            let whole = input(round, root, count * u64::from(n));
            let own = &whole[(u64::from(comm.rank()) * count) as usize..][..count as usize];
            let mut output = vec![CANARY; count as usize];
            comm.scatter(if at_root { &whole[..] } else { &[] }, &mut output, root)?;
            assert_eq!(output, own);
            let mut data = if at_root { whole.clone() } else { vec![CANARY; count as usize] };
            comm.scatter_in_place(&mut data, root)?;
            assert_eq!(data, if at_root { &whole[..] } else { own });
        }
        Ok(())
    });
}

/// Counts of a round: zeros among them, and one of nothing at all.
fn counts(n: u32, count: u64, salt: u64) -> Vec<u64> {
    (0..u64::from(n)).map(|rank| if (rank + salt).is_multiple_of(3) { 0 } else { count + rank }).collect()
}

/// Where parts begin that lie in reverse order with a gap behind each.
fn reversed(counts: &[u64]) -> (Vec<u64>, u64) {
    let mut places = vec![0; counts.len()];
    let mut end = 0;
    for (place, count) in places.iter_mut().zip(counts).rev() {
        *place = end;
        end += count + 2;
    }
    (places, end)
}

#[test]
fn all_gather_v() {
    each(|comm, round, count| {
        let n = comm.n_ranks();
        let counts = counts(n, count, round);
        let own = input(round, comm.rank(), counts[comm.rank() as usize]);
        let expected: Vec<i32> = (0..n).flat_map(|rank| input(round, rank, counts[rank as usize])).collect();
        let mut output = vec![CANARY; expected.len()];
        comm.all_gather_v(&own, &mut output, &counts)?;
        assert_eq!(output, expected);
        let (places, end) = reversed(&counts);
        let mut output = vec![CANARY; end as usize];
        comm.all_gather_v(&own, &mut output, Counts::at(&counts, &places))?;
        let mut expected = vec![CANARY; end as usize];
        for rank in 0..n {
            let part = input(round, rank, counts[rank as usize]);
            expected[places[rank as usize] as usize..][..part.len()].copy_from_slice(&part);
        }
        assert_eq!(output, expected);
        Ok(())
    });
}

/// A part of no elements lies nowhere: its displacement does not count, in place as elsewhere.
#[test]
fn empty_parts_may_lie_beyond_the_buffer() {
    ranks(2, |comm| {
        for places in [[0, 3], [0, 500], [0, u64::MAX / 16], [0, u64::MAX]] {
            let counts = [3, 0];
            for function in [Function::AllGatherV, Function::ReduceScatterV] {
                let mut data = [1i32, 2, 3];
                let call = Call::new_in_place(function, (&mut data[..]).into(), DataType::Int32);
                comm.collective(&call.with_op(ReduceOp::Sum).with_counts(Counts::at(&counts, &places)))?;
                let expected = match (function, comm.rank()) {
                    (Function::ReduceScatterV, 0) => [2, 4, 6],
                    _ => [1, 2, 3],
                };
                assert_eq!(data, expected, "{function} with parts at {places:?}");
            }
            let mut output = [CANARY; 3];
            let own: &[i32] = if comm.rank() == 0 { &[7, 8, 9] } else { &[] };
            comm.all_gather_v(own, &mut output, Counts::at(&counts, &places))?;
            assert_eq!(output, [7, 8, 9]);
            let mut output = [CANARY; 3];
            let [parts, empty] = [Counts::at(&counts, &places), Counts::at(&[0, 0], &places)];
            let given = [10, 11, 12].map(|element| element + comm.rank() as i32 * 10);
            // Rank 0 sends to itself, rank 1 to nobody.
            let (send, receive) = if comm.rank() == 0 { (parts, parts) } else { (empty, empty) };
            comm.all_to_all_v(&given, send, &mut output, receive)?;
            assert_eq!(output, if comm.rank() == 0 { [10, 11, 12] } else { [CANARY; 3] });
            let mut own = [CANARY; 3];
            let own = if comm.rank() == 0 { &mut own[..] } else { &mut own[..0] };
            comm.reduce_scatter_v(&given, &mut *own, parts, ReduceOp::Sum)?;
            assert!(own.iter().eq([30, 32, 34].iter().take(own.len())), "{own:?}");
        }
        Ok(())
    });
}

#[test]
fn reduce_scatter_v() {
    each(|comm, round, count| {
        let n = comm.n_ranks();
        let counts = counts(n, count, round);
        let own = input(round, comm.rank(), counts.iter().sum());
        let first = counts[..comm.rank() as usize].iter().sum();
        let expected = sums(round, n, first, counts[comm.rank() as usize]);
        let mut output = vec![CANARY; expected.len()];
        comm.reduce_scatter_v(&own, &mut output, &counts, ReduceOp::Sum)?;
        assert_eq!(output, expected);
        Ok(())
    });
}

#[test]
fn all_to_all_v() {
    each(|comm, round, count| {
        let (n, me) = (comm.n_ranks(), comm.rank() as usize);
        // Row: from, column: to.
        let matrix: Vec<Vec<u64>> = (0..n).map(|from| counts(n, count, round + u64::from(from))).collect();
        let receive: Vec<u64> = matrix.iter().map(|row| row[me]).collect();
        let own = input(round, comm.rank(), matrix[me].iter().sum());
        let part = |from: u32| {
            let row = &matrix[from as usize];
            let first: u64 = row[..me].iter().sum();
            (first..first + row[me]).map(move |at| value(round, from, at))
        };
        let expected: Vec<i32> = (0..n).flat_map(part).collect();
        let mut output = vec![CANARY; expected.len()];
        comm.all_to_all_v(&own, &matrix[me], &mut output, &receive)?;
        assert_eq!(output, expected);
        Ok(())
    });
}
