//! Port channels between two ranks, intra-node by the copy engine and over TCP through host buffers: every call, exact
//! data whatever the size and alignment, and nothing beside it.

use warpway::core::channel::DeviceHandle;
use warpway::cuda::{Kernel, PortChannelHandle, PortConfig, PortService};
use warpway::{
    Communicator, EndpointConfig, Gpu, GpuBuffer, LaunchShape, PortChannel, Result, Stream, Transport,
};

use crate::ranks_channels::soon;
use crate::rig::{Ranks, Source, rounds};

pub(crate) const ONE_THREAD: LaunchShape = LaunchShape { blocks: 1, threads: 1, shared_bytes: 0 };

pub(crate) fn kernel(gpu: &Gpu, name: &str) -> Result<Kernel> {
    gpu.load(&Source::PORTS.program())?.kernel(name)
}

/// A channel to another rank: `mine` here to `received` there.
pub(crate) struct Port {
    pub(crate) gpu: Gpu,
    pub(crate) stream: Stream,
    pub(crate) mine: GpuBuffer<u8>,
    /// Where the peer puts.
    pub(crate) received: GpuBuffer<u8>,
    pub(crate) ports: PortService,
    pub(crate) handle: DeviceHandle<PortChannelHandle, PortChannel>,
    pub(crate) outcome: GpuBuffer<u64>,
}

impl Port {
    pub(crate) fn new(comm: &Communicator, length: u64, fifo_size: u64, by: Transport) -> Result<Self> {
        let gpu = comm.gpu()?;
        let ports = gpu.port_service(&PortConfig { fifo_size, poll: None })?;
        Self::on(comm, gpu, ports, length, by)
    }

    /// Another channel of the same service, on a connection of its own.
    pub(crate) fn on(
        comm: &Communicator,
        gpu: Gpu,
        ports: PortService,
        length: u64,
        by: Transport,
    ) -> Result<Self> {
        let endpoint = EndpointConfig { transport: by, device: gpu.device(), ..EndpointConfig::default() };
        let peer = comm.connect_endpoint(1 - comm.rank(), endpoint)?;
        let (mine, received) = (gpu.alloc_for(length, by.into())?, gpu.alloc_for(length, by.into())?);
        let remote = peer.exchange_memory(&received)?;
        let channel = peer.port_channel(ports.service(), &mine, &remote)?;
        let handle = ports.port_channel(&channel)?;
        let outcome = gpu.alloc(1)?;
        Ok(Self { stream: gpu.stream()?, gpu, mine, received, ports, handle, outcome })
    }

    pub(crate) fn synchronize(&self) -> Result<()> {
        self.gpu.synchronize(&self.stream, soon())
    }
}

/// Offset in the peer's memory, offset in this rank's, bytes.
const PIECES: [(u64, u64, u64); 13] = [
    (0, 0, 0),
    (5, 9, 1),
    (3, 7, 7),
    (8, 0, 8),
    (15, 15, 17),
    (1, 31, 255),
    (7, 9, 4097),
    (12, 4, 65_537),
    (257, 0, (512 << 10) - 1),
    (0, 257, (512 << 10) + 1),
    (1, 1, 1 << 20),
    (3, 250, 3_000_017),
    (0, 0, LENGTH),
];

const LENGTH: u64 = 3_000_017 + 257;

fn pattern(rank: u32, turn: u64) -> Vec<u8> {
    (0..LENGTH).map(|at| (u64::from(rank) * 101 + turn * 37 + at * 29 + at / 256) as u8).collect()
}

fn exchange_exactly(comm: &Communicator, by: Transport) -> Result<()> {
    let port = Port::new(comm, LENGTH, 16, by)?;
    let exchange = kernel(&port.gpu, "port_exchange")?;
    let me = comm.rank();
    for (turn, (target, origin, bytes)) in (0..).zip(PIECES) {
        for way in 0..3u64 {
            let (data, canaries) = (pattern(me, turn), pattern(7, turn));
            port.mine.write(0, &data)?;
            port.received.write(0, &canaries)?;
            port.outcome.write(0, &[9])?;
            comm.barrier()?;
            let arguments = (&port.handle, target, origin, bytes, way, &port.outcome);
            // SAFETY: the parameters of `port_exchange`; both ranges are within the memories.
            unsafe { port.gpu.launch(&exchange, ONE_THREAD, arguments, &port.stream)? };
            port.synchronize()?;
            assert_eq!(port.outcome.to_vec()?, [0], "{bytes} bytes, way {way}");
            let (theirs, mut expected) = (pattern(1 - me, turn), canaries);
            let (to, from) = (target as usize, origin as usize);
            expected[to..to + bytes as usize].copy_from_slice(&theirs[from..from + bytes as usize]);
            let found = port.received.to_vec()?;
            let wrong = (0..LENGTH as usize).find(|at| found[*at] != expected[*at]);
            assert_eq!(wrong, None, "{bytes} bytes from {origin} to {target}, way {way}");
            assert!(port.mine.to_vec()? == data, "the source of {bytes} bytes has changed");
        }
    }
    comm.barrier()
}

