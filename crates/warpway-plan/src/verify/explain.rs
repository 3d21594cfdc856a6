//! Problems become findings: which rule explains it best, and what would put it right.

use std::collections::BTreeSet;

use super::accesses::Mode;
use super::cells::Party;
use super::counterexample::{Act, Counterexamples, Later};
use super::findings::{Findings, operation_at};
use super::order::operation_place;
use super::packets::region;
use super::path::{Cause, Edge, Spot};
use super::races::{Problem, Replay};
use super::report::{Diagnostic, Place, Region};
use super::trace::Trace;
use crate::ir::{Action, BufferKind, ChannelType};
use crate::repairs::OrderedPair;

/// Problems for which the edges are searched. More findings of a rule are only counted in any case.
const MOST_EXPLAINED: usize = 100;

/// Reports every problem of a replay once, whatever the iteration of a pipeline.
pub(super) fn report(
    trace: &Trace<'_>,
    replay: &mut Replay<'_, '_>,
    examples: &Counterexamples<'_, '_>,
    findings: &mut Findings,
) {
    let mut seen = BTreeSet::new();
    let mut explained = 0;
    let problems = std::mem::take(&mut replay.problems);
    let mut explain = Explain { trace, replay, examples, missing_nops: BTreeSet::new() };
    for problem in problems {
        let (kind, parties): (u8, Vec<&Party>) = match &problem {
            Problem::Race(a, b) => (0, vec![a, b]),
            Problem::NotStarted(party) => (1, vec![party]),
            Problem::NotOver(party) => (2, vec![party]),
            Problem::NotComplete(party) => (3, vec![party]),
            Problem::Unwritten(party) => (4, vec![party]),
        };
        let places: Vec<_> = parties
            .iter()
            .map(|party| {
                let place = operation_place(trace, party.by.block, party.by.step);
                (place, party.mode, region(trace, &party.extent))
            })
            .collect();
        if !seen.insert((kind, places)) {
            continue;
        }
        let needs_search = matches!(problem, Problem::Race(..) | Problem::NotOver(_));
        explained += usize::from(needs_search);
        if !needs_search || explained <= MOST_EXPLAINED {
            explain.problem(&problem, findings);
        }
    }
    // Those left out may need other pairs. Whether they are enough is seen when the repaired plan is examined.
    let left_out = explained > MOST_EXPLAINED || replay.truncated;
    if left_out && !findings.repairs.ordered_pairs.is_empty() {
        let paths = replay.order.paths.as_ref();
        let relaxed: BTreeSet<_> = paths.into_iter().flat_map(|p| p.relaxed()).collect();
        let pairs = relaxed.into_iter().map(|(signal, wait)| ordered_pair(trace, signal, wait));
        let all: BTreeSet<_> = findings.repairs.ordered_pairs.drain(..).chain(pairs).collect();
        findings.repairs.ordered_pairs = all.into_iter().collect();
    }
}

/// The pair of a signal's step and a wait's step.
fn ordered_pair(trace: &Trace<'_>, signal: usize, wait: usize) -> OrderedPair {
    let place = |step| operation_place(trace, trace.block_of(step), step);
    OrderedPair { signal: place(signal), wait: place(wait) }
}

struct Explain<'a, 't, 'p> {
    trace: &'t Trace<'p>,
    replay: &'a Replay<'t, 'p>,
    examples: &'a Counterexamples<'t, 'p>,
    /// Nops that have been asked for, with the step that needs them: one nop may order an operation with many peers.
    missing_nops: BTreeSet<(usize, Edge)>,
}

/// A finding in the making.
struct General {
    rule: u16,
    message: String,
    hint: String,
    places: Vec<Place>,
    region: Region,
}

impl General {
    fn finding(self) -> Diagnostic {
        let mut found = Diagnostic::error(self.rule, self.message).region(self.region).hint(self.hint);
        found.places = self.places;
        found
    }
}

