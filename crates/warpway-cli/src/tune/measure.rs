//! Measuring: every algorithm that fits, at every size, by all ranks in step. What is decided on the way, rank 0 decides.

use std::fs;
use std::io::IsTerminal as _;
use std::path::Path;
use std::time::Instant;

use anyhow::Context as _;
use indicatif::{ProgressBar, ProgressStyle};
use warpway::collectives::{Algorithm, Library, Origin, Row, Sizes, Table, Task, Timing, World, catalogue};
use warpway::{Barrier, Bootstrap as _, Buffer, Call, Communicator, Function};

use super::Arguments;

/// A batch lasts about this long, so that reading the clock does not count.
const BATCH_SECONDS: f64 = 0.001;
const BATCH_CALLS: u64 = 4096;
/// Packets that take so many times as long as the fastest at one size are not tried at larger ones.
const HOPELESS: f64 = 3.0;

struct Tuner<'a> {
    comm: Communicator,
    barrier: Barrier,
    arguments: &'a Arguments,
    world: World,
    input: Buffer<u8>,
    output: Buffer<u8>,
    progress: ProgressBar,
}

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<u8> {
    let comm = Communicator::from_env()?;
    measure(arguments, &comm).inspect_err(|error| comm.abort(error.to_string()))?;
    Ok(0)
}

fn measure(arguments: &Arguments, comm: &Communicator) -> anyhow::Result<()> {
    let world = comm.world();
    let origin = Origin {
        machine: comm.machine(),
        library: Library::this(),
        date: crate::date::now_utc(),
        command: std::env::args().collect::<Vec<_>>().join(" "),
    };
    // A file that cannot be added to is found out about before the work is done.
    let mut table = match comm.rank() {
        0 => open(&arguments.output, origin)?,
        _ => Table::new(origin),
    };
    let sizes = arguments.sizes(world.n_ranks());
    let room = sizes.last().copied().unwrap_or(0).max(1);
    let progress = progress(arguments, comm, &sizes);
    let tuner = Tuner {
        barrier: comm.make_barrier()?,
        input: comm.alloc(room)?,
        output: comm.alloc(room)?,
        comm: comm.clone(),
        arguments,
        world,
        progress,
    };
    // Pages are taken now.
    tuner.input.fill(0)?;
    tuner.output.fill(0)?;
    for function in arguments.functions() {
        for in_place in arguments.places() {
            if let Some(measured) = tuner.function(function, in_place, &sizes)? {
                table.put(measured);
            }
        }
    }
    tuner.progress.finish_and_clear();
    comm.barrier()?;
    if comm.rank() == 0 {
        let path = arguments.output.display();
        fs::write(&arguments.output, table.to_json()).with_context(|| format!("writing {path}"))?;
        match arguments.json {
            true => println!("{}", table.to_json()),
            false => println!("written to {path}; programs use it with WARPWAY_TUNING_FILE={path}"),
        }
    }
    Ok(())
}

/// The table to add to.
fn open(path: &Path, origin: Origin) -> anyhow::Result<Table> {
    let name = path.display();
    let text = match fs::read_to_string(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Table::new(origin)),
        text => text.with_context(|| format!("reading {name}"))?,
    };
    let found = Table::from_json(&text).with_context(|| format!("{name} is there and cannot be added to"))?;
    let stale = found.origin.staleness(&origin.machine, &origin.library);
    if !stale.is_empty() {
        eprintln!("warpway: {name} is written anew, since {}", stale.join(", "));
        return Ok(Table { overrides: found.overrides, ..Table::new(origin) });
    }
    Ok(Table { origin, ..found })
}

fn progress(arguments: &Arguments, comm: &Communicator, sizes: &[u64]) -> ProgressBar {
    if comm.rank() != 0 || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let steps = arguments.functions().len() * arguments.places().len() * sizes.len();
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg} ({eta} left)");
    ProgressBar::new(steps as u64).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

