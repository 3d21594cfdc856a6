//! One direction to one peer: a stream whose copies and words take effect in order.

#[cfg(test)]
mod tests;
mod turn;

use std::any::Any;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use warpway_core::connection::{ConnectionError, Position, Put, RawConnection, Span};
use warpway_core::deadline::Deadline;
use warpway_core::gpu::GpuError;
use warpway_core::health::Health;
use warpway_core::trace::Operation;
use warpway_core::transport::Transport;
use warpway_core::{Error, Result};

use super::devices::Shared;
use super::queue::{Kept, Next, Queue};
use super::word_adder::AdderKernel;
use super::word_writer::{WordForm, WordWriter};
use crate::capture::RelaxedCapture;
use crate::context::lock;
use crate::memory::PinnedMemory;
use crate::stream::Stream;
use turn::{CheckedCopy, CheckedWord, Turn};

/// Operations in flight where nothing else is asked for.
const QUEUE: u64 = 1024;
/// Words under way take 8 bytes each where they are copied.
const LONGEST_QUEUE: u64 = 1 << 16;
/// How long dropping a connection waits for what it has posted.
const FAREWELL: Duration = Duration::from_secs(2);
/// How long a full queue may stay full.
const FULL: Duration = Duration::from_secs(60);

/// A stream of its own, so that copies of different connections do not wait for each other, nor for anybody's kernels.
pub(super) struct CudaConnection {
    peer: u32,
    limit: u64,
    health: Arc<Health>,
    device: Arc<Shared>,
    /// `None` once it is dropped.
    line: Option<Line>,
    queue: Mutex<Queue>,
}

/// Stream, and what it writes into; must stay until the stream is done.
struct Line {
    stream: Stream,
    writer: WordWriter,
    /// Host memory that the stream writes the position into that it has come to.
    reached: PinnedMemory,
}

impl CudaConnection {
    pub(super) fn new(
        device: &Arc<Shared>,
        words: WordForm,
        peer: u32,
        health: Arc<Health>,
        max_write_queue_size: i32,
    ) -> Result<Self> {
        let limit = u64::try_from(max_write_queue_size).ok().filter(|limit| *limit > 0);
        let limit = limit.unwrap_or(QUEUE).min(LONGEST_QUEUE);
        let stream = Stream::new(&device.context)?;
        // Between two words of one number lie at most the queue's and as many marks.
        let writer = WordWriter::new(&stream, words, 2 * (limit + 1))?;
        let reached = PinnedMemory::allocate(&device.context, 64)?;
        let line = Some(Line { stream, writer, reached });
        Ok(Self { peer, limit, health, device: Arc::clone(device), line, queue: Mutex::default() })
    }

    fn line(&self) -> Result<&Line> {
        let dropped = Error::Internal { place: "CudaConnection", what: "a connection in use is not dropped" };
        self.line.as_ref().ok_or(dropped)
    }

    /// Gives operations to the stream, `count` at most, with one way into the driver for all of them.
    fn post(
        &self,
        operation: Operation,
        count: u64,
        work: impl FnOnce(&mut Turn<'_>) -> Result<()>,
    ) -> Result<Position> {
        let line = self.line()?;
        // Dropped after the lock: what is released may call back, or wait for the driver.
        let mut released = Vec::new();
        let mut queue = self.room(line, (operation, count), &mut released)?;
        let context = &self.device.context;
        let _relaxed = RelaxedCapture::begin(context)?;
        work(&mut Turn { connection: self, line, queue: &mut queue, entered: context.enter()? })?;
        let position = queue.posted();
        // Somebody may post for ever and never ask. What has been posted counts as not sent if this fails, so nothing
        // may follow it.
        if queue.unmarked() > self.limit / 2
            && let Err(error) = self.advance(line, &mut queue, &mut released)
        {
            return Err(queue
                .check()
                .map_or_else(Error::from, |()| self.broken(&mut queue, operation, &error)));
        }
        Ok(Position(position))
    }

    /// The queue, locked, with room for so many more.
    fn room(
        &self,
        line: &Line,
        (operation, count): (Operation, u64),
        released: &mut Vec<(u64, Kept)>,
    ) -> Result<MutexGuard<'_, Queue>> {
        let mut queue = lock(&self.queue);
        queue.check()?;
        // The word alone is enough while there is room; not even the time is asked for then.
        if queue.posted() - line.reached() + count <= self.limit {
            return Ok(queue);
        }
        let mut pause = Pause::default();
        let give_up = Deadline::after(FULL);
        loop {
            let done = self.advance(line, &mut queue, released)?;
            if queue.posted() - done + count <= self.limit {
                return Ok(queue);
            }
            drop(queue);
            self.health.check_during(operation)?;
            if give_up.expired() {
                let why = format!("{} operations have been in flight for {} s", self.limit, FULL.as_secs());
                return Err(self.error(operation, why).into());
            }
            pause.wait();
            queue = lock(&self.queue);
        }
    }

