//! Reaching the root or a rank: candidates tried in turn, round and round, with a jittered pause between
//! rounds. Sans-IO.

use std::time::{Duration, Instant};

use super::super::socket::Address;

const FIRST_PAUSE: Duration = Duration::from_millis(2);
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// Whom to reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Target {
    Root,
    Rank(u32),
}

/// How an attempt failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Trouble {
    /// Nobody listens there.
    Refused,
    /// Whoever listens there is not of this job.
    Stranger(&'static str),
    /// The network's or the system's answer.
    Other(String),
}

/// The attempts to reach one target.
#[derive(Debug)]
pub(super) struct Dial {
    candidates: Vec<Address>,
    next: usize,
    round: u32,
    jitter: u64,
    pub(super) started: Instant,
    /// The attempt under way.
    pub(super) connection: Option<u64>,
    /// When the attempt under way is given up, or the next one is due.
    pub(super) due: Instant,
    /// The last trouble with each candidate.
    troubles: Vec<Option<Trouble>>,
}

impl Dial {
    pub(super) fn new(now: Instant, candidates: Vec<Address>, seed: u64) -> Self {
        let troubles = vec![None; candidates.len()];
        Self {
            candidates,
            next: 0,
            round: 0,
            jitter: seed | 1,
            started: now,
            connection: None,
            due: now,
            troubles,
        }
    }

    /// The candidate to try now; `None` if it is not time or there is none.
    pub(super) fn candidate(&self, now: Instant) -> Option<Address> {
        if self.connection.is_some() || now < self.due {
            None
        } else {
            self.candidates.get(self.next).cloned()
        }
    }

    /// An attempt begins.
    pub(super) fn begun(&mut self, connection: u64, give_up: Instant) {
        self.connection = Some(connection);
        self.due = give_up;
    }

    /// The attempt has failed: on to the next candidate, or to a pause.
    pub(super) fn failed(&mut self, now: Instant, trouble: Trouble) {
        self.connection = None;
        self.due = now;
        if let Some(slot) = self.troubles.get_mut(self.next) {
            *slot = Some(trouble);
        }
        self.next += 1;
        if self.next >= self.candidates.len() {
            self.next = 0;
            let pause = LONGEST_PAUSE.min(FIRST_PAUSE * 2u32.saturating_pow(self.round));
            self.round = self.round.saturating_add(1);
            // xorshift; between half and one and a half pauses.
            self.jitter ^= self.jitter << 13;
            self.jitter ^= self.jitter >> 7;
            self.jitter ^= self.jitter << 17;
            self.due = now + pause / 2 + pause * (self.jitter % 1024) as u32 / 1024;
        }
    }

    /// True if there is more than one candidate.
    pub(super) fn has_choice(&self) -> bool {
        self.candidates.len() > 1
    }

    /// True if every candidate has been refused: nobody listens anywhere.
    pub(super) fn all_refused(&self) -> bool {
        self.troubles.iter().all(|t| matches!(t, Some(Trouble::Refused)))
    }

    /// A candidate where somebody answered who is not of this job, unless others gave other trouble.
    pub(super) fn stranger(&self) -> Option<(String, &'static str)> {
        let found = self.candidates.iter().zip(&self.troubles).find_map(|(address, trouble)| match trouble {
            Some(Trouble::Stranger(why)) => Some((address.to_string(), *why)),
            _ => None,
        });
        let network = self.troubles.iter().any(|t| matches!(t, Some(Trouble::Other(_))));
        found.filter(|_| !network)
    }

    /// The addresses tried.
    pub(super) fn addresses(&self) -> String {
        self.candidates.iter().map(Address::to_string).collect::<Vec<_>>().join(", ")
    }

    /// The last trouble with each.
    pub(super) fn explain(&self) -> String {
        let mut lines: Vec<String> = self
            .candidates
            .iter()
            .zip(&self.troubles)
            .map(|(address, trouble)| match trouble {
                None => format!("{address}: no answer"),
                Some(Trouble::Refused) => format!("{address}: nobody listens there"),
                Some(Trouble::Stranger(why)) => format!("{address}: {why}"),
                Some(Trouble::Other(why)) => format!("{address}: {why}"),
            })
            .collect();
        if lines.is_empty() {
            lines.push("no address is known".into());
        }
        lines.join("; ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn candidates_take_turns_and_pauses_grow_to_a_limit() {
        let ports = [Address::Unix(b"a".to_vec()), Address::Unix(b"b".to_vec())];
        let mut now = Instant::now();
        let mut dial = Dial::new(now, ports.to_vec(), 12345);
        let mut pauses = Vec::new();
        for _ in 0..12 {
            assert_eq!(dial.candidate(now), Some(ports[0].clone()));
            dial.begun(7, now + Duration::from_secs(1));
            assert_eq!(dial.candidate(now + Duration::from_secs(9)), None);
            dial.failed(now, Trouble::Refused);
            assert_eq!(dial.candidate(now), Some(ports[1].clone()));
            dial.failed(now, Trouble::Stranger("who"));
            assert_eq!(dial.candidate(now), None);
            pauses.push(dial.due - now);
            now = dial.due;
        }
        assert!(pauses[0] <= FIRST_PAUSE * 2);
        assert!(pauses.iter().all(|p| *p <= LONGEST_PAUSE * 3 / 2));
        assert!(pauses[11] >= LONGEST_PAUSE / 2);
        assert!(!dial.all_refused());
        assert_eq!(dial.stranger(), Some(("unix:@b".into(), "who")));
    }
}
