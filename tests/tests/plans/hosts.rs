//! Ranks on several hosts: played by host identities, so that the ranks share no memory and meet by TCP.

use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

use warpway::core::execution::ExecutionError;
use warpway::core::memory::{Access, Region, RegisteredMemory, StagedReader, StagedWriter, Staging};
use warpway::core::transport::Transport;
use warpway::plan::verify::VerifiedPlan;
use warpway::plan::{
    BufferKind, CollectiveShape, DataSync, Plan, Program, ProgramOptions, Protocol, Repairs, SizeRows,
    testing,
};
use warpway::{
    BufferView, Communicator, DataType, Error, ErrorCode, PlanLaunch, PreparedPlan, Result, Timeout,
    in_process_with,
};
use warpway_tests::suite::plans::{
    ELEMENTS, Message, between_hosts, gathers_between_hosts, in_random_order, launch, sized_between_hosts,
};
use warpway_tests::{End, Job, Leftovers, Settings, on_hosts};

use crate::refusals::{Call, USUAL, differs_with, errors_with};
use crate::sized;

const LIMIT: Duration = Duration::from_secs(60);

fn prepare(comm: &Communicator, plans: &[VerifiedPlan]) -> Result<Vec<PreparedPlan>> {
    plans.iter().map(|plan| comm.prepare(plan)).collect()
}

fn named(plans: Vec<VerifiedPlan>, name: &str) -> Plan {
    plans.iter().find(|plan| plan.plan().name == name).unwrap().plan().clone()
}

fn every_size(hosts: &[u32], data_type: DataType) {
    let plans = between_hosts(hosts);
    in_process_with(&on_hosts(hosts, LIMIT), |comm| {
        let prepared = prepare(comm, &plans)?;
        for elements in ELEMENTS {
            for prepared in &prepared {
                launch(comm, prepared, &Message::new(elements, data_type))?;
            }
        }
        comm.barrier()
    })
    .unwrap();
}

#[test]
fn two_hosts_of_one_rank() {
    every_size(&[0, 1], DataType::Int32);
}

#[test]
fn two_hosts_of_two_ranks() {
    every_size(&[0, 0, 1, 1], DataType::Float16);
}

#[test]
fn three_hosts_of_two_ranks() {
    every_size(&[0, 0, 1, 1, 2, 2], DataType::Uint8);
}

#[test]
fn three_hosts_of_one_rank() {
    every_size(&[0, 1, 2], DataType::Bfloat16);
}

#[test]
fn processes_of_two_hosts() {
    for set_up in ["", " --set-up"] {
        let settings = Settings::new(4, &format!("host-plans{set_up}")).on_hosts(&[0, 0, 1, 1]);
        let job = Job::start(env!("CARGO_BIN_EXE_rank"), &Settings { patience: LIMIT, ..settings });
        job.finish(&[], &Leftovers::default()).iter().for_each(End::succeeded);
    }
}

#[test]
fn megabytes() {
    let hosts = [0, 0, 1, 1];
    let plans = between_hosts(&hosts);
    in_process_with(&on_hosts(&hosts, LIMIT), |comm| {
        // In slices of 96 bytes it would take long.
        let prepared: Vec<PreparedPlan> =
            prepare(comm, &plans)?.into_iter().filter(|p| p.plan().name != "send_slices").collect();
        for elements in [1_000_003, 3, 700_001] {
            for prepared in &prepared {
                launch(comm, prepared, &Message::new(elements, DataType::Float32))?;
            }
        }
        comm.barrier()
    })
    .unwrap();
}

/// Scratch grows and is reused, records pass the end of their rings, ranks are late.
#[test]
fn plans_in_random_order() {
    for hosts in [&[0, 0, 1, 1][..], &[0, 1, 2]] {
        let plans = between_hosts(hosts);
        in_process_with(&on_hosts(hosts, LIMIT), |comm| in_random_order(comm, &plans, 7, 150)).unwrap();
    }
}

