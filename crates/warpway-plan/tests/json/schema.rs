//! The published schema against plans, with a validator for as much of JSON Schema as it uses.

use serde_json::{Value, json};
use warpway_plan::{Plan, Style, plan_schema};

use crate::shared_plans;

/// The first thing that does not fit.
fn validate(root: &Value, schema: &Value, value: &Value, path: &str) -> Result<(), String> {
    let fail = |what: &str| Err(format!("{path}: {what}"));
    let rules = match schema {
        Value::Bool(true) => return Ok(()),
        Value::Bool(false) => return fail("not allowed"),
        Value::Object(rules) => rules,
        other => panic!("{other} is no schema"),
    };
    for (keyword, rule) in rules {
        match keyword.as_str() {
            "$ref" => {
                let pointer = rule.as_str().unwrap().strip_prefix('#').unwrap();
                validate(root, root.pointer(pointer).expect(pointer), value, path)?;
            }
            "type" => {
                let fits = match rule.as_str().unwrap() {
                    "object" => value.is_object(),
                    "array" => value.is_array(),
                    "string" => value.is_string(),
                    "boolean" => value.is_boolean(),
                    "integer" => value.is_u64() || value.is_i64(),
                    other => panic!("unknown type {other}"),
                };
                if !fits {
                    return fail(&format!("no {rule}"));
                }
            }
            "enum" if !rule.as_array().unwrap().contains(value) => return fail("not in the list"),
            "const" if rule != value => return fail("another value"),
            "minimum" | "maximum" => {
                let (limit, number) = (rule.as_u64().unwrap(), value.as_u64());
                let fits = number.is_some_and(|n| if keyword == "minimum" { n >= limit } else { n <= limit });
                if value.is_number() && !fits {
                    return fail("out of range");
                }
            }
            "minItems"
                if value.as_array().is_some_and(|list| (list.len() as u64) < rule.as_u64().unwrap()) =>
            {
                return fail("too short");
            }
            "items" => {
                for (at, element) in value.as_array().into_iter().flatten().enumerate() {
                    validate(root, rule, element, &format!("{path}[{at}]"))?;
                }
            }
            "required" => {
                let mut keys = rule.as_array().unwrap().iter().map(|key| key.as_str().unwrap());
                if let Some(key) = keys.find(|key| value.is_object() && value.get(key).is_none()) {
                    return fail(&format!("no {key}"));
                }
            }
            "properties" => {
                for (key, element) in value.as_object().into_iter().flatten() {
                    match rule.get(key) {
                        Some(rule) => validate(root, rule, element, &format!("{path}.{key}"))?,
                        None if rules.get("additionalProperties") == Some(&json!(false)) => {
                            return fail(&format!("{key} is unknown"));
                        }
                        None => {}
                    }
                }
            }
            "oneOf" => {
                let results: Vec<_> = rule
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|schema| validate(root, schema, value, path))
                    .collect();
                let fitting = results.iter().filter(|result| result.is_ok()).count();
                if fitting != 1 {
                    return fail(&format!("{fitting} forms fit: {results:?}"));
                }
            }
            "pattern" => {
                assert_eq!(rule, ":[0-9]+$");
                let digits = value.as_str().and_then(|text| text.rsplit_once(':')).map(|(_, digits)| digits);
                if !digits.is_some_and(|d| !d.is_empty() && d.bytes().all(|b| b.is_ascii_digit())) {
                    return fail("no location");
                }
            }
            "enum"
            | "const"
            | "minItems"
            | "additionalProperties"
            | "default"
            | "description"
            | "deprecated"
            | "title"
            | "$schema"
            | "$defs" => {}
            other => panic!("the validator does not know {other}"),
        }
    }
    Ok(())
}

fn check(value: &Value) -> Result<(), String> {
    let schema: Value = serde_json::from_str(&plan_schema()).unwrap();
    validate(&schema, &schema, value, "$")
}

#[test]
fn shared_plans_fit() {
    for (name, text) in shared_plans::by_name() {
        assert_eq!(check(&serde_json::from_str(&text).unwrap()), Ok(()), "{name}");
    }
}

