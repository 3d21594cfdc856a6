//! Plans written by someone else.

use std::collections::BTreeMap;

use serde_json::Value;
use sha2::{Digest as _, Sha256};
use warpway_plan::{Action, DataKind, Plan, Style};

use crate::shared_plans;

#[test]
fn shared_plans_are_written_as_they_were_read() {
    for (name, text) in shared_plans::by_name() {
        let read = Plan::from_json(text.as_bytes()).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(read.warnings, [], "{name}");
        // They were written by json.dumps(indent=2) with a line end behind; all their sets happen to be sorted.
        assert_eq!(read.plan.to_json(Style::Pretty) + "\n", text, "{name}");
        assert_eq!(read.plan.check(), [], "{name}");
        for style in [Style::Pretty, Style::Compact, Style::Canonical] {
            let again = Plan::from_json(read.plan.to_json(style).as_bytes()).unwrap();
            assert_eq!(again.plan, read.plan, "{name}, {style:?}");
        }
    }
}

/// `serde_json`'s own map is sorted, so its compact form is canonical as long as all text is ASCII.
#[test]
fn canonical_json_and_identity_agree_with_another_writer() {
    for (name, text) in shared_plans::by_name() {
        let plan = Plan::from_json(text.as_bytes()).unwrap().plan;
        let oracle = serde_json::to_string(&serde_json::from_str::<Value>(&text).unwrap()).unwrap();
        assert_eq!(plan.to_json(Style::Canonical), oracle, "{name}");
        assert_eq!(plan.identity().0, <[u8; 32]>::from(Sha256::digest(&oracle)), "{name}");
    }
}

/// Counted with a text search.
#[test]
fn nothing_is_lost_on_the_way() {
    for (name, text) in shared_plans::by_name() {
        let plan = Plan::from_json(text.as_bytes()).unwrap().plan;
        let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
        for (_, _, operation) in plan.operations() {
            let kind = match &operation.action {
                Action::Data(data) => data.kind.name(),
                Action::Nop => "nop",
                _ => continue,
            };
            *kinds.entry(kind).or_default() += 1;
        }
        for (kind, name_in_file) in DataKind::NAMED.iter().map(|(_, n)| (*n, *n)).chain([("nop", "nop")]) {
            let count = text.matches(&format!("\"name\": \"{name_in_file}\"")).count();
            assert_eq!(kinds.get(kind).copied().unwrap_or_default(), count, "{kind} in {name}");
        }
    }
}
