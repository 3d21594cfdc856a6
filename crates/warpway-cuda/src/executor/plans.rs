//! How all ranks set a plan up together.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use warpway_core::{Result, Timeout};
use warpway_plan::Topology;
use warpway_plan::verify::VerifiedPlan;

use super::agreement::{agree, all_well};
use super::areas::Areas;
use super::channels::{Channels, Connections, Objects};
use super::check::Checked;
use super::kernels::Kernels;
use super::meeting::{self, Meeting};
use super::plan::{GpuPlan, Prepared};
use super::ready;
use super::setting::GpuPlanSetting;
use crate::context::lock;
use crate::gpu::Gpu;

/// What the plans of a communicator share on this rank's GPU. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct PlansState(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    connections: Connections,
    /// Held while a plan is set up.
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    areas: Areas,
    /// Made for the first plan with scratch.
    meeting: Option<Arc<Meeting>>,
}

/// Sets up plans on the GPUs of a communicator. Cheap to clone; made by [`Gpu::plans`].
///
/// All ranks set up the same plans in the same order, each when it has launched what it launches before.
#[derive(Clone)]
pub struct GpuPlans {
    gpu: Gpu,
    state: PlansState,
    timeout: Timeout,
}

impl GpuPlans {
    pub(crate) fn new(gpu: Gpu, state: &PlansState) -> Self {
        Self { gpu, state: state.clone(), timeout: Timeout::after(Duration::from_secs(60)) }
    }

    /// The same with another limit for setting up a plan; 60 seconds at first.
    pub fn with_timeout(self, timeout: Timeout) -> Self {
        Self { timeout, ..self }
    }

    /// Sets up a plan. Collective; returns on all ranks when all have done so, and each has launched before what the others
    /// have.
    ///
    /// # Errors
    /// `plan.disagreement`, on all ranks, if they do not set up the same, or if one of them cannot; `plan.refused` on that one,
    /// for a plan that does not run on GPUs, `gpu.compile`, `gpu.driver` if memory is exhausted, `gpu.residency` for more blocks
    /// than the device holds.
    pub fn prepare(&self, plan: &VerifiedPlan, setting: GpuPlanSetting) -> Result<GpuPlan> {
        let (gpu, communicator, deadline) = (&self.gpu, self.gpu.communicator(), self.timeout.start());
        let shared = &*self.state.0;
        let mut kept = lock(&shared.kept);
        let name = plan.plan().name.as_str();
        let local = Checked::new(plan, (communicator.rank(), communicator.n_ranks()), setting);
        let (_, checked) = agree(communicator, name, local, deadline)?;
        // All ranks are here, so all kernels launched before come to an end: what follows may wait for them.
        let local = (|| {
            let kernels = Kernels::load(gpu, &checked)?;
            let objects = Objects::new(gpu, plan.plan(), &checked.kernel)?;
            ready::reserve(gpu, &checked)?;
            let meeting = match kept.meeting {
                None if checked.has_areas => Some(meeting::Loaded::new(gpu)?),
                _ => None,
            };
            Ok((kernels, objects, kept.areas.begin(gpu, &checked)?, meeting))
        })();
        let what = (name, "to compile it or to allocate what it needs");
        let (kernels, objects, begun, meeting) = all_well(communicator, what, local, deadline)?;
        let local: Result<_> = (|| {
            let topology = Topology::new(plan.plan());
            let channels = Channels::connect(&shared.connections, gpu, &topology, deadline)?;
            let connect = |loaded: meeting::Loaded| loaded.connect(&shared.connections, gpu, deadline);
            Ok((channels, begun.exchange(communicator, deadline)?, meeting.map(connect).transpose()?))
        })();
        if let Err(error) = &local {
            // The others wait for what this rank has not sent.
            communicator.health().fail_local(
                "plan",
                error.culprit().or(Some(communicator.rank())),
                error.clone(),
            );
        }
        let what = (name, "to connect to its peers");
        let (channels, scratch, meeting) = all_well(communicator, what, local, deadline)?;
        kept.areas.keep(&scratch, &checked);
        if let Some(meeting) = meeting {
            kept.meeting = Some(Arc::new(meeting));
        }
        let keepers = [channels.keepers(), objects.keepers(), scratch.keepers()].concat();
        Ok(GpuPlan::new(
            gpu,
            Prepared {
                checked,
                kernels,
                scratch,
                channels,
                objects,
                meeting: kept.meeting.clone(),
                keepers: Arc::new(keepers),
                sizes: Mutex::default(),
            },
        ))
    }
}

impl fmt::Debug for GpuPlans {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GpuPlans")
            .field("gpu", &self.gpu)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}
