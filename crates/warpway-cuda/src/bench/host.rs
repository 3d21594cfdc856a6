//! From a kernel to the host and back: requests through a ring, and words that the host raises.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::time::{Duration, Instant};

use warpway_core::Result;
use warpway_core::gpu::GpuError;

use super::pair::{MOST_ROUNDS, Pair, RING, Side, Times, pinned, word};
use super::parameters::{Echo, Pushes, Stamps};
use super::programs::Source;
use crate::handle::FifoHandle;
use crate::memory::{copy, copy_from_host, write_word};
use crate::module::LaunchShape;

/// How long the host waits for one answer of a kernel.
const PATIENCE: Duration = Duration::from_secs(5);

/// How the host raises a word that a kernel waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Way {
    /// A store of the host to pinned memory.
    HostStore,
    /// 8 bytes by the copy engine from memory of the issuing GPU to the peer's.
    CopyFromDevice,
    /// 8 bytes by the copy engine from pinned memory to the peer's.
    CopyFromPinned,
    /// 8 bytes of ordinary host memory, which the driver takes into the command, to the peer's.
    CopyFromHost,
    /// A stream of the issuing GPU writes a word to the peer's memory.
    WriteToPeer,
    /// A stream of the GPU that waits writes to that GPU's memory.
    WriteAtHome,
    /// A stream writes to pinned memory, where the kernel looks.
    WriteToPinned,
    /// A put of 8 bytes by the copy engine, then as [`CopyFromDevice`](Self::CopyFromDevice).
    PutThenCopy,
    /// A put of 8 bytes by the copy engine, then as [`WriteToPeer`](Self::WriteToPeer).
    PutThenWrite,
}

impl Way {
    /// All of them; those that a driver may refuse come last.
    pub const ALL: [Self; 9] = [
        Self::HostStore,
        Self::CopyFromDevice,
        Self::CopyFromPinned,
        Self::CopyFromHost,
        Self::PutThenCopy,
        Self::WriteToPinned,
        Self::WriteAtHome,
        Self::WriteToPeer,
        Self::PutThenWrite,
    ];

    fn is_pinned(self) -> bool {
        matches!(self, Self::HostStore | Self::WriteToPinned)
    }

    fn puts(self) -> bool {
        matches!(self, Self::PutThenCopy | Self::PutThenWrite)
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::HostStore => "host's store to pinned memory",
            Self::CopyFromDevice => "8-byte copy from device memory",
            Self::CopyFromPinned => "8-byte copy from pinned memory",
            Self::CopyFromHost => "8-byte copy from ordinary memory",
            Self::WriteToPeer => "stream write to the peer's memory",
            Self::WriteAtHome => "stream write to the own memory",
            Self::WriteToPinned => "stream write to pinned memory",
            Self::PutThenCopy => "8-byte put, 8-byte copy",
            Self::PutThenWrite => "8-byte put, stream write",
        })
    }
}

