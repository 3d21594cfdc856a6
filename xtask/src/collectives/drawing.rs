//! The drawing of a file: time over size, a panel for each function and type.

use warpway_chart::{Figure, Panel, Series};

use super::file::{File, Row, Run};
use super::page;
use super::summary::peers;

/// Where it is kept, from the root of the repository.
pub(crate) fn path(file: &File) -> String {
    format!("docs/{}.svg", file.collectives)
}

/// As SVG.
pub(crate) fn draw(file: &File) -> String {
    // A row for each type.
    let mut types: Vec<&str> = Vec::new();
    for run in &file.runs {
        if !types.contains(&run.data_type.as_str()) {
            types.push(&run.data_type);
        }
    }
    let peers = peers(file);
    let panels: Vec<Panel> =
        types.iter().flat_map(|data_type| of_type(file, data_type)).map(|run| panel(run, &peers)).collect();
    let columns = types.iter().map(|data_type| of_type(file, data_type).count()).max().unwrap_or(1);
    let day = file.date.get(..10).unwrap_or(&file.date);
    let changed = if file.modified { ", tree modified" } else { "" };
    let figure = Figure {
        title: page::title(file),
        note: format!(
            "time of a call, median; {}, {} cores, {day}{changed}; benchmarks/results/{}.json",
            file.machine.cpu, file.machine.cores, file.collectives
        ),
        columns,
        panels,
    };
    figure.to_svg()
}

fn of_type<'a>(file: &'a File, data_type: &'a str) -> impl Iterator<Item = &'a Run> {
    file.runs.iter().filter(move |run| run.data_type == data_type)
}

fn panel(run: &Run, peers: &[&str]) -> Panel {
    let sides = || run.rows.iter().filter_map(|row: &Row| Some((row.bytes as f64, row.side()?)));
    let ours =
        Series { name: "Warpway".into(), points: sides().map(|(x, side)| (x, side.median_us)).collect() };
    let theirs = peers.iter().map(|peer| Series {
        name: (*peer).to_owned(),
        points: sides().filter_map(|(x, side)| Some((x, side.peer(peer)?.median_us))).collect(),
    });
    Panel {
        title: format!("{}, {}", run.benchmark, run.data_type),
        x: "bytes of the larger buffer".into(),
        y: "µs".into(),
        series: std::iter::once(ours).chain(theirs).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::file::tests::example;
    use super::*;

    #[test]
    fn a_line_for_each_that_has_figures() {
        let svg = draw(&example());
        assert_eq!(svg.matches("<polyline").count(), 2);
        assert!(
            svg.contains("all_reduce, float32") && svg.contains(">Open MPI</text>") && !svg.contains("Gloo")
        );
    }
}
