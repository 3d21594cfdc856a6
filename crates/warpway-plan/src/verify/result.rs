//! Compares what the ranks hold in the end with the goal: the findings of V7 about outputs.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::findings::Findings;
use super::goal::{Block, PlanGoal, Wanted};
use super::in_place::{View, inputs, outputs};
use super::memory::Content;
use super::options::Options;
use super::report::{Diagnostic, Place, Region};
use super::schedule::Schedule;
use super::symbolic::Memories;
use super::trace::Trace;
use super::values::{Value, Values, list_inputs};
use super::writers::{ChunkAt, last_writers};
use crate::ir::{BufferKind, Collective, ReduceOp};

/// Adds what is wrong with the result.
pub(super) fn check(
    trace: &Trace<'_>,
    schedule: &Schedule,
    options: &Options<'_>,
    memories: &Memories<'_>,
    values: &mut Values,
    findings: &mut Findings,
) {
    let goal = PlanGoal::new(trace.plan(), options);
    let mut check = Check { trace, memories, values, wrong: BTreeMap::new(), op: None, roundings: 0 };
    check.count_roundings();
    let goal = match goal {
        Ok(Some(goal)) => goal,
        Ok(None) => {
            let message =
                format!("the result of a {} plan without a goal is not checked", trace.plan().collective);
            findings.push(Diagnostic::info(707, message));
            return check.finish(schedule, findings);
        }
        Err(diagnostics) => {
            diagnostics.into_iter().for_each(|d| findings.push(d));
            return check.finish(schedule, findings);
        }
    };
    let senders = check.senders(findings);
    for rank in 0..trace.plan().n_ranks() {
        let sender = senders.get(rank as usize).copied().unwrap_or(rank);
        for block in goal.blocks(rank, sender) {
            check.block(rank, &block);
        }
        for kept in goal.kept_inputs(rank, options) {
            check.kept(rank, &kept);
        }
    }
    if goal.is_same_fold_everywhere() {
        check.compare_trees();
    }
    check.finish(schedule, findings);
}

/// The first wrong chunk of a rank by one rule.
struct Wrong {
    diagnostic: Diagnostic,
    /// Its number in the region's buffer.
    chunk: u64,
    /// Where it lies, whose last writers are named.
    at: Vec<ChunkAt>,
    /// Wrong chunks.
    count: u64,
}

struct Check<'t, 'p> {
    trace: &'t Trace<'p>,
    memories: &'t Memories<'p>,
    values: &'t mut Values,
    /// By rule and rank.
    wrong: BTreeMap<(u16, u32), Wrong>,
    /// The operator of the first fold that was found in a result.
    op: Option<ReduceOp>,
    roundings: u32,
}

impl<'t, 'p> Check<'t, 'p> {
    /// Over all outputs, whatever the goal.
    fn count_roundings(&mut self) {
        for rank in 0..self.trace.plan().n_ranks() {
            for (_, content) in self.memories.contents(rank, &outputs(self.trace.plan(), rank)) {
                let most = content.values().map(|value| self.values.folds(value)).max();
                self.roundings = self.roundings.max(most.unwrap_or(0));
            }
        }
    }

    /// Adds the findings, with the operations that wrote the chunks.
    fn finish(mut self, schedule: &Schedule, findings: &mut Findings) {
        if self.roundings > 0 {
            findings.roundings = Some(findings.roundings.unwrap_or(0).max(self.roundings));
        }
        let chunks = self.wrong.values().flat_map(|w| w.at.iter().copied());
        let writers = match self.wrong.is_empty() {
            true => BTreeMap::new(),
            false => last_writers(self.trace, schedule, chunks),
        };
        for ((_, rank), wrong) in std::mem::take(&mut self.wrong) {
            let Wrong { mut diagnostic, chunk, at, count } = wrong;
            diagnostic.places = at.iter().filter_map(|chunk| writers.get(chunk)).cloned().collect();
            if diagnostic.rule.0 == 704 && !diagnostic.places.is_empty() {
                // Somebody wrote it, but what was copied there had never been written itself.
                diagnostic = Diagnostic {
                    message: format!("rank {rank} output chunk {chunk} holds what was never written"),
                    hint: "write the source before it is copied".to_owned(),
                    rule: super::report::Rule(703),
                    ..diagnostic
                };
            }
            if diagnostic.places.is_empty() {
                diagnostic.places.push(Place::rank(rank));
            }
            if count > 1 {
                diagnostic.message.push_str(&format!(" ({count} chunks of this rank are wrong like it)"));
            }
            findings.push(diagnostic);
        }
    }

