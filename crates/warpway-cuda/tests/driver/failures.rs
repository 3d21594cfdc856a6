//! Every call of the driver fails once: the error names it, and nothing is left behind.

use std::collections::BTreeSet;
use std::os::fd::AsFd as _;

use fake_cuda::Fake;
use warpway_core::Result;
use warpway_cuda::{
    Context, DeviceMemory, Driver, Event, Foreign, ImportedMemory, LaunchShape, Module, PinnedMemory, Stream,
    copy_from_host, copy_to_host, fill, write_word,
};

use super::{IMAGE, soon};

/// Everything that the crate does, once.
fn all(fake: &Fake) -> Result<u64> {
    let driver = Driver::open(fake.path())?;
    driver.devices()?;
    let (first, second) = (Context::primary(&driver, 0)?, Context::primary(&driver, 1)?);
    Context::current_device(&driver)?;
    let stream = Stream::new(&first)?;
    let module = Module::load(&first, IMAGE)?;
    let kernel = module.kernel("add_u64")?;
    module.global("counter")?;
    kernel.registers()?;
    kernel.allow_shared(1024)?;
    let _claim = kernel.reserve(LaunchShape::new(1, 32))?;
    let memory = DeviceMemory::allocate(&first, 4096, &[&second])?;
    let region = memory.region()?;
    if let Some(backing) = region.backing() {
        let there =
            ImportedMemory::from_descriptor(&second, backing.descriptor.as_fd(), backing.allocation_size)?;
        drop(there.region(0, 4096)?);
    }
    let plain = DeviceMemory::plain(&second, 4096, &[&first])?;
    Foreign::find(&second, plain.address(), 64)?.export_ipc(&second)?;
    Foreign::find(&first, memory.address(), 64)?.export_descriptor(&first)?;
    let pinned = PinnedMemory::allocate(&first, 4096)?;
    let (begin, end) = (Event::timed(&first)?, Event::timed(&first)?);
    begin.record(&stream)?;
    // SAFETY: ranges of live memory.
    unsafe {
        fill(&stream, memory.address(), 0, 64)?;
        write_word(&stream, memory.address(), 7)?;
        copy_from_host(&stream, memory.address(), &[40u64])?;
        warpway_cuda::copy(&stream, pinned.address(), memory.address(), 64)?;
    }
    // SAFETY: the kernel's parameters.
    let graph = stream
        .capture(|| unsafe { kernel.launch(&stream, LaunchShape::new(1, 1), &(memory.address(), 1u64)) })?;
    graph.launch(&stream)?;
    graph.launch(&stream)?;
    stream.is_capturing()?;
    end.record(&stream)?;
    stream.wait_for(&end)?;
    let mut word = [0u64];
    // SAFETY: as above; synchronised before it is read.
    unsafe { copy_to_host(&stream, &mut word, memory.address())? };
    stream.synchronize(soon())?;
    end.is_done()?;
    begin.until(&end)?;
    Ok(word[0])
}

#[test]
fn each_call_that_fails_is_named_and_leaks_nothing() {
    let fake = Fake::open();
    fake.set("devices=2,peers=all");
    assert_eq!(all(&fake).unwrap(), 42);
    assert_eq!(fake.live().total(), 0);
    let calls = fake.calls();
    let names: BTreeSet<String> =
        calls.iter().filter_map(|call| call.split(' ').next()).map(str::to_owned).collect();
    assert!(names.len() > 50, "{names:?}");
    // Calls whose results mean something else, or that undo: noted, not returned.
    let quiet = [
        "cuGetErrorName",
        "cuGetErrorString",
        "cuDriverGetVersion",
        "cuDevicePrimaryCtxRelease",
        "cuCtxPopCurrent",
        "cuStreamDestroy",
        "cuEventDestroy",
        "cuGraphExecDestroy",
        "cuGraphDestroy",
        "cuModuleUnload",
        "cuMemFree",
        "cuMemFreeHost",
        "cuMemUnmap",
        "cuMemAddressFree",
        "cuMemRelease",
    ];
    const UNKNOWN: u32 = 999;
    let mut failed = 0;
    let mut names: Vec<&String> = names.iter().filter(|name| !quiet.contains(&name.as_str())).collect();
    // The thread is left capturing by this one.
    names.sort_by_key(|name| *name == "cuStreamEndCapture");
    for name in names {
        let times = calls.iter().filter(|call| call.split(' ').next() == Some(name)).count() as u64;
        // The first, one in the middle, the last.
        for nth in BTreeSet::from([1, times.div_ceil(2), times]) {
            let before = fake.live().total();
            fake.fail(name, nth, UNKNOWN);
            match all(&fake) {
                Err(error) => {
                    let text = error.to_string();
                    assert!(
                        text.contains(&format!("{name} failed: ")) && text.contains("(999)"),
                        "{name} {nth}: {text}"
                    );
                    failed += 1;
                }
                // Attributes that an older driver does not know count as "no"; what fails while cleaning up is noted.
                Ok(_) => {
                    let known =
                        ["cuDeviceGetAttribute", "cuCtxPushCurrent", "cuThreadExchangeStreamCaptureMode"];
                    assert!(known.contains(&name.as_str()), "{name}: call {nth} failed unnoticed");
                }
            }
            fake.forget_failures();
            // What cannot be freed outside of its context, or while a capture lasts, ends with the context.
            let abandoned = match name.as_str() {
                "cuCtxPushCurrent" => 1,
                "cuStreamEndCapture" => 8,
                _ => 0,
            };
            assert!(fake.live().total() <= before + abandoned, "{name} {nth}: {:?}", fake.live());
        }
    }
    assert!(failed > 60, "{failed}");
}

/// What cannot be undone is noted; the program goes on.
#[test]
fn clean_up_that_fails_is_no_error() {
    let fake = Fake::open();
    fake.set("devices=2,peers=all");
    for name in ["cuMemUnmap", "cuMemFree", "cuStreamDestroy", "cuDevicePrimaryCtxRelease", "cuModuleUnload"]
    {
        fake.fail(name, 1, 999);
        assert_eq!(all(&fake).unwrap(), 42, "{name}");
        fake.forget_failures();
    }
}
