//! A thread that takes requests from a FIFO and gives them to a handler.

use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use super::ProxyError;
use super::bell::ProxyBell;
use super::handler::{Flow, Handler, Progress, guarded, panic_message};
use super::intake::{Alarm, Intake};
use super::source::{PollPolicy, TriggerSource};
use crate::deadline::Deadline;
use crate::error::{Error, Result, SystemError};
use crate::fifo::{Fifo, FifoHandle};
use crate::health::lock;
use crate::sync::{AtomicU32, Ordering};
use crate::wait::{EventCount, WaitPolicy, Waiter};

/// Runs on the proxy's thread before the first request, for affinity and the like. An error of it fails the health; the
/// thread goes on.
pub type ThreadInit = Arc<dyn Fn() -> Result<()> + Send + Sync>;

/// How a proxy runs.
#[derive(Clone)]
pub struct ProxyConfig {
    /// Slots of the FIFO, a power of two. Without effect if there is a source.
    pub fifo_size: u64,
    /// A device's ring, from which requests come instead of from host threads.
    pub source: Option<Arc<dyn TriggerSource>>,
    /// How the thread looks at the source.
    pub poll: PollPolicy,
    /// Where errors go, and how producers that find the FIFO full back off.
    pub waiter: Waiter,
    /// How the thread backs off while there is nothing to do.
    pub idle: WaitPolicy,
    /// Name of the thread.
    pub name: String,
    /// Runs first on the thread.
    pub thread_init: Option<ThreadInit>,
    /// How long dropping the proxy waits for requests that are under way.
    pub drop_timeout: Duration,
}

impl ProxyConfig {
    /// A FIFO of [`DEFAULT_FIFO_SIZE`](crate::fifo::DEFAULT_FIFO_SIZE), 2 s for requests under way on drop.
    ///
    /// Nobody spins: the thread and those who give it work need each other's core. Where there are cores to
    /// spare, set `idle.spins`.
    pub fn new(mut waiter: Waiter) -> Self {
        let idle = waiter.policy.without_spinning();
        // A device needs no core.
        let poll = PollPolicy::spinning_if(waiter.policy.spins > 0);
        waiter.policy.spins = 0;
        Self {
            fifo_size: crate::fifo::DEFAULT_FIFO_SIZE,
            source: None,
            poll,
            waiter,
            idle,
            name: "warpway-proxy".into(),
            thread_init: None,
            drop_timeout: Duration::from_secs(2),
        }
    }
}

/// What [`Proxy::stop`] left undone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StopReport {
    /// Requests that were rejected or given up.
    pub rejected: u64,
}

/// How long a stopping proxy is waited for beyond its deadline, which it notices between two requests.
const GRACE: Duration = Duration::from_secs(1);

/// Requests between two looks at progress and stop.
const BATCH: usize = 64;

/// A source of requests, a handler and the thread that joins them. Dropping it stops and joins the thread.
pub struct Proxy<H: Handler> {
    state: Mutex<State<H>>,
    /// `None` if requests come from a device.
    fifo: Option<FifoHandle>,
    alarm: Alarm,
    bell: ProxyBell,
    shared: Arc<Shared>,
    config: ProxyConfig,
}

enum State<H> {
    Idle(Box<Worker<H>>),
    Running(JoinHandle<(Worker<H>, StopReport)>),
    /// The thread could not be started or ended without giving the worker back.
    Lost,
}

/// What the proxy's owner tells its thread and the other way round.
struct Shared {
    stop: AtomicU32,
    deadline: Mutex<Deadline>,
    ended: AtomicU32,
    end: EventCount,
}

struct Worker<H> {
    intake: Intake,
    handler: H,
    waiter: Waiter,
    idle: WaitPolicy,
    bell: ProxyBell,
    shared: Arc<Shared>,
    /// Nothing has come since the handler had nothing left to do at [`Handler::rest`].
    rested: bool,
}

