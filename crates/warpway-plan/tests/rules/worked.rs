//! The worked plans of plan-format.md 11, with their reports as they stand there.

use serde_json::{Value, json};
use warpway_plan::verify::{Options, Report, Severity, Target, Verdict, verify};
use warpway_plan::{OperationPlace, OrderedPair, Plan, Repairs};

use super::{all_gather, strict};

/// 11.1 as a value, to be edited.
fn plan_value() -> Value {
    serde_json::from_slice(include_bytes!("ag2_ok.json")).unwrap()
}

fn read(value: &Value) -> Plan {
    Plan::from_json(value.to_string().as_bytes()).unwrap().plan
}

fn report(plan: &Plan, options: &Options<'_>) -> Value {
    serde_json::to_value(verify(plan, options)).unwrap()
}

/// 11.1: accepted in both profiles and for both targets, without a word.
#[test]
fn correct() {
    for options in [Options::default(), strict(), Options { target: Target::Mscclpp, ..strict() }] {
        let report = report(&all_gather(), &options);
        assert_eq!(report, json!({"verdict": "accept", "sizes": "any", "diagnostics": []}));
    }
    let named = Options { catalogue: true, sizes: vec![0, 32, 100, 1 << 40], ..Options::default() };
    assert_eq!(verify(&all_gather(), &named).verdict, Verdict::Accept);
}

/// 11.2, word for word.
#[test]
fn deadlock() {
    let mut value = plan_value();
    for rank in 0..2 {
        value["gpus"][rank]["threadblocks"][0]["ops"] = json!([
            {"name": "wait", "channel_ids": [0], "channel_type": "memory"},
            {"name": "nop"},
            {"name": "copy", "src_buff": [{"type": "i", "index": 0, "size": 1}],
             "dst_buff": [{"type": "o", "index": rank, "size": 1}]},
            {"name": "put", "src_buff": [{"type": "i", "index": 0, "size": 1}],
             "dst_buff": [{"buffer_id": 0, "index": rank, "size": 1}], "channel_type": "memory"},
            {"name": "nop"},
            {"name": "signal", "channel_ids": [0], "channel_type": "memory"}
        ]);
    }
    let expected = json!({"verdict": "reject", "diagnostics": [
        {"rule": "V401", "severity": "error",
         "where": [{"rank": 0, "tb": 0, "op": [0]}, {"rank": 1, "tb": 0, "op": [0]}],
         "message": "cyclic wait: rank 0 tb 0 op 0 waits for signal 1 on memory channel 1->0 #0, sent by rank 1 tb 0 \
                     op 5, which is behind rank 1 tb 0 op 0, which waits for signal 1 on memory channel 0->1 #0, sent \
                     by rank 0 tb 0 op 5",
         "hint": "signal before waiting on at least one side"},
        {"rule": "V708", "severity": "info", "where": [], "message": "result not evaluated"}
    ]});
    for options in [Options::default(), strict()] {
        assert_eq!(report(&read(&value), &options), expected);
    }
}

/// 11.1 without its first three operations: the puts may come before the peer has started.
#[test]
fn without_the_opening_pair() {
    let mut plan = all_gather();
    for rank in &mut plan.ranks {
        rank.blocks[0].operations.drain(..3);
    }
    let report = verify(&plan, &strict());
    assert_eq!(report.verdict, Verdict::Reject);
    assert_eq!(places(&report), ["V507 rank 0 tb 0 op 1", "V507 rank 1 tb 0 op 1"]);
    let report = verify(&plan, &Options::default());
    assert_eq!((report.verdict, report.of(Severity::Warning).count()), (Verdict::Accept, 2));
    let repairs = Repairs { start_handshake: true, ..Repairs::default() };
    assert_eq!(report.repairs, repairs);
    let expected = json!({"start_handshake": true});
    assert_eq!(serde_json::to_value(&report).unwrap()["repairs"], expected);
}

