//! One file for each rule of V1, with the words that a user reads.

use serde_json::{Value, json};
use warpway_plan::{
    Action, ChannelEntry, ChannelType, DataKind, Extension, Fold, Plan, ReadError, ReduceOp, Reference, Style,
};

/// An all-gather of two ranks (plan-format.md, 11.1), and at rank 0 a second block with room for one operation.
fn plan() -> Value {
    let rank = |id: u64| {
        json!({
            "id": id, "input_chunks": 1, "output_chunks": 2, "scratch_chunks": 0,
            "threadblocks": [{"id": 0, "ops": [
                {"name": "rlxsignal", "channel_ids": [0], "channel_type": "memory"},
                {"name": "rlxwait", "channel_ids": [0], "channel_type": "memory"},
                {"name": "nop"},
                {"name": "copy", "src_buff": [{"type": "i", "index": 0, "size": 1}],
                 "dst_buff": [{"type": "o", "index": id, "size": 1}]},
                {"name": "put", "src_buff": [{"type": "i", "index": 0, "size": 1}],
                 "dst_buff": [{"buffer_id": 0, "index": id, "size": 1}], "channel_type": "memory"},
                {"name": "nop"},
                {"name": "signal", "channel_ids": [0], "channel_type": "memory"},
                {"name": "wait", "channel_ids": [0], "channel_type": "memory"},
                {"name": "nop"}],
                "channels": [{"channel_type": "memory", "channel_ids": [0]}],
                "remote_buffer_refs": [{"access_channel_type": "memory", "remote_buffer_ids": [0]}]}],
            "channels": [{"channel_type": "memory", "connected_to": [1 - id]}],
            "remote_buffers": [{"rank": 1 - id, "type": "o", "access_channel_types": ["memory"]}],
            "semaphores": []
        })
    };
    json!({
        "name": "ag2_ok", "collective": "allgather", "protocol": "Simple", "inplace": false,
        "reuse_resources": false, "gpus": [rank(0), rank(1)], "num_threads_per_block": 256,
        "use_double_scratch_buffer": false, "buffer_alignment": 16, "min_message_size": 0,
        "max_message_size": u64::MAX
    })
}

/// Findings of the plan after an edit, errors or else warnings, as a user reads them.
fn findings(edit: impl FnOnce(&mut Value)) -> Vec<String> {
    let mut value = plan();
    edit(&mut value);
    let found = match Plan::from_json(value.to_string().as_bytes()) {
        Ok(read) => read.warnings,
        Err(ReadError::NoPlan { errors, .. }) => errors,
        Err(other) => panic!("{other}"),
    };
    found.iter().map(ToString::to_string).collect()
}

/// The findings of one operation that replaces the first of rank 0, without their path up to the operation.
fn operation(value: Value) -> Vec<String> {
    const PREFIX: &str = "$.gpus[0].threadblocks[0].ops[0]";
    let found = findings(|plan| plan["gpus"][0]["threadblocks"][0]["ops"][0] = value);
    found.iter().map(|line| line.replacen(PREFIX, "op", 1)).collect()
}

/// The plan with one operation in place of the first of rank 0.
fn read_operation(value: Value) -> Plan {
    let mut plan = plan();
    plan["gpus"][0]["threadblocks"][0]["ops"][0] = value;
    Plan::from_json(plan.to_string().as_bytes()).unwrap().plan
}

fn first_action(plan: &Plan) -> &Action {
    &plan.ranks[0].blocks[0].operations[0].action
}

#[test]
fn the_plan_that_is_edited_is_right() {
    assert_eq!(findings(|_| {}), [""; 0]);
}

