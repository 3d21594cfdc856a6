//! The table, a line as soon as its size has been measured.

use std::fmt::Write as _;

use super::figures::{Row, Side};

/// Which columns there are.
#[derive(Debug, Clone)]
pub(super) struct Columns {
    /// Out of place, in place.
    pub(super) places: [bool; 2],
    /// Names of peers.
    pub(super) peers: Vec<String>,
    pub(super) floor: bool,
    pub(super) algorithm: bool,
}

const SIZE: usize = 12;
const COUNT: usize = 12;
const TIME: usize = 11;
const RATE: usize = 9;
const WRONG: usize = 7;
const PEER: usize = 12;
const RATIO: usize = 8;
const FLOOR: usize = 8;
const ALGORITHM: usize = 30;

impl Columns {
    fn places(&self) -> impl Iterator<Item = &'static str> {
        let names = ["out of place", "in place"].into_iter().zip(self.places);
        names.filter(|(_, shown)| *shown).map(|(name, _)| name)
    }

    /// Of one place.
    fn width(&self) -> usize {
        let peers = self.peers.len() * (PEER + RATIO);
        let floor = if self.floor { FLOOR } else { 0 };
        let algorithm = if self.algorithm { 2 + ALGORITHM } else { 0 };
        TIME + 2 * RATE + WRONG + peers + floor + algorithm
    }

    /// The lines above the rows.
    pub(super) fn header(&self) -> String {
        let mut top = " ".repeat(SIZE + COUNT);
        let mut names = format!("{:>SIZE$}{:>COUNT$}", "bytes", "count");
        for place in self.places() {
            let _ = write!(top, "  {place:^width$}", width = self.width() - 2);
            let _ = write!(names, "{:>TIME$}{:>RATE$}{:>RATE$}{:>WRONG$}", "µs", "GB/s", "bus GB/s", "wrong");
            for peer in &self.peers {
                let _ = write!(names, "{:>PEER$}{:>RATIO$}", format!("{peer} µs"), "ratio");
            }
            if self.floor {
                let _ = write!(names, "{:>FLOOR$}", "floor");
            }
            if self.algorithm {
                let _ = write!(names, "  {:<ALGORITHM$}", "algorithm");
            }
        }
        let (top, names) = (top.trim_end(), names.trim_end());
        format!("{top}\n{names}\n{}", "═".repeat(names.chars().count()))
    }

    /// The line of a size.
    pub(super) fn row(&self, row: &Row) -> String {
        let mut line = format!("{:>SIZE$}{:>COUNT$}", row.bytes, row.count);
        let sides = [&row.out_of_place, &row.in_place].into_iter().zip(self.places);
        for (side, _) in sides.filter(|(_, shown)| *shown) {
            match side {
                Some(side) if side.unsupported.is_none() => self.side(&mut line, side),
                _ => {
                    let _ = write!(line, "{:>TIME$}{:width$}", "–", "", width = self.width() - TIME);
                }
            }
        }
        line.trim_end().to_owned()
    }

    fn side(&self, line: &mut String, side: &Side) {
        let _ = write!(
            line,
            "{:>TIME$}{:>RATE$.2}{:>RATE$.2}{:>WRONG$}",
            microseconds(side.time.median_us),
            side.gb_per_s,
            side.bus_gb_per_s,
            side.wrong
        );
        for name in &self.peers {
            let peer = side.peers.iter().find(|peer| peer.name == *name && peer.unsupported.is_none());
            let (time, ratio) = match peer {
                Some(peer) => (
                    microseconds(peer.time.median_us),
                    peer.ratio.map_or_else(String::new, |ratio| format!("{ratio:.2} ×")),
                ),
                None => ("–".to_owned(), String::new()),
            };
            let _ = write!(line, "{time:>PEER$}{ratio:>RATIO$}");
        }
        if self.floor {
            let share = side.floor.map_or_else(String::new, |floor| format!("{:.0} %", floor.share * 100.0));
            let _ = write!(line, "{share:>FLOOR$}");
        }
        if self.algorithm {
            let _ = write!(line, "  {:<ALGORITHM$}", side.algorithm.as_deref().unwrap_or(""));
        }
    }
}

/// Four significant digits, or whole microseconds.
fn microseconds(us: f64) -> String {
    let places = match us {
        us if us < 10.0 => 3,
        us if us < 100.0 => 2,
        us if us < 1000.0 => 1,
        _ => 0,
    };
    format!("{us:.places$}")
}

#[cfg(test)]
mod tests {
    use super::super::figures::Time;
    use super::*;

    fn side(us: f64) -> Side {
        Side {
            time: Time { median_us: us, ..Time::default() },
            gb_per_s: 1.0,
            bus_gb_per_s: 1.5,
            wrong: 0,
            algorithm: Some("ring".into()),
            floor: None,
            peers: Vec::new(),
            unsupported: None,
        }
    }

    #[test]
    fn columns_line_up() {
        let columns =
            Columns { places: [true, true], peers: vec!["Gloo".into()], floor: true, algorithm: true };
        let header = columns.header();
        let row =
            Row { bytes: 4096, count: 1024, out_of_place: Some(side(1.2345)), in_place: Some(side(123.45)) };
        let names = header.lines().nth(1).unwrap();
        // Characters, not bytes: µ has two.
        let at =
            |line: &str, word: &str| line[..line.find(word).unwrap()].chars().count() + word.chars().count();
        let line = columns.row(&row);
        assert_eq!(at(&line, "4096"), at(names, "bytes"));
        assert_eq!(at(&line, "1.234"), at(names, " µs"));
        assert_eq!(
            line.split_whitespace().collect::<Vec<_>>(),
            [
                "4096", "1024", "1.234", "1.00", "1.50", "0", "–", "ring", "123.5", "1.00", "1.50", "0", "–",
                "ring"
            ]
        );
        let alone = Row { out_of_place: None, ..row };
        assert_eq!(at(&columns.row(&alone), "123.5"), at(&line, "123.5"));
    }

    #[test]
    fn times_have_four_digits() {
        assert_eq!(
            [0.15, 9.9876, 12.345, 999.96, 123_456.7].map(microseconds),
            ["0.150", "9.988", "12.35", "1000.0", "123457"]
        );
    }
}
