//! Ranks and blocks from top to bottom, time from left to right.

use std::collections::BTreeMap;

use super::palette::{self, DEFINITIONS};
use super::svg::{Anchor, Svg, bytes, n, time};
use crate::simulate::{Lane, Simulation, Span, SpanKind};

const LEFT: f64 = 120.0;
const WIDTH: f64 = 880.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 76.0;
const ROW: f64 = 20.0;
const GAP: f64 = 10.0;
/// Arrows beyond so many only hide what is below them.
const ARROWS: usize = 600;

/// A picture of a recorded simulation: operations coloured by kind, waits hatched, an arrow from what ended a wait, the
/// critical path framed in red. `title` stands above it.
pub fn timeline(simulation: &Simulation, title: &str) -> String {
    let rows = rows(simulation);
    let last = rows.values().copied().fold(TOP, f64::max);
    let end = simulation.spans.iter().map(|span| span.end).fold(1.0, f64::max);
    let mut svg = Svg::new(LEFT + WIDTH + RIGHT, last + ROW + 46.0);
    let x = |at: f64| LEFT + at / end * WIDTH;
    svg.text([16.0, 24.0], Anchor::Start, "title", title);
    svg.text([16.0, 42.0], Anchor::Start, "faint", &summary(simulation));
    legend(&mut svg);
    for tick in ticks(end) {
        svg.stroke([x(tick), TOP - 6.0], [x(tick), last + ROW + 6.0], "grid");
        svg.text([x(tick), last + ROW + 20.0], Anchor::Middle, "faint", &time(tick));
    }
    for ((rank, lane), y) in &rows {
        svg.rect([LEFT, *y, WIDTH, ROW - 4.0], "lane", "");
        let name = match lane {
            Lane::Launch => format!("rank {rank}"),
            Lane::Block(block) => format!("block {block}"),
            Lane::Proxy => "proxy".into(),
            Lane::Wire(to) => format!("to rank {to}"),
        };
        let class = if *lane == Lane::Launch { "name" } else { "faint" };
        svg.text([LEFT - 8.0, y + 12.0], Anchor::End, class, &name);
    }
    for span in &simulation.spans {
        let Some(y) = rows.get(&(span.rank, span.lane)) else { continue };
        draw(&mut svg, span, *y, x);
    }
    for id in &simulation.critical_path {
        let span = &simulation.spans[*id];
        let Some(y) = rows.get(&(span.rank, span.lane)) else { continue };
        let begin = if span.kind == SpanKind::Message { span.start } else { span.ready };
        svg.rect([x(begin), *y, (x(span.end) - x(begin)).max(1.0), ROW - 4.0], "critical", "");
    }
    arrows(&mut svg, simulation, &rows, x);
    svg.finish(&palette::style(), DEFINITIONS)
}

fn summary(simulation: &Simulation) -> String {
    let bound = &simulation.bound;
    let mut text = format!("{} per launch", time(simulation.total_ns));
    if bound.ns() > 0.0 {
        text += &format!(
            "; not below {} ({}) and {} ({} hops)",
            time(bound.busiest_ns),
            bound.busiest,
            time(bound.latency_ns),
            bound.hops
        );
    }
    text
}

/// Top of each lane that has something to show, rank by rank.
fn rows(simulation: &Simulation) -> BTreeMap<(u32, Lane), f64> {
    let mut rows: BTreeMap<(u32, Lane), f64> =
        simulation.spans.iter().map(|span| ((span.rank, span.lane), 0.0)).collect();
    let (mut y, mut before) = (TOP, None);
    for ((rank, _), top) in &mut rows {
        if before.is_some_and(|before| before != *rank) {
            y += GAP;
        }
        (*top, before) = (y, Some(*rank));
        y += ROW;
    }
    rows
}

fn legend(svg: &mut Svg) {
    let mut at = LEFT;
    for kind in SpanKind::ALL {
        svg.rect([at, 52.0, 12.0, 10.0], palette::class(kind), "");
        svg.text([at + 16.0, 61.0], Anchor::Start, "faint", kind.name());
        at += 28.0 + 6.6 * kind.name().len() as f64;
    }
    svg.rect([at, 52.0, 12.0, 10.0], "critical", "");
    svg.text([at + 16.0, 61.0], Anchor::Start, "faint", "critical path");
}

fn draw(svg: &mut Svg, span: &Span, y: f64, x: impl Fn(f64) -> f64) {
    if span.end <= span.start {
        return;
    }
    let what = match span.bytes {
        0 => span.name.to_owned(),
        moved => format!("{} {}", span.name, bytes(moved as f64)),
    };
    let place = format!("operation {}", span.path);
    let title = format!("{what}, {place}: {} to {}", time(span.start), time(span.end));
    let (height, class) = (ROW - 4.0, palette::class(span.kind));
    let rect = |from: f64, to: f64| [x(from), y, (x(to) - x(from)).max(0.5), height];
    match span.kind {
        SpanKind::Message => {
            svg.rect(rect(span.start, span.ready), class, &title);
            svg.rect(rect(span.ready, span.end), "tail", &title);
        }
        _ => {
            if span.waited() > 0.0 {
                svg.rect(rect(span.start, span.ready), palette::class(SpanKind::Wait), &title);
            }
            svg.rect(rect(span.ready, span.end), class, &title);
        }
    }
}

/// From the end of what was waited for to the end of the wait.
fn arrows(svg: &mut Svg, simulation: &Simulation, rows: &BTreeMap<(u32, Lane), f64>, x: impl Fn(f64) -> f64) {
    let mut drawn = 0;
    for span in &simulation.spans {
        let Some(cause) = span.cause.and_then(|cause| simulation.spans.get(cause)) else { continue };
        let is_own = (cause.rank, cause.lane) == (span.rank, span.lane);
        if is_own || drawn == ARROWS || span.lane == Lane::Launch {
            continue;
        }
        let (Some(from), Some(to)) = (rows.get(&(cause.rank, cause.lane)), rows.get(&(span.rank, span.lane)))
        else {
            continue;
        };
        let begin = if span.kind == SpanKind::Message { span.start } else { span.ready.max(cause.end) };
        let (x1, x2) = (x(cause.end), x(begin));
        // From the near edge of one lane to the near edge of the other.
        let (y1, y2) = if from < to { (from + ROW - 4.0, *to) } else { (*from, to + ROW - 4.0) };
        let middle = (y1 + y2) / 2.0;
        let path = format!(
            "M{},{} C{},{} {},{} {},{}",
            n(x1),
            n(y1),
            n(x1),
            n(middle),
            n(x2),
            n(middle),
            n(x2),
            n(y2)
        );
        svg.path(&path, "arrow", r#"marker-end="url(#head)""#, "");
        drawn += 1;
    }
}

/// Round moments, five to ten of them.
fn ticks(end: f64) -> Vec<f64> {
    let magnitude = 10f64.powf((end / 10.0).log10().floor());
    let step =
        [1.0, 2.0, 5.0, 10.0].into_iter().map(|factor| factor * magnitude).find(|step| end / step <= 10.0);
    let step = step.unwrap_or(end);
    (0..=(end / step) as u32).map(|tick| f64::from(tick) * step).collect()
}
