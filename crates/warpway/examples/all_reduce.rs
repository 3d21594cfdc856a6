//! Tutorial 9: the collectives that come with the library.
//!
//! `warpway launch -n 4 -- target/release/examples/all_reduce`; docs/tutorials/09-collectives.md explains it.

use warpway::{Call, Communicator, Counts, ReduceOp, Result};

fn main() -> Result<()> {
    let comm = Communicator::from_env()?;
    let (rank, n_ranks) = (comm.rank(), comm.n_ranks());
    let of_all = u64::from(n_ranks);

    // Weights of rank 0, for all.
    let mut weights = if rank == 0 { vec![0.5f32; 1001] } else { vec![0.0; 1001] };
    comm.broadcast(&mut weights, 0)?;

    // Memory of `alloc` is not copied on its way, so it is for what is large or used often.
    let mut gradient = comm.alloc::<f32>(1 << 18)?;
    gradient.fill(rank as f32)?;
    comm.all_reduce(&mut gradient, ReduceOp::Sum)?;

    // A few numbers of each rank, another number of them on each.
    let counts: Vec<u64> = (0..of_all).collect();
    let own = vec![rank; counts[rank as usize] as usize];
    let mut all = vec![0; counts.iter().sum::<u64>() as usize];
    comm.all_gather_v(&own, &mut all, &counts)?;

    // Rank r to the place n - 1 - r, three numbers apart.
    let places: Vec<u64> = (0..of_all).map(|rank| (of_all - 1 - rank) * 3).collect();
    let mut backwards = vec![u32::MAX; 3 * n_ranks as usize];
    comm.all_gather_v(&[rank], &mut backwards, Counts::at(&vec![1; n_ranks as usize], &places))?;

    let sum = (0..n_ranks).sum::<u32>() as f32;
    let right = weights == [0.5; 1001]
        && gradient.to_vec()?.iter().all(|x| *x == sum)
        && all.len() == counts.iter().sum::<u64>() as usize
        && all.is_sorted()
        && backwards[0] == n_ranks - 1;
    let call = Call::all_reduce(&mut gradient, ReduceOp::Sum);
    let taken = comm.explain(&call)?.taken().to_owned();
    println!("rank {rank}: {} by {taken}", if right { "all correct" } else { "something is wrong" });
    comm.collective(&Call::barrier())
}
