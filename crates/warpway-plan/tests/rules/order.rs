//! Races (V5) and packets (V6): a plan of two ranks per rule, and the least change that puts it right.

use serde_json::{Value, json};
use warpway_plan::verify::{
    Options, Profile, Report, Rule, Severity, ShareableAreas, Target, Verdict, verify,
};
use warpway_plan::{Action, Plan, testing};

use super::{all_gather, block, findings, relax, strict};

const NONE: [u16; 0] = [];

/// The rules about counts and order; what the plans compute is of no interest here.
fn order(plan: &Plan, options: &Options<'_>) -> Report {
    verify(plan, &Options { checks: vec![3, 4, 5, 6], ..options.clone() })
}

/// Rules that are errors or warnings under the strict profile.
fn rules(plan: &Plan) -> Vec<u16> {
    let report = order(plan, &strict());
    findings(&report).iter().filter(|(_, s)| *s != Severity::Info).map(|(rule, _)| rule.0).collect()
}

/// Two ranks with 4 chunks in each buffer, by blocks. Every block reaches channels 0 and 1 to the peer, memory and
/// port, and as remote buffers 0, 1 and 2 the peer's input, output and scratch.
fn two(ranks: [Value; 2]) -> Plan {
    with(json!({}), ranks)
}

fn with(keys: Value, ranks: [Value; 2]) -> Plan {
    let gpus: Vec<Value> = ranks
        .iter()
        .enumerate()
        .map(|(rank, blocks)| {
            let peer = 1 - rank;
            let blocks: Vec<Value> = blocks
                .as_array()
                .unwrap()
                .iter()
                .enumerate()
                .map(|(id, ops)| {
                    json!({"id": id, "ops": ops,
                        "channels": [{"channel_type": "memory", "channel_ids": [0, 1]}, {"channel_type": "port", "channel_ids": [0, 1]}],
                        "remote_buffer_refs": [{"access_channel_type": "memory", "remote_buffer_ids": [0, 1, 2]},
                                               {"access_channel_type": "port", "remote_buffer_ids": [0, 1, 2]}]})
                })
                .collect();
            let remote: Vec<Value> = ["i", "o", "s"]
                .iter()
                .map(|t| json!({"rank": peer, "type": t, "access_channel_types": ["memory", "port"]}))
                .collect();
            json!({"id": rank, "input_chunks": 4, "output_chunks": 4, "scratch_chunks": 4, "threadblocks": blocks,
                "channels": [{"channel_type": "memory", "connected_to": [peer, peer]},
                             {"channel_type": "port", "connected_to": [peer, peer]}],
                "remote_buffers": remote, "semaphores": [{"init_value": 0}]})
        })
        .collect();
    let mut plan =
        json!({"name": "t", "collective": "custom", "protocol": "LL", "inplace": false, "gpus": gpus});
    for (key, value) in keys.as_object().unwrap() {
        plan[key] = value.clone();
    }
    Plan::from_json(plan.to_string().as_bytes()).unwrap().plan
}

fn nop() -> Value {
    json!({"name": "nop"})
}

fn sync(name: &str, via: &str, channel: u32) -> Value {
    json!({"name": name, "channel_type": via, "channel_ids": [channel]})
}

fn local(buffer: &str, index: u32) -> Value {
    json!({"type": buffer, "index": index, "size": 1})
}

fn remote(buffer: u32, index: u32) -> Value {
    json!({"buffer_id": buffer, "index": index, "size": 1})
}

fn op(name: &str, from: Value, to: Value) -> Value {
    json!({"name": name, "src_buff": [from], "dst_buff": [to]})
}

fn memory(name: &str, from: Value, to: Value) -> Value {
    json!({"name": name, "channel_type": "memory", "src_buff": [from], "dst_buff": [to]})
}

fn port(name: &str, from: Value, to: Value, channel: u32) -> Value {
    json!({"name": name, "channel_type": "port", "channel_ids": [channel], "src_buff": [from], "dst_buff": [to]})
}

