//! What a compiler value has done.

use std::collections::VecDeque;
use std::time::Duration;

use super::image::CodeKind;

/// Records that are kept; the oldest go first.
const RECORDS: usize = 1024;

/// What was compiled, how long it took, and what was found instead.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Journal {
    /// The last 1,024 images that were compiled or read from disk, oldest first.
    pub records: VecDeque<Record>,
    /// Images compiled.
    pub compiled: u64,
    /// Images read from disk.
    pub from_disk: u64,
    /// Images found in memory, which give no record.
    pub from_memory: u64,
    /// Programs that did not compile.
    pub failed: u64,
}

/// An image that was compiled or read from disk.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Record {
    /// The program's name.
    pub program: String,
    /// `sm_90`, or `compute_90` for PTX.
    pub architecture: String,
    /// What the code is.
    pub kind: CodeKind,
    /// Bytes of it.
    pub code_bytes: u64,
    /// Where it came from.
    pub origin: Origin,
    /// It is on disk, where later processes find it.
    pub kept: bool,
    /// How long that took.
    pub duration: Duration,
}

/// Where an image came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Origin {
    /// The compiler.
    Compiled,
    /// A file of the cache.
    Disk,
    /// This process had it.
    Memory,
}

impl Journal {
    pub(super) fn add(&mut self, record: Record) {
        match record.origin {
            Origin::Compiled => self.compiled += 1,
            Origin::Disk => self.from_disk += 1,
            Origin::Memory => {
                self.from_memory += 1;
                return;
            }
        }
        tracing::info!(
            target: "warpway::gpu::jit",
            "{} for {}: {} in {:.1} ms, {} bytes",
            record.program,
            record.architecture,
            if record.origin == Origin::Disk { "read from the cache" } else { "compiled" },
            record.duration.as_secs_f64() * 1e3,
            record.code_bytes
        );
        if self.records.len() == RECORDS {
            self.records.pop_front();
        }
        self.records.push_back(record);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_records_go() {
        let mut journal = Journal::default();
        let record = |number: usize, origin| Record {
            program: number.to_string(),
            architecture: "sm_90".into(),
            kind: CodeKind::Cubin,
            code_bytes: 1,
            origin,
            kept: true,
            duration: Duration::ZERO,
        };
        (0..RECORDS + 2).for_each(|number| journal.add(record(number, Origin::Compiled)));
        journal.add(record(0, Origin::Memory));
        journal.add(record(7, Origin::Disk));
        assert_eq!((journal.compiled, journal.from_memory, journal.from_disk), (1026, 1, 1));
        assert_eq!(journal.records.len(), RECORDS);
        assert_eq!((journal.records[0].program.as_str(), journal.records[1023].program.as_str()), ("3", "7"));
    }
}
