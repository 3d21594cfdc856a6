//! Why blocks stay blocked (V4).

use super::findings::Findings;
use super::options::Options;
use super::report::Diagnostic;
use super::schedule::Schedule;
use super::trace::Trace;

/// V401 to V405.
pub(super) fn check(trace: &Trace<'_>, schedule: &Schedule, _: &Options<'_>, findings: &mut Findings) {
    for (block, (step, why)) in &schedule.blocked {
        let message = format!("blocked for ever: {why:?}");
        findings.push(Diagnostic::error(401, message).at(trace.place(*block, *step)));
    }
}
