//! Wrong calls: refused on their own rank before anything is launched, or named on all ranks, and soon.

use warpway::core::execution::ExecutionError;
use warpway::{Call, Communicator, Config, Context, Error, Function, ReduceOp, Result, in_process};

use crate::oracle::{context, errors, ranks};

/// What a rank was told about another: the field and the rank.
fn difference(error: &Error) -> (&'static str, u32) {
    match error {
        Error::Execution(ExecutionError::Difference { field, peer, .. }) => (field, *peer),
        Error::Execution(ExecutionError::Disagreement { peer, .. }) => ("set-up", *peer),
        other => panic!("{other}"),
    }
}

fn sum(comm: &Communicator, len: usize) -> Result<()> {
    comm.all_reduce(&mut vec![1i32; len], ReduceOp::Sum)
}

/// Rank 1 makes another call than rank 0, after a call that both make; both are told what differs.
fn differs(other: impl Fn(&Communicator) -> Result<()> + Sync, field: &str) {
    let found = errors(2, &context(), |comm| {
        sum(comm, 4)?;
        if comm.rank() == 1 { other(comm) } else { sum(comm, 4) }
    });
    for (rank, error) in (0..).zip(&found) {
        assert_eq!(difference(error), (field, 1 - rank), "rank {rank}: {error}");
    }
}

#[test]
fn counts_of_one_plan_that_differ_are_named() {
    differs(|comm| sum(comm, 5), "count");
}

#[test]
fn types_that_differ_are_named() {
    differs(|comm| comm.all_reduce(&mut [1f32; 4], ReduceOp::Sum), "data type");
}

/// Rank 1 sets up a plan while rank 0 launches one that it has kept.
#[test]
fn counts_that_lead_to_another_plan_are_named() {
    differs(|comm| sum(comm, 1 << 20), "step");
    differs(|comm| comm.all_reduce(&mut [1i32; 4], ReduceOp::Max), "step");
}

#[test]
fn another_collective_is_named() {
    differs(|comm| comm.all_gather(&[1i32; 2], &mut [0; 4]), "step");
    let found = errors(2, &context(), |comm| match comm.rank() {
        0 => sum(comm, 4),
        _ => comm.all_gather(&[1i32; 2], &mut [0; 4]),
    });
    for (rank, error) in (0..).zip(&found) {
        assert_eq!(difference(error), ("set-up", 1 - rank), "rank {rank}: {error}");
        assert!(error.to_string().contains("all_gather"), "{error}");
    }
    // Both kept: the first launch that differs is named.
    let found = errors(2, &context(), |comm| {
        sum(comm, 4)?;
        comm.all_gather(&[1i32; 2], &mut [0; 4])?;
        if comm.rank() == 0 { sum(comm, 4) } else { comm.all_gather(&[1i32; 2], &mut [0; 4]) }
    });
    for (rank, error) in (0..).zip(&found) {
        assert_eq!(difference(error), ("operation", 1 - rank), "rank {rank}: {error}");
    }
}

/// The root of a broadcast waits for nobody: it is ahead when rank 1 sets something up.
#[test]
fn a_rank_that_does_not_wait_is_named_too() {
    let found = errors(3, &context(), |comm| {
        comm.broadcast(&mut [1i32; 4], 0)?;
        if comm.rank() == 1 {
            return sum(comm, 4);
        }
        (0..1_000_000).try_for_each(|_| comm.broadcast(&mut [1i32; 4], 0))
    });
    let named = |error: &Error| error.peer().is_some() || error.culprit().is_some();
    assert!(found.iter().all(named), "{found:?}");
}

