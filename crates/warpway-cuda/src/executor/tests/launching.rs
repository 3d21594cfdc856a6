//! Launches: what they hand over, what they refuse, what they cost.

use warpway_plan::BufferKind;

use super::*;
use crate::engine::tests::patience;

/// Words of the last launch's parameter.
fn words(launch: &fake_cuda::Launch) -> Vec<u64> {
    launch.arguments.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect()
}

#[test]
fn a_launch_hands_over_its_own_buffers() {
    let rig = Rig::new(2);
    let prepared = rig.prepare(&one_shot(2), |_| setting(DataType::Float32, 4096, 4096));
    rig.fake.launches();
    let places = rig.ranks(|rank, gpu| {
        let buffers = Buffers::new(gpu, 4096, 4096);
        let plan = &prepared[rank as usize];
        buffers.launch(plan, 4096, 4096).unwrap();
        gpu.synchronize(&buffers.stream, patience()).unwrap();
        (
            buffers.input.address(),
            buffers.output.address(),
            plan.prepared().scratch.epoch(warpway_plan::Form::Packets),
        )
    });
    let launches = rig.fake.launches();
    assert_eq!(launches.len(), 2);
    for (rank, (input, output, epoch)) in places.into_iter().enumerate() {
        let launch = launches.iter().find(|launch| launch.device as usize == rank).unwrap();
        let checked = &prepared[rank].prepared().checked;
        assert_eq!((launch.grid[0], launch.block[0]), (checked.kernel.blocks(), checked.kernel.threads()));
        let words = words(launch);
        assert_eq!(words.len(), checked.kernel.parameter_words());
        assert_eq!((words[0], words[1], words[2]), (rig.gpus[rank].control().address(), epoch, 0));
        let bases = checked.kernel.bases();
        for (at, base) in bases.iter().enumerate() {
            let scratch = || prepared[rank].prepared().scratch.place(base.rank, base.form).unwrap();
            let expected = match base.buffer {
                BufferKind::Input => (input, 0),
                BufferKind::Output => (output, 0),
                BufferKind::Scratch => (scratch().0, scratch().1),
            };
            assert_eq!((words[7 + at], words[7 + bases.len() + at]), expected, "{base:?}");
            // Both halves are in use, each as long as the message needs.
            assert!(base.buffer != BufferKind::Scratch || expected.1 >= 2 * 4096);
        }
        assert!(bases.len() >= 4, "own buffers, own scratch and the peer's");
    }
    drop(prepared);
    rig.end();
}

/// Of one element some block has no share, so that nobody waits for its packets: ranks meet before they use the scratch again.
#[test]
fn ranks_meet_in_front_of_a_launch_that_tells_them_nothing() {
    let rig = Rig::new(3);
    let prepared = rig.prepare(&one_shot(3), |_| setting(DataType::Float32, 4096, 4096));
    for (bytes, expected) in [(4096, &["warpway_plan"][..]), (4, &["warpway_meeting", "warpway_plan"])] {
        rig.fake.launches();
        let gpu = &rig.gpus[1];
        let buffers = Buffers::new(gpu, 4096, 4096);
        buffers.launch(&prepared[1], bytes, bytes).unwrap();
        let graph = gpu.capture(&buffers.stream, || buffers.launch(&prepared[1], bytes, bytes)).unwrap();
        graph.launch(&buffers.stream).unwrap();
        gpu.synchronize(&buffers.stream, patience()).unwrap();
        let launches = rig.fake.launches();
        let names: Vec<&str> = launches.iter().map(|launch| launch.function.as_str()).collect();
        assert_eq!(names, expected.repeat(2), "{bytes} bytes, eager and from a graph");
        if launches.len() == 4 {
            let meeting = words(&launches[0]);
            assert_eq!((meeting[1], launches[0].grid[0]), (2, 1), "both other ranks");
            assert_eq!(words(&launches[2]), meeting);
        }
    }
    drop(prepared);
    rig.end();
}

#[test]
fn what_a_plan_does_not_take_is_refused_and_not_launched() {
    let rig = Rig::new(2);
    let apart = rig.prepare(&one_shot(2), |_| setting(DataType::Float32, 4096, 4096));
    let gathers = proven(Function::AllGather, "packets", |task| task.in_place(), 2);
    let in_place = rig.prepare(&gathers, |_| setting(DataType::Float32, 1024, 2048));
    let gpu = &rig.gpus[0];
    let buffers = Buffers::new(gpu, 1 << 16, 1 << 16);
    let (a, b) = (buffers.input.address(), buffers.output.address());
    rig.fake.launches();
    let refused = |plan: &GpuPlan, input: (u64, u64), output: (u64, u64), expected: &str| {
        let range = |(address, bytes)| DeviceRange { address, bytes };
        let launch = GpuLaunch { input: range(input), output: range(output), stream: &buffers.stream };
        // SAFETY: kernels do nothing here.
        let error = unsafe { plan.launch(&launch) }.unwrap_err();
        assert_eq!(error.id(), "plan.launch");
        assert!(error.to_string().contains(expected), "{error}");
    };
    let plan = &apart[0];
    refused(plan, (a + 2, 64), (b, 64), "no multiple of the 4 bytes of an element");
    refused(plan, (a, 64), (b + 1, 64), "the output begins at");
    refused(plan, (0, 64), (b, 64), "the input begins at 0x0");
    refused(plan, (a, 63), (b, 63), "63 bytes");
    refused(plan, (a, 64), (a + 60, 64), "input and output overlap");
    refused(plan, (a, 64), (a, 64), "does not work in place");
    refused(plan, (a, 8192), (b, 8192), "scratch chunks of 8192 bytes and has been set up with 4096");
    let plan = &in_place[0];
    refused(plan, (a, 64), (b, 128), "byte 0 of the input must be byte 0 of the output");
    refused(plan, (a + 64, 64), (a, 128), "byte 0 of the input must be byte 0 of the output");
    assert_eq!(rig.fake.launches().len(), 0);
    drop((apart, in_place, buffers));
    rig.end();
}