/// One operation list per block, from lists that may be nested.
macro_rules! ops {
    ($($op:expr),* $(,)?) => { Value::Array(vec![$($op),*]) };
}

// Behind the macro, which it uses.
mod schedules;

fn both(lists: &[&Value]) -> Value {
    Value::Array(lists.iter().flat_map(|list| list.as_array().unwrap().clone()).collect())
}

/// Both ranks know that the other has started.
fn opening() -> Value {
    ops![sync("rlxsignal", "memory", 0), sync("rlxwait", "memory", 0), nop()]
}

/// Both ranks know what the other has done.
fn closing() -> Value {
    ops![nop(), sync("signal", "memory", 0), sync("wait", "memory", 0), nop()]
}

#[test]
fn v501_between_two_operations() {
    let first = op("copy", local("i", 0), local("o", 0));
    let second = op("copy", local("o", 0), local("o", 1));
    assert_eq!(rules(&two([ops![ops![first.clone(), second.clone()]], ops![]])), [501]);
    assert_eq!(rules(&two([ops![ops![first, nop(), second]], ops![]])), NONE);
}

#[test]
fn v501_where_input_and_output_are_one() {
    // In place, chunk 1 of rank 0's input is chunk 1 of its output, and chunk 0 of rank 1's input chunk 4.
    let lists = |index| {
        ops![ops![op("copy", local("i", 0), local("o", 1)), op("copy", local("i", index), local("o", 2))]]
    };
    let apart = json!({"collective": "allreduce"});
    let one = json!({"collective": "allreduce", "inplace": true});
    assert_eq!(rules(&with(apart, [lists(1), ops![]])), NONE);
    assert_eq!(rules(&with(one.clone(), [lists(1), ops![]])), [501]);
    assert_eq!(rules(&with(one, [lists(3), ops![]])), NONE);
}

/// 11.3, word for word but for the second hint.
#[test]
fn v502_worked_example() {
    let mut plan = all_gather();
    for rank in 0..2 {
        let of_rank = &mut plan.ranks[rank];
        let mut first = of_rank.blocks[0].clone();
        first.channels.clear();
        first.remote_buffers.clear();
        let copy = of_rank.blocks[0].operations.remove(3);
        first.operations = vec![copy];
        let put = super::local(warpway_plan::BufferKind::Output, rank as u64, 1);
        of_rank.blocks.insert(0, first);
        super::data(&mut plan, (rank, 1, 3)).sources[0] = put;
    }
    let report = serde_json::to_value(verify(&plan, &strict())).unwrap();
    let found = |rank: u32| {
        let peer = 1 - rank;
        json!({"rule": "V502", "severity": "error",
        "where": [{"rank": rank, "tb": 0, "op": [0]}, {"rank": rank, "tb": 1, "op": [3]}],
        "region": {"rank": rank, "buffer": "o", "chunks": [rank, rank + 1]},
        "message": "write by copy and read by put are not ordered",
        "hint": "add a barrier of blocks 0 and 1 before the put, or a semaphore released after the copy and acquired before the put",
        "schedule": [
            format!("rank {peer} tb 1 op 0 `rlxsignal` on memory channel {peer}->{rank} #0"),
            format!("rank {rank} tb 1 op 1 `rlxwait` on memory channel {peer}->{rank} #0"),
            format!("rank {rank} tb 1 op 3 `put` reads o[{rank}..{end}]", end = rank + 1),
            format!("rank {rank} tb 0 op 0 `copy` writes o[{rank}..{end}] (nothing makes it come first)", end = rank + 1),
        ]})
    };
    let expected = json!({"verdict": "reject", "diagnostics": [found(0), found(1),
        {"rule": "V708", "severity": "info", "where": [], "message": "result not evaluated"}]});
    assert_eq!(report, expected);
    for rank in 0..2 {
        block(&mut plan, rank, 0).push(super::barrier(0, 2));
        block(&mut plan, rank, 1).insert(3, super::barrier(0, 2));
    }
    assert!(verify(&plan, &strict()).diagnostics.is_empty());
}

