//! `cargo xtask gpu-bundle`: all that a machine with GPUs needs to test and measure this tree, in one archive.
//!
//! That machine needs no Rust and no network: programs are built here and only need its C library, a driver, NVRTC
//! and Python. `xtask/gpu-bundle` holds what runs them there.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use serde::Serialize;
use serde_json::Value;

use crate::bench::machine;
use crate::run::{answers, cargo, root, step};

/// What the archive may take.
const LIMIT: u64 = 48 << 20;
/// Its name, and that of the folder in it.
const NAME: &str = "warpway-gpu";
/// What runs on the other machine, by name in the archive.
const RUNNER: [(&str, &str); 4] = [
    ("run.sh", include_str!("../gpu-bundle/run.sh")),
    ("run.py", include_str!("../gpu-bundle/run.py")),
    ("suites.json", include_str!("../gpu-bundle/suites.json")),
    ("torch_tensors.py", include_str!("../../tests/tests/gpu/torch_tensors.py")),
];

/// Programs of the tutorials.
const EXAMPLES: [&str; 2] = ["gpu_all_gather", "gpu_channels"];

/// What to pack.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Folder for the archive, from the repository's root
    #[arg(long, value_name = "FOLDER", default_value = ".gpu")]
    out: PathBuf,
    /// Cargo's profile; figures are only good from `release`, `dev` is built sooner
    #[arg(long, default_value = "release")]
    profile: String,
}

/// Where the contents come from, for the results.
#[derive(Serialize)]
struct Origin {
    commit: String,
    /// The tree differed from the commit.
    modified: bool,
    /// When it was packed.
    date: String,
    profile: String,
    compiler: String,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let (commit, modified) = machine::commit()?;
    let profile = &arguments.profile;
    let examples = EXAMPLES.iter().flat_map(|name| ["--example", name]);
    let shipped = ["--package", "warpway-cli", "--package", "warpway-foreign", "--package", "warpway"];
    let targets = ["--bins", "--lib", "--profile", profile];
    let shipped = build(cargo("build").args(shipped).args(targets).args(examples))?;
    let tests = ["--no-run", "--package", "warpway-tests", "--test", "gpu", "--profile", profile];
    let tests = build(cargo("test").args(tests))?;
    let mut programs = Vec::new();
    let commands = ["warpway", "warpway_foreign"].into_iter().chain(EXAMPLES).map(|name| (name, &shipped));
    for (name, built) in commands.chain([("gpu", &tests), ("rank", &tests)]) {
        let found = built.iter().find(|(target, _)| target == name);
        programs.push(&found.with_context(|| format!("cargo has built no {name}"))?.1);
    }

    let staged = root().join("target/gpu-bundle").join(NAME);
    if staged.exists() {
        fs::remove_dir_all(&staged).with_context(|| format!("cannot remove {}", staged.display()))?;
    }
    fs::create_dir_all(staged.join("bin"))?;
    for path in programs {
        let packed = staged.join("bin").join(name_of(path)?);
        fs::copy(path, &packed).with_context(|| format!("cannot copy {}", path.display()))?;
        strip(&packed)?;
    }
    for (name, text) in RUNNER {
        fs::write(staged.join(name), text)?;
    }
    make_executable(&staged.join("run.sh"))?;
    let compiler = String::from_utf8(Command::new("rustc").arg("--version").output()?.stdout)?;
    let compiler = compiler.trim().to_owned();
    let origin = Origin { commit, modified, date: machine::date(), profile: profile.clone(), compiler };
    fs::write(staged.join("origin.json"), serde_json::to_string_pretty(&origin)? + "\n")?;

    let archive = pack(&staged, &root().join(&arguments.out))?;
    let bytes = fs::metadata(&archive)?.len();
    ensure!(bytes <= LIMIT, "{} has {bytes} bytes, more than {LIMIT}", archive.display());
    let shown = archive.strip_prefix(root()).unwrap_or(&archive).display();
    println!("{shown}: {:.1} MiB, commit {}", bytes as f64 / f64::from(1 << 20), origin.commit);
    println!("there: tar xf {NAME}.tar.gz && OUT=results {NAME}/run.sh smoke");
    Ok(())
}

/// The name of a built file without cargo's hash.
fn name_of(path: &Path) -> anyhow::Result<&str> {
    let name = path.file_name().and_then(|name| name.to_str());
    let name = name.with_context(|| format!("{} has no name", path.display()))?;
    Ok(name.split_once('-').map_or(name, |(name, _)| name))
}

/// Runs cargo; gives targets and paths of the executables and shared objects that it has made.
fn build(command: &mut Command) -> anyhow::Result<Vec<(String, PathBuf)>> {
    command.args(["--message-format", "json-render-diagnostics"]).stderr(Stdio::inherit());
    let output = command.output().with_context(|| format!("cannot start {command:?}"))?;
    ensure!(output.status.success(), "{command:?}: {}", output.status);
    executables(&String::from_utf8(output.stdout)?)
}

