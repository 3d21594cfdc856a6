//! How long a plan takes on a machine, before it runs there: discrete-event execution of the plan itself.
//!
//! [`simulate`] runs every operation of every block in simulated time on a [`Machine`]: signals and packets fly, proxies
//! take requests, transfers share memory, interfaces and links max-min fairly. The answer says how long a launch
//! takes, what its end waited for, and how busy each link was. Equal questions have equal answers, bit by bit.
//!
//! ```
//! use warpway_plan::simulate::{Machine, Request, simulate};
//! use warpway_plan::{CollectiveShape, DataSync, Program, ProgramOptions};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // Rank 1 gets rank 0's input.
//! let mut p = Program::new(ProgramOptions::new("send", CollectiveShape::test(2, 1, 1)))?;
//! let (to, from) = (p.memory_channel(0, 1)?, p.memory_channel(1, 0)?);
//! p.put(to, p.output(1)?.whole(), p.input(0)?.whole(), 0)?;
//! p.signal(to, 0, DataSync::Before)?;
//! p.wait(from, 0, DataSync::After)?;
//! let plan = p.finish()?;
//!
//! let simulation = simulate(&plan, &Machine::plain(2), &Request { rounds: 1, ..Request::message(1 << 20) })?;
//! // The plain machine copies 10 bytes in a nanosecond; a few hundred nanoseconds are launch, signal and wait.
//! assert!((104_858.0..106_000.0).contains(&simulation.total_ns));
//! # Ok(())
//! # }
//! ```
//!
//! | file | question it answers |
//! |---|---|
//! | `machine/` | what a plan runs on; the topology file |
//! | `request.rs` | what is simulated |
//! | `program.rs` | what each block does, with all bytes worked out |
//! | `run/` | what happens when |
//! | `cost.rs`, `caches.rs` | how long a move takes, who holds which bytes |
//! | `flows.rs`, `hosts.rs` | what transfers share, and how much each gets |
//! | `packets.rs` | which packets are there |
//! | `result.rs`, `bound.rs` | the answer, and what it cannot be below |
//! | `recurrence.rs` | the same for worlds too large for a plan |
//! | `goal.rs` | the plan for LogGOPSim |

mod bound;
mod caches;
mod cost;
mod flows;
mod goal;
mod hosts;
mod machine;
mod packets;
mod program;
mod recurrence;
mod request;
mod result;
mod run;

use std::collections::{BTreeMap, BTreeSet};

pub use bound::Bound;
pub use goal::goal;
pub use machine::{
    Costs, HostKind, Machine, MachineError, MemoryLevel, Nic, SharedLink, Straggler, machine_schema,
};
pub use recurrence::{Moved, Order, Recurrence};
pub use request::{Request, Sizes};
pub use result::{Lane, Load, RankTime, Simulation, Span, SpanId, SpanKind};

use crate::ir::{BufferKind, Plan};
use crate::layout::LayoutError;
use crate::verify::OpPath;
use flows::Flows;
use hosts::Hosts;
use program::{BlockProgram, ChannelEnd, Kind, Program, Step};
use run::{Outcome, Run};

/// Why there is no simulation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SimulateError {
    /// The message does not fit the plan.
    #[error(transparent)]
    Layout(LayoutError),
    /// The machine is too small.
    #[error(
        "the topology has room for {room} ranks, the plan has {n_ranks}: name more hosts, or other numbers of ranks"
    )]
    Room {
        /// Of the plan.
        n_ranks: u32,
        /// On all hosts.
        room: u64,
    },
    /// An operation that does not fit the message or the plan.
    #[error("rank {rank}, block {block}, operation {path}: {why}")]
    Operation {
        /// Rank.
        rank: u32,
        /// Block of the rank.
        block: u32,
        /// Operation of the block.
        path: OpPath,
        /// What is wrong.
        why: String,
    },
    /// Loads and stores between ranks of different hosts.
    #[error(
        "rank {rank}, block {block}, operation {path}: `{name}` reaches the memory of rank {peer}, which is on another host; use port channels there"
    )]
    Reach {
        /// Rank.
        rank: u32,
        /// Block of the rank.
        block: u32,
        /// Operation of the block.
        path: OpPath,
        /// Its name.
        name: &'static str,
        /// The owner of the memory.
        peer: u32,
    },
    /// Ranks wait for ever.
    #[error("rank {rank} waits for ever in {lane:?} at `{what}` (verify the plan)")]
    Stuck {
        /// The first such rank.
        rank: u32,
        /// Which of its threads.
        lane: Lane,
        /// The operation.
        what: &'static str,
    },
}

