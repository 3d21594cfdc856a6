//! How long an algorithm takes in worlds that are too large for a plan, by the clocks of one host's ranks.
//!
//! Each function below follows the plan of its algorithm in `catalogue/`; tests hold it against the event simulation of
//! that plan in small worlds. The root is rank 0.

use warpway_plan::DataType;
use warpway_plan::simulate::{Machine, Moved, Order, Recurrence};

use crate::task::Function;

/// Equal hosts of equally many ranks, one block each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cluster {
    /// Hosts.
    pub hosts: u32,
    /// Ranks of each.
    pub ranks_per_host: u32,
}

/// A message: bytes of the larger buffer, and the type of its elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message {
    /// Bytes.
    pub bytes: u64,
    /// Type.
    pub data_type: DataType,
}

/// A block's share of the bytes that a host's blocks touch in a launch, and what it does.
type Steps = (u64, Box<dyn Fn(&mut Recurrence<'_>)>);

/// An algorithm for clusters of a kind.
struct Estimate {
    function: Function,
    name: &'static str,
    fits: fn(Cluster) -> bool,
    steps: fn(Size) -> Steps,
}

/// What steps depend on.
#[derive(Debug, Clone, Copy)]
struct Size {
    /// Of the message.
    all: u64,
    /// Of a rank's part.
    part: u64,
    hosts: u64,
    /// Of a host.
    ranks: u64,
}

impl Size {
    /// Ranks of the host but one.
    fn near(self) -> u64 {
        self.ranks - 1
    }

    /// Hosts but one.
    fn far(self) -> u64 {
        self.hosts - 1
    }
}

const fn of(
    function: Function,
    name: &'static str,
    fits: fn(Cluster) -> bool,
    steps: fn(Size) -> Steps,
) -> Estimate {
    Estimate { function, name, fits, steps }
}

fn one_host(cluster: Cluster) -> bool {
    cluster.hosts == 1 && cluster.ranks_per_host > 1
}

fn power_of_two(cluster: Cluster) -> bool {
    one_host(cluster) && cluster.ranks_per_host.is_power_of_two()
}

fn several_hosts(cluster: Cluster) -> bool {
    cluster.hosts > 1 && cluster.ranks_per_host > 0
}

const ESTIMATES: &[Estimate] = &[
    of(Function::AllReduce, "one_shot_packets", one_host, one_shot_packets),
    of(Function::AllReduce, "two_shot_packets", one_host, two_shot_packets),
    of(Function::AllReduce, "recursive_doubling", power_of_two, recursive_doubling),
    of(Function::AllReduce, "recursive_doubling_packets", power_of_two, recursive_doubling_packets),
    of(Function::AllReduce, "ring", one_host, all_reduce_ring),
    of(Function::AllReduce, "two_shot", one_host, two_shot),
    of(Function::AllReduce, "reduce_scatter_all_gather", one_host, reduce_scatter_all_gather),
    of(Function::AllReduce, "hierarchical", several_hosts, all_reduce_hierarchical),
    of(Function::AllGather, "packets", one_host, all_gather_packets),
    of(Function::AllGather, "push", one_host, all_gather_push),
    of(Function::AllGather, "pull", one_host, all_gather_pull),
    of(Function::AllGather, "ring", one_host, all_gather_ring),
    of(Function::AllGather, "hierarchical", several_hosts, all_gather_hierarchical),
    of(Function::ReduceScatter, "packets", one_host, reduce_scatter_packets),
    of(Function::ReduceScatter, "read", one_host, reduce_scatter_read),
    of(Function::ReduceScatter, "hierarchical", several_hosts, reduce_scatter_hierarchical),
    of(Function::AllToAll, "packets", one_host, all_to_all_packets),
    of(Function::AllToAll, "push", one_host, all_to_all_push),
    of(Function::AllToAll, "exchange", one_host, all_to_all_exchange),
    of(Function::Broadcast, "packets", one_host, broadcast_packets),
    of(Function::Broadcast, "push", one_host, broadcast_push),
    of(Function::Broadcast, "pull", one_host, broadcast_pull),
    of(Function::Broadcast, "chain", one_host, broadcast_chain),
    of(Function::Broadcast, "split", one_host, broadcast_split),
];

/// Nanoseconds of one launch; `None` where there is no estimate for the algorithm on such a cluster.
pub fn estimate(
    function: Function,
    algorithm: &str,
    machine: &Machine,
    cluster: Cluster,
    message: Message,
) -> Option<f64> {
    let is_it = |one: &&Estimate| (one.function, one.name) == (function, algorithm) && (one.fits)(cluster);
    let found = ESTIMATES.iter().find(is_it)?;
    let (hosts, ranks) = (cluster.hosts, cluster.ranks_per_host);
    let part = message.bytes / (u64::from(hosts) * u64::from(ranks));
    let size = Size { all: message.bytes, part, hosts: u64::from(hosts), ranks: u64::from(ranks) };
    let (touched, steps) = (found.steps)(size);
    Some(Recurrence::launches(machine, (hosts, ranks), (touched, message.data_type), |clocks| steps(clocks)))
}

/// Algorithms with an estimate, by function and name.
pub fn estimated() -> impl Iterator<Item = (Function, &'static str)> {
    ESTIMATES.iter().map(|one| (one.function, one.name))
}

/// Packets of so much data from all others of the host, in a scratch of two halves.
fn packed(size: Size, bytes: u64) -> u64 {
    4 * size.near() * bytes
}

fn one_shot_packets(size: Size) -> Steps {
    let Size { all, .. } = size;
    let steps = move |clocks: &mut Recurrence<'_>| clocks.fold_packets(all, false);
    (2 * all + packed(size, all), Box::new(steps))
}

/// The fold and what sends its result are one operation.
fn two_shot_packets(size: Size) -> Steps {
    let Size { all, part, .. } = size;
    let steps = move |clocks: &mut Recurrence<'_>| clocks.fold_packets(part, true);
    (2 * all + 2 * packed(size, part), Box::new(steps))
}

fn recursive_doubling_packets(size: Size) -> Steps {
    let Size { all, ranks, .. } = size;
    let steps = move |clocks: &mut Recurrence<'_>| clocks.double_packets(all, ranks.ilog2());
    (2 * all + 4 * all * u64::from(ranks.ilog2()), Box::new(steps))
}

/// A partner's place is written where it has folded from, and folded from where the partner has written. A fold and what
/// sends its result are one operation.
fn recursive_doubling(size: Size) -> Steps {
    let Size { all, ranks, .. } = size;
    let exchanges = u64::from(ranks.ilog2());
    let steps = move |clocks: &mut Recurrence<'_>| {
        clocks.moves(1, Moved::copy(all).to_others(1));
        for bit in 0..ranks.ilog2() {
            let goes_on = u64::from(bit + 1 < ranks.ilog2());
            clocks.meet_partner(bit);
            clocks.folds(1, Moved::fold(all, 2, 1 + goes_on).from_others(1).to_others(goes_on));
        }
    };
    (2 * all + 2 * all * (2 * exchanges - 1), Box::new(steps))
}

/// Parts go to the right and are folded on the way; then results go on, which all but the last rank read again. A fold and
/// what sends its result are one operation.
fn all_reduce_ring(size: Size) -> Steps {
    let Size { all, part, .. } = size;
    let hops = size.near();
    let steps = move |clocks: &mut Recurrence<'_>| {
        clocks.handshake_with(1);
        clocks.moves(1, Moved::copy(part).to_others(1));
        for hop in 0..hops {
            clocks.shift(1);
            // The next rank folds it, or passes it on.
            let is_read = u64::from(hop + 1 < hops || hops > 1);
            clocks.folds(1, Moved::fold(part, 2, 2).from_others(1).to_others(is_read));
        }
        clocks.shift(1);
        travel(clocks, part, 1..hops);
    };
    (2 * all + part * (4 * hops - 2), Box::new(steps))
}