#[test]
fn v101_missing_or_mistyped() {
    let remove = |pointer: &'static str, key: &'static str| {
        findings(move |plan| {
            plan.pointer_mut(pointer).unwrap().as_object_mut().unwrap().remove(key).unwrap();
        })
    };
    assert_eq!(remove("", "name"), ["V101: $.name: found nothing, expected a string"]);
    assert_eq!(remove("", "gpus"), ["V101: $.gpus: found nothing, expected a list of ranks"]);
    assert_eq!(
        remove("/gpus/1", "scratch_chunks"),
        ["V101: $.gpus[1].scratch_chunks: found nothing, expected a number of chunks"]
    );
    assert_eq!(
        remove("/gpus/0/threadblocks/0/ops/3/src_buff/0", "index"),
        ["V101: $.gpus[0].threadblocks[0].ops[3].src_buff[0].index: found nothing, expected a chunk"]
    );
    assert_eq!(
        remove("/gpus/0/channels/0", "connected_to"),
        ["V101: $.gpus[0].channels[0].connected_to: found nothing, expected a list of ranks"]
    );
    assert_eq!(
        remove("/gpus/0/threadblocks/0/ops/2", "name"),
        ["V101: $.gpus[0].threadblocks[0].ops[2].name: found nothing, expected the name of an operation"]
    );
    for (wrong, shown) in [
        (json!(null), "null"),
        (json!(true), "true"),
        (json!(-1), "-1"),
        (json!(1.0), "the floating-point number 1e0"),
        (json!("1"), "\"1\""),
        (json!([]), "a list"),
        (json!({"a": [1, {"b": 2}]}), "an object"),
    ] {
        assert_eq!(
            findings(|plan| plan["gpus"][0]["input_chunks"] = wrong),
            [format!("V101: $.gpus[0].input_chunks: found {shown}, expected an unsigned 64-bit integer")]
        );
    }
    assert_eq!(
        findings(|plan| plan["inplace"] = json!("no")),
        ["V101: $.inplace: found \"no\", expected true or false"]
    );
    assert_eq!(findings(|plan| plan["gpus"] = json!({})), ["V101: $.gpus: found an object, expected a list"]);
    assert_eq!(findings(|plan| plan["gpus"][1] = json!(3)), ["V101: $.gpus[1]: found 3, expected an object"]);
    assert_eq!(
        findings(|plan| plan["name"] = json!({"long": "x"})),
        ["V101: $.name: found an object, expected a string"]
    );
    assert_eq!(findings(|plan| *plan = json!([1])), ["V101: $: found a list, expected an object"]);
}

#[test]
fn numbers_are_exact() {
    let with = |number: &str| {
        let text = plan().to_string().replace(&u64::MAX.to_string(), number);
        Plan::from_json(text.as_bytes())
    };
    assert_eq!(with("18446744073709551615").unwrap().plan.max_message_size, u64::MAX);
    assert_eq!(with("18446744073709551614").unwrap().plan.max_message_size, u64::MAX - 1);
    assert_eq!(with("9007199254740993").unwrap().plan.max_message_size, (1 << 53) + 1);
    for wrong in ["18446744073709551616", "1e3", "1.0", "-1", "-0", "1E+2"] {
        let ReadError::NoPlan { errors, .. } = with(wrong).unwrap_err() else { panic!("{wrong}") };
        let found: Vec<_> = errors.iter().map(|f| (f.rule, f.path.as_str())).collect();
        assert_eq!(found, [(101, "$.max_message_size")], "{wrong}");
    }
}

#[test]
fn keys_may_come_once() {
    let text = plan().to_string().replacen("\"inplace\":false", "\"inplace\":false,\"inplace\":true", 1);
    let ReadError::NoPlan { errors, .. } = Plan::from_json(text.as_bytes()).unwrap_err() else { panic!() };
    let found: Vec<_> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(found, ["V101: $.inplace: found a second value, expected each key once"]);
}

#[test]
fn v102_unknown_operation() {
    let found = operation(json!({"name": "putt"}));
    assert_eq!(found.len(), 1);
    assert!(
        found[0].starts_with("V102: op.name: found \"putt\", expected one of `nop`, `barrier`,"),
        "{found:?}"
    );
    assert!(found[0].ends_with("`gstorepkt`"), "{found:?}");
}

