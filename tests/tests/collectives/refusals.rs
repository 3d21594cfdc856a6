//! A rank that refuses its call while the others make theirs, on one host and between hosts: all are told who and why, soon.

use warpway::core::execution::ExecutionError;
use warpway::core::health::Cause;
use warpway::{Buffer, Call, Communicator, DataType, Error, Function, ReduceOp, Result, in_process_with};

use crate::disagreements::errors;
use crate::matrix::on_hosts;

type Act = fn(&Communicator, &Buffer<u8>) -> Result<()>;

/// One way for a call to be refused: the usual call, the wrong one, the id of its error, and words of that.
struct Kind(&'static str, Act, Act, &'static str, &'static str);

const ALL: &[Kind] = &[
    Kind(
        "root",
        |comm, _| comm.broadcast(&mut [1i32; 4], 0),
        |comm, _| comm.broadcast(&mut [1i32; 4], 7),
        "collective.root",
        "no root 7 among 3 ranks",
    ),
    Kind(
        "length",
        |comm, _| comm.all_gather(&[1i32; 2], &mut [0; 6]),
        |comm, _| comm.all_gather(&[1i32; 2], &mut [0; 5]),
        "collective.length",
        "20 bytes and is to have 24",
    ),
    Kind(
        "counts",
        |comm, _| comm.all_gather_v(&[1i32; 2], &mut [0; 6], &[2, 2, 2]),
        |comm, _| comm.all_gather_v(&[1i32; 2], &mut [0; 6], &[2, 2]),
        "collective.counts",
        "2 counts for 3 ranks",
    ),
    Kind(
        "rows",
        |comm, _| comm.all_to_all_v(&[1i32; 6], &[2, 2, 2], &mut [0; 6], &[2, 2, 2]),
        |comm, _| comm.all_to_all_v(&[1i32; 6], &[2, 2, 4], &mut [0; 6], &[2, 2, 2]),
        "collective.counts",
        "the part of rank 2 reaches",
    ),
    Kind(
        "algorithm",
        |comm, _| comm.all_reduce(&mut [1i32; 4], ReduceOp::Sum),
        |comm, _| comm.collective(&Call::all_reduce(&mut [1i32; 4], ReduceOp::Sum).with_algorithm("magic")),
        "collective.algorithm",
        "no algorithm \"magic\"",
    ),
    Kind(
        "type",
        |comm, x| {
            let call = Call::new(Function::AllReduce, x.view_of(0, 12), x.view_of(16, 12), DataType::Float32);
            comm.collective(&call)
        },
        |comm, x| {
            let call = Call::new(Function::AllReduce, x.view_of(0, 12), x.view_of(16, 12), DataType::Float64);
            comm.collective(&call)
        },
        "collective.counts",
        "12 bytes of input are no whole number of float64",
    ),
    Kind(
        "overlap",
        |comm, x| comm.all_reduce_into(x.part(0, 16), x.part(16, 16), ReduceOp::Max),
        |comm, x| comm.all_reduce_into(x.part(0, 16), x.part(8, 16), ReduceOp::Max),
        "plan.launch",
        "overlap",
    ),
    Kind(
        "bounds",
        |comm, x| comm.all_reduce(x.part(0, 16), ReduceOp::Min),
        |comm, x| comm.all_reduce(x.part(505, 16), ReduceOp::Min),
        "mem.bounds",
        "outside the memory",
    ),
];

/// What the others are told: of the refusal, or by a rank that has been told of it.
fn told(error: &Error) -> bool {
    match error {
        Error::Execution(ExecutionError::PeerRefused { .. }) => true,
        Error::Execution(ExecutionError::Step { cause, .. }) => told(cause),
        Error::Wait(wait) => wait.to_string().contains("has refused its call"),
        Error::Failed(failure) => matches!(failure.cause, Cause::PeerFailed { .. }),
        _ => false,
    }
}

fn one_refuses(hosts: &[u32; 3], kept: bool) {
    for Kind(what, usual, wrong, id, words) in ALL {
        for refuser in [0, 2] {
            let found = errors(&on_hosts(hosts), |comm, memory| {
                if kept {
                    usual(comm, &memory[0])?;
                }
                if comm.rank() == refuser {
                    return wrong(comm, &memory[0]);
                }
                // Those that wait for nobody, notice later.
                (0..2000).try_for_each(|_| usual(comm, &memory[0]))
            });
            for (rank, error) in (0..).zip(&found) {
                let context =
                    format!("{what} on hosts {hosts:?}, {refuser} refuses, kept {kept}, rank {rank}");
                let Some(error) = error else { panic!("{context} has not noticed") };
                let text = error.to_string();
                assert!(text.contains(words), "{context}: {text}");
                if rank == refuser {
                    assert_eq!(error.id(), *id, "{context}: {text}");
                } else {
                    assert!(told(error), "{context}: {text}");
                    assert_eq!(error.culprit(), Some(refuser), "{context}: {text}");
                }
            }
        }
    }
}

#[test]
fn a_rank_that_refuses_alone_is_named_on_one_host() {
    one_refuses(&[0, 0, 0], true);
}

#[test]
fn a_rank_that_refuses_alone_is_named_between_hosts() {
    one_refuses(&[0, 1, 1], true);
}

#[test]
fn a_rank_that_refuses_the_first_call_alone_is_named() {
    one_refuses(&[0, 0, 0], false);
    one_refuses(&[0, 0, 1], false);
}

/// Then nobody waits, and nothing has happened.
#[test]
fn ranks_that_refuse_alike_go_on() {
    for hosts in [[0, 0, 0], [0, 1, 1]] {
        in_process_with(&on_hosts(&hosts), |comm| {
            let memory = comm.alloc(512)?;
            for Kind(what, usual, wrong, id, _) in ALL {
                for _ in 0..2 {
                    let error = wrong(comm, &memory).unwrap_err();
                    assert_eq!(error.id(), *id, "{what}: {error}");
                }
                usual(comm, &memory)?;
                assert_eq!(wrong(comm, &memory).unwrap_err().id(), *id, "{what}");
                usual(comm, &memory)?;
            }
            comm.barrier()
        })
        .unwrap();
    }
}
