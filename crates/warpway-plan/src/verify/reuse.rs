//! What must hold between launches: scratch is not touched while a slower rank still uses it (V509, V604), and
//! whether other plans may use the same scratch (V612).
//!
//! Every way from one launch to the next leads over the end of a rank's launch and the start of its next one. So
//! one launch tells it all: an access comes before another of the next launch if it comes before the end of some
//! rank whose start comes before the other. With double buffering two such steps lie between.
//!
//! Plans with scratch credits have the executor's word instead: where a rank has begun a launch, those whose scratch it
//! touches have ended the one that used the same place before.

use std::collections::BTreeMap;

use super::accesses::Mode;
use super::cells::Party;
use super::clock::{Knowledge, Position, RankSet, Thread};
use super::counterexample::{Act, Later};
use super::findings::Findings;
use super::options::Options;
use super::packets::region;
use super::races::Replay;
use super::report::{Diagnostic, Place, ShareableAreas};
use super::scale::Cut;
use super::slots::{Reader, Write};
use super::trace::Trace;
use crate::ir::{BufferKind, Form, Plan, RankPlan, RemoteBuffer};

/// Makes the counter-example of two accesses.
pub(super) type Example<'a> = &'a dyn Fn(&Act, Later) -> Vec<String>;

/// The rules about reuse.
pub(super) fn check(
    trace: &Trace<'_>,
    replay: &Replay<'_, '_>,
    example: Example<'_>,
    options: &Options<'_>,
    findings: &mut Findings,
) {
    let credits = trace.plan().has_scratch_credits().then(|| owners(trace.plan()));
    let launches = Launches { double: trace.plan().double_scratch, credits, ends: &replay.ends, example };
    // With a closing handshake every rank has ended before any starts again. Another plan need not have one, and
    // that plan's launch may lie before: then only what is known before the first write counts, not what is at the end.
    if trace.repairs.closing_handshake {
        return match launches.double && launches.credits.is_none() {
            true => findings.areas_are(ShareableAreas { raw: true, packets: true }),
            false => sharing(trace, &launches, replay, findings),
        };
    }
    if options.checks(5) {
        raw_reuse(trace, &launches, &replay.scratch, findings);
    }
    if !options.checks(6) {
        return;
    }
    packet_reuse(trace, &launches, &replay.slots.writes, findings);
    if !findings.repairs.closing_handshake {
        sharing(trace, &launches, replay, findings);
    }
}

/// From one launch to the next that uses the same part of the scratch.
struct Launches<'a> {
    double: bool,
    /// By rank, of plans with scratch credits: the owners of the scratch that it touches.
    credits: Option<Vec<RankSet>>,
    ends: &'a [Knowledge],
    example: Example<'a>,
}

impl Launches<'_> {
    /// The ranks whose end comes before something in the next launch on the same scratch, that comes after the
    /// start of `started`.
    fn ended(&self, started: &RankSet, of: fn(&Knowledge) -> &RankSet) -> RankSet {
        if let Some(owners) = &self.credits {
            let owners = started.iter().filter_map(|rank| owners.get(rank as usize));
            return owners.fold(started.clone(), |all, owners| all.union(owners));
        }
        if !self.double {
            return started.clone();
        }
        let between = started.iter().filter_map(|rank| self.ends.get(rank as usize));
        between.fold(started.clone(), |all, end| all.union(of(end)))
    }

    /// How an access of a later launch on the same scratch comes before another one is complete.
    fn example(&self, rule: u16, earlier: &Act, later: Act, findings: &Findings) -> Vec<String> {
        let after = if self.double { 2 } else { 1 };
        match findings.has_enough_of(rule) {
            true => Vec::new(),
            false => (self.example)(earlier, Later::Access(later, after)),
        }
    }

    /// True if a position comes before the end of one of these ranks.
    fn is_over(&self, at: Position, ended: &RankSet) -> bool {
        ended.iter().any(|rank| self.ends.get(rank as usize).is_some_and(|end| end.clock.covers(at)))
    }
}

/// By rank: those whose scratch it names.
fn owners(plan: &Plan) -> Vec<RankSet> {
    let scratch = |remote: &&RemoteBuffer| remote.buffer == BufferKind::Scratch;
    let of =
        |rank: &RankPlan| RankSet::of(rank.remote_buffers.iter().filter(scratch).map(|remote| remote.rank));
    plan.ranks.iter().map(of).collect()
}

