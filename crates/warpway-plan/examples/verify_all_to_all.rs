//! What verification costs: `verify_all_to_all [RANKS [BLOCKS]]` prints operations, seconds and peak memory of the
//! strict verification of an all-to-all, by default of 64 ranks with 32 blocks each. Every block exchanges its part of
//! every message over a channel of its own to each peer.

use std::time::Instant;

use warpway_plan::verify::{Options, Profile, verify};
use warpway_plan::{
    Action, BufferKind, ChannelEntry, ChannelRefs, ChannelType, Collective, DataKind, DataOperation,
    Operation, Plan, Protocol, RankPlan, Reference, RemoteBuffer, RemoteBufferRefs, ThreadBlock, Via,
};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse::<u32>());
    let ranks = arguments.next().transpose()?.unwrap_or(64);
    let blocks = arguments.next().transpose()?.unwrap_or(32);
    let plan = all_to_all(ranks, blocks);
    let operations = plan.operations().count();
    let before = peak_kib();
    let start = Instant::now();
    let report = verify(&plan, &Options { profile: Profile::Strict, ..Options::default() });
    let seconds = start.elapsed().as_secs_f64();
    println!("{ranks} ranks, {blocks} blocks, {operations} operations: {}", report.summary());
    println!("{seconds:.2} s, peak {} MiB, before it {} MiB", peak_kib() / 1024, before / 1024);
    Ok(())
}

fn all_to_all(n: u32, blocks: u32) -> Plan {
    let chunks = u64::from(n) * u64::from(blocks);
    Plan {
        name: "all_to_all".to_owned(),
        collective: Collective::AllToAll,
        protocol: Protocol::Simple,
        in_place: false,
        reuse_resources: false,
        double_scratch: false,
        threads_per_block: 1024,
        buffer_alignment: 16,
        min_message_size: 0,
        max_message_size: u64::MAX,
        ranks: (0..n)
            .map(|me| RankPlan {
                input_chunks: chunks,
                output_chunks: chunks,
                blocks: (0..blocks).map(|b| block(n, blocks, (me, b))).collect(),
                // The channels of a block lie together, in the order of peers.
                channels: (0..blocks).map(|_| ChannelEntry::Memory(peers(n, me).collect())).collect(),
                remote_buffers: peers(n, me)
                    .map(|rank| RemoteBuffer {
                        rank,
                        buffer: BufferKind::Output,
                        memory_access: true,
                        port_access: false,
                    })
                    .collect(),
                ..RankPlan::default()
            })
            .collect(),
        extensions: Default::default(),
    }
}

fn peers(n: u32, me: u32) -> impl Iterator<Item = u32> {
    (0..n).filter(move |peer| *peer != me)
}

fn block(n: u32, blocks: u32, (me, block): (u32, u32)) -> ThreadBlock {
    let positions = 0..n - 1;
    // The chunk of this block in the message to or from a rank.
    let chunk = |rank: u32| u64::from(rank) * u64::from(blocks) + u64::from(block);
    let local = |buffer, rank| Reference::Local { buffer, index: chunk(rank), size: 1 };
    let signals = |relaxed| {
        let signal = move |p| Action::Signal { via: Via::Memory, relaxed, channels: vec![p] };
        let wait = move |p| Action::Wait { via: Via::Memory, relaxed, channels: vec![p] };
        (0..n - 1).map(signal).chain((0..n - 1).map(wait))
    };
    let moves = |kind, channel_type, destination| {
        move |source| {
            Action::Data(Box::new(DataOperation {
                kind,
                channel_type,
                sources: vec![source],
                destinations: vec![destination],
                channels: Vec::new(),
                fold: None,
                group: None,
            }))
        }
    };
    let copy = moves(DataKind::Copy, None, local(BufferKind::Output, me))(local(BufferKind::Input, me));
    let puts = positions.clone().zip(peers(n, me)).map(|(position, peer)| {
        let destination = Reference::Remote { position, index: chunk(me), size: 1 };
        moves(DataKind::Put, Some(ChannelType::Memory), destination)(local(BufferKind::Input, peer))
    });
    let actions = std::iter::once(copy)
        .chain(signals(true))
        .chain([Action::Nop])
        .chain(puts)
        .chain([Action::Nop])
        .chain(signals(false))
        .chain([Action::Nop]);
    let first = block * (n - 1);
    ThreadBlock {
        operations: actions.map(Operation::from).collect(),
        channels: vec![ChannelRefs {
            channel_type: ChannelType::Memory,
            channels: (first..first + n - 1).collect(),
        }],
        remote_buffers: vec![RemoteBufferRefs { access: ChannelType::Memory, buffers: positions.collect() }],
    }
}

/// Greatest resident memory of this process so far; 0 where the system does not say.
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse().ok()).unwrap_or(0)
}
