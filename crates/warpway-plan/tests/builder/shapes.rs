//! Buffers that a rank does not have, folds over several peers, plans without data.

use warpway_plan::verify::{Options, VerifiedPlan};
use warpway_plan::{
    Action, BufferKind, BuildProblem, CollectiveShape, DataSync, Geometry, LayoutRequest, MessageSizes, Plan,
    Program, ProgramOptions, RankBuffers, Reduction,
};

fn counts(shape: &CollectiveShape) -> Vec<(u64, u64)> {
    (0..shape.n_ranks()).map(|rank| shape.buffers(rank)).map(|b| (b.input, b.output)).collect()
}

#[test]
fn only_the_root_has_buffers_on_its_side() {
    assert_eq!(counts(&CollectiveShape::broadcast(3, 2).with_root(1)), [(0, 2), (2, 2), (0, 2)]);
    assert_eq!(counts(&CollectiveShape::reduce(3, 2).with_root(2)), [(2, 0), (2, 0), (2, 2)]);
    assert_eq!(counts(&CollectiveShape::gather(3, 2).with_root(0)), [(2, 6), (2, 0), (2, 0)]);
    assert_eq!(counts(&CollectiveShape::scatter(3, 2).with_root(0)), [(6, 2), (0, 2), (0, 2)]);
    assert_eq!(counts(&CollectiveShape::all_gather(2, 1).with_root(1)), [(1, 2); 2]);
    assert_eq!(counts(&CollectiveShape::all_reduce_of(3, 2)), [(2, 2); 3]);
}

/// A rank without blocks of its own has sizes all the same.
#[test]
fn sizes_of_a_rooted_shape_come_from_the_buffers_that_there_are() {
    let p =
        Program::new(ProgramOptions::new("scatter", CollectiveShape::scatter(3, 1).with_root(1))).unwrap();
    let geometry = Geometry::new(&p.finish().unwrap());
    let request = |rank, input_bytes, output_bytes| LayoutRequest {
        sizes: MessageSizes::Message { rank, input_bytes, output_bytes },
        element_size: 4,
        packet_payload: 8,
    };
    // 20 bytes a rank, in chunks of whole units of 16.
    for (rank, input) in [(0, 0), (1, 60), (2, 0)] {
        let layout = geometry.layout(&request(rank, input, 20)).unwrap();
        assert_eq!((layout.chunk_bytes(), layout.block_bytes()), (32, Some(20)));
        assert_eq!(layout.chunk(1, BufferKind::Input, 2).map(|e| (e.offset, e.bytes)), Some((40, 20)));
    }
}

fn three_peers() -> (Program, Vec<warpway_plan::MemoryChannel>, Vec<warpway_plan::Chunk>) {
    let mut p = Program::new(ProgramOptions::new("fold", CollectiveShape::test(4, 1, 1))).unwrap();
    let channels = [3, 0, 1].map(|peer| p.memory_channel(2, peer).unwrap()).to_vec();
    let chunks = (0..4).map(|rank| p.input(rank).unwrap().whole()).collect();
    (p, channels, chunks)
}

#[test]
fn a_fold_over_several_peers_is_one_operation_in_the_given_order() {
    let (mut p, channels, chunks) = three_peers();
    let result = p.output(2).unwrap().whole();
    let others = [chunks[0], chunks[1], chunks[3]];
    let fold = Reduction::of(chunks[2], &others).into(result).ordered(&[1, 2, 0, 3]);
    p.read_reduce_all(&channels, fold, 0).unwrap();
    let plan = p.finish().unwrap();
    let [operation] = &plan.ranks[2].blocks[0].operations[..] else { panic!("one operation") };
    let Action::Data(data) = &operation.action else { panic!("a fold") };
    let owners: Vec<u32> = data.sources[1..]
        .iter()
        .map(|source| match *source {
            warpway_plan::Reference::Remote { position, .. } => {
                plan.ranks[2].remote_buffers[position as usize].rank
            }
            _ => panic!("a peer's chunk"),
        })
        .collect();
    assert_eq!(owners, [0, 1, 3]);
    assert_eq!(data.fold.as_ref().unwrap().order, Some(vec![1, 2, 0, 3]));
}

#[test]
fn a_fold_needs_a_channel_of_its_own_rank_to_every_peer() {
    let (mut p, channels, chunks) = three_peers();
    let others = [chunks[0], chunks[1]];
    let fold = Reduction::of(chunks[2], &others);
    let refused = p.read_reduce_all(&channels[..2], fold, 0).unwrap_err();
    assert_eq!(*refused.problem(), BuildProblem::UnknownHandle { what: "channel" });
    let foreign = p.memory_channel(0, 1).unwrap();
    let refused = p.read_reduce_all(&[foreign], fold, 0).unwrap_err();
    let problem = BuildProblem::WrongRank { role: "channel", expected: 2, found: 0 };
    assert_eq!(*refused.problem(), problem);
    assert!(p.finish().unwrap().ranks[2].blocks.iter().all(|block| block.operations.is_empty()));
}

fn barrier() -> Plan {
    let nothing = RankBuffers { input: 0, output: 0 };
    let mut p =
        Program::new(ProgramOptions::new("barrier", CollectiveShape::custom(vec![nothing; 2]))).unwrap();
    for (me, peer) in [(0, 1), (1, 0)] {
        let channel = p.memory_channel(me, peer).unwrap();
        p.signal(channel, 0, DataSync::None).unwrap();
        p.wait(channel, 0, DataSync::None).unwrap();
    }
    p.finish().unwrap()
}

#[test]
fn a_plan_that_only_synchronises_needs_no_chunks() {
    let proven = VerifiedPlan::new(barrier(), &Options { catalogue: true, ..Options::default() }).unwrap();
    let sizes = MessageSizes::Message { rank: 1, input_bytes: 0, output_bytes: 0 };
    let request = LayoutRequest { sizes, element_size: 1, packet_payload: 8 };
    let layout = Geometry::new(proven.plan()).layout(&request).unwrap();
    assert_eq!((layout.chunk_bytes(), layout.buffer_bytes(1, BufferKind::Output)), (0, 0));
}
