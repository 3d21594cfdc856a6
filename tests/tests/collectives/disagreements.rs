//! A rank that calls something else than the others, on one host and between hosts: every rank that notices is told the
//! rank, the function and both values; nobody hangs.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use warpway::{
    Buffer, BufferView, Call, Communicator, Context, DataType, Error, ErrorCode, Function, ReduceOp, Result,
    in_process_with,
};

use warpway::collectives::World;
use warpway_core::health::DEPARTURE_GRACE;
use warpway_tests::matrix::Case;

use crate::matrix::{on_hosts, on_hosts_within};

/// Communicators that ranks leave right after a call.
const LEAVES: u64 = 120;
/// Elements that a rank contributes or gets, in the usual call.
const USUAL: u64 = 6;

/// A call with buffers of its own: the lengths that a function wants depend on the rank.
#[derive(Clone, Copy)]
struct Given {
    function: Function,
    elements: u64,
    data_type: DataType,
    op: ReduceOp,
    root: u32,
    /// Of functions with counts by rank: of the last rank; of all_to_all_v between the last two.
    last: u64,
}

impl Given {
    fn usual(function: Function) -> Self {
        Self {
            function,
            elements: USUAL,
            data_type: DataType::Int32,
            op: ReduceOp::Sum,
            root: 0,
            last: USUAL,
        }
    }

    /// Counts by rank; of all_to_all_v by the other rank, alike in both directions.
    fn counts(&self, rank: u32) -> [u64; 3] {
        let is_special = |other: u32| match self.function {
            Function::AllToAllV => [(1, 2), (2, 1)].contains(&(rank, other)),
            _ => other == 2,
        };
        [0, 1, 2].map(|other| if is_special(other) { self.last } else { self.elements })
    }

    fn run(&self, comm: &Communicator, memory: &[Buffer<u8>; 2]) -> Result<()> {
        let (rank, n, size) = (comm.rank() as usize, 3, self.data_type.bytes());
        let is_root = comm.rank() == self.root;
        let (one, all, none) = (self.elements, self.elements * n, 0);
        let (counts, total) = (self.counts(comm.rank()), self.counts(comm.rank()).iter().sum());
        let (input, output) = match self.function {
            Function::AllReduce => (one, one),
            Function::AllGather => (one, all),
            Function::ReduceScatter => (all, one),
            Function::AllToAll => (all, all),
            Function::Broadcast => (if is_root { one } else { none }, one),
            Function::Reduce => (one, if is_root { one } else { none }),
            Function::Gather => (one, if is_root { all } else { none }),
            Function::Scatter => (if is_root { all } else { none }, one),
            Function::AllGatherV => (counts[rank], total),
            Function::ReduceScatterV => (total, counts[rank]),
            Function::AllToAllV => (total, total),
            Function::Barrier => (none, none),
        };
        let view = |at: usize, elements: u64| match elements {
            0 => BufferView::EMPTY,
            _ => memory[at].view_of(0, elements * size),
        };
        let call = Call::new(self.function, view(0, input), view(1, output), self.data_type);
        let call = call.with_op(self.op).with_root(self.root);
        comm.collective(&match self.function {
            Function::AllGatherV | Function::ReduceScatterV => call.with_counts(&counts),
            Function::AllToAllV => call.with_pair_counts(&counts, &counts),
            _ => call,
        })
    }
}

/// One way for rank 1 to be wrong: its call, and what the texts of errors say of the usual value and of the other one.
struct Row {
    what: &'static str,
    usual: Given,
    other: Given,
    /// Texts of which one must occur, for the usual and for the other value.
    values: [Vec<String>; 2],
}

