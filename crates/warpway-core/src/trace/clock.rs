//! The recorder's clock: the processor's time-stamp counter where the kernel itself trusts it, `Instant`
//! elsewhere.
//!
//! Reading the counter costs 9 ns, `Instant::now` 25 ns, and a record needs two readings. The counter is
//! not calibrated: its value is stored raw and scaled to `Instant`'s nanoseconds when somebody looks, by
//! the line through (epoch, now).

use std::time::{Instant, SystemTime, UNIX_EPOCH};

#[derive(Debug)]
pub(super) struct Clock {
    epoch: Instant,
    epoch_unix_ns: u64,
    /// The counter at the epoch, if it is used.
    counter: Option<u64>,
}

/// Turns raw readings into nanoseconds since the epoch.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scale {
    nanoseconds: u64,
    ticks: u64,
}

impl Clock {
    pub(super) fn start() -> Self {
        Self::new(counter::is_trusted())
    }

    fn new(use_counter: bool) -> Self {
        let counter = use_counter.then(counter::read);
        let since_unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            epoch: Instant::now(),
            epoch_unix_ns: u64::try_from(since_unix.as_nanos()).unwrap_or(u64::MAX),
            counter,
        }
    }

    /// A raw reading since the epoch.
    #[inline]
    pub(super) fn now(&self) -> u64 {
        match self.counter {
            Some(epoch) => counter::read().wrapping_sub(epoch),
            None => self.nanoseconds_at(Instant::now()),
        }
    }

    /// Wall-clock time of the epoch.
    pub(super) fn epoch_unix_ns(&self) -> u64 {
        self.epoch_unix_ns
    }

    pub(super) fn nanoseconds_at(&self, instant: Instant) -> u64 {
        u64::try_from(instant.saturating_duration_since(self.epoch).as_nanos()).unwrap_or(u64::MAX)
    }

    pub(super) fn scale(&self) -> Scale {
        match self.counter {
            Some(_) => Scale { nanoseconds: self.nanoseconds_at(Instant::now()), ticks: self.now() },
            None => Scale { nanoseconds: 1, ticks: 1 },
        }
    }
}

impl Scale {
    pub(super) fn nanoseconds(self, reading: u64) -> u64 {
        let scaled = u128::from(reading) * u128::from(self.nanoseconds) / u128::from(self.ticks.max(1));
        u64::try_from(scaled).unwrap_or(u64::MAX)
    }
}

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod counter {
    /// True if the kernel's own clock is the counter: it is then constant and equal on all cores.
    pub(super) fn is_trusted() -> bool {
        std::fs::read("/sys/devices/system/clocksource/clocksource0/current_clocksource")
            .is_ok_and(|name| name.trim_ascii() == b"tsc")
    }

    #[inline]
    pub(super) fn read() -> u64 {
        // SAFETY: every x86-64 processor has the instruction; a process forbidden to use it
        // (prctl PR_SET_TSC) could not read the kernel's clock in the vDSO either.
        unsafe { std::arch::x86_64::_rdtsc() }
    }
}

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
mod counter {
    pub(super) fn is_trusted() -> bool {
        false
    }

    pub(super) fn read() -> u64 {
        0
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// A reading lies between two instants taken around it, give or take the error of the scale.
    fn agrees_with_instants(clock: &Clock) {
        let before = clock.nanoseconds_at(Instant::now());
        std::thread::sleep(Duration::from_millis(2));
        let reading = clock.now();
        std::thread::sleep(Duration::from_millis(2));
        let after = clock.nanoseconds_at(Instant::now());
        std::thread::sleep(Duration::from_millis(20));
        let found = clock.scale().nanoseconds(reading);
        assert!(before < found && found < after, "{before} < {found} < {after}");
    }

    #[test]
    fn both_sources_agree_with_instants() {
        agrees_with_instants(&Clock::new(false));
        agrees_with_instants(&Clock::start());
    }

    #[test]
    fn scales_without_overflow_or_division_by_zero() {
        let scale = Scale { nanoseconds: u64::MAX, ticks: u64::MAX };
        assert_eq!(scale.nanoseconds(u64::MAX), u64::MAX);
        assert_eq!(Scale { nanoseconds: 0, ticks: 0 }.nanoseconds(17), 0);
        assert_eq!(Scale { nanoseconds: 3, ticks: 7 }.nanoseconds(14), 6);
        assert_eq!(Scale { nanoseconds: u64::MAX, ticks: 1 }.nanoseconds(2), u64::MAX);
    }
}
