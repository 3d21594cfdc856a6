//! Memory of a device through host buffers.

use fake_cuda::Live;
use warpway_cuda::DeviceMemory;

use crate::start;

const SIZE: u64 = 2_000_003;

#[test]
fn bytes_and_words_go_through_in_order() {
    go_through("devices=2");
}

#[test]
fn words_are_copied_where_streams_do_not_write_them() {
    go_through("devices=2,words=no");
}

/// Four buffers' worth out of one memory into another, in pieces of odd sizes; words between them in order.
fn go_through(settings: &str) {
    let (fake, _driver, context) = start(settings);
    {
        let [from, to] = [(); 2].map(|()| DeviceMemory::allocate(&context, SIZE, &[]).unwrap());
        let host = |memory: &DeviceMemory| fake.host_address(memory.address()).unwrap();
        let (source, target) = (from.region().unwrap(), to.region().unwrap());
        let byte = |i: u64| (i.wrapping_mul(37) ^ (i >> 9)) as u8;
        for i in 0..SIZE {
            // SAFETY: within the allocation, which nobody uses now.
            unsafe { host(&from).add(i as usize).write(byte(i)) };
        }
        let mut reader = source.staging().unwrap().reader().unwrap();
        let mut writer = target.staging().unwrap().writer().unwrap();
        let pieces: Vec<(u64, u64)> =
            (0..SIZE).step_by(99_991).map(|at| (at, 99_991.min(SIZE - at))).collect();
        reader.request(&source, pieces[0].0, pieces[0].1).unwrap();
        for (n, (at, size)) in pieces.iter().enumerate() {
            if let Some((next, length)) = pieces.get(n + 1) {
                reader.request(&source, *next, *length).unwrap();
                assert_eq!(reader.request(&source, 0, 1).unwrap_err().id(), "internal");
            }
            let arrived = reader.wait().unwrap();
            let buffer = writer.buffer().unwrap();
            // SAFETY: both buffers have at least the piece's bytes, and are not used by the device now.
            unsafe { arrived.as_ptr().copy_to_nonoverlapping(buffer.as_ptr(), *size as usize) };
            reader.release();
            writer.write(&target, *at, *size).unwrap();
            writer.store(&target, 0, n as u64).unwrap();
        }
        writer.add(&target, 0, u64::MAX).unwrap();
        writer.add(&target, 8, 1 << 32).unwrap();
        writer.drain().unwrap();
        let word = |at: u64| u64::from_le_bytes([0, 1, 2, 3, 4, 5, 6, 7].map(|i| byte(at + i)));
        // SAFETY: as above; everything has arrived.
        let found = unsafe { std::slice::from_raw_parts(host(&to), SIZE as usize) };
        let words = [0, 8].map(|at| u64::from_le_bytes(found[at..at + 8].try_into().unwrap()));
        assert_eq!(words, [pieces.len() as u64 - 2, word(8).wrapping_add(1 << 32)]);
        let wrong = (16..SIZE).find(|i| found[*i as usize] != byte(*i));
        assert_eq!(wrong, None);
    }
    drop(context);
    assert_eq!(fake.live(), Live::default());
}

#[test]
fn what_is_out_of_range_is_refused() {
    let (_fake, _driver, context) = start("devices=2");
    let memory = DeviceMemory::allocate(&context, 4096, &[]).unwrap();
    let region = memory.region().unwrap();
    let mut reader = region.staging().unwrap().reader().unwrap();
    let mut writer = region.staging().unwrap().writer().unwrap();
    for (offset, size) in [(0, 4097), (4096, 1), (u64::MAX, 2), (0, 1 << 40)] {
        assert_eq!(reader.request(&region, offset, size).unwrap_err().id(), "mem.bounds");
        assert_eq!(writer.write(&region, offset, size).unwrap_err().id(), "mem.bounds");
    }
    for (offset, id) in [(4089, "mem.bounds"), (4, "mem.alignment")] {
        assert_eq!(writer.store(&region, offset, 1).unwrap_err().id(), id);
        assert_eq!(writer.add(&region, offset, 1).unwrap_err().id(), id);
    }
    assert_eq!(reader.wait().unwrap_err().id(), "internal");
    assert_eq!(reader.requests(), 0);
}

/// Each call of the driver fails once: an error that names it, and nothing is left.
#[test]
fn every_driver_call_may_fail() {
    let (fake, _driver, context) = start("devices=2");
    for function in [
        "cuMemHostAlloc",
        "cuStreamCreateWithPriority",
        "cuEventCreate",
        "cuMemcpyAsync",
        "cuEventRecord",
        "cuEventQuery",
        "cuStreamWriteValue64",
    ] {
        let memory = DeviceMemory::allocate(&context, 4096, &[]).unwrap();
        let region = memory.region().unwrap();
        let before = fake.live();
        fake.fail(function, 1, 2);
        let result = (|| {
            let mut reader = region.staging().unwrap().reader()?;
            let mut writer = region.staging().unwrap().writer()?;
            reader.request(&region, 0, 4096)?;
            reader.wait()?;
            writer.buffer()?;
            writer.write(&region, 0, 4096)?;
            writer.store(&region, 0, 1)?;
            writer.drain()
        })();
        let error = result.unwrap_err();
        assert_eq!(error.id(), "gpu.driver");
        assert!(error.to_string().contains(function), "{error}");
        assert_eq!(fake.live(), before, "{function}");
    }
}

/// One question that fails says nothing about the copies: buffers go when these are done.
#[test]
fn buffers_outlive_copies_under_way() {
    let (fake, _driver, context) = start("devices=2");
    let memory = DeviceMemory::allocate(&context, 4096, &[]).unwrap();
    let region = memory.region().unwrap();
    let mut reader = region.staging().unwrap().reader().unwrap();
    reader.request(&region, 0, 4096).unwrap();
    fake.calls();
    fake.fail("cuStreamQuery", 1, 999);
    drop(reader);
    let calls = fake.calls();
    let at = |call: &str| calls.iter().position(|made| made == call);
    let (failed, done, freed) = (at("cuStreamQuery 999"), at("cuStreamQuery 0"), at("cuMemFreeHost 0"));
    assert!(failed.is_some() && failed < done && done < freed, "{calls:?}");
}
