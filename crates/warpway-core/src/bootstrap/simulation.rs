//! Root and ranks in a simulated network with simulated time: every message takes a pseudo-random while,
//! links keep their order, ranks can be late, wrong or killed.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::join_machine::{Action, JoinError, JoinMachine};
use super::message::{Blame, CheckIn, FromRoot, PROTOCOL_VERSION, Report, ToRoot};
use super::root_machine::{CHECK_IN, LINK_SET_UP, RootMachine, distances};
use super::{PeerInfo, Processors};

/// Something that happens at a rank or at the root.
enum Event {
    ToRoot { rank: u32, message: ToRoot },
    RootSawEnd { rank: u32 },
    FromRoot { rank: u32, message: FromRoot },
    LinkUp { rank: u32, peer: u32 },
    Gathered { rank: u32, from: u32, step: u32, infos: Vec<Arc<PeerInfo>> },
    LinkEnded { rank: u32, peer: u32 },
    Connect { rank: u32 },
    Kill { rank: u32 },
}

struct Simulation {
    now: Instant,
    start: Instant,
    first_tick: Instant,
    random: u64,
    events: BinaryHeap<Reverse<(Instant, u64)>>,
    bodies: HashMap<u64, Event>,
    next: u64,
    /// When the last message on an ordered stream arrives.
    streams: HashMap<(u32, u32), Instant>,
    root: RootMachine,
    ranks: Vec<Option<JoinMachine>>,
    links: BTreeSet<(u32, u32)>,
    messages: u64,
    /// How each rank ended, and when.
    outcomes: BTreeMap<u32, (Outcome, Duration)>,
}

type Outcome = Result<Vec<Arc<PeerInfo>>, JoinError>;

/// Stream number of the root.
const ROOT: u32 = u32::MAX;

fn info(rank: u32) -> Arc<PeerInfo> {
    Arc::new(PeerInfo {
        rank,
        host: u64::from(rank / 8),
        process: u64::from(rank) * 3 + 1,
        process_id: 1000 + rank,
        host_name: format!("host-{}", rank / 8),
        processors: Processors::default(),
        addresses: Vec::new(),
        unix_name: Vec::new(),
    })
}

impl Simulation {
    fn new(n_ranks: u32, root_knows: Option<u32>, seed: u64, timeout: Duration) -> Self {
        let start = Instant::now();
        let deadline = start.checked_add(timeout);
        let ranks = (0..n_ranks).map(|r| Some(JoinMachine::new(info(r), n_ranks, deadline))).collect();
        let mut simulation = Self {
            now: start,
            start,
            first_tick: start + timeout,
            random: seed | 1,
            events: BinaryHeap::new(),
            bodies: HashMap::new(),
            next: 0,
            streams: HashMap::new(),
            root: RootMachine::new(start, root_knows),
            ranks,
            links: BTreeSet::new(),
            messages: 0,
            outcomes: BTreeMap::new(),
        };
        for rank in 0..n_ranks {
            simulation.after((rank, rank), Event::Connect { rank });
        }
        simulation
    }

    /// Between 0 and 10 ms.
    fn latency(&mut self) -> Duration {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        Duration::from_micros(self.random % 10_000)
    }

    fn after(&mut self, stream: (u32, u32), event: Event) {
        let at = self.now + self.latency();
        let at = at.max(self.streams.get(&stream).copied().unwrap_or(at));
        self.streams.insert(stream, at);
        self.at(at, event);
    }

    fn at(&mut self, at: Instant, event: Event) {
        self.events.push(Reverse((at, self.next)));
        self.bodies.insert(self.next, event);
        self.next += 1;
    }

