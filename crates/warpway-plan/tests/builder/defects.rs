//! One positive and one negative test for each known defect of MSCCL++'s passes that concerns programs: avoided by
//! default, reproduced for compatibility.

use warpway_plan::{
    BufferKind, BuildProblem, CollectiveShape, Compat, DataSync, Extension, Program, ProgramOptions,
    ReduceOp, Reduction, SwitchRegion,
};

use crate::{Pair, show};

fn fold(t: &mut Pair, destination: &str, first: &str, other: &str) {
    let [destination, first, other] = [destination, first, other].map(|name| t.at(name));
    t.p.reduce(Reduction::of(first, &[other]).into(destination), 0).unwrap();
}

#[test]
fn x1_a_fold_that_does_not_read_the_result_stays_apart() {
    let mut t = Pair::new();
    fold(&mut t, "o0", "i0", "s0");
    fold(&mut t, "o0", "i0", "s1");
    assert_eq!(t.shown(), ["re i0 s0 -> o0 sum", "nop", "re i0 s1 -> o0 sum"]);
    assert_eq!(t.shown_compat(), ["re i0 s0 s1 -> o0 sum"]);
    let [warning] = &t.warnings()[..] else { panic!() };
    assert!(warning.starts_with("rank 0, block 0, "), "{warning}");
    assert!(warning.contains("defects.rs:13: dead store: earlier reduce is overwritten"), "{warning}");

    // In place both mean the same.
    let mut t = Pair::new();
    fold(&mut t, "i0", "i0", "s0");
    fold(&mut t, "i0", "i0", "s1");
    assert_eq!(t.shown(), ["re i0 s0 s1 -> i0 sum"]);
    assert_eq!(t.shown(), t.shown_compat());
    assert!(t.warnings().is_empty());
}

#[test]
fn x1_a_fold_whose_other_source_is_the_result_stays_apart() {
    let mut t = Pair::new();
    fold(&mut t, "i0", "i0", "s0");
    fold(&mut t, "i0", "i0", "i0");
    assert_eq!(t.shown(), ["re i0 s0 -> i0 sum", "nop", "re i0 i0 -> i0 sum"]);
    assert_eq!(t.shown_compat(), ["re i0 s0 i0 -> i0 sum"]);
    assert!(t.warnings().is_empty());
}

/// A switch channel over the inputs (or scratch) of both ranks, and what rank 0 does with it.
fn switched(buffer: BufferKind, say: impl FnOnce(&mut Pair, &dyn Fn(u64) -> SwitchRegion)) -> Pair {
    let mut t = Pair::new();
    let switch = t.p.switch_channel(&[0, 1], buffer).unwrap();
    say(&mut t, &|offset| switch.region(0, offset, 1));
    t
}

fn load_reduce_store(t: &mut Pair, from: SwitchRegion, to: SwitchRegion, through: &str) {
    let chunk = t.at(through);
    t.p.switch_reduce(from, chunk, 0, ReduceOp::Sum).unwrap();
    t.p.switch_broadcast(to, chunk, 0).unwrap();
}

#[test]
fn x2_the_offset_of_a_joined_multicast_store_is_kept() {
    let t = switched(BufferKind::Scratch, |t, at| load_reduce_store(t, at(2), at(5), "s5"));
    assert_eq!(t.shown(), ["glres switch0:2 -> switch0:5 sum"]);
    assert_eq!(t.shown_compat(), ["glres switch0:2 -> switch0:2 sum"]);
    // Equal offsets mean the same.
    let t = switched(BufferKind::Input, |t, at| load_reduce_store(t, at(2), at(2), "i2"));
    assert_eq!(t.shown(), ["glres switch0:2 -> switch0:2 sum"]);
    assert_eq!(t.shown(), t.shown_compat());
}

