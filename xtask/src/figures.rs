//! What shows the files under `benchmarks/results`: the tables of README.md, `benchmarks/RESULTS.md`, drawings.

mod gpu;

use std::fmt::Write as _;
use std::fs;

use anyhow::{Context as _, ensure};

use crate::bench::{ResultFile, Series, Unit};
use crate::run::root;
use crate::{collectives, hosts};

/// Blocks of README.md between two marks.
const FIGURES: &str = "figures";
const COLLECTIVES: &str = "collectives";
const SAMPLE: &str = "sample";

/// Programs that show what the machine can give, and compete with nobody.
const FLOORS: [&str; 1] = ["cache line"];

/// Checks that tables and drawings show what the result files say, or writes them.
pub(crate) fn refresh(write: bool) -> anyhow::Result<()> {
    for (path, fresh) in fresh()? {
        let path = root().join(path);
        if fs::read_to_string(&path).is_ok_and(|found| found == fresh) {
            continue;
        }
        ensure!(
            write,
            "{} does not show what benchmarks/results says: run `cargo xtask docs --write-figures`",
            path.display()
        );
        fs::write(&path, fresh).with_context(|| format!("cannot write {}", path.display()))?;
        eprintln!("xtask: wrote {}", path.display());
    }
    Ok(())
}

/// Files from the root of the repository, as they must be.
fn fresh() -> anyhow::Result<Vec<(String, String)>> {
    let readme = fs::read_to_string(root().join("README.md"))?;
    let (figures, collectives) = (table(&contests()?, &gpu::rows()?), collectives::all()?);
    let readme = fill(&readme, SAMPLE, &sample(&collectives))?;
    let readme = fill(&fill(&readme, FIGURES, &figures)?, COLLECTIVES, &of_collectives(&collectives))?;
    let mut files = vec![
        ("README.md".to_owned(), readme),
        ("benchmarks/RESULTS.md".to_owned(), results(&figures, &collectives, &hosts::all()?)),
    ];
    files.extend(collectives.iter().map(|file| (collectives::drawing_path(file), collectives::draw(file))));
    Ok(files)
}

/// What the first command of README.md prints.
fn sample(files: &[collectives::File]) -> String {
    let sample = |file| Some((file, collectives::sample(file)?));
    let Some((file, text)) = files.iter().find_map(sample) else {
        return "The first prints a row per size.\n".into();
    };
    format!(
        "The first prints a row per size (rows and columns left out; from [this run](benchmarks/results/{}.json)):\n\n\
         ```text\n{text}```\n",
        file.collectives
    )
}

/// README.md's part on collectives.
fn of_collectives(files: &[collectives::File]) -> String {
    if files.is_empty() {
        return "Collectives have not been measured yet.\n".into();
    }
    let part = |file| {
        let (title, drawing) = (collectives::title(file), collectives::drawing_path(file));
        format!("![{title}]({drawing})\n\n{title}:\n\n{}\n", collectives::summary(file))
    };
    let parts: Vec<String> = files.iter().map(part).collect();
    format!(
        "{}Time of a call; the least ratio of a peer's time to Warpway's over all sizes, and the least share of the floor from \
         16 MiB on, each with its size. [benchmarks/RESULTS.md](benchmarks/RESULTS.md) has every size.\n",
        parts.concat()
    )
}

/// The page of all figures.
fn results(figures: &str, collectives: &[collectives::File], hosts: &[hosts::File]) -> String {
    let chapters: Vec<String> = collectives.iter().map(collectives::page).collect();
    format!(
        "# Results\n\nMade from [results](results) by `cargo xtask docs --write-figures`; [README.md](README.md) says how \
         figures are taken.\n\n{}{}## Contests\n\n{}",
        chapters.concat(),
        hosts::page(hosts),
        figures.replace("](benchmarks/", "](")
    )
}

