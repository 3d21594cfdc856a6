//! V1 and V2: plans whose numbers mean nothing.

use warpway_plan::verify::{Options, Severity, Verdict, verify};
use warpway_plan::{
    Action, BufferKind, ChannelType, Collective, Extension, Operation, Pipeline, Plan, Reference,
    RemoteBuffer, testing,
};

use super::{all_gather, block, breaks, channels, data, findings, lines, local, only, pipeline, strict};

/// The first put of the all-gather.
const PUT: (usize, usize, usize) = (0, 0, 4);

#[test]
fn form_is_checked_first() {
    let found = breaks(105, &all_gather(), &strict(), |plan| channels(plan, (0, 0, 0)).clear());
    assert_eq!(found.message, "$.gpus[0].threadblocks[0].ops[0].channel_ids: found an empty list");
    breaks(107, &testing::send_recv_pipeline(2, 4, 64).unwrap(), &strict(), |plan| {
        let inner = Action::Pipeline(Box::new(pipeline(plan, (0, 0, 3)).clone()));
        pipeline(plan, (0, 0, 3)).body.push(inner.into());
    });
    breaks(108, &testing::all_gather_put(2).unwrap(), &strict(), |plan| {
        data(plan, PUT).channel_type = Some(ChannelType::Switch);
    });
    breaks(109, &all_gather(), &strict(), |plan| plan.buffer_alignment = 12);
    breaks(110, &testing::all_gather_v(2).unwrap(), &strict(), |plan| {
        plan.extensions.remove(&Extension::SizedChunks);
    });
    breaks(111, &testing::all_reduce_packets(2).unwrap(), &strict(), |plan| {
        data(plan, (1, 0, 1)).fold.as_mut().unwrap().order = Some(vec![1, 1]);
    });
}

#[test]
fn channels_that_do_not_exist() {
    let found = breaks(201, &all_gather(), &strict(), |plan| *channels(plan, (1, 0, 6)) = vec![3]);
    assert_eq!(
        found.to_string(),
        "V201 rank 1 tb 0 op 6: position 3 is beyond the list of memory channels of the block, which has 1"
    );
    let found =
        breaks(202, &all_gather(), &strict(), |plan| plan.ranks[0].blocks[0].channels[0].channels.push(7));
    assert_eq!(found.to_string(), "V202 rank 0 tb 0: memory channel 7 does not exist: rank 0 has 1");
    for (peer, why) in [(0, "belongs to the rank itself"), (5, "belongs to rank 5, but the plan has 2 ranks")]
    {
        let found = breaks(202, &all_gather(), &strict(), |plan| {
            plan.ranks[0].channels.push(warpway_plan::ChannelEntry::Memory(vec![peer]));
        });
        assert_eq!(found.to_string(), format!("V202 rank 0: memory channel 1 {why}"));
    }
}

#[test]
fn remote_buffers_that_do_not_exist() {
    let found = breaks(203, &all_gather(), &strict(), |plan| {
        data(plan, PUT).destinations[0] = Reference::Remote { position: 1, index: 0, size: 1 };
    });
    assert_eq!(
        found.to_string(),
        "V203 rank 0 tb 0 op 4 item 0: buffer_id 1 is beyond the memory list of the block, which has 1"
    );
    let found = breaks(203, &all_gather(), &strict(), |plan| {
        let remote = &mut plan.ranks[0].remote_buffers[0];
        (remote.memory_access, remote.port_access) = (false, true);
    });
    assert_eq!(found.message, "remote buffer 0 does not list memory access");
    let found = breaks(204, &all_gather(), &strict(), |plan| {
        plan.ranks[1].blocks[0].remote_buffers[0].buffers.push(9)
    });
    assert_eq!(found.to_string(), "V204 rank 1 tb 0: remote buffer 9 does not exist: rank 1 has 1");
    for (owner, why) in
        [(1, "belongs to the rank itself"), (2, "belongs to rank 2, but the plan has 2 ranks")]
    {
        let found = breaks(204, &all_gather(), &strict(), |plan| {
            let remote = RemoteBuffer {
                rank: owner,
                buffer: BufferKind::Output,
                memory_access: true,
                port_access: false,
            };
            plan.ranks[1].remote_buffers.push(remote);
        });
        assert_eq!(found.to_string(), format!("V204 rank 1: remote buffer 1 {why}"));
    }
}

