//! The structure that Perfetto's importer relies on.

use std::collections::BTreeMap;

use serde_json::Value;
use warpway_core::trace::{
    DumpReason, FailureRecord, FlightDump, Operation, OperationState, RecordedOperation, chrome_trace,
};

fn operation(sequence: u64, started_ns: u64, ended_ns: u64, state: OperationState) -> RecordedOperation {
    let (operation, peer, object, offset) = (Operation::Write, Some(1), u64::MAX, 17);
    RecordedOperation { sequence, operation, peer, object, bytes: 4095, offset, state, started_ns, ended_ns }
}

fn dump(job_rank: u32, scope: u64, epoch_unix_ns: u64, operations: Vec<RecordedOperation>) -> FlightDump {
    FlightDump {
        version: 1,
        reason: DumpReason::Failure,
        job: "00".repeat(16),
        scope,
        rank: job_rank,
        n_ranks: 3,
        job_rank,
        process: 4711,
        host: "node".into(),
        epoch_unix_ns,
        dumped_ns: 10_000,
        failure: None,
        recorded: operations.len() as u64,
        unrecorded: 0,
        operations,
    }
}

fn events<'a>(trace: &'a Value, phase: &str) -> Vec<&'a Value> {
    let all = trace["traceEvents"].as_array().unwrap();
    all.iter().filter(|event| event["ph"] == phase).collect()
}

#[test]
fn ranks_are_joined_by_the_wall_clock() {
    const EPOCH: u64 = 1_790_000_000_000_000_000;
    use OperationState::{Completed, Failed, Started};
    let mut first = dump(
        0,
        0,
        EPOCH + 2_000,
        vec![
            operation(0, 1_000, 3_500, Completed),
            operation(1, 2_000, 9_001, Failed("lost".into())),
            operation(2, 3_500, 0, Started),
        ],
    );
    first.failure = Some(FailureRecord {
        id: "peer.died".into(),
        code: 2,
        culprit: Some(1),
        phase: "wait".into(),
        message: "rank 1 died".into(),
        at_ns: Some(9_500),
    });
    let second = dump(1, 0, EPOCH, vec![operation(7, 17, 18, Completed)]);
    let split = dump(1, 5, EPOCH + 1, vec![operation(0, 17, 18, Completed)]);
    let trace = chrome_trace(&[first, second, split]);

    // By sequence: process, thread, start and length in microseconds, category.
    let slices: Vec<_> = events(&trace, "X")
        .iter()
        .map(|e| {
            let number = |key: &str| e[key].as_f64().unwrap();
            (number("pid"), number("tid"), number("ts"), number("dur"), e["cat"].as_str().unwrap())
        })
        .collect();
    assert_eq!(
        slices,
        [
            (0.0, 0.0, 3.0, 2.5, "completed"),
            (0.0, 1.0, 4.0, 7.001, "failed"),
            (0.0, 0.0, 5.5, 6.5, "unfinished"),
            (1.0, 0.0, 0.017, 0.001, "completed"),
            (1.0, 10_000.0, 0.018, 0.001, "completed"),
        ]
    );
    assert_eq!(events(&trace, "X")[0]["args"]["object"], u64::MAX.to_string());
    let instants: Vec<_> = events(&trace, "i")
        .iter()
        .map(|e| {
            (e["s"].as_str().unwrap(), e["ts"].as_f64().unwrap(), e["args"]["message"].as_str().unwrap())
        })
        .collect();
    assert_eq!(instants, [("t", 11.001, "lost"), ("p", 11.5, "rank 1 died")]);
    let named: Vec<_> = events(&trace, "M")
        .iter()
        .filter(|e| e["name"] == "process_name")
        .map(|e| e["args"]["name"].as_str().unwrap())
        .collect();
    assert_eq!(named, ["rank 0 (node, process 4711)", "rank 1 (node, process 4711)"]);
}

#[test]
fn slices_of_a_lane_never_overlap_and_lanes_are_named() {
    // Awkward spans from a fixed sequence of pseudo-random numbers.
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut random = |limit: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % limit
    };
    let operations: Vec<_> = (0..1003)
        .map(|sequence| {
            let start = random(9_000);
            match random(10) {
                0 => operation(sequence, start, 0, OperationState::Started),
                _ => operation(sequence, start, start + random(40), OperationState::Completed),
            }
        })
        .collect();
    let trace = chrome_trace(&[dump(2, 0, 5, operations)]);
    let mut lanes: BTreeMap<u64, Vec<(u64, u64)>> = BTreeMap::new();
    for event in events(&trace, "X") {
        let nanoseconds = |key: &str| (event[key].as_f64().unwrap() * 1e3).round() as u64;
        let start = nanoseconds("ts");
        lanes.entry(event["tid"].as_u64().unwrap()).or_default().push((start, start + nanoseconds("dur")));
    }
    assert_eq!(lanes.values().map(Vec::len).sum::<usize>(), 1003);
    for (lane, spans) in &mut lanes {
        spans.sort_unstable();
        for pair in spans.windows(2) {
            assert!(pair[0].1 <= pair[1].0, "lane {lane}: {pair:?}");
        }
        let named = events(&trace, "M")
            .iter()
            .filter(|e| e["name"] == "thread_name" && e["tid"] == *lane && e["pid"] == 2)
            .count();
        assert_eq!(named, 1, "lane {lane}");
    }
}

#[test]
fn nothing_gives_an_empty_document() {
    assert_eq!(chrome_trace(&[])["traceEvents"], Value::Array(Vec::new()));
    let trace = chrome_trace(&[dump(0, 0, 0, Vec::new())]);
    assert_eq!(events(&trace, "X").len(), 0);
    assert_eq!(events(&trace, "M").len(), 3);
}
