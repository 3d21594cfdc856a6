//! The tables of fusion, row by row.

use warpway_plan::{Chunk, CollectiveShape, DataSync, ProgramOptions, ReduceOp, Reduction, ThreadBlockGroup};

use crate::Pair;

fn no_sync() -> Pair {
    let options = ProgramOptions::new("pair", CollectiveShape::test(2, 8, 8));
    Pair::with(ProgramOptions { auto_sync: false, ..options })
}

impl Pair {
    fn nop(&mut self) {
        self.p.barrier(0, &[0]).unwrap();
    }

    fn barrier(&mut self) {
        self.p.barrier(0, &[0, 1]).unwrap();
    }

    /// `re`: destination = first + others.
    fn fold(&mut self, destination: &str, first: &str, others: &[&str]) {
        let (to, first) = (self.at(destination), self.at(first));
        let others: Vec<Chunk> = others.iter().map(|other| self.at(other)).collect();
        self.p.reduce(Reduction::of(first, &others).into(to), 0).unwrap();
    }

    fn fold_packets(&mut self, destination: &str, first: &str, others: &[&str]) {
        let (to, first) = (self.at(destination), self.at(first));
        let others: Vec<Chunk> = others.iter().map(|other| self.at(other)).collect();
        self.p.reduce_packets(Reduction::of(first, &others).into(to), 0).unwrap();
    }

    fn read_fold(&mut self, destination: &str, first: &str, others: &[&str]) {
        let (to, first) = (self.at(destination), self.at(first));
        let others: Vec<Chunk> = others.iter().map(|other| self.at(other)).collect();
        self.p.read_reduce(self.memory[0], Reduction::of(first, &others).into(to), 0).unwrap();
    }

    fn put_packets(&mut self, destination: &str, source: &str) {
        let (to, from) = (self.at(destination), self.at(source));
        self.p.put_packets(self.memory[0], to, from, 0).unwrap();
    }

    fn copy_packets(&mut self, destination: &str, source: &str) {
        let (to, from) = (self.at(destination), self.at(source));
        self.p.copy_packets(to, from, 0).unwrap();
    }

    fn forward(&mut self, destination: &str, source: &str) {
        let (to, from) = (self.at(destination), self.at(source));
        self.p.read_put_packets(self.memory[0], to, from, 0).unwrap();
    }

    fn get(&mut self, destination: &str, source: &str) {
        let (to, from) = (self.at(destination), self.at(source));
        self.p.get(self.memory[0], to, from, 0).unwrap();
    }
}

#[test]
fn barriers_of_a_block_swallow_each_other() {
    let mut t = Pair::new();
    t.nop();
    t.nop();
    t.barrier();
    t.nop();
    t.copy("o0", "i0");
    assert_eq!(t.shown(), ["barrier 0 of 2", "copy i0 -> o0"]);
}

#[test]
fn a_barrier_takes_the_mark_in_front_of_what_follows() {
    let mut t = Pair::new();
    t.copy("o0", "i0");
    t.nop();
    t.signal(0, DataSync::Both);
    assert_eq!(t.shown(), ["copy i0 -> o0", "nop", "signal [0]", "nop"]);
    let mut t = Pair::new();
    t.barrier();
    t.signal(0, DataSync::Both);
    assert_eq!(t.shown(), ["barrier 0 of 2", "signal [0]", "nop"]);
}

#[test]
fn neighbours_take_the_mark_behind_a_synchronisation() {
    let mut t = Pair::new();
    t.signal(0, DataSync::Both);
    t.wait(0, DataSync::Both);
    t.nop();
    assert_eq!(t.shown(), ["nop", "signal [0]", "nop", "wait [0]", "nop"]);
    let mut t = Pair::new();
    t.signal(0, DataSync::After);
    t.barrier();
    assert_eq!(t.shown(), ["signal [0]", "barrier 0 of 2"]);
    // Without a mark in front of the second, the first keeps its own.
    let mut t = Pair::new();
    t.signal(0, DataSync::After);
    t.wait(0, DataSync::None);
    assert_eq!(t.shown(), ["signal [0]", "nop", "wait [0]"]);
}