#[test]
fn v103_unknown_value() {
    assert_eq!(
        findings(|plan| plan["protocol"] = json!("LL128")),
        ["V103: $.protocol: found \"LL128\", expected one of `Simple`, `LL`"]
    );
    assert_eq!(
        findings(|plan| plan["gpus"][0]["remote_buffers"][0]["type"] = json!("x\n")),
        ["V103: $.gpus[0].remote_buffers[0].type: found \"x\\n\", expected one of `i`, `o`, `s`"]
    );
    assert_eq!(
        findings(|plan| plan["gpus"][0]["remote_buffers"][0]["access_channel_types"] = json!(["switch"])),
        [
            "V103: $.gpus[0].remote_buffers[0].access_channel_types[0]: found \"switch\", expected one of `memory`, `port`"
        ]
    );
    assert_eq!(
        findings(|plan| {
            plan["gpus"][0]["threadblocks"][0]["remote_buffer_refs"][0]["access_channel_type"] =
                json!("switch");
        }),
        [
            "V103: $.gpus[0].threadblocks[0].remote_buffer_refs[0].access_channel_type: found `switch`, expected `memory` or `port`"
        ]
    );
    let found = findings(|plan| plan["collective"] = json!("all-reduce"));
    assert!(found[0].starts_with("V103: $.collective: found \"all-reduce\", expected one of `allreduce`"));
    let fold = json!({"name": "re", "src_buff": [{"type": "i", "index": 0, "size": 1}, {"type": "i", "index": 0, "size": 1}],
        "dst_buff": [{"type": "i", "index": 0, "size": 1}], "reduce_op": "xor"});
    assert_eq!(
        operation(fold),
        ["V103: op.reduce_op: found \"xor\", expected one of `sum`, `min`, `max`, `prod`, `avg`"]
    );
}

#[test]
fn v104_id_is_no_position() {
    assert_eq!(
        findings(|plan| {
            plan["gpus"][1]["id"] = json!(0);
            plan["gpus"][0]["threadblocks"][0]["id"] = json!(7);
        }),
        [
            "V104: $.gpus[0].threadblocks[0].id: found 7, expected 0, its position",
            "V104: $.gpus[1].id: found 0, expected 1, its position"
        ]
    );
}

fn local(buffer: &str) -> Value {
    json!({"type": buffer, "index": 0, "size": 1})
}

fn remote() -> Value {
    json!({"buffer_id": 0, "index": 0, "size": 1})
}

#[test]
fn v105_operation_without_what_it_needs() {
    assert_eq!(
        operation(json!({"name": "signal"})),
        [
            "V105: op.channel_ids: found nothing, expected a list of channel positions",
            "V105: op.channel_type: found nothing, expected `memory` or `port`"
        ]
    );
    assert_eq!(
        operation(json!({"name": "barrier", "barrier_id": 0})),
        ["V105: op.num_threadblocks: found nothing, expected a number of blocks"]
    );
    assert_eq!(
        operation(json!({"name": "sem_acquire", "semaphore_ids": []})),
        ["V105: op.semaphore_ids: found an empty list, expected one or more"]
    );
    assert_eq!(
        operation(json!({"name": "wait", "channel_ids": [], "channel_type": "memory"})),
        ["V105: op.channel_ids: found an empty list, expected one or more"]
    );
    assert_eq!(
        operation(json!({"name": "copy", "src_buff": [local("i")]})),
        ["V105: op.dst_buff: found nothing, expected a list of references"]
    );
    assert_eq!(
        operation(json!({"name": "pipeline", "ops": []})),
        ["V105: op.iter_context: found nothing, expected unit_size and num_chunks"]
    );
    // MSCCL++ never signals here; without channels Warpway cannot either (E3).
    assert_eq!(
        operation(
            json!({"name": "pws", "src_buff": [local("i")], "dst_buff": [remote()], "channel_type": "memory"})
        ),
        ["V105: op.channel_ids: found nothing, expected 1, one for each item of `pws`"]
    );
    assert_eq!(
        operation(json!({"name": "put", "src_buff": [local("i")], "dst_buff": [remote()]})),
        ["V105: op.channel_type: found nothing, expected `memory` or `port` for `put`"]
    );
    assert_eq!(
        operation(json!({"name": "re", "src_buff": [local("i"), local("o")], "dst_buff": [local("i")]})),
        ["V105: op.reduce_op: found nothing, expected an operator for `re`"]
    );
}

