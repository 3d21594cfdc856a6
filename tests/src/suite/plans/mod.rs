//! What plans compute, bit for bit: launches between canaries, compared with an oracle.

mod hosts;
mod operations;
mod oracle;
mod sequences;

use warpway::plan::{Collective, Plan, Repairs, testing};
use warpway::{Buffer, BufferView, Communicator, DataType, PacketFormat, PlanLaunch, PreparedPlan, Result};

use super::wrong;

pub use hosts::{between_hosts, gathers_between_hosts, hosts_of, sized_between_hosts};
pub use operations::operations;
pub use sequences::{in_random_order, on_scratch, overrunning, random, random_launch};

/// Bytes around every buffer that nobody may touch.
const MARGIN: u64 = 192;
const CANARY: u8 = 0xc7;
/// Numbers of elements that powers of two, cache lines and pages do not fit.
pub const ELEMENTS: [u64; 5] = [0, 1, 3, 17, 4095];

/// All algorithms that the plans' crate has for tests, at every size.
pub fn algorithms(comm: &Communicator) -> Result<()> {
    let mut prepared = prepare_all(comm)?;
    if comm.n_ranks() == 2 {
        let plans = operations();
        let more = plans.iter().map(|plan| comm.prepare_unverified(plan, &Repairs::default()));
        prepared.extend(more.collect::<Result<Vec<_>>>()?);
    }
    for elements in ELEMENTS {
        for packets in [PacketFormat::Ll16, PacketFormat::Ll8] {
            let message = Message { packets, ..Message::new(elements, DataType::Float32) };
            prepared.iter().try_for_each(|prepared| launch(comm, prepared, &message))?;
        }
    }
    comm.barrier()
}

/// All algorithms, set up.
pub fn prepare_all(comm: &Communicator) -> Result<Vec<PreparedPlan>> {
    let none = Repairs::default();
    fixed_sizes(comm.n_ranks()).iter().map(|plan| comm.prepare_unverified(plan, &none)).collect()
}

/// The algorithms whose chunk sizes follow from the message.
pub fn fixed_sizes(n: u32) -> Vec<Plan> {
    let fixed = |plan: &Plan| plan.ranks.iter().all(|rank| rank.size_ids.is_none());
    testing::all(n).unwrap().into_iter().filter(fixed).collect()
}

/// One launch: what it computes and on how much.
#[derive(Debug, Clone, Copy)]
pub struct Message {
    /// Elements of what one rank contributes or gets.
    pub elements: u64,
    /// Of the elements.
    pub data_type: DataType,
    /// Of plans with packets.
    pub packets: PacketFormat,
    /// Makes the data of this launch.
    pub seed: u64,
}

impl Message {
    /// With the larger packets and data of its own.
    pub fn new(elements: u64, data_type: DataType) -> Self {
        Self { elements, data_type, packets: PacketFormat::Ll16, seed: elements ^ 0x5eed }
    }
}

/// One launch on fresh buffers, checked.
pub fn launch(comm: &Communicator, prepared: &PreparedPlan, message: &Message) -> Result<()> {
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
        let bytes = format!("byte {at} of {} is {}, not {}", output.len(), found[at], output[at]);
        return Err(wrong(comm, &text(), bytes));
    }
    if !plan.in_place && buffers.read_input()? != input {
        return Err(wrong(comm, &text(), "the input has changed".into()));
    }
    match buffers.canaries_live()? {
        true => Ok(()),
        false => Err(wrong(comm, &text(), "a byte outside the buffers has changed".into())),
    }
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
