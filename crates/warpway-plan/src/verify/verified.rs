//! A plan with its proof.

use std::sync::OnceLock;

use super::options::{Options, Target};
use super::report::{Report, Verdict};
use super::verify;
use crate::ir::Plan;
use crate::json::PlanIdentity;
use crate::repairs::Repairs;

/// A plan that [`verify`] has accepted for Warpway, with what it found. Nothing else makes one, so who holds one
/// need not ask again: references point into their buffers, waits end, nothing races, the result is right, once
/// [`VerifiedPlan::repairs`] are carried out and for the sizes of [`Report::sizes`].
#[derive(Debug, Clone)]
pub struct VerifiedPlan {
    plan: Plan,
    report: Report,
    identity: OnceLock<PlanIdentity>,
}

/// A plan that was not accepted.
#[derive(Debug, Clone, thiserror::Error)]
#[error("plan {name:?} is not accepted: {}", .report.summary(), name = .plan.name)]
pub struct NotAccepted {
    /// The plan, given back.
    pub plan: Plan,
    /// Why.
    pub report: Report,
}

impl VerifiedPlan {
    /// Verifies a plan for Warpway's executor with every group of rules, whatever `options` say of these two.
    ///
    /// # Errors
    /// If the verdict is not [`Verdict::Accept`].
    pub fn new(plan: Plan, options: &Options<'_>) -> Result<Self, Box<NotAccepted>> {
        let options = Options { target: Target::Warpway, checks: Vec::new(), ..options.clone() };
        let report = verify(&plan, &options);
        match report.verdict {
            Verdict::Accept => Ok(Self { plan, report, identity: OnceLock::new() }),
            Verdict::Reject | Verdict::Inconclusive => Err(Box::new(NotAccepted { plan, report })),
        }
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// What the plan is known by; computed when first asked for.
    pub fn identity(&self) -> PlanIdentity {
        *self.identity.get_or_init(|| self.plan.identity())
    }

    /// What the verifier said of it.
    pub fn report(&self) -> &Report {
        &self.report
    }

    /// What the executor has to add; nothing for plans that pass the strict profile.
    pub fn repairs(&self) -> &Repairs {
        &self.report.repairs
    }

    /// The plan without its proof.
    pub fn into_plan(self) -> Plan {
        self.plan
    }
}
