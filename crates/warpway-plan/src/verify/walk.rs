//! Every operation of a plan with its place, pipelines and their bodies.

use super::report::{OpPath, Place};
use crate::ir::{Action, Pipeline, Plan, RankPlan, ThreadBlock};

/// One operation where it stands.
#[derive(Debug, Clone, Copy)]
pub(super) struct Site<'p> {
    pub(super) rank: u32,
    pub(super) of_rank: &'p RankPlan,
    pub(super) block: u32,
    pub(super) of_block: &'p ThreadBlock,
    pub(super) path: OpPath,
    pub(super) action: &'p Action,
    /// The pipeline whose body it is in.
    pub(super) pipeline: Option<&'p Pipeline>,
}

impl Site<'_> {
    pub(super) fn place(&self) -> Place {
        Place::op(self.rank, self.block, self.path)
    }

    /// One item of a data operation.
    pub(super) fn item(&self, item: usize) -> Place {
        Place { item: Some(item as u32), ..self.place() }
    }
}

/// In the order of the file; a pipeline comes before its body.
pub(super) fn sites(plan: &Plan) -> impl Iterator<Item = Site<'_>> {
    (0..).zip(&plan.ranks).flat_map(|(rank, of_rank)| {
        (0..).zip(&of_rank.blocks).flat_map(move |(block, of_block)| {
            (0..).zip(&of_block.operations).flat_map(move |(index, operation)| {
                let (pipeline, body) = match &operation.action {
                    Action::Pipeline(pipeline) => (Some(&**pipeline), pipeline.body.as_slice()),
                    _ => (None, &[][..]),
                };
                let at = move |inner, action, pipeline| {
                    let path = OpPath { index, inner };
                    Site { rank, of_rank, block, of_block, path, action, pipeline }
                };
                let inner = (0..).zip(body).map(move |(inner, o)| at(Some(inner), &o.action, pipeline));
                std::iter::once(at(None, &operation.action, None)).chain(inner)
            })
        })
    })
}
