//! The worked plans of plan-format.md 11, with their reports as they stand there.

use serde_json::{Value, json};
use warpway_plan::Plan;
use warpway_plan::verify::{Options, Target, Verdict, verify};

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