/// Results on these hops around a ring: what has come goes on.
fn travel(clocks: &mut Recurrence<'_>, part: u64, hops: std::ops::Range<u64>) {
    for hop in hops.clone() {
        let goes_on = u64::from(hop + 1 < hops.end);
        let has_come = u64::from(hop > 0);
        clocks.moves(1, Moved::copy(part).from_others(has_come).to_others(goes_on));
        clocks.shift(1);
    }
}

/// Each rank folds its part of all inputs and stores it to all.
fn two_shot(size: Size) -> Steps {
    let Size { all, part, ranks, .. } = size;
    let steps = move |clocks: &mut Recurrence<'_>| {
        clocks.handshake();
        clocks.meet();
        clocks.folds(1, Moved::fold(part, ranks, ranks));
        clocks.meet();
    };
    (2 * all, Box::new(steps))
}

/// What a rank has folded is read by all others, and folded anew.
fn reduce_scatter_all_gather(size: Size) -> Steps {
    let Size { all, part, ranks, .. } = size;
    let near = size.near();
    let steps = move |clocks: &mut Recurrence<'_>| {
        clocks.handshake();
        clocks.meet();
        clocks.folds(1, Moved::fold(part, ranks, 1).to_others(1));
        clocks.meet();
        clocks.moves(near, Moved::copy(part).from_others(1));
        clocks.meet();
    };
    (2 * all, Box::new(steps))
}

