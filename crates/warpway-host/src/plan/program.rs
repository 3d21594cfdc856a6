//! A rank's part of a plan for one message, flat: what each block does, with places as (base, offset).
//!
//! Bases are the buffers of the plan, own and peers'; a launch gives each an address. Everything that depends on
//! the plan and the sizes only is done here, once per message size.

use std::sync::Mutex;

use warpway_core::execution::StepPlace;
use warpway_core::memory::Access;
/// Which buffer.
pub(super) use warpway_plan::lower::Base as BaseKey;
pub(super) use warpway_plan::lower::{Operand, TransferKind};
use warpway_plan::{Form, Piece};

use super::transfer::{FoldRoom, SHORT_SOURCES};

/// Bytes of data of a short send, or fold.
const SHORT: u64 = 4 << 10;

/// See the module's page.
#[derive(Debug, Default)]
pub(super) struct Program {
    /// The buffers that operations touch.
    pub(super) bases: Vec<Base>,
    /// Blocks that do something.
    pub(super) blocks: Vec<BlockProgram>,
    /// Port channels that put, by channel index.
    pub(super) putting: Vec<u32>,
}

/// A buffer of the plan.
#[derive(Debug, Clone)]
pub(super) struct Base {
    pub(super) key: BaseKey,
    /// Bytes from its first one that operations touch.
    pub(super) reach: u64,
    /// Some block loads from it or stores to it.
    pub(super) mapped: bool,
    /// What they do with it; `None` as long as they do nothing.
    pub(super) access: Option<Access>,
    /// A proxy copies from it or to it.
    pub(super) by_port: bool,
}

impl Base {
    /// Notes that an operation touches the bytes before `end`.
    pub(super) fn touch(&mut self, end: u64, (access, by_port): (Access, bool)) {
        self.access = Some(self.access.map_or(access, |before| before | access));
        self.reach = self.reach.max(end);
        self.mapped |= !by_port;
        self.by_port |= by_port;
    }
}

#[derive(Debug, Default)]
pub(super) struct BlockProgram {
    /// Number in the plan.
    pub(super) block: u32,
    pub(super) steps: Vec<Step>,
    /// By step.
    pub(super) places: Vec<StepPlace>,
    /// Whom the sends wake that it begins with.
    pub(super) first_wakes: Vec<u32>,
    /// Steps that it begins with and that wait for nobody: short sends.
    pub(super) first_sends: usize,
    /// Ranks of which it surely takes packets, ascending.
    pub(super) hears: Vec<u32>,
    /// Some step folds.
    pub(super) folds: bool,
    /// It folds, and all folds find room in a [`ShortRoom`](super::transfer::ShortRoom).
    pub(super) short_folds: bool,
    /// The most packet sources of one fold.
    pub(super) packet_sources: usize,
    /// Of longer folds, kept between launches; taken by the one thread that runs the block.
    pub(super) room: Mutex<FoldRoom>,
}

/// What a block does next. Numbers are channel, semaphore and barrier numbers of the rank.
#[derive(Debug)]
pub(super) enum Step {
    Barrier(u32),
    Signal(u32),
    Wait(u32),
    PortSignal(u32),
    PortWait(u32),
    Flush(u32),
    Acquire(u32),
    Release(u32),
    Move(Transfer),
    /// Waits until the packets of the source are there.
    Await(Transfer),
    Put(PortPut),
    /// The next `steps` steps, `iterations` times, on slices of `slice` bytes.
    Loop {
        iterations: u64,
        slice: u64,
        steps: usize,
    },
}

/// From some places to others, by loads and stores.
#[derive(Debug)]
pub(super) struct Transfer {
    pub(super) kind: TransferKind,
    /// In the order in which they enter a fold.
    pub(super) sources: Vec<Operand>,
    pub(super) destinations: Vec<Operand>,
    pub(super) pieces: Vec<Piece>,
    /// By piece, then by operand: sources, then destinations. In bytes of memory: twice the data for packets.
    pub(super) offsets: Vec<u64>,
    /// Ranks whose blocks may wait for the packets that this writes.
    pub(super) wakes: Vec<u32>,
    /// The rank that writes the packets that this reads, if only one can.
    pub(super) writer: Option<u32>,
}

/// One item of a port operation.
#[derive(Debug)]
pub(super) struct PortPut {
    pub(super) channel: u32,
    /// One source, one destination.
    pub(super) transfer: Transfer,
    pub(super) signals: bool,
    pub(super) flushes: bool,
}

