//! The buffers of one rank of a case between margins: what they hold before the call, and what after it.

use super::case::Case;
use super::mix;
use super::shape::{Shape, numbers};

/// Bytes around every buffer that nobody may touch.
pub(super) const MARGIN: usize = 160;
const CANARY: u8 = 0xc7;
/// What an output holds before the call.
pub(super) const STALE: u8 = 0x5a;

/// One buffer: what it holds before the call and is to hold after it, margins included.
#[derive(Debug, Clone)]
pub struct Window {
    /// Before the call.
    pub before: Vec<u8>,
    /// After it.
    pub after: Vec<u8>,
    /// Where the buffer begins.
    pub start: usize,
    /// Of the buffer.
    pub bytes: usize,
}

/// Bytes of one of the windows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Which window.
    pub window: usize,
    /// Of the first byte, margins counted.
    pub start: usize,
    /// How many.
    pub bytes: usize,
}

/// All buffers of one rank.
#[derive(Debug, Clone)]
pub struct Windows {
    /// In place one, which holds both; else the input's and the output's.
    pub all: Vec<Window>,
    /// The input as a plan takes it.
    pub input: Place,
    /// The output as a plan takes it.
    pub output: Place,
}

impl Window {
    pub(super) fn new(bytes: u64, start: usize, content: impl FnOnce(&mut [u8])) -> Self {
        let bytes = bytes as usize;
        let mut before = vec![CANARY; start + bytes + MARGIN];
        content(&mut before[start..start + bytes]);
        Self { after: before.clone(), before, start, bytes }
    }

    /// What is wrong with what has been found after the call, in words.
    pub fn difference(&self, name: &str, found: &[u8]) -> Option<String> {
        let wrong = found.iter().zip(&self.after).position(|(found, expected)| found != expected)?;
        let place = wrong as i64 - self.start as i64;
        Some(format!(
            "byte {place} of the {name} of {} bytes is {:#04x}, not {:#04x} (before: {:#04x})",
            self.bytes, found[wrong], self.after[wrong], self.before[wrong]
        ))
    }
}

impl Windows {
    /// Those of `rank` of `n`.
    pub fn new(case: &Case, rank: u32, n: u32) -> Self {
        Self::of(case, &Shape::new(case, rank, n), rank, n)
    }

    pub(super) fn of(case: &Case, shape: &Shape, rank: u32, n: u32) -> Self {
        let (size, numbers) = (case.data_type.bytes(), numbers(case, n));
        let input = shape.input_bytes(&numbers, rank);
        // Unequal places on the ranks, at elements' alignment only.
        let place = |salt: u64| MARGIN + (mix(case.seed ^ salt, u64::from(rank)) % 24 * size) as usize;
        let bytes = |elements: u64| (elements * size) as usize;
        if case.in_place {
            let mut whole = Window::new(shape.whole * size, place(11), |content| {
                content.fill(STALE);
                content[bytes(shape.input_at)..][..input.len()].copy_from_slice(&input);
            });
            shape.write_result(case, &numbers, &mut whole.after[whole.start..][..whole.bytes]);
            let of = |at: u64, elements: u64| Place {
                window: 0,
                start: whole.start + bytes(at),
                bytes: bytes(elements),
            };
            let (input, output) = (of(shape.input_at, shape.input), of(shape.output_at, shape.output));
            return Self { all: vec![whole], input, output };
        }
        let first = Window::new(shape.input * size, place(12), |content| content.copy_from_slice(&input));
        let mut second = Window::new(shape.output * size, place(13), |content| content.fill(STALE));
        shape.write_result(case, &numbers, &mut second.after[second.start..][..second.bytes]);
        let of = |window: usize, of: &Window| Place { window, start: of.start, bytes: of.bytes };
        let (input, output) = (of(0, &first), of(1, &second));
        Self { all: vec![first, second], input, output }
    }

    /// What errors call a window.
    pub fn name(&self, window: usize) -> &'static str {
        if self.all.len() == 1 { "buffer" } else { ["input", "output"][window] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_that_is_wrong_is_found_wherever_it_is() {
        let window = Window::new(12, MARGIN + 4, |bytes| bytes.fill(STALE));
        assert_eq!(window.difference("output", &window.after), None);
        // Before the buffer, its first and last byte, behind it, and at the ends of the margins.
        for (at, place) in
            [(MARGIN + 3, -1), (MARGIN + 4, 0), (MARGIN + 15, 11), (MARGIN + 16, 12), (0, -164)]
        {
            let mut found = window.after.clone();
            found[at] ^= 1;
            let text = window.difference("output", &found).unwrap();
            assert!(text.starts_with(&format!("byte {place} of the output of 12 bytes")), "{text}");
        }
    }
}
