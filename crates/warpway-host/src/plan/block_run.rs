//! What one block does in a launch.

use std::ops::Range;

use warpway_core::Result;
use warpway_core::channel::{BasePortChannelHandle, PortCopy};
use warpway_core::execution::{ExecutionError, StepPlace};
use warpway_core::trace::Operation;
use warpway_core::transport::Transport;
use warpway_core::wait::{WaitSite, Waiter};
use warpway_core::{Error, Timeout};

use super::executor::lock;
use super::launch_bases::Bases;
use super::linked::{LinkedBlock, Turn};
use super::program::{BlockProgram, PortPut, Step};
use super::setup::{BlockObjects, Channels};
use super::transfer::{Kernels, Mover, Room, ShortRoom, Slice};
use super::waiting::{Launched, Waiting, tells_of_another_call};
use crate::packet::Flags;

/// Rounds of a pipeline between two looks at the communicator's health.
const LOOK: u64 = 4096;

/// What the blocks of one launch share.
pub(super) struct Run<'a> {
    pub(super) plan: &'a str,
    pub(super) launched: &'a Launched<'a>,
    pub(super) channels: &'a Channels,
    pub(super) objects: &'a BlockObjects,
    pub(super) bases: &'a Bases,
    pub(super) kernels: &'a Kernels,
    /// Of its packets.
    pub(super) flags: Flags,
    /// Whoever has taken the packets of this launch knows that all peers have launched the same: packets of all of them
    /// are among them, and those carry a [mark](super::record::Marks) of their launch.
    pub(super) packets_tell_all: bool,
    pub(super) timeout: Timeout,
}

impl Run<'_> {
    /// Runs the program of one block to its end; `record` begins the record of it, behind what it sends first: the peers
    /// wait for that, and it waits for nobody.
    pub(super) fn block(&self, waiter: &Waiter, program: &BlockProgram, record: impl FnOnce()) -> Result<()> {
        if program.short_folds {
            let mut room = ShortRoom::new();
            return self.recorded(program, &self.mover(waiter, program, room.room()), record);
        }
        if !program.folds {
            return self.recorded(program, &self.mover(waiter, program, Room::NONE), record);
        }
        let mut room = lock(&program.room);
        let room = room.fit(program.packet_sources);
        self.recorded(program, &self.mover(waiter, program, room), record)
    }

    /// The same with its steps linked.
    #[inline]
    pub(super) fn linked_block(
        &self,
        waiter: &Waiter,
        (program, linked, turn): (&BlockProgram, &LinkedBlock, Turn),
        record: impl FnOnce(),
    ) -> Result<()> {
        let mover = self.mover(waiter, program, Room::NONE);
        let signal = |step: &Step| self.other_step(&mover, step, Slice::ALL);
        let failed = |at, error| self.failed(program, at, 0, error);
        linked.run((program, turn), &mover, record, signal, failed)
    }

    #[inline]
    fn mover<'r>(&'r self, waiter: &'r Waiter, program: &BlockProgram, room: Room<'r>) -> Mover<'r> {
        Mover {
            bases: self.bases,
            kernels: self.kernels,
            control: self.launched.control,
            waiting: Waiting { launched: self.launched, waiter, timeout: self.timeout },
            flags: self.flags,
            packets_tell_all: self.packets_tell_all,
            block: program.block,
            room,
        }
    }

    #[inline]
    fn recorded(&self, program: &BlockProgram, mover: &Mover<'_>, record: impl FnOnce()) -> Result<()> {
        let first = self.steps(program, mover, 0..program.first_sends);
        record();
        first?;
        self.steps(program, mover, program.first_sends..program.steps.len())
    }

    #[inline]
    fn steps(&self, program: &BlockProgram, mover: &Mover<'_>, range: Range<usize>) -> Result<()> {
        let mut at = range.start;
        while let Some(step) = program.steps.get(at).filter(|_| at < range.end) {
            at += 1;
            let Step::Loop { iterations, slice, steps } = step else {
                self.step(mover, step, Slice::ALL).map_err(|e| self.failed(program, at - 1, 0, e))?;
                continue;
            };
            let body = at..at + steps;
            for iteration in 0..*iterations {
                if iteration.is_multiple_of(LOOK) {
                    // Rounds that wait for nobody notice a failure only here.
                    mover.waiting.waiter.health.check_during(Operation::Launch)?;
                }
                let window = Slice { start: iteration.saturating_mul(*slice), bytes: *slice };
                for at in body.clone() {
                    let Some(step) = program.steps.get(at) else { break };
                    self.step(mover, step, window).map_err(|e| self.failed(program, at, iteration, e))?;
                }
            }
            at = body.end;
        }
        Ok(())
    }

    #[inline]
    fn step(&self, mover: &Mover<'_>, step: &Step, slice: Slice) -> Result<()> {
        match step {
            Step::Move(transfer) => mover.run(transfer, slice),
            other => self.other_step(mover, other, slice),
        }
    }

    #[inline(never)]
    fn other_step(&self, mover: &Mover<'_>, step: &Step, slice: Slice) -> Result<()> {
        match step {
            Step::Move(transfer) => mover.run(transfer, slice),
            Step::Await(transfer) => mover.wait_for_packets(transfer, slice),
            Step::Signal(channel) => self.memory(*channel)?.signal(),
            Step::Wait(channel) => {
                let semaphore = self.memory(*channel)?.semaphore();
                wait(&mover.waiting, semaphore)
            }
            Step::PortSignal(channel) => signal_by_port(self.port(*channel)?),
            Step::PortWait(channel) => {
                wait_for_proxy(&mover.waiting, self.port(*channel)?.channel().semaphore())
            }
            Step::Flush(channel) => self.port(*channel)?.flush().map(drop),
            Step::Put(put) => self.put(put, slice),
            Step::Barrier(id) => match self.objects.barriers.get(id) {
                Some(barrier) => barrier.pass(&mover.waiting),
                None => Err(dangling("a barrier")),
            },
            Step::Acquire(semaphore) => match self.objects.semaphores.get(*semaphore as usize) {
                Some(semaphore) => semaphore.acquire_by(mover.waiting.waiter, self.timeout, mover.block),
                None => Err(dangling("a semaphore")),
            },
            Step::Release(semaphore) => match self.objects.semaphores.get(*semaphore as usize) {
                Some(semaphore) => {
                    semaphore.release();
                    Ok(())
                }
                None => Err(dangling("a semaphore")),
            },
            Step::Loop { .. } => Err(dangling("a pipeline in a pipeline")),
        }
    }

    /// One item of a port operation: a request per piece; the last one carries the signal.
    fn put(&self, put: &PortPut, slice: Slice) -> Result<()> {
        let handle = self.port(put.channel)?;
        let transfer = &put.transfer;
        let (source, destination) = match (&transfer.sources[..], &transfer.destinations[..]) {
            ([source], [destination]) => (source.base, destination.base),
            _ => return Err(dangling("an item of a port operation")),
        };
        let mut copies = Vec::new();
        for (piece, offsets) in transfer.pieces.iter().zip(transfer.offsets.chunks_exact(2)) {
            let Some((skipped, piece)) = piece.slice(slice.start, slice.bytes) else { continue };
            if piece.bytes == 0 {
                continue;
            }
            let (Some((from, from_offset)), Some((to, to_offset))) =
                (self.bases.port(source), self.bases.port(destination))
            else {
                return Err(dangling("a memory of a port operation"));
            };
            copies.push(PortCopy {
                destination: to,
                destination_offset: to_offset + offsets[1] + skipped,
                source: from,
                source_offset: from_offset + offsets[0] + skipped,
                size: piece.bytes,
            });
        }
        let last = if put.signals { copies.pop() } else { None };
        if sends_itself(handle) {
            copies.iter().try_for_each(|copy| handle.put_directly(copy, false))?;
            match last {
                Some(last) => handle.put_directly(&last, true)?,
                None if put.signals => handle.signal_directly()?,
                None => {}
            }
            return if put.flushes { handle.flush().map(drop) } else { Ok(()) };
        }
        for copy in &copies {
            handle.put(copy)?;
        }
        match (last, put.signals, put.flushes) {
            (_, false, _) => return Ok(()),
            (Some(last), true, false) => handle.put_with_signal(&last)?,
            (Some(last), true, true) => handle.put_with_signal_and_flush(&last)?,
            (None, true, false) => handle.signal()?,
            (None, true, true) => {
                handle.signal()?;
                handle.flush()?
            }
        };
        Ok(())
    }

    fn memory(&self, channel: u32) -> Result<&crate::block_channel::BlockSemaphore> {
        self.channels.memory.get(channel as usize).ok_or_else(|| dangling("a memory channel"))
    }

    fn port(&self, channel: u32) -> Result<&BasePortChannelHandle> {
        self.channels.port.get(channel as usize).ok_or_else(|| dangling("a port channel"))
    }

    fn failed(&self, program: &BlockProgram, at: usize, iteration: u64, error: Error) -> Error {
        // What another rank launched has nothing to do with the operation that noticed it. A wait for the proxy looks at no
        // records; why the communicator failed may stand in one.
        let error = self.launched.explained(error);
        if tells_of_another_call(&error) {
            return error;
        }
        let Some(place) = program.places.get(at) else { return error };
        let place = StepPlace { iteration, ..*place };
        let (rank, plan) = (self.launched.rank, self.plan.to_owned());
        ExecutionError::Step { rank, plan, place, cause: Box::new(error) }.into()
    }
}

