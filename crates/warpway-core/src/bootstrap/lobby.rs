//! Connections that have not authenticated themselves yet: how many there may be and for how long.
//! Sans-IO.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Time for a handshake.
pub(super) const HANDSHAKE_LIMIT: Duration = Duration::from_secs(5);
/// How many may be in the lobby.
const CAPACITY: usize = 64;
/// With a full lobby, one that has been there for this long must make room; before that, new ones wait in
/// the kernel's backlog, so that the ranks of a large job that come all at once do not evict each other.
const PATIENCE: Duration = Duration::from_millis(500);

/// Whether another connection may come in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Room {
    Free,
    /// After this one has been dropped.
    After(u64),
    /// Not before this instant, or before somebody leaves.
    Later(Instant),
}

/// See the module's page.
#[derive(Debug, Default)]
pub(super) struct Lobby {
    waiting: VecDeque<(u64, Instant)>,
}

impl Lobby {
    /// A connection has been accepted.
    pub(super) fn enter(&mut self, now: Instant, token: u64) {
        self.waiting.push_back((token, now));
    }

    /// It has authenticated itself or has ended. False if it was not here.
    pub(super) fn leave(&mut self, token: u64) -> bool {
        let before = self.waiting.len();
        self.waiting.retain(|(t, _)| *t != token);
        self.waiting.len() < before
    }

    /// Is there room?
    pub(super) fn room(&self, now: Instant) -> Room {
        match self.waiting.front() {
            Some((token, since)) if self.waiting.len() >= CAPACITY => {
                if now.duration_since(*since) >= PATIENCE {
                    Room::After(*token)
                } else {
                    Room::Later(*since + PATIENCE)
                }
            }
            _ => Room::Free,
        }
    }

    /// One whose time is over.
    pub(super) fn overdue(&self, now: Instant) -> Option<u64> {
        self.waiting
            .front()
            .filter(|(_, since)| now.duration_since(*since) >= HANDSHAKE_LIMIT)
            .map(|(t, _)| *t)
    }

    /// When somebody will be overdue.
    pub(super) fn next_tick(&self) -> Option<Instant> {
        self.waiting.front().map(|(_, since)| *since + HANDSHAKE_LIMIT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_makes_room_after_a_while() {
        let start = Instant::now();
        let mut lobby = Lobby::default();
        for token in 0..CAPACITY as u64 {
            assert_eq!(lobby.room(start), Room::Free);
            lobby.enter(start, token);
        }
        assert_eq!(lobby.room(start), Room::Later(start + PATIENCE));
        assert_eq!(lobby.room(start + PATIENCE), Room::After(0));
        assert!(lobby.leave(0));
        assert!(!lobby.leave(0));
        assert_eq!(lobby.room(start + PATIENCE), Room::Free);
        assert_eq!(lobby.overdue(start + PATIENCE), None);
        assert_eq!(lobby.next_tick(), Some(start + HANDSHAKE_LIMIT));
        assert_eq!(lobby.overdue(start + HANDSHAKE_LIMIT), Some(1));
    }
}