fn executables(messages: &str) -> anyhow::Result<Vec<(String, PathBuf)>> {
    let mut found = Vec::new();
    for line in messages.lines() {
        let message: Value = serde_json::from_str(line).context("cargo printed something else than JSON")?;
        let target = &message["target"];
        let is_shared = target["kind"].as_array().is_some_and(|kinds| kinds.contains(&"cdylib".into()));
        let files = message["filenames"].as_array().map(Vec::as_slice).unwrap_or_default();
        let shared =
            files.iter().find_map(|file| file.as_str().filter(|file| is_shared && file.ends_with(".so")));
        if let (Some(name), Some(path)) = (target["name"].as_str(), message["executable"].as_str().or(shared))
        {
            found.push((name.to_owned(), PathBuf::from(path)));
        }
    }
    Ok(found)
}

/// Symbols are two thirds of a program; panics name their place without them.
fn strip(program: &Path) -> anyhow::Result<()> {
    if !answers(Command::new("strip").arg("--version")) {
        eprintln!("xtask: there is no strip (of binutils): the archive becomes large");
        return Ok(());
    }
    let status = Command::new("strip").arg(program).status()?;
    ensure!(status.success(), "strip {}: {status}", program.display());
    Ok(())
}

fn make_executable(path: &Path) -> anyhow::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    Ok(fs::set_permissions(path, fs::Permissions::from_mode(0o755))?)
}

/// An archive of a folder, in another one.
fn pack(staged: &Path, out: &Path) -> anyhow::Result<PathBuf> {
    fs::create_dir_all(out).with_context(|| format!("cannot make {}", out.display()))?;
    let Some(parent) = staged.parent() else { bail!("{} has no parent", staged.display()) };
    let archive = out.join(NAME).with_extension("tar.gz");
    let mut tar = Command::new("tar");
    tar.args(["--create", "--gzip", "--owner=0", "--group=0", "--sort=name", "--file"]).arg(&archive);
    tar.arg("--directory").arg(parent).arg(NAME);
    step("packing", &mut tar)?;
    Ok(archive)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program that answers as the tests' executable does.
    const TESTS: &str = r#"#!/bin/sh
for name; do case $name in
  --list) printf 'device_good: test\ndevice_bad: test\ndevice_slow: test\ndevice_late: test\npair_good: test\n'; exit ;;
  device_good)
    printf 'on %s\n{"unit":"us","samples":[1.5]}\n{no figure\ntest result: ok. 1 passed; 0 failed\n' "$CUDA_VISIBLE_DEVICES"
    exit ;;
  device_bad) echo "expected 1, found 2"; exit 101 ;;
  device_slow) sleep 60 & wait; exit ;;
  pair_good) echo "skipped: no link"; echo "test result: ok. 1 passed"; exit ;;
