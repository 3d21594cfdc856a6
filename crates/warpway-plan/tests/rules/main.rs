//! What the verifier says: a plan per rule that breaks it, beside one that differs in little and is accepted.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod brute_force;
mod counts;
mod credits;
mod deadlocks;
mod form;
mod limits;
mod many_steps;
mod nonsense;
mod order;
mod report;
mod shared;
#[path = "../support/shared_plans.rs"]
mod shared_plans;
mod worked;

use warpway_plan::verify::{Diagnostic, Options, Profile, Report, Rule, Severity, verify};
use warpway_plan::{Action, BufferKind, DataOperation, Operation, Pipeline, Plan, Reference, Via};

/// The all-gather of two ranks of plan-format.md 11.1.
fn all_gather() -> Plan {
    Plan::from_json(include_bytes!("ag2_ok.json")).unwrap().plan
}

fn strict() -> Options<'static> {
    Options { profile: Profile::Strict, ..Options::default() }
}

/// All findings but two notes: that the result was not evaluated, and that a scratch is not shared.
fn told(report: &Report) -> impl Iterator<Item = &Diagnostic> {
    report.diagnostics.iter().filter(|d| ![Rule(612), Rule(708)].contains(&d.rule))
}

fn findings(report: &Report) -> Vec<(Rule, Severity)> {
    told(report).map(|d| (d.rule, d.severity)).collect()
}

/// For messages of tests.
fn lines(report: &Report) -> Vec<String> {
    told(report).map(ToString::to_string).collect()
}

/// `good` is accepted without a word; `bad`, after `edit`, breaks exactly `rule`.
fn breaks(rule: u16, good: &Plan, options: &Options<'_>, edit: impl FnOnce(&mut Plan)) -> Diagnostic {
    let report = verify(good, options);
    assert_eq!(lines(&report), [""; 0], "V{rule}: the plan before the edit");
    let mut bad = good.clone();
    edit(&mut bad);
    only(rule, &verify(&bad, options))
}

/// The first finding of a report that has findings of `rule` alone.
fn only(rule: u16, report: &Report) -> Diagnostic {
    assert!(!findings(report).is_empty(), "V{rule} was not found");
    assert!(findings(report).iter().all(|(r, _)| *r == Rule(rule)), "V{rule}: {:?}", lines(report));
    report.diagnostics.iter().find(|d| d.rule == Rule(rule)).unwrap().clone()
}

fn block(plan: &mut Plan, rank: usize, block: usize) -> &mut Vec<Operation> {
    &mut plan.ranks[rank].blocks[block].operations
}

fn data(plan: &mut Plan, at: (usize, usize, usize)) -> &mut DataOperation {
    match &mut plan.ranks[at.0].blocks[at.1].operations[at.2].action {
        Action::Data(data) => data,
        other => panic!("{other:?}"),
    }
}

fn pipeline(plan: &mut Plan, at: (usize, usize, usize)) -> &mut Pipeline {
    match &mut plan.ranks[at.0].blocks[at.1].operations[at.2].action {
        Action::Pipeline(pipeline) => pipeline,
        other => panic!("{other:?}"),
    }
}

/// The list of channel positions of a signal or wait.
fn channels(plan: &mut Plan, at: (usize, usize, usize)) -> &mut Vec<u32> {
    match &mut plan.ranks[at.0].blocks[at.1].operations[at.2].action {
        Action::Signal { channels, .. } | Action::Wait { channels, .. } => channels,
        other => panic!("{other:?}"),
    }
}

fn relax(plan: &mut Plan, at: (usize, usize, usize)) {
    match &mut plan.ranks[at.0].blocks[at.1].operations[at.2].action {
        Action::Signal { relaxed, .. } | Action::Wait { relaxed, .. } => *relaxed = true,
        other => panic!("{other:?}"),
    }
}

fn local(buffer: BufferKind, index: u64, size: u64) -> Reference {
    Reference::Local { buffer, index, size }
}

fn signal(channels: &[u32]) -> Operation {
    Action::Signal { via: Via::Memory, relaxed: false, channels: channels.to_vec() }.into()
}

fn wait(channels: &[u32]) -> Operation {
    Action::Wait { via: Via::Memory, relaxed: false, channels: channels.to_vec() }.into()
}

fn barrier(id: u32, blocks: u32) -> Operation {
    Action::Barrier { id, blocks }.into()
}
