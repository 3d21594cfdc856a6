//! Kernels that take turns: one of them runs at a time, whatever streams they are given to, and what they use lives
//! until they have ended.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use warpway_core::gpu::GpuError;
use warpway_core::{Deadline, Result};

use super::argument::{Keeper, KernelArguments};
use super::control::Watched;
use crate::capture::RelaxedCapture;
use crate::context::{Context, lock};
use crate::driver::is_device_fault;
use crate::event::Event;
use crate::graph::Graph;
use crate::in_flight::{Launches, Progress};
use crate::module::{Kernel, LaunchShape};
use crate::residency::Residency;
use crate::stream::Stream;

/// How long kernels may still run when their communicator is dropped; then they are aborted.
const GRACE: Duration = Duration::from_secs(5);

/// How long an aborted kernel may take to leave: the longest time between two looks at the abort word, many times over.
const LEAVE: Duration = Duration::from_secs(2);

/// Cheap to clone; clones take turns with each other.
#[derive(Clone)]
pub(super) struct Turns(Arc<Inner>);

struct Inner {
    context: Context,
    watched: Arc<Watched>,
    line: Arc<Line>,
}

/// What is under way; asked by whoever frees memory.
struct Line {
    context: Context,
    progress: Arc<Progress>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Room on the device for the widest kernel so far.
    room: Option<Residency>,
    /// Oldest first; they end in that order.
    running: VecDeque<Running>,
    /// A kernel runs of which nobody will know when it ends.
    lost: bool,
    /// Events without a launch.
    spare: Vec<Event>,
    /// The capture under way.
    capture: Option<Capture>,
    /// Of captures that others have made: who knows when their graphs are launched.
    kept: Vec<Keeper>,
}

struct Running {
    number: u64,
    /// After the launch.
    end: Event,
    kept: Vec<Keeper>,
}

struct Capture {
    /// The driver's handle of the stream, as a number.
    stream: usize,
    kept: Vec<Keeper>,
}

impl Turns {
    pub(super) fn new(context: &Context, watched: &Arc<Watched>) -> Self {
        let (context, watched) = (context.clone(), Arc::clone(watched));
        let (progress, state) = (Arc::default(), Mutex::default());
        let line = Arc::new(Line { context: context.clone(), progress, state });
        let weak: Weak<Line> = Arc::downgrade(&line);
        context.driver().in_flight().watch(weak);
        Self(Arc::new(Inner { context, watched, line }))
    }

    /// Launches a kernel after those before it.
    ///
    /// # Safety
    /// As [`Kernel::launch`], but for what the arguments keep.
    pub(super) unsafe fn launch<A: KernelArguments>(
        &self,
        kernel: &Kernel,
        shape: LaunchShape,
        arguments: &A,
        stream: &Stream,
    ) -> Result<()> {
        self.check_kernel(stream, kernel)?;
        kernel.check_arguments::<A::Values>()?;
        let mut kept: Vec<Keeper> = vec![Arc::new(kernel.clone())];
        arguments.keep(&mut kept);
        // SAFETY: the caller's.
        let launch = || unsafe { kernel.launch(stream, shape, &arguments.values()) };
        self.turn(stream, kept, launch, |state| state.make_room(&self.0.context, kernel, shape))
    }

    /// The same for a kernel whose one parameter is a structure of so many words; `keeper` keeps the kernel, too.
    ///
    /// # Safety
    /// As [`launch`](Self::launch).
    pub(super) unsafe fn launch_words(
        &self,
        kernel: &Kernel,
        shape: LaunchShape,
        (words, keeper): (&[u64], Keeper),
        stream: &Stream,
    ) -> Result<()> {
        self.check_kernel(stream, kernel)?;
        // SAFETY: the caller's.
        let launch = || unsafe { kernel.launch_words(stream, shape, words) };
        self.turn(stream, vec![keeper], launch, |state| state.make_room(&self.0.context, kernel, shape))
    }

