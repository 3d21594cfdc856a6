//! Plans of a communicator.

use warpway_core::Result;
use warpway_host::{BufferView, ExecutorConfig, PlanExecutor, PrepareOptions, PreparedPlan};
use warpway_plan::verify::VerifiedPlan;
use warpway_plan::{Plan, Repairs};

use crate::buffer::Buffer;
use crate::communicator::Communicator;

impl Communicator {
    /// Sets up a plan that has been verified. All ranks call it, with the same plans in the same order.
    ///
    /// # Errors
    /// `plan.disagreement`, on all ranks, if their plans differ; `plan.refused` for a plan that cannot run on this
    /// communicator.
    pub fn prepare(&self, plan: &VerifiedPlan) -> Result<PreparedPlan> {
        self.executor()?.prepare(plan)
    }

    /// The same for a plan without a proof, with repairs of the caller's choice. What it computes, and whether it
    /// ends before its waits give up, is the caller's concern; it touches no memory but its buffers.
    ///
    /// # Errors
    /// As [`prepare`](Self::prepare).
    pub fn prepare_unverified(&self, plan: &Plan, repairs: &Repairs) -> Result<PreparedPlan> {
        self.executor()?.prepare_unverified(plan, repairs)
    }

    /// [`prepare`](Self::prepare) with options, which all ranks have in common.
    ///
    /// # Errors
    /// As [`prepare`](Self::prepare).
    pub fn prepare_with(&self, plan: &VerifiedPlan, options: PrepareOptions) -> Result<PreparedPlan> {
        self.executor()?.prepare_with(plan, options)
    }

    /// [`prepare_unverified`](Self::prepare_unverified) with options, which all ranks have in common.
    ///
    /// # Errors
    /// As [`prepare`](Self::prepare).
    pub fn prepare_unverified_with(
        &self,
        plan: &Plan,
        repairs: &Repairs,
        options: PrepareOptions,
    ) -> Result<PreparedPlan> {
        self.executor()?.prepare_unverified_with(plan, repairs, options)
    }

    /// What runs this communicator's plans; made by all ranks together when they set up the first.
    pub(crate) fn executor(&self) -> Result<PlanExecutor> {
        self.executor_or_else(|launcher| {
            let config = ExecutorConfig {
                device_timeout: self.device_timeout(),
                setup_timeout: self.config().setup_timeout,
                fifo_size: self.config().fifo_size,
            };
            PlanExecutor::new(self.core().clone(), launcher.clone(), config)
        })
    }
}

/// All of it.
impl<'a, T> From<&'a Buffer<T>> for BufferView<'a> {
    fn from(buffer: &'a Buffer<T>) -> Self {
        buffer.view()
    }
}

impl<T> Buffer<T> {
    /// All of it, for the launch of a plan.
    pub fn view(&self) -> BufferView<'_> {
        BufferView::new(self.memory(), 0, self.memory().size())
    }

    /// `len` elements from element `first` on; checked at the launch.
    pub fn view_of(&self, first: u64, len: u64) -> BufferView<'_> {
        let size = size_of::<T>() as u64;
        BufferView::new(self.memory(), first.saturating_mul(size), len.saturating_mul(size))
    }
}
