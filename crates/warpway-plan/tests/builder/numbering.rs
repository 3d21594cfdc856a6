//! Ids, tables and instances.

use warpway_plan::{
    BufferKind, ChannelEntry, ChannelRefs, ChannelType, CollectiveShape, Compat, DataSync, Program,
    ProgramOptions, RankGroup, ReduceOp, RemoteBuffer, RemoteBufferRefs, ThreadBlockGroup,
};

use crate::{Pair, show};

#[test]
fn tables_are_in_order_of_first_use() {
    let mut t = Pair::new();
    let [o, i, s, here] = ["o0'", "i0'", "s0'", "i0"].map(|name| t.at(name));
    t.p.put(t.memory[1], o, here, 1).unwrap();
    t.p.put(t.port[0], i, here, 1).unwrap();
    t.p.put(t.memory[0], s, here, 1).unwrap();
    t.p.put(t.port[1], o, here, 3).unwrap();
    let plan = t.plan();
    let rank = &plan.ranks[0];
    let remote =
        |buffer, memory_access, port_access| RemoteBuffer { rank: 1, buffer, memory_access, port_access };
    assert_eq!(
        rank.remote_buffers,
        [
            remote(BufferKind::Output, true, true),
            remote(BufferKind::Input, false, true),
            remote(BufferKind::Scratch, true, false),
        ]
    );
    assert_eq!(rank.channels, [ChannelEntry::Memory(vec![1, 1]), ChannelEntry::Port(vec![1, 1])]);
    assert_eq!(rank.blocks.len(), 4);
    assert!(rank.blocks[0].operations.is_empty() && rank.blocks[2].operations.is_empty());
    // A memory put names no channel, and still uses one.
    assert_eq!(
        rank.blocks[1].channels,
        [
            ChannelRefs { channel_type: ChannelType::Memory, channels: vec![1, 0] },
            ChannelRefs { channel_type: ChannelType::Port, channels: vec![0] },
        ]
    );
    assert_eq!(
        rank.blocks[1].remote_buffers,
        [
            RemoteBufferRefs { access: ChannelType::Memory, buffers: vec![0, 2] },
            RemoteBufferRefs { access: ChannelType::Port, buffers: vec![1] },
        ]
    );
    assert_eq!(
        rank.blocks[3].remote_buffers,
        [RemoteBufferRefs { access: ChannelType::Port, buffers: vec![0] }]
    );
}

#[test]
fn channel_types_are_in_order_of_creation_and_switches_last() {
    let mut p = Program::new(ProgramOptions::new("order", CollectiveShape::test(3, 2, 2))).unwrap();
    let switch = p.switch_channel(&[2, 0], BufferKind::Output).unwrap();
    p.port_channel(0, 2).unwrap();
    p.memory_channel(0, 1).unwrap();
    p.port_channel(0, 1).unwrap();
    let chunk = p.input(0).unwrap().chunk(0..1).unwrap();
    p.switch_broadcast(switch.region(0, 1, 1), chunk, 0).unwrap();
    let plan = p.finish().unwrap();
    let groups = vec![RankGroup { size: 2, ranks: vec![2, 0] }];
    assert_eq!(
        plan.ranks[0].channels,
        [
            ChannelEntry::Port(vec![2, 1]),
            ChannelEntry::Memory(vec![1]),
            ChannelEntry::Switch { buffer: BufferKind::Output, groups },
        ]
    );
    assert!(plan.ranks[1].channels.is_empty());
}

#[test]
fn barriers_are_numbered_by_their_list() {
    let mut t = Pair::new();
    for blocks in [&[0, 1][..], &[1, 0], &[0], &[0, 1], &[0, 1, 2]] {
        t.p.barrier(0, blocks).unwrap();
        let [to, from] = ["o0", "i0"].map(|name| t.at(name));
        t.p.copy(to, from, 0).unwrap();
    }
    t.p.barrier(1, &[0, 2]).unwrap();
    let copy = "copy i0 -> o0";
    let barriers = ["barrier 0 of 2", "barrier 1 of 2", "nop", "barrier 0 of 2", "barrier 2 of 3"];
    let expected: Vec<&str> = barriers.into_iter().flat_map(|barrier| [barrier, copy]).collect();
    assert_eq!(t.shown(), expected);
    assert_eq!(show::block(&t.plan(), 1, 2), ["barrier 0 of 2"]);
}

#[test]
fn groups_share_an_operation() {
    let mut t = Pair::new();
    let group = ThreadBlockGroup::new([3, 1]).unwrap();
    let (to, from) = (t.at("o0'"), t.at("i0"));
    t.p.put(t.memory[1], to, from, &group).unwrap();
    let plan = t.plan();
    assert_eq!(show::block(&plan, 0, 3), ["put i0 -> remote0:0 share 0/2"]);
    assert_eq!(show::block(&plan, 0, 1), ["put i0 -> remote0:0 share 1/2"]);
    assert_eq!(plan.ranks[0].blocks[1].channels, plan.ranks[0].blocks[3].channels);
    assert_eq!((group.member(1), group.member(2)), (Some(1), None));
}

