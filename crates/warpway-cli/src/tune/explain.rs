//! Why a call takes the algorithm that it takes; no ranks take part.

use std::fs;

use anyhow::Context as _;
use serde_json::{Value, json};
use warpway::collectives::{
    Candidate, Explanation, Override, Request, Selector, Table, Task, Verdict, World,
};
use warpway::{Config, Environment};

use super::Arguments;

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<u8> {
    let selector = selector(arguments)?;
    let (n, hosts) = (arguments.n_ranks, arguments.hosts);
    anyhow::ensure!(n.is_multiple_of(hosts), "{n} ranks cannot be spread evenly over {hosts} hosts");
    let world = World::of_hosts(&vec![n / hosts; hosts as usize]);
    let sizes = match arguments.bytes.is_empty() {
        true => arguments.sizes(n),
        false => arguments.bytes.clone(),
    };
    let mut documents = Vec::new();
    for function in arguments.functions() {
        for in_place in arguments.places() {
            for bytes in &sizes {
                let task = Task {
                    root: if function.is_rooted() { arguments.root } else { 0 },
                    reduce_op: arguments.op,
                    in_place,
                    ..Task::new(function, world.clone())
                };
                let request = Request {
                    data_type: arguments.data_type,
                    room: arguments.room,
                    algorithm: arguments.algorithm.as_deref(),
                    ..Request::new(task, *bytes)
                };
                match selector.explain(&request) {
                    Ok(explanation) if arguments.json => documents.push(document(&explanation)),
                    Ok(explanation) => println!("{explanation}"),
                    // Some functions cannot be done in place: that is no mistake where nobody asked for it.
                    Err(why) if !arguments.in_place && in_place => {
                        if !arguments.json {
                            println!("{function} of {bytes} bytes in place: {why}\n");
                        }
                    }
                    Err(why) => return Err(why.into()),
                }
            }
        }
    }
    if arguments.json {
        println!("{}", serde_json::to_string_pretty(&documents)?);
    }
    Ok(0)
}

/// What a program would use, but for the table, which has to be named.
fn selector(arguments: &Arguments) -> anyhow::Result<Selector> {
    let config = Config::read(&Environment::of_process()?)?.config;
    let mut selector = Selector::new();
    if let Some(text) = &config.algorithm {
        let overrides = Override::parse_list(text).context("WARPWAY_ALGORITHM")?;
        selector = selector.with_overrides("WARPWAY_ALGORITHM", overrides);
    }
    if let Some(path) = &arguments.table {
        let place = path.display().to_string();
        let text = fs::read_to_string(path).with_context(|| place.clone())?;
        selector = selector.with_table(&place, Table::from_json(&text).with_context(|| place.clone())?);
    }
    Ok(selector)
}

fn document(explanation: &Explanation) -> Value {
    let task = &explanation.task;
    let candidate = |Candidate { name, summary, verdict }: &Candidate| {
        let kind = match verdict {
            Verdict::Taken(_) => "taken",
            Verdict::Weaker(_) => "possible",
            Verdict::OtherSize(..) => "other sizes",
            _ => "does not fit",
        };
        json!({ "algorithm": name, "summary": summary, "verdict": kind, "why": verdict.to_string() })
    };
    json!({
        "function": task.function.name(),
        "bytes": explanation.bytes,
        "data_type": explanation.data_type.name(),
        "reduce_op": task.function.reduces().then(|| task.reduce_op.to_string()),
        "root": task.function.is_rooted().then_some(task.root),
        "in_place": task.in_place,
        "ranks_per_host": task.world.hosts().iter().map(Vec::len).collect::<Vec<_>>(),
        "algorithm": explanation.taken(),
        "blocks": task.n_blocks,
        "min_bytes": explanation.min_bytes,
        "max_bytes": explanation.max_bytes,
        "candidates": explanation.candidates.iter().map(candidate).collect::<Vec<_>>(),
    })
}