fn all_gather_packets(size: Size) -> Steps {
    let Size { all, part, .. } = size;
    let steps = move |clocks: &mut Recurrence<'_>| {
        clocks.packets(part, |clocks| clocks.moves(1, Moved::copy(part)));
    };
    (part + all + packed(size, part), Box::new(steps))
}

/// Each rank copies its input to all outputs.
fn all_gather_push(size: Size) -> Steps {
    let Size { all, part, ranks, .. } = size;
    let steps = move |clocks: &mut Recurrence<'_>| {
        clocks.handshake();
        clocks.meet();
        clocks.moves(ranks, Moved::copy(part));
        clocks.meet();
    };
    (part + all, Box::new(steps))
}

fn all_gather_pull(size: Size) -> Steps {
    let Size { all, part, .. } = size;
    let near = size.near();
    let steps = move |clocks: &mut Recurrence<'_>| {
        clocks.handshake();
        clocks.meet_with(Order::Ascending, |clocks| clocks.moves(1, Moved::copy(part)));
        clocks.moves(near, Moved::copy(part));
        clocks.meet();
    };
    (part + all, Box::new(steps))
}

fn all_gather_ring(size: Size) -> Steps {
    let Size { all, part, ranks, .. } = size;
    let hops = size.near();
    let steps = move |clocks: &mut Recurrence<'_>| {
        clocks.handshake_with(1);
        clocks.shift(ranks as usize - 1);
        clocks.moves(1, Moved::copy(part));
        travel(clocks, part, 0..hops);
    };
    (part + all, Box::new(steps))
}

fn reduce_scatter_packets(size: Size) -> Steps {
    let Size { all, part, .. } = size;
    let steps = move |clocks: &mut Recurrence<'_>| clocks.fold_packets(part, false);
    (all + part + packed(size, part), Box::new(steps))
}

fn reduce_scatter_read(size: Size) -> Steps {
    let Size { all, part, ranks, .. } = size;
    let steps = move |clocks: &mut Recurrence<'_>| {
        clocks.handshake();
        clocks.meet();
        clocks.folds(1, Moved::fold(part, ranks, 1));
        clocks.meet();
    };
    (all + part, Box::new(steps))
}

fn all_to_all_packets(size: Size) -> Steps {
    let Size { all, part, .. } = size;
    let steps = move |clocks: &mut Recurrence<'_>| {
        clocks.packets(part, |clocks| clocks.moves(1, Moved::copy(part)));
    };
    (2 * all + packed(size, part), Box::new(steps))
}

fn all_to_all_push(size: Size) -> Steps {
    let Size { all, part, ranks, .. } = size;
    let steps = move |clocks: &mut Recurrence<'_>| {
        clocks.handshake();
        clocks.meet();
        clocks.moves(ranks, Moved::copy(part));
        clocks.meet();
    };
    (2 * all, Box::new(steps))
}

/// Places in scratch are written where their owner has read.
fn all_to_all_exchange(size: Size) -> Steps {
    let Size { all, part, .. } = size;
    let near = size.near();
    let steps = move |clocks: &mut Recurrence<'_>| {
        clocks.meet();
        clocks.moves(near, Moved::copy(part).to_others(1));
        clocks.meet_with(Order::FromRight, |clocks| clocks.moves(1, Moved::copy(part)));
        clocks.moves(near, Moved::copy(part).from_others(1));
    };
    (2 * all + near * part, Box::new(steps))
}

fn broadcast_packets(size: Size) -> Steps {
    let Size { all, ranks, .. } = size;
    let near = size.near();
    let steps = move |clocks: &mut Recurrence<'_>| {
        clocks.first_packets(all, Moved::copy(all));
    };
    ((2 * all + near * 5 * all) / ranks, Box::new(steps))
}

fn broadcast_push(size: Size) -> Steps {
    let Size { all, ranks, .. } = size;
    let near = size.near();
    let steps = move |clocks: &mut Recurrence<'_>| {
        clocks.handshake_with_first(false);
        clocks.gather_signals(|_| ());
        clocks.first_moves(near, Moved::copy(all));
        clocks.scatter_signals();
        clocks.first_moves(1, Moved::copy(all));
    };
    (all + ranks * all, Box::new(steps))
}

