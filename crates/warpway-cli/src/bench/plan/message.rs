//! The buffers of one rank for one message size.

use anyhow::{Context as _, ensure};
use warpway::plan::{BufferKind, Geometry, LayoutRequest, MessageSizes, Plan};
use warpway::{Buffer, Communicator, DataType, PacketFormat, PlanLaunch};

use super::goal::Goal;

/// Input and output in one buffer: apart, or in each other as the plan wants them.
pub(super) struct Message {
    rank: u32,
    bytes: u64,
    data: Buffer<u8>,
    input: Range,
    output: Range,
    /// Where the result is.
    result: Range,
    data_type: DataType,
    packets: PacketFormat,
}

#[derive(Debug, Clone, Copy)]
struct Range {
    start: u64,
    bytes: u64,
}

impl Message {
    pub(super) fn new(
        comm: &Communicator,
        plan: &Plan,
        wanted: u64,
        (data_type, packets): (DataType, PacketFormat),
    ) -> anyhow::Result<Self> {
        let (rank, geometry) = (comm.rank(), Geometry::new(plan));
        let buffers = [BufferKind::Input, BufferKind::Output];
        let chunks = |rank| buffers.map(|buffer| geometry.chunks(rank, buffer)).into_iter().max();
        let most = (0..plan.n_ranks()).filter_map(chunks).max().filter(|most| *most > 0);
        let most = most.with_context(|| format!("{}: no rank has an input or output", plan.name))?;
        // A power of two, at least an element and a packet's data.
        let unit = plan.buffer_alignment.max(data_type.bytes()).max(packets.payload());
        let chunk = wanted.div_ceil(most).checked_next_multiple_of(unit).context("the size is too large")?;
        let request = LayoutRequest {
            sizes: MessageSizes::Chunk(chunk),
            element_size: data_type.bytes(),
            packet_payload: packets.payload(),
        };
        let layout = geometry.layout(&request)?;
        let [input_bytes, output_bytes] = buffers.map(|buffer| layout.buffer_bytes(rank, buffer));
        let bytes =
            chunk.checked_mul(most).filter(|bytes| *bytes > 0).context("the size is 0 or too large")?;
        let (input, output) = match layout.alias(rank) {
            Some(alias) => {
                (alias.output.saturating_sub(alias.input), alias.input.saturating_sub(alias.output))
            }
            // Plans in place may name one of the two only.
            None if plan.in_place => (0, 0),
            None => (0, input_bytes.next_multiple_of(64)),
        };
        let input = Range { start: input, bytes: input_bytes };
        let output = Range { start: output, bytes: output_bytes };
        let end = |range: Range| range.start.checked_add(range.bytes);
        let len = end(input).max(end(output)).context("the size is too large")?;
        ensure!(len > 0 || plan.n_ranks() > 1, "{}: rank {rank} has no buffers", plan.name);
        let result = if plan.in_place && output_bytes == 0 { input } else { output };
        let data = comm.alloc(len)?;
        Ok(Self { rank, bytes, data, input, output, result, data_type, packets })
    }

    /// Of the larger buffer of the rank that has most.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn launch(&self) -> PlanLaunch<'_> {
        let view = |range: Range| self.data.view_of(range.start, range.bytes);
        PlanLaunch::new(view(self.input), view(self.output), self.data_type).with_packets(self.packets)
    }

    /// A round's input, and bytes that are right nowhere in the rest.
    pub(super) fn prepare(&self, goal: &Goal, round: u64) -> warpway::Result<()> {
        let wrong = goal.expect(self.rank, round, self.result.bytes);
        let mut bytes = vec![0xa5; self.data.len() as usize];
        if let Some(wrong) = wrong {
            let start = self.result.start as usize;
            for (byte, right) in bytes[start..].iter_mut().zip(&wrong.of(0)) {
                *byte = !right;
            }
        }
        // A plan in place that has no input of its own finds it in its output.
        let input = if self.input.bytes == 0 { self.output } else { self.input };
        let given = goal.input(self.rank, round, input.bytes);
        let start = input.start as usize;
        bytes[start..start + given.len()].copy_from_slice(&given);
        self.data.write(0, &bytes)?;
        Ok(())
    }

    /// Elements of the result that are not what they must be.
    pub(super) fn wrong(&self, goal: &Goal, round: u64) -> warpway::Result<u64> {
        let Some(expected) = goal.expect(self.rank, round, self.result.bytes) else { return Ok(0) };
        let mut found = vec![0; self.result.bytes as usize];
        self.data.read(self.result.start, &mut found)?;
        let size = self.data_type.bytes() as usize;
        let wrong = |right: &[u8]| {
            let elements = found.chunks(size).zip(right.chunks(size));
            elements.filter(|(found, right)| found != right).count() as u64
        };
        Ok((0..expected.choices()).map(|choice| wrong(&expected.of(choice))).min().unwrap_or(0))
    }
}
