//! Whether slices of chunks that are larger than their scratch may share it (plan-format 6.6, 7.3).
//!
//! A scratch chunk that holds `w` slices of a pipeline is come back to after `w` iterations: iterations that differ
//! by a multiple of `w` meet on the same bytes. The examination is repeated with that folded in; what it must show is
//! that no access of one slice meets an unordered one of another, and that every read still finds its own slice.
//!
//! What holds for `w` holds for every multiple of it. Order does not depend on `w`. Accesses that meet for a
//! multiple meet for `w` too, so they are ordered; and of the writes that come before a read, the multiple leaves some
//! out, never the one of the read's own slice, which was the last. So powers of two are tried from one upwards, each
//! with twice as many iterations as it has slices and one more, and all that pipelines can be ahead of each other.

use std::collections::BTreeSet;

use super::examine_trace;
use super::findings::Findings;
use super::options::{Options, Profile};
use super::scale::Scale;
use super::sizes::{MOST_STEPS, pipeline_steps};
use super::slack::slack;
use super::trace::Trace;
use super::walk::sites;
use crate::ir::Plan;
use crate::repairs::Repairs;
use crate::topology::Topology;

/// The greatest number of slices that is tried.
const MOST_SLICES: u64 = 16;

/// The least number of slices that scratch chunks must hold; `None` if no tried number will do, and for plans whose
/// scratch is as large as the message's chunks in any case.
pub(super) fn reused_slices(plan: &Plan, options: &Options<'_>, repairs: &Repairs) -> Option<u64> {
    let complete = (5..=7).all(|group| options.checks(group));
    if !complete || !has_one_slice(plan) {
        return None;
    }
    let mut slices = 1;
    while slices <= MOST_SLICES {
        if holds(plan, slices, options, repairs) {
            return Some(slices);
        }
        slices *= 2;
    }
    None
}

/// True for plans with sized chunks whose pipelines all have the same slices.
fn has_one_slice(plan: &Plan) -> bool {
    let is_sized = plan.ranks.iter().any(|rank| rank.size_ids.is_some());
    let has_scratch = plan.ranks.iter().any(|rank| rank.scratch_chunks > 0);
    let slices: BTreeSet<u64> =
        sites(plan).filter_map(|site| site.pipeline).map(|pipeline| pipeline.unit_size).collect();
    is_sized && has_scratch && slices.len() == 1
}

fn holds(plan: &Plan, slices: u64, options: &Options<'_>, repairs: &Repairs) -> bool {
    let topology = Topology::new(plan);
    let ahead = slack(&topology);
    let iterations = (2 * slices + 1).max(ahead.iterations.saturating_add(slices + 1));
    if !ahead.is_steady || pipeline_steps(plan, iterations) > MOST_STEPS {
        return false;
    }
    let Some(scale) = Scale::new(plan, iterations) else { return false };
    let Ok(mut trace) = Trace::new(&topology, scale, options.step_budget(plan)) else { return false };
    (trace.window, trace.repairs) = (Some(slices), repairs.clone());
    // What is not repaired yet will not be.
    let strict = Options { profile: Profile::Strict, ..options.clone() };
    let mut findings = Findings::new(&strict);
    examine_trace(&trace, &strict, &mut findings);
    !findings.has_errors() && !findings.is_inconclusive()
}
