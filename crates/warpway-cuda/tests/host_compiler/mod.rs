//! Device headers compiled by a host C++ compiler, `$CXX` or `c++`.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A file of `device/tests/host`, compiled; `None` (and a line that says so) without a compiler, except where `CI` is set.
pub(crate) fn compile(name: &str, options: &[&str]) -> Option<PathBuf> {
    let compiler = std::env::var_os("CXX").unwrap_or_else(|| "c++".into());
    let device = Path::new(env!("CARGO_MANIFEST_DIR")).join("device");
    let output_path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
    let output = Command::new(&compiler)
        .args(["-std=c++17", "-Wall", "-Wextra", "-Werror", "-fno-strict-aliasing", "-ffp-contract=off"])
        .args(options)
        .arg("-I")
        .arg(device.join("include"))
        .arg(device.join("tests/host").join(name).with_extension("cpp"))
        .arg("-o")
        .arg(&output_path)
        .output();
    let output = match output {
        Ok(output) => output,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            assert!(std::env::var_os("CI").is_none(), "no C++ compiler {compiler:?}");
            eprintln!("not run: no C++ compiler {compiler:?}; set CXX");
            return None;
        }
        Err(error) => panic!("{compiler:?}: {error}"),
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(output_path)
}
