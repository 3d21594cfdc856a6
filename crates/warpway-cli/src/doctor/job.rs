//! What the environment says about the job that this process would be a rank of.

use warpway_core::config::{Config, Environment, Notice};

use super::report::{Report, Status};

pub(super) fn check(report: &mut Report) {
    let mut area = report.area("environment");
    let loaded = Environment::of_process().and_then(|environment| Config::read(&environment));
    let loaded = match loaded {
        Ok(loaded) => loaded,
        Err(error) => {
            area.add("variables", Status::Fail, error.to_string(), "correct or unset it");
            return;
        }
    };
    if loaded.notices.is_empty() {
        area.ok("variables", "nothing unexpected");
    }
    for notice in &loaded.notices {
        let status = Status::warn_if(!matches!(notice, Notice::Alias { .. }));
        area.add("variables", status, notice.to_string(), "");
    }
}
