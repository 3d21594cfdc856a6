//! `warpway plan show`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::ensure;
use clap::Args;
use serde::Serialize;
use warpway_plan::verify::OpPath;
use warpway_plan::{Action, ChannelEntry, Notation, Operation, Plan, RankPlan};

use super::{File, print, print_json};

/// Show what a plan contains
#[derive(Args)]
#[command(after_long_help = "\
In the list of operations `i`, `o` and `s` are the input, output and scratch of the rank itself
unless another is named, and `[2..4]` the chunks 2 and 3. `rank 1#1` is the second channel to
rank 1.

Exit code: 0, or 3 if the file is no plan.")]
pub(super) struct Arguments {
    #[command(flatten)]
    file: File,
    /// List the operations of this rank
    #[arg(long)]
    rank: Option<u32>,
    /// Only those of this block of the rank; needs --rank
    #[arg(long, requires = "rank")]
    block: Option<u32>,
    /// Print the summary as one JSON object
    #[arg(long, conflicts_with = "rank")]
    json: bool,
}

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<u8> {
    let plan = arguments.file.plan()?;
    match arguments.rank {
        Some(rank) => print(&listing(&plan, rank, arguments.block)?)?,
        None if arguments.json => print_json(&Summary::of(&plan))?,
        None => print(&Summary::of(&plan).text())?,
    }
    Ok(0)
}

/// The form of `--json`.
#[derive(Serialize)]
struct Summary<'p> {
    name: &'p str,
    identity: String,
    collective: &'static str,
    protocol: &'static str,
    in_place: bool,
    reuse_resources: bool,
    double_scratch: bool,
    threads_per_block: u32,
    buffer_alignment: u64,
    min_message_size: u64,
    max_message_size: u64,
    extensions: Vec<&'static str>,
    /// By name; those within pipelines count once.
    operations: BTreeMap<&'static str, u64>,
    ranks: Vec<RankSummary>,
}

#[derive(Serialize, PartialEq, Eq)]
struct RankSummary {
    blocks: usize,
    operations: u64,
    input_chunks: u64,
    output_chunks: u64,
    scratch_chunks: u64,
    memory_channels: usize,
    port_channels: usize,
    switch_channels: usize,
    remote_buffers: usize,
    semaphores: usize,
}

impl RankSummary {
    fn of(rank: &RankPlan) -> Self {
        let (mut memory, mut port, mut switch) = (0, 0, 0);
        for entry in &rank.channels {
            match entry {
                ChannelEntry::Memory(peers) => memory += peers.len(),
                ChannelEntry::Port(peers) => port += peers.len(),
                ChannelEntry::Switch { groups, .. } => switch += groups.len(),
            }
        }
        let operations = rank.blocks.iter().flat_map(|block| &block.operations);
        Self {
            blocks: rank.blocks.len(),
            operations: operations.map(|operation| 1 + body(operation).len() as u64).sum(),
            input_chunks: rank.input_chunks,
            output_chunks: rank.output_chunks,
            scratch_chunks: rank.scratch_chunks,
            memory_channels: memory,
            port_channels: port,
            switch_channels: switch,
            remote_buffers: rank.remote_buffers.len(),
            semaphores: rank.semaphores.len(),
        }
    }
}

impl<'p> Summary<'p> {
    fn of(plan: &'p Plan) -> Self {
        let mut operations = BTreeMap::new();
        for (_, _, operation) in plan.operations() {
            *operations.entry(operation.action.name()).or_default() += 1;
        }
        Self {
            name: &plan.name,
            identity: plan.identity().to_string(),
            collective: plan.collective.name(),
            protocol: plan.protocol.name(),
            in_place: plan.in_place,
            reuse_resources: plan.reuse_resources,
            double_scratch: plan.double_scratch,
            threads_per_block: plan.threads_per_block,
            buffer_alignment: plan.buffer_alignment,
            min_message_size: plan.min_message_size,
            max_message_size: plan.max_message_size,
            extensions: plan.extensions.iter().map(|extension| extension.name()).collect(),
            operations,
            ranks: plan.ranks.iter().map(RankSummary::of).collect(),
        }
    }

