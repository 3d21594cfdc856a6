//! What running a plan costs against the same algorithm written by hand on channels: two ranks, threads of one
//! process, medians of launches that take turns.
//!
//! ```text
//! cargo run --release -p warpway --example plan_against_kernel -- ../shared/plans [bytes]
//! ```

use std::path::PathBuf;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use warpway::plan::{Plan, ReduceOp, Repairs};
use warpway::{
    Block, BlockChannel, Buffer, Communicator, Config, Context, DataType, Ll16, PlanLaunch, Result, Share,
    in_process,
};
use warpway_host::{FoldKernel, FoldSource};

const ROUNDS: usize = 400;
const DATA: DataType = DataType::Float32;

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let folder = PathBuf::from(arguments.next().context("the folder with the plans")?);
    let bytes: u64 = arguments.next().map_or(Ok(1 << 20), |text| text.parse())?;
    let read = |name: &str| -> anyhow::Result<Plan> {
        Ok(Plan::from_json(&std::fs::read(folder.join(name)).context(name.to_owned())?)?.plan)
    };
    let (pack, reduce) = (read("transfer_pack.json")?, read("reduce.json")?);
    println!(
        "{:<16} {:>10} {:>10} {:>6}   {bytes} bytes, median of {ROUNDS} launches",
        "plan", "plan", "by hand", "ratio"
    );
    let context = Context::new(Config::default());
    let figures = in_process(2, &context, |comm| {
        Ok([transfer_pack(comm, &pack, bytes)?, two_shot(comm, &reduce, bytes)?])
    })?;
    for (name, (plan, hand)) in ["transfer_pack", "reduce"].into_iter().zip(figures[0]) {
        let ratio = plan.as_secs_f64() / hand.as_secs_f64();
        println!("{name:<16} {plan:>10.1?} {hand:>10.1?} {ratio:>6.2}");
    }
    Ok(())
}

/// Medians of two ways to do the same, in turn.
fn compare(
    comm: &Communicator,
    plan: impl Fn() -> Result<()>,
    hand: impl Fn() -> Result<()>,
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
        plans.push(time(&plan)?);
        hands.push(time(&hand)?);
    }
    plans.sort_unstable();
    hands.sort_unstable();
    comm.barrier()?;
    Ok((plans[ROUNDS / 2], hands[ROUNDS / 2]))
}

/// All-gather in place: one block packs its half into the peer's scratch, the other unpacks.
fn transfer_pack(comm: &Communicator, plan: &Plan, bytes: u64) -> Result<(Duration, Duration)> {
    let (rank, half) = (u64::from(comm.rank()), bytes / 2);
    let prepared = comm.prepare_unverified(plan, &Repairs::default())?;
    let (data, scratch) = (comm.alloc::<u8>(bytes)?, comm.alloc::<u8>(4 * half)?);
    let input = data.view_of(rank * half, half);
    let peer = comm.connect(1 - comm.rank())?;
    let remote = peer.exchange_memory(&scratch)?;
    let channel = comm.block_channel(&peer.packet_channel(&data, &remote, &scratch)?)?;
    let epoch = AtomicU32::new(0);
    compare(
        comm,
        || prepared.run(&PlanLaunch::new(input, data.view(), DATA)),
        || {
            let epoch = epoch.fetch_add(1, Ordering::Relaxed);
            let (parity, flag) = (u64::from(epoch % 2) * 2 * half, epoch + 1);
            comm.launch(2, |block| match block.index() {
                0 => channel.put_packets::<Ll16>(parity, rank * half, half, Share::ALL, flag),
                _ => channel.unpack_packets::<Ll16>(parity, (1 - rank) * half, half, Share::ALL, flag),
            })
        },
    )
}

/// All-reduce in place: each rank offers the half that the other folds, and the folded halves are exchanged.
fn two_shot(comm: &Communicator, plan: &Plan, bytes: u64) -> Result<(Duration, Duration)> {
    let prepared = comm.prepare_unverified(plan, &Repairs::default())?;
    let (data, scratch) = (comm.alloc::<u8>(bytes)?, comm.alloc::<u8>(bytes)?);
    let peer = comm.connect(1 - comm.rank())?;
    let (far_scratch, far_data) = (peer.exchange_memory(&scratch)?, peer.exchange_memory(&data)?);
    let own = HandReduce {
        half: bytes / 2,
        mine: u64::from(comm.rank()) * (bytes / 2),
        stage: comm.block_channel(&peer.memory_channel(&scratch, &far_scratch)?)?,
        result: comm.block_channel(&peer.memory_channel(&data, &far_data)?)?,
        kernel: FoldKernel::new(DATA, ReduceOp::Sum, std::num::NonZeroU32::MIN),
        data: &data,
        scratch: &scratch,
    };
    compare(
        comm,
        || prepared.run(&PlanLaunch::new(data.view(), data.view(), DATA)),
        || comm.launch(1, |block| own.run(block)),
    )
}

struct HandReduce<'a> {
    half: u64,
    /// First byte of the half that this rank folds.
    mine: u64,
    stage: BlockChannel,
    result: BlockChannel,
    kernel: FoldKernel,
    data: &'a Buffer<u8>,
    scratch: &'a Buffer<u8>,
}

impl HandReduce<'_> {
    fn run(&self, _: &Block<'_>) -> Result<()> {
        let Self { half, mine, .. } = *self;
        let theirs = half - mine;
        let quarter = half / 2;
        let memory = |buffer: &Buffer<u8>, at, bytes| buffer.memory().pointer("example", at, bytes);
        let (data, scratch) = (memory(self.data, 0, 2 * half)?, memory(self.scratch, 0, 2 * half)?);
        let far_scratch = self.stage.channel().destination().pointer("example", 0, 2 * half)?;
        let far_data = self.result.channel().destination().pointer("example", 0, 2 * half)?;
        // SAFETY: both buffers have 2 x half bytes, are distinct, and this rank's alone until the signal.
        unsafe {
            std::ptr::copy_nonoverlapping(
                data.add(theirs as usize).as_ptr(),
                scratch.add(theirs as usize).as_ptr(),
                half as usize,
            )
        };
        self.stage.signal()?;
        self.stage.wait()?;
        let fold = |at: u64, far: NonNull<u8>| {
            let at = at as usize;
            // SAFETY: all four buffers have 2 x half bytes; the quarter at `at` is folded by this rank alone.
            unsafe {
                let source = |address: NonNull<u8>| FoldSource { address, input: true };
                let sources = [source(data.add(at)), source(far)];
                self.kernel.fold_into(&sources, quarter, true, &[data.add(at), far_data.add(at)]);
            }
        };
        // SAFETY: within the peer's scratch.
        fold(mine, unsafe { far_scratch.add(mine as usize) });
        self.stage.get_same(mine + quarter, quarter, Share::ALL)?;
        // SAFETY: within this rank's scratch.
        fold(mine + quarter, unsafe { scratch.add((mine + quarter) as usize) });
        self.stage.signal()?;
        self.stage.wait()
    }
}
