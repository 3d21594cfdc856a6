//! All-reduce (sum of f32) written on channels, in two steps: each rank adds up one part of everybody's
//! input, in rank order, and puts the sums to everybody.
//!
//! With mapped memory a rank reads the peers' inputs itself; otherwise they put their parts into its scratch.

use warpway::{Buffer, Result, Share};

use super::Arguments;
use super::links::{Links, others, transport_name};
use super::pattern::value;
use super::report::{Report, Row};
use super::session::Session;

const ROUNDS: u64 = 3;
const ELEMENT: u64 = size_of::<f32>() as u64;
/// Elements that are added up at a time; two such pieces stay in the first-level cache.
const PIECE: u64 = 2048;

pub(super) fn run(session: &Session, arguments: &Arguments, report: &mut Report) -> Result<()> {
    let n = u64::from(session.n_ranks());
    for size in arguments.sizes(ELEMENT) {
        report.begin("all_reduce", size);
        let mut reduce = AllReduce::new(session, size / ELEMENT)?;
        let mut wrong = 0;
        for round in 0..ROUNDS {
            reduce.prepare(round)?;
            session.barrier().wait()?;
            reduce.run()?;
            wrong += reduce.wrong(round)?;
            session.barrier().wait()?;
        }
        let samples = session.time(arguments.batches, || reduce.run())?;
        let mut row = Row::new("all_reduce", size, &samples);
        row.transport = transport_name(session);
        row.bus_gb_per_s = row.gb_per_s.map(|rate| rate * 2.0 * (n - 1) as f64 / n as f64);
        row.errors = session.sum(wrong)?;
        report.push(row);
        session.barrier().wait()?;
    }
    Ok(())
}

struct AllReduce<'a> {
    session: &'a Session,
    len: u64,
    input: Buffer<f32>,
    output: Buffer<f32>,
    /// Parts of the peers' inputs: `n` slots as long as the longest part.
    scratch: Buffer<f32>,
    /// Input to the peers' scratch; also reads of their inputs and the signal that an input is ready.
    inputs: Links,
    /// Output to the peers' outputs.
    outputs: Links,
    mapped: Option<Links>,
    sum: Vec<f32>,
    piece: Vec<f32>,
}

impl<'a> AllReduce<'a> {
    fn new(session: &'a Session, len: u64) -> Result<Self> {
        let comm = session.comm();
        let n = u64::from(session.n_ranks());
        let (input, output) = (comm.alloc::<f32>(len)?, comm.alloc::<f32>(len)?);
        let scratch = comm.alloc::<f32>(n * len.div_ceil(n))?;
        let inputs = Links::new(session, input.memory(), scratch.memory())?;
        let outputs = Links::new(session, output.memory(), output.memory())?;
        // `get` reads what the channel's remote memory is: a second set, towards the peers' inputs.
        let shared = transport_name(session) == "shared";
        let mapped = shared.then(|| Links::new(session, scratch.memory(), input.memory())).transpose()?;
        let (sum, piece) = (vec![0.0; PIECE as usize], vec![0.0; PIECE as usize]);
        Ok(Self { session, len, input, output, scratch, inputs, outputs, mapped, sum, piece })
    }

    /// Elements of the longest part.
    fn part(&self) -> u64 {
        self.len.div_ceil(u64::from(self.session.n_ranks()))
    }

    /// Elements `begin..end` that `rank` adds up; empty at the end of short inputs.
    fn range(&self, rank: u32) -> (u64, u64) {
        let begin = (u64::from(rank) * self.part()).min(self.len);
        (begin, (begin + self.part()).min(self.len))
    }

    fn run(&mut self) -> Result<()> {
        let own = self.session.rank();
        if self.mapped.is_some() {
            self.inputs.signal_all()?;
        } else {
            let slot = u64::from(own) * self.part();
            for rank in others(self.session) {
                let (begin, end) = self.range(rank);
                self.inputs.put_to(rank, slot * ELEMENT, begin * ELEMENT, (end - begin) * ELEMENT)?;
            }
        }
        self.inputs.wait_for_all()?;
        let (begin, end) = self.range(own);
        for at in (begin..end).step_by(PIECE as usize) {
            self.add_up(begin, at, PIECE.min(end - at))?;
        }
        self.outputs.put_to_all(begin * ELEMENT, begin * ELEMENT, (end - begin) * ELEMENT)?;
        self.outputs.wait_for_all()?;
        // Everybody's output has come, so everybody has read the inputs: both buffers are free again once
        // the sources of this rank's own puts are.
        self.inputs.flush()?;
        self.outputs.flush()
    }

    /// Sums elements `at..at + count` over all ranks, in rank order, into the output.
    fn add_up(&mut self, begin: u64, at: u64, count: u64) -> Result<()> {
        let part = self.part();
        let (sum, piece) = (&mut self.sum[..count as usize], &mut self.piece[..count as usize]);
        sum.fill(0.0);
        for rank in 0..self.session.n_ranks() {
            if rank == self.session.rank() {
                self.input.read(at, piece)?;
            } else {
                let slot = u64::from(rank) * part + (at - begin);
                if let Some(channel) = self.mapped.as_ref().and_then(|links| links.memory(rank)) {
                    channel.get(slot * ELEMENT, at * ELEMENT, count * ELEMENT, Share::ALL)?;
                }
                self.scratch.read(slot, piece)?;
            }
            for (sum, value) in sum.iter_mut().zip(&*piece) {
                *sum += value;
            }
        }
        Ok(self.output.write(at, sum)?)
    }

    /// New inputs, and an output that is wrong everywhere.
    fn prepare(&self, round: u64) -> Result<()> {
        let own = self.session.rank();
        let input: Vec<f32> = (0..self.len).map(|at| value(round, own, at)).collect();
        self.input.write(0, &input)?;
        Ok(self.output.fill(f32::NAN)?)
    }

    fn wrong(&self, round: u64) -> Result<u64> {
        let mut output = vec![0.0; self.len as usize];
        self.output.read(0, &mut output)?;
        let n = self.session.n_ranks();
        let right = |at| (0..n).map(|rank| f64::from(value(round, rank, at))).sum::<f64>();
        Ok((0..).zip(&output).filter(|(at, sum)| f64::from(**sum) != right(*at)).count() as u64)
    }
}