impl Explain<'_, '_, '_> {
    fn problem(&mut self, problem: &Problem, findings: &mut Findings) {
        match problem {
            Problem::Race(a, b) => self.race(a, b, findings),
            Problem::NotStarted(party) => {
                let owner = party.extent.rank;
                let general = General {
                    rule: 507,
                    message: format!("{} before rank {owner} is known to have started", self.act(party)),
                    hint: format!("begin with a signal of rank {owner} and wait for it; relaxed is enough"),
                    places: vec![self.place(party)],
                    region: region(self.trace, &party.extent),
                };
                findings.repairs.start_handshake = true;
                let schedule = match findings.has_enough_of(507) {
                    true => Vec::new(),
                    false => self.examples.before_start(&Act::from(party)),
                };
                findings.push(general.finding().schedule(schedule));
            }
            Problem::NotOver(party) => {
                let owner = party.extent.rank;
                let general = General {
                    rule: 508,
                    message: format!(
                        "{}, and nothing makes rank {owner} wait for it before it ends",
                        self.act(party)
                    ),
                    hint: format!(
                        "signal rank {owner} after it, with a nop before, and let a block of that rank wait"
                    ),
                    places: vec![self.place(party)],
                    region: region(self.trace, &party.extent),
                };
                self.explained(party, Err(owner), general, findings);
            }
            Problem::NotComplete(party) => {
                let general = General {
                    rule: 511,
                    message: format!(
                        "{}, and the put may not be complete when the launch ends",
                        self.act(party)
                    ),
                    hint: "flush the channel after the put, or wait for an answer of the peer".to_owned(),
                    places: vec![self.place(party)],
                    region: region(self.trace, &party.extent),
                };
                findings.repairs.flush_at_end = true;
                self.tell(general.finding(), party, Err(self.rank(party)), findings);
            }
            Problem::Unwritten(party) => {
                let writers = self.replay.slots.writers(&party.extent);
                // Packets that nobody writes are V608 on port channels.
                if !writers.is_empty() {
                    let general = General {
                        rule: 602,
                        message: format!("{}, of which only a part is written before", self.act(party)),
                        hint: "write all packets of the range, cut as they are read".to_owned(),
                        places: vec![self.place(party)],
                        region: region(self.trace, &party.extent),
                    };
                    findings.push(general.finding());
                }
            }
        }
    }

    fn race(&mut self, a: &Party, b: &Party, findings: &mut Findings) {
        let ranks = (self.rank(a), self.rank(b));
        let both = format!("{} by {} and {} by {}", mode(a), self.name(a), mode(b), self.name(b));
        let blocks = (self.trace.blocks[a.by.block].block, self.trace.blocks[b.by.block].block);
        let (first, second) = (self.name(a), self.name(b));
        let (rule, hint) = if a.by.position == b.by.position || self.is_one_operation(a, b) {
            (
                501,
                format!(
                    "add a nop between them, so that all threads have done the {first} before the {second}"
                ),
            )
        } else if a.channel.is_some()
            && a.mode == Mode::Read
            && ranks.0 == a.extent.rank
            && b.mode == Mode::Write
        {
            (505, format!("flush the channel, or wait for an answer of the peer, before the {second}"))
        } else if ranks.0 != ranks.1 {
            let hint = format!(
                "signal from rank {} after the {first}, with a nop between, and wait on rank {} before the {second}, with a nop \
                 between; if they are not meant to touch the same bytes, check the chunk numbers",
                ranks.0, ranks.1
            );
            (503, hint)
        } else if blocks.0 == blocks.1 {
            (501, format!("add a nop between the {first} and the {second}"))
        } else {
            let hint = format!(
                "add a barrier of blocks {} and {} before the {second}, or a semaphore released after the {first} and acquired before the {second}",
                blocks.0, blocks.1
            );
            (502, hint)
        };
        let mut places = vec![self.place(a), self.place(b)];
        if self.is_one_operation(a, b) {
            for (place, party) in places.iter_mut().zip([a, b]) {
                place.item = Some(party.by.item);
            }
        }
        let (of_a, of_b) = (region(self.trace, &a.extent), region(self.trace, &b.extent));
        let mut common = of_a;
        if of_a.buffer == of_b.buffer {
            common.chunks = (of_a.chunks.0.max(of_b.chunks.0), of_a.chunks.1.min(of_b.chunks.1));
        }
        let message = format!("{both} are not ordered");
        let general = General { rule, message, hint, places, region: common };
        if rule == 501 {
            self.tell(general.finding(), a, Ok(b), findings);
        } else {
            self.explained(a, Ok(b), general, findings);
        }
    }

    /// Reports with the reason, if there is one.
    fn explained(
        &mut self,
        from: &Party,
        to: Result<&Party, u32>,
        general: General,
        findings: &mut Findings,
    ) {
        let replay = self.replay;
        let Some(paths) = &replay.order.paths else {
            return self.tell(general.finding(), from, to, findings);
        };
        let source = self.spot(from);
        let target = to.map(|party| self.spot(party));
        let target = target.as_ref().map_err(|rank| *rank);
        let missing = |cause| paths.missing(self.trace, &source, target, cause).filter(|m| !m.is_empty());
        if let Some([Edge::OtherChannel(step)]) = missing(Cause::OtherChannel).as_deref() {
            let signal = self.trace.place(from.by.block, *step);
            let message =
                format!("{}: the signal of {signal} goes over another channel than the put", general.message);
            let hint = "signal on the channel of the put, or flush it before the signal".to_owned();
            let found = General { rule: 506, message, hint, ..general };
            return self.tell(found.finding(), from, to, findings);
        }
        if let Some(edges) = missing(Cause::Relaxed) {
            return self.relaxed(from, to, &edges, general, findings);
        }
        if let Some([edge]) = missing(Cause::Nop).as_deref() {
            let (where_, step) = match edge {
                Edge::NopAfter(step) => ("after", *step),
                Edge::NopBefore(step) => ("before", *step),
                _ => return self.tell(general.finding(), from, to, findings),
            };
            if !self.missing_nops.insert((from.by.step, *edge)) {
                return;
            }
            let place = self.trace.place(self.trace.block_of(step), step);
            let message = format!("{}: a nop is missing {where_} {place}", general.message);
            let hint = format!("add a nop {where_} {place}");
            let found = General { rule: 510, message, hint, ..general };
            return self.tell(found.finding(), from, to, findings);
        }
        self.tell(general.finding(), from, to, findings);
    }

    /// Reports with a counter-example.
    fn tell(&self, found: Diagnostic, from: &Party, to: Result<&Party, u32>, findings: &mut Findings) {
        let rule = found.rule.0;
        if findings.has_enough_of(rule) {
            return findings.push(found);
        }
        let later = to.map_or_else(Later::End, |party| Later::Access(party.into(), 0));
        // What a relaxed pair tells of has been carried out, but is not seen yet.
        let done = [504, 905].contains(&rule);
        findings.push(found.schedule(self.examples.reversed(&from.into(), later, done)));
    }

    fn relaxed(
        &self,
        from: &Party,
        to: Result<&Party, u32>,
        edges: &[Edge],
        general: General,
        findings: &mut Findings,
    ) {
        let mut names = Vec::new();
        for edge in edges {
            if let Edge::Relaxed { channel, signal, wait } = *edge {
                let blocks = (self.trace.block_of(signal), self.trace.block_of(wait));
                let places = (self.trace.place(blocks.0, signal), self.trace.place(blocks.1, wait));
                // A wait hears what its peer says over the partner.
                let partner = self.trace.channels[channel as usize].partner;
                let channel = self.trace.channel_name(partner);
                names.push(format!("{} and {} on {channel}", places.0, places.1));
                let pair = ordered_pair(self.trace, signal, wait);
                let pairs = &mut findings.repairs.ordered_pairs;
                if let Err(at) = pairs.binary_search(&pair) {
                    pairs.insert(at, pair);
                }
            }
        }
        let over_switch = |party: &Party| match self.trace.steps[party.by.step].action {
            Action::Data(data) => data.channel_type == Some(ChannelType::Switch),
            _ => false,
        };
        let switch = over_switch(from) || to.is_ok_and(over_switch);
        let message =
            format!("{}: the pair that could order it is relaxed ({})", general.message, names.join("; "));
        let hint = "use signal and wait in place of rlxsignal and rlxwait".to_owned();
        let found = General { rule: if switch { 905 } else { 504 }, message, hint, ..general };
        self.tell(found.finding(), from, to, findings);
    }

    fn spot(&self, party: &Party) -> Spot {
        Spot {
            block: party.by.block,
            step: party.by.step,
            segment: party.by.position.time,
            request: party.channel.and_then(|_| self.replay.order.request_node(party.by.position)),
            channel: party.channel,
        }
    }

    fn is_one_operation(&self, a: &Party, b: &Party) -> bool {
        a.by.step == b.by.step
    }

    fn rank(&self, party: &Party) -> u32 {
        self.trace.blocks[party.by.block].rank
    }

    fn place(&self, party: &Party) -> Place {
        self.trace.place(party.by.block, party.by.step)
    }

    fn name(&self, party: &Party) -> &'static str {
        match operation_at(self.trace.plan(), &self.place(party)).map(|o| &o.action) {
            Some(Action::Data(data)) => data.kind.name(),
            _ => "operation",
        }
    }

    /// `put writes chunk 1 of the output of rank 1`.
    fn act(&self, party: &Party) -> String {
        let Region { rank, buffer, chunks } = region(self.trace, &party.extent);
        let buffer = match buffer {
            BufferKind::Input => "input",
            BufferKind::Output => "output",
            BufferKind::Scratch => "scratch",
        };
        let chunks = match chunks {
            (first, end) if end == first + 1 => format!("chunk {first}"),
            (first, end) => format!("chunks {first} to {}", end.saturating_sub(1)),
        };
        let verb = if party.mode == Mode::Read { "reads" } else { "writes" };
        format!("{} {verb} {chunks} of the {buffer} of rank {rank}", self.name(party))
    }
}

fn mode(party: &Party) -> &'static str {
    match party.mode {
        Mode::Read => "read",
        Mode::Write => "write",
    }
}
