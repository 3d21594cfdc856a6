//! Groups, pipelines and packets: what is the same at every size, and what is not.

use std::collections::BTreeMap;

use warpway_plan::verify::{Goal, Options};
use warpway_plan::{BufferKind, Collective, DataKind, Plan, SizeIds};

use crate::collectives::{found_with, report};
use crate::program::{ALL, At, I, O, Op, Program, S, op};

const RANKS: u32 = 2;
const CHUNKS: u64 = 3;
/// Bytes of one lane, the unit of all splitting.
const ALIGNMENT: u64 = 16;

/// One operation of a group of blocks, one phase per step in the list: the members that act then.
#[derive(Debug, Clone)]
struct Act {
    rank: u32,
    op: Op,
    /// Size of the group.
    members: u32,
    /// Bytes of a slice, in a pipeline.
    unit: Option<u64>,
}

/// Act and members that act in one phase.
type Phase = (usize, Vec<u32>);

#[derive(Debug, Clone)]
struct Story {
    acts: Vec<Act>,
    phases: Vec<Phase>,
}

impl Story {
    fn plan(&self) -> Plan {
        let mut p = Program::new(Collective::Custom, RANKS, 3, [CHUNKS; 3]);
        for (act, members) in &self.phases {
            let Act { rank, op, members: size, unit } = &self.acts[*act];
            for member in members {
                let op = if *size > 1 { op.clone().member(*member, *size) } else { op.clone() };
                match unit {
                    Some(unit) => p.pipeline(*rank, *member, *unit, op.to[0].3, &[op]),
                    None => p.push(*rank, *member, &op),
                }
            }
            p.phase();
        }
        p.plan
    }
}

/// Contributions (rank, chunk, lane) in order; nothing if it was never written.
type Lane = Option<Vec<(u32, u64, u64)>>;

/// Lanes by rank, buffer (packets are a fourth one), chunk and lane.
type Lanes = BTreeMap<(u32, usize, u64, u64), Lane>;

/// How the story goes with chunks of so many lanes; items cut as a whole or chunk by chunk. `None` if undefined
/// data reaches a fold or a peer.
fn tell(story: &Story, lanes: u64, by_chunk: bool) -> Option<Lanes> {
    let mut memory = Lanes::new();
    for (rank, chunk, lane) in every(lanes) {
        memory.insert((rank, 0, chunk, lane), Some(vec![(rank, chunk, lane)]));
    }
    for (act, members) in &story.phases {
        let act = &story.acts[*act];
        let size = act.op.to[0].3;
        // What one block splits: the item, or each of its chunks.
        let parts: Vec<(u64, u64)> = match by_chunk {
            true => (0..size).map(|chunk| (chunk * lanes, lanes)).collect(),
            false => vec![(0, size * lanes)],
        };
        let unit = act.unit.map(|bytes| bytes / ALIGNMENT);
        let iterations = unit.map_or(1, |unit| (size * lanes).div_ceil(unit));
        for member in members {
            for iteration in 0..iterations {
                for &(first, count) in &parts {
                    let (g, t) = (u64::from(act.members), u64::from(*member));
                    let start = |t: u64| t * (count / g) + t.min(count % g);
                    let (mut from, mut to) = (start(t), start(t + 1));
                    if let Some(unit) = unit {
                        from = (from + iteration * unit).min(to);
                        to = (from + unit).min(to);
                    }
                    for at in first + from..first + to {
                        step(&mut memory, act, at / lanes, at % lanes)?;
                    }
                }
            }
        }
    }
    Some(memory)
}

fn every(lanes: u64) -> impl Iterator<Item = (u32, u64, u64)> {
    (0..RANKS).flat_map(move |r| (0..CHUNKS).flat_map(move |c| (0..lanes).map(move |l| (r, c, l))))
}

fn buffer(kind: BufferKind, packets: bool) -> usize {
    if packets { 3 } else { kind as usize }
}