#[test]
fn x3_a_local_result_that_is_read_is_written() {
    let apart = ["glre switch0:0 -> s1 sum", "nop", "gstore s1 -> switch0:0"];
    // Read by the block.
    let t = switched(BufferKind::Input, |t, at| {
        load_reduce_store(t, at(0), at(0), "s1");
        t.copy("o0", "s1");
    });
    assert_eq!(t.shown(), [apart[0], apart[1], apart[2], "copy s1 -> o0"]);
    assert_eq!(t.shown_compat(), ["glres switch0:0 -> switch0:0 sum", "copy s1 -> o0"]);
    // By another block.
    let t = switched(BufferKind::Input, |t, at| {
        load_reduce_store(t, at(0), at(0), "s1");
        let [to, from] = ["o0", "s0+2"].map(|name| t.at(name));
        let to = t.p.output(0).unwrap().chunk(to.index()..to.index() + 2).unwrap();
        t.p.copy(to, from, 1).unwrap();
    });
    assert_eq!(t.shown(), apart);
    // By a peer.
    let t = switched(BufferKind::Input, |t, at| {
        load_reduce_store(t, at(0), at(0), "s1");
        let [to, from] = ["o0'", "s1"].map(|name| t.at(name));
        t.p.get(t.memory_back[0], to, from, 0).unwrap();
    });
    assert_eq!(t.shown(), apart);
    // By the caller.
    let t = switched(BufferKind::Input, |t, at| load_reduce_store(t, at(0), at(0), "o1"));
    assert_eq!(t.shown(), ["glre switch0:0 -> o1 sum", "nop", "gstore o1 -> switch0:0"]);
}

#[test]
fn x3_a_local_result_that_nobody_reads_is_not_written() {
    let joined = "glres switch0:0 -> switch0:0 sum";
    let t = switched(BufferKind::Input, |t, at| load_reduce_store(t, at(0), at(0), "s1"));
    assert_eq!(t.shown(), [joined]);
    // Reused as a stage, and read only after it was written again.
    let t = switched(BufferKind::Input, |t, at| {
        load_reduce_store(t, at(0), at(0), "s1");
        load_reduce_store(t, at(1), at(1), "s1");
        t.copy("s1", "i5");
        t.copy("o0", "s1");
    });
    assert_eq!(t.shown()[0], joined);
    assert_eq!(t.shown().len(), 5);
    // Read before.
    let t = switched(BufferKind::Input, |t, at| {
        t.copy("o0", "s1");
        load_reduce_store(t, at(0), at(0), "s1");
    });
    assert_eq!(t.shown(), ["copy s1 -> o0", joined]);
    // In a slice-wise loop.
    let t = switched(BufferKind::Input, |t, at| {
        let (region, chunk) = (at(0), t.at("s1"));
        t.p.pipeline(64, 1, |p| {
            p.switch_reduce(region, chunk, 0, ReduceOp::Sum)?;
            p.switch_broadcast(region, chunk, 0)
        })
        .unwrap();
    });
    assert_eq!(t.shown(), [format!("64x1 {{ {joined} }}")]);
}

#[test]
fn x4_a_lone_load_reduce_is_an_extension() {
    let t = switched(BufferKind::Input, |t, at| {
        let chunk = t.at("o0");
        t.p.switch_reduce(at(3), chunk, 0, ReduceOp::Max).unwrap();
    });
    assert_eq!(t.shown(), ["glre switch0:3 -> o0 max"]);
    assert_eq!(t.plan().extensions, [Extension::LoadReduce].into());
    let error = t.p.emit(Compat::Mscclpp).unwrap_err();
    assert_eq!(*error.problem(), BuildProblem::NeedsExtension(Extension::LoadReduce));
}

