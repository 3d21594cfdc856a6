//! What kernels of two ranks measure: port channels of real communicators, and the first exchange of a start.

use std::time::Duration;

use warpway_core::channel::{DeviceHandle, PortChannel};
use warpway_core::memory::MemoryError;
use warpway_core::{Deadline, Result};

use super::pair::{CANARIES, Times};
use super::parameters::Pattern;
use super::programs::Source;
use crate::gpu::{Gpu, GpuBuffer, GpuMemoryChannel, LoadedProgram, Plain};
use crate::handle::{MemoryChannelDeviceHandle, PortChannelHandle};
use crate::memory::fill;
use crate::module::{Kernel, LaunchShape};
use crate::stream::Stream;

/// Each wait of the host; longer than those of kernels, so that their words come first.
const HOST_DEADLINE: Duration = Duration::from_secs(30);
/// Rounds before samples are taken: the proxy wakes, and the peer's kernel starts later.
const WARM_UP: u64 = 64;
/// Wrong words, rounds completed, ns and cycles of all that count.
const FLIGHT_HEAD: u64 = 4;
const ONE_THREAD: LaunchShape = LaunchShape { blocks: 1, threads: 1, shared_bytes: 0 };

/// Messages of one run of a [`PortEnd`], in one or both directions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Messages {
    /// Of each; a multiple of 8.
    pub bytes: u64,
    /// So many are sent.
    pub sent: u64,
    /// So many come.
    pub awaited: u64,
    /// Whether each is flushed before the next one; else all at once in the end.
    pub flush_each: bool,
}

/// One rank's end of a port channel, with everything loaded that its measurements need.
#[derive(Debug)]
pub struct PortEnd {
    gpu: Gpu,
    stream: Stream,
    channel: DeviceHandle<PortChannelHandle, PortChannel>,
    source: GpuBuffer<u64>,
    received: GpuBuffer<u64>,
    /// What a run has found, then a number per round of a flight.
    result: GpuBuffer<u64>,
    flight: Kernel,
    messages: Kernel,
    fill: Kernel,
    check: Kernel,
}

impl PortEnd {
    /// The most rounds of a flight.
    pub const MOST_ROUNDS: u64 = 4096;
    /// Words behind the largest message that stay as they are.
    pub const CANARIES: u64 = CANARIES;

    /// An end that sends `source` and finds what the peer sends in `received`. Both begin where the channel's memories do.
    ///
    /// # Errors
    /// `gpu.compile`, `unavailable` without a compiler, `gpu.driver`.
    pub fn new(
        gpu: &Gpu,
        channel: DeviceHandle<PortChannelHandle, PortChannel>,
        source: GpuBuffer<u64>,
        received: GpuBuffer<u64>,
    ) -> Result<Self> {
        let ports = gpu.load(&Source::Ports.program())?;
        let patterns = gpu.load(&Source::Transfer.program())?;
        Ok(Self {
            stream: gpu.stream()?,
            result: gpu.alloc(FLIGHT_HEAD + Self::MOST_ROUNDS)?,
            flight: ports.kernel("port_flight")?,
            messages: ports.kernel("port_stream")?,
            fill: patterns.kernel("fill_pattern")?,
            check: patterns.kernel("check_pattern")?,
            gpu: gpu.clone(),
            channel,
            source,
            received,
        })
    }

    /// A put of 8 bytes with its signal goes there and back; both ends call it, one of them `begins` and has samples: half
    /// of each round.
    ///
    /// # Errors
    /// `mem.bounds` for buffers of less than two words; what a kernel has given up on, `gpu.driver`, `gpu.timeout`.
    pub fn flight(&self, rounds: u64, begins: bool) -> Result<Times> {
        let rounds = rounds.clamp(1, Self::MOST_ROUNDS);
        // Two words in turns.
        let (size, limit) = (16, self.source.bytes().min(self.received.bytes()));
        if limit < size {
            return Err(MemoryError::OutOfBounds { operation: "port flight", offset: 0, size, limit }.into());
        }
        self.result.write(0, &[0; FLIGHT_HEAD as usize])?;
        let (source, received) = (&self.source, &self.received);
        let arguments = (&self.channel, source, received, WARM_UP, rounds, u64::from(begins), &self.result);
        // SAFETY: the kernel's parameters; both buffers have at least two words, the result one for each round.
        unsafe { self.gpu.launch(&self.flight, ONE_THREAD, arguments, &self.stream)? };
        self.synchronize()?;
        let mut result = vec![0; (FLIGHT_HEAD + rounds) as usize];
        self.result.read(0, &mut result)?;
        let [wrong, completed, ns, cycles, each @ ..] = result.as_slice() else {
            return Ok(Times::default());
        };
        let us_per_cycle = *ns as f64 / 1e3 / (*cycles).max(1) as f64;
        let one_way = |cycles: &u64| *cycles as f64 * us_per_cycle / 2.0;
        Ok(Times {
            us: if begins { each.iter().map(one_way).collect() } else { Vec::new() },
            wrong: wrong + (WARM_UP + rounds).abs_diff(*completed),
        })
    }