/// Accesses of one thread: the last of them is the hardest to come after, the first the hardest to
/// come before.
struct Uses {
    last: Party,
    first: Party,
    started: RankSet,
}

impl Uses {
    fn new(party: &Party, started: &RankSet) -> Self {
        Self { last: *party, first: *party, started: started.clone() }
    }

    fn add(&mut self, party: &Party, started: &RankSet) {
        if party.by.position.time > self.last.by.position.time {
            self.last = *party;
        }
        if party.by.position.time < self.first.by.position.time {
            (self.first, self.started) = (*party, started.clone());
        }
    }
}

/// All uses of one item cut in one way.
#[derive(Default)]
struct OfItem {
    /// By the start of the piece.
    pieces: BTreeMap<(u64, Thread, Mode), Uses>,
    /// Of any piece: what those meet that cut the memory in another way.
    whole: BTreeMap<(Thread, Mode), Uses>,
}

fn raw_reuse(
    trace: &Trace<'_>,
    launches: &Launches<'_>,
    scratch: &[(Party, RankSet)],
    findings: &mut Findings,
) {
    let mut by_owner: BTreeMap<u32, BTreeMap<(u64, Cut), OfItem>> = BTreeMap::new();
    for (party, started) in scratch.iter().filter(|(party, _)| !party.extent.is_empty()) {
        let (extent, by) = (party.extent, (party.by.position.thread, party.mode));
        let item = by_owner.entry(extent.rank).or_default().entry((extent.origin, extent.cut)).or_default();
        let new = || Uses::new(party, started);
        item.pieces
            .entry((extent.start, by.0, by.1))
            .and_modify(|u| u.add(party, started))
            .or_insert_with(new);
        item.whole.entry(by).and_modify(|u| u.add(party, started)).or_insert_with(new);
    }
    let mut both = |one: &Uses, other: &Uses| {
        reuse_pair(trace, launches, one, other, findings);
        reuse_pair(trace, launches, other, one, findings);
    };
    for items in by_owner.into_values() {
        // In order of where the items begin; items that meet are compared.
        let mut active: Vec<(u64, &OfItem)> = Vec::new();
        for ((origin, cut), next) in &items {
            // Pieces of one cut are apart, or the same.
            let pieces: Vec<(&(u64, Thread, Mode), &Uses)> = next.pieces.iter().collect();
            for same in pieces.chunk_by(|a, b| a.0.0 == b.0.0) {
                for (at, (_, later)) in same.iter().enumerate() {
                    same[..at].iter().for_each(|(_, earlier)| both(earlier, later));
                }
            }
            active.retain(|(end, _)| end > origin);
            for (_, other) in &active {
                for one in other.whole.values() {
                    next.whole.values().for_each(|later| both(one, later));
                }
            }
            active.push((origin.saturating_add(cut.item), next));
        }
    }
}

/// `earlier` of one launch, `later` of the next.
fn reuse_pair(
    trace: &Trace<'_>,
    launches: &Launches<'_>,
    earlier: &Uses,
    later: &Uses,
    findings: &mut Findings,
) {
    let (a, b) = (&earlier.last, &later.first);
    let ranks = (trace.blocks[a.by.block].rank, trace.blocks[b.by.block].rank);
    if ranks.0 == ranks.1 || (a.mode, b.mode) == (Mode::Read, Mode::Read) || !a.extent.meets(&b.extent) {
        return;
    }
    let ended = launches.ended(&later.started, |end| &end.started);
    if launches.is_over(a.by.position, &ended) {
        return;
    }
    let next = if launches.double { "next but one" } else { "next" };
    let message =
        format!("scratch of rank {} may still be in use when the {next} launch reaches it", a.extent.rank);
    let hint =
        format!("let rank {} know at its end, or before the access, that rank {} is done", ranks.1, ranks.0);
    let found = Diagnostic::error(509, message)
        .at(trace.place(a.by.block, a.by.step))
        .at(trace.place(b.by.block, b.by.step))
        .region(region(trace, &a.extent));
    let schedule = launches.example(509, &a.into(), b.into(), findings);
    findings.push(found.hint(hint).schedule(schedule));
    findings.repairs.closing_handshake = true;
}