    /// Which rank's input each rank holds, for send-receive; adds a note or an error unless it is the usual shift.
    fn senders(&mut self, findings: &mut Findings) -> Vec<u32> {
        let plan = self.trace.plan();
        if plan.collective != Collective::SendRecv {
            return Vec::new();
        }
        let n = plan.n_ranks();
        let usual = |rank: u32| (rank + n - 1) % n;
        let sender = |rank: u32| {
            let (_, content) = self.memories.contents(rank, &outputs(plan, rank)).next()?;
            self.values.input_rank(content.values().next()?)
        };
        let senders: Vec<u32> = (0..n).map(|rank| sender(rank).unwrap_or_else(|| usual(rank))).collect();
        let distinct: BTreeSet<u32> = senders.iter().copied().collect();
        if distinct.len() < senders.len() {
            // No permutation: say what the usual one would need.
            return (0..n).map(usual).collect();
        }
        if (0..n).zip(&senders).any(|(rank, sender)| *sender != usual(rank)) {
            let pairs = (0..n).zip(&senders).take(16).map(|(to, from)| format!("{from}->{to}"));
            let pairs: Vec<String> = pairs.collect();
            let more = if n > 16 { ", …" } else { "" };
            let message = format!("data goes {}{more}, not to the next rank", pairs.join(", "));
            findings.push(Diagnostic::info(707, message));
        }
        senders
    }

    /// Compares the chunks of one block.
    fn block(&mut self, rank: u32, block: &Block) {
        let view = outputs(self.trace.plan(), rank);
        let first = view.chunks.start;
        let absolute = |chunk: u64| first.saturating_add(chunk);
        let chunks = absolute(block.chunks.start)..absolute(block.chunks.end);
        let memories = self.memories;
        for (chunks, content) in memories.contents(rank, &View { chunks, ..view.clone() }) {
            let chunks = chunks.start - first..chunks.end - first;
            for value in content.values() {
                self.value(rank, &view, &chunks, value.shifted(first), &block.wanted);
            }
        }
    }

    /// Compares the value that `chunks` of an output hold.
    fn value(&mut self, rank: u32, view: &View, chunks: &Range<u64>, value: Value, wanted: &Wanted) {
        let x = chunks.start;
        let name = format_args!("rank {rank} output chunk {x}");
        let (rule, message, hint) = match value {
            Value::REPORTED => return,
            Value::UNDEFINED => (704, format!("{name} is never written"), "write it on every way to the end"),
            Value::MIXED => {
                let hint = "cut all operations on it the same way";
                (701, format!("{name} holds different values in pieces that were cut differently"), hint)
            }
            _ => match wanted {
                Wanted::Input { rank: of, offset } => {
                    if value == Value::input(*of, *offset) {
                        return;
                    }
                    let wanted = list_inputs(std::iter::once((*of, offset.wrapping_add(x), 1)));
                    let holds = self.values.describe(value, x);
                    let hint = "check the chunk numbers on the way from the input to here";
                    (701, format!("{name} holds {holds} instead of {wanted}"), hint)
                }
                Wanted::FoldOfAll { .. } | Wanted::Fold(_) => {
                    let Some(difference) = self.difference(value, wanted, x) else { return };
                    let holds = self.values.describe(value, x);
                    (difference.rule, format!("{name} holds {holds}{}", difference.text), difference.hint)
                }
            },
        };
        let diagnostic = Diagnostic::error(rule, message).hint(hint);
        self.add((rank, BufferKind::Output), view, chunks, diagnostic);
    }