#[test]
fn v502_by_semaphore() {
    let semaphore = |name: &str| json!({"name": name, "semaphore_ids": [0]});
    let plan = |with_nop: bool| {
        let mut first = vec![op("copy", local("i", 0), local("o", 0))];
        if with_nop {
            first.push(nop());
        }
        first.push(semaphore("sem_release"));
        let second = ops![semaphore("sem_acquire"), nop(), op("copy", local("o", 0), local("o", 1))];
        two([ops![Value::Array(first), second], ops![]])
    };
    assert_eq!(rules(&plan(true)), NONE);
    assert_eq!(rules(&plan(false)), [510]);
}

#[test]
fn v503() {
    let sender = |last: Value| both(&[&opening(), &ops![memory("put", local("i", 0), remote(1, 0))], &last]);
    let read = op("copy", local("o", 0), local("o", 1));
    let early = both(&[&opening(), &ops![read.clone()], &closing()]);
    let late = both(&[&opening(), &closing(), &ops![read.clone()]]);
    assert_eq!(rules(&two([ops![sender(closing())], ops![early]])), [503]);
    assert_eq!(rules(&two([ops![sender(closing())], ops![late]])), NONE);
    let no_nop =
        both(&[&opening(), &ops![nop(), sync("signal", "memory", 0), sync("wait", "memory", 0), read]]);
    let plan = two([ops![sender(closing())], ops![no_nop]]);
    assert_eq!(rules(&plan), [510]);
    let report = order(&plan, &strict());
    assert_eq!(report.diagnostics[0].hint, "add a nop after rank 1 tb 0 op 5");
}

/// The variants of 11.1.
#[test]
fn v504_v507_v508_v510_worked_example() {
    let mut early = all_gather();
    (0..2).for_each(|rank| drop(block(&mut early, rank, 0).drain(..3)));
    let mut relaxed = all_gather();
    for rank in 0..2 {
        relax(&mut relaxed, (rank, 0, 6));
        relax(&mut relaxed, (rank, 0, 7));
    }
    let mut unpublished = all_gather();
    (0..2).for_each(|rank| drop(block(&mut unpublished, rank, 0).remove(5)));
    let mut open = all_gather();
    (0..2).for_each(|rank| drop(block(&mut open, rank, 0).drain(5..)));
    for (plan, rule, put) in [(&early, 507, 1), (&relaxed, 504, 4), (&unpublished, 510, 4), (&open, 508, 4)] {
        let report = verify(plan, &strict());
        let told: Vec<_> = report.diagnostics.iter().filter(|d| d.rule != Rule(708)).collect();
        assert_eq!(told.len(), 2, "V{rule}: {told:#?}");
        for (rank, found) in (0..).zip(told) {
            assert_eq!((found.rule, found.severity), (Rule(rule), Severity::Error));
            let at = found.places[0].clone();
            assert_eq!((at.rank, at.op.unwrap().index, found.places.len()), (rank, put, 1));
        }
        assert_eq!(report.verdict, Verdict::Reject);
    }
    // What the executor makes good is a warning by default.
    let repaired = verify(&early, &Options::default());
    assert_eq!((repaired.verdict, repaired.repairs.start_handshake), (Verdict::Accept, true));
    let repaired = verify(&relaxed, &Options::default());
    assert_eq!((repaired.verdict, repaired.repairs.ordered_pairs.len()), (Verdict::Accept, 2));
    assert_eq!(findings(&repaired), [(Rule(504), Severity::Warning); 2]);
    for plan in [&unpublished, &open] {
        assert_eq!(verify(plan, &Options::default()).verdict, Verdict::Reject);
    }
}

