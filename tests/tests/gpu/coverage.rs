//! The bundle runs every test of this folder.

use std::collections::BTreeMap;
use std::process::Command;

use serde::Deserialize;

#[derive(Deserialize)]
struct Suite {
    #[serde(default)]
    tests: Vec<Rule>,
}

#[derive(Deserialize)]
struct Rule {
    #[serde(rename = "match")]
    prefix: String,
}

fn suites() -> BTreeMap<String, Suite> {
    let text = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../xtask/gpu-bundle/suites.json"));
    serde_json::from_str(text).unwrap()
}

/// Names of this program's tests: all, or the ignored ones.
fn tests(more: &[&str]) -> Vec<String> {
    let program = std::env::current_exe().unwrap();
    let output = Command::new(program).args(["--list", "--format", "terse"]).args(more).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().filter_map(|line| Some(line.strip_suffix(": test")?.to_owned())).collect()
}

/// These choose from the others.
const CHOOSING: [&str; 3] = ["sanitize", "sanitize_ranks", "smoke"];

#[test]
fn every_test_belongs_to_exactly_one_suite() {
    let suites = suites();
    let ignored = tests(&["--ignored"]);
    assert!(!ignored.is_empty());
    for test in &ignored {
        let rules = suites.iter().filter(|(name, _)| !CHOOSING.contains(&name.as_str()));
        let fitting = rules.flat_map(|(_, suite)| &suite.tests).filter(|rule| test.starts_with(&rule.prefix));
        assert_eq!(fitting.count(), 1, "{test}: see xtask/gpu-bundle/suites.json");
    }
    // The oracle of numbers has a test of its own.
    let here =
        |test: &str| test.starts_with("coverage::") || test.ends_with("::soft::agrees_with_the_machine");
    let wrong = |test: &String| !ignored.contains(test) && !here(test);
    let wrong: Vec<String> = tests(&[]).into_iter().filter(wrong).collect();
    assert!(wrong.is_empty(), "not ignored, so they would run where there is no GPU: {wrong:?}");
}

#[test]
fn what_is_chosen_exists() {
    let (suites, ignored) = (suites(), tests(&["--ignored"]));
    for suite in CHOOSING {
        assert!(!suites[suite].tests.is_empty());
        for Rule { prefix } in &suites[suite].tests {
            assert!(
                ignored.iter().any(|test| test.starts_with(prefix)),
                "{suite}: nothing is called {prefix}…"
            );
        }
    }
}
