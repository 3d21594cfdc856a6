//! What programs may not say, and how they are told.

use warpway_plan::{
    BufferKind, BuildError, BuildProblem, CollectiveShape, Compat, DataSync, Extension, Program,
    ProgramOptions, ReduceOp, Reduction, ThreadBlockGroup, Via,
};

use crate::Pair;

fn problem<T: std::fmt::Debug>(result: Result<T, BuildError>) -> BuildProblem {
    result.unwrap_err().problem().clone()
}

#[test]
fn errors_say_where() {
    let mut t = Pair::new();
    let [to, from] = ["o0+2", "i0"].map(|name| t.at(name));
    let line = line!() + 1;
    let error = t.p.copy(to, from, 3).unwrap_err();
    let expected = format!(
        "copy, rank 0, block 3, {}:{line}: the destination has 2 chunks where 1 are needed: \
         give all operands the same size",
        file!()
    );
    assert_eq!(error.to_string(), expected);
    t.p.set_location(Some(warpway_plan::Location { file: "a.py".to_owned(), line: 7 }));
    let error = t.p.copy(to, from, 3).unwrap_err();
    assert!(error.to_string().starts_with("copy, rank 0, block 3, a.py:7: "), "{error}");
    // Nothing of it stays.
    assert!(t.plan().ranks[0].blocks.is_empty());
}

#[test]
fn x11_ranks_exist() {
    let mut p = Program::new(ProgramOptions::new("ranks", CollectiveShape::test(2, 1, 1))).unwrap();
    let bad = BuildProblem::RankOutOfRange { rank: 2, n_ranks: 2 };
    assert_eq!(problem(p.input(2)), bad);
    assert_eq!(problem(p.output(2)), bad);
    assert_eq!(problem(p.scratch(2, 1)), bad);
    assert_eq!(problem(p.memory_channel(0, 2)), bad);
    assert_eq!(problem(p.port_channel(1, 1)), BuildProblem::Duplicate { what: "rank", number: 1 });
    assert_eq!(problem(p.memory_channel(2, 0)), bad);
    assert_eq!(problem(p.port_channel(0, 2)), bad);
    assert_eq!(problem(p.semaphore(2, 0)), bad);
    assert_eq!(problem(p.barrier(2, &[0, 1])), bad);
    assert_eq!(problem(p.switch_channel(&[0, 2], BufferKind::Input)), bad);
    assert!(p.input(1).is_ok());
}

#[test]
fn ranges_lie_in_their_buffer() {
    let t = Pair::new();
    let buffer = t.p.input(1).unwrap();
    let beyond = |end| BuildProblem::BeyondBuffer { buffer: BufferKind::Input, rank: 1, end, size: 8 };
    assert_eq!(problem(buffer.chunk(0..9)), beyond(9));
    assert_eq!(problem(buffer.chunk(..=u64::MAX)), beyond(u64::MAX));
    #[allow(clippy::reversed_empty_ranges, reason = "what is refused")]
    let reversed = buffer.chunk(3..2);
    assert_eq!(problem(reversed), BuildProblem::BadRange { start: 3, end: 2 });
    let empty = buffer.chunk(8..).unwrap();
    assert_eq!((empty.index(), empty.size()), (8, 0));
    assert_eq!(buffer.chunk(..).unwrap(), buffer.whole());
}

