//! Plans on ranks that are threads.

use std::path::PathBuf;
use std::time::Duration;

use warpway::plan::verify::{Options, VerifiedPlan};
use warpway::plan::{Plan, Repairs};
use warpway::{Communicator, Context, PreparedPlan, Result, in_process};
use warpway_tests::limited;
use warpway_tests::suite::plans::{Message, launch};

/// Limits of a minute: what ends sooner was found out.
pub(crate) fn context() -> Context {
    limited(Duration::from_secs(60))
}

/// A plan of MSCCL++'s repository, if the folder is there.
pub(crate) fn shared_plan(name: &str) -> Option<Plan> {
    let beside = concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/plans");
    let folder = std::env::var_os("WARPWAY_PLANS").map_or_else(|| PathBuf::from(beside), PathBuf::from);
    let Ok(bytes) = std::fs::read(folder.join(name)) else {
        assert!(std::env::var_os("CI").is_none(), "{} is missing; set WARPWAY_PLANS", folder.display());
        eprintln!("skipped: {} is missing; set WARPWAY_PLANS", folder.display());
        return None;
    };
    Some(Plan::from_json(&bytes).unwrap().plan)
}

/// Runs the messages one after the other on a set-up of each plan, launch by launch in turn, and checks every result.
pub(crate) fn check(plans: &[Plan], messages: &[Message]) {
    let none = Repairs::default();
    run(plans[0].n_ranks(), plans.len(), messages, |comm, at| comm.prepare_unverified(&plans[at], &none));
}

/// The same for plans that the verifier must accept first.
pub(crate) fn check_verified(plans: &[Plan], messages: &[Message]) {
    let proven: Vec<VerifiedPlan> =
        plans.iter().map(|plan| VerifiedPlan::new(plan.clone(), &Options::default()).unwrap()).collect();
    run(plans[0].n_ranks(), plans.len(), messages, |comm, at| comm.prepare(&proven[at]));
}

/// The same with all repairs, needed or not.
pub(crate) fn check_repaired(plans: &[Plan], messages: &[Message]) {
    let all = Repairs::all(Vec::new());
    run(plans[0].n_ranks(), plans.len(), messages, |comm, at| comm.prepare_unverified(&plans[at], &all));
}

fn run(
    n: u32,
    plans: usize,
    messages: &[Message],
    prepare: impl Fn(&Communicator, usize) -> Result<PreparedPlan> + Sync,
) {
    in_process(n, &context(), |comm| {
        let prepared: Vec<PreparedPlan> = (0..plans).map(|at| prepare(comm, at)).collect::<Result<_>>()?;
        for message in messages {
            for prepared in &prepared {
                launch(comm, prepared, message)?;
            }
        }
        comm.barrier()
    })
    .unwrap();
}