    /// Runs until nothing more happens.
    fn run(&mut self) {
        loop {
            let event = self.events.peek().map(|Reverse((at, _))| *at);
            // No clock runs out before the timeout, so that events before it need not ask them all.
            let tick = if event.is_some_and(|at| at < self.first_tick) {
                None
            } else {
                self.ranks
                    .iter()
                    .flatten()
                    .filter_map(JoinMachine::next_tick)
                    .chain(self.root.next_tick())
                    .min()
            };
            match (event, tick) {
                (Some(at), tick) if tick.is_none_or(|t| at <= t) => {
                    let Some(Reverse((at, number))) = self.events.pop() else { return };
                    self.now = at;
                    if let Some(event) = self.bodies.remove(&number) {
                        self.happen(event);
                    }
                }
                (_, Some(at)) if self.outcomes.len() < self.ranks.iter().flatten().count() => {
                    self.now = self.now.max(at);
                    self.root.tick(self.now);
                    self.drain_root();
                    for rank in 0..self.ranks.len() as u32 {
                        if let Some(machine) = self.ranks[rank as usize].as_mut() {
                            machine.tick(self.now);
                        }
                        self.drain(rank);
                    }
                }
                _ => return,
            }
        }
    }

    fn happen(&mut self, event: Event) {
        let now = self.now;
        match event {
            Event::Connect { rank } => self.with(rank, |m| m.root_connected(now, Some(0))),
            Event::FromRoot { rank, message } => self.with(rank, |m| m.root_said(message)),
            Event::LinkUp { rank, peer } => self.with(rank, |m| m.link_up(peer)),
            Event::Gathered { rank, from, step, infos } => self.with(rank, |m| m.gathered(from, step, infos)),
            Event::LinkEnded { rank, peer } => self.with(rank, |m| m.give_up(Some(peer), Blame::Died)),
            Event::ToRoot { rank, message } => {
                match message {
                    ToRoot::CheckIn(check_in) => self.root.check_in(now, u64::from(rank), check_in),
                    ToRoot::Ready => self.root.ready(u64::from(rank)),
                    ToRoot::Abandon(report) => self.root.abandon(now, u64::from(rank), report),
                }
                self.drain_root();
            }
            Event::RootSawEnd { rank } => {
                self.root.disconnected(now, u64::from(rank));
                self.drain_root();
            }
            Event::Kill { rank } => {
                self.ranks[rank as usize] = None;
                self.after((rank, ROOT), Event::RootSawEnd { rank });
                let linked: Vec<_> =
                    self.links.iter().copied().filter(|(a, b)| *a == rank || *b == rank).collect();
                for (a, b) in linked {
                    let survivor = if a == rank { b } else { a };
                    self.after((rank, survivor), Event::LinkEnded { rank: survivor, peer: rank });
                }
            }
        }
    }

    fn with(&mut self, rank: u32, input: impl FnOnce(&mut JoinMachine)) {
        if let Some(machine) = self.ranks[rank as usize].as_mut() {
            input(machine);
        }
        self.drain(rank);
    }

    fn drain(&mut self, rank: u32) {
        while let Some(action) = self.ranks[rank as usize].as_mut().and_then(JoinMachine::poll_action) {
            match action {
                Action::ToRoot(message) => {
                    self.messages += 1;
                    self.after((rank, ROOT), Event::ToRoot { rank, message });
                }
                Action::Dial(peer) => {
                    self.links.insert((rank, peer.rank));
                    let event = if self.ranks[peer.rank as usize].is_some() {
                        Event::LinkUp { rank, peer: peer.rank }
                    } else {
                        Event::LinkEnded { rank, peer: peer.rank }
                    };
                    self.after((rank, rank), event);
                }
                Action::Gather { peer, step, infos } => {
                    self.messages += 1;
                    self.after((rank, peer), Event::Gathered { rank: peer, from: rank, step, infos });
                }
                Action::Joined(table) => self.outcome(rank, Ok(table)),
                Action::Failed(error) => self.outcome(rank, Err(error)),
            }
        }
    }

    fn outcome(&mut self, rank: u32, outcome: Outcome) {
        let earlier = self.outcomes.insert(rank, (outcome, self.now - self.start));
        assert!(earlier.is_none(), "rank {rank} ended twice");
    }

