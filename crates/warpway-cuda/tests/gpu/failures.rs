//! What kernels leave behind becomes the communicator's failure. The tests write what a kernel would.

use std::mem::offset_of;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use warpway_core::gpu::{FailureCode, WaitKind};
use warpway_core::{Deadline, ErrorCode};
use warpway_cuda::{Control, ErrorRecord, HostControl, LaunchShape};

use super::{Rig, rig, rig_on, soon, until};

const RECORD: ErrorRecord = ErrorRecord {
    code: FailureCode::Timeout.number(),
    kind: WaitKind::MemoryDeviceToDevice.number(),
    rank: 0,
    peer: 1,
    object: 3,
    block: 4,
    thread: 5,
    expected: 7,
    observed: 6,
    elapsed_ns: 1_234_000_000,
    epoch: 0,
    reason: 0,
    reserved: 0,
};

impl Rig {
    fn control(&self, rank: usize) -> Control {
        let at = self.host(self.gpus[rank].control().address()).cast::<Control>();
        // SAFETY: the control block lives as long as the GPU; nobody writes it here.
        unsafe { at.read() }
    }

    fn word(&self, rank: usize, offset: usize) -> &AtomicU32 {
        let at = self.host(self.control(rank).host);
        // SAFETY: a word of the control block, which lives as long as the GPU.
        unsafe { AtomicU32::from_ptr(at.add(offset).cast()) }
    }

    /// As `record_failure` of `control.cuh` does.
    fn record(&self, rank: usize, record: ErrorRecord) {
        let state = self.word(rank, offset_of!(HostControl, record_state));
        assert_eq!(state.swap(1, Ordering::Relaxed), 0);
        let at = self.host(self.control(rank).host);
        // SAFETY: as above; the host reads the record once the state says so.
        unsafe { at.add(offset_of!(HostControl, record)).cast::<ErrorRecord>().write(record) };
        state.store(2, Ordering::Release);
    }

    fn abort_word(&self, rank: usize) -> u32 {
        self.word(rank, offset_of!(HostControl, abort_word)).load(Ordering::Acquire)
    }
}

#[test]
fn the_control_block_is_what_kernels_expect() {
    let rig = rig("devices=1");
    for rank in 0..2 {
        let control = rig.control(rank);
        assert_eq!(
            control,
            Control {
                deadline_ns: 1_234_000_000,
                host: control.host,
                rank: rank as u32,
                ..Control::default()
            }
        );
        assert_eq!((rig.abort_word(rank), rig.word(rank, 4).load(Ordering::Relaxed)), (0, 0));
        let site = rig.gpus[rank].control().site(Some(1), 9);
        assert_eq!((site.control, site.peer, site.object), (rig.gpus[rank].control().address(), 1, 9));
        assert_eq!(rig.gpus[rank].control().site(None, 1 << 40).object, u32::MAX);
    }
    rig.end();
}

#[test]
fn a_record_becomes_the_failure_of_the_communicator_everywhere() {
    let rig = rig("devices=1");
    let stream = rig.gpus[0].stream().unwrap();
    rig.gpus[0].synchronize(&stream, soon()).unwrap();
    rig.record(0, RECORD);
    until("the failure of rank 0", || rig.ranks[0].async_error().is_some());
    let text = "rank 0: a kernel timed out: device-to-device semaphore 3, waiting for rank 1 \
                (block 4, thread 5 on device 0): expected 7, observed 6, after 1.234 s";
    let failure = rig.ranks[0].health().failure().unwrap();
    assert_eq!(
        (failure.culprit, failure.code(), failure.id()),
        (Some(1), ErrorCode::Timeout, "device.timeout")
    );
    assert_eq!(failure.to_string(), format!("rank 0: communicator failed (kernel): {text}"));
    // Whoever waits for the kernel learns the same, without the communicator's words around it.
    let error = rig.gpus[0].synchronize(&stream, soon()).unwrap_err();
    assert_eq!(error.to_string(), text);
    assert_eq!((error.culprit(), error.id()), (Some(1), "device.timeout"));
    assert_eq!(rig.abort_word(0), 1 + ErrorCode::Timeout as u32);
    // The other rank's kernels leave as well.
    until("the failure of rank 1", || rig.ranks[1].async_error().is_some());
    let failure = rig.ranks[1].health().failure().unwrap().to_string();
    assert!(failure.contains(text), "{failure}");
    until("the abort word of rank 1", || rig.abort_word(1) != 0);
    // Nothing is launched any more.
    let kernel = rig.kernel(0, "trap");
    // SAFETY: never launched.
    let error = unsafe { rig.gpus[0].launch(&kernel, LaunchShape::new(1, 1), (), &stream) }.unwrap_err();
    assert_eq!(error.culprit(), Some(1));
    drop((stream, kernel));
    assert_eq!(rig.fake.launches(), []);
    rig.end();
}

