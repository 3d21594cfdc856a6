//! What all ranks do together: rank 0 gives orders, the others follow.
//!
//! In between they sleep in the bootstrap's socket, so that other programs can have the cores for their turns.

use std::time::{Duration, Instant};

use warpway::{Bootstrap as _, Call, Incoming, Outgoing, Result, Timeout};
use warpway_collectives::{Explanation, Function};

use super::super::session::Session;
use super::case::{Case, Subject};
use super::copy::Copy;
use super::message::{Message, Views};
use super::oracle::Round;

/// An order comes within this time: longer than a peer's program has for its answer.
const ORDERS: Timeout = Timeout::after(Duration::from_secs(180));

/// How calls are made.
#[derive(Debug, Clone, Default)]
pub(super) struct How {
    pub(super) algorithm: Option<String>,
    pub(super) blocks: Option<u32>,
    /// Plain slices in place of registered memory.
    pub(super) plain: bool,
}

/// One rank, with the buffers of the open case.
pub(super) struct Ranks<'a> {
    session: &'a Session,
    subject: &'a Subject,
    how: &'a How,
    message: Option<Message>,
    copy: Option<Copy>,
    round: u64,
}

/// What rank 0 tells the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// Makes the buffers of a case.
    Open(Case),
    /// One call with new data; the answer is how many elements were wrong on all ranks.
    Check,
    /// `warm` calls, a barrier, `calls` timed calls; the answer is seconds a call, of the slowest rank.
    Batch {
        warm: u64,
        calls: u64,
    },
    /// The same for plain copies.
    Copies {
        warm: u64,
        calls: u64,
        bytes: u64,
    },
    Close,
    End,
}

impl<'a> Ranks<'a> {
    pub(super) fn new(session: &'a Session, subject: &'a Subject, how: &'a How) -> Self {
        Self { session, subject, how, message: None, copy: None, round: 0 }
    }

    pub(super) fn subject(&self) -> &'a Subject {
        self.subject
    }

    /// Rank 0: has everybody carry an order out.
    pub(super) fn lead(&mut self, order: Order) -> Result<f64> {
        self.broadcast(&mut order.encode())?;
        self.obey(order)
    }

    /// Other ranks: carry out what rank 0 says until it says no more.
    pub(super) fn follow(&mut self) -> Result<()> {
        loop {
            let mut words = [0; 4];
            self.broadcast(&mut words)?;
            let order = Order::decode(words);
            if order == Order::End {
                return Ok(());
            }
            self.obey(order)?;
        }
    }

    /// Which algorithm a call of the open case takes, and why.
    pub(super) fn explain(&mut self) -> Result<Option<Explanation>> {
        let Self { session, subject, how, message, .. } = self;
        let Some(message) = message else { return Ok(None) };
        let (counts, views) = parts(message);
        let Some(call) = call(subject, how, &counts, views) else { return Ok(None) };
        Ok(Some(session.comm().explain(&call)?))
    }

    fn obey(&mut self, order: Order) -> Result<f64> {
        match order {
            Order::Open(case) => {
                self.message = Some(Message::new(self.session.comm(), self.subject, case, self.how.plain)?);
                self.copy = None;
            }
            Order::Check => return self.check(),
            Order::Batch { warm, calls } => {
                self.calls(warm)?;
                self.session.barrier().wait()?;
                let start = Instant::now();
                self.calls(calls)?;
                return self.slowest(start.elapsed().as_secs_f64() / calls as f64);
            }
            Order::Copies { warm, calls, bytes } => {
                let copy = self.copy.get_or_insert_with(|| Copy::new(bytes));
                copy.run(warm);
                self.session.barrier().wait()?;
                let start = Instant::now();
                copy.run(calls);
                return self.slowest(start.elapsed().as_secs_f64() / calls as f64);
            }
            // A rank that still works on its last call has not been left alone with it.
            Order::Close => {
                self.session.barrier().wait()?;
                (self.message, self.copy) = (None, None);
            }
            Order::End => {}
        }
        Ok(0.0)
    }

    fn calls(&mut self, calls: u64) -> Result<()> {
        let Self { session, subject, how, message, .. } = self;
        let Some(message) = message else { return Ok(()) };
        let (counts, views) = parts(message);
        if let Some(call) = call(subject, how, &counts, views) {
            return (0..calls).try_for_each(|_| session.comm().collective(&call));
        }
        let (rank, n) = (session.rank(), subject.n_ranks);
        let (next, before) = ((rank + 1) % n, (rank + n - 1) % n);
        for _ in 0..calls {
            let Views::Apart { input, output } = message.views() else { return Ok(()) };
            let target = Incoming::new(output, subject.data_type);
            session.comm().send_recv(Outgoing::new(input, subject.data_type), next, target, before)?;
        }
        Ok(())
    }

    fn check(&mut self) -> Result<f64> {
        self.round += 1;
        let rank = self.session.rank();
        // That there is one has been found out before the ranks were started.
        let Ok(round) = Round::new(self.subject, self.round) else { return Ok(0.0) };
        if let Some(message) = &mut self.message {
            message.fill(self.subject, &round, rank)?;
        }
        self.session.barrier().wait()?;
        self.calls(1)?;
        let wrong = match &mut self.message {
            Some(message) => message.wrong(self.subject, &round, rank)?,
            None => 0,
        };
        // Before anybody's next call writes into what a peer still compares.
        self.session.barrier().wait()?;
        Ok(self.session.sum(wrong)? as f64)
    }

    fn slowest(&self, seconds: f64) -> Result<f64> {
        self.session.greatest(seconds)
    }

    fn broadcast(&self, words: &mut [u64; 4]) -> Result<()> {
        let mut bytes = [0; 32];
        for (place, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(&*words) {
            *place = word.to_le_bytes();
        }
        self.session.comm().bootstrap().broadcast(&mut bytes, 0, ORDERS.start())?;
        for (place, word) in bytes.as_chunks::<8>().0.iter().zip(words) {
            *word = u64::from_le_bytes(*place);
        }
        Ok(())
    }
}

