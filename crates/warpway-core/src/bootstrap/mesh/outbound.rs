//! Writing: messages in order on the link this rank has dialled, notices past them, and the farewell.

use std::time::{Duration, Instant};

use super::super::ScopeId;
use super::super::message::{Frame, MAX_PART, Notice};
use super::service::{Kind, Service};
use super::shared::Outgoing;

/// Encrypted bytes that may wait in a link; more are made when these have been written.
const HIGH_WATER: usize = 256 * 1024;
/// Without progress for this long, closing gives up on a peer.
const QUIET: Duration = Duration::from_secs(1);
/// Closing gives up on a peer that is slow but alive.
const LONGEST_CLOSE: Duration = Duration::from_secs(30);

/// What waits for the link to a peer, in order.
pub(super) enum Sending {
    Message {
        outgoing: Outgoing,
        /// Bytes of it that have been framed; `None` before its first frame.
        framed: Option<usize>,
    },
    Notice(Notice),
}

/// The service says goodbye.
pub(super) struct Closing {
    quiet: Instant,
    end: Instant,
}

impl Service {
    /// Queues a message.
    pub(super) fn post(&mut self, now: Instant, peer: u32, outgoing: Outgoing) {
        if self.closing.is_some() || self.shared.lock().is_gone(peer) {
            return;
        }
        self.peers.entry(peer).or_default().queue.push_back(Sending::Message { outgoing, framed: None });
        self.dial_rank(now, peer);
        self.pump(peer);
    }

    /// Tells the members of a scope that this rank has left it, and remembers it for those who link later.
    pub(super) fn leave(&mut self, scope: ScopeId, members: Vec<u32>) {
        let own = self.shared.rank;
        for member in members.iter().copied().filter(|m| *m != own) {
            self.say_in_order(member, Notice::Left { scope });
        }
        self.left.push((scope, members));
    }

    /// The same to a peer whose link has just come to stand. What is queued for it comes in its turn: a scope
    /// that was left while the link was being made must not be left there before its messages have come.
    pub(super) fn tell_left(&mut self, token: u64, peer: u32) {
        let queued: Vec<ScopeId> = self
            .peers
            .get(&peer)
            .into_iter()
            .flat_map(|p| &p.queue)
            .filter_map(|sending| match sending {
                Sending::Notice(Notice::Left { scope }) => Some(*scope),
                _ => None,
            })
            .collect();
        let scopes: Vec<ScopeId> = self
            .left
            .iter()
            .filter(|(scope, members)| members.contains(&peer) && !queued.contains(scope))
            .map(|(scope, _)| *scope)
            .collect();
        for scope in scopes {
            self.say(token, &Notice::Left { scope });
        }
    }

    /// After all that has been queued for the peer; not at all if there is no link.
    fn say_in_order(&mut self, rank: u32, notice: Notice) {
        let Some(peer) = self.peers.get_mut(&rank) else { return };
        if peer.dialled.is_some() || peer.dial.is_some() {
            peer.queue.push_back(Sending::Notice(notice));
            self.pump(rank);
        } else if let Some(token) = peer.accepted {
            self.say(token, &notice);
        }
    }

    /// Before what is queued.
    fn say(&mut self, token: u64, notice: &Notice) {
        if let Some(connection) = self.connections.get_mut(&token)
            && !connection.shut
        {
            connection.last_word |= notice.ends_link();
            match connection.link.push(&Frame::Notice(notice.clone()).encode()) {
                Ok(()) => self.flush(token),
                Err(_) => self.ended(token, None),
            }
        }
    }

    /// To every linked rank, on one link each.
    pub(super) fn flood(&mut self, notice: &Notice, except: Option<u64>) {
        let tokens: Vec<u64> = self
            .peers
            .values()
            .filter(|p| except.is_none() || (p.dialled != except && p.accepted != except))
            .filter_map(|p| p.dialled.or(p.accepted))
            .collect();
        for token in tokens {
            self.say(token, notice);
        }
    }

    /// Frames what is queued for a peer as far as its link takes it.
    pub(super) fn pump(&mut self, rank: u32) {
        let Some(peer) = self.peers.get_mut(&rank) else { return };
        let Some(token) = peer.dialled else { return };
        let Some(connection) = self.connections.get_mut(&token) else { return };
        while connection.link.backlog() < HIGH_WATER && !connection.shut {
            let Some(sending) = peer.queue.front_mut() else { break };
            let (frame, complete) = match sending {
                Sending::Notice(notice) => {
                    connection.last_word |= notice.ends_link();
                    (Frame::Notice(notice.clone()).encode(), true)
                }
                Sending::Message { outgoing: Outgoing { scope, tag, data }, framed } => {
                    let from = framed.unwrap_or(0);
                    let to = data.len().min(from + MAX_PART);
                    let part = &data[from..to];
                    let frame = match framed {
                        None => Frame::Begin { scope: *scope, tag: *tag, length: data.len() as u64, part },
                        Some(_) => Frame::Continue { part },
                    };
                    let frame = frame.encode();
                    let complete = to == data.len();
                    *framed = Some(to);
                    (frame, complete)
                }
            };
            if connection.link.push(&frame).is_err() {
                return self.ended(token, None);
            }
            if complete {
                peer.queue.pop_front();
            }
        }
        self.flush(token);
    }