#[test]
fn v504_with_one_end_relaxed() {
    for at in [6, 7] {
        let mut plan = all_gather();
        relax(&mut plan, (0, 0, at));
        let told: Vec<u16> = findings(&verify(&plan, &strict())).iter().map(|(rule, _)| rule.0).collect();
        // Signal and wait do not match (V303), and the put of one rank is not published.
        assert_eq!(told, [303, 504], "op {at}");
    }
}

/// Rank 0 puts by port, rank 1 hears of it; `behind` stands on rank 0 behind the put.
fn port_plan(behind: Value, signal: u32, wait: u32) -> Plan {
    let put = ops![port("put", local("o", 0), remote(1, 0), 0), sync("signal", "port", signal)];
    let sender = both(&[&opening(), &put, &behind]);
    let receiver = both(&[&opening(), &ops![sync("wait", "port", wait), nop()]]);
    two([ops![sender], ops![receiver]])
}

#[test]
fn v505() {
    let write = op("copy", local("i", 0), local("o", 0));
    let flush = sync("flush", "port", 0);
    let again = |behind| rules(&port_plan(behind, 0, 0));
    assert_eq!(again(ops![flush.clone(), nop(), write.clone()]), NONE);
    assert_eq!(again(ops![nop(), write.clone(), flush.clone()]), [505]);
    // A flush tells its own thread only.
    assert_eq!(again(ops![flush, write]), [510]);
}

#[test]
fn v506() {
    let flush = ops![sync("flush", "port", 0)];
    assert_eq!(rules(&port_plan(flush.clone(), 0, 0)), NONE);
    assert_eq!(rules(&port_plan(flush.clone(), 1, 1)), [506]);
    let put = ops![port("put", local("o", 0), remote(1, 0), 0), nop(), sync("signal", "memory", 1)];
    let sender = both(&[&opening(), &put, &flush]);
    let receiver = both(&[&opening(), &ops![sync("wait", "memory", 1), nop()]]);
    assert_eq!(rules(&two([ops![sender], ops![receiver]])), [506]);
}

#[test]
fn v511() {
    assert_eq!(rules(&port_plan(ops![sync("flush", "port", 0)], 0, 0)), NONE);
    let plan = port_plan(ops![], 0, 0);
    assert_eq!(rules(&plan), [511]);
    let repaired = order(&plan, &Options::default());
    assert_eq!((repaired.verdict, repaired.repairs.flush_at_end), (Verdict::Accept, true));
}

/// Each rank that is named puts into the peer's scratch; the peer copies it out and says so, or not.
fn scratch_plan(ranks: &[usize], double: bool, answer: bool) -> Plan {
    let list = |rank: usize| {
        let (sends, receives) = (ranks.contains(&rank), ranks.contains(&(1 - rank)));
        let mut ops = Vec::new();
        if sends {
            ops.extend([memory("put", local("i", 0), remote(2, 0)), nop(), sync("signal", "memory", 0)]);
        }
        if receives {
            ops.extend([sync("wait", "memory", 0), nop(), op("copy", local("s", 0), local("o", 0))]);
            if answer {
                ops.extend([nop(), sync("signal", "memory", 1)]);
            }
        }
        if sends && answer {
            ops.push(sync("wait", "memory", 1));
        }
        ops![Value::Array(ops)]
    };
    with(json!({"use_double_scratch_buffer": double}), [list(0), list(1)])
}

#[test]
fn v509() {
    // One way, nothing comes back.
    assert_eq!(rules(&scratch_plan(&[0], false, false)), [509]);
    assert_eq!(rules(&scratch_plan(&[0], true, false)), [509]);
    assert_eq!(rules(&scratch_plan(&[0], false, true)), NONE);
    // Both ways, what comes back belongs to the same launch: enough for the next but one.
    assert_eq!(rules(&scratch_plan(&[0, 1], false, false)), [509, 509]);
    assert_eq!(rules(&scratch_plan(&[0, 1], true, false)), NONE);
    let repaired = order(&scratch_plan(&[0], false, false), &Options::default());
    assert_eq!((repaired.verdict, repaired.repairs.closing_handshake), (Verdict::Accept, true));
}

