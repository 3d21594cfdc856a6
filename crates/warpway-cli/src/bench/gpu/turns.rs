//! Contestants in turns, and what is kept of their samples.

use warpway_cuda::bench::{Pair, Times};

/// One of those that are compared: a name, and a run that gives samples and the number of wrong words.
pub(super) struct Contestant<'c> {
    name: String,
    run: Box<dyn FnMut() -> warpway::Result<Run> + 'c>,
}

/// Samples of one turn.
pub(super) struct Run {
    pub(super) samples: Vec<f64>,
    pub(super) wrong: u64,
}

impl From<Times> for Run {
    fn from(times: Times) -> Self {
        Self { samples: times.us, wrong: times.wrong }
    }
}

impl<'c> Contestant<'c> {
    pub(super) fn new(name: impl ToString, run: impl FnMut() -> warpway::Result<Run> + 'c) -> Self {
        Self { name: name.to_string(), run: Box::new(run) }
    }
}

/// What a contestant has measured.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Series {
    pub(super) name: String,
    /// Median of each round, in order.
    pub(super) rounds: Vec<f64>,
    /// All samples, sorted.
    pub(super) samples: Vec<f64>,
    pub(super) wrong: u64,
    /// Why it measured nothing more.
    pub(super) failed: Option<String>,
}

impl Series {
    pub(super) fn median(&self) -> Option<f64> {
        median(&self.rounds)
    }

    /// The median over the rounds of this one's figure divided by the other's of the same round.
    pub(super) fn ratio_to(&self, other: &Self) -> Option<f64> {
        let ratios: Vec<f64> =
            self.rounds.iter().zip(&other.rounds).map(|(own, other)| own / other).collect();
        median(&ratios)
    }

    /// Nearest rank.
    pub(super) fn quantile(&self, share: f64) -> Option<f64> {
        let last = self.samples.len().checked_sub(1)?;
        self.samples.get((share * last as f64).round() as usize).copied()
    }
}

/// Lets each run once per round, in alternating order. One that fails is out, and the GPUs are made usable again; if
/// that does not succeed, all are.
pub(super) fn take(pair: &Pair, rounds: u32, contestants: Vec<Contestant<'_>>) -> Vec<Series> {
    in_turns(rounds, contestants, || pair.revive().map_err(|error| error.to_string()))
}

fn in_turns(
    rounds: u32,
    mut contestants: Vec<Contestant<'_>>,
    mut revive: impl FnMut() -> Result<(), String>,
) -> Vec<Series> {
    let mut all: Vec<Series> =
        contestants.iter().map(|c| Series { name: c.name.clone(), ..Series::default() }).collect();
    let mut lost: Option<String> = None;
    for round in 0..rounds {
        for turn in 0..contestants.len() {
            let at = if round.is_multiple_of(2) { turn } else { contestants.len() - 1 - turn };
            let (Some(contestant), Some(series)) = (contestants.get_mut(at), all.get_mut(at)) else {
                continue;
            };
            if series.failed.is_some() {
                continue;
            }
            if let Some(why) = &lost {
                series.failed = Some(why.clone());
                continue;
            }
            match (contestant.run)() {
                Ok(run) => {
                    series.rounds.extend(median(&run.samples));
                    series.samples.extend(run.samples);
                    series.wrong += run.wrong;
                }
                Err(error) => {
                    series.failed = Some(error.to_string());
                    lost = revive().err();
                }
            }
        }
    }
    all.iter_mut().for_each(|series| series.samples.sort_by(f64::total_cmp));
    all
}

/// `None` of nothing.
pub(super) fn median(samples: &[f64]) -> Option<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        n if n.is_multiple_of(2) => Some((sorted[middle - 1] + sorted[middle]) / 2.0),
        _ => Some(sorted[middle]),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    fn series(rounds: &[f64]) -> Series {
        Series { rounds: rounds.to_vec(), ..Series::default() }
    }

    #[test]
    fn contestants_alternate_and_their_rounds_are_kept_in_order() {
        let order = RefCell::new(String::new());
        let contestant = |name: &'static str, samples: &'static [f64]| {
            let order = &order;
            Contestant::new(name, move || {
                order.borrow_mut().push_str(name);
                Ok(Run { samples: samples.to_vec(), wrong: 2 })
            })
        };
        let all = in_turns(3, vec![contestant("a", &[5.0, 1.0, 3.0]), contestant("b", &[2.0])], || Ok(()));
        assert_eq!(*order.borrow(), "abbaab");
        assert_eq!((all[0].rounds.as_slice(), all[0].wrong), ([3.0; 3].as_slice(), 6));
        assert_eq!(all[0].samples, [1.0, 1.0, 1.0, 3.0, 3.0, 3.0, 5.0, 5.0, 5.0]);
        assert_eq!(
            (all[1].median(), all[0].quantile(0.99), all[0].quantile(0.5)),
            (Some(2.0), Some(5.0), Some(3.0))
        );
    }

    fn failing(name: &str) -> Contestant<'static> {
        Contestant::new(name, || {
            Err(warpway_core::Unavailable { what: "it".into(), why: "gone".into(), hint: "" }.into())
        })
    }

    #[test]
    fn one_that_fails_is_out_and_the_others_go_on() {
        let fine = Contestant::new("fine", || Ok(Run { samples: vec![1.0], wrong: 0 }));
        let mut revived = 0;
        let all = in_turns(4, vec![failing("broken"), fine], || {
            revived += 1;
            Ok(())
        });
        assert_eq!((revived, all[1].rounds.len(), &all[1].failed), (1, 4, &None));
        assert!(all[0].rounds.is_empty() && all[0].failed.as_ref().is_some_and(|why| why.contains("gone")));
        assert_eq!((all[0].median(), all[0].quantile(0.5), all[1].ratio_to(&all[0])), (None, None, None));
    }

    #[test]
    fn after_a_lost_context_nobody_runs() {
        let fine = || Contestant::new("fine", || Ok(Run { samples: vec![1.0], wrong: 0 }));
        let all = in_turns(2, vec![fine(), failing("broken"), fine()], || Err("context lost".into()));
        assert_eq!(all.iter().map(|series| series.rounds.len()).collect::<Vec<_>>(), [1, 0, 0]);
        assert_eq!(
            (all[0].failed.as_deref(), all[2].failed.as_deref()),
            (Some("context lost"), Some("context lost"))
        );
    }

    #[test]
    fn ratios_are_of_the_same_round() {
        // The machine was three times as slow in the second round, for both.
        assert_eq!(series(&[98.0, 33.0, 99.0]).ratio_to(&series(&[100.0, 33.0, 100.0])), Some(0.99));
        assert_eq!(series(&[1.0, 2.0]).median(), Some(1.5));
    }
}
