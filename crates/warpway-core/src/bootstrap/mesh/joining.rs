//! Drives the [`JoinMachine`] until the job stands, and turns its verdict into an error.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use super::super::join_machine::{Action, JoinError, JoinMachine};
use super::super::message::{Blame, FromRoot, decode_gather, encode_gather};
use super::super::{BootstrapError, ScopeId};
use super::dial::Dial;
use super::outbound::Sending;
use super::service::Service;
use super::shared::Outgoing;
use crate::error::Error;
use crate::health::{Cause, Failure};

/// Carries the gather while the job is being set up. No communicator may use it.
pub(super) const SETUP_SCOPE: ScopeId = ScopeId(u64::MAX);

/// What is needed only until the job stands.
pub(super) struct Joining {
    pub(super) machine: JoinMachine,
    pub(super) root: Dial,
    /// The connection to the root.
    pub(super) connection: Option<u64>,
    pub(super) started: Instant,
    /// Who binds the root, if the plan says so.
    pub(super) root_rank: Option<u32>,
    /// Ranks whose links have broken, and when that is their death. Until then the root may say that they
    /// gave up because of another rank: it hears of every death, but on another socket.
    pub(super) suspects: Vec<(u32, Instant)>,
}

/// How long the root's word is awaited after a link has broken. Well below the time limits of set-up.
const VERDICT_WAIT: Duration = Duration::from_millis(300);

impl Service {
    /// The root has authenticated itself; it sees this rank at `seen_as`, which is a good address for others.
    pub(super) fn root_reached(&mut self, token: u64, hosted_by: Option<u32>, seen_as: Option<IpAddr>) {
        if let Some((ip, port)) = seen_as.zip(self.port) {
            let address = (ip, port).into();
            self.own.addresses.retain(|a| *a != address);
            self.own.addresses.insert(0, address);
        }
        let Some(joining) = &mut self.joining else { return };
        joining.connection = Some(token);
        let addresses = self.own.addresses.clone();
        joining.machine.amend(|info| info.addresses = addresses);
        joining.machine.root_connected(Instant::now(), hosted_by);
    }

    pub(super) fn root_said(&mut self, message: FromRoot) {
        if let Some(joining) = &mut self.joining {
            joining.machine.root_said(message);
        }
    }

    pub(super) fn root_lost(&mut self) {
        if let Some(joining) = &mut self.joining {
            joining.connection = None;
            joining.machine.root_lost();
        }
    }

    pub(super) fn link_up(&mut self, peer: u32) {
        if let Some(joining) = &mut self.joining {
            joining.machine.link_up(peer);
        }
    }

    pub(super) fn gathered(&mut self, peer: u32, step: i32, data: &[u8]) {
        let Some(joining) = &mut self.joining else { return };
        match (u32::try_from(step), decode_gather(data)) {
            (Ok(step), Ok(infos)) => joining.machine.gathered(peer, step, infos),
            _ => self.give_up_joining(
                Some(peer),
                Blame::Failed {
                    code: crate::ErrorCode::RemoteError,
                    message: format!("rank {peer} sent a gather that cannot be read"),
                },
            ),
        }
    }

    pub(super) fn give_up_joining(&mut self, culprit: Option<u32>, blame: Blame) {
        if let Some(joining) = &mut self.joining {
            joining.machine.give_up(culprit, blame);
        }
    }

    pub(super) fn join_due(&self) -> Option<Instant> {
        let joining = self.joining.as_ref()?;
        joining.suspects.iter().map(|(_, at)| *at).chain(joining.machine.next_tick()).min()
    }

    /// The link of `peer` has ended without goodbye. True if that is no news of a death yet.
    pub(super) fn suspect(&mut self, peer: u32, now: Instant) -> bool {
        let Some(joining) = &mut self.joining else { return false };
        if joining.suspects.iter().all(|(suspect, _)| *suspect != peer) {
            joining.suspects.push((peer, now + VERDICT_WAIT));
        }
        true
    }

