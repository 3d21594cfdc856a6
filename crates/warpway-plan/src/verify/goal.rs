//! What each collective is to leave in the output of each rank.
//!
//! A goal is a list of blocks of chunks, never of single chunks: plans may count chunks in billions.

use std::ops::Range;

use super::in_place::{View, inputs, outputs};
use super::options::{Goal, GoalFn, Options};
use super::report::{Diagnostic, Place};
use super::values::Contribution;
use crate::ir::{Collective, Plan};

/// What one chunk of a block is to hold, where `x` is its number in the output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Wanted {
    /// Input chunk `x + offset` of a rank.
    Input { rank: u32, offset: u64 },
    /// The fold of input chunk `x + offset` of every rank.
    FoldOfAll { offset: u64 },
    /// The fold of these (only in blocks of one chunk); offsets are relative to `x`.
    Fold(Vec<Contribution>),
}

/// Chunks of an output with one goal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) chunks: Range<u64>,
    pub(super) wanted: Wanted,
}

/// The goal of a plan.
#[derive(Clone, Copy)]
pub(super) struct PlanGoal<'a> {
    plan: &'a Plan,
    root: u32,
    /// Chunks of a block: what one rank contributes or gets, where that is not everything.
    chunks: u64,
    custom: Option<GoalFn<'a>>,
}

/// Chunks of a plan with a goal of its own that are looked at one by one.
const MOST_CUSTOM_CHUNKS: u64 = 1 << 20;

impl<'a> PlanGoal<'a> {
    /// The goal, once the numbers of chunks fit it. `Ok(None)` if the plan has none.
    ///
    /// # Errors
    /// V701 for each rank whose numbers of chunks do not fit; V409 if there are too many of them to look at.
    pub(super) fn new(plan: &'a Plan, options: &Options<'a>) -> Result<Option<Self>, Vec<Diagnostic>> {
        let root = options.root;
        let mut goal = Self { plan, root, chunks: 0, custom: None };
        match plan.collective {
            Collective::Test | Collective::Custom => {
                let Some(custom) = options.goal else { return Ok(None) };
                let chunks = plan.ranks.iter().map(|r| r.output_chunks);
                if chunks.fold(0_u64, u64::saturating_add) > MOST_CUSTOM_CHUNKS {
                    return Err(vec![too_much()]);
                }
                goal.custom = Some(custom);
            }
            Collective::Broadcast | Collective::Reduce | Collective::Gather | Collective::Scatter
                if root >= plan.n_ranks() =>
            {
                let message =
                    format!("the root of this {} is rank {root}, which does not exist", plan.collective);
                return Err(vec![Diagnostic::error(701, message).hint("give the root in the options")]);
            }
            _ => {
                goal.chunks = goal.block_chunks();
                let misfits: Vec<_> = (0..plan.n_ranks()).filter_map(|rank| goal.misfit(rank)).collect();
                if !misfits.is_empty() {
                    return Err(misfits);
                }
            }
        }
        Ok(Some(goal))
    }

    /// By the first rank's numbers, or the root's.
    fn block_chunks(&self) -> u64 {
        let n = u64::from(self.plan.n_ranks().max(1));
        match self.plan.collective {
            Collective::AllToAll => inputs(self.plan, 0).len() / n,
            Collective::ReduceScatter | Collective::Scatter => outputs(self.plan, 0).len(),
            Collective::Broadcast => inputs(self.plan, self.root).len(),
            _ => inputs(self.plan, 0).len(),
        }
    }

    /// V701 if the numbers of chunks of a rank do not fit the collective. `None` in the table: any number.
    fn misfit(&self, rank: u32) -> Option<Diagnostic> {
        let (c, n) = (self.chunks, u64::from(self.plan.n_ranks()));
        let all = c.saturating_mul(n);
        let at_root = rank == self.root;
        let (input, output) = match self.plan.collective {
            Collective::AllReduce | Collective::SendRecv => (Some(c), Some(c)),
            Collective::AllToAll => (Some(all), Some(all)),
            Collective::AllGather => (Some(c), Some(all)),
            Collective::ReduceScatter => (Some(all), Some(c)),
            Collective::Broadcast => (at_root.then_some(c), Some(c)),
            Collective::Reduce => (Some(c), at_root.then_some(c)),
            Collective::Gather => (Some(c), at_root.then_some(all)),
            Collective::Scatter => (at_root.then_some(all), Some(c)),
            Collective::Test | Collective::Custom => (None, None),
        };
        let found = (inputs(self.plan, rank).len(), outputs(self.plan, rank).len());
        if input.is_none_or(|i| i == found.0) && output.is_none_or(|o| o == found.1) {
            return None;
        }
        let collective = self.plan.collective;
        let number = |n: Option<u64>| n.map_or_else(|| "any number of".to_owned(), |n| n.to_string());
        let message = format!(
            "{collective} of {n} ranks takes {} input and {} output chunks here, rank {rank} has {} and {}",
            number(input),
            number(output),
            found.0,
            found.1
        );
        Some(Diagnostic::error(701, message).at(Place::rank(rank)).hint("correct the chunk counts"))
    }

