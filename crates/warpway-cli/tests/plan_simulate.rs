//! `warpway plan simulate`, `draw`: what is printed and written, and what bad input gets.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

/// Exit code, standard output, standard error.
fn plan(arguments: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_warpway"));
    let output = command.arg("plan").args(arguments).env_remove("WARPWAY_TOPOLOGY").output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

/// A file of this test alone.
fn file(name: &str, text: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("warpway-{}-{name}", std::process::id()));
    std::fs::write(&path, text).unwrap();
    path
}

#[test]
fn times_bounds_and_the_critical_path() {
    let (code, topology, _) = plan(&["simulate", "--example"]);
    assert_eq!(code, 0);
    let path = file("example.json", &topology);
    let path = path.to_str().unwrap();
    let two_shot =
        ["simulate", "--collective", "all_reduce", "--algorithm", "two_shot", "-n", "2", "--topology", path];
    let (code, text, complaints) = plan(&[&two_shot[..], &["--bytes", "64K,1M", "--critical"]].concat());
    assert_eq!((code, complaints.as_str()), (0, ""));
    assert!(
        text.starts_with("all_reduce by two_shot: 2 ranks on 1 hosts; two hosts behind one switch\n"),
        "{text}"
    );
    assert!(text.contains("the end waited for") && text.contains("rlxwait rank 1 (memory)"), "{text}");
    let (_, text, _) = plan(&[&two_shot[..], &["--bytes", "1M", "--json"]].concat());
    let document: Value = serde_json::from_str(&text).unwrap();
    let message = &document["messages"][0];
    let time = message["time_us"].as_f64().unwrap();
    assert!(time >= message["bound"]["busiest_us"].as_f64().unwrap());
    assert_eq!((message["ranks"].as_array().unwrap().len(), message["bytes"].as_u64()), (2, Some(1 << 20)));
    // The same again, to the last digit.
    assert_eq!(plan(&[&two_shot[..], &["--bytes", "1M", "--json"]].concat()).1, text);
}

#[test]
fn worlds_without_a_plan() {
    let estimate = [
        "simulate",
        "--collective",
        "all_reduce",
        "--algorithm",
        "hierarchical",
        "-n",
        "16384",
        "--hosts",
        "2048",
    ];
    let (code, text, _) = plan(&[&estimate[..], &["--bytes", "64M", "--estimate", "--json"]].concat());
    let document: Value = serde_json::from_str(&text).unwrap();
    assert!(code == 0 && document["messages"][0]["time_us"].as_f64().unwrap() > 1000.0, "{text}");
    let (code, _, complaints) = plan(&estimate);
    assert_eq!((code, complaints.contains("use --estimate")), (3, true), "{complaints}");
    let (code, _, complaints) =
        plan(&["simulate", "--collective", "gather", "--algorithm", "packets", "--estimate"]);
    assert_eq!((code, complaints.contains("all_reduce by hierarchical")), (3, true), "{complaints}");
}

#[test]
fn a_bad_topology_is_named_by_file_line_and_key() {
    let (_, topology, _) = plan(&["draw", "--example"]);
    let path = file("bad.json", &topology.replace("\"cores\": 8", "\"cores\": -8"));
    let line = 1 + topology[..topology.find("\"cores\"").unwrap()].matches('\n').count();
    let arguments = ["--collective", "all_gather", "--topology", path.to_str().unwrap()];
    for command in ["simulate", "draw"] {
        let (code, text, complaints) = plan(&[&[command][..], &arguments].concat());
        assert_eq!((code, text.as_str()), (3, ""));
        let expected = format!("bad.json: line {line}, hosts[0].cores: a whole number, 1 or more\n");
        assert!(complaints.ends_with(&expected), "{complaints}");
    }
    let (code, _, complaints) = plan(&["simulate", "--collective", "all_gather", "--topology", "/nowhere"]);
    assert_eq!((code, complaints.contains("/nowhere")), (3, true));
}

#[test]
fn pictures_traces_and_schedules_are_written() {
    let source =
        ["--collective", "all_to_all", "--algorithm", "push", "-n", "4", "--hosts", "2", "--bytes", "64K"];
    let (code, picture, _) = plan(&[&["draw"][..], &source].concat());
    assert!(code == 0 && picture.starts_with("<svg ") && picture.ends_with("</svg>\n"));
    let (code, picture, _) = plan(&[&["draw", "--graph"][..], &source].concat());
    assert!(code == 0 && picture.contains("host 1") && picture.contains("rank 0 to rank 3"));
    let [trace, goal] = ["trace.json", "goal"].map(|name| file(name, ""));
    let files = ["--trace", trace.to_str().unwrap(), "--goal", goal.to_str().unwrap()];
    let (code, _, complaints) = plan(&[&["simulate"][..], &source, &files].concat());
    assert_eq!(code, 0, "{complaints}");
    let trace: Value = serde_json::from_str(&std::fs::read_to_string(trace).unwrap()).unwrap();
    assert!(!trace["traceEvents"].as_array().unwrap().is_empty());
    assert!(std::fs::read_to_string(goal).unwrap().starts_with("num_ranks 4\n\nrank 0 {\n"));
}

/// Three ranks, whose cores are not watched, and a topology that is given: nothing but the functions that are asked for.
#[test]
fn a_check_says_where_its_figures_come_from() {
    let topology = file("check.json", &plan(&["simulate", "--example"]).1);
    let found = std::env::temp_dir().join(format!("warpway-{}-accuracy.json", std::process::id()));
    let paths = [&topology, &found].map(|path| path.to_str().unwrap());
    let arguments = ["calibrate", "--topology", paths[0], "-n", "3", "--functions", "barrier,gather"];
    let (code, _, said) = plan(&[&arguments[..], &["--bytes", "1K,4K", "--check", paths[1]]].concat());
    assert_eq!(code, 0, "{said}");
    let document: Value = serde_json::from_str(&std::fs::read_to_string(&found).unwrap()).unwrap();
    let text = |key: &str| document[key].as_str().unwrap().to_owned();
    assert!(text("command").starts_with("warpway plan calibrate --topology "), "{}", text("command"));
    assert!(!text("command").contains('/'), "{}", text("command"));
    assert!(text("date").ends_with('Z') && !text("commit").is_empty());
    assert!(document["machine"]["cores"].as_u64().unwrap() > 0 && document["machine"]["kernel"].is_string());
    let messages = document["messages"].as_array().unwrap();
    let functions: Vec<&str> = messages.iter().map(|row| row["function"].as_str().unwrap()).collect();
    assert!(functions.contains(&"barrier") && functions.contains(&"gather"), "{functions:?}");
    assert!(functions.iter().all(|name| ["barrier", "gather"].contains(name)), "{functions:?}");
    assert!(messages.iter().all(|row| row["measured_us"].as_f64().unwrap() > 0.0));
    let by_bytes: Vec<&String> = document["median_error_by_bytes"].as_object().unwrap().keys().collect();
    assert_eq!(by_bytes, ["0", "1024", "4096"]);
}
