//! Port channels of a communicator whose kernels ask for everything, against the same steps with nothing around them.

use std::time::Duration;

use warpway::{Config, Context, Environment, Timeout};
use warpway_cuda::bench::{Directions, Flight, Message, Messages, Mover, Pair, Transfer, Way};

use super::figure::{Figure, Target, Unit};
use super::host;
use super::ranks::{Carrier, Job, Ranks};
use super::report::{Report, size};
use super::turns::{self, Contestant, Run, Series};
use super::{Arguments, What};

/// Where the targets hold.
const JUDGED_BYTES: u64 = 256 << 20;
/// Of a message by TCP, unless all are to be smaller.
const TCP_BYTES: u64 = 64 << 20;
/// Round trips of a run.
const ROUNDS: u64 = 1000;
/// What 8 bytes and their signal may take, of a request's way to the host and two copies of 8 bytes.
const FLIGHT_RATIO: f64 = 1.3;
/// What must be left of the copy engine's rate.
const RATE_RATIO: f64 = 0.98;
/// What must be left of the host engine's rate by TCP.
const TCP_RATIO: f64 = 0.8;
/// Each wait of a kernel.
const DEVICE_DEADLINE: Duration = Duration::from_secs(5);

pub(super) fn run(pair: &Pair, arguments: &Arguments, report: &mut Report) -> anyhow::Result<()> {
    report.begin("port, set-up");
    let mut config = Config::read(&Environment::of_process()?)?.config;
    config.device_timeout = Timeout::after(DEVICE_DEADLINE);
    let context = Context::new(config);
    let sizes = arguments.sizes(What::Port);
    let most_bytes = sizes.iter().copied().max().unwrap_or(0);
    let tcp_bytes = most_bytes.min(TCP_BYTES);
    Ranks::with(&context, arguments.devices, most_bytes, tcp_bytes, |ranks| {
        flight(pair, ranks, arguments, report);
        for bytes in sizes {
            rates(pair, ranks, bytes, arguments, report)?;
        }
        for directions in [Directions::One, Directions::Both] {
            by_tcp(pair, ranks, (tcp_bytes, directions), arguments, report);
        }
        Ok(())
    })
}

/// 8 bytes with a signal, one way, against a request's flight to the host and two copies.
fn flight(pair: &Pair, ranks: &Ranks, arguments: &Arguments, report: &mut Report) {
    report.begin("port, 8 bytes");
    let rounds = if arguments.quick { ROUNDS / 4 } else { ROUNDS };
    let flag = Flight { message: Message::ReleasedFlag, guarded: false, bounded: true, out_of_step: false };
    let contestants = vec![
        Contestant::new("release-acquire flag over the link", move || {
            Ok(pair.flight(flag, super::flight::ROUNDS)?.into())
        }),
        Contestant::new(format!("{}{}", host::RELAY, Way::PutThenCopy), move || {
            Ok(pair.relay(Way::PutThenCopy, rounds)?.into())
        }),
        Contestant::new(format!("{}{}", host::RELAY, Way::PutThenWrite), move || {
            Ok(pair.relay(Way::PutThenWrite, rounds)?.into())
        }),
        Contestant::new("port channel, put with signal", move || ranks.both(Job::Flight { rounds })),
    ];
    let series = turns::take(pair, arguments.rounds(), contestants);
    let [flag, copies, write, port] = series.as_slice() else { return };
    let us = |own: &Series| Figure::new("port", "8 bytes, one way", Unit::Microseconds, own);
    // What a relay answers by is not a part of the path.
    let [copies, write] = [copies, write].map(|relay| host::less(relay, flag, relay.name.clone()));
    report.push(us(&copies));
    report.push(us(&write));
    let target = Target::AtMost(FLIGHT_RATIO);
    report.push(us(port).against(port, &copies, Some(target)).against(port, &write, None));
}

/// Messages both ways at once, against the copy engine alone.
fn rates(
    pair: &Pair,
    ranks: &Ranks,
    bytes: u64,
    arguments: &Arguments,
    report: &mut Report,
) -> anyhow::Result<()> {
    report.begin(&format!("port, {}", size(bytes)));
    let directions = Directions::Both;
    let ready = pair.transfer(Transfer { mover: Mover::CopyPush, bytes, blocks: 0, directions })?;
    let port = |flush_each| stream(ranks, Carrier::CopyEngine, directions, bytes, flush_each);
    let contestants = vec![
        Contestant::new(Mover::CopyPush, move || {
            let measured = ready.run()?;
            Ok(Run { samples: vec![ready.bytes() as f64 / measured.us / 1e3], wrong: measured.wrong })
        }),
        Contestant::new("port channel, flushed in the end", port(false)),
        Contestant::new("port channel, each flushed", port(true)),
    ];
    let series = turns::take(pair, arguments.rounds(), contestants);
    let [engine, others @ ..] = series.as_slice() else { return Ok(()) };
    let case = format!("{}, both ways", size(bytes));
    let rate = |own: &Series| Figure::new("port", case.clone(), Unit::GigabytesPerSecond, own);
    report.push(rate(engine));
    let target = (bytes == JUDGED_BYTES).then_some(Target::AtLeast(RATE_RATIO));
    for own in others {
        report.push(rate(own).against(own, engine, target));
    }
    Ok(())
}

/// Memory of GPUs by TCP within this host, against memory of the host.
fn by_tcp(
    pair: &Pair,
    ranks: &Ranks,
    (bytes, directions): (u64, Directions),
    arguments: &Arguments,
    report: &mut Report,
) {
    report.begin("port, TCP");
    let by = |carrier| stream(ranks, carrier, directions, bytes, false);
    let contestants = vec![
        Contestant::new("host memory, host threads", by(Carrier::HostTcp)),
        Contestant::new("memory of GPUs, kernels", by(Carrier::DeviceTcp)),
    ];
    let series = turns::take(pair, arguments.rounds(), contestants);
    let [host, device] = series.as_slice() else { return };
    let ways = if directions == Directions::One { "one way" } else { "both ways" };
    let case = format!("{} by TCP, {ways}", size(bytes));
    let rate = |own: &Series| Figure::new("port", case.clone(), Unit::GigabytesPerSecond, own);
    report.push(rate(host));
    let target = (bytes == TCP_BYTES).then_some(Target::AtLeast(TCP_RATIO));
    report.push(rate(device).against(device, host, target));
}

/// A run of messages by a carrier.
fn stream<'r>(
    ranks: &'r Ranks,
    carrier: Carrier,
    directions: Directions,
    bytes: u64,
    flush_each: bool,
) -> impl FnMut() -> warpway::Result<Run> + 'r {
    // As many as the copy engine's own measurement has, of TCP fewer.
    let most = if carrier == Carrier::CopyEngine { 100 } else { 8 };
    let count = (1u64 << 30).checked_div(bytes).unwrap_or(1).clamp(4, most);
    let awaited = if directions == Directions::Both { count } else { 0 };
    let messages = Messages { bytes, sent: count, awaited, flush_each };
    move || ranks.both(Job::Stream { carrier, messages })
}
