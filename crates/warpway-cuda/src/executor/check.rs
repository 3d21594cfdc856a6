//! What can be said of a plan without the other ranks: whether it runs here, and what it needs.

use warpway_core::execution::ExecutionError;
use warpway_core::{Error, Result};
use warpway_plan::lower::Lowered;
use warpway_plan::verify::{ShareableAreas, Sizes, VerifiedPlan};
use warpway_plan::{
    Action, BufferKind, Form, Geometry, LayoutRequest, MessageLayout, MessageSizes, Operation, Topology,
};

use super::agreement::Identity;
use super::setting::{GpuPlanSetting, MessageBytes};
use crate::plan::PlanKernel;

/// What is known of a plan before anything is set up.
#[derive(Debug)]
pub(super) struct Checked {
    pub(super) name: String,
    pub(super) rank: u32,
    pub(super) setting: GpuPlanSetting,
    pub(super) geometry: Geometry,
    pub(super) kernel: PlanKernel,
    /// Areas of the communicator that it uses; of others that it uses it has its own.
    pub(super) shares: ShareableAreas,
    /// Bytes of one half, by rank: of raw scratch, of packets.
    pub(super) areas: [Vec<u64>; 2],
    /// Some area is used.
    pub(super) has_areas: bool,
    /// Of the largest message; 0 without scratch.
    pub(super) scratch_chunk: u64,
    /// Sizes for which it is proven.
    proven: Option<Sizes>,
    /// Words that a list of pieces has room for.
    pub(super) list_words: usize,
    /// Chunks are divided among blocks or in slices.
    divides_chunks: bool,
}

impl Checked {
    /// Of `rank` of `n_ranks`.
    ///
    /// # Errors
    /// `plan.refused`.
    pub(super) fn new(
        plan: &VerifiedPlan,
        (rank, n_ranks): (u32, u32),
        setting: GpuPlanSetting,
    ) -> Result<(Identity, Self)> {
        let name = plan.plan().name.clone();
        let refused = |why: String| Error::from(ExecutionError::Refused { plan: name.clone(), why });
        let (plan_of, report) = (plan.plan(), plan.report());
        if plan_of.n_ranks() != n_ranks {
            let made = plan_of.n_ranks();
            return Err(refused(format!("it is made for {made} ranks, the communicator has {n_ranks}")));
        }
        let geometry = Geometry::new(plan_of).with_reused_slices(report.reused_slices);
        if geometry.is_sized() {
            return Err(refused(
                "its chunks have sizes of their own, which compiled kernels do not take yet".into(),
            ));
        }
        let largest = setting.largest;
        let kernel = PlanKernel::new(plan, rank, setting.kernel).map_err(|why| refused(why.to_string()))?;
        let foreign =
            |base: &&warpway_plan::lower::Base| base.rank != rank && base.buffer != BufferKind::Scratch;
        if let Some(base) = kernel.bases().iter().find(foreign) {
            let buffer = if base.buffer == BufferKind::Input { "input" } else { "output" };
            return Err(refused(format!(
                "rank {rank} uses the {buffer} of rank {}; on GPUs, peers' buffers cannot be reached yet, so choose a plan \
                 that goes by scratch",
                base.rank
            )));
        }
        let layout = layout(&geometry, rank, setting, largest).map_err(|why| {
            refused(format!("for its largest message, {} and {} bytes: {why}", largest.input, largest.output))
        })?;
        kernel.rows(&layout).map_err(|why| refused(why.to_string()))?;
        let list_words = list_words(&geometry, &kernel, setting);
        let areas = (0..n_ranks).map(|rank| layout.area(rank));
        let areas: [Vec<u64>; 2] =
            [areas.clone().map(|area| area.raw).collect(), areas.map(|area| area.packets).collect()];
        let has_areas = areas.iter().flatten().any(|bytes| *bytes > 0);
        // Without scratch any message will do, and ranks need not have the same in mind.
        let scratch_chunk = if has_areas { layout.scratch_chunk_bytes() } else { 0 };
        // An epoch is advanced by kernels that use it: all of them, or the ranks would come apart.
        let everywhere = everywhere(plan, n_ranks).map_err(refused)?;
        let shareable = report.shareable_areas;
        let shares = ShareableAreas {
            raw: shareable.raw && everywhere[0],
            packets: shareable.packets && everywhere[1],
        };
        let identity = Identity {
            plan: plan.identity().0,
            kernel: setting.kernel,
            scratch_chunk,
            shares: [shares.raw, shares.packets],
        };
        let divides = |operation: &Operation| match &operation.action {
            Action::Pipeline(_) => true,
            Action::Data(data) => data.group.is_some(),
            _ => false,
        };
        let divides_chunks = plan_of.operations().any(|(_, _, operation)| divides(operation));
        let checked = Self {
            name,
            rank,
            setting,
            geometry,
            kernel,
            shares,
            areas,
            has_areas,
            scratch_chunk,
            proven: report.sizes.clone(),
            list_words,
            divides_chunks,
        };
        Ok((identity, checked))
    }