impl Tuner<'_> {
    /// Of one function; `None` if it cannot be done so.
    fn function(&self, function: Function, in_place: bool, sizes: &[u64]) -> anyhow::Result<Option<Sizes>> {
        let task = Task {
            root: if function.is_rooted() { self.arguments.root } else { 0 },
            reduce_op: self.arguments.op,
            in_place,
            ..Task::new(function, self.world.clone())
        };
        // A barrier has no sizes.
        let sizes = if function == Function::Barrier { &[0] } else { sizes };
        let mut algorithms: Vec<&Algorithm> =
            catalogue().filter(|a| a.function == function && (a.fits)(&task).is_ok()).collect();
        if algorithms.is_empty() || (in_place && function == Function::Barrier) {
            self.progress.inc(sizes.len() as u64);
            return Ok(None);
        }
        let mut rows = Vec::new();
        for bytes in sizes {
            self.progress.set_message(format!("{function}, {bytes} bytes"));
            let mut timings = Vec::new();
            for algorithm in &algorithms {
                for blocks in &self.arguments.blocks {
                    let call = |n: u64| -> warpway::Result<()> {
                        (0..n).try_for_each(|_| self.call(&task, *bytes, algorithm.name, *blocks))
                    };
                    let microseconds = self.time(call)?;
                    timings.push(Timing { algorithm: algorithm.name.into(), blocks: *blocks, microseconds });
                }
            }
            timings.sort_by(|a, b| a.microseconds.total_cmp(&b.microseconds));
            self.tell(function, in_place, *bytes, &timings);
            let fastest = timings.first().map_or(0.0, |first| first.microseconds);
            algorithms.retain(|algorithm| {
                let of_it = timings.iter().filter(|timing| timing.algorithm == algorithm.name);
                let best = of_it.map(|timing| timing.microseconds).fold(f64::INFINITY, f64::min);
                !algorithm.traits.packets || best <= fastest * HOPELESS
            });
            rows.push(Row { bytes: *bytes, timings });
            self.progress.inc(1);
        }
        let ranks_per_host = self.world.hosts().iter().map(|ranks| ranks.len() as u32).collect();
        Ok(Some(Sizes { function, ranks_per_host, data_type: self.arguments.data_type, in_place, rows }))
    }

    fn call(&self, task: &Task, bytes: u64, algorithm: &str, blocks: u32) -> warpway::Result<()> {
        let (n, element) = (u64::from(self.world.n_ranks()), self.arguments.data_type.bytes());
        let (function, share, count) = (task.function, bytes / n, bytes / n / element);
        let (input, output) = (|bytes| self.input.view_of(0, bytes), |bytes| self.output.view_of(0, bytes));
        let at_root = self.comm.rank() == task.root;
        let counts = vec![count; if function.is_sized() { n as usize } else { 0 }];
        let data_type = self.arguments.data_type;
        let call = match (task.in_place, function) {
            (_, Function::Barrier) => Call::barrier(),
            (true, Function::Gather | Function::Scatter) if !at_root => {
                Call::new_in_place(function, output(share), data_type)
            }
            (true, _) => Call::new_in_place(function, output(bytes), data_type),
            (false, Function::AllGather | Function::AllGatherV | Function::Gather) => {
                Call::new(function, input(share), output(bytes), data_type)
            }
            (false, Function::ReduceScatter | Function::ReduceScatterV | Function::Scatter) => {
                Call::new(function, input(bytes), output(share), data_type)
            }
            (false, _) => Call::new(function, input(bytes), output(bytes), data_type),
        };
        let call = match function {
            Function::AllToAllV => call.with_pair_counts(&counts, &counts),
            _ if function.is_sized() => call.with_counts(&counts),
            _ => call,
        };
        let call = call.with_op(task.reduce_op).with_root(task.root);
        self.comm.collective(&call.with_algorithm(algorithm).with_blocks(blocks))
    }

    /// Median microseconds of a call, as rank 0 measures it.
    fn time(&self, call: impl Fn(u64) -> warpway::Result<()>) -> warpway::Result<f64> {
        // The first sets the plan up, the next takes pages.
        call(2)?;
        let mut calls = 1;
        loop {
            let seconds = self.batch(calls, &call)?;
            let wanted = (calls as f64 * BATCH_SECONDS / seconds.max(1e-9)) as u64;
            let enough = seconds >= BATCH_SECONDS / 2.0 || calls >= BATCH_CALLS;
            let next = if enough { 0 } else { wanted.clamp(calls + 1, (calls * 16).min(BATCH_CALLS)) };
            match self.decided(next)? {
                0 => break,
                more => calls = more,
            }
        }
        let mut samples = Vec::new();
        for _ in 0..self.arguments.batches {
            samples.push(self.batch(calls, &call)? * 1e6 / calls as f64);
        }
        samples.sort_by(f64::total_cmp);
        let median = samples.get(samples.len() / 2).copied().unwrap_or(0.0);
        Ok(f64::from_bits(self.decided(median.to_bits())?))
    }

    fn batch(&self, calls: u64, call: &impl Fn(u64) -> warpway::Result<()>) -> warpway::Result<f64> {
        self.barrier.wait()?;
        let start = Instant::now();
        call(calls)?;
        Ok(start.elapsed().as_secs_f64())
    }

    /// A number of rank 0.
    fn decided(&self, number: u64) -> warpway::Result<u64> {
        let mut bytes = number.to_le_bytes();
        self.comm.bootstrap().broadcast(&mut bytes, 0, self.comm.bootstrap_deadline())?;
        Ok(u64::from_le_bytes(bytes))
    }

    fn tell(&self, function: Function, in_place: bool, bytes: u64, timings: &[Timing]) {
        if self.comm.rank() != 0 || self.arguments.json {
            return;
        }
        let text = |timing: &Timing| {
            let blocks = if timing.blocks == 1 { String::new() } else { format!(" x{}", timing.blocks) };
            format!("{}{blocks} {:.2} µs", timing.algorithm, timing.microseconds)
        };
        let all: Vec<String> = timings.iter().map(text).collect();
        let place = if in_place { "in place" } else { "out of place" };
        self.progress.suspend(|| println!("{function} {place} {bytes:>9} B: {}", all.join(", ")));
    }
}
