//! What the launcher prints: whole lines, in the order in which they were completed, on two streams.

use std::fmt::Write as _;

use serde::Serialize;

use super::report::Event;

/// One of a rank's, and of the launcher's, output streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Stream {
    Stdout,
    Stderr,
}

impl Stream {
    pub(super) const ALL: [Self; 2] = [Self::Stdout, Self::Stderr];

    pub(super) fn index(self) -> usize {
        self as usize
    }
}

/// How lines are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    /// As they are.
    Plain,
    /// With the rank in front; coloured on the streams (by index) that are terminals.
    Tagged { colour: [bool; 2] },
    /// As JSON objects on standard output.
    Json,
}

/// Lines on their way out.
pub(super) struct Output {
    style: Style,
    queues: [Queue; 2],
    /// Both streams are one file: one queue keeps their lines whole.
    joined: bool,
    text: String,
}

#[derive(Serialize)]
#[serde(tag = "event", rename = "output")]
struct OutputEvent<'a> {
    rank: u32,
    stream: Stream,
    /// The line without its newline, if it is UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
    /// Otherwise its bytes in hexadecimal.
    #[serde(skip_serializing_if = "Option::is_none")]
    hex: Option<String>,
    /// The rank ended the line.
    complete: bool,
}

impl Output {
    pub(super) fn new(style: Style, joined: bool) -> Self {
        Self { style, queues: Default::default(), joined, text: String::new() }
    }

    /// A line of a rank, its newline included if it has one.
    pub(super) fn line(&mut self, rank: u32, stream: Stream, line: &[u8]) {
        match self.style {
            Style::Plain => self.queue(stream).push(b"", line),
            Style::Tagged { colour } => {
                self.text.clear();
                // Writing to a string does not fail.
                let _ = if colour[stream.index()] {
                    write!(self.text, "\x1b[{}m[{rank}]\x1b[0m ", colour_of(rank))
                } else {
                    write!(self.text, "[{rank}] ")
                };
                let queue = &mut self.queues[if self.joined { 0 } else { stream.index() }];
                queue.push(self.text.as_bytes(), line);
            }
            Style::Json => {
                let complete = line.ends_with(b"\n");
                let line = line.strip_suffix(b"\n").unwrap_or(line);
                let text = std::str::from_utf8(line).ok();
                let hex = text.is_none().then(|| hexadecimal(line));
                self.object(&OutputEvent { rank, stream, text, hex, complete });
            }
        }
    }

    /// Something that the launcher has to say.
    pub(super) fn event(&mut self, event: &Event) {
        if self.style == Style::Json {
            self.object(event);
        } else if let Some(text) = event.text() {
            self.queue(Stream::Stderr).push(b"warpway launch: ", format!("{text}\n").as_bytes());
        }
    }

    /// The lines for a stream.
    pub(super) fn queue(&mut self, stream: Stream) -> &mut Queue {
        &mut self.queues[if self.joined { 0 } else { stream.index() }]
    }

    /// What waits to be written to a stream.
    pub(super) fn pending(&self, stream: Stream) -> &[u8] {
        match stream {
            Stream::Stderr if self.joined => &[],
            _ => self.queues[stream.index()].pending(),
        }
    }

    /// Where a rank's stream ends up.
    pub(super) fn destination(&self, stream: Stream) -> &Queue {
        match self.style {
            Style::Json => &self.queues[0],
            _ if self.joined => &self.queues[0],
            _ => &self.queues[stream.index()],
        }
    }

    /// Whether everything is written.
    pub(super) fn is_empty(&self) -> bool {
        self.queues.iter().all(|queue| queue.pending().is_empty())
    }

    fn object(&mut self, object: &impl Serialize) {
        // Objects of strings and numbers: nothing that cannot be written as JSON.
        if let Ok(mut text) = serde_json::to_vec(object) {
            text.push(b'\n');
            self.queue(Stream::Stdout).push(b"", &text);
        }
    }
}

/// Bytes for one file.
#[derive(Default)]
pub(super) struct Queue {
    bytes: Vec<u8>,
    written: usize,
    /// The last line pushed has no newline yet.
    open_line: bool,
    closed: bool,
}