#[test]
fn operands_lie_where_their_operation_needs_them() {
    let mut t = Pair::new();
    let [here, there, i, i_there] = ["o0", "o0'", "i0", "i0'"].map(|name| t.at(name));
    let [channel, port] = [t.memory[0].into(), t.port[0].into()];
    let wrong = |role, expected, found| BuildProblem::WrongRank { role, expected, found };
    assert_eq!(problem(t.p.copy(here, i_there, 0)), wrong("source", 0, 1));
    for channel in [channel, port] {
        let channel: warpway_plan::Channel = channel;
        assert_eq!(problem(t.p.put(channel, here, i, 0)), wrong("destination", 1, 0));
        assert_eq!(problem(t.p.put(channel, there, i_there, 0)), wrong("source", 0, 1));
    }
    assert_eq!(problem(t.p.get(t.memory[0], there, i_there, 0)), wrong("destination", 0, 1));
    assert_eq!(problem(t.p.get(t.memory[0], here, i, 0)), wrong("source", 1, 0));
    assert_eq!(problem(t.p.reduce(Reduction::of(i, &[i_there]), 0)), wrong("other chunk", 0, 1));
    let (here_too, there_too) = ([i], [i_there]);
    let (local, remote) = (Reduction::of(i, &here_too), Reduction::of(i, &there_too));
    assert_eq!(problem(t.p.reduce(local.into(there), 0)), wrong("destination", 0, 1));
    assert_eq!(problem(t.p.read_reduce(t.memory[0], local, 0)), wrong("other chunk", 1, 0));
    let error = problem(t.p.read_reduce(t.memory[0], remote.into(there), 0));
    assert_eq!(error, wrong("destination", 0, 1));
}

#[test]
fn packets_lie_in_scratch() {
    let mut t = Pair::new();
    let [i, s, o_there, s_there] = ["i0", "s0", "o0'", "s0'"].map(|name| t.at(name));
    let raw = |role, found| BuildProblem::NotScratch { role, found };
    assert_eq!(problem(t.p.copy_packets(i, s, 0)), raw("destination", BufferKind::Input));
    assert_eq!(problem(t.p.unpack_packets(s, i, 0)), raw("source", BufferKind::Input));
    let to_output = t.p.put_packets(t.memory[0], o_there, i, 0);
    assert_eq!(problem(to_output), raw("destination", BufferKind::Output));
    let from_input = t.p.read_put_packets(t.memory[0], s_there, i, 0);
    assert_eq!(problem(from_input), raw("source", BufferKind::Input));
    assert_eq!(problem(t.p.reduce_packets(Reduction::of(s, &[i]), 0)), raw("other chunk", BufferKind::Input));
    let switch = t.p.switch_channel(&[0, 1], BufferKind::Input).unwrap();
    let packets = t.p.switch_broadcast_packets(switch.region(0, 0, 1), s, 0);
    assert_eq!(problem(packets), raw("buffer of the channel", BufferKind::Input));
}

#[test]
fn folds_need_sources_of_one_size_in_a_full_order() {
    let mut t = Pair::new();
    let [a, b, long] = ["i0", "i1", "i2+2"].map(|name| t.at(name));
    assert_eq!(problem(t.p.reduce(Reduction::of(a, &[]), 0)), BuildProblem::Empty { what: "other chunks" });
    let mismatch = BuildProblem::SizeMismatch { role: "other chunk", expected: 1, found: 2 };
    assert_eq!(problem(t.p.reduce(Reduction::of(a, &[b, long]), 0)), mismatch);
    for order in [&[0][..], &[0, 0], &[1, 2], &[0, 1, 2]] {
        let refused = t.p.reduce(Reduction::of(a, &[b]).ordered(order), 0);
        assert_eq!(problem(refused), BuildProblem::BadOrder { sources: 2 });
    }
}

#[test]
fn port_transfers_take_one_block() {
    let mut t = Pair::new();
    let group = ThreadBlockGroup::new([0, 1]).unwrap();
    let [to, from] = ["s0'", "s0"].map(|name| t.at(name));
    assert_eq!(problem(t.p.put(t.port[0], to, from, &group)), BuildProblem::GroupNotAllowed);
    assert_eq!(problem(t.p.put_packets(t.port[0], to, from, &group)), BuildProblem::GroupNotAllowed);
    t.p.read_put_packets(t.port[0], to, from, &group).unwrap();
    assert_eq!(t.shown(), ["rppkt s0 -> remote0:0 on [0] share 0/2"]);
}