/// All contests, by name. Files of other forms belong to the programs that wrote them.
fn contests() -> anyhow::Result<Vec<ResultFile>> {
    let folder = root().join("benchmarks/results");
    let mut contests = Vec::new();
    for entry in fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let path = entry?.path();
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let document: serde_json::Value =
            serde_json::from_str(&text).with_context(|| format!("{} is not JSON", path.display()))?;
        if document.get("contest").is_some() {
            let file = ResultFile::parse(&text).with_context(|| format!("cannot read {}", path.display()))?;
            contests.push(file);
        }
    }
    contests.sort_by(|a, b| a.contest.cmp(&b.contest));
    Ok(contests)
}

/// One row per contest that has both sides, then those of GPUs; machines and dates below.
fn table(contests: &[ResultFile], (gpu_rows, gpu_origin): &(String, String)) -> String {
    let mut rows = String::new();
    let mut origins: Vec<String> = Vec::new();
    for file in contests {
        let program = |series: &&Series| series.runs[0].program.clone();
        let (floor, contestants): (Vec<&Series>, Vec<&Series>) =
            file.series.iter().partition(|series| FLOORS.contains(&program(series).as_str()));
        let (ours, others): (Vec<&Series>, Vec<&Series>) =
            contestants.into_iter().partition(|series| program(series).starts_with("warpway "));
        let Some(ours) = best(&ours) else { continue };
        let named = |series: &Series| format!("{} ({})", figure(series), series.runs[0].program);
        let other = best(&others).map_or_else(|| "–".to_owned(), named);
        let floor = best(&floor).map_or_else(String::new, |floor| format!("; floor {}", named(floor)));
        let what = &ours.runs[0];
        let _ = writeln!(
            rows,
            "| [{}](benchmarks/results/{}.json) | {} | {} | **{}** | {other}{floor} |",
            file.contest,
            file.contest,
            what.ranks,
            size(what.bytes),
            figure(ours),
        );
        let (day, _) = file.date.split_at_checked(10).unwrap_or((&file.date, ""));
        let changed = if file.modified { ", tree modified" } else { "" };
        let origin = format!("{}, {} cores, {day}{changed}", file.machine.cpu, file.machine.cores);
        if !origins.contains(&origin) {
            origins.push(origin);
        }
    }
    rows.push_str(gpu_rows);
    origins.extend(Some(gpu_origin.clone()).filter(|origin| !origin.is_empty()));
    if rows.is_empty() {
        return "No contest has been held yet.\n".into();
    }
    format!(
        "| contest | ranks | bytes | Warpway | best other |\n|---|--:|--:|--:|--:|\n{rows}\nMedian of the runs' \
         medians (lowest to highest run). {}.\n",
        origins.join("; ")
    )
}

/// The series with the best figure in its unit.
fn best<'a>(series: &[&'a Series]) -> Option<&'a Series> {
    series.iter().copied().min_by(|a, b| {
        let order = a.median.total_cmp(&b.median);
        match a.runs[0].unit {
            Unit::Microseconds => order,
            Unit::GigabytesPerSecond => order.reverse(),
        }
    })
}

fn figure(series: &Series) -> String {
    let (low, high) = series.medians.iter().fold((f64::MAX, f64::MIN), |(a, b), m| (a.min(*m), b.max(*m)));
    let (unit, scale) = match series.runs[0].unit {
        Unit::Microseconds if series.median >= 10_000.0 => ("ms", 1e-3),
        unit => (unit.text(), 1.0),
    };
    let [median, low, high] = [series.median, low, high].map(|value| digits(value * scale));
    format!("{median} {unit} ({low} to {high})")
}

/// Three significant digits, never in exponent form.
pub(crate) fn digits(value: f64) -> String {
    let places = match value {
        v if v >= 99.95 => 0,
        v if v >= 9.995 => 1,
        v if v >= 0.9995 => 2,
        _ => 3,
    };
    format!("{value:.places$}")
}

/// Powers of 1024 where they are whole.
pub(crate) fn size(bytes: u64) -> String {
    for (shift, unit) in [(30, "GiB"), (20, "MiB"), (10, "KiB")] {
        if bytes >= 1 << shift && bytes.is_multiple_of(1 << shift) {
            return format!("{} {unit}", bytes >> shift);
        }
    }
    bytes.to_string()
}

