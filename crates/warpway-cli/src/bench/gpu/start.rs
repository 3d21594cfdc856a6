//! What the first use of everything takes, each time in a process that has not used it before.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, ensure};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use warpway::{Config, Environment};
use warpway_cuda::bench::programs;
use warpway_cuda::jit::Compiler;
use warpway_cuda::{Context, DeviceMemory, Driver, Module, PinnedMemory, Stream};

use super::Arguments;
use super::figure::{Figure, Target, Unit};
use super::first_exchange;
use super::report::Report;
use super::turns::Series;

/// What a process is started for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Once {
    /// Driver, contexts, memory, compiler.
    Parts,
    /// A communicator, until its ranks, which are threads, have exchanged data.
    Communicator,
    /// One rank of such a communicator.
    Rank,
}

/// One part of a start.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Part {
    pub(super) name: String,
    pub(super) ms: f64,
}

/// From the first call to the end of the first exchange, with kernels in the cache.
const WARM_MS: f64 = 100.0;
/// The same with an empty cache.
const COLD_MS: f64 = 1500.0;

/// Starts processes, as many of each kind as there are rounds.
pub(super) fn run(arguments: &Arguments, report: &mut Report) -> anyhow::Result<()> {
    report.begin("start");
    let [mut parts, mut cold, mut warm, mut processes] = [const { Vec::new() }; 4];
    for round in 0..arguments.rounds().min(5) {
        let folder = std::env::temp_dir().join(format!("warpway-bench-{}-{round}", std::process::id()));
        let started = (|| {
            parts.push(start(Once::Parts, &folder, arguments.devices)?);
            // The first process finds nothing in the folder and leaves there what the second one finds.
            cold.push(start(Once::Communicator, &folder, arguments.devices)?);
            warm.push(start(Once::Communicator, &folder, arguments.devices)?);
            processes.push(start_ranks(&folder, arguments.devices)?);
            anyhow::Ok(())
        })();
        // Nothing may be there.
        let _ = std::fs::remove_dir_all(&folder);
        started?;
    }
    let mut push = |figures: Vec<Figure>| figures.into_iter().for_each(|figure| report.push(figure));
    push(figures(&parts));
    for (case, starts, most) in [
        ("two threads, empty cache", cold, COLD_MS),
        ("two threads, warm cache", warm, WARM_MS),
        ("two processes, warm cache", processes, WARM_MS),
    ] {
        let judged = |figure: Figure| {
            let all = figure.contestant == first_exchange::ALL;
            if all { figure.should_be(Target::AtMost(most)) } else { figure }
        };
        push(parts_of(case, &starts).into_iter().map(judged).collect());
    }
    Ok(())
}

/// One process, with a cache folder of its own.
fn start(once: Once, folder: &Path, devices: [i32; 2]) -> anyhow::Result<Vec<Part>> {
    let output = command(once, folder, devices)?.output().context("starting a process of this program")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "a process that was to be measured failed: {}", said.trim());
    serde_json::from_slice(&output.stdout).context("reading what a process has measured")
}

/// Two processes, each a rank, which start together: each part of the slower one.
fn start_ranks(folder: &Path, [first, second]: [i32; 2]) -> anyhow::Result<Vec<Part>> {
    let job = folder.file_name().unwrap_or_default();
    let mut ranks = Vec::new();
    for (rank, devices) in [("0", [first, second]), ("1", [second, first])] {
        let mut command = command(Once::Rank, folder, devices)?;
        command.envs([("WARPWAY_RANK", rank), ("WARPWAY_LOCAL_RANK", rank)]);
        command.envs([("WARPWAY_WORLD_SIZE", "2"), ("WARPWAY_LOCAL_WORLD_SIZE", "2")]);
        command.env("WARPWAY_JOB_ID", job).env("WARPWAY_BOOTSTRAP_TOKEN", job);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().context("starting a rank")?;
        let output = process.stdout.take().context("a rank's output is read")?;
        ranks.push((process, BufReader::new(output)));
    }
    let measured = measure_ranks(&mut ranks);
    if measured.is_err() {
        // One that has lost the other would wait for it.
        for (process, _) in &mut ranks {
            process.kill()?;
            process.wait()?;
        }
    }
    measured
}

fn measure_ranks(ranks: &mut [(Child, BufReader<ChildStdout>)]) -> anyhow::Result<Vec<Part>> {
    for (_, output) in &mut *ranks {
        let mut line = String::new();
        output.read_line(&mut line)?;
        ensure!(line.trim_end() == first_exchange::READY, "a rank that was to be measured has not come up");
    }
    // Both clocks start here.
    ranks.iter_mut().for_each(|(process, _)| drop(process.stdin.take()));
    let mut parts = Vec::new();
    for (process, output) in ranks {
        let mut measured = String::new();
        output.read_to_string(&mut measured)?;
        ensure!(process.wait()?.success(), "a rank that was to be measured failed");
        parts.push(serde_json::from_str(&measured).context("reading what a rank has measured")?);
    }
    Ok(first_exchange::slower(parts.into_iter()))
}

fn command(once: Once, folder: &Path, [first, second]: [i32; 2]) -> anyhow::Result<Command> {
    let own = std::env::current_exe().context("finding this program")?;
    let name = once.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default();
    let mut command = Command::new(own);
    command.args(["bench", "gpu", "start", "--once", &name, "--devices", &format!("{first},{second}")]);
    command.env("WARPWAY_CACHE_DIR", folder);
    Ok(command)
}

