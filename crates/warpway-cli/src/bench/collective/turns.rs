//! How contestants alternate in one case, and what is kept of it.

use std::time::Instant;

use anyhow::Context as _;

use super::super::statistics::Samples;
use super::case::Case;

/// A batch lasts about so many seconds, so that reading the clock does not count.
const BATCH_SECONDS: f64 = 0.002;
/// Calls of one batch at most; keeps batches of the fastest calls short as well.
const BATCH_CALLS: u64 = 20_000;
/// However long they take.
const LEAST_ROUNDS: u32 = 5;

/// Who is measured. A case is opened, its batches run, and it is closed before the next.
pub(super) trait Contestant {
    /// For people.
    fn name(&self) -> String;

    /// Gets ready, with a checked call.
    fn open(&mut self, case: Case) -> anyhow::Result<Opened>;

    /// `warm` calls, then `calls` timed ones: seconds of one of these on the slowest rank.
    fn batch(&mut self, warm: u64, calls: u64) -> anyhow::Result<f64>;

    /// Another checked call: wrong elements.
    fn close(&mut self) -> anyhow::Result<u64>;
}

/// What became of a case when it was opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Opened {
    Ready {
        /// What it works in really.
        in_place: bool,
        /// Wrong elements.
        wrong: u64,
        /// How it goes about it, if that is known.
        algorithm: Option<String>,
    },
    /// It has no such call, and why.
    Unsupported(String),
}

/// How long to measure.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    /// Batches of each contestant at most.
    pub(super) batches: u32,
    /// Calls of a batch; by time if there is none.
    pub(super) calls: Option<u64>,
    /// Seconds after which a case gets no further round, once it has had a few.
    pub(super) seconds: f64,
    /// A call with new data, all of it compared, before and after the timed ones.
    pub(super) check: bool,
}

/// A contestant's case.
#[derive(Debug, Clone)]
pub(super) struct Outcome {
    pub(super) name: String,
    pub(super) opened: Opened,
    /// Microseconds of a call, one per batch.
    pub(super) samples: Samples,
    /// Elements, in all checked calls.
    pub(super) wrong: u64,
}

/// Gives every contestant its turns, every other round in reverse order. `progress` is told who is next.
pub(super) fn hold(
    contestants: &mut [&mut dyn Contestant],
    case: Case,
    pace: Pace,
    progress: &dyn Fn(&str),
) -> anyhow::Result<Vec<Outcome>> {
    let mut outcomes = Vec::new();
    // Those that have the call, with the calls of a batch.
    let mut ready: Vec<(usize, u64)> = Vec::new();
    for (index, contestant) in contestants.iter_mut().enumerate() {
        let name = contestant.name();
        progress(&name);
        let opened = contestant.open(case).with_context(|| name.clone())?;
        let mut wrong = 0;
        if let Opened::Ready { wrong: found, .. } = &opened {
            wrong = *found;
            let calls = match pace.calls {
                Some(calls) => calls,
                None => calls_of_a_batch(*contestant).with_context(|| name.clone())?,
            };
            ready.push((index, calls));
        }
        outcomes.push(Outcome { name, opened, samples: Samples::default(), wrong });
    }
    let mut samples = vec![Vec::new(); contestants.len()];
    let begin = Instant::now();
    for round in 0..pace.batches {
        if round >= LEAST_ROUNDS && begin.elapsed().as_secs_f64() > pace.seconds {
            break;
        }
        let turn = |place: usize| if round % 2 == 0 { place } else { ready.len() - 1 - place };
        for (index, calls) in (0..ready.len()).map(|place| ready[turn(place)]) {
            progress(&outcomes[index].name);
            // Another program had the caches meanwhile.
            let warm = (calls / 10).max(1);
            let seconds =
                contestants[index].batch(warm, calls).with_context(|| outcomes[index].name.clone())?;
            samples[index].push(seconds * 1e6);
        }
    }
    for (index, _) in ready {
        let outcome = &mut outcomes[index];
        outcome.wrong += contestants[index].close().with_context(|| outcome.name.clone())?;
        outcome.samples = Samples::new(std::mem::take(&mut samples[index]));
    }
    Ok(outcomes)
}