#[test]
fn x5_the_raw_source_of_a_fold_of_packets_is_tracked() {
    let mut t = Pair::new();
    t.copy("i0", "i1");
    let [d, a, packets] = ["o0", "i0", "s0"].map(|name| t.at(name));
    t.p.reduce_packets(Reduction::of(a, &[packets]).into(d), 0).unwrap();
    assert_eq!(t.shown(), ["copy i1 -> i0", "nop", "repkt i0 s0 -> o0 sum"]);
    assert_eq!(t.shown_compat(), ["copy i1 -> i0", "repkt i0 s0 -> o0 sum"]);
    // Its result is tracked by both.
    t.copy("o1", "o0");
    assert_eq!(t.shown_compat()[2..], ["nop", "copy o0 -> o1"]);
}

#[test]
fn x6_a_barrier_before_a_pipeline_that_ends_in_one_is_kept() {
    let mut t = Pair::new();
    t.copy("o0", "i0");
    t.p.barrier(0, &[0]).unwrap();
    let [a, b] = ["s0", "o0"].map(|name| t.at(name));
    let body = |p: &mut Program| {
        p.copy(a, b, 0)?;
        p.barrier(0, &[0])
    };
    t.p.pipeline(16, 1, body).unwrap();
    let pipeline = "16x1 { copy o0 -> s0; nop }";
    assert_eq!(t.shown(), ["copy i0 -> o0", "nop", pipeline]);
    // The analysis of hazards saves this one, but not one that another block sees.
    assert_eq!(t.shown_compat(), ["copy i0 -> o0", "nop", pipeline]);

    let mut t = Pair::new();
    t.signal(0, DataSync::After);
    t.p.pipeline(16, 1, body).unwrap();
    assert_eq!(t.shown(), ["signal [0]", "nop", pipeline]);
    assert_eq!(t.shown_compat(), ["signal [0]", pipeline]);
    let mut t = Pair::new();
    t.wait(0, DataSync::None);
    t.p.barrier(0, &[0]).unwrap();
    t.p.pipeline(16, 1, body).unwrap();
    assert_eq!(t.shown(), ["wait [0]", "nop", pipeline]);
    assert_eq!(t.shown_compat(), ["wait [0]", pipeline]);
}

#[test]
fn x7_accesses_of_an_operation_that_needed_a_barrier_are_remembered() {
    let mut t = Pair::new();
    t.copy("o0", "i0");
    // Reads i1, and conflicts at o0.
    t.copy("o0", "i1");
    t.copy("i1", "i2");
    assert_eq!(t.shown(), ["copy i0 -> o0", "nop", "copy i1 -> o0", "nop", "copy i2 -> i1"]);
    assert_eq!(t.shown_compat(), ["copy i0 -> o0", "nop", "copy i1 -> o0", "copy i2 -> i1"]);
}

#[test]
fn x7_the_own_copy_of_a_multicast_region_is_tracked() {
    let say = |t: &mut Pair, at: &dyn Fn(u64) -> SwitchRegion| {
        t.copy("i0", "i1");
        load_reduce_store(t, at(0), at(0), "i0");
        t.copy("o0", "i0");
    };
    let t = switched(BufferKind::Input, say);
    let joined = "glres switch0:0 -> switch0:0 sum";
    assert_eq!(t.shown(), ["copy i1 -> i0", "nop", joined, "nop", "copy i0 -> o0"]);
    assert_eq!(t.shown_compat()[..2], ["copy i1 -> i0", joined]);
    let t = switched(BufferKind::Input, |t, at| {
        let chunk = t.at("s0");
        t.copy("s0", "i1");
        t.p.switch_broadcast(at(4), chunk, 0).unwrap();
        t.copy("i3", "i5");
    });
    assert_eq!(t.shown(), ["copy i1 -> s0", "nop", "gstore s0 -> switch0:4", "copy i5 -> i3"]);
    assert_eq!(t.shown_compat(), ["copy i1 -> s0", "gstore s0 -> switch0:4", "copy i5 -> i3"]);
}

#[test]
fn x8_barriers_are_numbered_per_program() {
    for _ in 0..2 {
        let mut t = Pair::new();
        t.p.barrier(0, &[0, 1]).unwrap();
        assert_eq!(t.shown(), ["barrier 0 of 2"]);
    }
}

