//! Split: every rank says colour and key, and all draw the same conclusion from what all have said.
//!
//! A rank that cannot take part says so instead of staying away, so that nobody waits for it.

use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex};

use sha2::{Digest, Sha256};

use super::ExchangeError;
use super::exchange::Exchanges;
use super::handle::OpenScope;
use super::publish::{Imports, Publications};
use super::state::State;
use super::workers::{Strand, Workers};
use crate::bootstrap::{Bootstrap as _, ScopeId, ScopedBootstrap};
use crate::deadline::Deadline;
use crate::engine::{EngineContext, Members};
use crate::error::Result;
use crate::health::lock;
use crate::trace::{FlightRecorder, Operation, Request};
use crate::wait::Waiter;

/// Does not take part.
const NO_COLOR: i32 = -1;

/// What one rank says when it splits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Vote {
    /// How many splits there were before.
    split: u64,
    color: i32,
    key: i32,
    /// Exchanges are under way.
    busy: bool,
}

impl Vote {
    const BYTES: usize = 17;

    fn encode(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&self.split.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.color.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.key.to_le_bytes());
        bytes[16] = self.busy.into();
        bytes
    }

    fn decode(bytes: &[u8; Self::BYTES]) -> Self {
        let [s0, s1, s2, s3, s4, s5, s6, s7, c0, c1, c2, c3, k0, k1, k2, k3, busy] = *bytes;
        Self {
            split: u64::from_le_bytes([s0, s1, s2, s3, s4, s5, s6, s7]),
            color: i32::from_le_bytes([c0, c1, c2, c3]),
            key: i32::from_le_bytes([k0, k1, k2, k3]),
            busy: busy != 0,
        }
    }
}

/// The group of `rank`: its members in order, `None` for no colour.
///
/// # Errors
/// The same for every rank.
fn group_of(rank: u32, votes: &[Vote]) -> Result<Option<Vec<u32>>, ExchangeError> {
    let refuse = |culprit: usize, why| {
        Err(ExchangeError::Collective { operation: "split", culprit: culprit as u32, why })
    };
    let (mine, first) = (votes[rank as usize], votes[0]);
    for (rank, vote) in votes.iter().enumerate() {
        if vote.split != first.split {
            let why = format!("called split for the {}th time, rank 0 for the {}th", vote.split, first.split);
            return refuse(rank, why);
        }
        if vote.color < NO_COLOR {
            let why = format!("colour {} is negative; only −1 (take no part) is allowed to be", vote.color);
            return refuse(rank, why);
        }
        if vote.busy {
            return refuse(rank, "it has exchanges under way; complete them before the split".into());
        }
    }
    if mine.color == NO_COLOR {
        return Ok(None);
    }
    let same = votes.iter().zip(0u32..).filter(|(vote, _)| vote.color == mine.color);
    let mut members: Vec<(i32, u32)> = same.map(|(vote, rank)| (vote.key, rank)).collect();
    members.sort_unstable();
    Ok(Some(members.into_iter().map(|(_, rank)| rank).collect()))
}

/// The name of a group: the same on all its members, another for any other group of the job.
fn scope_of(parent: ScopeId, split: u64, color: i32) -> ScopeId {
    let mut hash = Sha256::new();
    hash.update(b"warpway split scope 1\0");
    hash.update(parent.0.to_le_bytes());
    hash.update(split.to_le_bytes());
    hash.update(color.to_le_bytes());
    let digest: [u8; 32] = hash.finalize().into();
    let mut first = [0; 8];
    first.copy_from_slice(&digest[..8]);
    // 0 is the job, the last one the bootstrap's own.
    ScopeId(u64::from_le_bytes(first).clamp(1, u64::MAX - 1))
}

impl State {
    /// The scope and the job ranks of this rank's group; `None` for colour −1.
    pub(super) fn agree_on_split(
        &self,
        color: i32,
        key: i32,
        deadline: Deadline,
    ) -> Result<Option<(ScopeId, Vec<u32>)>> {
        // Held throughout: splits are collective, so they have an order.
        let mut splits = lock(&self.splits);
        let split = *splits;
        *splits += 1;
        let awaiting = self.exchanges.awaiting();
        let vote = Vote { split, color, key, busy: awaiting.is_some() };
        let votes = self.gather(vote, deadline)?;
        let group = group_of(self.rank, &votes).map_err(|error| match (error, awaiting) {
            (ExchangeError::Collective { operation, culprit, why }, Some(awaiting))
                if culprit == self.rank =>
            {
                ExchangeError::Collective { operation, culprit, why: format!("{why} ({awaiting})") }
            }
            (error, _) => error,
        })?;
        Ok(group.map(|ranks| {
            let members = ranks.into_iter().map(|rank| self.members[rank as usize]).collect();
            (scope_of(self.scope, split, color), members)
        }))
    }