    /// Writes what the kernel takes, and asks to be told when it takes more.
    pub(super) fn flush(&mut self, token: u64) {
        let Some(connection) = self.connections.get_mut(&token) else { return };
        // A socket that is still connecting has nothing to say yet.
        if matches!(connection.kind, Kind::Dialling { connected: false, .. }) {
            return;
        }
        let written = match connection.link.flush() {
            Ok(written) => written,
            Err(_) if matches!(connection.kind, Kind::Dialled(_) | Kind::Accepted(_)) => {
                // The peer has closed its end. What it said before, perhaps goodbye, can still be read, and then
                // the end: reading decides whether this is a death.
                connection.shut = true;
                let wanted_write = std::mem::replace(&mut connection.wants_write, false);
                if wanted_write
                    && let Err(errno) = self.poller.modify(connection.link.socket(), token, true, false)
                {
                    self.ended(token, Some(errno));
                }
                return;
            }
            Err(errno) => return self.ended(token, Some(errno)),
        };
        let queued = match connection.kind {
            Kind::Dialled(rank) => self.peers.get(&rank).is_some_and(|p| !p.queue.is_empty()),
            _ => false,
        };
        let wants_write = connection.link.backlog() > 0 || queued;
        if wants_write != connection.wants_write {
            connection.wants_write = wants_write;
            if let Err(errno) = self.poller.modify(connection.link.socket(), token, true, wants_write) {
                return self.ended(token, Some(errno));
            }
        }
        if let Some(closing) = &mut self.closing {
            if written > 0 {
                closing.quiet = Instant::now() + QUIET;
            }
            // The others still hear goodbye: a pending one once it has said who it is.
            if !wants_write && !connection.shut && (connection.last_word || !connection.kind.hears_farewell())
            {
                connection.shut = true;
                connection.link.shut_down();
            }
        }
    }

    /// Begins the farewell: what has been queued is still sent, then goodbye, then the end of each link.
    pub(super) fn begin_close(&mut self, now: Instant) {
        if self.closing.is_some() {
            return;
        }
        self.listeners.clear();
        // Whoever has been answered takes the link for made; the others find nobody when they dial again.
        let useless: Vec<u64> = self
            .connections
            .iter()
            .filter(|(_, c)| match c.kind {
                Kind::Pending => !c.link.is_answered(),
                Kind::Descriptors(_) => true,
                _ => false,
            })
            .map(|(token, _)| *token)
            .collect();
        for token in useless {
            self.connections.remove(&token);
            self.lobby.leave(token);
        }
        let ranks: Vec<u32> = self.peers.keys().copied().collect();
        for rank in ranks {
            let Some(peer) = self.peers.get(&rank) else { continue };
            if peer.dialled.is_none() && peer.queue.is_empty() {
                self.stop_dialling(rank);
            }
            self.say_in_order(rank, Notice::Goodbye);
            self.say_link_ends(rank);
        }
        self.closing = Some(Closing { quiet: now + QUIET, end: now + LONGEST_CLOSE });
        let tokens: Vec<u64> = self.connections.keys().copied().collect();
        for token in tokens {
            self.flush(token);
        }
    }

    /// Goodbye goes over the link that this rank has dialled or is dialling; the other one just ends.
    fn say_link_ends(&mut self, rank: u32) {
        let Some(peer) = self.peers.get(&rank) else { return };
        if let Some(token) = peer.accepted.filter(|_| peer.dialled.is_some() || peer.dial.is_some()) {
            self.say(token, &Notice::LinkEnds);
        }
    }

    /// A peer that dialled before this rank closed has said who it is only now.
    pub(super) fn farewell_to_late(&mut self, rank: u32) {
        let Some(peer) = self.peers.get(&rank) else { return };
        if peer.dialled.is_some() || peer.dial.is_some() {
            self.say_link_ends(rank);
        } else {
            self.say_in_order(rank, Notice::Goodbye);
        }
    }

    /// Before the service ends: a peer that has been answered and has not said who it is sees its link end.
    pub(super) fn dismiss_pending(&mut self) {
        let pending: Vec<u64> = self
            .connections
            .iter()
            .filter(|(_, c)| c.kind == Kind::Pending && c.link.is_answered())
            .map(|(token, _)| *token)
            .collect();
        for token in pending {
            self.say(token, &Notice::LinkEnds);
        }
    }

    /// True once nobody is left to say goodbye to.
    pub(super) fn closed(&self, now: Instant) -> bool {
        // A dial between two attempts has no connection, but something to send.
        let done = self.connections.is_empty() && self.dialling.is_empty();
        self.closing.as_ref().is_some_and(|closing| done || now >= closing.quiet.min(closing.end))
    }

    pub(super) fn closing_due(&self) -> Option<Instant> {
        self.closing.as_ref().map(|closing| closing.quiet.min(closing.end))
    }
}