/// Simulates launches of a plan that has been verified.
///
/// # Errors
/// A message that the plan does not take, a machine that does not fit it, a plan that does not end.
pub fn simulate(plan: &Plan, machine: &Machine, request: &Request<'_>) -> Result<Simulation, SimulateError> {
    let layout = request.layout(plan)?;
    let mut program = program::compile(plan, &layout)?;
    let outcome = run(plan, &mut program, machine, request)?;
    let mut simulation = summarize(&program, request, outcome);
    if request.record {
        let once = Request { rounds: 1, record: false, ..request.clone() };
        let mut total = |machine: &Machine| {
            let outcome = run(plan, &mut program, machine, &once)?;
            Ok(outcome.launches.iter().flatten().map(|(_, end)| *end).fold(0.0, f64::max))
        };
        simulation.bound.latency_ns = total(&bound::latencies_only(machine))?;
        simulation.bound.hops = total(&bound::hops_only(machine))?.round() as u32;
    }
    Ok(simulation)
}

/// Bytes of every rank's input and output for a message.
///
/// # Errors
/// A message that the plan does not take.
pub fn buffers(plan: &Plan, request: &Request<'_>) -> Result<Vec<[u64; 2]>, SimulateError> {
    let layout = request.layout(plan)?;
    let of = |rank| [BufferKind::Input, BufferKind::Output].map(|buffer| layout.buffer_bytes(rank, buffer));
    Ok((0..plan.n_ranks()).map(of).collect())
}

/// Bytes of data that a plan moves from rank to rank for a message; reading from a peer counts as sent by it.
///
/// # Errors
/// A message that the plan does not take.
pub fn moved(plan: &Plan, request: &Request<'_>) -> Result<BTreeMap<(u32, u32), u64>, SimulateError> {
    let program = program::compile(plan, &request.layout(plan)?)?;
    let mut moved = BTreeMap::new();
    for block in &program.blocks {
        for work in block.steps.iter().filter_map(|step| step.kind.work()) {
            let from = work.sources().iter().map(|source| (source.rank, block.rank));
            let to = work.destinations().iter().map(|destination| (block.rank, destination.rank));
            for pair in from.chain(to).filter(|(from, to)| from != to) {
                *moved.entry(pair).or_default() += work.bytes(None);
            }
        }
    }
    Ok(moved)
}

fn run(
    plan: &Plan,
    program: &mut Program,
    machine: &Machine,
    request: &Request<'_>,
) -> Result<Outcome, SimulateError> {
    let mut flows = Flows::default();
    let blocks: Vec<u32> = plan.ranks.iter().map(|rank| rank.blocks.len().max(1) as u32).collect();
    let hosts = Hosts::new(machine, request.ranks_per_host.as_deref(), &blocks, &mut flows)?;
    check_reach(program, &hosts)?;
    let own_ends = program.ends.len();
    let launchers = launchers(plan, program, machine, request);
    let semaphores = plan.ranks.iter().map(|rank| rank.semaphores.clone()).collect();
    let run =
        Run::new(machine, request, (program, &launchers), (hosts, flows), semaphores, plan.double_scratch);
    let outcome = run.finish();
    program.ends.truncate(own_ends);
    outcome
}

/// Loads and stores stay within a host.
fn check_reach(program: &Program, hosts: &Hosts) -> Result<(), SimulateError> {
    for block in &program.blocks {
        for step in &block.steps {
            let Kind::Move(work) = &step.kind else { continue };
            let far = work.operands.iter().find(|operand| !hosts.same_host(operand.rank, block.rank));
            if let Some(far) = far {
                let (rank, block, peer) = (block.rank, block.block, far.rank);
                return Err(SimulateError::Reach { rank, block, path: step.path, name: step.name, peer });
            }
        }
    }
    Ok(())
}

