//! Recursive doubling: in step k a rank and the one whose number differs in bit k give each other what they have folded so
//! far, so log2 n steps do. Where n is no power of two, the surplus ranks hand in their inputs first and get the result last.
//!
//! One rounding per step. Both partners fold the same two values, so all ranks have the same bits.

use warpway_plan::{Buffer, BuildError, Chunk, CollectiveShape, Plan, Reduction};

use crate::algorithm::{Algorithm, Traits};
use crate::catalogue::draft::{Draft, Parcel};
use crate::catalogue::fits;
use crate::task::{Function, Task};

pub(super) const ALGORITHMS: &[Algorithm] = &[
    Algorithm {
        name: "recursive_doubling",
        function: Function::AllReduce,
        summary: "partners exchange what they have folded, in log2 n steps",
        traits: Traits { packets: false, zero_copy: false, hierarchical: false },
        fits: fits::always,
        build: raw,
    },
    Algorithm {
        name: "recursive_doubling_packets",
        function: Function::AllReduce,
        summary: "partners exchange what they have folded as packets, in log2 n steps",
        traits: Traits { packets: true, zero_copy: false, hierarchical: false },
        fits: fits::one_host,
        build: packets,
    },
];

/// Who meets whom among n ranks.
#[derive(Clone, Copy)]
struct Meetings {
    steps: u32,
    surplus: u32,
}

/// What a rank does.
enum Role {
    /// Hands its input to a neighbour and gets the result from there.
    Surplus { helper: u32 },
    /// Takes part in all steps, perhaps for a neighbour, too.
    Member { number: u32, helps: Option<u32> },
}

impl Meetings {
    fn new(n: u32) -> Self {
        let steps = n.max(1).ilog2();
        Self { steps, surplus: n - (1 << steps) }
    }

    /// Of the first 2 x surplus ranks, every even one takes part for itself and the next.
    fn role(self, rank: u32) -> Role {
        if rank >= 2 * self.surplus {
            return Role::Member { number: rank - self.surplus, helps: None };
        }
        match rank % 2 {
            0 => Role::Member { number: rank / 2, helps: Some(rank + 1) },
            _ => Role::Surplus { helper: rank - 1 },
        }
    }

    fn partner(self, number: u32, step: u32) -> u32 {
        let partner = number ^ (1 << step);
        if partner < self.surplus { 2 * partner } else { partner + self.surplus }
    }

    /// Places for what comes: the neighbour's input, then one a step.
    fn places(self, d: &mut Draft<'_>) -> Result<Vec<Buffer>, BuildError> {
        (0..d.n()).map(|rank| d.p.scratch(rank, u64::from(self.steps) + 1)).collect()
    }
}

/// Place `number` of a rank.
fn place(of: &[Buffer], rank: u32, number: u32) -> Result<Chunk, BuildError> {
    of[rank as usize].chunk(u64::from(number)..u64::from(number) + 1)
}

fn packets(task: &Task) -> Result<Plan, BuildError> {
    let n = task.world.n_ranks();
    let shape = CollectiveShape::all_reduce_of(n, 1);
    let mut d = Draft::packets(task, "all_reduce_recursive_doubling_packets", shape)?;
    let meetings = Meetings::new(n);
    let arrived = meetings.places(&mut d)?;
    for me in 0..n {
        let (input, output) = (d.p.input(me)?.whole(), d.p.output(me)?.whole());
        let (number, helps) = match meetings.role(me) {
            Role::Surplus { helper } => {
                d.send_packets(me, place(&arrived, helper, 0)?, input)?;
                d.p.unpack_packets(output, place(&arrived, me, 0)?, d.crew.blocks())?;
                continue;
            }
            Role::Member { number, helps } => (number, helps),
        };
        let mut sum = input;
        if helps.is_some() {
            let theirs = [place(&arrived, me, 0)?];
            let fold = Reduction::of(sum, &theirs).into(output).with(task.reduce_op);
            d.p.reduce_packets(fold, d.crew.blocks())?;
            sum = output;
        }
        for step in 0..meetings.steps {
            let partner = meetings.partner(number, step);
            d.send_packets(me, place(&arrived, partner, step + 1)?, sum)?;
            let theirs = [place(&arrived, me, step + 1)?];
            let fold = Reduction::of(sum, &theirs).into(output).ordered(order(me, partner));
            d.p.reduce_packets(fold.with(task.reduce_op), d.crew.blocks())?;
            sum = output;
        }
        if let Some(neighbour) = helps {
            d.send_packets(me, place(&arrived, neighbour, 0)?, sum)?;
        } else if meetings.steps == 0 {
            d.copy_own(output, input)?;
        }
    }
    d.finish()
}

/// What is sent stays where it is until the wire has read it. A place is written again two launches later, when
/// the partner is known to have gone on, because it has sent something in the launch between.
fn raw(task: &Task) -> Result<Plan, BuildError> {
    let n = task.world.n_ranks();
    let shape = CollectiveShape::all_reduce_of(n, 1);
    let mut d = Draft::alternating(task, "all_reduce_recursive_doubling", shape)?;
    let meetings = Meetings::new(n);
    let (arrived, folded) = (meetings.places(&mut d)?, meetings.places(&mut d)?);
    for me in 0..n {
        let (input, output) = (d.p.input(me)?.whole(), d.p.output(me)?.whole());
        let (number, helps) = match meetings.role(me) {
            Role::Surplus { helper } => {
                d.deliver(me, &[Parcel { to: place(&arrived, helper, 0)?, from: input }])?;
                d.expect(me, &[helper])?;
                d.settle(me, &[helper])?;
                d.p.copy(output, place(&arrived, me, 0)?, d.crew.blocks())?;
                continue;
            }
            Role::Member { number, helps } => (number, helps),
        };
        let mut sum = input;
        if let Some(neighbour) = helps {
            d.expect(me, &[neighbour])?;
            let (theirs, to) = ([place(&arrived, me, 0)?], place(&folded, me, 0)?);
            let fold = Reduction::of(sum, &theirs).into(to).with(task.reduce_op);
            d.p.reduce(fold, d.crew.blocks())?;
            sum = to;
        }
        for step in 0..meetings.steps {
            let partner = meetings.partner(number, step);
            d.deliver(me, &[Parcel { to: place(&arrived, partner, step + 1)?, from: sum }])?;
            d.expect(me, &[partner])?;
            let is_last = step + 1 == meetings.steps && (helps.is_none());
            let to = if is_last { output } else { place(&folded, me, step + 1)? };
            if is_last {
                settle_all(&mut d, me)?;
            }
            let theirs = [place(&arrived, me, step + 1)?];
            let fold = Reduction::of(sum, &theirs).into(to).ordered(order(me, partner)).with(task.reduce_op);
            d.p.reduce(fold, d.crew.blocks())?;
            sum = to;
        }
        if let Some(neighbour) = helps {
            d.deliver(me, &[Parcel { to: place(&arrived, neighbour, 0)?, from: sum }])?;
            settle_all(&mut d, me)?;
            d.p.copy(output, sum, d.crew.blocks())?;
        } else if meetings.steps == 0 {
            d.copy_own(output, input)?;
        }
    }
    d.finish()
}

/// Before the output is written, which in place is what the first step has sent.
fn settle_all(d: &mut Draft<'_>, me: u32) -> Result<(), BuildError> {
    let peers = d.peers(me);
    d.settle_used(me, &peers)?;
    d.meet(me)
}

/// In rank order: 0 is the own value, 1 the partner's.
fn order(me: u32, partner: u32) -> &'static [u32] {
    if me < partner { &[0, 1] } else { &[1, 0] }
}
