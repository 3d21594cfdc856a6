//! Kernels that wait in vain: the deadline, an abort, a peer that is killed, a crash. The kernel leaves, the device works
//! on, and the error says who waited for whom.

use std::time::{Duration, Instant};

use warpway::core::gpu::{FailureCode, GpuError, KernelFailure, WaitKind};
use warpway::cuda::Kernel;
use warpway::{Communicator, Error, ErrorCode, LaunchShape, Plain, Result};

use crate::ranks_channels::{Pair, kernel, soon};
use crate::rig::{Ranks, Source, mark};

const SHAPE: LaunchShape = LaunchShape { blocks: 3, threads: 64, shared_bytes: 0 };

/// From a failure to the end of the kernels that wait: nobody looks at the abort word for longer than microseconds, the
/// watchdog sleeps for milliseconds, and a death is noticed by the sockets.
const REACTION: Duration = Duration::from_secs(2);

impl Pair {
    /// The kernel that waits for the peer. Loaded before any kernel waits: the driver may load only when the kernels of
    /// a device have ended, and those of another rank of this process may be waiting there for this rank.
    fn waiting(&self) -> Result<Kernel> {
        kernel(&self.gpu, "wait_for_peer")
    }

    /// Starts it.
    fn wait_for_peer(&self, wait: &Kernel) -> Result<()> {
        // SAFETY: the parameters of `wait_for_peer`.
        unsafe { self.gpu.launch(wait, SHAPE, (&self.handle, &self.barrier, &self.outcome), &self.stream) }
    }

    /// The error of the kernel, whose last thread has left with `status`. The device works on.
    fn error(&self, status: u64) -> Error {
        let error = self.gpu.synchronize(&self.stream, soon()).unwrap_err();
        assert_eq!(self.outcome.to_vec().unwrap(), [1 + status], "{error}");
        self.mine.write(0, &[1, 2, 3]).unwrap();
        assert_eq!(self.mine.to_vec().unwrap()[..3], [1, 2, 3]);
        error
    }
}

/// Waits until the communicator has failed.
fn await_failure(comm: &Communicator) -> Error {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        if let Some(error) = comm.async_error() {
            return error;
        }
        assert!(Instant::now() < until, "rank {} is not told of the failure", comm.rank());
        std::thread::sleep(Duration::from_millis(1));
    }
}

const TIMEOUT: Duration = Duration::from_millis(500);

/// Rank 1 sends three signals and no fourth.
fn deadline(comm: &Communicator) -> Result<()> {
    let pair = Pair::new(comm, 64)?;
    let signal = kernel(&pair.gpu, "signal_peer")?;
    let wait = pair.waiting()?;
    comm.barrier()?;
    if comm.rank() == 1 {
        // SAFETY: the parameters of `signal_peer`.
        unsafe { pair.gpu.launch(&signal, LaunchShape::new(1, 1), (&pair.handle, 3u64), &pair.stream)? };
        pair.gpu.synchronize(&pair.stream, soon())?;
        let error = await_failure(comm);
        assert_eq!(error.culprit(), Some(1), "{error}");
        assert!(error.to_string().contains("rank 0 reports: rank 0: a kernel timed out"), "{error}");
        return Ok(());
    }
    for _ in 0..3 {
        pair.wait_for_peer(&wait)?;
    }
    pair.gpu.synchronize(&pair.stream, soon())?;
    let begin = Instant::now();
    pair.wait_for_peer(&wait)?;
    let error = pair.error(1);
    assert!(begin.elapsed() < TIMEOUT + REACTION, "{:?}", begin.elapsed());
    assert_eq!((error.id(), error.code(), error.culprit()), ("device.timeout", ErrorCode::Timeout, Some(1)));
    let semaphore = pair.handle.channel().channel().semaphore().semaphore().id();
    let Error::Gpu(GpuError::Kernel(found)) = &error else { panic!("{error}") };
    assert!(found.elapsed >= TIMEOUT && found.elapsed < TIMEOUT + REACTION, "{error}");
    let expected = KernelFailure {
        code: FailureCode::Timeout,
        kind: WaitKind::MemoryDeviceToDevice,
        rank: 0,
        peer: Some(1),
        device: pair.gpu.context().ordinal(),
        object: semaphore as u32,
        block: 2,
        thread: 63,
        expected: 4,
        observed: 3,
        elapsed: found.elapsed,
        epoch: 0,
        reason: 0,
    };
    assert_eq!(**found, expected);
    assert_eq!(comm.async_error().map(|error| error.culprit()), Some(Some(1)));
    Ok(())
}

/// Both wait; rank 1 gives up.
fn abort(comm: &Communicator) -> Result<()> {
    let pair = Pair::new(comm, 64)?;
    let wait = pair.waiting()?;
    comm.barrier()?;
    pair.wait_for_peer(&wait)?;
    if comm.rank() == 1 {
        std::thread::sleep(Duration::from_millis(200));
        comm.abort("enough");
    } else {
        await_failure(comm);
    }
    let begin = Instant::now();
    let error = pair.error(2);
    assert!(begin.elapsed() < REACTION, "{:?}", begin.elapsed());
    assert_eq!((error.id(), error.culprit()), ("aborted", Some(1)));
    let text = error.to_string();
    let place = format!("waiting for rank {} (block 2, thread 63", 1 - comm.rank());
    assert!(text.contains(&place) && text.ends_with("aborted by rank 1: enough"), "{text}");
    Ok(())
}