/// How the case is called in which each part is measured by itself.
const PARTS: &str = "once per process";

/// The driver's and the compiler's parts, and their sum without compiling.
fn figures(starts: &[Vec<Part>]) -> Vec<Figure> {
    let mut figures = parts_of(PARTS, starts);
    let counts = |figure: &&Figure| {
        !figure.contestant.starts_with("compile") && !figure.contestant.starts_with("NVRTC")
    };
    let sum = |round| figures.iter().filter(counts).filter_map(|figure| figure.rounds.get(round)).sum();
    if !starts.is_empty() {
        let all = series("all but compiling", (0..starts.len()).map(sum).collect());
        figures.push(Figure::new("start", PARTS, Unit::Milliseconds, &all));
    }
    figures
}

/// A figure for each part, in the order of the parts.
fn parts_of(case: &str, starts: &[Vec<Part>]) -> Vec<Figure> {
    let of = |part: &Part| {
        let all = starts.iter().flatten().filter(|other| other.name == part.name);
        let rounds = all.map(|part| part.ms).collect();
        Figure::new("start", case, Unit::Milliseconds, &series(&part.name, rounds))
    };
    starts.first().into_iter().flatten().map(of).collect()
}

fn series(name: &str, rounds: Vec<f64>) -> Series {
    let mut samples = rounds.clone();
    samples.sort_by(f64::total_cmp);
    Series { name: name.to_owned(), rounds, samples, ..Series::default() }
}

/// One process's start, printed for the parent.
pub(super) fn child(once: Once, devices: [i32; 2], config: &Config) -> anyhow::Result<u8> {
    let parts = match once {
        Once::Parts => parts(devices, config)?,
        Once::Communicator => first_exchange::run(devices, config)?,
        Once::Rank => first_exchange::run_rank(devices[0], config)?,
    };
    println!("{}", serde_json::to_string(&parts)?);
    Ok(0)
}

/// Driver, contexts, memory, compiler.
fn parts(devices: [i32; 2], config: &Config) -> anyhow::Result<Vec<Part>> {
    let mut clock = Clock::default();
    let driver = clock.part("driver opened", || Driver::open(&config.cuda_driver))?;
    let [first, second] = devices;
    let here = clock.part("first context", || Context::primary(&driver, first))?;
    let there = clock.part("second context", || Context::primary(&driver, second))?;
    let peers = if first == second { vec![] } else { vec![&there] };
    let memory =
        clock.part("first memory, open to the peer", || DeviceMemory::allocate(&here, 2 << 20, &peers))?;
    let pinned = clock.part("pinned memory", || PinnedMemory::allocate(&here, 1 << 20))?;
    let stream = clock.part("stream", || Stream::new(&here))?;
    let folder = std::env::temp_dir().join(format!("warpway-bench-{}", std::process::id()));
    let cached = |folder: &str| -> anyhow::Result<Compiler> {
        let changed: Environment =
            std::env::vars().chain([("WARPWAY_CACHE_DIR".to_owned(), folder.to_owned())]).collect();
        Ok(Compiler::new(&Config::read(&changed)?.config, &changed))
    };
    let architecture = here.info().architecture;
    let program = programs().into_iter().next().context("there are no kernels")?;
    let cold = cached("off")?;
    clock.part("NVRTC opened", || cold.identity())?;
    clock.part("compile, cold", || cold.compile(&program, architecture))?;
    let name = folder.to_str().context("the folder for temporary files has no readable name")?;
    let warmed = (|| {
        cached(name)?.compile(&program, architecture)?;
        let warm = cached(name)?;
        let image = clock.part("kernels from the warm cache", || warm.compile(&program, architecture))?;
        anyhow::Ok(clock.part("kernels loaded", || Module::load(&here, image.code()))?)
    })();
    let _ = std::fs::remove_dir_all(&folder);
    let module = warmed?;
    drop((module, stream, pinned, memory));
    Ok(clock.parts)
}

/// Times parts one after the other.
#[derive(Default)]
pub(super) struct Clock {
    pub(super) parts: Vec<Part>,
}

impl Clock {
    pub(super) fn part<T, E>(&mut self, name: &str, work: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        let begin = Instant::now();
        let result = work();
        self.since(begin, name);
        result
    }

    /// A part that began at `begin` and ends now.
    pub(super) fn since(&mut self, begin: Instant, name: &str) {
        self.parts.push(Part { name: name.to_owned(), ms: begin.elapsed().as_secs_f64() * 1e3 });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_all_starts_are_joined_by_name() {
        let start = |driver, compile| {
            [("driver opened", driver), ("compile, cold", compile), ("kernels loaded", 1.0)]
                .map(|(name, ms)| Part { name: name.into(), ms })
                .to_vec()
        };
        let figures = figures(&[start(30.0, 500.0), start(10.0, 400.0), start(20.0, 900.0)]);
        let shown: Vec<_> = figures.iter().map(|f| (f.contestant.as_str(), f.median.unwrap())).collect();
        assert_eq!(
            shown,
            [
                ("driver opened", 20.0),
                ("compile, cold", 500.0),
                ("kernels loaded", 1.0),
                ("all but compiling", 21.0)
            ]
        );
        assert_eq!(figures[0].rounds, [30.0, 10.0, 20.0]);
        assert!(super::figures(&[]).is_empty());
    }
}
