//! The steps that lead to a race or to a reuse that comes too early, word for word.

use super::*;

/// The counter-example of the first finding of a rule, under the strict profile.
#[track_caller]
fn shows(rule: u16, plan: &Plan, expected: &[&str]) {
    let report = order(plan, &strict());
    let found = report.diagnostics.iter().find(|d| d.rule == Rule(rule));
    let found = found.unwrap_or_else(|| panic!("no V{rule}: {:?}", report.diagnostics));
    assert_eq!(found.schedule, expected, "V{rule}");
}

/// Rank 0 has started, and rank 1 knows it; and the other way round.
const OPENING: [&str; 4] = [
    "rank 0 tb 0 op 0 `rlxsignal` on memory channel 0->1 #0",
    "rank 1 tb 0 op 0 `rlxsignal` on memory channel 1->0 #0",
    "rank 1 tb 0 op 1 `rlxwait` on memory channel 0->1 #0",
    "rank 0 tb 0 op 1 `rlxwait` on memory channel 1->0 #0",
];

fn after_opening(lines: &[&'static str]) -> Vec<&'static str> {
    OPENING.iter().chain(lines).copied().collect()
}

#[test]
fn in_one_segment() {
    let first = op("copy", local("i", 0), local("o", 0));
    let second = op("copy", local("o", 0), local("o", 1));
    shows(
        501,
        &two([ops![ops![first, second]], ops![]]),
        &[
            "rank 0 tb 0 op 0 `copy` writes o[0..1]",
            "rank 0 tb 0 op 1 `copy` reads o[0..1] (rank 0 tb 0 op 0 need not be complete)",
        ],
    );
}

/// What both accesses need; the second one comes first.
#[test]
fn of_two_blocks() {
    let semaphore = |name: &str| json!({"name": name, "semaphore_ids": [0]});
    let barrier = || json!({"name": "barrier", "barrier_id": 0, "num_threadblocks": 2});
    let first =
        ops![op("copy", local("i", 1), local("o", 1)), barrier(), op("copy", local("i", 0), local("o", 0))];
    let second = ops![barrier(), semaphore("sem_acquire"), op("copy", local("o", 0), local("o", 2))];
    let third = ops![semaphore("sem_release"), nop()];
    shows(
        502,
        &two([ops![first, second, third], ops![]]),
        &[
            "rank 0 tb 1 op 0 `barrier` 0 of 2 blocks",
            "rank 0 tb 2 op 0 `sem_release` on semaphore 0",
            "rank 0 tb 1 op 1 `sem_acquire` on semaphore 0",
            "rank 0 tb 1 op 2 `copy` reads o[0..1]",
            "rank 0 tb 0 op 2 `copy` writes o[0..1] (nothing makes it come first)",
        ],
    );
}

#[test]
fn of_two_ranks() {
    let put = ops![memory("put", local("i", 0), remote(1, 0))];
    let read = ops![op("copy", local("o", 0), local("o", 1))];
    let sender = both(&[&opening(), &put, &closing()]);
    let early = two([ops![sender.clone()], ops![both(&[&opening(), &read, &closing()])]]);
    shows(
        503,
        &early,
        &[
            OPENING[0],
            OPENING[1],
            OPENING[3],
            "rank 0 tb 0 op 3 `put` writes o[0..1] of rank 1",
            OPENING[2],
            "rank 1 tb 0 op 3 `copy` reads o[0..1] (nothing makes it come first)",
        ],
    );
    let mut no_nop = closing();
    no_nop.as_array_mut().unwrap().pop();
    shows(
        510,
        &two([ops![sender], ops![both(&[&opening(), &no_nop, &read])]]),
        &after_opening(&[
            "rank 0 tb 0 op 3 `put` writes o[0..1] of rank 1",
            "rank 0 tb 0 op 5 `signal` on memory channel 0->1 #0",
            "rank 1 tb 0 op 5 `wait` on memory channel 0->1 #0",
            "rank 1 tb 0 op 6 `copy` reads o[0..1] (rank 0 tb 0 op 3 need not be complete)",
        ]),
    );
}

/// The variants of 11.1.
#[test]
fn of_starts_and_ends() {
    let mut early = all_gather();
    (0..2).for_each(|rank| drop(block(&mut early, rank, 0).drain(..3)));
    shows(507, &early, &["rank 0 tb 0 op 1 `put` writes o[0..1] of rank 1 (rank 1 need not have started)"]);

    let mut no_nop = all_gather();
    (0..2).for_each(|rank| drop(block(&mut no_nop, rank, 0).remove(2)));
    let put = "rank 0 tb 0 op 3 `put` writes o[0..1] of rank 1 (not all threads need have heard of rank 1)";
    shows(507, &no_nop, &[OPENING[1], OPENING[3], put]);

    let mut relaxed = all_gather();
    (0..2).for_each(|rank| [6, 7].into_iter().for_each(|at| relax(&mut relaxed, (rank, 0, at))));
    shows(
        504,
        &relaxed,
        &after_opening(&[
            "rank 0 tb 0 op 4 `put` writes o[0..1] of rank 1",
            "rank 0 tb 0 op 6 `rlxsignal` on memory channel 0->1 #0",
            "rank 1 tb 0 op 7 `rlxwait` on memory channel 0->1 #0",
            "rank 1 ends its launch (rank 0 tb 0 op 4 need not be complete)",
        ]),
    );

    let mut open = all_gather();
    (0..2).for_each(|rank| drop(block(&mut open, rank, 0).drain(5..)));
    shows(
        508,
        &open,
        &[
            OPENING[0],
            OPENING[1],
            OPENING[2],
            "rank 1 ends its launch",
            OPENING[3],
            "rank 0 tb 0 op 4 `put` writes o[0..1] of rank 1 (nothing makes it come first)",
        ],
    );
}

/// The proxy takes its time.
#[test]
fn of_port_puts() {
    let write = op("copy", local("i", 0), local("o", 0));
    let flush = sync("flush", "port", 0);
    let pushed = "rank 0 tb 0 op 3 `put` pushes a request";
    let reads = "the proxy carries out rank 0 tb 0 op 3 `put`: it reads o[0..1]";
    let overwrites = [OPENING[1], OPENING[3], pushed, "rank 0 tb 0 op 6 `copy` writes o[0..1]", reads];
    shows(505, &port_plan(ops![nop(), write.clone(), flush.clone()], 0, 0), &overwrites);
    shows(510, &port_plan(ops![flush.clone(), write], 0, 0), &overwrites);
    shows(
        506,
        &port_plan(ops![flush], 1, 1),
        &after_opening(&[
            pushed,
            "rank 0 tb 0 op 4 `signal` on port channel 0->1 #1",
            "rank 1 tb 0 op 3 `wait` on port channel 0->1 #1",
            "rank 1 ends its launch",
            "the proxy carries out rank 0 tb 0 op 3 `put`: it writes o[0..1] of rank 1",
        ]),
    );
    let end = [OPENING[1], OPENING[3], pushed, "rank 0 ends its launch", reads];
    shows(511, &port_plan(ops![], 0, 0), &end);
}

#[test]
fn of_several_launches() {
    let signal = "launch 1: rank 0 tb 0 op 2 `signal` on memory channel 0->1 #0";
    let end = "launch 1: rank 0 ends its launch";
    let late = [
        "launch 1: rank 1 tb 0 op 0 `wait` on memory channel 0->1 #0",
        "launch 1: rank 1 tb 0 op 2 `copy` reads s[0..1] (nothing makes it come first)",
    ];
    let next = "launch 2: rank 0 tb 0 op 0 `put` writes s[0..1] of rank 1";
    shows(509, &scratch_plan(&[0], false, false), &[signal, end, next, late[0], late[1]]);
    let ends = [end, "launch 2: rank 0 ends its launch"];
    let next_but_one = "launch 3: rank 0 tb 0 op 0 `put` writes s[0..1] of rank 1";
    shows(509, &scratch_plan(&[0], true, false), &[signal, ends[0], ends[1], next_but_one, late[0], late[1]]);

    let pack = ops![memory("ppkt", local("i", 0), remote(2, 0))];
    let unpack = ops![op("upkt", local("s", 0), local("o", 0))];
    shows(
        604,
        &packets(pack, unpack, json!({})),
        &[
            "launch 1: rank 0 tb 0 op 0 `ppkt` with packets in s[0..1] of rank 1",
            end,
            "launch 2: rank 0 tb 0 op 0 `ppkt` writes packets in s[0..1] of rank 1",
            "launch 1: rank 1 tb 0 op 0 `upkt` reads packets in s[0..1] (nothing makes it come first)",
        ],
    );
}

/// People read a dozen lines: those at the end, and the accesses in any case.
#[test]
fn is_short() {
    let rounds =
        Value::Array(vec![opening(); 9].iter().flat_map(|o| o.as_array().unwrap().clone()).collect());
    let put = ops![memory("put", local("i", 0), remote(1, 0))];
    let plan = two([ops![both(&[&put, &rounds, &put])], ops![rounds]]);
    let report = order(&plan, &strict());
    let found = report.diagnostics.iter().find(|d| d.rule == Rule(504)).unwrap();
    // Of the 36 steps of the rounds the end does not need the last signal of rank 1 and the wait for it.
    let schedule = &found.schedule;
    assert_eq!(schedule.len(), 12, "{schedule:#?}");
    assert_eq!(schedule[0], "... 25 more steps of synchronisation");
    assert_eq!(schedule[1], "rank 0 tb 0 op 0 `put` writes o[0..1] of rank 1");
    // Then the way from there to rank 1, though it is long ago.
    assert_eq!(schedule[2], "rank 0 tb 0 op 1 `rlxsignal` on memory channel 0->1 #0");
    assert_eq!(schedule[3], "rank 1 tb 0 op 1 `rlxwait` on memory channel 0->1 #0");
    assert_eq!(schedule[11], "rank 1 ends its launch (rank 0 tb 0 op 0 need not be complete)");
    assert!(schedule[2..11].iter().all(|line| line.contains("`rlx")), "{schedule:#?}");
}

/// How blocks come to stand in a circle; nothing if they only have to start.
#[test]
fn of_a_circle() {
    let mut plan = all_gather();
    (0..2).for_each(|rank| block(&mut plan, rank, 0).swap(6, 7));
    shows(401, &plan, &OPENING);
    (0..2).for_each(|rank| drop(block(&mut plan, rank, 0).drain(..3)));
    shows(401, &plan, &[]);
}
