//! `warpway tune`: what it writes, adds to and refuses, and how it explains choices.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

/// Exit code, what was printed, what was said.
fn tune(arguments: &[&str], variables: &[(&str, &str)]) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_warpway"));
    command.env_remove("WARPWAY_PLANS").envs(variables.iter().copied()).arg("tune").args(arguments);
    let output = command.stdin(Stdio::null()).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

/// A file that is gone at the end of the test.
struct File(PathBuf);

impl File {
    fn new(name: &str) -> Self {
        let name = format!("warpway-{}-{name}.json", std::process::id());
        Self(std::env::temp_dir().join(name))
    }

    fn name(&self) -> &str {
        self.0.to_str().unwrap()
    }

    fn document(&self) -> Value {
        serde_json::from_slice(&fs::read(&self.0).unwrap()).unwrap()
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Function, in place, sizes.
fn measured(document: &Value) -> Vec<(&str, bool, Vec<u64>)> {
    let all = document["measured"].as_array().unwrap();
    let sizes = |entry: &Value| {
        entry["sizes"].as_array().unwrap().iter().map(|row| row["bytes"].as_u64().unwrap()).collect()
    };
    let entry = |entry: &'_ Value| entry["in_place"].as_bool().unwrap();
    all.iter().map(|e| (e["function"].as_str().unwrap(), entry(e), sizes(e))).collect()
}

#[test]
fn tables_are_measured_added_to_and_used() {
    let file = File::new("tune");
    let quick = ["-o", file.name(), "--batches", "1", "--bytes", "8,1000"];
    let run = |more: &[&str]| tune(&[&quick[..], more].concat(), &[]);
    let (code, out, err) = run(&["all_reduce", "all_to_all_v", "barrier"]);
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    assert!(out.contains("all_reduce in place") && out.contains("WARPWAY_TUNING_FILE"), "{out}");
    let document = file.document();
    let found = measured(&document);
    assert!(found.contains(&("all_reduce", false, vec![8, 1000])), "{found:?}");
    assert!(found.contains(&("all_reduce", true, vec![8, 1000])), "{found:?}");
    assert!(found.contains(&("all_to_all_v", false, vec![8, 1000])), "{found:?}");
    assert!(found.contains(&("barrier", false, vec![0])), "{found:?}");
    for entry in document["measured"].as_array().unwrap() {
        assert_eq!(entry["ranks_per_host"], serde_json::json!([2]));
        for row in entry["sizes"].as_array().unwrap() {
            let fastest = row["fastest"]["microseconds"].as_f64().unwrap();
            assert!(fastest > 0.0);
            let others = row["others"].as_array().unwrap();
            assert!(others.iter().all(|other| other["microseconds"].as_f64().unwrap() >= fastest), "{row}");
        }
    }
    // Another function is added, one that is there is measured anew.
    let (code, out, err) = run(&["gather", "all_reduce", "--out-of-place", "--json"]);
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    assert_eq!(serde_json::from_str::<Value>(&out).unwrap(), file.document());
    let document = file.document();
    let found = measured(&document);
    assert_eq!(found.len(), measured(&file.document()).len());
    assert!(found.contains(&("gather", false, vec![8, 1000])), "{found:?}");
    assert_eq!(found.iter().filter(|(function, ..)| *function == "all_reduce").count(), 2);
    // The choice is that of the table.
    let arguments = ["--explain", "all_reduce", "--bytes", "1000", "--out-of-place", "--table", file.name()];
    let (code, out, _) = tune(&[&arguments[..], &["--json"]].concat(), &[]);
    let explained: Value = serde_json::from_str(&out).unwrap();
    let entry = |e: &&Value| e["function"] == "all_reduce" && e["in_place"] == false;
    let best = document["measured"].as_array().unwrap().iter().find(entry).unwrap();
    assert_eq!((code, &explained[0]["algorithm"]), (0, &best["sizes"][1]["fastest"]["algorithm"]), "{out}");
    assert!(explained[0]["candidates"][0]["why"].as_str().unwrap().contains("the fastest there"), "{out}");
    // Of another machine: measured anew, but what people wrote stays.
    let text = fs::read_to_string(&file.0).unwrap();
    let other = text.replacen(
        "\"overrides\": []",
        "\"overrides\": [{\"function\":\"gather\",\"algorithm\":\"push\"}]",
        1,
    );
    let other = other.replacen("\"cores\": ", "\"cores\": 1", 1);
    fs::write(&file.0, other).unwrap();
    let (code, _, err) = run(&["broadcast"]);
    assert_eq!(code, 0, "{err}");
    assert!(err.contains("is written anew, since the number of cores was"), "{err}");
    let document = file.document();
    assert!(measured(&document).iter().all(|(function, ..)| *function == "broadcast"));
    assert_eq!(document["overrides"][0]["algorithm"], "push");
}

#[test]
fn files_and_arguments_that_are_wrong_are_named() {
    let file = File::new("wrong");
    fs::write(&file.0, "{\n  \"warpway_tuning\": 9\n}").unwrap();
    let (code, _, err) = tune(&["all_reduce", "-o", file.name(), "--bytes", "8", "--batches", "1"], &[]);
    assert_ne!(code, 0);
    assert!(err.contains("cannot be added to: line 2: version 9 of the form"), "{err}");
    let (code, _, err) = tune(&["--explain", "all_reduce", "--bytes", "8", "--table", file.name()], &[]);
    assert_eq!(code, 1);
    assert!(err.contains("line 2: version 9 of the form"), "{err}");
    let (code, _, err) = tune(&["all_redoce"], &[]);
    assert_eq!(code, 2);
    assert!(err.contains("there is no function `all_redoce`; there is all_reduce, "), "{err}");
    let (code, _, err) = tune(&["--explain", "gather", "--ranks", "5", "--hosts", "2"], &[]);
    assert_eq!(code, 1);
    assert!(err.contains("5 ranks cannot be spread evenly over 2 hosts"), "{err}");
    let variables = [("WARPWAY_ALGORITHM", "all_reduce=magic")];
    let (code, _, err) = tune(&["--explain", "all_reduce", "--bytes", "8"], &variables);
    assert_eq!(code, 1);
    assert!(err.contains("WARPWAY_ALGORITHM (all_reduce=magic): there is no algorithm \"magic\""), "{err}");
}

/// What people see. After a change that is meant: UPDATE_DOCS=1 cargo nextest run -p warpway-cli explanations
#[test]
fn explanations_are_as_they_were() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/snapshots");
    for (name, arguments) in [
        ("all_reduce", "all_reduce --in-place --ranks 4 --bytes 4K,1M"),
        ("hosts", "all_reduce gather --out-of-place --ranks 4 --hosts 2 --bytes 1M"),
        ("named", "all_reduce --in-place --ranks 8 --bytes 8 --algorithm two_shot --op max --type bf16"),
        ("json", "gather --out-of-place --ranks 2 --bytes 100 --root 1 --json"),
    ] {
        let words: Vec<&str> = arguments.split(' ').collect();
        let (code, out, err) = tune(&[&["--explain"], &words[..]].concat(), &[]);
        assert_eq!((code, err.as_str()), (0, ""), "{name}");
        let path = folder.join(format!("explain_{name}.txt"));
        if std::env::var_os("UPDATE_DOCS").is_some() {
            fs::create_dir_all(&folder).unwrap();
            fs::write(&path, &out).unwrap();
        }
        let expected = fs::read_to_string(&path).unwrap_or_default();
        assert!(out == expected, "{} is stale; run this test with UPDATE_DOCS=1\n{out}", path.display());
    }
}