    /// Does what the machine asks for.
    pub(super) fn join(&mut self, now: Instant) {
        if let Some(joining) = &mut self.joining {
            joining.machine.tick(now);
            let dead = joining.suspects.iter().find(|(_, at)| now >= *at).map(|(peer, _)| *peer);
            if let Some(peer) = dead {
                self.died(peer, None);
            }
        }
        while let Some(action) = self.joining.as_mut().and_then(|j| j.machine.poll_action()) {
            match action {
                Action::ToRoot(message) => {
                    let token = self.joining.as_ref().and_then(|j| j.connection);
                    if let Some(token) = token
                        && let Some(connection) = self.connections.get_mut(&token)
                    {
                        match connection.link.push(&message.encode()) {
                            Ok(()) => self.flush(token),
                            Err(_) => self.ended(token, None),
                        }
                    }
                }
                Action::Dial(info) => self.dial(now, &info),
                Action::Gather { peer, step, infos } => {
                    let data = encode_gather(&infos);
                    let outgoing = Outgoing { scope: SETUP_SCOPE, tag: step as i32, data };
                    let queue = &mut self.peers.entry(peer).or_default().queue;
                    queue.push_back(Sending::Message { outgoing, framed: None });
                    self.pump(peer);
                }
                Action::Joined(table) => {
                    // Set once: the machine says so once.
                    let _ = self.shared.peers.set(table.iter().map(|info| (**info).clone()).collect());
                    let Joining { connection, suspects, .. } = match self.joining.take() {
                        Some(joining) => joining,
                        None => return,
                    };
                    if let Some(token) = connection {
                        self.forget(token);
                    }
                    self.shared.finish_join(Ok(()));
                    suspects.into_iter().for_each(|(peer, _)| self.died(peer, None));
                }
                Action::Failed(error) => {
                    let error = self.explain(error, now);
                    self.joining = None;
                    self.dialling.clear();
                    self.peers.values_mut().for_each(|p| p.queue.clear());
                    self.shared.finish_join(Err(error));
                    self.begin_close(now);
                }
            }
        }
    }

    fn explain(&self, error: JoinError, now: Instant) -> Error {
        let rank = self.shared.rank;
        let failed = |culprit, phase: String, cause| Error::from(Failure { rank, culprit, phase, cause });
        match error {
            JoinError::Refused { culprit, why } => BootstrapError::Refused { rank, culprit, why }.into(),
            JoinError::Missing { missing, elapsed } => {
                BootstrapError::Missing { rank, missing, elapsed }.into()
            }
            JoinError::Failed(report) => {
                let own_phase = self.joining.as_ref().map_or(report.phase.as_str(), |j| j.machine.phase());
                let phase =
                    if report.blame == Blame::Died { own_phase.to_owned() } else { report.phase.clone() };
                failed(report.culprit, phase, report.blame.into_cause(report.culprit))
            }
            JoinError::RootLost { hosted_by: Some(host), phase } => {
                failed(Some(host), phase.into(), Cause::PeerDied)
            }
            JoinError::RootLost { hosted_by: None, phase } => {
                let why = format!(
                    "its connection ended during {phase}: the process that hosts it has ended or dropped it"
                );
                self.unreachable(None, "the root".into(), why, now)
            }
            JoinError::TimedOut { .. } => self.explain_timeout(now),
            JoinError::Protocol { from, what } => BootstrapError::Protocol { rank, from, what }.into(),
        }
    }

    /// The deadline passed and the root has not said why.
    fn explain_timeout(&self, now: Instant) -> Error {
        let Some(joining) = &self.joining else {
            return self.unreachable(None, "the root".into(), "the deadline passed".into(), now);
        };
        if joining.connection.is_none() {
            if let Some((address, why)) = joining.root.stranger() {
                return BootstrapError::Authentication { rank: self.shared.rank, address, why }.into();
            }
            let host = joining.root_rank.map(|rank| format!(" (hosted by rank {rank})")).unwrap_or_default();
            let what = format!("the root at {}{host}", joining.root.addresses());
            return self.unreachable(joining.root_rank, what, joining.root.explain(), now);
        }
        let dialled = self.peers.iter().find_map(|(rank, peer)| peer.dial.as_ref().map(|dial| (*rank, dial)));
        if let Some((peer, dial)) = dialled {
            let what = format!("rank {peer} at {}", dial.addresses());
            return self.unreachable(Some(peer), what, dial.explain(), now);
        }
        let why = "it has not said that all ranks are ready".into();
        self.unreachable(None, "the root".into(), why, now)
    }

    fn unreachable(&self, peer: Option<u32>, what: String, why: String, now: Instant) -> Error {
        let started = self.joining.as_ref().map(|j| j.started);
        let elapsed = started.map_or(Duration::ZERO, |at| now.duration_since(at));
        BootstrapError::Unreachable { rank: self.shared.rank, peer, what, why, elapsed }.into()
    }
}
