//! One-way latency between kernels, and what guards and deadlines add to it.

use warpway_cuda::bench::{Directions, Flight, Message, Mover, Pair, Transfer};

use super::Arguments;
use super::figure::{Figure, Target, Unit};
use super::report::{Report, size};
use super::turns::{self, Contestant, Run, Series};

/// Rounds of a ping-pong at one place in memory.
pub(super) const ROUNDS: u64 = 250;
/// What the target of packets asks.
const PACKET_US: f64 = 0.65;
/// Of an ordered signal and wait.
const SIGNAL_US: f64 = 1.3;
/// What deadlines may cost.
const DEADLINE_RATIO: f64 = 1.01;
/// A small put, where a guard's load could show.
pub(super) const GUARDED_BYTES: u64 = 64 << 10;

pub(super) fn run(pair: &Pair, arguments: &Arguments, report: &mut Report) {
    report.begin("flight");
    let flights: Vec<Flight> = Flight::all().filter(|flight| flight.bounded || !flight.guarded).collect();
    let series = measure(pair, arguments.rounds(), &flights);
    let bare = |message: Message| find(&flights, &series, |f| f.message == message && !f.bounded);
    for (flight, own) in flights.iter().zip(&series) {
        let mut figure = Figure::new("flight", "one way", Unit::Microseconds, own);
        if flight.bounded {
            match flight.message {
                Message::Packet16 | Message::Packet8 => figure = figure.should_be(Target::AtMost(PACKET_US)),
                Message::Signal => figure = figure.should_be(Target::AtMost(SIGNAL_US)),
                _ => {}
            }
        }
        let floor = match flight.message {
            Message::VolatileFlag => None,
            Message::Signal => Some(Message::ReleasedFlag),
            Message::RelaxedSignal => Some(Message::RelaxedFlag),
            _ => Some(Message::VolatileFlag),
        };
        if let Some(floor) = floor.and_then(bare) {
            figure = figure.against(own, floor, None);
        }
        report.push(figure);
    }
    deadlines(pair, arguments, report);
}

/// The library's waits beside bare ones.
fn deadlines(pair: &Pair, arguments: &Arguments, report: &mut Report) {
    let all = Flight::all().filter(|flight| !flight.guarded && has_library_wait(flight.message));
    let flights: Vec<Flight> = all.map(|flight| Flight { out_of_step: true, ..flight }).collect();
    let series = measure(pair, arguments.rounds(), &flights);
    for (flight, own) in flights.iter().zip(&series) {
        let mut figure = Figure::new("flight", "one way, out of step", Unit::Microseconds, own);
        let bare = find(&flights, &series, |f| f.message == flight.message && !f.bounded);
        if let Some(bare) = bare.filter(|_| flight.bounded) {
            figure = figure.against(own, bare, Some(Target::AtMost(DEADLINE_RATIO)));
        }
        report.push(figure);
    }
}

/// Of flags the library has no waits: they stand there for comparison.
fn has_library_wait(message: Message) -> bool {
    !matches!(message, Message::VolatileFlag | Message::RelaxedFlag | Message::ReleasedFlag)
}

/// Guarded and unguarded side by side: signals in flight, puts of two sizes.
pub(super) fn guard(pair: &Pair, arguments: &Arguments, report: &mut Report) -> anyhow::Result<()> {
    report.begin("guard");
    let flights: Vec<Flight> = Flight::all().filter(|f| f.message.is_guarded() && f.bounded).collect();
    let series = measure(pair, arguments.rounds(), &flights);
    for (guarded, unguarded) in pairs(&flights, &series) {
        report.push(
            Figure::new("guard", "one way", Unit::Microseconds, guarded).against(guarded, unguarded, None),
        );
        report.push(Figure::new("guard", "one way", Unit::Microseconds, unguarded));
    }
    for bytes in [1 << 10, GUARDED_BYTES] {
        let mut contestants = Vec::new();
        for guarded in [true, false] {
            let mover = Mover::ChannelPut { guarded };
            let transfer = Transfer { mover, bytes, blocks: 8, directions: Directions::One };
            let ready = pair.transfer(transfer)?;
            contestants.push(Contestant::new(mover, move || {
                let measured = ready.run()?;
                Ok(Run { samples: vec![measured.us], wrong: measured.wrong })
            }));
        }
        let series = turns::take(pair, arguments.rounds(), contestants);
        if let [guarded, unguarded] = series.as_slice() {
            let case = format!("{}, a node of a graph", size(bytes));
            let figure = |series| Figure::new("guard", &case, Unit::Microseconds, series);
            report.push(figure(guarded).against(guarded, unguarded, None));
            report.push(figure(unguarded));
        }
    }
    Ok(())
}

fn pairs<'s>(flights: &'s [Flight], series: &'s [Series]) -> impl Iterator<Item = (&'s Series, &'s Series)> {
    let series_of = |wanted: Flight| find(flights, series, |flight| *flight == wanted);
    let guarded = flights.iter().filter(|flight| flight.guarded);
    guarded.filter_map(move |&flight| {
        Some((series_of(flight)?, series_of(Flight { guarded: false, ..flight })?))
    })
}

fn find<'s>(
    flights: &[Flight],
    series: &'s [Series],
    wanted: impl Fn(&Flight) -> bool,
) -> Option<&'s Series> {
    flights.iter().position(wanted).and_then(|at| series.get(at))
}

fn measure(pair: &Pair, rounds: u32, flights: &[Flight]) -> Vec<Series> {
    let contestant =
        |&flight: &Flight| Contestant::new(name(flight), move || Ok(pair.flight(flight, ROUNDS)?.into()));
    turns::take(pair, rounds, flights.iter().map(contestant).collect())
}

fn name(flight: Flight) -> String {
    let unguarded = if flight.message.is_guarded() && !flight.guarded { ", unguarded" } else { "" };
    let bare = if flight.bounded { "" } else { ", bare wait" };
    format!("{}{unguarded}{bare}", flight.message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_guarded_signal_meets_its_unguarded_twin() {
        let flights: Vec<Flight> = Flight::all().filter(|f| f.message.is_guarded() && f.bounded).collect();
        let series: Vec<Series> =
            flights.iter().map(|flight| Series { name: name(*flight), ..Series::default() }).collect();
        let names: Vec<_> =
            pairs(&flights, &series).map(|(a, b)| (a.name.as_str(), b.name.as_str())).collect();
        assert_eq!(
            names,
            [
                ("relaxed signal, wait", "relaxed signal, wait, unguarded"),
                ("signal, wait", "signal, wait, unguarded")
            ]
        );
    }
}
