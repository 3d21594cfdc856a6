//! For which sizes the proof holds, and the concrete sizes that the user asks for (V209, V212, V215).
//!
//! One run stands for all sizes where nothing but the number of equal iterations depends on the size. That is not so
//! where pipelines exchange signals with different slices; then exactly the sizes that were run are claimed.

use std::collections::BTreeSet;

use super::findings::Findings;
use super::geometry::reused_chunk;
use super::options::{Options, Target};
use super::report::{Diagnostic, Place, Sizes};
use super::scale::Scale;
use super::slack::{Slack, slack};
use super::walk::sites;
use crate::ir::{Action, BufferKind, Collective, Form, Pipeline, Plan, Reference};
use crate::layout::{Geometry, LayoutError, LayoutRequest, MessageLayout, MessageSizes, Pieces, Placement};
use crate::topology::Topology;

/// Steps of pipelines beyond this are not run to cover how far they can run ahead of each other.
pub(super) const MOST_STEPS: u64 = 1 << 18;

/// The runs of a plan, and what they prove.
#[derive(Debug)]
pub(super) struct Coverage {
    pub(super) scales: Vec<Scale>,
    pub(super) sizes: Sizes,
}

/// Chooses the chunk sizes for which the plan is run, and checks the concrete ones.
pub(super) fn coverage(topology: &Topology<'_>, options: &Options<'_>, findings: &mut Findings) -> Coverage {
    let plan = topology.plan();
    let chunks = concrete(topology, options, findings);
    let largest = pipelines(plan).map(|pipeline| pipeline.unit_size).max();
    let Slack { iterations: ahead, is_steady } = slack(topology);
    let mut multiples: BTreeSet<u64> =
        options.chunk_units.iter().copied().filter(|units| *units > 0).collect();
    if multiples.is_empty() {
        multiples.extend([1, 2, 3]);
        let longest = ahead.saturating_add(1);
        multiples.extend((longest > 3 && pipeline_steps(plan, longest) <= MOST_STEPS).then_some(longest));
    }
    // The first iteration, one in the middle, the last; and all that one pipeline can be ahead of another.
    let enough = (1..=3).all(|units| multiples.contains(&units)) && multiples.last() > Some(&ahead);
    let one_for_all = enough && is_steady && is_uniform(plan);
    let mut scales = Vec::new();
    let from_units = multiples.iter().map(|multiple| Scale::new(plan, *multiple));
    // Not where one run stands for all. Empty chunks move nothing, and pipelines over them run no iteration.
    let own = chunks.iter().filter(|bytes| !one_for_all && **bytes > 0);
    let from_bytes = own.map(|bytes| Scale::of_chunk(plan, *bytes));
    let short = if one_for_all && ahead > 0 { few_iterations(plan) } else { Vec::new() };
    let from_few = short.into_iter().map(|bytes| Scale::of_chunk(plan, bytes));
    for scale in from_units.chain(from_bytes).chain(from_few) {
        match scale {
            // Without pipelines all sizes look alike.
            Some(scale) if !scales.contains(&scale) => scales.push(scale),
            Some(_) => {}
            None => {
                let message = "positions in a chunk cannot be counted in 64 bits for these slices and groups";
                findings.push(Diagnostic::warning(409, message));
            }
        }
    }
    let sizes = match largest {
        Some(largest) if !one_for_all => {
            let run = multiples.iter().filter_map(|multiple| multiple.checked_mul(largest));
            let all: BTreeSet<u64> = run.chain(chunks).collect();
            Sizes::ChunkBytes(all.into_iter().collect())
        }
        // Slices of larger chunks share scratch, which was not run.
        Some(_) if plan.reuse_resources => reused_chunk(plan).map_or(Sizes::Any, Sizes::ChunkBytesUpTo),
        _ => Sizes::Any,
    };
    Coverage { scales, sizes }
}