/// One lane of an operation.
fn step(memory: &mut Lanes, act: &Act, chunk: u64, lane: u64) -> Option<()> {
    let read = |position: usize, At(rank, kind, index, _): &At| {
        let packets =
            act.op.kind == DataKind::UnpackPackets || act.op.kind == DataKind::ReducePackets && position > 0;
        memory.get(&(*rank, buffer(*kind, packets), index + chunk, lane)).cloned().flatten()
    };
    let values: Vec<Lane> = act.op.from.iter().enumerate().map(|(p, at)| read(p, at)).collect();
    let value = match values.as_slice() {
        [one] if !act.op.kind.is_fold() => one.clone(),
        several => {
            let mut all: Vec<_> = several.iter().cloned().collect::<Option<Vec<_>>>()?.concat();
            all.sort_unstable();
            Some(all)
        }
    };
    for At(rank, kind, index, _) in &act.op.to {
        if *rank != act.op.from[0].0 && value.is_none() {
            return None;
        }
        let packets = matches!(act.op.kind, DataKind::CopyPackets | DataKind::PutPackets);
        memory.insert((*rank, buffer(*kind, packets), index + chunk, lane), value.clone());
    }
    Some(())
}

/// What chunk `chunk` of the output of `rank` holds in all its lanes, if that is one thing.
fn uniform(memory: &Lanes, lanes: u64, rank: u32, chunk: u64) -> Option<Vec<(u32, u64)>> {
    let mut whole: Option<Vec<(u32, u64)>> = None;
    for lane in 0..lanes {
        let value = memory.get(&(rank, 1, chunk, lane))?.as_ref()?;
        if value.iter().any(|(_, _, of)| *of != lane) {
            return None;
        }
        let value: Vec<(u32, u64)> = value.iter().map(|(rank, chunk, _)| (*rank, *chunk)).collect();
        if whole.get_or_insert_with(|| value.clone()) != &value {
            return None;
        }
    }
    whole
}

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }

    fn one_of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len() as u64) as usize]
    }

    /// Never two items in one operation that overlap, but for a fold into its first source.
    fn op(&mut self, rank: u32, packets: &[(u64, u64)]) -> Op {
        let size = 1 + self.below(2);
        let item = |random: &mut Self, rank, kind| At(rank, kind, random.below(CHUNKS - size + 1), size);
        let peer = 1 - rank;
        match self.below(8) {
            0 => op(DataKind::Copy, &[item(self, rank, I)], &[item(self, rank, O)]),
            1 => op(DataKind::Copy, &[item(self, rank, I)], &[item(self, rank, S)]),
            2 => op(DataKind::Put, &[item(self, rank, I)], &[item(self, peer, S)]),
            3 => op(DataKind::Put, &[item(self, rank, S)], &[item(self, peer, O)]),
            4 => op(DataKind::Get, &[item(self, peer, O)], &[item(self, rank, S)]),
            5 => {
                let into = item(self, rank, O);
                let first = if self.below(2) == 0 { into } else { item(self, rank, I) };
                op(DataKind::Reduce, &[first, item(self, rank, S)], &[into])
            }
            6 if packets.is_empty() => {
                op(DataKind::PutPackets, &[item(self, rank, I)], &[item(self, peer, S)])
            }
            6 => {
                let (index, size) = self.one_of(packets);
                let from = At(rank, S, index, size);
                op(DataKind::UnpackPackets, &[from], &[At(rank, O, self.below(CHUNKS - size + 1), size)])
            }
            _ => {
                op(DataKind::ReadReduce, &[item(self, rank, I), item(self, peer, S)], &[item(self, rank, O)])
            }
        }
    }

    /// `staggered` groups act member by member, with other acts between.
    fn story(&mut self, staggered: bool) -> Story {
        let (mut acts, mut phases, mut late) = (Vec::new(), Vec::new(), Vec::new());
        let mut packets = vec![Vec::new(); RANKS as usize];
        if self.below(4) > 0 {
            // Nothing undefined.
            for (rank, to) in (0..RANKS).flat_map(|rank| [(rank, S), (rank, O)]) {
                let op = op(DataKind::Copy, &[At(rank, I, 0, CHUNKS)], &[At(rank, to, 0, CHUNKS)]);
                phases.push((acts.len(), vec![0]));
                acts.push(Act { rank, op, members: 1, unit: None });
            }
        }
        let start = acts.len();
        for at in start..start + 4 + self.below(8) as usize {
            let rank = self.below(u64::from(RANKS)) as u32;
            let op = self.op(rank, &packets[rank as usize]);
            let is_packets = op.kind.uses_packets();
            if op.kind == DataKind::PutPackets {
                let At(owner, _, index, size) = op.to[0];
                packets[owner as usize].push((index, size));
            }
            // An item of one chunk and groups of three, and what is cut again otherwise.
            let members = self.one_of(&[1, 1, 2, 3]);
            let unit = self.one_of(&[None, None, Some(32), Some(64)]);
            acts.push(Act { rank, op, members, unit });
            if staggered && members > 1 && !is_packets && self.below(2) == 0 {
                phases.push((at, vec![0]));
                late.push((at, (1..members).collect()));
            } else {
                phases.push((at, (0..members).collect()));
            }
            if !late.is_empty() && self.below(2) == 0 {
                phases.append(&mut late);
            }
        }
        phases.append(&mut late);
        Story { acts, phases }
    }
}

