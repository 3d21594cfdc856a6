//! The executor on a driver in host memory, where kernels do nothing.

mod failing;
mod launching;
mod setting_up;

use std::sync::Arc;
use std::time::Duration;

use fake_cuda::Fake;
use warpway_collectives::{Function, Task, World, catalogue, find};
use warpway_core::communicator::Communicator;
use warpway_core::engine::Engine;
use warpway_core::memory::TokenMemory;
use warpway_core::testing::LocalJob;
use warpway_core::{Result, Timeout};
use warpway_plan::DataType;
use warpway_plan::verify::VerifiedPlan;

use super::{DeviceRange, GpuLaunch, GpuPlan, GpuPlanSetting, GpuPlans, MessageBytes};
use crate::engine::tests::nothing_is_left;
use crate::engine::{CudaEngine, DeviceChoice, Devices};
use crate::gpu::{Gpu, GpuBuffer};
use crate::jit::Program;
use crate::jit::tests::of_programs;
use crate::plan::{KernelSetting, Packet};
use crate::stream::Stream;

/// Of the kernels: the structure of a plan's has head, bases with their halves, words.
fn parameter_bytes(program: &Program, symbol: &str) -> Vec<u64> {
    let numbers = |text: &str| -> Vec<u64> {
        let list = text.split(">;").next().unwrap();
        list.split(", ").map(|number| number.parse().unwrap()).collect()
    };
    match (symbol, program.source().split_once("plan::Launch<")) {
        ("warpway_meeting", _) => vec![16],
        ("warpway_plan", Some((_, rest))) => {
            let [bases, words] = numbers(rest)[..] else { panic!("two numbers") };
            vec![8 * (7 + 2 * bases + words)]
        }
        _ => vec![8, 8],
    }
}

/// Ranks of one process, in turn on two devices. Dropped in the order of its fields.
struct Rig {
    gpus: Vec<Gpu>,
    comms: Vec<Communicator>,
    engines: Vec<CudaEngine>,
    devices: Devices,
    fake: Fake,
}

impl Rig {
    fn new(n: u32) -> Self {
        let fake = Fake::open();
        fake.set("devices=2,peers=all,arch=90,sms=132");
        Self::on(fake, n)
    }

    /// The same on a machine that has been in use.
    fn on(fake: Fake, n: u32) -> Self {
        let compiler = of_programs(parameter_bytes);
        let devices = Devices::new(fake.path(), compiler.clone());
        let job = LocalJob::new(n);
        let (mut gpus, mut comms, mut engines) = (Vec::new(), Vec::new(), Vec::new());
        for rank in 0..n {
            let engine = CudaEngine::new(&devices, DeviceChoice { ordinal: None, local_rank: rank });
            let mut parts = job.parts(rank, vec![Arc::new(engine.clone()) as Arc<dyn Engine>]);
            parts.gpu_token_memory = Some(Arc::new(engine.tokens()) as Arc<dyn TokenMemory>);
            let comm = Communicator::new(parts).unwrap();
            let timeout = Timeout::after(Duration::from_secs(2));
            gpus.push(Gpu::new(&comm, &engine.context().unwrap(), &compiler, timeout).unwrap());
            comms.push(comm);
            engines.push(engine);
        }
        Self { gpus, comms, engines, devices, fake }
    }

    /// What each rank does, at the same time.
    fn ranks<T: Send>(&self, work: impl Fn(u32, &Gpu) -> T + Sync) -> Vec<T> {
        std::thread::scope(|scope| {
            let start = |(rank, gpu)| {
                let work = &work;
                scope.spawn(move || work(rank, gpu))
            };
            let threads: Vec<_> = (0..).zip(&self.gpus).map(start).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }

    /// All ranks set up the plan.
    fn prepare(&self, proven: &VerifiedPlan, setting: impl Fn(u32) -> GpuPlanSetting + Sync) -> Vec<GpuPlan> {
        self.ranks(|rank, gpu| plans(gpu).prepare(proven, setting(rank)).unwrap())
    }

    /// Drops everything; nothing is left in the driver.
    fn end(self) -> Fake {
        let Self { gpus, comms, engines, devices, fake } = self;
        drop((gpus, comms, engines, devices));
        nothing_is_left(&fake, "the end");
        fake
    }
}

fn plans(gpu: &Gpu) -> GpuPlans {
    gpu.plans().with_timeout(Timeout::after(Duration::from_secs(10)))
}

fn setting(data_type: DataType, input: u64, output: u64) -> GpuPlanSetting {
    let kernel = KernelSetting::new(data_type, Packet::LL16);
    GpuPlanSetting { kernel, largest: MessageBytes { input, output } }
}

fn proven(function: Function, algorithm: &str, task: impl FnOnce(Task) -> Task, n: u32) -> VerifiedPlan {
    let task = task(Task::new(function, World::one_host(n)).with_blocks(4).with_packet_blocks(4));
    find(function, algorithm).unwrap().prove(&task).unwrap()
}

/// Packets, one hop, in shared scratch.
fn one_shot(n: u32) -> VerifiedPlan {
    proven(Function::AllReduce, "one_shot_packets", |task| task, n)
}

/// Raw data in scratch.
fn eager(n: u32) -> VerifiedPlan {
    proven(Function::AllReduce, "eager", |task| task, n)
}

/// Device memory of one rank, and its stream.
struct Buffers {
    input: GpuBuffer<u8>,
    output: GpuBuffer<u8>,
    stream: Stream,
}

impl Buffers {
    fn new(gpu: &Gpu, input: u64, output: u64) -> Self {
        let alloc = |bytes: u64| gpu.alloc::<u8>(bytes.max(1)).unwrap();
        Self { input: alloc(input), output: alloc(output), stream: gpu.stream().unwrap() }
    }

    fn launch(&self, plan: &GpuPlan, input: u64, output: u64) -> Result<()> {
        let (input, output) =
            (DeviceRange::of(&self.input, 0, input), DeviceRange::of(&self.output, 0, output));
        // SAFETY: kernels do nothing here.
        unsafe { plan.launch(&GpuLaunch { input, output, stream: &self.stream }) }
    }
}
