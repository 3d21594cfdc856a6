//! The whole product of the matrix, and the long sequences: minutes to hours, with a line of progress for each setting, and a
//! file under `benchmarks/results`.

use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};
use warpway::in_process_with;
use warpway_tests::SEED;
use warpway_tests::matrix::{Ranks, Setting, Verdict, play_all, product, settings};

use crate::matrix::{in_processes, on_hosts};
use crate::sequences::{processes, threads};

fn output(program: &str, arguments: &[&str]) -> String {
    let output =
        Command::new(program).args(arguments).current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// The part of a result file that says where it comes from, and `content`.
fn write(name: &str, test: &str, what: &str, content: Map<String, Value>) {
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let cpu = cpu
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "))
        .map(|(_, model)| model);
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let mut document = json!({
        "benchmark": name,
        "what": what,
        "command": format!("cargo test -p warpway-tests --test collectives {test} -- --ignored --nocapture"),
        "date": output("date", &["-u", "+%Y-%m-%dT%H:%M:%SZ"]),
        "commit": output("git", &["rev-parse", "HEAD"]),
        "machine": { "cpu": cpu.unwrap_or("unknown"), "cores": cores, "kernel": output("uname", &["-r"]) },
    });
    document.as_object_mut().unwrap().extend(content);
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../benchmarks/results/");
    std::fs::write(format!("{path}{name}.json"), format!("{document:#}\n")).unwrap();
}

/// An error of a call ends the cases of its algorithm, and is a failure.
fn in_threads(setting: &Setting) -> Verdict {
    let mut all = Verdict::default();
    for (algorithm, cases) in product(setting, SEED) {
        match in_process_with(&on_hosts(&setting.hosts), |comm| play_all(comm, cases.iter().copied())) {
            Ok(verdicts) => verdicts.into_iter().for_each(|verdict| all.add(verdict)),
            Err(error) => all.add(failure(format!("{algorithm:?}: {error}"))),
        }
    }
    all
}

fn failure(text: String) -> Verdict {
    Verdict { cases: 0, failed: 1, failures: vec![text] }
}

/// What is there of the file, by setting.
fn played() -> Map<String, Value> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../benchmarks/results/collective_matrix.json");
    let text = std::fs::read_to_string(path).unwrap_or_else(|_| "{}".to_owned());
    let document: Value = serde_json::from_str(&text).unwrap();
    document["by_setting"].as_object().cloned().unwrap_or_default()
}

/// Numbers of the settings that `SETTINGS=from-to` names, from 1 and with the last one; all without.
fn meant() -> std::ops::RangeInclusive<usize> {
    let Ok(text) = std::env::var("SETTINGS") else { return 1..=settings().len() };
    let (from, to) = text.split_once('-').unwrap_or((&text, &text));
    from.parse().unwrap()..=to.parse().unwrap()
}

#[test]
#[ignore = "takes an hour; run by hand after a change of the executor or the catalogue"]
fn full_product_of_collectives() {
    let (mut failures, mut by_setting) = (Vec::new(), played());
    let number_of = settings().len();
    for (number, setting) in (1..).zip(settings()).filter(|(number, _)| meant().contains(number)) {
        let started = Instant::now();
        let verdict = match setting.ranks {
            Ranks::Threads => in_threads(&setting),
            Ranks::Processes => {
                let scenario = format!("matrix {} --full", number - 1);
                in_processes(&setting, &scenario, Duration::from_secs(3600)).unwrap_or_else(failure)
            }
        };
        let seconds = (started.elapsed().as_secs_f64() * 10.0).round() / 10.0;
        let Verdict { cases, failed, .. } = verdict;
        println!("{number} of {number_of}, {setting}: {cases} checked outputs, {failed} wrong, {seconds} s");
        verdict.failures.iter().for_each(|failure| println!("    {failure}"));
        let entry = json!({
            "outputs": cases, "failures": failed, "seconds": seconds, "commit": output("git", &["rev-parse", "HEAD"]),
        });
        by_setting.insert(setting.to_string(), entry);
        failures.extend(verdict.failures);
        let total = |key: &str| by_setting.values().filter_map(|entry| entry[key].as_u64()).sum::<u64>();
        let content = [
            ("outputs", json!(total("outputs"))),
            ("failures", json!(total("failures"))),
            ("first_failures", json!(failures)),
            ("settings_played", json!(format!("{} of {number_of}", by_setting.len()))),
            ("by_setting", Value::Object(by_setting.clone())),
        ];
        let what = "every function x algorithm that fits x data type x operator x in and out of place x root x 0, 1, 2, n-1, n, \
                    n+1, 7, 63, 64, 65, 1023, 4099 and 65,537 elements and 1 MiB + 3 elements x 1 to 8 ranks as threads and \
                    as processes on one host and on several; slices, registered and mixed memory with each of these for root \
                    0 and sizes up to 4099, else in turn, like numbers of blocks, packet formats and places of parts; each \
                    output of each rank compared exactly with an oracle, canaries around every buffer";
        let content = content.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        write("collective_matrix", "full_product_of_collectives", what, content);
    }
    assert!(failures.is_empty(), "{failures:#?}");
}

#[test]
#[ignore = "takes minutes; run by hand after a change of the executor or the catalogue"]
fn full_sequences_of_collectives() {
    const TURNS: u64 = 100_000;
    let mut by_ranks = Map::new();
    for n in [2, 3, 4] {
        for ranks in [Ranks::Threads, Ranks::Processes] {
            let started = Instant::now();
            let played = match ranks {
                Ranks::Threads => threads(n, TURNS),
                Ranks::Processes => processes(n, TURNS, Duration::from_secs(1800)),
            };
            let seconds = (started.elapsed().as_secs_f64() * 10.0).round() / 10.0;
            println!("{n} {ranks:?}: {} checked outputs in {seconds} s", played.cases);
            let entry = json!({ "outputs": played.cases, "failures": played.failed, "seconds": seconds });
            by_ranks.insert(format!("{n} {ranks:?}").to_lowercase(), entry);
        }
    }
    let what = "100,000 random collectives on one communicator without a pause (functions, algorithms, types, operators, sizes \
                from 0 to 256 KiB, places, roots, slices and registered memory), ranks late at random; each output of each \
                rank compared exactly; descriptors, threads and shared mappings are equal before and after, memory of \
                its own grows by less than 3 MiB for each rank";
    let content = [("failures".to_owned(), json!(0)), ("by_ranks".to_owned(), Value::Object(by_ranks))];
    write("collective_sequences", "full_sequences_of_collectives", what, content.into_iter().collect());
}