/// Handshakes that the executor adds go by TCP, too.
#[test]
fn repairs_change_no_result() {
    let hosts = [0, 0, 1, 1];
    let plans = between_hosts(&hosts);
    in_process_with(&on_hosts(&hosts, LIMIT), |comm| {
        let all = Repairs::all(Vec::new());
        let prepared = plans.iter().map(|plan| comm.prepare_unverified(plan.plan(), &all));
        let prepared = prepared.collect::<Result<Vec<_>>>()?;
        for turn in 0..40 {
            for prepared in &prepared {
                launch(comm, prepared, &Message { seed: turn, ..Message::new(5 + turn, DataType::Int32) })?;
            }
        }
        comm.barrier()
    })
    .unwrap();
}

#[test]
fn counts_that_come_at_launch() {
    for hosts in [&[0, 1][..], &[0, 0, 1, 1], &[0, 0, 1, 2, 2]] {
        let plans = sized_between_hosts(hosts);
        in_process_with(&on_hosts(hosts, LIMIT), |comm| {
            let prepared = prepare(comm, &plans)?;
            for turn in 0..25 {
                for prepared in &prepared {
                    sized::launch(comm, prepared, turn)?;
                }
            }
            comm.barrier()
        })
        .unwrap();
    }
}

/// Ranks of the other host write into stages, which grow.
#[test]
fn slices() {
    let hosts = [0, 0, 1];
    let plan = named(gathers_between_hosts(&hosts), "gather_between_hosts");
    in_process_with(&on_hosts(&hosts, LIMIT), |comm| {
        let prepared = comm.prepare_unverified(&plan, &Repairs::default())?;
        for elements in [3usize, 40_000, 17, 100_003] {
            let value = |rank: usize, at: usize| (rank * 1_000_003 + at * 7 + elements) as u32;
            let input: Vec<u32> = (0..elements).map(|at| value(comm.rank() as usize, at)).collect();
            let mut output = vec![0xdead_beef_u32; 3 * elements];
            prepared.run(&PlanLaunch::new(&input[..], &mut output[..], DataType::Uint32))?;
            let expected: Vec<u32> =
                (0..3).flat_map(|rank| (0..elements).map(move |at| value(rank, at))).collect();
            assert!(output == expected, "rank {}, {elements} elements", comm.rank());
        }
        comm.barrier()
    })
    .unwrap();
}

/// The same error on all ranks, before anything runs; what fits runs afterwards.
#[test]
fn operations_that_need_the_memory_of_another_host_are_refused_on_all_ranks() {
    let hosts = [0, 0, 1];
    let mut packets = Program::new(ProgramOptions {
        protocol: Protocol::LowLatency,
        ..ProgramOptions::new("packets", CollectiveShape::send_recv(3, 1))
    })
    .unwrap();
    let (near, far) = (packets.port_channel(0, 1).unwrap(), packets.port_channel(1, 2).unwrap());
    let [from, between, to] = [0, 1, 2].map(|rank| packets.scratch(rank, 1).unwrap().whole());
    packets.put_packets(near, between, from, 0).unwrap();
    let back = packets.port_channel(2, 1).unwrap();
    packets.signal(far, 0, DataSync::None).unwrap();
    packets.wait(back, 0, DataSync::None).unwrap();
    packets.put_packets(far, to, between, 0).unwrap();
    let mut multicast =
        Program::new(ProgramOptions::new("multicast", CollectiveShape::test(3, 3, 3))).unwrap();
    let group = multicast.switch_channel(&[0, 1, 2], BufferKind::Input).unwrap();
    let mine = multicast.output(0).unwrap().chunk(0..=0).unwrap();
    multicast.switch_broadcast(group.region(0, 0, 1), mine, 0).unwrap();
    let cases = [
        (testing::all_gather_put(3).unwrap(), 0, 2, "rlxsignal", "a memory channel"),
        (testing::all_reduce_packets(3).unwrap(), 0, 2, "ppkt", "a memory channel"),
        (testing::all_reduce_switch(3).unwrap(), 0, 2, "signal", "a memory channel"),
        (multicast.finish().unwrap(), 0, 2, "gstore", "a switch channel"),
        (packets.finish().unwrap(), 1, 2, "ppkt", "packets"),
    ];
    let fits = testing::send_recv_port(3).unwrap();
    in_process_with(&on_hosts(&hosts, LIMIT), |comm| {
        for (plan, owner, other, operation, way) in &cases {
            let error = comm.prepare_unverified(plan, &Repairs::default()).unwrap_err();
            let Error::Execution(ExecutionError::OtherHost { rank, peer, place, by, .. }) = &error else {
                panic!("{}: {error}", plan.name)
            };
            assert_eq!((rank, peer, place.name, by), (owner, other, *operation, way), "{}", plan.name);
            assert_eq!((error.id(), error.code()), ("plan.other_host", ErrorCode::ExecutorError));
        }
        let prepared = comm.prepare_unverified(&fits, &Repairs::default())?;
        launch(comm, &prepared, &Message::new(17, DataType::Int32))?;
        comm.barrier()
    })
    .unwrap();
}

