//! The programs of the peers: built from `benchmarks/peers` where they are missing.

use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};
use clap::ValueEnum;
use warpway::{Config, Environment};

/// Whom to compare with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Rival {
    /// Open MPI
    Mpi,
    /// Gloo
    Gloo,
}

/// A source and how it is built.
struct Source {
    program: &'static str,
    file: &'static str,
    text: &'static str,
    compiler: &'static str,
    flags: &'static [&'static str],
    libraries: &'static [&'static str],
    packages: &'static str,
}

const HEADER: (&str, &str) = ("collectives.h", include_str!("../../../../../benchmarks/peers/collectives.h"));

const MPI: Source = Source {
    program: "mpi_collectives",
    file: "mpi_collectives.c",
    text: include_str!("../../../../../benchmarks/peers/mpi_collectives.c"),
    compiler: "mpicc",
    flags: &["-O3", "-march=native", "-mprefer-vector-width=512"],
    libraries: &[],
    packages: "libopenmpi-dev openmpi-bin",
};

const GLOO: Source = Source {
    program: "gloo_collectives",
    file: "gloo_collectives.cc",
    text: include_str!("../../../../../benchmarks/peers/gloo_collectives.cc"),
    compiler: "g++",
    flags: &["-std=c++17", "-O3", "-march=native", "-mprefer-vector-width=512"],
    libraries: &["-lgloo"],
    packages: "libgloo-dev g++",
};

impl Rival {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Mpi => "Open MPI",
            Self::Gloo => "Gloo",
        }
    }

    fn source(self) -> &'static Source {
        match self {
            Self::Mpi => &MPI,
            Self::Gloo => &GLOO,
        }
    }

    /// Builds the program unless it has been built from the same source before.
    pub(super) fn build(self) -> anyhow::Result<()> {
        self.source().build(&folder()?).map(drop)
    }

    /// What starts it with so many ranks.
    pub(super) fn command(self, n_ranks: u32) -> anyhow::Result<Command> {
        let program = self.source().build(&folder()?)?;
        let ranks = n_ranks.to_string();
        Ok(match self {
            Self::Mpi => {
                // Containers run as root, and there may be more ranks than cores.
                let mut command = Command::new("mpirun");
                command.args(["--allow-run-as-root", "--oversubscribe", "-n", &ranks]);
                command.arg(program).arg("serve");
                command
            }
            Self::Gloo => {
                let mut command = Command::new(program);
                command.args([&ranks, "serve"]);
                command
            }
        })
    }
}

/// Beside the kernels that are kept, or, where nothing is, with the temporary files.
fn folder() -> anyhow::Result<PathBuf> {
    let environment = Environment::of_process()?;
    let kept = Config::read(&environment)?.config.cache_folder(&environment);
    Ok(kept.unwrap_or_else(|| std::env::temp_dir().join("warpway")).join("peers"))
}

impl Source {
    fn build(&self, folder: &Path) -> anyhow::Result<PathBuf> {
        let mut hasher = DefaultHasher::new();
        (HEADER, self.text, self.compiler, self.flags).hash(&mut hasher);
        let folder = folder.join(format!("{}-{:016x}", self.program, hasher.finish()));
        let program = folder.join(self.program);
        if program.exists() {
            return Ok(program);
        }
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        for (file, text) in [HEADER, (self.file, self.text)] {
            let path = folder.join(file);
            fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        }
        // Under another name first: a program that is there is whole.
        let unfinished = folder.join(format!("unfinished-{}", std::process::id()));
        let mut command = Command::new(self.compiler);
        command.current_dir(&folder).args(self.flags).arg("-o").arg(&unfinished).arg(self.file);
        let advice =
            || format!("building {} with {}: needs Debian's {}", self.file, self.compiler, self.packages);
        let output = command.args(self.libraries).output().with_context(advice)?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{}\n{}", advice(), said.trim_end());
        fs::rename(&unfinished, &program).with_context(|| format!("cannot name {}", program.display()))?;
        Ok(program)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_built_once_and_a_failure_says_what_is_needed() {
        let folder = std::env::temp_dir().join(format!("warpway-programs-{}", std::process::id()));
        let copy = Source {
            program: "copy",
            file: "copy.txt",
            text: "text",
            // -o FILE FILE: what compilers are given.
            compiler: "sh",
            flags: &["-c", "cat $2 > $1"],
            libraries: &[],
            packages: "coreutils",
        };
        let program = copy.build(&folder).unwrap();
        assert_eq!(fs::read_to_string(&program).unwrap(), "text");
        fs::write(&program, "kept").unwrap();
        assert_eq!(fs::read_to_string(copy.build(&folder).unwrap()).unwrap(), "kept");
        for compiler in ["false", "/no/such"] {
            let broken = Source { program: "broken", compiler, ..copy };
            let error = format!("{:#}", broken.build(&folder).unwrap_err());
            assert!(error.contains("copy.txt") && error.contains("coreutils"), "{error}");
        }
        fs::remove_dir_all(&folder).unwrap();
    }
}