    /// Where the bytes of a message lie.
    pub(super) fn layout(&self, message: MessageBytes) -> Result<MessageLayout, String> {
        layout(&self.geometry, self.rank, self.setting, message)
    }

    /// Positions in the parameter of the addresses of a rank's own buffers of one kind.
    pub(super) fn places_of(&self, buffer: BufferKind) -> Vec<usize> {
        let all = self.kernel.bases().iter().enumerate();
        all.filter(|(_, base)| base.buffer == buffer).map(|(at, _)| self.kernel.base_word(at)).collect()
    }

    /// Bytes of a chunk, if the plan is not proven for chunks of so many.
    pub(super) fn unproven(&self, layout: &MessageLayout) -> Option<u64> {
        let bytes = layout.chunk_bytes();
        self.proven.as_ref().is_some_and(|proven| !proven.admit(bytes)).then_some(bytes)
    }

    /// Whether ranks must meet before they launch this message; the same on all ranks.
    ///
    /// On an area of its own a plan knows what it knows from its launches before. Those may have divided it otherwise, and who
    /// replays graphs is not asked which came last.
    pub(super) fn meets(&self, layout: &MessageLayout) -> bool {
        let used = self.areas.each_ref().map(|parts| parts.iter().any(|bytes| *bytes > 0));
        let own = (used[0] && !self.shares.raw) || (used[1] && !self.shares.packets);
        self.has_areas && (own || self.is_silent(layout))
    }

    /// With this message the plan does not tell ranks what they must know before they write to scratch.
    fn is_silent(&self, layout: &MessageLayout) -> bool {
        // Without any bytes pipelines have no rounds; with some they have as many on all ranks.
        let nothing = layout.chunk_bytes() == 0;
        // Of a chunk that is shorter than others a share or a slice may be empty, and nobody waits for its packets.
        let ragged = layout.block_bytes().is_some();
        let gaps = ragged && (self.divides_chunks || layout.has_empty_chunks());
        nothing || (gaps && self.geometry.uses_packets())
    }
}

fn layout(
    geometry: &Geometry,
    rank: u32,
    setting: GpuPlanSetting,
    message: MessageBytes,
) -> Result<MessageLayout, String> {
    let MessageBytes { input: input_bytes, output: output_bytes } = message;
    let request = LayoutRequest {
        sizes: MessageSizes::Message { rank, input_bytes, output_bytes },
        element_size: setting.kernel.data_type.bytes(),
        packet_payload: setting.kernel.packet.payload(),
    };
    geometry.layout(&request).map_err(|why| why.to_string())
}

/// Room for the list of most messages: the largest, and one that does not divide evenly, have most pieces. A power of two, so that
/// the memory of one list serves that of another plan.
fn list_words(geometry: &Geometry, kernel: &PlanKernel, setting: GpuPlanSetting) -> usize {
    let element = setting.kernel.data_type.bytes();
    let mut most = 1;
    let MessageBytes { input, output } = setting.largest;
    let less = |bytes: u64| bytes.saturating_sub(element);
    for message in [setting.largest, MessageBytes { input: less(input), output: less(output) }] {
        // One less on either side may be no message.
        let layout = layout(geometry, kernel.rank(), setting, message).ok();
        let list = layout.and_then(|layout| kernel.listed_rows(&layout).ok()?.listed);
        most = list.map_or(0, |list| list.len()).max(most);
    }
    most.next_power_of_two()
}

/// Raw, packets: whether the kernels of all ranks touch scratch of that form.
fn everywhere(plan: &VerifiedPlan, n_ranks: u32) -> Result<[bool; 2], String> {
    let topology = Topology::new(plan.plan());
    let mut everywhere = [true; 2];
    for rank in 0..n_ranks {
        let lowered =
            Lowered::new(&topology, rank, &plan.report().fold_roles).map_err(|why| why.to_string())?;
        for (found, form) in everywhere.iter_mut().zip([Form::Raw, Form::Packets]) {
            let of_form =
                |base: &warpway_plan::lower::Base| base.buffer == BufferKind::Scratch && base.form == form;
            *found &= lowered.bases.iter().any(of_form);
        }
    }
    Ok(everywhere)
}
