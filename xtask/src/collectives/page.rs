//! The part of `benchmarks/RESULTS.md` that a file makes: a table for each function and type.

use std::fmt::Write as _;

use super::drawing;
use super::file::{File, Row, Run};
use super::summary::{peers, summary, time, unit};
use crate::figures::digits;

/// For people.
pub(crate) fn title(file: &File) -> String {
    format!("Collectives on host memory, {} ranks", file.ranks())
}

/// A chapter.
pub(crate) fn page(file: &File) -> String {
    let changed = if file.modified { ", tree modified: for looking only" } else { "" };
    let (name, machine) = (&file.collectives, &file.machine);
    let mut text = format!(
        "## {}\n\n[{name}](results/{name}.json): {}, {} cores, kernel {}; {}; commit {}{changed}.\n\n```sh\n{}\n```\n\n",
        title(file),
        machine.cpu,
        machine.cores,
        machine.kernel,
        file.date,
        file.commit.get(..12).unwrap_or(&file.commit),
        file.command,
    );
    for peer in peers(file) {
        let programs = file.runs.iter().filter_map(|run| run.program(peer));
        if let Some(program) = programs.into_iter().next() {
            let _ = writeln!(text, "{peer} is {}.", program.split(',').next().unwrap_or(program));
        }
    }
    let _ = write!(
        text,
        "Times are medians of a call on the slowest rank; all contestants in turns within one run, every result checked \
         before and after it. A ratio above 1: Warpway is faster. Floor: the time in which plain copies by all ranks at once would \
         read and write what the plan does, as a share of the median.\n\n![{}](../{})\n\n{}\n",
        title(file),
        drawing::path(file),
        summary(file),
    );
    for run in &file.runs {
        text.push_str(&table(run));
    }
    text
}

fn table(run: &Run) -> String {
    let in_place = run.rows.iter().any(|row| row.out_of_place.is_none());
    let place = if in_place { "in place" } else { "out of place" };
    let words =
        [Some(run.benchmark.clone()), Some(run.data_type.clone()), run.op.clone(), Some(place.to_owned())];
    let heading: Vec<String> = words.into_iter().flatten().collect();
    let peers = run.peers();
    let mut text = format!("### {}\n\n| bytes | Warpway | bus GB/s |", heading.join(", "));
    let mut line = "|--:|--:|--:|".to_owned();
    for peer in &peers {
        let _ = write!(text, " {peer} | ratio |");
        line.push_str("--:|--:|");
    }
    let _ = write!(text, " floor | algorithm |\n{line}--:|---|\n");
    for row in &run.rows {
        text.push_str(&line_of(row, &peers));
    }
    text.push('\n');
    text
}

fn line_of(row: &Row, peers: &[&str]) -> String {
    let Some(side) = row.side() else { return String::new() };
    let mut text =
        format!("| {} | **{}** | {} |", unit(row.bytes), time(side.median_us), digits(side.bus_gb_per_s));
    for name in peers {
        match side.peer(name) {
            Some(peer) => {
                let ratio = peer.ratio.map_or_else(|| "–".to_owned(), digits);
                let _ = write!(text, " {} | {ratio} |", time(peer.median_us));
            }
            None => text.push_str(" – | – |"),
        }
    }
    let floor = side.floor.as_ref().map_or_else(String::new, |floor| format!("{:.0} %", floor.share * 100.0));
    let _ = writeln!(text, " {floor} | {} |", side.algorithm.as_deref().unwrap_or("–"));
    text
}

#[cfg(test)]
mod tests {
    use super::super::file::tests::example;
    use super::*;

    #[test]
    fn a_line_per_size() {
        let text = page(&example());
        for line in [
            "## Collectives on host memory, 2 ranks",
            "Open MPI is Open MPI v4.",
            "### all_reduce, float32, sum, out of place",
            "| bytes | Warpway | bus GB/s | Open MPI | ratio | floor | algorithm |",
            "| 8 B | **0.500 µs** | 0.016 | 0.700 µs | 1.40 |  | ring |",
            "| 16 MiB | **2000 µs** | 8.39 | 3000 µs | 1.50 | 90 % | ring |",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in {text}");
        }
        assert!(!text.contains("Gloo"), "a peer without any figure has no column");
    }
}