fn calls_of_a_batch(contestant: &mut dyn Contestant) -> anyhow::Result<u64> {
    let mut calls = 1;
    loop {
        let seconds = contestant.batch(1, calls)?.max(1e-9);
        let wanted = ((BATCH_SECONDS / seconds) as u64).clamp(1, BATCH_CALLS);
        // The first calls are slow: a batch that was long enough says how many it takes.
        if seconds * calls as f64 >= BATCH_SECONDS / 4.0 || calls >= BATCH_CALLS {
            return Ok(wanted);
        }
        calls = wanted.clamp(calls + 1, calls * 16);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    struct Fake<'a> {
        name: &'static str,
        seconds: f64,
        opened: Opened,
        log: &'a RefCell<Vec<String>>,
    }

    impl Contestant for Fake<'_> {
        fn name(&self) -> String {
            self.name.to_owned()
        }

        fn open(&mut self, _: Case) -> anyhow::Result<Opened> {
            Ok(self.opened.clone())
        }

        fn batch(&mut self, warm: u64, calls: u64) -> anyhow::Result<f64> {
            self.log.borrow_mut().push(format!("{} {warm}+{calls}", self.name));
            Ok(self.seconds)
        }

        fn close(&mut self) -> anyhow::Result<u64> {
            Ok(2)
        }
    }

    fn ready(wrong: u64) -> Opened {
        Opened::Ready { in_place: false, wrong, algorithm: None }
    }

    const CASE: Case = Case { bytes: 8, in_place: false };

    #[test]
    fn contestants_alternate_and_those_without_the_call_sit_out() {
        let log = RefCell::default();
        let fake = |name, seconds, opened| Fake { name, seconds, opened, log: &log };
        let mut a = fake("a", 1e-6, ready(1));
        let mut b = fake("b", 2e-6, Opened::Unsupported("no".into()));
        let mut c = fake("c", 3e-6, ready(0));
        let pace = Pace { batches: 3, calls: Some(20), seconds: 60.0, check: true };
        let outcomes = hold(&mut [&mut a, &mut b, &mut c], CASE, pace, &|_| {}).unwrap();
        assert_eq!(*log.borrow(), ["a 2+20", "c 2+20", "c 2+20", "a 2+20", "a 2+20", "c 2+20"]);
        assert_eq!(outcomes.iter().map(|o| o.wrong).collect::<Vec<_>>(), [3, 0, 2]);
        assert_eq!(outcomes.iter().map(|o| o.samples.median()).collect::<Vec<_>>(), [1.0, 0.0, 3.0]);
    }

    #[test]
    fn a_batch_lasts_two_milliseconds() {
        let log = RefCell::default();
        for (seconds, calls) in [(1e-6, 2000), (1e-8, 20_000), (0.1, 1)] {
            let mut fake = Fake { name: "a", seconds, opened: ready(0), log: &log };
            let found = calls_of_a_batch(&mut fake).unwrap();
            assert!(found.abs_diff(calls) <= 1, "{found} {calls}");
        }
        // The third had one batch, and so had slow ones of the others, growing no more than 16-fold.
        assert_eq!(log.borrow()[..3], ["a 1+1", "a 1+16", "a 1+256"]);
    }

    #[test]
    fn time_ends_a_case_after_a_few_rounds() {
        let log = RefCell::default();
        let mut fake = Fake { name: "a", seconds: 1.0, opened: ready(0), log: &log };
        let pace = Pace { batches: 100, calls: Some(1), seconds: 0.0, check: true };
        hold(&mut [&mut fake], CASE, pace, &|_| {}).unwrap();
        assert_eq!(log.borrow().len(), 5);
    }
}
