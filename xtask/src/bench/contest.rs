//! Running contestants in turns.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};

use super::results::{Measurement, Series};
use crate::run::{cargo, root, step};

/// Where the programs are that commands may name.
pub(crate) struct Programs {
    peers: PathBuf,
    warpway: PathBuf,
}

/// A program of `benchmarks/peers`.
struct Peer {
    program: &'static str,
    source: &'static str,
    /// The compiler and what stands before the files; none for a script.
    compiler: &'static [&'static str],
    libraries: &'static [&'static str],
    /// Debian's package.
    package: &'static str,
}

/// Collectives fold numbers, so their programs get the machine's vector units, as Warpway takes them when it runs.
const PEERS: &[Peer] = &[
    Peer { program: "iperf3.py", source: "iperf3.py", compiler: &[], libraries: &[], package: "iperf3" },
    Peer {
        program: "mpi_pingpong",
        source: "mpi_pingpong.c",
        compiler: &["mpicc", "-O2"],
        libraries: &[],
        package: "libopenmpi-dev",
    },
    Peer {
        program: "cache_line",
        source: "cache_line.c",
        compiler: &["mpicc", "-O2"],
        libraries: &[],
        package: "libopenmpi-dev",
    },
    Peer {
        program: "mpi_collectives",
        source: "mpi_collectives.c",
        compiler: &["mpicc", "-O3", "-march=native", "-mprefer-vector-width=512"],
        libraries: &[],
        package: "libopenmpi-dev",
    },
    Peer {
        program: "gloo_collectives",
        source: "gloo_collectives.cc",
        compiler: &["g++", "-std=c++17", "-O3", "-march=native", "-mprefer-vector-width=512"],
        libraries: &["-lgloo"],
        package: "libgloo-dev",
    },
];

impl Peer {
    fn build(&self, folder: &Path) -> anyhow::Result<()> {
        let (source, target) = (root().join("benchmarks/peers").join(self.source), folder.join(self.program));
        fs::create_dir_all(folder)?;
        let Some((compiler, flags)) = self.compiler.split_first() else {
            fs::copy(&source, &target).with_context(|| format!("copying {}", source.display()))?;
            return Ok(());
        };
        let mut command = Command::new(compiler);
        command.args(flags).arg("-o").arg(&target).arg(&source).args(self.libraries);
        step(&format!("{} ({compiler}; Debian's {})", self.program, self.package), &mut command)
    }
}

/// Containers run as root, and contests may have more ranks than cores.
const MPIRUN: &str = "mpirun --allow-run-as-root --oversubscribe";

impl Programs {
    /// Builds those that `commands` use.
    pub(crate) fn prepare(commands: &[String]) -> anyhow::Result<Self> {
        let programs =
            Self { peers: root().join("target/peers"), warpway: root().join("target/release/warpway") };
        let use_any = |name: &str| commands.iter().any(|command| command.contains(name));
        if use_any("{warpway}") {
            step("warpway", cargo("build").args(["--release", "--package", "warpway-cli"]))?;
        }
        for peer in PEERS.iter().filter(|peer| use_any(&format!("{{peers}}/{}", peer.program))) {
            peer.build(&programs.peers)?;
        }
        Ok(programs)
    }

    /// The words of a command.
    fn expand(&self, command: &str) -> Vec<String> {
        let (peers, warpway) = (self.peers.to_string_lossy(), self.warpway.to_string_lossy());
        command
            .replace("{mpirun}", MPIRUN)
            .split_ascii_whitespace()
            .map(|word| word.replace("{peers}", &peers).replace("{warpway}", &warpway))
            .collect()
    }
}

/// Runs every command `rounds` times, A B A B …; returns the order and a series for each.
pub(crate) fn hold(
    programs: &Programs,
    commands: &[String],
    rounds: u32,
    limit: Duration,
) -> anyhow::Result<(Vec<usize>, Vec<Series>)> {
    let mut order = Vec::new();
    let mut runs: Vec<Vec<Measurement>> = vec![Vec::new(); commands.len()];
    for round in 0..rounds {
        for (index, command) in commands.iter().enumerate() {
            let run = measure(&programs.expand(command), limit)
                .with_context(|| format!("round {round} of {command}"))?;
            order.push(index);
            runs[index].push(run);
        }
    }
    let series = commands.iter().zip(runs).map(|(command, runs)| Series::new(command.clone(), runs));
    Ok((order, series.collect::<anyhow::Result<_>>()?))
}

fn measure(words: &[String], limit: Duration) -> anyhow::Result<Measurement> {
    let (program, arguments) = words.split_first().context("the command is empty")?;
    // A file, not a pipe: nobody needs to read while the program runs and would take its core.
    let caller = std::thread::current().id();
    let path = root().join(format!("target/bench-{}-{caller:?}.out", std::process::id()));
    let output = File::create(&path).with_context(|| format!("cannot create {}", path.display()))?;
    let mut command = Command::new(program);
    command.args(arguments).current_dir(root()).stdin(Stdio::null()).stdout(output);
    let ended = run_within(&mut command, limit);
    let text = fs::read_to_string(&path);
    let _ = fs::remove_file(&path);
    let status = ended?;
    ensure!(status.success(), "it ended with {status}");
    Measurement::parse(&text?)
}

fn run_within(command: &mut Command, limit: Duration) -> anyhow::Result<ExitStatus> {
    let mut child = command.spawn().with_context(|| format!("cannot start {command:?}"))?;
    let end = Instant::now() + limit;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if Instant::now() >= end {
            let _ = child.kill();
            let _ = child.wait();
            bail!("it took more than {} s and was killed", limit.as_secs());
        }
        // Rare enough not to disturb, short against a run.
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn programs() -> Programs {
        Programs { peers: PathBuf::from("/a folder/peers"), warpway: PathBuf::from("/w") }
    }

    #[test]
    fn commands_are_split_before_paths_are_put_in() {
        let words = programs().expand("{mpirun} -n 2  {peers}/mpi_pingpong ping_pong");
        let expected = [
            "mpirun",
            "--allow-run-as-root",
            "--oversubscribe",
            "-n",
            "2",
            "/a folder/peers/mpi_pingpong",
            "ping_pong",
        ];
        assert_eq!(words, expected);
        assert_eq!(programs().expand("{warpway} bench"), ["/w", "bench"]);
    }

    #[test]
    fn contestants_take_turns() {
        let echo = |program: &str, sample: u32| {
            format!(
                r#"echo {{"program":"{program}","benchmark":"b","ranks":2,"bytes":8,"unit":"us","samples":[{sample}]}}"#
            )
        };
        let commands = [echo("A", 3), echo("B", 7)];
        let (order, series) = hold(&programs(), &commands, 3, Duration::from_secs(10)).unwrap();
        assert_eq!(order, [0, 1, 0, 1, 0, 1]);
        let found: Vec<_> =
            series.iter().map(|s| (s.runs[0].program.as_str(), s.runs.len(), s.median)).collect();
        assert_eq!(found, [("A", 3, 3.0), ("B", 3, 7.0)]);
    }

    #[test]
    fn failures_name_the_command_and_hangs_end() {
        for (command, words) in [
            ("false", "ended with"),
            ("echo nothing", "no line"),
            ("/no/such", "cannot start"),
            ("", "empty"),
            ("sleep 60", "more than 0 s"),
        ] {
            let error = hold(&programs(), &[command.into()], 1, Duration::from_millis(200)).unwrap_err();
            let text = format!("{error:#}");
            assert!(text.contains(words) && text.contains(&format!("round 0 of {command}")), "{text}");
        }
    }
}
