//! Dialling: the root at first, neighbours after the check-in, others when there is something to send.

use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::super::link::Link;
use super::super::lobby::HANDSHAKE_LIMIT;
use super::super::message::{Frame, Greeting, PROTOCOL_VERSION, Role};
use super::super::socket::{self, Address};
use super::super::{Admission, BootstrapError, PeerInfo};
use super::dial::{Dial, Target, Trouble};
use super::service::{Kind, Service};

/// Time for one of several candidates of the root, behind each of which somebody else may sit.
const PROBE_LIMIT: Duration = Duration::from_secs(2);
/// A rank whose listeners have been closed for this long, and whose death nobody reported, has left.
const GONE_AFTER: Duration = Duration::from_secs(1);
/// Time to reach a rank of a standing job.
const REACH_LIMIT: Duration = Duration::from_secs(10);

impl Service {
    /// Makes sure that the death of `rank` will be noticed.
    pub(super) fn link_with(&mut self, now: Instant, rank: u32) {
        let peer = self.peers.entry(rank).or_default();
        if peer.accepted.is_none() {
            self.dial_rank(now, rank);
        }
    }

    /// Dials a rank of the standing job unless that has been done.
    pub(super) fn dial_rank(&mut self, now: Instant, rank: u32) {
        let peer = self.peers.entry(rank).or_default();
        if peer.dialled.is_some() || peer.dial.is_some() || self.closing.is_some() {
            return;
        }
        let info = self.shared.peers.get().and_then(|peers| peers.get(rank as usize)).cloned();
        if let Some(info) = info {
            self.dial(now, &info);
        }
    }

    /// Dials a rank.
    pub(super) fn dial(&mut self, now: Instant, info: &PeerInfo) {
        let candidates = addresses_of(info, &self.own, self.admission);
        let dial = Dial::new(now, candidates, seed(self.shared.rank, info.rank));
        self.peers.entry(info.rank).or_default().dial = Some(dial);
        self.dialling.insert(Target::Rank(info.rank));
        self.reach_one(now, Target::Rank(info.rank));
    }

    /// Attempts that are due, and those whose time is over.
    pub(super) fn reach(&mut self, now: Instant) {
        let targets: Vec<Target> = self.dialling.iter().copied().collect();
        for target in targets {
            let Some(dial) = self.dial_of(target) else {
                self.dialling.remove(&target);
                continue;
            };
            if let Some(token) = dial.connection.filter(|_| now >= dial.due) {
                let connected = self
                    .forget(token)
                    .is_some_and(|c| matches!(c.kind, Kind::Dialling { connected: true, .. }));
                self.attempt_failed(
                    target,
                    if connected {
                        Trouble::Stranger("it did not answer the handshake in time")
                    } else {
                        Trouble::Other("no answer in time".into())
                    },
                );
            }
            self.reach_one(now, target);
        }
    }

    pub(super) fn reach_due(&self) -> Option<Instant> {
        self.dialling.iter().filter_map(|target| self.dial_ref(*target).map(|d| d.due)).min()
    }

    fn reach_one(&mut self, now: Instant, target: Target) {
        if let Target::Rank(rank) = target
            && self.joining.is_none()
            && self.out_of_reach(now, rank)
        {
            return;
        }
        // Ends: every turn begins an attempt or moves on, and a round ends in a pause.
        while let Some(address) = self.dial_of(target).and_then(|d| d.candidate(now)) {
            match self.begin_attempt(target, &address) {
                Ok(token) => {
                    let probing =
                        target == Target::Root && self.dial_of(target).is_some_and(|d| d.has_choice());
                    let limit = if probing { PROBE_LIMIT } else { HANDSHAKE_LIMIT };
                    if let Some(dial) = self.dial_of(target) {
                        dial.begun(token, now + limit);
                    }
                }
                Err(trouble) => {
                    if let Some(dial) = self.dial_of(target) {
                        dial.failed(now, trouble);
                    }
                }
            }
        }
    }

    fn begin_attempt(&mut self, target: Target, address: &Address) -> Result<u64, Trouble> {
        let system = |errno: Errno| match errno {
            Errno::CONNREFUSED => Trouble::Refused,
            errno => Trouble::Other(errno.to_string()),
        };
        let socket = socket::connect(address).map_err(system)?;
        if self.admission == Admission::SameUser && !socket::is_same_user(&socket) {
            return Err(Trouble::Stranger("it belongs to another user"));
        }
        let link = Link::dial(socket, &self.key).map_err(|e| Trouble::Other(e.text().into()))?;
        self.watch(link, Kind::Dialling { target, connected: false }, true).map_err(system)
    }

