//! The JSON Schema of the format. Written by hand over the names of the types rather than derived: the file is not
//! the shape of any Rust type (which keys an operation has depends on its name), and the reader has no derived
//! code either. Tests compare its keys with those of the reader and validate real plans against it.

use serde_json::{Map, Value, json};

use crate::ir::{BufferKind, ChannelType, Collective, DataKind, Extension, Protocol, ReduceOp};

/// The schema as a document (draft 2020-12), published as docs/plan.schema.json. It describes what Warpway writes
/// and, marked as deprecated, the older forms that it reads. What relates several values (V104, V105 for lists of
/// different length, V110, V111) is beyond it.
pub fn plan_schema() -> String {
    // Serializing a tree of maps with text keys does not fail.
    serde_json::to_string_pretty(&schema()).unwrap_or_default() + "\n"
}

fn schema() -> Value {
    let mut schema = object(
        &["name", "collective", "protocol", "inplace", "gpus"],
        json!({
            "name": {"type": "string", "description": "Label for logs and selection; not the identity."},
            "collective": names(Collective::NAMED),
            "protocol": names(Protocol::NAMED),
            "inplace": {"type": "boolean", "description": "Input and output are one memory."},
            "reuse_resources": {"type": "boolean", "default": false},
            "gpus": {"type": "array", "minItems": 1, "items": reference("rank")},
            "num_threads_per_block": {"type": "integer", "minimum": 1, "maximum": 1024, "default": 1024},
            "use_double_scratch_buffer": {"type": "boolean", "default": false},
            "buffer_alignment":
                described(reference("number"), "Bytes; a power of two, 4 to 1048576. 16 if absent."),
            "min_message_size": described(reference("number"), "Bytes; 0 if absent."),
            "max_message_size": described(reference("number"), "Bytes; 2^64-1 if absent."),
            "extensions": array(names(Extension::NAMED)),
        }),
    );
    let head = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Warpway execution plan",
        "description": "What every rank and thread block of a collective does. The format of MSCCL++ 0.9 and extensions.",
        "$defs": definitions(),
    });
    if let (Value::Object(schema), Value::Object(head)) = (&mut schema, head) {
        schema.extend(head);
    }
    schema
}

fn definitions() -> Value {
    let numbers = array(reference("number"));
    let positions = array(reference("position"));
    let accesses = json!({"enum": [ChannelType::Memory.name(), ChannelType::Port.name()]});
    json!({
        "number": {"type": "integer", "minimum": 0, "maximum": u64::MAX},
        "position": {"type": "integer", "minimum": 0, "maximum": u32::MAX},
        "buffer": names(BufferKind::NAMED),
        "rank": object(
            &["id", "input_chunks", "output_chunks", "scratch_chunks", "threadblocks", "channels", "remote_buffers"],
            json!({
                "id": described(reference("position"), "The position in the list."),
                "input_chunks": reference("number"),
                "output_chunks": reference("number"),
                "scratch_chunks": reference("number"),
                "threadblocks": array(reference("block")),
                "channels": described(
                    array(reference("channels")),
                    "Their members, concatenated by type, are the channel indices of the rank.",
                ),
                "remote_buffers": array(object(
                    &["rank", "type", "access_channel_types"],
                    json!({
                        "rank": described(reference("position"), "The owner."),
                        "type": reference("buffer"),
                        "access_channel_types": array(accesses.clone()),
                    }),
                )),
                "semaphores": array(object(&["init_value"], json!({"init_value": reference("number")}))),
                "input_size_ids": described(numbers.clone(), "One for each chunk; extension sized_chunks."),
                "output_size_ids": numbers,
                "scratch_size_ids": array(reference("number")),
            }),
        ),
        "channels": {"oneOf": [
            object(&["channel_type", "connected_to"], json!({
                "channel_type": {"enum": [ChannelType::Memory.name(), ChannelType::Port.name()]},
                "connected_to": positions,
            })),
            object(&["channel_type", "rank_groups"], json!({
                "channel_type": {"const": ChannelType::Switch.name()},
                "buffer_type": reference("buffer"),
                "buff": deprecated(reference("buffer")),
                "rank_groups": array(object(&["size", "ranks"], json!({
                    "size": reference("number"),
                    "ranks": array(reference("position")),
                }))),
            })),
        ]},
        "block": object(&["id", "ops", "channels"], json!({
            "id": described(reference("position"), "The position in the list."),
            "ops": array(reference("operation")),
            "channels": array(object(&["channel_type", "channel_ids"], json!({
                "channel_type": names(ChannelType::NAMED),
                "channel_ids": described(array(reference("position")), "Channel indices of the rank."),
                "buff": deprecated(json!({})),
            }))),
            "remote_buffer_refs": array(object(&["access_channel_type", "remote_buffer_ids"], json!({
                "access_channel_type": accesses,
                "remote_buffer_ids": described(array(reference("position")), "Positions in remote_buffers of the rank."),
            }))),
        })),
        "reference": {"oneOf": [
            open_object(&["type", "index", "size"], json!({"type": reference("buffer")})),
            open_object(&["buffer_id", "index", "size"], json!({"buffer_id": reference("position")})),
            open_object(&["switch_channel_id", "index", "size"], json!({"switch_channel_id": reference("position")})),
        ]},
        "operation": {"oneOf": operations(true)},
        "inner_operation": {"oneOf": operations(false)},
    })
}

