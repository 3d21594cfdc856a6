//! All-gather written on channels: every rank puts its part into every peer's buffer.

use warpway::{Buffer, Result};

use super::Arguments;
use super::links::{Links, transport_name};
use super::pattern::byte;
use super::report::{Report, Row};
use super::session::Session;

/// Checked rounds per size.
const ROUNDS: u64 = 3;

pub(super) fn run(session: &Session, arguments: &Arguments, report: &mut Report) -> Result<()> {
    let n = u64::from(session.n_ranks());
    for size in arguments.sizes(n) {
        report.begin("all_gather", size);
        let gather = AllGather::new(session, size / n)?;
        let mut wrong = 0;
        for round in 0..ROUNDS {
            gather.prepare(round)?;
            session.barrier().wait()?;
            gather.run()?;
            wrong += gather.wrong(round)?;
            session.barrier().wait()?;
        }
        let samples = session.time(arguments.batches, || gather.run())?;
        let mut row = Row::new("all_gather", size, &samples);
        row.transport = transport_name(session);
        row.bus_gb_per_s = row.gb_per_s.map(|rate| rate * (n - 1) as f64 / n as f64);
        row.errors = session.sum(wrong)?;
        report.push(row);
        session.barrier().wait()?;
    }
    Ok(())
}

/// In place: the part of rank r lies at `r * part` of every rank's buffer.
struct AllGather<'a> {
    session: &'a Session,
    part: u64,
    data: Buffer<u8>,
    links: Links,
}

impl<'a> AllGather<'a> {
    fn new(session: &'a Session, part: u64) -> Result<Self> {
        let data = session.comm().alloc::<u8>(part * u64::from(session.n_ranks()))?;
        let links = Links::new(session, data.memory(), data.memory())?;
        Ok(Self { session, part, data, links })
    }

    /// One all-gather. A rank that returns may begin the next one while a peer still reads this one's result:
    /// whoever changes the data in between needs a barrier, as the checked rounds have.
    fn run(&self) -> Result<()> {
        let own = u64::from(self.session.rank()) * self.part;
        self.links.put_to_all(own, own, self.part)?;
        self.links.wait_for_all()?;
        self.links.flush()
    }

    /// Fills the own part with this round's bytes and everything else with bytes that are wrong everywhere.
    fn prepare(&self, round: u64) -> Result<()> {
        for rank in 0..self.session.n_ranks() {
            let own = rank == self.session.rank();
            let part: Vec<u8> = (0..self.part)
                .map(|at| {
                    let right = byte(round, rank, at);
                    if own { right } else { !right }
                })
                .collect();
            self.data.write(u64::from(rank) * self.part, &part)?;
        }
        Ok(())
    }

    fn wrong(&self, round: u64) -> Result<u64> {
        let mut wrong = 0;
        let mut part = vec![0; self.part as usize];
        for rank in 0..self.session.n_ranks() {
            self.data.read(u64::from(rank) * self.part, &mut part)?;
            wrong += (0..).zip(&part).filter(|(at, found)| **found != byte(round, rank, *at)).count() as u64;
        }
        Ok(wrong)
    }
}