/// True for connections to which a block posts without the proxy: they carry on by themselves, and a request's way through
/// another thread takes longer than posting it. All of a connection's requests go the same way, so they keep their order.
fn sends_itself(handle: &BasePortChannelHandle) -> bool {
    handle.channel().semaphore().connection().transport() == Transport::Ethernet
}

fn signal_by_port(handle: &BasePortChannelHandle) -> Result<()> {
    if sends_itself(handle) { handle.signal_directly() } else { handle.signal().map(drop) }
}

/// Takes the next signal of a port channel. It is brought by a thread of this host, the peer's proxy or one that receives
/// from the network, which needs a core.
fn wait_for_proxy(waiting: &Waiting<'_>, semaphore: &warpway_core::semaphore::Semaphore) -> Result<()> {
    if semaphore.poll()? {
        return Ok(());
    }
    let waiter = waiting.waiter.with_policy(waiting.waiter.policy.without_spinning());
    wait(&Waiting { waiter: &waiter, ..*waiting }, semaphore)
}

/// Takes the next signal of a channel.
fn wait(waiting: &Waiting<'_>, semaphore: &warpway_core::semaphore::Semaphore) -> Result<()> {
    use std::sync::atomic::Ordering;
    let site = || {
        let taken = semaphore.taken().load(Ordering::Relaxed);
        let peer = Some(semaphore.connection().peer());
        WaitSite {
            operation: Operation::Wait,
            peer,
            object: semaphore.id(),
            sequence: taken,
            expected: taken + 1,
        }
    };
    waiting.until(site, Some(semaphore.inbound_token()?.event()), || match semaphore.poll() {
        Ok(true) => Ok(Ok(())),
        Ok(false) => Err(semaphore.taken().load(Ordering::Relaxed)),
        Err(error) => Ok(Err(error)),
    })?
}

/// The compiler has checked it.
fn dangling(what: &'static str) -> Error {
    Error::Internal { place: "plan block", what }
}