#[test]
fn a_pipeline_that_starts_with_synchronisation_takes_the_barrier_before_it() {
    for start in [DataSync::Before, DataSync::After] {
        let mut t = Pair::new();
        t.nop();
        let [one, back] = [t.memory[0], t.memory_back[0]];
        let (to, from) = (t.at("o0"), t.at("i0"));
        t.p.pipeline(16, 1, |p| {
            p.signal(one, 0, start)?;
            p.wait(back, 0, DataSync::None)?;
            p.copy(to, from, 0)
        })
        .unwrap();
        let expected: &[&str] = match start {
            DataSync::Before => &["16x1 { nop; signal [0]; copy i0 -> o0 }"],
            _ => &["nop", "16x1 { signal [0]; nop; copy i0 -> o0 }"],
        };
        assert_eq!(t.shown(), expected);
    }
}

#[test]
fn a_pipeline_that_starts_with_synchronisation_takes_the_mark_before_it() {
    let mut t = Pair::new();
    t.signal(0, DataSync::Both);
    let (to, from) = (t.at("o0"), t.at("i0"));
    t.p.pipeline(16, 1, |p| {
        p.barrier(0, &[0])?;
        p.copy(to, from, 0)
    })
    .unwrap();
    assert_eq!(t.shown(), ["nop", "signal [0]", "16x1 { nop; copy i0 -> o0 }"]);
}

#[test]
fn a_pipeline_that_ends_with_synchronisation_takes_what_follows() {
    let mut t = Pair::new();
    let [one, back] = [t.memory[0], t.memory_back[0]];
    let (to, from) = (t.at("o0"), t.at("i0"));
    t.p.pipeline(16, 1, |p| {
        p.copy(to, from, 0)?;
        p.wait(one, 0, DataSync::After)?;
        p.signal(back, 0, DataSync::None)
    })
    .unwrap();
    t.nop();
    t.signal(0, DataSync::Both);
    let body = "16x1 { copy i0 -> o0; wait [0]; nop }";
    assert_eq!(t.shown(), [body, "signal [0]", "nop"]);
}

#[test]
fn synchronisation_of_one_kind_is_joined() {
    let mut t = Pair::new();
    t.signal(1, DataSync::Before);
    t.signal(0, DataSync::After);
    t.wait(0, DataSync::None);
    t.wait(1, DataSync::None);
    // In the block, channel 1 was first and has position 0.
    assert_eq!(t.shown(), ["nop", "signal [0, 1]", "nop", "wait [0, 1]"]);
    assert_eq!(t.plan().ranks[0].blocks[0].channels[0].channels, [1, 0]);
}

#[test]
fn a_channel_is_signalled_once_per_operation() {
    let mut t = Pair::new();
    t.signal(0, DataSync::None);
    t.signal(0, DataSync::None);
    assert_eq!(t.shown(), ["signal [0]", "signal [0]"]);
}

#[test]
fn relaxed_and_other_types_are_not_joined() {
    let mut t = Pair::new();
    t.signal(0, DataSync::None);
    t.p.signal_relaxed(t.memory[1], 0, DataSync::None).unwrap();
    t.p.signal(t.port[0], 0, DataSync::None).unwrap();
    t.p.wait_relaxed(t.memory_back[1], 0, DataSync::None).unwrap();
    t.p.wait(t.port_back[0], 0, DataSync::None).unwrap();
    assert_eq!(t.shown(), ["signal [0]", "rlxsignal [1]", "signal port [0]"]);
    let mut t = Pair::new();
    for channel in [0, 1] {
        t.p.signal_relaxed(t.memory[channel], 0, DataSync::None).unwrap();
        t.p.wait_relaxed(t.memory_back[channel], 0, DataSync::None).unwrap();
    }
    assert_eq!(t.shown(), ["rlxsignal [0, 1]"]);
}

#[test]
fn semaphores_are_listed_and_flushes_united() {
    let mut t = Pair::new();
    let [a, b] = [t.p.semaphore(0, 1).unwrap(), t.p.semaphore(0, 1).unwrap()];
    for semaphore in [b, a, b] {
        t.p.acquire(semaphore, 0, DataSync::None).unwrap();
    }
    t.p.release(a, 0, DataSync::After).unwrap();
    t.p.release(b, 0, DataSync::Before).unwrap();
    for channel in [0, 1, 0] {
        t.p.flush(t.port[channel], 0, DataSync::None).unwrap();
    }
    assert_eq!(t.shown(), ["acquire [1, 0, 1]", "nop", "release [0, 1]", "nop", "flush [0, 1]"]);
}

