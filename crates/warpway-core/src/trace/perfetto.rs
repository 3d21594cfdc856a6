//! Dumps as Chrome-trace JSON, which Perfetto (ui.perfetto.dev) and chrome://tracing open.
//!
//! A rank of the job is a process, named by rank, host and process id; its communicators share it. Operations that overlap in time lie on
//! separate lanes (threads), because slices of one thread must nest. Failures are instants. Times of
//! several dumps are joined by the wall clocks of their hosts.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{FlightDump, OperationState, RecordedOperation};

/// Lanes of one communicator are this far apart from the next one's of the same rank.
const LANES: u64 = 10_000;

/// One document from the dumps of any number of ranks and communicators. If a communicator's rank was
/// dumped several times, each dump is drawn.
///
/// Timestamps are microseconds since the earliest epoch of the dumps, with nanoseconds as decimals.
pub fn chrome_trace(dumps: &[FlightDump]) -> Value {
    let base = dumps.iter().map(|dump| dump.epoch_unix_ns).min().unwrap_or(0);
    let mut per_process: BTreeMap<u64, u64> = BTreeMap::new();
    let mut events = Vec::new();
    for dump in dumps {
        let process = u64::from(dump.job_rank);
        let drawn = per_process.entry(process).or_insert(0);
        let track = Track { dump, process, first_lane: *drawn * LANES, offset: dump.epoch_unix_ns - base };
        if *drawn == 0 {
            events.push(track.name("process_name", 0, &track.process_name()));
            events.push(json!({
                "ph": "M", "name": "process_sort_index", "pid": process, "tid": 0,
                "args": { "sort_index": process },
            }));
        }
        *drawn += 1;
        track.draw(&mut events);
    }
    json!({
        "displayTimeUnit": "ns",
        "otherData": { "source": "Warpway flight recorder", "epoch_unix_ns": base.to_string() },
        "traceEvents": events,
    })
}

/// One dump on its way into the document.
struct Track<'a> {
    dump: &'a FlightDump,
    process: u64,
    first_lane: u64,
    /// From the document's zero to the dump's.
    offset: u64,
}

impl Track<'_> {
    fn draw(&self, events: &mut Vec<Value>) {
        let lanes = lanes(self.dump);
        for lane in 0..lanes.iter().map(|lane| lane + 1).max().unwrap_or(1) {
            let FlightDump { scope, rank, n_ranks, .. } = self.dump;
            let name = format!("communicator {scope:x}: rank {rank} of {n_ranks}, lane {lane}");
            events.push(self.name("thread_name", self.first_lane + lane, &name));
        }
        for (operation, lane) in self.dump.operations.iter().zip(lanes) {
            events.push(self.slice(operation, lane));
            if let OperationState::Failed(message) = &operation.state {
                let name = format!("{} failed", operation.operation);
                events.push(self.instant(&name, "t", lane, operation.ended_ns, message));
            }
        }
        if let Some(failure) = &self.dump.failure {
            let at = failure.at_ns.unwrap_or(self.dump.dumped_ns);
            let name = format!("communicator failed: {}", failure.id);
            events.push(self.instant(&name, "p", 0, at, &failure.message));
        }
    }

    fn process_name(&self) -> String {
        let FlightDump { job_rank, host, process, .. } = self.dump;
        format!("rank {job_rank} ({host}, process {process})")
    }

    fn name(&self, what: &str, thread: u64, name: &str) -> Value {
        json!({ "ph": "M", "name": what, "pid": self.process, "tid": thread, "args": { "name": name } })
    }

    fn slice(&self, operation: &RecordedOperation, lane: u64) -> Value {
        let (start, end) = span(self.dump, operation);
        let state = match &operation.state {
            OperationState::Started => "unfinished",
            OperationState::Completed => "completed",
            OperationState::Failed(_) => "failed",
        };
        json!({
            "ph": "X", "name": operation.operation.name(), "cat": state,
            "pid": self.process, "tid": self.first_lane + lane,
            "ts": self.microseconds(start), "dur": (end - start) as f64 / 1e3,
            "args": {
                "sequence": operation.sequence, "peer": operation.peer, "state": state,
                // As text: JavaScript's numbers end at 2^53.
                "object": operation.object.to_string(), "bytes": operation.bytes.to_string(),
                "offset": operation.offset.to_string(),
            },
        })
    }

    fn instant(&self, name: &str, scope: &str, lane: u64, at: u64, message: &str) -> Value {
        json!({
            "ph": "i", "name": name, "cat": "failed", "s": scope,
            "pid": self.process, "tid": self.first_lane + lane,
            "ts": self.microseconds(at), "args": { "message": message },
        })
    }

    fn microseconds(&self, nanoseconds: u64) -> f64 {
        // Exact to a nanosecond for traces of up to 104 days.
        self.offset.saturating_add(nanoseconds) as f64 / 1e3
    }
}

/// From when to when an operation ran; an unfinished one until the dump was made.
fn span(dump: &FlightDump, operation: &RecordedOperation) -> (u64, u64) {
    let start = operation.started_ns;
    let end = match operation.state {
        OperationState::Started => dump.dumped_ns,
        _ => operation.ended_ns,
    };
    (start, end.max(start))
}

/// A lane for each operation, the first that is free when it starts.
fn lanes(dump: &FlightDump) -> Vec<u64> {
    let mut by_start: Vec<usize> = (0..dump.operations.len()).collect();
    by_start.sort_by_key(|&index| dump.operations[index].started_ns);
    let mut busy_until: Vec<u64> = Vec::new();
    let mut lanes = vec![0; dump.operations.len()];
    for index in by_start {
        let (start, end) = span(dump, &dump.operations[index]);
        let free = busy_until.iter().position(|until| *until <= start);
        let lane = free.unwrap_or(busy_until.len());
        if lane == busy_until.len() {
            busy_until.push(0);
        }
        busy_until[lane] = end;
        lanes[index] = lane as u64;
    }
    lanes
}
