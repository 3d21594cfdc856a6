//! Drawings, letter by letter. `WARPWAY_UPDATE_DRAWINGS=1` writes them anew: look at them then.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use warpway_plan::simulate::{Lane, Machine, Nic, Request, simulate};
use warpway_plan::{Plan, draw, testing};

/// Two hosts of two ranks.
fn two_hosts() -> Machine {
    let mut machine = Machine::plain(2);
    machine.hosts[0].count = 2;
    machine.hosts[0].nics = vec![Nic { rate: 10.0, message_ns: 0.0, in_turn: false }];
    machine.wire_latency_ns = 1000.0;
    machine
}

fn compare(name: &str, found: &str) {
    let path = format!("{}/tests/draw/{name}", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("WARPWAY_UPDATE_DRAWINGS").is_some() {
        std::fs::write(&path, found).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    let differs = expected.lines().zip(found.lines()).find(|(a, b)| a != b);
    assert!(expected == found, "{name} has changed: {differs:?}");
}

fn timeline(name: &str, plan: &Plan, machine: &Machine) {
    let simulation = simulate(plan, machine, &Request { rounds: 1, ..Request::message(4096) }).unwrap();
    compare(name, &draw::timeline(&simulation, &plan.name));
}

#[test]
fn time_of_a_two_shot_all_reduce() {
    timeline("two_shot.svg", &testing::all_reduce_two_shot(2).unwrap(), &Machine::plain(2));
}

#[test]
fn time_of_messages_between_hosts() {
    timeline("ports.svg", &testing::send_recv_port(4).unwrap(), &two_hosts());
}

#[test]
fn traffic_between_ranks() {
    let plan = testing::send_recv_port(4).unwrap();
    let traffic = draw::traffic(&plan, &Request::message(4096)).unwrap();
    assert_eq!(
        traffic.into_iter().collect::<Vec<_>>(),
        [((0, 1), 4096), ((1, 2), 4096), ((2, 3), 4096), ((3, 0), 4096)]
    );
    let plan = testing::all_reduce_two_shot(3).unwrap();
    let traffic = draw::traffic(&plan, &Request::message(3 * 1024)).unwrap();
    // Every rank reads its part from the two others, and stores the sum to them.
    assert_eq!(traffic.len(), 6);
    assert!(traffic.values().all(|bytes| *bytes == 2048), "{traffic:?}");
    compare("traffic.svg", &draw::graph(&traffic, &[0, 0, 1], "two-shot of three ranks"));
}

#[test]
fn traces_nest_and_lead_from_cause_to_effect() {
    let simulation =
        simulate(&testing::send_recv_port(4).unwrap(), &two_hosts(), &Request::message(4096)).unwrap();
    let trace = draw::chrome_trace(&simulation, "ports");
    let events = trace["traceEvents"].as_array().unwrap();
    let of = |phase: &str| events.iter().filter(|event| event["ph"] == phase).collect::<Vec<_>>();
    let threads: Vec<_> = of("M").into_iter().filter(|event| event["name"] == "thread_name").collect();
    let lanes: std::collections::BTreeSet<(u32, Lane)> =
        simulation.spans.iter().map(|span| (span.rank, span.lane)).collect();
    assert_eq!(threads.len(), lanes.len());
    assert_eq!(of("s").len(), of("f").len());
    assert!(!of("s").is_empty());
    // Slices of a thread follow each other; messages may be on their way at the same time.
    let mut slices: Vec<(u64, u64, f64, f64)> = of("X")
        .iter()
        .filter(|event| event["cat"] != "message")
        .map(|event| {
            let number = |key: &str| event[key].as_f64().unwrap();
            (event["pid"].as_u64().unwrap(), event["tid"].as_u64().unwrap(), number("ts"), number("dur"))
        })
        .collect();
    slices.sort_by(|a, b| (a.0, a.1).cmp(&(b.0, b.1)).then(a.2.total_cmp(&b.2)));
    for pair in slices.windows(2) {
        let [first, second] = pair else { continue };
        if (first.0, first.1) == (second.0, second.1) {
            assert!(first.2 + first.3 <= second.2 + 1e-6, "{first:?} {second:?}");
        }
    }
}
