//! What running a plan costs against the same algorithm written by hand on channels: two ranks, threads of one
//! process, medians of launches that take turns. Before they are timed, both must give the exact result.
//!
//! ```text
//! cargo run --release -p warpway --example plan_against_kernel -- ../shared/plans [bytes [plan...]]
//! ```

mod kernels;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use warpway::plan::verify::{Options, VerifiedPlan};
use warpway::plan::{Collective, Plan};
use warpway::{Buffer, Communicator, Config, Context, DataType, PlanLaunch, Result, in_process};

use kernels::SetUp;

const ROUNDS: usize = 400;
/// Chunks of every plan are whole packets for multiples of this.
const UNIT: u64 = 256;

/// The plans, and who does the same by hand.
const CONTESTS: [(&str, SetUp); 5] = [
    ("transfer_pack", kernels::transfer_pack),
    ("reduce", kernels::reduce),
    ("allreduce_packet", kernels::allreduce_packet),
    ("reduce_pack_tbg", kernels::reduce_pack_tbg),
    ("reduce_nvls", kernels::reduce_nvls),
];

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let folder = PathBuf::from(arguments.next().context("the folder with the plans")?);
    let bytes: u64 = arguments.next().map_or(Ok(1 << 20), |text| text.parse())?;
    ensure!(bytes > 0 && bytes.is_multiple_of(UNIT), "{bytes} bytes: not a multiple of {UNIT}");
    let chosen: Vec<String> = arguments.collect();
    println!(
        "{:<16} {:>10} {:>10} {:>6} {:>10}   {bytes} bytes, median of {ROUNDS} launches",
        "plan", "plan", "by hand", "ratio", "difference"
    );
    for (name, set_up) in CONTESTS {
        if !chosen.is_empty() && !chosen.iter().any(|one| one == name) {
            continue;
        }
        let file = folder.join(name).with_extension("json");
        let plan = Plan::from_json(&std::fs::read(&file).with_context(|| file.display().to_string())?)?.plan;
        let plan = VerifiedPlan::new(plan, &Options::default())?;
        let context = Context::new(Config::default());
        let figures = in_process(2, &context, |comm| contest(comm, &plan, set_up, bytes))?;
        let Figures { plan, by_hand, wrong } = figures[0];
        ensure!(figures.iter().all(|rank| rank.wrong == 0), "{name}: {wrong} elements of rank 0 are wrong");
        let microseconds = |time: Duration| time.as_secs_f64() * 1e6;
        let (plan, by_hand) = (microseconds(plan), microseconds(by_hand));
        let (ratio, difference) = (plan / by_hand, plan - by_hand);
        println!("{name:<16} {plan:>8.2}µs {by_hand:>8.2}µs {ratio:>6.2} {difference:>8.2}µs");
    }
    Ok(())
}

#[derive(Debug, Clone, Copy)]
struct Figures {
    plan: Duration,
    by_hand: Duration,
    wrong: usize,
}

fn contest(comm: &Communicator, plan: &VerifiedPlan, set_up: SetUp, bytes: u64) -> Result<Figures> {
    let data = comm.alloc::<f32>(bytes / 4)?;
    let gathers = plan.plan().collective == Collective::AllGather;
    let prepared = comm.prepare(plan)?;
    let input = match gathers {
        true => data.view_of(u64::from(comm.rank()) * bytes / 8, bytes / 8),
        false => data.view(),
    };
    let launch = PlanLaunch::new(input, data.view(), DataType::Float32);
    let kernel = set_up(comm, data.memory())?;
    let (plan, by_hand) = (|| prepared.run(&launch), || kernel.run(comm));
    // More than the two halves of a scratch area.
    let mut wrong = 0;
    for round in 0..5 {
        wrong += check(comm, &data, gathers, round, &plan)?;
        wrong += check(comm, &data, gathers, round, &by_hand)?;
    }
    data.fill(0.0)?;
    let (plan, by_hand) = compare(comm, &plan, &by_hand)?;
    Ok(Figures { plan, by_hand, wrong })
}

/// Elements that one run gets wrong.
fn check(
    comm: &Communicator,
    data: &Buffer<f32>,
    gathers: bool,
    round: u64,
    run: &dyn Fn() -> Result<()>,
) -> Result<usize> {
    let (own, len) = (u64::from(comm.rank()), data.len());
    // Small integers: sums are exact.
    let value = |rank: u64, at: u64| ((at * 7 + rank * 331 + round * 57) % 1009) as f32;
    let owner = |at: u64| at / (len / 2);
    let start = |at| if gathers && owner(at) != own { f32::NAN } else { value(own, at) };
    let end = |at| if gathers { value(owner(at), at) } else { value(0, at) + value(1, at) };
    data.write(0, &(0..len).map(start).collect::<Vec<f32>>())?;
    comm.barrier()?;
    run()?;
    let wrong = (0..).zip(data.to_vec()?).filter(|(at, found)| *found != end(*at)).count();
    comm.barrier()?;
    Ok(wrong)
}

/// Medians of two ways to do the same, in turn.
fn compare(
    comm: &Communicator,
    plan: &dyn Fn() -> Result<()>,
    by_hand: &dyn Fn() -> Result<()>,
) -> Result<(Duration, Duration)> {
    let barrier = comm.make_barrier()?;
    let time = |run: &dyn Fn() -> Result<()>| -> Result<Duration> {
        barrier.wait()?;
        let start = Instant::now();
        run()?;
        Ok(start.elapsed())
    };
    let (mut plans, mut hands) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        plans.push(time(plan)?);
        hands.push(time(by_hand)?);
    }
    plans.sort_unstable();
    hands.sort_unstable();
    comm.barrier()?;
    Ok((plans[ROUNDS / 2], hands[ROUNDS / 2]))
}
