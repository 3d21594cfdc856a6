//! Tutorial 8: an all-gather by CUDA kernels and port channels, one warp for each peer, over NVLink or TCP.
//!
//! `target/release/examples/gpu_all_gather [tcp] [RANKS]` (ranks as threads), or
//! `warpway launch -n 4 -- target/release/examples/gpu_all_gather [tcp]` (as processes);
//! docs/tutorials/08-gpu-ports.md explains it.

use std::time::Duration;

use anyhow::Context as _;
use warpway::cuda::jit::Program;
use warpway::cuda::{HandleArray, Kernel, LoadedProgram, PortChannelHandle, PortConfig};
use warpway::{
    Communicator, Context, Deadline, EndpointConfig, Gpu, GpuBuffer, GpuGraph, LaunchShape, PortChannel,
    Result, Stream, Transport, in_process,
};

/// The kernels.
const SOURCE: &str = include_str!("gpu_all_gather.cu");

/// Elements of each rank's part.
const PART: u64 = 100_003;
/// With data written and compared by the host.
const ROUNDS: u64 = 5;
/// With data written and compared by kernels.
const REPLAYS: u64 = 100;

fn main() -> anyhow::Result<()> {
    let (mut transport, mut n_ranks) = (Transport::CudaIpc, 2);
    for argument in std::env::args().skip(1) {
        match argument.as_str() {
            "tcp" => transport = Transport::Ethernet,
            number => n_ranks = number.parse().context("usage: gpu_all_gather [tcp] [RANKS]")?,
        }
    }
    const FEW: &str = "an all-gather takes at least 2 ranks";
    match Communicator::from_env() {
        // No launcher: the ranks are threads of this process.
        Err(error) if error.id() == "config.launcher" => {
            anyhow::ensure!(n_ranks >= 2, FEW);
            in_process(n_ranks, &Context::from_env()?, |comm| run(comm, transport))?;
        }
        joined => {
            let comm = joined?;
            anyhow::ensure!(comm.n_ranks() >= 2, FEW);
            run(&comm, transport)?;
        }
    }
    Ok(())
}

fn run(comm: &Communicator, transport: Transport) -> Result<()> {
    let gather = AllGather::new(comm, transport)?;
    let (gpu, stream, data) = (&gather.gpu, &gather.stream, &gather.data);
    let (round, wrong) = (gpu.alloc::<u64>(1)?, gpu.alloc::<u64>(1)?);
    let graph = gather.graph(&round, &wrong)?;
    // All are ready: from here on kernels wait for each other.
    comm.barrier()?;

    let expected = |round| (0..comm.n_ranks()).flat_map(|rank| part(rank, round)).collect::<Vec<u32>>();
    for round in 0..ROUNDS {
        data.fill(u32::MAX)?;
        data.write(u64::from(comm.rank()) * PART, &part(comm.rank(), round))?;
        // Puts of quick ranks must not land in a buffer that is still being prepared …
        comm.barrier()?;
        gather.launch()?;
        gpu.synchronize(stream, Deadline::after(Duration::from_secs(30)))?;
        assert!(data.to_vec()? == expected(round), "round {round}: wrong data");
        // … or is still being read.
        comm.barrier()?;
    }

    round.write(0, &[ROUNDS])?;
    for _ in 0..REPLAYS {
        graph.launch(stream)?;
    }
    gpu.synchronize(stream, Deadline::after(Duration::from_secs(60)))?;
    assert_eq!((round.to_vec()?, wrong.to_vec()?), (vec![ROUNDS + REPLAYS], vec![0]), "rounds, wrong data");
    assert!(data.to_vec()? == expected(ROUNDS + REPLAYS - 1), "the last round: wrong data");

    let (rank, n_ranks) = (comm.rank(), comm.n_ranks());
    println!(
        "rank {rank}: {ROUNDS} + {REPLAYS} all-gathers of {n_ranks} x {PART} numbers over {transport}, all correct"
    );
    comm.barrier()
}

/// In place: the part of rank r is elements `r * PART ..` of `data`, on every rank.
struct AllGather {
    gpu: Gpu,
    stream: Stream,
    program: LoadedProgram,
    all_gather: Kernel,
    rank: u64,
    n_ranks: u64,
    data: GpuBuffer<u32>,
    /// To every other rank.
    channels: HandleArray<PortChannelHandle, PortChannel>,
}

impl AllGather {
    /// Collective, once: connections, exchange of memories, channels.
    fn new(comm: &Communicator, transport: Transport) -> Result<Self> {
        let gpu = comm.gpu()?;
        let program = gpu.load(&Program::new("gpu_all_gather.cu", SOURCE).device_headers())?;
        let all_gather = program.kernel("all_gather")?;

        let n_ranks = u64::from(comm.n_ranks());
        let data = gpu.alloc_for::<u32>(PART * n_ranks, transport.into())?;
        // The only line that knows the transport.
        let endpoint = EndpointConfig { transport, device: gpu.device(), ..EndpointConfig::default() };
        // A thread that carries out what kernels of this GPU ask for.
        let ports = gpu.port_service(&PortConfig::default())?;
        let mut channels = Vec::new();
        for peer in (0..comm.n_ranks()).filter(|peer| *peer != comm.rank()) {
            let peer = comm.connect_endpoint(peer, endpoint)?;
            let remote = peer.exchange_memory(&data)?;
            channels.push(ports.port_channel(&peer.port_channel(ports.service(), &data, &remote)?)?);
        }
        let channels = gpu.handle_array(&channels)?;
        let (stream, rank) = (gpu.stream()?, u64::from(comm.rank()));
        Ok(Self { gpu, stream, program, all_gather, rank, n_ranks, data, channels })
    }

    /// As often as you like.
    fn launch(&self) -> Result<()> {
        let bytes = PART * size_of::<u32>() as u64;
        let arguments = (&self.channels, self.channels.len(), self.rank * bytes, bytes);
        // SAFETY: the arguments are those of `all_gather`.
        unsafe { self.gpu.launch(&self.all_gather, self.warps(), arguments, &self.stream) }
    }

    /// A warp for each peer, in blocks of at most 32.
    fn warps(&self) -> LaunchShape {
        let peers = self.channels.len() as u32;
        LaunchShape::new(peers.div_ceil(32), 32 * peers.min(32))
    }

    /// A round in which only the device takes part: `round` counts them, `wrong` the elements that were wrong.
    fn graph(&self, round: &GpuBuffer<u64>, wrong: &GpuBuffer<u64>) -> Result<GpuGraph> {
        let Self { gpu, stream, data, channels, rank, n_ranks, .. } = self;
        let [prepare, check, next_round] = [
            self.program.kernel("prepare")?,
            self.program.kernel("check")?,
            self.program.kernel("next_round")?,
        ];
        let wide = LaunchShape::new(8, 256);
        gpu.capture(stream, || {
            // SAFETY: the arguments are those of the kernels.
            unsafe { gpu.launch(&prepare, wide, (data, PART, *rank, round), stream)? };
            self.launch()?;
            // SAFETY: as above.
            unsafe {
                gpu.launch(&check, wide, (data, PART, *n_ranks, round, wrong), stream)?;
                gpu.launch(&next_round, self.warps(), (channels, channels.len(), round), stream)
            }
        })
    }
}

/// Other numbers for each rank and round, so that old or misplaced data cannot pass for new.
fn part(rank: u32, round: u64) -> Vec<u32> {
    (0..PART as u32).map(|i| i.wrapping_mul(2_654_435_761) ^ ((round as u32) << 8 | rank)).collect()
}