fn pipelines(plan: &Plan) -> impl Iterator<Item = &Pipeline> {
    plan.operations().filter_map(|(_, _, operation)| match &operation.action {
        Action::Pipeline(pipeline) => Some(&**pipeline),
        _ => None,
    })
}

/// True if a pipeline waits for something or gives something.
fn synchronises(pipeline: &Pipeline) -> bool {
    pipeline.body.iter().any(|operation| match &operation.action {
        Action::Signal { .. } | Action::Wait { .. } | Action::Barrier { .. } => true,
        Action::Acquire { .. } | Action::Release { .. } => true,
        Action::Data(data) => data.kind.signals() || data.kind.uses_packets(),
        Action::Nop | Action::Flush { .. } | Action::Pipeline(_) => false,
    })
}

/// True if all pipelines that wait for something or give something have the same slices.
fn is_uniform(plan: &Plan) -> bool {
    let synchronising = pipelines(plan).filter(|pipeline| synchronises(pipeline));
    let mut shapes = synchronising.map(|p| (p.unit_size, p.num_chunks, p.size_id));
    let first = shapes.next();
    shapes.all(|shape| Some(shape) == first)
}

/// Steps of all pipelines if chunks are `multiple` times the largest slice.
pub(super) fn pipeline_steps(plan: &Plan, multiple: u64) -> u64 {
    let largest = pipelines(plan).map(|pipeline| pipeline.unit_size).max().unwrap_or(0);
    pipelines(plan).fold(0, |all: u64, pipeline| {
        let bytes = largest.saturating_mul(multiple).saturating_mul(pipeline.num_chunks);
        let iterations = bytes.checked_div(pipeline.unit_size).unwrap_or(u64::MAX);
        all.saturating_add(iterations.saturating_mul(pipeline.body.len() as u64))
    })
}

/// Bytes of chunks smaller than a slice, for which a pipeline over several chunks runs one to three iterations: fewer
/// than one for each chunk. For plans whose synchronising pipelines are alike.
fn few_iterations(plan: &Plan) -> Vec<u64> {
    let alike = pipelines(plan).find(|pipeline| synchronises(pipeline));
    let Some(Pipeline { unit_size, num_chunks: num_chunks @ 2.., .. }) = alike else { return Vec::new() };
    let bytes = (1..=3).filter_map(|n| unit_size.checked_mul(n)?.checked_div(*num_chunks));
    bytes.filter(|bytes| *bytes > 0).collect()
}

/// Checks the sizes of the options; the bytes of a chunk for each that the plan takes.
fn concrete(topology: &Topology<'_>, options: &Options<'_>, findings: &mut Findings) -> Vec<u64> {
    let plan = topology.plan();
    if options.sizes.is_empty() || plan.ranks.iter().any(|rank| rank.size_ids.is_some()) {
        return Vec::new();
    }
    let geometry = Geometry::new(plan);
    let mut chunks = BTreeSet::new();
    for &bytes in &options.sizes {
        let mut agreed = None;
        for rank in 0..plan.n_ranks() {
            let (input_bytes, output_bytes) = buffer_bytes(plan, rank, bytes);
            let request = LayoutRequest {
                sizes: MessageSizes::Message { rank, input_bytes, output_bytes },
                element_size: 1,
                packet_payload: 8,
            };
            let idle = plan.ranks[rank as usize].blocks.iter().all(|block| block.operations.is_empty());
            match geometry.layout(&request) {
                Ok(layout) => {
                    let chunk = *agreed.get_or_insert(layout.chunk_bytes());
                    if chunk != layout.chunk_bytes() {
                        let message = format!(
                            "a message of {bytes} bytes gives chunks of {} bytes, on another rank of {chunk}",
                            layout.chunk_bytes()
                        );
                        findings.push(Diagnostic::error(209, message).at(Place::rank(rank)));
                        continue;
                    }
                    chunks.insert(chunk);
                    extents(topology, &layout, (rank, bytes), findings);
                    if options.target == Target::Mscclpp && options.checks(8) {
                        narrow(plan, &layout, (rank, bytes), findings);
                    }
                }
                Err(_) if idle => {}
                Err(error) => {
                    let message = format!("a message of {bytes} bytes: {error}");
                    findings.push(Diagnostic::error(rule_of(&error), message).at(Place::rank(rank)));
                }
            }
        }
    }
    chunks.into_iter().collect()
}