#[test]
fn v105_lists_that_do_not_fit() {
    assert_eq!(
        operation(json!({"name": "put", "src_buff": [local("i"), local("i")], "dst_buff": [remote()],
            "channel_type": "memory"})),
        ["V105: op: found 2 sources and 1 destinations, expected as many of one as of the other"]
    );
    assert_eq!(
        operation(json!({"name": "put", "src_buff": [], "dst_buff": [remote()], "channel_type": "memory"})),
        ["V105: op.src_buff: found no references, expected 1 or more for `put`"]
    );
    assert_eq!(
        operation(
            json!({"name": "put", "src_buff": [local("i")], "dst_buff": [remote()], "channel_type": "port",
            "channel_ids": [0, 0]})
        ),
        ["V105: op.channel_ids: found 2 channels, expected 1, one for each item of `put`"]
    );
    assert_eq!(
        operation(json!({"name": "copy", "src_buff": [local("i"), local("i")], "dst_buff": [local("o")]})),
        ["V105: op.src_buff: found 2 references, expected exactly 1 for `copy`"]
    );
    assert_eq!(
        operation(
            json!({"name": "put", "src_buff": [local("i")], "dst_buff": [local("o")], "channel_type": "memory"})
        ),
        [
            "V105: op.dst_buff[0]: found a local reference (`type`), expected a remote reference (`buffer_id`) for `put`"
        ]
    );
    assert_eq!(
        operation(json!({"name": "upkt", "src_buff": [local("i")], "dst_buff": [local("o")]})),
        ["V105: op.src_buff[0]: found a reference into buffer `i`, expected `s`: packets lie in scratch"]
    );
    // The remote buffer of the plan is an output.
    assert_eq!(
        operation(
            json!({"name": "ppkt", "src_buff": [local("i")], "dst_buff": [remote()], "channel_type": "memory"})
        ),
        ["V105: op.dst_buff[0]: found a reference into buffer `o`, expected `s`: packets lie in scratch"]
    );
    assert_eq!(
        operation(
            json!({"name": "rres", "src_buff": [local("i"), local("s")], "dst_buff": [local("i"), remote()],
            "channel_type": "memory", "reduce_op": "sum"})
        ),
        [
            "V105: op.src_buff[1]: found a local reference (`type`), expected a remote reference (`buffer_id`) for `rres`"
        ]
    );
}

#[test]
fn v106_unknown_keys_are_noted() {
    assert_eq!(
        findings(|plan| {
            plan["colour"] = json!({"deep": [[1], "x"]});
            plan["gpus"][0]["a \"key\""] = json!(1);
            plan["gpus"][0]["threadblocks"][0]["ops"][2]["loc2"] = json!(1);
        }),
        [
            "V106: $.colour: found an unknown key, expected none: it is ignored",
            "V106: $.gpus[0][\"a \\\"key\\\"\"]: found an unknown key, expected none: it is ignored",
            "V106: $.gpus[0].threadblocks[0].ops[2].loc2: found an unknown key, expected none: it is ignored"
        ]
    );
    // Known keys where they mean nothing.
    assert_eq!(
        operation(json!({"name": "nop", "barrier_id": 3, "channel_type": "none"})),
        ["V106: op.barrier_id: found a value, expected none: the operation ignores it"]
    );
    assert_eq!(
        operation(
            json!({"name": "copy", "src_buff": [local("i")], "dst_buff": [local("o")], "channel_ids": [0],
            "reduce_op": "sum"})
        ),
        [
            "V106: op.channel_ids: found a list, expected none: `copy` ignores it",
            "V106: op.reduce_op: found `sum`, expected none: `copy` ignores it"
        ]
    );
    // References may have more keys (section 4).
    let copy = json!({"name": "copy", "dst_buff": [local("o")],
        "src_buff": [{"rank": 0, "type": "i", "index": 0, "size": 1, "anything": {}}]});
    assert_eq!(operation(copy), [""; 0]);
}