#[test]
fn memory_that_the_other_host_does_not_reach_is_refused_before_anything_is_launched() {
    let plan = testing::send_recv_port(2).unwrap();
    in_process_with(&on_hosts(&[0, 1], LIMIT), |comm| {
        let prepared = comm.prepare_unverified(&plan, &Repairs::default())?;
        let region = comm.context().host().allocate::<u8>(64)?.region().cloned().unwrap();
        let near = comm.core().register_memory(region, Transport::SharedMemory.into(), Access::ALL)?;
        let memory = comm.alloc::<u8>(128)?;
        let output = BufferView::new(&near, 0, 64);
        let error =
            prepared.run(&PlanLaunch::new(memory.view_of(0, 64), output, DataType::Int32)).unwrap_err();
        let text = format!("rank {} uses the output, which is not registered for Ethernet", 1 - comm.rank());
        assert!(error.id() == "plan.launch" && error.to_string().contains(&text), "{error}");
        // What nobody else touches may lie anywhere.
        let input = BufferView::new(&near, 0, 64);
        prepared.run(&PlanLaunch::new(input, memory.view_of(64, 64), DataType::Int32))?;
        comm.barrier()
    })
    .unwrap();
}

#[test]
fn what_another_host_launches_otherwise_is_named_on_both() {
    let contexts = on_hosts(&[0, 1], LIMIT);
    let plans = between_hosts(&[0, 1]);
    for name in ["send_recv_port", "gather_between_hosts"] {
        let plan = named(plans.clone(), name);
        let n = if name == "send_recv_port" { 1 } else { 2 };
        let text = |bytes: u64| format!("{bytes} bytes of input and {} of output", bytes * n);
        let other = Call { elements: 128, ..USUAL };
        differs_with(&contexts, &plan, &other, "count", [&text(256), &text(512)]);
        let other = Call { data_type: DataType::Float32, ..USUAL };
        differs_with(&contexts, &plan, &other, "data type", ["int32", "float32"]);
    }
}

/// A rank that waits for its proxy only may learn it from the other one.
#[test]
fn what_another_host_launches_otherwise_is_told_where_nobody_waits_for_it() {
    let plan = named(between_hosts(&[0, 1]), "gather_by_scratch_double");
    let found = errors_with(&on_hosts(&[0, 1], LIMIT), |comm| {
        let prepared = comm.prepare_unverified(&plan, &Repairs::default())?;
        launch(comm, &prepared, &Message::new(64, DataType::Int32))?;
        launch(comm, &prepared, &Message::new(64 << comm.rank(), DataType::Int32))
    });
    for error in found {
        let text = error.unwrap().to_string();
        assert!(text.contains("the count differs") && text.contains("512 bytes of input"), "{text}");
    }
}