    /// What a fold lacks or has too much.
    fn difference(&mut self, value: Value, wanted: &Wanted, x: u64) -> Option<Difference> {
        let Some(found) = self.values.contributions(value) else {
            return Some(Difference { rule: 409, text: String::new(), hint: "" });
        };
        let shift = |c: &super::values::Contribution| (c.rank, c.offset.wrapping_add(value.offset));
        let n = self.trace.plan().n_ranks();
        let complete = match wanted {
            Wanted::FoldOfAll { offset } => {
                let expected = (0..n).map(|rank| ((rank, *offset), 1));
                found.len() as u64 == u64::from(n) && found.iter().map(|c| (shift(c), c.count)).eq(expected)
            }
            _ => false,
        };
        if !complete {
            let mut balance: BTreeMap<(u32, u64), (u64, u64)> = BTreeMap::new();
            for contribution in found.iter() {
                let found = &mut balance.entry(shift(contribution)).or_default().0;
                *found = found.saturating_add(contribution.count);
            }
            match wanted {
                Wanted::FoldOfAll { offset } => {
                    (0..n).for_each(|rank| balance.entry((rank, *offset)).or_default().1 += 1);
                }
                Wanted::Fold(list) => {
                    list.iter().for_each(|c| balance.entry((c.rank, c.offset)).or_default().1 += c.count);
                }
                Wanted::Input { .. } => {}
            }
            let select = |is: fn(u64, u64) -> bool| {
                let chosen = balance.iter().filter(move |(_, (found, wanted))| is(*found, *wanted));
                let list: Vec<_> = chosen.map(|((rank, at), _)| (*rank, at.wrapping_add(x), 1)).collect();
                (!list.is_empty()).then(|| list_inputs(list.into_iter()))
            };
            let foreign = select(|found, wanted| found > 0 && wanted == 0);
            let missing = select(|found, wanted| found < wanted);
            let twice = select(|found, wanted| wanted > 0 && found > wanted);
            let (rule, hint) = match (&foreign, &missing) {
                (Some(_), _) => (701, "check the chunk numbers on the way from the inputs to here"),
                (None, Some(_)) => (702, "fold the missing inputs in, once each"),
                (None, None) => (702, "fold each input once: a partial result may hold it already"),
            };
            let named = [("missing", missing), ("counted twice", twice), ("not wanted", foreign)];
            let parts: Vec<String> =
                named.into_iter().filter_map(|(what, list)| Some(format!("{what} {}", list?))).collect();
            if !parts.is_empty() {
                return Some(Difference { rule, text: format!("; {}", parts.join("; ")), hint });
            }
        }
        let op = self.values.op(value)?;
        let expected = *self.op.get_or_insert(op);
        if op != expected {
            let text = format!(", but other chunks of the result are folded with {expected}");
            return Some(Difference { rule: 706, text, hint: "one result takes one reduce_op" });
        }
        let unfinished = op == ReduceOp::Avg && self.values.is_consumed(value);
        unfinished.then(|| {
            let text = ", a partial result that also enters another fold: integers would not be divided";
            let hint = "store only the last fold of an average in the output";
            Difference { rule: 701, text: text.to_owned(), hint }
        })
    }

    /// Chunks of an input that nobody may change.
    fn kept(&mut self, rank: u32, view: &View) {
        let input = inputs(self.trace.plan(), rank);
        let first = input.chunks.start;
        let memories = self.memories;
        for (chunks, content) in memories.contents(rank, view) {
            let chunks = chunks.start - first..chunks.end - first;
            for value in content.values() {
                let value = value.shifted(first);
                if value == Value::input(rank, 0) || value == Value::REPORTED {
                    continue;
                }
                let x = chunks.start;
                let holds = self.values.describe(value, x);
                let message = format!("rank {rank} input chunk {x} is overwritten and holds {holds}");
                let hint = "work in the output or in scratch, or allow it with may_clobber_input";
                let diagnostic = Diagnostic::error(701, message).hint(hint);
                self.add((rank, BufferKind::Input), &input, &chunks, diagnostic);
            }
        }
    }

