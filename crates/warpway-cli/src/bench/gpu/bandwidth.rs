//! How fast a buffer crosses: channel, bulk engine and copy engine against plain kernels.

use warpway_cuda::bench::{Directions, Mover, Pair, Transfer};

use super::figure::{Figure, Target, Unit};
use super::report::{Report, size};
use super::turns::{self, Contestant, Run, Series};
use super::{Arguments, What};

/// Where the targets hold.
const JUDGED_BYTES: u64 = 256 << 20;
/// The few blocks that should nearly do.
const FEW_BLOCKS: u32 = 8;
/// Threads of a block times the bytes that each moves at once: grids that have nothing to do are left out.
const BYTES_PER_BLOCK: u64 = 512 * 16;

/// Who moves how many blocks' worth.
#[derive(Debug, Clone, Copy)]
struct Entry {
    mover: Mover,
    blocks: u32,
}

pub(super) fn run(what: What, pair: &Pair, arguments: &Arguments, report: &mut Report) -> anyhow::Result<()> {
    let [first, second] = pair.devices();
    if what == What::Bulk && (first.architecture.major < 9 || second.architecture.major < 9) {
        report.note(format!(
            "bulk copies need sm_90; these are {} and {}",
            first.architecture, second.architecture
        ));
        return Ok(());
    }
    let multiprocessors = first.multiprocessors.min(second.multiprocessors);
    for bytes in arguments.sizes(what) {
        let grids = grids(what, arguments, multiprocessors, bytes);
        for directions in [Directions::One, Directions::Both] {
            if arguments.quick && directions == Directions::One && bytes < JUDGED_BYTES {
                continue;
            }
            let entries: Vec<Entry> = match what {
                What::CopyEngine => {
                    [Mover::CopyPush, Mover::CopyPull].map(|mover| Entry { mover, blocks: 0 }).into()
                }
                _ => grids
                    .iter()
                    .flat_map(|&blocks| movers(what).into_iter().map(move |mover| Entry { mover, blocks }))
                    .collect(),
            };
            report.begin(&format!("{} {}, {directions}", what.name(), size(bytes)));
            let series = measure(pair, arguments.rounds(), &entries, (bytes, directions))?;
            let case = |blocks: u32| case(bytes, directions, blocks);
            let judged = bytes == JUDGED_BYTES && directions == Directions::Both;
            for figure in figures(what.name(), case, &entries, &series, judged) {
                report.push(figure);
            }
        }
    }
    Ok(())
}

fn measure(
    pair: &Pair,
    rounds: u32,
    entries: &[Entry],
    (bytes, directions): (u64, Directions),
) -> anyhow::Result<Vec<Series>> {
    let mut contestants = Vec::with_capacity(entries.len());
    for &Entry { mover, blocks } in entries {
        let ready = pair.transfer(Transfer { mover, bytes, blocks, directions })?;
        contestants.push(Contestant::new(mover, move || {
            let measured = ready.run()?;
            Ok(Run { samples: vec![ready.bytes() as f64 / measured.us / 1e3], wrong: measured.wrong })
        }));
    }
    Ok(turns::take(pair, rounds, contestants))
}

/// The contestant first, then the forms of its floor.
fn movers(what: What) -> Vec<Mover> {
    match what {
        What::Put => [Mover::ChannelPut { guarded: true }]
            .into_iter()
            .chain((0..Mover::FLOORS).map(Mover::PlainPush))
            .collect(),
        What::Get => {
            [Mover::ChannelGet].into_iter().chain((0..Mover::FLOORS).map(Mover::PlainPull)).collect()
        }
        What::Bulk => {
            [Mover::BulkPut].into_iter().chain((0..Mover::BULK_FLOORS).map(Mover::PlainBulk)).collect()
        }
        _ => Vec::new(),
    }
}

/// Blocks, ascending; of the default ones those that have work.
fn grids(what: What, arguments: &Arguments, multiprocessors: u32, bytes: u64) -> Vec<u32> {
    if !arguments.blocks.is_empty() {
        let mut blocks = arguments.blocks.clone();
        blocks.sort_unstable();
        blocks.dedup();
        return blocks;
    }
    // A block of the bulk form takes most of a multiprocessor's shared memory.
    let all = match what {
        What::Bulk => vec![FEW_BLOCKS, 64, multiprocessors],
        _ => vec![FEW_BLOCKS, multiprocessors, 2 * multiprocessors],
    };
    all.into_iter()
        .filter(|&blocks| blocks == FEW_BLOCKS || u64::from(blocks) * BYTES_PER_BLOCK <= bytes)
        .collect()
}

