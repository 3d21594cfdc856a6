//! [`Bootstrap`] over any control plane: the members of one scope, with ranks of that scope.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use super::codec::{Decoder, Encoder, Malformed};
use super::root_machine::{ahead, behind, distances};
use super::{Bootstrap, BootstrapError, ControlPlane, ScopeId};
use crate::deadline::Deadline;
use crate::error::{Error, Result};
use crate::health::{Failure, Health, lock};
use crate::trace::Operation;

/// Collective calls of all members. All use one tag, so that ranks in different calls find out.
const ALL_TAG: i32 = i32::MIN;
/// Collective calls of some members.
const GROUP_TAG: i32 = i32::MIN + 1;
const SLICE: Duration = Duration::from_secs(1);

/// Messages and small collectives between the members of a scope.
///
/// Does not open the scope: whoever does keeps the guard and the health. The tags `i32::MIN` and
/// `i32::MIN + 1` of the scope belong to this object, so there must be one per scope and rank. Collective
/// calls of several threads take turns; the threads of all ranks must call in the same order.
///
/// After a collective call has failed on some rank, ranks may disagree about how many there have been;
/// later calls then fail with `bootstrap.mismatch` rather than deliver wrong data.
pub struct ScopedBootstrap {
    control: Arc<dyn ControlPlane>,
    scope: ScopeId,
    /// Job rank of each rank.
    members: Vec<u32>,
    rank: u32,
    per_node: u32,
    health: Arc<Health>,
    turn: Mutex<Turn>,
    turn_ended: Condvar,
}

/// Whose turn it is, and how many calls there have been.
#[derive(Default)]
struct Turn {
    taken: bool,
    calls: u64,
    group_calls: HashMap<Vec<u32>, u64>,
}

/// What every message of a collective call begins with; ranks compare it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Call {
    kind: CallKind,
    /// Number of the call.
    sequence: u64,
    /// Bytes per rank.
    size: u64,
    /// Root, or hash of the group.
    detail: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CallKind {
    Barrier,
    GroupBarrier,
    AllGather,
    Broadcast,
}

impl ScopedBootstrap {
    /// `members[r]` is the job rank of rank `r`; `health` is the scope's.
    ///
    /// # Errors
    /// `bootstrap.argument` if this process is not a member, if a member is listed twice or does not exist.
    pub fn new(
        control: Arc<dyn ControlPlane>,
        scope: ScopeId,
        members: Vec<u32>,
        health: Arc<Health>,
    ) -> Result<Self> {
        let argument = |why: String| BootstrapError::Argument { operation: Operation::Split, why };
        let own = control.job_rank();
        let rank = members.iter().position(|m| *m == own).and_then(|at| u32::try_from(at).ok());
        let Some(rank) = rank else {
            return Err(argument(format!("job rank {own} is not a member of scope {}", scope.0)).into());
        };
        let peers = control.peers();
        let distinct: BTreeSet<u32> = members.iter().copied().collect();
        if distinct.len() != members.len() || distinct.iter().any(|m| *m as usize >= peers.len()) {
            return Err(argument(format!("{members:?} are not distinct ranks of the job")).into());
        }
        let host = peers[own as usize].host;
        let per_node = members.iter().filter(|m| peers[**m as usize].host == host).count() as u32;
        let (turn, turn_ended) = (Mutex::default(), Condvar::new());
        Ok(Self { control, scope, members, rank, per_node, health, turn, turn_ended })
    }

    /// The scope.
    pub fn scope(&self) -> ScopeId {
        self.scope
    }

    /// Job rank of each rank.
    pub fn members(&self) -> &[u32] {
        &self.members
    }

    /// The scope's health.
    pub fn health(&self) -> &Arc<Health> {
        &self.health
    }

    fn member(&self, operation: Operation, peer: u32) -> Result<u32> {
        let no_such_peer = BootstrapError::NoSuchPeer { operation, peer, n_ranks: self.n_ranks() };
        self.members.get(peer as usize).copied().ok_or_else(|| no_such_peer.into())
    }