#[test]
fn unequal_counts_of_another_host_are_named() {
    let plan = named(sized_between_hosts(&[0, 1]), "gather_between_hosts_v");
    let found = errors_with(&on_hosts(&[0, 1], LIMIT), |comm| {
        let prepared = comm.prepare_unverified(&plan, &Repairs::default())?;
        let memory = comm.alloc::<u8>(64)?;
        let second = if comm.rank() == 0 { 10 } else { 12 };
        let rows = SizeRows { extents: [(0, 6), (1, second)].into(), input: vec![0], output: vec![0, 6] };
        let call = PlanLaunch::new(memory.view_of(0, 12), memory.view_of(16, 32), DataType::Uint8);
        prepared.run(&call.with_sizes(&rows))
    });
    for error in found {
        let error = error.unwrap();
        let text = error.to_string();
        assert!(text.contains("10 bytes for size id 1") && text.contains("12 bytes for size id 1"), "{text}");
    }
}

#[test]
fn a_rank_of_another_host_that_does_not_come_is_named() {
    for name in ["send_recv_port", "gather_by_scratch_double", "gather_between_hosts"] {
        let plan = named(between_hosts(&[0, 1]), name);
        let found = errors_with(&on_hosts(&[0, 1], Duration::from_secs(1)), |comm| {
            let prepared = comm.prepare_unverified(&plan, &Repairs::default())?;
            let message = Message::new(17, DataType::Int32);
            launch(comm, &prepared, &message)?;
            if comm.rank() == 0 {
                return launch(comm, &prepared, &message);
            }
            // Waits for what rank 0 sees of it.
            loop {
                if let Some(error) = comm.async_error() {
                    return Err(error);
                }
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        let error = found[0].as_ref().unwrap();
        assert_eq!((error.code(), error.culprit()), (ErrorCode::Timeout, Some(1)), "{name}: {error}");
    }
}

/// Both are told, whichever of the two waits at the bootstrap.
#[test]
fn a_rank_that_sets_a_plan_up_while_another_host_launches_is_named() {
    let plans = [testing::send_recv_port(2).unwrap(), named(between_hosts(&[0, 1]), "gather_between_hosts")];
    let found = errors_with(&on_hosts(&[0, 1], LIMIT), |comm| {
        let prepared = comm.prepare_unverified(&plans[0], &Repairs::default())?;
        let message = Message::new(17, DataType::Int32);
        launch(comm, &prepared, &message)?;
        match comm.rank() {
            0 => launch(comm, &prepared, &message),
            _ => comm.prepare_unverified(&plans[1], &Repairs::default()).map(drop),
        }
    });
    for (rank, error) in (0..).zip(found) {
        let Some(Error::Execution(ExecutionError::Difference { field, peer, .. })) = &error else {
            panic!("rank {rank}: {error:?}")
        };
        assert_eq!((*field, *peer), ("step", 1 - rank));
    }
}

/// Memory that takes its time to write to: what comes to its rank by TCP meanwhile has to wait.
#[derive(Debug)]
struct Slow;

struct SlowWriter([u8; 64]);

impl Staging for Slow {
    fn reader(&self) -> Result<Box<dyn StagedReader>> {
        Err(Error::Internal { place: "slow memory", what: "nobody reads it" })
    }

    fn writer(&self) -> Result<Box<dyn StagedWriter>> {
        Ok(Box::new(SlowWriter([0; 64])))
    }
}

impl StagedWriter for SlowWriter {
    fn limit(&self) -> u64 {
        self.0.len() as u64
    }

    fn buffer(&mut self) -> Result<NonNull<u8>> {
        Ok(NonNull::from(&mut self.0).cast())
    }

    fn write(&mut self, _: &Region, _: u64, _: u64) -> Result<()> {
        std::thread::sleep(Duration::from_millis(200));
        Ok(())
    }

    fn store(&mut self, _: &Region, _: u64, _: u64) -> Result<()> {
        Ok(())
    }

    fn add(&mut self, _: &Region, _: u64, _: u64) -> Result<()> {
        Ok(())
    }

    fn drain(&mut self) -> Result<()> {
        Ok(())
    }
}

fn slow_memory(comm: &Communicator) -> Result<RegisteredMemory> {
    let region = comm.context().host().allocate::<u8>(64)?.region().cloned().unwrap();
    let region = region.with_staging(Arc::new(Slow));
    comm.core().register_memory(region, Transport::Ethernet.into(), Access::ALL)
}

/// A launch, or a set-up, whose record comes to `slow` much later than the news of the other rank's failure could: the
/// two ways have no order of their own.
fn differs_before_it_is_told(slow: u32, step: impl Fn(&Communicator, &PreparedPlan) -> Result<()> + Sync) {
    let plan = testing::send_recv_port(2).unwrap();
    let found = errors_with(&on_hosts(&[0, 1], LIMIT), |comm| {
        let prepared = comm.prepare_unverified(&plan, &Repairs::default())?;
        launch(comm, &prepared, &Message::new(17, DataType::Int32))?;
        let peer = comm.connect_by(1 - comm.rank(), Transport::Ethernet)?;
        let theirs = peer.exchange_memory(&slow_memory(comm)?)?;
        comm.barrier()?;
        if comm.rank() != slow {
            let source = comm.alloc::<u8>(64)?;
            peer.connection().write(&theirs, 0, source.memory(), 0, 64)?;
        }
        let result = step(comm, &prepared);
        // Until the other one has its error, too: what it still sends is to find this rank.
        std::thread::sleep(Duration::from_millis(400));
        result
    });
    for (rank, error) in (0..).zip(found) {
        let Some(Error::Execution(ExecutionError::Difference { peer, .. })) = &error else {
            panic!("rank {slow} is slow, rank {rank}: {error:?}")
        };
        assert_eq!(*peer, 1 - rank);
    }
}

#[test]
fn a_difference_is_named_on_both_however_late_its_record_comes() {
    let other = named(between_hosts(&[0, 1]), "gather_between_hosts");
    for slow in [0, 1] {
        differs_before_it_is_told(slow, |comm, prepared| {
            launch(comm, prepared, &Message::new(64 << comm.rank(), DataType::Int32))
        });
        for sets_up in [0, 1] {
            differs_before_it_is_told(slow, |comm, prepared| match comm.rank() == sets_up {
                true => comm.prepare_unverified(&other, &Repairs::default()).map(drop),
                false => launch(comm, prepared, &Message::new(17, DataType::Int32)),
            });
        }
    }
}

/// The news of a departure goes by the mesh: it must not come before what the rank has sent.
#[test]
fn a_departure_does_not_overtake_data() {
    in_process_with(&on_hosts(&[0, 1], LIMIT), |world| {
        let comm = world.split(0, 0)?.expect("both are in it");
        let peer = comm.connect_by(1 - comm.rank(), Transport::Ethernet)?;
        let (semaphore, own) = (peer.semaphore()?, slow_memory(&comm)?);
        let theirs = peer.exchange_memory(&own)?;
        comm.barrier()?;
        if comm.rank() == 1 {
            semaphore.wait(Timeout::after(LIMIT))?;
            return world.barrier();
        }
        let source = comm.alloc::<u8>(64)?;
        // Longer than a rank that has left is waited for.
        for _ in 0..5 {
            peer.connection().write(&theirs, 0, source.memory(), 0, 64)?;
        }
        semaphore.signal()?;
        drop((semaphore, theirs, peer, source, own, comm));
        world.barrier()
    })
    .unwrap();
}

#[test]
fn a_plan_may_be_dropped_right_after_its_last_launch() {
    let hosts = [0, 0, 1, 1];
    let plans = between_hosts(&hosts);
    in_process_with(&on_hosts(&hosts, LIMIT), |comm| {
        for turn in 0..10 {
            for plan in &plans {
                let message = Message { seed: turn, ..Message::new(17 + turn, DataType::Int32) };
                launch(comm, &comm.prepare(plan)?, &message)?;
            }
        }
        comm.barrier()
    })
    .unwrap();
}
