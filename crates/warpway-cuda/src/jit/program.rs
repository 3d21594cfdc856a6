//! What is compiled.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use sha2::{Digest as _, Sha256};

use super::headers::DEVICE_HEADERS;
use crate::device::Architecture;

type Text = Cow<'static, str>;

/// CUDA C++ with everything that its machine code depends on. It sees no files: what it includes must be among its
/// headers, by exactly the name that it includes. One that reaches for files all the same, by an option or by an absolute
/// path, does not compile: what is kept could not be told from what a changed file would give.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    name: String,
    source: Text,
    headers: BTreeMap<String, Text>,
    options: Vec<String>,
    kernels: Vec<String>,
}

impl Program {
    /// `name` stands for the file's name in messages.
    pub fn new(name: impl Into<String>, source: impl Into<Text>) -> Self {
        Self {
            name: name.into(),
            source: source.into(),
            headers: BTreeMap::new(),
            options: vec!["-std=c++17".into()],
            kernels: Vec::new(),
        }
    }

    /// Adds a header under the name that `#include` uses; a later one of the same name replaces it.
    pub fn header(mut self, name: impl Into<String>, text: impl Into<Text>) -> Self {
        self.headers.insert(name.into(), text.into());
        self
    }

    /// Adds Warpway's device headers, `<warpway/….cuh>`.
    pub fn device_headers(self) -> Self {
        DEVICE_HEADERS.iter().fold(self, |program, (name, text)| program.header(*name, *text))
    }

    /// Defines a macro.
    pub fn define(self, name: impl fmt::Display, value: impl fmt::Display) -> Self {
        self.option(format!("-D{name}={value}"))
    }

    /// Adds an option of NVRTC. The architecture is none: it is given to the compiler.
    pub fn option(mut self, option: impl Into<String>) -> Self {
        self.options.push(option.into());
        self
    }

    /// Exports a kernel, by an expression as one would write it in C++: `fold<float, 4>`. A template is
    /// instantiated by that.
    pub fn kernel(mut self, expression: impl Into<String>) -> Self {
        self.kernels.push(expression.into());
        self
    }

    /// The name in messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The text.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Names and texts of the headers, sorted by name.
    pub fn headers(&self) -> impl ExactSizeIterator<Item = (&str, &str)> {
        self.headers.iter().map(|(name, text)| (name.as_str(), &**text))
    }

    /// Options, in the order in which they were added.
    pub fn options(&self) -> &[String] {
        &self.options
    }

    /// Expressions of the exported kernels.
    pub fn kernels(&self) -> &[String] {
        &self.kernels
    }

    /// What would read a file, if anything: an option, or a line that includes an absolute path.
    pub(super) fn reads_file(&self) -> Option<&str> {
        let options = self.options.iter().map(|option| option.trim());
        let texts = std::iter::once(self.source()).chain(self.headers().map(|(_, text)| text));
        let option = options.clone().find(|option| names_file(option));
        option.or_else(|| texts.flat_map(str::lines).map(str::trim).find(|line| includes_absolute_path(line)))
    }

    /// The text of a file that messages name: the source itself or a header.
    pub(super) fn file(&self, name: &str) -> Option<&str> {
        if name == self.name {
            return Some(&self.source);
        }
        self.headers.get(name).map(|text| &**text)
    }

    /// What the image depends on, apart from the compiler.
    pub(super) fn digest(&self, architecture: Architecture) -> ProgramDigest {
        let mut hash = Sha256::new();
        let mut part = |bytes: &[u8]| {
            hash.update((bytes.len() as u64).to_le_bytes());
            hash.update(bytes);
        };
        // Each list begins with its length, so that no element can be taken for one of the next list.
        part(b"warpway program v2");
        part(self.name.as_bytes());
        part(self.source.as_bytes());
        part(&(self.headers.len() as u64).to_le_bytes());
        for (name, text) in self.headers() {
            part(name.as_bytes());
            part(text.as_bytes());
        }
        for list in [&self.options, &self.kernels] {
            part(&(list.len() as u64).to_le_bytes());
            list.iter().for_each(|item| part(item.as_bytes()));
        }
        part(&architecture.major.to_le_bytes());
        part(&architecture.minor.to_le_bytes());
        ProgramDigest(hash.finalize().into())
    }
}

/// Options of NVRTC that name folders or files to read, without their dashes.
const READING: [&str; 5] = ["include", "include-path", "pre-include", "use-pch", "pch-dir"];

fn names_file(option: &str) -> bool {
    let bare = option.trim_start_matches('-');
    let long = bare.split(['=', ' ']).next().unwrap_or(bare);
    bare != option && (READING.contains(&long) || bare.starts_with('I'))
}

fn includes_absolute_path(line: &str) -> bool {
    let include = line.strip_prefix('#').and_then(|rest| rest.trim_start().strip_prefix("include"));
    include.is_some_and(|name| ["\"/", "</"].iter().any(|begin| name.trim_start().starts_with(begin)))
}

/// SHA-256 of a program and the architecture it is compiled for. Shown in hexadecimal.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct ProgramDigest([u8; 32]);

impl fmt::Display for ProgramDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ProgramDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SM_90: Architecture = Architecture { major: 9, minor: 0 };

    #[test]
    fn all_that_matters_is_in_the_digest() {
        let plain = || Program::new("a.cu", "source");
        let different = [
            plain(),
            Program::new("b.cu", "source"),
            Program::new("a.cu", "sourc"),
            // The same bytes, divided otherwise.
            Program::new("a.cus", "ource"),
            plain().header("h", ""),
            plain().header("h", "x"),
            plain().header("hx", ""),
            plain().define("A", 1),
            plain().define("A", 2),
            plain().option("-lineinfo"),
            plain().kernel("-lineinfo"),
            plain().option("a").option("b"),
            plain().option("b").option("a"),
            plain().option("ab"),
            plain().kernel("k"),
        ];
        let mut digests: Vec<String> =
            different.iter().map(|program| program.digest(SM_90).to_string()).collect();
        digests.extend(
            [(9, 1), (10, 0), (0, 9)]
                .map(|(major, minor)| plain().digest(Architecture { major, minor }).to_string()),
        );
        assert!(digests.iter().all(|digest| digest.len() == 64));
        let count = digests.len();
        digests.sort();
        digests.dedup();
        assert_eq!(digests.len(), count);

        let orders = [
            plain().header("a", "1").header("b", "2"),
            plain().header("b", "2").header("a", "0").header("a", "1"),
        ];
        assert_eq!(orders[0].digest(SM_90), orders[1].digest(SM_90), "the order of headers means nothing");
    }
}
