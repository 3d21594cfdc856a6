//! Block barriers from marks and hazards.

use warpway_plan::{CollectiveShape, DataSync, ProgramOptions, Reduction};

use crate::Pair;

#[test]
fn marks_become_barriers() {
    for (marks, expected) in [
        (DataSync::None, &["signal [0]"][..]),
        (DataSync::Before, &["nop", "signal [0]"]),
        (DataSync::After, &["signal [0]", "nop"]),
        (DataSync::Both, &["nop", "signal [0]", "nop"]),
    ] {
        let mut t = Pair::new();
        t.signal(0, marks);
        assert_eq!(t.shown(), expected);
    }
    assert_eq!(DataSync::Before | DataSync::After, DataSync::Both);
    assert_eq!(DataSync::Both & DataSync::After, DataSync::After);
    assert_eq!(DataSync::Both ^ DataSync::After, DataSync::Before);
}

#[test]
fn conflicting_accesses_are_kept_apart() {
    // Read after write, write after read, write after write.
    for (first, second) in
        [(["o0", "i0"], ["s0", "o0"]), (["o0", "i0"], ["i0", "s0"]), (["o0", "i0"], ["o0", "s0"])]
    {
        let mut t = Pair::new();
        t.copy(first[0], first[1]);
        t.copy(second[0], second[1]);
        assert_eq!(t.shown()[1], "nop");
        assert_eq!(t.shown().len(), 3);
    }
    // Read after read, and other chunks.
    let mut t = Pair::new();
    t.copy("o0", "i0");
    t.copy("o1", "i0");
    t.copy("o2+2", "i2+2");
    t.copy("s0", "i4");
    assert_eq!(t.shown().len(), 4);
}

#[test]
fn parts_of_runs_conflict() {
    let mut t = Pair::new();
    t.copy("o0+4", "i0+4");
    t.copy("o4", "i4");
    t.copy("s0", "o3");
    // The barrier has cleared everything.
    t.copy("s1", "o1");
    t.copy("i0", "s1");
    assert_eq!(
        t.shown(),
        [
            "copy i0+4 -> o0+4",
            "copy i4 -> o4",
            "nop",
            "copy o3 -> s0",
            "copy o1 -> s1",
            "nop",
            "copy s1 -> i0",
        ]
    );
}

#[test]
fn reads_of_both_operands_and_results_count() {
    let mut t = Pair::new();
    t.copy("s0", "i0");
    let [d, a] = ["i1", "s0"].map(|name| t.at(name));
    t.p.reduce(Reduction::of(d, &[a]), 0).unwrap();
    t.put("o0'", "i2");
    let (to, from) = (t.at("i2"), t.at("i2'"));
    t.p.get(t.memory[0], to, from, 0).unwrap();
    assert_eq!(
        t.shown(),
        [
            "copy i0 -> s0",
            "nop",
            "re i1 s0 -> i1 sum",
            "put i2 -> remote0:0",
            "nop",
            "get remote1:2 -> i2 on [0]",
        ]
    );
}

/// The read by the fold itself must not hide the read before it.
#[test]
fn an_update_in_place_waits_for_readers() {
    let mut t = Pair::new();
    t.put("o0'", "i0");
    let [d, a] = ["i0", "s0"].map(|name| t.at(name));
    t.p.reduce(Reduction::of(d, &[a]), 0).unwrap();
    assert_eq!(t.shown(), ["put i0 -> remote0:0", "nop", "re i0 s0 -> i0 sum"]);
}

#[test]
fn packets_are_protected_by_their_flags() {
    let mut t = Pair::new();
    let [a, s, b] = ["i0", "s0", "i1"].map(|name| t.at(name));
    t.p.copy_packets(s, a, 0).unwrap();
    t.p.unpack_packets(b, s, 0).unwrap();
    let remote = t.at("s0'");
    t.p.read_put_packets(t.memory[0], remote, s, 0).unwrap();
    assert_eq!(t.shown(), ["cpkt i0 -> s0", "upkt s0 -> i1", "rppkt s0 -> remote0:0"]);
}

#[test]
fn a_pipeline_is_analysed_inside_and_as_a_whole() {
    let mut t = Pair::new();
    t.copy("s0", "i0");
    let [a, b, c] = ["s0", "o0", "s1"].map(|name| t.at(name));
    t.p.pipeline(32, 2, |p| {
        p.copy(b, a, 0)?;
        p.copy(c, b, 0)
    })
    .unwrap();
    t.copy("o1", "s1");
    assert_eq!(
        t.shown(),
        ["copy i0 -> s0", "nop", "32x2 { copy s0 -> o0; nop; copy o0 -> s1 }", "nop", "copy s1 -> o1",]
    );
}

#[test]
fn nothing_is_inserted_without_auto_sync() {
    let options = ProgramOptions::new("pair", CollectiveShape::test(2, 8, 8));
    let mut t = Pair::with(ProgramOptions { auto_sync: false, ..options });
    t.copy("o0", "i0");
    t.copy("s0", "o0");
    t.signal(0, DataSync::Before);
    assert_eq!(t.shown(), ["copy i0 -> o0", "copy o0 -> s0", "nop", "signal [0]"]);
}
