//! Plans of the user, beside those of the catalogue.

use std::collections::BTreeMap;

use warpway_plan::verify::VerifiedPlan;
use warpway_plan::{Action, Collective, Plan, ReduceOp};

use crate::task::{Function, Task};

/// What a user says of a plan that calls are to take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registration {
    /// By which it is selected; `None`: the plan's own.
    pub name: Option<String>,
    /// Smallest message, in bytes of the larger buffer.
    pub min_bytes: u64,
    /// Largest message.
    pub max_bytes: u64,
    /// The root, of functions that have one.
    pub root: u32,
    /// What the user wants to remember of it.
    pub tags: BTreeMap<String, u64>,
}

impl Default for Registration {
    /// For every size, with root 0.
    fn default() -> Self {
        Self { name: None, min_bytes: 0, max_bytes: u64::MAX, root: 0, tags: BTreeMap::new() }
    }
}

/// A plan that has been registered.
#[derive(Debug, Clone)]
pub struct Registered {
    /// Its name.
    pub name: String,
    /// What it computes.
    pub function: Function,
    /// How it folds, if it does.
    pub reduce_op: Option<ReduceOp>,
    /// The rest of what was said.
    pub registration: Registration,
    /// The plan.
    pub plan: VerifiedPlan,
}

/// A plan that no call could take.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("plan {plan:?} cannot be registered: {why}")]
pub struct BadRegistration {
    /// Its name.
    pub plan: String,
    /// The reason.
    pub why: String,
}

impl Registered {
    /// Joins a plan with what is said of it.
    ///
    /// # Errors
    /// A plan without a goal, or with folds by several operators; an empty range.
    pub fn new(plan: VerifiedPlan, registration: Registration) -> Result<Self, BadRegistration> {
        let bad = |why: String| BadRegistration { plan: plan.plan().name.clone(), why };
        let function = function(plan.plan()).ok_or_else(|| {
            bad(format!("it computes {}, which is no function of the catalogue", plan.plan().collective))
        })?;
        let mut operators = operators(plan.plan());
        operators.dedup();
        if operators.len() > 1 {
            return Err(bad("it folds by more than one operator".into()));
        }
        if function.reduces() && operators.is_empty() && plan.plan().n_ranks() > 1 {
            return Err(bad("it folds nothing".into()));
        }
        if registration.min_bytes > registration.max_bytes {
            return Err(bad("its range ends before it begins".into()));
        }
        let name = registration.name.clone().unwrap_or_else(|| plan.plan().name.clone());
        if crate::find(function, &name).is_some() {
            return Err(bad(format!(
                "the catalogue has an algorithm {name:?} for {function}; give another name"
            )));
        }
        Ok(Self { name, function, reduce_op: operators.first().copied(), registration, plan })
    }

    /// Why it does not fit a task; `Ok` if it does. Sizes apart.
    pub(super) fn fits(&self, task: &Task) -> Result<(), String> {
        let (plan, n) = (self.plan.plan(), task.world.n_ranks());
        if plan.n_ranks() != n {
            return Err(format!("it is made for {} ranks", plan.n_ranks()));
        }
        if plan.in_place != task.in_place {
            return Err(
                (if plan.in_place { "it works in place" } else { "it does not work in place" }).into()
            );
        }
        if task.function.is_rooted() && task.root != self.registration.root {
            return Err(format!("its root is {}", self.registration.root));
        }
        match self.reduce_op {
            Some(op) if task.function.reduces() && op != task.reduce_op => {
                Err(format!("it computes the {op}"))
            }
            _ => Ok(()),
        }
    }

    /// The sizes for which it may be taken, in bytes of the larger buffer.
    pub(super) fn range(&self) -> (u64, u64) {
        let plan = self.plan.plan();
        // A plan's own range counts the input, and of an all-gather the output.
        let scale = if self.function == Function::Gather { u64::from(plan.n_ranks()) } else { 1 };
        let (min, max) = (plan.min_message_size, plan.max_message_size);
        let (min, max) = (min.saturating_mul(scale), max.saturating_mul(scale));
        (min.max(self.registration.min_bytes), max.min(self.registration.max_bytes))
    }
}

fn function(plan: &Plan) -> Option<Function> {
    let sized = plan.ranks.iter().any(|rank| rank.size_ids.is_some());
    Some(match (plan.collective, sized) {
        (Collective::AllReduce, false) => Function::AllReduce,
        (Collective::AllGather, false) => Function::AllGather,
        (Collective::AllGather, true) => Function::AllGatherV,
        (Collective::ReduceScatter, false) => Function::ReduceScatter,
        (Collective::ReduceScatter, true) => Function::ReduceScatterV,
        (Collective::AllToAll, false) => Function::AllToAll,
        (Collective::AllToAll, true) => Function::AllToAllV,
        (Collective::Broadcast, false) => Function::Broadcast,
        (Collective::Reduce, false) => Function::Reduce,
        (Collective::Gather, false) => Function::Gather,
        (Collective::Scatter, false) => Function::Scatter,
        _ => return None,
    })
}

/// Of all folds, in the order of the plan.
fn operators(plan: &Plan) -> Vec<ReduceOp> {
    let fold = |action: &Action| match action {
        Action::Data(data) => data.fold.as_ref().map(|fold| fold.op),
        _ => None,
    };
    plan.operations().filter_map(|(_, _, operation)| fold(&operation.action)).collect()
}
