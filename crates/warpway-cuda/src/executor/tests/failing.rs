//! Failures of the driver while a plan is set up: named on the rank that they meet, known to the other, and nothing is left.

use super::*;

#[test]
fn failures_of_the_driver_are_named_and_nothing_is_left() {
    // Before the ranks have connected, and while they do.
    let functions = [
        ("cuMemCreate", 6),
        ("cuMemMap", 20),
        ("cuMemSetAccess", 20),
        ("cuModuleLoadDataEx", 6),
        ("cuModuleGetFunction", 6),
        ("cuMemcpyHtoDAsync", 8),
        ("cuOccupancyMaxActiveBlocksPerMultiprocessor", 4),
    ];
    let mut fake = None;
    for (function, most) in functions {
        let mut failures = 0;
        for nth in 1..=most {
            let rig = fake.take().map_or_else(|| Rig::new(2), |fake| Rig::on(fake, 2));
            rig.fake.fail(function, nth, 2);
            let ended = rig.ranks(|_, gpu| {
                let plan = one_shot(2);
                plans(gpu).prepare(&plan, setting(DataType::Float32, 4096, 4096))
            });
            rig.fake.forget_failures();
            let errors: Vec<_> = ended.iter().filter_map(|ended| ended.as_ref().err()).collect();
            if errors.is_empty() {
                drop(ended);
                fake = Some(rig.end());
                break;
            }
            failures += 1;
            let texts: Vec<String> = errors.iter().map(|error| error.to_string()).collect();
            assert_eq!(errors.len(), 2, "{function} {nth}: both learn of it: {texts:?}");
            assert!(texts.iter().any(|text| text.contains(function)), "{function} {nth}: {texts:?}");
            drop(ended);
            fake = Some(rig.end());
        }
        assert!(failures > 0, "{function} is never called");
    }
}

#[test]
fn a_rank_that_does_not_come_is_named() {
    let rig = Rig::new(2);
    let plans = rig.gpus[0].plans().with_timeout(Timeout::after(Duration::from_millis(100)));
    let error = plans.prepare(&one_shot(2), setting(DataType::Float32, 64, 64)).unwrap_err();
    assert_eq!(error.peer(), Some(1), "{error}");
    drop(plans);
    rig.end();
}

/// A launch that fails leaves nothing behind, and the next one is like any other.
#[test]
fn failures_of_a_launch_are_named_and_the_next_one_works() {
    let rig = Rig::new(2);
    let prepared = rig.prepare(&eager(2), |_| setting(DataType::Float32, 4096, 4096));
    let (gpu, plan) = (&rig.gpus[0], &prepared[0]);
    let buffers = Buffers::new(gpu, 4096, 4096);
    buffers.launch(plan, 4096, 4096).unwrap();
    gpu.synchronize(&buffers.stream, crate::engine::tests::patience()).unwrap();
    rig.fake.launches();
    // The second size has a list, which is copied before the launch.
    let cases = [
        ("cuStreamIsCapturing", 4096),
        ("cuLaunchKernel", 4096),
        ("cuMemcpyHtoDAsync", 4),
        ("cuLaunchKernel", 4),
    ];
    for (function, bytes) in cases {
        rig.fake.fail(function, 1, 2);
        let error = buffers.launch(plan, bytes, bytes).unwrap_err();
        assert!(error.to_string().contains(function), "{error}");
        assert_eq!((error.id(), rig.fake.launches().len()), ("gpu.driver", 0), "{function}");
        rig.fake.forget_failures();
        buffers.launch(plan, bytes, bytes).unwrap();
        gpu.synchronize(&buffers.stream, crate::engine::tests::patience()).unwrap();
        assert_eq!(rig.fake.launches().len(), 1, "{function}");
    }
    drop((prepared, buffers));
    rig.end();
}
