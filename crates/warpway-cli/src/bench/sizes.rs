//! The sizes of a benchmark: a range or a list.

use clap::Args;

use crate::size;

/// A size that benchmarks can take.
pub(super) fn bytes(text: &str) -> Result<u64, String> {
    let bytes = size::parse(text)?;
    if bytes <= MAX_BYTES { Ok(bytes) } else { Err(format!("`{text}` is more than 1024G")) }
}

/// Sizes are rounded up and multiplied by small numbers on their way; up to here nothing overflows.
const MAX_BYTES: u64 = 1 << 40;

/// The sizes to measure.
#[derive(Debug, Clone, Args)]
pub(super) struct Sizes {
    /// Smallest size, at least 1; suffixes K, M, G
    #[arg(long, default_value = "8", value_parser = bytes)]
    min_bytes: u64,
    /// Largest size, up to 1024G
    #[arg(long, default_value = "64M", value_parser = bytes)]
    max_bytes: u64,
    /// Factor between sizes
    #[arg(long, default_value = "8", value_parser = clap::value_parser!(u64).range(2..))]
    factor: u64,
    /// These sizes instead, as for `bench plan` and `bench gpu`; suffixes K, M, G
    #[arg(long, value_delimiter = ',', value_parser = bytes, conflicts_with_all = ["min_bytes", "max_bytes", "factor"])]
    bytes: Vec<u64>,
}

impl Sizes {
    /// An error for what cannot be measured.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        anyhow::ensure!(self.min_bytes >= 1, "--min-bytes must be at least 1");
        anyhow::ensure!(!self.bytes.contains(&0), "--bytes: a size is at least 1");
        anyhow::ensure!(self.min_bytes <= self.max_bytes, "--min-bytes is above --max-bytes");
        Ok(())
    }

    /// Each a multiple of `granule`, ascending.
    pub(super) fn of(&self, granule: u64) -> Vec<u64> {
        if !self.bytes.is_empty() {
            let mut sizes: Vec<u64> = self.bytes.iter().map(|size| size.next_multiple_of(granule)).collect();
            sizes.sort_unstable();
            sizes.dedup();
            return sizes;
        }
        let mut sizes = Vec::new();
        let mut size = self.min_bytes;
        loop {
            let rounded = size.next_multiple_of(granule);
            if sizes.last() != Some(&rounded) {
                sizes.push(rounded);
            }
            match size.checked_mul(self.factor) {
                Some(next) if next <= self.max_bytes => size = next,
                _ => return sizes,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        sizes: Sizes,
    }

    #[test]
    fn sizes_are_a_list_or_a_range() {
        let line = |words: &str| Line::try_parse_from(["bench"].into_iter().chain(words.split(' ')));
        let sizes = |words, granule| line(words).map(|line| line.sizes.of(granule)).map_err(|e| e.kind());
        assert_eq!(sizes("--bytes 4K,1001,1K,5", 8), Ok(vec![8, 1008, 1024, 4096]));
        assert_eq!(sizes("--bytes 1001,1K", 64), Ok(vec![1024]));
        assert_eq!(sizes("--min-bytes 10 --max-bytes 1000 --factor 10", 8), Ok(vec![16, 104, 1000]));
        assert_eq!(sizes("--bytes 1K --max-bytes 1M", 8), Err(clap::error::ErrorKind::ArgumentConflict));
    }

    #[test]
    fn sizes_are_read_as_people_write_them() {
        let read = |text| bytes(text).ok();
        assert_eq!(
            [read("0"), read("17"), read("4k"), read("64M")],
            [Some(0), Some(17), Some(4096), Some(64 << 20)]
        );
        assert_eq!([read("1GiB"), read("2KB"), read("9b")], [Some(1 << 30), Some(2048), Some(9)]);
        assert_eq!([read(""), read("k"), read("-1"), read("1.5M"), read("20000000000G")], [None; 5]);
        assert_eq!([read("1024G"), read("1025G"), read("18446744073709551615")], [Some(1 << 40), None, None]);
    }
}
