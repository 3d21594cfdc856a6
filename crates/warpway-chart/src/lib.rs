//! Figures of lines over message sizes, on logarithmic axes, as SVG. No input or output: text in, text out, so
//! that a figure made twice from the same numbers is the same.
//!
//! ```
//! use warpway_chart::{Figure, Panel, Series};
//!
//! let series = Series { name: "copy".into(), points: vec![(8.0, 0.1), (4096.0, 0.5)] };
//! let panel = Panel { title: "time".into(), x: "bytes".into(), y: "µs".into(), series: vec![series] };
//! let figure = Figure { title: "Copies".into(), note: "one core".into(), columns: 1, panels: vec![panel] };
//! assert!(figure.to_svg().starts_with("<svg"));
//! ```
#![forbid(unsafe_code)]

mod axis;

use std::fmt::Write as _;

use axis::Axis;

/// Panels beside and below each other, under one title and legend.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    /// Above everything.
    pub title: String,
    /// Below the title, in small letters: where the numbers come from.
    pub note: String,
    /// Panels in a row.
    pub columns: usize,
    /// In reading order.
    pub panels: Vec<Panel>,
}

/// One pair of axes.
#[derive(Debug, Clone, PartialEq)]
pub struct Panel {
    /// Above it.
    pub title: String,
    /// What the horizontal axis shows; its values are bytes.
    pub x: String,
    /// What the vertical axis shows, with the unit.
    pub y: String,
    /// Lines; those of the same name have the same colour in all panels.
    pub series: Vec<Series>,
}

/// One line.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// For the legend.
    pub name: String,
    /// By ascending size. Values that are not above 0 are left out.
    pub points: Vec<(f64, f64)>,
}

/// Distinct for people who see colours differently (Okabe and Ito, 2008).
const COLOURS: [&str; 6] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00"];
const INK: &str = "#24292f";
const FAINT: &str = "#57606a";
const GRID: &str = "#e4e7eb";

const MARGIN: f64 = 24.0;
const HEAD: f64 = 78.0;
/// Room of a panel for its title, and for the marks beside and below it.
const ABOVE: f64 = 30.0;
const LEFT: f64 = 52.0;
const BELOW: f64 = 44.0;
const GAP: f64 = 22.0;

impl Figure {
    /// The figure as a document.
    pub fn to_svg(&self) -> String {
        let columns = self.columns.clamp(1, self.panels.len().max(1));
        let rows = self.panels.len().div_ceil(columns);
        // Few panels are large ones.
        let (plot_width, plot_height) = if columns > 2 { (186.0, 150.0) } else { (330.0, 230.0) };
        let (cell_width, cell_height) = (LEFT + plot_width + GAP, ABOVE + plot_height + BELOW);
        let width = 2.0 * MARGIN + columns as f64 * cell_width - GAP;
        let height = HEAD + rows as f64 * cell_height + MARGIN / 2.0;
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" \
             height=\"{height:.0}\" font-family=\"ui-sans-serif, 'Segoe UI', Helvetica, Arial, sans-serif\" role=\"img\">\n\
             <title>{title}</title>\n\
             <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#ffffff\"/>\n\
             <text x=\"{MARGIN}\" y=\"34\" font-size=\"17\" font-weight=\"600\" fill=\"{INK}\">{title}</text>\n\
             <text x=\"{MARGIN}\" y=\"54\" font-size=\"11.5\" fill=\"{FAINT}\">{note}</text>\n",
            title = escaped(&self.title),
            note = escaped(&self.note),
        );
        let names = self.names();
        legend(&mut svg, &names, width - MARGIN);
        for (index, panel) in self.panels.iter().enumerate() {
            let (column, row) = (index % columns, index / columns);
            let left = MARGIN + column as f64 * cell_width + LEFT;
            let top = HEAD + row as f64 * cell_height + ABOVE;
            panel.draw(&mut svg, &names, Frame { left, top, width: plot_width, height: plot_height });
        }
        svg.push_str("</svg>\n");
        svg
    }

    /// Names of all lines, in order of their first appearance.
    fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for series in self.panels.iter().flat_map(|panel| &panel.series) {
            if !names.contains(&series.name.as_str()) {
                names.push(&series.name);
            }
        }
        names
    }
}

fn colour(names: &[&str], name: &str) -> &'static str {
    let at = names.iter().position(|known| *known == name).unwrap_or(0);
    COLOURS[at % COLOURS.len()]
}

/// From the right end leftwards.
fn legend(svg: &mut String, names: &[&str], right: f64) {
    let mut x = right;
    for name in names.iter().rev() {
        x -= 7.4 * name.chars().count() as f64;
        let _ = writeln!(
            svg,
            "<line x1=\"{:.1}\" y1=\"30\" x2=\"{:.1}\" y2=\"30\" stroke=\"{colour}\" stroke-width=\"2.5\" \
             stroke-linecap=\"round\"/><text x=\"{x:.1}\" y=\"34\" font-size=\"13\" fill=\"{INK}\">{}</text>",
            x - 26.0,
            x - 8.0,
            escaped(name),
            colour = colour(names, name),
        );
        x -= 44.0;
    }
}

/// Where a panel's axes are.
#[derive(Clone, Copy)]
struct Frame {
    left: f64,
    top: f64,
    width: f64,
    height: f64,
}