#[test]
fn v107_nested_pipeline() {
    let mut nest = json!({"name": "nop"});
    for _ in 0..3 {
        nest = json!({"name": "pipeline", "iter_context": {"unit_size": 64, "num_chunks": 1}, "ops": [nest]});
    }
    assert_eq!(
        operation(nest),
        ["V107: op.ops[0]: found a pipeline within a pipeline, expected another operation"]
    );
}

#[test]
fn v108_wrong_channel_type() {
    assert_eq!(
        operation(
            json!({"name": "get", "src_buff": [remote()], "dst_buff": [local("o")], "channel_type": "port",
            "channel_ids": [0]})
        ),
        ["V108: op.channel_type: found `port`, expected `memory` for `get`"]
    );
    assert_eq!(
        operation(json!({"name": "flush", "channel_type": "memory", "channel_ids": [0]})),
        ["V108: op.channel_type: found `memory`, expected `port`: only ports have requests"]
    );
    assert_eq!(
        operation(json!({"name": "signal", "channel_type": "switch", "channel_ids": [0]})),
        ["V108: op.channel_type: found `switch`, expected `memory` or `port`"]
    );
    assert_eq!(
        operation(
            json!({"name": "copy", "src_buff": [local("i")], "dst_buff": [local("o")], "channel_type": "memory"})
        ),
        ["V108: op.channel_type: found `memory`, expected `none` for `copy`"]
    );
    assert_eq!(
        operation(
            json!({"name": "pwsf", "src_buff": [local("i")], "dst_buff": [remote()], "channel_type": "memory",
            "channel_ids": [0]})
        ),
        ["V108: op.channel_type: found `memory`, expected `port` for `pwsf`"]
    );
}

#[test]
fn v109_numbers_out_of_range() {
    let top = |key: &'static str, number: u64| findings(move |plan| plan[key] = json!(number));
    assert_eq!(
        top("num_threads_per_block", 1025),
        ["V109: $.num_threads_per_block: found 1025, expected 1 to 1024"]
    );
    assert_eq!(
        top("num_threads_per_block", 0),
        ["V109: $.num_threads_per_block: found 0, expected 1 to 1024"]
    );
    assert_eq!(top("num_threads_per_block", 1024), [""; 0]);
    for wrong in [0, 2, 12, 1 << 21, 1 << 63, u64::MAX] {
        assert_eq!(
            top("buffer_alignment", wrong),
            [format!("V109: $.buffer_alignment: found {wrong}, expected a power of two, 4 to 1048576")]
        );
    }
    assert_eq!(
        findings(|plan| {
            plan["min_message_size"] = json!(17);
            plan["max_message_size"] = json!(16);
        }),
        ["V109: $.max_message_size: found 16, expected at least min_message_size, 17"]
    );
    assert_eq!(
        findings(|plan| plan["gpus"][0]["channels"][0]["connected_to"][0] = json!(1u64 << 32)),
        ["V109: $.gpus[0].channels[0].connected_to[0]: found 4294967296, expected at most 4294967295"]
    );
    assert_eq!(
        findings(|plan| plan["gpus"] = json!([])),
        ["V109: $.gpus: found no ranks, expected one rank or more"]
    );
    assert_eq!(
        operation(json!({"name": "pipeline", "iter_context": {"unit_size": 0, "num_chunks": 1}, "ops": []})),
        ["V109: op.iter_context.unit_size: found 0, expected 1 or more"]
    );
}

