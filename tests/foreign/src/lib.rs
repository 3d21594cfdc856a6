//! What `tests/tests/gpu/torch_tensors.py` calls: memory that PyTorch has allocated, used by two ranks in every way there is.
//!
//! Each function that can fail is given room for a text. It returns null or 0 then, and the text says why. Pointers that
//! are returned go back to the function that ends their use; whoever calls keeps tensors as long as they are registered.

use std::fmt::Display;

use warpway::core::channel::DeviceHandle;
use warpway::cuda::jit::Program;
use warpway::cuda::{
    Foreign, ForeignKind, GpuMemoryChannel, GpuSyncer, Kernel, MemoryChannelDeviceHandle, PortChannelHandle,
    PortConfig,
};
use warpway::{
    Communicator, Gpu, GpuBuffer, LaunchShape, Peer, PortChannel, RegisteredMemory, Result, Stream, Timeout,
    Transport,
};

/// Room for what went wrong, with a zero at its end.
type Text = [u8; 4000];

/// Longer than any wait of a kernel here.
const PATIENCE: Timeout = Timeout::after(std::time::Duration::from_secs(30));

/// Kernels with a grid barrier, in blocks that share the work.
const SHAPE: LaunchShape = LaunchShape { blocks: 4, threads: 256, shared_bytes: 0 };

/// One of two ranks, on the GPU that was current when it joined.
pub struct Rank {
    outcome: GpuBuffer<u64>,
    barrier: GpuSyncer,
    stream: Stream,
    peer: Peer,
    gpu: Gpu,
    comm: Communicator,
}

/// Channels from a memory of this rank to one of the peer.
pub struct Pair {
    source: RegisteredMemory,
    remote: RegisteredMemory,
    channel: DeviceHandle<MemoryChannelDeviceHandle, GpuMemoryChannel>,
    port: DeviceHandle<PortChannelHandle, PortChannel>,
}

/// Joins the job that the environment describes.
#[unsafe(no_mangle)]
pub extern "C" fn foreign_join(text: &mut Text) -> Option<Box<Rank>> {
    told(text, Rank::join())
}

/// Leaves together with the peer.
#[unsafe(no_mangle)]
pub extern "C" fn foreign_leave(rank: Box<Rank>, text: &mut Text) -> u32 {
    done(text, rank.comm.barrier())
}

/// Returns when both ranks have called it.
#[unsafe(no_mangle)]
pub extern "C" fn foreign_barrier(rank: &Rank, text: &mut Text) -> u32 {
    done(text, rank.comm.barrier())
}

/// The allocation around an address: base, bytes, and how it is exported (0 descriptor, 1 CUDA IPC, 2 not at all).
#[unsafe(no_mangle)]
pub extern "C" fn foreign_find(
    rank: &Rank,
    address: u64,
    bytes: u64,
    found: &mut [u64; 3],
    text: &mut Text,
) -> u32 {
    let looked = Foreign::find(rank.gpu.context(), address, bytes).map(|foreign| {
        let kind = match foreign.kind {
            ForeignKind::Descriptor => 0,
            ForeignKind::Ipc => 1,
            ForeignKind::Neither(_) => 2,
            ForeignKind::Fabric => 3,
        };
        *found = [foreign.base, foreign.bytes, kind];
    });
    done(text, looked)
}

/// Makes device memory known.
#[unsafe(no_mangle)]
pub extern "C" fn foreign_register(
    rank: &Rank,
    address: u64,
    bytes: u64,
    text: &mut Text,
) -> Option<Box<RegisteredMemory>> {
    // SAFETY: the caller keeps it allocated, says this file's page.
    told(text, unsafe { rank.gpu.register(address, bytes) })
}

/// Ends a registration.
#[unsafe(no_mangle)]
pub extern "C" fn foreign_forget(memory: Box<RegisteredMemory>) {
    drop(memory);
}

/// Channels from `source` to what the peer gives as `received`. Both ranks call it.
#[unsafe(no_mangle)]
pub extern "C" fn foreign_pair(
    rank: &Rank,
    source: &RegisteredMemory,
    received: &RegisteredMemory,
    text: &mut Text,
) -> Option<Box<Pair>> {
    told(text, rank.pair(source, received))
}