fn parts(message: &mut Message) -> (Vec<u64>, Views<'_>) {
    (message.shape().counts.clone(), message.views())
}

/// The call of a case, if it is a collective's.
fn call<'a>(subject: &Subject, how: &'a How, counts: &'a Vec<u64>, views: Views<'a>) -> Option<Call<'a>> {
    let (function, data_type) = (subject.operation.collective()?, subject.data_type);
    let mut call = match views {
        _ if function == Function::Barrier => Call::barrier(),
        Views::Apart { input, output } => Call::new(function, input, output, data_type),
        Views::InPlace(data) => Call::new_in_place(function, data, data_type),
    };
    if function.is_rooted() {
        call = call.with_root(subject.root);
    }
    if function.reduces() {
        call = call.with_op(subject.op);
    }
    match function {
        Function::AllGatherV | Function::ReduceScatterV => call = call.with_counts(counts),
        Function::AllToAllV => call = call.with_pair_counts(counts, counts),
        _ => {}
    }
    if let Some(name) = &how.algorithm {
        call = call.with_algorithm(name);
    }
    Some(match how.blocks {
        Some(blocks) => call.with_blocks(blocks),
        None => call,
    })
}

impl Order {
    fn encode(self) -> [u64; 4] {
        match self {
            Self::End => [0; 4],
            Self::Open(case) => [1, case.bytes, u64::from(case.in_place), 0],
            Self::Check => [2, 0, 0, 0],
            Self::Batch { warm, calls } => [3, warm, calls, 0],
            Self::Copies { warm, calls, bytes } => [4, warm, calls, bytes],
            Self::Close => [5, 0, 0, 0],
        }
    }

    fn decode(words: [u64; 4]) -> Self {
        let [what, a, b, c] = words;
        match what {
            1 => Self::Open(Case { bytes: a, in_place: b != 0 }),
            2 => Self::Check,
            3 => Self::Batch { warm: a, calls: b },
            4 => Self::Copies { warm: a, calls: b, bytes: c },
            5 => Self::Close,
            _ => Self::End,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_arrive_as_they_were_given() {
        for order in [
            Order::Open(Case { bytes: 1 << 40, in_place: true }),
            Order::Open(Case { bytes: 8, in_place: false }),
            Order::Check,
            Order::Batch { warm: 1, calls: 2 },
            Order::Copies { warm: 3, calls: u64::MAX, bytes: 5 },
            Order::Close,
            Order::End,
        ] {
            assert_eq!(Order::decode(order.encode()), order);
        }
    }
}