#[test]
fn groups_and_barriers_have_members() {
    let mut t = Pair::new();
    assert_eq!(problem(ThreadBlockGroup::new([])), BuildProblem::Empty { what: "blocks" });
    let twice = BuildProblem::Duplicate { what: "block", number: 4 };
    assert_eq!(problem(ThreadBlockGroup::new([4, 1, 4])), twice);
    assert_eq!(problem(t.p.barrier(0, &[])), BuildProblem::Empty { what: "blocks" });
    let none = t.p.switch_channel(&[], BufferKind::Input);
    assert_eq!(problem(none), BuildProblem::Empty { what: "ranks" });
    let twice = t.p.switch_channel(&[1, 1], BufferKind::Input);
    assert_eq!(problem(twice), BuildProblem::Duplicate { what: "rank", number: 1 });
}

#[test]
fn switch_regions_fit_every_member() {
    let mut t = Pair::new();
    let [pair, lone] =
        [&[0, 1][..], &[1]].map(|ranks| t.p.switch_channel(ranks, BufferKind::Output).unwrap());
    let [i, long] = ["i0", "i0+2"].map(|name| t.at(name));
    let beyond = BuildProblem::BeyondBuffer { buffer: BufferKind::Output, rank: 0, end: 9, size: 8 };
    assert_eq!(problem(t.p.switch_broadcast(pair.region(0, 8, 1), i, 0)), beyond);
    let absurd = problem(t.p.switch_broadcast(pair.region(0, u64::MAX, 1), i, 0));
    assert!(matches!(absurd, BuildProblem::BeyondBuffer { end: u64::MAX, .. }));
    let outside = t.p.switch_broadcast(lone.region(0, 0, 1), i, 0);
    assert_eq!(problem(outside), BuildProblem::NotInGroup { rank: 0 });
    let mismatch = problem(t.p.switch_reduce(pair.region(0, 0, 1), long, 0, ReduceOp::Sum));
    assert_eq!(mismatch, BuildProblem::SizeMismatch { role: "destination", expected: 1, found: 2 });
}

#[test]
fn handles_belong_to_their_program() {
    let (mut t, mut other) = (Pair::new(), Pair::new());
    let late = other.p.memory_channel(0, 1).unwrap();
    let semaphore = other.p.semaphore(0, 1).unwrap();
    let switch = other.p.switch_channel(&[0, 1], BufferKind::Input).unwrap();
    let unknown = |what| BuildProblem::UnknownHandle { what };
    assert_eq!(problem(t.p.signal(late, 0, DataSync::Both)), unknown("channel"));
    assert_eq!(problem(t.p.release(semaphore, 0, DataSync::Both)), unknown("semaphore"));
    let chunk = t.at("i0");
    let region = switch.region(0, 0, 1);
    assert_eq!(problem(t.p.switch_broadcast(region, chunk, 0)), unknown("switch channel"));
    let beyond = other.p.scratch(0, 1).unwrap().whole();
    let foreign = problem(t.p.copy(beyond, chunk, 0));
    assert!(matches!(foreign, BuildProblem::BeyondBuffer { end: 9, size: 8, .. }));
}

#[test]
fn every_signal_needs_a_wait() {
    let mut t = Pair::new();
    t.signal(0, DataSync::Both);
    t.p.signal(t.memory[1], 2, DataSync::Both).unwrap();
    let mismatch =
        |via, signals, waits| BuildProblem::SignalWaitMismatch { from: 0, to: 1, via, signals, waits };
    assert_eq!(problem(t.p.emit(Compat::None)), mismatch(Via::Memory, 2, 1));
    // Counts are those of a pair of ranks: any channel of the type will do.
    t.p.wait_relaxed(t.memory_back[0], 0, DataSync::None).unwrap();
    assert!(t.p.emit(Compat::None).is_ok());
    let [to, from] = ["o0'", "i0"].map(|name| t.at(name));
    t.p.put_with_signal(t.port[0], to, from, 0).unwrap();
    t.p.put_with_signal_and_flush(t.port[0], to, from, 0).unwrap();
    assert_eq!(problem(t.p.emit(Compat::Mscclpp)), mismatch(Via::Port, 2, 0));
    // Calls in loops count once.
    let back = t.port_back[0];
    t.p.pipeline(16, 100, |p| {
        p.wait(back, 0, DataSync::None)?;
        p.wait(back, 0, DataSync::None)
    })
    .unwrap();
    assert!(t.p.finish().is_ok());
}

