//! What the plan computes: its steps, in an order in which they can happen, on symbols.
//!
//! Only plans without races get here, so every order gives the same result: a read finds the last write that is
//! ordered before it.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

use super::fold_roles::RoleBook;
use super::in_place::{self, View};
use super::memory::{Content, Memory, Partition, Piece, Run};
use super::report::{Diagnostic, OpPath, Region};
use super::schedule::Schedule;
use super::trace::{Step, Trace};
use super::values::{FoldFlaw, Value, Values};
use super::{Findings, Options, goal, result};
use crate::ir::{Action, BufferKind, DataOperation, Form, Plan, ReduceOp, Reference};

/// Runs the plan on symbols and compares the result with the goal of its collective.
pub(super) fn check(trace: &Trace<'_>, schedule: &Schedule, options: &Options<'_>, findings: &mut Findings) {
    let budget = (trace.steps.len() as u64).saturating_mul(8).saturating_add(LEAST_BUDGET);
    let counting = (trace.steps.len() as u64).saturating_mul(4).saturating_add(LEAST_COUNTING);
    let mut machine = Machine::new(trace, counting);
    for &(block, step) in &schedule.order {
        let Some(of_trace) = trace.steps.get(step as usize) else { continue };
        if let Action::Data(data) = of_trace.action {
            machine.at = (block as usize, step as usize);
            machine.run(data, of_trace);
        }
        if machine.spent > budget {
            let place = trace.place(block as usize, step as usize);
            findings.push(goal::too_much().at(place));
            return;
        }
    }
    let Machine { mut values, memory, diagnostics, roles, .. } = machine;
    diagnostics.into_iter().for_each(|d| findings.push(d));
    result::check(trace, schedule, options, &memory, &mut values, findings);
    roles.settle(&values, findings);
}

/// Runs of chunks that are looked at, beyond eight per step, before giving up.
const LEAST_BUDGET: u64 = 1 << 24;

/// The same for contributions that are counted, beyond four per step.
const LEAST_COUNTING: u64 = 1 << 21;

/// The memory of all ranks.
pub(super) struct Memories<'p> {
    plan: &'p Plan,
    /// By rank: input, output, raw scratch, packets.
    by_rank: Vec<[Memory; 4]>,
}

impl<'p> Memories<'p> {
    /// Inputs hold themselves, the rest nothing.
    fn new(plan: &'p Plan) -> Self {
        let by_rank = plan.ranks.iter().map(|_| [(); 4].map(|()| Memory::undefined())).collect();
        let mut memories = Self { plan, by_rank };
        for rank in 0..plan.n_ranks() {
            let View { buffer, chunks } = in_place::inputs(plan, rank);
            let value = Value::input(rank, 0).shifted(0_u64.wrapping_sub(chunks.start));
            if let Some(memory) = memories.at_home(rank, buffer, Form::Raw) {
                memory.fill(chunks, value);
            }
        }
        memories
    }

    /// Where a buffer lies, and the number of its first chunk there.
    fn locate(&mut self, rank: u32, buffer: BufferKind, form: Form) -> (Option<&mut Memory>, u64) {
        let (home, first) = in_place::home(self.plan, rank, buffer);
        (self.at_home(rank, home, form), first)
    }

    fn at_home(&mut self, rank: u32, buffer: BufferKind, form: Form) -> Option<&mut Memory> {
        self.by_rank.get_mut(rank as usize)?.get_mut(slot(buffer, form))
    }

    /// What raw chunks of a buffer that is a home hold.
    pub(super) fn contents(&self, rank: u32, view: &View) -> impl Iterator<Item = (Range<u64>, &Content)> {
        let memory = self.by_rank.get(rank as usize).and_then(|of| of.get(slot(view.buffer, Form::Raw)));
        memory.into_iter().flat_map(|m| m.contents(view.chunks.clone()))
    }
}

fn slot(buffer: BufferKind, form: Form) -> usize {
    match (buffer, form) {
        (BufferKind::Input, _) => 0,
        (BufferKind::Output, _) => 1,
        (BufferKind::Scratch, Form::Raw) => 2,
        (BufferKind::Scratch, Form::Packets) => 3,
    }
}

/// Chunks of one buffer that an operation reads or writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Side {
    rank: u32,
    buffer: BufferKind,
    form: Form,
    /// First chunk.
    index: u64,
}

