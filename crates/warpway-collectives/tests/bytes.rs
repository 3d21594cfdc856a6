//! How much data each algorithm moves, counted in its plan and compared with the closed form.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use warpway_collectives::{Function, Task, World, find};
use warpway_plan::{Action, ChannelType, GroupMember, Plan, Reference};

/// Chunks that the blocks of a rank load and store, and that its proxy sends over the wire.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Traffic {
    read: u64,
    written: u64,
    wire: u64,
}

fn chunks(references: &[Reference]) -> u64 {
    references.iter().map(Reference::size).sum()
}

/// By rank.
fn traffic(plan: &Plan) -> Vec<Traffic> {
    let mut of_rank = vec![Traffic::default(); plan.ranks.len()];
    for (rank, _, operation) in plan.operations() {
        let Action::Data(data) = &operation.action else { continue };
        // The members of a group share one item.
        if matches!(data.group, Some(GroupMember { member, .. }) if member > 0) {
            continue;
        }
        let of_rank = &mut of_rank[rank as usize];
        if data.channel_type == Some(ChannelType::Port) {
            of_rank.wire += chunks(&data.sources);
        } else {
            of_rank.read += chunks(&data.sources);
            of_rank.written += chunks(&data.destinations);
        }
    }
    of_rank
}

fn plan(function: Function, name: &str, task: Task) -> Plan {
    find(function, name).unwrap().prove(&task).unwrap().into_plan()
}

/// Chunks read and written by the rank that moves most.
fn busiest(function: Function, name: &str, n: u32, in_place: bool) -> (u64, u64) {
    let task = Task::new(function, World::one_host(n)).with_root(n / 2);
    let plan = plan(function, name, if in_place { task.in_place() } else { task });
    let all = traffic(&plan);
    assert!(all.iter().all(|rank| rank.wire == 0));
    let most = all.into_iter().max_by_key(|rank| rank.read + rank.written).unwrap();
    (most.read, most.written)
}

#[test]
fn within_a_host() {
    use Function::{AllGather, AllReduce, AllToAll, Broadcast, Gather, Reduce, ReduceScatter, Scatter};
    for n in [2_u32, 4, 8, 16] {
        let (r, log) = (u64::from(n), u64::from(n.ilog2()));
        // Chunks of a share; where the message is not split, of the message. In place unless it cannot be.
        let moved = |function, name| busiest(function, name, n, !(function == AllToAll && name == "push"));
        // All-reduces of n chunks: what makes the message S.
        assert_eq!(moved(AllReduce, "two_shot"), (r, r));
        assert_eq!(moved(AllReduce, "reduce_scatter_all_gather"), (2 * r - 1, r));
        assert_eq!(moved(AllReduce, "two_shot_packets"), (3 * r - 2, 3 * r - 2));
        assert_eq!(moved(AllReduce, "ring"), (3 * (r - 1), 3 * (r - 1)));
        // Of one chunk.
        assert_eq!(moved(AllReduce, "one_shot_packets"), (2 * r - 1, r));
        assert_eq!(moved(AllReduce, "eager"), (2 * r - 1, r));
        assert_eq!(moved(AllReduce, "recursive_doubling_packets"), (1 + 2 * log, 2 * log));
        assert_eq!(moved(AllReduce, "recursive_doubling"), (1 + 2 * log, 2 * log));
        for (name, (read, written)) in
            [("push", (r - 1, r - 1)), ("pull", (r - 1, r - 1)), ("ring", (r - 1, r - 1))]
        {
            assert_eq!(moved(AllGather, name), (read, written), "{name}");
        }
        assert_eq!(moved(AllGather, "packets"), (2 * (r - 1), 2 * (r - 1)));
        assert_eq!(moved(AllGather, "eager"), (2 * (r - 1), 2 * (r - 1)));
        assert_eq!(moved(ReduceScatter, "read"), (r, 1));
        assert_eq!(moved(ReduceScatter, "eager"), (2 * r - 1, r));
        assert_eq!(moved(ReduceScatter, "packets"), (2 * r - 1, r));
        assert_eq!(moved(AllToAll, "push"), (r, r));
        assert_eq!(moved(AllToAll, "exchange"), (2 * (r - 1), 2 * (r - 1)));
        assert_eq!(moved(AllToAll, "eager"), (2 * (r - 1), 2 * (r - 1)));
        assert_eq!(moved(AllToAll, "packets"), (2 * (r - 1), 2 * (r - 1)));
        // From and to a root; the message of split has n chunks.
        assert_eq!(moved(Broadcast, "push"), (r - 1, r - 1));
        assert_eq!(moved(Broadcast, "eager"), (r - 1, r - 1));
        assert_eq!(moved(Broadcast, "split"), (r - 1, r - 1));
        assert_eq!(moved(Broadcast, "pull"), (1, 1));
        assert_eq!(moved(Broadcast, "chain"), (16, 16));
        assert_eq!(moved(Reduce, "split"), (r, 2));
        assert_eq!(moved(Reduce, "read"), (r, 1));
        assert_eq!(moved(Gather, "push"), (1, 1));
        assert_eq!(moved(Scatter, "pull"), (1, 1));
        assert_eq!(moved(Scatter, "push"), (r - 1, r - 1));
    }
}