#[test]
fn switch_references_that_do_not_exist() {
    let switch = testing::all_reduce_switch(2).unwrap();
    let at = (1, 0, 4);
    let found = breaks(205, &switch, &strict(), |plan| {
        data(plan, at).sources[0] = Reference::Switch { position: 4, index: 1, size: 1 };
    });
    assert_eq!(
        found.to_string(),
        "V205 rank 1 tb 0 op 4 item 0: switch_channel_id 4 is beyond the list of the block, which has 1"
    );
    for (member, why) in [(0, "has member 0 twice"), (2, "has member 2, which is not a rank of the plan")] {
        let report = {
            let mut plan = switch.clone();
            for rank in &mut plan.ranks {
                for entry in &mut rank.channels {
                    if let warpway_plan::ChannelEntry::Switch { groups, .. } = entry {
                        groups[0].ranks.push(member);
                    }
                }
            }
            verify(&plan, &strict())
        };
        let found = only(205, &report);
        assert_eq!(found.to_string(), format!("V205 rank 0: switch channel 0 {why}"));
    }
}

#[test]
fn chunks_beyond_the_buffer() {
    let found = breaks(206, &all_gather(), &strict(), |plan| {
        data(plan, PUT).destinations[0] = Reference::Remote { position: 0, index: 2, size: 1 };
    });
    assert_eq!(
        found.to_string(),
        "V206 rank 0 tb 0 op 4 item 0: chunks 2..3 exceed buffer o of rank 1, which has 2"
    );
    let region = found.region.unwrap();
    assert_eq!((region.rank, region.buffer, region.chunks), (1, BufferKind::Output, (2, 3)));
    let found = breaks(206, &all_gather(), &strict(), |plan| {
        data(plan, PUT).sources[0] = local(BufferKind::Input, u64::MAX, 1);
    });
    assert_eq!(found.message, format!("chunks {}..2^64 exceed buffer i of rank 0, which has 1", u64::MAX));
}

#[test]
fn sizes_of_an_item() {
    let found = breaks(207, &all_gather(), &strict(), |plan| {
        data(plan, PUT).destinations[0] = Reference::Remote { position: 0, index: 0, size: 2 };
    });
    assert_eq!(found.message, "references of one item have 1 and 2 chunks");

    let mut plan = all_gather();
    block(&mut plan, 0, 0).insert(5, {
        let mut copy = data(&mut all_gather(), (0, 0, 3)).clone();
        copy.sources = vec![local(BufferKind::Input, 1, 0)];
        copy.destinations = vec![local(BufferKind::Output, 0, 0)];
        Operation::from(Action::Data(Box::new(copy)))
    });
    let report = verify(&plan, &strict());
    assert_eq!(only(208, &report).severity, Severity::Warning);
    assert_eq!(report.verdict, Verdict::Accept);
}

