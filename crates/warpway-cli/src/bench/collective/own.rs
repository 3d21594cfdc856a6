//! Warpway's own calls, and the plain copies beside them, as contestants.

use std::cell::RefCell;

use warpway_collectives::Explanation;

use super::case::Case;
use super::ranks::{Order, Ranks};
use super::turns::{Contestant, Opened};

/// Larger copies are no faster.
const MOST: u64 = 64 << 20;

/// Warpway. Opens and closes the case on all ranks, also for [`Copies`], which come after it.
pub(super) struct Warpway<'r, 'a> {
    ranks: &'r RefCell<Ranks<'a>>,
    check: bool,
    /// The account of the last choice.
    explanation: Option<Explanation>,
}

/// Copies by all ranks at once, between buffers that take as much memory as those of the case: so caches help both alike.
pub(super) struct Copies<'r, 'a> {
    ranks: &'r RefCell<Ranks<'a>>,
    /// Smaller cases have none.
    least: u64,
    /// Bytes that each rank copies.
    bytes: u64,
}

impl<'r, 'a> Warpway<'r, 'a> {
    pub(super) fn new(ranks: &'r RefCell<Ranks<'a>>, check: bool) -> Self {
        Self { ranks, check, explanation: None }
    }

    /// Why the last case took its algorithm.
    pub(super) fn explanation(&self) -> Option<&Explanation> {
        self.explanation.as_ref()
    }

    fn wrong(&self) -> anyhow::Result<u64> {
        Ok(if self.check { self.ranks.borrow_mut().lead(Order::Check)? as u64 } else { 0 })
    }
}

impl Contestant for Warpway<'_, '_> {
    fn name(&self) -> String {
        "Warpway".to_owned()
    }

    fn open(&mut self, case: Case) -> anyhow::Result<Opened> {
        self.ranks.borrow_mut().lead(Order::Open(case))?;
        // All ranks would find the same, but those that wait for orders need not.
        let explained = self.ranks.borrow_mut().explain();
        let explanation = match explained {
            Ok(explanation) => explanation,
            Err(error) => {
                self.explanation = None;
                self.ranks.borrow_mut().lead(Order::Close)?;
                return Ok(Opened::Unsupported(error.to_string()));
            }
        };
        let algorithm = explanation.as_ref().map(|explanation| {
            let blocks = explanation.task.n_blocks;
            let blocks = if blocks == 1 { String::new() } else { format!(" × {blocks}") };
            format!("{}{blocks}", explanation.taken())
        });
        self.explanation = explanation;
        Ok(Opened::Ready { in_place: case.in_place, wrong: self.wrong()?, algorithm })
    }

    fn batch(&mut self, warm: u64, calls: u64) -> anyhow::Result<f64> {
        Ok(self.ranks.borrow_mut().lead(Order::Batch { warm, calls })?)
    }

    fn close(&mut self) -> anyhow::Result<u64> {
        let wrong = self.wrong()?;
        self.ranks.borrow_mut().lead(Order::Close)?;
        Ok(wrong)
    }
}

impl<'r, 'a> Copies<'r, 'a> {
    pub(super) fn new(ranks: &'r RefCell<Ranks<'a>>, least: u64) -> Self {
        Self { ranks, least, bytes: 0 }
    }

    /// 10⁹ bytes read and written a second, by all ranks together, if a copy takes so long.
    pub(super) fn rate(&self, microseconds: f64) -> f64 {
        let moved = 2 * self.bytes * u64::from(self.ranks.borrow().subject().n_ranks);
        moved as f64 / microseconds / 1e3
    }
}

impl Contestant for Copies<'_, '_> {
    fn name(&self) -> String {
        "plain copies".to_owned()
    }

    fn open(&mut self, case: Case) -> anyhow::Result<Opened> {
        if case.bytes < self.least {
            return Ok(Opened::Unsupported(format!("only from {} bytes on", self.least)));
        }
        let subject = self.ranks.borrow().subject();
        let half = subject.footprint(case) / u64::from(subject.n_ranks) / 2;
        self.bytes = half.clamp(1, MOST);
        Ok(Opened::Ready { in_place: case.in_place, wrong: 0, algorithm: None })
    }

    fn batch(&mut self, warm: u64, calls: u64) -> anyhow::Result<f64> {
        Ok(self.ranks.borrow_mut().lead(Order::Copies { warm, calls, bytes: self.bytes })?)
    }

    fn close(&mut self) -> anyhow::Result<u64> {
        Ok(0)
    }
}
