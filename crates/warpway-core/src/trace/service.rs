//! The service that dumps a communicator's flight recorder: on its first failure, on a signal, on
//! request, and to whoever asks the status socket.
//!
//! One thread per communicator, asleep in `poll` until one of these happens. Dropping the service
//! writes a dump that is still due and joins the thread. A program that calls `exit` right after a
//! failure, without dropping its communicator, may end before the dump is written; so does one that
//! is killed.

use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use signal_hook::SigId;

use super::status::StatusServer;
use super::{DumpError, DumpReason, DumpSource, FlightDump, status_name};
use crate::config::{Config, DumpSignal};
use crate::error::SystemError;

/// Where dumps go and what causes them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DumpConfig {
    /// Folder of the files; `None` writes none.
    pub directory: Option<PathBuf>,
    /// The signal; only with a folder. Handlers of the program go on being called.
    pub signal: DumpSignal,
    /// Whether there is a status socket.
    pub status_socket: bool,
}

impl From<&Config> for DumpConfig {
    fn from(config: &Config) -> Self {
        Self {
            directory: config.trace_dir.clone(),
            signal: config.trace_signal,
            status_socket: config.trace_socket,
        }
    }
}

/// See the module's page. Owned by the communicator.
#[derive(Debug)]
pub struct DumpService {
    shared: Arc<Shared>,
    status_name: Option<String>,
    signal: Option<SigId>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    source: DumpSource,
    directory: Option<PathBuf>,
    /// An eventfd that ends the thread's sleep.
    wake: OwnedFd,
    stop: AtomicBool,
}

impl DumpService {
    /// Starts what `config` asks for. A status socket or signal that cannot be had is a warning in the
    /// log, not an error: the communicator works without it.
    ///
    /// # Errors
    /// `trace.service` if there are no descriptors or threads left.
    pub fn start(source: DumpSource, config: DumpConfig) -> Result<Self, DumpError> {
        let DumpConfig { directory, signal, status_socket } = config;
        let identity = source.identity();
        let service = |what, source| DumpError::Service { rank: identity.rank, what, source };
        let wake = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|e| service("make its descriptor", SystemError::new("eventfd", e)))?;
        let shared = Arc::new(Shared { source, directory, wake, stop: AtomicBool::new(false) });
        let mut started = Self { shared, status_name: None, signal: None, thread: None };

        let status = if status_socket { started.bind_status() } else { None };
        let signals = match signal {
            DumpSignal::Number(number) if started.shared.directory.is_some() => started.watch_signal(number),
            _ => None,
        };
        if started.shared.directory.is_none() && status.is_none() {
            return Ok(started);
        }
        let worker = Worker { shared: Arc::clone(&started.shared), signals, status, failure_dumped: false };
        let thread = std::thread::Builder::new()
            .name("warpway-flight".into())
            .spawn(move || worker.run())
            .map_err(|e| service("start its thread", SystemError::from_io("spawn", &e)))?;
        started.thread = Some(thread);
        if started.shared.directory.is_some() {
            let shared = Arc::downgrade(&started.shared);
            // Listeners must not block, so the thread writes the file.
            started.shared.source.health().subscribe(Box::new(move |_| {
                if let Some(shared) = shared.upgrade() {
                    shared.wake();
                }
            }));
        }
        Ok(started)
    }

    /// Writes a dump now and returns the file's path.
    ///
    /// # Errors
    /// `trace.directory` without a folder, `trace.write` if the file cannot be written.
    pub fn dump(&self) -> Result<PathBuf, DumpError> {
        let rank = self.shared.source.identity().rank;
        let directory = self.shared.directory.as_deref().ok_or(DumpError::NoDirectory { rank })?;
        self.capture().write(directory)
    }

    /// The communicator's dump as of now, in memory.
    pub fn capture(&self) -> FlightDump {
        self.shared.source.capture(DumpReason::Request)
    }

    /// Abstract name of the status socket, if there is one.
    pub fn status_name(&self) -> Option<&str> {
        self.status_name.as_deref()
    }

    fn bind_status(&mut self) -> Option<StatusServer> {
        let name = status_name(std::process::id(), &self.shared.source.identity());
        match StatusServer::bind(&name) {
            Ok(server) => {
                self.status_name = Some(name);
                Some(server)
            }
            Err(e) => {
                tracing::warn!("no status socket @{name}: {e}");
                None
            }
        }
    }

    /// Has `number` written to a socket that the thread polls.
    fn watch_signal(&mut self, number: i32) -> Option<UnixStream> {
        // Registering one of these would panic.
        if signal_hook::consts::FORBIDDEN.contains(&number) {
            tracing::warn!("no dumps on signal {number}: it cannot be handled");
            return None;
        }
        let registered = UnixStream::pair().and_then(|(receiver, sender)| {
            receiver.set_nonblocking(true)?;
            let id = signal_hook::low_level::pipe::register(number, sender)?;
            Ok((receiver, id))
        });
        match registered {
            Ok((receiver, id)) => {
                self.signal = Some(id);
                Some(receiver)
            }
            Err(e) => {
                tracing::warn!("no dumps on signal {number}: {e}");
                None
            }
        }
    }
}