    /// How far the stream has come. Gives it a mark if that is needed, and looks whether it has failed now and then.
    fn advance(&self, line: &Line, queue: &mut Queue, released: &mut Vec<(u64, Kept)>) -> Result<u64> {
        queue.check()?;
        let done = line.reached();
        released.extend(queue.release(done));
        let doing = Operation::Flush;
        match queue.ask(done) {
            Next::Nothing => {}
            Next::Mark(position) => {
                let _relaxed = RelaxedCapture::begin(&self.device.context)?;
                let (number, address) = (queue.next_word(), line.reached.address());
                let into = (&self.device.context.enter()?, &line.stream);
                // SAFETY: an aligned word that lives until the stream is done (see `drop`), read by atomic loads only.
                let marked = unsafe { line.writer.write(into, number, address, position) };
                marked.map_err(|error| self.broken(queue, doing, &error))?;
                queue.mark(position);
            }
            Next::Ask => {
                let _relaxed = RelaxedCapture::begin(&self.device.context)?;
                let asked = line.stream.is_idle().map_err(Error::from);
                asked.map_err(|error| self.broken(queue, doing, &error))?;
            }
        }
        Ok(done)
    }

    /// Ends the connection: what the driver has not taken, or has not done, does not arrive any more.
    fn broken(&self, queue: &mut Queue, operation: Operation, error: &Error) -> Error {
        let failure = self.error(operation, error.to_string());
        queue.fail(failure.clone());
        failure.into()
    }

    fn error(&self, operation: Operation, why: String) -> ConnectionError {
        let (rank, peer) = (self.health.rank(), self.peer);
        ConnectionError::Broken { rank, peer, transport: Transport::CudaIpc, operation, why }
    }

    fn prepared_adder(&self) -> Result<AdderKernel> {
        let _relaxed = RelaxedCapture::begin(&self.device.context)?;
        self.device.adder.kernel(&self.device.context)
    }

    /// Writes a word in stream order.
    fn word(&self, operation: Operation, destination: Span<'_>, value: u64) -> Result<Position> {
        let word = CheckedWord::new(destination, value)?;
        self.post(operation, 1, |turn| turn.write(operation, word))
    }
}

impl Line {
    /// The position that the stream has come to.
    fn reached(&self) -> u64 {
        let word = self.reached.host().cast::<u64>().as_ptr();
        // SAFETY: an aligned word of live memory, of which there are no references; the device writes it whole.
        let word = unsafe { AtomicU64::from_ptr(word) };
        // Acquire: what the stream wrote to host memory before is visible; pairs with the fence before its write.
        word.load(Ordering::Acquire)
    }
}

impl RawConnection for CudaConnection {
    fn write(&self, destination: Span<'_>, source: Span<'_>, size: u64) -> Result<Position> {
        let copy = CheckedCopy::new(Put { destination, source, size }, self.peer)?;
        self.post(Operation::Write, 1, |turn| turn.copy(&copy))
    }

    fn write_and_raise(&self, put: Put<'_>, token: Span<'_>, value: u64) -> Result<Position> {
        let copy = CheckedCopy::new(put, self.peer)?;
        let word = CheckedWord::new(token, value)?;
        if self.limit < 2 {
            self.post(Operation::Write, 1, |turn| turn.copy(&copy))?;
            return self.post(Operation::AtomicAdd, 1, |turn| turn.write(Operation::AtomicAdd, word));
        }
        self.post(Operation::Write, 2, |turn| {
            turn.copy(&copy)?;
            turn.write(Operation::AtomicAdd, word)
        })
    }

