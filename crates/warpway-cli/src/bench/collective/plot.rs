//! Time and bus bandwidth over size.

use warpway_chart::{Figure, Panel, Series};

use super::figures::{Row, Side};
use super::report::Heading;

/// The figure of a run, as SVG.
pub(super) fn draw(heading: &Heading, rows: &[Row]) -> String {
    let places =
        [rows.iter().any(|row| row.out_of_place.is_some()), rows.iter().any(|row| row.in_place.is_some())];
    let both = places == [true, true];
    let mut times = Vec::new();
    let mut rates = Vec::new();
    for in_place in [false, true] {
        let sides = || rows.iter().filter_map(move |row| Some((row, side(row, in_place)?)));
        let name = |who: &str| match (both, in_place) {
            (true, true) => format!("{who} in place"),
            _ => who.to_owned(),
        };
        let time = |(row, side): (&Row, &Side)| (row.bytes as f64, side.time.median_us);
        let rate = |(row, side): (&Row, &Side)| (row.bytes as f64, side.bus_gb_per_s);
        times.push(Series { name: name("Warpway"), points: sides().map(time).collect() });
        rates.push(Series { name: name("Warpway"), points: sides().map(rate).collect() });
        let peers = sides().next().map_or(0, |(_, side)| side.peers.len());
        for peer in 0..peers {
            let found = || sides().filter_map(|(row, side)| Some((row, side, side.peers.get(peer)?)));
            let who = found().next().map_or_else(String::new, |(_, _, peer)| name(&peer.name));
            let points = found().map(|(row, _, peer)| (row.bytes as f64, peer.time.median_us)).collect();
            times.push(Series { name: who.clone(), points });
            // The same bytes in another time.
            let points = found()
                .filter_map(|(row, side, peer)| Some((row.bytes as f64, side.bus_gb_per_s / peer.ratio?)));
            rates.push(Series { name: who, points: points.collect() });
        }
    }
    let drawn = |series: Vec<Series>| {
        series.into_iter().filter(|series| series.points.iter().any(|(_, y)| *y > 0.0)).collect()
    };
    let panel = |title: &str, y: &str, series| Panel {
        title: title.to_owned(),
        x: "bytes of the larger buffer".to_owned(),
        y: y.to_owned(),
        series: drawn(series),
    };
    let figure = Figure {
        title: heading.line(),
        note: format!("medians over batches of calls, {}", heading.memory),
        columns: 2,
        panels: vec![panel("Time of a call", "µs", times), panel("Bus bandwidth", "GB/s", rates)],
    };
    figure.to_svg()
}

fn side(row: &Row, in_place: bool) -> Option<&Side> {
    let side = if in_place { &row.in_place } else { &row.out_of_place };
    side.as_ref().filter(|side| side.unsupported.is_none())
}