#[test]
fn chunk_counts_of_the_collective() {
    let broken = |collective, counts: [(u64, u64); 2]| {
        let mut plan = testing::all_reduce_two_shot(2).unwrap();
        plan.collective = collective;
        for (rank, (input, output)) in plan.ranks.iter_mut().zip(counts) {
            (rank.input_chunks, rank.output_chunks) = (input, output);
        }
        only(209, &verify(&plan, &strict())).to_string()
    };
    assert_eq!(
        broken(Collective::AllReduce, [(2, 2), (4, 4)]),
        "V209 rank 1: the input has 4 chunks, 4 for each block, but rank 0 has 2: the ranks disagree on the size of a chunk"
    );
    assert_eq!(
        broken(Collective::AllReduce, [(2, 4), (2, 4)]),
        "V209 rank 0: the output has 4 chunks, 4 for each block, but rank 0 has 2: the ranks disagree on the size of a \
         chunk"
    );
    assert_eq!(
        broken(Collective::AllToAll, [(3, 3), (3, 3)]),
        "V209 rank 0: alltoall of 2 ranks needs a whole number of chunks for each of 2 blocks, but the input has 3"
    );
    // In place the input would not be a part of the output.
    let mut plan = all_gather();
    plan.in_place = true;
    (plan.ranks[0].output_chunks, plan.ranks[1].output_chunks) = (4, 4);
    assert_eq!(
        lines(&verify(&plan, &strict()))[0],
        "V209 rank 0: the output has 4 chunks, 2 for each block, but rank 0 has 1: the ranks disagree on the size of a \
         chunk"
    );
    let mut plan = all_gather();
    plan.collective = Collective::Custom;
    plan.ranks.push(Default::default());
    plan.ranks[2].blocks.push(Default::default());
    assert_eq!(verify(&plan, &strict()).verdict, Verdict::Accept);
    block(&mut plan, 2, 0).push(Action::Nop.into());
    assert_eq!(
        only(209, &verify(&plan, &strict())).to_string(),
        "V209 rank 2: the rank has neither input nor output chunks, so a chunk has no size"
    );
}

#[test]
fn barriers_and_semaphores_out_of_range() {
    let found = breaks(210, &testing::send_recv_semaphore(2).unwrap(), &strict(), |plan| {
        block(plan, 0, 0).push(Action::Release { semaphores: vec![1] }.into());
    });
    assert_eq!(found.message, "semaphore 1 does not exist: rank 0 has 1");
    let found = breaks(210, &all_gather(), &strict(), |plan| block(plan, 0, 0).push(super::barrier(4096, 1)));
    assert_eq!(found.message, "barrier 4096 is out of range: barriers are numbered below 4096");
}

#[test]
fn groups_with_gaps() {
    let plan = testing::all_gather_groups(2, 3).unwrap();
    let member = |plan: &mut Plan, at, member, size| {
        data(plan, at).group = Some(warpway_plan::GroupMember { member, size });
    };
    let found = breaks(211, &plan, &strict(), |plan| member(plan, (0, 1, 1), 0, 3));
    assert_eq!(found.message, "no block does the share of member 1 in a group of 3");
    let found = breaks(211, &plan, &strict(), |plan| member(plan, (0, 1, 1), 3, 3));
    assert_eq!(found.message, "member 3 of a group of 3 blocks");
    let found = breaks(211, &plan, &strict(), |plan| {
        let again = block(plan, 0, 1)[1].clone();
        block(plan, 0, 1).insert(1, again);
    });
    assert_eq!(found.message, "member 0 of a group of 3 does this 1 times, another one 2 times");
    // As many members as a file can name.
    let found = only(211, &{
        let mut plan = plan.clone();
        member(&mut plan, (0, 1, 1), u32::MAX - 1, u32::MAX);
        verify(&plan, &strict())
    });
    assert!(found.message.contains("no block does the share of member"), "{}", found.message);
}

/// The ring's reduce-scatter goes through scratch, so it may reuse resources.
#[test]
fn reuse_mode() {
    let mut plan = testing::reduce_scatter_ring(4).unwrap();
    plan.reuse_resources = true;
    let accepted = verify(&plan, &strict());
    assert_eq!(accepted.verdict, Verdict::Accept, "{:?}", accepted.diagnostics);
    // Scratch chunks of 64 MiB / 3, in units of 16 bytes.
    let room = (64_u64 << 20).div_ceil(plan.ranks[0].scratch_chunks).next_multiple_of(16);
    let chunks = plan.ranks[0].input_chunks;
    plan.max_message_size = chunks * room;
    assert_eq!(findings(&verify(&plan, &strict())), []);
    plan.max_message_size = chunks * (room + 1);
    let found = only(212, &verify(&plan, &strict()));
    assert!(found.message.contains(&format!("do not fit scratch chunks of {room}")), "{}", found.message);
    plan.max_message_size = u64::MAX;
    let sized = Options { sizes: vec![chunks * (room + 16)], ..strict() };
    assert!(only(212, &verify(&plan, &sized)).message.contains("does not fit the"));

    let found = breaks(213, &all_gather(), &strict(), |plan| plan.reuse_resources = true);
    assert_eq!(found.message, "a plan that reuses resources refers to buffer o of a peer");
    assert_eq!(found.places[0].to_string(), "rank 0 tb 0 op 4");
}

