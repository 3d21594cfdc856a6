//! What is to happen, in order of time.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use super::SpanId;

/// What happens at a time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Event {
    /// A thread goes on.
    Thread(usize),
    /// A signal arrives at a channel's end, from that span.
    Signal(u32, Option<SpanId>),
    /// The packets of a span can be read.
    Packets(u32, u32),
    /// The proxy of a rank takes its next request, or has taken one.
    Proxy(u32),
    /// A connection may send its next message.
    Connection(usize),
    /// A message has arrived.
    Delivered(usize),
    /// The sender knows that the first requests of a channel are complete.
    Complete(u32),
}

/// A moment and its event; of equal moments the event that was planned first comes first.
#[derive(Debug, PartialEq)]
struct Planned {
    at: f64,
    number: u64,
    event: Event,
}

impl Eq for Planned {}

impl Ord for Planned {
    fn cmp(&self, other: &Self) -> Ordering {
        self.at.total_cmp(&other.at).then(self.number.cmp(&other.number))
    }
}

impl PartialOrd for Planned {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The future.
#[derive(Debug, Default)]
pub(super) struct Calendar {
    planned: BinaryHeap<Reverse<Planned>>,
    count: u64,
}

impl Calendar {
    /// When the next event is.
    pub(super) fn next(&self) -> Option<f64> {
        self.planned.peek().map(|Reverse(planned)| planned.at)
    }

    pub(super) fn pop(&mut self) -> Option<(f64, Event)> {
        self.planned.pop().map(|Reverse(planned)| (planned.at, planned.event))
    }

    pub(super) fn at(&mut self, at: f64, event: Event) {
        self.count += 1;
        self.planned.push(Reverse(Planned { at, number: self.count, event }));
    }
}
