//! A small writer of SVG: shapes in the order in which they are drawn, numbers with one decimal.

use std::fmt::Write as _;

/// A picture under construction.
pub(super) struct Svg {
    width: f64,
    height: f64,
    body: String,
}

/// Where a text is anchored.
#[derive(Clone, Copy)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

impl Svg {
    pub(super) fn new(width: f64, height: f64) -> Self {
        Self { width, height, body: String::new() }
    }

    /// One line of the body. Writing into a string does not fail.
    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        let _ = writeln!(self.body, "{line}");
    }

    /// A rectangle, with what a pointer over it shows.
    pub(super) fn rect(&mut self, [x, y, width, height]: [f64; 4], class: &str, title: &str) {
        let title = match title {
            "" => "/>".to_owned(),
            title => format!("><title>{}</title></rect>", escape(title)),
        };
        let (x, y, w, h) = (n(x), n(y), n(width), n(height));
        self.line(format_args!(r#"<rect class="{class}" x="{x}" y="{y}" width="{w}" height="{h}"{title}"#));
    }

    pub(super) fn stroke(&mut self, [x1, y1]: [f64; 2], [x2, y2]: [f64; 2], class: &str) {
        let (x1, y1, x2, y2) = (n(x1), n(y1), n(x2), n(y2));
        self.line(format_args!(r#"<line class="{class}" x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}"/>"#));
    }

    /// A path in SVG's own language; `attributes` are further ones, as the file has them.
    pub(super) fn path(&mut self, data: &str, class: &str, attributes: &str, title: &str) {
        let title = match title {
            "" => "/>".to_owned(),
            title => format!("><title>{}</title></path>", escape(title)),
        };
        let space = if attributes.is_empty() { "" } else { " " };
        self.line(format_args!(r#"<path class="{class}" d="{data}"{space}{attributes}{title}"#));
    }

    pub(super) fn circle(&mut self, [x, y]: [f64; 2], radius: f64, class: &str) {
        let (x, y, r) = (n(x), n(y), n(radius));
        self.line(format_args!(r#"<circle class="{class}" cx="{x}" cy="{y}" r="{r}"/>"#));
    }

    pub(super) fn text(&mut self, [x, y]: [f64; 2], anchor: Anchor, class: &str, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let (x, y, text) = (n(x), n(y), escape(text));
        self.line(format_args!(
            r#"<text class="{class}" x="{x}" y="{y}" text-anchor="{anchor}">{text}</text>"#
        ));
    }

    /// The document; `style` is its style sheet, `definitions` what it refers to.
    pub(super) fn finish(self, style: &str, definitions: &str) -> String {
        let (width, height) = (n(self.width), n(self.height));
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
             font-family=\"system-ui, sans-serif\" font-size=\"11\">\n<style>\n{style}</style>\n<defs>{definitions}</defs>\n\
             <rect class=\"page\" width=\"{width}\" height=\"{height}\"/>\n{}</svg>\n",
            self.body
        )
    }
}

/// A number as the file has it: one decimal, none if it is zero.
pub(super) fn n(number: f64) -> String {
    let text = format!("{number:.1}");
    let text = text.strip_suffix(".0").unwrap_or(&text);
    if text == "-0" { "0".into() } else { text.into() }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Bytes as people read them.
pub(super) fn bytes(bytes: f64) -> String {
    let (mut number, mut unit) = (bytes, "B");
    for next in ["KiB", "MiB", "GiB", "TiB"] {
        if number < 1024.0 {
            break;
        }
        (number, unit) = (number / 1024.0, next);
    }
    format!("{} {unit}", n(number))
}

/// Nanoseconds as people read them.
pub(super) fn time(nanoseconds: f64) -> String {
    match nanoseconds.abs() {
        0.0..1e3 => format!("{} ns", n(nanoseconds)),
        1e3..1e6 => format!("{} µs", three(nanoseconds / 1e3)),
        1e6..1e9 => format!("{} ms", three(nanoseconds / 1e6)),
        _ => format!("{} s", three(nanoseconds / 1e9)),
    }
}

/// Three digits that count.
fn three(number: f64) -> String {
    let decimals = if number >= 100.0 {
        0
    } else if number >= 10.0 {
        1
    } else {
        2
    };
    format!("{number:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_as_people_read_them() {
        assert_eq!([n(1.04), n(-0.01), n(12.25), n(3.0)], ["1", "0", "12.2", "3"]);
        assert_eq!(
            [time(12.0), time(1234.0), time(56_780.0), time(2.5e6), time(3e9)],
            ["12 ns", "1.23 µs", "56.8 µs", "2.50 ms", "3.00 s"]
        );
        assert_eq!([bytes(12.0), bytes(1536.0), bytes(67_108_864.0)], ["12 B", "1.5 KiB", "64 MiB"]);
        assert_eq!(escape("<a&\"b\">"), "&lt;a&amp;&quot;b&quot;&gt;");
    }
}
