//! How bad a finding is: profiles, catalogue, waivers.
//!
//! Passes report what the strict profile makes of a finding; what is left of it for the options at hand is decided
//! here and nowhere else.

use super::options::{Options, Target};
use super::report::{Diagnostic, Rule, Severity};
use super::rules::Standing;

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
        let standing = rule.info().map_or(Standing::Error, |info| info.standing);
        diagnostic.severity = match (standing, diagnostic.severity) {
            (Standing::Inconclusive, _) => Severity::Warning,
            (Standing::CatalogueError, Severity::Warning) if self.catalogue => Severity::Error,
            (Standing::MscclppWarning, Severity::Warning) if self.mscclpp => Severity::Error,
            (Standing::Repaired(_), Severity::Error) if !self.strict => Severity::Warning,
            (_, given) => given,
        };
    }

    /// A user may waive everything but what keeps an executor inside its buffers (V1, V2); nothing of the
    /// catalogue.
    fn waives(&self, rule: Rule) -> bool {
        !self.catalogue && rule.0 >= 300 && !is_inconclusive(rule) && self.waivers.contains(&rule)
    }
}

/// True if the finding leaves the verdict open.
pub(super) fn is_inconclusive(rule: Rule) -> bool {
    rule.info().is_some_and(|info| info.standing == Standing::Inconclusive)
}
