//! Events: a point in a stream, and when it was passed.

use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

use super::call::lock;
use super::capture::Mark;

#[derive(Debug)]
pub(super) struct Event {
    pub(super) device: usize,
    pub(super) timed: bool,
    points: Mutex<Points>,
    passed: Condvar,
}

#[derive(Debug, Default)]
struct Points {
    recorded: u64,
    passed: u64,
    at: Option<Instant>,
    /// The last record was part of a capture: there is nothing to wait for.
    captured: Option<Mark>,
}

impl Event {
    pub(super) fn new(device: usize, timed: bool) -> Self {
        Self { device, timed, points: Mutex::default(), passed: Condvar::new() }
    }

    /// The number of a new point, which `pass` will be told.
    pub(super) fn record(&self) -> u64 {
        let mut points = lock(&self.points);
        points.captured = None;
        points.recorded += 1;
        points.recorded
    }

    /// Recorded in a stream that is being captured.
    pub(super) fn capture(&self, mark: Mark) {
        lock(&self.points).captured = Some(mark);
    }

    pub(super) fn captured(&self) -> Option<Mark> {
        lock(&self.points).captured.clone()
    }

    /// The last recorded point, 0 if there is none.
    pub(super) fn recorded(&self) -> u64 {
        lock(&self.points).recorded
    }

    /// A stream has come to a point.
    pub(super) fn pass(&self, point: u64) {
        let mut points = lock(&self.points);
        if point > points.passed {
            points.passed = point;
            points.at = Some(Instant::now());
        }
        self.passed.notify_all();
    }

    pub(super) fn has_passed(&self, point: u64) -> bool {
        lock(&self.points).passed >= point
    }

    /// When the last recorded point was passed.
    pub(super) fn time(&self) -> Option<Instant> {
        let points = lock(&self.points);
        if points.passed == points.recorded { points.at } else { None }
    }

    /// Waits until a point has been passed; false if that takes too long.
    pub(super) fn wait(&self, point: u64, limit: Duration) -> bool {
        let waiting = |points: &mut Points| points.passed < point;
        let waited = self.passed.wait_timeout_while(lock(&self.points), limit, waiting);
        !waited.unwrap_or_else(std::sync::PoisonError::into_inner).1.timed_out()
    }
}
