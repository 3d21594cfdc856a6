//! The rules of a plan's form (V1) as far as the types leave them open: what a plan that was built by hand may
//! violate as well as one that was read. Sums over the whole plan, loops and races are the verifier's.

mod finding;
mod operation;
mod path;
mod shape;

use std::collections::BTreeSet;

pub use finding::Finding;
pub(crate) use finding::{Noted, Notes};
pub(crate) use path::{Clipped, Path, Step};

use crate::ir::{ChannelType, Extension, Plan, RankPlan, ThreadBlock};

impl Plan {
    /// What violates V101 to V111, in the order of the file: errors, then what is only noted (V106). At most a
    /// hundred of each. Linear in the size of the plan.
    pub fn check(&self) -> Vec<Finding> {
        let mut notes = Notes::default();
        check(self, &mut notes);
        let Noted { mut errors, warnings, .. } = notes.finish();
        errors.extend(warnings);
        errors
    }
}

/// The same, into the notes of the reader.
pub(crate) fn check(plan: &Plan, notes: &mut Notes) {
    if !(1..=1024).contains(&plan.threads_per_block) {
        notes.note_key("num_threads_per_block", 109, plan.threads_per_block, "1 to 1024");
    }
    if !is_alignment(plan.buffer_alignment) {
        notes.note_key("buffer_alignment", 109, plan.buffer_alignment, ALIGNMENTS);
    }
    if plan.min_message_size > plan.max_message_size {
        let expected = format!("at least min_message_size, {}", plan.min_message_size);
        notes.note_key("max_message_size", 109, plan.max_message_size, expected);
    }
    if plan.ranks.is_empty() {
        notes.note_key("gpus", 109, "no ranks", "one rank or more");
    }
    let mut checker = Checker { notes, extensions: &plan.extensions, unlisted: BTreeSet::new() };
    checker.each("gpus", &plan.ranks, Checker::rank);
}

/// What [`is_alignment`] wants.
pub(crate) const ALIGNMENTS: &str = "a power of two, 4 to 1048576";

/// Whether chunks may be aligned so: no memory asks for more than its largest pages, and sums must fit 64 bits.
pub(crate) fn is_alignment(bytes: u64) -> bool {
    (4..=1 << 20).contains(&bytes) && bytes.is_power_of_two()
}

/// A walk through a plan.
struct Checker<'c> {
    notes: &'c mut Notes,
    /// Those the plan lists.
    extensions: &'c BTreeSet<Extension>,
    /// Used without being listed, and noted; once is enough.
    unlisted: BTreeSet<Extension>,
}

impl Checker<'_> {
    /// Looks at every element of a list.
    fn each<T>(&mut self, key: &'static str, list: &[T], mut look: impl FnMut(&mut Self, &T)) {
        self.notes.path.push(Step::Key(key));
        for (index, element) in list.iter().enumerate() {
            self.notes.path.push(Step::Index(index));
            look(self, element);
            self.notes.path.pop();
        }
        self.notes.path.pop();
    }

    fn rank(&mut self, rank: &RankPlan) {
        if rank.size_ids.is_some() {
            self.uses(Extension::SizedChunks, "input_size_ids");
        }
        let tables = operation::Tables::of(rank);
        self.each("threadblocks", &rank.blocks, |checker, block| {
            checker.lists(block);
            checker.each("ops", &block.operations, |checker, operation| {
                checker.operation(&tables, block, operation, false);
            });
        });
    }

    /// A block has one list for each type: positions in two of them would mean two things.
    fn lists(&mut self, block: &ThreadBlock) {
        let mut types = BTreeSet::new();
        self.each("channels", &block.channels, |checker, refs| {
            if !types.insert(refs.channel_type) {
                let found = format!("a second list of type `{}`", refs.channel_type);
                checker.notes.note_key("channel_type", 101, found, "one list of each type");
            }
        });
        let mut accesses = BTreeSet::new();
        self.each("remote_buffer_refs", &block.remote_buffers, |checker, refs| {
            const KEY: &str = "access_channel_type";
            if refs.access == ChannelType::Switch {
                checker.notes.note_key(KEY, 103, "`switch`", "`memory` or `port`");
            } else if !accesses.insert(refs.access) {
                let found = format!("a second list of access `{}`", refs.access);
                checker.notes.note_key(KEY, 101, found, "one list of each access");
            }
        });
    }

    /// Notes the first use of an extension that the plan does not list.
    fn uses(&mut self, extension: Extension, key: &'static str) {
        if !self.extensions.contains(&extension) && self.unlisted.insert(extension) {
            let found = format!("extension `{extension}` in use");
            self.notes.note_key(key, 110, found, format!("\"{extension}\" in the plan's `extensions`"));
        }
    }
}
