//! `warpway bench <collective>`: processes that run every function, and what is said of it.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

const FUNCTIONS: [&str; 13] = [
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "broadcast",
    "reduce",
    "gather",
    "scatter",
    "all_gather_v",
    "reduce_scatter_v",
    "all_to_all_v",
    "barrier",
    "send_recv",
];

fn bench(function: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_warpway"));
    command.args(["bench", function, "--batches", "2", "--iterations", "3"]).args(arguments);
    command.env("WARPWAY_ENGINE", "host").stdin(Stdio::null());
    command.output().unwrap()
}

fn document(function: &str, arguments: &[&str]) -> Value {
    let output = bench(function, &[arguments, &["--json"]].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{function} {arguments:?}: {} {said}", output.status);
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Bytes, count, and whether each place was measured without a wrong element.
fn rows(document: &Value) -> Vec<(u64, u64, [Option<bool>; 2])> {
    let side = |side: &Value| {
        let measured = side.get("median_us")?.as_f64()? > 0.0;
        Some(
            measured && side["wrong"] == 0 && side["samples_us"].as_array().is_some_and(|all| all.len() == 2),
        )
    };
    let row = |row: &Value| {
        let number = |name: &str| row[name].as_u64().unwrap();
        (number("bytes"), number("count"), [side(&row["out_of_place"]), side(&row["in_place"])])
    };
    document["rows"].as_array().unwrap().iter().map(row).collect()
}

#[test]
fn every_function_runs_and_is_right() {
    for function in FUNCTIONS {
        let found = document(function, &["-n", "3", "--bytes", "20,1000", "--root", "2", "--place", "out"]);
        assert_eq!((&found["benchmark"], &found["ranks"]), (&Value::from(function), &Value::from(3)));
        let expected = match function {
            "barrier" => vec![(0, 0)],
            // Sizes are whole elements of every rank, counts those of one.
            "all_gather" | "reduce_scatter" | "all_to_all" | "gather" | "scatter" => {
                vec![(24, 2), (1008, 84)]
            }
            _ => vec![(20, 5), (1000, 250)],
        };
        let right: Vec<_> =
            expected.into_iter().map(|(bytes, count)| (bytes, count, [Some(true), None])).collect();
        assert_eq!(rows(&found), right, "{function}");
    }
}

#[test]
fn types_operators_places_and_slices() {
    for (function, arguments) in [
        ("all_reduce", "--type bfloat16 --op max"),
        ("all_reduce", "--type int8 --op prod --slices"),
        ("all_gather", "--type float64 --slices"),
        ("reduce", "--type uint32 --op min --root 1"),
    ] {
        let arguments: Vec<&str> = arguments.split(' ').chain(["-n", "2", "--bytes", "4096"]).collect();
        let found = document(function, &arguments);
        let places: Vec<_> = rows(&found).into_iter().map(|(_, _, places)| places).collect();
        assert_eq!(places, [[Some(true); 2]], "{function} {arguments:?}");
    }
}

/// Around a ring of any length, one rank's with itself included.
#[test]
fn sends_go_around_the_ranks() {
    for (ranks, arguments) in [("1", &[][..]), ("2", &["--slices"]), ("4", &["--type", "int8"])] {
        let arguments: Vec<&str> =
            ["-n", ranks, "--bytes", "4,100000"].iter().chain(arguments).copied().collect();
        let found = document("send_recv", &arguments);
        let measured = rows(&found);
        assert!(
            measured.iter().all(|(_, _, places)| *places == [Some(true), None]),
            "{arguments:?}: {measured:?}"
        );
        let row = &found["rows"][measured.len() - 1]["out_of_place"];
        assert_eq!(row["gb_per_s"], row["bus_gb_per_s"], "{row}");
    }
}

#[test]
fn a_table_with_choices_and_a_plot() {
    let plot = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("bench_collective.svg");
    let plot_argument = plot.to_str().unwrap();
    let arguments = [
        "-n",
        "2",
        "--bytes",
        "64,1M",
        "--place",
        "in",
        "--algorithm",
        "two_shot",
        "--explain",
        "--plot",
        plot_argument,
    ];
    let output = bench("all_reduce", &arguments);
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{table}");
    let lines: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0].join(" "), "all_reduce, float32, sum, 2 ranks, registered memory");
    assert_eq!(lines[2].join(" "), "bytes count µs GB/s bus GB/s wrong floor algorithm");
    assert_eq!((lines[4][..2].join(" "), lines[4][5..].join(" ")), ("64 16".into(), "0 two_shot".into()));
    assert_eq!(lines[5][..2], ["1048576", "262144"]);
    assert_eq!(lines[5][7], "%", "the floor of a large size: {:?}", lines[5]);
    assert!(table.contains("the call names it"), "{table}");
    let svg = std::fs::read_to_string(plot).unwrap();
    assert_eq!(svg.matches("<polyline").count(), 2, "time and bandwidth of one contestant");
}

