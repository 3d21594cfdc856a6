//! All-reduces of several hosts: every byte crosses the wire as seldom as possible.
//!
//! The message has a share for each lane, and within it one for each host: its owner is the rank of that lane on that host. Every
//! host folds all shares of its own ranks (memory), sends to the owners what is theirs (wire), the owners fold what has come
//! and send the result to their lane (wire), and everybody passes results on within the host (memory). With H hosts, 2 (H - 1)
//! / H of the message leave a host, and as much enters it.
//!
//! Pieces follow each other: while one is on the wire, earlier ones are folded and passed on. What is folded for other hosts,
//! and what comes from them, lies in a few slots that are used in turns. Whoever has an owner's result of a piece knows that
//! this owner has taken the piece's parts, so a slot of it may be written again; no words are sent for that.

use std::collections::HashMap;

use warpway_plan::{Buffer, BuildError, Chunk, CollectiveShape, DataSync, Plan, PortChannel, Reduction};

use super::lanes::Lanes;
use super::{PIECES, TRAITS};
use crate::algorithm::Algorithm;
use crate::catalogue::draft::{Draft, Parcel, SPEAKER};
use crate::catalogue::fits;
use crate::catalogue::fold::own_at;
use crate::task::{Function, Task};

/// Pieces that a rank sends before it waits for the first answer: the wire has something to do while answers travel.
const AHEAD: u32 = 2;

/// Pieces of all hosts' shares in the fine form, and of one: they are to stay in the caches between the steps.
const FINE_PIECES: u32 = 128;
const FINE_PIECES_OF_A_SHARE: (u32, u32) = (PIECES, 64);

pub(super) const ALGORITHMS: &[Algorithm] = &[
    Algorithm {
        name: "hierarchical",
        function: Function::AllReduce,
        summary: "folds within hosts, exchanges parts among hosts, passes results on within hosts",
        traits: TRAITS,
        fits: fits::several_hosts,
        build: |task| build(task, "all_reduce_hierarchical", 1),
    },
    Algorithm {
        name: "hierarchical_pipelined",
        function: Function::AllReduce,
        summary: "as hierarchical, piece by piece, so that wire and memory work at the same time",
        traits: TRAITS,
        fits: fits::several_hosts,
        build: |task| build(task, "all_reduce_hierarchical_pipelined", PIECES),
    },
    Algorithm {
        name: "hierarchical_fine",
        function: Function::AllReduce,
        summary: "as hierarchical_pipelined, in smaller pieces, which stay in the caches from step to step",
        traits: TRAITS,
        fits: fits::several_hosts,
        build: |task| {
            let (fewest, most) = FINE_PIECES_OF_A_SHARE;
            let pieces = (FINE_PIECES / task.world.n_hosts().max(1)).clamp(fewest, most);
            build(task, "all_reduce_hierarchical_fine", pieces)
        },
    },
];

fn build(task: &Task, name: &str, pieces: u32) -> Result<Plan, BuildError> {
    let lanes = Lanes::new(&task.world);
    let chunks = u64::from(lanes.n_lanes()) * u64::from(lanes.n_hosts()) * u64::from(pieces);
    let shape = CollectiveShape::all_reduce_of(task.world.n_ranks(), chunks);
    let mut exchange = Exchange::new(Draft::new(task, name, shape)?, lanes, pieces)?;
    for me in 0..task.world.n_ranks() {
        let near = exchange.lanes.near(me);
        exchange.d.open(me, &near)?;
        let (host, lane) = exchange.lanes.place(me);
        if lane < exchange.lanes.n_lanes() {
            exchange.run(At { me, host, lane })?;
        }
        exchange.d.tell(me, &near)?;
        exchange.d.expect_last(me, &near)?;
    }
    exchange.d.finish()
}

/// A rank with a lane.
#[derive(Clone, Copy)]
struct At {
    me: u32,
    host: u32,
    lane: u32,
}

struct Exchange<'t> {
    d: Draft<'t>,
    lanes: Lanes,
    pieces: u32,
    /// Pieces that are under way between two of a rank's steps.
    ahead: u32,
    /// By rank: what its host has folded for the other hosts, where the host has several ranks.
    folded: Vec<Buffer>,
    /// By rank: what other hosts have folded for it.
    arrived: Vec<Buffer>,
    /// Channels for results; what is folded on the way travels on the others.
    results: HashMap<(u32, u32), PortChannel>,
}

impl<'t> Exchange<'t> {
    fn new(mut d: Draft<'t>, lanes: Lanes, pieces: u32) -> Result<Self, BuildError> {
        let ahead = AHEAD.min(pieces - 1);
        let slots = u64::from(lanes.n_hosts() - 1) * u64::from(slots_of(ahead));
        let (mut folded, mut arrived, mut results) = (Vec::new(), Vec::new(), HashMap::new());
        for rank in 0..d.n() {
            let (host, lane) = lanes.place(rank);
            let has_lane = lane < lanes.n_lanes();
            let folds = has_lane && lanes.host(host).len() > 1;
            folded.push(d.p.scratch(rank, if folds { slots } else { 0 })?);
            arrived.push(d.p.scratch(rank, if has_lane { slots } else { 0 })?);
            for other in lanes.others(host).filter(|_| has_lane) {
                let peer = lanes.rank(other, lane);
                if rank < peer {
                    results.insert((rank, peer), d.p.port_channel(rank, peer)?);
                    results.insert((peer, rank), d.p.port_channel(peer, rank)?);
                }
            }
        }
        Ok(Self { d, lanes, pieces, ahead, folded, arrived, results })
    }