#[test]
fn x9_input_and_output_are_one_buffer_in_place() {
    // Of rank 1: input chunk, the output chunk that is the same memory, one that is not.
    for (shape, input, same, other) in [
        (CollectiveShape::all_reduce(2, 2), 1, 1, 0),
        (CollectiveShape::all_to_all(2, 2), 1, 1, 0),
        (CollectiveShape::send_recv(2, 2), 1, 1, 0),
        (CollectiveShape::all_gather(2, 2), 1, 3, 1),
        (CollectiveShape::reduce_scatter(2, 2), 3, 1, 0),
    ] {
        for (output, in_place, expected) in [(same, true, true), (other, true, false), (same, false, false)] {
            let shape = if in_place { shape.clone().in_place() } else { shape.clone() };
            let mut p = Program::new(ProgramOptions::new("x9", shape)).unwrap();
            let [a, b] = [p.scratch(1, 1).unwrap().whole(), p.scratch(1, 1).unwrap().whole()];
            p.copy(p.input(1).unwrap().chunk(input..=input).unwrap(), a, 0).unwrap();
            p.copy(b, p.output(1).unwrap().chunk(output..=output).unwrap(), 0).unwrap();
            let shown = show::block(&p.emit(Compat::None).unwrap().plan, 1, 0);
            assert_eq!(shown.contains(&"nop".to_owned()), expected, "{shown:?}");
            assert_eq!(show::block(&p.emit(Compat::Mscclpp).unwrap().plan, 1, 0).len(), 2);
        }
    }
}

#[test]
fn x12_programs_do_not_disturb_each_other() {
    let mut first = Pair::new();
    let mut second = Pair::new();
    let [a, b] = [first.p.memory_channel(0, 1).unwrap(), second.p.memory_channel(0, 1).unwrap()];
    assert_eq!((a.index(), b.index()), (2, 2));
    first.copy("o0", "i0");
    second.copy("o1", "i1");
    assert_eq!(first.shown(), ["copy i0 -> o0"]);
    assert_eq!(second.shown(), ["copy i1 -> o1"]);
}

#[test]
fn x14_emission_leaves_the_program_as_it_is() {
    let options = ProgramOptions::new("twice", CollectiveShape::test(2, 8, 8));
    let mut t = Pair::with(ProgramOptions { instances: 2, ..options });
    t.copy("o0", "i0");
    t.copy("i0", "o0");
    t.signal(0, DataSync::Both);
    let (first, second) = (t.plan(), t.plan());
    assert_eq!(first, second);
    assert_eq!(first, t.p.finish().unwrap());
}

#[test]
fn x15_sizes_of_a_get_are_checked() {
    let mut t = Pair::new();
    let [to, from, short] = ["o0+2", "i0+2'", "i0'"].map(|name| t.at(name));
    t.p.get(t.memory[0], to, from, 0).unwrap();
    let error = t.p.get(t.memory[0], to, short, 0).unwrap_err();
    assert_eq!(*error.problem(), BuildProblem::SizeMismatch { role: "destination", expected: 1, found: 2 });
}

