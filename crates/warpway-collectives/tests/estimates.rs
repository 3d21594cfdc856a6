//! Estimates by clocks against the event simulation of the plan itself, in worlds that have one.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use warpway_collectives::{Cluster, Function, Message, Task, World, estimate, estimated, find};
use warpway_plan::DataType;
use warpway_plan::simulate::{Machine, Request, simulate};

/// Both, in nanoseconds, of launches that follow each other.
fn both(
    machine: &Machine,
    (function, name): (Function, &str),
    cluster: Cluster,
    bytes: u64,
) -> Option<[f64; 2]> {
    let message = Message { bytes, data_type: DataType::Float32 };
    let guess = estimate(function, name, machine, cluster, message)?;
    let hosts = vec![cluster.ranks_per_host; cluster.hosts as usize];
    let proven = find(function, name)?.prove(&Task::new(function, World::of_hosts(&hosts))).unwrap();
    let request = Request {
        record: false,
        repairs: proven.repairs().clone(),
        ranks_per_host: Some(hosts),
        ..Request::message(bytes)
    };
    Some([guess, simulate(proven.plan(), machine, &request).unwrap().total_ns])
}

/// A host with all kinds of costs, and memory that its ranks contend for; no stragglers.
fn machine() -> Machine {
    Machine { stragglers: Vec::new(), links: Vec::new(), ..Machine::example() }
}

#[test]
fn estimates_agree_with_the_simulation_of_the_plan() {
    let mut wrong = Vec::new();
    for algorithm in estimated() {
        let (function, name) = algorithm;
        let mut compared = 0;
        for (hosts, ranks_per_host) in
            [(1, 2), (1, 4), (1, 5), (1, 8), (2, 2), (2, 4), (3, 4), (4, 4), (8, 2), (4, 1)]
        {
            let cluster = Cluster { hosts, ranks_per_host };
            for bytes in [15 << 8, 15 << 12, 15 << 16, 15 << 20] {
                let Some([guess, simulated]) = both(&machine(), algorithm, cluster, bytes) else { continue };
                let error = guess / simulated - 1.0;
                // In a chain the root's block touches more than the others', and so is slower. All ranks send to the
                // hosts in the same order, which small messages feel; clocks that are alike do not.
                let most = match (name, hosts) {
                    ("chain", 1) | ("exchange", 1) => 0.03,
                    (_, 1) => 0.02,
                    _ if bytes < 1 << 20 => 0.12,
                    _ => 0.06,
                };
                if error.abs() > most {
                    wrong.push(format!(
                        "{function} by {name}, {hosts} x {ranks_per_host}, {bytes} bytes: {guess:.0} for \
                         {simulated:.0} ns, {:.1} %",
                        100.0 * error
                    ));
                }
                compared += 1;
            }
        }
        assert!(compared >= 12, "{function} by {name}: {compared}");
    }
    assert!(wrong.is_empty(), "{}\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn sixteen_thousand_ranks_take_no_longer_than_four() {
    let cluster = Cluster { hosts: 2048, ranks_per_host: 8 };
    let message = Message { bytes: 1 << 30, data_type: DataType::Float32 };
    let machine = Machine { links: Vec::new(), ..Machine::example() };
    let time = estimate(Function::AllReduce, "hierarchical", &machine, cluster, message).unwrap();
    // One after the other: twice 2047 shares of 4 ranks through an interface of 12.5 bytes a nanosecond; 8 ranks fold 8
    // sources of an eighth each (9 passes of 3, 40 / 1.5 together); 8 ranks copy 7 x 2047 shares (40 together).
    let share = f64::from(1 << 30) / 16384.0;
    let wire = 2.0 * 2047.0 * 4.0 * share / 12.5;
    let folds = 2048.0 * share * 8.0 * 9.0 / 3.0 / (40.0 / 1.5);
    let copies = 2047.0 * share * 8.0 * 7.0 / 40.0;
    let least = wire + folds + copies;
    assert!((least..1.06 * least).contains(&time), "{time} for {least}");
    assert!(estimate(Function::AllReduce, "two_shot", &machine, cluster, message).is_none());
}

/// One host of so many ranks is no machine, but costs neither time nor memory.
#[test]
fn a_host_of_many_ranks_takes_a_clock_for_each() {
    let cluster = Cluster { hosts: 1, ranks_per_host: 1 << 16 };
    let message = Message { bytes: 1 << 30, data_type: DataType::Float32 };
    for (function, name) in estimated().filter(|(_, name)| *name != "hierarchical" && *name != "ring") {
        let time = estimate(function, name, &machine(), cluster, message).unwrap();
        assert!(time.is_finite() && time > 1e6, "{function} by {name}: {time}");
    }
}