#[test]
fn transfers_of_one_kind_are_joined() {
    let mut t = no_sync();
    t.get("s0", "i0'");
    t.get("s1", "o1'");
    t.put("o0'", "i0");
    t.put("o1'", "i1");
    t.put_packets("s0'", "i2");
    t.put_packets("s1'", "i3");
    assert_eq!(
        t.shown(),
        [
            "get remote0:0 remote1:1 -> s0 s1 on [0, 0]",
            "put i0 i1 -> remote1:0 remote1:1",
            "ppkt i2 i3 -> remote2:0 remote2:1",
        ]
    );
}

#[test]
fn port_transfers_are_joined_with_their_channels() {
    let mut t = no_sync();
    let chunk = |t: &mut Pair, name: &str| t.at(name);
    for (channel, to, from) in [(0, "o0'", "i0"), (1, "o1'", "i1")] {
        let (to, from) = (chunk(&mut t, to), chunk(&mut t, from));
        t.p.put(t.port[channel], to, from, 0).unwrap();
    }
    for (channel, to, from) in [(1, "o2'", "i2"), (0, "o3'", "i3")] {
        let (to, from) = (chunk(&mut t, to), chunk(&mut t, from));
        t.p.put_with_signal(t.port[channel], to, from, 0).unwrap();
        t.p.wait(t.port_back[channel], 0, DataSync::None).unwrap();
    }
    for (to, from) in [("o4'", "i4"), ("o5'", "i5")] {
        let (to, from) = (chunk(&mut t, to), chunk(&mut t, from));
        t.p.put_with_signal_and_flush(t.port[0], to, from, 0).unwrap();
        t.p.wait(t.port_back[0], 0, DataSync::None).unwrap();
    }
    assert_eq!(
        t.shown(),
        [
            "put i0 i1 -> remote0:0 remote0:1 on [0, 1]",
            "pws i2 i3 -> remote0:2 remote0:3 on [1, 0]",
            // Two signals of one channel: joined, they would have no order.
            "pwsf i4 -> remote0:4 on [0]",
            "pwsf i5 -> remote0:5 on [0]",
        ]
    );
}

#[test]
fn transfers_of_different_size_type_or_group_stay_apart() {
    let mut t = no_sync();
    t.put("o0+2'", "i0+2");
    t.put("o2'", "i2");
    let (to, from) = (t.at("o3'"), t.at("i3"));
    t.p.put(t.port[0], to, from, 0).unwrap();
    let group = ThreadBlockGroup::new([0, 1]).unwrap();
    let (to, from) = (t.at("o4'"), t.at("i4"));
    t.p.put(t.memory[0], to, from, &group).unwrap();
    assert_eq!(
        t.shown(),
        [
            "put i0+2 -> remote0:0+2",
            "put i2 -> remote0:2",
            "put i3 -> remote0:3 on [0]",
            "put i4 -> remote0:4 share 0/2",
        ]
    );
}

#[test]
fn a_forwarded_packet_has_several_destinations() {
    let mut t = no_sync();
    t.forward("s1'", "s0");
    t.forward("s2'", "s0");
    t.forward("s3'", "s1");
    assert_eq!(t.shown(), ["rppkt s0 -> remote0:1 remote0:2", "rppkt s1 -> remote0:3"]);
}

#[test]
fn folds_into_one_chunk_are_joined() {
    let mut t = no_sync();
    t.fold("i0", "i0", &["s0"]);
    t.fold("i0", "i0", &["s1", "s2"]);
    t.fold_packets("i1", "i1", &["s0"]);
    t.fold_packets("i1", "i1", &["s1"]);
    t.read_fold("i2", "i2", &["i0'"]);
    t.read_fold("i2", "i2", &["o0'"]);
    assert_eq!(
        t.shown(),
        ["re i0 s0 s1 s2 -> i0 sum", "repkt i1 s0 s1 -> i1 sum", "rre i2 remote0:0 remote1:0 -> i2 sum",]
    );
}

#[test]
fn folds_with_another_operator_or_chunk_stay_apart() {
    let mut t = no_sync();
    t.fold("i0", "i0", &["s0"]);
    let (first, other) = (t.at("i0"), t.at("s1"));
    t.p.reduce(Reduction::of(first, &[other]).with(ReduceOp::Max), 0).unwrap();
    t.fold("i1", "i1", &["s1"]);
    assert_eq!(t.shown(), ["re i0 s0 -> i0 sum", "re i0 s1 -> i0 max", "re i1 s1 -> i1 sum"]);
}