#[test]
fn pipelines_that_end_early() {
    let plan = testing::send_recv_pipeline(2, 4, 64).unwrap();
    let found = breaks(214, &plan, &strict(), |plan| {
        for rank in 0..2 {
            pipeline(plan, (rank, 0, 3)).num_chunks = 3;
        }
    });
    assert_eq!(found.message, "the pipeline covers 3 chunks, but the operation has 4 for 1 blocks");
    assert_eq!(found.hint, "num_chunks of at least 4");
    assert_eq!(found.places[0].to_string(), "rank 0 tb 0 op 3.0");
}

#[test]
fn concrete_sizes() {
    let sized = |bytes| Options { sizes: vec![bytes], ..strict() };
    // Every size of a known collective, unless it cuts elements or blocks; sizes for which nothing else is known.
    for bytes in [0, 2, 34, 1 << 30, 1 << 62] {
        assert_eq!(findings(&verify(&all_gather(), &sized(bytes))), [], "{bytes}");
    }
    let found = breaks(209, &all_gather(), &Options { ..sized(32) }, |plan| plan.max_message_size = 16);
    assert_eq!(
        found.message,
        "a message of 32 bytes: a message of 32 bytes is outside the plan's range of 0 to 16 bytes; choose another plan for it"
    );
    // Twice 2^62 bytes of scratch, twice over for packets.
    let packets = testing::all_reduce_packets(2).unwrap();
    only(215, &verify(&packets, &sized(1 << 62)));
    // A pipeline whose slices would cut packets or alignment units.
    let plan = testing::send_recv_pipeline(2, 4, 64).unwrap();
    assert_eq!(findings(&verify(&plan, &sized(4096))), []);
    let mut cut = plan.clone();
    for rank in 0..2 {
        pipeline(&mut cut, (rank, 0, 3)).unit_size = 40;
    }
    let found = only(209, &verify(&cut, &sized(4096)));
    assert!(found.message.contains("is no multiple of 16 bytes"), "{}", found.message);
}

#[test]
fn sized_chunks() {
    let plan = testing::all_gather_v(2).unwrap();
    let found = breaks(216, &plan, &strict(), |plan| {
        plan.ranks[0].size_ids.as_mut().unwrap().output.swap(0, 1);
    });
    assert_eq!(found.message, "chunk 0 of the item joins chunks that do not have one size id");
    let found = breaks(216, &plan, &strict(), |plan| {
        plan.ranks[1].size_ids.as_mut().unwrap().output.pop();
    });
    assert_eq!(found.message, "buffer o has 2 chunks, but 1 size ids");
    let sliced = |size_id: Option<u64>, num_chunks| {
        let mut plan = plan.clone();
        for rank in 0..2 {
            let copy = block(&mut plan, rank, 0).remove(3);
            let id = if size_id == Some(0) { rank as u64 } else { 1 };
            let pipeline =
                Pipeline { unit_size: 64, num_chunks, size_id: size_id.map(|_| id), body: vec![copy] };
            block(&mut plan, rank, 0).insert(3, Action::Pipeline(Box::new(pipeline)).into());
        }
        verify(&plan, &strict())
    };
    assert_eq!(findings(&sliced(Some(0), 1)), []);
    assert_eq!(
        only(217, &sliced(None, 1)).message,
        "a pipeline of a plan with sized chunks names no size_id"
    );
    assert_eq!(
        only(217, &sliced(Some(0), 2)).message,
        "a pipeline of a plan with sized chunks has num_chunks 2 instead of 1"
    );
    assert_eq!(only(217, &sliced(Some(1), 1)).message, "the pipeline runs for size id 1, the item has id 0");
}