#[test]
fn v612() {
    let shared = |plan: &Plan, options: &Options<'_>| {
        let report = order(plan, options);
        let notes = report.diagnostics.iter().filter(|d| d.rule == Rule(612)).count();
        let ShareableAreas { raw, packets } = report.shareable_areas;
        (notes, raw, packets)
    };
    // The one that only answers never hears that the other is done.
    assert_eq!(shared(&scratch_plan(&[0], false, true), &strict()), (1, false, true));
    let mut known = all_gather_through_scratch();
    assert_eq!(shared(&known, &strict()), (0, true, true));
    known.double_scratch = true;
    assert_eq!(shared(&known, &strict()), (0, true, true));
    // With double buffering, packets that come back tell enough by the end; without, the plan is rejected.
    let exchange =
        ops![memory("ppkt", local("i", 0), remote(2, 0)), op("upkt", local("s", 0), local("o", 0))];
    let exchange = |double: bool| {
        packets(exchange.clone(), exchange.clone(), json!({"use_double_scratch_buffer": double}))
    };
    assert_eq!(shared(&exchange(true), &strict()), (0, true, true));
    assert_eq!(shared(&exchange(false), &strict()), (0, false, false));
    // A closing handshake, which that plan needs, comes too late for areas without double buffering: before the first
    // write nothing is known of the launch of another plan. The raw area is not used.
    assert_eq!(shared(&exchange(false), &Options::default()), (1, true, false));
    assert_eq!(shared(&scratch_plan(&[0], false, false), &Options::default()), (1, false, true));
    // With it, the end tells.
    assert_eq!(shared(&scratch_plan(&[0], true, false), &Options::default()), (0, true, true));
    // What was not examined is not claimed.
    let few = Options { checks: vec![5], ..strict() };
    assert_eq!(verify(&known, &few).shareable_areas, ShareableAreas::default());
}

/// Opening and closing pairs that order data around the use of scratch.
fn all_gather_through_scratch() -> Plan {
    let ordered = ops![sync("signal", "memory", 0), sync("wait", "memory", 0), nop()];
    let list = both(&[
        &ordered,
        &ops![memory("put", local("i", 0), remote(2, 0))],
        &closing(),
        &ops![op("copy", local("s", 0), local("o", 0))],
    ]);
    two([ops![list.clone()], ops![list]])
}

/// Rank 0 packs into the peer's scratch, which unpacks it.
fn packets(sender: Value, receiver: Value, keys: Value) -> Plan {
    with(keys, [ops![sender], ops![receiver]])
}

#[test]
fn v601() {
    let pack = |from, to| memory("ppkt", local("i", from), remote(2, to));
    let unpack = |at| op("upkt", local("s", at), local("o", at));
    let answer = ops![memory("ppkt", local("i", 0), remote(2, 3)), op("upkt", local("s", 3), local("o", 3))];
    let double = json!({"use_double_scratch_buffer": true});
    let plan = |second| {
        let sender = both(&[&ops![pack(0, 0), pack(1, second)], &answer]);
        packets(sender, both(&[&ops![unpack(0), unpack(1)], &answer]), double.clone())
    };
    assert_eq!(rules(&plan(1)), NONE);
    let twice = with(
        double,
        [ops![both(&[&ops![pack(0, 0), pack(1, 0)], &answer])], ops![both(&[&ops![unpack(0)], &answer])]],
    );
    assert_eq!(rules(&twice), [601]);
}

