//! The catalogue's plans, run: every algorithm on ranks that are threads, against the definition of its function. Hosts are
//! played by host identities: ranks of different ones share no memory and meet by TCP.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use warpway::{
    BufferView, Communicator, Config, Context, DataType, PlanLaunch, PreparedPlan, Result, Timeout,
    in_process_with,
};
use warpway_collectives::{Function, Task, World, catalogue};

/// Elements of one rank's share: none, one, less than ranks, and what neither units nor vectors divide.
const COUNTS: [usize; 5] = [0, 1, 3, 29, 4097];

/// Element `at` of the input of a rank in a launch. Sums of it wrap, which is exact.
fn element(turn: u32, rank: u32, at: usize) -> u32 {
    (at as u32 ^ turn.wrapping_mul(0x85eb_ca6b) ^ rank.wrapping_mul(0x9e37_79b9)).wrapping_mul(0xc2b2_ae35)
}

/// Elements of input and output of a rank.
fn sizes(task: &Task, rank: u32, count: usize) -> (usize, usize) {
    let (all, at_root) = (task.world.n_ranks() as usize * count, rank == task.root);
    let if_root = |elements: usize| if at_root { elements } else { 0 };
    match task.function {
        Function::AllReduce => (count, count),
        Function::AllGather => (count, all),
        Function::ReduceScatter => (all, count),
        Function::AllToAll => (all, all),
        Function::Broadcast => (if_root(count), count),
        Function::Reduce => (count, if_root(count)),
        Function::Gather => (count, if_root(all)),
        Function::Scatter => (if_root(all), count),
        _ => (0, 0),
    }
}

/// What the output of a rank is to hold, by the definition of the function.
fn expected(task: &Task, turn: u32, rank: u32, count: usize) -> Vec<u32> {
    let n = task.world.n_ranks();
    let sum = |at: usize| (0..n).fold(0, |sum: u32, from| sum.wrapping_add(element(turn, from, at)));
    let mine = rank as usize * count;
    let value = |at: usize| match task.function {
        Function::AllReduce | Function::Reduce => sum(at),
        Function::ReduceScatter => sum(mine + at),
        Function::AllGather | Function::Gather => element(turn, (at / count) as u32, at % count),
        Function::AllToAll => element(turn, (at / count) as u32, mine + at % count),
        Function::Broadcast => element(turn, task.root, at),
        _ => element(turn, task.root, mine + at),
    };
    (0..sizes(task, rank, count).1).map(value).collect()
}

fn launch(comm: &Communicator, prepared: &PreparedPlan, task: &Task, turn: u32, count: usize) -> Result<()> {
    let rank = comm.rank();
    let (inputs, outputs) = sizes(task, rank, count);
    let input: Vec<u32> = (0..inputs).map(|at| element(turn, rank, at)).collect();
    let mut output = vec![u32::MAX; outputs];
    if task.in_place {
        // One memory, in which the smaller buffer lies where the function says.
        let share = rank as usize * count;
        let (from, to) = match task.function {
            Function::AllGather | Function::Gather if outputs > 0 => (share, 0),
            Function::ReduceScatter | Function::Scatter if inputs > 0 => (0, share),
            _ => (0, 0),
        };
        let mut memory = vec![u32::MAX; inputs.max(outputs)];
        memory[from..from + inputs].copy_from_slice(&input);
        let view = BufferView::from(&mut memory[..]);
        let part = |at: usize, elements: usize| view.part(at as u64 * 4, elements as u64 * 4);
        prepared.run(&PlanLaunch::new(part(from, inputs), part(to, outputs), DataType::Uint32))?;
        output.copy_from_slice(&memory[to..to + outputs]);
    } else {
        prepared.run(&PlanLaunch::new(&input[..], &mut output[..], DataType::Uint32))?;
        assert!((0..inputs).all(|at| input[at] == element(turn, rank, at)), "{task:?} changed its input");
    }
    assert!(output == expected(task, turn, rank, count), "rank {rank}, {count} elements: {task:?}");
    Ok(())
}

/// One context for each host.
fn contexts(world: &World) -> Vec<Context> {
    let mut config = Config::default();
    config.setup_timeout = Timeout::after(Duration::from_secs(60));
    config.device_timeout = Timeout::after(Duration::from_secs(60));
    let of_host = |host: u32| {
        let mut config = config.clone();
        config.host_id = format!("host {host}");
        Context::new(config)
    };
    let hosts: Vec<Context> = (0..world.n_hosts()).map(of_host).collect();
    (0..world.n_ranks()).map(|rank| hosts[world.host(rank).unwrap() as usize].clone()).collect()
}

/// Every algorithm that fits, one after the other on one communicator, twice each with other data.
fn run(world: &World, blocks: u32) {
    let n = world.n_ranks();
    let mut plans = Vec::new();
    for algorithm in catalogue().filter(|algorithm| !algorithm.function.is_sized()) {
        for root in if algorithm.function.is_rooted() { vec![0, n - 1] } else { vec![0] } {
            let task = Task::new(algorithm.function, world.clone()).with_root(root).with_blocks(blocks);
            for task in [task.clone(), task.in_place()] {
                if (algorithm.fits)(&task).is_ok() {
                    plans.push((algorithm.prove(&task).unwrap(), task));
                }
            }
        }
    }
    in_process_with(&contexts(world), |comm| {
        // They all stay until everybody has done with them, as those of a communicator do.
        let prepared = plans.iter().map(|(plan, _)| comm.prepare(plan)).collect::<Result<Vec<_>>>()?;
        for (prepared, (_, task)) in prepared.iter().zip(&plans) {
            for (turn, count) in (0..).zip(COUNTS.into_iter().chain(COUNTS)) {
                launch(comm, prepared, task, turn, count)?;
            }
        }
        comm.barrier()
    })
    .unwrap();
}

#[test]
fn one_rank_alone() {
    run(&World::one_host(1), 1);
}

#[test]
fn two_ranks() {
    run(&World::one_host(2), 1);
    run(&World::one_host(2), 3);
}

#[test]
fn three_ranks() {
    run(&World::one_host(3), 2);
}

#[test]
fn four_ranks() {
    run(&World::one_host(4), 1);
}

#[test]
fn seven_ranks() {
    run(&World::one_host(7), 1);
}

#[test]
fn two_hosts_of_one_rank() {
    run(&World::of_hosts(&[1, 1]), 1);
}

#[test]
fn two_hosts_of_two_ranks() {
    run(&World::of_hosts(&[2, 2]), 1);
}

#[test]
fn uneven_hosts() {
    run(&World::by_host(&[0, 1, 0, 2, 0]), 2);
}
