//! How launches begin and end: a rank's launcher lets its blocks begin, and goes on when all have ended.

use super::super::result::Lane;
use super::thread::Phase;
use super::{Event, Run};

impl Run<'_> {
    /// Lets the blocks of a rank begin; true when all have ended.
    pub(super) fn blocks(&mut self, number: usize) -> bool {
        let rank = self.threads[number].rank;
        let blocks = self.blocks_of[rank as usize].clone();
        match self.threads[number].phase {
            Phase::Begin if !blocks.is_empty() => {
                self.threads[number].phase = Phase::Wait;
                self.running[rank as usize] = blocks.len() as u32;
                let before = self.threads[number].last_span;
                for block in blocks {
                    self.threads[block].last_span = before;
                    self.calendar.at(self.now, Event::Thread(block));
                }
                false
            }
            Phase::Begin => true,
            phase => phase == Phase::Act,
        }
    }

    /// A thread has no more steps in this launch.
    pub(super) fn ended(&mut self, number: usize) {
        let rank = self.threads[number].rank as usize;
        let of = &mut self.threads[number];
        (of.at, of.phase) = (0, Phase::Begin);
        of.round += 1;
        let (round, lane, last) = (of.round, of.lane, of.last_span);
        if lane != Lane::Launch {
            self.running[rank] -= 1;
            if self.running[rank] == 0 {
                let launcher = self.program.blocks.len() + rank;
                self.wake(launcher, last);
            }
            return;
        }
        if let Some(launch) = self.launches[rank].last_mut() {
            launch.1 = self.now;
        }
        self.packets.forget(rank as u32, round - 1);
        if round < self.request.rounds.max(1) {
            self.launches[rank].push((self.now, 0.0));
            self.calendar.at(self.now, Event::Thread(number));
        }
    }
}
