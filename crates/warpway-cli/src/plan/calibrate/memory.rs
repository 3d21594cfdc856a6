//! How fast bytes move, by how many there are: in the own cache, from and to the other's, as packets.

use warpway_plan::simulate::MemoryLevel;

use super::plans;
use super::primitives::{Basics, Bench, WORD, at_least, round};

/// Bytes that a block touches, at which memory is measured.
const FOOTPRINTS: [u64; 14] = [
    1 << 10,
    1 << 12,
    1 << 14,
    1 << 16,
    1 << 18,
    1 << 19,
    1 << 20,
    1 << 21,
    1 << 22,
    1 << 23,
    1 << 24,
    1 << 25,
    1 << 26,
    1 << 28,
];
/// Packets, and what lies in another cache, are no further matter for what fits no cache.
const MOST_CACHED: u64 = 1 << 25;
/// Packets of a pipeline.
const SLOTS: u64 = 4;

pub(super) fn measure(bench: &Bench<'_>, basics: &Basics) -> anyhow::Result<Vec<MemoryLevel>> {
    let mut levels: Vec<MemoryLevel> = Vec::new();
    // Of packets that carry nearly nothing.
    let empty = Packets::measure(bench, 16)?;
    for footprint in FOOTPRINTS {
        bench.rank.say(&format!("memory, {} KiB", footprint >> 10));
        let own = own(bench, basics, footprint)?;
        let level = match levels.last() {
            Some(last) if footprint > MOST_CACHED => MemoryLevel {
                up_to_bytes: own.up_to_bytes,
                copy: own.copy,
                all_cores: own.all_cores,
                fold: own.fold,
                fold_all_cores: own.fold_all_cores,
                ..*last
            },
            _ => packets(bench, &empty, foreign(bench, basics, own)?)?,
        };
        levels.push(MemoryLevel {
            copy: round(level.copy),
            all_cores: round(level.all_cores),
            fold: round(level.fold),
            fold_all_cores: round(level.fold_all_cores),
            from_peer: round(level.from_peer),
            to_peer: round(level.to_peer),
            fold_from_peer: round(level.fold_from_peer),
            fold_to_peer: round(level.fold_to_peer),
            packet_write: round(level.packet_write),
            packet_read: round(level.packet_read),
            packet_stream: round(level.packet_stream),
            ..level
        });
    }
    Ok(levels)
}

/// What no other block has touched.
fn own(bench: &Bench<'_>, basics: &Basics, footprint: u64) -> anyhow::Result<MemoryLevel> {
    let rate = |bytes: u64, time: f64| bytes as f64 / at_least(time - basics.launch - basics.step);
    let half = footprint / 2;
    let copy = |ranks| -> anyhow::Result<f64> {
        Ok(rate(half, bench.launch(&plans::copies(ranks, 1)?, [half, half], WORD)?))
    };
    let third = (footprint / 3).next_multiple_of(64);
    let fold = |ranks| -> anyhow::Result<f64> {
        Ok(rate(third, bench.launch(&plans::fold(ranks)?, [2 * third, third], WORD)?))
    };
    let copied = copy(1)?;
    Ok(MemoryLevel {
        up_to_bytes: footprint,
        copy: copied,
        all_cores: 2.0 * copy(2)?,
        fold: fold(1)?,
        fold_all_cores: 2.0 * fold(2)?,
        from_peer: copied,
        to_peer: copied,
        fold_from_peer: copied,
        fold_to_peer: copied,
        packet_write: copied,
        packet_read: copied,
        packet_stream: copied,
    })
}

/// What another block has touched: the bytes go from one cache to the other and back in each launch.
fn foreign(bench: &Bench<'_>, basics: &Basics, level: MemoryLevel) -> anyhow::Result<MemoryLevel> {
    // A copy touches twice its bytes.
    let bytes = level.up_to_bytes / 2;
    let Basics { launch, step, turns, line } = *basics;
    let around = turns + line;
    let moved = bench.launch(&plans::migrate()?, [bytes, bytes], WORD)?;
    // Written by one, read by the other.
    let copied = (2.0 * bytes as f64 / at_least(moved - around)).min(level.copy);
    // One of both is a fold.
    let alone = at_least(bench.launch(&plans::fold(1)?, [2 * bytes, bytes], WORD)? - launch - step);
    let folded = |time: f64| {
        let more = time - around - bytes as f64 / copied - alone;
        1.0 / (1.0 / level.copy + more.max(0.0) / bytes as f64)
    };
    let reads = bench.launch(&plans::fold_what_comes()?, [bytes, bytes], WORD)?;
    let writes = bench.launch(&plans::fold_for_a_reader()?, [2 * bytes, bytes], WORD)?;
    Ok(MemoryLevel {
        from_peer: copied,
        to_peer: copied,
        fold_from_peer: folded(reads),
        fold_to_peer: folded(writes),
        ..level
    })
}

/// Times of launches with packets of so many bytes of data.
struct Packets {
    bytes: u64,
    exchanged: f64,
    pipelined: f64,
    bounced: f64,
}

impl Packets {
    fn measure(bench: &Bench<'_>, bytes: u64) -> anyhow::Result<Self> {
        let launch = |plan| bench.launch(&plan, [bytes, bytes], WORD);
        Ok(Self {
            bytes,
            exchanged: launch(plans::packet_exchange()?)?,
            pipelined: bench.launch(&plans::packet_pipeline(SLOTS)?, [bytes * SLOTS, bytes * SLOTS], WORD)?,
            bounced: launch(plans::packet_ping_pong(1)?)?,
        })
    }
}

fn packets(bench: &Bench<'_>, empty: &Packets, level: MemoryLevel) -> anyhow::Result<MemoryLevel> {
    // An exchange touches data here and there, and packets of twice as many bytes in two halves, again here and there.
    let bytes = (level.up_to_bytes / 10).next_multiple_of(64).max(512);
    let full = Packets::measure(bench, bytes)?;
    let carried = (full.bytes - empty.bytes) as f64;
    // Everything written, then everything read.
    let both = at_least(full.exchanged - empty.exchanged);
    // Of so many parts, one is written while the one before is read.
    let pipelined = at_least(full.pipelined - empty.pipelined);
    let slower = ((pipelined - both) / (SLOTS - 1) as f64).clamp(0.5 * both, 0.9 * both);
    // Raw data is read for the one, and written for the other, as half a copy does.
    let raw = carried / 2.0 / level.copy;
    // Who writes has to get every line back from who has read it.
    let (write, read) = (at_least(slower - raw), at_least(both - slower - raw));
    Ok(MemoryLevel {
        packet_write: carried / write,
        packet_read: carried / read,
        packet_stream: 2.0 * carried / at_least(full.bounced - empty.bounced),
        ..level
    })
}