/// The root copies its own meanwhile.
fn broadcast_pull(size: Size) -> Steps {
    let Size { all, part, .. } = size;
    let steps = move |clocks: &mut Recurrence<'_>| {
        clocks.handshake_with_first(true);
        clocks.scatter_signals();
        clocks.moves(1, Moved::copy(all));
        clocks.gather_signals(|_| ());
    };
    (part + all, Box::new(steps))
}

/// What a rank passes on the one before has written, and the one behind reads.
fn broadcast_chain(size: Size) -> Steps {
    const PIECES: u64 = 16;
    let Size { all, ranks, .. } = size;
    let steps = move |clocks: &mut Recurrence<'_>| {
        let piece = Moved::copy(all / PIECES).to_others(u64::from(ranks > 2));
        clocks.chain(PIECES, piece, piece.from_others(1));
        clocks.first_moves(1, Moved::copy(all));
    };
    // The last rank moves nothing.
    ((ranks + 1) * all / size.near(), Box::new(steps))
}

fn broadcast_split(size: Size) -> Steps {
    let Size { part, ranks, .. } = size;
    let steps = move |clocks: &mut Recurrence<'_>| {
        clocks.handshake();
        clocks.meet();
        clocks.moves(ranks, Moved::copy(part));
        clocks.meet();
    };
    ((ranks + 1) * part, Box::new(steps))
}

/// A share for each lane (ranks of equal number on their hosts) and host. Every rank folds its lane's shares within the
/// host, sends each to its owner, folds its own share meanwhile, adds what has come, sends the result to its lane, and passes
/// all results on.
fn all_reduce_hierarchical(size: Size) -> Steps {
    let Size { all, part: share, hosts, ranks } = size;
    let (others, near) = (size.far(), size.near());
    let steps = move |clocks: &mut Recurrence<'_>| {
        clocks.handshake();
        clocks.meet();
        if ranks > 1 {
            clocks.folds(others, Moved::fold(share, ranks, 1));
        }
        let arrivals = clocks.send(others, share);
        if ranks > 1 {
            clocks.folds(1, Moved::fold(share, ranks, 1));
        }
        clocks.receive(others, &arrivals);
        clocks.folds(1, Moved::fold(share, hosts, 1));
        let arrivals = clocks.send(others, share);
        clocks.moves(near, Moved::copy(share));
        clocks.receive(others, &arrivals);
        clocks.moves(others * near, Moved::copy(share));
        clocks.flush(others, &arrivals);
        clocks.meet();
    };
    // Its lane of every input and output of the host, what it has folded, and what has come.
    (2 * all + 2 * others * share, Box::new(steps))
}

/// Every rank sends its input to one of each other host, which passes it on.
fn all_gather_hierarchical(size: Size) -> Steps {
    let Size { part, hosts, ranks, .. } = size;
    let (others, near) = (size.far(), size.near());
    let steps = move |clocks: &mut Recurrence<'_>| {
        clocks.handshake();
        let greetings = clocks.send(others, 0);
        clocks.meet();
        clocks.receive(others, &greetings);
        let arrivals = clocks.send(others, part);
        clocks.moves(ranks, Moved::copy(part));
        clocks.receive(others, &arrivals);
        clocks.moves(others * near, Moved::copy(part));
        clocks.meet();
        clocks.flush(others, &arrivals);
    };
    (part + hosts * ranks * part, Box::new(steps))
}

/// Every rank folds what its host has for the ranks of its number on other hosts, sends it there, and joins what comes.
fn reduce_scatter_hierarchical(size: Size) -> Steps {
    let Size { part, hosts, ranks, .. } = size;
    let others = size.far();
    let steps = move |clocks: &mut Recurrence<'_>| {
        clocks.handshake();
        clocks.meet();
        if ranks > 1 {
            clocks.folds(others, Moved::fold(part, ranks, 1));
        }
        let arrivals = clocks.send(others, part);
        clocks.meet_with(Order::Ascending, |clocks| {
            if ranks > 1 {
                clocks.folds(1, Moved::fold(part, ranks, 1));
            }
            clocks.receive(others, &arrivals);
            clocks.folds(1, Moved::fold(part, hosts, 1));
        });
        clocks.flush(others, &arrivals);
    };
    (ranks * hosts * part + 4 * others * part + part, Box::new(steps))
}
