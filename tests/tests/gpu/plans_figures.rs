//! How long compiled plans take inside a graph, by algorithm, blocks and size: what the tables of algorithms for GPUs are made of.

use std::time::Duration;

use warpway::collectives::{Algorithm, Function, Task, World, catalogue, device_catalogue};
use warpway::cuda::plan::{KernelSetting, Packet};
use warpway::cuda::{DeviceRange, Event, GpuLaunch, GpuPlan, GpuPlanSetting, MessageBytes};
use warpway::{Communicator, DataType, Deadline, Gpu, GpuBuffer, Result, Stream};

use crate::rig::Ranks;

/// Launches in a graph.
const LAUNCHES: u32 = 20;
const REPLAYS: usize = 9;

/// What is measured.
struct Form {
    function: Function,
    algorithm: &'static str,
    packet: Packet,
    /// Sizes of the larger buffer: every second power of two.
    shifts: std::ops::RangeInclusive<u32>,
    blocks: &'static [u32],
}

fn packets(function: Function, algorithm: &'static str) -> Form {
    Form { function, algorithm, packet: Packet::LL16, shifts: 10..=22, blocks: &[1, 2, 4, 8, 16, 32, 64] }
}

/// The same plans, with lines.
fn lines(function: Function, algorithm: &'static str) -> Form {
    Form { packet: Packet::Line, shifts: 14..=24, blocks: &[16, 32, 64, 128], ..packets(function, algorithm) }
}

fn tiles(function: Function) -> Form {
    Form { shifts: 20..=28, blocks: &[16, 32, 64, 128], ..packets(function, "push_tiles") }
}

const PACKETS: [(Function, &str); 7] = [
    (Function::AllReduce, "one_shot_packets"),
    (Function::AllReduce, "two_shot_packets"),
    (Function::AllGather, "packets"),
    (Function::ReduceScatter, "packets"),
    (Function::AllToAll, "packets"),
    (Function::Broadcast, "packets"),
    (Function::Reduce, "packets"),
];

fn known(function: Function, name: &str) -> &'static Algorithm {
    let named = |algorithm: &&Algorithm| algorithm.function == function && algorithm.name == name;
    catalogue().chain(device_catalogue()).find(named).unwrap()
}

/// Bytes of input and output, for so many of the larger one.
fn bytes_of(function: Function, n: u64, bytes: u64) -> MessageBytes {
    let (input, output) = match function {
        Function::AllGather => (bytes / n, bytes),
        Function::ReduceScatter => (bytes, bytes / n),
        _ => (bytes, bytes),
    };
    MessageBytes { input, output }
}

struct Measured {
    gpu: Gpu,
    stream: Stream,
    plan: GpuPlan,
    input: GpuBuffer<u8>,
    output: GpuBuffer<u8>,
}

impl Measured {
    /// The median of replays, each on the later of two ranks, per launch.
    fn time(&self, comm: &Communicator, message: MessageBytes) -> Result<Duration> {
        let launch = GpuLaunch {
            input: DeviceRange::of(&self.input, 0, message.input),
            output: DeviceRange::of(&self.output, 0, message.output),
            stream: &self.stream,
        };
        // SAFETY: the buffers live until the stream has been synchronised.
        let graph = self
            .gpu
            .capture(&self.stream, || (0..LAUNCHES).try_for_each(|_| unsafe { self.plan.launch(&launch) }))?;
        let context = self.gpu.context();
        let mut times = Vec::new();
        for replay in 0..=REPLAYS {
            let (begin, end) = (Event::timed(context)?, Event::timed(context)?);
            comm.barrier()?;
            begin.record(&self.stream)?;
            graph.launch(&self.stream)?;
            end.record(&self.stream)?;
            self.gpu.synchronize(&self.stream, Deadline::after(Duration::from_secs(20)))?;
            if replay > 0 {
                times.push(begin.until(&end)? / LAUNCHES);
            }
        }
        times.sort_unstable();
        Ok(times[REPLAYS / 2])
    }
}

fn measure(comm: &Communicator, threads: u32, forms: &[Form]) -> Result<()> {
    let (gpu, n) = (comm.gpu()?, comm.n_ranks());
    for Form { function, algorithm, packet, shifts, blocks } in forms {
        let (function, algorithm) = (*function, *algorithm);
        let largest = bytes_of(function, n.into(), 1 << shifts.end());
        let (input, output) = (gpu.alloc::<u8>(largest.input)?, gpu.alloc::<u8>(largest.output)?);
        // One in bfloat16, all of them.
        input.write(0, &[0x80, 0x3f].repeat(largest.input as usize / 2))?;
        for &blocks in *blocks {
            let task = Task::new(function, World::one_host(n)).with_blocks(blocks).with_packet_blocks(blocks);
            let proven = known(function, algorithm).prove(&task).unwrap();
            let kernel = KernelSetting::new(DataType::Bfloat16, *packet).with_threads(threads);
            let plan = gpu.plans().prepare(&proven, GpuPlanSetting { kernel, largest })?;
            let measured = Measured {
                gpu: gpu.clone(),
                stream: gpu.stream()?,
                plan,
                input: input.clone(),
                output: output.clone(),
            };
            let mut row = serde_json::Map::new();
            for shift in shifts.clone().step_by(2) {
                let message = bytes_of(function, n.into(), 1 << shift);
                let time = measured.time(comm, message)?;
                row.insert((1u64 << shift).to_string(), ((time.as_nanos() as f64) / 1e3).into());
                let found = output.to_vec()?;
                let one = match function.reduces() && (function != Function::Reduce || comm.rank() == 0) {
                    true => [0x00, 0x40],
                    false if function == Function::Reduce => continue,
                    false => [0x80, 0x3f],
                };
                let wrong = found[..message.output as usize].chunks(2).position(|element| element != one);
                if function != Function::Broadcast || comm.rank() != 0 {
                    assert_eq!(wrong, None, "{function} {algorithm}, {blocks} blocks, {message:?}");
                }
            }
            if comm.rank() == 0 {
                let name = format!("{function} {algorithm} {packet:?}");
                println!(
                    "{}",
                    serde_json::json!({ "plan": name, "blocks": blocks, "threads": threads, "us": row })
                );
            }
        }
    }
    comm.barrier()
}

#[test]
#[ignore = "needs a GPU: cargo xtask gpu-bundle"]
fn packets_with_512_threads() {
    Ranks::new(2)
        .threads(|comm| measure(comm, 512, &PACKETS.map(|(function, name)| packets(function, name))));
}

#[test]
#[ignore = "needs a GPU: cargo xtask gpu-bundle"]
fn packets_with_1024_threads() {
    Ranks::new(2)
        .threads(|comm| measure(comm, 1024, &PACKETS.map(|(function, name)| packets(function, name))));
}

#[test]
#[ignore = "needs a GPU: cargo xtask gpu-bundle"]
fn lines_with_512_threads() {
    Ranks::new(2).threads(|comm| measure(comm, 512, &PACKETS.map(|(function, name)| lines(function, name))));
}

#[test]
#[ignore = "needs a GPU: cargo xtask gpu-bundle"]
fn tiles_with_512_threads() {
    Ranks::new(2)
        .threads(|comm| measure(comm, 512, &[Function::AllReduce, Function::ReduceScatter].map(tiles)));
}