fn table() -> Vec<Row> {
    let mut rows = Vec::new();
    for (at, (function, _)) in Function::NAMED.iter().enumerate() {
        let usual = Given::usual(*function);
        let mut row =
            |what, other: Given, values: [Vec<String>; 2]| rows.push(Row { what, usual, other, values });
        let text = |text: &str| vec![text.to_owned()];
        let name = |function: Function| text(function.name());
        // The next one.
        let (next, _) = Function::NAMED[(at + 1) % Function::NAMED.len()];
        row("function", Given::usual(next), [name(*function), name(next)]);
        if *function == Function::Barrier {
            continue;
        }
        row("type", Given { data_type: DataType::Float32, ..usual }, [text("int32"), text("float32")]);
        if function.is_sized() {
            let more = USUAL + 3;
            let bytes = |count: u64| vec![format!("{} bytes", count * 4), "digest".to_owned()];
            row("counts", Given { last: more, ..usual }, [bytes(USUAL), bytes(more)]);
        } else {
            let bytes = |count: u64| -> Vec<String> {
                let sides =
                    |parts: u64| ["bytes", "of output"].map(|side| format!("{} {side}", count * parts * 4));
                [1, 3].into_iter().flat_map(sides).collect()
            };
            row("count", Given { elements: USUAL + 1, ..usual }, [bytes(USUAL), bytes(USUAL + 1)]);
        }
        if function.reduces() {
            row("operator", Given { op: ReduceOp::Max, ..usual }, [text("sum"), text("max")]);
        }
        if function.is_rooted() {
            let values = |root: u32| {
                vec![format!("root {root}"), format!("root differs: {root} "), format!(", {root} on")]
            };
            row("root", Given { root: 2, ..usual }, [values(0), values(2)]);
        }
    }
    rows
}

