//! Kernels that take turns: one of them runs at a time, whatever streams they are given to, and what they use lives
//! until they have ended.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use warpway_core::gpu::GpuError;
use warpway_core::{Deadline, Result};

use super::argument::{Keeper, KernelArguments};
use super::control::Watched;
use crate::context::{Context, lock};
use crate::event::Event;
use crate::graph::Graph;
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
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Room on the device for the widest kernel so far.
    room: Option<Residency>,
    /// Oldest first; they end in that order.
    running: VecDeque<Running>,
    /// Events without a launch.
    spare: Vec<Event>,
    /// Of the capture under way.
    captured: Option<Vec<Keeper>>,
    /// Of captures that others have made: who knows when their graphs are launched.
    kept: Vec<Keeper>,
}

struct Running {
    /// After the launch.
    end: Event,
    _kept: Vec<Keeper>,
}

impl Turns {
    pub(super) fn new(context: &Context, watched: &Arc<Watched>) -> Self {
        let (context, watched) = (context.clone(), Arc::clone(watched));
        Self(Arc::new(Inner { context, watched, state: Mutex::default() }))
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
        self.check(stream, kernel.name())?;
        if *kernel.context() != self.0.context {
            return Err(self.foreign(kernel.name(), "kernel", kernel.context()).into());
        }
        let mut kept: Vec<Keeper> = vec![Arc::new(kernel.clone())];
        arguments.keep(&mut kept);
        let mut state = lock(&self.0.state);
        state.make_room(&self.0.context, kernel, shape)?;
        // SAFETY: the caller's, below as here.
        let launch = || unsafe { kernel.launch(stream, shape, &arguments.values()) };
        if stream.is_capturing()? {
            launch()?;
            // A launch adds what is new: captured plans are many, and use the same few things.
            let State { captured, kept: for_ever, .. } = &mut *state;
            let list = captured.as_mut().unwrap_or(for_ever);
            list.extend(kept);
            return Ok(());
        }
        let taken = state.take_turn(&self.0.context, stream, kept, launch);
        drop(state);
        self.noted(taken)
    }

    /// Records what `work` gives to `stream`, launches of these turns among it.
    pub(super) fn capture(&self, stream: &Stream, work: impl FnOnce() -> Result<()>) -> Result<TurnsGraph> {
        self.check(stream, "a capture")?;
        let busy = lock(&self.0.state).captured.is_some();
        if busy {
            return Err(GpuError::Device {
                what: "capturing a stream".into(),
                device: self.0.context.ordinal(),
                why: "another capture of the same lane is under way".into(),
                hint: Some("capture one after the other, or in lanes of their own"),
            }
            .into());
        }
        lock(&self.0.state).captured = Some(Vec::new());
        let graph = stream.capture_any(work);
        let kept = lock(&self.0.state).captured.take().unwrap_or_default();
        Ok(TurnsGraph {
            turns: self.clone(),
            graph: Arc::new(Captured { graph: Mutex::new(graph?), _kept: kept }),
        })
    }

    /// Lets go of what kernels that have ended have used. Does not wait for another thread that launches.
    pub(super) fn tidy(&self) {
        if let Ok(mut state) = self.0.state.try_lock() {
            state.reap();
        }
    }

    fn check(&self, stream: &Stream, what: &str) -> Result<()> {
        self.0.watched.health().check_during("launch")?;
        if *stream.context() == self.0.context {
            return Ok(());
        }
        Err(self.foreign(what, "stream", stream.context()).into())
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

    /// Gives work to a stream, where it waits for the work of the turn before.
    fn take_turn(
        &mut self,
        context: &Context,
        stream: &Stream,
        kept: Vec<Keeper>,
        launch: impl FnOnce() -> Result<(), GpuError>,
    ) -> Result<(), GpuError> {
        self.reap();
        if let Some(before) = self.running.back() {
            stream.wait_for(&before.end)?;
        }
        // Made before the launch: nothing may fail between it and the point that tells its end.
        let end = match self.spare.pop() {
            Some(event) => event,
            None => Event::new(context)?,
        };
        launch()?;
        match end.record(stream) {
            Ok(()) => self.running.push_back(Running { end, _kept: kept }),
            Err(error) => {
                // The kernel runs, and nobody will know when it ends.
                self.kept.extend(kept);
                return Err(error);
            }
        }
        Ok(())
    }

    fn reap(&mut self) {
        while let Some(oldest) = self.running.front() {
            match oldest.end.is_done() {
                Ok(true) => {}
                // An error says nothing about the end: while others capture, for example, nobody may ask.
                Ok(false) | Err(_) => break,
            }
            if let Some(Running { end, .. }) = self.running.pop_front() {
                self.spare.push(end);
            }
        }
    }

    /// True once nothing runs any more.
    fn drain(&mut self, deadline: Deadline) -> bool {
        loop {
            self.reap();
            let Some(oldest) = self.running.front() else { return true };
            // After a fault nothing runs on the device.
            if oldest.end.is_done().is_err_and(|error| crate::driver::is_device_fault(&error)) {
                return true;
            }
            if deadline.expired() {
                return false;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner);
        if state.drain(Deadline::after(GRACE)) {
            return;
        }
        self.watched.health().abort("the communicator was dropped while a kernel was running");
        if state.drain(Deadline::after(LEAVE)) {
            return;
        }
        tracing::warn!(
            target: "warpway::gpu",
            "device {}: a kernel still runs although its communicator is gone; what it uses is never freed",
            self.context.ordinal()
        );
        std::mem::forget(std::mem::take(state));
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
        let mut state: MutexGuard<'_, State> = lock(&self.turns.0.state);
        let kept: Vec<Keeper> = vec![Arc::clone(&self.graph) as Keeper];
        let launch = || lock(&self.graph.graph).launch(stream);
        let taken = state.take_turn(&self.turns.0.context, stream, kept, launch);
        drop(state);
        self.turns.noted(taken)
    }
}

impl fmt::Debug for Turns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = lock(&self.0.state);
        f.debug_struct("Turns")
            .field("device", &self.0.context.ordinal())
            .field("running", &state.running.len())
            .field("room", &state.room)
            .finish_non_exhaustive()
    }
}
