//! Signals as something to poll for.

use std::{
    fs, io,
    io::Read as _,
    os::{
        fd::{AsFd, BorrowedFd},
        unix::net::UnixStream,
    },
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use rustix::process::Signal;

const WATCHED: [Signal; 9] = [
    Signal::CHILD,
    Signal::INT,
    Signal::TERM,
    Signal::HUP,
    Signal::QUIT,
    Signal::USR1,
    Signal::USR2,
    Signal::TSTP,
    Signal::CONT,
];

/// Signals that arrived; the descriptor is readable while there are some.
pub(super) struct Signals {
    wake: UnixStream,
    arrived: Vec<(Signal, Arc<AtomicBool>)>,
}

impl Signals {
    /// Starts to watch. What was ignored when the launcher started stays ignored (`nohup`, background jobs of
    /// a script), also by the ranks, which inherit that.
    pub(super) fn watch() -> io::Result<Self> {
        let ignored = ignored_signals();
        let (wake, write) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        let mut arrived = Vec::with_capacity(WATCHED.len());
        for signal in WATCHED {
            let number = signal.as_raw();
            if signal != Signal::CHILD && ignored & 1 << (number - 1) != 0 {
                continue;
            }
            let flag = Arc::new(AtomicBool::new(false));
            // Handlers of one signal run in order of registration: the flag is up when the wake-up comes.
            signal_hook::flag::register(number, Arc::clone(&flag))?;
            signal_hook::low_level::pipe::register(number, write.try_clone()?)?;
            arrived.push((signal, flag));
        }
        Ok(Self { wake, arrived })
    }

    /// What has arrived since the last call, each signal once.
    pub(super) fn take(&mut self) -> io::Result<Vec<Signal>> {
        // Wake-ups first: a signal that arrives after this leaves a new one.
        let mut buffer = [0; 64];
        loop {
            match self.wake.read(&mut buffer) {
                Ok(length) if length == buffer.len() => {}
                Ok(_) => break,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        // AcqRel would order nothing more: the handler runs on some thread between two of our instructions,
        // and the read of the socket has already ordered its flag before ours.
        let taken = self.arrived.iter().filter(|(_, flag)| flag.swap(false, Ordering::SeqCst));
        Ok(taken.map(|(signal, _)| *signal).collect())
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}

/// Bit n - 1 is set if signal n was ignored at the start. (Rust's runtime ignores SIGPIPE, which is not watched.)
fn ignored_signals() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