/// Chunks that leave each host.
fn leaving(function: Function, name: &str, task: &Task) -> Vec<u64> {
    let all = traffic(&plan(function, name, task.clone()));
    let hosts = task.world.hosts();
    hosts.iter().map(|ranks| ranks.iter().map(|rank| all[*rank as usize].wire).sum()).collect()
}

#[test]
fn between_hosts_every_byte_crosses_as_seldom_as_possible() {
    let layouts: [&[u32]; 6] = [&[2, 2], &[1, 1], &[1, 1, 1], &[4, 4, 4], &[3, 1, 2], &[2, 5]];
    for layout in layouts {
        let world = World::of_hosts(layout);
        let (hosts, n) = (layout.len() as u64, u64::from(world.n_ranks()));
        let lanes = u64::from(*layout.iter().min().unwrap());
        let fine = (128 / hosts).clamp(16, 64);
        let task = Task::new(Function::AllReduce, world.clone());
        let left = leaving(Function::AllReduce, "hierarchical_fine", &task);
        assert_eq!(left, vec![2 * (hosts - 1) * lanes * fine; layout.len()], "{layout:?}");
        for (name, pieces) in [("hierarchical", 1), ("hierarchical_pipelined", 16)] {
            let task = |function| Task::new(function, world.clone());
            let left = |function| leaving(function, name, &task(function));
            // Of lanes x hosts x pieces chunks: 2 (H - 1) / H of the message.
            let all_reduce = 2 * (hosts - 1) * lanes * pieces;
            assert_eq!(left(Function::AllReduce), vec![all_reduce; layout.len()], "{layout:?}");
            for (host, ranks) in layout.iter().enumerate() {
                let ranks = u64::from(*ranks);
                assert_eq!(left(Function::AllGather)[host], ranks * (hosts - 1) * pieces, "{layout:?}");
                assert_eq!(left(Function::ReduceScatter)[host], (n - ranks) * pieces, "{layout:?}");
            }
            // The chain from the host of the root to the last, and back.
            let mut chain = vec![lanes * pieces; layout.len()];
            chain[layout.len() - 1] = 0;
            assert_eq!(left(Function::Broadcast), chain, "{layout:?}");
            chain.rotate_right(1);
            assert_eq!(left(Function::Reduce), chain, "{layout:?}");
        }
        let flat = |function| leaving(function, "push", &Task::new(function, world.clone()));
        for (host, ranks) in layout.iter().enumerate() {
            let ranks = u64::from(*ranks);
            assert_eq!(flat(Function::AllToAll)[host], ranks * (n - ranks));
            assert_eq!(flat(Function::Gather)[host], if host == 0 { 0 } else { ranks });
            assert_eq!(flat(Function::Scatter)[host], if host == 0 { n - ranks } else { 0 });
        }
    }
}

/// Blocks share work, they add none.
#[test]
fn blocks_move_no_more() {
    for (function, name) in [
        (Function::AllReduce, "two_shot"),
        (Function::AllGather, "push"),
        (Function::Broadcast, "split"),
        (Function::AllReduce, "ring"),
    ] {
        let task = Task::new(function, World::one_host(4));
        let one = traffic(&plan(function, name, task.clone()));
        let four = traffic(&plan(function, name, task.with_blocks(4)));
        assert_eq!(one, four, "{name}");
    }
}
