//! From a machine to a topology file.

use serde_json::{Map, Value, json};

use super::read::FORMAT;
use super::{HostKind, Machine, MemoryLevel};

pub(super) fn machine(machine: &Machine) -> String {
    let costs = &machine.costs;
    let fold: Map<String, Value> =
        costs.fold.iter().map(|(data_type, rate)| (data_type.to_string(), json!(rate))).collect();
    let links = machine.links.iter().map(|link| {
        json!({"name": link.name, "inside": link.inside, "gigabytes_per_second": link.rate, "latency_ns": link.latency_ns})
    });
    let stragglers = machine
        .stragglers
        .iter()
        .map(|late| json!({"rank": late.rank, "slow_down": late.slow_down, "start_ns": late.start_ns}));
    let document = json!({
        "format": FORMAT,
        "name": machine.name,
        "hosts": machine.hosts.iter().map(host).collect::<Vec<_>>(),
        "wire_latency_ns": machine.wire_latency_ns,
        "links": links.collect::<Vec<_>>(),
        "costs": {
            "launch_ns": costs.launch_ns,
            "announce_ns": costs.announce_ns,
            "blocks_ns": costs.blocks_ns,
            "handshake_ns": costs.handshake_ns,
            "step_ns": costs.step_ns,
            "signal_ns": costs.signal_ns,
            "signal_flight_ns": costs.signal_flight_ns,
            "switch_ns": costs.switch_ns,
            "wait_ns": costs.wait_ns,
            "barrier_ns": costs.barrier_ns,
            "line_ns": costs.line_ns,
            "packet_flight_ns": costs.packet_flight_ns,
            "request_ns": costs.request_ns,
            "proxy_ns": costs.proxy_ns,
            "fold": fold,
        },
        "stragglers": stragglers.collect::<Vec<_>>(),
    });
    // Serializing a tree of maps with text keys does not fail.
    serde_json::to_string_pretty(&document).unwrap_or_default() + "\n"
}

fn host(host: &HostKind) -> Value {
    let level = |level: &MemoryLevel| {
        json!({
            "up_to_bytes": level.up_to_bytes, "copy": level.copy, "all_cores": level.all_cores,
            "fold": level.fold, "fold_all_cores": level.fold_all_cores, "from_peer": level.from_peer, "to_peer": level.to_peer,
            "fold_from_peer": level.fold_from_peer, "fold_to_peer": level.fold_to_peer, "packet_write": level.packet_write,
            "packet_read": level.packet_read, "packet_stream": level.packet_stream,
        })
    };
    let nics = host.nics.iter().map(
        |nic| json!({"gigabytes_per_second": nic.rate, "message_ns": nic.message_ns, "in_turn": nic.in_turn}),
    );
    let mut value = json!({
        "count": host.count,
        "ranks": host.ranks,
        "cores": host.cores,
        "memory": host.memory.iter().map(level).collect::<Vec<_>>(),
        "nics": nics.collect::<Vec<_>>(),
    });
    if let (Some(rate), Value::Object(value)) = (host.rank_link, &mut value) {
        value.insert("rank_link_gigabytes_per_second".into(), json!(rate));
    }
    value
}
