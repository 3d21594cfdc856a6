//! The plan compiler without a GPU: every kernel of the catalogue compiles for three architectures, and the same text, compiled
//! by a host C++ compiler with blocks as threads, computes what the collective is for.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod compiled;
mod emulated;
#[path = "../host_compiler/mod.rs"]
mod host_compiler;
#[path = "../nvrtc/mod.rs"]
mod nvrtc;

use warpway_collectives::{Algorithm, Function, Task, World, catalogue, device_catalogue};
use warpway_cuda::plan::{KernelSetting, Packet, PlanKernel};
use warpway_plan::DataType;
use warpway_plan::verify::VerifiedPlan;

/// A plan of the catalogue that compiled kernels can be made of.
pub(crate) struct Case {
    pub(crate) algorithm: &'static Algorithm,
    pub(crate) task: Task,
    pub(crate) plan: VerifiedPlan,
}

impl Case {
    pub(crate) fn kernel(&self, rank: u32, setting: KernelSetting) -> PlanKernel {
        PlanKernel::new(&self.plan, rank, setting).unwrap_or_else(|e| panic!("{:?}: {e}", self.algorithm))
    }
}

/// All algorithms of `n` ranks of one host that need no proxy, with so many blocks, in and out of place.
pub(crate) fn cases(n: u32, blocks: u32) -> Vec<Case> {
    let mut all = Vec::new();
    for algorithm in catalogue().chain(device_catalogue()) {
        for in_place in [false, true] {
            let mut task = Task::new(algorithm.function, World::one_host(n))
                .with_blocks(blocks)
                .with_packet_blocks(blocks);
            task.in_place = in_place;
            if algorithm.function.is_rooted() {
                task = task.with_root(n - 1);
            }
            let Ok(plan) = algorithm.prove(&task) else { continue };
            let setting = KernelSetting::new(DataType::Int32, Packet::LL16);
            if let Err(problem) = PlanKernel::new(&plan, 0, setting) {
                assert!(problem.to_string().contains("port channels"), "{algorithm:?}: {problem}");
                continue;
            }
            all.push(Case { algorithm, task, plan });
        }
    }
    assert!(all.len() > 20, "{} plans", all.len());
    all
}

/// Elements of input and output of a rank, for `count` elements each.
pub(crate) fn shape(function: Function, n: u64, count: u64, is_root: bool) -> (u64, u64) {
    match function {
        Function::AllReduce | Function::Broadcast | Function::Reduce => (count, count),
        Function::AllGather => (count, n * count),
        Function::ReduceScatter => (n * count, count),
        Function::AllToAll => (n * count, n * count),
        Function::Gather => (count, if is_root { n * count } else { 0 }),
        Function::Scatter => (if is_root { n * count } else { 0 }, count),
        _ => (0, 0),
    }
}