#[test]
fn v110_extensions() {
    let found = findings(|plan| plan["extensions"] = json!(["order", "warp"]));
    assert_eq!(
        found,
        [
            "V110: $.extensions[1]: found \"warp\", expected one of `glre`, `order`, `reduce_op`, `sized_chunks`, `scratch_credits`"
        ]
    );
    let fold = |op: &str, order: Value| {
        json!({"name": "re", "src_buff": [local("i"), local("o")], "dst_buff": [local("i")], "reduce_op": op,
            "order": order})
    };
    assert_eq!(
        operation(fold("prod", json!([1, 0]))),
        [
            "V110: op.order: found extension `order` in use, expected \"order\" in the plan's `extensions`",
            "V110: op.reduce_op: found extension `reduce_op` in use, expected \"reduce_op\" in the plan's `extensions`"
        ]
    );
    assert_eq!(
        findings(|plan| {
            plan["gpus"][1]["input_size_ids"] = json!([0]);
            plan["gpus"][0]["output_size_ids"] = json!([0, 1]);
        }),
        [
            "V110: $.gpus[0].input_size_ids: found extension `sized_chunks` in use, expected \"sized_chunks\" in the plan's `extensions`"
        ]
    );
    let listed = findings(|plan| {
        plan["extensions"] = json!(["order", "reduce_op"]);
        plan["gpus"][0]["threadblocks"][0]["ops"][0] = fold("avg", json!([1, 0]));
    });
    assert_eq!(listed, [""; 0]);
}

#[test]
fn v111_orders() {
    let fold = |order: Value| {
        findings(|plan| {
            plan["extensions"] = json!(["order"]);
            plan["gpus"][0]["threadblocks"][0]["ops"][0] = json!({"name": "re", "order": order, "reduce_op": "sum",
                "src_buff": [local("i"), local("o"), local("o")], "dst_buff": [local("i")]});
        })
    };
    assert_eq!(fold(json!([2, 0, 1])), [""; 0]);
    for (wrong, shown) in [
        (json!([0, 1]), "[0, 1]"),
        (json!([0, 1, 1]), "[0, 1, 1]"),
        (json!([1, 2, 3]), "[1, 2, 3]"),
        (json!([0, 1, 2, 0]), "[0, 1, 2, 0]"),
        (json!([]), "[]"),
    ] {
        let path = "$.gpus[0].threadblocks[0].ops[0].order";
        let expected = format!("V111: {path}: found {shown}, expected each position of the 3 sources once");
        assert_eq!(fold(wrong), [expected]);
    }
    let copy = json!({"name": "copy", "src_buff": [local("i")], "dst_buff": [local("o")], "order": [0]});
    assert_eq!(operation(copy), ["V111: op.order: found an order, expected none: the operation is no fold"]);
    assert_eq!(
        operation(json!({"name": "nop", "order": [0]})),
        ["V111: op.order: found an order, expected none: the operation is no fold"]
    );
}

#[test]
fn all_findings_are_listed_up_to_a_bound() {
    let mut value = plan();
    value["gpus"][0]["threadblocks"][0]["ops"] = (0..250).map(|_| json!({"name": "?"})).collect();
    value["gpus"][0]["bad"] = json!(0);
    let error = Plan::from_json(value.to_string().as_bytes()).unwrap_err();
    assert!(
        error.to_string().starts_with("no plan: V102: $.gpus[0].threadblocks[0].ops[0].name: found \"?\"")
    );
    assert!(error.to_string().ends_with("(and 249 more)"), "{error}");
    let ReadError::NoPlan { errors, more_errors, warnings } = error else { panic!() };
    assert_eq!((errors.len(), more_errors, warnings.len()), (100, 150, 1));
    assert_eq!(errors[99].path, "$.gpus[0].threadblocks[0].ops[99].name");
    let place = errors[99].place.clone().unwrap();
    assert_eq!(place.to_string(), "rank 0 tb 0 op 99");
}

#[test]
fn findings_name_their_place() {
    let mut value = plan();
    let put = value["gpus"][1]["threadblocks"][0]["ops"][4].clone();
    value["gpus"][1]["threadblocks"][0]["ops"][4] = json!({"name": "pipeline",
        "iter_context": {"unit_size": 64, "num_chunks": 1}, "ops": [{"name": "nop"}, put]});
    value["gpus"][1]["threadblocks"][0]["ops"][4]["ops"][1]["dst_buff"] = json!([]);
    value["buffer_alignment"] = json!(3);
    let ReadError::NoPlan { errors, .. } = Plan::from_json(value.to_string().as_bytes()).unwrap_err() else {
        panic!()
    };
    let places: Vec<_> = errors.iter().map(|f| (f.rule, f.place.as_ref().map(ToString::to_string))).collect();
    assert_eq!(places, [(109, None), (105, Some("rank 1 tb 0 op 4.1".into()))]);
    assert_eq!(errors[1].path, "$.gpus[1].threadblocks[0].ops[4].ops[1].dst_buff");
}

