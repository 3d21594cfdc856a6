//! The findings of all passes: severity by the policy, each problem once, a bounded number of each rule.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ops::Range;

use super::fold_roles::FoldRoles;
use super::options::Options;
use super::policy::{self, Policy};
use super::report::{
    Diagnostic, OpPath, Place, Region, Report, Rule, Severity, ShareableAreas, Sizes, Verdict,
};
use crate::ir::{Action, Location, Operation, Plan};
use crate::repairs::Repairs;

/// Findings of one rule that are kept.
const KEPT: u64 = 100;

/// What makes two findings one problem: pipelines are examined several times, so iterations do not count.
type Identity = (Rule, Vec<(u32, Option<u32>, Option<OpPath>, Option<u32>)>, Option<Region>);

/// See the module's page.
#[derive(Debug, Default)]
pub(super) struct Findings {
    policy: Policy,
    kept: Vec<Diagnostic>,
    seen: HashSet<Identity>,
    counts: BTreeMap<Rule, u64>,
    /// The rules that have errors.
    errors: BTreeSet<Rule>,
    inconclusive: bool,
    /// What the executor has to add, gathered by the passes.
    pub(super) repairs: Repairs,
    /// The greatest number of folds that a contribution passes through.
    pub(super) roundings: Option<u32>,
    /// What averages ask of the folds.
    pub(super) fold_roles: FoldRoles,
    /// As far as it was examined.
    shareable_areas: Option<ShareableAreas>,
    /// See [`Report::reused_slices`].
    pub(super) reused_slices: Option<u64>,
}

impl Findings {
    pub(super) fn new(options: &Options<'_>) -> Self {
        Self { policy: Policy::new(options), ..Self::default() }
    }

    /// Adds a finding with the severity that it has under the strict profile.
    pub(super) fn push(&mut self, mut diagnostic: Diagnostic) {
        self.policy.apply(&mut diagnostic);
        if diagnostic.severity == Severity::Error {
            self.errors.insert(diagnostic.rule);
        }
        self.inconclusive |= policy::is_inconclusive(diagnostic.rule);
        let places = diagnostic.places.iter().map(|p| (p.rank, p.block, p.op, p.item)).collect();
        let count = self.counts.entry(diagnostic.rule).or_default();
        if *count >= KEPT {
            *count += 1;
        } else if self.seen.insert((diagnostic.rule, places, diagnostic.region)) {
            *count += 1;
            self.kept.push(diagnostic);
        }
    }

    /// True if more findings of a rule are only counted.
    pub(super) fn has_enough_of(&self, rule: u16) -> bool {
        self.counts.get(&Rule(rule)).is_some_and(|count| *count >= KEPT)
    }

    /// True if the plan is rejected already.
    pub(super) fn has_errors(&self) -> bool {
        !self.errors.is_empty()
    }

    /// True if something could not be decided.
    pub(super) fn is_inconclusive(&self) -> bool {
        self.inconclusive
    }

    /// True if there is an error of one of these rules.
    pub(super) fn has_errors_in(&self, rules: Range<u16>) -> bool {
        self.errors.range(Rule(rules.start)..Rule(rules.end)).next().is_some()
    }

    /// True if a rule has been violated, whatever its severity.
    pub(super) fn has_any_of(&self, rule: Rule) -> bool {
        self.counts.contains_key(&rule)
    }

    /// Forgets the findings of these rules.
    pub(super) fn discard(&mut self, rules: Range<u16>) {
        self.kept.retain(|d| !rules.contains(&d.rule.0));
        self.counts.retain(|rule, _| !rules.contains(&rule.0));
        self.errors.retain(|rule| !rules.contains(&rule.0));
    }

    /// What one run of the plan says of its scratch; it must hold in every run.
    pub(super) fn areas_are(&mut self, areas: ShareableAreas) {
        let all = self.shareable_areas.get_or_insert(areas);
        (all.raw, all.packets) = (all.raw && areas.raw, all.packets && areas.packets);
    }

    /// The errors of an examination of the repaired plan, and what it says of the scratch.
    pub(super) fn adopt(&mut self, other: Self) {
        self.shareable_areas = other.shareable_areas;
        self.discard(612..613);
        for diagnostic in other.kept {
            if diagnostic.rule == Rule(612) {
                self.kept.push(diagnostic);
                continue;
            }
            if diagnostic.severity == Severity::Error {
                // What was only a warning before is not the same finding any more.
                let places = diagnostic.places.iter().map(|p| (p.rank, p.block, p.op, p.item)).collect();
                self.seen.remove(&(diagnostic.rule, places, diagnostic.region));
                self.kept.retain(|d| {
                    (d.rule, &d.places, d.region) != (diagnostic.rule, &diagnostic.places, diagnostic.region)
                });
                self.errors.insert(diagnostic.rule);
                self.kept.push(diagnostic);
            }
        }
    }

    /// Sorts by rule, rank, block and operation, and adds where the program wrote them.
    pub(super) fn into_report(mut self, plan: &Plan, sizes: Sizes) -> Report {
        for (rule, count) in &self.counts {
            if *count > KEPT {
                let message = format!("{} more findings of this rule", count - KEPT);
                self.kept.push(Diagnostic::info(rule.0, message));
            }
        }
        for diagnostic in &mut self.kept {
            let locations = diagnostic.places.iter().filter_map(|place| location(plan, place));
            diagnostic.locations = locations.cloned().collect();
        }
        self.kept.sort_by(|a, b| {
            let key = |d: &Diagnostic| (d.rule, d.places.is_empty());
            key(a).cmp(&key(b)).then_with(|| (&a.places, &a.region).cmp(&(&b.places, &b.region)))
        });
        let verdict = match (self.has_errors(), self.inconclusive) {
            (true, _) => Verdict::Reject,
            (false, true) => Verdict::Inconclusive,
            (false, false) => Verdict::Accept,
        };
        let accepted = verdict == Verdict::Accept;
        Report {
            verdict,
            roundings: self.roundings,
            fold_roles: self.fold_roles,
            reused_slices: self.reused_slices.filter(|_| accepted),
            shareable_areas: self.shareable_areas.filter(|_| accepted).unwrap_or_default(),
            repairs: if accepted { self.repairs } else { Repairs::default() },
            sizes: accepted.then_some(sizes),
            diagnostics: self.kept,
        }
    }
}

/// Where the program wrote the operation at a place.
fn location<'p>(plan: &'p Plan, place: &Place) -> Option<&'p std::sync::Arc<Location>> {
    let operation = operation_at(plan, place)?;
    operation.location.as_ref()
}

/// The operation at a place, if there is one.
pub(super) fn operation_at<'p>(plan: &'p Plan, place: &Place) -> Option<&'p Operation> {
    let OpPath { index, inner } = place.op?;
    let block = plan.ranks.get(place.rank as usize)?.blocks.get(place.block? as usize)?;
    let operation = block.operations.get(index as usize)?;
    match (inner, &operation.action) {
        (Some(inner), Action::Pipeline(pipeline)) => pipeline.body.get(inner as usize),
        _ => Some(operation),
    }
}