#[test]
fn pipelines_collect_by_block_in_order_of_appearance() {
    let mut t = Pair::new();
    let [a, b, x, y] = ["o0", "i0", "o1'", "i1'"].map(|name| t.at(name));
    t.copy("o4", "i4");
    t.p.pipeline(32, 3, |p| {
        p.copy(x, y, 0)?;
        p.copy(a, b, 1)?;
        p.copy(a, b, 0)?;
        p.copy(x, y, 0)
    })
    .unwrap();
    t.copy("o5", "i5");
    let plan = t.plan();
    assert_eq!(show::block(&plan, 0, 0), ["copy i4 -> o4", "32x3 { copy i0 -> o0 }", "copy i5 -> o5"]);
    assert_eq!(show::block(&plan, 0, 1), ["32x3 { copy i0 -> o0 }"]);
    assert_eq!(show::block(&plan, 1, 0), ["32x3 { copy i1 -> o1; nop; copy i1 -> o1 }"]);
}

#[test]
fn a_body_that_fails_leaves_nothing() {
    let mut t = Pair::new();
    let [a, b, bad] = ["o0", "i0", "i0+2"].map(|name| t.at(name));
    let failed = t.p.pipeline(32, 3, |p| {
        p.copy(a, b, 0)?;
        p.copy(a, bad, 0)
    });
    assert!(failed.is_err());
    t.copy("o1", "i1");
    assert_eq!(t.shown(), ["copy i1 -> o1"]);
}

#[test]
fn instances_take_shares_of_chunks_and_numbers() {
    let options = ProgramOptions::new("two", CollectiveShape::test(2, 8, 4));
    let mut p = Program::new(ProgramOptions { instances: 2, ..options }).unwrap();
    let [here, _] = [p.scratch(0, 3).unwrap(), p.scratch(1, 3).unwrap()];
    let (channel, back) = (p.memory_channel(0, 1).unwrap(), p.memory_channel(1, 0).unwrap());
    let switch = p.switch_channel(&[0, 1], BufferKind::Input).unwrap();
    let semaphore = [p.semaphore(0, 5).unwrap(), p.semaphore(0, 7).unwrap()][1];
    let input = p.input(0).unwrap();
    p.copy(here.chunk(1..3).unwrap(), input.chunk(3..5).unwrap(), 1).unwrap();
    p.acquire(semaphore, 1, DataSync::None).unwrap();
    p.barrier(0, &[1, 0]).unwrap();
    p.signal(channel, 1, DataSync::None).unwrap();
    p.wait(back, 0, DataSync::None).unwrap();
    p.put(channel, p.output(1).unwrap().chunk(0..1).unwrap(), input.chunk(7..8).unwrap(), 1).unwrap();
    p.switch_reduce(switch.region(0, 2, 2), here.chunk(0..2).unwrap(), 1, ReduceOp::Min).unwrap();
    let group = ThreadBlockGroup::new([0]).unwrap();
    p.pipeline(64, 9, |p| p.copy(here.chunk(0..1)?, input.chunk(0..1)?, &group)).unwrap();
    let plan = p.emit(Compat::None).unwrap().plan;
    let rank = &plan.ranks[0];
    assert_eq!((rank.input_chunks, rank.output_chunks, rank.scratch_chunks), (16, 8, 6));
    assert_eq!(rank.semaphores, [5, 5, 7, 7]);
    assert_eq!(rank.channels.len(), 3);
    assert_eq!(rank.channels[0], ChannelEntry::Memory(vec![1, 1]));
    assert_eq!(rank.remote_buffers.len(), 1);
    assert_eq!(rank.blocks.len(), 4);
    let expected = |copy, acquire, barrier, put, reduce| {
        vec![copy, acquire, barrier, "signal [0]", put, reduce]
            .into_iter()
            .map(String::from)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        show::block(&plan, 0, 2),
        expected(
            "copy i6+2 -> s2+2",
            "acquire [2]",
            "barrier 0 of 2",
            "put i14 -> remote0:0",
            "glre switch0:4+2 -> s0+2 min",
        )
    );
    assert_eq!(
        show::block(&plan, 0, 3),
        expected(
            "copy i8+2 -> s4+2",
            "acquire [3]",
            "barrier 1 of 2",
            "put i15 -> remote0:1",
            "glre switch0:6+2 -> s2+2 min",
        )
    );
    let pipeline = "64x9 { copy i1 -> s1 share 0/1 }";
    assert_eq!(show::block(&plan, 0, 1), ["barrier 1 of 2", pipeline]);
    assert_eq!(rank.blocks[3].channels[0].channels, [1]);
    assert_eq!(rank.blocks[3].remote_buffers[0].buffers, [0]);
}

#[test]
fn operations_know_their_lines() {
    let mut t = Pair::new();
    let [to, from] = ["o0", "i0"].map(|name| t.at(name));
    let line = line!() + 1;
    t.p.copy(to, from, 0).unwrap();
    t.p.set_location(Some(warpway_plan::Location { file: "a.py".to_owned(), line: 7 }));
    t.p.copy(from, to, 0).unwrap();
    let plan = t.plan();
    let locations: Vec<_> = plan
        .operations()
        .map(|(_, _, operation)| operation.location.as_deref().map(|l| (l.file.as_str(), l.line)).unwrap())
        .collect();
    let [(file, first), barrier, last] = locations[..] else { panic!("{locations:?}") };
    assert!(file.ends_with("numbering.rs"));
    assert_eq!(first, line);
    assert_eq!((barrier, last), (("a.py", 7), ("a.py", 7)));
}
