//! Streams, events, capture and graphs.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::mpsc::{Receiver, Sender, channel};

use warpway_cuda_sys::Driver;
use warpway_cuda_sys::driver_types::*;

use crate::{allocate, call, enter, event, ok, read, start, stream};

/// A host function that occupies a stream until it is told to go on.
struct Gate {
    open: Sender<()>,
    // Kept for the host function, which has its address.
    _wait: Box<Receiver<()>>,
}

impl Gate {
    fn close(driver: &Driver, stream: CUstream) -> Self {
        unsafe extern "C" fn wait(gate: *mut c_void) {
            // SAFETY: the address of the receiver, which the gate keeps, and only this function uses.
            let _ = unsafe { &*gate.cast::<Receiver<()>>() }.recv();
        }
        let (open, wait_for) = channel();
        let boxed = Box::new(wait_for);
        let address = std::ptr::from_ref(&*boxed).cast_mut().cast();
        ok!(driver, cuLaunchHostFunc(stream, Some(wait), address));
        Self { open, _wait: boxed }
    }

    fn open(&self) {
        self.open.send(()).unwrap();
    }
}

#[test]
fn streams_are_asynchronous_and_events_order_them() {
    let fake = start("devices=1");
    let driver = fake.driver();
    let (first, second, passed) = (stream(driver), stream(driver), event(driver));
    let pointer = allocate(driver, 4);
    ok!(driver, cuEventQuery(passed)); // never recorded: nothing to wait for
    let gate = Gate::close(driver, first);
    ok!(driver, cuMemsetD8Async(pointer, 1, 4, first));
    ok!(driver, cuEventRecord(passed, first));
    ok!(driver, cuStreamWaitEvent(second, passed, 0));
    ok!(driver, cuMemsetD8Async(pointer, 2, 2, second));
    for stream in [first, second] {
        assert_eq!(call!(driver, cuStreamQuery(stream)), CUDA_ERROR_NOT_READY);
    }
    assert_eq!(call!(driver, cuEventQuery(passed)), CUDA_ERROR_NOT_READY);
    assert_eq!(call!(driver, cuEventElapsedTime(&mut 0.0, passed, passed)), CUDA_ERROR_NOT_READY);
    // A stream may be destroyed with work in it.
    ok!(driver, cuStreamDestroy(first));
    assert_eq!(call!(driver, cuStreamQuery(first)), CUDA_ERROR_INVALID_HANDLE);
    gate.open();
    ok!(driver, cuStreamSynchronize(second));
    ok!(driver, cuStreamQuery(second));
    ok!(driver, cuEventSynchronize(passed));
    assert_eq!(read(driver, pointer, 4), [2, 2, 1, 1]);
    ok!(driver, cuStreamDestroy(second));
    assert_eq!(call!(driver, cuStreamDestroy(second)), CUDA_ERROR_INVALID_HANDLE);
    assert_eq!(call!(driver, cuStreamCreateWithPriority(&mut null_mut(), 9, 0)), CUDA_ERROR_INVALID_VALUE);
}

#[test]
fn the_legacy_stream_waits_for_blocking_streams_and_they_for_it() {
    let fake = start("devices=1");
    let (driver, mut blocking) = (fake.driver(), null_mut());
    ok!(driver, cuStreamCreateWithPriority(&raw mut blocking, CU_STREAM_DEFAULT, 0));
    let pointer = allocate(driver, 3);
    let gate = Gate::close(driver, blocking);
    ok!(driver, cuMemsetD8Async(pointer, 1, 3, blocking));
    ok!(driver, cuMemsetD8Async(pointer, 2, 2, null_mut()));
    ok!(driver, cuMemsetD8Async(pointer, 3, 1, blocking));
    assert_eq!(call!(driver, cuStreamQuery(null_mut())), CUDA_ERROR_NOT_READY);
    gate.open();
    ok!(driver, cuCtxSynchronize());
    assert_eq!(read(driver, pointer, 3), [3, 2, 1]);
}

#[test]
fn freeing_waits_for_the_device() {
    let fake = start("devices=1");
    let (driver, stream) = (fake.driver(), stream(fake.driver()));
    let (pointer, done) = (allocate(driver, 4), event(driver));
    let gate = Gate::close(driver, stream);
    ok!(driver, cuMemsetD8Async(pointer, 1, 4, stream));
    ok!(driver, cuEventRecord(done, stream));
    std::thread::scope(|threads| {
        let freeing = threads.spawn(|| {
            enter(driver, 0);
            ok!(driver, cuMemFree(pointer));
        });
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert_eq!(fake.live().allocations, 1);
        gate.open();
        freeing.join().unwrap();
    });
    ok!(driver, cuEventQuery(done));
    ok!(driver, cuStreamSynchronize(stream));
}