impl Transfer {
    /// Operands per piece.
    pub(super) fn width(&self) -> usize {
        self.sources.len() + self.destinations.len()
    }
}

impl Transfer {
    /// True if it writes packets of data that is there, few enough that whoever sleeps may be woken behind the next.
    fn is_send(&self) -> bool {
        let bytes = self.pieces.iter().fold(0, |bytes: u64, piece| bytes.saturating_add(piece.bytes));
        self.kind == TransferKind::Copy
            && bytes <= SHORT
            && self.sources.iter().all(|source| source.form == Form::Raw)
            && self.destinations.iter().any(|destination| destination.form == Form::Packets)
    }
}

impl Step {
    /// Bytes of the longest piece of a fold.
    fn fold_bytes(&self) -> Option<u64> {
        match self {
            Self::Move(Transfer { kind: TransferKind::Fold { .. }, pieces, .. }) => {
                pieces.iter().map(|piece| piece.bytes).max()
            }
            _ => None,
        }
    }

    /// The rank whose packets it takes, if there are any and only one can have written them.
    fn heard(&self) -> Option<u32> {
        match self {
            Self::Move(transfer) | Self::Await(transfer)
                if transfer.pieces.iter().any(|piece| piece.bytes > 0) =>
            {
                transfer.writer
            }
            _ => None,
        }
    }

    /// A send that wakes somebody.
    fn short_send(&mut self) -> Option<&mut Transfer> {
        match self {
            Self::Move(transfer) if transfer.is_send() && !transfer.wakes.is_empty() => Some(transfer),
            _ => None,
        }
    }
}

impl BlockProgram {
    /// When all steps are there.
    pub(super) fn finish(&mut self) {
        self.join_wakes();
        let sends = |step: &&Step| matches!(step, Step::Move(transfer) if transfer.is_send());
        self.first_sends = self.steps.iter().take_while(sends).count();
        self.hears = self.steps_of_every_launch().filter_map(Step::heard).collect();
        self.hears.sort_unstable();
        self.hears.dedup();
        let longest = self.steps.iter().filter_map(Step::fold_bytes).max();
        let short = longest.is_some_and(|bytes| bytes <= SHORT);
        self.short_folds = short && self.packet_sources <= SHORT_SOURCES;
    }

    /// True if some step writes or takes packets.
    pub(super) fn uses_packets(&self) -> bool {
        self.steps.iter().any(|step| match step {
            Step::Move(transfer) | Step::Await(transfer) => {
                let operands = transfer.sources.iter().chain(&transfer.destinations);
                operands.into_iter().any(|operand| operand.form == Form::Packets)
            }
            _ => false,
        })
    }

    /// Without those of pipelines.
    fn steps_of_every_launch(&self) -> impl Iterator<Item = &Step> {
        let mut at = 0;
        std::iter::from_fn(move || {
            while let Some(Step::Loop { steps, .. }) = self.steps.get(at) {
                at += 1 + steps;
            }
            at += 1;
            self.steps.get(at - 1)
        })
    }

    /// Has sends that follow each other wake their readers at the end, all with one fence.
    fn join_wakes(&mut self) {
        let mut at = 0;
        while at + 1 < self.steps.len() {
            if let Step::Loop { steps, .. } = self.steps[at] {
                at += 1 + steps;
                continue;
            }
            if let [first, second] = &mut self.steps[at..at + 2]
                && let (Some(first), Some(second)) = (first.short_send(), second.short_send())
            {
                second.wakes.append(&mut first.wakes);
                second.wakes.sort_unstable();
                second.wakes.dedup();
            }
            at += 1;
        }
        // Behind the first sends: those before the last one have given theirs away.
        let silent = |step: &&mut Step| matches!(step, Step::Move(t) if t.is_send() && t.wakes.is_empty());
        let first = self.steps.iter_mut().find(|step| !silent(step)).and_then(Step::short_send);
        self.first_wakes = first.map(|transfer| transfer.wakes.clone()).unwrap_or_default();
    }
}

impl Program {
    /// Bytes of a buffer that operations touch.
    pub(super) fn reach(&self, key: BaseKey) -> u64 {
        self.bases.iter().find(|base| base.key == key).map_or(0, |base| base.reach)
    }
}
