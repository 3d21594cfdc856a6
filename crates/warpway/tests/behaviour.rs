//! What the facade adds to the core: barrier, buffers, ranks as threads, split.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use warpway::core::health::Cause;
use warpway::{
    Communicator, Config, Context, Environment, Error, ErrorCode, Result, Timeout, Transport, in_process,
};

fn context() -> Context {
    Context::new(Config::default())
}

/// Waits end soon where a test wants them to.
fn impatient() -> Context {
    let config = Config::builder().device_timeout(Timeout::after(Duration::from_secs(2)));
    Context::new(config.read(&Environment::default()).unwrap().config)
}

/// Nobody leaves round r before all have entered it: each rank, once through, must see all of them counted,
/// and nobody can be two rounds ahead.
#[test]
fn barriers_of_one_to_eight_ranks() {
    const ROUNDS: u64 = 200;
    for n_ranks in 1..=8 {
        let entered = AtomicU64::new(0);
        in_process(n_ranks, &context(), |comm| {
            let barrier = comm.make_barrier()?;
            for round in 0..ROUNDS {
                entered.fetch_add(1, Ordering::SeqCst);
                barrier.wait()?;
                let seen = entered.load(Ordering::SeqCst);
                let n = u64::from(n_ranks);
                let (all, next) = ((round + 1) * n, (round + 2) * n - 1);
                assert!((all..=next).contains(&seen), "{n_ranks} ranks, round {round}: {seen} have entered");
            }
            Ok(())
        })
        .unwrap();
        assert_eq!(entered.into_inner(), ROUNDS * u64::from(n_ranks));
    }
}

#[test]
fn a_barrier_that_one_rank_misses_names_it() {
    let error = in_process(2, &impatient(), |comm| {
        let barrier = comm.make_barrier()?;
        if comm.rank() == 0 {
            let result = barrier.wait();
            // Rank 1 stays until rank 0 has given up: it is late, not gone.
            comm.barrier()?;
            return result;
        }
        comm.barrier()
    })
    .unwrap_err();
    let Error::Wait(error) = error else { panic!("{error}") };
    assert_eq!((error.rank, error.site.peer, error.code()), (0, Some(1), ErrorCode::Timeout));
}

#[test]
fn buffers_of_awkward_sizes_reach_the_peer_between_canaries() {
    for (len, transport) in [1, 3, 17, 4095, 100_003]
        .into_iter()
        .flat_map(|len| [(len, Transport::SharedMemory), (len, Transport::Ethernet)])
    {
        let received = in_process(2, &context(), |comm| {
            let peer = comm.connect_by(1 - comm.rank(), transport)?;
            let (mine, theirs) = (comm.alloc::<u16>(len)?, comm.alloc::<u16>(len + 2)?);
            assert_eq!((mine.len(), mine.bytes()), (len, 2 * len));
            assert_eq!(mine.to_vec()?, vec![0; len as usize], "memory begins as zeros");
            theirs.fill(0xABCD)?;
            mine.write(0, &numbers(comm.rank(), len))?;
            let remote = peer.exchange_memory(&theirs)?;
            let service = comm.proxy_service()?;
            let channel = peer.port_channel(&service, &mine, &remote)?.device_handle();
            channel.put_with_signal(2, 0, mine.bytes())?;
            channel.flush()?;
            // After the flush the source may be changed.
            mine.fill(0)?;
            channel.wait()?;
            comm.barrier()?;
            Ok(theirs.to_vec()?)
        })
        .unwrap();
        for (rank, received) in (0..).zip(&received) {
            let expected = [vec![0xABCD], numbers(1 - rank, len), vec![0xABCD]].concat();
            assert!(*received == expected, "{len} elements by {transport}");
        }
    }
}

fn numbers(rank: u32, len: u64) -> Vec<u16> {
    (0..len).map(|at| (at * 31 + u64::from(rank) * 7 + 1) as u16).collect()
}

#[test]
fn an_empty_allocation_is_refused() {
    let error = in_process(1, &context(), |comm| comm.alloc::<u64>(0)).unwrap_err();
    assert_eq!((error.id(), error.code()), ("mem.invalid", ErrorCode::InvalidUsage), "{error}");
}

#[test]
fn there_is_no_rank_beyond_the_last() {
    let error = in_process(2, &context(), |comm| comm.connect(2)).unwrap_err();
    assert_eq!(error.id(), "exchange.argument");
    assert!(error.to_string().contains("no rank 2 among 2"), "{error}");
}