/// The kinds of operations; pipelines do not nest.
fn operations(pipelines: bool) -> Vec<Value> {
    let positions = array(reference("position"));
    let ids = json!({"type": "array", "minItems": 1, "items": reference("position")});
    let mut kinds = vec![
        operation(&["nop"], &[], json!({})),
        operation(
            &["barrier"],
            &["barrier_id", "num_threadblocks"],
            json!({"barrier_id": reference("position"), "num_threadblocks": reference("position")}),
        ),
        operation(
            &["signal", "rlxsignal", "wait", "rlxwait"],
            &["channel_ids", "channel_type"],
            json!({"channel_ids": ids, "channel_type": {"enum": ["memory", "port"]}}),
        ),
        operation(
            &["flush"],
            &["channel_ids", "channel_type"],
            json!({"channel_ids": ids, "channel_type": {"const": "port"}}),
        ),
        operation(&["sem_acquire", "sem_release"], &["semaphore_ids"], json!({"semaphore_ids": ids})),
    ];
    let group = object(
        &["tb_id", "tbg_size"],
        json!({"tb_id": reference("position"), "tbg_size": reference("position")}),
    );
    let channel_type = json!({"enum": ["memory", "port", "switch", "none"]});
    let data = |folds: bool| {
        let names =
            DataKind::NAMED.iter().filter(|(kind, _)| (kind.is_fold() || kind.is_switch_fold()) == folds);
        let names: Vec<&str> = names.map(|(_, name)| *name).collect();
        let mut keys = json!({
            "src_buff": array(reference("reference")),
            "dst_buff": array(reference("reference")),
            "channel_ids": positions,
            "channel_type": channel_type,
            "tbg_info": group,
        });
        if let (true, Value::Object(keys)) = (folds, &mut keys) {
            keys.insert("reduce_op".into(), self::names(ReduceOp::NAMED));
            let order = "Positions of the sources in the order in which they enter; extension order.";
            keys.insert("order".into(), described(positions.clone(), order));
        }
        let required: &[&'static str] =
            if folds { &["src_buff", "dst_buff", "reduce_op"] } else { &["src_buff", "dst_buff"] };
        operation(&names, required, keys)
    };
    kinds.extend([data(false), data(true)]);
    kinds.push(deprecated(operation(
        &["glre"],
        &["buffer_type", "buffer_offset", "size", "dst_chunk", "channel_ids"],
        json!({
            "buffer_type": reference("buffer"),
            "buffer_offset": reference("number"),
            "size": reference("number"),
            "dst_chunk": reference("reference"),
            "channel_ids": positions,
            "channel_type": {"const": "switch"},
            "reduce_op": names(ReduceOp::NAMED),
            "tbg_info": group,
        }),
    )));
    if pipelines {
        let iteration = object(
            &["unit_size", "num_chunks"],
            json!({
                "unit_size": described(json!({"type": "integer", "minimum": 1, "maximum": u64::MAX}), "Bytes."),
                "num_chunks": reference("number"),
                "size_id": described(reference("number"), "Extension sized_chunks."),
            }),
        );
        kinds.push(operation(
            &["pipeline"],
            &["iter_context", "ops"],
            json!({"iter_context": iteration, "ops": array(reference("inner_operation"))}),
        ));
    }
    kinds
}

/// An object of an operation with one of these names.
fn operation(names: &[&str], required: &[&'static str], keys: Value) -> Value {
    let mut schema = object(&[&["name"], required].concat(), keys);
    let location =
        described(json!({"type": "string", "pattern": ":[0-9]+$"}), "\"file:line\"; ignored by executors.");
    if let Some(Value::Object(properties)) = schema.get_mut("properties") {
        properties.insert("name".into(), json!({"enum": names}));
        properties.insert("loc".into(), location);
    }
    schema
}

/// Other keys are ignored with a warning (V106), so the schema does not allow them.
fn object(required: &[&'static str], properties: Value) -> Value {
    json!({"type": "object", "required": required, "properties": properties, "additionalProperties": false})
}

/// A reference: other keys mean nothing, unless they make it ambiguous.
fn open_object(required: &[&'static str], mut properties: Value) -> Value {
    if let Value::Object(properties) = &mut properties {
        for key in ["type", "buffer_id", "switch_channel_id"] {
            properties.entry(key).or_insert(Value::Bool(false));
        }
        properties.insert("index".into(), described(reference("number"), "First chunk."));
        properties.insert("size".into(), described(reference("number"), "Chunks."));
    }
    json!({"type": "object", "required": required, "properties": properties})
}

fn array(items: Value) -> Value {
    json!({"type": "array", "items": items})
}

fn names<T>(named: &[(T, &str)]) -> Value {
    json!({"enum": named.iter().map(|(_, name)| *name).collect::<Vec<&str>>()})
}

fn reference(definition: &str) -> Value {
    json!({"$ref": format!("#/$defs/{definition}")})
}

fn described(schema: Value, description: &str) -> Value {
    annotated(schema, "description", description.into())
}

fn deprecated(schema: Value) -> Value {
    annotated(schema, "deprecated", true.into())
}

fn annotated(mut schema: Value, key: &str, value: Value) -> Value {
    let annotations: Option<&mut Map<String, Value>> = schema.as_object_mut();
    if let Some(schema) = annotations {
        schema.insert(key.into(), value);
    }
    schema
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::read;
    use super::*;
    use crate::ir::ThreadBlock;

    /// Every key that the reader knows is in the schema's object of the same name, and no other.
    #[test]
    fn keys_are_those_of_the_reader() {
        fn known<T: read::Object>() -> BTreeSet<String> {
            T::KEYS.iter().map(|key| key.name.to_owned()).collect()
        }
        let schema = schema();
        let keys = |pointer: &str| -> BTreeSet<String> {
            let object = schema.pointer(pointer).expect(pointer);
            let variants = object["oneOf"].as_array().cloned().unwrap_or_else(|| vec![object.clone()]);
            variants
                .iter()
                .flat_map(|v| v["properties"].as_object().unwrap().keys().cloned().collect::<Vec<_>>())
                .collect()
        };
        assert_eq!(keys(""), known::<read::PlanFile>());
        assert_eq!(keys("/$defs/rank"), known::<read::RankFile>());
        assert_eq!(keys("/$defs/block"), known::<ThreadBlock>());
        assert_eq!(keys("/$defs/channels"), known::<read::ChannelEntryFile>());
        assert_eq!(keys("/$defs/channels/oneOf/1/properties/rank_groups/items"), known::<read::GroupFile>());
        assert_eq!(keys("/$defs/rank/properties/remote_buffers/items"), known::<read::RemoteBufferFile>());
        assert_eq!(keys("/$defs/rank/properties/semaphores/items"), known::<read::SemaphoreFile>());
        assert_eq!(keys("/$defs/block/properties/channels/items"), known::<read::ChannelRefsFile>());
        assert_eq!(keys("/$defs/block/properties/remote_buffer_refs/items"), known::<read::BufferRefsFile>());
        assert_eq!(keys("/$defs/reference"), known::<read::ReferenceFile>());
        assert_eq!(keys("/$defs/operation"), known::<read::OperationFile>());
        let group = schema["$defs"]["operation"]["oneOf"].as_array().unwrap().iter();
        let group =
            group.map(|v| &v["properties"]["tbg_info"]["properties"]).find(|v| v.is_object()).unwrap();
        let group: BTreeSet<String> = group.as_object().unwrap().keys().cloned().collect();
        assert_eq!(group, known::<read::GroupMemberFile>());
        let last = schema["$defs"]["operation"]["oneOf"].as_array().unwrap().len() - 1;
        let iteration = format!("/$defs/operation/oneOf/{last}/properties/iter_context");
        assert_eq!(keys(&iteration), known::<read::IterationFile>());
    }

    #[test]
    fn every_operation_is_described_once() {
        let variants = operations(true);
        let names = variants.iter().flat_map(|v| v["properties"]["name"]["enum"].as_array().unwrap());
        let mut names: Vec<&str> = names.map(|name| name.as_str().unwrap()).collect();
        names.sort_unstable();
        // The lone glre of MSCCL++ is a second form.
        let twice = names.iter().position(|name| *name == "glre").unwrap();
        names.remove(twice);
        let mut expected: Vec<&str> = DataKind::NAMED.iter().map(|(_, name)| *name).collect();
        expected.extend(["nop", "barrier", "signal", "rlxsignal", "wait", "rlxwait", "flush", "sem_acquire"]);
        expected.extend(["sem_release", "pipeline"]);
        expected.sort_unstable();
        assert_eq!(names, expected);
    }

    #[test]
    fn schema_page_is_fresh() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/plan.schema.json");
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(path, plan_schema()).unwrap();
        }
        let written = std::fs::read_to_string(path).unwrap_or_default();
        assert!(written == plan_schema(), "docs/plan.schema.json is stale; run this test with UPDATE_DOCS=1");
    }
}