/// What a story comes to at many sizes, against what is proven of it.
fn judge(story: &Story, seed: u64) -> (bool, bool) {
    let sizes = [1, 2, 3, 4, 5, 7, 12];
    let tellings: Vec<(u64, bool, Option<Lanes>)> = sizes
        .iter()
        .flat_map(|lanes| [false, true].map(|by_chunk| (*lanes, by_chunk, tell(story, *lanes, by_chunk))))
        .collect();
    // The goal is what comes out at a large size that divides well.
    let (lanes, _, model) = &tellings[tellings.len() - 2];
    let promised = |rank: u32, chunk: u64| model.as_ref().and_then(|m| uniform(m, *lanes, rank, chunk));
    let goal = |_: &Plan, rank: u32, chunk: u64| match promised(rank, chunk).as_deref() {
        None => Goal::Any,
        Some([(rank, chunk)]) => Goal::Input { rank: *rank, chunk: *chunk },
        Some(several) => Goal::Fold(several.to_vec()),
    };
    let holds = tellings.iter().all(|(lanes, _, memory)| {
        let Some(memory) = memory else { return false };
        (0..RANKS).all(|rank| {
            (0..CHUNKS).all(|chunk| {
                let promised = promised(rank, chunk);
                promised.is_none() || uniform(memory, *lanes, rank, chunk) == promised
            })
        })
    });
    let plan = story.plan();
    let options = Options { goal: Some(&goal), may_clobber_input: Some(true), ..Options::default() };
    let found = report(&plan, &options);
    assert!(
        found.diagnostics.iter().all(|d| (700..800).contains(&d.rule.0)),
        "seed {seed}: {:#?} {story:#?}",
        found.diagnostics
    );
    let accepted = found.diagnostics.is_empty();
    assert!(holds || !accepted, "seed {seed}: accepted, but wrong at some size: {story:#?}");
    if accepted {
        // Another goal for what was promised is refused.
        for (rank, chunk) in (0..RANKS).flat_map(|r| (0..CHUNKS).map(move |c| (r, c))) {
            if let Some(mut more) = promised(rank, chunk) {
                more.push((1, 2));
                let other = |plan: &Plan, r: u32, c: u64| match (r, c) == (rank, chunk) {
                    true => Goal::Fold(more.clone()),
                    false => goal(plan, r, c),
                };
                let rules = found_with(&plan, &Options { goal: Some(&other), ..options.clone() });
                assert!(
                    matches!(rules.as_slice(), [one] if one.starts_with("V702: rank")),
                    "seed {seed}: {rules:?}"
                );
            }
        }
    }
    (accepted, holds)
}

#[test]
fn whole_operations_are_judged_exactly() {
    let mut accepted_count = 0;
    for seed in 0..500 {
        let story = Random(seed * 7 + 1).story(false);
        let (accepted, holds) = judge(&story, seed);
        assert_eq!(accepted, holds, "seed {seed}: {story:#?}");
        accepted_count += u32::from(accepted);
    }
    assert!((250..470).contains(&accepted_count), "{accepted_count}");
}

