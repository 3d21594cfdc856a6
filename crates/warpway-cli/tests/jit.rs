//! `warpway jit`: exit codes, what is kept, what is printed.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;

/// A folder of a test's own, removed with the value.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("warpway-cli-jit-{test}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_warpway"));
        command.arg("jit").args(arguments).env("WARPWAY_CACHE_DIR", self.0.join("cache"));
        command
    }

    fn run(&self, arguments: &[&str]) -> (i32, String, String) {
        texts(&self.command(arguments).output().unwrap())
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let (_, output, said) = self.run(&[arguments, &["--json"]].concat());
        serde_json::from_str(&output).unwrap_or_else(|error| panic!("{error}: {output} {said}"))
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// False after saying so where there is no NVRTC; CI must have it.
    fn has_nvrtc(&self) -> bool {
        let source = self.file("probe.cu", "");
        let (code, _, said) = self.run(&["warm", &source, "--arch", "sm_90"]);
        assert!(code == 0 || std::env::var_os("CI").is_none(), "{said}");
        if code != 0 {
            eprintln!("skipped: {said}");
        }
        self.run(&["clear"]);
        code == 0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn texts(output: &Output) -> (i32, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

const KERNELS: &str = "template <int N> __global__ void fill(int* to) { to[threadIdx.x] = N; }\n\
    extern \"C\" __global__ void zero(int* to) { to[threadIdx.x] = ZERO; }\n";

#[test]
fn warm_list_clear() {
    let folder = Folder::new("cycle");
    if !folder.has_nvrtc() {
        return;
    }
    let source = folder.file("mine.cu", KERNELS);
    let warm = [
        "warm",
        &source,
        "--arch",
        "sm_90,8.0",
        "--kernel",
        "fill<3>",
        "--kernel",
        "zero",
        "--define",
        "ZERO=0",
    ];
    let first = folder.json(&warm);
    assert_eq!(first["ok"], true, "{first:#}");
    let rows = first["programs"].as_array().unwrap();
    assert_eq!(rows.len(), 2);
    for (row, architecture) in rows.iter().zip(["sm_80", "sm_90"]) {
        assert_eq!((&row["program"], &row["architecture"]), (&source.as_str().into(), &architecture.into()));
        assert_eq!(
            (&row["origin"], &row["kind"], &row["error"]),
            (&"compiled".into(), &"cubin".into(), &Value::Null)
        );
        assert_eq!(
            (&row["kernels"][0]["kernel"], &row["kernels"][1]["symbol"]),
            (&"fill<3>".into(), &"zero".into())
        );
        assert!(row["kernels"][0]["registers"].as_u64().unwrap() > 0);
        assert_eq!(row["kernels"][0]["spill_store_bytes"], 0);
    }
    let second = folder.json(&warm);
    assert!(second["programs"].as_array().unwrap().iter().all(|row| row["origin"] == "disk"), "{second:#}");

    let list = folder.json(&["list"]);
    let images = list["images"].as_array().unwrap();
    assert_eq!(images.len(), 2, "{list:#}");
    assert_eq!(list["folder"], folder.0.join("cache/jit").to_str().unwrap());
    let bytes: u64 = images.iter().map(|image| image["bytes"].as_u64().unwrap()).sum();
    assert_eq!((&list["bytes"], &list["bytes_max"]), (&bytes.into(), &(256u64 << 20).into()));
    assert!(images.iter().all(|image| image["program"] == source.as_str() && image["damage"].is_null()));
    let (code, text, _) = folder.run(&["list"]);
    assert_eq!(code, 0);
    assert!(text.contains("2 images") && text.contains("sm_80") && text.contains("mine.cu"), "{text}");

    assert_eq!(folder.json(&["clear"]), serde_json::json!({ "removed": 2, "bytes": bytes }));
    assert_eq!(folder.json(&["list"])["images"], serde_json::json!([]));
    assert_eq!(folder.json(&["clear"])["removed"], 0);
}

#[test]
fn what_is_built_in_is_warmed_for_every_generation() {
    let folder = Folder::new("built-in");
    if !folder.has_nvrtc() {
        return;
    }
    let warmed = folder.json(&["warm", "--arch", "sm_80,sm_90,sm_100"]);
    assert_eq!(warmed["ok"], true, "{warmed:#}");
    let (code, text, said) = folder.run(&["warm", "--arch", "sm_80"]);
    assert_eq!((code, said.as_str()), (0, ""));
    assert!(text.contains("disk") && text.contains("kept in "), "{text}");
}

#[test]
fn processes_that_warm_at_once_agree() {
    let folder = Folder::new("at-once");
    if !folder.has_nvrtc() {
        return;
    }
    let source = folder.file("mine.cu", KERNELS);
    let warm = ["warm", &source, "--arch", "sm_80,sm_90", "--define", "ZERO=0", "--json"];
    let piped = |command: &mut Command| {
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().unwrap()
    };
    let children: Vec<_> = (0..4).map(|_| piped(&mut folder.command(&warm))).collect();
    for child in children {
        let (code, output, said) = texts(&child.wait_with_output().unwrap());
        assert_eq!((code, said.as_str()), (0, ""), "{output}");
    }
    let list = folder.json(&["list"]);
    let images = list["images"].as_array().unwrap();
    assert!(images.len() == 2 && images.iter().all(|image| image["damage"].is_null()), "{list:#}");
}

#[test]
fn what_does_not_compile_is_said_once_and_fails() {
    let folder = Folder::new("wrong");
    if !folder.has_nvrtc() {
        return;
    }
    let good = folder.file("good.cu", "extern \"C\" __global__ void k() {}\n");
    let bad = folder.file("bad.cu", "\nint f( {\n");
    let (code, text, said) = folder.run(&["warm", &bad, &good, "--arch", "sm_80,sm_90"]);
    assert_eq!(code, 1);
    assert_eq!(said.matches("does not compile").count(), 1, "{said}");
    assert!(said.contains("bad.cu(2): error") && said.contains("> 2 | int f( {"), "{said}");
    assert_eq!((text.matches("failed").count(), text.matches("compiled").count()), (2, 2), "{text}");
    let rows = folder.json(&["warm", &bad, "--arch", "sm_80"]);
    assert_eq!((&rows["ok"], &rows["programs"][0]["origin"]), (&false.into(), &Value::Null));
    assert!(rows["programs"][0]["error"].as_str().unwrap().contains("bad.cu(2)"), "{rows:#}");
}

#[test]
fn headers_of_the_author_are_handed_over() {
    let folder = Folder::new("headers");
    if !folder.has_nvrtc() {
        return;
    }
    let header = folder.file("tiles-1.cuh", "#define TILES 3\n");
    let source = "#include \"tiles.cuh\"\nextern \"C\" __global__ void k(int* to) { *to = TILES; }\n";
    let source = folder.file("mine.cu", source);
    let warm = |header: &str| folder.json(&["warm", &source, "--arch", "sm_90", "--header", header]);
    let named = format!("tiles.cuh={header}");
    let origin = |rows: Value| rows["programs"][0]["origin"].clone();
    assert_eq!(origin(warm(&named)), "compiled");
    assert_eq!(origin(warm(&named)), "disk");
    folder.file("tiles-1.cuh", "#define TILES 4\n");
    assert_eq!(origin(warm(&named)), "compiled");
    // Under another name it is none that the source includes.
    let error = warm(&header)["programs"][0]["error"].as_str().unwrap().to_owned();
    assert!(error.contains("tiles.cuh") && error.contains("--header NAME=FILE"), "{error}");
    let (code, _, said) = folder.run(&["warm", &source, "--header", "tiles.cuh=/nowhere/t.cuh"]);
    assert_eq!(code, 1);
    assert!(said.contains("cannot read /nowhere/t.cuh"), "{said}");
}

#[test]
fn without_nvrtc_the_places_are_named() {
    let folder = Folder::new("absent");
    let output =
        folder.command(&["warm", "--arch", "sm_90"]).env("WARPWAY_NVRTC", "/nowhere/libnvrtc.so").output();
    let (code, _, said) = texts(&output.unwrap());
    assert_eq!(code, 1);
    assert!(
        said.contains("/nowhere/libnvrtc.so") && said.contains("pip install nvidia-cuda-nvrtc"),
        "{said}"
    );
}

#[test]
fn a_folder_that_is_off_or_damaged() {
    let folder = Folder::new("off");
    for command in ["list", "clear"] {
        let output = folder.command(&[command]).env("WARPWAY_CACHE_DIR", "off").output().unwrap();
        assert_eq!(output.status.code(), Some(0));
    }
    let jit = folder.0.join("cache/jit");
    std::fs::create_dir_all(&jit).unwrap();
    std::fs::write(jit.join("00.image"), "short").unwrap();
    let list = folder.json(&["list"]);
    assert_eq!(list["images"][0]["damage"], "it is too short");
    let (_, text, _) = folder.run(&["list"]);
    assert!(text.contains("damaged: it is too short") && text.contains("1 image, 5 of"), "{text}");
}

/// Whoever warms wants to find the images later: what cannot be kept is a failure, and nothing says otherwise.
#[test]
fn what_cannot_be_kept_is_said() {
    let folder = Folder::new("kept");
    if !folder.has_nvrtc() {
        return;
    }
    let source = folder.file("mine.cu", "extern \"C\" __global__ void k() {}");
    // A file where the folder should be: also root cannot make it.
    let nowhere = folder.file("nowhere", "");
    let warm = |place: &str, json: &[&str]| {
        let mut command = folder.command(&[&["warm", &source, "--arch", "sm_90"], json].concat());
        texts(&command.env("WARPWAY_CACHE_DIR", place).output().unwrap())
    };
    let (code, text, said) = warm(&nowhere, &[]);
    assert_eq!(code, 1, "{said}");
    assert!(text.contains("compiled") && !text.contains("kept in"), "{text}");
    assert!(said.contains("images are not kept in") && said.contains("not all is kept in"), "{said}");
    let document = |place: &str| -> Value { serde_json::from_str(&warm(place, &["--json"]).1).unwrap() };
    let kept = |report: &Value| (report["ok"].clone(), report["programs"][0]["kept"].clone());
    assert_eq!(kept(&document(&nowhere)), (false.into(), false.into()));
    assert_eq!(kept(&document("off")), (true.into(), false.into()));
    let good = folder.0.join("cache");
    for _ in 0..2 {
        assert_eq!(kept(&document(good.to_str().unwrap())), (true.into(), true.into()));
    }
    assert_eq!(warm("off", &[]).0, 0);
}

#[test]
fn wrong_arguments() {
    let folder = Folder::new("arguments");
    for (arguments, expected) in [
        (&["warm", "--arch", "sm_9x"][..], "`sm_9x` is not an architecture such as sm_90"),
        (&["warm", "--kernel", "k"], "<FILE>"),
        (&["warm", "--header", "k.cuh"], "<FILE>"),
        (&["chill"], "chill"),
    ] {
        let (code, _, said) = folder.run(arguments);
        assert_eq!(code, 2, "{said}");
        assert!(said.contains(expected), "{said}");
    }
    let (code, _, said) = folder.run(&["warm", "/nowhere/k.cu", "--arch", "sm_90"]);
    assert_eq!(code, 1);
    assert!(said.contains("cannot read /nowhere/k.cu"), "{said}");
}