impl<H: Handler> Proxy<H> {
    /// A proxy that does not run yet; requests may be pushed already.
    ///
    /// # Errors
    /// `fifo.size`.
    pub fn new(handler: H, config: ProxyConfig) -> Result<Self> {
        let (intake, fifo) = match &config.source {
            Some(source) => (Intake::device(Arc::clone(source), config.poll), None),
            None => {
                let fifo = Fifo::new(config.fifo_size, config.waiter.clone())?;
                let handle = fifo.handle();
                (Intake::Host(fifo), Some(handle))
            }
        };
        let alarm = intake.alarm();
        let shared = Arc::new(Shared {
            stop: AtomicU32::new(0),
            deadline: Mutex::new(Deadline::NEVER),
            ended: AtomicU32::new(0),
            end: EventCount::new(),
        });
        let bell = ProxyBell::new(alarm.clone());
        let worker = Worker {
            intake,
            handler,
            waiter: config.waiter.clone(),
            idle: config.idle,
            bell: bell.clone(),
            shared: Arc::clone(&shared),
            rested: true,
        };
        Ok(Self { state: Mutex::new(State::Idle(Box::new(worker))), fifo, alarm, bell, shared, config })
    }

    /// Starts the thread, also again after [`stop`](Self::stop). Does nothing if it runs.
    ///
    /// # Errors
    /// If the system gives no thread. `proxy.usage` if requests of a device were left undone by a stop: its kernels
    /// have been told that they will never be done, so they need a new proxy.
    pub fn start(&self) -> Result<()> {
        let mut state = lock(&self.state);
        let mut worker = match std::mem::replace(&mut *state, State::Lost) {
            State::Idle(worker) => *worker,
            State::Running(thread) if !self.shared.has_ended() => {
                *state = State::Running(thread);
                return Ok(());
            }
            State::Running(thread) => join(thread)?.0,
            State::Lost => return Err(lost()),
        };
        self.shared.stop.store(0, Ordering::SeqCst);
        self.shared.ended.store(0, Ordering::SeqCst);
        let init = self.config.thread_init.clone();
        // Before the thread runs: a handler that wants to end at once closes it again.
        if !worker.intake.open() {
            *state = State::Idle(Box::new(worker));
            return Err(ProxyError::Usage {
                operation: "starting a proxy again",
                why: "requests of a device were left undone when it stopped; make a new one",
            }
            .into());
        }
        worker.report("proxy start", |handler| {
            handler.start();
            Ok(())
        });
        let spawned = std::thread::Builder::new().name(self.config.name.clone()).spawn(move || {
            let health = Arc::clone(&worker.waiter.health);
            let started = init.as_ref().map_or(Ok(()), |init| guarded(|| init()));
            if let Err(error) = started {
                health.fail_local("proxy thread start", None, error);
            }
            // Declared here so that it also speaks when something above the guards panics.
            let _announce = Announce(Arc::clone(&worker.shared));
            let report = worker.run();
            (worker, report)
        });
        match spawned {
            Ok(thread) => {
                *state = State::Running(thread);
                Ok(())
            }
            Err(error) => {
                self.close();
                Err(SystemError::from_io("starting the proxy's thread", &error).into())
            }
        }
    }

    /// Refuses new requests, carries out what was pushed before until `deadline`, rejects the rest, and
    /// joins the thread. Requests given up end with `proxy.stopped`, never as if they were complete.
    /// If the proxy does not run, what was pushed is rejected on the calling thread.
    ///
    /// # Errors
    /// `proxy.usage` on the proxy's own thread, `proxy.stuck` if the handler does not return in time; the
    /// thread then ends by itself once it does.
    pub fn stop(&self, deadline: Deadline) -> Result<StopReport> {
        self.close();
        let mut state = lock(&self.state);
        let thread = match &mut *state {
            State::Running(thread) => thread,
            State::Idle(worker) => return Ok(worker.finish()),
            State::Lost => return Err(lost()),
        };
        let own = thread.thread().id() == std::thread::current().id();
        *lock(&self.shared.deadline) = deadline;
        // Pairs with the loads in `run`, which then take the deadline's lock.
        self.shared.stop.store(1, Ordering::SeqCst);
        self.alarm.wake();
        if own {
            return Err(ProxyError::Usage {
                operation: "stopping a proxy",
                why: "called on the proxy's own thread, which cannot wait for itself",
            }
            .into());
        }
        let limit =
            deadline.instant().and_then(|at| at.checked_add(GRACE)).map_or(Deadline::NEVER, Deadline::at);
        while !self.shared.has_ended() {
            if limit.expired() {
                return Err(ProxyError::Stuck { grace: GRACE }.into());
            }
            let slice = limit.remaining().unwrap_or(GRACE).min(Duration::from_millis(10));
            self.shared.end.sleep_unless(slice, || self.shared.has_ended());
        }
        if let State::Running(thread) = std::mem::replace(&mut *state, State::Lost) {
            let (worker, report) = join(thread)?;
            *state = State::Idle(Box::new(worker));
            return Ok(report);
        }
        Err(lost())
    }

