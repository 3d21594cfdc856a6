//! `warpway bench plan`: a plan from a file, run by real processes, every byte of its result checked.

mod goal;
mod message;

use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use clap::{Args, ValueEnum};
use warpway::plan::verify::{Options, VerifiedPlan};
use warpway::plan::{Collective, Geometry, Plan, Repairs};
use warpway::{Communicator, DataType, PacketFormat, PreparedPlan};

use super::report::{Form, Report, Row};
use super::session::{self, Session};
use crate::plan_file;
use goal::Goal;
use message::Message;

/// Checked rounds per size: more than the halves of a scratch area.
const ROUNDS: u64 = 3;

/// Run an execution plan between real processes, and check every byte of its result
///
/// The plan is verified first; one that is not accepted is not run. There are as many ranks as the plan has, started
/// as by `warpway launch` unless a launcher has started this process already. Each row is one message size: median,
/// fastest and 99th percentile time of one launch, bandwidth, and how many elements were wrong in the checked rounds
/// (always awaited to be 0; the exit code is 1 otherwise).
#[derive(Args)]
#[command(after_long_help = "\
A size is that of the larger of a rank's two buffers, rounded up to chunks of whole alignment
units. GB/s is size / median time (algorithm bandwidth); the bus bandwidth counts what each link
carries, as nccl-tests does: allreduce 2(n-1)/n; allgather, reducescatter and alltoall (n-1)/n.

Inputs are whole numbers so small that their folds are exact in any order: a right result has one
possible bit pattern. Plans of no known collective (`test`, `custom`) and plans with sized chunks
have nothing to be checked against here and are refused; so are averages over a number of ranks
that is no power of two.

Examples:
  warpway bench plan allreduce.json
  warpway bench plan allreduce.json --bytes 1K,1M,64M --type bfloat16
  warpway bench plan gather.json --root 2 --json
  warpway launch -n 8 -- warpway bench plan allgather8.json")]