/// A plan with every shape of operation, as Warpway writes it.
fn rich() -> Value {
    let local = json!({"type": "s", "index": 0, "size": 1, "rank": 0});
    let remote = json!({"buffer_id": 0, "index": 0, "size": 1});
    let switch = json!({"switch_channel_id": 0, "index": 0, "size": 1});
    let operations = json!([
                    {"name": "nop", "loc": "a:1"},
                    {"name": "barrier", "barrier_id": 0, "num_threadblocks": 1},
                    {"name": "signal", "channel_ids": [0], "channel_type": "memory"},
                    {"name": "flush", "channel_ids": [0], "channel_type": "port"},
                    {"name": "sem_acquire", "semaphore_ids": [0]},
                    {"name": "pipeline", "iter_context": {"unit_size": 1, "num_chunks": 1, "size_id": 0}, "ops": [
                        {"name": "put", "src_buff": [local], "dst_buff": [remote], "channel_ids": [0],
                         "channel_type": "port", "tbg_info": {"tb_id": 0, "tbg_size": 1}}]},
                    {"name": "re", "src_buff": [local, local], "dst_buff": [local], "reduce_op": "avg",
                     "order": [1, 0]},
                    {"name": "glre", "src_buff": [switch], "dst_buff": [local], "channel_type": "switch",
                     "reduce_op": "sum"}]);
    json!({
        "name": "rich", "collective": "broadcast", "protocol": "LL", "inplace": false,
        "extensions": ["glre", "order", "reduce_op", "sized_chunks"],
        "gpus": [{
            "id": 0, "input_chunks": 1, "output_chunks": 1, "scratch_chunks": 1,
            "input_size_ids": [0], "output_size_ids": [0], "scratch_size_ids": [0],
            "channels": [{"channel_type": "memory", "connected_to": [0]},
                {"channel_type": "switch", "buffer_type": "s", "rank_groups": [{"size": 1, "ranks": [0]}]}],
            "remote_buffers": [{"rank": 0, "type": "s", "access_channel_types": ["memory", "port"]}],
            "semaphores": [{"init_value": 1}],
            "threadblocks": [{"id": 0,
                "channels": [{"channel_type": "switch", "channel_ids": [0]}],
                "remote_buffer_refs": [{"access_channel_type": "memory", "remote_buffer_ids": [0]}],
                "ops": operations}]}]
    })
}

#[test]
fn what_is_read_without_findings_fits() {
    let value = rich();
    let read = Plan::from_json(value.to_string().as_bytes()).unwrap();
    assert_eq!((read.warnings, check(&value)), (vec![], Ok(())));
    let written = serde_json::from_str(&read.plan.to_json_with_locations(Style::Pretty)).unwrap();
    assert_eq!(check(&written), Ok(()));
}

/// Both refuse what one edit breaks.
#[test]
fn what_does_not_fit_is_not_read_without_findings() {
    let operation = "/gpus/0/threadblocks/0/ops";
    for (pointer, wrong) in [
        ("/name".to_owned(), json!(1)),
        ("/collective".to_owned(), json!("all")),
        ("/inplace".to_owned(), json!(null)),
        ("/gpus".to_owned(), json!([])),
        ("/extensions/0".to_owned(), json!("none")),
        ("/gpus/0/input_chunks".to_owned(), json!(-1)),
        ("/gpus/0/input_chunks".to_owned(), json!(1.5)),
        ("/gpus/0/channels/0/connected_to/0".to_owned(), json!(1u64 << 32)),
        ("/gpus/0/channels/1/buffer_type".to_owned(), json!("x")),
        ("/gpus/0/remote_buffers/0/access_channel_types/0".to_owned(), json!("switch")),
        (format!("{operation}/0/name"), json!("none")),
        (format!("{operation}/0/loc"), json!("here")),
        (format!("{operation}/2/channel_ids"), json!([])),
        (format!("{operation}/2/channel_type"), json!("switch")),
        (format!("{operation}/3/channel_type"), json!("memory")),
        (
            format!("{operation}/5/ops/0"),
            json!({"name": "pipeline", "iter_context": {"unit_size": 1, "num_chunks": 1}, "ops": []}),
        ),
        (format!("{operation}/5/iter_context/unit_size"), json!(0)),
        (format!("{operation}/6/src_buff/0"), json!({"type": "i", "buffer_id": 0, "index": 0, "size": 1})),
        (format!("{operation}/6/reduce_op"), json!("xor")),
        (format!("{operation}/6"), json!({"name": "re", "src_buff": [], "dst_buff": []})),
        (format!("{operation}/0"), json!({"name": "nop", "colour": 1})),
    ] {
        let mut value = rich();
        *value.pointer_mut(&pointer).unwrap() = wrong.clone();
        assert!(check(&value).is_err(), "the schema allows {wrong} at {pointer}");
        let read = Plan::from_json(value.to_string().as_bytes());
        assert!(read.is_err() || !read.unwrap().warnings.is_empty(), "{wrong} at {pointer}");
    }
}