    /// All steps of a rank, those of later pieces before the answers to earlier ones are waited for.
    fn run(&mut self, at: At) -> Result<(), BuildError> {
        let ahead = self.ahead;
        for turn in 0..self.pieces + 2 * ahead {
            if turn < self.pieces {
                self.fold_and_send(at, turn)?;
            }
            if let Some(piece) = turn.checked_sub(ahead).filter(|piece| *piece < self.pieces) {
                self.finish_own(at, piece)?;
            }
            if let Some(piece) = turn.checked_sub(2 * ahead).filter(|piece| *piece < self.pieces) {
                self.pass_on(at, piece)?;
            }
        }
        for peer in self.lane_peers(at) {
            self.d.p.flush(self.results[&(at.me, peer)], SPEAKER, DataSync::Before)?;
        }
        Ok(())
    }

    /// Folds the shares of this lane within the host, and sends what is for others.
    fn fold_and_send(&mut self, at: At, piece: u32) -> Result<(), BuildError> {
        let locals = self.lanes.host(at.host);
        let mut parcels = Vec::new();
        for host in 0..self.lanes.n_hosts() {
            if host == at.host {
                continue;
            }
            let index = self.chunk(at.lane, host, piece);
            let from = match locals.len() {
                1 => self.d.p.input(at.me)?.chunk(index..=index)?,
                _ => {
                    let folded = self.slot(&self.folded, at.me, host, piece)?;
                    self.fold_locals(at, index, folded)?;
                    folded
                }
            };
            let owner = self.lanes.rank(host, at.lane);
            parcels.push(Parcel { to: self.slot(&self.arrived, owner, at.host, piece)?, from });
        }
        self.d.send_far(at.me, &parcels)
    }

    /// Folds what all hosts have for this rank's own share, and sends the result to the lane and to the host.
    fn finish_own(&mut self, at: At, piece: u32) -> Result<(), BuildError> {
        let peers = self.lane_peers(at);
        let index = self.chunk(at.lane, at.host, piece);
        let result = self.d.p.output(at.me)?.chunk(index..=index)?;
        let own = match self.lanes.host(at.host).len() {
            1 => self.d.p.input(at.me)?.chunk(index..=index)?,
            _ => {
                // Not before: it is still in the cache when the others' parts are added.
                self.fold_locals(at, index, result)?;
                result
            }
        };
        self.d.expect(at.me, &peers)?;
        let others = self.lanes.others(at.host).map(|host| self.slot(&self.arrived, at.me, host, piece));
        let others = others.collect::<Result<Vec<_>, _>>()?;
        let order = own_at(at.host as usize, others.len());
        let fold = Reduction::of(own, &others).into(result).ordered(&order).with(self.d.task.reduce_op);
        self.d.p.reduce(fold, self.d.crew.blocks())?;
        // Directly behind the fold, which then stores to both; but one large piece is awaited on the other hosts.
        let wire_first = self.pieces == 1;
        if !wire_first {
            self.put_to_host(at, index)?;
        }
        self.d.meet(at.me)?;
        for peer in peers {
            let to = self.d.p.output(peer)?.chunk(index..=index)?;
            self.d.p.put_with_signal(self.results[&(at.me, peer)], to, result, SPEAKER)?;
        }
        if wire_first { self.put_to_host(at, index) } else { Ok(()) }
    }

    /// Folds a chunk of all ranks of the host.
    fn fold_locals(&mut self, at: At, index: u64, result: Chunk) -> Result<(), BuildError> {
        let locals = self.lanes.host(at.host);
        let inputs = locals.iter().map(|rank| self.d.p.input(*rank)?.chunk(index..=index));
        let inputs = inputs.collect::<Result<Vec<Chunk>, _>>()?;
        self.d.read_and_fold(at.me, &inputs, result)
    }

    /// Passes the results of the lane's other owners on to the host.
    fn pass_on(&mut self, at: At, piece: u32) -> Result<(), BuildError> {
        for peer in self.lane_peers(at) {
            self.d.p.wait(self.results[&(at.me, peer)], SPEAKER, DataSync::After)?;
        }
        self.d.meet(at.me)?;
        for host in self.lanes.others(at.host) {
            self.put_to_host(at, self.chunk(at.lane, host, piece))?;
        }
        Ok(())
    }

    fn put_to_host(&mut self, at: At, index: u64) -> Result<(), BuildError> {
        let from = self.d.p.output(at.me)?.chunk(index..=index)?;
        let mut parcels = Vec::new();
        for peer in self.lanes.near(at.me) {
            parcels.push(Parcel { to: self.d.p.output(peer)?.chunk(index..=index)?, from });
        }
        self.d.put_near(at.me, &parcels)
    }

    fn lane_peers(&self, at: At) -> Vec<u32> {
        self.lanes.others(at.host).map(|host| self.lanes.rank(host, at.lane)).collect()
    }

    /// The chunk of input and output that a host owns in a lane.
    fn chunk(&self, lane: u32, host: u32, piece: u32) -> u64 {
        let share = u64::from(lane) * u64::from(self.lanes.n_hosts()) + u64::from(host);
        share * u64::from(self.pieces) + u64::from(piece)
    }

    /// The place at a rank for what comes from, or goes to, another host.
    fn slot(&self, of: &[Buffer], rank: u32, other: u32, piece: u32) -> Result<Chunk, BuildError> {
        let (own, _) = self.lanes.place(rank);
        let number = if other < own { other } else { other - 1 };
        let slots = slots_of(self.ahead);
        let slot = u64::from(number) * u64::from(slots) + u64::from(piece % slots);
        of[rank as usize].chunk(slot..=slot)
    }
}

/// Before a rank sends piece k, it has waited for the results of piece k - 1 - 2 x ahead, at the other hosts, too.
fn slots_of(ahead: u32) -> u32 {
    2 * ahead + 1
}