pub(super) struct Arguments {
    /// The plan, a file that every rank reads
    file: PathBuf,
    /// Message sizes; suffixes K, M, G
    #[arg(long, default_value = "1K,64K,1M", value_delimiter = ',', value_parser = some_bytes)]
    bytes: Vec<u64>,
    /// Type of the elements: float32, float16, bfloat16, int32, float8_e4m3fn, …
    #[arg(long = "type", value_name = "TYPE", default_value = "float32")]
    data_type: DataType,
    /// Format of the packets of plans that have any
    #[arg(long, value_enum, default_value = "ll16")]
    packets: Packets,
    /// Root of broadcast, reduce, gather and scatter
    #[arg(long, value_name = "RANK", default_value_t = 0)]
    root: u32,
    /// How bytes travel: plans run on shared memory, of one host
    #[arg(long, value_enum, default_value = "auto")]
    transport: Way,
    /// Run the plan without a proof, with everything that the executor can add to make it safe; results are checked all
    /// the same
    #[arg(long)]
    unverified: bool,
    /// Timed batches per size; the median is over these
    #[arg(long, default_value = "21", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    batches: u32,
    /// Print one JSON document in place of the table
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Packets {
    /// 16 bytes with 8 of data
    Ll16,
    /// 8 bytes with 4 of data
    Ll8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Way {
    Auto,
    Shared,
}

/// What is run: proven, or as the user insists.
enum Subject {
    Verified(Box<VerifiedPlan>),
    Unverified(Box<Plan>),
}

/// Runs the plan, or launches the ranks that do.
pub(super) fn run(arguments: &Arguments) -> anyhow::Result<u8> {
    let subject = arguments.subject()?;
    let plan = subject.plan();
    let n_ranks = NonZeroU32::new(plan.n_ranks()).context("the plan has no ranks")?;
    let goal = Goal::new(plan, arguments.data_type, arguments.root)?;
    ensure!(!Geometry::new(plan).is_sized(), "{}: sized chunks have no size of their own", plan.name);
    if !session::is_launched()? {
        return super::launch_ranks(n_ranks.get());
    }
    let transport = (arguments.transport == Way::Shared).then_some(warpway::Transport::SharedMemory);
    let session = Session::join(transport)?;
    let form = if arguments.json { Form::Document } else { Form::Table };
    let mut report = Report::new(session.rank(), session.n_ranks(), form);
    // The peers are to hear the reason, not only that this rank has left.
    measure(&session, arguments, (&subject, &goal), &mut report)
        .inspect_err(|error| session.comm().abort(error.to_string()))?;
    report.finish()
}

fn measure(
    session: &Session,
    arguments: &Arguments,
    (subject, goal): (&Subject, &Goal),
    report: &mut Report,
) -> anyhow::Result<()> {
    let plan = subject.plan();
    let prepared = subject.prepare(session.comm())?;
    let name = format!("plan {}", plan.name);
    let packets = match arguments.packets {
        Packets::Ll16 => PacketFormat::Ll16,
        Packets::Ll8 => PacketFormat::Ll8,
    };
    let mut done = Vec::new();
    for &wanted in &arguments.bytes {
        let message = Message::new(session.comm(), plan, wanted, (arguments.data_type, packets))?;
        let bytes = message.bytes();
        if done.contains(&bytes) {
            if session.rank() == 0 {
                eprintln!("warpway: --bytes {wanted}: {bytes} bytes, whole chunks, have a row already");
            }
            continue;
        }
        done.push(bytes);
        report.begin(&name, bytes);
        let launch = message.launch();
        let mut wrong = 0;
        for round in 0..ROUNDS {
            message.prepare(goal, round)?;
            session.barrier().wait()?;
            prepared.run(&launch)?;
            wrong += message.wrong(goal, round)?;
            session.barrier().wait()?;
        }
        let samples = session.time(arguments.batches, || prepared.run(&launch))?;
        let mut row = Row::new(&name, bytes, &samples);
        row.transport = "shared";
        row.blocks = plan.ranks.iter().map(|rank| rank.blocks.len() as u32).max().unwrap_or(0);
        let share = bus_share(plan.collective, session.n_ranks());
        row.bus_gb_per_s = share.and_then(|share| row.gb_per_s.map(|rate| rate * share));
        row.errors = session.sum(wrong)?;
        report.push(row);
        session.barrier().wait()?;
    }
    Ok(())
}

/// A size of at least one byte.
fn some_bytes(text: &str) -> Result<u64, String> {
    match super::bytes(text)? {
        0 => Err("a message has at least one byte".to_owned()),
        bytes => Ok(bytes),
    }
}

/// Of a message's bytes, what each link carries.
fn bus_share(collective: Collective, n_ranks: u32) -> Option<f64> {
    let n = f64::from(n_ranks);
    match collective {
        Collective::AllReduce => Some(2.0 * (n - 1.0) / n),
        Collective::AllGather | Collective::ReduceScatter | Collective::AllToAll => Some((n - 1.0) / n),
        _ => None,
    }
}

impl Arguments {
    fn subject(&self) -> anyhow::Result<Subject> {
        let file = self.file.display();
        ensure!(self.file != Path::new("-"), "every rank reads the plan: name a file, not `-`");
        let text = plan_file::read(&self.file).with_context(|| file.to_string())?;
        let plan = Plan::from_json(&text).with_context(|| file.to_string())?.plan;
        ensure!(self.root < plan.n_ranks(), "--root {}: the plan has {} ranks", self.root, plan.n_ranks());
        if self.unverified {
            return Ok(Subject::Unverified(Box::new(plan)));
        }
        let options = Options { root: self.root, ..Options::default() };
        let verified = VerifiedPlan::new(plan, &options).with_context(|| {
            format!("{file} is not run (`warpway plan verify` says all of it, `--unverified` runs it all the same)")
        })?;
        Ok(Subject::Verified(Box::new(verified)))
    }
}

impl Subject {
    fn plan(&self) -> &Plan {
        match self {
            Self::Verified(verified) => verified.plan(),
            Self::Unverified(plan) => plan,
        }
    }

    fn prepare(&self, comm: &Communicator) -> warpway::Result<PreparedPlan> {
        match self {
            Self::Verified(verified) => comm.prepare(verified),
            Self::Unverified(plan) => comm.prepare_unverified(plan, &Repairs::all(Vec::new())),
        }
    }
}