#[test]
fn joined_folds_keep_their_order() {
    let mut t = no_sync();
    let [d, a, b, c] = ["i0", "s0", "s1", "s2"].map(|name| t.at(name));
    t.p.reduce(Reduction::of(d, &[a, b]).ordered(&[2, 0, 1]), 0).unwrap();
    t.p.reduce(Reduction::of(d, &[c]), 0).unwrap();
    t.p.reduce(Reduction::of(d, &[a, b]).ordered(&[0, 2, 1]), 0).unwrap();
    // Starts from another source: the sum so far enters second.
    t.p.reduce(Reduction::of(d, &[a]).ordered(&[1, 0]), 0).unwrap();
    assert_eq!(t.shown(), ["re i0 s0 s1 s2 s0 s1 -> i0 sum [2, 0, 1, 3, 5, 4]", "re i0 s0 -> i0 sum [1, 0]"]);
    assert_eq!(t.plan().extensions, [warpway_plan::Extension::Order].into());

    let mut t = no_sync();
    t.p.reduce(Reduction::of(d, &[a]), 0).unwrap();
    t.p.reduce(Reduction::of(d, &[b, c]).ordered(&[0, 2, 1]), 0).unwrap();
    assert_eq!(t.shown(), ["re i0 s0 s1 s2 -> i0 sum [0, 1, 3, 2]"]);
    // The order of the list is no order.
    let mut t = no_sync();
    t.p.reduce(Reduction::of(d, &[a]).ordered(&[0, 1]), 0).unwrap();
    assert_eq!(t.shown(), ["re i0 s0 -> i0 sum"]);
    assert!(t.plan().extensions.is_empty());
}

#[test]
fn a_fold_takes_in_the_sending_of_its_result() {
    let mut t = no_sync();
    t.fold("i0", "i0", &["s0"]);
    t.put("o0'", "i0");
    t.put("o1'", "i0");
    t.read_fold("i1", "i1", &["i1'"]);
    t.put("o2'", "i1");
    t.fold_packets("i2", "i2", &["s1"]);
    t.put_packets("s2'", "i2");
    t.put_packets("s3'", "i2");
    assert_eq!(
        t.shown(),
        [
            "res i0 s0 -> i0 remote0:0 remote0:1 sum",
            "rres i1 remote1:1 -> i1 remote0:2 sum",
            "respkt i2 s1 -> i2 remote2:2 remote2:3 sum",
        ]
    );
}

#[test]
fn a_fold_of_packets_takes_in_a_local_packet_copy() {
    let mut t = no_sync();
    t.fold_packets("i0", "i0", &["s0"]);
    t.copy_packets("s4", "i0");
    assert_eq!(t.shown(), ["recpkt i0 s0 -> i0 s4 sum"]);
    assert_eq!(t.plan().ranks[0].blocks[0].channels.len(), 0);
    t.put_packets("s1'", "i0");
    t.forward("s2'", "s4");
    t.put_packets("s3'", "i0");
    assert_eq!(t.shown(), ["recspkt i0 s0 -> i0 s4 remote0:1 remote0:2 remote0:3 sum"]);
    // Not what was copied.
    t.forward("s5'", "s5");
    assert_eq!(t.shown().len(), 2);
}

#[test]
fn a_fold_stays_apart_from_the_sending_of_something_else() {
    let mut t = no_sync();
    t.fold("i0", "i0", &["s0"]);
    t.put("o0'", "i1");
    t.fold("i0", "i0", &["s0"]);
    let (to, from) = (t.at("o1'"), t.at("i0"));
    t.p.put(t.port[0], to, from, 0).unwrap();
    t.fold_packets("i0", "i0", &["s0"]);
    t.put("o2'", "i0");
    let group = ThreadBlockGroup::new([0, 1]).unwrap();
    t.fold("i0", "i0", &["s0"]);
    let (to, from) = (t.at("o3'"), t.at("i0"));
    t.p.put(t.memory[0], to, from, &group).unwrap();
    let kinds: Vec<String> =
        t.shown().iter().map(|line| line.split(' ').next().unwrap().to_owned()).collect();
    assert_eq!(kinds, ["re", "put", "re", "put", "repkt", "put", "re", "put"]);
}

#[test]
fn nothing_is_joined_without_fusion() {
    let options = ProgramOptions::new("pair", CollectiveShape::test(2, 8, 8));
    let mut t = Pair::with(ProgramOptions { fusion: false, ..options });
    t.put("o0'", "i0");
    t.put("o1'", "i1");
    t.nop();
    t.signal(0, DataSync::Both);
    let expected = ["put i0 -> remote0:0", "put i1 -> remote0:1", "nop", "nop", "signal [0]", "nop"];
    assert_eq!(t.shown(), expected);
}