#[test]
fn pipelines_are_flat_and_end() {
    let mut t = Pair::new();
    let nested = t.p.pipeline(16, 1, |p| p.pipeline(16, 1, |_| Ok(())));
    assert_eq!(problem(nested), BuildProblem::NestedPipeline);
    assert_eq!(problem(t.p.end_pipeline()), BuildProblem::NoPipeline);
    let zero = BuildProblem::InvalidOption { option: "unit_size", value: 0, allowed: "at least 1 byte" };
    assert_eq!(problem(t.p.begin_pipeline(0, 1, None)), zero);
    assert_eq!(problem(t.p.begin_pipeline(16, 1, Some(3))), BuildProblem::PipelineSizeId);
    t.p.begin_pipeline(16, 1, None).unwrap();
    assert_eq!(problem(t.p.emit(Compat::None)), BuildProblem::OpenPipeline);
    t.p.discard_pipeline();
    assert!(t.p.emit(Compat::None).is_ok());
}

#[test]
fn options_are_possible() {
    let options = || ProgramOptions::new("options", CollectiveShape::all_reduce(2, 1));
    let refused = |options| match problem(Program::new(options)) {
        BuildProblem::InvalidOption { option, value, .. } => (option, value),
        other => panic!("{other}"),
    };
    assert_eq!(refused(ProgramOptions { instances: 0, ..options() }), ("instances", 0));
    assert_eq!(refused(ProgramOptions { threads_per_block: 1025, ..options() }), ("threads_per_block", 1025));
    assert_eq!(refused(ProgramOptions { buffer_alignment: 24, ..options() }), ("buffer_alignment", 24));
    let range = ProgramOptions { min_message_size: 9, max_message_size: 8, ..options() };
    assert_eq!(refused(range), ("min_message_size", 9));
    assert_eq!(refused(ProgramOptions::new("none", CollectiveShape::all_reduce(0, 1))), ("n_ranks", 0));
    let huge = ProgramOptions::new("huge", CollectiveShape::all_reduce(2, u64::MAX));
    assert!(matches!(problem(Program::new(huge)), BuildProblem::TooLarge { .. }));
}

#[test]
fn extensions_are_not_for_mscclpp() {
    for (op, extension) in [(ReduceOp::Prod, true), (ReduceOp::Avg, true), (ReduceOp::Min, false)] {
        let mut t = Pair::new();
        let [a, b] = ["i0", "i1"].map(|name| t.at(name));
        t.p.reduce(Reduction::of(a, &[b]).with(op), 0).unwrap();
        assert_eq!(t.plan().extensions.contains(&Extension::ReduceOp), extension);
        let expected = extension.then_some(BuildProblem::NeedsExtension(Extension::ReduceOp));
        assert_eq!(t.p.emit(Compat::Mscclpp).err().map(|error| error.problem().clone()), expected);
    }
}

#[test]
fn numbers_do_not_overflow() {
    let mut p = Program::new(ProgramOptions::new("big", CollectiveShape::test(1, 1, 1))).unwrap();
    p.scratch(0, u64::MAX).unwrap();
    assert_eq!(problem(p.scratch(0, 1)), BuildProblem::TooLarge { what: "the scratch" });
    let options = ProgramOptions::new("big", CollectiveShape::test(1, u64::MAX, 1));
    let p = Program::new(ProgramOptions { instances: 2, ..options }).unwrap();
    assert_eq!(problem(p.finish()), BuildProblem::TooLarge { what: "the number of chunks" });
}
