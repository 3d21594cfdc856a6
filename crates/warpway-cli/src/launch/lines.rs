//! Cutting a rank's byte stream into lines.

/// A line longer than this is passed on in pieces: a rank that never ends its line must not fill the memory.
pub(super) const LONGEST: usize = 16 << 20;

/// The unfinished last line of one stream.
#[derive(Default)]
pub(super) struct Lines {
    partial: Vec<u8>,
}

impl Lines {
    /// Takes what was read; calls `each` for every line that is now complete, its newline included.
    pub(super) fn push(&mut self, bytes: &[u8], mut each: impl FnMut(&[u8])) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let complete = piece.ends_with(b"\n");
            if complete && self.partial.is_empty() {
                each(piece);
                continue;
            }
            self.partial.extend_from_slice(piece);
            if complete || self.partial.len() >= LONGEST {
                each(&self.partial);
                self.partial.clear();
                // A single long line should not keep its memory until the end.
                self.partial.shrink_to(1 << 16);
            }
        }
    }

    /// The stream ended: passes on what has no newline.
    pub(super) fn finish(&mut self, mut each: impl FnMut(&[u8])) {
        if !self.partial.is_empty() {
            each(&self.partial);
            self.partial = Vec::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{LONGEST, Lines};

    /// All lines of `bytes` read in pieces of `step`.
    fn cut(bytes: &[u8], step: usize) -> Vec<Vec<u8>> {
        let mut lines = Lines::default();
        let mut out = Vec::new();
        for piece in bytes.chunks(step) {
            lines.push(piece, |line| out.push(line.to_vec()));
        }
        lines.finish(|line| out.push(line.to_vec()));
        out
    }

    #[test]
    fn lines_do_not_depend_on_how_they_arrive() {
        let bytes = b"one\n\n\0\xff\r\nlast without end";
        let want: Vec<Vec<u8>> =
            [&b"one\n"[..], b"\n", b"\0\xff\r\n", b"last without end"].iter().map(|l| l.to_vec()).collect();
        for step in 1..=bytes.len() {
            assert_eq!(cut(bytes, step), want, "in pieces of {step}");
        }
        assert!(cut(b"", 1).is_empty());
    }

    #[test]
    fn an_endless_line_is_cut_and_nothing_is_lost() {
        let bytes: Vec<u8> = (0..LONGEST + 70_000).map(|i| b'a' + (i % 23) as u8).collect();
        let lines = cut(&bytes, 65_536);
        assert_eq!(lines.iter().map(Vec::len).collect::<Vec<_>>(), [LONGEST, 70_000]);
        assert_eq!(lines.concat(), bytes);
    }
}
