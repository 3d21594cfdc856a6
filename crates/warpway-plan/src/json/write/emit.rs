//! JSON text: punctuation, indentation, escapes. What is written comes from [`records`](super::records).

use std::fmt::Write as _;

use super::Style;
use super::records::{Record, Records, Stored, Value};

/// Writes through a buffer into a sink that may fail with `E`.
pub(super) struct Emitter<'s, E> {
    buffer: String,
    drain: &'s mut dyn FnMut(&str) -> Result<(), E>,
    style: Style,
    locations: bool,
    depth: usize,
    /// Whose part of the plan is being written.
    rank: u64,
}

impl<'s, E> Emitter<'s, E> {
    /// The buffer is handed on when it is longer.
    const FULL: usize = 32 << 10;

    pub(super) fn new(
        style: Style,
        locations: bool,
        drain: &'s mut dyn FnMut(&str) -> Result<(), E>,
    ) -> Self {
        Self { buffer: String::with_capacity(2 * Self::FULL), drain, style, locations, depth: 0, rank: 0 }
    }

    pub(super) fn document<R: Record>(mut self, top: &R) -> Result<(), E> {
        self.record(top, 0)?;
        (self.drain)(&self.buffer)
    }

    /// One object: its keys in the order of the style, without those that it lacks.
    pub(super) fn record<R: Record>(&mut self, record: &R, position: usize) -> Result<(), E> {
        let keys = match self.style {
            Style::Pretty | Style::Compact => R::KEYS,
            Style::Canonical => R::SORTED,
        };
        self.open('{');
        let mut empty = true;
        for key in keys {
            let Some(value) = record.value(key, position) else { continue };
            if *key == "loc" && !self.locations {
                continue;
            }
            self.separate(empty);
            empty = false;
            self.buffer.push('"');
            self.buffer.push_str(key);
            self.buffer.push_str(if self.style == Style::Pretty { "\": " } else { "\":" });
            self.value(value)?;
        }
        self.close('}', empty);
        self.flush_if_full()
    }

    fn value(&mut self, value: Value<'_>) -> Result<(), E> {
        match value {
            Value::Boolean(value) => self.buffer.push_str(if value { "true" } else { "false" }),
            Value::Number(value) => self.number(value),
            Value::Text(text) => self.text(text),
            Value::Location(location) => self.text(&format!("{}:{}", location.file, location.line)),
            Value::Names(names) => self.list(names.into_iter(), |emitter, name| {
                emitter.text(name);
                Ok(())
            })?,
            Value::Positions(list) => self.list(list.iter(), |emitter, number| {
                emitter.number(u64::from(*number));
                emitter.flush_if_full()
            })?,
            Value::Numbers(list) => self.list(list.iter(), |emitter, number| {
                emitter.number(*number);
                emitter.flush_if_full()
            })?,
            Value::Counts(counts) => self.record(&counts, 0)?,
            Value::Records(records) => self.records(records)?,
        }
        Ok(())
    }

    fn records(&mut self, records: Records<'_>) -> Result<(), E> {
        match records {
            Records::Ranks(list) => self.list(list.iter().enumerate(), |emitter, (rank, record)| {
                emitter.rank = rank as u64;
                emitter.record(record, rank)
            }),
            Records::Blocks(list) => self.objects(list),
            Records::Operations(list) => self.objects(list),
            Records::Channels(list) => self.objects(list),
            Records::Groups(list) => self.objects(list),
            Records::RemoteBuffers(list) => self.objects(list),
            Records::ChannelRefs(list) => self.objects(list),
            Records::BufferRefs(list) => self.objects(list),
            Records::Semaphores(list) => self.objects(list),
            Records::References(list) => self.objects(list),
            Records::Stored(list) => self.list(list.iter(), |emitter, reference| {
                let rank = emitter.rank;
                emitter.record(&Stored { reference, rank }, 0)
            }),
        }
    }

    fn objects<R: Record>(&mut self, list: &[R]) -> Result<(), E> {
        self.list(list.iter().enumerate(), |emitter, (position, record)| emitter.record(record, position))
    }

    fn list<T>(
        &mut self,
        elements: impl Iterator<Item = T>,
        mut write: impl FnMut(&mut Self, T) -> Result<(), E>,
    ) -> Result<(), E> {
        self.open('[');
        let mut empty = true;
        for element in elements {
            self.separate(empty);
            empty = false;
            write(self, element)?;
        }
        self.close(']', empty);
        Ok(())
    }

    fn open(&mut self, bracket: char) {
        self.buffer.push(bracket);
        self.depth += 1;
    }

    fn separate(&mut self, first: bool) {
        if !first {
            self.buffer.push(',');
        }
        self.new_line();
    }

    fn close(&mut self, bracket: char, empty: bool) {
        self.depth -= 1;
        if !empty {
            self.new_line();
        }
        self.buffer.push(bracket);
    }

    fn new_line(&mut self) {
        if self.style == Style::Pretty {
            self.buffer.push('\n');
            for _ in 0..self.depth {
                self.buffer.push_str("  ");
            }
        }
    }

    fn number(&mut self, value: u64) {
        // Writing into a string does not fail.
        let _ = write!(self.buffer, "{value}");
    }

    /// As Python's `json.dumps` writes it: all but printable ASCII escaped.
    fn text(&mut self, text: &str) {
        self.buffer.push('"');
        for c in text.chars() {
            match c {
                '"' => self.buffer.push_str("\\\""),
                '\\' => self.buffer.push_str("\\\\"),
                '\n' => self.buffer.push_str("\\n"),
                '\r' => self.buffer.push_str("\\r"),
                '\t' => self.buffer.push_str("\\t"),
                '\u{8}' => self.buffer.push_str("\\b"),
                '\u{c}' => self.buffer.push_str("\\f"),
                ' '..='~' => self.buffer.push(c),
                _ => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        let _ = write!(self.buffer, "\\u{unit:04x}");
                    }
                }
            }
        }
        self.buffer.push('"');
    }

    fn flush_if_full(&mut self) -> Result<(), E> {
        match self.buffer.len() > Self::FULL {
            true => self.flush(),
            false => Ok(()),
        }
    }

    fn flush(&mut self) -> Result<(), E> {
        (self.drain)(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }
}
