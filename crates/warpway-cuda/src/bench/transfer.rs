//! How fast a buffer gets to the other side, one way or both ways at once.

use std::fmt;

use warpway_core::Result;

use super::pair::{CANARIES, Pair, word};
use super::parameters::{BulkTransfer, ChannelTransfer, Pattern, PlainTransfer};
use super::programs::{self, Source};
use crate::arguments::Arguments;
use crate::event::Event;
use crate::graph::Graph;
use crate::handle::MemoryChannelDeviceHandle;
use crate::memory::{copy, fill};
use crate::module::{Kernel, LaunchShape};

/// Threads of a block that copies.
const THREADS: u32 = 512;
/// Threads of a block of the headers' bulk form: one drives the engine, the others copy the edges.
const BULK_THREADS: u32 = 64;
/// `sizeof(BulkStage<>)`.
const STAGE_BYTES: u32 = 12 * 16384 + 128;

/// Who moves the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mover {
    /// `MemoryChannel::put`.
    ChannelPut {
        /// Whether it looks at the poison word first.
        guarded: bool,
    },
    /// `MemoryChannel::get`.
    ChannelGet,
    /// Stores to the peer and nothing else: the n-th of [`Mover::FLOORS`] forms.
    PlainPush(usize),
    /// Loads from the peer and nothing else.
    PlainPull(usize),
    /// `bulk_copy` of the headers.
    BulkPut,
    /// A plain kernel for the bulk engine: the n-th of [`Mover::BULK_FLOORS`] forms.
    PlainBulk(usize),
    /// The copy engine, from the stream of the side that has the bytes.
    CopyPush,
    /// The copy engine, from the stream of the side that wants them.
    CopyPull,
}

impl Mover {
    /// Forms of plain kernels: the floor is the best of them.
    pub const FLOORS: usize = 2 * programs::DEPTHS.len();
    /// Forms of plain bulk kernels.
    pub const BULK_FLOORS: usize = programs::BULK.len();

    fn pulls(self) -> bool {
        matches!(self, Self::ChannelGet | Self::PlainPull(_) | Self::CopyPull)
    }
}

/// Depth, and whether blocks are interleaved.
fn floor(form: usize) -> (u32, bool) {
    let depths = programs::DEPTHS;
    (depths[form / 2 % depths.len()], form.is_multiple_of(2))
}

impl fmt::Display for Mover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plain = |f: &mut fmt::Formatter<'_>, what, form| {
            let (depth, interleaved) = floor(form);
            write!(f, "plain {what}, {depth} deep, {}", if interleaved { "interleaved" } else { "in parts" })
        };
        match *self {
            Self::ChannelPut { guarded: true } => f.write_str("channel put"),
            Self::ChannelPut { guarded: false } => f.write_str("channel put, unguarded"),
            Self::ChannelGet => f.write_str("channel get"),
            Self::PlainPush(form) => plain(f, "stores", form),
            Self::PlainPull(form) => plain(f, "loads", form),
            Self::BulkPut => f.write_str("bulk put"),
            Self::PlainBulk(form) => {
                let (bytes, tiles, _) = programs::BULK[form % programs::BULK.len()];
                write!(f, "plain bulk, {tiles} tiles of {} KiB", bytes / 1024)
            }
            Self::CopyPush => f.write_str("copy engine push"),
            Self::CopyPull => f.write_str("copy engine pull"),
        }
    }
}

/// Which links are busy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Directions {
    /// The first GPU's work alone.
    One,
    /// Both GPUs' at the same time.
    Both,
}

impl fmt::Display for Directions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::One => "one",
            Self::Both => "both",
        })
    }
}

/// What is moved, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transfer {
    /// Who.
    pub mover: Mover,
    /// In each direction; a multiple of 16.
    pub bytes: u64,
    /// Of each GPU's kernel; without meaning for the copy engine.
    pub blocks: u32,
    /// Which links are busy.
    pub directions: Directions,
}

/// One run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Measured {
    /// Microseconds of one transfer, of the slower direction.
    pub us: f64,
    /// Words at the destinations, and behind them, that were not what they should be.
    pub wrong: u64,
}