fn rule_of(error: &LayoutError) -> u16 {
    match error {
        LayoutError::Reused { .. } => 212,
        LayoutError::Overflow | LayoutError::Reference { .. } => 215,
        _ => 209,
    }
}

/// Input and output bytes of a rank for a checked size.
fn buffer_bytes(plan: &Plan, rank: u32, bytes: u64) -> (u64, u64) {
    let n = u64::from(plan.n_ranks()).max(1);
    let of_rank = &plan.ranks[rank as usize];
    match plan.collective {
        Collective::AllReduce | Collective::AllToAll | Collective::SendRecv => (bytes, bytes),
        Collective::Broadcast | Collective::Reduce => (bytes, bytes),
        Collective::AllGather => (bytes / n, bytes),
        Collective::Gather => (bytes, bytes.saturating_mul(n)),
        Collective::ReduceScatter | Collective::Scatter => (bytes, bytes / n),
        Collective::Test | Collective::Custom => {
            let chunk = bytes.checked_div(of_rank.input_chunks).unwrap_or(bytes);
            (bytes, chunk.saturating_mul(of_rank.output_chunks))
        }
    }
}

/// V215, and slices that cut units (V209), for the operations of one rank.
fn extents(
    topology: &Topology<'_>,
    layout: &MessageLayout,
    (rank, bytes): (u32, u64),
    findings: &mut Findings,
) {
    let mut pieces = Pieces::default();
    let mut placements = Vec::new();
    for site in sites(topology.plan()).filter(|site| site.rank == rank) {
        let result = match site.action {
            Action::Pipeline(pipeline) => layout.iterations(pipeline).map(|_| ()),
            Action::Data(data) => data.items().try_for_each(|item| {
                placements.clear();
                let sources = item.sources.iter().zip(item.first.0..);
                placements.extend(
                    sources.filter_map(|(r, at)| placement(topology, &site, data, r, data.source_form(at))),
                );
                let destinations = item.destinations.iter().zip(item.first.1..);
                placements
                    .extend(destinations.filter_map(|(r, at)| {
                        placement(topology, &site, data, r, data.destination_form(at))
                    }));
                layout.place(&placements, data.group, site.pipeline.map(|p| p.unit_size), &mut pieces)
            }),
            _ => Ok(()),
        };
        if let Err(error) = result {
            let message = format!("a message of {bytes} bytes: {error}");
            findings.push(Diagnostic::error(rule_of(&error), message).at(site.place()));
        }
    }
}

/// V806, V807: what MSCCL++ cuts to 32 and 16 bits.
fn narrow(plan: &Plan, layout: &MessageLayout, (rank, bytes): (u32, u64), findings: &mut Findings) {
    const BUFFER: u64 = 1 << 32;
    const ITERATIONS: u64 = 65_535;
    let area = layout.area(rank);
    let halves = if plan.double_scratch { 2 } else { 1 };
    let found = [
        (BufferKind::Input, layout.buffer_bytes(rank, BufferKind::Input)),
        (BufferKind::Output, layout.buffer_bytes(rank, BufferKind::Output)),
        (BufferKind::Scratch, area.raw.max(area.packets).saturating_mul(halves)),
    ];
    for (buffer, found) in found.into_iter().filter(|(_, found)| *found >= BUFFER) {
        let message = format!(
            "a message of {bytes} bytes: buffer {buffer} has {found} bytes, MSCCL++ takes less than {BUFFER}"
        );
        findings.push(Diagnostic::error(806, message).at(Place::rank(rank)));
    }
    for site in sites(plan).filter(|site| site.rank == rank) {
        let Action::Pipeline(pipeline) = site.action else { continue };
        let iterations = layout.iterations(pipeline).unwrap_or(0);
        if iterations > ITERATIONS {
            let message = format!(
                "a message of {bytes} bytes: {iterations} iterations of a pipeline, MSCCL++ takes {ITERATIONS}"
            );
            findings.push(Diagnostic::error(807, message).at(site.place()));
        }
    }
}