    /// An attempt has failed; the next one follows when it is due.
    pub(super) fn attempt_failed(&mut self, target: Target, trouble: Trouble) {
        let now = Instant::now();
        if let Some(dial) = self.dial_of(target) {
            dial.failed(now, trouble);
        }
    }

    /// The other side has proved to know the secret and says who it is.
    pub(super) fn greeted(&mut self, token: u64, plain: &[u8]) {
        let Some(connection) = self.connections.get_mut(&token) else { return };
        let Kind::Dialling { target, .. } = connection.kind else {
            return self.violation(token, "a greeting out of turn");
        };
        match (target, Greeting::decode(plain)) {
            (Target::Root, Ok(Greeting::Root { hosted_by })) => {
                connection.kind = Kind::Root;
                let seen_as = socket::local_ip(connection.link.socket());
                self.dialling.remove(&target);
                self.root_reached(token, hosted_by, seen_as);
            }
            (Target::Rank(rank), Ok(Greeting::Mesh { rank: found })) if rank == found => {
                let hello =
                    Frame::Hello { version: PROTOCOL_VERSION, role: Role::Messages, rank: self.shared.rank };
                if connection.link.push(&hello.encode()).is_err() {
                    return self.ended(token, None);
                }
                connection.kind = Kind::Dialled(rank);
                self.dialling.remove(&target);
                let peer = self.peers.entry(rank).or_default();
                peer.dial = None;
                peer.dialled = Some(token);
                self.shared.lock().linked.insert(rank);
                self.tell_left(token, rank);
                self.link_up(rank);
                self.pump(rank);
            }
            _ => {
                self.forget(token);
                self.attempt_failed(target, Trouble::Stranger("another rank of the job answers there"));
            }
        }
    }

    /// Ends the attempts to reach a rank and forgets what was queued for it.
    pub(super) fn abandon(&mut self, rank: u32) {
        self.stop_dialling(rank);
        if let Some(peer) = self.peers.get_mut(&rank) {
            peer.queue.clear();
        }
    }

    /// Ends the attempts to reach a rank.
    pub(super) fn stop_dialling(&mut self, rank: u32) {
        self.dialling.remove(&Target::Rank(rank));
        let dial = self.peers.get_mut(&rank).and_then(|p| p.dial.take());
        if let Some(token) = dial.and_then(|d| d.connection) {
            self.forget(token);
        }
    }

    /// True if a rank of the standing job is given up.
    fn out_of_reach(&mut self, now: Instant, rank: u32) -> bool {
        let Some(dial) = self.peers.get(&rank).and_then(|p| p.dial.as_ref()) else { return true };
        let elapsed = now.duration_since(dial.started);
        if self.shared.lock().is_gone(rank) {
            self.abandon(rank);
            return true;
        }
        if dial.all_refused() && elapsed >= GONE_AFTER {
            self.abandon(rank);
            self.shared.departed(rank);
            return true;
        }
        if elapsed >= REACH_LIMIT {
            let error = BootstrapError::Unreachable {
                rank: self.shared.rank,
                peer: Some(rank),
                what: format!("rank {rank} at {}", dial.addresses()),
                why: dial.explain(),
                elapsed,
            };
            self.abandon(rank);
            self.shared.peer_broken(rank, &error.into());
            return true;
        }
        false
    }

    fn dial_of(&mut self, target: Target) -> Option<&mut Dial> {
        match target {
            Target::Root => self.joining.as_mut().map(|j| &mut j.root),
            Target::Rank(rank) => self.peers.get_mut(&rank).and_then(|p| p.dial.as_mut()),
        }
    }

    fn dial_ref(&self, target: Target) -> Option<&Dial> {
        match target {
            Target::Root => self.joining.as_ref().map(|j| &j.root),
            Target::Rank(rank) => self.peers.get(&rank).and_then(|p| p.dial.as_ref()),
        }
    }
}

/// Where to dial a rank: its Unix socket if that is on this host, then its TCP addresses.
pub(super) fn addresses_of(info: &PeerInfo, own: &PeerInfo, admission: Admission) -> Vec<Address> {
    let unix =
        (info.host == own.host && !info.unix_name.is_empty()).then(|| Address::Unix(info.unix_name.clone()));
    let tcp = info.addresses.iter().copied().map(Address::Tcp).filter(|_| admission != Admission::SameUser);
    unix.into_iter().chain(tcp).collect()
}

/// Different for every pair, so that ranks do not retry in step.
pub(super) fn seed(rank: u32, peer: u32) -> u64 {
    (u64::from(rank) << 32 | u64::from(peer)).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}
