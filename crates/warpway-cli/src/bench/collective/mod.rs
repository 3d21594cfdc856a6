//! `warpway bench <collective>`: every collective, and sends around a ring, between real processes, in the manner of
//! nccl-tests, checked against an oracle, and in turns with Open MPI and Gloo.
//!
//! | file | question it answers |
//! |---|---|
//! | `case.rs` | which elements a rank gives and gets |
//! | `oracle.rs`, `message.rs` | what they are; buffers filled and compared |
//! | `ranks.rs` | what all ranks do when rank 0 says so |
//! | `turns.rs` | who is measured when, and for how long |
//! | `own.rs`, `copy.rs`, `peer.rs`, `programs.rs` | the contestants |
//! | `traffic.rs`, `figures.rs` | what is said of a case |
//! | `arguments.rs`, `report.rs`, `table.rs`, `plot.rs` | input and output |
//!
//! The bandwidth of a call is its bytes divided by its time; the bus bandwidth is that times a factor, so that figures of
//! different functions and numbers of ranks can be held against the rate of a link: 2(n−1)/n for all_reduce, 1 for broadcast,
//! reduce and send_recv, (n−1)/n for the others (nccl-tests, doc/PERFORMANCE.md).

mod arguments;
mod case;
mod copy;
mod figures;
mod message;
mod oracle;
mod own;
mod peer;
mod plot;
mod programs;
mod ranks;
mod report;
mod table;
mod traffic;
mod turns;

use std::cell::RefCell;

use anyhow::ensure;
use warpway_collectives::{Explanation, find};

use arguments::Arguments;
pub(super) use arguments::Command;
use case::{Case, Subject};
use figures::{Row, Side};
use own::{Copies, Warpway};
use peer::Peer;
use ranks::{Order, Ranks};
use report::Report;
use turns::{Contestant, Opened, hold};

use super::session::{self, Session};

/// Plain copies stand beside calls from this size on: below, the time is that of the handshakes.
const FLOOR_BYTES: u64 = 1 << 20;

/// Runs the benchmark, or launches the ranks that do.
pub(super) fn run(command: &Command) -> anyhow::Result<u8> {
    let (operation, arguments) = command.parts();
    arguments.check(operation)?;
    if !session::is_launched()? {
        for rival in &arguments.vs {
            // While no rank waits yet.
            rival.build()?;
        }
        return super::launch_ranks(arguments.n_ranks);
    }
    let session = Session::join(None)?;
    let subject = arguments.subject(operation, session.n_ranks());
    // The peers are to hear the reason, not only that this rank has left.
    take_part(&session, &subject, arguments).inspect_err(|error| session.comm().abort(format!("{error:#}")))
}

fn take_part(session: &Session, subject: &Subject, arguments: &Arguments) -> anyhow::Result<u8> {
    ensure!(subject.root < subject.n_ranks, "--root {}: there are {} ranks", subject.root, subject.n_ranks);
    // Found out by all ranks alike, before the first order.
    oracle::Round::new(subject, 0)?;
    let how = arguments.how();
    let mut ranks = Ranks::new(session, subject, &how);
    if session.rank() == 0 {
        return lead(&RefCell::new(ranks), subject, arguments);
    }
    ranks.follow()?;
    Ok(0)
}

/// Rank 0's part.
fn lead(ranks: &RefCell<Ranks<'_>>, subject: &Subject, arguments: &Arguments) -> anyhow::Result<u8> {
    let pace = arguments.pace();
    let mut ours = Warpway::new(ranks, pace.check);
    let mut copies = Copies::new(ranks, FLOOR_BYTES);
    let mut peers =
        arguments.vs.iter().map(|rival| Peer::start(*rival, subject)).collect::<anyhow::Result<Vec<_>>>()?;
    let mut report = Report::new(subject, arguments);
    for bytes in arguments.sizes(subject) {
        let mut row = Row::new(subject, bytes);
        for case in arguments.places(subject.operation).map(|in_place| Case { bytes, in_place }) {
            let mut contestants: Vec<&mut dyn Contestant> = vec![&mut ours, &mut copies];
            contestants.extend(peers.iter_mut().map(|peer| peer as &mut dyn Contestant));
            let outcomes = hold(&mut contestants, case, pace, &|name| report.progress(case, name))?;
            let [own, copied, rivals @ ..] = &*outcomes else { continue };
            let mut side = Side::new(subject, case, own, rivals);
            if matches!(copied.opened, Opened::Ready { .. }) && matches!(own.opened, Opened::Ready { .. }) {
                let rate = copies.rate(copied.samples.median());
                side =
                    side.with_floor(ours.explanation().and_then(|choice| moved_bytes(choice, bytes)), rate);
            }
            if let Some(explanation) = ours.explanation().filter(|_| arguments.explain) {
                report.explain(explanation);
            }
            row.set(case, side);
        }
        report.push(row);
    }
    ranks.borrow_mut().lead(Order::End)?;
    report.finish()
}

/// What the plan of a choice reads and writes, if it is one of the catalogue.
fn moved_bytes(choice: &Explanation, bytes: u64) -> Option<f64> {
    let algorithm = find(choice.task.function, choice.taken())?;
    traffic::of_plan(&(algorithm.build)(&choice.task).ok()?, bytes)
}
