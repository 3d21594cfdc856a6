//! Chunk counts, groups, pipelines, reuse mode (V209, V211 to V217).

use std::collections::BTreeMap;

use super::findings::Findings;
use super::report::{Diagnostic, Place};
use super::walk::{Site, sites};
use crate::ir::{
    Action, BufferKind, ChannelType, Collective, DataKind, DataOperation, Fold, Pipeline, Plan, RankPlan,
    Reference,
};
use crate::layout::REUSED_SCRATCH_BYTES;
use crate::topology::Topology;

/// Everything of this page that needs no concrete size.
pub(super) fn check(topology: &Topology<'_>, findings: &mut Findings) {
    let plan = topology.plan();
    chunk_counts(plan, findings);
    size_tables(plan, findings);
    groups(topology, findings);
    for site in sites(plan) {
        match (site.action, site.pipeline) {
            (Action::Data(data), Some(pipeline)) => leftover(&site, data, pipeline, findings),
            (Action::Pipeline(pipeline), _) => sized_pipeline(plan, &site, pipeline, findings),
            _ => {}
        }
        if let Action::Data(data) = site.action {
            sized_items(topology, &site, data, findings);
            if plan.reuse_resources {
                reuse(topology, &site, data, findings);
            }
        }
    }
}

/// V209: the chunks of a block must be equally many wherever a rank has any.
fn chunk_counts(plan: &Plan, findings: &mut Findings) {
    let n = u64::from(plan.n_ranks());
    let only_synchronises = synchronises_only(plan);
    let mut period: Option<(u32, u64)> = None;
    for (rank, of_rank) in (0..).zip(&plan.ranks) {
        let counts = (of_rank.input_chunks, of_rank.output_chunks);
        let does_something = of_rank.blocks.iter().any(|b| !b.operations.is_empty());
        if counts == (0, 0) && does_something && !only_synchronises {
            let message = "the rank has neither input nor output chunks, so a chunk has no size";
            findings.push(Diagnostic::error(209, message).at(Place::rank(rank)));
        }
        // Blocks that the input and the output hold by the collective.
        let (input, output) = match plan.collective {
            Collective::AllReduce | Collective::SendRecv | Collective::Broadcast | Collective::Reduce => {
                (1, 1)
            }
            Collective::AllGather | Collective::Gather => (1, n),
            Collective::ReduceScatter | Collective::Scatter => (n, 1),
            Collective::AllToAll => (n, n),
            Collective::Test | Collective::Custom => continue,
        };
        for (chunks, blocks, name) in [(counts.0, input, "input"), (counts.1, output, "output")] {
            if chunks == 0 {
                continue;
            }
            let per_block = (chunks % blocks == 0).then_some(chunks / blocks);
            let wrong = match (per_block, period) {
                (None, _) => format!(
                    "{} of {n} ranks needs a whole number of chunks for each of {blocks} blocks, \
                     but the {name} has {chunks}",
                    plan.collective
                ),
                (Some(found), Some((other, expected))) if found != expected => format!(
                    "the {name} has {chunks} chunks, {found} for each block, but rank {other} has {expected}: \
                     the ranks disagree on the size of a chunk"
                ),
                (Some(found), _) => {
                    period.get_or_insert((rank, found));
                    continue;
                }
            };
            findings.push(Diagnostic::error(209, wrong).at(Place::rank(rank)));
        }
    }
}

/// True for a plan without a chunk on any rank, such as a barrier: nothing has a size.
fn synchronises_only(plan: &Plan) -> bool {
    let mut ranks = plan.ranks.iter();
    let has_chunks = ranks.any(|r| [r.input_chunks, r.output_chunks, r.scratch_chunks] != [0; 3]);
    !has_chunks && !plan.operations().any(|(_, _, operation)| matches!(operation.action, Action::Data(_)))
}

/// What the members of a group have in common.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct GroupKey {
    rank: u32,
    size: u32,
    kind: DataKind,
    channel_type: Option<ChannelType>,
    /// Resolved, since each block has lists of its own: owner (or switch channel), buffer, index, size.
    references: Vec<(u32, BufferKind, u64, u64)>,
    sources: usize,
    fold: Option<(crate::ir::ReduceOp, Option<Vec<u32>>)>,
    pipeline: Option<(u64, u64)>,
}

