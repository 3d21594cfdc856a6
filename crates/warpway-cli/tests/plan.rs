//! `warpway plan`: exit codes, what is written, what people read.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::io::Write as _;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// Runs `warpway plan` with a plan on standard input.
fn plan(arguments: &[&str], input: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_warpway"));
    command.arg("plan").args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // A command that refuses its arguments reads nothing.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

fn output(output: &Output) -> (i32, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

/// Rank `r` of the worked all-gather of two ranks.
fn rank(r: usize, operations: &str) -> String {
    let peer = 1 - r;
    format!(
        r#"{{"id":{r},"input_chunks":1,"output_chunks":2,"scratch_chunks":0,
        "threadblocks":[{{"id":0,"ops":[{operations}],"channels":[{{"channel_type":"memory","channel_ids":[0]}}],
        "remote_buffer_refs":[{{"access_channel_type":"memory","remote_buffer_ids":[0]}}]}}],
        "channels":[{{"channel_type":"memory","connected_to":[{peer}]}}],
        "remote_buffers":[{{"rank":{peer},"type":"o","access_channel_types":["memory"]}}],"semaphores":[]}}"#
    )
}

fn operations(r: usize) -> String {
    format!(
        r#"{{"name":"rlxsignal","channel_ids":[0],"channel_type":"memory"}},
        {{"name":"rlxwait","channel_ids":[0],"channel_type":"memory"}},{{"name":"nop","loc":"ag.py:7"}},
        {{"name":"copy","src_buff":[{{"type":"i","index":0,"size":1}}],"dst_buff":[{{"type":"o","index":{r},"size":1}}]}},
        {{"name":"put","src_buff":[{{"type":"i","index":0,"size":1}}],"dst_buff":[{{"buffer_id":0,"index":{r},"size":1}}],
          "channel_type":"memory"}},{{"name":"nop"}},
        {{"name":"signal","channel_ids":[0],"channel_type":"memory"}},
        {{"name":"wait","channel_ids":[0],"channel_type":"memory"}},{{"name":"nop"}}"#
    )
}

fn file(operations: [&str; 2]) -> String {
    let ranks = [rank(0, operations[0]), rank(1, operations[1])].join(",");
    format!(
        r#"{{"name":"ag2","collective":"allgather","protocol":"Simple","inplace":false,"gpus":[{ranks}]}}"#
    )
}

fn good() -> String {
    file([&operations(0), &operations(1)])
}

/// 11.2: both wait before they signal.
fn deadlock() -> String {
    let operations = r#"{"name":"wait","channel_ids":[0],"channel_type":"memory","loc":"dead.py:3"},
        {"name":"signal","channel_ids":[0],"channel_type":"memory","loc":"dead.py:4"}"#;
    file([operations, operations])
}

#[test]
fn what_cannot_be_read_has_a_code_of_its_own() {
    for arguments in [
        &["verify"][..],
        &["verify", "-", "--profile", "lax"],
        &["verify", "-", "--waive", "306"],
        &["verify", "-", "--waive", "V1"],
        &["verify", "-", "--bytes", "1T"],
        &["verify", "-", "--root", "2"],
        &["verify", "/dev/null/plan.json"],
        &["show", "-", "--rank", "2"],
        &["show", "-", "--rank", "1", "--block", "1"],
        &["show", "-", "--block", "0"],
        &["convert", "-", "--style", "xml"],
        &["unknown"],
    ] {
        let (code, _, error) = output(&plan(arguments, &good()));
        assert_eq!(code, 3, "{arguments:?}: {error}");
        assert!(!error.is_empty() && !error.contains("panicked"), "{arguments:?}: {error}");
    }
    for command in ["verify", "show", "convert"] {
        let (code, printed, error) = output(&plan(&[command, "-"], "{\n \"name\": }"));
        assert_eq!((code, printed.as_str()), (3, ""), "{command}");
        assert_eq!(error, "warpway: -: not JSON: line 2, column 10: expected value\n", "{command}");
    }
    assert_eq!(output(&plan(&["verify", "--help"], "")).0, 0);
}

#[test]
fn verdicts_are_exit_codes() {
    let (code, printed, error) = output(&plan(&["verify", "-"], &good()));
    assert_eq!((code, printed.as_str(), error.as_str()), (0, "ag2: accepted: no findings\n", ""));

    let (code, printed, _) = output(&plan(&["verify", "-"], &deadlock()));
    assert_eq!(code, 1, "{printed}");
    assert!(printed.contains("error V401: "), "{printed}");
    assert!(printed.contains("    rank 0 tb 0 op 0: wait rank 1 (memory)  # dead.py:3\n"), "{printed}");
    assert!(printed.contains("\nag2: rejected: "), "{printed}");
    assert!(!printed.contains('\x1b'), "colours are for terminals");

    let (code, printed, _) = output(&plan(&["verify", "-", "--json"], &deadlock()));
    let report: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!((code, &report["verdict"]), (1, &"reject".into()));
    assert_eq!(report["diagnostics"][0]["rule"], "V401");
    assert_eq!(report["diagnostics"][0]["where"][0]["op"], serde_json::json!([0]));
}

