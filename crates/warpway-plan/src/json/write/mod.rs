//! To JSON.

mod emit;
mod records;

use std::convert::Infallible;
use std::io;

use emit::Emitter;

use crate::ir::Plan;

/// How a plan is laid out as text. The values are the same in all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Style {
    /// Byte for byte what Python's `json.dumps(plan, indent=2)` gives, with the keys in the order of MSCCL++'s DSL.
    #[default]
    Pretty,
    /// Without white space, the keys in that order.
    Compact,
    /// Without white space, the keys in alphabetical order, as `json.dumps(plan, sort_keys=True,
    /// separators=(",", ":"))`. What [`Plan::identity`] hashes.
    Canonical,
}

impl Plan {
    /// The plan as JSON. Lists keep their order; access types are written as memory, then port; absent values are
    /// left out; what the older forms of the format said is written in the current one. Reading it gives an equal
    /// plan, but for the locations of the operations.
    pub fn to_json(&self, style: Style) -> String {
        self.text(style, false)
    }

    /// The same with the location of each operation that has one, as key `loc`: `"file:line"`. All executors
    /// ignore it.
    pub fn to_json_with_locations(&self, style: Style) -> String {
        self.text(style, true)
    }

    /// The same as [`Plan::to_json`], in pieces of some ten kilobytes into a sink.
    ///
    /// # Errors
    /// Those of the sink.
    pub fn write_json(&self, sink: &mut impl io::Write, style: Style) -> io::Result<()> {
        Emitter::new(style, false, &mut |text| sink.write_all(text.as_bytes())).document(self)
    }

    fn text(&self, style: Style, locations: bool) -> String {
        let mut all = String::new();
        self.pieces(style, locations, |text| all.push_str(text));
        all
    }

    /// Hands the text on piece by piece.
    pub(super) fn pieces(&self, style: Style, locations: bool, mut take: impl FnMut(&str)) {
        let Ok(()) = Emitter::<Infallible>::new(style, locations, &mut |text| {
            take(text);
            Ok(())
        })
        .document(self);
    }
}
