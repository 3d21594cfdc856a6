//! Capture of streams into graphs.
//!
//! Work is kept in the order in which it was captured. That order respects every dependency, so replaying it is a legal
//! execution of the graph. Forks and joins are followed only to find streams that were not joined.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::thread::ThreadId;

use warpway_cuda_sys::driver_types::{
    CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_RELAXED, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
    CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, CUstreamCaptureMode_enum,
};

use super::call::Answer;
use super::state::State;
use super::work::Work;

#[derive(Debug)]
pub(super) struct Capture {
    pub(super) origin: u64,
    pub(super) mode: CUstreamCaptureMode_enum,
    pub(super) thread: ThreadId,
    pub(super) work: Vec<Work>,
    pub(super) invalid: bool,
    /// What each stream of the capture has seen.
    clocks: BTreeMap<u64, Clock>,
}

/// For each stream, how many steps of it came before.
type Clock = BTreeMap<u64, u64>;

/// A point of a capture, as an event remembers it.
#[derive(Debug, Clone)]
pub(super) struct Mark {
    pub(super) capture: u64,
    clock: Clock,
}

thread_local! {
    /// `cuThreadExchangeStreamCaptureMode`.
    pub(super) static MODE: Cell<CUstreamCaptureMode_enum> = const { Cell::new(CU_STREAM_CAPTURE_MODE_GLOBAL) };
}

impl Capture {
    pub(super) fn new(origin: u64, mode: CUstreamCaptureMode_enum) -> Self {
        Self {
            origin,
            mode,
            thread: std::thread::current().id(),
            work: Vec::new(),
            invalid: false,
            clocks: BTreeMap::from([(origin, Clock::new())]),
        }
    }

    pub(super) fn add(&mut self, stream: u64, work: Vec<Work>) -> Answer {
        if self.invalid {
            return Err(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        }
        self.work.extend(work);
        *self.clocks.entry(stream).or_default().entry(stream).or_default() += 1;
        Ok(())
    }

    /// The point that a stream has come to. `capture` is this capture's number.
    pub(super) fn mark(&self, capture: u64, stream: u64) -> Mark {
        Mark { capture, clock: self.clocks.get(&stream).cloned().unwrap_or_default() }
    }

    /// A stream waits for a point, and is part of the capture from now on.
    pub(super) fn join(&mut self, stream: u64, mark: &Mark) {
        let clock = self.clocks.entry(stream).or_default();
        for (other, steps) in &mark.clock {
            let seen = clock.entry(*other).or_default();
            *seen = (*seen).max(*steps);
        }
        // Taking part is a step: a fork without work must be joined as well.
        *clock.entry(stream).or_default() += 1;
    }

    pub(super) fn streams(&self) -> impl Iterator<Item = u64> {
        self.clocks.keys().copied()
    }

    /// Whether the origin has waited for all that the other streams did.
    pub(super) fn is_joined(&self) -> bool {
        let seen = self.clocks.get(&self.origin);
        self.clocks.iter().all(|(stream, clock)| {
            let steps = clock.get(stream).copied().unwrap_or_default();
            *stream == self.origin
                || seen.and_then(|seen| seen.get(stream)).is_some_and(|seen| *seen >= steps)
        })
    }
}

impl State {
    pub(super) fn invalidate(&mut self, capture: u64) {
        if let Some(capture) = self.captures.get_mut(&capture) {
            capture.invalid = true;
        }
    }

    /// Refuses a call that could break a capture, by the modes of the captures and of the calling thread; the captures
    /// that it would break are invalid from then on.
    pub(super) fn uncaptured(&mut self) -> Answer {
        if MODE.get() == CU_STREAM_CAPTURE_MODE_RELAXED {
            return Ok(());
        }
        let (here, global) = (std::thread::current().id(), MODE.get() == CU_STREAM_CAPTURE_MODE_GLOBAL);
        let mut broken = false;
        for capture in self.captures.values_mut() {
            let own = capture.thread == here && capture.mode != CU_STREAM_CAPTURE_MODE_RELAXED;
            if own || global && capture.mode == CU_STREAM_CAPTURE_MODE_GLOBAL {
                capture.invalid = true;
                broken = true;
            }
        }
        if broken { Err(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED) } else { Ok(()) }
    }

    /// Refuses to wait for a device of which a stream is captured.
    pub(super) fn waitable(&mut self, device: usize) -> Answer {
        let captured =
            self.streams.values().find(|stream| stream.device == device && stream.capture.is_some());
        match captured.and_then(|stream| stream.capture) {
            None => Ok(()),
            Some(capture) => {
                self.invalidate(capture);
                Err(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
            }
        }
    }

    /// The capture of a stream, if it has one.
    pub(super) fn capture_of(&self, stream: u64) -> Option<u64> {
        self.streams.get(&stream)?.capture
    }

    /// Refuses a call that the stream's capture does not allow at all.
    pub(super) fn not_capturing(&mut self, stream: u64) -> Answer {
        match self.capture_of(stream) {
            None => Ok(()),
            Some(capture) => {
                self.invalidate(capture);
                Err(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
            }
        }
    }
}
