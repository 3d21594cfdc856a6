//! Runs a plan on threads, between canaries, and compares with the oracle.

use std::path::PathBuf;
use std::time::Duration;

use warpway::plan::verify::{Options, VerifiedPlan};
use warpway::plan::{Collective, Plan, Repairs};
use warpway::{
    Buffer, BufferView, Communicator, Config, Context, DataType, PacketFormat, PlanLaunch, PreparedPlan,
    Result, Timeout, in_process,
};

use crate::oracle;

/// Bytes around every buffer that nobody may touch.
const MARGIN: u64 = 192;
const CANARY: u8 = 0xc7;

/// Limits of a minute: what ends sooner was found out.
pub(crate) fn context() -> Context {
    limited(Duration::from_secs(60))
}

pub(crate) fn limited(limit: Duration) -> Context {
    let mut config = Config::default();
    config.setup_timeout = Timeout::after(limit);
    config.device_timeout = Timeout::after(limit);
    Context::new(config)
}

/// One launch: what it computes and on how much.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Message {
    /// Elements of what one rank contributes or gets.
    pub(crate) elements: u64,
    pub(crate) data_type: DataType,
    pub(crate) packets: PacketFormat,
    /// Makes the data of this launch.
    pub(crate) seed: u64,
}

impl Message {
    pub(crate) fn new(elements: u64, data_type: DataType) -> Self {
        Self { elements, data_type, packets: PacketFormat::Ll16, seed: elements ^ 0x5eed }
    }
}

/// A plan of MSCCL++'s repository, if the folder is there.
pub(crate) fn shared_plan(name: &str) -> Option<Plan> {
    let beside = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/plans");
    let folder = std::env::var_os("WARPWAY_PLANS").map_or_else(|| PathBuf::from(beside), PathBuf::from);
    let Ok(bytes) = std::fs::read(folder.join(name)) else {
        assert!(std::env::var_os("CI").is_none(), "{} is missing; set WARPWAY_PLANS", folder.display());
        eprintln!("skipped: {} is missing; set WARPWAY_PLANS", folder.display());
        return None;
    };
    Some(Plan::from_json(&bytes).unwrap().plan)
}

/// Runs the messages one after the other on a set-up of each plan, launch by launch in turn, and checks every result.
pub(crate) fn check(plans: &[Plan], messages: &[Message]) {
    let none = Repairs::default();
    run(plans[0].n_ranks(), plans.len(), messages, |comm, at| comm.prepare_unverified(&plans[at], &none));
}

/// The same for plans that the verifier must accept first.
pub(crate) fn check_verified(plans: &[Plan], messages: &[Message]) {
    let proven: Vec<VerifiedPlan> =
        plans.iter().map(|plan| VerifiedPlan::new(plan.clone(), &Options::default()).unwrap()).collect();
    run(plans[0].n_ranks(), plans.len(), messages, |comm, at| comm.prepare(&proven[at]));
}

/// The same with all repairs, needed or not.
pub(crate) fn check_repaired(plans: &[Plan], messages: &[Message]) {
    let all = Repairs::all(Vec::new());
    run(plans[0].n_ranks(), plans.len(), messages, |comm, at| comm.prepare_unverified(&plans[at], &all));
}

fn run(
    n: u32,
    plans: usize,
    messages: &[Message],
    prepare: impl Fn(&Communicator, usize) -> Result<PreparedPlan> + Sync,
) {
    in_process(n, &context(), |comm| {
        let prepared: Vec<PreparedPlan> = (0..plans).map(|at| prepare(comm, at)).collect::<Result<_>>()?;
        for message in messages {
            for prepared in &prepared {
                launch(comm, prepared, message)?;
            }
        }
        comm.barrier()
    })
    .unwrap();
}

/// One launch on fresh buffers, checked.
pub(crate) fn launch(comm: &Communicator, prepared: &PreparedPlan, message: &Message) -> Result<()> {
    let (plan, rank) = (prepared.plan(), comm.rank());
    let case = oracle::Case::new(plan, message);
    let (input, output) = (case.input(rank), case.expected(rank));
    let buffers = Buffers::new(comm, plan, rank, input.len() as u64, output.len() as u64)?;
    buffers.fill(&input)?;
    let launch =
        PlanLaunch::new(buffers.input(), buffers.output(), message.data_type).with_packets(message.packets);
    prepared.run(&launch)?;
    let text = || format!("{} rank {rank} of {} {message:?}", plan.name, comm.n_ranks());
    let found = buffers.read_output()?;
    if let Some(at) = found.iter().zip(&output).position(|(a, b)| a != b) {
        panic!("{}: byte {at} of {} is {}, not {}", text(), output.len(), found[at], output[at]);
    }
    if !plan.in_place {
        assert!(buffers.read_input()? == input, "{}: the input has changed", text());
    }
    assert!(buffers.canaries_live()?, "{}: a byte outside the buffers has changed", text());
    Ok(())
}

/// Input and output as the plan wants them, with margins.
struct Buffers {
    memory: Buffer<u8>,
    second: Option<Buffer<u8>>,
    input: (u64, u64),
    output: (u64, u64),
}

impl Buffers {
    fn new(comm: &Communicator, plan: &Plan, rank: u32, input: u64, output: u64) -> Result<Self> {
        // Unequal offsets on the ranks, and none that vectors like.
        let start = MARGIN + u64::from(rank) * 8;
        let room = input.max(output) + start + MARGIN;
        let memory = comm.alloc::<u8>(room)?;
        memory.fill(CANARY)?;
        let second = match plan.in_place {
            true => None,
            false => Some(comm.alloc::<u8>(room)?),
        };
        if let Some(second) = &second {
            second.fill(CANARY)?;
        }
        let (into, out) = match (plan.in_place, plan.collective) {
            (true, Collective::AllGather) => (start + u64::from(rank) * input, start),
            (true, Collective::ReduceScatter) => (start, start + u64::from(rank) * output),
            _ => (start, start),
        };
        Ok(Self { memory, second, input: (into, input), output: (out, output) })
    }

    fn out(&self) -> &Buffer<u8> {
        self.second.as_ref().unwrap_or(&self.memory)
    }

    fn input(&self) -> BufferView<'_> {
        self.memory.view_of(self.input.0, self.input.1)
    }

    fn output(&self) -> BufferView<'_> {
        self.out().view_of(self.output.0, self.output.1)
    }

    fn fill(&self, input: &[u8]) -> Result<()> {
        self.out().write(self.output.0, &vec![0x5a; self.output.1 as usize])?;
        Ok(self.memory.write(self.input.0, input)?)
    }

    fn read_input(&self) -> Result<Vec<u8>> {
        let mut data = vec![0; self.input.1 as usize];
        self.memory.read(self.input.0, &mut data)?;
        Ok(data)
    }

    fn read_output(&self) -> Result<Vec<u8>> {
        let mut data = vec![0; self.output.1 as usize];
        self.out().read(self.output.0, &mut data)?;
        Ok(data)
    }

    fn canaries_live(&self) -> Result<bool> {
        let whole = self.memory.to_vec()?;
        let used = |at: u64, (start, bytes): (u64, u64)| at >= start && at < start + bytes;
        let first = (0..).zip(&whole).all(|(at, byte)| {
            let own = used(at, self.input) || (self.second.is_none() && used(at, self.output));
            own || *byte == CANARY
        });
        let Some(second) = &self.second else { return Ok(first) };
        Ok(first && (0..).zip(second.to_vec()?).all(|(at, byte)| used(at, self.output) || byte == CANARY))
    }
}