    fn text(&self) -> String {
        let mut text = String::new();
        // Writing into a string does not fail.
        let mut line = |name: &str, value: String| {
            let _ = writeln!(text, "{name:<11} {value}");
        };
        line("name", self.name.escape_debug().to_string());
        line("identity", self.identity.clone());
        let place = if self.in_place { "in place" } else { "out of place" };
        line(
            "collective",
            format!("{} of {} ranks, {place}, protocol {}", self.collective, self.ranks.len(), self.protocol),
        );
        let greatest = match self.max_message_size {
            u64::MAX => "any size".to_owned(),
            size => size.to_string(),
        };
        line(
            "bytes",
            format!("{} to {greatest}, alignment {}", self.min_message_size, self.buffer_alignment),
        );
        line("threads", format!("{} per block", self.threads_per_block));
        let scratch =
            [(self.double_scratch, "double buffering"), (self.reuse_resources, "shared by all calls")];
        let scratch: Vec<&str> = scratch.iter().filter(|(set, _)| *set).map(|(_, name)| *name).collect();
        line("scratch", if scratch.is_empty() { "plain".to_owned() } else { scratch.join(", ") });
        line(
            "extensions",
            if self.extensions.is_empty() { "none".to_owned() } else { self.extensions.join(", ") },
        );
        let operations: Vec<String> =
            self.operations.iter().map(|(name, count)| format!("{count} {name}")).collect();
        line("operations", operations.join(", "));

        let mut rows = vec![
            [
                "rank",
                "blocks",
                "operations",
                "input",
                "output",
                "scratch",
                "memory",
                "port",
                "switch",
                "remote",
                "semaphores",
            ]
            .map(str::to_owned),
        ];
        let mut first = 0;
        for group in self.ranks.chunk_by(|a, b| a == b) {
            let last = first + group.len() - 1;
            let ranks = if first == last { first.to_string() } else { format!("{first}-{last}") };
            if let [rank, ..] = group {
                rows.push([
                    ranks,
                    rank.blocks.to_string(),
                    rank.operations.to_string(),
                    rank.input_chunks.to_string(),
                    rank.output_chunks.to_string(),
                    rank.scratch_chunks.to_string(),
                    rank.memory_channels.to_string(),
                    rank.port_channels.to_string(),
                    rank.switch_channels.to_string(),
                    rank.remote_buffers.to_string(),
                    rank.semaphores.to_string(),
                ]);
            }
            first = last + 1;
        }
        let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or_default();
        let widths: Vec<usize> = (0..rows[0].len()).map(width).collect();
        text.push_str("\neach of these ranks has (buffers in chunks; channels by type; remote buffers)\n");
        for row in &rows {
            let cells: Vec<String> =
                row.iter().zip(&widths).map(|(cell, width)| format!("{cell:>width$}")).collect();
            let _ = writeln!(text, "{}", cells.join("  "));
        }
        text
    }
}

fn body(operation: &Operation) -> &[Operation] {
    match &operation.action {
        Action::Pipeline(pipeline) => &pipeline.body,
        _ => &[],
    }
}

/// The operations of a rank, by block.
fn listing(plan: &Plan, rank: u32, only: Option<u32>) -> anyhow::Result<String> {
    let Some(rank_plan) = plan.ranks.get(rank as usize) else {
        anyhow::bail!(super::Unreadable(format!("there is no rank {rank}: the plan has {}", plan.n_ranks())));
    };
    let blocks = rank_plan.blocks.len();
    if let Some(block) = only {
        ensure!(
            (block as usize) < blocks,
            super::Unreadable(format!("rank {rank} has no block {block}: it has {blocks}"))
        );
    }
    let notation = Notation::new(plan);
    let mut text = String::new();
    for (number, block) in (0..).zip(&rank_plan.blocks) {
        if only.is_some_and(|only| only != number) {
            continue;
        }
        let count = block.operations.len();
        let operations = if count == 1 { "operation" } else { "operations" };
        let _ = writeln!(text, "rank {rank}, block {number}: {count} {operations}");
        for (index, operation) in (0..).zip(&block.operations) {
            let inner =
                (0..).zip(body(operation)).map(|(inner, o)| (OpPath { index, inner: Some(inner) }, o));
            for (path, operation) in std::iter::once((OpPath { index, inner: None }, operation)).chain(inner)
            {
                let _ = write!(text, "  {:<7} {}", path.to_string(), notation.line(rank, block, operation));
                if let Some(location) = &operation.location {
                    let _ = write!(text, "  # {}:{}", location.file.escape_debug(), location.line);
                }
                text.push('\n');
            }
        }
    }
    Ok(text)
}