/// One finding for all: one handshake mends all.
fn packet_reuse(trace: &Trace<'_>, launches: &Launches<'_>, writes: &[Write], findings: &mut Findings) {
    let mut late = writes.iter().filter_map(|write| Some((write, reader_in_danger(launches, write)?)));
    let Some((write, reader)) = late.next() else { return };
    let others = late.count();
    let owner = write.extent.rank;
    let next = if launches.double { "next but one" } else { "next" };
    let mut message =
        format!("the {next} launch may write these packets again while rank {owner} still reads them");
    if others > 0 {
        message += &format!(" (and {others} more)");
    }
    let hint = format!("let rank {owner} answer, or use double buffering");
    let found = Diagnostic::error(604, message).at(trace.place(write.by.block, write.by.step));
    let act = |by, mode, extent| Act { by, mode, form: Form::Packets, extent };
    let read = act(reader.by, Mode::Read, reader.extent);
    let schedule = launches.example(604, &read, act(write.by, Mode::Write, write.extent), findings);
    findings.push(found.region(region(trace, &write.extent)).hint(hint).schedule(schedule));
    findings.repairs.closing_handshake = true;
}

/// A reader that may not be done when the next launch writes the same packets.
fn reader_in_danger<'w>(launches: &Launches<'_>, write: &'w Write) -> Option<&'w Reader> {
    let owner = write.extent.rank;
    let end_of_owner = RankSet::of(std::iter::once(owner));
    // A proxy may read on after the end.
    let over_at_end = write.readers.iter().all(|r| launches.is_over(r.by.position, &end_of_owner));
    write.known.iter().find_map(|known| {
        let executed = launches.ended(&known.knowledge.executed, |end| &end.executed);
        let started = launches.ended(&known.knowledge.started, |end| &end.started);
        if over_at_end && executed.contains(owner) {
            return None;
        }
        write.readers.iter().find(|r| !launches.is_over(r.by.position, &started))
    })
}

/// V612: the first pair of ranks of each area that do not know enough of each other.
fn sharing(trace: &Trace<'_>, launches: &Launches<'_>, replay: &Replay<'_, '_>, findings: &mut Findings) {
    if launches.credits.is_some() {
        // Other plans on the area would have to keep the promise, too.
        let message = "the scratch is not for other plans: its reuse is the executor's care".to_owned();
        findings.push(Diagnostic::info(612, message));
        return findings.areas_are(ShareableAreas::default());
    }
    let n_ranks = trace.plan().n_ranks();
    let mut known: BTreeMap<(Form, u32), RankSet> = BTreeMap::new();
    let mut used = [false; 2];
    let mut meet = |form, block: usize, set: &RankSet| {
        let of_rank = known.entry((form, trace.blocks[block].rank));
        of_rank.and_modify(|all| *all = all.intersection(set)).or_insert_with(|| set.clone());
    };
    for (party, started) in &replay.scratch {
        used[0] = true;
        if party.mode == Mode::Write {
            meet(Form::Raw, party.by.block, started);
        }
    }
    for write in &replay.slots.writes {
        used[1] = true;
        write.known.iter().for_each(|k| meet(Form::Packets, write.by.block, &k.knowledge.executed));
    }
    let mut shareable = ShareableAreas { raw: true, packets: true };
    for (form, used) in [Form::Raw, Form::Packets].into_iter().zip(used) {
        let knows = |rank: u32| match (launches.double, launches.ends.get(rank as usize)) {
            (true, Some(end)) if form == Form::Raw => Some(&end.started),
            (true, Some(end)) => Some(&end.executed),
            _ => known.get(&(form, rank)),
        };
        let gap = (0..n_ranks).filter(|_| used).find_map(|rank| {
            let known = knows(rank)?;
            (0..n_ranks).find(|peer| *peer != rank && !known.contains(*peer)).map(|peer| (rank, peer))
        });
        if let Some((rank, peer)) = gap {
            let (area, is_shareable) = match form {
                Form::Raw => ("raw", &mut shareable.raw),
                Form::Packets => ("packet", &mut shareable.packets),
            };
            *is_shareable = false;
            let message = format!(
                "the {area} scratch is not for other plans: rank {rank} does not know that rank {peer} is done with the launch before"
            );
            findings.push(Diagnostic::info(612, message).at(Place::rank(rank)));
        }
    }
    findings.areas_are(shareable);
}