/// What each rank does around its blocks: see `run/`.
fn launchers(
    plan: &Plan,
    program: &mut Program,
    machine: &Machine,
    request: &Request<'_>,
) -> Vec<BlockProgram> {
    let n_ranks = plan.n_ranks();
    let path = OpPath { index: 0, inner: None };
    let step = |name, kind| Step { path, name, kind };
    let mut launchers: Vec<BlockProgram> =
        (0..n_ranks).map(|rank| BlockProgram { rank, block: 0, steps: Vec::new() }).collect();
    // Who touches whose input or output.
    let mut pairs: BTreeSet<(u32, u32)> = BTreeSet::new();
    for block in &program.blocks {
        for work in block.steps.iter().filter_map(|step| step.kind.work()) {
            let remote =
                work.operands.iter().filter(|o| o.rank != block.rank && o.buffer != BufferKind::Scratch);
            pairs.extend(remote.map(|operand| (operand.rank, block.rank)));
        }
    }
    let social: BTreeSet<u32> = program.ends.iter().map(|end| end.owner).collect();
    let shakes: BTreeSet<u32> = pairs.iter().flat_map(|(owner, user)| [*owner, *user]).collect();
    if request.repairs.start_handshake {
        let channels = program.ends.iter().map(|end| (end.peer, end.owner));
        pairs.extend(channels.filter(|(owner, user)| owner != user));
    }
    let everybody =
        |rank: u32| (0..n_ranks).filter(move |other| *other != rank).map(move |other| (other, rank));
    let closing: Vec<(u32, u32)> = match request.repairs.closing_handshake {
        true => (0..n_ranks).flat_map(everybody).collect(),
        false => Vec::new(),
    };
    for rank in 0..n_ranks {
        let blocks = plan.ranks[rank as usize].blocks.len();
        let mut launch = machine.costs.launch_ns;
        if social.contains(&rank) {
            launch += machine.costs.announce_ns;
        }
        launch += machine.straggler(rank).map_or(0.0, |straggler| straggler.start_ns / straggler.slow_down);
        if blocks > 1 {
            launch += machine.costs.blocks_ns;
        }
        launchers[rank as usize].steps.push(step("launch", Kind::Delay(launch)));
    }
    let mut tell = |launchers: &mut Vec<BlockProgram>, pairs: &[(u32, u32)], names: [&'static str; 2]| {
        let mut hear = Vec::new();
        for (from, to) in pairs {
            let end = program.ends.len() as u32;
            // Two ends: the first announces, the second hears.
            program.ends.push(ChannelEnd { owner: *from, peer: *to, partner: end + 1 });
            program.ends.push(ChannelEnd { owner: *to, peer: *from, partner: end });
            launchers[*from as usize].steps.push(step(names[0], Kind::Announce(end)));
            hear.push((*to, end + 1));
        }
        for (rank, end) in hear {
            launchers[rank as usize].steps.push(step(names[1], Kind::Hear(end)));
        }
    };
    let opening: Vec<(u32, u32)> = pairs.into_iter().collect();
    tell(&mut launchers, &opening, ["announce", "hear"]);
    for rank in 0..n_ranks {
        let steps = &mut launchers[rank as usize].steps;
        if shakes.contains(&rank) {
            steps.push(step("handshake", Kind::Delay(machine.costs.handshake_ns)));
        }
        steps.push(step("blocks", Kind::Blocks));
    }
    tell(&mut launchers, &closing, ["end", "hear end"]);
    launchers
}

fn summarize(program: &Program, request: &Request<'_>, outcome: Outcome) -> Simulation {
    let Outcome { mut spans, launches, flows, hosts, alone } = outcome;
    let last = launches.iter().filter_map(|rounds| rounds.last().copied());
    let ends = |round: usize| {
        launches.iter().filter_map(|rounds| rounds.get(round)).map(|(_, end)| *end).fold(0.0, f64::max)
    };
    let start = last.clone().map(|(start, _)| start).fold(f64::INFINITY, f64::min);
    let start = if start.is_finite() { start } else { 0.0 };
    let rounds = request.rounds.max(1) as usize;
    let end = ends(rounds - 1);
    // Over the last half of the launches: plans that alternate between halves alternate in time, too.
    let first = rounds - rounds.div_ceil(2);
    let total_ns = match first {
        0 => end,
        first => (end - ends(first - 1)) / (rounds - first) as f64,
    };
    for span in &mut spans {
        span.start -= start;
        span.ready -= start;
        span.end -= start;
    }
    let mut ranks: Vec<RankTime> = last
        .map(|(begin, end)| RankTime {
            start_ns: begin - start,
            end_ns: end - start,
            busy_ns: 0.0,
            waiting_ns: 0.0,
        })
        .collect();
    for span in spans.iter().filter(|span| matches!(span.lane, Lane::Block(_))) {
        if let Some(rank) = ranks.get_mut(span.rank as usize) {
            rank.waiting_ns += span.waited();
            rank.busy_ns += span.end - span.start - span.waited();
        }
    }
    let mut loads: Vec<Load> = hosts
        .resources()
        .into_iter()
        .map(|(name, resource, counts_bytes)| {
            let (busy, used) = flows.load(resource, end);
            Load { name, bytes: counts_bytes.then_some(used / rounds as f64), busy }
        })
        .collect();
    loads.sort_by(|a, b| b.busy.total_cmp(&a.busy));
    let mut bound = Bound::default();
    if let Some(busiest) = loads.first() {
        (bound.busiest_ns, bound.busiest) = (busiest.busy * end / rounds as f64, busiest.name.clone());
    }
    for (block, alone) in program.blocks.iter().zip(&alone) {
        let alone = alone / rounds as f64;
        if alone > bound.busiest_ns {
            (bound.busiest_ns, bound.busiest) =
                (alone, format!("block {} of rank {}", block.block, block.rank));
        }
    }
    Simulation {
        total_ns,
        bound,
        ranks,
        host_of: (0..launches.len() as u32).map(|rank| hosts.host_of(rank) as u32).collect(),
        loads,
        critical_path: result::critical_path(&spans),
        spans,
    }
}
