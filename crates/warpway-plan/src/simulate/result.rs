//! What a simulation found.

use super::bound::Bound;
use super::program::Kind;
use crate::verify::OpPath;

/// Number of a span in [`Simulation::spans`].
pub type SpanId = usize;

/// What one launch of a plan does when, and how long it takes. Times are nanoseconds from the moment when the first rank
/// begins the launch.
#[derive(Debug, Clone, PartialEq)]
pub struct Simulation {
    /// From one end of the launch to the next where launches follow each other; else from begin to end.
    pub total_ns: f64,
    /// What no schedule can be faster than: see [`Bound`].
    pub bound: Bound,
    /// By rank.
    pub ranks: Vec<RankTime>,
    /// Host of each rank.
    pub host_of: Vec<u32>,
    /// Everything that is shared, the busiest first.
    pub loads: Vec<Load>,
    /// In the order in which they ended; empty unless recorded.
    pub spans: Vec<Span>,
    /// What the end had to wait for, from the first span to the last.
    pub critical_path: Vec<SpanId>,
}

/// One rank's launch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RankTime {
    /// When it began.
    pub start_ns: f64,
    /// When it ended.
    pub end_ns: f64,
    /// Of its blocks together, in steps that were not waits; 0 unless recorded.
    pub busy_ns: f64,
    /// Of its blocks together, waiting; 0 unless recorded.
    pub waiting_ns: f64,
}

/// What a shared resource carried in one launch.
#[derive(Debug, Clone, PartialEq)]
pub struct Load {
    /// `memory of host 0`, `nic 1 of host 0, out`.
    pub name: String,
    /// Bytes that crossed it, for interfaces and links.
    pub bytes: Option<f64>,
    /// Of what it could have carried.
    pub busy: f64,
}

/// Where a span lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Lane {
    /// What a rank does before its blocks begin and after they have ended.
    Launch,
    /// A block.
    Block(u32),
    /// What the rank's proxy copies within the host.
    Proxy,
    /// Messages to a rank of another host.
    Wire(u32),
}

/// What a span is, for colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SpanKind {
    /// Launch and handshakes.
    Launch,
    /// Bytes moved as they are.
    Copy,
    /// Bytes folded.
    Fold,
    /// Packets written or read.
    Packets,
    /// Signals and releases.
    Signal,
    /// Waits, acquisitions, flushes, barriers.
    Wait,
    /// Requests to the proxy.
    Request,
    /// What the proxy or a connection does.
    Message,
}

/// What a block did, from when to when.
#[derive(Debug, Clone, PartialEq)]
pub struct Span {
    /// Whose.
    pub rank: u32,
    /// Where.
    pub lane: Lane,
    /// What kind.
    pub kind: SpanKind,
    /// The operation's name in the file.
    pub name: &'static str,
    /// Its place in the block.
    pub path: OpPath,
    /// Of its pipeline.
    pub iteration: u64,
    /// When it began.
    pub start: f64,
    /// When it no longer had to wait; of messages, when all had been sent.
    pub ready: f64,
    /// When it ended.
    pub end: f64,
    /// Bytes of data of one item.
    pub bytes: u64,
    /// What it waited for.
    pub cause: Option<SpanId>,
    /// What came before it in its lane.
    pub before: Option<SpanId>,
}

impl SpanKind {
    /// Every one.
    pub const ALL: [Self; 8] = [
        Self::Launch,
        Self::Copy,
        Self::Fold,
        Self::Packets,
        Self::Signal,
        Self::Wait,
        Self::Request,
        Self::Message,
    ];

    /// For legends.
    pub fn name(self) -> &'static str {
        match self {
            Self::Launch => "launch",
            Self::Copy => "copy",
            Self::Fold => "fold",
            Self::Packets => "packets",
            Self::Signal => "signal",
            Self::Wait => "wait",
            Self::Request => "request",
            Self::Message => "message",
        }
    }

    pub(super) fn of(kind: &Kind) -> Self {
        match kind {
            Kind::Delay(_) | Kind::Announce(_) | Kind::Hear(_) | Kind::Blocks => Self::Launch,
            Kind::Signal(_) | Kind::Release(_) => Self::Signal,
            Kind::Wait(_) | Kind::Acquire(_) | Kind::Flush(_) | Kind::Barrier(..) | Kind::Loop { .. } => {
                Self::Wait
            }
            Kind::PortSignal(_) | Kind::Put { .. } => Self::Request,
            Kind::Move(work) if work.folds => Self::Fold,
            Kind::Move(work) if work.awaits => Self::Wait,
            Kind::Move(work) if work.touches_packets() => Self::Packets,
            Kind::Move(_) => Self::Copy,
        }
    }
}

impl Span {
    /// How long it waited before it could begin.
    pub fn waited(&self) -> f64 {
        match self.kind {
            SpanKind::Message => 0.0,
            _ => self.ready - self.start,
        }
    }
}

impl Simulation {
    /// Rate at which a message of so many bytes was worked off, in GB/s.
    pub fn algorithm_rate(&self, bytes: u64) -> f64 {
        bytes as f64 / self.total_ns
    }
}

/// What the last span had to wait for: backwards from the end, to what ended a wait, or to what came before.
pub(super) fn critical_path(spans: &[Span]) -> Vec<SpanId> {
    let ends = spans.iter().enumerate().filter(|(_, span)| span.lane != Lane::Launch);
    let last = ends.max_by(|(_, a), (_, b)| a.end.total_cmp(&b.end)).map(|(id, _)| id);
    let mut path = Vec::new();
    let mut at = last;
    // Causes end before their effects, so this ends; the bound is for numbers that say otherwise.
    while let Some(id) = at.filter(|_| path.len() <= spans.len()) {
        path.push(id);
        let span = &spans[id];
        let waited = span.cause.filter(|cause| span.ready > span.start || spans[*cause].end > span.start);
        at = match span.kind {
            SpanKind::Message => span.cause,
            _ => waited.or(span.before),
        };
    }
    path.reverse();
    path
}
