//! Who is asked, in which order.

use std::sync::Arc;

use super::choice::{Choice, NoChoice, Reason, Taken};
use super::explain::{Candidate, Explanation, Verdict};
use super::overrides::Override;
use super::registered::Registered;
use super::request::Request;
use super::rules::{Rule, SHARED_FROM};
use crate::catalogue;
use crate::task::{MOST_BLOCKS, Task};
use crate::tune::{Row, Table, Timing};

/// See the module's page.
#[derive(Debug, Clone, Default)]
pub struct Selector {
    overrides: Vec<(String, Override)>,
    table: Option<Table>,
    plans: Vec<Arc<Registered>>,
}

/// An algorithm for sizes of `range`, ends included.
#[derive(Debug, Clone)]
struct Proposal {
    taken: Taken,
    range: (u64, u64),
    blocks: Option<u32>,
    reason: Reason,
    /// Whether it fits the task.
    fits: Result<(), String>,
}

impl Proposal {
    fn covers(&self, bytes: Option<u64>) -> bool {
        let (min, max) = self.range;
        match bytes {
            Some(bytes) => (min..=max).contains(&bytes),
            None => (min, max) == (0, u64::MAX),
        }
    }
}

impl Selector {
    /// With the built-in rules alone.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds overrides, weaker than those that are there. `place` says where they stand, for people.
    pub fn with_overrides(mut self, place: &str, overrides: impl IntoIterator<Item = Override>) -> Self {
        self.overrides.extend(overrides.into_iter().map(|entry| (format!("{place} ({entry})"), entry)));
        self
    }

    /// By the measurements of a table, and by its overrides, which are weaker than those that are there.
    pub fn with_table(self, place: &str, table: Table) -> Self {
        let all = self.with_overrides(place, table.overrides.iter().cloned());
        Self { table: Some(table), ..all }
    }

    /// Adds a plan of the user, weaker than those that are there.
    pub fn register(&mut self, plan: Arc<Registered>) {
        self.plans.push(plan);
    }

    /// The algorithm for a call.
    ///
    /// # Errors
    /// A name that does not exist, an algorithm of the caller's choice that does not fit, none that fits.
    pub fn choose(&self, request: &Request<'_>) -> Result<Choice, NoChoice> {
        if let Some(blocks) = request.blocks.filter(|blocks| !(1..=MOST_BLOCKS).contains(blocks)) {
            return Err(NoChoice::Blocks { function: request.task.function, blocks });
        }
        let proposals = self.proposals(request)?;
        let mut covering = proposals.iter().filter(|proposal| proposal.covers(request.bytes));
        let mut passed_over = Vec::new();
        let taken = covering.find(|proposal| match (&proposal.fits, &proposal.reason) {
            (Ok(()), _) => true,
            (Err(why), Reason::Override(place)) => {
                passed_over.push(format!("{place} is passed over: {why}"));
                false
            }
            _ => false,
        });
        let Some(taken) = taken else { return Err(nothing(request, &proposals)) };
        // Where another proposal begins or ends, the choice may be another.
        let (mut min_bytes, mut max_bytes) = (0, u64::MAX);
        if let Some(bytes) = request.bytes {
            for (min, max) in proposals.iter().map(|proposal| proposal.range) {
                if min > bytes {
                    max_bytes = max_bytes.min(min - 1);
                } else {
                    min_bytes = min_bytes.max(min);
                }
                if max < bytes {
                    min_bytes = min_bytes.max(max + 1);
                } else {
                    max_bytes = max_bytes.min(max);
                }
            }
            if bytes < SHARED_FROM {
                max_bytes = max_bytes.min(SHARED_FROM - 1);
            } else {
                min_bytes = min_bytes.max(SHARED_FROM);
            }
        }
        Ok(Choice {
            taken: taken.taken.clone(),
            blocks: request.blocks.or(taken.blocks).unwrap_or_else(|| blocks(request)).max(1),
            min_bytes,
            max_bytes,
            reason: taken.reason.clone(),
            passed_over,
        })
    }

    /// The choice, and each other algorithm with the reason why it is not taken.
    ///
    /// # Errors
    /// As [`choose`](Self::choose).
    pub fn explain(&self, request: &Request<'_>) -> Result<Explanation, NoChoice> {
        let choice = self.choose(request)?;
        let proposals = self.proposals(request)?;
        let mut candidates: Vec<Candidate> = Vec::new();
        let mut add = |taken: &Taken, verdict: &dyn Fn() -> Verdict| {
            if !candidates.iter().any(|candidate| candidate.name == taken.name()) {
                candidates.push(Candidate::new(taken, verdict()));
            }
        };
        add(&choice.taken, &|| Verdict::Taken(choice.reason.clone()));
        for proposal in &proposals {
            let of_same = || proposals.iter().filter(|other| other.taken.name() == proposal.taken.name());
            // Its strongest advocate for this size, else for another; that it merely fits says least.
            let is_advised = |other: &&Proposal| other.reason != Reason::First;
            let here = of_same().filter(is_advised).find(|other| other.covers(request.bytes));
            let elsewhere = of_same().find(is_advised);
            add(&proposal.taken, &|| match (&proposal.fits, here, elsewhere) {
                (Err(why), ..) => Verdict::Unfit(why.clone()),
                (Ok(()), Some(here), _) => Verdict::Weaker(here.reason.clone()),
                (Ok(()), None, Some(there)) => Verdict::OtherSize(there.range, there.reason.clone()),
                (Ok(()), None, None) => Verdict::Weaker(Reason::First),
            });
        }
        candidates[1..].sort_by_key(|candidate| matches!(candidate.verdict, Verdict::Unfit(_)));
        Ok(Explanation::new(request, &choice, candidates))
    }

