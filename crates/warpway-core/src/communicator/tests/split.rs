use super::*;
use crate::error::{Error, ErrorCode};

#[test]
fn children_are_ordered_by_key_then_rank() {
    // (colour, key) by rank, and the parent's ranks of each rank's group.
    let calls = [(0, 5), (1, 0), (0, -3), (-1, 9), (0, 5), (1, 0)];
    let groups: [Option<&[u32]>; 6] =
        [Some(&[2, 0, 4]), Some(&[1, 5]), Some(&[2, 0, 4]), None, Some(&[2, 0, 4]), Some(&[1, 5])];
    let job = LocalJob::new(6);
    let scopes = on_ranks(&job, |comm| {
        let (color, key) = calls[comm.rank() as usize];
        let child = comm.split(color, key, patience()).unwrap();
        let Some(child) = child else {
            assert_eq!(groups[comm.rank() as usize], None);
            comm.barrier(patience()).unwrap();
            return None;
        };
        let group = groups[comm.rank() as usize].unwrap();
        assert_eq!(child.members(), group);
        assert_eq!(group[child.rank() as usize], comm.rank());
        // A ring in the child: each rank hears of the one before it.
        let n = child.n_ranks();
        let (next, before) = ((child.rank() + 1) % n, (child.rank() + n - 1) % n);
        let size = 100 + u64::from(comm.rank());
        let sent = child.send_memory(&memory(&child, size), next, 0).unwrap();
        let received = child.recv_memory(before, 0).unwrap().wait(patience()).unwrap();
        assert_eq!(received.size(), 100 + u64::from(group[before as usize]));
        sent.wait(patience()).unwrap();
        child.barrier(patience()).unwrap();
        // Grandchildren, in reverse.
        let grandchild = child.split(0, -(child.rank() as i32), patience()).unwrap().unwrap();
        assert_eq!(grandchild.rank(), n - 1 - child.rank());
        grandchild.barrier(patience()).unwrap();
        comm.barrier(patience()).unwrap();
        Some((child.scope(), grandchild.scope()))
    });
    assert_eq!(scopes[0], scopes[2]);
    assert_eq!(scopes[0], scopes[4]);
    assert_eq!(scopes[1], scopes[5]);
    assert_ne!(scopes[0], scopes[1]);
    assert_ne!(scopes[0].unwrap().0, scopes[0].unwrap().1);
}

#[test]
fn a_bad_colour_or_an_open_exchange_is_everybodys_error_and_nobodys_hang() {
    let job = LocalJob::new(3);
    on_ranks(&job, |comm| {
        let culprit = comm.rank() == 1;
        let check = |result: Result<Option<Communicator>, Error>, text: &str| {
            let error = result.unwrap_err();
            assert_eq!((error.id(), error.peer()), ("exchange.collective", Some(1)));
            assert!(error.to_string().contains(text), "{error}");
        };
        check(comm.split(if culprit { -2 } else { 0 }, 0, patience()), "colour -2");
        let pending = culprit.then(|| comm.recv_memory(0, 8).unwrap());
        check(comm.split(0, 0, patience()), "under way");
        // Completed, so the communicator can be split after all.
        if comm.rank() == 0 {
            comm.send_memory(&memory(&comm, 1), 1, 8).unwrap().wait(patience()).unwrap();
        }
        if let Some(pending) = pending {
            pending.wait(patience()).unwrap();
        }
        let child = comm.split(0, 0, patience()).unwrap().unwrap();
        assert_eq!(child.members(), [0, 1, 2]);
        child.barrier(patience()).unwrap();
    });
}

#[test]
fn a_childs_abort_is_its_own_a_members_death_is_everybodys() {
    let job = LocalJob::new(4);
    let communicators: Vec<_> = (0..4).map(|rank| communicator(&job, rank)).collect();
    let children = each(communicators.clone(), |comm| {
        comm.split((comm.rank() / 2) as i32, 0, patience()).unwrap().unwrap()
    });
    children[0].abort("only the child");
    eventually("the abort", || children[1].async_error().is_some());
    let error = children[1].async_error().unwrap();
    assert_eq!((error.code(), error.peer()), (ErrorCode::Aborted, Some(0)));
    for healthy in communicators.iter().chain(&children[2..]) {
        assert!(healthy.async_error().is_none());
    }
    each(communicators.clone(), |comm| comm.barrier(patience()).unwrap());

    // Rank 3 is rank 1 of its child.
    job.kill(3);
    for (comm, culprit) in [(&communicators[0], 3), (&communicators[2], 3), (&children[2], 1)] {
        eventually("the news", || comm.async_error().is_some());
        let error = comm.async_error().unwrap();
        assert_eq!((error.id(), error.peer()), ("peer.died", Some(culprit)));
    }
    assert_eq!(children[0].async_error().unwrap().id(), "aborted", "the first failure stays");
}

#[test]
fn a_split_that_a_rank_does_not_join_ends_at_its_deadline() {
    let job = LocalJob::new(2);
    let comm = communicator(&job, 0);
    let error = comm.split(0, 0, briefly()).unwrap_err();
    assert_eq!((error.code(), error.peer()), (ErrorCode::Timeout, Some(1)));
}

#[test]
fn a_rank_in_another_collective_is_named() {
    let job = LocalJob::new(2);
    on_ranks(&job, |comm| {
        let error = match comm.rank() {
            0 => comm.split(0, 0, patience()).unwrap_err(),
            _ => comm.barrier(patience()).unwrap_err(),
        };
        assert_eq!((error.id(), error.peer()), ("bootstrap.mismatch", Some(1 - comm.rank())));
    });
}

#[test]
fn the_bootstrap_counts_in_ranks_of_the_communicator() {
    use crate::bootstrap::Bootstrap as _;
    let job = LocalJob::new(5);
    on_ranks(&job, |comm| {
        let child = comm.split((comm.rank() % 2) as i32, -(comm.rank() as i32), patience()).unwrap().unwrap();
        let bootstrap = child.bootstrap();
        assert_eq!((bootstrap.rank(), bootstrap.n_ranks()), (child.rank(), child.n_ranks()));
        let mut ranks = vec![0xEE; child.n_ranks() as usize];
        ranks[child.rank() as usize] = comm.rank() as u8;
        bootstrap.all_gather(&mut ranks, 1, patience()).unwrap();
        let expected: &[u8] = if comm.rank().is_multiple_of(2) { &[4, 2, 0] } else { &[3, 1] };
        assert_eq!(ranks, expected);
        comm.barrier(patience()).unwrap();
    });
}

#[test]
fn members_must_be_distinct_ranks_with_this_one_among_them() {
    let job = LocalJob::new(3);
    for members in [vec![], vec![1, 2], vec![0, 0], vec![0, 3]] {
        let error = Communicator::new(CommunicatorParts { members, ..job.parts(0, vec![]) }).unwrap_err();
        assert_eq!(error.id(), "exchange.argument");
    }
}
