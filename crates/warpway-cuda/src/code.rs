//! Code that the driver is given: machine code or a text, whole.
//!
//! The driver takes an address and no length. It believes a header, or reads on to a zero, so what is shorter than it
//! says must not get there.

use std::borrow::Cow;

/// How a fat binary begins.
const FAT: [u8; 4] = 0xba55_ed50u32.to_le_bytes();
/// How ELF begins, with 64 bits and the lower byte first.
const ELF: [u8; 4] = *b"\x7fELF";
const ELF_64_LITTLE: [u8; 2] = [2, 1];
/// Type of a section without bytes in the file.
const NO_BITS: u64 = 8;

/// The same code, with a zero at the end of a text that has none.
///
/// # Errors
/// What is wrong, if it is not whole.
pub(crate) fn whole(code: &[u8]) -> Result<Cow<'_, [u8]>, String> {
    let end = if code.starts_with(&ELF) {
        elf_end(code)
    } else if code.starts_with(&FAT) {
        // Magic, version, bytes of this header, bytes behind it.
        number(code, 6, 2).zip(number(code, 8, 8)).and_then(|(header, rest)| header.checked_add(rest))
    } else if code.is_empty() {
        return Err("it is empty".into());
    } else if code.contains(&0) {
        return Ok(code.into());
    } else {
        return Ok([code, &[0]].concat().into());
    };
    match end {
        Some(end) if end <= code.len() as u64 => Ok(code.into()),
        Some(end) => Err(format!("it is cut off: its headers speak of {end} bytes")),
        None => Err("its headers are damaged".into()),
    }
}

/// Where the last of what an ELF file's headers name ends; `None` if they make no sense.
fn elf_end(code: &[u8]) -> Option<u64> {
    if code.get(4..6)? != ELF_64_LITTLE {
        return None;
    }
    let segments =
        Table { at: number(code, 32, 8)?, entry: number(code, 54, 2)?, entries: number(code, 56, 2)? };
    let sections =
        Table { at: number(code, 40, 8)?, entry: number(code, 58, 2)?, entries: number(code, 60, 2)? };
    let mut end = segments.end()?.max(sections.end()?);
    if end > code.len() as u64 {
        return Some(end);
    }
    for at in segments.places() {
        end = end.max(number(code, at + 8, 8)?.checked_add(number(code, at + 32, 8)?)?);
    }
    for at in sections.places() {
        if number(code, at + 4, 4)? != NO_BITS {
            end = end.max(number(code, at + 24, 8)?.checked_add(number(code, at + 32, 8)?)?);
        }
    }
    Some(end)
}

/// A table of headers in an ELF file.
struct Table {
    at: u64,
    entry: u64,
    entries: u64,
}

impl Table {
    fn end(&self) -> Option<u64> {
        self.at.checked_add(self.entry * self.entries)
    }

    /// Of each header. The table's end has been computed.
    fn places(&self) -> impl Iterator<Item = u64> {
        (0..self.entries).map(|entry| self.at + entry * self.entry)
    }
}

/// So many bytes as a number, the lowest first.
fn number(code: &[u8], at: u64, bytes: usize) -> Option<u64> {
    let at = usize::try_from(at).ok()?;
    let bytes = code.get(at..at.checked_add(bytes)?)?;
    Some(bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A header of 64 bytes, 16 bytes of contents, a segment with them, and two sections: them, and a gigabyte without bits.
    fn elf() -> Vec<u8> {
        let mut code = vec![0; 64 + 16 + 56 + 2 * 64];
        let mut put = |at: usize, bytes: &[u8]| code[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, b"\x7fELF\x02\x01");
        put(32, &80u64.to_le_bytes());
        put(40, &136u64.to_le_bytes());
        put(54, &[56, 0, 1, 0, 64, 0, 2, 0]);
        for (at, bytes) in [(80 + 8, 64u64), (80 + 32, 16), (136 + 24, 64), (136 + 32, 16)] {
            put(at, &bytes.to_le_bytes());
        }
        put(200 + 4, &[8]);
        put(200 + 32, &(1u64 << 30).to_le_bytes());
        code
    }

    #[test]
    fn whole_code_stays_as_it_is() {
        let fat: Vec<u8> =
            [&[0x50, 0xed, 0x55, 0xba, 1, 0, 16, 0, 3, 0, 0, 0, 0, 0, 0, 0][..], b"abc"].concat();
        for code in [elf(), fat, b".version 8.0\0".to_vec()] {
            assert_eq!(whole(&code), Ok(Cow::Borrowed(&code[..])));
        }
        // Files of PTX end without a zero.
        assert_eq!(whole(b".version 8.0\n"), Ok(Cow::Owned(b".version 8.0\n\0".to_vec())));
    }

    #[test]
    fn what_is_cut_off_never_gets_to_the_driver() {
        let elf = elf();
        let fat = [&[0x50, 0xed, 0x55, 0xba, 1, 0, 16, 0, 3, 0, 0, 0, 0, 0, 0, 0][..], b"abc"].concat();
        for code in [&elf, &fat] {
            for bytes in 4..code.len() {
                assert!(whole(&code[..bytes]).is_err(), "{bytes} of {}", code.len());
            }
        }
        assert_eq!(whole(&elf[..263]), Err("it is cut off: its headers speak of 264 bytes".into()));
        assert_eq!(whole(&fat[..18]), Err("it is cut off: its headers speak of 19 bytes".into()));
        assert_eq!(whole(b""), Err("it is empty".into()));
    }

    #[test]
    fn headers_that_lie_are_refused() {
        // Offsets and sizes of tables, the segment, and the section with bits.
        for at in [32, 40, 80 + 8, 80 + 32, 136 + 24, 136 + 32] {
            for lie in [u64::MAX, u64::MAX - 100, 250] {
                let mut code = elf();
                code[at..at + 8].copy_from_slice(&lie.to_le_bytes());
                assert!(whole(&code).is_err(), "{lie} at {at}");
            }
        }
        // 32 bits, and the higher byte first.
        for at in [4, 5] {
            let mut code = elf();
            code[at] ^= 3;
            assert_eq!(whole(&code), Err("its headers are damaged".into()));
        }
    }
}
