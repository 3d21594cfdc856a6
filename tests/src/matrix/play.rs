//! One rank's part of a case.

use warpway::collectives::Function;
use warpway::{Buffer, BufferView, Call, Communicator, Counts, Result};

use super::case::Case;
use super::shape::{Parts, Shape};
use super::window::{Window, Windows};
use crate::report::Line;

/// How cases went on one rank.
#[derive(Debug, Default, Clone)]
pub struct Verdict {
    /// Cases that were played.
    pub cases: u64,
    /// Those that went wrong, in words, the first ones.
    pub failures: Vec<String>,
    /// How many went wrong.
    pub failed: u64,
}

impl Verdict {
    /// Says it as a rank that is a process.
    pub fn say(&self) {
        Line::Figure("cases".into(), self.cases).say();
        Line::Figure("failed".into(), self.failed).say();
        self.failures.iter().for_each(Line::mark);
    }

    /// What ranks have said.
    pub fn heard<'l>(lines: impl IntoIterator<Item = &'l Line>) -> Self {
        let mut verdict = Self::default();
        for line in lines {
            match line {
                Line::Figure(name, number) if name == "cases" => verdict.cases += number,
                Line::Figure(name, number) if name == "failed" => verdict.failed += number,
                Line::Mark(text) if text.starts_with("rank ") => verdict.failures.push(text.clone()),
                _ => {}
            }
        }
        verdict
    }

    /// Adds that of another rank or communicator.
    pub fn add(&mut self, other: Self) {
        self.cases += other.cases;
        self.failed += other.failed;
        self.failures.extend(other.failures);
        self.failures.truncate(20);
    }
}

/// Plays cases in order. A wrong result is noted, and the next case played.
///
/// # Errors
/// Those of calls.
pub fn play_all(comm: &Communicator, cases: impl IntoIterator<Item = Case>) -> Result<Verdict> {
    let mut stage = Stage::new(1 << 14);
    let mut verdict = Verdict::default();
    for case in cases {
        verdict.cases += 1;
        let wrong = stage.play(comm, &case).inspect_err(|error| {
            eprintln!("rank {} of {}: {case}: {error}", comm.rank(), comm.n_ranks());
        })?;
        if let Some(wrong) = wrong {
            verdict.failed += 1;
            if verdict.failures.len() < 5 {
                verdict.failures.push(format!("rank {} of {}: {case}: {wrong}", comm.rank(), comm.n_ranks()));
            }
        }
    }
    comm.barrier()?;
    Ok(verdict)
}

/// Calls again and again what a case calls, without looking at the results: most of the time is spent within calls.
///
/// # Errors
/// That of a call.
pub fn repeat(comm: &Communicator, case: &Case, times: u64) -> Result<()> {
    let shape = Shape::new(case, comm.rank(), comm.n_ranks());
    let size = case.data_type.bytes();
    let bytes =
        if case.in_place { [shape.whole * size, 0] } else { [shape.input * size, shape.output * size] };
    let [mut first, mut second] = bytes.map(|bytes| vec![1u8; bytes as usize]);
    for _ in 0..times {
        let output = if case.in_place { None } else { Some((&mut second[..]).into()) };
        call(comm, case, &shape.parts, (&mut first[..]).into(), output)?;
    }
    Ok(())
}

/// Buffers that are used again and again, larger ones when they are needed.
pub(super) struct Stage {
    /// Bytes of a buffer at least.
    least: u64,
    registered: [Option<Buffer<u8>>; 2],
    slices: [Vec<u8>; 2],
}

impl Stage {
    pub(super) fn new(least: u64) -> Self {
        Self { least, registered: Default::default(), slices: Default::default() }
    }

    /// What is wrong, if anything is.
    pub(super) fn play(&mut self, comm: &Communicator, case: &Case) -> Result<Option<String>> {
        let (rank, n) = (comm.rank(), comm.n_ranks());
        let shape = Shape::new(case, rank, n);
        let windows = Windows::of(case, &shape, rank, n).all;
        match case.memory.is_registered(rank, case.seed) {
            true => self.on_registered(comm, case, &shape.parts, &windows),
            false => self.on_slices(comm, case, &shape.parts, &windows),
        }
    }

    fn on_registered(
        &mut self,
        comm: &Communicator,
        case: &Case,
        parts: &[Parts],
        windows: &[Window],
    ) -> Result<Option<String>> {
        for (buffer, window) in self.registered.iter_mut().zip(windows) {
            let room = window.before.len() as u64;
            let buffer = match buffer.take().filter(|buffer| buffer.len() >= room) {
                Some(enough) => buffer.insert(enough),
                None => buffer.insert(comm.alloc(room.next_power_of_two().max(self.least))?),
            };
            buffer.write(0, &window.before)?;
        }
        let buffers: Vec<&Buffer<u8>> = self.registered.iter().flatten().take(windows.len()).collect();
        let view = |at: usize| buffers[at].view_of(windows[at].start as u64, windows[at].bytes as u64);
        let second = if case.in_place { None } else { Some(view(1)) };
        call(comm, case, parts, view(0), second)?;
        for (at, (buffer, window)) in buffers.iter().zip(windows).enumerate() {
            let mut found = vec![0; window.after.len()];
            buffer.read(0, &mut found)?;
            if let Some(wrong) = difference(case, at, window, &found) {
                return Ok(Some(wrong));
            }
        }
        Ok(None)
    }

    fn on_slices(
        &mut self,
        comm: &Communicator,
        case: &Case,
        parts: &[Parts],
        windows: &[Window],
    ) -> Result<Option<String>> {
        for (slice, window) in self.slices.iter_mut().zip(windows) {
            slice.clear();
            slice.extend_from_slice(&window.before);
        }
        let [first, second] = &mut self.slices;
        let range = |at: usize| windows[at].start..windows[at].start + windows[at].bytes;
        if case.in_place {
            call(comm, case, parts, (&mut first[range(0)]).into(), None)?;
        } else {
            call(comm, case, parts, (&first[range(0)]).into(), Some((&mut second[range(1)]).into()))?;
        }
        let found = self.slices.iter().zip(windows).enumerate();
        Ok(found.into_iter().find_map(|(at, (found, window))| difference(case, at, window, found)))
    }
}

fn call(
    comm: &Communicator,
    case: &Case,
    parts: &[Parts],
    first: BufferView<'_>,
    second: Option<BufferView<'_>>,
) -> Result<()> {
    let mut call = match second {
        Some(output) => Call::new(case.function, first, output, case.data_type),
        None => Call::new_in_place(case.function, first, case.data_type),
    };
    call = call.with_op(case.op).with_root(case.root).with_packets(case.packets);
    if let Some(algorithm) = case.algorithm {
        call = call.with_algorithm(algorithm.name);
    }
    if let Some(blocks) = case.blocks {
        call = call.with_blocks(blocks);
    }
    let counts: Vec<Counts<'_>> = parts
        .iter()
        .map(|parts| match case.displaced {
            true => Counts::at(&parts.counts, &parts.places),
            false => (&parts.counts).into(),
        })
        .collect();
    call = match (case.function, &counts[..]) {
        (Function::AllToAllV, [send, receive]) => call.with_pair_counts(*send, *receive),
        (_, [counts]) => call.with_counts(*counts),
        _ => call,
    };
    comm.collective(&call)
}

fn difference(case: &Case, at: usize, window: &Window, found: &[u8]) -> Option<String> {
    window.difference(if case.in_place { "buffer" } else { ["input", "output"][at] }, found)
}
