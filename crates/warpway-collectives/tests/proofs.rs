//! Every algorithm of the catalogue is proven, for every kind of task, in many worlds.

use warpway_collectives::{Algorithm, Function, Task, World, catalogue};
use warpway_plan::ReduceOp;

/// What an algorithm can be asked for in a world: in and out of place, roots, operators, blocks.
fn tasks(algorithm: &Algorithm, world: &World, roots: &[u32], blocks: &[u32]) -> Vec<Task> {
    let function = algorithm.function;
    let n = world.n_ranks();
    let mut roots: Vec<u32> = roots.iter().map(|root| root % n).collect();
    roots.sort_unstable();
    roots.dedup();
    let roots = if function.is_rooted() { roots } else { vec![0] };
    let ops: &[ReduceOp] =
        if function.reduces() { &[ReduceOp::Sum, ReduceOp::Avg] } else { &[ReduceOp::Sum] };
    let mut tasks = Vec::new();
    for root in roots {
        for op in ops {
            for n_blocks in blocks {
                let task =
                    Task::new(function, world.clone()).with_root(root).with_op(*op).with_blocks(*n_blocks);
                tasks.push(task.clone());
                if function != Function::Barrier {
                    tasks.push(task.in_place());
                }
            }
        }
    }
    tasks
}

/// Proves every fitting algorithm for every task of a world.
fn prove_all(world: &World, roots: &[u32], blocks: &[u32]) -> Vec<String> {
    let mut failures = Vec::new();
    for algorithm in catalogue() {
        for task in tasks(algorithm, world, roots, blocks) {
            if (algorithm.fits)(&task).is_err() {
                continue;
            }
            match algorithm.prove(&task) {
                Ok(proven) => assert!(proven.repairs().is_empty(), "{algorithm:?} {task:?}"),
                Err(refused) => failures.push(format!("{refused}\n    for {task:?}")),
            }
        }
    }
    failures
}

#[test]
fn one_host_of_up_to_sixteen_ranks() {
    for n in 1..=16 {
        let failures = prove_all(&World::one_host(n), &[0, n / 2, n - 1], &[1, 2, 4]);
        assert!(failures.is_empty(), "{} failures, the first: {}", failures.len(), failures[0]);
    }
}

#[test]
fn hosts() {
    for hosts in [&[1, 1][..], &[2, 2], &[1, 2], &[3, 1], &[1, 1, 1], &[2, 2, 2], &[4, 4], &[3, 1, 2]] {
        let world = World::of_hosts(hosts);
        let failures = prove_all(&world, &[0, world.n_ranks() - 1], &[1, 2]);
        assert!(failures.is_empty(), "{hosts:?}: {} failures, the first: {}", failures.len(), failures[0]);
    }
}
