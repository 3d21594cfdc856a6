//! Connections that have not authenticated yet: few, short-lived, and counted when they are turned away.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::SendFlags;

use crate::handshake::{CONFIRMATION_BYTES, GREETING_BYTES, Identity, Responder};
use crate::job::Job;
use crate::service::Shared;
use crate::socket;

/// Sockets that may be waiting at once; one more displaces the oldest.
const MAX_PENDING: usize = 64;

/// How long listening pauses when a connection cannot be accepted (no descriptor is free, say).
const PAUSE: Duration = Duration::from_millis(100);

/// Sockets in their handshake. Lives on the receiving thread.
#[derive(Default)]
pub(crate) struct Strays {
    /// Oldest first, and so in the order of their deadlines.
    pending: VecDeque<Pending>,
    /// Listeners that are not watched until then.
    paused: Vec<(Instant, Arc<Job>, usize, u64)>,
}

struct Pending {
    key: u64,
    socket: OwnedFd,
    job: Arc<Job>,
    deadline: Instant,
    buffer: [u8; GREETING_BYTES],
    filled: usize,
    /// Set once the greeting was good.
    responder: Option<(Responder, Identity)>,
}

/// How far a handshake has come.
enum Step {
    More,
    Done(Identity),
    Refused(String),
}

impl Strays {
    /// Takes the connections that wait at a listener.
    pub(crate) fn accept(&mut self, shared: &Shared, job: &Arc<Job>, index: usize, listener_key: u64) {
        let Some(listener) = job.listeners.get(index) else { return };
        loop {
            let socket = match socket::accept(listener) {
                Ok(socket) => socket,
                Err(Errno::AGAIN) => return,
                // The dialer has gone again, or a signal came.
                Err(Errno::CONNABORTED | Errno::INTR) => continue,
                Err(errno) => {
                    tracing::warn!(%errno, "cannot accept connections; trying again in a moment");
                    if shared.pollers.pause_readable(listener, listener_key, true).is_ok() {
                        self.paused.push((Instant::now() + PAUSE, Arc::clone(job), index, listener_key));
                    }
                    return;
                }
            };
            if self.pending.len() >= MAX_PENDING
                && let Some(oldest) = self.pending.pop_front()
            {
                turn_away(shared, &oldest, "too many connections are waiting");
            }
            let key = shared.next_key();
            let tuned = socket::tune(&socket, shared.config.host_timeout);
            if tuned.and_then(|()| shared.pollers.watch_readable(&socket, key)).is_err() {
                shared.strays.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            self.pending.push_back(Pending {
                key,
                socket,
                job: Arc::clone(job),
                deadline: Instant::now() + shared.config.handshake_timeout,
                buffer: [0; GREETING_BYTES],
                filled: 0,
                responder: None,
            });
        }
    }

    /// A socket in its handshake has something to read.
    pub(crate) fn advance(&mut self, shared: &Shared, key: u64) {
        let Some(index) = self.pending.iter().position(|pending| pending.key == key) else { return };
        let Some(mut pending) = self.pending.remove(index) else { return };
        match pending.read() {
            Step::More => self.pending.insert(index, pending),
            Step::Refused(why) => turn_away(shared, &pending, &why),
            Step::Done(identity) => {
                shared.pollers.ignore_readable(&pending.socket);
                let Pending { job, socket, .. } = pending;
                if !shared.arrivals.put(job.id, identity, socket) {
                    shared.strays.fetch_add(1, Ordering::Relaxed);
                    tracing::debug!(?identity, "a rank of the job dialled an endpoint that is not here");
                }
            }
        }
    }

    /// Turns away who has been silent too long, and listens again where listening was paused.
    pub(crate) fn expire(&mut self, shared: &Shared) {
        if self.pending.is_empty() && self.paused.is_empty() {
            return;
        }
        let now = Instant::now();
        while self.pending.front().is_some_and(|pending| pending.deadline <= now) {
            if let Some(pending) = self.pending.pop_front() {
                turn_away(shared, &pending, "no greeting in time");
            }
        }
        self.paused.retain(|(until, job, index, key)| {
            let listener = job.listeners.get(*index).filter(|_| *until <= now);
            listener.is_none_or(|l| shared.pollers.pause_readable(l, *key, false).is_err())
        });
    }

    /// Time until [`expire`](Self::expire) has something to do.
    pub(crate) fn next_deadline(&self) -> Option<Duration> {
        let paused = self.paused.iter().map(|(until, ..)| *until);
        let next = self.pending.front().map(|pending| pending.deadline).into_iter().chain(paused).min()?;
        // A millisecond more, so that the deadline has passed when the thread wakes.
        Some(next.saturating_duration_since(Instant::now()) + Duration::from_millis(1))
    }
}

fn turn_away(shared: &Shared, pending: &Pending, why: &str) {
    shared.pollers.ignore_readable(&pending.socket);
    shared.strays.fetch_add(1, Ordering::Relaxed);
    let from = rustix::net::getpeername(&pending.socket).ok().flatten();
    tracing::debug!(?from, why, "stray connection turned away");
}

impl Pending {
    /// Reads what is there of the message that is due, and not a byte more: operations may follow it.
    fn read(&mut self) -> Step {
        let due = if self.responder.is_some() { CONFIRMATION_BYTES } else { GREETING_BYTES };
        let free = self.buffer.get_mut(self.filled..due).unwrap_or_default();
        match rustix::io::read(&self.socket, free) {
            Ok(0) => return Step::Refused("closed before it authenticated".into()),
            Ok(read) => self.filled += read,
            Err(Errno::AGAIN | Errno::INTR) => return Step::More,
            Err(errno) => return Step::Refused(errno.to_string()),
        }
        if self.filled < due {
            return Step::More;
        }
        self.filled = 0;
        match &mut self.responder {
            None => match Responder::new(&self.job.key, &self.buffer) {
                Ok((responder, identity, answer)) => {
                    self.responder = Some((responder, identity));
                    // A fresh socket takes so few bytes at once, or is of no use.
                    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
                    match rustix::net::send(&self.socket, &answer, flags) {
                        Ok(sent) if sent == answer.len() => Step::More,
                        Ok(_) => Step::Refused("it does not take the answer".into()),
                        Err(errno) => Step::Refused(errno.to_string()),
                    }
                }
                Err(error) => Step::Refused(error.to_string()),
            },
            Some((responder, identity)) => match self.buffer.first_chunk::<CONFIRMATION_BYTES>() {
                Some(confirmation) => match responder.finish(confirmation) {
                    Ok(()) => Step::Done(*identity),
                    Err(error) => Step::Refused(error.to_string()),
                },
                None => Step::More,
            },
        }
    }
}