    fn check_tag(&self, operation: Operation, tag: i32) -> Result<()> {
        if tag >= 0 {
            return Ok(());
        }
        let why = format!("tag {tag} is negative; negative tags are the library's");
        Err(BootstrapError::Argument { operation, why }.into())
    }

    /// Ranks of this scope instead of job ranks, and what this rank was doing.
    fn attribute(&self, error: Error, operation: Operation, peer: u32) -> Error {
        match error {
            Error::Bootstrap(BootstrapError::Timeout { tag, elapsed, .. }) => {
                BootstrapError::Timeout { rank: self.rank, peer, tag, operation, elapsed }.into()
            }
            Error::Failed(failure) => Failure { phase: operation.to_string(), ..failure }.into(),
            other => other,
        }
    }

    fn receive(&self, operation: Operation, peer: u32, tag: i32, deadline: Deadline) -> Result<Vec<u8>> {
        let member = self.member(operation, peer)?;
        self.control
            .receive(self.scope, member, tag, deadline)
            .map_err(|error| self.attribute(error, operation, peer))
    }

    fn post(&self, operation: Operation, peer: u32, tag: i32, data: &[u8]) -> Result<()> {
        self.health.check().map_err(|error| self.attribute(error, operation, peer))?;
        let member = self.member(operation, peer)?;
        self.control.post(self.scope, member, tag, data)
    }

    /// Waits until no other thread of this rank is in a collective call.
    fn take_turn(&self, operation: Operation, deadline: Deadline) -> Result<TurnGuard<'_>> {
        let started = Instant::now();
        let mut turn = lock(&self.turn);
        while turn.taken {
            if deadline.expired() {
                let (rank, elapsed) = (self.rank, started.elapsed());
                return Err(
                    BootstrapError::Timeout { rank, peer: rank, tag: ALL_TAG, operation, elapsed }.into()
                );
            }
            let slice = deadline.remaining().unwrap_or(SLICE).min(SLICE);
            turn = match self.turn_ended.wait_timeout(turn, slice) {
                Ok((turn, _)) => turn,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
        turn.taken = true;
        Ok(TurnGuard { bootstrap: self })
    }

    /// A call of all members; they number it alike.
    fn begin(&self, kind: CallKind, size: u64, detail: u64) -> Call {
        let mut turn = lock(&self.turn);
        turn.calls += 1;
        Call { kind, sequence: turn.calls, size, detail }
    }

    fn send_step(&self, call: Call, peer: u32, payload: &[u8]) -> Result<()> {
        let mut e = Encoder::new(call.kind as u8);
        e.u64(call.sequence).u64(call.size).u64(call.detail).raw(payload);
        self.post(call.kind.operation(), peer, call.kind.tag(), &e.finish())
    }

    /// The payload of `peer`'s message of this call, `length` bytes.
    fn receive_step(&self, call: Call, peer: u32, length: usize, deadline: Deadline) -> Result<Vec<u8>> {
        let operation = call.kind.operation();
        let mut message = self.receive(operation, peer, call.kind.tag(), deadline)?;
        let parsed = parse_step(&message);
        let Ok(theirs) = parsed else {
            let (rank, from) = (self.rank, format!("rank {peer}"));
            let what = "a message of a collective call that cannot be read";
            return Err(BootstrapError::Protocol { rank, from, what }.into());
        };
        if theirs != call || message.len() - STEP_HEADER != length {
            return Err(BootstrapError::Mismatch {
                rank: self.rank,
                peer,
                mine: call.to_string(),
                theirs: theirs.to_string(),
            }
            .into());
        }
        message.drain(..STEP_HEADER);
        Ok(message)
    }

    /// Dissemination: after step k a rank has heard, directly or not, of the 2^(k+1) ranks behind it.
    fn disseminate(&self, call: Call, group: &[u32], deadline: Deadline) -> Result<()> {
        let n = group.len() as u32;
        let Some(at) = group.iter().position(|r| *r == self.rank) else {
            return Ok(());
        };
        for distance in distances(n) {
            self.send_step(call, group[ahead(at as u32, distance, n) as usize], &[])?;
            self.receive_step(call, group[behind(at as u32, distance, n) as usize], 0, deadline)?;
        }
        Ok(())
    }
}

impl Bootstrap for ScopedBootstrap {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn n_ranks(&self) -> u32 {
        self.members.len() as u32
    }