/// A plan of wrong form is rejected, with all findings.
#[test]
fn findings_of_form_are_a_report() {
    let wrong = good().replacen("\"index\":0", "\"index\":-1", 1).replacen("\"nop\"", "\"noop\"", 1);
    let wrong = wrong.replacen("\"inplace\"", "\"colour\":1,\"inplace\"", 1);
    let (code, printed, error) = output(&plan(&["verify", "-", "--json"], &wrong));
    let report: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!((code, error.as_str(), &report["verdict"]), (1, "", &"reject".into()));
    let rules: Vec<_> =
        report["diagnostics"].as_array().unwrap().iter().map(|d| d["rule"].as_str().unwrap()).collect();
    assert_eq!(rules, ["V101", "V102", "V106"]);
    let (code, printed, _) = output(&plan(&["verify", "-"], &wrong));
    assert_eq!(code, 1);
    assert!(
        printed.starts_with(
            "error V101: $.gpus[0].threadblocks[0].ops[3].src_buff[0].index: found -1\n    rank 0 tb 0 op 3\n    \
             -> expected an unsigned 64-bit integer\nerror V102: "
        ),
        "{printed}"
    );
    assert!(printed.ends_with("rejected: 2 errors, 1 warning\n"), "{printed}");
    for command in ["show", "convert"] {
        let (code, printed, error) = output(&plan(&[command, "-"], &wrong));
        assert_eq!((code, printed.as_str()), (3, ""));
        assert!(error.ends_with("warpway: -: no plan, 2 findings\n"), "{error}");
    }
    // A key without a meaning does no harm, but is named.
    let (code, printed, _) =
        output(&plan(&["verify", "-"], &good().replacen("\"inplace\"", "\"colour\":1,\"inplace\"", 1)));
    assert_eq!(code, 0);
    assert!(printed.starts_with("warning V106: $.colour: found an unknown key\n"), "{printed}");
    assert!(printed.ends_with("ag2: accepted: 1 warning\n"), "{printed}");
    // What reader and verifier both see is said once.
    let ignored =
        good().replacen("{\"name\":\"copy\"", "{\"name\":\"copy\",\"channel_ids\":[0],\"loc\":\"a.py:1\"", 1);
    let (code, printed, _) = output(&plan(&["verify", "-"], &ignored));
    assert_eq!((code, printed.matches("warning V106: ").count()), (0, 1), "{printed}");
}

#[test]
fn conversion_changes_the_layout_only() {
    let styles: Vec<String> = ["pretty", "compact", "canonical"]
        .iter()
        .map(|style| {
            let (code, printed, error) = output(&plan(&["convert", "-", "--style", style], &good()));
            assert_eq!((code, error.as_str()), (0, ""));
            printed
        })
        .collect();
    assert!(styles[0].starts_with("{\n  \"name\": \"ag2\",\n") && styles[0].ends_with("\n}\n"));
    assert!(
        styles[1].starts_with("{\"name\":\"ag2\",\"collective\":\"allgather\",")
            && styles[1].ends_with("}\n")
    );
    assert!(styles[2].starts_with("{\"buffer_alignment\":16,\"collective\":") && styles[2].ends_with('}'));
    let values: Vec<Value> = styles.iter().map(|text| serde_json::from_str(text).unwrap()).collect();
    assert_eq!((&values[0], &values[0]), (&values[1], &values[2]));

    let path = std::env::temp_dir().join(format!("warpway-plan-{}.json", std::process::id()));
    let (code, printed, _) = output(&plan(&["convert", "-", "-o", path.to_str().unwrap()], &styles[2]));
    assert_eq!((code, printed.as_str()), (0, ""));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), styles[0]);
    let (code, printed, _) = output(&plan(&["convert", path.to_str().unwrap()], ""));
    std::fs::remove_file(&path).unwrap();
    assert_eq!((code, printed), (0, styles[0].clone()));
    assert_eq!(output(&plan(&["convert", "-", "-o", "/dev/null/x.json"], &good())).0, 1);
}

