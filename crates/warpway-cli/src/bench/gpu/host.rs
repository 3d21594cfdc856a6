//! From a kernel to the host and back, and which way to raise a peer's word is the fastest.

use warpway_cuda::bench::{Flight, Message, Pair, Way};

use super::Arguments;
use super::figure::{Figure, Unit};
use super::report::Report;
use super::turns::{self, Contestant, Series};

/// Requests of one run.
const REQUESTS: u64 = 1000;

pub(super) fn run(pair: &Pair, arguments: &Arguments, report: &mut Report) {
    report.begin("fifo");
    let requests = if arguments.quick { REQUESTS / 4 } else { REQUESTS };
    let flag = Flight { message: Message::ReleasedFlag, guarded: false, bounded: true, out_of_step: false };
    let mut contestants = vec![
        Contestant::new("kernel's store until the host sees it", move || Ok(pair.to_host(requests)?.into())),
        Contestant::new("push, the host takes it and answers by a store", move || {
            Ok(pair.push(requests)?.into())
        }),
        Contestant::new("release-acquire flag over the link", move || {
            Ok(pair.flight(flag, super::flight::ROUNDS)?.into())
        }),
    ];
    let (safe, doubtful): (Vec<Way>, Vec<Way>) = Way::ALL.into_iter().partition(|way| !writes_to_peer(*way));
    contestants.extend(ways(pair, &safe, requests));
    let mut series = turns::take(pair, arguments.rounds(), contestants);
    // By themselves: should a driver accept such a write and then fail, the others have been measured.
    series.extend(turns::take(pair, arguments.rounds(), ways(pair, &doubtful, requests)));
    let us = |case: &str, series: &Series| Figure::new("fifo", case, Unit::Microseconds, series);
    let [to_host, push, flight, ways @ ..] = series.as_slice() else { return };
    report.push(us("one way", to_host));
    report.push(us("there and back", push));
    report.push(us("one way", flight));
    for own in ways {
        if own.name.starts_with(RELAY) {
            report.push(us("one way: kernel, host, peer's kernel", &less(own, flight, own.name.clone())));
        } else {
            report.push(us("there and back", own));
            let name = own.name.replace(RAISE, "");
            report.push(us("one way: less the kernel's store", &less(own, to_host, name)));
        }
    }
}

/// How names of the whole path begin.
pub(super) const RELAY: &str = "push, then ";
/// How names of raised words end.
const RAISE: &str = ", until the host knows";

/// Each way by itself, then behind a request.
fn ways<'p>(pair: &'p Pair, ways: &[Way], requests: u64) -> Vec<Contestant<'p>> {
    let mut contestants = Vec::new();
    for &way in ways {
        let raise = move || Ok(pair.raise(way, requests)?.into());
        contestants.push(Contestant::new(format!("{way}{RAISE}"), raise));
        if way != Way::HostStore {
            let relay = move || Ok(pair.relay(way, requests)?.into());
            contestants.push(Contestant::new(format!("{RELAY}{way}"), relay));
        }
    }
    contestants
}

/// Whether a stream writes a word to another GPU's memory, which a driver may refuse.
fn writes_to_peer(way: Way) -> bool {
    matches!(way, Way::WriteToPeer | Way::PutThenWrite)
}

/// Round by round what is left without a part that was measured by itself.
pub(super) fn less(whole: &Series, part: &Series, name: String) -> Series {
    let taken = part.median().unwrap_or(0.0);
    Series {
        name,
        rounds: whole.rounds.iter().zip(&part.rounds).map(|(whole, part)| whole - part).collect(),
        samples: whole.samples.iter().map(|sample| sample - taken).collect(),
        // Said once.
        wrong: 0,
        failed: whole.failed.clone().or_else(|| part.failed.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_taken_off_round_by_round() {
        let series = |rounds: &[f64], samples: &[f64]| Series {
            rounds: rounds.to_vec(),
            samples: samples.to_vec(),
            wrong: 3,
            ..Series::default()
        };
        let left = less(&series(&[5.0, 7.0], &[4.0, 6.0, 8.0]), &series(&[1.0, 2.0], &[]), "left".into());
        assert_eq!((left.rounds, left.samples, left.wrong), (vec![4.0, 5.0], vec![2.5, 4.5, 6.5], 0));
    }
}