    /// A producer's end of the FIFO.
    ///
    /// # Errors
    /// `proxy.usage` if requests come from a device: the host cannot push then.
    pub fn fifo(&self) -> Result<&FifoHandle, ProxyError> {
        self.fifo.as_ref().ok_or(ProxyError::Usage {
            operation: "pushing a request",
            why: "the proxy takes its requests from a device; use one that was made without a source",
        })
    }

    /// Refuses what host threads push. Kernels learn of a stop when what they have pushed is done.
    fn close(&self) {
        if let Some(fifo) = &self.fifo {
            fifo.close();
        }
    }

    /// For what a handler waits for: ringing it makes the thread ask the handler for progress.
    pub fn bell(&self) -> &ProxyBell {
        &self.bell
    }

    /// True from [`start`](Self::start) until the thread has ended.
    pub fn is_running(&self) -> bool {
        matches!(&*lock(&self.state), State::Running(_)) && !self.shared.has_ended()
    }

    /// Where errors go.
    pub fn waiter(&self) -> &Waiter {
        &self.config.waiter
    }
}

impl<H: Handler> Drop for Proxy<H> {
    fn drop(&mut self) {
        // A thread that cannot be joined owns everything it touches and ends when its handler returns.
        if let Err(error) = self.stop(Deadline::after(self.config.drop_timeout)) {
            tracing::warn!(%error, "a proxy was dropped while its thread could not be joined");
        }
    }
}

impl Shared {
    fn has_ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst) != 0
    }

    fn stop_requested(&self) -> bool {
        self.stop.load(Ordering::SeqCst) != 0
    }
}

struct Announce(Arc<Shared>);

impl Drop for Announce {
    fn drop(&mut self) {
        self.0.ended.store(1, Ordering::SeqCst);
        self.0.end.notify();
    }
}

impl<H: Handler> Worker<H> {
    fn run(&mut self) -> StopReport {
        let mut idle = 0u32;
        loop {
            // Read first: what rings from here on may come too late for `progress`.
            let rings = self.bell.rings();
            let worked = match self.take_batch() {
                Some(worked) => worked,
                None => {
                    // The handler wants to end.
                    if let Intake::Host(fifo) = &self.intake {
                        fifo.handle().close();
                    }
                    return self.finish();
                }
            };
            let progress =
                self.report("proxy progress", |handler| handler.progress()).unwrap_or(Progress::Idle);
            if self.shared.stop_requested() {
                // The deadline may have been stored just before the flag.
                if progress == Progress::Idle && self.is_drained() || lock(&self.shared.deadline).expired() {
                    return self.finish();
                }
            }
            if worked || progress == Progress::Busy {
                idle = 0;
                self.rested = false;
            } else {
                idle = idle.saturating_add(1);
                if !self.rested && idle > self.spins().saturating_add(TILL_REST) {
                    self.rested = self.report("proxy rest", |handler| handler.rest()).unwrap_or(true);
                }
                self.back_off(idle, progress, rings);
            }
        }
    }

    /// Takes up requests that are there. `None` if the handler wants to end.
    fn take_batch(&mut self) -> Option<bool> {
        let mut worked = false;
        for _ in 0..BATCH {
            if !self.handler.accepts() {
                break;
            }
            let Some(decoded) = self.intake.poll() else { break };
            let position = self.intake.tail();
            let flow = self.report("proxy request", |handler| handler.handle(position, decoded?));
            if flow.is_none() {
                self.report("proxy request", |handler| {
                    handler.failed();
                    Ok(())
                });
            }
            self.intake.pop();
            worked = true;
            if flow == Some(Flow::Stop) {
                return None;
            }
        }
        Some(worked)
    }

