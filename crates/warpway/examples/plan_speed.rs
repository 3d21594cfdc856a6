//! What launches of plans cost between processes: each line is one plan and one size of message.
//!
//! ```text
//! warpway launch -n 2 -- target/release/examples/plan_speed all_reduce_packets,all_reduce_two_shot 8,1024,1048576
//! ```
//!
//! Times are means of batches of launches that follow each other without a pause; the median and the least of the
//! batches are printed. `exchange` is the floor of packets: the same bytes to one peer and from it, without a launch.
//! Before it is timed, every plan must give the exact result, in buffers that are filled anew.

use std::time::Instant;

use anyhow::{Context as _, bail, ensure};
use warpway::plan::verify::{Options, VerifiedPlan};
use warpway::plan::{Collective, Plan, testing};
use warpway::{BufferView, Communicator, DataType, Ll16, PlanLaunch, Result, Share};

const BATCHES: usize = 101;

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [plans, sizes, options @ ..] = &arguments[..] else {
        bail!("usage: plan_speed PLAN[,PLAN...] BYTES[,BYTES...] [slices]");
    };
    let slices = options.iter().any(|option| option == "slices");
    let comm = Communicator::from_env()?;
    for name in plans.split(',') {
        for bytes in sizes.split(',') {
            let bytes: u64 = bytes.parse().context("bytes")?;
            let times = match name {
                "exchange" => exchange(&comm, bytes)?,
                name => launches(&comm, &plan(name, comm.n_ranks())?, bytes, slices)?,
            };
            if comm.rank() == 0 {
                let (median, least) = (times[times.len() / 2], times[0]);
                let rate = bytes as f64 / median / 1e3;
                println!(
                    "{name:<22} {bytes:>10} bytes {median:>11.3} µs (least {least:.3}) {rate:>8.2} GB/s"
                );
            }
        }
    }
    comm.barrier()?;
    Ok(())
}

fn plan(name: &str, n: u32) -> anyhow::Result<VerifiedPlan> {
    let plan = match name {
        "all_reduce_packets" => testing::all_reduce_packets(n)?,
        "all_reduce_two_shot" => testing::all_reduce_two_shot(n)?,
        "all_gather_put" => testing::all_gather_put(n)?,
        "all_to_all" => testing::all_to_all(n, 1)?,
        "broadcast" => testing::broadcast(n, 0)?,
        file => Plan::from_json(&std::fs::read(file).with_context(|| file.to_owned())?)?.plan,
    };
    Ok(VerifiedPlan::new(plan, &Options::default())?)
}

/// Microseconds per launch, ascending. `bytes` are those of the larger buffer.
fn launches(comm: &Communicator, plan: &VerifiedPlan, bytes: u64, slices: bool) -> anyhow::Result<Vec<f64>> {
    let (rank, n) = (u64::from(comm.rank()), u64::from(comm.n_ranks()));
    let (collective, in_place) = (plan.plan().collective, plan.plan().in_place);
    let elements = bytes / 4;
    let part = elements / n;
    let [inputs, outputs] = match collective {
        Collective::AllGather => [part, elements],
        Collective::ReduceScatter => [elements, part],
        _ => [elements, elements],
    };
    let prepared = comm.prepare(plan)?;
    let value = |rank: u64, at: u64| ((at * 7 + rank * 331) % 1009) as f32;
    let start: Vec<f32> = (0..inputs).map(|at| value(rank, at)).collect();
    let expected = |at: u64| match collective {
        Collective::AllReduce => (0..n).map(|rank| value(rank, at)).sum(),
        Collective::AllGather => value(at / part, at % part),
        Collective::AllToAll => value(at / part, rank * part + at % part),
        Collective::Broadcast => value(0, at),
        _ => f32::NAN,
    };
    let is_right = |found: &[f32]| (0..).zip(found).all(|(at, found)| *found == expected(at));
    if slices {
        let (mut input, mut output) = (start, vec![f32::NAN; outputs as usize]);
        prepared.run(&slice_launch(&mut input, &mut output, in_place))?;
        ensure!(is_right(if in_place { &input } else { &output }), "wrong result");
        return Ok(time(comm, bytes, || prepared.run(&slice_launch(&mut input, &mut output, in_place)))?);
    }
    let (input, output) = (comm.alloc::<f32>(inputs)?, comm.alloc::<f32>(outputs)?);
    input.write(0, &start)?;
    output.fill(f32::NAN)?;
    let result = if in_place { &input } else { &output };
    let launch = PlanLaunch::new(input.view(), result.view(), DataType::Float32);
    prepared.run(&launch)?;
    ensure!(is_right(&result.to_vec()?), "wrong result");
    if in_place {
        // Sums grow without end; these do not.
        comm.barrier()?;
        input.fill(0.0)?;
        comm.barrier()?;
    }
    Ok(time(comm, bytes, || prepared.run(&launch))?)
}

fn slice_launch<'a>(input: &'a mut [f32], output: &'a mut [f32], in_place: bool) -> PlanLaunch<'a> {
    if in_place {
        let view = BufferView::from(input);
        return PlanLaunch::new(view, view, DataType::Float32);
    }
    PlanLaunch::new(&*input, output, DataType::Float32)
}

fn exchange(comm: &Communicator, bytes: u64) -> Result<Vec<f64>> {
    let peer = comm.connect(comm.rank() ^ 1)?;
    let (data, inbox) = (comm.alloc::<u8>(bytes)?, comm.alloc::<u8>(4 * bytes)?);
    let far = peer.exchange_memory(&inbox)?;
    let channel = comm.block_channel(&peer.packet_channel(&data, &far, &inbox)?)?;
    let mut flag = 0u32;
    time(comm, bytes, || {
        flag += 1;
        let half = u64::from(flag % 2) * 2 * bytes;
        channel.put_packets::<Ll16>(half, 0, bytes, Share::ALL, flag)?;
        channel.unpack_packets::<Ll16>(half, 0, bytes, Share::ALL, flag)
    })
}

/// Microseconds per call, ascending.
fn time(comm: &Communicator, bytes: u64, mut run: impl FnMut() -> Result<()>) -> Result<Vec<f64>> {
    let barrier = comm.make_barrier()?;
    let iterations = ((1 << 26) / bytes.max(1 << 14)).max(1);
    let batches = if bytes >= 1 << 24 { BATCHES / 10 } else { BATCHES };
    let mut times = Vec::new();
    // The first one warms up.
    for _ in 0..=batches {
        barrier.wait()?;
        let start = Instant::now();
        for _ in 0..iterations {
            run()?;
        }
        times.push(start.elapsed().as_secs_f64() * 1e6 / iterations as f64);
    }
    times.remove(0);
    times.sort_unstable_by(f64::total_cmp);
    Ok(times)
}