/// The piece of an item that a step works on; where the item lies is different for each side.
#[derive(Debug, Clone, Copy)]
struct Cut {
    /// Chunks of the item.
    size: u64,
    by_chunk: bool,
    members: u32,
    slice: u64,
    slices: u64,
    label: u64,
}

impl Cut {
    fn piece(&self, first: u64) -> Piece {
        let item = if self.by_chunk { (0, 0) } else { (first, self.size) };
        let Self { members, slice, slices, label, .. } = *self;
        Piece { partition: Partition { item, members, slice, slices }, label }
    }
}

/// A switch reduction that is done piece by piece: who, from where, to where, how many chunks; and which of its
/// repetitions.
type SwitchKey = (u32, Side, Side, u64, u64);

struct Machine<'t, 'p> {
    trace: &'t Trace<'p>,
    values: Values,
    memory: Memories<'p>,
    /// Block and step that is being run.
    at: (usize, usize),
    spent: u64,
    diagnostics: Vec<Diagnostic>,
    /// What was found at an operation is said once.
    reported: BTreeSet<(usize, OpPath, u16)>,
    roles: RoleBook,
    is_sized: bool,
    /// Numbers of the switch reductions, and how often each piece of one was done.
    instances: HashMap<SwitchKey, u32>,
    repetitions: HashMap<(SwitchKey, u64), u64>,
}

impl<'t, 'p> Machine<'t, 'p> {
    fn new(trace: &'t Trace<'p>, counting: u64) -> Self {
        let plan = trace.plan();
        Self {
            trace,
            values: Values::new(plan.n_ranks(), counting),
            memory: Memories::new(plan),
            at: (0, 0),
            spent: 0,
            diagnostics: Vec::new(),
            reported: BTreeSet::new(),
            roles: RoleBook::default(),
            is_sized: plan.ranks.iter().any(|rank| rank.size_ids.is_some()),
            instances: HashMap::new(),
            repetitions: HashMap::new(),
        }
    }

    fn run(&mut self, data: &DataOperation, step: &Step<'_>) {
        for item in data.items() {
            let references = item.sources.iter().chain(item.destinations);
            let size = references.map(Reference::size).min().unwrap_or(0);
            let Some(cut) = self.cut(data, step, size) else { continue };
            let from = self.sides(data, item.sources, |at| data.source_form(item.first.0 + at));
            let to = self.sides(data, item.destinations, |at| data.destination_form(item.first.1 + at));
            let read: Vec<Vec<Run>> = from.iter().map(|side| self.read(side, &cut)).collect();
            let runs = if data.kind.is_fold() {
                let order: Vec<usize> = data.fold_order().filter(|at| *at < from.len()).collect();
                self.fold(data, &from, &read, &order, None)
            } else if data.kind.is_switch_fold() {
                let order: Vec<usize> = (0..from.len()).collect();
                let instance = self.instance(&from, &to, &cut);
                self.fold(data, &from, &read, &order, Some(instance))
            } else {
                self.carry(data, &from, read, &to)
            };
            let windows =
                self.windows(data, item.destinations, |at| data.destination_form(item.first.1 + at));
            for (side, window) in to.iter().zip(windows) {
                if let Some(slices) = window {
                    self.spoil(side, &cut, &runs, slices);
                }
                let (memory, first) = self.memory.locate(side.rank, side.buffer, side.form);
                let first = first.saturating_add(side.index);
                self.spent += memory.map_or(0, |m| m.write(first, &cut.piece(first), &runs));
            }
        }
    }

    /// The piece that a step works on; `None` if its slice lies behind the end of its share.
    fn cut(&mut self, data: &DataOperation, step: &Step<'_>, size: u64) -> Option<Cut> {
        let chunks = if self.is_sized { size.min(1) } else { size };
        let units = u128::from(chunks) * u128::from(self.trace.scale.chunk);
        let members = data.group.map_or(1, |g| g.size.max(1));
        let member = data.group.map_or(0, |g| g.member.min(members - 1));
        let start = |t: u32| units * u128::from(t) / u128::from(members);
        let (mut slice, mut slices, mut iteration) = (0, 1, 0);
        if let Some(window) = step.slice {
            slice = window.units.max(1);
            iteration = window.iteration;
            if u128::from(iteration) * u128::from(slice) >= start(member + 1) - start(member) {
                return None;
            }
            let largest = units.div_ceil(u128::from(members)).div_ceil(u128::from(slice));
            slices = u64::try_from(largest).unwrap_or(u64::MAX);
        }
        let label = u64::from(member).checked_mul(slices).and_then(|label| label.checked_add(iteration));
        if label.is_none() {
            self.spent = u64::MAX;
        }
        Some(Cut { size, by_chunk: self.is_sized, members, slice, slices, label: label? })
    }