    fn n_ranks_per_node(&self) -> u32 {
        self.per_node
    }

    fn send(&self, data: &[u8], peer: u32, tag: i32, _deadline: Deadline) -> Result<()> {
        self.check_tag(Operation::BootstrapSend, tag)?;
        self.post(Operation::BootstrapSend, peer, tag, data)
    }

    fn recv(&self, buffer: &mut [u8], peer: u32, tag: i32, deadline: Deadline) -> Result<u64> {
        let message = self.recv_vec(peer, tag, deadline)?;
        let length = message.len() as u64;
        match buffer.get_mut(..message.len()) {
            Some(target) => target.copy_from_slice(&message),
            None => {
                let (rank, capacity) = (self.rank, buffer.len() as u64);
                return Err(BootstrapError::Truncated { rank, peer, tag, length, capacity }.into());
            }
        }
        Ok(length)
    }

    fn recv_vec(&self, peer: u32, tag: i32, deadline: Deadline) -> Result<Vec<u8>> {
        self.check_tag(Operation::BootstrapRecv, tag)?;
        self.receive(Operation::BootstrapRecv, peer, tag, deadline)
    }

    fn all_gather(&self, buffer: &mut [u8], size: u64, deadline: Deadline) -> Result<()> {
        let (rank, n) = (self.rank, self.n_ranks());
        if size.checked_mul(u64::from(n)) != Some(buffer.len() as u64) {
            let why = format!("a buffer of {} bytes is not {n} slots of {size} bytes", buffer.len());
            return Err(BootstrapError::Argument { operation: Operation::BootstrapAllGather, why }.into());
        }
        let size_here = size as usize;
        let slot = |r: u32| r as usize * size_here..(r as usize + 1) * size_here;
        let _turn = self.take_turn(Operation::BootstrapAllGather, deadline)?;
        let call = self.begin(CallKind::AllGather, size, 0);
        let mut payload = Vec::new();
        for distance in distances(n) {
            // This rank has the slots of itself and the `distance - 1` ranks behind it.
            let count = distance.min(n - distance);
            payload.clear();
            for back in 0..count {
                payload.extend_from_slice(&buffer[slot((rank + n - back) % n)]);
            }
            self.send_step(call, ahead(rank, distance, n), &payload)?;
            let from = behind(rank, distance, n);
            let received = self.receive_step(call, from, count as usize * size_here, deadline)?;
            for back in 0..count {
                let source = back as usize * size_here..(back as usize + 1) * size_here;
                buffer[slot((from + n - back) % n)].copy_from_slice(&received[source]);
            }
        }
        Ok(())
    }

    fn broadcast(&self, buffer: &mut [u8], root: u32, deadline: Deadline) -> Result<()> {
        let n = self.n_ranks();
        self.member(Operation::BootstrapBroadcast, root)?;
        let _turn = self.take_turn(Operation::BootstrapBroadcast, deadline)?;
        let call = self.begin(CallKind::Broadcast, buffer.len() as u64, u64::from(root));
        // Binomial tree over the distance from the root: the lowest set bit is the edge to the parent.
        let from_root = behind_or_same(self.rank, root, n);
        let real = |relative: u32| ahead(root, relative, n);
        let edge = if from_root == 0 { n.next_power_of_two() } else { 1 << from_root.trailing_zeros() };
        if from_root != 0 {
            let received = self.receive_step(call, real(from_root - edge), buffer.len(), deadline)?;
            buffer.copy_from_slice(&received);
        }
        let mut child = edge / 2;
        while child > 0 {
            if from_root + child < n {
                self.send_step(call, real(from_root + child), buffer)?;
            }
            child /= 2;
        }
        Ok(())
    }