/// A transfer that is ready to be run again and again.
#[derive(Debug)]
pub struct Transferring<'p> {
    pair: &'p Pair,
    transfer: Transfer,
    /// Transfers of one run.
    passes: u32,
    /// Per side that works; the copy engine has none.
    graphs: Vec<Option<Graph>>,
    events: Vec<[Event; 2]>,
}

impl Pair {
    /// Makes a transfer ready: kernels are compiled, loaded and captured to a graph of many of them.
    ///
    /// # Errors
    /// `gpu.driver`, for grids and sizes that the device does not take; `gpu.compile`.
    pub fn transfer(&self, transfer: Transfer) -> Result<Transferring<'_>> {
        let sides = &self.sides[..if transfer.directions == Directions::One { 1 } else { 2 }];
        let mut this = Transferring {
            pair: self,
            transfer: Transfer { bytes: transfer.bytes.min(self.most_bytes()) / 16 * 16, ..transfer },
            passes: (1u64 << 30).checked_div(transfer.bytes).unwrap_or(1).clamp(4, 100) as u32,
            graphs: Vec::new(),
            events: Vec::new(),
        };
        for (at, side) in sides.iter().enumerate() {
            this.graphs.push(this.graph(at)?);
            this.events.push([Event::timed(&side.context)?, Event::timed(&side.context)?]);
        }
        Ok(this)
    }
}