    /// The buffers behind references, in list order; several for a multicast region.
    fn sides(
        &self,
        data: &DataOperation,
        references: &[Reference],
        form: impl Fn(usize) -> Form,
    ) -> Vec<Side> {
        let mut sides = Vec::with_capacity(references.len());
        for (at, reference) in references.iter().enumerate() {
            let side = |(rank, buffer)| Side { rank, buffer, form: form(at), index: reference.index() };
            sides.extend(self.trace.targets(self.at.0, data, reference).into_iter().map(side));
        }
        sides
    }

    /// For each side, after how many slices pipelines come back to its bytes.
    fn windows(
        &self,
        data: &DataOperation,
        references: &[Reference],
        form: impl Fn(usize) -> Form,
    ) -> Vec<Option<u64>> {
        let mut windows = Vec::with_capacity(references.len());
        for (at, reference) in references.iter().enumerate() {
            let targets = self.trace.targets(self.at.0, data, reference);
            let window = |(_, buffer)| self.trace.window_of(data, reference, buffer, form(at));
            windows.extend(targets.into_iter().map(window));
        }
        windows
    }

    /// Forgets what other slices left in the bytes that are about to be written.
    fn spoil(&mut self, side: &Side, cut: &Cut, runs: &[Run], slices: u64) {
        let (memory, first) = self.memory.locate(side.rank, side.buffer, side.form);
        let (Some(memory), true) = (memory, cut.slices > 1 && slices > 0) else { return };
        let first = first.saturating_add(side.index);
        let lost: Vec<Run> = runs.iter().map(|(chunks, _)| (chunks.clone(), Value::UNDEFINED)).collect();
        let mut label = cut.label % slices;
        while label < cut.slices {
            if label != cut.label {
                self.spent += memory.write(first, &Cut { label, ..*cut }.piece(first), &lost);
            }
            label += slices;
        }
    }

    /// Chunks are counted from the first of the item.
    fn read(&mut self, side: &Side, cut: &Cut) -> Vec<Run> {
        let mut runs = Vec::with_capacity(1);
        let (memory, first) = self.memory.locate(side.rank, side.buffer, side.form);
        let first = first.saturating_add(side.index);
        let item = first..first.saturating_add(cut.size);
        self.spent += memory.map_or(0, |m| m.read(item, &cut.piece(first), &mut runs));
        runs
    }

    /// Moves the value of the first source.
    fn carry(&mut self, data: &DataOperation, from: &[Side], read: Vec<Vec<Run>>, to: &[Side]) -> Vec<Run> {
        let (Some(mut runs), Some(source)) = (read.into_iter().next(), from.first()) else {
            return Vec::new();
        };
        // Another slice's bytes must not be taken for the read's own.
        let leaves = self.trace.window.is_some() || to.iter().any(|side| side.rank != source.rank);
        for (chunks, value) in &mut runs {
            match *value {
                Value::UNDEFINED if leaves => self.undefined(data, "moves", source, chunks),
                Value::MIXED => self.mixed(data, source, chunks),
                _ => continue,
            }
            *value = Value::REPORTED;
        }
        runs
    }