/// Data, then its signal, round after round on one connection, with a block that reads at once: M4, M5, M7.
fn rounds_in_order(comm: &Communicator, by: Transport, words: u64, count: u64) -> Result<()> {
    let port = Port::new(comm, 8 * words, 8, by)?;
    let kernel = kernel(&port.gpu, "port_rounds")?;
    let (source, received) = (port.mine.address(), port.received.address());
    let shape = LaunchShape { blocks: 1, threads: 128, shared_bytes: 0 };
    let arguments = (&port.handle, source, received, words, rounds(count), &port.outcome);
    // SAFETY: the parameters of `port_rounds`; the buffers live until the kernel has ended, below.
    unsafe { port.gpu.launch(&kernel, shape, arguments, &port.stream)? };
    port.synchronize()?;
    assert_eq!(port.outcome.to_vec()?, [0], "words that were wrong");
    let last = port.received.to_vec()?;
    assert_eq!(last[4..8], (rounds(count) as u32).to_le_bytes(), "the last round has come");
    comm.barrier()
}

/// A thousand producers on a ring of 16 slots: full most of the time, many laps. All additions arrive, and before the flushes
/// of their threads return.
fn many_producers(comm: &Communicator, by: Transport, each: u64) -> Result<()> {
    let port = Port::new(comm, 64, 16, by)?;
    let kernel = kernel(&port.gpu, "port_adds")?;
    comm.barrier()?;
    let shape = LaunchShape { blocks: 8, threads: 125, shared_bytes: 0 };
    let value = -(i64::from(comm.rank()) + 3);
    let each = rounds(each);
    let arguments = (&port.handle, 24u64, value.cast_unsigned(), each, &port.outcome);
    // SAFETY: the parameters of `port_adds`; the word is within the memories.
    unsafe { port.gpu.launch(&kernel, shape, arguments, &port.stream)? };
    port.synchronize()?;
    assert_eq!(port.outcome.to_vec()?, [0], "flushes that failed");
    comm.barrier()?;
    let sum = (1000 * each as i64).wrapping_mul(-(i64::from(1 - comm.rank()) + 3));
    let mut expected = vec![0; 64];
    expected[24..32].copy_from_slice(&sum.to_le_bytes());
    assert_eq!(port.received.to_vec()?, expected);
    comm.barrier()
}

/// Two connections of one service, used by kernels that run at the same time.
fn two_connections(comm: &Communicator) -> Result<()> {
    let first = Port::new(comm, 1 << 20, 64, Transport::CudaIpc)?;
    let (gpu, ports) = (first.gpu.clone(), first.ports.clone());
    let second = Port::on(comm, gpu.clone(), ports, 1 << 20, Transport::CudaIpc)?;
    let kernel = kernel(&gpu, "port_rounds")?;
    let (words, count) = (1u64 << 14, rounds(500));
    let lanes = [gpu.lane(), gpu.lane()];
    let shape = LaunchShape { blocks: 1, threads: 256, shared_bytes: 0 };
    for (port, lane) in [&first, &second].into_iter().zip(&lanes) {
        let (source, received) = (port.mine.address(), port.received.address());
        let arguments = (&port.handle, source, received, words, count, &port.outcome);
        // SAFETY: as above.
        unsafe { lane.launch(&kernel, shape, arguments, &port.stream)? };
    }
    for port in [&first, &second] {
        port.synchronize()?;
        assert_eq!(port.outcome.to_vec()?, [0], "words that were wrong");
    }
    comm.barrier()
}

#[test]
#[ignore = "needs a GPU: cargo xtask gpu-bundle"]
fn every_call_threads() {
    Ranks::new(2).threads(|comm| exchange_exactly(comm, Transport::CudaIpc));
}

#[test]
#[ignore = "needs a GPU: cargo xtask gpu-bundle"]
fn every_call_processes() {
    Ranks::new(2).processes(|comm| exchange_exactly(comm, Transport::CudaIpc));
}

#[test]
#[ignore = "needs a GPU: cargo xtask gpu-bundle"]
fn every_call_by_tcp() {
    Ranks::new(2).processes(|comm| exchange_exactly(comm, Transport::Ethernet));
}

#[test]
#[ignore = "needs a GPU: cargo xtask gpu-bundle"]
fn order_of_a_connection() {
    Ranks::new(2).processes(|comm| rounds_in_order(comm, Transport::CudaIpc, 1000, 10_000));
}

#[test]
#[ignore = "needs a GPU: cargo xtask gpu-bundle"]
fn order_of_a_connection_large() {
    Ranks::new(2).threads(|comm| rounds_in_order(comm, Transport::CudaIpc, 4 << 20, 50));
}

#[test]
#[ignore = "needs a GPU: cargo xtask gpu-bundle"]
fn order_of_a_connection_by_tcp() {
    Ranks::new(2).processes(|comm| rounds_in_order(comm, Transport::Ethernet, 100_000, 1000));
}

#[test]
#[ignore = "needs a GPU: cargo xtask gpu-bundle"]
fn a_thousand_producers() {
    Ranks::new(2).processes(|comm| many_producers(comm, Transport::CudaIpc, 20));
}

#[test]
#[ignore = "needs a GPU: cargo xtask gpu-bundle"]
fn a_thousand_producers_by_tcp() {
    Ranks::new(2).processes(|comm| many_producers(comm, Transport::Ethernet, 5));
}

#[test]
#[ignore = "needs a GPU: cargo xtask gpu-bundle"]
fn two_connections_at_once() {
    Ranks::new(2).threads(two_connections);
}