/// Both ranks get an error that names the two calls, by the lines of the program and not of the library.
#[test]
fn calls_that_do_not_match_are_named_by_their_lines() {
    let errors = in_process(2, &context(), |comm| {
        let peer = comm.connect(1 - comm.rank())?;
        let error = if comm.rank() == 0 {
            peer.signal_channel().unwrap_err()
        } else {
            peer.recv_memory().unwrap_err()
        };
        comm.barrier()?;
        Ok(error)
    })
    .unwrap();
    for error in errors {
        let text = error.to_string();
        assert_eq!(error.code(), ErrorCode::InvalidUsage, "{text}");
        assert_eq!(text.matches(file!()).count(), 2, "{text}");
        assert!(text.contains("build_semaphore") && text.contains("recv_memory"), "{text}");
    }
}

#[test]
fn results_come_by_rank() {
    assert_eq!(in_process(5, &context(), |comm| Ok((comm.rank(), comm.n_ranks()))).unwrap()[4], (4, 5));
    assert_eq!(in_process(1, &context(), |comm| Ok(comm.rank())).unwrap(), [0]);
}

/// The others wait for a signal that never comes; the error must be the cause, not what they saw of it.
#[test]
fn a_rank_that_errs_ends_the_others_and_is_the_one_reported() {
    let error = in_process(4, &context(), |comm| {
        let barrier = comm.make_barrier()?;
        if comm.rank() == 2 {
            return comm.alloc::<u8>(0).map(drop);
        }
        barrier.wait()
    })
    .unwrap_err();
    assert_eq!(error.id(), "mem.invalid", "{error}");
}

#[test]
fn a_rank_that_panics_ends_the_others_and_its_words_are_reported() {
    let error = in_process(4, &context(), |comm| {
        let barrier = comm.make_barrier()?;
        assert!(comm.rank() != 3, "rank three has had enough");
        barrier.wait()
    })
    .unwrap_err();
    let Error::Failed(failure) = &error else { panic!("{error}") };
    assert_eq!((failure.rank, failure.culprit), (3, Some(3)));
    let Cause::Aborted { reason } = &failure.cause else { panic!("{error}") };
    assert!(reason.contains("rank three has had enough"), "{error}");
}

#[test]
fn a_block_that_panics_fails_the_peers_with_its_words() {
    let seen = in_process(2, &context(), |comm| {
        let peer = comm.connect(1 - comm.rank())?;
        let channel = comm.block_semaphore(&peer.signal_channel()?)?;
        let result = comm.launch(1, |_block| {
            assert!(comm.rank() == 0, "no signal from here");
            channel.wait()
        });
        Ok(result.unwrap_err().to_string())
    })
    .unwrap();
    assert!(seen[0].contains("rank 1") && seen[0].contains("no signal from here"), "{}", seen[0]);
    assert!(seen[1].contains("no signal from here"), "{}", seen[1]);
}

/// Colours by parity, keys reversed: new ranks count down among the old ones.
#[test]
fn groups_of_a_split_work_apart() {
    let results = in_process(5, &context(), |comm| {
        let (color, key) = ((comm.rank() % 2) as i32, -(comm.rank() as i32));
        let group = comm.split(color, key)?.expect("colours are not negative");
        group.make_barrier()?.wait()?;
        let sum = sum_of_ranks(&group, comm.rank())?;
        comm.barrier()?;
        Ok((group.rank(), group.n_ranks(), sum))
    })
    .unwrap();
    assert_eq!(results, [(2, 3, 6), (1, 2, 4), (1, 3, 6), (0, 2, 4), (0, 3, 6)]);
}

#[test]
fn a_rank_without_colour_gets_no_group() {
    let results = in_process(3, &context(), |comm| {
        let group = comm.split(if comm.rank() == 1 { -1 } else { 0 }, 0)?;
        let found = group.as_ref().map(|group| (group.rank(), group.n_ranks()));
        comm.barrier()?;
        Ok(found)
    })
    .unwrap();
    assert_eq!(results, [Some((0, 2)), None, Some((1, 2))]);
}

/// Over channels of the group: everybody puts `value` to everybody, itself included.
fn sum_of_ranks(group: &Communicator, value: u32) -> Result<u32> {
    let (mine, slots) = (group.alloc::<u32>(1)?, group.alloc::<u32>(group.n_ranks().into())?);
    mine.write(0, &[value])?;
    let mut channels = Vec::new();
    for peer in group.connect_all(None)? {
        let remote = peer.exchange_memory(&slots)?;
        channels.push(group.block_channel(&peer.memory_channel(&mine, &remote)?)?);
    }
    group.launch(1, |block| {
        for channel in &channels {
            channel.put(4 * u64::from(group.rank()), 0, 4, block.share())?;
            channel.signal()?;
        }
        channels.iter().try_for_each(|channel| channel.wait())
    })?;
    let sum = slots.to_vec()?.iter().sum();
    group.barrier()?;
    Ok(sum)
}
