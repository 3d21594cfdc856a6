//! What the first use of everything takes, each time in a process that has not used it before.

use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, ensure};
use serde::{Deserialize, Serialize};
use warpway::{Config, Environment};
use warpway_cuda::bench::programs;
use warpway_cuda::jit::Compiler;
use warpway_cuda::{Context, DeviceMemory, Driver, Module, PinnedMemory, Stream};

use super::Arguments;
use super::figure::{Figure, Unit};
use super::report::Report;
use super::turns::{Series, median};

/// One part of a start.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Part {
    name: String,
    ms: f64,
}

/// Starts as many processes as there are rounds.
pub(super) fn run(arguments: &Arguments, report: &mut Report) -> anyhow::Result<()> {
    report.begin("start");
    let own = std::env::current_exe().context("finding this program")?;
    let mut starts: Vec<Vec<Part>> = Vec::new();
    let [first, second] = arguments.devices;
    for _ in 0..arguments.rounds().min(5) {
        let devices = format!("{first},{second}");
        let output = Command::new(&own)
            .args(["bench", "gpu", "start", "--once", "--devices", &devices])
            .output()
            .context("starting a process of this program")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "a process that was to be measured failed: {}", said.trim());
        starts.push(serde_json::from_slice(&output.stdout).context("reading what a process has measured")?);
    }
    figures(&starts).into_iter().for_each(|figure| report.push(figure));
    Ok(())
}

/// A figure for each part, in the order of the parts.
fn figures(starts: &[Vec<Part>]) -> Vec<Figure> {
    let parts = starts.first().into_iter().flatten();
    let of = |part: &Part| {
        let all = starts.iter().flatten().filter(|other| other.name == part.name);
        let rounds: Vec<f64> = all.map(|part| part.ms).collect();
        let mut samples = rounds.clone();
        samples.sort_by(f64::total_cmp);
        let series = Series { name: part.name.clone(), rounds, samples, ..Series::default() };
        Figure::new("start", "once per process", Unit::Milliseconds, &series)
    };
    let mut figures: Vec<Figure> = parts.map(of).collect();
    // What a communicator with warm kernels would have to wait for; compiling cold is not part of that.
    let warm = |figure: &&Figure| {
        !figure.contestant.starts_with("compile") && !figure.contestant.starts_with("NVRTC")
    };
    let sums: Vec<f64> = (0..starts.len())
        .map(|round| figures.iter().filter(warm).filter_map(|figure| figure.rounds.get(round)).sum())
        .collect();
    if median(&sums).is_some() {
        let mut samples = sums.clone();
        samples.sort_by(f64::total_cmp);
        let series = Series { name: "all but compiling".into(), rounds: sums, samples, ..Series::default() };
        figures.push(Figure::new("start", "once per process", Unit::Milliseconds, &series));
    }
    figures
}

/// One process's start, printed for the parent.
pub(super) fn child(devices: [i32; 2], config: &Config) -> anyhow::Result<u8> {
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
    println!("{}", serde_json::to_string(&clock.parts)?);
    Ok(0)
}

/// Times parts one after the other.
#[derive(Default)]
struct Clock {
    parts: Vec<Part>,
}

impl Clock {
    fn part<T, E>(&mut self, name: &str, work: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        let begin = Instant::now();
        let result = work();
        self.parts.push(Part { name: name.to_owned(), ms: begin.elapsed().as_secs_f64() * 1e3 });
        result
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
