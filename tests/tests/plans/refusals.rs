//! Wrong calls, and ranks that do something else: errors that name rank and field, on both sides, and soon.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use warpway::core::execution::ExecutionError;
use warpway::core::memory::{Access, RegisteredMemory};
use warpway::core::transport::Transport;
use warpway::core::wait::GaveUp;
use warpway::plan::{CollectiveShape, DataSync, Plan, Program, ProgramOptions, Repairs, testing};
use warpway::{
    BufferView, Communicator, Context, DataType, Error, ErrorCode, PacketFormat, PlanLaunch, Result,
    in_process, in_process_with,
};

use warpway_tests::limited;

use crate::rig::context;

/// Runs `launch` on every rank and gives each rank's error. Errors do not end the job by themselves.
fn errors(n: u32, seconds: u64, launch: impl Fn(&Communicator) -> Result<()> + Sync) -> Vec<Option<Error>> {
    errors_with(&vec![limited(Duration::from_secs(seconds)); n as usize], launch)
}

/// The same with a context per rank.
pub(crate) fn errors_with(
    contexts: &[Context],
    launch: impl Fn(&Communicator) -> Result<()> + Sync,
) -> Vec<Option<Error>> {
    let found: Mutex<Vec<Option<Error>>> = Mutex::new(vec![None; contexts.len()]);
    let started = Instant::now();
    let all = in_process_with(contexts, |comm| {
        let error = launch(comm).err();
        found.lock().unwrap()[comm.rank() as usize] = error;
        // All stay until all have seen it.
        while found.lock().unwrap().iter().any(Option::is_none) && started.elapsed() < Duration::from_secs(20)
        {
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    });
    all.unwrap();
    found.into_inner().unwrap()
}

pub(crate) struct Call {
    pub(crate) elements: u64,
    pub(crate) data_type: DataType,
    pub(crate) packets: PacketFormat,
}

pub(crate) const USUAL: Call = Call { elements: 64, data_type: DataType::Int32, packets: PacketFormat::Ll16 };

fn run(comm: &Communicator, plan: &Plan, call: &Call) -> Result<()> {
    let prepared = comm.prepare_unverified(plan, &Repairs::default())?;
    // The first launch is the same everywhere.
    for call in [&USUAL, call] {
        let bytes = call.elements * call.data_type.bytes();
        let n = u64::from(comm.n_ranks());
        let (input, output) = match plan.collective {
            warpway::plan::Collective::AllGather => (bytes, bytes * n),
            _ => (bytes, bytes),
        };
        let memory = comm.alloc::<u8>(2 * (input + output))?;
        let (from, to) = (memory.view_of(0, input), memory.view_of(input, output));
        let to = if plan.in_place { from } else { to };
        prepared.run(&PlanLaunch::new(from, to, call.data_type).with_packets(call.packets))?;
    }
    Ok(())
}

/// Rank 1 makes another second call than the others; all that work with it are told the field.
fn differs(plan: &Plan, other: &Call, field: &str, texts: [&str; 2]) {
    let contexts = vec![limited(Duration::from_secs(60)); plan.n_ranks() as usize];
    differs_with(&contexts, plan, other, field, texts);
}

/// The same with a context per rank.
pub(crate) fn differs_with(contexts: &[Context], plan: &Plan, other: &Call, field: &str, texts: [&str; 2]) {
    let found = errors_with(contexts, |comm| run(comm, plan, if comm.rank() == 1 { other } else { &USUAL }));
    for (rank, error) in (0..).zip(&found) {
        let Some(Error::Execution(ExecutionError::Difference {
            sequence,
            plan: of,
            field: named,
            rank: own,
            here,
            peer,
            there,
        })) = error
        else {
            panic!("{}, rank {rank}: {error:?}", plan.name)
        };
        assert_eq!(*of, plan.name);
        assert_eq!((*sequence, *named, *own), (3, field, rank), "{}: {error:?}", plan.name);
        match rank {
            1 => assert_eq!([here.as_str(), there.as_str()], [texts[1], texts[0]]),
            _ => {
                assert_eq!([here.as_str(), there.as_str()], texts);
                assert_eq!(*peer, 1);
            }
        }
        assert_eq!(error.as_ref().unwrap().code(), ErrorCode::ExecutorError);
    }
}

fn every_kind() -> [Plan; 3] {
    // With a handshake; with packets only; raw scratch.
    [
        testing::all_gather_put(2).unwrap(),
        testing::all_reduce_packets(2).unwrap(),
        testing::all_reduce_two_shot(2).unwrap(),
    ]
}

#[test]
fn another_count_is_named_on_both_ranks() {
    for plan in every_kind() {
        let n = if plan.name == "all_gather_put" { 2 } else { 1 };
        let text =
            |elements: u64| format!("{} bytes of input and {} of output", elements * 4, elements * 4 * n);
        let texts = [text(64), text(128)];
        differs(&plan, &Call { elements: 128, ..USUAL }, "count", [&texts[0], &texts[1]]);
    }
}

#[test]
fn another_data_type_of_the_same_size_is_named_on_both_ranks() {
    for plan in every_kind() {
        differs(&plan, &Call { data_type: DataType::Float32, ..USUAL }, "data type", ["int32", "float32"]);
    }
}

#[test]
fn another_packet_format_is_named_on_both_ranks() {
    let plan = testing::all_reduce_packets(2).unwrap();
    differs(&plan, &Call { packets: PacketFormat::Ll8, ..USUAL }, "packet type", ["LL16", "LL8"]);
}

#[test]
fn another_plan_is_named_at_the_launch() {
    let plans = [testing::all_reduce_packets(2).unwrap(), testing::all_reduce_two_shot(2).unwrap()];
    let found = errors(2, 60, |comm| {
        let [one, two] = plans.each_ref().map(|plan| comm.prepare_unverified(plan, &Repairs::default()));
        let memory = comm.alloc::<u8>(512)?;
        let call = |out| PlanLaunch::new(memory.view_of(0, 256), memory.view_of(out, 256), DataType::Int32);
        // The second works in place.
        if comm.rank() == 0 { one?.run(&call(256)) } else { two?.run(&call(0)) }
    });
    for (rank, error) in (0u32..).zip(&found) {
        let Some(Error::Execution(ExecutionError::Difference { field, peer, .. })) = error else {
            panic!("rank {rank}: {error:?}")
        };
        // The two divide a message differently, which is found first.
        assert!(matches!(*field, "plan" | "count"), "{field}");
        assert_eq!(*peer, 1 - rank);
    }
}

#[test]
fn another_plan_is_named_when_it_is_set_up() {
    let plans = [testing::all_reduce_packets(3).unwrap(), testing::all_gather_put(3).unwrap()];
    let found = errors(3, 60, |comm| {
        let plan = &plans[usize::from(comm.rank() == 2)];
        comm.prepare_unverified(plan, &Repairs::default()).map(drop)
    });
    for (rank, error) in (0u32..).zip(&found) {
        let Some(Error::Execution(ExecutionError::Disagreement { peer, here, there, .. })) = error else {
            panic!("rank {rank}: {error:?}")
        };
        assert_eq!(*peer, if rank == 2 { 0 } else { 2 });
        let names = if rank == 2 {
            ["all_gather_put", "all_reduce_packets"]
        } else {
            ["all_reduce_packets", "all_gather_put"]
        };
        assert!(here.contains(names[0]) && there.contains(names[1]), "{error:?}");
    }
}

#[test]
fn a_plan_for_another_number_of_ranks_is_refused() {
    let plan = testing::all_reduce_packets(3).unwrap();
    for error in errors(2, 60, |comm| comm.prepare_unverified(&plan, &Repairs::default()).map(drop)) {
        assert_eq!(error.unwrap().id(), "plan.refused");
    }
}

#[test]
fn buffers_that_do_not_lie_as_the_plan_says_are_refused_before_anything_is_launched() {
    let apart = testing::all_gather_put(2).unwrap();
    let mut within = testing::all_reduce_two_shot(2).unwrap();
    within.in_place = true;
    in_process(2, &context(), |comm| {
        let memory = comm.alloc::<u8>(1024)?;
        let refused = |plan: &Plan, from: BufferView<'_>, to: BufferView<'_>, text: &str| -> Result<()> {
            let prepared = comm.prepare_unverified(plan, &Repairs::default())?;
            let error = prepared.run(&PlanLaunch::new(from, to, DataType::Int32)).unwrap_err();
            assert_eq!(error.id(), "plan.launch", "{error}");
            assert_eq!(error.code(), ErrorCode::InvalidUsage);
            assert!(error.to_string().contains(text), "{error}");
            Ok(())
        };
        refused(&apart, memory.view_of(0, 64), memory.view_of(32, 128), "input and output overlap")?;
        refused(&apart, memory.view_of(0, 64), memory.view_of(64, 64), "128")?;
        refused(&apart, memory.view_of(0, 6), memory.view_of(64, 12), "4-byte elements")?;
        refused(&within, memory.view_of(0, 64), memory.view_of(4, 64), "byte 0 of the input")?;
        // A part beyond its view has no size that a message could have.
        let part = memory.view_of(0, 64).part(32, 64);
        let prepared = comm.prepare_unverified(&apart, &Repairs::default())?;
        let error =
            prepared.run(&PlanLaunch::new(part, memory.view_of(64, 128), DataType::Int32)).unwrap_err();
        assert_eq!(error.id(), "mem.bounds", "{error}");
        let beyond = PlanLaunch::new(memory.view_of(1000, 64), memory.view_of(0, 128), DataType::Int32);
        assert_eq!(prepared.run(&beyond).unwrap_err().id(), "mem.bounds");
        // Nothing has happened: the communicator works.
        prepared.run(&PlanLaunch::new(memory.view_of(0, 64), memory.view_of(64, 128), DataType::Int32))?;
        comm.barrier()
    })
    .unwrap();
}

#[test]
fn a_rank_that_does_not_come_is_named() {
    for plan in every_kind() {
        let found = errors(2, 1, |comm| {
            let prepared = comm.prepare_unverified(&plan, &Repairs::default())?;
            let bytes = 64 * if plan.name == "all_gather_put" { 2 } else { 1 };
            let memory = comm.alloc::<u8>(1024)?;
            let out = if plan.in_place { 0 } else { 64 };
            let launch = PlanLaunch::new(memory.view_of(0, 64), memory.view_of(out, bytes), DataType::Int32);
            prepared.run(&launch)?;
            if comm.rank() == 1 {
                // Waits for what rank 0 sees of it.
                let error = || comm.async_error();
                while error().is_none() {
                    std::thread::sleep(Duration::from_millis(2));
                }
                return Err(error().unwrap());
            }
            prepared.run(&launch)
        });
        let error = found[0].as_ref().unwrap();
        assert_eq!(error.code(), ErrorCode::Timeout, "{}: {error}", plan.name);
        assert_eq!(error.culprit(), Some(1), "{}: {error}", plan.name);
        let wait = match error {
            Error::Execution(ExecutionError::Step { cause, .. }) => cause,
            other => other,
        };
        let Error::Wait(wait) = wait else { panic!("{}: {error}", plan.name) };
        assert!(matches!(wait.reason, GaveUp::TimedOut));
    }
}

/// Found before the launch is announced: the communicator works on.
#[test]
fn memory_that_peers_cannot_map_is_refused_before_anything_is_launched() {
    let plan = testing::all_gather_put(2).unwrap();
    in_process(2, &context(), |comm| {
        let prepared = comm.prepare_unverified(&plan, &Repairs::default())?;
        let memory = comm.alloc::<u8>(1024)?;
        let (core, peer) = (comm.core(), 1 - comm.rank());
        let sent = core.send_memory(memory.memory(), peer, 5)?;
        let theirs = core.recv_memory(peer, 5)?.wait(comm.bootstrap_deadline())?;
        sent.wait(comm.bootstrap_deadline())?;
        let region = comm.context().host().allocate::<u8>(1024)?.region().cloned().unwrap();
        let remote = core.register_memory(region, Transport::Ethernet.into(), Access::ALL)?;
        for (output, text) in
            [(&theirs, "memory of another rank"), (&remote, "not registered for shared memory")]
        {
            let output = BufferView::new(output, 0, 128);
            let error = prepared.run(&PlanLaunch::new(memory.view_of(0, 64), output, DataType::Int32));
            let error = error.unwrap_err();
            assert_eq!(error.id(), "plan.launch", "{error}");
            assert!(error.to_string().contains(text), "{error}");
            assert!(error.to_string().contains(&format!("rank {peer} uses the output")), "{error}");
        }
        prepared.run(&PlanLaunch::new(memory.view_of(0, 64), memory.view_of(64, 128), DataType::Int32))?;
        comm.barrier()
    })
    .unwrap();
}

#[test]
fn other_repairs_are_named() {
    let plan = testing::all_gather_put(2).unwrap();
    let found = errors(2, 60, |comm| {
        let all = Repairs::all(Vec::new());
        let repairs = if comm.rank() == 0 { Repairs::default() } else { all };
        comm.prepare_unverified(&plan, &repairs).map(drop)
    });
    for error in found {
        let error = error.unwrap().to_string();
        for repair in ["an opening handshake", "a flush at its end", "a closing handshake"] {
            assert_eq!(error.matches(repair).count(), 1, "{error}");
        }
    }
}

/// What a peer would do with a buffer is compared with what its owner permits, before anything is launched.
#[test]
fn buffers_are_used_as_they_are_registered() {
    let mut p = Program::new(ProgramOptions::new("get", CollectiveShape::test(2, 1, 2))).unwrap();
    for me in 0..2 {
        let (channel, output) = (p.memory_channel(me, 1 - me).unwrap(), p.output(me).unwrap());
        p.signal(channel, 0, DataSync::None).unwrap();
        p.wait(channel, 0, DataSync::After).unwrap();
        let theirs = p.input(1 - me).unwrap().whole();
        p.get(channel, output.chunk(0..=0).unwrap(), theirs, 0).unwrap();
        p.signal(channel, 0, DataSync::Before).unwrap();
        p.wait(channel, 0, DataSync::After).unwrap();
    }
    let (get, put) = (p.finish().unwrap(), testing::all_gather_put(2).unwrap());
    let cases = [
        (get, Access::READ, Access::WRITE, "reads the input, which is not registered for reading"),
        (put, Access::WRITE, Access::READ, "writes to the output, which is not registered for writing"),
    ];
    for (plan, right, wrong, text) in cases {
        in_process(2, &context(), |comm| {
            let prepared = comm.prepare_unverified(&plan, &Repairs::default())?;
            let register = |access| {
                let buffer = comm.context().host().allocate::<u8>(128)?;
                let region = buffer.region().cloned().unwrap();
                comm.core().register_memory(region, Transport::SharedMemory.into(), access)
            };
            // What nobody else touches may be registered for anything.
            let own = register(wrong)?;
            let launch = |shared: &RegisteredMemory| {
                let (input, output) = if right == Access::READ { (shared, &own) } else { (&own, shared) };
                let (input, output) = (BufferView::new(input, 0, 64), BufferView::new(output, 0, 128));
                prepared.run(&PlanLaunch::new(input, output, DataType::Int32))
            };
            let error = launch(&register(wrong)?).unwrap_err();
            assert_eq!(error.id(), "plan.launch", "{error}");
            assert!(error.to_string().contains(&format!("rank {} {text}", 1 - comm.rank())), "{error}");
            launch(&register(right)?)?;
            comm.barrier()
        })
        .unwrap();
    }
}