#[test]
fn what_is_accepted_holds_at_every_size() {
    let (mut accepted_count, mut holding) = (0, 0);
    for seed in 0..1_000 {
        let (accepted, holds) = judge(&Random(seed * 11 + 5).story(true), seed);
        accepted_count += u32::from(accepted);
        holding += u32::from(holds);
    }
    // Some that hold are refused: that they do cannot be seen from how they are cut.
    assert!(accepted_count <= holding);
    assert!(accepted_count * 10 > holding * 8, "{accepted_count} of {holding}");
    assert!((400..900).contains(&holding), "{holding}");
}

#[test]
fn pieces_of_another_cut_must_hold_the_same() {
    let act = |op: Op, members| Act { rank: 0, op, members, unit: None };
    let story = |between: Option<u32>| {
        let acts = vec![
            act(op(DataKind::Copy, &[At(0, I, 0, 1)], &[At(0, S, 0, 1)]), 1),
            act(op(DataKind::Copy, &[At(0, I, 1, 1)], &[At(0, S, 0, 1)]), 2),
            act(op(DataKind::Copy, &[At(0, S, 0, 1)], &[At(0, O, 0, 1)]), between.unwrap_or(1)),
        ];
        let all = |members: u32| (0..members).collect::<Vec<u32>>();
        let phases = match between {
            // Read while one of two members has written.
            Some(members) => vec![(0, vec![0]), (1, vec![0]), (2, all(members)), (1, vec![1])],
            None => vec![(0, vec![0]), (1, vec![0, 1]), (2, vec![0])],
        };
        Story { acts, phases }
    };
    let goal = |_: &Plan, rank: u32, chunk: u64| match (rank, chunk) {
        (0, 0) => Goal::Input { rank: 0, chunk: 1 },
        _ => Goal::Any,
    };
    let options = Options { goal: Some(&goal), ..Options::default() };
    let found = |between| found_with(&story(between).plan(), &options);
    assert_eq!(found(None), [""; 0]);
    let mixed = "V701: copy reads rank 0 s chunk 0, whose pieces hold different values and were cut in another \
                 way, so what it gets depends on the size";
    // Read whole, or by three: which bytes are new depends on the size.
    for members in [1, 3] {
        assert_eq!(found(Some(members))[0], mixed, "{members}");
    }
    // Read by the same two: the first has the new value, the second the old one.
    let same = found(Some(2));
    assert_eq!(same, ["V701: rank 0 output chunk 0 holds in(0,0) instead of in(0,1)"]);
}

/// Both are cut for two blocks, but one of them as two chunks: their halves are not the same.
#[test]
fn items_of_other_chunks_are_cut_differently() {
    let act = |op: Op, members| Act { rank: 0, op, members, unit: None };
    let story = |first: u64, size: u64| Story {
        acts: vec![
            act(op(DataKind::Copy, &[At(0, I, 0, 3)], &[At(0, S, 0, 3)]), 1),
            act(op(DataKind::Copy, &[At(0, I, 1, 2)], &[At(0, S, 0, 2)]), 2),
            act(op(DataKind::Copy, &[At(0, S, first, size)], &[At(0, O, first, size)]), 2),
        ],
        phases: vec![(0, vec![0]), (1, vec![0]), (2, vec![0]), (1, vec![1]), (2, vec![1])],
    };
    assert_eq!(judge(&story(0, 2), 0), (true, true));
    // Whether the second block has what it reads depends on how chunks are counted into items.
    assert!(!judge(&story(0, 1), 0).0);
    assert!(!judge(&story(1, 1), 0).0);
    // Sized plans cut every chunk by itself, so there the halves are the same.
    let mut plan = story(1, 1).plan();
    for rank in &mut plan.ranks {
        let ids = || vec![0; CHUNKS as usize];
        rank.size_ids = Some(SizeIds { input: ids(), output: ids(), scratch: ids() });
    }
    let goal = |_: &Plan, rank: u32, chunk: u64| match (rank, chunk) {
        (0, 1) => Goal::Input { rank: 0, chunk: 2 },
        _ => Goal::Any,
    };
    assert_eq!(found_with(&plan, &Options { goal: Some(&goal), ..Options::default() }), [""; 0]);
}

