//! What README.md says of a file: a row for each function and type.

use std::fmt::Write as _;

use super::file::{File, Row, Run};
use crate::figures::{digits, size};

/// Sizes that are shown, as far as they were measured.
const SHOWN: [u64; 4] = [8, 4 << 10, 1 << 20, 64 << 20];
/// Sizes of the sample.
const SAMPLED: [u64; 4] = [8, 4 << 10, 256 << 10, 16 << 20];
/// From here on, the floor is said.
const LARGE: u64 = 16 << 20;

/// A table: the time at some sizes, the least ratio to each peer over all sizes, the least share of the floor.
pub(crate) fn summary(file: &File) -> String {
    let measured = |bytes: &u64| file.runs.iter().any(|run| run.rows.iter().any(|row| row.bytes == *bytes));
    let sizes: Vec<u64> = SHOWN.into_iter().filter(measured).collect();
    let peers = peers(file);
    let mut text = "| collective | type |".to_owned();
    let mut line = "|---|---|".to_owned();
    for bytes in &sizes {
        let _ = write!(text, " {} |", unit(*bytes));
        line.push_str("--:|");
    }
    for peer in &peers {
        let _ = write!(text, " × {peer}, least |");
        line.push_str("--:|");
    }
    let _ = write!(text, " of the floor, least |\n{line}--:|\n");
    for run in &file.runs {
        let _ = write!(text, "| {} | {} |", run.benchmark, run.data_type);
        for bytes in &sizes {
            let side = run.rows.iter().find(|row| row.bytes == *bytes).and_then(Row::side);
            let cell = side.map_or_else(|| "–".to_owned(), |side| time(side.median_us));
            let _ = write!(text, " {cell} |");
        }
        for peer in &peers {
            let cell = least_ratio(run, peer).map_or_else(
                || "–".to_owned(),
                |(ratio, bytes)| format!("{} ({})", digits(ratio), unit(bytes)),
            );
            let _ = write!(text, " {cell} |");
        }
        let floor = least_floor(run).map_or_else(
            || "–".to_owned(),
            |(share, bytes)| format!("{:.0} % ({})", share * 100.0, unit(bytes)),
        );
        let _ = writeln!(text, " {floor} |");
    }
    text
}

/// Some rows as `warpway bench all_gather` prints them; nothing if that was not measured.
pub(crate) fn sample(file: &File) -> Option<String> {
    let run = file.runs.iter().find(|run| run.benchmark == "all_gather" && run.data_type == "float32")?;
    let mut text = format!("{}, {}, {} ranks, {}\n", run.benchmark, run.data_type, run.ranks, run.memory);
    let names =
        format!("{:>12}{:>12}{:>11}{:>9}{:>9}{:>7}", "bytes", "count", "µs", "GB/s", "bus GB/s", "wrong");
    let _ = write!(text, "{names}\n{}\n", "═".repeat(names.chars().count()));
    for row in run.rows.iter().filter(|row| SAMPLED.contains(&row.bytes)) {
        let side = row.out_of_place.as_ref()?;
        let _ = writeln!(
            text,
            "{:>12}{:>12}{:>11}{:>9.2}{:>9.2}{:>7}",
            row.bytes,
            row.count,
            digits(side.median_us),
            side.gb_per_s,
            side.bus_gb_per_s,
            side.wrong
        );
    }
    Some(text)
}

/// All peers with figures.
pub(super) fn peers(file: &File) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for name in file.runs.iter().flat_map(Run::peers) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// Over all sizes, and where.
fn least_ratio(run: &Run, peer: &str) -> Option<(f64, u64)> {
    let ratio = |row: &Row| Some((row.side()?.peer(peer)?.ratio?, row.bytes));
    run.rows.iter().filter_map(ratio).min_by(|a, b| a.0.total_cmp(&b.0))
}

/// Over large sizes, and where.
fn least_floor(run: &Run) -> Option<(f64, u64)> {
    let large = run.rows.iter().filter(|row| row.bytes >= LARGE);
    let share = |row: &Row| Some((row.side()?.floor.as_ref()?.share, row.bytes));
    large.filter_map(share).min_by(|a, b| a.0.total_cmp(&b.0))
}

/// A size with its unit.
pub(super) fn unit(bytes: u64) -> String {
    let text = size(bytes);
    if text.ends_with('B') { text } else { format!("{text} B") }
}

/// Microseconds, or milliseconds where these are few.
pub(super) fn time(us: f64) -> String {
    if us >= 9_995.0 { format!("{} ms", digits(us / 1e3)) } else { format!("{} µs", digits(us)) }
}

#[cfg(test)]
mod tests {
    use super::super::file::tests::example;
    use super::*;

    #[test]
    fn the_least_ratio_and_share_with_their_sizes() {
        let text = summary(&example());
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "| collective | type | 8 B | × Open MPI, least | of the floor, least |");
        assert_eq!(lines[2], "| all_reduce | float32 | 0.500 µs | 1.40 (8 B) | 90 % (16 MiB) |");
        assert_eq!(lines.len(), 3);
    }

    #[test]
    fn a_sample_looks_like_the_command() {
        let mut file = example();
        assert_eq!(sample(&file), None);
        file.runs[0].benchmark = "all_gather".into();
        let text = sample(&file).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "all_gather, float32, 2 ranks, registered memory");
        assert_eq!(lines[3], "           8           2      0.500     0.02     0.02      0");
        assert_eq!(lines[1].chars().count(), lines[3].chars().count());
    }
}
