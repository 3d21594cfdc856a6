//! `warpway bench plan`: processes that run a plan, and what is said of plans that cannot be measured.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

/// Exit code, the document if there is one, and what was said.
fn bench(file: &Path, arguments: &[&str]) -> (i32, Value, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_warpway"));
    // Of the tests, not of the command, which would warn about it.
    command.env_remove("WARPWAY_PLANS");
    command.args(["bench", "plan"]).arg(file).args(["--batches", "2", "--json"]).args(arguments);
    let output = command.stdin(Stdio::null()).output().unwrap();
    let document = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
    (output.status.code().unwrap(), document, String::from_utf8(output.stderr).unwrap())
}

/// Benchmark, bytes and wrong elements of each row.
fn rows(document: &Value) -> Vec<(&str, u64, u64)> {
    let row = |row: &'_ Value| (row["bytes"].as_u64().unwrap(), row["errors"].as_u64().unwrap());
    let rows = document["rows"].as_array().unwrap();
    rows.iter().map(|found| (found["benchmark"].as_str().unwrap(), row(found).0, row(found).1)).collect()
}

/// An all-gather of two ranks, with or without the copy of a rank's own part.
fn all_gather(collective: &str, copies: bool) -> Value {
    let rank = |own: u64| {
        let mut operations = vec![
            json!({"name": "signal", "channel_ids": [0], "channel_type": "memory"}),
            json!({"name": "wait", "channel_ids": [0], "channel_type": "memory"}),
            json!({"name": "nop"}),
            json!({"name": "put", "src_buff": [{"type": "i", "index": 0, "size": 1}],
                "dst_buff": [{"buffer_id": 0, "index": own, "size": 1}], "channel_type": "memory"}),
            json!({"name": "nop"}),
            json!({"name": "signal", "channel_ids": [0], "channel_type": "memory"}),
            json!({"name": "wait", "channel_ids": [0], "channel_type": "memory"}),
        ];
        if copies {
            operations.push(json!({"name": "copy", "src_buff": [{"type": "i", "index": 0, "size": 1}],
                "dst_buff": [{"type": "o", "index": own, "size": 1}]}));
        }
        json!({"id": own, "input_chunks": 1, "output_chunks": 2, "scratch_chunks": 0,
            "threadblocks": [{"id": 0, "ops": operations,
                "channels": [{"channel_type": "memory", "channel_ids": [0]}],
                "remote_buffer_refs": [{"access_channel_type": "memory", "remote_buffer_ids": [0]}]}],
            "channels": [{"channel_type": "memory", "connected_to": [1 - own]}],
            "remote_buffers": [{"rank": 1 - own, "type": "o", "access_channel_types": ["memory"]}],
            "semaphores": []})
    };
    json!({"name": "ag", "collective": collective, "protocol": "Simple", "inplace": false,
        "gpus": [rank(0), rank(1)]})
}

/// A file that is gone at the end of the test.
struct File(PathBuf);

impl File {
    fn new(name: &str, plan: &Value) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("bench_plan_{name}.json"));
        std::fs::write(&path, plan.to_string()).unwrap();
        Self(path)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn a_proven_plan_is_measured_at_every_size() {
    let file = File::new("good", &all_gather("allgather", true));
    // Two chunks of whole units of 16 bytes; what rounds to the same size is measured once.
    let (code, document, said) = bench(&file.0, &["--bytes", "1,8,1000,4K", "--type", "bfloat16"]);
    assert_eq!(
        (code, said.as_str()),
        (0, "warpway: --bytes 8: 32 bytes, whole chunks, have a row already\n")
    );
    assert_eq!(rows(&document), [("plan ag", 32, 0), ("plan ag", 1024, 0), ("plan ag", 4096, 0)]);
    let row = &document["rows"][1];
    let (median, rate) = (row["median_us"].as_f64().unwrap(), row["gb_per_s"].as_f64().unwrap());
    assert_eq!((row["transport"].as_str(), row["blocks"].as_u64()), (Some("shared"), Some(1)));
    assert_eq!(rate, 1024.0 / median / 1e3);
    assert_eq!(row["bus_gb_per_s"].as_f64().unwrap(), rate / 2.0);
    assert_eq!(document["ranks"], 2);
    // What is rounded to a size that was measured is said, not left out.
    let (code, document, said) = bench(&file.0, &["--bytes", "1001,1K"]);
    assert_eq!((code, rows(&document)), (0, vec![("plan ag", 1024, 0)]), "{said}");
    assert!(said.contains("--bytes 1024: 1024 bytes, whole chunks, have a row already"), "{said}");
}

#[test]
fn a_plan_without_a_proof_runs_only_on_demand_and_every_wrong_element_is_counted() {
    let file = File::new("wrong", &all_gather("allgather", false));
    let (code, document, said) = bench(&file.0, &["--bytes", "1K"]);
    assert_eq!((code, &document), (1, &Value::Null), "{said}");
    for word in ["is not run", "warpway plan verify", "--unverified", "V704"] {
        assert!(said.contains(word), "{word}: {said}");
    }
    let (code, document, said) = bench(&file.0, &["--bytes", "1K", "--unverified"]);
    // On each of two ranks its own part of 128 elements, in three rounds.
    assert_eq!((code, rows(&document)), (1, vec![("plan ag", 1024, 2 * 128 * 3)]), "{said}");
}

#[test]
fn what_cannot_be_measured_is_refused_with_the_reason() {
    let good = File::new("refused", &all_gather("allgather", true));
    let custom = File::new("custom", &all_gather("custom", true));
    let missing = Path::new("no/such/plan.json");
    for (file, arguments, code, word) in [
        (custom.0.as_path(), &[][..], 1, "no result to check"),
        (missing, &[], 1, "no/such/plan.json"),
        (Path::new("-"), &[], 1, "name a file"),
        // Goes on for ever; no plan begins like this.
        (Path::new("/dev/zero"), &[], 1, "not JSON: line 1"),
        (&good.0, &["--root", "2"], 1, "--root 2: the plan has 2 ranks"),
        (&good.0, &["--bytes", "0"], 2, "at least one byte"),
        (&good.0, &["--type", "float12"], 2, "float12"),
        (&good.0, &["--transport", "tcp"], 2, "tcp"),
        (&good.0, &["--bytes", "1025G"], 2, "1025G"),
    ] {
        let (found, document, said) = bench(file, arguments);
        assert_eq!((found, &document), (code, &Value::Null), "{said}");
        assert!(said.contains(word), "{word}: {said}");
    }
}

/// The plans beside the repository, in every way they can be measured.
#[test]
fn the_shared_plans_give_right_results() {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/plans");
    let folder = std::env::var_os("WARPWAY_PLANS").map_or_else(beside, PathBuf::from);
    let names = ["allreduce_packet", "reduce", "reduce_nvls", "reduce_pack_tbg", "transfer_pack"];
    if !folder.exists() {
        eprintln!("skipped: {} is missing; set WARPWAY_PLANS", folder.display());
        return;
    }
    for name in names {
        for arguments in
            [["--type", "float32", "--packets", "ll16"], ["--type", "float8_e4m3fn", "--packets", "ll8"]]
        {
            let file = folder.join(name).with_extension("json");
            let (code, document, said) = bench(&file, &[&["--bytes", "512,3000"][..], &arguments].concat());
            assert_eq!(code, 0, "{name}: {said}");
            assert!(rows(&document).iter().all(|(_, _, wrong)| *wrong == 0), "{name}: {document}");
            assert_eq!(rows(&document).len(), 2, "{name}");
        }
    }
}