    /// V711: every rank against rank 0, chunk by chunk.
    fn compare_trees(&mut self) {
        let plan = self.trace.plan();
        let memories = self.memories;
        let first = outputs(plan, 0);
        for rank in 1..plan.n_ranks() {
            let view = outputs(plan, rank);
            let mut left = memories.contents(0, &first);
            let mut right = memories.contents(rank, &view);
            let (mut a, mut b) = (left.next(), right.next());
            // Both begin at 0 in an all-reduce, so chunks and offsets can be compared as they are.
            while let (Some((chunks, content)), Some((others, other))) = (&a, &b) {
                if self.trees_differ(content, other) {
                    let x = chunks.start.max(others.start);
                    let until = chunks.end.min(others.end);
                    self.add_tree(rank, [&first, &view], x..until, [content, other]);
                    break;
                }
                let (end, other_end) = (chunks.end, others.end);
                if end <= other_end {
                    a = left.next();
                }
                if other_end <= end {
                    b = right.next();
                }
            }
        }
    }

    /// False for wrong results, which have findings of their own, and where any order gives the same bits.
    fn trees_differ(&self, content: &Content, other: &Content) -> bool {
        let exact = |value: Value| match self.values.op(value) {
            Some(ReduceOp::Min | ReduceOp::Max) | None => true,
            Some(ReduceOp::Sum | ReduceOp::Prod | ReduceOp::Avg) => false,
        };
        !content.equals(other) && !content.values().all(exact) && !other.values().all(exact)
    }

    fn add_tree(&mut self, rank: u32, views: [&View; 2], chunks: Range<u64>, contents: [&Content; 2]) {
        let x = chunks.start;
        if self.wrong.keys().any(|(rule, of)| *rule != 711 && (*of == 0 || *of == rank)) {
            return;
        }
        let [mine, theirs] = contents.map(|content| {
            content.values().next().map_or_else(String::new, |value| self.values.describe_tree(value, x))
        });
        let message = format!(
            "output chunk {x} is folded as {mine} on rank 0 and as {theirs} on rank {rank}, so the bits of floats \
             may differ"
        );
        let hint = "let every rank fold in the same order (`order`), or fold once and send the result";
        let diagnostic = Diagnostic::warning(711, message).hint(hint);
        self.add((rank, BufferKind::Output), views[1], &chunks, diagnostic);
        if let Some(wrong) = self.wrong.get_mut(&(711, rank))
            && wrong.at.len() == 1
        {
            wrong.at.insert(0, ChunkAt { rank: 0, buffer: views[0].buffer, chunk: x });
        }
    }

    /// Keeps the first chunk of each rule and rank, and counts the others. `chunks` are counted from the first of
    /// `view`, which is where the buffer lies.
    fn add(
        &mut self,
        (rank, buffer): (u32, BufferKind),
        view: &View,
        chunks: &Range<u64>,
        diagnostic: Diagnostic,
    ) {
        let count = chunks.end - chunks.start;
        let known = self.wrong.entry((diagnostic.rule.0, rank));
        known.and_modify(|wrong| wrong.count = wrong.count.saturating_add(count)).or_insert_with(|| {
            let chunk = view.chunks.start.saturating_add(chunks.start);
            let at = vec![ChunkAt { rank, buffer: view.buffer, chunk }];
            let region = Region { rank, buffer, chunks: (chunks.start, chunks.end) };
            Wrong { diagnostic: diagnostic.region(region), chunk: chunks.start, at, count }
        });
    }
}

/// How a fold differs from the goal.
struct Difference {
    rule: u16,
    text: String,
    hint: &'static str,
}