    /// New data to send, and nothing of it at the place where the peer's comes. Before both ends [`send`](Self::send).
    ///
    /// # Errors
    /// `gpu.driver`, `gpu.timeout`.
    pub fn refill(&self, bytes: u64, seed: u64) -> Result<()> {
        let words = self.words(bytes);
        self.pattern(&self.fill, self.source.address(), words, seed)?;
        // SAFETY: ours, and nothing is under way; as many bytes and words behind them as `words` has left.
        unsafe { fill(&self.stream, self.received.address(), 0xff, 8 * (words + CANARIES))? };
        self.synchronize()
    }

    /// Sends and takes messages; microseconds per message sent until all are complete, 0 if none is.
    ///
    /// # Errors
    /// As [`flight`](Self::flight).
    pub fn send(&self, messages: Messages) -> Result<f64> {
        let Messages { bytes, sent, awaited, flush_each } = messages;
        self.result.write(0, &[0, 0])?;
        let bytes = 8 * self.words(bytes);
        let arguments = (&self.channel, bytes, sent, awaited, u64::from(flush_each), &self.result);
        // SAFETY: the kernel's parameters; the channel checks its ranges.
        unsafe { self.gpu.launch(&self.messages, ONE_THREAD, arguments, &self.stream)? };
        self.synchronize()?;
        let mut result = [0; 2];
        self.result.read(0, &mut result)?;
        Ok(if sent == 0 { 0.0 } else { result[0] as f64 / 1e3 / sent as f64 })
    }

    /// Words that are not what an end with `seed` has sent, or are touched behind it.
    ///
    /// # Errors
    /// `gpu.driver`, `gpu.timeout`.
    pub fn wrong(&self, bytes: u64, seed: u64) -> Result<u64> {
        self.result.write(0, &[0])?;
        self.pattern(&self.check, self.received.address(), self.words(bytes), seed)?;
        self.synchronize()?;
        let mut wrong = [0];
        self.result.read(0, &mut wrong)?;
        Ok(wrong[0])
    }

    /// Words of a message, of those that both buffers have room for.
    fn words(&self, bytes: u64) -> u64 {
        let room = self.source.len().min(self.received.len()).saturating_sub(CANARIES);
        (bytes / 8).min(room)
    }

    fn pattern(&self, kernel: &Kernel, words: u64, count: u64, seed: u64) -> Result<()> {
        let pattern = Pattern { words, count, seed, wrong: self.result.address(), canaries: CANARIES };
        // As many blocks as any GPU has room for: launches of a rank must be resident.
        let shape = LaunchShape::new((count / 1024).clamp(1, 256) as u32, 512);
        // SAFETY: the parameters of both kernels; the buffers are ours and have so many words and canaries.
        unsafe { self.gpu.launch(kernel, shape, (Plain(pattern),), &self.stream) }
    }

    fn synchronize(&self) -> Result<()> {
        self.gpu.synchronize(&self.stream, Deadline::after(HOST_DEADLINE))
    }
}

/// The first exchange of two ranks: a put and a signal each way, by a kernel.
#[derive(Debug)]
pub struct FirstExchange {
    program: LoadedProgram,
    gpu: Gpu,
    stream: Stream,
}

impl FirstExchange {
    /// Loads its kernel, compiled or from the cache.
    ///
    /// # Errors
    /// `gpu.compile`, `unavailable` without a compiler, `gpu.driver`.
    pub fn load(gpu: &Gpu) -> Result<Self> {
        let program = gpu.load(&Source::Exchange.program())?;
        Ok(Self { program, gpu: gpu.clone(), stream: gpu.stream()? })
    }

    /// Puts the channel's source to the peer, signals, waits for the peer's signal. Both ranks call it.
    ///
    /// # Errors
    /// What the kernel has given up on, `gpu.driver`, `gpu.timeout`.
    pub fn run(&self, channel: &DeviceHandle<MemoryChannelDeviceHandle, GpuMemoryChannel>) -> Result<()> {
        let bytes = channel.src_bytes.min(channel.dst_bytes);
        let kernel = self.program.kernel("exchange")?;
        // SAFETY: the kernel's parameters; the channel checks the range, and the launch keeps it.
        unsafe { self.gpu.launch(&kernel, LaunchShape::new(1, 128), (channel, bytes), &self.stream)? };
        self.gpu.synchronize(&self.stream, Deadline::after(HOST_DEADLINE))
    }
}
