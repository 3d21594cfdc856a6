//! A thread that takes requests from a FIFO and gives them to a handler.

use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use super::ProxyError;
use super::bell::ProxyBell;
use super::handler::{Flow, Handler, Progress, guarded, panic_message};
use crate::deadline::Deadline;
use crate::error::{Error, Result, SystemError};
use crate::fifo::{Fifo, FifoHandle};
use crate::health::lock;
use crate::sync::{AtomicU32, Ordering};
use crate::wait::{EventCount, WaitPolicy, Waiter};

/// Runs on the proxy's thread before the first request, for affinity and the like.
pub type ThreadInit = Arc<dyn Fn() + Send + Sync>;

/// How a proxy runs.
#[derive(Clone)]
pub struct ProxyConfig {
    /// Slots of the FIFO, a power of two.
    pub fifo_size: u64,
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
        waiter.policy.spins = 0;
        Self {
            fifo_size: crate::fifo::DEFAULT_FIFO_SIZE,
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

/// A FIFO, a handler and the thread that joins them. Dropping it stops and joins the thread.
pub struct Proxy<H: Handler> {
    state: Mutex<State<H>>,
    fifo: FifoHandle,
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
    fifo: Fifo,
    handler: H,
    waiter: Waiter,
    idle: WaitPolicy,
    bell: ProxyBell,
    shared: Arc<Shared>,
}

impl<H: Handler> Proxy<H> {
    /// A proxy that does not run yet; requests may be pushed already.
    ///
    /// # Errors
    /// `fifo.size`.
    pub fn new(handler: H, config: ProxyConfig) -> Result<Self> {
        let fifo = Fifo::new(config.fifo_size, config.waiter.clone())?;
        let shared = Arc::new(Shared {
            stop: AtomicU32::new(0),
            deadline: Mutex::new(Deadline::NEVER),
            ended: AtomicU32::new(0),
            end: EventCount::new(),
        });
        let handle = fifo.handle();
        let bell = ProxyBell::new(handle.clone());
        let worker = Worker {
            fifo,
            handler,
            waiter: config.waiter.clone(),
            idle: config.idle,
            bell: bell.clone(),
            shared: Arc::clone(&shared),
        };
        Ok(Self { state: Mutex::new(State::Idle(Box::new(worker))), fifo: handle, bell, shared, config })
    }

    /// Starts the thread, also again after [`stop`](Self::stop). Does nothing if it runs.
    ///
    /// # Errors
    /// If the system gives no thread.
    pub fn start(&self) -> Result<()> {
        let mut state = lock(&self.state);
        let worker = match std::mem::replace(&mut *state, State::Lost) {
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
        self.fifo.open();
        let spawned = std::thread::Builder::new().name(self.config.name.clone()).spawn(move || {
            let mut worker = worker;
            let health = Arc::clone(&worker.waiter.health);
            let started = guarded(|| {
                if let Some(init) = &init {
                    init();
                }
                Ok(())
            });
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
                self.fifo.close();
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
        self.fifo.close();
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
        self.fifo.wake();
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
    pub fn fifo(&self) -> &FifoHandle {
        &self.fifo
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
                    self.fifo.handle().close();
                    return self.finish();
                }
            };
            let progress =
                self.report("proxy progress", |handler| handler.progress()).unwrap_or(Progress::Idle);
            if self.shared.stop_requested() {
                let drained = self.fifo.head() == self.fifo.tail() && progress == Progress::Idle;
                // The deadline may have been stored just before the flag.
                if drained || lock(&self.shared.deadline).expired() {
                    return self.finish();
                }
            }
            if worked || progress == Progress::Busy {
                idle = 0;
            } else {
                idle = idle.saturating_add(1);
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
            let Some(decoded) = self.fifo.poll() else { break };
            let position = self.fifo.tail();
            let flow = self.report("proxy request", |handler| handler.handle(position, decoded?));
            self.fifo.pop();
            worked = true;
            if flow == Some(Flow::Stop) {
                return None;
            }
        }
        Some(worked)
    }

    fn back_off(&self, idle: u32, progress: Progress, rings: u64) {
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
        let empty = self.fifo.head() == self.fifo.tail();
        if progress != Progress::Waiting && empty {
            let called = || self.bell.rings() != rings || self.shared.stop_requested();
            self.fifo.sleep(policy.slice, called);
            return;
        }
        // What is waited for (a completion, or a producer that has its position but has not written yet)
        // does not wake us: the longer it takes, the longer the naps.
        let nap = (FIRST_NAP * (1 + (idle - awake) / 32)).min(LAST_NAP);
        if empty {
            self.fifo.sleep(nap, || self.shared.stop_requested());
        } else {
            std::thread::sleep(nap);
        }
    }

    /// Rejects what is still in the ring and gives up what is under way.
    fn finish(&mut self) -> StopReport {
        let mut rejected = 0;
        // A producer that has a position is about to write it, unless its thread is gone.
        let patience = Deadline::after(Duration::from_millis(100));
        while self.fifo.head() != self.fifo.tail() {
            match self.fifo.poll() {
                Some(Ok(trigger)) => {
                    let position = self.fifo.tail();
                    self.report("proxy stop", |handler| {
                        handler.reject(position, trigger);
                        Ok(())
                    });
                    rejected += 1;
                    self.fifo.pop();
                }
                Some(Err(_)) => {
                    rejected += 1;
                    self.fifo.pop();
                }
                None if patience.expired() => break,
                None => crate::sync::yield_now(),
            }
        }
        rejected += self.report("proxy stop", |handler| Ok(handler.give_up())).unwrap_or(0);
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

/// How often something outside is looked at that does not wake the proxy, at first and in the long run.
const FIRST_NAP: Duration = Duration::from_micros(50);
const LAST_NAP: Duration = Duration::from_millis(1);

fn join<T>(thread: JoinHandle<T>) -> Result<T> {
    thread.join().map_err(|payload| ProxyError::Panicked { message: panic_message(&*payload) }.into())
}

fn lost() -> Error {
    Error::Internal { place: "proxy", what: "the proxy's thread gives its handler back when it ends" }
}