/// The value of rank 0's input chunk 0 ends in chunk 0 of rank 1's output, by every way there is.
#[test]
fn ways_to_move() {
    let goal = |_: &Plan, rank: u32, chunk: u64| match (rank, chunk) {
        (1, 0) => Goal::Input { rank: 0, chunk: 0 },
        _ => Goal::Any,
    };
    let options = Options { goal: Some(&goal), ..Options::default() };
    let (input, output, there, here) = (At(0, I, 0, 1), At(1, O, 0, 1), At(1, S, 2, 1), At(0, S, 1, 1));
    let unpack = (1, op(DataKind::UnpackPackets, &[there], &[output]));
    let pack = (0, op(DataKind::CopyPackets, &[input], &[here]));
    let ways: Vec<Vec<(u32, Op)>> = vec![
        vec![(0, op(DataKind::Put, &[input], &[output]))],
        vec![(0, op(DataKind::Put, &[input], &[output]).port())],
        vec![(0, op(DataKind::PutWithSignalAndFlush, &[input], &[output]).port())],
        vec![(1, op(DataKind::Get, &[input], &[output]))],
        vec![(0, op(DataKind::PutPackets, &[input], &[there])), unpack.clone()],
        vec![pack.clone(), (0, op(DataKind::PutPackets, &[here], &[there]).port()), unpack.clone()],
        vec![pack.clone(), (0, op(DataKind::ReadPutPackets, &[here], &[there])), unpack.clone()],
        vec![pack, (0, op(DataKind::GroupStorePackets, &[here], &[At(ALL, S, 2, 1)])), unpack],
        vec![(0, op(DataKind::GroupStore, &[input], &[At(ALL, O, 0, 1)]))],
    ];
    for way in ways {
        for last in [0, 1] {
            // Without the last step nothing arrives.
            let mut p = Program::new(Collective::Custom, 2, 1, [CHUNKS; 3]);
            for (rank, op) in &way[..way.len() - last] {
                p.push(*rank, 0, op);
                p.phase();
            }
            let expected = ["V704: rank 1 output chunk 0 is never written"];
            assert_eq!(found_with(&p.plan, &options), &expected[1 - last..], "{way:#?}");
        }
    }
    // Packets and raw data of one scratch never meet.
    let mut p = Program::new(Collective::Custom, 2, 1, [CHUNKS; 3]);
    p.push(0, 0, &op(DataKind::PutPackets, &[input], &[there]));
    p.phase();
    p.push(1, 0, &op(DataKind::Copy, &[there], &[output]));
    assert_eq!(found_with(&p.plan, &options), ["V703: rank 1 output chunk 0 holds what was never written"]);
}

#[test]
fn a_short_file_with_many_chunks_takes_no_time() {
    // 10⁹ chunks, and a number of chunks that no memory has.
    for chunks in [1_000_000_000_u64, 1 << 50] {
        let mut p = Program::new(Collective::AllGather, 2, 2, [chunks, 2 * chunks, 0]);
        for me in 0..2_u32 {
            for member in 0..2 {
                let at = u64::from(me) * chunks;
                let from = At(me, I, 0, chunks);
                p.push(me, member, &op(DataKind::Copy, &[from], &[At(me, O, at, chunks)]).member(member, 2));
                p.push(
                    me,
                    member,
                    &op(DataKind::Put, &[from], &[At(1 - me, O, at, chunks)]).member(member, 2),
                );
            }
        }
        p.phase();
        assert_eq!(found_with(&p.plan, &Options::default()), [""; 0]);
        let mut wrong = p.plan.clone();
        wrong.ranks[0].blocks.iter_mut().for_each(|b| {
            b.operations.remove(1);
        });
        assert_eq!(
            found_with(&wrong, &Options::default()),
            [format!(
                "V704: rank 1 output chunk 0 is never written ({chunks} chunks of this rank are wrong like it)"
            )]
        );
    }
}