esac; done
echo "test result: ok. 0 passed"
"#;

    /// Runs a suite of a bundle made for the test; gives exit status, table and result file.
    fn run_suite(name: &str, gpus: usize, more: &[&str]) -> (Option<i32>, String, Value) {
        // Tests of one process run at once.
        let thread = format!("{:?}", std::thread::current().id()).replace(['(', ')'], "");
        let folder =
            std::env::temp_dir().join(format!("warpway-bundle-{}-{thread}-{name}", std::process::id()));
        let program = |path: &str, text: &str| {
            let path = folder.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, text).unwrap();
            make_executable(&path).unwrap();
        };
        RUNNER.iter().for_each(|(name, text)| program(name, text));
        program("bin/gpu", TESTS);
        let rows: String = (0..gpus).map(|gpu| format!("{gpu}, A GPU, 1.2, 3 MiB, GPU-{gpu}\n")).collect();
        program("tools/nvidia-smi", &format!("#!/bin/sh\nprintf '{rows}'\n"));
        program(
            "origin.json",
            r#"{"commit":"0123456789abcdef","modified":false,"date":"d","profile":"dev","compiler":"r"}"#,
        );
        program(
            "suites.json",
            r#"{"device": {"tests": [{"match": "device_", "at_once": 4, "seconds": 1},
                                    {"match": "pair_", "gpus": 2, "at_once": 1, "seconds": 1}]},
                "good": {"tests": [{"match": "device_good", "seconds": 5}],
                         "commands": [{"command": "{warpway} bench", "seconds": 5}]}}"#,
        );
        program("bin/warpway", "#!/bin/sh\necho \"{\\\"arguments\\\": \\\"$*\\\"}\"\n");
        let path = format!("{}:{}", folder.join("tools").display(), std::env::var("PATH").unwrap());
        let output = Command::new(folder.join("run.sh"))
            .arg(name)
            .args(more)
            .env("PATH", path)
            .env("OUT", folder.join("out"))
            .env_remove("CUDA_VISIBLE_DEVICES")
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
        let result = fs::read_to_string(folder.join("out").join(format!("gpu_{name}.json")));
        let result = serde_json::from_str(&result.unwrap_or_else(|error| panic!("{error}: {text}"))).unwrap();
        fs::remove_dir_all(folder).unwrap();
        (output.status.code(), text, result)
    }

    /// The last line of the table that begins so.
    fn row<'t>(text: &'t str, start: &str) -> Vec<&'t str> {
        let line = text.lines().rev().find(|line| line.starts_with(start));
        line.unwrap_or_else(|| panic!("no {start}: {text}")).split_whitespace().collect()
    }

    #[test]
    fn a_suite_with_failures() {
        let (status, text, result) = run_suite("device", 2, &[]);
        assert_eq!(status, Some(1), "{text}");
        // Passed, failed, timeout, skipped, not run: a test that was not found has failed too.
        assert_eq!(row(&text, "device ")[1..6], ["1", "2", "1", "1", "0"], "{text}");
        assert!(text.lines().any(|line| line == "failed: device_bad"), "{text}");
        let tests = result["tests"].as_array().unwrap();
        let outcomes: Vec<_> = tests
            .iter()
            .map(|test| (test["name"].as_str().unwrap(), test["outcome"].as_str().unwrap()))
            .collect();
        let expected = [
            ("device_good", "passed"),
            ("device_bad", "failed"),
            ("device_slow", "timeout"),
            ("device_late", "failed"),
            ("pair_good", "skipped"),
        ];
        assert_eq!(outcomes, expected);
        assert!(tests[1]["output"].as_str().unwrap().contains("expected 1, found 2"));
        assert!(tests[2]["seconds"].as_f64().unwrap() < 30.0);
        assert_eq!(result["commit"], "0123456789abcdef");
        assert_eq!(result["machine"]["gpus"], serde_json::json!(["A GPU", "A GPU"]));
    }

    #[test]
    fn a_suite_that_passes() {
        let (status, text, result) = run_suite("good", 1, &[]);
        assert_eq!((status, &row(&text, "good ")[1..6]), (Some(0), &["2", "0", "0", "0", "0"][..]), "{text}");
        assert_eq!(result["tests"][0]["figures"], serde_json::json!([{"unit": "us", "samples": [1.5]}]));
        assert_eq!(result["tests"][1]["figures"], serde_json::json!([{"arguments": "bench"}]));
    }

    #[test]
    fn what_the_limit_or_the_machine_does_not_permit() {
        let (status, text, result) = run_suite("device", 1, &["--only", "pair"]);
        assert_eq!((status, row(&text, "device ")[4]), (Some(1), "1"), "nothing has run: {text}");
        assert_eq!(result["tests"][0]["output"], "needs 2 GPUs");
        let (status, text, _) = run_suite("good", 1, &["--limit", "1"]);
        assert_eq!((status, row(&text, "good ")[5]), (Some(1), "2"), "{text}");
        let (status, text, _) = run_suite("good", 0, &[]);
        assert_eq!((status, row(&text, "good ")[4]), (Some(1), "2"), "{text}");
    }

    #[test]
    fn commands_name_what_the_runner_knows() {
        let [(_, runner), (_, suites)] = [RUNNER[1], RUNNER[2]];
        let suites: Value = serde_json::from_str(suites).unwrap();
        let suites = suites.as_object().unwrap().values();
        let commands = suites.filter_map(|suite| suite["commands"].as_array()).flatten();
        let commands: Vec<_> = commands.map(|command| command["command"].as_str().unwrap()).collect();
        assert!(commands.contains(&"{gather} tcp"), "{commands:?}");
        for command in commands {
            for name in command.split('{').skip(1).map(|rest| rest.split('}').next().unwrap()) {
                assert!(runner.contains(&format!("\n        \"{name}\": ")), "{command}");
            }
        }
        for example in EXAMPLES {
            assert!(runner.contains(&format!(r#"HERE / "bin" / "{example}","#)), "{example}");
        }
    }

    #[test]
    fn executables_of_cargos_messages() {
        let messages = r#"{"reason":"compiler-artifact","target":{"name":"warpway_core"},"executable":null}
{"reason":"build-script-executed","package_id":"x"}
{"reason":"compiler-artifact","target":{"name":"derive","kind":["proc-macro"]},"filenames":["/t/libderive-1.so"]}
{"reason":"compiler-artifact","target":{"name":"shared","kind":["cdylib"]},"filenames":["/t/libshared.a","/t/libshared.so"]}
{"reason":"compiler-artifact","target":{"name":"gpu"},"executable":"/t/deps/gpu-1"}
{"reason":"build-finished","success":true}"#;
        let [shared, gpu] = [("shared", "/t/libshared.so"), ("gpu", "/t/deps/gpu-1")]
            .map(|(name, path)| (name.to_owned(), PathBuf::from(path)));
        assert_eq!(executables(messages).unwrap(), [shared, gpu]);
        let names =
            ["/t/libshared.so", "/t/deps/gpu-1"].map(|path| name_of(Path::new(path)).unwrap().to_owned());
        assert_eq!(names, ["libshared.so", "gpu"]);
        assert!(executables("warning: of another program").is_err());
    }
}