/// Each contestant is compared with the best form of its floor of as many blocks; where targets hold, few blocks with the
/// best floor of all grids as well.
fn figures(
    benchmark: &'static str,
    case: impl Fn(u32) -> String,
    entries: &[Entry],
    series: &[Series],
    judged: bool,
) -> Vec<Figure> {
    let is_floor = |entry: &Entry| {
        matches!(entry.mover, Mover::PlainPush(_) | Mover::PlainPull(_) | Mover::PlainBulk(_))
    };
    let all = || entries.iter().zip(series);
    let best = |blocks: Option<u32>| {
        all()
            .filter(|(entry, _)| is_floor(entry) && blocks.is_none_or(|blocks| entry.blocks == blocks))
            .map(|(_, series)| series)
            .max_by(|a, b| a.median().unwrap_or(0.0).total_cmp(&b.median().unwrap_or(0.0)))
    };
    let figure = |(entry, own): (&Entry, &Series)| {
        let mut figure = Figure::new(benchmark, case(entry.blocks), Unit::GigabytesPerSecond, own);
        if is_floor(entry) {
            return figure;
        }
        let few = entry.blocks <= FEW_BLOCKS && entry.mover == (Mover::ChannelPut { guarded: true });
        let target = match entry.mover {
            Mover::ChannelPut { .. } if few => None,
            Mover::ChannelPut { .. } | Mover::BulkPut => Some(Target::AtLeast(0.98)),
            _ => None,
        };
        if let Some(floor) = best(Some(entry.blocks)) {
            figure = figure.against(own, floor, target.filter(|_| judged));
        }
        if let Some(floor) = best(None).filter(|_| judged && few) {
            figure = figure.against(own, floor, Some(Target::AtLeast(0.93)));
        }
        figure
    };
    all().map(figure).collect()
}

fn case(bytes: u64, directions: Directions, blocks: u32) -> String {
    let ways = match directions {
        Directions::One => "one way",
        Directions::Both => "both ways",
    };
    if blocks == 0 {
        format!("{}, {ways}", size(bytes))
    } else {
        format!("{}, {ways}, {blocks} blocks", size(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_channel_is_held_against_the_best_floor() {
        let entries: Vec<Entry> = [8, 132]
            .into_iter()
            .flat_map(|blocks| movers(What::Put).into_iter().map(move |mover| Entry { mover, blocks }))
            .collect();
        assert_eq!(entries.len(), 10);
        let rates = [340.0, 350.0, 352.0, 348.0, 90.0, 360.0, 361.0, 364.0, 362.0, 363.0];
        let series: Vec<Series> = entries
            .iter()
            .zip(rates)
            .map(|(entry, rate)| Series {
                name: entry.mover.to_string(),
                rounds: vec![rate; 3],
                ..Series::default()
            })
            .collect();
        let case = |blocks| case(256 << 20, Directions::Both, blocks);
        let shown = figures("put", case, &entries, &series, true);
        let compared = |figure: &Figure| {
            let of = |c: &super::super::figure::Comparison| {
                (c.against.clone().unwrap(), (c.value.unwrap() * 1e4).round() / 1e4, c.is_met())
            };
            figure.comparisons.iter().map(of).collect::<Vec<_>>()
        };
        let (few, all) =
            ("plain stores, 4 deep, in parts".to_owned(), "plain stores, 4 deep, in parts".to_owned());
        assert_eq!(shown[0].case, "256 MiB, both ways, 8 blocks");
        assert_eq!(compared(&shown[0]), [(few, 0.9659, None), (all.clone(), 0.9341, Some(true))]);
        assert_eq!(compared(&shown[5]), [(all, 0.989, Some(true))]);
        assert!(shown[1..5].iter().chain(&shown[6..]).all(|figure| figure.comparisons.is_empty()));
        let unjudged = figures("put", case, &entries, &series, false);
        assert!(unjudged.iter().flat_map(|figure| &figure.comparisons).all(|c| c.target.is_none()));
    }
}