#[test]
fn events_tell_time_if_asked_to() {
    let fake = start("devices=2");
    let (driver, stream) = (fake.driver(), stream(fake.driver()));
    let (from, to, mut untimed, mut time) = (event(driver), event(driver), null_mut(), -1.0f32);
    ok!(driver, cuEventCreate(&raw mut untimed, CU_EVENT_DISABLE_TIMING));
    assert_eq!(
        call!(driver, cuEventCreate(&mut null_mut(), CU_EVENT_INTERPROCESS)),
        CUDA_ERROR_INVALID_VALUE
    );
    assert_eq!(call!(driver, cuEventElapsedTime(&raw mut time, from, to)), CUDA_ERROR_INVALID_HANDLE);
    for event in [from, untimed] {
        ok!(driver, cuEventRecord(event, stream));
    }
    let gate = Gate::close(driver, stream);
    ok!(driver, cuEventRecord(to, stream));
    ok!(driver, cuEventSynchronize(from));
    std::thread::sleep(std::time::Duration::from_millis(3));
    gate.open();
    ok!(driver, cuStreamSynchronize(stream));
    ok!(driver, cuEventElapsedTime(&raw mut time, from, to));
    assert!(time >= 3.0, "{time}");
    assert_eq!(call!(driver, cuEventElapsedTime(&raw mut time, from, untimed)), CUDA_ERROR_INVALID_HANDLE);
    enter(driver, 1);
    let foreign = event(driver);
    assert_eq!(call!(driver, cuEventRecord(foreign, stream)), CUDA_ERROR_INVALID_HANDLE, "another device");
    ok!(driver, cuEventDestroy(from));
    assert_eq!(call!(driver, cuEventDestroy(from)), CUDA_ERROR_INVALID_HANDLE);
}

fn begin(driver: &Driver, stream: CUstream, mode: CUstreamCaptureMode_enum) {
    ok!(driver, cuStreamBeginCapture(stream, mode));
}

fn end(driver: &Driver, stream: CUstream) -> Result<CUgraph, CUresult> {
    let mut graph = 1 as CUgraph;
    match call!(driver, cuStreamEndCapture(stream, &raw mut graph)) {
        0 => Ok(graph),
        error => {
            assert!(graph.is_null());
            Err(error)
        }
    }
}

fn status(driver: &Driver, stream: CUstream) -> CUstreamCaptureStatus_enum {
    let mut status = 9;
    ok!(driver, cuStreamIsCapturing(stream, &raw mut status));
    status
}

#[test]
fn graphs_replay_what_was_captured() {
    unsafe extern "C" fn count(counter: *mut c_void) {
        // SAFETY: the address of the test's counter, which outlives the stream's work.
        unsafe { *counter.cast::<u64>() += 1 };
    }
    let fake = start("devices=1");
    let driver = fake.driver();
    let (main, side, fork, join) = (stream(driver), stream(driver), event(driver), event(driver));
    let (pointer, mut counter) = (allocate(driver, 8), 0u64);
    begin(driver, main, CU_STREAM_CAPTURE_MODE_GLOBAL);
    ok!(driver, cuEventRecord(fork, main));
    ok!(driver, cuStreamWaitEvent(side, fork, 0));
    assert_eq!(status(driver, side), CU_STREAM_CAPTURE_STATUS_ACTIVE);
    ok!(driver, cuMemcpyAsync(pointer + 4, pointer, 4, side));
    ok!(driver, cuEventRecord(join, side));
    ok!(driver, cuStreamWaitEvent(main, join, 0));
    ok!(driver, cuMemsetD8Async(pointer, 9, 2, main));
    ok!(driver, cuLaunchHostFunc(main, Some(count), (&raw mut counter).cast()));
    let graph = end(driver, main).unwrap();
    assert_eq!(status(driver, side), CU_STREAM_CAPTURE_STATUS_NONE);
    assert_eq!(read(driver, pointer, 8), [0; 8], "nothing has run");

    let mut executable = null_mut();
    ok!(driver, cuGraphInstantiateWithFlags(&raw mut executable, graph, 0));
    ok!(driver, cuGraphDestroy(graph));
    assert_eq!(call!(driver, cuGraphDestroy(graph)), CUDA_ERROR_INVALID_VALUE);
    for _ in 0..3 {
        ok!(driver, cuGraphLaunch(executable, main));
    }
    ok!(driver, cuStreamSynchronize(main));
    assert_eq!((read(driver, pointer, 8), counter), (vec![9, 9, 0, 0, 9, 9, 0, 0], 3));
    ok!(driver, cuGraphExecDestroy(executable));
    assert_eq!(call!(driver, cuGraphLaunch(executable, main)), CUDA_ERROR_INVALID_VALUE);
}