fn placement(
    topology: &Topology<'_>,
    site: &super::walk::Site<'_>,
    data: &crate::ir::DataOperation,
    reference: &Reference,
    form: Form,
) -> Option<Placement> {
    use crate::ir::ChannelType;
    let (rank, buffer): (u32, BufferKind) = match *reference {
        Reference::Local { buffer, .. } => (site.rank, buffer),
        Reference::Remote { position, .. } => {
            let access = data.channel_type.unwrap_or(ChannelType::Memory);
            let target = topology.remote_at(site.rank, site.of_block, access, position)?;
            (target.rank, target.buffer)
        }
        Reference::Switch { position, .. } => {
            let channel = topology.switch_at(site.rank, site.of_block, position)?;
            (*channel.group.ranks.first()?, channel.buffer)
        }
    };
    Some(Placement { rank, buffer, index: reference.index(), size: reference.size(), form })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two ranks whose blocks exchange signals in a pipeline, and the same once more without signals.
    fn piped(unit_size: u64, num_chunks: u64) -> Plan {
        let rank = |own: u32| {
            let pipeline = |unit: u64, chunks: u64, body: &str| {
                format!(
                    r#"{{"name":"pipeline","iter_context":{{"unit_size":{unit},"num_chunks":{chunks}}},"ops":[{body}]}}"#
                )
            };
            let pair = r#"{"name":"signal","channel_ids":[0],"channel_type":"memory"},
                {"name":"wait","channel_ids":[0],"channel_type":"memory"}"#;
            let (silent, loud) =
                (pipeline(1 << 20, 1, r#"{"name":"nop"}"#), pipeline(unit_size, num_chunks, pair));
            format!(
                r#"{{"id":{own},"input_chunks":{num_chunks},"output_chunks":{num_chunks},"scratch_chunks":0,
                "threadblocks":[{{"id":0,"ops":[{silent},{loud}],"remote_buffer_refs":[],
                "channels":[{{"channel_type":"memory","channel_ids":[0]}}]}}],
                "channels":[{{"channel_type":"memory","connected_to":[{}]}}],"remote_buffers":[],"semaphores":[]}}"#,
                1 - own
            )
        };
        let json = format!(
            r#"{{"name":"piped","collective":"test","protocol":"Simple","inplace":false,"gpus":[{},{}]}}"#,
            rank(0),
            rank(1)
        );
        Plan::from_json(json.as_bytes()).unwrap_or_else(|error| panic!("{error}")).plan
    }

    #[test]
    fn chunks_below_a_slice_give_one_to_three_iterations() {
        // ceil(4 chunks of 12, 24, 36 bytes / 48) = 1, 2, 3.
        assert_eq!(few_iterations(&piped(48, 4)), [12, 24, 36]);
        // Divisions that do not come out even; never an iteration more.
        assert_eq!(few_iterations(&piped(100, 7)), [14, 28, 42]);
        for (n, bytes) in (1..).zip(few_iterations(&piped(100, 7))) {
            assert_eq!((bytes * 7).div_ceil(100), n);
        }
        assert_eq!(few_iterations(&piped(8, 5)), [1, 3, 4]);
        // Chunks of less than a byte there are none.
        assert_eq!(few_iterations(&piped(2, 4)), [1, 1]);
        assert_eq!(few_iterations(&piped(1, 4)), [0; 0]);
        // An iteration for each chunk at least.
        assert_eq!(few_iterations(&piped(48, 1)), [0; 0]);
        assert_eq!(few_iterations(&piped(u64::MAX, 2)), [u64::MAX / 2]);
    }
}
