//! `warpway bench gpu` where there is no GPU: what is said, and when.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// Exit code, standard output, standard error of a run on a driver in host memory with these settings.
fn run(driver: &Path, settings: &str, arguments: &[&str]) -> (i32, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_warpway"))
        .args(["bench", "gpu"])
        .args(arguments)
        .env("WARPWAY_CUDA_DRIVER", driver)
        .env("WARPWAY_NVRTC", "/nowhere/libnvrtc.so")
        .env("WARPWAY_CACHE_DIR", "off")
        .env("FAKE_CUDA", settings)
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn what_is_missing_is_said_before_anything_is_measured() {
    let fake = fake_cuda::library();
    for (driver, settings, expected) in [
        (Path::new("/nowhere/libcuda.so.1"), "", "CUDA driver"),
        (&*fake, "devices=1", "there is no GPU 1: 1 visible; see --devices"),
        (&*fake, "devices=2,peers=none", "GPU 0 does not reach the memory of GPU 1"),
    ] {
        let (code, output, said) = run(driver, settings, &["flight", "start"]);
        assert_eq!((code, output.as_str()), (1, ""), "{said}");
        assert!(said.contains(expected), "{said}");
    }
}

#[test]
fn wrong_arguments_are_refused_by_name() {
    for (arguments, expected) in [
        (&["put", "--bytes", "17"][..], "a multiple of 16"),
        (&["put", "--bytes", "17G"], "at most 16G"),
        (&["put", "--devices", "0"], "not two numbers"),
        (&["put", "--devices", "0,1,2"], "not two numbers"),
        (&["put", "--devices", "0,-1"], "not two numbers"),
        (&["put", "--rounds", "0"], "0 is not in 1..=1000"),
        (&["put", "--blocks", "8,0"], "0 is not in 1..=65535"),
        (&["nothing"], "copy_engine"),
        (&[], "<WHAT>"),
    ] {
        let (code, _, said) = run(Path::new("/nowhere"), "", arguments);
        assert!(code != 0 && said.contains(expected), "{arguments:?}: {said}");
    }
}

/// Without a compiler nothing can be measured: each benchmark says so, and the document is written all the same.
#[test]
fn benchmarks_that_cannot_run_are_failures_in_the_document() {
    let arguments = [
        "put", "flight", "guard", "port", "start", "--quick", "--bytes", "4K", "--commit", "c0ffee",
        "--json", "-",
    ];

    let (code, output, _) = run(&fake_cuda::library(), "devices=2,peers=all,arch=90,sms=132", &arguments);
    assert_eq!(code, 1, "{output}");
    let line = output.lines().last().unwrap();
    let document: Value = serde_json::from_str(line).unwrap();
    assert_eq!(document["benchmark"], "gpu");
    assert_eq!(document["commit"], "c0ffee");
    assert_eq!(document["command"], format!("warpway bench gpu {}", arguments.join(" ")));
    let gpu = serde_json::json!({
        "name": "Fake H200", "architecture": "sm_90", "multiprocessors": 132,
        "memory": document["machine"]["gpus"][1]["memory"], "pci": "0000:11:00.0",
    });
    assert_eq!(document["machine"]["gpus"][1], gpu);
    let figures = document["figures"].as_array().unwrap();
    // Benchmarks whose kernels are captured fail as a whole, contestants of others one by one.
    let failed = |benchmark: &str| {
        figures
            .iter()
            .filter(|figure| figure["benchmark"] == benchmark)
            .map(|figure| (figure["failed"].as_str().unwrap(), &figure["median"]))
            .inspect(|(why, median)| assert!(why.contains("NVRTC") && median.is_null(), "{why} {median}"))
            .count()
    };
    assert_eq!([failed("put"), failed("flight"), failed("port"), failed("start")], [1, 28, 1, 1]);
    assert!(failed("guard") > 0);
    let verdicts: Vec<&str> = output.lines().filter(|line| line.starts_with("FAILED ")).collect();
    assert_eq!(verdicts.len(), figures.len(), "{output}");
    assert!(verdicts[1].starts_with("FAILED put (set-up): all: "), "{}", verdicts[1]);
}
