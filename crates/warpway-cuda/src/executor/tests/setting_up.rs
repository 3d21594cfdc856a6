//! Setting plans up: alike on all ranks, with memories that are each other's.

use warpway_core::Error;
use warpway_core::config::{Config, Environment};
use warpway_plan::{BufferKind, Form};

use super::*;
use crate::device::Architecture;
use crate::jit::Compiler;

/// Every plan of the catalogue, a few sizes of each: the ranks agree about the memory of scratch, and launches are taken.
#[test]
fn the_catalogue_is_set_up_and_launched() {
    let mut fake = None;
    for n in [2, 3] {
        let rig = fake.take().map_or_else(|| Rig::new(n), |fake| Rig::on(fake, n));
        let (mut set_up, mut refused, mut met) = (0, 0, 0);
        for algorithm in catalogue().filter(|algorithm| !algorithm.function.is_sized()) {
            for in_place in [false, true] {
                let mut task =
                    Task::new(algorithm.function, World::one_host(n)).with_blocks(4).with_packet_blocks(4);
                task.in_place = in_place;
                let Ok(plan) = algorithm.prove(&task) else { continue };
                let sizes = |rank: u32, count: u64| {
                    let all = u64::from(n) * count;
                    let if_root = |bytes| if rank == 0 { bytes } else { 0 };
                    let (input, output) = match algorithm.function {
                        Function::AllReduce => (count, count),
                        Function::AllGather => (count, all),
                        Function::ReduceScatter => (all, count),
                        Function::AllToAll => (all, all),
                        Function::Broadcast => (if_root(count), count),
                        Function::Reduce => (count, if_root(count)),
                        Function::Gather => (count, if_root(all)),
                        Function::Scatter => (if_root(all), count),
                        _ => (0, 0),
                    };
                    (4 * input, 4 * output)
                };
                let largest = |rank| {
                    let (input, output) = sizes(rank, 70_000);
                    setting(DataType::Float32, input, output)
                };
                let prepared = rig.ranks(|rank, gpu| plans(gpu).prepare(&plan, largest(rank)));
                if let Some(error) = prepared.iter().find_map(|prepared| prepared.as_ref().err()) {
                    let expected = ["port channels", "peers' buffers cannot be reached yet"];
                    let known = |error: &Error| expected.iter().any(|why| error.to_string().contains(why));
                    assert!(known(error), "{error}");
                    assert!(prepared.iter().all(|p| p.as_ref().is_err_and(known)), "all learn why");
                    refused += 1;
                    continue;
                }
                let prepared: Vec<GpuPlan> = prepared.into_iter().map(|p| p.unwrap()).collect();
                set_up += 1;
                same_memories(&rig, &prepared);
                for count in [1, 29, 4097, 70_000] {
                    rig.fake.launches();
                    rig.ranks(|rank, gpu| {
                        let (input, output) = sizes(rank, count);
                        let plan = &prepared[rank as usize];
                        let buffers = Buffers::new(gpu, input.max(output), input.max(output));
                        let place = |at: u64, bytes: u64| DeviceRange {
                            address: if bytes > 0 { buffers.input.address() + at } else { 0 },
                            bytes,
                        };
                        let share = u64::from(rank) * input.min(output);
                        let (from, to) = match algorithm.function {
                            Function::AllGather | Function::Gather if output > 0 => (share, 0),
                            Function::ReduceScatter | Function::Scatter if input > 0 => (0, share),
                            _ => (0, 0),
                        };
                        let stream = &buffers.stream;
                        let launched = if in_place {
                            let (input, output) = (place(from, input), place(to, output));
                            // SAFETY: kernels do nothing here.
                            unsafe { plan.launch(&GpuLaunch { input, output, stream }) }
                        } else {
                            buffers.launch(plan, input, output)
                        };
                        launched.unwrap_or_else(|error| panic!("{algorithm:?}, {count}: {error}"));
                        gpu.synchronize(stream, crate::engine::tests::patience()).unwrap();
                    });
                    let launches = rig.fake.launches();
                    let of = |name: &str| launches.iter().filter(|l| l.function == name).count() as u32;
                    assert_eq!(of("warpway_plan"), n, "{algorithm:?}, {count}");
                    assert!([0, n].contains(&of("warpway_meeting")), "{algorithm:?}, {count}");
                    met += u32::from(of("warpway_meeting") > 0);
                }
            }
        }
        eprintln!("{n} ranks: {set_up} plans set up, {refused} refused, {met} launches with a meeting");
        assert!(set_up >= 10 && refused > 0 && met > 0, "{set_up} plans, {refused} refused, {met} met");
        fake = Some(rig.end());
    }
}