#[test]
fn v602_v608() {
    let forward = |index, size| {
        json!({"name": "ppkt", "channel_type": "port", "channel_ids": [0],
            "src_buff": [{"type": "s", "index": index, "size": size}], "dst_buff": [{"buffer_id": 2, "index": 0, "size": size}]})
    };
    let plan = |packed: u32, forward: Value, nop_between: bool| {
        let mut sender: Vec<Value> =
            (0..packed).map(|at| op("cpkt", local("i", at), local("s", at))).collect();
        if nop_between {
            sender.push(nop());
        }
        sender.extend([forward, sync("flush", "port", 0), op("upkt", local("s", 2), local("o", 2))]);
        let receiver = ops![
            op("upkt", local("s", 0), local("o", 0)),
            op("upkt", local("s", 1), local("o", 1)),
            memory("ppkt", local("i", 0), remote(2, 2))
        ];
        packets(Value::Array(sender), receiver, json!({"use_double_scratch_buffer": true}))
    };
    assert_eq!(rules(&plan(2, forward(0, 2), true)), NONE);
    assert_eq!(rules(&plan(1, forward(0, 2), true)), [602]);
    // The proxy does not wait for packets.
    assert_eq!(rules(&plan(2, forward(0, 2), false)), [501, 501]);
    assert_eq!(rules(&plan(0, forward(0, 2), true)), [608]);
}

#[test]
fn v604() {
    let pack = |to| memory("ppkt", local("i", 0), remote(2, to));
    let unpack = |at| op("upkt", local("s", at), local("o", at));
    let one_way =
        |double: bool| packets(ops![pack(0)], ops![unpack(0)], json!({"use_double_scratch_buffer": double}));
    let exchange = |double: bool| {
        let list = ops![pack(0), unpack(0)];
        packets(list.clone(), list, json!({"use_double_scratch_buffer": double}))
    };
    assert_eq!(rules(&one_way(false)), [604]);
    assert_eq!(rules(&one_way(true)), [604]);
    // One finding for both ranks: one repair mends them all.
    assert_eq!(rules(&exchange(false)), [604]);
    let found = order(&exchange(false), &Options::default()).diagnostics;
    let found: Vec<&str> = found.iter().filter(|f| f.rule == Rule(604)).map(|f| f.message.as_str()).collect();
    assert_eq!(
        found,
        ["the next launch may write these packets again while rank 1 still reads them (and 1 more)"]
    );
    assert_eq!(rules(&exchange(true)), NONE);
    let repaired = order(&one_way(false), &Options::default());
    assert_eq!((repaired.verdict, repaired.repairs.closing_handshake), (Verdict::Accept, true));
    // Where reuse is the executor's care nobody answers; nor does anybody else use that scratch.
    let credited = packets(ops![pack(0)], ops![unpack(0)], json!({"extensions": ["scratch_credits"]}));
    assert_eq!(rules(&credited), NONE);
    assert_eq!(order(&credited, &Options::default()).shareable_areas, ShareableAreas::default());
}

#[test]
fn v605_v607() {
    let pack = |to| memory("ppkt", local("i", 0), remote(2, to));
    let list = |packs: &[u32]| {
        let mut ops: Vec<Value> = packs.iter().map(|to| pack(*to)).collect();
        ops.push(op("upkt", local("s", 0), local("o", 0)));
        ops![Value::Array(ops)]
    };
    let keys = |protocol: &str| json!({"use_double_scratch_buffer": true, "protocol": protocol});
    assert_eq!(rules(&with(keys("LL"), [list(&[0]), list(&[0])])), NONE);
    assert_eq!(rules(&with(keys("LL"), [list(&[0, 1]), list(&[0])])), [605]);
    let simple = with(keys("Simple"), [list(&[0]), list(&[0])]);
    assert_eq!(rules(&simple), [607]);
    let of = |target| order(&simple, &Options { target, ..Options::default() }).verdict;
    assert_eq!((of(Target::Warpway), of(Target::Mscclpp)), (Verdict::Accept, Verdict::Reject));
}

