//! Numbers of bytes as people write them.

/// `64`, `64K`, `64M`, `1G`, also with a trailing `iB` or `B`; powers of 1024.
pub(crate) fn parse(text: &str) -> Result<u64, String> {
    let lower = text.to_ascii_lowercase();
    let digits = lower.trim_end_matches("ib").trim_end_matches('b');
    let (number, shift) = match digits.as_bytes().last() {
        Some(b'k') => (&digits[..digits.len() - 1], 10),
        Some(b'm') => (&digits[..digits.len() - 1], 20),
        Some(b'g') => (&digits[..digits.len() - 1], 30),
        _ => (digits, 0),
    };
    let value: u64 = number.parse().map_err(|_| format!("`{text}` is not a size such as 8, 64K or 1G"))?;
    value.checked_mul(1 << shift).ok_or_else(|| format!("`{text}` does not fit 64 bits"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_of_1024() {
        assert_eq!(parse("0"), Ok(0));
        assert_eq!(parse("8b"), Ok(8));
        assert_eq!(parse("3KiB"), Ok(3072));
        assert_eq!(parse("2g"), Ok(2 << 30));
        assert_eq!(parse("18446744073709551615"), Ok(u64::MAX));
        assert!(parse("17179869184G").is_err_and(|error| error.contains("64 bits")));
        assert!(parse("K").is_err() && parse("").is_err() && parse("1.5K").is_err() && parse("-1").is_err());
    }
}