#[test]
fn x16_sets_are_sorted() {
    let mut t = Pair::new();
    let (to, from) = (t.at("o0'"), t.at("i0"));
    t.p.put(t.port[0], to, from, 0).unwrap();
    t.p.put(t.memory[0], to, from, 0).unwrap();
    t.p.signal(t.memory[1], 0, DataSync::None).unwrap();
    t.p.signal(t.memory[0], 0, DataSync::None).unwrap();
    t.p.wait(t.memory_back[1], 0, DataSync::None).unwrap();
    t.p.wait(t.memory_back[0], 0, DataSync::None).unwrap();
    let json = t.plan().to_json(warpway_plan::Style::Compact);
    assert!(json.contains(r#""access_channel_types":["memory","port"]"#), "{json}");
    assert_eq!(t.shown()[2..], ["signal [0, 1]"]);
    // By first use: 0 (put), then 1.
    assert_eq!(t.plan().ranks[0].blocks[0].channels[0].channels, [0, 1]);
}

#[test]
fn x17_transfers_to_overlapping_places_stay_apart() {
    let mut t = Pair::new();
    t.put("o0+2'", "i0+2");
    t.put("o1+2'", "i2+2");
    assert_eq!(t.shown(), ["put i0+2 -> remote0:0+2", "put i2+2 -> remote0:1+2"]);
    assert_eq!(t.shown_compat(), ["put i0+2 i2+2 -> remote0:0+2 remote0:1+2"]);
    assert!(t.warnings().is_empty());

    let mut t = Pair::new();
    for (to, from) in [("o0+2", "i0+2'"), ("o1+2", "i2+2'")] {
        let (to, from) = (t.at(to), t.at(from));
        t.p.get(t.memory[0], to, from, 0).unwrap();
    }
    assert_eq!(t.shown(), ["get remote0:0+2 -> o0+2 on [0]", "nop", "get remote0:2+2 -> o1+2 on [0]"]);
    assert_eq!(t.shown_compat(), ["get remote0:0+2 remote0:2+2 -> o0+2 o1+2 on [0, 0]"]);
}

#[test]
fn x17_transfers_to_one_place_are_joined_with_a_warning() {
    let mut t = Pair::new();
    t.put("o0'", "i0");
    t.put("o1'", "i1");
    t.put("o0'", "i2");
    assert_eq!(t.shown(), ["put i0 i1 i2 -> remote0:0 remote0:1 remote0:0"]);
    let [warning] = &t.warnings()[..] else { panic!() };
    assert!(warning.ends_with("dead store: earlier transfer is overwritten"), "{warning}");
    // Items on port channels have no order.
    let mut t = Pair::new();
    for from in ["i0", "i1"] {
        let (to, from) = (t.at("o0'"), t.at(from));
        t.p.put(t.port[0], to, from, 0).unwrap();
    }
    assert_eq!(t.shown(), ["put i0 -> remote0:0 on [0]", "put i1 -> remote0:0 on [0]"]);
    assert_eq!(t.shown_compat(), ["put i0 i1 -> remote0:0 remote0:0 on [0, 0]"]);
}

fn instances(shape: CollectiveShape) -> Pair {
    Pair::with(ProgramOptions { instances: 2, ..ProgramOptions::new("two", shape) })
}

#[test]
fn x18_the_packet_copy_is_shifted_with_its_instance() {
    let mut t = instances(CollectiveShape::test(2, 8, 8));
    let [a, packets, copy] = ["i1", "s2", "s3"].map(|name| t.at(name));
    t.p.reduce_packets(Reduction::of(a, &[packets]), 0).unwrap();
    t.p.copy_packets(copy, a, 0).unwrap();
    let plan = t.plan();
    assert_eq!(show::block(&plan, 0, 0), ["recpkt i2 s4 -> i2 s6 sum"]);
    assert_eq!(show::block(&plan, 0, 1), ["recpkt i3 s5 -> i3 s7 sum"]);
    let plan = t.p.emit(Compat::Mscclpp).unwrap().plan;
    assert_eq!(show::block(&plan, 0, 0), ["recpkt i2 s4 -> i2 s3 sum"]);
    assert_eq!(show::block(&plan, 0, 1), ["recpkt i3 s5 -> i3 s3 sum"]);
}

#[test]
fn x19_a_chunk_of_two_switch_operations_is_shifted_once() {
    let mut t = instances(CollectiveShape::test(2, 8, 8));
    let switch = t.p.switch_channel(&[0, 1], BufferKind::Input).unwrap();
    let chunk = t.at("s1");
    t.p.switch_broadcast(switch.region(0, 4, 1), chunk, 0).unwrap();
    t.p.switch_broadcast(switch.region(0, 5, 1), chunk, 0).unwrap();
    let plan = t.plan();
    assert_eq!(show::block(&plan, 0, 1), ["gstore s3 -> switch0:9", "gstore s3 -> switch0:11"]);
    let plan = t.p.emit(Compat::Mscclpp).unwrap().plan;
    assert_eq!(show::block(&plan, 0, 0), ["gstore s4 -> switch0:8", "gstore s4 -> switch0:10"]);
    assert_eq!(show::block(&plan, 0, 1), ["gstore s7 -> switch0:9", "gstore s7 -> switch0:11"]);

    // Two objects of equal value are two chunks.
    let mut t = instances(CollectiveShape::test(2, 8, 8));
    let switch = t.p.switch_channel(&[0, 1], BufferKind::Input).unwrap();
    for identity in [1, 2] {
        let chunk = t.at("s1").with_identity(identity);
        t.p.switch_broadcast(switch.region(0, 4, 1), chunk, 0).unwrap();
    }
    let plan = t.p.emit(Compat::Mscclpp).unwrap().plan;
    assert_eq!(show::block(&plan, 0, 1), ["gstore s3 -> switch0:9", "gstore s3 -> switch0:9"]);
}

#[test]
fn x20_a_switch_operation_takes_chunks_of_its_own_rank() {
    let mut t = Pair::new();
    let switch = t.p.switch_channel(&[0, 1], BufferKind::Input).unwrap();
    let [own, foreign] = ["s1", "s1'"].map(|name| t.at(name));
    t.p.switch_reduce(switch.region(0, 0, 1), own, 0, ReduceOp::Sum).unwrap();
    let wrong = BuildProblem::WrongRank { role: "destination", expected: 0, found: 1 };
    let error = t.p.switch_reduce(switch.region(0, 0, 1), foreign, 0, ReduceOp::Sum).unwrap_err();
    assert_eq!(*error.problem(), wrong);
    assert_eq!((error.site().rank, error.site().block), (Some(0), Some(0)));
}

#[test]
fn x22_blocks_have_sensible_numbers() {
    let mut t = Pair::new();
    let [to, from] = ["o0", "i0"].map(|name| t.at(name));
    t.p.copy(to, from, 65_535).unwrap();
    assert_eq!(t.plan().ranks[0].blocks.len(), 65_536);
    for block in [65_536, u32::MAX] {
        let error = t.p.copy(to, from, block).unwrap_err();
        let expected = BuildProblem::BlockOutOfRange { block: u64::from(block), limit: 65_536 };
        assert_eq!(*error.problem(), expected);
    }
}

#[test]
fn x23_a_barrier_names_a_block_once() {
    let mut t = Pair::new();
    t.p.barrier(0, &[1, 0]).unwrap();
    let error = t.p.barrier(0, &[0, 1, 0]).unwrap_err();
    assert_eq!(*error.problem(), BuildProblem::Duplicate { what: "block", number: 0 });
    assert_eq!(t.shown(), ["barrier 0 of 2"]);
}

#[test]
fn x24_scratch_of_a_switch_channel_may_grow_after_the_call() {
    let mut t = Pair::new();
    let switch = t.p.switch_channel(&[0, 1], BufferKind::Scratch).unwrap();
    let chunk = t.at("i0");
    t.p.switch_broadcast(switch.region(0, 8, 1), chunk, 0).unwrap();
    t.p.scratch(0, 1).unwrap();
    let error = t.p.emit(Compat::None).unwrap_err();
    let beyond = BuildProblem::BeyondBuffer { buffer: BufferKind::Scratch, rank: 1, end: 9, size: 8 };
    assert_eq!(*error.problem(), beyond);
    assert_eq!(error.site().operation, "switch_broadcast");
    t.p.scratch(1, 1).unwrap();
    assert_eq!(t.shown(), ["gstore i0 -> switch0:8"]);
}
