//! What the environment says about the job that this process would be a rank of.

use std::time::Duration;

use warpway_core::{
    Error,
    bootstrap::{Admission, Rendezvous, ThisHost},
    config::{Config, ConfigError, Environment, Notice},
};

use super::report::{Area, Report, Status};

pub(super) fn check(report: &mut Report) {
    let mut area = report.area("environment");
    let read = || {
        let environment = Environment::of_process()?;
        let loaded = Config::read(&environment)?;
        Ok::<_, ConfigError>((environment, loaded))
    };
    let (environment, loaded) = match read() {
        Ok(read) => read,
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
    check_rendezvous(&mut area, &environment, &loaded.config);
}

fn check_rendezvous(area: &mut Area<'_>, environment: &Environment, config: &Config) {
    // A name that does not resolve now is worth a line; nobody waits for it here.
    let host = ThisHost { patience: Duration::ZERO };
    let found = match Rendezvous::find(environment, config, &host) {
        Ok(found) => found,
        Err(Error::Config(ConfigError::NoLauncher { .. })) => {
            area.ok("launcher", "none: this process is no rank of a job");
            return;
        }
        Err(error) => {
            area.add(
                "launcher",
                Status::Fail,
                error.to_string(),
                "ranks started like this cannot join a job",
            );
            return;
        }
    };
    let local = match (found.local_rank, found.local_size) {
        (Some(rank), Some(size)) => format!(", {rank} of {size} on this host"),
        _ => String::new(),
    };
    area.ok("launcher", format!("{}: rank {} of {}{local}", found.launcher, found.rank, found.n_ranks));
    area.ok("meeting place", found.plan.root.to_string());
    match found.plan.admission {
        Admission::Secret => area.ok("admission", "whoever has the job's secret"),
        Admission::SameUser => area.ok("admission", "processes of this user on this host"),
        Admission::Anyone => area.add(
            "admission",
            Status::Warn,
            "anyone who can reach the meeting place",
            "set the same WARPWAY_BOOTSTRAP_TOKEN on all ranks and unset WARPWAY_BOOTSTRAP_INSECURE",
        ),
    }
}