/// Sizes whose pieces are a list are worked out once, and graphs keep them.
#[test]
fn a_launch_like_an_earlier_one_allocates_and_copies_nothing() {
    let rig = Rig::new(2);
    let prepared = rig.prepare(&eager(2), |_| setting(DataType::Float32, 1 << 16, 1 << 16));
    let gpu = &rig.gpus[0];
    let buffers = Buffers::new(gpu, 1 << 16, 1 << 16);
    // Of one element not every block has a share: its pieces are a list.
    for bytes in [4096, 1204, 4] {
        for _ in 0..3 {
            buffers.launch(&prepared[0], bytes, bytes).unwrap();
            gpu.synchronize(&buffers.stream, patience()).unwrap();
        }
        rig.fake.calls();
        buffers.launch(&prepared[0], bytes, bytes).unwrap();
        let calls = rig.fake.calls();
        let unwanted = ["cuMem", "cuEventCreate", "cuOccupancy", "cuModule", "cuFunc"];
        let found: Vec<_> =
            calls.iter().filter(|call| unwanted.iter().any(|name| call.starts_with(name))).collect();
        assert!(found.is_empty(), "{calls:?}");
        gpu.synchronize(&buffers.stream, patience()).unwrap();
    }
    // A new size, with a list: its memory is there.
    rig.fake.calls();
    buffers.launch(&prepared[0], 8, 8).unwrap();
    let calls = rig.fake.calls();
    assert!(calls.iter().any(|call| call.starts_with("cuMemcpyHtoDAsync")), "{calls:?}");
    assert!(
        !calls.iter().any(|call| call.starts_with("cuMemAlloc") || call.starts_with("cuMemCreate")),
        "{calls:?}"
    );
    gpu.synchronize(&buffers.stream, patience()).unwrap();
    drop((prepared, buffers));
    rig.end();
}

#[test]
fn graphs_keep_what_they_launch_when_the_plan_is_gone() {
    let rig = Rig::new(2);
    let prepared = rig.prepare(&eager(2), |_| setting(DataType::Float32, 1 << 16, 1 << 16));
    let gpu = &rig.gpus[0];
    let buffers = Buffers::new(gpu, 1 << 16, 1 << 16);
    // One with a list, one with rows.
    let graph = gpu
        .capture(&buffers.stream, || {
            buffers.launch(&prepared[0], 4, 4)?;
            buffers.launch(&prepared[0], 4096, 4096)
        })
        .unwrap();
    rig.fake.launches();
    drop(prepared);
    for _ in 0..3 {
        graph.launch(&buffers.stream).unwrap();
    }
    gpu.synchronize(&buffers.stream, patience()).unwrap();
    let launches = rig.fake.launches();
    let plans: Vec<_> = launches.iter().filter(|launch| launch.function == "warpway_plan").collect();
    assert_eq!(plans.len(), 6);
    assert_eq!(words(plans[0]), words(plans[4]));
    assert_ne!(words(plans[0]), words(plans[1]));
    assert!(words(plans[0])[6] != 0 && words(plans[1])[6] == 0, "one has a list");
    drop((graph, buffers));
    rig.end();
}

/// Many sizes: the oldest is forgotten while its launches may still be under way, and worked out anew.
#[test]
fn sizes_beyond_those_that_are_kept_are_forgotten() {
    let rig = Rig::new(2);
    let prepared = rig.prepare(&eager(2), |_| setting(DataType::Int32, 1 << 12, 1 << 12));
    let gpu = &rig.gpus[0];
    let buffers = Buffers::new(gpu, 1 << 12, 1 << 12);
    rig.fake.launches();
    for count in (1..=100).cycle().take(300) {
        buffers.launch(&prepared[0], 4 * count, 4 * count).unwrap();
    }
    gpu.synchronize(&buffers.stream, patience()).unwrap();
    let launches = rig.fake.launches();
    let plans: Vec<Vec<u64>> = launches.iter().filter(|l| l.function == "warpway_plan").map(words).collect();
    assert_eq!(plans.len(), 300);
    // But for the place of the list, a size is always the same.
    let rows = |words: &Vec<u64>| [&words[..6], &words[7..]].concat();
    assert!((0..100).all(|at| rows(&plans[at]) == rows(&plans[at + 200])));
    drop((prepared, buffers));
    rig.end();
}