#[test]
fn plans_are_shown() {
    let (code, printed, error) = output(&plan(&["show", "-"], &good()));
    assert_eq!((code, error.as_str()), (0, ""));
    assert!(
        printed.contains("\ncollective  allgather of 2 ranks, out of place, protocol Simple\n"),
        "{printed}"
    );
    assert!(printed.contains("\nbytes       0 to any size, alignment 16\n"), "{printed}");
    assert!(
        printed.contains("\noperations  2 copy, 6 nop, 2 put, 2 rlxsignal, 2 rlxwait, 2 signal, 2 wait\n"),
        "{printed}"
    );
    let row = printed.lines().last().unwrap().split_whitespace().collect::<Vec<_>>();
    assert_eq!(row, ["0-1", "1", "9", "1", "2", "0", "1", "0", "0", "1", "0"]);

    let (_, json, _) = output(&plan(&["show", "-", "--json"], &good()));
    let summary: Value = serde_json::from_str(&json).unwrap();
    assert!(printed.contains(&format!("identity    {}\n", summary["identity"].as_str().unwrap())));
    assert_eq!((&summary["operations"]["nop"], &summary["ranks"][1]["operations"]), (&6.into(), &9.into()));

    let (code, listing, _) = output(&plan(&["show", "-", "--rank", "1"], &good()));
    assert_eq!(code, 0);
    assert_eq!(
        listing,
        "rank 1, block 0: 9 operations\n  \
         0       rlxsignal rank 0 (memory)\n  \
         1       rlxwait rank 0 (memory)\n  \
         2       nop  # ag.py:7\n  \
         3       copy i[0] -> o[1]\n  \
         4       put i[0] -> rank 0 o[1] (memory)\n  \
         5       nop\n  \
         6       signal rank 0 (memory)\n  \
         7       wait rank 0 (memory)\n  \
         8       nop\n"
    );
}

/// Numbers that point nowhere are shown as such; pipelines show their body.
#[test]
fn listings_show_every_kind_of_operation() {
    let operations = r#"{"name":"barrier","barrier_id":1,"num_threadblocks":2},
        {"name":"sem_acquire","semaphore_ids":[4,5]},
        {"name":"flush","channel_ids":[9],"channel_type":"port"},
        {"name":"pipeline","iter_context":{"unit_size":64,"num_chunks":3},"ops":[
          {"name":"re","src_buff":[{"type":"i","index":0,"size":2},{"type":"s","index":5,"size":2}],
           "dst_buff":[{"type":"o","index":1,"size":2}],"reduce_op":"max","tbg_info":{"tb_id":1,"tbg_size":4}}]},
        {"name":"put","src_buff":[{"type":"i","index":0,"size":1}],"dst_buff":[{"buffer_id":7,"index":0,"size":1}],
         "channel_type":"memory"}"#;
    let (code, listing, error) =
        output(&plan(&["show", "-", "--rank", "0", "--block", "0"], &file([operations, ""])));
    assert_eq!(code, 0, "{error}");
    assert_eq!(
        listing,
        "rank 0, block 0: 5 operations\n  \
         0       barrier 1 of 2 blocks\n  \
         1       sem_acquire 4, 5\n  \
         2       flush rank ?9 (port)\n  \
         3       pipeline over 3 chunks in units of 64 bytes\n  \
         3.0     re i[0..2], s[5..7] -> o[1..3] (max, member 1 of 4)\n  \
         4       put i[0] -> remote buffer 7?[0] (memory)\n"
    );
}

/// What tutorial 6 shows of this command, on the plan of its program.
#[test]
fn the_plan_of_the_tutorial() {
    let test = std::env::current_exe().unwrap();
    let example = test.parent().unwrap().with_file_name("examples").join("all_reduce_plan");
    if !example.exists() {
        assert!(std::env::var_os("CI").is_none(), "{} is not built", example.display());
        eprintln!("skipped: cargo build -p warpway --example all_reduce_plan");
        return;
    }
    let run = |arguments: &[&str]| {
        let printed = Command::new(&example).args(arguments).output().unwrap();
        assert!(printed.status.success());
        String::from_utf8(printed.stdout).unwrap()
    };
    let json = run(&["json", "none"]);
    let page = include_str!("../../../docs/tutorials/06-plans.md");
    let listing = page.split("```text\n").last().unwrap().split("```").next().unwrap();
    assert_eq!(output(&plan(&["show", "-", "--rank", "0"], &json)), (0, listing.to_owned(), String::new()));
    for (mistake, code) in [("none", 0), ("nop", 1), ("order", 1), ("opening", 0)] {
        let file = run(&["json", mistake]);
        let printed = run(&["verify", mistake]);
        assert_eq!(output(&plan(&["verify", "-"], &file)), (code, printed, String::new()), "{mistake}");
    }
    let strict = ["verify", "-", "--profile", "strict", "--target", "mscclpp"];
    assert_eq!(output(&plan(&strict, &json)).0, 0);
    let (_, canonical, _) = output(&plan(&["convert", "-", "--style", "canonical"], &json));
    let (_, summary, _) = output(&plan(&["show", "-"], &json));
    let identity = warpway_plan::Plan::from_json(canonical.as_bytes()).unwrap().plan.identity();
    assert!(summary.contains(&format!("\nidentity    {identity}\n")), "{summary}");
}