/// What ranks take for the scratch of one of them is one memory, large enough for the largest message.
fn same_memories(rig: &Rig, plans: &[GpuPlan]) {
    for form in [Form::Raw, Form::Packets] {
        for owner in 0..plans.len() as u32 {
            let place = |plan: &GpuPlan| plan.prepared().scratch.place(owner, form);
            let own = place(&plans[owner as usize]);
            for plan in plans {
                let found = place(plan);
                let host = |place: Option<(u64, u64, u64)>| {
                    let (address, half, bytes) = place?;
                    let host = |address: u64| rig.fake.host_address(address).map(|at| at as usize);
                    let last = if bytes > 0 { host(address + half + bytes - 1) } else { None };
                    Some((host(address), half, bytes, last))
                };
                assert_eq!(host(found).map(|p| (p.1, p.2)), host(own).map(|p| (p.1, p.2)));
                if let (Some(found), Some(own)) = (host(found), host(own))
                    && found.2 > 0
                {
                    assert!(found.0.is_some() && found.3.is_some(), "mapped to its end");
                    assert_eq!(found.3.unwrap() - found.0.unwrap(), own.3.unwrap() - own.0.unwrap());
                }
                for base in plan.prepared().checked.kernel.bases() {
                    let has_place = plan.prepared().scratch.place(base.rank, base.form).is_some();
                    assert!(base.buffer != BufferKind::Scratch || has_place);
                }
            }
        }
    }
}

#[test]
fn all_plans_in_shared_areas_have_one_epoch_and_grow_without_moving() {
    let rig = Rig::new(2);
    let counter = |plan: &GpuPlan| plan.prepared().scratch.epoch(Form::Packets);
    let part = |plan: &GpuPlan| plan.prepared().scratch.place(1, Form::Packets).unwrap();
    let of = |bytes: u64| move |_| setting(DataType::Bfloat16, bytes, bytes);
    let small = rig.prepare(&one_shot(2), of(1000));
    let same = rig.prepare(&one_shot(2), of(8));
    let two_shot = proven(Function::AllReduce, "two_shot_packets", |task| task, 2);
    let large = rig.prepare(&two_shot, of(1 << 20));
    let later = rig.prepare(&one_shot(2), of(1000));
    for rank in 0..2 {
        assert_ne!(counter(&small[rank]), 0);
        assert_eq!(counter(&small[rank]), counter(&same[rank]));
        assert_eq!(part(&small[rank]), part(&same[rank]));
        // Both alternate between halves, so they share.
        assert_eq!(counter(&small[rank]), counter(&large[rank]));
        assert_ne!(part(&small[rank]).0, part(&large[rank]).0);
        assert!(part(&large[rank]).2 >= 1 << 20);
        assert_eq!(part(&later[rank]), part(&large[rank]));
        let epoch = small[rank].prepared().scratch.counter(Form::Packets).unwrap().first().unwrap();
        assert_eq!(epoch, 0, "kernels count, not the host");
    }
    assert_ne!(counter(&small[0]), counter(&small[1]));
    // Data of lines could be taken for flags of other packets.
    let kernel = KernelSetting::new(DataType::Bfloat16, Packet::Line);
    let lines = rig.prepare(&one_shot(2), |rank| GpuPlanSetting { kernel, ..of(1024)(rank) });
    let short = rig.prepare(&one_shot(2), |rank| GpuPlanSetting {
        kernel: KernelSetting::new(DataType::Bfloat16, Packet::LL8),
        ..of(1000)(rank)
    });
    for rank in 0..2 {
        assert_ne!(counter(&lines[rank]), counter(&small[rank]));
        assert_ne!(part(&lines[rank]).0, part(&large[rank]).0);
        assert_eq!(part(&short[rank]), part(&large[rank]));
    }
    drop((small, same, large, later, lines, short));
    rig.end();
}