    /// True if nothing is left in the ring. If that cannot be found out, there is nothing to wait for.
    fn is_drained(&mut self) -> bool {
        let tail = self.intake.tail();
        self.head_at_stop() == tail
    }

    /// Positions that have been taken; a device that does not answer fails the health, and is expected to write nothing.
    fn head_at_stop(&mut self) -> u64 {
        match self.intake.head() {
            Ok(head) => head,
            Err(error) => {
                self.waiter.health.fail_local("proxy stop", None, error);
                self.intake.tail()
            }
        }
    }

    /// Looks while nothing comes before the thread gives its core away.
    fn spins(&self) -> u32 {
        match &self.intake {
            Intake::Host(_) => self.idle.spins,
            Intake::Device(device) => device.spins(),
        }
    }

    fn back_off(&mut self, idle: u32, progress: Progress, rings: u64) {
        let called = || self.bell.rings() != rings || self.shared.stop_requested();
        let fifo = match &mut self.intake {
            Intake::Host(fifo) => fifo,
            Intake::Device(device) => return device.back_off(idle, called),
        };
        let policy = self.idle;
        let awake = policy.spins.saturating_add(policy.yields);
        if idle <= policy.spins {
            crate::sync::spin_loop();
            return;
        }
        if idle <= awake {
            crate::sync::yield_now();
            return;
        }
        let empty = fifo.head() == fifo.tail();
        if progress != Progress::Waiting && empty {
            fifo.sleep(policy.slice, called);
            return;
        }
        // What is waited for (a completion, or a producer that has its position but has not written yet)
        // does not wake us: the longer it takes, the longer the naps.
        let nap = (FIRST_NAP * (1 + (idle - awake) / 32)).min(LAST_NAP);
        if empty {
            fifo.sleep(nap, || self.shared.stop_requested());
        } else {
            std::thread::sleep(nap);
        }
    }

    /// Rejects what is still in the ring and gives up what is under way.
    fn finish(&mut self) -> StopReport {
        let mut rejected = 0;
        // A device may go on pushing; what it takes from here on is not part of this stop.
        let head = self.head_at_stop();
        // A producer that has a position is about to write it, unless its thread is gone.
        let patience = Deadline::after(Duration::from_millis(100));
        while self.intake.tail() < head {
            match self.intake.poll() {
                Some(decoded) => {
                    let position = self.intake.tail();
                    if let Ok(trigger) = decoded {
                        self.report("proxy stop", |handler| {
                            handler.reject(position, trigger);
                            Ok(())
                        });
                    }
                    rejected += 1;
                    self.intake.discard();
                }
                None if patience.expired() => break,
                None => crate::sync::yield_now(),
            }
        }
        rejected += self.report("proxy stop", |handler| Ok(handler.give_up())).unwrap_or(0);
        self.intake.close(rejected > 0 || self.intake.tail() < head);
        StopReport { rejected }
    }

    /// Calls the handler; its error or panic becomes the failure of the health.
    fn report<T>(&mut self, phase: &str, call: impl FnOnce(&mut H) -> Result<T>) -> Option<T> {
        let handler = &mut self.handler;
        match guarded(|| call(handler)) {
            Ok(value) => Some(value),
            Err(error) => {
                let peer = error.peer();
                self.waiter.health.fail_local(phase, peer, error);
                None
            }
        }
    }
}

/// Looks beyond those, so that a request which follows its forerunner closely finds the thread waiting.
const TILL_REST: u32 = 16;

/// How often something outside is looked at that does not wake the proxy, at first and in the long run.
const FIRST_NAP: Duration = Duration::from_micros(50);
const LAST_NAP: Duration = Duration::from_millis(1);

fn join<T>(thread: JoinHandle<T>) -> Result<T> {
    thread.join().map_err(|payload| ProxyError::Panicked { message: panic_message(&*payload) }.into())
}

fn lost() -> Error {
    Error::Internal { place: "proxy", what: "the proxy's thread gives its handler back when it ends" }
}