/// Ends the use of a pair.
#[unsafe(no_mangle)]
pub extern "C" fn foreign_unpair(pair: Box<Pair>) {
    drop(pair);
}

/// Moves `bytes` between `origin` in `source` and `target` in the peer's memory, in one of the ways: 0 put, 1 get, 2 port
/// channel, 3 copy by the connection. Returns when the peer, which does the same, is ready as well.
#[unsafe(no_mangle)]
pub extern "C" fn foreign_exchange(
    rank: &Rank,
    pair: &Pair,
    way: u64,
    target: u64,
    origin: u64,
    bytes: u64,
    text: &mut Text,
) -> u32 {
    done(text, rank.exchange(pair, way, [target, origin, bytes]))
}

impl Rank {
    fn join() -> Result<Self> {
        let comm = Communicator::from_env()?;
        let gpu = comm.gpu()?;
        let peer = comm.connect_by(1 - comm.rank(), Transport::CudaIpc)?;
        Ok(Self { outcome: gpu.alloc(1)?, barrier: gpu.syncer(1)?, stream: gpu.stream()?, peer, gpu, comm })
    }

    fn pair(&self, source: &RegisteredMemory, received: &RegisteredMemory) -> Result<Pair> {
        let remote = self.peer.exchange_memory(received)?;
        let channel = self.gpu.memory_channel(&self.peer.memory_channel(source, &remote)?)?;
        // A service keeps its memories, so each pair has its own.
        let ports = self.gpu.port_service(&PortConfig::default())?;
        let port = ports.port_channel(&self.peer.port_channel(ports.service(), source, &remote)?)?;
        Ok(Pair { source: source.clone(), remote, channel, port })
    }

    fn exchange(&self, pair: &Pair, way: u64, [target, origin, bytes]: [u64; 3]) -> Result<()> {
        let Self { outcome, barrier, stream, gpu, .. } = self;
        outcome.write(0, &[9])?;
        let (handle, port) = (&pair.channel, &pair.port);
        match way {
            0 | 1 => {
                let kernel = self.kernel(RANKS, ["put_signal_wait", "signal_wait_get"][way as usize])?;
                // SAFETY: the parameters of both kernels; the caller stays within the memories.
                unsafe {
                    gpu.launch(&kernel, SHAPE, (handle, barrier, target, origin, bytes, outcome), stream)?
                };
            }
            2 => {
                let kernel = self.kernel(PORTS, "port_exchange")?;
                let shape = LaunchShape::new(1, 1);
                // SAFETY: the parameters of `port_exchange`; as above.
                unsafe { gpu.launch(&kernel, shape, (port, target, origin, bytes, 1u64, outcome), stream)? };
            }
            _ => {
                let connection = self.peer.connection();
                connection.write(&pair.remote, target, &pair.source, origin, bytes)?;
                connection.flush(PATIENCE.start())?;
                outcome.write(0, &[0])?;
            }
        }
        gpu.synchronize(stream, PATIENCE.start())?;
        let failed =
            || warpway::Error::Internal { place: "foreign_exchange", what: "a kernel has not ended well" };
        (outcome.to_vec()? == [0]).then_some(()).ok_or_else(failed)?;
        self.comm.barrier()
    }

    fn kernel(&self, (file, source): File, name: &str) -> Result<Kernel> {
        self.gpu.load(&Program::new(file, source).device_headers())?.kernel(name)
    }
}

/// Name and text of a file of kernels.
type File = (&'static str, &'static str);

const RANKS: File = ("ranks.cu", include_str!("../../../crates/warpway-cuda/device/tests/ranks.cu"));
const PORTS: File = ("ports.cu", include_str!("../../../crates/warpway-cuda/device/tests/ports.cu"));

fn told<T>(text: &mut Text, result: Result<T>) -> Option<Box<T>> {
    match result {
        Ok(value) => Some(Box::new(value)),
        Err(error) => {
            say(text, format_args!("{}: {error}", error.id()));
            None
        }
    }
}

fn done(text: &mut Text, result: Result<()>) -> u32 {
    u32::from(told(text, result).is_some())
}

fn say(text: &mut Text, what: impl Display) {
    let what = what.to_string();
    let length = what.len().min(text.len() - 1);
    text[..length].copy_from_slice(&what.as_bytes()[..length]);
    text[length] = 0;
}