    fn drain_root(&mut self) {
        while let Some((connection, message)) = self.root.poll_outbox() {
            self.messages += 1;
            let rank = connection as u32;
            if self.ranks.get(rank as usize).is_some_and(Option::is_some) {
                self.after((ROOT, rank), Event::FromRoot { rank, message });
            }
        }
    }

    fn error_of(&self, rank: u32) -> &JoinError {
        self.outcomes[&rank].0.as_ref().unwrap_err()
    }
}

const TIMEOUT: Duration = Duration::from_secs(30);

#[test]
fn everybody_learns_everybody_for_every_small_size_and_order() {
    for n in 1..=33 {
        for seed in 1..8 {
            let mut simulation = Simulation::new(n, [None, Some(n)][seed as usize % 2], seed * 7919, TIMEOUT);
            simulation.run();
            assert!(simulation.root.complete(), "{n} ranks");
            let expected: Vec<_> = (0..n).map(info).collect();
            for rank in 0..n {
                assert_eq!(
                    simulation.outcomes[&rank].0,
                    Ok(expected.clone()),
                    "rank {rank} of {n}, seed {seed}"
                );
            }
        }
    }
}

#[test]
fn messages_grow_as_n_log_n() {
    for n in [8u32, 64, 256, 4096] {
        let mut simulation = Simulation::new(n, Some(n), 17, TIMEOUT);
        simulation.run();
        let steps = distances(n).count() as u64;
        assert_eq!(steps, u64::from(n.ilog2()));
        // Check-in, neighbours, ready and go; one message per rank and step of the gather.
        assert_eq!(simulation.messages, u64::from(n) * (4 + steps), "{n} ranks");
        for rank in [0, 1, n / 2, n - 1] {
            let table = simulation.outcomes[&rank].0.as_ref().unwrap();
            assert!(table.iter().zip(0..n).all(|(info, r)| info.rank == r) && table.len() == n as usize);
        }
        assert_eq!(simulation.outcomes.len(), n as usize);
    }
}

#[test]
fn ranks_that_never_come_are_named_to_everybody_at_the_deadline() {
    let mut simulation = Simulation::new(9, None, 3, Duration::from_secs(2));
    simulation.ranks[4] = None;
    simulation.ranks[7] = None;
    simulation.run();
    for rank in [0, 1, 2, 3, 5, 6, 8] {
        let JoinError::Missing { missing, .. } = simulation.error_of(rank) else {
            panic!("rank {rank}: {:?}", simulation.error_of(rank));
        };
        assert_eq!(missing, &[4, 7]);
        let after = simulation.outcomes[&rank].1;
        assert!(after >= Duration::from_secs(2) && after < Duration::from_millis(2050), "{after:?}");
    }
}

#[test]
fn a_rank_killed_at_any_moment_is_named_to_everybody() {
    let n = 12;
    for victim in [0, 5, 11] {
        // Set-up takes about 50 ms of simulated time.
        for millis in (0..60).step_by(3) {
            let mut simulation = Simulation::new(n, Some(n), 1 + millis, TIMEOUT);
            let at = simulation.start + Duration::from_millis(millis);
            simulation.at(at, Event::Kill { rank: victim });
            simulation.run();
            for rank in (0..n).filter(|r| *r != victim) {
                let Some((outcome, after)) = simulation.outcomes.get(&rank) else {
                    panic!("rank {rank} hangs after the death of {victim} at {millis} ms");
                };
                match outcome {
                    // It died before it had checked in: the deadline says so. Or after all was said.
                    Ok(_) => assert!(simulation.root.complete()),
                    Err(JoinError::Missing { missing, .. }) => assert_eq!(missing, &[victim]),
                    Err(JoinError::Failed(Report { culprit, phase, blame })) => {
                        assert_eq!((*culprit, blame), (Some(victim), &Blame::Died));
                        assert!([CHECK_IN, LINK_SET_UP].contains(&phase.as_str()));
                        assert!(*after < Duration::from_secs(1), "{after:?}");
                    }
                    Err(other) => panic!("rank {rank}: {other:?}"),
                }
            }
        }
    }
}

