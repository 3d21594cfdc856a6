//! Tutorial 6: an all-reduce as a plan: described, proven before it runs, run on ranks of any kind.
//!
//! `warpway launch -n 4 -- target/release/examples/all_reduce_plan`; docs/tutorials/06-plans.md explains it.

use anyhow::bail;
use warpway::plan::verify::{Options, VerifiedPlan, verify};
use warpway::plan::{
    BuildError, Chunk, CollectiveShape, DataSync, MemoryChannel, Plan, Program, ProgramOptions, Reduction,
    Style,
};
use warpway::{Communicator, Config, Context, DataType, PlanLaunch, Result, in_process};

/// Elements; not a multiple of anything.
const LEN: u64 = 4095;
const ROUNDS: u32 = 5;

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        [] => as_processes()?,
        ["threads"] => as_threads(Mistake::None)?,
        ["threads", mistake] => as_threads(Mistake::named(mistake)?)?,
        ["json", mistake] => {
            let plan = all_reduce(4, Mistake::named(mistake)?)?;
            println!("{}", plan.to_json_with_locations(Style::Pretty));
        }
        ["verify", mistake] => {
            let plan = all_reduce(4, Mistake::named(mistake)?)?;
            let report = verify(&plan, &Options::default());
            print!("{}", report.display(Some(&plan)));
        }
        _ => bail!("usage: all_reduce_plan [[threads|json|verify] none|nop|order|opening|wait]"),
    }
    Ok(())
}

/// One of the ranks that a launcher has started.
fn as_processes() -> anyhow::Result<()> {
    let comm = Communicator::from_env()?;
    let plan = VerifiedPlan::new(all_reduce(comm.n_ranks(), Mistake::None)?, &Options::default())?;
    let wrong = run(&comm, &plan)?;
    println!("rank {}: {ROUNDS} all-reduces of {LEN} numbers, {wrong} wrong", comm.rank());
    comm.barrier()?;
    Ok(())
}

/// Four ranks that are threads of this process.
fn as_threads(mistake: Mistake) -> anyhow::Result<()> {
    let plan = VerifiedPlan::new(all_reduce(4, mistake)?, &Options::default())?;
    let context = Context::new(Config::default());
    let wrong = in_process(4, &context, |comm| run(comm, &plan))?;
    println!("4 threads: {ROUNDS} all-reduces of {LEN} numbers, {wrong:?} wrong");
    Ok(())
}

/// What the author gets wrong, to see what becomes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mistake {
    None,
    /// No nop between the puts and the signals that announce them.
    Nop,
    /// In the end every rank waits before it signals.
    Order,
    /// No opening signals and waits.
    Opening,
    /// No closing waits.
    Wait,
}

impl Mistake {
    fn named(word: &str) -> anyhow::Result<Self> {
        Ok(match word {
            "none" => Self::None,
            "nop" => Self::Nop,
            "order" => Self::Order,
            "opening" => Self::Opening,
            "wait" => Self::Wait,
            _ => bail!("{word}: not a mistake of this program"),
        })
    }
}

/// In place: rank r sums the r-th chunk of all ranks, and puts the sum into the r-th chunk of all ranks.
fn all_reduce(n_ranks: u32, mistake: Mistake) -> Result<Plan, BuildError> {
    let shape = CollectiveShape::all_reduce(n_ranks, 1).in_place();
    let mut p = Program::new(ProgramOptions::new("all_reduce", shape))?;
    for me in 0..n_ranks {
        // The chunk that is mine to sum, of every rank.
        let chunk = |of: u32| p.input(of)?.chunk(u64::from(me)..=u64::from(me));
        let chunks = (0..n_ranks).map(chunk).collect::<Result<Vec<_>, _>>()?;
        let mine = chunks[me as usize];
        let mut peers = Vec::new();
        for peer in (0..n_ranks).filter(|peer| *peer != me) {
            peers.push((p.memory_channel(me, peer)?, chunks[peer as usize]));
        }

        if mistake != Mistake::Opening {
            // All have begun, so their numbers are there. This orders no data: relaxed.
            for (channel, _) in &peers {
                p.signal_relaxed(*channel, 0, DataSync::None)?;
            }
            for (channel, _) in &peers {
                p.wait_relaxed(*channel, 0, DataSync::After)?;
            }
        }
        for (channel, theirs) in &peers {
            p.read_reduce(*channel, Reduction::of(mine, &[*theirs]), 0)?;
        }
        for (channel, theirs) in &peers {
            p.put(*channel, *theirs, mine, 0)?;
        }
        if mistake == Mistake::Order {
            wait_for_all(&mut p, &peers)?;
        }
        // My sum is everywhere: behind a nop, so that all threads have put their part of it.
        let behind = if mistake == Mistake::Nop { DataSync::None } else { DataSync::Before };
        for (channel, _) in &peers {
            p.signal(*channel, 0, behind)?;
        }
        // Their sums are here.
        if !matches!(mistake, Mistake::Order | Mistake::Wait) {
            wait_for_all(&mut p, &peers)?;
        }
    }
    p.finish()
}

/// The operations belong to the line that calls this.
#[track_caller]
fn wait_for_all(p: &mut Program, peers: &[(MemoryChannel, Chunk)]) -> Result<(), BuildError> {
    for (channel, _) in peers {
        p.wait(*channel, 0, DataSync::After)?;
    }
    Ok(())
}

/// Sets the plan up once and launches it several times; how many numbers were wrong.
fn run(comm: &Communicator, plan: &VerifiedPlan) -> Result<usize> {
    let all_reduce = comm.prepare(plan)?;
    let data = comm.alloc::<i32>(LEN)?;
    let mut wrong = 0;
    for round in 0..ROUNDS {
        data.write(0, &input(comm.rank(), round))?;
        all_reduce.run(&PlanLaunch::new(data.view(), data.view(), DataType::Int32))?;
        let inputs: Vec<_> = (0..comm.n_ranks()).map(|rank| input(rank, round)).collect();
        let sum = |at: usize| inputs.iter().fold(0, |sum: i32, input| sum.wrapping_add(input[at]));
        wrong += data.to_vec()?.iter().enumerate().filter(|(at, found)| **found != sum(*at)).count();
    }
    Ok(wrong)
}

/// Other numbers for each rank and round.
fn input(rank: u32, round: u32) -> Vec<i32> {
    (0..LEN as i32).map(|i| i.wrapping_mul(0x9e37_79b1_u32 as i32) ^ (round << 8 | rank) as i32).collect()
}
