//! Any plan that the types can hold, sensible or not: writing and reading give it back, or its own findings.

use std::collections::BTreeSet;
use std::sync::Arc;

use proptest::collection::{btree_set, vec};
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::Value;
use warpway_plan::*;

fn named<T: Copy + std::fmt::Debug + 'static>(
    names: &'static [(T, &'static str)],
) -> impl Strategy<Value = T> + Clone {
    select(names).prop_map(|(value, _)| value)
}

/// Numbers of all magnitudes, small ones often.
fn number() -> impl Strategy<Value = u64> + Clone {
    prop_oneof![4 => 0..4u64, 1 => any::<u64>(), 1 => Just(u64::MAX)]
}

fn position() -> impl Strategy<Value = u32> + Clone {
    prop_oneof![4 => 0..3u32, 1 => any::<u32>()]
}

fn reference() -> impl Strategy<Value = Reference> + Clone {
    prop_oneof![
        3 => (named(BufferKind::NAMED), number(), number())
            .prop_map(|(buffer, index, size)| Reference::Local { buffer, index, size }),
        2 => (position(), number(), number())
            .prop_map(|(position, index, size)| Reference::Remote { position, index, size }),
        1 => (position(), number(), number())
            .prop_map(|(position, index, size)| Reference::Switch { position, index, size }),
    ]
}

fn data() -> impl Strategy<Value = DataOperation> + Clone {
    let order = proptest::option::weighted(0.2, vec(0..3u32, 0..4));
    let fold = (named(ReduceOp::NAMED), order).prop_map(|(op, order)| Fold { op, order });
    let group = (position(), position()).prop_map(|(member, size)| GroupMember { member, size });
    (
        named(DataKind::NAMED),
        proptest::option::of(named(ChannelType::NAMED)),
        vec(reference(), 0..4),
        vec(reference(), 0..4),
        vec(position(), 0..3),
        proptest::option::of(fold),
        proptest::option::of(group),
    )
        .prop_map(|(kind, channel_type, sources, destinations, channels, fold, group)| DataOperation {
            kind,
            channel_type,
            sources,
            destinations,
            channels,
            fold,
            group,
        })
}

/// A data operation of the right shape, so that whole plans are right now and then.
fn sound_data() -> impl Strategy<Value = DataOperation> + Clone {
    let local = (named(BufferKind::NAMED), number(), number())
        .prop_map(|(buffer, index, size)| Reference::Local { buffer, index, size });
    let remote = (position(), number(), number()).prop_map(|(position, index, size)| Reference::Remote {
        position,
        index,
        size,
    });
    let put = (1..4usize).prop_flat_map({
        let (local, remote) = (local.clone(), remote.clone());
        move |n| (vec(local.clone(), n), vec(remote.clone(), n), vec(position(), n), any::<bool>())
    });
    let put = put.prop_map(|(sources, destinations, channels, port)| DataOperation {
        kind: DataKind::Put,
        channel_type: Some(if port { ChannelType::Port } else { ChannelType::Memory }),
        sources,
        destinations,
        channels,
        fold: None,
        group: None,
    });
    let orders = Just(vec![0, 1, 2]).prop_shuffle();
    let fold = (vec(local.clone(), 3), local, named(ReduceOp::NAMED), proptest::option::of(orders));
    let fold = fold.prop_map(|(sources, destination, op, order)| DataOperation {
        kind: DataKind::Reduce,
        channel_type: None,
        sources,
        destinations: vec![destination],
        channels: Vec::new(),
        fold: Some(Fold { op, order }),
        group: None,
    });
    prop_oneof![put, fold]
}

fn simple_action(sound: bool) -> impl Strategy<Value = Action> + Clone {
    let via = select(&[Via::Memory, Via::Port][..]);
    let least = usize::from(sound);
    let list = move || vec(position(), least..4);
    let data = if sound { sound_data().boxed() } else { data().boxed() };
    prop_oneof![
        1 => Just(Action::Nop),
        1 => (position(), position()).prop_map(|(id, blocks)| Action::Barrier { id, blocks }),
        1 => (via.clone(), any::<bool>(), list())
            .prop_map(|(via, relaxed, channels)| Action::Signal { via, relaxed, channels }),
        1 => (via, any::<bool>(), list())
            .prop_map(|(via, relaxed, channels)| Action::Wait { via, relaxed, channels }),
        1 => list().prop_map(|channels| Action::Flush { channels }),
        1 => list().prop_map(|semaphores| Action::Acquire { semaphores }),
        1 => list().prop_map(|semaphores| Action::Release { semaphores }),
        5 => data.prop_map(|data| Action::Data(Box::new(data))),
    ]
}

