//! Every algorithm of the catalogue is proven, for every kind of task, in many worlds.

use std::collections::BTreeSet;

use proptest::prelude::*;
use warpway_collectives::{Algorithm, Function, Task, World, catalogue, device_catalogue};
use warpway_plan::ReduceOp;

/// What a world is asked for, in and out of place.
struct Demands<'d> {
    roots: &'d [u32],
    ops: &'d [ReduceOp],
    blocks: &'d [u32],
}

fn tasks(algorithm: &Algorithm, world: &World, demands: &Demands<'_>) -> Vec<Task> {
    let (function, n) = (algorithm.function, world.n_ranks());
    let roots: BTreeSet<u32> = demands.roots.iter().map(|root| root % n).collect();
    let roots = if function.is_rooted() { roots } else { BTreeSet::from([0]) };
    let ops = if function.reduces() { demands.ops } else { &demands.ops[..1] };
    let mut tasks = Vec::new();
    for root in roots {
        for op in ops {
            for blocks in demands.blocks {
                let task =
                    Task::new(function, world.clone()).with_root(root).with_op(*op).with_blocks(*blocks);
                tasks.push(task.clone());
                tasks.push(task.in_place());
            }
        }
    }
    tasks
}

/// Proves every algorithm for every task that it fits.
fn prove_all(world: &World, demands: &Demands<'_>) {
    for algorithm in catalogue() {
        for task in tasks(algorithm, world, demands) {
            if (algorithm.fits)(&task).is_err() {
                continue;
            }
            let proven = algorithm.prove(&task);
            let proven = proven.map_err(|refused| format!("{refused}\n    for {task:?}"));
            assert!(proven.is_ok(), "{}", proven.err().unwrap_or_default());
            assert!(proven.is_ok_and(|proven| proven.repairs().is_empty()), "{algorithm:?} {task:?}");
        }
    }
}

#[test]
fn one_host_of_up_to_sixteen_ranks() {
    for n in 1..=16 {
        let (roots, ops) = ([0, n / 2, n - 1], [ReduceOp::Sum, ReduceOp::Avg]);
        prove_all(&World::one_host(n), &Demands { roots: &roots, ops: &ops, blocks: &[1, 2, 4] });
    }
}

#[test]
fn many_ranks() {
    for n in [32, 64] {
        let demands = Demands { roots: &[n - 2], ops: &[ReduceOp::Max], blocks: &[1] };
        prove_all(&World::one_host(n), &demands);
    }
}

#[test]
fn many_ranks_on_several_hosts() {
    let demands = Demands { roots: &[9], ops: &[ReduceOp::Sum], blocks: &[1] };
    for hosts in [&[8; 4][..], &[8; 8], &[1; 16]] {
        prove_all(&World::of_hosts(hosts), &demands);
    }
}

#[test]
fn several_hosts() {
    let layouts: [&[u32]; 9] =
        [&[1, 1], &[2, 2], &[1, 2], &[3, 1], &[1, 1, 1], &[2, 2, 2], &[4, 4], &[3, 1, 2], &[1, 5]];
    for hosts in layouts {
        let world = World::of_hosts(hosts);
        let (roots, ops) = ([0, 1, world.n_ranks() - 1], [ReduceOp::Sum, ReduceOp::Avg]);
        prove_all(&world, &Demands { roots: &roots, ops: &ops, blocks: &[1, 3] });
    }
}

/// Ranks dealt out to hosts in any way.
fn worlds() -> impl Strategy<Value = World> {
    prop::collection::vec(0..4_u32, 1..12).prop_map(|hosts| World::by_host(&hosts))
}

const OPS: [ReduceOp; 5] = [ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Min, ReduceOp::Max, ReduceOp::Avg];

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(40) })]

    #[test]
    fn any_world(world in worlds(), root in 0..12_u32, op in 0..5_usize, blocks in 1..6_u32) {
        prove_all(&world, &Demands { roots: &[root], ops: &OPS[op..=op], blocks: &[blocks] });
    }

    /// In place, all-to-alls with a count per pair have no convention: the two directions differ in size.
    #[test]
    fn every_function_can_be_computed_in_any_world(world in worlds(), in_place in any::<bool>()) {
        for (function, name) in Function::NAMED {
            let task = Task::new(*function, world.clone());
            let task = if in_place && *function != Function::AllToAllV { task.in_place() } else { task };
            let mut fitting = catalogue().filter(|a| a.function == *function && (a.fits)(&task).is_ok());
            prop_assert!(fitting.next().is_some(), "nothing fits {name} in {world:?}");
        }
    }
}

#[test]
fn names_are_unique_and_traits_agree_with_what_fits() {
    let mut seen = BTreeSet::new();
    for algorithm in catalogue() {
        assert!(seen.insert((algorithm.function, algorithm.name)), "{algorithm:?} is there twice");
        let one = Task::new(algorithm.function, World::one_host(4));
        let two = Task::new(algorithm.function, World::of_hosts(&[2, 2]));
        assert_eq!((algorithm.fits)(&one).is_ok(), !algorithm.traits.hierarchical, "{algorithm:?}");
        assert!(!algorithm.traits.packets || (algorithm.fits)(&two).is_err(), "{algorithm:?}");
        assert!((algorithm.fits)(&one).is_ok() || (algorithm.fits)(&two).is_ok(), "{algorithm:?}");
    }
}

/// Those for devices, with the blocks of a small one.
#[test]
fn algorithms_for_devices_are_proven() {
    for algorithm in device_catalogue() {
        for n in [1, 2, 3, 4, 5, 8, 16] {
            for in_place in [false, true] {
                let mut task = Task::new(algorithm.function, World::one_host(n)).with_blocks(8);
                task.in_place = in_place;
                let proven = algorithm.prove(&task).unwrap_or_else(|refused| panic!("{n} ranks: {refused}"));
                // Plans share scratch, since each tells all ranks that all have begun.
                assert!(n == 1 || proven.report().shareable_areas.raw, "{algorithm:?}, {n} ranks");
            }
        }
    }
}