/// Runs `rank_main` on each rank until it fails, at most for a while, and gives the errors. All stay until all are done.
pub(crate) fn errors(
    contexts: &[Context],
    rank_main: impl Fn(&Communicator, &[Buffer<u8>; 2]) -> Result<()> + Sync,
) -> Vec<Option<Error>> {
    let n = contexts.len();
    let found: Mutex<Vec<Option<Option<Error>>>> = Mutex::new(vec![None; n]);
    let started = Instant::now();
    in_process_with(contexts, |comm| {
        let memory = [comm.alloc(512)?, comm.alloc(512)?];
        let result = rank_main(comm, &memory);
        found.lock().unwrap()[comm.rank() as usize] = Some(result.err());
        let done = || found.lock().unwrap().iter().all(Option::is_some);
        while !done() && started.elapsed() < Duration::from_secs(30) {
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    })
    .unwrap();
    found.into_inner().unwrap().into_iter().map(|error| error.expect("no rank hangs")).collect()
}

/// Rank 1 makes the other call where the others make the usual one, `kept` times after all have made both.
fn play(contexts: &[Context], row: &Row, kept: bool) -> Vec<Option<Error>> {
    errors(contexts, |comm, memory| {
        if kept {
            row.usual.run(comm, memory)?;
            row.other.run(comm, memory)?;
        }
        if comm.rank() == 1 {
            row.other.run(comm, memory)?;
        }
        // Those that wait for nobody, notice later.
        (0..2000).try_for_each(|_| row.usual.run(comm, memory))
    })
}

fn judge(context: &str, row: &Row, found: &[Option<Error>]) {
    for (rank, error) in (0u32..).zip(found) {
        let Some(error) = error else { panic!("{context}: rank {rank} has not noticed: {found:?}") };
        let text = error.to_string();
        let named = error.culprit().or(error.peer());
        assert!(named.is_some(), "{context}: rank {rank} blames {named:?}: {text}");
        assert!(text.contains("rank 1"), "{context}: rank {rank}: {text}");
        let function = row.usual.function.name();
        let either = text.contains(function) || text.contains(row.other.function.name());
        assert!(either, "{context}: rank {rank}: {function} is not in: {text}");
        // A rank may also learn that a launch over there is none of its own: of that launch it knows no more.
        let is_apart = text.contains("one without rank 1");
        for values in row.values.iter().skip(usize::from(is_apart)) {
            let any = values.iter().any(|value| text.contains(value.as_str()));
            assert!(any, "{context}: rank {rank}: none of {values:?} is in: {text}");
        }
    }
}

fn every_row(hosts: &[u32], kept: bool) {
    let world = World::by_host(hosts);
    let fits = |given: &Given| Case::new(given.function, 1, 1).fits(&world);
    for row in table().iter().filter(|row| fits(&row.usual) && fits(&row.other)) {
        let found = play(&on_hosts(hosts), row, kept);
        let context =
            format!("{} with another {} on hosts {hosts:?}, kept {kept}", row.usual.function, row.what);
        judge(&context, row, &found);
    }
}

#[test]
fn another_launch_is_named_on_one_host() {
    every_row(&[0, 0, 0], true);
}

#[test]
fn another_launch_is_named_between_hosts() {
    every_row(&[0, 1, 1], true);
}

#[test]
fn another_set_up_is_named_on_one_host() {
    every_row(&[0, 0, 0], false);
}

#[test]
fn another_set_up_is_named_between_hosts() {
    every_row(&[0, 1, 1], false);
}

/// Rank 1 does not make the second call; with `aborts`, it gives up. The others are told in time that it is missing.
fn absent(hosts: &[u32], aborts: bool) {
    let world = World::by_host(hosts);
    for (function, name) in Function::NAMED {
        let usual = Given::usual(*function);
        if !Case::new(*function, 1, 1).fits(&world) {
            continue;
        }
        let limit = Duration::from_millis(if aborts { 20_000 } else { 300 });
        let gone = Mutex::new(None);
        let found = errors(&on_hosts_within(hosts, limit), |comm, memory| {
            usual.run(comm, memory)?;
            if comm.rank() == 1 {
                *gone.lock().unwrap() = Some(Instant::now());
                if aborts {
                    comm.abort("rank 1 has had enough");
                }
                return Ok(());
            }
            // Those that wait for nobody notice when buffers are full.
            (0..100_000).try_for_each(|_| usual.run(comm, memory))
        });
        let blamed = |rank: usize| found[rank].as_ref().and_then(Error::culprit);
        for rank in [0usize, 2] {
            let context = format!("{name} on hosts {hosts:?}, rank {rank}");
            let Some(error) = &found[rank] else { panic!("{context} has not noticed: {found:?}") };
            // Who waits for a rank that waits for the missing one mostly learns whom that one waits for, not always.
            assert!(blamed(rank).is_some_and(|other| !aborts || other == 1), "{context}: {error}");
            let codes = [ErrorCode::Timeout, ErrorCode::RemoteError, ErrorCode::Aborted];
            assert!(codes.contains(&error.code()), "{context}: {error}");
        }
        assert!(gone.lock().unwrap().is_some_and(|at| at.elapsed() < Duration::from_secs(20)), "{name}");
    }
}

#[test]
fn a_rank_that_does_not_call_is_named_on_one_host() {
    absent(&[0, 0, 0], false);
}

#[test]
fn a_rank_that_does_not_call_is_named_between_hosts() {
    absent(&[0, 1, 1], false);
}

#[test]
fn a_rank_that_aborts_is_named() {
    absent(&[0, 0, 0], true);
    absent(&[0, 1, 1], true);
}

/// What a rank has sent is there, and it needs nothing more: it may go while others are still at it.
#[test]
fn a_rank_may_leave_after_its_last_collective() {
    let hosts = [0, 0, 1, 1];
    for turn in 0..20 {
        let left = in_process_with(&on_hosts(&hosts), |comm| {
            if comm.rank() > 0 {
                std::thread::sleep(Duration::from_micros(200));
            }
            comm.all_reduce(&mut vec![1i32; 1003], ReduceOp::Sum)
        });
        left.unwrap_or_else(|error| panic!("turn {turn}: {error}"));
    }
}

/// Whatever it is, and whoever comes first: the root of a broadcast waits for nobody.
#[test]
fn a_rank_may_leave_after_any_collective() {
    for hosts in [[0, 0, 1], [0, 1, 1], [0, 1, 2]] {
        let world = World::by_host(&hosts);
        let all = Function::NAMED.iter().map(|(function, _)| *function);
        for function in all.filter(|function| Case::new(*function, 1, 1).fits(&world)) {
            for early in 0..3 {
                let left = in_process_with(&on_hosts(&hosts), |comm| {
                    let memory = [comm.alloc(512)?, comm.alloc(512)?];
                    let usual = Given::usual(function);
                    usual.run(comm, &memory)?;
                    if comm.rank() != early {
                        std::thread::sleep(Duration::from_micros(500));
                    }
                    usual.run(comm, &memory)
                });
                left.unwrap_or_else(|error| panic!("{function} on {hosts:?}, {early} is early: {error}"));
            }
        }
    }
}

/// Packets of several ranks that have come, while a rank that sent some is gone.
#[test]
fn a_rank_may_leave_after_packets_to_several() {
    for turn in 0..LEAVES {
        let n = 3 + turn % 2;
        let (function, algorithm) = [
            (Function::AllReduce, "one_shot_packets"),
            (Function::AllGather, "packets"),
            (Function::Gather, "packets"),
        ][turn as usize % 3];
        let left = in_process_with(&on_hosts(&vec![0; n as usize]), |comm| {
            let got = if function == Function::AllReduce { 1 } else { n };
            let (input, output) = (comm.alloc::<u8>(4)?, comm.alloc::<u8>(4 * got)?);
            let call = Call::new(function, input.view(), output.view(), DataType::Int32);
            comm.collective(&call.with_algorithm(algorithm))
        });
        left.unwrap_or_else(|error| panic!("turn {turn}, {function} of {n} ranks: {error}"));
    }
}

/// A rank that is long gone when another one comes has done its part: only the one that is late is waited for.
#[test]
fn a_rank_that_has_sent_and_left_is_not_missed() {
    for n in [3, 4] {
        let gathered = in_process_with(&on_hosts(&vec![0; n]), |comm| {
            let rank = comm.rank() as i32;
            let gather = |own: [i32; 1]| {
                let mut output = vec![-1; if rank == 0 { n } else { 0 }];
                let call = Call::gather(&own[..], &mut output, 0);
                comm.collective(&call.with_algorithm("packets")).map(|()| output)
            };
            // The plan is set up together.
            gather([7])?;
            if rank == 1 {
                // Longer than ranks are given to leave.
                std::thread::sleep(DEPARTURE_GRACE + Duration::from_millis(300));
            }
            gather([rank * 10])
        });
        assert_eq!(gathered.unwrap()[0], [0, 10, 20, 30][..n]);
    }
}

/// Also where a wait is for packets of several ranks, which names none of them: long before the deadline.
#[test]
fn a_rank_that_has_left_is_named_by_those_who_wait_for_several() {
    for (n, function, algorithm) in [
        (3, Function::AllReduce, "one_shot_packets"),
        (4, Function::AllReduce, "one_shot_packets"),
        (3, Function::AllGather, "packets"),
        (4, Function::Gather, "packets"),
    ] {
        let patience = Duration::from_secs(60);
        let ends = in_process_with(&on_hosts_within(&vec![0; n], patience), |comm| {
            let (input, output) = (comm.alloc::<u8>(4)?, comm.alloc::<u8>(4 * n as u64)?);
            let got = if function == Function::AllReduce { 1 } else { n as u64 };
            let call = || {
                let views = (input.view_of(0, 4), output.view_of(0, 4 * got));
                let call = Call::new(function, views.0, views.1, DataType::Int32).with_algorithm(algorithm);
                comm.collective(&call)
            };
            call()?;
            if comm.rank() as usize == n - 1 {
                return Ok(None);
            }
            Ok(call().err().map(|error| (error.id(), error.culprit().or(error.peer()))))
        });
        let ends = ends.unwrap();
        let gone = Some(n as u32 - 1);
        assert_eq!(ends[0], Some(("peer.left", gone)), "{function} of {n} ranks");
        if function != Function::Gather {
            let named = |end: &Option<(_, Option<u32>)>| end.is_some_and(|(_, named)| named == gone);
            assert!(ends[..n - 1].iter().all(named), "{function} of {n} ranks: {ends:?}");
        }
    }
}

/// Threads of one rank that make the same calls set each plan up once.
#[test]
fn threads_of_a_rank_may_make_the_same_call_first() {
    for turn in 0..30 {
        let played = in_process_with(&on_hosts(&[0, 0]), |comm| {
            std::thread::scope(|scope| {
                let call = || comm.all_reduce(&mut vec![1i32; 777], ReduceOp::Sum);
                let threads: Vec<_> = (0..3).map(|_| scope.spawn(call)).collect();
                threads.into_iter().try_for_each(|thread| thread.join().unwrap())
            })
        });
        played.unwrap_or_else(|error| panic!("turn {turn}: {error}"));
    }
}

/// Also when each is refused: the ranks get ready to tell each other of it once.
#[test]
fn threads_of_a_rank_may_be_refused_first() {
    for turn in 0..30 {
        let played = in_process_with(&on_hosts(&[0, 0]), |comm| {
            let ends = std::thread::scope(|scope| {
                let call = || {
                    let mut data = vec![1i32; 777];
                    comm.collective(&Call::all_reduce(&mut data, ReduceOp::Sum).with_blocks(0))
                };
                let threads: Vec<_> = (0..3).map(|_| scope.spawn(call)).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
            });
            let refused =
                |end: &Result<()>| end.as_ref().is_err_and(|why| why.id() == "collective.algorithm");
            assert!(ends.iter().all(refused), "turn {turn}: {ends:?}");
            let mut data = [comm.rank() as i32 + 1; 5];
            comm.all_reduce(&mut data, ReduceOp::Sum)?;
            assert_eq!(data, [3; 5]);
            Ok(())
        });
        played.unwrap_or_else(|error| panic!("turn {turn}: {error}"));
    }
}
