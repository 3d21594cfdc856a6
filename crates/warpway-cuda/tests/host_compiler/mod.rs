//! Device headers compiled by a host C++ compiler, `$CXX` or `c++`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

/// A file of `device/tests/host`, compiled; `None` (and a line that says so) without a compiler, except where `CI` is set.
#[allow(dead_code, reason = "not all tests ask")]
pub(crate) fn compile(name: &str, options: &[&str]) -> Option<PathBuf> {
    static COMPILED: AtomicU32 = AtomicU32::new(0);
    let number = COMPILED.fetch_add(1, Ordering::Relaxed);
    let output_path =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}-{number}", std::process::id()));
    let source = device().join("tests/host").join(name).with_extension("cpp");
    let output = run(Command::new(compiler()).args(options).arg(source).arg("-o").arg(&output_path))?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(output_path)
}

/// A text, compiled. As above.
#[allow(dead_code, reason = "not all tests ask")]
pub(crate) fn compile_text(name: &str, text: &str, options: &[&str]) -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let source = folder.join(format!("{name}-{}.cpp", std::process::id()));
    let output_path = source.with_extension("out");
    std::fs::write(&source, text).unwrap();
    let output = run(Command::new(compiler()).args(options).arg(&source).arg("-o").arg(&output_path))?;
    assert!(output.status.success(), "{}: {}", source.display(), String::from_utf8_lossy(&output.stderr));
    std::fs::remove_file(&source).unwrap();
    Some(output_path)
}

/// What the compiler says to a source, without making anything of it: empty if it compiles. `None` as above.
#[allow(dead_code, reason = "not all tests ask")]
pub(crate) fn complaints(source: &str) -> Option<String> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let path = folder.join(format!("complaints-{}.cpp", std::process::id()));
    std::fs::write(&path, source).unwrap();
    let output = run(Command::new(compiler()).arg("-fsyntax-only").arg(&path));
    std::fs::remove_file(&path).unwrap();
    output.map(|output| String::from_utf8_lossy(&output.stderr).into_owned())
}

fn compiler() -> OsString {
    std::env::var_os("CXX").unwrap_or_else(|| "c++".into())
}

fn device() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("device")
}

/// With the options that all have in common.
fn run(command: &mut Command) -> Option<Output> {
    command
        .args(["-std=c++17", "-Wall", "-Wextra", "-Werror", "-fno-strict-aliasing", "-ffp-contract=off"])
        .arg("-I")
        .arg(device().join("include"));
    match command.output() {
        Ok(output) => Some(output),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            assert!(std::env::var_os("CI").is_none(), "no C++ compiler {:?}", compiler());
            eprintln!("not run: no C++ compiler {:?}; set CXX", compiler());
            None
        }
        Err(error) => panic!("{:?}: {error}", compiler()),
    }
}
