//! What follows from the times of plans of one primitive each.
//!
//! What is done twice, or forty times, in one launch costs the difference, so launches do not count. A signal's
//! cost comes from many in a row, its flight from what is left of a ping-pong.

use std::collections::BTreeMap;

use warpway::DataType;
use warpway_plan::simulate::{Costs, HostKind, Machine, MemoryLevel, Nic};

use super::rank::Rank;
use super::{plans, tcp};

/// Bytes that a block touches, at which memory is measured.
const FOOTPRINTS: [u64; 12] = [
    1 << 10,
    1 << 12,
    1 << 14,
    1 << 16,
    1 << 18,
    1 << 19,
    1 << 20,
    1 << 21,
    1 << 22,
    1 << 24,
    1 << 26,
    1 << 28,
];
/// Least cost of anything, so that differences of noise do not become negative.
const LEAST_NS: f64 = 0.1;
const WORD: DataType = DataType::Float32;

pub(super) fn measure(rank: &Rank) -> anyhow::Result<Machine> {
    let cores = rank.cores();
    rank.say("launches and operations");
    let one = rank.launch(&plans::copies(2, 1)?, [16, 16], WORD)?;
    let step = slope(one, rank.launch(&plans::copies(2, 33)?, [16 * 33, 16 * 33], WORD)?, 32.0);
    let launch = (one - step).max(LEAST_NS);
    let two_blocks = rank.launch(&plans::copies_by_two_blocks()?, [32, 32], WORD)?;
    rank.say("signals");
    let small = [16, 16];
    let short_ping_pong = rank.launch(&plans::ping_pong(4, 1)?, small, WORD)?;
    let ping_pong = |rank: &Rank, blocks| -> anyhow::Result<f64> {
        let few = rank.launch(&plans::ping_pong(4, blocks)?, small, WORD)?;
        Ok(slope(few, rank.launch(&plans::ping_pong(44, blocks)?, small, WORD)?, 80.0))
    };
    let one_way = ping_pong(rank, 1)?;
    let crowded = ping_pong(rank, cores)?;
    // What ping-pong takes that neither launch nor flights explain.
    let announce = (short_ping_pong - launch - 8.0 * one_way).max(LEAST_NS);
    let few = rank.launch(&plans::signals(4)?, small, WORD)?;
    let in_a_row = slope(few, rank.launch(&plans::signals(68)?, small, WORD)?, 64.0);
    // Signals and waits of two ranks in a row run at the pace of the slower.
    let signal = (in_a_row - step).max(LEAST_NS);
    let flight = (one_way - 2.0 * (step + signal)).max(LEAST_NS);
    let shaken = rank.launch(&plans::handshake()?, [16, 32], WORD)?;
    let few = rank.launch(&plans::barriers(4)?, small, WORD)?;
    let barrier = slope(few, rank.launch(&plans::barriers(44)?, small, WORD)?, 40.0);

    let memory = memory(rank, launch, step, one_way)?;
    rank.say("folds");
    let mut fold = BTreeMap::new();
    for data_type in DataType::ALL {
        let bytes = 8192;
        let time = rank.launch(&plans::fold(2)?, [2 * bytes, bytes], data_type)?;
        fold.insert(data_type, bytes as f64 / (time - launch - step).max(LEAST_NS));
    }

    rank.say("packets");
    let copy =
        memory.iter().find(|level| level.up_to_bytes >= 1 << 16).map_or(f64::INFINITY, |level| level.copy);
    let (short, long) = (1 << 10, 1 << 15);
    let exchanged = rank.launch(&plans::packet_exchange()?, [short, short], WORD)?;
    let more = rank.launch(&plans::packet_exchange()?, [long, long], WORD)?;
    // Of a byte: written and read as packet; its raw form is read once and written once, as by a copy.
    let per_byte = (slope(exchanged, more, (long - short) as f64) - 1.0 / copy).max(1e-3);
    let packet = 2.0 / per_byte;
    let few = rank.launch(&plans::packet_ping_pong(2)?, small, WORD)?;
    let packet_way = slope(few, rank.launch(&plans::packet_ping_pong(22)?, small, WORD)?, 40.0);
    let packet_flight = (packet_way - 2.0 * step - 32.0 / packet).max(LEAST_NS);

    let few = rank.launch(&plans::packet_ping_pong(1)?, [short, short], WORD)?;
    let more = rank.launch(&plans::packet_ping_pong(1)?, [long, long], WORD)?;
    let stream = 2.0 / slope(few, more, (long - short) as f64);

    rank.say("requests to the proxy");
    let few = rank.launch(&plans::port_signals(2)?, small, WORD)?;
    let proxy = slope(few, rank.launch(&plans::port_signals(34)?, small, WORD)?, 32.0);
    let few = rank.launch(&plans::port_ping_pong(2)?, small, WORD)?;
    let port_way = slope(few, rank.launch(&plans::port_ping_pong(22)?, small, WORD)?, 40.0);
    let request = (port_way - proxy - flight - signal - 2.0 * step).max(LEAST_NS);

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
        wire_latency_ns: round((wire.one_way_ns - request - proxy - signal - 2.0 * step).max(LEAST_NS)),
        links: Vec::new(),
        costs: Costs {
            launch_ns: round(launch),
            announce_ns: round(announce),
            blocks_ns: round((two_blocks - one).max(LEAST_NS)),
            handshake_ns: round((shaken - launch - announce - flight - step).max(LEAST_NS)),
            step_ns: round(step),
            signal_ns: round(signal),
            signal_flight_ns: round(flight),
            switch_ns: round((crowded - one_way).max(LEAST_NS)),
            wait_ns: round(signal),
            barrier_ns: round(barrier),
            packet_flight_ns: round(packet_flight),
            packet_write: round(packet),
            packet_read: round(packet),
            packet_stream: round(stream),
            request_ns: round(request),
            proxy_ns: round(proxy),
            fold: fold.into_iter().map(|(data_type, rate)| (data_type, round(rate))).collect(),
        },
        stragglers: Vec::new(),
    })
}