/// Rank 1 is killed while the kernels of both wait.
fn killed(comm: &Communicator) -> Result<()> {
    let pair = Pair::new(comm, 64)?;
    let wait = pair.waiting()?;
    comm.barrier()?;
    pair.wait_for_peer(&wait)?;
    std::thread::sleep(Duration::from_millis(100));
    mark();
    if comm.rank() == 1 {
        std::thread::sleep(Duration::from_secs(60));
        panic!("nobody has killed this rank");
    }
    let died = await_failure(comm);
    assert_eq!((died.id(), died.culprit()), ("peer.died", Some(1)));
    let begin = Instant::now();
    let error = pair.error(2);
    assert!(begin.elapsed() < REACTION, "{:?}", begin.elapsed());
    assert_eq!((error.id(), error.culprit()), ("peer.died", Some(1)));
    assert!(error.to_string().contains("waiting for rank 1 (block 2, thread 63"), "{error}");
    Ok(())
}

/// Rank 0 writes where there is nothing.
fn crash(comm: &Communicator) -> Result<()> {
    let pair = Pair::new(comm, 64)?;
    let signal = kernel(&pair.gpu, "signal_peer")?;
    let wait = kernel(&pair.gpu, "wait_for_peer")?;
    comm.barrier()?;
    if comm.rank() == 1 {
        let error = await_failure(comm);
        assert_eq!(error.culprit(), Some(0), "{error}");
        assert!(error.to_string().contains("CUDA_ERROR_ILLEGAL_ADDRESS"), "{error}");
        return Ok(());
    }
    let mut broken = *pair.handle;
    broken.semaphore.remote_inbound = 0x10;
    // SAFETY: it is not; the kernel writes to an address that nobody has.
    drop(unsafe { pair.gpu.launch(&signal, SHAPE, (Plain(broken), 1u64), &pair.stream) });
    let error = pair.gpu.synchronize(&pair.stream, soon()).unwrap_err();
    assert!(error.to_string().contains("CUDA_ERROR_ILLEGAL_ADDRESS"), "{error}");
    assert_eq!(await_failure(comm).culprit(), Some(0));
    let arguments = (&pair.handle, &pair.barrier, &pair.outcome);
    // SAFETY: the parameters of `wait_for_peer`.
    let refused = unsafe { pair.gpu.launch(&wait, SHAPE, arguments, &pair.stream) }.unwrap_err();
    assert_eq!(refused.culprit(), Some(0));
    Ok(())
}

/// A copy of a handle whose guard is gone, in a build that looks.
fn stale(comm: &Communicator) -> Result<()> {
    let pair = Pair::new(comm, 64)?;
    let program = Source::RANKS.program().define("WARPWAY_DEVICE_CHECKS", 1);
    let put = pair.gpu.load(&program)?.kernel("put_one_byte")?;
    comm.barrier()?;
    let Pair { gpu, stream, handle, .. } = &pair;
    // SAFETY: the parameters of `put_one_byte`.
    unsafe { gpu.launch(&put, LaunchShape::new(1, 1), (handle, 63u64), stream)? };
    gpu.synchronize(stream, soon())?;
    comm.barrier()?;
    if comm.rank() == 1 {
        assert_eq!(await_failure(comm).culprit(), Some(0));
        return Ok(());
    }
    let again = gpu.memory_channel(handle.channel().channel())?;
    let plain = Plain(*again);
    drop(again);
    // SAFETY: the other handle of the channel keeps the memory, so that a kernel that does not look does no harm.
    unsafe { gpu.launch(&put, LaunchShape::new(1, 1), (plain, 0u64), stream)? };
    let error = gpu.synchronize(stream, soon()).unwrap_err();
    assert_eq!((error.id(), error.culprit()), ("device.stale_handle", Some(0)), "{error}");
    Ok(())
}

#[test]
#[ignore = "needs a GPU: cargo xtask gpu-bundle"]
fn deadline_of_threads() {
    Ranks::new(2).with_timeout(TIMEOUT).threads(deadline);
}

#[test]
#[ignore = "needs a GPU: cargo xtask gpu-bundle"]
fn deadline_of_processes() {
    Ranks::new(2).with_timeout(TIMEOUT).processes(deadline);
}

#[test]
#[ignore = "needs a GPU: cargo xtask gpu-bundle"]
fn abort_of_threads() {
    Ranks::new(2).with_timeout(Duration::from_secs(60)).threads(abort);
}

#[test]
#[ignore = "needs a GPU: cargo xtask gpu-bundle"]
fn abort_of_processes() {
    Ranks::new(2).with_timeout(Duration::from_secs(60)).processes(abort);
}

#[test]
#[ignore = "needs a GPU: cargo xtask gpu-bundle"]
fn a_rank_is_killed() {
    Ranks::new(2).with_timeout(Duration::from_secs(60)).killing(1).processes(killed);
}

#[test]
#[ignore = "needs a GPU: cargo xtask gpu-bundle"]
fn a_kernel_crashes() {
    Ranks::new(2).processes(crash);
}

#[test]
#[ignore = "needs a GPU: cargo xtask gpu-bundle"]
fn a_stale_handle() {
    Ranks::new(2).processes(stale);
}