#[test]
fn v603_v610_for_the_other_executor() {
    // Packets of chunk 0 take the bytes of raw chunks 0 and 1.
    let list = |raw| {
        ops![ops![
            memory("ppkt", local("i", 0), remote(2, 0)),
            op("upkt", local("s", 0), local("o", 0)),
            op("copy", local("i", 1), local("s", raw))
        ]]
    };
    let found = |raw: u32, target| {
        let plan = with(json!({"use_double_scratch_buffer": true}), [list(raw), list(raw)]);
        let report = order(&plan, &Options { target, profile: Profile::Strict, ..Options::default() });
        let told = findings(&report);
        told.iter().filter(|(_, s)| *s == Severity::Error).map(|(rule, _)| rule.0).collect::<Vec<_>>()
    };
    assert_eq!(found(1, Target::Warpway), NONE);
    assert_eq!(found(1, Target::Mscclpp), [603, 603, 610, 610]);
    assert_eq!(found(2, Target::Mscclpp), [610, 610]);
}

/// A result may overwrite what it was computed from, in another block; not what it was not computed from.
#[test]
fn packets_order_element_by_element() {
    let keys = json!({"use_double_scratch_buffer": true, "inplace": true, "collective": "allreduce"});
    let echo = ops![ops![json!({"name": "rppkt", "channel_type": "memory",
        "src_buff": [local("s", 0)], "dst_buff": [remote(2, 1)]})]];
    let plan = |to: u32, ranks: Value| {
        let back = op("upkt", local("s", 1), local("i", to));
        let sender = ops![ops![memory("ppkt", local("i", 0), remote(2, 0))], ops![back]];
        let other = ops![ops![op("copy", local("i", 1), local("s", 3))]];
        let sender = both(&[&sender, &other]);
        with(keys.clone(), [sender, ranks])
    };
    assert_eq!(rules(&plan(0, echo.clone())), NONE);
    assert_eq!(rules(&plan(1, echo)), [502]);
    // The echo is of another chunk: what it overwrites may still be read.
    let other =
        ops![ops![op("upkt", local("s", 0), local("i", 0)), memory("ppkt", local("i", 1), remote(2, 1))]];
    assert_eq!(rules(&plan(0, other)), [502]);
}

#[test]
fn algorithms_are_in_order() {
    for n_ranks in [2, 3, 5, 8] {
        for plan in testing::all(n_ranks).unwrap() {
            assert_eq!(rules(&plan), NONE, "{} of {n_ranks} ranks", plan.name);
        }
    }
}

/// More findings than are explained one by one: every pair is repaired all the same.
#[test]
fn many_relaxed_pairs() {
    let mut plan = testing::all_to_all(16, 2).unwrap();
    for operation in plan.ranks.iter_mut().flat_map(|r| &mut r.blocks).flat_map(|b| &mut b.operations) {
        if let Action::Signal { relaxed, .. } | Action::Wait { relaxed, .. } = &mut operation.action {
            *relaxed = true;
        }
    }
    assert_eq!(order(&plan, &strict()).verdict, Verdict::Reject);
    let report = order(&plan, &Options::default());
    assert_eq!(report.verdict, Verdict::Accept);
    // The closing pairs, and with them the opening ones.
    assert_eq!(report.repairs.ordered_pairs.len(), 2 * 16 * 15);
}

/// Without an opening pair every put of a large plan is found, and one handshake is enough for all.
#[test]
fn many_peers_not_known_to_have_started() {
    let mut plan = testing::all_to_all(48, 1).unwrap();
    for rank in 0..48 {
        let relaxed = |operation: &warpway_plan::Operation| {
            matches!(
                operation.action,
                Action::Signal { relaxed: true, .. } | Action::Wait { relaxed: true, .. }
            )
        };
        block(&mut plan, rank, 0).retain(|operation| !relaxed(operation));
    }
    let report = order(&plan, &Options::default());
    assert_eq!(report.verdict, Verdict::Accept);
    assert_eq!((report.repairs.start_handshake, report.repairs.ordered_pairs.len()), (true, 0));
    assert!(report.diagnostics.iter().all(|d| d.rule == Rule(507)), "{:#?}", report.diagnostics);
}
