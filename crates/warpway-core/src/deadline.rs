//! Limits of waits: [`Timeout`] is a length, [`Deadline`] a point in time.

use std::time::{Duration, Instant};

/// How long a single wait may take; `Timeout::NONE` waits until the communicator fails or is aborted.
///
/// The clock is read only when a wait leaves its fast path, so a timeout costs nothing where the
/// condition already holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeout(Option<Duration>);

impl Timeout {
    /// No limit other than failure and abort.
    pub const NONE: Self = Self(None);
    /// Does not wait at all.
    pub const ZERO: Self = Self(Some(Duration::ZERO));

    /// A limit of this length.
    pub const fn after(duration: Duration) -> Self {
        Self(Some(duration))
    }

    /// The length, `None` for no limit.
    pub const fn duration(self) -> Option<Duration> {
        self.0
    }

    /// The point at which a wait that starts now gives up. A length the clock cannot hold is no limit.
    pub fn start(self) -> Deadline {
        Deadline(self.0.and_then(|d| Instant::now().checked_add(d)))
    }
}

impl From<Duration> for Timeout {
    fn from(duration: Duration) -> Self {
        Self(Some(duration))
    }
}

/// A point in time by which an operation of several steps must have ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deadline(Option<Instant>);

impl Deadline {
    /// No limit other than failure and abort.
    pub const NEVER: Self = Self(None);

    /// `duration` from now.
    pub fn after(duration: Duration) -> Self {
        Timeout::after(duration).start()
    }

    /// At `instant`.
    pub const fn at(instant: Instant) -> Self {
        Self(Some(instant))
    }

    /// The instant, `None` for no limit.
    pub const fn instant(self) -> Option<Instant> {
        self.0
    }

    /// True once the point has passed.
    pub fn expired(self) -> bool {
        self.0.is_some_and(|at| Instant::now() >= at)
    }

    /// What is left, zero once passed, `None` for no limit.
    pub fn remaining(self) -> Option<Duration> {
        self.0.map(|at| at.saturating_duration_since(Instant::now()))
    }

    /// The sooner of the two.
    pub fn min(self, other: Self) -> Self {
        match (self.0, other.0) {
            (Some(a), Some(b)) => Self(Some(a.min(b))),
            (a, b) => Self(a.or(b)),
        }
    }
}

impl From<Deadline> for Timeout {
    fn from(deadline: Deadline) -> Self {
        Self(deadline.remaining())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn min_prefers_any_limit_over_none() {
        let soon = Deadline::after(Duration::from_millis(1));
        let late = Deadline::after(Duration::from_secs(60));
        assert_eq!(soon.min(late), soon);
        assert_eq!(late.min(soon), soon);
        assert_eq!(Deadline::NEVER.min(late), late);
        assert_eq!(late.min(Deadline::NEVER), late);
        assert_eq!(Deadline::NEVER.min(Deadline::NEVER), Deadline::NEVER);
    }

    #[test]
    fn unrepresentable_lengths_do_not_wrap() {
        assert_eq!(Timeout::after(Duration::MAX).start(), Deadline::NEVER);
        assert!(Timeout::ZERO.start().expired());
        assert_eq!(Timeout::ZERO.start().remaining(), Some(Duration::ZERO));
    }
}