impl Transferring<'_> {
    /// Bytes of one direction, as they are moved.
    pub fn bytes(&self) -> u64 {
        self.transfer.bytes
    }

    /// Moves the buffers several times with the work of both GPUs started at once, and checks what arrived.
    ///
    /// # Errors
    /// `gpu.timeout`, `gpu.driver`.
    pub fn run(&self) -> Result<Measured> {
        let pair = self.pair;
        let seed = pair.next_seed();
        for at in 0..2 {
            self.pattern(at, "fill_pattern", pair.sides[at].source.address(), seed)?;
        }
        // Untimed: what is first used now is used again below.
        self.enqueue()?;
        pair.synchronize()?;
        for side in &pair.sides {
            // SAFETY: ours, and no kernel runs; the buffer has canaries behind the most bytes.
            unsafe {
                fill(&side.stream, side.destination.address(), 0xff, self.transfer.bytes + 8 * CANARIES)?
            };
        }
        pair.synchronize()?;
        for at in 0..self.events.len() {
            pair.enqueue_gate(at)?;
            self.events[at][0].record(&pair.sides[at].stream)?;
        }
        self.enqueue()?;
        for (at, events) in self.events.iter().enumerate() {
            events[1].record(&pair.sides[at].stream)?;
        }
        pair.open_gate();
        pair.synchronize()?;
        let mut us: f64 = 0.0;
        for [begin, end] in &self.events {
            us = us.max(begin.until(end)?.as_secs_f64() * 1e6 / f64::from(self.passes));
        }
        Ok(Measured { us, wrong: self.wrong(seed)? })
    }

    /// One run of all sides that work, without waiting.
    fn enqueue(&self) -> Result<()> {
        for (at, graph) in self.graphs.iter().enumerate() {
            match graph {
                Some(graph) => graph.launch(&self.pair.sides[at].stream)?,
                None => {
                    for _ in 0..self.passes {
                        let (to, from) = self.ends(at);
                        // SAFETY: buffers of the pair, which is borrowed; they do not overlap.
                        unsafe { copy(&self.pair.sides[at].stream, to, from, self.transfer.bytes)? };
                    }
                }
            }
        }
        Ok(())
    }

    /// Destination and source of the work of a side.
    fn ends(&self, at: usize) -> (u64, u64) {
        let (here, there) = (&self.pair.sides[at], &self.pair.sides[1 - at]);
        if self.transfer.mover.pulls() {
            (here.destination.address(), there.source.address())
        } else {
            (there.destination.address(), here.source.address())
        }
    }

    fn graph(&self, at: usize) -> Result<Option<Graph>> {
        let Transfer { mover, bytes, blocks, .. } = self.transfer;
        let (to, from) = self.ends(at);
        let plain = PlainTransfer { to, from, vectors: bytes / 16 };
        let bulk = BulkTransfer { to, from, bytes, site: self.pair.site(at) };
        let channel = ChannelTransfer { channel: self.channel(at), bytes };
        let kernel = |source, name: &str| self.pair.kernel(at, source, name);
        let shape = LaunchShape::new(blocks, THREADS);
        let graph = match mover {
            Mover::ChannelPut { guarded } => self.capture(
                at,
                &kernel(Source::Transfer, &programs::channel_put(guarded))?,
                shape,
                &(channel,),
            ),
            Mover::ChannelGet => {
                self.capture(at, &kernel(Source::Transfer, "channel_get")?, shape, &(channel,))
            }
            Mover::PlainPush(form) | Mover::PlainPull(form) => {
                let (depth, interleaved) = floor(form);
                let kernel = kernel(Source::Transfer, &programs::plain(depth, interleaved))?;
                self.capture(at, &kernel, shape, &(plain,))
            }
            Mover::BulkPut => {
                let shape = LaunchShape { blocks, threads: BULK_THREADS, shared_bytes: STAGE_BYTES };
                self.capture(at, &kernel(Source::Bulk, "bulk_put")?, shape, &(bulk,))
            }
            Mover::PlainBulk(form) => {
                let form = programs::BULK[form % programs::BULK.len()];
                let (tile, tiles, _) = form;
                let shape = LaunchShape { blocks, threads: 32, shared_bytes: tile * tiles + 8 * tiles };
                self.capture(at, &kernel(Source::Bulk, &programs::plain_bulk(form))?, shape, &(bulk,))
            }
            Mover::CopyPush | Mover::CopyPull => return Ok(None),
        };
        graph.map(Some)
    }

    fn capture<A: Arguments>(
        &self,
        at: usize,
        kernel: &Kernel,
        shape: LaunchShape,
        arguments: &A,
    ) -> Result<Graph> {
        if shape.shared_bytes > 48 << 10 {
            kernel.allow_shared(shape.shared_bytes)?;
        }
        let stream = &self.pair.sides[at].stream;
        let all = || {
            // SAFETY: the arguments are those of the kernel that `graph` has chosen; the buffers live as long as the
            // pair, which outlives `self` and with it the graph.
            (0..self.passes).try_for_each(|_| unsafe { kernel.launch(stream, shape, arguments) })
        };
        Ok(stream.capture(all)?)
    }

    /// Reads its own source and writes the peer's destination, or the reverse for a get.
    fn channel(&self, at: usize) -> MemoryChannelDeviceHandle {
        let (here, there) = (&self.pair.sides[at], &self.pair.sides[1 - at]);
        let pulls = self.transfer.mover.pulls();
        let (src, dst) =
            if pulls { (&here.destination, &there.source) } else { (&here.source, &there.destination) };
        MemoryChannelDeviceHandle {
            semaphore: self.pair.semaphore(at, 0),
            dst: dst.address(),
            dst_bytes: dst.bytes(),
            src: src.address(),
            src_bytes: src.bytes(),
            ..MemoryChannelDeviceHandle::default()
        }
    }

    /// Words that are wrong on the sides where bytes have arrived.
    fn wrong(&self, seed: u64) -> Result<u64> {
        let pair = self.pair;
        let mut wrong = 0;
        for at in 0..self.events.len() {
            let target = if self.transfer.mover.pulls() { at } else { 1 - at };
            let side = &pair.sides[target];
            // SAFETY: ours, and no kernel runs.
            unsafe { fill(&side.stream, side.words.address() + word::RESULT, 0, 8)? };
            self.pattern(target, "check_pattern", side.destination.address(), seed)?;
            let [found] = side.read(word::RESULT)?;
            wrong += found;
        }
        Ok(wrong)
    }

    fn pattern(&self, at: usize, kernel: &str, words: u64, seed: u64) -> Result<()> {
        let side = &self.pair.sides[at];
        let pattern = Pattern {
            words,
            count: self.transfer.bytes / 8,
            seed,
            wrong: side.words.address() + word::RESULT,
            canaries: CANARIES,
        };
        let kernel = self.pair.kernel(at, Source::Transfer, kernel)?;
        let blocks = (self.transfer.bytes / 8192).clamp(1, 1024) as u32;
        // SAFETY: the parameters of both kernels; the buffers are ours, with canaries behind the most bytes.
        unsafe { side.launch(&kernel, LaunchShape::new(blocks, THREADS), &(pattern,)) }
    }
}