    /// A communicator's state with this one's engines and tables, and a health and a recorder of its own.
    pub(super) fn child(&self, scope: ScopeId, members: Vec<u32>, open: OpenScope) -> Result<Arc<Self>> {
        let OpenScope { health, guard } = open;
        let workers = Workers::new(Arc::clone(&health));
        let recorder = Arc::new(FlightRecorder::new(self.config.recorder_capacity));
        let rank = health.rank();
        let policy = self.config.wait_policy(&*self.context.control, &members);
        let waiter = Waiter::new(health, recorder, policy);
        let control = Arc::clone(&self.context.control);
        let health = Arc::clone(&waiter.health);
        let bootstrap = ScopedBootstrap::new(Arc::clone(&control), scope, members.clone(), health)?;
        let context = EngineContext { control, waiter, members: Members::new(&members) };
        Ok(Arc::new_cyclic(|this| Self {
            scope,
            rank,
            members,
            bootstrap: Arc::new(bootstrap),
            engines: self.engines.clone(),
            context,
            config: self.config,
            tokens: self.tokens.like(),
            local_memories: Arc::clone(&self.local_memories),
            offers: Arc::clone(&self.offers),
            scope_guard: guard,
            publication_strand: Strand::new(&workers),
            workers,
            exchanges: Exchanges::default(),
            publications: Publications::new(self.config.publication_capacity),
            imports: Imports::default(),
            connections: Mutex::default(),
            next_semaphore: AtomicU64::new(0),
            splits: Mutex::new(0),
            closed: AtomicBool::new(false),
            this: this.clone(),
        }))
    }

    /// What every rank says, by rank.
    fn gather(&self, mine: Vote, deadline: Deadline) -> Result<Vec<Vote>> {
        let recorder = &self.context.waiter.recorder;
        let operation = Operation::Split;
        let record =
            recorder.start(Request { operation, peer: None, object: mine.split, bytes: 0, offset: 0 });
        let mut slots = vec![0; self.members.len() * Vote::BYTES];
        let at = self.rank as usize * Vote::BYTES;
        slots[at..at + Vote::BYTES].copy_from_slice(&mine.encode());
        let gathered = self.bootstrap.all_gather(&mut slots, Vote::BYTES as u64, deadline);
        match &gathered {
            Ok(()) => recorder.complete(record),
            Err(error) => recorder.fail(record, error),
        }
        gathered?;
        Ok(slots.as_chunks().0.iter().map(Vote::decode).collect())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn vote(color: i32, key: i32) -> Vote {
        Vote { split: 3, color, key, busy: false }
    }

    proptest! {
        /// Against a direct statement of the rule: my members are those of my colour, and each of them
        /// stands behind exactly those with a smaller (key, rank).
        #[test]
        fn groups_follow_colour_then_key_then_rank(
            votes in proptest::collection::vec((-1i32..3, -2i32..3), 1..20)
        ) {
            let votes: Vec<Vote> = votes.into_iter().map(|(color, key)| vote(color, key)).collect();
            for (rank, mine) in votes.iter().enumerate() {
                let group = group_of(rank as u32, &votes).unwrap();
                if mine.color == -1 {
                    prop_assert_eq!(group, None);
                    continue;
                }
                let group = group.unwrap();
                let place = (0..votes.len())
                    .filter(|&r| votes[r].color == mine.color && (votes[r].key, r) < (mine.key, rank))
                    .count();
                prop_assert_eq!(group[place], rank as u32);
                prop_assert_eq!(group.len(), votes.iter().filter(|v| v.color == mine.color).count());
            }
        }

        #[test]
        fn votes_survive_the_wire(split in any::<u64>(), color in any::<i32>(), key in any::<i32>(), busy in any::<bool>()) {
            let vote = Vote { split, color, key, busy };
            prop_assert_eq!(Vote::decode(&vote.encode()), vote);
        }
    }

    #[test]
    fn every_rank_refuses_the_same_call() {
        for (bad, text) in [
            (vote(-2, 0), "colour -2"),
            (vote(i32::MIN, 0), "colour -2147483648"),
            (Vote { busy: true, ..vote(0, 0) }, "exchanges under way"),
            (Vote { split: 4, ..vote(0, 0) }, "4th time"),
        ] {
            let votes = [vote(0, 0), vote(-1, 0), bad, vote(1, 0)];
            for rank in 0..4 {
                match group_of(rank, &votes) {
                    Err(ExchangeError::Collective { culprit: 2, why, .. }) => {
                        assert!(why.contains(text), "{why}");
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
    }

    #[test]
    fn scopes_differ_in_every_part_of_their_name() {
        let names = [(1, 0, 0), (2, 0, 0), (1, 1, 0), (1, 0, 1), (1, 0, i32::MAX)];
        let scopes = names.map(|(parent, split, color)| scope_of(ScopeId(parent), split, color));
        for (i, a) in scopes.iter().enumerate() {
            assert!(a.0 != 0 && scopes[i + 1..].iter().all(|b| a != b));
        }
    }
}
