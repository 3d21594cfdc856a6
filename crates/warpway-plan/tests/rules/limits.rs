//! V8 and V9: what executors, devices and multicast groups can hold.

use warpway_plan::verify::{DeviceLimits, Options, Target, Verdict, verify};
use warpway_plan::{
    Action, BufferKind, ChannelEntry, ChannelRefs, ChannelType, Extension, Plan, RankGroup, ReduceOp,
    Reference, RemoteBuffer, testing,
};

use super::{all_gather, block, breaks, channels, data, findings, local, only, strict};

fn mscclpp() -> Options<'static> {
    Options { target: Target::Mscclpp, ..strict() }
}

/// Accepted for Warpway; breaks `rule` for MSCCL++.
fn only_mscclpp(rule: u16, plan: &Plan) -> String {
    let report = verify(plan, &strict());
    assert_eq!(report.verdict, Verdict::Accept, "{:?}", report.diagnostics);
    only(rule, &verify(plan, &mscclpp())).message
}

/// The all-gather with `more` unused channels of block 0 on both ranks.
fn with_channels(more: u32) -> Plan {
    let mut plan = all_gather();
    for (rank, of_rank) in plan.ranks.iter_mut().enumerate() {
        of_rank.channels.push(ChannelEntry::Memory(vec![1 - rank as u32; more as usize]));
        of_rank.blocks[0].channels[0].channels.extend(1..=more);
    }
    plan
}

#[test]
fn channels_of_a_block() {
    assert_eq!(findings(&verify(&with_channels(15), &mscclpp())), []);
    assert_eq!(only_mscclpp(801, &with_channels(16)), "17 memory channels of a block: MSCCL++ takes 16");
}

#[test]
fn channels_of_an_operation() {
    let with = |count: u32| {
        let mut plan = with_channels(count - 1);
        for rank in 0..2 {
            for at in [6, 7] {
                *channels(&mut plan, (rank, 0, at)) = (0..count).collect();
            }
        }
        plan
    };
    assert_eq!(findings(&verify(&with(8), &mscclpp())), []);
    assert_eq!(only_mscclpp(802, &with(9)), "9 channels of an operation: MSCCL++ takes 8");
    // Warpway: a thread each.
    let mut plan = with(9);
    plan.threads_per_block = 8;
    assert_eq!(only(802, &verify(&plan, &strict())).message, "9 channels of an operation: Warpway takes 8");
}

/// One all-gather put with many copies in its item list.
fn with_items(count: u64) -> Plan {
    let mut plan = all_gather();
    for (rank, of_rank) in plan.ranks.iter_mut().enumerate() {
        of_rank.input_chunks = count;
        of_rank.output_chunks = 2 * count;
        let first = rank as u64 * count;
        for at in [3, 4] {
            let Action::Data(data) = &mut of_rank.blocks[0].operations[at].action else { panic!() };
            data.sources = (0..count).map(|k| local(BufferKind::Input, k, 1)).collect();
            let remote = data.kind == warpway_plan::DataKind::Put;
            data.destinations = (first..first + count)
                .map(|index| match remote {
                    true => Reference::Remote { position: 0, index, size: 1 },
                    false => local(BufferKind::Output, index, 1),
                })
                .collect();
        }
    }
    // A copy has one item.
    for rank in 0..2 {
        let copy = data(&mut plan, (rank, 0, 3));
        copy.sources = vec![local(BufferKind::Input, 0, count)];
        copy.destinations = vec![local(BufferKind::Output, rank as u64 * count, count)];
    }
    plan
}

#[test]
fn references_of_an_operation() {
    assert_eq!(findings(&verify(&with_items(8), &mscclpp())), []);
    assert_eq!(only_mscclpp(803, &with_items(9)), "9 remote destinations: MSCCL++ takes 8");
    assert_eq!(only_mscclpp(803, &with_items(11)), "11 sources: MSCCL++ takes 10");
    assert_eq!(findings(&verify(&with_items(64), &strict())), []);
    assert_eq!(only(803, &verify(&with_items(65), &strict())).message, "65 sources: Warpway takes 64");
}