/// 11.1 with a relaxed last pair.
#[test]
fn with_a_relaxed_closing_pair() {
    let mut plan = all_gather();
    for rank in 0..2 {
        super::relax(&mut plan, (rank, 0, 6));
        super::relax(&mut plan, (rank, 0, 7));
    }
    let report = verify(&plan, &strict());
    assert_eq!(report.verdict, Verdict::Reject);
    assert_eq!(places(&report), ["V504 rank 0 tb 0 op 4", "V504 rank 1 tb 0 op 4"]);
    let report = verify(&plan, &Options::default());
    assert_eq!((report.verdict, report.of(Severity::Warning).count()), (Verdict::Accept, 2));
    let place = |rank, index| OperationPlace { rank, block: 0, path: (index, None) };
    let pair = |from, to| OrderedPair { signal: place(from, 6), wait: place(to, 7) };
    let repairs = Repairs { ordered_pairs: vec![pair(0, 1), pair(1, 0)], ..Repairs::default() };
    assert_eq!(report.repairs, repairs);
}

/// 11.1 without the nop before the last signal.
#[test]
fn without_the_nop_before_the_signal() {
    let mut plan = all_gather();
    for rank in &mut plan.ranks {
        rank.blocks[0].operations.remove(5);
    }
    for options in [Options::default(), strict()] {
        let report = verify(&plan, &options);
        assert_eq!(report.verdict, Verdict::Reject);
        assert_eq!(places(&report), ["V510 rank 0 tb 0 op 4", "V510 rank 1 tb 0 op 4"]);
    }
}

/// 11.3: two blocks without an order between them; and repaired.
#[test]
fn race() {
    let mut value = plan_value();
    for rank in 0..2 {
        let blocks = &mut value["gpus"][rank]["threadblocks"];
        let mut second = blocks[0].clone();
        let ops = second["ops"].as_array_mut().unwrap();
        let copy = ops.remove(3);
        ops[3]["src_buff"] = copy["dst_buff"].clone();
        second["id"] = json!(1);
        let first = json!({"id": 0, "ops": [copy], "channels": [], "remote_buffer_refs": []});
        *blocks = json!([first, second]);
    }
    let report = serde_json::to_value(verify(&read(&value), &strict())).unwrap();
    assert_eq!(report["verdict"], "reject");
    let found = report["diagnostics"].as_array().unwrap();
    assert_eq!(found.len(), 3, "{found:?}");
    for (rank, diagnostic) in found[..2].iter().enumerate() {
        assert_eq!(diagnostic["rule"], "V502");
        assert_eq!(diagnostic["severity"], "error");
        let place = |tb, op| json!({"rank": rank, "tb": tb, "op": [op]});
        assert_eq!(diagnostic["where"], json!([place(0, 0), place(1, 3)]));
        assert_eq!(diagnostic["region"], json!({"rank": rank, "buffer": "o", "chunks": [rank, rank + 1]}));
        assert_eq!(diagnostic["message"], "write by copy and read by put are not ordered");
        assert_eq!(
            diagnostic["hint"],
            "add a barrier of blocks 0 and 1 before the put, or a semaphore released after the copy and acquired before \
             the put"
        );
    }
    assert_eq!(
        found[2],
        json!({"rule": "V708", "severity": "info", "where": [], "message": "result not evaluated"})
    );

    let barrier = json!({"name": "barrier", "barrier_id": 0, "num_threadblocks": 2});
    for rank in 0..2 {
        let blocks = &mut value["gpus"][rank]["threadblocks"];
        blocks[0]["ops"].as_array_mut().unwrap().push(barrier.clone());
        blocks[1]["ops"].as_array_mut().unwrap().insert(3, barrier.clone());
    }
    let fixed = self::report(&read(&value), &strict());
    assert_eq!(fixed, json!({"verdict": "accept", "sizes": "any", "diagnostics": []}));
}

/// Rule and first place of the findings, without the note that nothing was evaluated.
fn places(report: &Report) -> Vec<String> {
    super::told(report).map(|d| format!("{} {}", d.rule, d.places[0])).collect()
}