    /// Gives work to a stream, or to the graph that it is captured into.
    fn turn(
        &self,
        stream: &Stream,
        kept: Vec<Keeper>,
        launch: impl FnOnce() -> Result<(), GpuError>,
        prepare: impl FnOnce(&mut State) -> Result<(), GpuError>,
    ) -> Result<()> {
        let Line { progress, state, .. } = &*self.0.line;
        let mut ended = Vec::new();
        let mut state = lock(state);
        prepare(&mut state)?;
        let taken = if stream.is_capturing()? {
            launch().map(|()| state.keep_for_graph(stream, kept))
        } else {
            // Where others capture: these questions are no part of it.
            let relaxed = RelaxedCapture::begin(&self.0.context);
            ended = state.reap(progress);
            drop(relaxed);
            state.take_turn(&self.0.context, progress, stream, kept, launch)
        };
        drop(state);
        // Now that the kernel is on its way: giving memory back may wait for kernels of other ranks, and those for this one.
        drop(ended);
        self.0.context.driver().in_flight().release();
        self.noted(taken)
    }

    /// Records what `work` gives to `stream`, launches of these turns among it.
    pub(super) fn capture(&self, stream: &Stream, work: impl FnOnce() -> Result<()>) -> Result<TurnsGraph> {
        self.check(stream, "a capture")?;
        let busy = GpuError::Device {
            what: "capturing a stream".into(),
            device: self.0.context.ordinal(),
            why: "another capture of the same lane is under way".into(),
            hint: Some("capture one after the other, or in lanes of their own"),
        };
        let state = &self.0.line.state;
        match &mut lock(state).capture {
            Some(_) => return Err(busy.into()),
            none => *none = Some(Capture { stream: stream.raw() as usize, kept: Vec::new() }),
        }
        // Also when `work` panics.
        let under_way = UnderWay(state);
        let graph = stream.capture_any(work);
        let kept = under_way.end();
        Ok(TurnsGraph {
            turns: self.clone(),
            graph: Arc::new(Captured { graph: Mutex::new(graph?), _kept: kept }),
        })
    }

    /// Lets go of what kernels that have ended have used. Does not wait for another thread that launches.
    pub(super) fn tidy(&self) {
        self.0.line.look();
        self.0.context.driver().in_flight().release();
    }

    fn check(&self, stream: &Stream, what: &str) -> Result<()> {
        self.0.watched.health().check_during("launch")?;
        if *stream.context() == self.0.context {
            return Ok(());
        }
        Err(self.foreign(what, "stream", stream.context()).into())
    }

    fn check_kernel(&self, stream: &Stream, kernel: &Kernel) -> Result<()> {
        self.check(stream, kernel.name())?;
        if *kernel.context() == self.0.context {
            return Ok(());
        }
        Err(self.foreign(kernel.name(), "kernel", kernel.context()).into())
    }

    /// An earlier kernel that has crashed shows in the launches after it.
    fn noted(&self, taken: Result<(), GpuError>) -> Result<()> {
        Ok(taken.inspect_err(|error| self.0.watched.note(error))?)
    }

    fn foreign(&self, what: &str, thing: &str, of: &Context) -> GpuError {
        GpuError::Device {
            what: format!("launching {what}"),
            device: self.0.context.ordinal(),
            why: format!("the {thing} is of device {}", of.ordinal()),
            hint: None,
        }
    }
}

/// The capture of a lane; there is none any more when this is dropped.
struct UnderWay<'s>(&'s Mutex<State>);

impl UnderWay<'_> {
    /// What the graph is to keep.
    fn end(self) -> Vec<Keeper> {
        lock(self.0).capture.take().map_or_else(Vec::new, |capture| capture.kept)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let capture = lock(self.0).capture.take();
        drop(capture);
    }
}

impl State {
    fn make_room(&mut self, context: &Context, kernel: &Kernel, shape: LaunchShape) -> Result<(), GpuError> {
        let claim = kernel.claim(shape)?;
        match &mut self.room {
            Some(room) => room.widen(&claim),
            None => {
                self.room = Some(context.ledger().claim(&claim)?);
                Ok(())
            }
        }
    }

    /// Keeps what a captured launch uses: with the graph of our own capture, for ever with one of somebody else.
    fn keep_for_graph(&mut self, stream: &Stream, kept: Vec<Keeper>) {
        // A launch adds what is new: captured plans are many, and use the same few things.
        match &mut self.capture {
            Some(capture) if capture.stream == stream.raw() as usize => capture.kept.extend(kept),
            _ => self.kept.extend(kept),
        }
    }