#[test]
fn operations_of_a_block() {
    let with = |count: usize| {
        let mut plan = all_gather();
        let list = block(&mut plan, 0, 0);
        list.resize(count, Action::Nop.into());
        plan
    };
    assert_eq!(findings(&verify(&with(64), &mscclpp())), []);
    assert_eq!(only_mscclpp(804, &with(65)), "65 operations of a block: MSCCL++ takes 64");
    assert_eq!(findings(&verify(&with(65_536), &strict())), []);
    only(804, &verify(&with(65_537), &strict()));
}

#[test]
fn barriers_and_semaphores() {
    let with = |barriers: u32, semaphores: usize| {
        let mut plan = all_gather();
        block(&mut plan, 1, 0).extend((0..barriers).map(|id| super::barrier(id, 1)));
        plan.ranks[1].semaphores = vec![0; semaphores];
        plan
    };
    assert_eq!(findings(&verify(&with(16, 16), &mscclpp())), []);
    assert_eq!(only_mscclpp(805, &with(17, 0)), "17 barriers of a rank: MSCCL++ takes 16");
    assert_eq!(only_mscclpp(805, &with(0, 17)), "17 semaphores of a rank: MSCCL++ takes 16");
    assert_eq!(findings(&verify(&with(0, 4096), &strict())), []);
    assert_eq!(
        only(805, &verify(&with(0, 4097), &strict())).message,
        "4097 semaphores of a rank: Warpway takes 4096"
    );
}

/// Sizes that MSCCL++ cuts to 32 bits, and iterations that it cuts to 16.
#[test]
fn sizes() {
    let sized = |target, bytes| Options { target, sizes: vec![bytes], ..strict() };
    let plan = all_gather();
    assert_eq!(findings(&verify(&plan, &sized(Target::Mscclpp, (4 << 30) - 32))), []);
    assert_eq!(findings(&verify(&plan, &sized(Target::Warpway, 4 << 30))), []);
    assert_eq!(
        only(806, &verify(&plan, &sized(Target::Mscclpp, 4 << 30))).message,
        "a message of 4294967296 bytes: buffer o has 4294967296 bytes, MSCCL++ takes less than 4294967296"
    );
    let plan = testing::send_recv_pipeline(2, 1, 64).unwrap();
    let fits = sized(Target::Mscclpp, 65_535 * 64);
    assert_eq!(findings(&verify(&plan, &fits)), []);
    assert_eq!(
        only(807, &verify(&plan, &sized(Target::Mscclpp, 65_536 * 64))).message,
        "a message of 4194304 bytes: 65536 iterations of a pipeline, MSCCL++ takes 65535"
    );
}

#[test]
fn proxy_memories_and_semaphores() {
    let mut plan = all_gather();
    for (rank, of_rank) in plan.ranks.iter_mut().enumerate() {
        of_rank.channels.push(ChannelEntry::Port(vec![1 - rank as u32; 1024]));
    }
    assert_eq!(findings(&verify(&plan, &mscclpp())), []);
    for (rank, of_rank) in plan.ranks.iter_mut().enumerate() {
        of_rank.channels.push(ChannelEntry::Port(vec![1 - rank as u32]));
    }
    assert_eq!(only_mscclpp(808, &plan), "1025 port channels of a rank: MSCCL++ takes 1024");
    let mut plan = all_gather();
    let remote =
        RemoteBuffer { rank: 1, buffer: BufferKind::Output, memory_access: false, port_access: true };
    plan.ranks[0].remote_buffers.extend(vec![remote; 513]);
    assert_eq!(only_mscclpp(808, &plan), "513 memories that the proxy of a rank reaches: MSCCL++ takes 512");
}