#[test]
fn what_breaks_a_capture() {
    let fake = start("devices=1");
    let driver = fake.driver();
    let (main, other, outside, inside) = (stream(driver), stream(driver), event(driver), event(driver));
    let pointer = allocate(driver, 8);
    ok!(driver, cuEventRecord(outside, other));
    ok!(driver, cuStreamSynchronize(other));
    let breaks = |what: &str, expected: CUresult, call: &mut dyn FnMut() -> CUresult| {
        begin(driver, main, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
        ok!(driver, cuEventRecord(inside, main));
        assert_eq!(call(), expected, "{what}");
        assert_eq!(status(driver, main), CU_STREAM_CAPTURE_STATUS_INVALIDATED, "{what}");
        let submitted = call!(driver, cuMemsetD8Async(pointer, 0, 1, main));
        assert_eq!(submitted, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "{what}");
        assert_eq!(end(driver, main), Err(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED), "{what}");
    };
    let unsupported = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    breaks("allocating", unsupported, &mut || call!(driver, cuMemAlloc(&mut 0, 8)));
    breaks("pinning", unsupported, &mut || call!(driver, cuMemHostAlloc(&mut null_mut(), 8, 0)));
    breaks("freeing", unsupported, &mut || call!(driver, cuMemFree(pointer)));
    breaks("waiting for the stream", unsupported, &mut || call!(driver, cuStreamSynchronize(main)));
    breaks("asking the stream", unsupported, &mut || call!(driver, cuStreamQuery(main)));
    breaks("waiting for the device", unsupported, &mut || call!(driver, cuCtxSynchronize()));
    breaks("asking an event outside", unsupported, &mut || call!(driver, cuEventQuery(outside)));
    breaks("asking an event inside", CUDA_ERROR_CAPTURED_EVENT, &mut || call!(driver, cuEventQuery(inside)));
    breaks("waiting for one outside", CUDA_ERROR_STREAM_CAPTURE_ISOLATION, &mut || {
        call!(driver, cuStreamWaitEvent(main, outside, 0))
    });
}

#[test]
fn captures_begin_and_end_where_they_should() {
    let fake = start("devices=1");
    let driver = fake.driver();
    let (main, side, mark) = (stream(driver), stream(driver), event(driver));
    let mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    let legacy = call!(driver, cuStreamBeginCapture(null_mut(), mode));
    assert_eq!(legacy, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    assert_eq!(call!(driver, cuStreamBeginCapture(main, 3)), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(end(driver, main), Err(CUDA_ERROR_ILLEGAL_STATE));
    begin(driver, main, mode);
    assert_eq!(call!(driver, cuStreamBeginCapture(main, mode)), CUDA_ERROR_ILLEGAL_STATE);
    let number = main.addr();
    std::thread::scope(|threads| {
        let elsewhere = threads.spawn(|| {
            enter(driver, 0);
            // Pointers do not cross threads; this one is a number.
            end(driver, std::ptr::without_provenance_mut(number)).map(|_| ())
        });
        assert_eq!(elsewhere.join().unwrap(), Err(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD));
    });
    ok!(driver, cuEventRecord(mark, main));
    ok!(driver, cuStreamWaitEvent(side, mark, 0));
    assert_eq!(end(driver, side), Err(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED));
    assert_eq!(end(driver, main), Err(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED));
    begin(driver, main, mode);
    ok!(driver, cuEventRecord(mark, main));
    ok!(driver, cuStreamWaitEvent(side, mark, 0));
    assert_eq!(end(driver, main), Err(CUDA_ERROR_STREAM_CAPTURE_UNJOINED));
    begin(driver, main, mode);
    begin(driver, side, mode);
    ok!(driver, cuEventRecord(mark, main));
    let merged = call!(driver, cuStreamWaitEvent(side, mark, 0));
    assert_eq!(merged, CUDA_ERROR_STREAM_CAPTURE_MERGE);
}

#[test]
fn modes_decide_who_is_disturbed() {
    let fake = start("devices=1");
    let driver = fake.driver();
    let main = stream(driver);
    let elsewhere = |mode: CUstreamCaptureMode_enum| {
        std::thread::scope(|threads| {
            let allocating = threads.spawn(|| {
                enter(driver, 0);
                let mut exchanged = mode;
                ok!(driver, cuThreadExchangeStreamCaptureMode(&raw mut exchanged));
                assert_eq!(exchanged, CU_STREAM_CAPTURE_MODE_GLOBAL);
                call!(driver, cuMemAlloc(&mut 0, 8))
            });
            allocating.join().unwrap()
        })
    };
    begin(driver, main, CU_STREAM_CAPTURE_MODE_GLOBAL);
    assert_eq!(elsewhere(CU_STREAM_CAPTURE_MODE_RELAXED), 0);
    assert_eq!(elsewhere(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), 0);
    assert_eq!(elsewhere(CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    assert_eq!(end(driver, main), Err(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED));
    begin(driver, main, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    assert_eq!(elsewhere(CU_STREAM_CAPTURE_MODE_GLOBAL), 0);
    end(driver, main).unwrap();
    begin(driver, main, CU_STREAM_CAPTURE_MODE_RELAXED);
    allocate(driver, 8);
    end(driver, main).unwrap();
    // Only a blocking stream disturbs the legacy one.
    let mut blocking = null_mut();
    ok!(driver, cuStreamCreateWithPriority(&raw mut blocking, CU_STREAM_DEFAULT, 0));
    begin(driver, blocking, CU_STREAM_CAPTURE_MODE_RELAXED);
    assert_eq!(call!(driver, cuStreamQuery(null_mut())), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    assert_eq!(end(driver, blocking), Err(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED));
}