impl Drop for DumpService {
    fn drop(&mut self) {
        if let Some(id) = self.signal.take() {
            signal_hook::low_level::unregister(id);
        }
        self.shared.stop.store(true, Ordering::Release);
        self.shared.wake();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the flight recorder's thread panicked; please report it");
        }
    }
}

impl Shared {
    fn wake(&self) {
        // Fails only if the counter is full, and then the thread is awake.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    fn write(&self, directory: &Path, reason: DumpReason) {
        match self.source.capture(reason).write(directory) {
            Ok(path) => tracing::warn!("flight recorder dumped to {}", path.display()),
            Err(e) => tracing::warn!("{e}"),
        }
    }
}

/// What the thread owns.
struct Worker {
    shared: Arc<Shared>,
    signals: Option<UnixStream>,
    status: Option<StatusServer>,
    failure_dumped: bool,
}

impl Worker {
    fn run(mut self) {
        loop {
            if let Err(e) = self.sleep() {
                tracing::warn!("the flight recorder's service ends: {}", SystemError::new("poll", e));
                return;
            }
            // Before the flags are looked at, so that a later wake-up is not lost.
            let _ = rustix::io::read(&self.shared.wake, &mut [0; 8]);
            let stop = self.shared.stop.load(Ordering::Acquire);
            self.write_due();
            if stop {
                return;
            }
            let source = &self.shared.source;
            if let Some(status) = &mut self.status {
                status.advance(|| source.capture(DumpReason::Status).to_json());
            }
        }
    }

    /// Until something is ready or a client's time is over.
    fn sleep(&self) -> Result<(), Errno> {
        let mut polled = vec![PollFd::new(&self.shared.wake, PollFlags::IN)];
        polled.extend(self.signals.iter().map(|signals| PollFd::new(signals, PollFlags::IN)));
        let status = self.status.iter().flat_map(StatusServer::interests);
        polled.extend(status.map(|(fd, flags)| PollFd::from_borrowed_fd(fd, flags)));
        let limit = self.status.as_ref().and_then(StatusServer::next_deadline).map(|at| {
            // A millisecond more, so that the deadline has passed for sure when the sleep ends.
            let left = at.saturating_duration_since(Instant::now()).as_millis() as i64 + 1;
            Timespec { tv_sec: left / 1000, tv_nsec: left % 1000 * 1_000_000 }
        });
        match rustix::event::poll(&mut polled, limit.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(e) => Err(e),
        }
    }

    fn write_due(&mut self) {
        let signalled = self.signals.as_mut().is_some_and(|signals| {
            // Signals that came close together are one; the rest of a burst is the next wake-up's.
            signals.read(&mut [0; 256]).is_ok_and(|n| n > 0)
        });
        // Not a flag that the listener sets: a caller that has seen the failure may end the service before
        // the listener is called.
        let failed = self.shared.source.health().is_failed() && !self.failure_dumped;
        self.failure_dumped |= failed;
        if let Some(directory) = &self.shared.directory {
            if failed {
                self.shared.write(directory, DumpReason::Failure);
            }
            if signalled {
                self.shared.write(directory, DumpReason::Signal);
            }
        }
    }
}
