//! Tutorial 6: an all-reduce as a plan: described, proven before it runs, run on ranks of any kind.
//!
//! `warpway launch -n 4 -- target/release/examples/all_reduce_plan`; docs/tutorials/06-plans.md explains it.

use anyhow::{bail, ensure};
use warpway::plan::verify::{Options, VerifiedPlan, verify};
use warpway::plan::{
    BuildError, CollectiveShape, DataSync, MemoryChannel, Plan, Program, ProgramOptions, Reduction, Style,
};
use warpway::{Communicator, Config, Context, DataType, PlanLaunch, Result, in_process};

/// Elements; not a multiple of anything.
const LEN: u64 = 4095;
const ROUNDS: u32 = 5;

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        // Ranks that are processes.
        [] => {
            let comm = Communicator::from_env()?;
            let plan = VerifiedPlan::new(all_reduce(comm.n_ranks(), Forgotten::Nothing)?, &Options::default())?;
            report(&comm, run(&comm, &plan)?);
            comm.barrier()?;
        }
        // Ranks that are threads of this process.
        ["threads"] => {
            let plan = VerifiedPlan::new(all_reduce(4, Forgotten::Nothing)?, &Options::default())?;
            let context = Context::new(Config::default());
            let wrong = in_process(4, &context, |comm| run(comm, &plan))?;
            println!("4 threads: {ROUNDS} all-reduces of {LEN} numbers, wrong by rank: {wrong:?}");
        }
        ["json"] => println!("{}", all_reduce(4, Forgotten::Nothing)?.to_json_with_locations(Style::Pretty)),
        ["verify", word] => {
            let plan = all_reduce(4, forgotten(word)?)?;
            print!("{}", verify(&plan, &Options::default()).display(Some(&plan)));
        }
        ["refused"] => {
            let plan = VerifiedPlan::new(all_reduce(4, Forgotten::Nop)?, &Options::default())?;
            unreachable!("{:?} has been accepted", plan.plan().name);
        }
        _ => bail!("usage: all_reduce_plan [threads|json|verify nothing|nop|opening|closing|wait|refused]"),
    }
    Ok(())
}

/// What a program lacks, to see what becomes of it.
#[derive(Clone, Copy, PartialEq)]
enum Forgotten {
    Nothing,
    Nop,
    Opening,
    Closing,
    Wait,
}

fn forgotten(word: &str) -> anyhow::Result<Forgotten> {
    use Forgotten::{Closing, Nop, Nothing, Opening, Wait};
    let words = [("nothing", Nothing), ("nop", Nop), ("opening", Opening), ("closing", Closing), ("wait", Wait)];
    let found = words.iter().find(|(name, _)| *name == word);
    ensure!(found.is_some(), "{word}: nothing that can be forgotten");
    Ok(found.map_or(Nothing, |(_, forgotten)| *forgotten))
}

/// In place: rank r sums the r-th chunk of all ranks, and puts the sum into the r-th chunk of all ranks.
fn all_reduce(n_ranks: u32, forgotten: Forgotten) -> Result<Plan, BuildError> {
    let shape = CollectiveShape::all_reduce(n_ranks, 1).in_place();
    let mut p = Program::new(ProgramOptions::new("all_reduce", shape))?;
    for me in 0..n_ranks {
        let chunk = |of: u32| p.input(of)?.chunk(u64::from(me)..=u64::from(me));
        let chunks = (0..n_ranks).map(chunk).collect::<Result<Vec<_>, _>>()?;
        let mine = chunks[me as usize];
        let mut peers: Vec<(MemoryChannel, _)> = Vec::new();
        for peer in (0..n_ranks).filter(|peer| *peer != me) {
            peers.push((p.memory_channel(me, peer)?, chunks[peer as usize]));
        }
        // All have begun, so their numbers are there.
        if forgotten != Forgotten::Opening {
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
        // My chunk is in place everywhere; then all of them are here.
        let done = if forgotten == Forgotten::Nop { DataSync::None } else { DataSync::Before };
        for (channel, _) in &peers {
            p.signal(*channel, 0, done)?;
        }
        if forgotten != Forgotten::Wait {
            for (channel, _) in &peers {
                p.wait(*channel, 0, DataSync::After)?;
            }
        }
    }
    p.finish()
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

fn report(comm: &Communicator, wrong: usize) {
    let (rank, n_ranks) = (comm.rank(), comm.n_ranks());
    println!("rank {rank}: {ROUNDS} all-reduces of {LEN} numbers over {n_ranks} ranks, {wrong} wrong");
}

/// Other numbers for each rank and round.
fn input(rank: u32, round: u32) -> Vec<i32> {
    (0..LEN as i32).map(|i| i.wrapping_mul(0x9e37_79b1_u32 as i32) ^ (round << 8 | rank) as i32).collect()
}