/// V211. A group may do the same thing several times; then every member does.
fn groups(topology: &Topology<'_>, findings: &mut Findings) {
    let mut found: BTreeMap<GroupKey, (Place, BTreeMap<u32, u64>)> = BTreeMap::new();
    for site in sites(topology.plan()) {
        let Action::Data(data) = site.action else { continue };
        let Some(group) = data.group else { continue };
        if group.member >= group.size {
            let message = format!("member {} of a group of {} blocks", group.member, group.size);
            findings.push(Diagnostic::error(211, message).at(site.place()));
            return;
        }
        let references = data.sources.iter().chain(&data.destinations);
        let key = GroupKey {
            rank: site.rank,
            size: group.size,
            kind: data.kind,
            channel_type: data.channel_type,
            references: references.map(|r| resolved(topology, &site, data, r)).collect(),
            sources: data.sources.len(),
            fold: data.fold.as_ref().map(|Fold { op, order }| (*op, order.clone())),
            pipeline: site.pipeline.map(|p| (p.unit_size, p.num_chunks)),
        };
        let (_, members) = found.entry(key).or_insert_with(|| (site.place(), BTreeMap::new()));
        *members.entry(group.member).or_default() += 1;
    }
    for (key, (place, members)) in found {
        let most = members.values().copied().max().unwrap_or(0);
        let missing = (0..key.size).zip(members.keys()).find(|(expected, member)| expected != *member);
        let message = match (members.len() as u64 == u64::from(key.size), missing) {
            (true, _) => match members.iter().find(|(_, count)| **count != most) {
                None => continue,
                Some((member, count)) => format!(
                    "member {member} of a group of {} does this {count} times, another one {most} times",
                    key.size
                ),
            },
            (false, missing) => {
                let member = missing.map_or(members.len() as u32, |(expected, _)| expected);
                format!("no block does the share of member {member} in a group of {}", key.size)
            }
        };
        let hint = "the members of a group together do each of its operations once";
        findings.push(Diagnostic::error(211, message).at(place).hint(hint));
    }
}

fn resolved(
    topology: &Topology<'_>,
    site: &Site<'_>,
    data: &DataOperation,
    reference: &Reference,
) -> (u32, BufferKind, u64, u64) {
    let (owner, buffer) = match *reference {
        Reference::Local { buffer, .. } => (site.rank, buffer),
        Reference::Remote { .. } => {
            remote(topology, site, data, reference).unwrap_or((u32::MAX, BufferKind::Input))
        }
        Reference::Switch { position, .. } => {
            let channel = topology.channel_at(site.of_block, ChannelType::Switch, position);
            (channel.unwrap_or(u32::MAX), BufferKind::Input)
        }
    };
    (owner, buffer, reference.index(), reference.size())
}

fn remote(
    topology: &Topology<'_>,
    site: &Site<'_>,
    data: &DataOperation,
    reference: &Reference,
) -> Option<(u32, BufferKind)> {
    let Reference::Remote { position, .. } = *reference else { return None };
    let access = data.channel_type.unwrap_or(ChannelType::Memory);
    let target = topology.remote_at(site.rank, site.of_block, access, position)?;
    Some((target.rank, target.buffer))
}

/// V214. The share of a group member is what the slices must cover.
fn leftover(site: &Site<'_>, data: &DataOperation, pipeline: &Pipeline, findings: &mut Findings) {
    let size = data.sources.iter().chain(&data.destinations).map(Reference::size).max().unwrap_or(0);
    let members = data.group.map_or(1, |group| u64::from(group.size));
    let covered = pipeline.num_chunks.saturating_mul(members);
    if size > covered && pipeline.size_id.is_none() {
        let message = format!(
            "the pipeline covers {} chunks, but the operation has {size} for {members} blocks",
            pipeline.num_chunks
        );
        let hint = format!("num_chunks of at least {}", size.div_ceil(members.max(1)));
        findings.push(Diagnostic::error(214, message).at(site.place()).hint(hint));
    }
}

/// Cs of reuse mode, for the alignment of the plan alone: larger elements only round it up.
pub(super) fn reused_chunk(plan: &Plan) -> Option<u64> {
    let most = plan.ranks.iter().map(|rank| rank.scratch_chunks).max().filter(|chunks| *chunks > 0)?;
    let half = REUSED_SCRATCH_BYTES / if plan.double_scratch { 2 } else { 1 };
    half.div_ceil(most).checked_next_multiple_of(plan.buffer_alignment.max(1))
}

/// The largest chunk that the plan's size range allows.
fn largest_chunk(plan: &Plan) -> u64 {
    let counted = |rank: &RankPlan| match plan.collective {
        Collective::AllGather => rank.output_chunks,
        _ => rank.input_chunks,
    };
    let chunks = plan.ranks.iter().map(counted).filter(|chunks| *chunks > 0).min().unwrap_or(1);
    plan.max_message_size / chunks
}