#[test]
fn wrong_buffers_are_refused_and_nothing_is_launched() {
    ranks(2, |comm| {
        let refused = |result: Result<()>, id: &str, text: &str| {
            let error = result.unwrap_err();
            assert_eq!(error.id(), id, "{error}");
            assert!(error.to_string().contains(text), "{error}");
        };
        let (a, mut b) = (vec![1i32; 6], vec![0i32; 5]);
        let sum = ReduceOp::Sum;
        refused(comm.all_reduce_into(&a, &mut b, sum), "collective.length", "as many as the input");
        refused(comm.all_gather(&a, &mut b), "collective.length", "20 bytes and is to have 48");
        refused(comm.reduce_scatter(&a, &mut b, sum), "collective.length", "a part for each rank");
        refused(comm.all_to_all_in_place(&mut b), "collective.counts", "2 equal parts");
        refused(comm.all_gather_in_place(&mut b), "collective.counts", "2 equal parts");
        refused(comm.broadcast(&mut b, 2), "collective.root", "no root 2 among 2 ranks");
        let text = "the part of rank 1 reaches from byte 12 to byte 24";
        refused(comm.all_gather_v(&a[..3], &mut b, &[3, 3]), "collective.counts", text);
        refused(comm.all_gather_v(&a[..3], &mut b, &[3]), "collective.counts", "1 counts for 2 ranks");
        let huge = "ends beyond 64 bits";
        refused(comm.all_gather_v(&a[..3], &mut b, &[u64::MAX, 3]), "collective.counts", huge);
        refused(
            comm.all_to_all_v(&a, &[3, 3], &mut b, &[3, 3]),
            "collective.counts",
            "reaches from byte 12 to byte 24",
        );
        let bytes = comm.alloc::<u8>(7)?;
        let call = Call::all_reduce(&bytes, sum).with_data_type(warpway::DataType::Float16);
        refused(comm.collective(&call), "collective.counts", "no whole number of float16");
        let call = Call::all_reduce(&mut b, sum).with_counts(&[1, 2]);
        refused(comm.collective(&call), "collective.counts", "no counts");
        let call = Call::new(Function::AllGatherV, a[..].into(), b[..].into(), warpway::DataType::Int32);
        refused(comm.collective(&call), "collective.counts", "none were given");
        for blocks in [0, 1025, 20_000, u32::MAX] {
            let call = Call::all_reduce(&mut b, sum).with_blocks(blocks);
            refused(comm.collective(&call), "collective.algorithm", "a rank has 1 to 1024");
        }
        let x = comm.alloc::<i32>(10)?;
        refused(comm.all_reduce_into(x.part(0, 5), x.part(4, 5), sum), "plan.launch", "overlap");
        refused(comm.all_reduce(x.part(6, 5), sum), "mem.bounds", "outside the memory");
        // All of that has left the communicator as it was.
        comm.all_reduce(x.part(0, 5), sum)
    });
}

#[test]
fn names_that_nothing_has_are_listed() {
    ranks(2, |comm| {
        let mut x = [1i32; 3];
        let error = comm.collective(&Call::all_reduce(&mut x, ReduceOp::Sum).with_algorithm("magic"));
        let text = error.unwrap_err().to_string();
        assert!(text.contains("no algorithm \"magic\" for all_reduce; there is "), "{text}");
        assert!(text.contains("two_shot"), "{text}");
        Ok(())
    });
    let mut config = Config::default();
    config.algorithm = Some("all_reduce=magic".into());
    in_process(1, &Context::new(config.clone()), |comm| {
        let text = sum(comm, 3).unwrap_err().to_string();
        assert!(text.contains("WARPWAY_ALGORITHM (all_reduce=magic): there is no algorithm"), "{text}");
        comm.broadcast(&mut [1u8], 0)
    })
    .unwrap();
    config.algorithm = Some("all_redoce=two_shot".into());
    in_process(1, &Context::new(config), |comm| {
        let error = sum(comm, 3).unwrap_err();
        assert_eq!(error.id(), "config.value");
        assert!(error.to_string().contains("no function \"all_redoce\""), "{error}");
        Ok(())
    })
    .unwrap();
}