fn operation(action: impl Strategy<Value = Action> + Clone) -> impl Strategy<Value = Operation> + Clone {
    let location = ("\\PC{0,8}", position()).prop_map(|(file, line)| Arc::new(Location { file, line }));
    (action, proptest::option::weighted(0.3, location))
        .prop_map(|(action, location)| Operation { action, location })
}

fn pipeline<T: Strategy<Value = Action> + Clone>(
    sound: bool,
    body: T,
) -> impl Strategy<Value = Action> + Clone {
    let unit = number().prop_map(move |unit| if sound { unit.max(1) } else { unit });
    (unit, number(), proptest::option::weighted(0.3, number()), vec(operation(body), 0..3)).prop_map(
        |(unit_size, num_chunks, size_id, body)| {
            Action::Pipeline(Box::new(Pipeline { unit_size, num_chunks, size_id, body }))
        },
    )
}

fn any_action(sound: bool) -> BoxedStrategy<Action> {
    let simple = simple_action(sound).boxed();
    let flat = pipeline(sound, simple.clone()).boxed();
    if sound {
        return prop_oneof![6 => simple, 1 => flat].boxed();
    }
    let nested = pipeline(sound, prop_oneof![simple.clone(), flat.clone()].boxed());
    prop_oneof![6 => simple, 1 => flat, 1 => nested].boxed()
}

fn block(sound: bool) -> impl Strategy<Value = ThreadBlock> {
    let channels = (named(ChannelType::NAMED), vec(position(), 0..3))
        .prop_map(|(channel_type, channels)| ChannelRefs { channel_type, channels });
    let remote = (named(ChannelType::NAMED), vec(position(), 0..3))
        .prop_map(|(access, buffers)| RemoteBufferRefs { access, buffers });
    (vec(operation(any_action(sound)), 0..5), vec(channels, 0..3), vec(remote, 0..3)).prop_map(
        move |(operations, mut channels, mut remote_buffers)| {
            if sound {
                channels.truncate(1);
                remote_buffers.retain(|refs| refs.access != ChannelType::Switch);
                remote_buffers.truncate(1);
            }
            ThreadBlock { operations, channels, remote_buffers }
        },
    )
}

fn rank(sound: bool) -> impl Strategy<Value = RankPlan> {
    let group = (number(), vec(position(), 0..3)).prop_map(|(size, ranks)| RankGroup { size, ranks });
    let entry = prop_oneof![
        vec(position(), 0..3).prop_map(ChannelEntry::Memory),
        vec(position(), 0..3).prop_map(ChannelEntry::Port),
        (named(BufferKind::NAMED), vec(group, 0..3))
            .prop_map(|(buffer, groups)| ChannelEntry::Switch { buffer, groups }),
    ];
    let remote = (position(), named(BufferKind::NAMED), any::<bool>(), any::<bool>()).prop_map(
        |(rank, buffer, memory_access, port_access)| RemoteBuffer {
            rank,
            buffer,
            memory_access,
            port_access,
        },
    );
    let ids = || vec(number(), 0..3);
    let sizes = (ids(), ids(), ids()).prop_map(|(input, output, scratch)| SizeIds { input, output, scratch });
    (
        (number(), number(), number()),
        proptest::option::weighted(0.2, sizes),
        vec(block(sound), 0..3),
        vec(entry, 0..3),
        vec(remote, 0..3),
        vec(number(), 0..3),
    )
        .prop_map(
            |(
                (input_chunks, output_chunks, scratch_chunks),
                size_ids,
                blocks,
                channels,
                remote,
                semaphores,
            )| {
                RankPlan {
                    input_chunks,
                    output_chunks,
                    scratch_chunks,
                    size_ids,
                    blocks,
                    channels,
                    remote_buffers: remote,
                    semaphores,
                }
            },
        )
}

