//! Where the two cores are. A virtual machine's cores move between caches while it runs: a line takes some ten nanoseconds
//! from one to the other, or some hundred. Figures of one place say nothing of the other.

use std::fmt;

use warpway_plan::simulate::Machine;

use super::primitives;
use super::rank::Rank;

/// Calibrations at most.
const MOST: usize = 4;

/// One way of a signal, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Flight(pub(super) f64);

/// The cores have moved, and did not come back.
#[derive(Debug)]
pub(super) struct Moved;

/// Topologies by place.
pub(super) struct Placements {
    known: Vec<(Flight, Machine)>,
    /// Others are measured as they are needed.
    may_calibrate: bool,
}

impl fmt::Display for Moved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "the cores of this machine move between caches so often that nothing can be measured: try again",
        )
    }
}

impl std::error::Error for Moved {}

impl Flight {
    /// In the same place, as far as flights tell.
    pub(super) fn is_near(self, other: Self) -> bool {
        self.0.max(other.0) <= 1.4 * self.0.min(other.0) + 5.0
    }
}

impl Placements {
    /// None yet; they are measured as they are needed.
    pub(super) fn of_this_machine() -> Self {
        Self { known: Vec::new(), may_calibrate: true }
    }

    /// The topology of a file, which holds for one place only.
    pub(super) fn of_file(machine: Machine, is_guarded: bool) -> Self {
        let costs = &machine.costs;
        let flight = costs.signal_flight_ns + costs.signal_ns + costs.wait_ns + 2.0 * costs.step_ns;
        let flight = Flight(if is_guarded { flight } else { 0.0 });
        Self { known: vec![(flight, machine)], may_calibrate: false }
    }

    /// Measures primitives where the cores are now.
    pub(super) fn calibrate(&mut self, rank: &Rank) -> anyhow::Result<&Machine> {
        let mut tries = 1;
        let measured = loop {
            let flight = rank.flight()?;
            match primitives::measure(rank, flight) {
                Ok(machine) => break (flight, machine),
                Err(error) if error.is::<Moved>() && tries < MOST => tries += 1,
                Err(error) => return Err(error),
            }
            rank.say("again, since the cores have moved");
        };
        self.known.push(measured);
        let (_, machine) = self.known.last().ok_or(Moved)?;
        Ok(machine)
    }

    /// The topology of a place, measured now if there is none and may be one.
    pub(super) fn of(&mut self, flight: Flight, rank: &Rank) -> anyhow::Result<Option<usize>> {
        let find = |known: &[(Flight, Machine)]| known.iter().position(|(at, _)| at.is_near(flight));
        if find(&self.known).is_none() && self.may_calibrate && self.known.len() < MOST {
            self.calibrate(rank)?;
        }
        Ok(find(&self.known))
    }

    pub(super) fn machine(&self, number: usize) -> &Machine {
        &self.known[number].1
    }

    /// Flights of the places, in the order of their numbers.
    pub(super) fn flights(&self) -> impl Iterator<Item = Flight> {
        self.known.iter().map(|(flight, _)| *flight)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_and_far_cores_are_told_apart() {
        assert!(Flight(60.0).is_near(Flight(75.0)) && Flight(270.0).is_near(Flight(260.0)));
        assert!(!Flight(60.0).is_near(Flight(270.0)) && !Flight(270.0).is_near(Flight(60.0)));
        // Where nothing is measured, everything is one place.
        assert!(Flight(0.0).is_near(Flight(0.0)));
    }
}
