//! Plans of a million operations.

use std::collections::BTreeSet;
use std::time::Instant;

use warpway_plan::*;

/// All-to-all of `n` ranks, one block, five operations for each peer.
fn all_to_all(n: u32) -> Plan {
    let rank = |r: u32| {
        let mut operations: Vec<Operation> = Vec::new();
        for position in 0..n - 1 {
            let peer = (r + 1 + position) % n;
            let via = Via::Memory;
            let put = DataOperation {
                kind: DataKind::Put,
                channel_type: Some(ChannelType::Memory),
                sources: vec![Reference::Local { buffer: BufferKind::Input, index: peer.into(), size: 1 }],
                destinations: vec![Reference::Remote { position, index: r.into(), size: 1 }],
                channels: Vec::new(),
                fold: None,
                group: None,
            };
            let channels = vec![position];
            operations.extend([
                Action::Signal { via, relaxed: true, channels: channels.clone() }.into(),
                Action::Wait { via, relaxed: true, channels: channels.clone() }.into(),
                Action::Data(Box::new(put)).into(),
                Action::Signal { via, relaxed: false, channels: channels.clone() }.into(),
                Action::Wait { via, relaxed: false, channels }.into(),
            ]);
        }
        let peers: Vec<u32> = (1..n).map(|d| (r + d) % n).collect();
        RankPlan {
            input_chunks: n.into(),
            output_chunks: n.into(),
            blocks: vec![ThreadBlock {
                operations,
                channels: vec![ChannelRefs {
                    channel_type: ChannelType::Memory,
                    channels: (0..n - 1).collect(),
                }],
                remote_buffers: vec![RemoteBufferRefs {
                    access: ChannelType::Memory,
                    buffers: (0..n - 1).collect(),
                }],
            }],
            remote_buffers: peers
                .iter()
                .map(|peer| RemoteBuffer {
                    rank: *peer,
                    buffer: BufferKind::Output,
                    memory_access: true,
                    port_access: false,
                })
                .collect(),
            channels: vec![ChannelEntry::Memory(peers)],
            ..RankPlan::default()
        }
    };
    Plan {
        name: "all-to-all".into(),
        collective: Collective::AllToAll,
        protocol: Protocol::Simple,
        in_place: false,
        reuse_resources: false,
        double_scratch: false,
        threads_per_block: 1024,
        buffer_alignment: 16,
        min_message_size: 0,
        max_message_size: u64::MAX,
        ranks: (0..n).map(rank).collect(),
        extensions: BTreeSet::new(),
    }
}

#[test]
fn middle_sized_plans_come_back() {
    let plan = all_to_all(48);
    assert_eq!(plan.operations().count(), 48 * 47 * 5);
    // Longer than the buffers of the writer, so that pieces are joined.
    for style in [Style::Pretty, Style::Compact, Style::Canonical] {
        let read = Plan::from_json(plan.to_json(style).as_bytes()).unwrap();
        assert!(read.plan == plan && read.warnings.is_empty());
    }
}

/// Prints figures: `cargo nextest run --release --run-ignored all --no-capture -- json_of_512_ranks`.
#[test]
#[ignore = "prints figures; needs a release build"]
fn json_of_512_ranks() {
    for n in [256, 512] {
        let plan = all_to_all(n);
        let operations = plan.operations().count();
        for style in [Style::Pretty, Style::Canonical] {
            let begin = Instant::now();
            let text = plan.to_json(style);
            let written = begin.elapsed();
            let begin = Instant::now();
            let read = Plan::from_json(text.as_bytes()).unwrap();
            let elapsed = begin.elapsed();
            assert!(read.plan == plan);
            let megabytes = text.len() >> 20;
            println!(
                "{n} ranks, {operations} operations, {style:?}: {megabytes} MiB, written in {written:.2?}, read in {elapsed:.2?}"
            );
        }
        let begin = Instant::now();
        let identity = plan.identity();
        let hashed = begin.elapsed();
        let begin = Instant::now();
        assert_eq!(plan.check(), []);
        println!("identity {identity} in {hashed:.2?}, checked in {:.2?}", begin.elapsed());
    }
}
