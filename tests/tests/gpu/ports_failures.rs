//! Port channels that cannot do what they are asked for: kernels leave, errors name rank and channel, nothing pretends to
//! have been done.

use std::time::Duration;

use warpway::{Communicator, Deadline, Plain, Result, Transport};

use crate::ports_channels::{ONE_THREAD, Port, kernel};
use crate::ranks_channels::soon;
use crate::rig::Ranks;

/// The service stops while kernels push, wait for room and flush.
fn stop_while_kernels_wait(comm: &Communicator) -> Result<()> {
    let port = Port::new(comm, 64, 8, Transport::CudaIpc)?;
    let kernel = kernel(&port.gpu, "port_until_stopped")?;
    comm.barrier()?;
    // SAFETY: the parameters of `port_until_stopped`.
    unsafe { port.gpu.launch(&kernel, ONE_THREAD, (&port.handle, &port.outcome), &port.stream)? };
    std::thread::sleep(Duration::from_millis(50));
    port.ports.service().stop_proxy(Deadline::after(Duration::from_millis(100)))?;
    let error = port.synchronize().unwrap_err();
    let text = error.to_string();
    assert!(text.contains("abort") && text.contains(&format!("rank {}", comm.rank())), "{text}");
    assert!(comm.async_error().is_some());
    let mut pushed = [0];
    // The device works on.
    port.outcome.read(0, &mut pushed)?;
    assert!(pushed[0] > 0, "it had pushed before");
    Ok(())
}

/// Elements that the proxy refuses: a kernel that waits for its flush leaves, and the rank's failure says why. `change`
/// gives the bytes to send.
fn refused(
    comm: &Communicator,
    id: &str,
    change: fn(&mut warpway::cuda::PortChannelHandle) -> u64,
) -> Result<()> {
    let port = Port::new(comm, 64, 8, Transport::CudaIpc)?;
    let kernel = kernel(&port.gpu, "port_exchange")?;
    comm.barrier()?;
    if comm.rank() == 0 {
        let mut handle = *port.handle;
        let bytes = change(&mut handle);
        let arguments = (Plain(handle), 0u64, 0u64, bytes, 0u64, &port.outcome);
        // SAFETY: the parameters of `port_exchange`, laid out by the channel that `port` keeps until the kernel has ended.
        unsafe { port.gpu.launch(&kernel, ONE_THREAD, arguments, &port.stream)? };
        assert!(port.synchronize().is_err());
        let error = comm.async_error().unwrap();
        assert_eq!(error.id(), id, "{error}");
        assert!(error.to_string().contains("rank 0"), "{error}");
    } else {
        let deadline = soon();
        while comm.async_error().is_none() {
            assert!(!deadline.expired(), "the peer learns of the failure");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    assert_eq!(port.received.to_vec().map(|bytes| bytes.iter().all(|b| *b == 0)).ok(), Some(true));
    Ok(())
}

#[test]
#[ignore = "needs a GPU: cargo xtask gpu-bundle"]
fn stop() {
    Ranks::new(2).processes(stop_while_kernels_wait);
}

#[test]
#[ignore = "needs a GPU: cargo xtask gpu-bundle"]
fn a_stale_memory_id() {
    Ranks::new(2).processes(|comm| {
        refused(comm, "proxy.stale_id", |handle| {
            handle.src += 1 << 24;
            64
        })
    });
}

#[test]
#[ignore = "needs a GPU: cargo xtask gpu-bundle"]
fn a_stale_semaphore_id() {
    Ranks::new(2).processes(|comm| {
        refused(comm, "proxy.stale_id", |handle| {
            handle.base.semaphore_id += 7;
            64
        })
    });
}

/// The handle lies about the length of the memories, so that the proxy has to find out.
#[test]
#[ignore = "needs a GPU: cargo xtask gpu-bundle"]
fn a_range_beyond_the_memory() {
    Ranks::new(2).processes(|comm| {
        refused(comm, "mem.bounds", |handle| {
            (handle.dst_bytes, handle.src_bytes) = (128, 128);
            65
        })
    });
}
