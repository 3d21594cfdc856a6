//! Calls that a rank has refused before it told anybody of them: other ranks may be waiting for it already.
//!
//! A refusal is a step like any other. The records of the control memory tell that a step was refused; why, and what ranks
//! without a way between them yet are about to do, goes by the control plane. If all ranks refuse a call, nobody waits.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use warpway_core::bootstrap::Subscription;
use warpway_core::communicator::Communicator;
use warpway_core::wait::EventCount;
use warpway_core::{Deadline, Error};

use super::executor::lock;

/// Of these messages, in the scope of the communicator.
const TAG: i32 = i32::MIN + 0x200;
/// Refusals of a rank that are remembered.
const KEPT: usize = 16;
/// Bytes of a reason that are sent.
const REASON: usize = 2000;
const REFUSES: u8 = 0;
const SETS_UP: u8 = 1;

/// What the ranks of a communicator have told of steps that they do not take.
pub(super) struct Refusals {
    comm: Communicator,
    heard: Arc<Heard>,
    _subscription: Subscription,
}

/// A step that a rank does not take, while this one does.
pub(super) struct Refusal {
    pub(super) rank: u32,
    pub(super) step: u64,
    pub(super) why: String,
}

#[derive(Default)]
struct Heard {
    /// Messages so far, for waits that look at little else.
    count: AtomicU64,
    event: EventCount,
    by_rank: Mutex<Vec<Told>>,
}

/// By one rank; by this one, too.
#[derive(Debug, Clone, Default)]
struct Told {
    /// The last plan that it has set up, as a step.
    set_up: u64,
    /// Steps, ascending, and why it has refused them.
    refused: VecDeque<(u64, String)>,
}

impl Heard {
    fn note(&self, rank: usize, note: impl FnOnce(&mut Told)) {
        if let Some(told) = lock(&self.by_rank).get_mut(rank) {
            note(told);
        }
        // Release: whoever sees the count finds the note.
        self.count.fetch_add(1, Ordering::Release);
        self.event.notify();
    }
}

impl Told {
    fn refuse(&mut self, step: u64, why: String) {
        if self.refused.len() == KEPT {
            self.refused.pop_front();
        }
        self.refused.push_back((step, why));
    }

    /// False for steps that it has refused, as far as that is remembered.
    fn took(&self, step: u64) -> bool {
        let forgotten = |first: &(u64, String)| self.refused.len() == KEPT && step < first.0;
        self.has_refused(step).is_none() && !self.refused.front().is_some_and(forgotten)
    }

    fn has_refused(&self, step: u64) -> Option<&String> {
        self.refused.iter().find(|(other, _)| *other == step).map(|(_, why)| why)
    }
}

impl Refusals {
    pub(super) fn new(comm: &Communicator) -> Self {
        let heard = Arc::new(Heard::default());
        lock(&heard.by_rank).resize(comm.n_ranks() as usize, Told::default());
        let (members, health) = (comm.members().to_vec(), Arc::clone(comm.health()));
        let sink = {
            let heard = Arc::clone(&heard);
            move |job_rank: u32, message: Vec<u8>| {
                let sender = members.iter().position(|member| *member == job_rank);
                let (Some(rank), Some((kind, step, text))) = (sender, parse(&message)) else {
                    let what = "all ranks tell of steps alike";
                    let error = Error::Internal { place: "plan refusals", what };
                    health.fail_local("plan", sender.map(|rank| rank as u32), error);
                    return;
                };
                heard.note(rank, |told| match kind {
                    SETS_UP => told.set_up = step,
                    _ => told.refuse(step, text),
                });
            }
        };
        let subscription = comm.control().subscribe(comm.scope(), TAG, Arc::new(sink));
        Self { comm: comm.clone(), heard, _subscription: subscription }
    }

    /// Tells all ranks that this one refuses `step`, and why.
    pub(super) fn refuse(&self, step: u64, why: &Error) {
        let rank = self.comm.rank();
        let why = why.to_string();
        let others: Vec<u32> = (0..self.comm.n_ranks()).filter(|other| *other != rank).collect();
        self.tell(REFUSES, step, &why, &others);
        self.heard.note(rank as usize, |told| told.refuse(step, why));
    }

    /// Tells `ranks` that this one sets a plan up as `step`.
    pub(super) fn set_up(&self, step: u64, ranks: &[u32]) {
        self.tell(SETS_UP, step, "", ranks);
    }

    fn tell(&self, kind: u8, step: u64, text: &str, ranks: &[u32]) {
        let end = text.floor_char_boundary(REASON);
        let mut message = vec![kind];
        message.extend_from_slice(&step.to_le_bytes());
        message.extend_from_slice(&text.as_bytes()[..end]);
        for rank in ranks {
            let Some(member) = self.comm.members().get(*rank as usize) else { continue };
            // A rank that has left waits for nobody; any other obstacle is that of the whole control plane.
            if let Err(error) = self.comm.control().post(self.comm.scope(), *member, TAG, &message) {
                tracing::debug!(%error, rank, "a rank has not been told of a step");
            }
        }
    }

    /// Grows with every message.
    pub(super) fn count(&self) -> u64 {
        self.heard.count.load(Ordering::Acquire)
    }

    /// Notified with every message.
    pub(super) fn event(&self) -> &EventCount {
        &self.heard.event
    }

    /// A rank that has refused `step` or an earlier one that this rank has taken: the rank, the step, and why.
    pub(super) fn until(&self, step: u64) -> Option<Refusal> {
        // The usual case.
        if self.count() == 0 {
            return None;
        }
        let by_rank = lock(&self.heard.by_rank);
        let own = by_rank.get(self.comm.rank() as usize)?;
        (0..).zip(&*by_rank).find_map(|(rank, told)| {
            let (step, why) = told.refused.iter().find(|(other, _)| *other <= step && own.took(*other))?;
            Some(Refusal { rank, step: *step, why: why.clone() })
        })
    }

    /// Why `peer`, whose record says so, has refused `step`: the reason may still be under way.
    pub(super) fn reason(&self, peer: u32, step: u64, deadline: Deadline) -> String {
        loop {
            let found =
                lock(&self.heard.by_rank).get(peer as usize).and_then(|t| t.has_refused(step).cloned());
            match found {
                Some(why) => return why,
                None if deadline.expired() => return "it has not told why".into(),
                None => std::thread::sleep(std::time::Duration::from_millis(1)),
            }
        }
    }

    /// True if `peer` has told that it sets a plan up as `step`.
    pub(super) fn sets_up(&self, peer: u32, step: u64) -> bool {
        lock(&self.heard.by_rank).get(peer as usize).is_some_and(|told| told.set_up >= step)
    }
}

impl fmt::Debug for Refusals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Refusals").field("by_rank", &*lock(&self.heard.by_rank)).finish_non_exhaustive()
    }
}

/// Kind, step and text.
fn parse(message: &[u8]) -> Option<(u8, u64, String)> {
    let (kind, rest) = message.split_first()?;
    let (step, text) = rest.split_first_chunk::<8>()?;
    let known = [REFUSES, SETS_UP].contains(kind);
    known.then(|| (*kind, u64::from_le_bytes(*step), String::from_utf8_lossy(text).into_owned()))
}
