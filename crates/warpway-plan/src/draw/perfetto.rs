//! A simulation as Chrome-trace JSON, which Perfetto (ui.perfetto.dev) and chrome://tracing open. Ranks are processes,
//! blocks, proxies and connections their threads; flows lead from what ended a wait to the wait.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::simulate::{Lane, Simulation, SpanKind};

/// The document; `title` names what was simulated. Timestamps are microseconds, with nanoseconds as decimals.
pub fn chrome_trace(simulation: &Simulation, title: &str) -> Value {
    let mut events = Vec::new();
    let lanes: BTreeSet<(u32, Lane)> = simulation.spans.iter().map(|span| (span.rank, span.lane)).collect();
    let ranks: BTreeSet<u32> = lanes.iter().map(|(rank, _)| *rank).collect();
    for rank in ranks {
        let host = simulation.host_of.get(rank as usize).copied().unwrap_or(0);
        events.push(json!({"ph": "M", "name": "process_name", "pid": rank, "tid": 0,
            "args": {"name": format!("rank {rank} (host {host})")}}));
        events.push(json!({"ph": "M", "name": "process_sort_index", "pid": rank, "tid": 0,
            "args": {"sort_index": rank}}));
    }
    for (rank, lane) in &lanes {
        let name = match lane {
            Lane::Launch => "launch".to_owned(),
            Lane::Block(block) => format!("block {block}"),
            Lane::Proxy => "proxy".to_owned(),
            Lane::Wire(to) => format!("to rank {to}"),
        };
        events.push(json!({"ph": "M", "name": "thread_name", "pid": rank, "tid": thread(*lane), "args": {"name": name}}));
    }
    let critical: BTreeSet<usize> = simulation.critical_path.iter().copied().collect();
    for (id, span) in simulation.spans.iter().enumerate().filter(|(_, span)| span.end > span.start) {
        let (pid, tid) = (span.rank, thread(span.lane));
        let waits = span.kind != SpanKind::Wait && span.waited() > 0.0;
        if waits {
            events.push(json!({"ph": "X", "name": "wait", "cat": "wait", "pid": pid, "tid": tid,
                "ts": span.start / 1e3, "dur": span.waited() / 1e3}));
        }
        let start = if waits { span.ready } else { span.start };
        events.push(json!({"ph": "X", "name": span.name, "cat": span.kind.name(), "pid": pid, "tid": tid,
            "ts": start / 1e3, "dur": (span.end - start) / 1e3,
            "args": {"operation": span.path.to_string(), "iteration": span.iteration, "bytes": span.bytes,
                "critical": critical.contains(&id)}}));
        let Some(cause) = span.cause.and_then(|cause| simulation.spans.get(cause)) else { continue };
        if (cause.rank, cause.lane) != (span.rank, span.lane) && cause.end > cause.start {
            // A flow begins inside its slice.
            events.push(json!({"ph": "s", "name": "signal", "cat": "signal", "id": id, "pid": cause.rank,
                "tid": thread(cause.lane), "ts": cause.start / 1e3}));
            events
                .push(json!({"ph": "f", "bp": "e", "name": "signal", "cat": "signal", "id": id, "pid": pid,
                "tid": tid, "ts": span.end / 1e3}));
        }
    }
    json!({
        "displayTimeUnit": "ns",
        "otherData": {"source": "Warpway simulation", "plan": title, "total_ns": simulation.total_ns},
        "traceEvents": events,
    })
}

/// Launch, blocks, proxy, connections, in this order.
fn thread(lane: Lane) -> u64 {
    match lane {
        Lane::Launch => 0,
        Lane::Block(block) => 1 + u64::from(block),
        Lane::Proxy => 1 << 20,
        Lane::Wire(to) => (1 << 20) + 1 + u64::from(to),
    }
}