impl Pair {
    /// From a kernel's store to pinned memory until the host sees it, one way: the kernel sends the host's own clock back,
    /// which it has just read; half of that read is taken off.
    ///
    /// # Errors
    /// As [`raise`](Self::raise).
    pub fn to_host(&self, rounds: u64) -> Result<Times> {
        let rounds = self.start(rounds)?;
        let side = &self.sides[0];
        let words = side.words.address();
        let arguments = Stamps {
            clock: side.pinned.address() + pinned::CLOCK,
            stamp: side.pinned.address() + pinned::STAMP,
            inbound: side.pinned.address() + pinned::INBOUND,
            rounds,
            read_cycles: words + word::RESULT,
            read_ns: words + word::RESULT + 8,
            site: self.site(0),
        };
        let kernel = self.kernel(0, Source::Ring, "stamp")?;
        let (origin, stop) = (Instant::now(), AtomicBool::new(false));
        let clock = side.pinned_word(pinned::CLOCK);
        let mut us = Vec::with_capacity(rounds as usize);
        std::thread::scope(|scope| {
            // Ends with the rounds below, which are bounded.
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    clock.store(origin.elapsed().as_nanos() as u64, Ordering::Relaxed);
                }
            });
            // SAFETY: the kernel's parameters; pinned memory and words live as long as the pair.
            let launched = unsafe { side.launch(&kernel, LaunchShape::new(1, 1), &(arguments,)) };
            let measured = launched.and_then(|()| {
                for round in 1..=rounds {
                    self.answer(side.pinned_word(pinned::STAMP + 8), round)?;
                    let now = origin.elapsed().as_nanos() as u64;
                    let sent = side.pinned_word(pinned::STAMP).load(Ordering::Relaxed);
                    us.push(now.saturating_sub(sent) as f64 / 1e3);
                    side.pinned_word(pinned::INBOUND).store(round, Ordering::Release);
                }
                Ok(())
            });
            stop.store(true, Ordering::Relaxed);
            measured
        })?;
        self.synchronize()?;
        let [_, read_ns] = side.read(word::RESULT)?;
        let half_read = read_ns as f64 / 2e3 / rounds as f64;
        Ok(Times { us: us.into_iter().map(|us| us - half_read).collect(), wrong: 0 })
    }

    /// From one request to the next: a kernel pushes, the host takes the request from the ring and answers by a store to
    /// pinned memory.
    ///
    /// # Errors
    /// As [`raise`](Self::raise).
    pub fn push(&self, rounds: u64) -> Result<Times> {
        let rounds = self.start(rounds)?;
        let side = &self.sides[0];
        self.launch_pushes(side.pinned.address() + pinned::INBOUND, rounds)?;
        self.requests(rounds, |round| {
            side.pinned_word(pinned::INBOUND).store(round, Ordering::Release);
            Ok(())
        })
    }

    /// The path of a port channel with nothing around it: a kernel pushes, the host takes the request and raises a word
    /// on the peer, whose kernel answers the first one over the link. Of one round all but the answer is that path.
    ///
    /// # Errors
    /// As [`raise`](Self::raise).
    pub fn relay(&self, way: Way, rounds: u64) -> Result<Times> {
        let rounds = self.start(rounds)?;
        self.launch_echo(way, self.sides[0].words.address() + word::FLAG, rounds)?;
        self.launch_pushes(self.sides[0].words.address() + word::FLAG, rounds)?;
        let mut times = self.requests(rounds, |round| self.issue(way, round))?;
        times.wrong += self.missing(way, rounds)?;
        Ok(times)
    }

    /// From the host's call until the kernel that waits for the word has told the host so.
    ///
    /// # Errors
    /// `gpu.driver` for a way that the driver refuses, `gpu.device` or `gpu.timeout` for a word that does not come. Then
    /// [`revive`](Self::revive) before the next measurement.
    pub fn raise(&self, way: Way, rounds: u64) -> Result<Times> {
        let rounds = self.start(rounds)?;
        let side = &self.sides[1];
        self.launch_echo(way, side.pinned.address() + pinned::REPLY, rounds)?;
        let mut us = Vec::with_capacity(rounds as usize);
        for round in 1..=rounds {
            let begin = Instant::now();
            let issued = self.issue(way, round);
            issued
                .and_then(|()| self.answer(side.pinned_word(pinned::REPLY), round))
                .inspect_err(|_| self.abort())?;
            us.push(begin.elapsed().as_secs_f64() * 1e6);
        }
        self.synchronize()?;
        Ok(Times { us, wrong: self.missing(way, rounds)? })
    }

    /// Everything back to zero.
    fn start(&self, rounds: u64) -> Result<u64> {
        self.clear_words()?;
        for side in &self.sides {
            for offset in (0..pinned::NUMBERS).step_by(8) {
                side.pinned_word(offset).store(0, Ordering::Relaxed);
            }
        }
        // Kernels are launched by calls that come later.
        fence(Ordering::Release);
        Ok(rounds.clamp(1, MOST_ROUNDS))
    }

    /// The word that `way` raises, as the kernel on the second side reaches it.
    fn target(&self, way: Way) -> u64 {
        let side = &self.sides[1];
        if way.is_pinned() {
            side.pinned.address() + pinned::INBOUND
        } else {
            side.words.address() + word::TOKEN
        }
    }

    fn issue(&self, way: Way, round: u64) -> Result<()> {
        let [here, there] = &self.sides;
        let to = self.target(way);
        let number = |base: u64| base + 8 * (round - 1);
        let from_device = number(here.words.address() + word::NUMBERS);
        let stream = &here.second;
        if way.puts() {
            // SAFETY: words of the pair; the payload's place is nobody else's.
            unsafe { copy(stream, there.words.address() + word::PAYLOAD, from_device, 8)? };
        }
        // SAFETY: live words of the pair, written by nobody else; sources are not changed.
        unsafe {
            match way {
                Way::HostStore => there.pinned_word(pinned::INBOUND).store(round, Ordering::Release),
                Way::CopyFromDevice | Way::PutThenCopy => copy(stream, to, from_device, 8)?,
                Way::CopyFromPinned => copy(stream, to, number(here.pinned.address() + pinned::NUMBERS), 8)?,
                Way::CopyFromHost => copy_from_host(stream, to, &[round])?,
                Way::WriteToPeer | Way::WriteToPinned | Way::PutThenWrite => write_word(stream, to, round)?,
                Way::WriteAtHome => write_word(&there.second, to, round)?,
            }
        }
        Ok(())
    }

    fn launch_echo(&self, way: Way, reply: u64, rounds: u64) -> Result<()> {
        let kernel = self.kernel(1, Source::Ring, "echo")?;
        let arguments = Echo { inbound: self.target(way), reply, rounds, site: self.site(1) };
        // SAFETY: the kernel's parameters; words and pinned memory live as long as the pair.
        unsafe { self.sides[1].launch(&kernel, LaunchShape::new(1, 1), &(arguments,)) }
    }

    fn launch_pushes(&self, inbound: u64, rounds: u64) -> Result<()> {
        let side = &self.sides[0];
        let (words, pinned_memory) = (side.words.address(), side.pinned.address());
        let fifo = FifoHandle {
            slots: pinned_memory + pinned::SLOTS,
            head: words + word::FIFO_HEAD,
            tail: pinned_memory + pinned::TAIL,
            cached_tail: words + word::CACHED_TAIL,
            size: RING,
            site: self.site(0),
        };
        let kernel = self.kernel(0, Source::Ring, "push_and_wait")?;
        // SAFETY: the kernel's parameters; words and pinned memory live as long as the pair.
        unsafe { side.launch(&kernel, LaunchShape::new(1, 1), &(Pushes { fifo, inbound, rounds },)) }
    }

    /// Takes the requests of `push_and_wait` one by one; times are those from one to the next.
    fn requests(&self, rounds: u64, mut then: impl FnMut(u64) -> Result<()>) -> Result<Times> {
        let side = &self.sides[0];
        let mut times = Times { us: Vec::with_capacity(rounds as usize), wrong: 0 };
        let mut before: Option<Instant> = None;
        for round in 1..=rounds {
            let taken = self.take_request(side, round);
            times.wrong += taken.inspect_err(|_| self.abort())?;
            let now = Instant::now();
            if let Some(before) = before.replace(now) {
                times.us.push((now - before).as_secs_f64() * 1e6);
            }
            side.pinned_word(pinned::TAIL).store(round, Ordering::Release);
            then(round).inspect_err(|_| self.abort())?;
        }
        self.synchronize()?;
        Ok(times)
    }

    /// Waits for request `round` at its place in the ring; 1 if it is not what the kernel has pushed.
    fn take_request(&self, side: &Side, round: u64) -> Result<u64> {
        let position = round - 1;
        let slot = |half: u64| side.pinned_word(pinned::SLOTS + 64 * (position % RING) + 8 * half);
        // The commit bit alternates from lap to lap, as fifo.cuh says.
        let commit = if (position / RING).is_multiple_of(2) { 1 << 63 } else { 0 };
        self.until(|| (0..4).all(|at| slot(2 * at + 1).load(Ordering::Acquire) & 1 << 63 == commit))?;
        let found: [u64; 8] =
            std::array::from_fn(|half| slot(half as u64).load(Ordering::Relaxed) & !(1 << 63));
        let expected = [round, 3 | 1 << 8, round * 3, 2, 8, 3, 0, 0];
        Ok(u64::from(found != expected))
    }

    /// Waits until a kernel has raised a word.
    fn answer(&self, word: &AtomicU64, value: u64) -> Result<()> {
        self.until(|| word.load(Ordering::Acquire) >= value)
    }

    fn until(&self, mut holds: impl FnMut() -> bool) -> Result<()> {
        let begin = Instant::now();
        loop {
            for _ in 0..4096 {
                if holds() {
                    return Ok(());
                }
                std::hint::spin_loop();
            }
            if begin.elapsed() > PATIENCE {
                self.abort();
                // What a kernel has recorded says more.
                self.synchronize()?;
                let device = self.sides[0].context.ordinal();
                let what = "waiting for a kernel's answer".into();
                return Err(GpuError::Timeout { what, device, elapsed: begin.elapsed() }.into());
            }
        }
    }

    /// What is not there at the end.
    fn missing(&self, way: Way, rounds: u64) -> Result<u64> {
        let side = &self.sides[1];
        let [token] = side.read(word::TOKEN)?;
        let [payload] = side.read(word::PAYLOAD)?;
        let raised =
            if way.is_pinned() { side.pinned_word(pinned::INBOUND).load(Ordering::Acquire) } else { token };
        let put = if way.puts() { rounds.abs_diff(payload) } else { 0 };
        Ok(rounds.abs_diff(raised) + put)
    }
}