/// V212, V213. Plans without an upper limit of sizes are held to theirs when they are launched.
fn reuse(topology: &Topology<'_>, site: &Site<'_>, data: &DataOperation, findings: &mut Findings) {
    let plan = topology.plan();
    let mut scratch = false;
    for reference in data.sources.iter().chain(&data.destinations) {
        let (buffer, distant) = match *reference {
            Reference::Local { buffer, .. } => (Some(buffer), false),
            Reference::Remote { .. } => (remote(topology, site, data, reference).map(|t| t.1), true),
            Reference::Switch { position, .. } => {
                (topology.switch_at(site.rank, site.of_block, position).map(|c| c.buffer), true)
            }
        };
        match buffer {
            Some(BufferKind::Scratch) => scratch = true,
            Some(buffer) if distant => {
                let message = format!("a plan that reuses resources refers to buffer {buffer} of a peer");
                let hint = "go through scratch, or do not reuse resources";
                findings.push(Diagnostic::error(213, message).at(site.place()).hint(hint));
            }
            _ => {}
        }
    }
    let Some(room) = reused_chunk(plan).filter(|_| scratch) else { return };
    match site.pipeline {
        Some(pipeline) if pipeline.unit_size > 0 && room % pipeline.unit_size != 0 => {
            let message = format!(
                "a scratch chunk of {room} bytes is no whole number of slices of {}",
                pipeline.unit_size
            );
            let hint = "choose a unit_size that divides the scratch chunk";
            findings.push(Diagnostic::error(212, message).at(site.place()).hint(hint));
        }
        None if plan.max_message_size < u64::MAX && largest_chunk(plan) > room => {
            let message = format!(
                "chunks of up to {} bytes do not fit scratch chunks of {room}, and the operation is in no pipeline",
                largest_chunk(plan)
            );
            let hint = "use a pipeline, or lower max_message_size";
            findings.push(Diagnostic::error(212, message).at(site.place()).hint(hint));
        }
        _ => {}
    }
}

/// The size id of a chunk.
fn size_id(plan: &Plan, rank: u32, buffer: BufferKind, chunk: u64) -> Option<u64> {
    let ids = plan.ranks.get(rank as usize)?.size_ids.as_ref()?;
    let list = match buffer {
        BufferKind::Input => &ids.input,
        BufferKind::Output => &ids.output,
        BufferKind::Scratch => &ids.scratch,
    };
    list.get(usize::try_from(chunk).ok()?).copied()
}

fn is_sized(plan: &Plan) -> bool {
    plan.ranks.iter().any(|rank| rank.size_ids.is_some())
}

/// V216, and the items of V217.
fn sized_items(topology: &Topology<'_>, site: &Site<'_>, data: &DataOperation, findings: &mut Findings) {
    let plan = topology.plan();
    if !is_sized(plan) {
        return;
    }
    let target = |reference: &Reference| match *reference {
        Reference::Local { buffer, .. } => Some((site.rank, buffer)),
        Reference::Remote { .. } => remote(topology, site, data, reference),
        Reference::Switch { position, .. } => {
            let channel = topology.switch_at(site.rank, site.of_block, position)?;
            Some((*channel.group.ranks.first()?, channel.buffer))
        }
    };
    for item in data.items() {
        let mut references = item.sources.iter().chain(item.destinations);
        let Some(first) = references.next() else { continue };
        for chunk in 0..first.size() {
            let id = |reference: &Reference| {
                let (rank, buffer) = target(reference)?;
                size_id(plan, rank, buffer, reference.index().checked_add(chunk)?)
            };
            let expected = id(first);
            let at = || site.item(item.first.0);
            if expected.is_none() || references.clone().any(|r| id(r) != expected) {
                let message = format!("chunk {chunk} of the item joins chunks that do not have one size id");
                let hint = "sources and destinations of an item have equal ids, chunk by chunk";
                findings.push(Diagnostic::error(216, message).at(at()).hint(hint));
                break;
            }
            let of_pipeline = site.pipeline.map(|pipeline| pipeline.size_id);
            if let Some(Some(named)) = of_pipeline
                && expected != Some(named)
            {
                let message = format!(
                    "the pipeline runs for size id {named}, the item has id {}",
                    expected.unwrap_or_default()
                );
                findings.push(Diagnostic::error(217, message).at(at()));
                break;
            }
        }
    }
}

/// V217. V216 for tables that are too short.
fn sized_pipeline(plan: &Plan, site: &Site<'_>, pipeline: &Pipeline, findings: &mut Findings) {
    let why = match (is_sized(plan), pipeline.size_id) {
        (false, _) => return,
        (true, None) => "a pipeline of a plan with sized chunks names no size_id".to_owned(),
        (true, Some(_)) if pipeline.num_chunks != 1 => {
            format!(
                "a pipeline of a plan with sized chunks has num_chunks {} instead of 1",
                pipeline.num_chunks
            )
        }
        _ => return,
    };
    findings.push(Diagnostic::error(217, why).at(site.place()));
}

/// V216: every chunk of a plan with sized chunks has an id. On the tables, since chunks may be many.
fn size_tables(plan: &Plan, findings: &mut Findings) {
    if !is_sized(plan) {
        return;
    }
    for (rank, of_rank) in (0..).zip(&plan.ranks) {
        let ids = of_rank.size_ids.clone().unwrap_or_default();
        for (buffer, list) in BufferKind::ALL.into_iter().zip([&ids.input, &ids.output, &ids.scratch]) {
            let (found, expected) = (list.len() as u64, of_rank.chunks(buffer));
            if found != expected {
                let message = format!("buffer {buffer} has {expected} chunks, but {found} size ids");
                findings.push(Diagnostic::error(216, message).at(Place::rank(rank)));
            }
        }
    }
}
