//! Loops: operations that run slice by slice.

use std::collections::HashMap;
use std::sync::Arc;

use super::error::{BuildError, BuildProblem};
use super::program::Program;
use super::step::{PipelineStep, Step, StepAction};
use crate::ir::Location;

/// A pipeline whose body is being said.
#[derive(Debug, Clone)]
pub(crate) struct OpenPipeline {
    unit_size: u64,
    num_chunks: u64,
    size_id: Option<u64>,
    location: Arc<Location>,
    /// By rank and block, in order of first appearance.
    bodies: Vec<(u32, u32, Vec<Step>)>,
    index: HashMap<(u32, u32), usize>,
}

impl OpenPipeline {
    pub(crate) fn size_id(&self) -> Option<u64> {
        self.size_id
    }

    pub(crate) fn push(&mut self, rank: u32, block: u32, step: Step) {
        let at = *self.index.entry((rank, block)).or_insert_with(|| {
            self.bodies.push((rank, block, Vec::new()));
            self.bodies.len() - 1
        });
        self.bodies[at].2.push(step);
    }
}

impl Program {
    /// The operations of `body` slice by slice, `unit_size` bytes at a time, until `num_chunks` chunks are done.
    /// If `body` fails, none of its operations stays.
    ///
    /// # Errors
    /// [`BuildProblem::NestedPipeline`], [`BuildProblem::InvalidOption`], and those of `body`.
    #[track_caller]
    pub fn pipeline<T>(
        &mut self,
        unit_size: u64,
        num_chunks: u64,
        body: impl FnOnce(&mut Self) -> Result<T, BuildError>,
    ) -> Result<T, BuildError> {
        self.begin_pipeline(unit_size, num_chunks, None)?;
        self.run_body(body)
    }

    /// [`pipeline`](Self::pipeline) over the one chunk of a size id, in a sized program.
    ///
    /// # Errors
    /// As those of [`pipeline`](Self::pipeline).
    #[track_caller]
    pub fn sized_pipeline<T>(
        &mut self,
        unit_size: u64,
        size_id: u64,
        body: impl FnOnce(&mut Self) -> Result<T, BuildError>,
    ) -> Result<T, BuildError> {
        self.begin_pipeline(unit_size, 1, Some(size_id))?;
        self.run_body(body)
    }

    #[track_caller]
    fn run_body<T>(
        &mut self,
        body: impl FnOnce(&mut Self) -> Result<T, BuildError>,
    ) -> Result<T, BuildError> {
        match body(self) {
            Ok(value) => self.end_pipeline().map(|()| value),
            Err(error) => {
                self.discard_pipeline();
                Err(error)
            }
        }
    }

    /// Starts a pipeline; what follows is its body. For languages whose blocks are no closures.
    ///
    /// # Errors
    /// [`BuildProblem::NestedPipeline`]; [`BuildProblem::InvalidOption`] if `unit_size` is zero;
    /// [`BuildProblem::PipelineSizeId`] unless exactly sized programs give a size id, and one chunk.
    #[track_caller]
    pub fn begin_pipeline(
        &mut self,
        unit_size: u64,
        num_chunks: u64,
        size_id: Option<u64>,
    ) -> Result<(), BuildError> {
        let at = self.context("pipeline", 0, None);
        at.require(self.open.is_none(), || BuildProblem::NestedPipeline)?;
        at.require(unit_size > 0, || BuildProblem::InvalidOption {
            option: "unit_size",
            value: 0,
            allowed: "at least 1 byte",
        })?;
        let sized = self.options.shape.is_sized();
        let fits = size_id.is_some() == sized && (!sized || num_chunks == 1);
        at.require(fits, || BuildProblem::PipelineSizeId)?;
        let location = self.location(&at);
        let (bodies, index) = (Vec::new(), HashMap::new());
        self.open = Some(OpenPipeline { unit_size, num_chunks, size_id, location, bodies, index });
        Ok(())
    }

    /// Ends the open pipeline: every block that the body names gets its share of it.
    ///
    /// # Errors
    /// [`BuildProblem::NoPipeline`].
    #[track_caller]
    pub fn end_pipeline(&mut self) -> Result<(), BuildError> {
        let at = self.context("end of pipeline", 0, None);
        let Some(open) = self.open.take() else { return Err(at.error(BuildProblem::NoPipeline)) };
        let OpenPipeline { unit_size, num_chunks, size_id, location, bodies, .. } = open;
        for (rank, block, body) in bodies {
            let pipeline = Box::new(PipelineStep { unit_size, num_chunks, size_id, body });
            let location = Some(Arc::clone(&location));
            self.push(rank, block, Step { action: StepAction::Pipeline(pipeline), location });
        }
        Ok(())
    }

    /// Forgets the open pipeline and its body, if there is one. Channels and remote buffers that the body named
    /// first keep their positions.
    pub fn discard_pipeline(&mut self) {
        self.open = None;
    }
}