    fn barrier(&self, deadline: Deadline) -> Result<()> {
        let _turn = self.take_turn(Operation::BootstrapBarrier, deadline)?;
        let call = self.begin(CallKind::Barrier, 0, 0);
        let all: Vec<u32> = (0..self.n_ranks()).collect();
        self.disseminate(call, &all, deadline)
    }

    fn group_barrier(&self, ranks: &[u32], deadline: Deadline) -> Result<()> {
        let operation = Operation::BootstrapBarrier;
        let distinct: BTreeSet<u32> = ranks.iter().copied().collect();
        if let Some(peer) = ranks.iter().find(|r| **r >= self.n_ranks()) {
            self.member(operation, *peer)?;
        }
        if distinct.len() != ranks.len() || !distinct.contains(&self.rank) {
            let why =
                format!("{ranks:?} are not distinct ranks with the calling rank {} among them", self.rank);
            return Err(BootstrapError::Argument { operation, why }.into());
        }
        let _turn = self.take_turn(operation, deadline)?;
        let sequence = {
            let mut turn = lock(&self.turn);
            let calls = turn.group_calls.entry(ranks.to_vec()).or_default();
            *calls += 1;
            *calls
        };
        let bytes: Vec<u8> = ranks.iter().flat_map(|r| r.to_le_bytes()).collect();
        let hash = super::join::digest("warpway group", &[&bytes]);
        let detail = Decoder::new(&hash).u64().unwrap_or_default();
        let call = Call { kind: CallKind::GroupBarrier, sequence, size: ranks.len() as u64, detail };
        self.disseminate(call, ranks, deadline)
    }
}

/// Ends the turn.
struct TurnGuard<'a> {
    bootstrap: &'a ScopedBootstrap,
}

impl Drop for TurnGuard<'_> {
    fn drop(&mut self) {
        let mut turn: MutexGuard<'_, Turn> = lock(&self.bootstrap.turn);
        turn.taken = false;
        drop(turn);
        self.bootstrap.turn_ended.notify_one();
    }
}

/// Kind, sequence, size, detail.
const STEP_HEADER: usize = 1 + 3 * 8;

fn parse_step(message: &[u8]) -> Result<Call, Malformed> {
    let mut d = Decoder::new(message);
    let kind = match d.u8()? {
        0 => CallKind::Barrier,
        1 => CallKind::GroupBarrier,
        2 => CallKind::AllGather,
        3 => CallKind::Broadcast,
        _ => return Err(Malformed("kind of collective call")),
    };
    Ok(Call { kind, sequence: d.u64()?, size: d.u64()?, detail: d.u64()? })
}

impl CallKind {
    fn operation(self) -> Operation {
        match self {
            Self::Barrier | Self::GroupBarrier => Operation::BootstrapBarrier,
            Self::AllGather => Operation::BootstrapAllGather,
            Self::Broadcast => Operation::BootstrapBroadcast,
        }
    }

    fn tag(self) -> i32 {
        if self == Self::GroupBarrier { GROUP_TAG } else { ALL_TAG }
    }
}

impl std::fmt::Display for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { kind, sequence, size, detail } = self;
        match kind {
            CallKind::Barrier => write!(f, "barrier (collective call {sequence})"),
            CallKind::GroupBarrier => {
                write!(f, "group barrier {sequence} of {size} ranks (list {detail:016x})")
            }
            CallKind::AllGather => {
                write!(f, "all_gather of {size} bytes per rank (collective call {sequence})")
            }
            CallKind::Broadcast => {
                write!(f, "broadcast of {size} bytes from rank {detail} (collective call {sequence})")
            }
        }
    }
}

/// `(rank - root) mod n`, both below `n`.
fn behind_or_same(rank: u32, root: u32, n: u32) -> u32 {
    if rank >= root { rank - root } else { behind(rank, root, n) }
}