impl Panel {
    fn draw(&self, svg: &mut String, names: &[&str], frame: Frame) {
        let Frame { left, top, width, height } = frame;
        let points = || self.series.iter().flat_map(|series| series.drawn());
        let x_axis = Axis::tight(points().map(|(x, _)| x));
        let y_axis = Axis::decimal(points().map(|(_, y)| y));
        let (right, bottom) = (left + width, top + height);
        let _ = writeln!(
            svg,
            "<text x=\"{left:.1}\" y=\"{:.1}\" font-size=\"13\" font-weight=\"600\" fill=\"{INK}\">{}</text>\
             <text x=\"{right:.1}\" y=\"{:.1}\" font-size=\"11\" fill=\"{FAINT}\" text-anchor=\"end\">{}</text>",
            top - 12.0,
            escaped(&self.title),
            top - 12.0,
            escaped(&self.y),
        );
        for mark in y_axis.decimal_marks() {
            let y = bottom - height * y_axis.place(mark);
            let _ = writeln!(
                svg,
                "<line x1=\"{left:.1}\" y1=\"{y:.1}\" x2=\"{right:.1}\" y2=\"{y:.1}\" stroke=\"{GRID}\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" font-size=\"10.5\" fill=\"{FAINT}\" text-anchor=\"end\">{}</text>",
                left - 7.0,
                y + 3.6,
                axis::number(mark),
            );
        }
        let most = if width > 250.0 { 7 } else { 4 };
        for mark in x_axis.binary_marks(most) {
            let x = left + width * x_axis.place(mark);
            let _ = writeln!(
                svg,
                "<line x1=\"{x:.1}\" y1=\"{top:.1}\" x2=\"{x:.1}\" y2=\"{bottom:.1}\" stroke=\"{GRID}\"/>\
                 <text x=\"{x:.1}\" y=\"{:.1}\" font-size=\"10.5\" fill=\"{FAINT}\" text-anchor=\"middle\">{}</text>",
                bottom + 16.0,
                axis::bytes(mark),
            );
        }
        let _ = writeln!(
            svg,
            "<line x1=\"{left:.1}\" y1=\"{bottom:.1}\" x2=\"{right:.1}\" y2=\"{bottom:.1}\" stroke=\"{FAINT}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" font-size=\"11\" fill=\"{FAINT}\" text-anchor=\"middle\">{}</text>",
            left + width / 2.0,
            bottom + 33.0,
            escaped(&self.x),
        );
        // The first line is the figure's subject: it lies on top.
        let mut ordered: Vec<&Series> = self.series.iter().collect();
        ordered.sort_by_key(|series| std::cmp::Reverse(names.iter().position(|name| *name == series.name)));
        for series in ordered {
            let place = |(x, y)| (left + width * x_axis.place(x), bottom - height * y_axis.place(y));
            let places: Vec<(f64, f64)> = series.drawn().map(place).collect();
            let line: Vec<String> = places.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
            let colour = colour(names, &series.name);
            let _ = writeln!(
                svg,
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" \
                 stroke-linejoin=\"round\" stroke-linecap=\"round\"/>",
                line.join(" "),
            );
            let dots = places.iter().map(|(x, y)| format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2\"/>"));
            let _ = writeln!(svg, "<g fill=\"{colour}\">{}</g>", dots.collect::<String>());
        }
    }
}

impl Series {
    /// Points that have a place on logarithmic axes.
    fn drawn(&self) -> impl Iterator<Item = (f64, f64)> {
        let has_place = |value: f64| value.is_finite() && value > 0.0;
        self.points.iter().copied().filter(move |(x, y)| has_place(*x) && has_place(*y))
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(name: &str, points: &[(f64, f64)]) -> Series {
        Series { name: name.into(), points: points.to_vec() }
    }

    fn panel(series: Vec<Series>) -> Panel {
        Panel { title: "a < b".into(), x: "bytes".into(), y: "µs".into(), series }
    }

    fn figure(panels: Vec<Panel>) -> String {
        Figure { title: "t & t".into(), note: String::new(), columns: 2, panels }.to_svg()
    }

    #[test]
    fn lines_run_from_corner_to_corner() {
        let svg = figure(vec![panel(vec![series("a", &[(8.0, 1.0), (0.0, 7.0), (800.0, 100.0)])])]);
        let (left, top) = (MARGIN + LEFT, HEAD + ABOVE);
        let line = format!("points=\"{left:.1},{:.1} {:.1},{top:.1}\"", top + 230.0, left + 330.0);
        assert!(svg.contains(&line), "{line} is not in {svg}");
        assert_eq!(svg.matches("<circle").count(), 2);
        assert!(svg.contains("t &amp; t") && svg.contains("a &lt; b"));
    }

    #[test]
    fn a_name_has_one_colour_and_one_place_in_the_legend() {
        let points = [(8.0, 1.0), (16.0, 2.0)];
        let first = panel(vec![series("a", &points), series("b", &points)]);
        let svg = figure(vec![first, panel(vec![series("b", &points)])]);
        assert_eq!(svg.matches(">b</text>").count(), 1);
        let colour = format!("stroke=\"{}\" stroke-width=\"2\"", COLOURS[1]);
        assert_eq!(svg.matches(&colour).count(), 2);
    }

    #[test]
    fn nothing_to_draw_is_a_figure_all_the_same() {
        for panels in [Vec::new(), vec![panel(Vec::new())], vec![panel(vec![series("a", &[])])]] {
            let svg = figure(panels);
            assert!(svg.ends_with("</svg>\n") && !svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        }
    }
}