fn memory(rank: &Rank, launch: f64, step: f64, one_way: f64) -> anyhow::Result<Vec<MemoryLevel>> {
    let mut levels = Vec::new();
    for footprint in FOOTPRINTS {
        rank.say(&format!("memory, {} KiB", footprint >> 10));
        let half = footprint / 2;
        let rate = |bytes: u64, time: f64| bytes as f64 / (time - launch - step).max(LEAST_NS);
        let copy = |rank: &Rank, ranks| -> anyhow::Result<f64> {
            Ok(rate(half, rank.launch(&plans::copies(ranks, 1)?, [half, half], WORD)?))
        };
        let (one, all) = (copy(rank, 1)?, 2.0 * copy(rank, 2)?);
        let third = (footprint / 3).next_multiple_of(64);
        let fold = |rank: &Rank, ranks| -> anyhow::Result<f64> {
            Ok(rate(third, rank.launch(&plans::fold(ranks)?, [2 * third, third], WORD)?))
        };
        let (fold_one, fold_all) = (fold(rank, 1)?, 2.0 * fold(rank, 2)?);
        let moved = rank.launch(&plans::migrate()?, [half, half], WORD)?;
        // Written by one, read by the other, there and back again in the next launch.
        let foreign = 2.0 * half as f64 / (moved - launch - 2.0 * step - 2.0 * one_way).max(LEAST_NS);
        let foreign = foreign.min(one);
        levels.push(MemoryLevel {
            up_to_bytes: footprint,
            copy: round(one),
            all_cores: round(all),
            fold: round(fold_one),
            fold_all_cores: round(fold_all),
            from_peer: round(foreign),
            to_peer: round(foreign),
        });
    }
    Ok(levels)
}

/// What one of `count` more costs.
fn slope(few: f64, many: f64, count: f64) -> f64 {
    ((many - few) / count).max(LEAST_NS)
}

/// Four digits.
fn round(number: f64) -> f64 {
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