#[test]
fn resident_blocks() {
    let device = Some(DeviceLimits { resident_blocks: 1, multicast: true });
    let plan = testing::all_gather_groups(2, 2).unwrap();
    only(810, &verify(&plan, &Options { device, ..mscclpp() }));
}

#[test]
fn extensions() {
    let mut plan = testing::all_reduce_packets(2).unwrap();
    assert!(plan.extensions.contains(&Extension::Order));
    assert_eq!(only_mscclpp(811, &plan), "MSCCL++ does not know the extension order");
    for rank in 0..2 {
        data(&mut plan, (rank, 0, 1)).fold.as_mut().unwrap().order = None;
    }
    // Listed, but not used.
    assert_eq!(only(811, &verify(&plan, &mscclpp())).message, "MSCCL++ does not know the extension order");
    plan.extensions.clear();
    assert!(!verify(&plan, &mscclpp()).diagnostics.iter().any(|d| d.rule.0 == 811));
}

/// The switch entries of a rank.
fn groups(plan: &mut Plan, rank: usize) -> (&mut BufferKind, &mut Vec<RankGroup>) {
    let entries = plan.ranks[rank].channels.iter_mut();
    let mut found = entries.filter_map(|entry| match entry {
        ChannelEntry::Switch { buffer, groups } => Some((buffer, groups)),
        _ => None,
    });
    found.next().unwrap()
}

#[test]
fn members_that_disagree() {
    let plan = testing::all_reduce_switch(3).unwrap();
    let found = breaks(901, &plan, &strict(), |plan| groups(plan, 2).1[0].ranks.swap(0, 1));
    assert_eq!(
        found.message,
        "the switch channels of ranks 0 and 2 with each other differ at number 0: buffer i of ranks [0, 1, 2] and buffer \
         i of ranks [1, 0, 2]"
    );
    breaks(901, &plan, &strict(), |plan| groups(plan, 1).1.push(RankGroup { size: 2, ranks: vec![0, 1] }));
    // One more group, in another order.
    let mut two = plan.clone();
    for rank in 0..3 {
        groups(&mut two, rank).1.push(RankGroup { size: 3, ranks: vec![2, 1, 0] });
    }
    assert_eq!(findings(&verify(&two, &strict())), []);
    groups(&mut two, 1).1.swap(0, 1);
    two.ranks[1].blocks[0].channels.iter_mut().for_each(|refs| {
        if refs.channel_type == ChannelType::Switch {
            refs.channels = vec![1];
        }
    });
    only(901, &verify(&two, &strict()));
}

#[test]
fn rank_outside_of_the_group() {
    let found = breaks(902, &testing::all_reduce_switch(3).unwrap(), &strict(), |plan| {
        let of_rank = &mut plan.ranks[2];
        of_rank.channels.push(ChannelEntry::Switch {
            buffer: BufferKind::Input,
            groups: vec![RankGroup { size: 2, ranks: vec![0, 1] }],
        });
        for refs in &mut of_rank.blocks[0].channels {
            if refs.channel_type == ChannelType::Switch {
                *refs = ChannelRefs { channel_type: ChannelType::Switch, channels: vec![1] };
            }
        }
    });
    assert_eq!(found.message, "rank 2 is not a member of its switch channel 0");
}

#[test]
fn what_a_device_can_multicast() {
    let plan = testing::all_reduce_switch(2).unwrap();
    let on =
        |multicast| Options { device: Some(DeviceLimits { resident_blocks: 100, multicast }), ..strict() };
    assert_eq!(findings(&verify(&plan, &on(true))), []);
    assert_eq!(only(903, &verify(&plan, &on(false))).message, "the device has no multicast");
    let mut product = plan.clone();
    product.extensions.insert(Extension::ReduceOp);
    for rank in 0..2 {
        data(&mut product, (rank, 0, 4)).fold.as_mut().unwrap().op = ReduceOp::Prod;
    }
    assert_eq!(findings(&verify(&product, &strict())), []);
    assert_eq!(only(903, &verify(&product, &on(true))).message, "multicast cannot reduce by prod");
}