#[test]
fn what_cannot_be_measured_is_said_before_any_rank_starts() {
    for (function, arguments, words) in [
        ("all_reduce", &["--algorithm", "nonsense"][..], "two_shot"),
        ("all_gather", &["--algorithm", "two_shot"], "all_gather has"),
        ("all_reduce", &["--min-bytes", "0"], "--min-bytes"),
        ("send_recv", &["--algorithm", "ring"], "--algorithm: send_recv moves data"),
        ("send_recv", &["--place", "in"], "--place: send_recv moves data"),
    ] {
        let output = bench(function, arguments);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(words) && said.lines().count() == 1, "{said}");
    }
    // Of the ranks, which know how many they are.
    for (arguments, words) in [
        (["-n", "2", "--root", "2", "--bytes", "8"], "there are 2 ranks"),
        (["-n", "3", "--op", "avg", "--bytes", "8"], "power of two"),
    ] {
        let output = bench("reduce", &arguments);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(words), "{said}");
    }
}

/// Against the programs of `benchmarks/peers`, where the machine can build them.
#[test]
fn peers_take_turns() {
    let can = |compiler: &str, file: &str| {
        let mut command = Command::new(compiler);
        let check = command.args(["-fsyntax-only", "-x", "c++", "-include", file, "/dev/null"]);
        check.stderr(Stdio::null()).status().is_ok_and(|status| status.success())
    };
    let mut peers = Vec::new();
    peers.extend(can("mpicc", "mpi.h").then_some(("mpi", "Open MPI")));
    peers.extend(can("g++", "gloo/config.h").then_some(("gloo", "Gloo")));
    if peers.is_empty() {
        eprintln!("skipped: neither libopenmpi-dev nor libgloo-dev is here");
        return;
    }
    let cache = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("bench_collective_cache");
    let names: Vec<&str> = peers.iter().map(|(argument, _)| *argument).collect();
    for (function, place) in
        [("all_reduce", "out_of_place"), ("broadcast", "in_place"), ("send_recv", "out_of_place")]
    {
        let mut command = Command::new(env!("CARGO_BIN_EXE_warpway"));
        command.args(["bench", function, "-n", "2", "--bytes", "64", "--type", "bfloat16", "--json", "--vs"]);
        command.args([&names.join(","), "--batches", "2", "--iterations", "3"]);
        let output = command.env("WARPWAY_CACHE_DIR", &cache).env("WARPWAY_ENGINE", "host").output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{function}: {said}");
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        let found = document["rows"][0][place]["peers"].as_array().unwrap();
        assert_eq!(found.len(), peers.len());
        for (peer, (_, name)) in found.iter().zip(&peers) {
            assert_eq!((&peer["name"], &peer["wrong"]), (&Value::from(*name), &Value::from(0)));
            assert!(
                peer["ratio"].as_f64().unwrap() > 0.0 && peer["samples_us"].as_array().unwrap().len() == 2
            );
        }
    }
}
