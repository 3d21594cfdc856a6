//! How bad a finding is: profiles, catalogue, waivers.
//!
//! Passes report what the strict profile makes of a finding; what is left of it for the options at hand is decided
//! here and nowhere else.

use super::options::{Options, Target};
use super::report::{Diagnostic, Rule, Severity};

/// What MSCCL++ programs commonly do and Warpway's executor repairs: warnings in the default profile.
const REPAIRED: [u16; 6] = [504, 507, 509, 511, 604, 905];

/// The verdict on this rule is "inconclusive", not "reject".
const INCONCLUSIVE: u16 = 409;

/// See the module's page.
#[derive(Debug, Clone, Default)]
pub(super) struct Policy {
    strict: bool,
    catalogue: bool,
    mscclpp: bool,
    waivers: Vec<Rule>,
}

impl Policy {
    pub(super) fn new(options: &Options<'_>) -> Self {
        Self {
            strict: options.is_strict(),
            catalogue: options.catalogue,
            mscclpp: options.target == Target::Mscclpp,
            waivers: options.waivers.clone(),
        }
    }

    /// Sets the severity; waived findings say so.
    pub(super) fn apply(&self, diagnostic: &mut Diagnostic) {
        let rule = diagnostic.rule;
        if self.waives(rule) {
            if diagnostic.severity != Severity::Info {
                diagnostic.message.push_str(" (waived)");
            }
            diagnostic.severity = Severity::Info;
            return;
        }
        diagnostic.severity = match (rule.0, diagnostic.severity) {
            (INCONCLUSIVE, _) => Severity::Warning,
            (711, Severity::Warning) if self.catalogue => Severity::Error,
            (607, Severity::Warning) if self.mscclpp => Severity::Error,
            (rule, Severity::Error) if !self.strict && REPAIRED.contains(&rule) => Severity::Warning,
            (_, given) => given,
        };
    }

    /// A user may waive everything but what keeps an executor inside its buffers (V1, V2); nothing of the
    /// catalogue.
    fn waives(&self, rule: Rule) -> bool {
        !self.catalogue && rule.0 >= 300 && rule.0 != INCONCLUSIVE && self.waivers.contains(&rule)
    }
}

/// True if the rule stands for something that the executor repairs under the default profile.
pub(super) fn is_repaired(rule: Rule) -> bool {
    REPAIRED.contains(&rule.0)
}

/// True if the finding leaves the verdict open.
pub(super) fn is_inconclusive(rule: Rule) -> bool {
    rule.0 == INCONCLUSIVE
}
