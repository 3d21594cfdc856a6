//! What follows from the times of plans of one primitive each.
//!
//! What is done twice, or forty times, in one launch costs the difference, so launches do not count. A signal's
//! cost comes from many in a row, its flight from what is left of a ping-pong.

use std::collections::BTreeMap;

use warpway::DataType;
use warpway_plan::Plan;
use warpway_plan::simulate::{Costs, HostKind, Machine, Nic};

use super::memory;
use super::placement::Flight;
use super::rank::Rank;
use super::{plans, tcp};

/// Least cost of anything, so that differences of noise do not become negative.
const LEAST_NS: f64 = 0.1;
pub(super) const WORD: DataType = DataType::Float32;
/// Bytes of a message that is none.
const SMALL: [u64; 2] = [16, 16];

/// Measures where the cores are as far apart as `flight` says.
pub(super) struct Bench<'r> {
    pub(super) rank: &'r Rank,
    flight: Flight,
}

impl Bench<'_> {
    /// Nanoseconds of a launch.
    pub(super) fn launch(&self, plan: &Plan, bytes: [u64; 2], data_type: DataType) -> anyhow::Result<f64> {
        Ok(self.rank.launch(plan, bytes, data_type, Some(self.flight))?.median)
    }

    fn small(&self, plan: &Plan) -> anyhow::Result<f64> {
        self.launch(plan, SMALL, WORD)
    }
}

/// What launches and operations cost, whatever they move.
pub(super) struct Basics {
    pub(super) launch: f64,
    pub(super) step: f64,
    /// A launch in which one rank copies, tells the other, which copies and tells the first: all but the copied bytes.
    pub(super) turns: f64,
    pub(super) line: f64,
}

/// At the place of a flight.
///
/// # Errors
/// `Moved`, if the cores go elsewhere meanwhile.
pub(super) fn measure(rank: &Rank, flight: Flight) -> anyhow::Result<Machine> {
    let bench = Bench { rank, flight };
    let cores = rank.cores();
    rank.say("launches and operations");
    let one = bench.launch(&plans::copies(2, 1)?, SMALL, WORD)?;
    let step = slope(one, bench.launch(&plans::copies(2, 33)?, [16 * 33, 16 * 33], WORD)?, 32.0);
    let launch = at_least(one - step);
    let two_blocks = bench.launch(&plans::copies_by_two_blocks()?, [32, 32], WORD)?;
    rank.say("signals");
    let short_ping_pong = bench.small(&plans::ping_pong(1, 1)?)?;
    let ping_pong = |blocks| -> anyhow::Result<f64> {
        let few = bench.small(&plans::ping_pong(4, blocks)?)?;
        Ok(slope(few, bench.small(&plans::ping_pong(44, blocks)?)?, 80.0))
    };
    let one_way = ping_pong(1)?;
    let crowded = ping_pong(cores)?;
    // What ping-pong takes that neither launch nor flights explain.
    let announce = at_least(short_ping_pong - launch - 2.0 * one_way);
    let in_a_row = slope(bench.small(&plans::signals(4)?)?, bench.small(&plans::signals(68)?)?, 64.0);
    // Signals and waits of two ranks in a row run at the pace of the slower.
    let signal = at_least(in_a_row - step);
    let signal_flight = at_least(one_way - 2.0 * (step + signal));
    let shaken = bench.launch(&plans::handshake()?, [16, 32], WORD)?;
    let barrier = slope(bench.small(&plans::barriers(4)?)?, bench.small(&plans::barriers(44)?)?, 40.0);
    // A line that is written here and read there, against two lines that stay.
    let turns = bench.small(&plans::stay()?)?;
    let line = at_least(bench.small(&plans::migrate()?)? - turns);

    let memory = memory::measure(&bench, &Basics { launch, step, turns, line })?;
    rank.say("folds");
    let mut fold = BTreeMap::new();
    for data_type in DataType::ALL {
        let bytes = 8192;
        let time = bench.launch(&plans::fold(2)?, [2 * bytes, bytes], data_type)?;
        fold.insert(data_type, bytes as f64 / at_least(time - launch - step));
    }
    let few = bench.small(&plans::packet_ping_pong(2)?)?;
    let packet_way = slope(few, bench.small(&plans::packet_ping_pong(22)?)?, 40.0);
    let packet_flight = at_least(packet_way - 2.0 * step);

    rank.say("requests to the proxy");
    let proxy = slope(bench.small(&plans::port_signals(2)?)?, bench.small(&plans::port_signals(34)?)?, 32.0);
    let few = bench.small(&plans::port_ping_pong(2)?)?;
    let port_way = slope(few, bench.small(&plans::port_ping_pong(22)?)?, 40.0);
    let request = at_least(port_way - proxy - signal_flight - signal - 2.0 * step);

    rank.say("TCP");
    let wire = tcp::measure(rank)?;
    Ok(Machine {
        name: name(),
        hosts: vec![HostKind {
            count: 1,
            ranks: cores,
            cores,
            memory,
            nics: vec![Nic { rate: round(wire.rate), message_ns: 0.0, in_turn: false }],
            rank_link: None,
        }],
        wire_latency_ns: round(at_least(wire.one_way_ns - request - proxy - signal - 2.0 * step)),
        links: Vec::new(),
        costs: Costs {
            launch_ns: round(launch),
            announce_ns: round(announce),
            blocks_ns: round(at_least(two_blocks - one)),
            handshake_ns: round(at_least(shaken - launch - announce - signal_flight - step)),
            step_ns: round(step),
            signal_ns: round(signal),
            signal_flight_ns: round(signal_flight),
            switch_ns: round(at_least(crowded - one_way)),
            wait_ns: round(signal),
            barrier_ns: round(barrier),
            line_ns: round(line),
            packet_flight_ns: round(packet_flight),
            request_ns: round(request),
            proxy_ns: round(proxy),
            fold: fold.into_iter().map(|(data_type, rate)| (data_type, round(rate))).collect(),
        },
        stragglers: Vec::new(),
    })
}

/// What one of `count` more costs.
fn slope(few: f64, many: f64, count: f64) -> f64 {
    at_least((many - few) / count)
}

pub(super) fn at_least(nanoseconds: f64) -> f64 {
    nanoseconds.max(LEAST_NS)
}

/// Four digits.
pub(super) fn round(number: f64) -> f64 {
    let scale = 10f64.powf(3.0 - number.abs().max(1e-9).log10().floor());
    (number * scale).round() / scale
}

fn name() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = |line: &str| {
        line.split_once(':').filter(|(key, _)| key.trim() == "model name").map(|(_, v)| v.trim().to_owned())
    };
    let cpu = info.lines().find_map(field).unwrap_or_else(|| std::env::consts::ARCH.into());
    format!("{cpu}, calibrated by warpway {}", env!("CARGO_PKG_VERSION"))
}