    /// All that is proposed for a task, the strongest first, whatever the size.
    fn proposals(&self, request: &Request<'_>) -> Result<Vec<Proposal>, NoChoice> {
        let task = &request.task;
        if let Some(name) = request.algorithm {
            let named = self.named(task, name, "the call")?;
            let named = Proposal { blocks: None, reason: Reason::Named, ..named };
            return match &named.fits {
                Err(why) => Err(unfit(task, name, why.clone())),
                Ok(()) if !named.covers(request.bytes) => Err(unfit(task, name, out_of_range(named.range))),
                Ok(()) => Ok(vec![named]),
            };
        }
        let mut all = Vec::new();
        for (place, entry) in self.overrides.iter().filter(|(_, entry)| entry.function == task.function) {
            let named = self.named(task, &entry.algorithm, place)?;
            let range = (named.range.0.max(entry.min_bytes), named.range.1.min(entry.max_bytes));
            all.push(Proposal {
                range,
                blocks: entry.blocks,
                reason: Reason::Override(place.clone()),
                ..named
            });
        }
        for plan in self.plans.iter().filter(|plan| plan.function == task.function) {
            all.push(registered(plan, task));
        }
        all.extend(self.measured(request));
        let of_function = || catalogue().filter(|algorithm| algorithm.function == task.function);
        for rule in Rule::of(task) {
            for algorithm in of_function().filter(|algorithm| rule.picks(algorithm)) {
                let (range, reason) = ((0, rule.max_bytes), Reason::Rule(rule.text));
                all.push(Proposal { range, reason, ..of_catalogue(algorithm, task) });
            }
        }
        all.extend(of_function().map(|algorithm| of_catalogue(algorithm, task)));
        Ok(all)
    }

    /// What the table says.
    fn measured(&self, request: &Request<'_>) -> Vec<Proposal> {
        let task = &request.task;
        let Some(sizes) = self.table.as_ref().and_then(|table| table.closest(task, request.data_type)) else {
            return Vec::new();
        };
        let mut rows: Vec<(&Row, (u64, u64))> = sizes.ranges().collect();
        if request.bytes.is_none() {
            // Large messages matter most.
            rows = rows.pop().into_iter().map(|(row, _)| (row, (0, u64::MAX))).collect();
        }
        let of_row = |(row, range): (&Row, (u64, u64))| {
            let bytes = row.bytes;
            let proposal = |(at, timing): (usize, &Timing)| {
                // Names that the catalogue does not have: of another version, which the user insists on.
                let algorithm = crate::find(task.function, &timing.algorithm)?;
                let (blocks, microseconds) = (Some(timing.blocks), timing.microseconds);
                let reason = Reason::Measured { bytes, microseconds, is_fastest: at == 0 };
                Some(Proposal { range, blocks, reason, ..of_catalogue(algorithm, task) })
            };
            row.timings.iter().enumerate().filter_map(proposal).collect::<Vec<_>>()
        };
        rows.into_iter().flat_map(of_row).collect()
    }

    /// The algorithm or plan of that name.
    fn named(&self, task: &Task, name: &str, by: &str) -> Result<Proposal, NoChoice> {
        if let Some(algorithm) = crate::find(task.function, name) {
            return Ok(of_catalogue(algorithm, task));
        }
        let plans = || self.plans.iter().filter(|plan| plan.function == task.function);
        let mut of_that_name = plans().filter(|plan| plan.name == name).map(|plan| registered(plan, task));
        let first = of_that_name.next();
        // Several plans may have one name, say one for each root.
        match first.into_iter().chain(of_that_name).reduce(|a, b| if a.fits.is_ok() { a } else { b }) {
            Some(found) => Ok(found),
            None => {
                let own = catalogue().filter(|algorithm| algorithm.function == task.function);
                let mut known: Vec<String> = own.map(|algorithm| algorithm.name.to_owned()).collect();
                known.extend(plans().map(|plan| plan.name.clone()));
                known.dedup();
                Err(NoChoice::Unknown {
                    by: by.to_owned(),
                    function: task.function,
                    name: name.into(),
                    known,
                })
            }
        }
    }
}

fn of_catalogue(algorithm: &'static crate::Algorithm, task: &Task) -> Proposal {
    Proposal {
        taken: Taken::Catalogue(algorithm),
        range: (0, u64::MAX),
        blocks: None,
        reason: Reason::First,
        fits: (algorithm.fits)(task).map_err(str::to_owned),
    }
}

fn registered(plan: &Arc<Registered>, task: &Task) -> Proposal {
    Proposal {
        taken: Taken::Registered(Arc::clone(plan)),
        range: plan.range(),
        blocks: None,
        reason: Reason::Registered,
        fits: plan.fits(task),
    }
}

fn blocks(request: &Request<'_>) -> u32 {
    if request.bytes.is_some_and(|bytes| bytes >= SHARED_FROM) { request.room } else { 1 }
}

fn unfit(task: &Task, name: &str, why: String) -> NoChoice {
    NoChoice::Unfit { function: task.function, name: name.to_owned(), why }
}

fn out_of_range((min, max): (u64, u64)) -> String {
    format!("it is for messages of {min} to {max} bytes")
}

fn nothing(request: &Request<'_>, proposals: &[Proposal]) -> NoChoice {
    let mut why: Vec<(String, String)> = Vec::new();
    for proposal in proposals {
        let name = proposal.taken.name();
        if !why.iter().any(|(other, _)| other == name) {
            let reason = proposal.fits.clone().err().unwrap_or_else(|| out_of_range(proposal.range));
            why.push((name.to_owned(), reason));
        }
    }
    NoChoice::Nothing { function: request.task.function, why }
}