    fn store(&self, destination: Span<'_>, value: u64) -> Result<Position> {
        self.word(Operation::UpdateAndSync, destination, value)
    }

    fn add(&self, destination: Span<'_>, delta: i64) -> Result<Position> {
        let word = CheckedWord::new(destination, delta.cast_unsigned())?;
        // First of all: where it cannot be made this addition fails, and the connection goes on.
        let adder = self.prepared_adder()?;
        self.post(Operation::AtomicAdd, 1, |turn| turn.add(&adder, &word))
    }

    fn prepare_add(&self) -> Result<()> {
        self.prepared_adder().map(drop)
    }

    fn raise(&self, destination: Span<'_>, value: u64) -> Result<Position> {
        self.word(Operation::AtomicAdd, destination, value)
    }

    fn keep(&self, position: Position, what: &Arc<dyn Any + Send + Sync>) {
        let done = self.line.as_ref().map_or(u64::MAX, Line::reached);
        if done < position.0 {
            lock(&self.queue).keep(position.0, Arc::clone(what));
        }
    }

    fn completed(&self) -> Result<Position> {
        let line = self.line()?;
        let mut released = Vec::new();
        let mut queue = lock(&self.queue);
        let done = self.advance(line, &mut queue, &mut released)?;
        drop(queue);
        Ok(Position(done))
    }

    fn flush(&self, position: Position, deadline: Deadline) -> Result<()> {
        if position > self.posted() {
            let what = "a position that has been posted";
            return Err(Error::Internal { place: "CudaConnection::flush", what });
        }
        let mut pause = Pause::default();
        loop {
            // Before the test, which is made once more after the time is over.
            let late = deadline.expired();
            let completed = self.completed()?;
            if completed >= position {
                return Ok(());
            }
            self.health.check_during(Operation::Flush)?;
            if late {
                return Err(ConnectionError::FlushTimeout {
                    peer: self.peer,
                    transport: Transport::CudaIpc,
                    wanted: position.0,
                    completed: completed.0,
                }
                .into());
            }
            pause.wait();
        }
    }

    fn posted(&self) -> Position {
        Position(lock(&self.queue).posted())
    }

    fn max_write_queue_size(&self) -> u64 {
        self.limit
    }

    fn in_flight(&self) -> Result<u64> {
        let open = {
            let queue = lock(&self.queue);
            queue.check()?;
            queue.posted() - self.line()?.reached()
        };
        // A mark costs as much as a short copy: while there are few, nobody asks. `post` has asked once there are many.
        if open <= self.limit / 2 {
            return Ok(open);
        }
        let done = self.completed()?.0;
        Ok(lock(&self.queue).posted() - done)
    }

    fn let_go(&self) -> Result<bool> {
        self.completed()?;
        Ok(lock(&self.queue).keeps_nothing())
    }
}

impl Drop for CudaConnection {
    fn drop(&mut self) {
        let Some(line) = self.line.take() else { return };
        let queue = std::mem::take(&mut *lock(&self.queue));
        let _relaxed = RelaxedCapture::begin(&self.device.context);
        match line.stream.settle(Deadline::after(FAREWELL)) {
            Err(error @ GpuError::Timeout { .. }) => {
                tracing::warn!(
                    target: "warpway::gpu",
                    peer = self.peer,
                    "dropping a connection: {error}; memory that it uses is not freed"
                );
                std::mem::forget((line, queue));
            }
            // Done, or failed: nothing is read or written any more.
            Ok(()) | Err(_) => drop((queue, line)),
        }
    }
}

/// Between two looks: polls for as long as a short copy takes, then gives the processor away.
struct Pause {
    since: Instant,
}

impl Default for Pause {
    fn default() -> Self {
        Self { since: Instant::now() }
    }
}

impl Pause {
    const SPIN: Duration = Duration::from_micros(20);
    const YIELD: Duration = Duration::from_micros(200);
    const NAP: Duration = Duration::from_micros(50);

    fn wait(&mut self) {
        match self.since.elapsed() {
            waited if waited < Self::SPIN => std::hint::spin_loop(),
            waited if waited < Self::YIELD => std::thread::yield_now(),
            _ => std::thread::sleep(Self::NAP),
        }
    }
}
