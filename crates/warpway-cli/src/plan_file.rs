//! Bytes of a plan's file, without reading for ever what is no plan.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use warpway_plan::Plan;

/// Reads a file, or standard input for `-`: no further than by one byte beyond what a plan may have, by which
/// [`Plan::from_json`] sees that it is too long, and no further than the beginning of what cannot be a plan.
pub(crate) fn read(path: &Path) -> io::Result<Vec<u8>> {
    match path == Path::new("-") {
        true => read_from(io::stdin().lock(), Plan::FILE_BYTES_MAX),
        false => read_from(File::open(path)?, Plan::FILE_BYTES_MAX),
    }
}

/// A plan's brace comes within so many bytes.
const BEGINNING: u64 = 4096;

fn read_from(mut source: impl Read, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    source.by_ref().take(BEGINNING).read_to_end(&mut bytes)?;
    let first = bytes.iter().find(|byte| !byte.is_ascii_whitespace());
    if first == Some(&b'{') {
        let rest = (limit + 1).saturating_sub(bytes.len() as u64);
        source.take(rest).read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_on_for_ever_ends() {
        assert_eq!(read_from(io::repeat(0), 1 << 20).unwrap(), vec![0; 4096]);
        assert_eq!(read_from(io::repeat(b' '), 1 << 20).unwrap(), vec![b' '; 4096]);
        assert_eq!(read_from(io::repeat(b'{'), 10_000).unwrap(), vec![b'{'; 10_001]);
        let plan = format!("\n {{{}}}", "x".repeat(5000));
        assert_eq!(read_from(plan.as_bytes(), 10_000).unwrap(), plan.as_bytes());
        assert_eq!(read_from(&b""[..], 10_000).unwrap(), b"");
    }
}