fn plan(sound: bool) -> impl Strategy<Value = Plan> {
    let extensions = btree_set(named(Extension::NAMED), 0..4);
    let numbers = (position(), number(), number(), number());
    (
        ("\\PC{0,12}|[\\x00-\\x7f]{0,6}", named(Collective::NAMED), named(Protocol::NAMED)),
        (any::<bool>(), any::<bool>(), any::<bool>()),
        numbers,
        vec(rank(sound), usize::from(sound)..3),
        extensions,
    )
        .prop_map(
            move |(
                (name, collective, protocol),
                (in_place, reuse_resources, double_scratch),
                (threads_per_block, buffer_alignment, min_message_size, max_message_size),
                ranks,
                extensions,
            )| {
                let plan = Plan {
                    name,
                    collective,
                    protocol,
                    in_place,
                    reuse_resources,
                    double_scratch,
                    threads_per_block,
                    buffer_alignment,
                    min_message_size,
                    max_message_size,
                    ranks,
                    extensions,
                };
                match sound {
                    false => plan,
                    true => Plan {
                        threads_per_block: plan.threads_per_block.clamp(1, 1024),
                        buffer_alignment: 1 << (2 + plan.buffer_alignment % 19),
                        min_message_size: plan.min_message_size.min(plan.max_message_size),
                        extensions: Extension::NAMED.iter().map(|(e, _)| *e).collect(),
                        ..plan
                    },
                }
            },
        )
}

/// Writes and reads; both ways of looking at the plan must agree.
fn there_and_back(plan: &Plan) -> Result<bool, TestCaseError> {
    let found = plan.check();
    let mut results = BTreeSet::new();
    for style in [Style::Pretty, Style::Compact, Style::Canonical] {
        let text = plan.to_json_with_locations(style);
        prop_assert!(text.is_ascii());
        match Plan::from_json(text.as_bytes()) {
            Ok(read) => {
                prop_assert_eq!(&read.plan, plan);
                prop_assert_eq!(&read.warnings, &found);
                results.insert(true);
            }
            Err(ReadError::NoPlan { errors, warnings, .. }) => {
                let all: Vec<Finding> = errors.into_iter().chain(warnings).collect();
                prop_assert_eq!(&all, &found);
                results.insert(false);
            }
            Err(other) => return Err(TestCaseError::fail(other.to_string())),
        }
    }
    prop_assert_eq!(results.len(), 1);
    Ok(results.contains(&true))
}

proptest! {
    #[test]
    fn nonsense_comes_back_with_its_findings(plan in plan(false)) {
        there_and_back(&plan)?;
    }

    #[test]
    fn sound_plans_come_back(plan in plan(true)) {
        prop_assert!(there_and_back(&plan)?, "{:?}", plan.check());
    }

    /// `serde_json` sorts keys and escapes less; parsed, they must be the same.
    #[test]
    fn styles_are_the_same_values(plan in plan(false)) {
        let values: Vec<Value> = [Style::Pretty, Style::Compact, Style::Canonical]
            .iter()
            .map(|style| serde_json::from_str(&plan.to_json(*style)).unwrap())
            .collect();
        prop_assert_eq!(&values[0], &values[1]);
        prop_assert_eq!(&values[0], &values[2]);
        if plan.name.chars().all(|c| c.is_ascii() && c != '\x7f') {
            prop_assert_eq!(plan.to_json(Style::Canonical), values[0].to_string());
        }
        let mut pieces = Vec::new();
        plan.write_json(&mut pieces, Style::Pretty).unwrap();
        prop_assert_eq!(pieces, plan.to_json(Style::Pretty).into_bytes());
    }
}

/// What Python's `json.dumps` gives for this name, with `indent=2`.
#[test]
fn text_is_escaped_as_python_does() {
    let name = "a\"\\/\u{8}\u{c}\n\r\t\u{0}\u{1f} ~\u{7f}é€\u{ffff}😀";
    let plan = Plan {
        name: name.into(),
        collective: Collective::Custom,
        protocol: Protocol::LowLatency,
        in_place: true,
        reuse_resources: false,
        double_scratch: true,
        threads_per_block: 1024,
        buffer_alignment: 16,
        min_message_size: 0,
        max_message_size: u64::MAX,
        ranks: Vec::new(),
        extensions: BTreeSet::from([Extension::SizedChunks, Extension::LoadReduce]),
    };
    let expected = r#"{
  "name": "a\"\\/\b\f\n\r\t\u0000\u001f ~\u007f\u00e9\u20ac\uffff\ud83d\ude00",
  "collective": "custom",
  "protocol": "LL",
  "inplace": true,
  "reuse_resources": false,
  "gpus": [],
  "num_threads_per_block": 1024,
  "use_double_scratch_buffer": true,
  "buffer_alignment": 16,
  "min_message_size": 0,
  "max_message_size": 18446744073709551615,
  "extensions": [
    "glre",
    "sized_chunks"
  ]
}"#;
    assert_eq!(plan.to_json(Style::Pretty), expected);
    let canonical = r#"{"buffer_alignment":16,"collective":"custom","extensions":["glre","sized_chunks"],"gpus":[],"inplace":true,"max_message_size":18446744073709551615,"min_message_size":0,"name":"a\"\\/\b\f\n\r\t\u0000\u001f ~\u007f\u00e9\u20ac\uffff\ud83d\ude00","num_threads_per_block":1024,"protocol":"LL","reuse_resources":false,"use_double_scratch_buffer":true}"#;
    assert_eq!(plan.to_json(Style::Canonical), canonical);
    let identity = plan.identity();
    assert_eq!(identity.to_string().len(), 64);
    assert_ne!(identity, Plan { in_place: false, ..plan.clone() }.identity());
    assert_eq!(identity, plan.clone().identity());
}