#[test]
fn a_caller_that_looks_before_the_watchdog_sees_the_record() {
    let rig = rig("devices=1");
    let stream = rig.gpus[1].stream().unwrap();
    rig.record(
        1,
        ErrorRecord {
            code: FailureCode::StaleHandle.number(),
            kind: WaitKind::Call.number(),
            rank: 1,
            peer: 0,
            ..RECORD
        },
    );
    let error = rig.gpus[1].synchronize(&stream, soon()).unwrap_err();
    assert!(
        error.to_string().starts_with("rank 1: a kernel used a stale handle: call 3 with rank 0"),
        "{error}"
    );
    assert_eq!((error.id(), error.culprit()), ("device.stale_handle", Some(1)));
    assert!(rig.ranks[1].health().is_failed());
    drop(stream);
    rig.end();
}

#[test]
fn an_aborted_kernel_says_who_aborted_it_and_where_it_was() {
    let rig = rig("devices=1");
    let stream = rig.gpus[0].stream().unwrap();
    rig.ranks[1].abort("enough");
    until("the abort word of rank 0", || rig.abort_word(0) != 0);
    assert_eq!(rig.abort_word(0), 1 + ErrorCode::Aborted as u32);
    // Without a kernel: the failure itself.
    let error = rig.gpus[0].synchronize(&stream, soon()).unwrap_err();
    assert_eq!(error.to_string(), "rank 0: communicator failed (abort): aborted by rank 1: enough");
    rig.record(0, ErrorRecord { code: FailureCode::Aborted.number(), reason: 6, ..RECORD });
    let error = rig.gpus[0].synchronize(&stream, soon()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "rank 0: communicator failed (kernel in device-to-device semaphore 3, waiting for rank 1 \
         (block 4, thread 5 on device 0)): aborted by rank 1: enough"
    );
    assert_eq!((error.code(), error.culprit()), (ErrorCode::Aborted, Some(1)));
    drop(stream);
    rig.end();
}

#[test]
fn a_record_without_meaning_is_an_error_of_its_own() {
    let rig = rig("devices=1");
    rig.record(0, ErrorRecord { code: 77, ..RECORD });
    until("the failure", || rig.ranks[0].async_error().is_some());
    let error = rig.gpus[0].control().check().unwrap_err();
    assert_eq!(
        error.to_string(),
        "reading the error record of a kernel: device 0: code 77 of kind 2 means nothing; \
         has a kernel written to memory that is not its own?"
    );
    rig.end();
}

#[test]
fn a_kernel_that_crashes_fails_the_communicator() {
    let rig = rig_on("devices=2", [0, 1]);
    let stream = rig.gpus[0].stream().unwrap();
    let kernel = rig.kernel(0, "trap");
    // SAFETY: no arguments. The launch itself may find out already, when it marks its end.
    drop(unsafe { rig.gpus[0].launch(&kernel, LaunchShape::new(1, 1), (), &stream) });
    // Nobody asks; the watchdog does.
    until("the failure", || rig.ranks[0].async_error().is_some());
    let failure = rig.ranks[0].health().failure().unwrap();
    assert_eq!((failure.culprit, failure.phase.as_str(), failure.id()), (Some(0), "device", "gpu.driver"));
    assert!(failure.to_string().contains("CUDA_ERROR_LAUNCH_FAILED (719)"), "{failure}");
    let error = rig.gpus[0].synchronize(&stream, soon()).unwrap_err();
    assert!(error.to_string().contains("the process must be restarted"), "{error}");
}

#[test]
fn a_wait_of_the_host_that_ends_early_is_a_timeout_and_no_failure() {
    let rig = rig("devices=1");
    let gpu = &rig.gpus[0];
    let (stream, buffer) = (gpu.stream().unwrap(), gpu.alloc::<u64>(1).unwrap());
    let kernel = rig.kernel(0, "wait_u64");
    // SAFETY: the kernel's parameters; the buffer has eight bytes.
    unsafe { gpu.launch(&kernel, LaunchShape::new(1, 32), (&buffer, 7u64, 20_000u64), &stream).unwrap() };
    let error = gpu.synchronize(&stream, Deadline::after(Duration::from_millis(20))).unwrap_err();
    assert_eq!(error.id(), "gpu.timeout");
    assert!(!rig.ranks[0].health().is_failed());
    buffer.write(0, &[7]).unwrap();
    gpu.synchronize(&stream, soon()).unwrap();
    drop((stream, buffer, kernel));
    rig.end();
}

#[test]
fn without_a_limit_the_deadline_is_none() {
    use warpway_core::Timeout;
    use warpway_cuda::ControlBlock;
    let rig = rig("devices=1");
    for (timeout, expected) in [
        (Timeout::NONE, 0),
        (Timeout::ZERO, 1),
        (Timeout::after(Duration::from_nanos(5)), 5),
        (Timeout::after(Duration::MAX), 0),
    ] {
        let block = ControlBlock::new(rig.gpus[0].context(), rig.ranks[0].health(), timeout).unwrap();
        let at = rig.host(block.address()).cast::<Control>();
        // SAFETY: the control block lives; nobody writes it here.
        assert_eq!(unsafe { at.read() }.deadline_ns, expected, "{timeout:?}");
    }
    rig.end();
}