    /// Joins all sources, in `order`. `instance` is given for the multicast hardware.
    fn fold(
        &mut self,
        data: &DataOperation,
        from: &[Side],
        read: &[Vec<Run>],
        order: &[usize],
        instance: Option<u32>,
    ) -> Vec<Run> {
        let op = data.fold.as_ref().map_or(ReduceOp::Sum, |fold| fold.op);
        let mut runs: Vec<Run> = Vec::with_capacity(1);
        let mut next = vec![0; read.len()];
        let mut sources = Vec::with_capacity(order.len());
        let mut start = 0;
        loop {
            // The longest run of chunks from `start` in which no source changes.
            let current = |at: usize| read.get(at).and_then(|r| r.get(*next.get(at)?));
            let ends = (0..read.len()).map(|at| current(at).map_or(start, |(chunks, _)| chunks.end));
            let end = ends.min().unwrap_or(start);
            if end <= start {
                return runs;
            }
            sources.clear();
            sources.extend(order.iter().filter_map(|at| current(*at)).map(|(_, value)| *value));
            let result = match instance {
                None => self.values.fold(op, &sources),
                Some(instance) => self.values.switch_fold(op, instance, &sources),
            };
            let value = match result {
                Ok(value) => {
                    if op == ReduceOp::Avg {
                        let current: Vec<Value> =
                            (0..read.len()).filter_map(current).map(|(_, value)| *value).collect();
                        let inputs = current.iter().map(|v| self.values.input_rank(*v).is_some()).collect();
                        let (block, step) = self.at;
                        self.roles.record(self.trace.place(block, step), inputs, value);
                    }
                    value
                }
                Err(flaw) => {
                    self.flaw(data, op, flaw, (from, order), &(start..end));
                    Value::REPORTED
                }
            };
            self.spent += read.len() as u64;
            runs.push((start..end, value));
            for (at, next) in next.iter_mut().enumerate() {
                *next += usize::from(read[at].get(*next).is_some_and(|(chunks, _)| chunks.end == end));
            }
            start = end;
        }
    }

    /// Pieces of one switch reduction are one instance; repeating it makes another.
    fn instance(&mut self, from: &[Side], to: &[Side], cut: &Cut) -> u32 {
        let (Some(first), Some(into)) = (from.first(), to.first()) else { return 0 };
        let rank = self.trace.blocks[self.at.0].rank;
        let key = (rank, *first, *into, cut.size, 0);
        let repetition = self.repetitions.entry((key, cut.label)).or_default();
        let key = (rank, *first, *into, cut.size, *repetition);
        *repetition += 1;
        let number = self.instances.len() as u32;
        *self.instances.entry(key).or_insert(number)
    }

    fn flaw(
        &mut self,
        data: &DataOperation,
        op: ReduceOp,
        flaw: FoldFlaw,
        (from, order): (&[Side], &[usize]),
        chunks: &Range<u64>,
    ) {
        let side = |at: usize| order.get(at).and_then(|at| from.get(*at)).copied();
        match flaw {
            FoldFlaw::Reported => {}
            FoldFlaw::Undefined(at) => {
                if let Some(side) = side(at) {
                    self.undefined(data, "folds", &side, chunks);
                }
            }
            FoldFlaw::Mixed(at) => {
                if let Some(side) = side(at) {
                    self.mixed(data, &side, chunks);
                }
            }
            FoldFlaw::Operator(at, other) => {
                let Some(side) = side(at) else { return };
                let message = format!("{} folds with {op} what was folded with {other}", data.kind);
                let hint = "one result takes one reduce_op";
                self.report(Diagnostic::error(706, message).hint(hint), &side, chunks);
            }
        }
    }

    fn undefined(&mut self, data: &DataOperation, verb: &str, side: &Side, chunks: &Range<u64>) {
        let first = side.index.saturating_add(chunks.start);
        let Side { rank, buffer, form, .. } = *side;
        let what = if form == Form::Packets { "packets of " } else { "" };
        let message =
            format!("{} {verb} what was never written: {what}rank {rank} {buffer} chunk {first}", data.kind);
        let hint = "write it before, on this way to here";
        self.report(Diagnostic::error(703, message).hint(hint), side, chunks);
    }

    fn mixed(&mut self, data: &DataOperation, side: &Side, chunks: &Range<u64>) {
        let first = side.index.saturating_add(chunks.start);
        let Side { rank, buffer, .. } = *side;
        let message = format!(
            "{} reads rank {rank} {buffer} chunk {first}, whose pieces hold different values and were cut in \
             another way, so what it gets depends on the size",
            data.kind
        );
        let hint = "cut both the same way: the same chunks, tbg_size and unit_size";
        self.report(Diagnostic::error(701, message).hint(hint), side, chunks);
    }

    fn report(&mut self, diagnostic: Diagnostic, side: &Side, chunks: &Range<u64>) {
        let (block, step) = self.at;
        let place = self.trace.place(block, step);
        let Some(path) = place.op else { return };
        if self.reported.insert((block, path, diagnostic.rule.0)) {
            let absolute = |chunk: u64| side.index.saturating_add(chunk);
            let chunks = (absolute(chunks.start), absolute(chunks.end));
            let region = Region { rank: side.rank, buffer: side.buffer, chunks };
            self.diagnostics.push(diagnostic.at(place).region(region));
        }
    }
}
