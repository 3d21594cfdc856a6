//! What the environment may say about algorithms: `all_reduce=two_shot,broadcast:4K-1M=chain`.

use std::fmt;

use crate::task::Function;

/// An algorithm that is taken in place of what would be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Override {
    /// For this function.
    pub function: Function,
    /// From this size on.
    pub min_bytes: u64,
    /// Up to this size.
    pub max_bytes: u64,
    /// The algorithm.
    pub algorithm: String,
    /// Blocks per rank; `None` as without the override.
    pub blocks: Option<u32>,
}

/// Text that is no override.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{entry:?}: {why}")]
pub struct BadOverride {
    /// The entry of the list.
    pub entry: String,
    /// What is wrong, and what would do.
    pub why: String,
}

impl Override {
    /// A comma list of `function=algorithm` or `function:MIN-MAX=algorithm`; sizes in bytes, with K, M or G. Where
    /// several cover a size, the first is taken.
    ///
    /// # Errors
    /// The first entry that cannot be read.
    pub fn parse_list(text: &str) -> Result<Vec<Self>, BadOverride> {
        let entries = text.split(',').map(str::trim).filter(|entry| !entry.is_empty());
        entries.map(Self::parse).collect()
    }

    fn parse(entry: &str) -> Result<Self, BadOverride> {
        let bad = |why: String| BadOverride { entry: entry.to_owned(), why };
        let form = "write function=algorithm, or function:MIN-MAX=algorithm";
        let (what, algorithm) = entry.split_once('=').ok_or_else(|| bad(form.into()))?;
        let (name, range) = match what.split_once(':') {
            Some((name, range)) => (name.trim(), Some(range)),
            None => (what.trim(), None),
        };
        let function = Function::from_name(name).ok_or_else(|| {
            let known: Vec<&str> = Function::NAMED.iter().map(|(_, name)| *name).collect();
            bad(format!("there is no function {name:?}; there is {}", known.join(", ")))
        })?;
        let (min_bytes, max_bytes) = match range {
            None => (0, u64::MAX),
            Some(range) => {
                let (min, max) = range.split_once('-').ok_or_else(|| bad(form.into()))?;
                let limit = |text: &str, open| if text.trim().is_empty() { Ok(open) } else { bytes(text) };
                (limit(min, 0).map_err(bad)?, limit(max, u64::MAX).map_err(bad)?)
            }
        };
        if min_bytes > max_bytes {
            return Err(bad("the range ends before it begins".into()));
        }
        let algorithm = algorithm.trim().to_owned();
        if algorithm.is_empty() {
            return Err(bad("the algorithm is missing".into()));
        }
        Ok(Self { function, min_bytes, max_bytes, algorithm, blocks: None })
    }
}

fn bytes(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let (digits, shift) = match text.to_ascii_uppercase() {
        upper if upper.ends_with('K') => (&text[..text.len() - 1], 10),
        upper if upper.ends_with('M') => (&text[..text.len() - 1], 20),
        upper if upper.ends_with('G') => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    let number = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(1 << shift));
    number.ok_or_else(|| format!("{text:?} is no size; write bytes, with K, M or G if you like"))
}

impl fmt::Display for Override {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.function)?;
        if (self.min_bytes, self.max_bytes) != (0, u64::MAX) {
            write!(f, ":{}-{}", self.min_bytes, self.max_bytes)?;
        }
        write!(f, "={}", self.algorithm)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_and_shown() {
        let list =
            Override::parse_list(" all_reduce=ring, broadcast:4K-1M=chain,gather:-100=direct,").unwrap();
        let shown: Vec<String> = list.iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["all_reduce=ring", "broadcast:4096-1048576=chain", "gather:0-100=direct"]);
        assert_eq!(Override::parse_list(""), Ok(Vec::new()));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, expected) in [
            ("all_reduce", "write function=algorithm"),
            ("allreduce=ring", "there is no function \"allreduce\"; there is all_reduce, "),
            ("all_reduce=", "the algorithm is missing"),
            ("all_reduce:5=ring", "write function=algorithm"),
            ("all_reduce:9-8=ring", "the range ends before it begins"),
            ("all_reduce:1X-=ring", "\"1X\" is no size"),
            ("all_reduce:1-99999999999G=ring", "is no size"),
        ] {
            let error = Override::parse_list(&format!("gather=direct,{text}")).unwrap_err();
            assert_eq!(error.entry, text);
            assert!(error.to_string().contains(expected), "{error}");
        }
    }
}
