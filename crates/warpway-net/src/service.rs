//! What the connections of one engine share, and its life: two threads from the first endpoint until the
//! engine and its last connection are gone.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use warpway_core::bootstrap::ControlPlane;
use warpway_core::wait::EventCount;
use warpway_core::{Deadline, Error, Result, SystemError};

use crate::engine::TcpConfig;
use crate::handshake::Identity;
use crate::job::{Job, JobId};
use crate::link::Link;
use crate::lock;
use crate::reactor::{self, Pollers};
use crate::table::Table;

/// What a poller's key stands for.
#[derive(Clone)]
pub(crate) enum Source {
    /// A listening socket: which one of the job's.
    Listener(Arc<Job>, usize),
    Link(Arc<Link>),
}

/// State shared with the threads.
pub(crate) struct Shared {
    pub(crate) config: TcpConfig,
    pub(crate) table: Arc<Table>,
    pub(crate) pollers: Arc<Pollers>,
    pub(crate) sources: Mutex<HashMap<u64, Source>>,
    pub(crate) arrivals: Arrivals,
    /// Strangers, and ranks that gave up, turned away so far.
    pub(crate) strays: AtomicU64,
    pub(crate) stopping: AtomicBool,
    next_key: AtomicU64,
}

/// Authenticated sockets that wait for the local side to call `connect`.
#[derive(Default)]
pub(crate) struct Arrivals {
    expected: Mutex<HashSet<(JobId, u64)>>,
    sockets: Mutex<HashMap<(JobId, Identity), OwnedFd>>,
    pub(crate) event: EventCount,
}

impl Arrivals {
    /// From now on, links to this endpoint are accepted.
    pub(crate) fn expect(&self, job: JobId, endpoint: u64) {
        lock(&self.expected).insert((job, endpoint));
    }

    /// Stores a socket for `take`; false if nobody here can want it. A later socket of the same pair
    /// replaces an earlier one, which its dialer has given up.
    pub(crate) fn put(&self, job: JobId, identity: Identity, socket: OwnedFd) -> bool {
        if identity.to != job.rank || !lock(&self.expected).contains(&(job, identity.to_endpoint)) {
            return false;
        }
        lock(&self.sockets).insert((job, identity), socket);
        self.event.notify();
        true
    }

    pub(crate) fn take(&self, job: JobId, identity: &Identity) -> Option<OwnedFd> {
        lock(&self.sockets).remove(&(job, *identity))
    }
}

impl Shared {
    /// A number for the pollers; 0 is the bell.
    pub(crate) fn next_key(&self) -> u64 {
        self.next_key.fetch_add(1, Ordering::Relaxed)
    }

    /// Gives a link to the threads.
    pub(crate) fn adopt(&self, link: Arc<Link>) -> Result<()> {
        let key = link.parts.key;
        lock(&self.sources).insert(key, Source::Link(Arc::clone(&link)));
        self.watch(&link.parts.socket, key).inspect_err(|_| {
            lock(&self.sources).remove(&key);
        })
    }

    fn watch(&self, socket: impl AsFd, key: u64) -> Result<()> {
        Ok(self.pollers.watch_readable(socket, key).map_err(|e| SystemError::new("epoll_ctl", e))?)
    }

    /// Forgets a link that has ended.
    pub(crate) fn forget(&self, link: &Link) {
        self.pollers.ignore(&link.parts.socket);
        lock(&self.sources).remove(&link.parts.key);
        let mut output = lock(&link.output);
        output.clear();
    }

    pub(crate) fn links(&self) -> Vec<Arc<Link>> {
        let sources = lock(&self.sources);
        let links = sources.values().filter_map(|source| match source {
            Source::Link(link) => Some(Arc::clone(link)),
            Source::Listener(..) => None,
        });
        links.collect()
    }
}

/// Keeps the threads running; held by the engine and by each connection.
pub(crate) struct Service {
    pub(crate) shared: Arc<Shared>,
    jobs: Mutex<Vec<Arc<Job>>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    next_endpoint: AtomicU64,
}

impl Service {
    /// Starts the threads.
    pub(crate) fn start(config: TcpConfig, table: Arc<Table>) -> Result<Self> {
        let shared = Arc::new(Shared {
            config,
            table,
            pollers: Arc::new(Pollers::new()?),
            sources: Mutex::default(),
            arrivals: Arrivals::default(),
            strays: AtomicU64::new(0),
            stopping: AtomicBool::new(false),
            next_key: AtomicU64::new(1),
        });
        // Endpoint ids are to be unique in the process, where other engines may count too: begin anywhere.
        let service = Self {
            shared,
            jobs: Mutex::default(),
            threads: Mutex::default(),
            next_endpoint: AtomicU64::new(RandomState::new().hash_one(0)),
        };
        service.spawn("warpway-tcp-rx", reactor::receive_loop)?;
        service.spawn("warpway-tcp-tx", reactor::send_loop)?;
        Ok(service)
    }

    fn spawn(&self, name: &str, body: fn(&Shared)) -> Result<()> {
        let shared = Arc::clone(&self.shared);
        let thread = std::thread::Builder::new().name(name.into()).spawn(move || body(&shared));
        let thread = thread.map_err(|e| SystemError::from_io(format!("starting thread {name}"), &e))?;
        lock(&self.threads).push(thread);
        Ok(())
    }

    /// The job behind a control plane; listens from the first call on.
    pub(crate) fn job(&self, control: &dyn ControlPlane) -> Result<Arc<Job>> {
        let id = JobId::of(control);
        let mut jobs = lock(&self.jobs);
        if let Some(job) = jobs.iter().find(|job| job.id == id) {
            return Ok(Arc::clone(job));
        }
        let job = Arc::new(Job::listen(control)?);
        for (index, listener) in job.listeners.iter().enumerate() {
            let key = self.shared.next_key();
            lock(&self.shared.sources).insert(key, Source::Listener(Arc::clone(&job), index));
            self.shared.watch(listener, key)?;
        }
        jobs.push(Arc::clone(&job));
        Ok(job)
    }

    /// A new endpoint id, to which ranks of the job may connect.
    pub(crate) fn new_endpoint(&self, job: &Job) -> u64 {
        let id = self.next_endpoint.fetch_add(1, Ordering::Relaxed);
        self.shared.arrivals.expect(job.id, id);
        id
    }
}

impl Drop for Service {
    /// Orderly end: sends what is queued, says goodbye, and waits until the peers have applied it, at most
    /// for `close_timeout`.
    fn drop(&mut self) {
        let threads = std::mem::take(&mut *lock(&self.threads));
        let current = std::thread::current().id();
        let own = threads.iter().any(|thread| thread.thread().id() == current);
        let links = self.shared.links();
        for link in &links {
            link.close();
        }
        if !own {
            let deadline = Deadline::after(self.shared.config.close_timeout);
            for link in &links {
                if !link.drain(deadline) {
                    tracing::warn!(peer = link.parts.peer, "connection closed with operations not applied");
                }
            }
        }
        self.shared.stopping.store(true, Ordering::Release);
        self.shared.pollers.ring();
        if !own {
            for thread in threads {
                if thread.join().is_err() {
                    tracing::error!("a thread of the TCP engine panicked");
                }
            }
        }
        for link in &links {
            link.shut_down();
        }
        lock(&self.shared.sources).clear();
    }
}

/// A thread cannot go on: everything that depends on it fails.
pub(crate) fn collapse(shared: &Shared, error: &SystemError) {
    let problem = Error::from(error.clone());
    tracing::error!(%error, "the TCP engine stopped");
    for link in shared.links() {
        link.lost("tcp engine", &problem.to_string());
    }
}