#[test]
fn older_forms_are_read_and_not_written() {
    let mut value = plan();
    let block = &mut value["gpus"][0]["threadblocks"][0];
    block["channels"][0]["buff"] = json!("i");
    block["channels"].as_array_mut().unwrap().push(json!({"channel_type": "switch", "channel_ids": [0]}));
    let rank = &mut value["gpus"][0];
    rank["channels"]
        .as_array_mut()
        .unwrap()
        .push(json!({"channel_type": "switch", "buff": "i", "rank_groups": [{"size": 2, "ranks": [0, 1]}]}));
    rank.as_object_mut().unwrap().remove("semaphores");
    value["gpus"][0]["threadblocks"]
        .as_array_mut()
        .unwrap()
        .push(json!({"id": 1, "ops": [], "channels": []}));
    let read = Plan::from_json(value.to_string().as_bytes()).unwrap();
    assert_eq!(read.warnings, []);
    let text = read.plan.to_json(Style::Compact);
    assert!(
        text.contains(
            r#"{"channel_type":"switch","buffer_type":"i","rank_groups":[{"size":2,"ranks":[0,1]}]}"#
        )
    );
    assert!(text.contains(r#"{"id":1,"ops":[],"channels":[],"remote_buffer_refs":[]}"#));
    assert!(!text.contains("buff\":\""));
    assert_eq!(text.matches("\"semaphores\":[]").count(), 2);
    assert_eq!(Plan::from_json(text.as_bytes()).unwrap().plan, read.plan);
    assert!(matches!(read.plan.ranks[0].channels[1], ChannelEntry::Switch { .. }));
}

/// 5.6: the shape that MSCCL++ prints for a glre that nothing follows.
#[test]
fn printed_glre() {
    let with = |glre: Value| {
        let mut value = plan();
        let rank = &mut value["gpus"][0];
        let channels = rank["channels"].as_array_mut().unwrap();
        channels.push(
            json!({"channel_type": "switch", "buffer_type": "i", "rank_groups": [{"size": 2, "ranks": [0, 1]}]}),
        );
        let block = &mut rank["threadblocks"][0];
        block["channels"].as_array_mut().unwrap().push(json!({"channel_type": "switch", "channel_ids": [0]}));
        block["ops"][0] = glre;
        Plan::from_json(value.to_string().as_bytes())
    };
    let printed = json!({"name": "glre", "buffer_type": "i", "buffer_offset": 3, "size": 2,
        "dst_chunk": {"rank": 0, "type": "o", "index": 4, "size": 2}, "channel_ids": [0]});
    let read = with(printed.clone()).unwrap();
    assert_eq!(read.warnings, []);
    let Action::Data(data) = first_action(&read.plan) else { panic!() };
    assert_eq!((data.kind, data.channel_type), (DataKind::GroupLoadReduce, Some(ChannelType::Switch)));
    assert_eq!(data.sources, [Reference::Switch { position: 0, index: 3, size: 2 }]);
    assert_eq!(data.destinations.len(), 1);
    assert_eq!((data.destinations[0].index(), data.destinations[0].size()), (4, 2));
    assert_eq!(data.fold, Some(Fold { op: ReduceOp::Sum, order: None }));
    // It is written in Warpway's form, which needs the listing.
    assert!(read.plan.extensions.contains(&Extension::LoadReduce));
    let text = read.plan.to_json(Style::Compact);
    assert!(text.contains(
        r#"{"name":"glre","src_buff":[{"switch_channel_id":0,"index":3,"size":2}],"dst_buff":[{"type":"o","index":4,"size":2}],"channel_type":"switch","reduce_op":"sum"}"#
    ));
    assert!(text.ends_with(r#""extensions":["glre"]}"#));
    assert_eq!(Plan::from_json(text.as_bytes()).unwrap().plan, read.plan);
    // Warpway's form without the listing.
    let bare = text.replace(r#","extensions":["glre"]"#, "");
    let ReadError::NoPlan { errors, .. } = Plan::from_json(bare.as_bytes()).unwrap_err() else { panic!() };
    assert_eq!(
        errors[0].to_string(),
        "V110: $.gpus[0].threadblocks[0].ops[0].name: found extension `glre` in use, expected \"glre\" in the plan's `extensions`"
    );

    let mut wrong = printed.clone();
    wrong["buffer_type"] = json!("o");
    let ReadError::NoPlan { errors, .. } = with(wrong).unwrap_err() else { panic!() };
    assert_eq!(
        errors[0].to_string(),
        "V105: $.gpus[0].threadblocks[0].ops[0].buffer_type: found `o`, expected `i`, as its channel"
    );
    let mut wrong = printed;
    wrong.as_object_mut().unwrap().remove("size");
    let ReadError::NoPlan { errors, .. } = with(wrong).unwrap_err() else { panic!() };
    assert_eq!(errors.len(), 1);
    assert_eq!((errors[0].rule, errors[0].path.as_str()), (105, "$.gpus[0].threadblocks[0].ops[0].size"));
}

#[test]
fn locations_are_written_on_request_only() {
    let plan = read_operation(json!({"name": "nop", "loc": "dir:x/plan.py:17"}));
    let location = plan.ranks[0].blocks[0].operations[0].location.clone().unwrap();
    assert_eq!((location.file.as_str(), location.line), ("dir:x/plan.py", 17));
    assert!(!plan.to_json(Style::Compact).contains("\"loc\""));
    let text = plan.to_json_with_locations(Style::Pretty);
    assert_eq!(text.matches("\"loc\": \"dir:x/plan.py:17\"").count(), 1);
    assert_eq!(Plan::from_json(text.as_bytes()).unwrap().plan, plan);
    for wrong in ["plan.py", "plan.py:", "plan.py:+1", "plan.py:99999999999"] {
        let found = operation(json!({"name": "nop", "loc": wrong}));
        assert_eq!(found, [format!("V101: op.loc: found \"{wrong}\", expected \"file:line\"")]);
    }
}

#[test]
fn references_point_into_one_kind_of_memory() {
    let copy =
        |source: Value| operation(json!({"name": "copy", "src_buff": [source], "dst_buff": [local("o")]}));
    assert_eq!(
        copy(json!({"type": "i", "buffer_id": 0, "index": 0, "size": 1})),
        [
            "V101: op.src_buff[0]: found 2 of them, expected one of `type`, `buffer_id` and `switch_channel_id`"
        ]
    );
    assert_eq!(
        copy(json!({"index": 0, "size": 1})),
        [
            "V101: op.src_buff[0]: found 0 of them, expected one of `type`, `buffer_id` and `switch_channel_id`"
        ]
    );
}

#[test]
fn a_block_has_one_list_of_each_type() {
    assert_eq!(
        findings(|plan| {
            let block = &mut plan["gpus"][0]["threadblocks"][0];
            block["channels"]
                .as_array_mut()
                .unwrap()
                .push(json!({"channel_type": "memory", "channel_ids": []}));
        }),
        [
            "V101: $.gpus[0].threadblocks[0].channels[1].channel_type: found a second list of type `memory`, expected one list of each type"
        ]
    );
}

#[test]
fn syntax_errors_have_a_place() {
    let read = |bytes: &[u8]| match Plan::from_json(bytes).unwrap_err() {
        ReadError::Syntax { line, column, message } => (line, column, message),
        other => panic!("{other}"),
    };
    assert_eq!(read(b""), (1, 0, "EOF while parsing a value".into()));
    assert_eq!(read(b"{\n  \"name\": nulx\n}"), (2, 14, "expected ident".into()));
    assert_eq!(read(b"{\"name\": \"x\"} 1"), (1, 15, "trailing characters".into()));
    assert_eq!(read(b"{\n\"na\xffme\": 1}"), (2, 4, "not UTF-8".into()));
    assert_eq!(
        Plan::from_json(b"[").unwrap_err().to_string(),
        "not JSON: line 1, column 1: EOF while parsing a list"
    );
}
