//! The JSON Schema of topology files.

use serde_json::{Value, json};

use super::read::FORMAT;
use crate::data_type::DataType;

/// The schema as a document (draft 2020-12), published as docs/topology.schema.json.
pub fn machine_schema() -> String {
    // Serializing a tree of maps with text keys does not fail.
    serde_json::to_string_pretty(&schema()).unwrap_or_default() + "\n"
}

fn schema() -> Value {
    let text = json!({"type": "string"});
    let list = |of: Value| json!({"type": "array", "items": of});
    let rate = |what: &str| json!({"type": "number", "exclusiveMinimum": 0, "description": what});
    let nanoseconds = |what: &str| json!({"type": "number", "minimum": 0, "description": what});
    let whole = |least: u64, what: &str| json!({"type": "integer", "minimum": least, "description": what});
    let level = object(
        &["up_to_bytes", "copy", "all_cores"],
        json!({
            "up_to_bytes": whole(1, "Bytes that a block touches in one launch."),
            "copy": rate("GB/s of one block that copies what it alone touches."),
            "all_cores": rate("GB/s of all cores of the host together, each copying its own."),
            "fold": rate("GB/s of one block that folds one source into another, reading two and writing one; 2/3 of `copy` if absent."),
            "fold_all_cores": rate("The same of all cores together; 2/3 of `all_cores` if absent."),
            "from_peer": rate("GB/s of a copy of what another block wrote last; `copy` if absent."),
            "to_peer": rate("GB/s of a copy to where another block read or wrote last; `copy` if absent."),
            "fold_from_peer": rate("GB/s of a fold of what another block wrote last; `from_peer` if absent."),
            "fold_to_peer": rate("GB/s of a fold's results stored to where another block read or wrote last; `to_peer` if absent."),
            "packet_write": rate("GB/s of data written as packets; half of `copy` if absent."),
            "packet_read": rate("GB/s of data read from packets; half of `copy` if absent."),
            "packet_stream": rate("GB/s of data through packets where the reader is right behind the writer; `packet_read` if absent."),
        }),
    );
    let nic = object(
        &["gigabytes_per_second"],
        json!({
            "gigabytes_per_second": rate("In each direction."),
            "message_ns": nanoseconds("Between the starts of two messages at least; 0 if absent."),
            "in_turn": {"type": "boolean", "default": false, "description": "Messages leave one after the other instead of sharing the rate."},
        }),
    );
    let host = object(
        &["ranks", "cores", "memory"],
        json!({
            "count": whole(1, "Equal hosts; 1 if absent."),
            "ranks": whole(1, "Ranks on each."),
            "cores": whole(1, "Blocks that run at the same time."),
            "memory": {"type": "array", "minItems": 1, "items": level, "description": "Ascending by `up_to_bytes`."},
            "nics": {"type": "array", "items": nic, "description": "Rank i of the host uses number i modulo their number."},
            "rank_link_gigabytes_per_second": rate("What each rank's loads and stores to others of its host cross, per direction; absent on host memory."),
        }),
    );
    let link = object(
        &["name", "inside", "gigabytes_per_second"],
        json!({
            "name": text,
            "inside": {"type": "array", "items": whole(0, "A host."), "description": "The hosts on one side; all others are on the other."},
            "gigabytes_per_second": rate("In each direction, shared max-min fairly."),
            "latency_ns": nanoseconds("Added to the wire's; 0 if absent."),
        }),
    );
    let costs = object(
        COSTS,
        json!({
            "launch_ns": nanoseconds("A launch without any operation."),
            "announce_ns": nanoseconds("More for a launch of a rank with peers."),
            "blocks_ns": nanoseconds("More for a launch of several blocks."),
            "handshake_ns": nanoseconds("More for a launch whose ranks touch each other's input or output."),
            "step_ns": nanoseconds("Each operation."),
            "signal_ns": nanoseconds("A signal, for the block that gives it."),
            "signal_flight_ns": nanoseconds("From there until the peer's wait sees it."),
            "switch_ns": nanoseconds("More for each flight on a host with more blocks than cores."),
            "wait_ns": nanoseconds("A wait whose signal has come."),
            "barrier_ns": nanoseconds("A barrier of blocks, from the last arrival on."),
            "line_ns": nanoseconds("A read of what another block wrote last, until its first line is there."),
            "packet_flight_ns": nanoseconds("From the store of a packet until the peer sees it."),
            "request_ns": nanoseconds("A request to the proxy, for the block."),
            "proxy_ns": nanoseconds("A request, for the proxy."),
            "fold": {
                "type": "object", "minProperties": 1,
                "propertyNames": {"enum": DataType::ALL.map(|data_type| data_type.to_string())},
                "additionalProperties": rate("GB/s of one source folded into another, in cache."),
            },
        }),
    );
    let straggler = object(
        &["rank"],
        json!({
            "rank": whole(0, "Which."),
            "slow_down": rate("Everything it does takes so many times as long; 1 if absent."),
            "start_ns": nanoseconds("It begins so much later; 0 if absent."),
        }),
    );
    let mut schema = object(
        &["format", "hosts", "costs"],
        json!({
            "format": {"const": FORMAT},
            "name": text,
            "hosts": {"type": "array", "minItems": 1, "items": host},
            "wire_latency_ns": nanoseconds("One way between any two interfaces; 0 if absent."),
            "links": list(link),
            "costs": costs,
            "stragglers": list(straggler),
        }),
    );
    if let Value::Object(schema) = &mut schema {
        schema.insert("$schema".into(), json!("https://json-schema.org/draft/2020-12/schema"));
        schema.insert("title".into(), json!("Warpway topology"));
        schema.insert(
            "description".into(),
            json!(
                "The machine that `warpway plan simulate` predicts for; `warpway plan calibrate` writes one."
            ),
        );
    }
    schema
}

/// All of them are needed.
const COSTS: &[&str] = &[
    "launch_ns",
    "announce_ns",
    "blocks_ns",
    "handshake_ns",
    "step_ns",
    "signal_ns",
    "signal_flight_ns",
    "switch_ns",
    "wait_ns",
    "barrier_ns",
    "line_ns",
    "packet_flight_ns",
    "request_ns",
    "proxy_ns",
    "fold",
];

#[allow(clippy::needless_pass_by_value, reason = "the values are literals")]
fn object(required: &[&str], properties: Value) -> Value {
    json!({"type": "object", "required": required, "properties": properties, "additionalProperties": false})
}