    /// The blocks of the output of a rank. `sender` is the rank whose input it gets in a send-receive.
    pub(super) fn blocks(&self, rank: u32, sender: u32) -> Vec<Block> {
        let (c, r) = (self.chunks, u64::from(rank));
        let whole = |wanted| vec![Block { chunks: 0..c, wanted }];
        let behind = |blocks: u64| blocks.saturating_mul(c);
        let by_rank = |first: u64| {
            let block = |q: u32| {
                let chunks = behind(u64::from(q))..behind(u64::from(q) + 1);
                let offset = first.wrapping_sub(chunks.start);
                Block { chunks, wanted: Wanted::Input { rank: q, offset } }
            };
            (0..self.plan.n_ranks()).map(block).collect()
        };
        let at_root = |blocks: Vec<Block>| if rank == self.root { blocks } else { Vec::new() };
        match self.plan.collective {
            Collective::AllReduce => whole(Wanted::FoldOfAll { offset: 0 }),
            Collective::ReduceScatter => whole(Wanted::FoldOfAll { offset: behind(r) }),
            Collective::Reduce => at_root(whole(Wanted::FoldOfAll { offset: 0 })),
            Collective::AllGather => by_rank(0),
            Collective::Gather => at_root(by_rank(0)),
            Collective::AllToAll => by_rank(behind(r)),
            Collective::SendRecv => whole(Wanted::Input { rank: sender, offset: 0 }),
            Collective::Broadcast => whole(Wanted::Input { rank: self.root, offset: 0 }),
            Collective::Scatter => whole(Wanted::Input { rank: self.root, offset: behind(r) }),
            Collective::Test | Collective::Custom => self.custom_blocks(rank),
        }
    }

    fn custom_blocks(&self, rank: u32) -> Vec<Block> {
        let Some(custom) = self.custom else { return Vec::new() };
        let block = |x: u64| {
            let wanted = match custom(self.plan, rank, x) {
                Goal::Any => return None,
                Goal::Input { rank, chunk } => Wanted::Input { rank, offset: chunk.wrapping_sub(x) },
                Goal::Fold(list) => {
                    let of = |&(rank, chunk): &(u32, u64)| Contribution {
                        rank,
                        offset: chunk.wrapping_sub(x),
                        count: 1,
                    };
                    Wanted::Fold(list.iter().map(of).collect())
                }
            };
            Some(Block { chunks: x..x + 1, wanted })
        };
        (0..outputs(self.plan, rank).len()).filter_map(block).collect()
    }

    /// True if every rank is to hold the same fold.
    pub(super) fn is_same_fold_everywhere(&self) -> bool {
        self.plan.collective == Collective::AllReduce
    }

    /// Chunks of the input of a rank that must be what they were, in the buffer where they lie.
    pub(super) fn kept_inputs(&self, rank: u32, options: &Options<'_>) -> Vec<View> {
        let in_place = self.plan.in_place;
        let may_clobber =
            options.may_clobber_input.unwrap_or(in_place && self.plan.collective == Collective::AllReduce);
        let input = inputs(self.plan, rank);
        if may_clobber {
            return Vec::new();
        }
        let output = outputs(self.plan, rank);
        if output.buffer != input.buffer {
            return vec![input];
        }
        let Range { start, end } = input.chunks;
        let before = start..end.min(output.chunks.start);
        let behind = start.max(output.chunks.end)..end;
        let views = [before, behind].into_iter().filter(|chunks| !chunks.is_empty());
        views.map(|chunks| View { buffer: input.buffer, chunks }).collect()
    }
}

/// V409 for this group of rules.
pub(super) fn too_much() -> Diagnostic {
    Diagnostic::error(409, "the plan moves data in more pieces than are examined")
}