impl Queue {
    /// While more waits, ranks are not read, so that they wait for the reader as they would without a launcher.
    const CONGESTED: usize = 1 << 20;

    fn push(&mut self, prefix: &[u8], line: &[u8]) {
        if self.closed {
            return;
        }
        if self.open_line {
            self.bytes.push(b'\n');
        }
        self.bytes.extend_from_slice(prefix);
        self.bytes.extend_from_slice(line);
        self.open_line = !line.ends_with(b"\n");
    }

    pub(super) fn pending(&self) -> &[u8] {
        self.bytes.get(self.written..).unwrap_or_default()
    }

    /// The first `count` pending bytes are written.
    pub(super) fn consume(&mut self, count: usize) {
        self.written = self.bytes.len().min(self.written.saturating_add(count));
        if self.written == self.bytes.len() {
            self.bytes.clear();
            self.bytes.shrink_to(Self::CONGESTED);
            self.written = 0;
        } else if self.written > Self::CONGESTED {
            self.bytes.drain(..self.written);
            self.written = 0;
        }
    }

    /// Nobody reads it any more.
    pub(super) fn close(&mut self) {
        *self = Self { closed: true, ..Self::default() };
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    pub(super) fn is_congested(&self) -> bool {
        self.pending().len() > Self::CONGESTED
    }
}

/// Terminal colours that are readable on light and dark, in turn.
fn colour_of(rank: u32) -> u32 {
    const COLOURS: [u32; 6] = [32, 33, 34, 35, 36, 31];
    COLOURS[rank as usize % COLOURS.len()]
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(output: &mut Output, stream: Stream) -> String {
        let queue = output.queue(stream);
        let text = String::from_utf8_lossy(queue.pending()).into_owned();
        queue.consume(usize::MAX);
        text
    }

    #[test]
    fn lines_carry_their_rank_and_stay_on_their_stream() {
        let mut output = Output::new(Style::Tagged { colour: [false, true] }, false);
        output.line(12, Stream::Stdout, b"a\n");
        output.line(0, Stream::Stderr, b"b\n");
        assert_eq!(printed(&mut output, Stream::Stdout), "[12] a\n");
        assert_eq!(printed(&mut output, Stream::Stderr), "\x1b[32m[0]\x1b[0m b\n");
        assert!(output.is_empty());
    }

    #[test]
    fn an_unfinished_line_is_ended_only_by_the_next() {
        let mut output = Output::new(Style::Plain, true);
        output.line(0, Stream::Stdout, b"no end");
        assert_eq!(printed(&mut output, Stream::Stdout), "no end");
        output.line(1, Stream::Stderr, b"next");
        assert_eq!(printed(&mut output, Stream::Stdout), "\nnext");
    }

    #[test]
    fn json_keeps_text_readable_and_bytes_exact() {
        let mut output = Output::new(Style::Json, false);
        output.line(1, Stream::Stderr, b"say \"hi\"\n");
        output.line(1, Stream::Stdout, b"\xff\x00");
        assert_eq!(
            printed(&mut output, Stream::Stdout),
            "{\"event\":\"output\",\"rank\":1,\"stream\":\"stderr\",\"text\":\"say \\\"hi\\\"\",\"complete\":true}\n\
             {\"event\":\"output\",\"rank\":1,\"stream\":\"stdout\",\"hex\":\"ff00\",\"complete\":false}\n"
        );
    }

    #[test]
    fn partly_written_queues_go_on_where_they_were() {
        let mut queue = Queue::default();
        let line: Vec<u8> = (0..3 * Queue::CONGESTED).map(|i| (i % 251) as u8).collect();
        queue.push(b"", &line);
        assert!(queue.is_congested());
        let mut seen = Vec::new();
        while !queue.pending().is_empty() {
            let step = queue.pending().len().min(4095);
            seen.extend_from_slice(&queue.pending()[..step]);
            queue.consume(step);
        }
        assert_eq!(seen, line);
        queue.close();
        queue.push(b"", b"nobody reads this");
        assert!(queue.pending().is_empty());
    }
}