/// Key order, defaults and older forms make no identity; source locations neither.
#[test]
fn identity_is_that_of_the_contents() {
    let read = |text: &str| Plan::from_json(text.as_bytes()).unwrap().plan.identity();
    let operations = r#"[{"name":"nop","loc":"a.py:1"}]"#;
    let long = format!(
        r#"{{"gpus":[{{"id":0,"remote_buffers":[],"channels":[],"scratch_chunks":0,"output_chunks":1,"input_chunks":1,
        "semaphores":[],"threadblocks":[{{"ops":{operations},"id":0,"channels":[],"remote_buffer_refs":[]}}]}}],
        "inplace":false,"protocol":"Simple","collective":"test","name":"x","buffer_alignment":16,"extensions":[]}}"#
    );
    let short = r#"{"name":"x","collective":"test","protocol":"Simple","inplace":false,"gpus":[{"id":0,"input_chunks":1,
        "output_chunks":1,"scratch_chunks":0,"threadblocks":[{"id":0,"ops":[{"name":"nop","channel_type":"none"}],
        "channels":[]}],"channels":[],"remote_buffers":[]}]}"#;
    assert_eq!(read(&long), read(short));
    assert_ne!(read(short), read(&short.replace("\"x\"", "\"y\"")));
}

/// A multicast store says whose chunk it sends, as MSCCL++'s does; a reader that never saw the key reads the same.
#[test]
fn the_source_of_a_multicast_store_names_its_rank() {
    let mut p = Program::new(ProgramOptions {
        fusion: false,
        ..ProgramOptions::new("stores", CollectiveShape::all_reduce(2, 1))
    })
    .unwrap();
    for rank in 0..2 {
        p.scratch(rank, 2).unwrap();
    }
    let (output, scratch) = (
        p.switch_channel(&[0, 1], BufferKind::Output).unwrap(),
        p.switch_channel(&[0, 1], BufferKind::Scratch).unwrap(),
    );
    let mine = p.input(1).unwrap().chunk(1..2).unwrap();
    p.switch_broadcast(output.region(1, 0, 1), mine, 0).unwrap();
    let packets = p.scratch(1, 1).unwrap().whole();
    p.switch_broadcast_packets(scratch.region(1, 0, 1), packets, 0).unwrap();
    let plan = p.finish().unwrap();

    let sources = |style| {
        let text = plan.to_json(style);
        let sources = text.split("\"src_buff\":").skip(1).map(|rest| rest.split(']').next().unwrap());
        sources.map(|source| source.split_whitespace().collect::<String>() + "]").collect::<Vec<_>>()
    };
    let written =
        [r#"[{"rank":1,"type":"i","index":1,"size":1}]"#, r#"[{"rank":1,"type":"s","index":2,"size":1}]"#];
    assert_eq!(sources(Style::Pretty), written);
    assert_eq!(sources(Style::Compact), written);
    let sorted =
        [r#"[{"index":1,"rank":1,"size":1,"type":"i"}]"#, r#"[{"index":2,"rank":1,"size":1,"type":"s"}]"#];
    assert_eq!(sources(Style::Canonical), sorted);
    let without = plan.to_json(Style::Compact).replace("{\"rank\":1,\"type\"", "{\"type\"");
    assert_ne!(without, plan.to_json(Style::Compact));
    let read = Plan::from_json(without.as_bytes()).unwrap();
    assert_eq!((read.plan.identity(), read.warnings), (plan.identity(), vec![]));
}