#[test]
fn ranks_that_set_up_something_else_are_named_on_both_sides() {
    let rig = Rig::new(2);
    let plain = setting(DataType::Float32, 4096, 4096);
    let other = eager(2);
    let cases: [(&str, &VerifiedPlan, GpuPlanSetting); 4] = [
        ("plan \"", &other, plain),
        ("bfloat16", &one_shot(2), setting(DataType::Bfloat16, 4096, 4096)),
        ("scratch chunks of 8192 bytes", &one_shot(2), setting(DataType::Float32, 8192, 8192)),
        (
            "256 threads a block",
            &one_shot(2),
            GpuPlanSetting { kernel: plain.kernel.with_threads(256), ..plain },
        ),
    ];
    for (expected, plan, setting) in cases {
        let errors = rig.ranks(|rank, gpu| match rank {
            0 => plans(gpu).prepare(&one_shot(2), plain).unwrap_err(),
            _ => plans(gpu).prepare(plan, setting).unwrap_err(),
        });
        for (rank, error) in (0..).zip(&errors) {
            let text = error.to_string();
            assert_eq!((error.id(), error.peer()), ("plan.disagreement", Some(1 - rank)), "{text}");
            assert!(text.contains(expected), "{text}");
        }
    }
    // All of that has left the ranks as they were.
    drop(rig.prepare(&one_shot(2), |_| plain));
    rig.end();
}

#[test]
fn a_rank_that_refuses_says_why_and_the_others_repeat_it() {
    let rig = Rig::new(2);
    let two_shot = proven(Function::AllReduce, "two_shot", |task| task, 2);
    for error in
        rig.ranks(|_, gpu| plans(gpu).prepare(&two_shot, setting(DataType::Float32, 64, 64)).unwrap_err())
    {
        assert_eq!(error.id(), "plan.refused");
        assert!(error.to_string().contains("of rank"), "{error}");
    }
    // One element does not fit the data of a packet; a message that is no whole number of elements.
    let narrow = |rank: u32| {
        let kernel = KernelSetting::new(DataType::Int64, if rank == 0 { Packet::LL8 } else { Packet::LL16 });
        GpuPlanSetting { kernel, ..setting(DataType::Int64, 64, 64) }
    };
    let ragged = |rank: u32| setting(DataType::Int64, if rank == 0 { 63 } else { 64 }, 64);
    let cases: [(&str, &(dyn Fn(u32) -> GpuPlanSetting + Sync)); 2] =
        [("do not fit the 4 bytes of data", &narrow), ("63 bytes", &ragged)];
    for (why, setting) in cases {
        let errors = rig.ranks(|rank, gpu| plans(gpu).prepare(&one_shot(2), setting(rank)).unwrap_err());
        assert_eq!((errors[0].id(), errors[1].id()), ("plan.refused", "plan.disagreement"));
        assert!(errors.iter().all(|error| error.to_string().contains(why)), "{errors:?}");
        assert_eq!(errors[1].peer(), Some(0));
    }
    // A plan for other ranks.
    let errors = rig.ranks(|_, gpu| {
        plans(gpu).prepare(&one_shot(3), setting(DataType::Float32, 64, 64)).unwrap_err().to_string()
    });
    assert!(
        errors.iter().all(|e| e.contains("it is made for 3 ranks, the communicator has 2")),
        "{errors:?}"
    );
    rig.end();
}

#[test]
fn the_meeting_compiles() {
    let environment = Environment::of_process().unwrap();
    let config = Config::read(&environment).unwrap().config;
    let compiler = Compiler::new(&config, &environment);
    if let Err(error) = compiler.identity() {
        eprintln!("skipped: {error}");
        return;
    }
    for major in [8, 9, 10] {
        let architecture = Architecture { major, minor: 0 };
        let image = compiler.compile(&super::super::meeting::program(), architecture).unwrap();
        assert_eq!(image.kernel("warpway_meeting").unwrap().resources.unwrap().spill_store_bytes, 0);
    }
}