fn refused_with(simulation: &mut Simulation, wrong: CheckIn) -> Vec<(Option<u32>, String)> {
    let rank = wrong.rank;
    let machine = simulation.ranks[rank as usize].take();
    assert!(machine.is_some());
    simulation.at(simulation.start, Event::ToRoot { rank, message: ToRoot::CheckIn(wrong) });
    simulation.run();
    (0..simulation.ranks.len() as u32)
        .filter(|r| *r != rank)
        .map(|r| match simulation.error_of(r) {
            JoinError::Refused { culprit, why } => (*culprit, why.clone()),
            other => panic!("rank {r}: {other:?}"),
        })
        .collect()
}

fn check_in(rank: u32, n_ranks: u32) -> CheckIn {
    CheckIn { version: PROTOCOL_VERSION, rank, n_ranks, patience_ms: Some(1000), info: Some(info(rank)) }
}

#[test]
fn different_world_sizes_are_refused_with_both_named() {
    let mut simulation = Simulation::new(5, None, 11, TIMEOUT);
    for (_, why) in refused_with(&mut simulation, check_in(3, 6)) {
        assert!(why.contains("rank 3 says"), "{why}");
        assert!(why.contains('5') && why.contains('6'), "{why}");
    }
    let mut simulation = Simulation::new(5, Some(5), 11, TIMEOUT);
    for (culprit, why) in refused_with(&mut simulation, check_in(3, 6)) {
        assert_eq!(culprit, Some(3));
        assert_eq!(why, "rank 3 says that there are 6 ranks, the root 5");
    }
}

#[test]
fn another_protocol_version_is_refused() {
    let mut simulation = Simulation::new(4, Some(4), 5, TIMEOUT);
    let wrong = CheckIn { version: 9, info: None, ..check_in(2, 4) };
    for (culprit, why) in refused_with(&mut simulation, wrong) {
        assert_eq!(culprit, Some(2));
        assert_eq!(
            why,
            format!("rank 2 speaks version 9 of the bootstrap protocol, the root version {PROTOCOL_VERSION}")
        );
    }
}

#[test]
fn two_ranks_with_one_number_are_refused_whenever_the_second_comes() {
    for millis in [0, 5, 15, 25] {
        let mut root = RootMachine::new(Instant::now(), Some(3));
        let now = Instant::now() + Duration::from_millis(millis);
        let others = if millis > 10 { vec![0, 1, 2] } else { vec![0, 1] };
        for rank in &others {
            root.check_in(now, u64::from(*rank), check_in(*rank, 3));
        }
        while root.poll_outbox().is_some() {}
        root.check_in(now, 77, check_in(1, 3));
        let mut told = BTreeMap::new();
        while let Some((connection, message)) = root.poll_outbox() {
            let FromRoot::Refused { culprit: Some(1), why } = message else { panic!("{message:?}") };
            assert!(why.contains("two processes say that they are rank 1"), "{why}");
            told.insert(connection, why);
        }
        let expected: BTreeSet<u64> = others.iter().map(|r| u64::from(*r)).chain([77]).collect();
        assert_eq!(told.keys().copied().collect::<BTreeSet<_>>(), expected);
        // Whoever comes later hears the same.
        root.check_in(now, 78, check_in(2, 3));
        assert!(matches!(root.poll_outbox(), Some((78, FromRoot::Refused { culprit: Some(1), .. }))));
        assert!(root.finished(now + Duration::from_secs(2)));
    }
}

#[test]
fn a_second_job_on_a_used_root_is_refused_alone() {
    let now = Instant::now();
    let mut root = RootMachine::new(now, None);
    root.check_in(now, 1, check_in(0, 1));
    root.ready(1);
    assert!(root.complete());
    while root.poll_outbox().is_some() {}
    root.check_in(now, 2, check_in(0, 1));
    assert!(matches!(root.poll_outbox(), Some((2, FromRoot::Refused { .. }))));
    assert!(root.poll_outbox().is_none());
}
