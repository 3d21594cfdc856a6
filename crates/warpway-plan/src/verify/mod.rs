//! Proof before running: does the plan end, is it free of races, and does it compute what it claims?
//!
//! | file | question it answers |
//! |---|---|
//! | `options.rs`, `report.rs`, `verified.rs` | what is asked, what is answered, a plan with its proof |
//! | `rules.rs`, `policy.rs`, `findings.rs` | the rules, how bad a finding is, the findings of all passes |
//! | `text.rs` | the answer for people |
//! | `walk.rs` | every operation with its place |
//! | `references.rs`, `geometry.rs` | numbers and chunks that mean something: V2 |
//! | `sizes.rs`, `slack.rs` | which sizes are run, and what they prove; how far pipelines can run ahead |
//! | `scale.rs`, `extent.rs` | positions inside chunks that hold for every size |
//! | `window.rs` | whether slices of chunks that are larger than their scratch may share it |
//! | `trace.rs`, `accesses.rs` | the plan unrolled; what a step touches |
//! | `schedule.rs`, `packets_ready.rs` | one run with maximal progress |
//! | `explore.rs`, `deadlock.rs` | other orders, and why blocks stay blocked: V4 |
//! | `pairing.rs` | signals, waits, barriers, semaphores: V3 |
//! | `symbolic.rs`, `values.rs`, `memory.rs` | what it computes: V7 |
//! | `goal.rs`, `result.rs`, `writers.rs` | whether that is what its collective promises, and who spoilt it |
//! | `in_place.rs` | where input and output lie if they are one memory |
//! | `fold_roles.rs` | what an average asks of each fold |
//! | `limits.rs`, `switch.rs` | what executors and devices hold: V8; multicast groups: V9 |
//! | `clock.rs`, `counter.rs`, `order.rs`, `order/requests.rs`, `slots.rs` | what comes before what: synchronisation, port requests, packets |
//! | `cells.rs`, `races.rs`, `reuse.rs`, `packets.rs` | accesses without order: V5, V6 |
//! | `path.rs`, `explain.rs` | why there is no order, and what would give it |
//! | `causes.rs`, `counterexample.rs` | what a step needs; the steps that lead to a failure |

mod accesses;
mod causes;
mod cells;
mod clock;
mod counter;
mod counterexample;
mod deadlock;
mod explain;
mod explore;
mod extent;
mod findings;
mod fold_roles;
mod geometry;
mod goal;
mod in_place;
mod intervals;
mod limits;
mod memory;
mod options;
mod order;
mod packets;
mod packets_ready;
mod pairing;
mod path;
mod policy;
mod races;
mod range_map;
mod references;
mod report;
mod result;
mod reuse;
mod rules;
mod scale;
mod schedule;
mod sizes;
mod slack;
mod slots;
mod switch;
mod symbolic;
mod text;
mod trace;
mod values;
mod verified;
mod walk;
mod window;
mod writers;

pub use fold_roles::{FoldRole, FoldRoles};
pub use options::{DeviceLimits, Goal, GoalFn, Options, Profile, Target};
pub use report::{Diagnostic, OpPath, Place, Region, Report, Rule, Severity, ShareableAreas, Sizes, Verdict};
pub use rules::{RULES, RuleInfo, Standing, rules_page};
pub use text::ReportText;
pub use verified::{NotAccepted, VerifiedPlan};

use std::collections::BTreeSet;

use findings::Findings;
use trace::Trace;

use crate::ir::Plan;
use crate::repairs::Repairs;
use crate::topology::Topology;

/// Examines a plan. Deterministic; takes time and memory in proportion to the operations, pipelines taken
/// apart. Any plan may be given: what makes no sense is a finding.
pub fn verify(plan: &Plan, options: &Options<'_>) -> Report {
    let (mut findings, sizes) = examine(plan, options, &Repairs::default());
    if !findings.has_errors() && !findings.repairs.is_empty() && !options.is_strict() {
        // What is repaired must pass without more repairs.
        let strict = Options { profile: Profile::Strict, ..options.clone() };
        let (repaired, _) = examine(plan, &strict, &findings.repairs);
        findings.adopt(repaired);
    }
    if !findings.has_errors() {
        findings.reused_slices = window::reused_slices(plan, options, &findings.repairs);
    }
    findings.into_report(plan, sizes)
}

/// All rules, for an executor that carries out `repairs`; and the sizes for which they were examined.
fn examine(plan: &Plan, options: &Options<'_>, repairs: &Repairs) -> (Findings, Sizes) {
    let mut findings = Findings::new(options);
    let topology = Topology::new(plan);
    examine_form(&topology, options, &mut findings);
    // What refers to nothing cannot run.
    let mut sizes = Sizes::Any;
    if !findings.has_errors_in(100..300) && ![301, 902].iter().any(|rule| findings.has_any_of(Rule(*rule))) {
        let coverage = sizes::coverage(&topology, options, &mut findings);
        sizes = coverage.sizes;
        for scale in coverage.scales {
            // One at a time: unrolled pipelines are large.
            match Trace::new(&topology, scale, options.step_budget(plan)) {
                Ok(mut trace) => {
                    trace.repairs = repairs.clone();
                    examine_trace(&trace, options, &mut findings);
                }
                Err(diagnostic) => findings.push(*diagnostic),
            }
        }
    }
    if findings.has_errors_in(100..700) {
        findings.discard(700..800);
        findings.push(Diagnostic::info(708, "result not evaluated"));
    }
    (findings, sizes)
}

/// The rules that need no run of the plan: V1, V2, V301, V8, V9.
fn examine_form(topology: &Topology<'_>, options: &Options<'_>, findings: &mut Findings) {
    for finding in topology.plan().check() {
        findings.push(finding.into());
    }
    if findings.has_errors_in(100..200) {
        return;
    }
    references::check(topology, findings);
    if findings.has_errors_in(200..300) {
        return;
    }
    geometry::check(topology, findings);
    if options.checks(3) {
        pairing::partners(topology, findings);
    }
    if options.checks(8) {
        limits::check(topology, options, findings);
    }
    if options.checks(9) {
        switch::check(topology, options, findings);
    }
}

/// The rules about a run of the plan, V3 to V7.
fn examine_trace(trace: &Trace<'_>, options: &Options<'_>, findings: &mut Findings) {
    let schedule = schedule::run(trace);
    let miscounted = match options.checks(3) {
        true => pairing::check(trace, &schedule, findings),
        false => BTreeSet::new(),
    };
    // A run that gets stuck says nothing about what comes behind.
    if deadlock::check(trace, &schedule, miscounted, findings) {
        return;
    }
    // Nor does one after which the next launch begins with signals of this one.
    if findings.has_errors_in(300..400) {
        return;
    }
    if options.checks(5) || options.checks(6) {
        races::check(trace, &schedule, options, findings);
    }
    if options.checks(7) && !findings.has_errors_in(100..700) {
        symbolic::check(trace, &schedule, options, findings);
    }
}
