//! How long a message between kernels of two GPUs takes, one way.

use std::fmt;

use warpway_core::Result;

use super::pair::{Pair, Times, word};
use super::parameters::FlightArguments;
use super::programs::{self, Source};
use crate::module::LaunchShape;

/// Rounds before the clock starts: the second kernel starts later than the first.
const WARM_UP: u64 = 64;

/// Cycles: more than a test takes.
const DITHER: u32 = 600;

/// Places in memory of one run.
const PLACES: u64 = 64;

/// What crosses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Message {
    /// A volatile 8-byte store and load: the floor of everything.
    VolatileFlag,
    /// The same with relaxed accesses of system scope.
    RelaxedFlag,
    /// Store-release and load-acquire: the floor of a signal that orders.
    ReleasedFlag,
    /// A packet of 16 bytes.
    Packet16,
    /// A packet of 8 bytes.
    Packet8,
    /// A line of 128 bytes.
    Line,
    /// `relaxedSignal` and `relaxedWait` of a semaphore.
    RelaxedSignal,
    /// `signal` and `wait`.
    Signal,
}

impl Message {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::VolatileFlag,
        Self::RelaxedFlag,
        Self::ReleasedFlag,
        Self::Packet16,
        Self::Packet8,
        Self::Line,
        Self::RelaxedSignal,
        Self::Signal,
    ];

    /// Whether a guard makes a difference.
    pub fn is_guarded(self) -> bool {
        matches!(self, Self::RelaxedSignal | Self::Signal)
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::VolatileFlag => "volatile flag",
            Self::RelaxedFlag => "relaxed flag",
            Self::ReleasedFlag => "release-acquire flag",
            Self::Packet16 => "LL16 packet",
            Self::Packet8 => "LL8 packet",
            Self::Line => "128-byte line",
            Self::RelaxedSignal => "relaxed signal, wait",
            Self::Signal => "signal, wait",
        })
    }
}

/// A ping-pong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flight {
    /// What crosses.
    pub message: Message,
    /// Whether signals look at the poison word first.
    pub guarded: bool,
    /// Whether waits are the library's, with abort word and deadline; bare ones only count.
    pub bounded: bool,
    /// Two loops that wait for each other fall into step, and a few cycles in either of them decide what a message waits
    /// for the next test. Where two forms of a wait are compared, delays of random length, which are not
    /// counted, keep them out of step.
    pub out_of_step: bool,
}

impl Flight {
    /// All that there are, in step: guards for signals only.
    pub fn all() -> impl Iterator<Item = Self> {
        Message::ALL.into_iter().flat_map(|message| {
            let guards: &[bool] = if message.is_guarded() { &[true, false] } else { &[false] };
            let both = |&guarded: &bool| {
                [true, false].map(|bounded| Self { message, guarded, bounded, out_of_step: false })
            };
            guards.iter().flat_map(both).collect::<Vec<_>>()
        })
    }

    pub(super) fn kernel(self) -> String {
        programs::flight(&format!("{:?}", self.message), self.guarded, self.bounded)
    }
}

impl Pair {
    /// Sends a message back and forth, `rounds` times at each of several places in memory: distances on a GPU differ. A
    /// sample is one way, half a round, at one place.
    ///
    /// # Errors
    /// `gpu.device` if a wait gave up, `gpu.timeout`, `gpu.driver`, `gpu.compile`.
    pub fn flight(&self, flight: Flight, rounds: u64) -> Result<Times> {
        self.clear_words()?;
        let mut times = Times::default();
        for place in (0..PLACES).map(word::place) {
            self.launch_flight(flight, rounds, place)?;
            self.synchronize()?;
            let [elapsed_ns] = self.sides[0].read(place + word::RESULT)?;
            times.us.push(elapsed_ns as f64 / 1e3 / (2 * rounds.max(1)) as f64);
            times.wrong += self.wrong_of_flight(flight, rounds, place)?;
        }
        Ok(times)
    }

    fn launch_flight(&self, flight: Flight, rounds: u64, place: u64) -> Result<()> {
        let shape = LaunchShape::new(1, if flight.message == Message::Line { 8 } else { 1 });
        for at in [0, 1] {
            let kernel = self.kernel(at, Source::Flight, &flight.kernel())?;
            let [here, there] = [at, 1 - at].map(|at| self.sides[at].words.address() + place);
            let arguments = FlightArguments {
                semaphore: self.semaphore(at, place),
                flag: here + word::FLAG,
                remote_flag: there + word::FLAG,
                slot: here + word::SLOT,
                remote_slot: there + word::SLOT,
                warm_up: WARM_UP,
                rounds,
                result: here + word::RESULT,
                begins: u32::from(at == 0),
                dither: if flight.out_of_step { DITHER } else { 0 },
            };
            // SAFETY: the kernel's parameters; the words of both sides live as long as the pair.
            unsafe { self.sides[at].launch(&kernel, shape, &(arguments,))? };
        }
        Ok(())
    }

    fn wrong_of_flight(&self, flight: Flight, rounds: u64, place: u64) -> Result<u64> {
        let all = WARM_UP + rounds;
        let awaited = if flight.message.is_guarded() { all } else { 0 };
        let mut wrong = 0;
        for side in &self.sides {
            let [_, mismatches, completed] = side.read(place + word::RESULT)?;
            let [signals] = side.read(place + word::TOKEN)?;
            wrong += mismatches + all.abs_diff(completed) + awaited.abs_diff(signals);
        }
        Ok(wrong)
    }
}