/// `page` with `text` between the marks of a block.
fn fill(page: &str, block: &str, text: &str) -> anyhow::Result<String> {
    let [begin, end] = ["begin", "end"].map(|which| format!("<!-- {block}:{which} -->\n"));
    let (before, rest) =
        page.split_once(&begin).with_context(|| format!("README.md has no mark {block}:begin"))?;
    let (_, after) = rest.split_once(&end).with_context(|| format!("README.md has no mark {block}:end"))?;
    Ok(format!("{before}{begin}{text}{end}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contest(unit: &str, series: &[(&str, f64)]) -> ResultFile {
        let series: Vec<_> = series
            .iter()
            .map(|(program, median)| {
                serde_json::json!({
                    "command": program, "median": median, "medians": [median / 2.0, median],
                    "runs": [{"program": program, "benchmark": "put", "ranks": 2, "bytes": 65536, "unit": unit,
                              "samples": [median]}],
                })
            })
            .collect();
        let file = serde_json::json!({
            "version": 1, "contest": "c", "date": "2026-11-30T00:01:14Z", "commit": "0", "modified": false,
            "machine": {"cpu": "CPU", "cores": 2, "kernel": "6", "memory": 1}, "order": [], "series": series,
        });
        ResultFile::parse(&file.to_string()).unwrap()
    }

    fn no_gpu() -> (String, String) {
        (String::new(), String::new())
    }

    #[test]
    fn pages_and_drawings_are_fresh() {
        refresh(false).unwrap();
    }

    #[test]
    fn the_best_of_each_side_is_shown() {
        let series = [("warpway 1", 2.0), ("other a", 3.0), ("warpway 1 packets", 1.0), ("other b", 100.4)];
        let row =
            |unit| table(&[contest(unit, &series)], &no_gpu()).lines().nth(2).map(str::to_owned).unwrap();
        assert_eq!(
            row("us"),
            "| [c](benchmarks/results/c.json) | 2 | 64 KiB | **1.00 µs (0.500 to 1.00)** | 3.00 µs (1.50 to 3.00) (other a) |"
        );
        assert_eq!(
            row("GB/s"),
            "| [c](benchmarks/results/c.json) | 2 | 64 KiB | **2.00 GB/s (1.00 to 2.00)** | 100 GB/s (50.2 to 100) (other b) |"
        );
    }

    #[test]
    fn a_floor_is_shown_beside_the_rival_or_alone() {
        let row = |series: &[(&str, f64)]| {
            table(&[contest("us", series)], &no_gpu()).lines().nth(2).map(str::to_owned).unwrap()
        };
        let row_of = |end: &str| {
            format!("| [c](benchmarks/results/c.json) | 2 | 64 KiB | **2.00 µs (1.00 to 2.00)** | {end} |")
        };
        let floor = "floor 1.00 µs (0.500 to 1.00) (cache line)";
        assert_eq!(row(&[("warpway 1", 2.0)]), row_of("–"));
        assert!(row(&[("warpway 1", 20_000.0)]).contains("**20.0 ms (10.0 to 20.0)**"));
        assert_eq!(row(&[("warpway 1", 2.0), ("cache line", 1.0)]), row_of(&format!("–; {floor}")));
        let all = [("cache line", 1.0), ("warpway 1", 2.0), ("other", 3.0)];
        assert_eq!(row(&all), row_of(&format!("3.00 µs (1.50 to 3.00) (other); {floor}")));
        assert_eq!(table(&[contest("us", &[("other", 3.0)])], &no_gpu()), "No contest has been held yet.\n");
    }

    #[test]
    fn the_block_is_replaced_and_nothing_else() {
        let page = |text: &str| format!("a\n<!-- x:begin -->\n{text}\n<!-- x:end -->\nb\n");
        assert_eq!(fill(&page("old"), "x", "new\n").unwrap(), page("new"));
        assert!(fill(&page("old"), "y", "new\n").is_err());
    }

    #[test]
    fn numbers_have_three_digits() {
        assert_eq!(
            [0.05256, 1.2345, 12.345, 123.45, 1234.5].map(digits),
            ["0.053", "1.23", "12.3", "123", "1234"]
        );
        assert_eq!([8, 1024, 1536, 64 << 20].map(size), ["8", "1 KiB", "1536", "64 MiB"]);
    }
}