    /// Gives work to a stream, where it waits for the work of the turn before.
    fn take_turn(
        &mut self,
        context: &Context,
        progress: &Progress,
        stream: &Stream,
        kept: Vec<Keeper>,
        launch: impl FnOnce() -> Result<(), GpuError>,
    ) -> Result<(), GpuError> {
        if let Some(before) = self.running.back() {
            stream.wait_for(&before.end)?;
        }
        // Made before the launch: nothing may fail between it and the point that tells its end.
        let end = match self.spare.pop() {
            Some(event) => event,
            None => Event::new(context)?,
        };
        let number = progress.begin();
        launch().inspect_err(|_| progress.take_back())?;
        // One call that fails says little.
        match end.record(stream).or_else(|_| end.record(stream)) {
            Ok(()) => self.running.push_back(Running { number, end, kept }),
            Err(error) => {
                // The kernel runs, and nobody will know when it ends.
                self.lost = true;
                self.kept.extend(kept);
                return Err(error);
            }
        }
        Ok(())
    }

    /// What kernels that have ended have used; to be dropped without the lock.
    fn reap(&mut self, progress: &Progress) -> Vec<Keeper> {
        let mut ended = Vec::new();
        while let Some(oldest) = self.running.front() {
            match oldest.end.is_done() {
                Ok(true) => {}
                // An error says nothing about the end.
                Ok(false) | Err(_) => break,
            }
            if let Some(Running { number, end, kept }) = self.running.pop_front() {
                self.spare.push(end);
                ended.extend(kept);
                if !self.lost {
                    progress.end(number);
                }
            }
        }
        ended
    }
}

impl Launches for Line {
    fn look(&self) {
        let Ok(mut state) = self.state.try_lock() else { return };
        if state.running.is_empty() {
            return;
        }
        let relaxed = RelaxedCapture::begin(&self.context);
        let ended = state.reap(&self.progress);
        drop(relaxed);
        drop(state);
        drop(ended);
    }

    fn progress(&self) -> &Arc<Progress> {
        &self.progress
    }
}

impl Line {
    /// True once nothing runs any more.
    fn drain(&self, deadline: Deadline) -> bool {
        let _relaxed = RelaxedCapture::begin(&self.context);
        loop {
            self.look();
            let state = lock(&self.state);
            let Some(oldest) = state.running.front() else { return !state.lost };
            // After a fault nothing runs on the device.
            if oldest.end.is_done().is_err_and(|error| is_device_fault(&error)) {
                return true;
            }
            drop(state);
            if deadline.expired() {
                return false;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let Self { context, watched, line } = self;
        let mut drained = line.drain(Deadline::after(GRACE));
        if !drained {
            watched.health().abort("the communicator was dropped while a kernel was running");
            drained = line.drain(Deadline::after(LEAVE));
        }
        if drained {
            let state = std::mem::take(&mut *lock(&line.state));
            drop(state);
            line.progress.finish();
            context.driver().in_flight().release();
            return;
        }
        tracing::warn!(
            target: "warpway::gpu",
            "device {}: a kernel still runs although its communicator is gone; what it uses is never freed",
            context.ordinal()
        );
        // Nor is what ends its waits.
        std::mem::forget((Arc::clone(line), Arc::clone(watched)));
    }
}

/// Captured work that takes turns with the launches beside it. Cheap to clone.
#[derive(Clone)]
pub(super) struct TurnsGraph {
    turns: Turns,
    graph: Arc<Captured>,
}

struct Captured {
    graph: Mutex<Graph>,
    _kept: Vec<Keeper>,
}

impl TurnsGraph {
    pub(super) fn launch(&self, stream: &Stream) -> Result<()> {
        self.turns.check(stream, "a graph")?;
        let kept: Vec<Keeper> = vec![Arc::clone(&self.graph) as Keeper];
        let launch = || lock(&self.graph.graph).launch(stream);
        self.turns.turn(stream, kept, launch, |_| Ok(()))
    }
}

impl fmt::Debug for Turns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = lock(&self.0.line.state);
        f.debug_struct("Turns")
            .field("device", &self.0.context.ordinal())
            .field("running", &state.running.len())
            .field("room", &state.room)
            .finish_non_exhaustive()
    }
}
