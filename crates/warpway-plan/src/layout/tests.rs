//! Hand-computed tables, and every byte against the formulas of the specification.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::ir::{
    Action, Collective, DataKind, DataOperation, Form, GroupMember, Operation, Protocol, RankPlan, Reference,
    SizeIds, ThreadBlock,
};

fn plan(collective: Collective, counts: [u64; 3], n: usize) -> Plan {
    let [input_chunks, output_chunks, scratch_chunks] = counts;
    let rank = RankPlan { input_chunks, output_chunks, scratch_chunks, ..RankPlan::default() };
    Plan {
        name: "test".into(),
        collective,
        protocol: Protocol::Simple,
        in_place: false,
        reuse_resources: false,
        double_scratch: false,
        threads_per_block: 1024,
        buffer_alignment: 16,
        min_message_size: 0,
        max_message_size: u64::MAX,
        ranks: vec![rank; n],
        extensions: BTreeSet::new(),
    }
}

/// Gives every rank one block with one operation between local references.
fn with_operation(mut plan: Plan, kind: DataKind, from: BufferKind, to: BufferKind) -> Plan {
    let local = |buffer| Reference::Local { buffer, index: 0, size: 1 };
    let data = DataOperation {
        kind,
        channel_type: None,
        sources: vec![local(from)],
        destinations: vec![local(to)],
        channels: vec![],
        fold: None,
        group: None,
    };
    let operations = vec![Operation::from(Action::Data(Box::new(data)))];
    for rank in &mut plan.ranks {
        rank.blocks.push(ThreadBlock { operations: operations.clone(), ..ThreadBlock::default() });
    }
    plan
}

fn request(input: u64, output: u64, element_size: u64) -> LayoutRequest<'static> {
    let sizes = MessageSizes::Message { rank: 0, input_bytes: input, output_bytes: output };
    LayoutRequest { sizes, element_size, packet_payload: 8 }
}

fn layout(plan: &Plan, input: u64, output: u64, element: u64) -> Result<MessageLayout, LayoutError> {
    MessageLayout::new(plan, &request(input, output, element))
}

fn chunks(layout: &MessageLayout, buffer: BufferKind, count: u64) -> Vec<(u64, u64)> {
    (0..count).map(|k| layout.chunk(0, buffer, k).map(|e| (e.offset, e.bytes)).unwrap()).collect()
}

fn raw(buffer: BufferKind, index: u64, size: u64) -> Placement {
    Placement { rank: 0, buffer, index, size, form: Form::Raw }
}

fn placed(
    layout: &MessageLayout,
    references: &[Placement],
    group: Option<GroupMember>,
) -> Vec<(Piece, Vec<u64>)> {
    let mut pieces = Pieces::default();
    layout.place(references, group, None, &mut pieces).unwrap();
    pieces.iter().map(|(piece, offsets)| (piece, offsets.to_vec())).collect()
}

#[test]
fn sizes_that_divide_give_equal_chunks() {
    let all_reduce = plan(Collective::AllReduce, [4, 4, 6], 2);
    let found = layout(&all_reduce, 256, 256, 4).unwrap();
    assert_eq!((found.chunk_bytes(), found.unit()), (64, 16));
    assert_eq!(chunks(&found, BufferKind::Output, 4), [(0, 64), (64, 64), (128, 64), (192, 64)]);
    assert_eq!(chunks(&found, BufferKind::Scratch, 6)[5], (320, 64));
    let all_gather = plan(Collective::AllGather, [1, 3, 0], 3);
    let found = layout(&all_gather, 48, 144, 4).unwrap();
    assert_eq!(found.chunk_bytes(), 48);
    assert_eq!(found.buffer_bytes(0, BufferKind::Output), 144);
}

#[test]
fn ragged_sizes_follow_the_blocks_of_the_collective() {
    // 17 bytes per rank in two chunks of one 16-byte unit: 16 and 1 bytes, in each rank's block.
    let all_gather = plan(Collective::AllGather, [2, 6, 3], 3);
    let found = layout(&all_gather, 17, 51, 1).unwrap();
    assert_eq!(found.chunk_bytes(), 16);
    assert_eq!(chunks(&found, BufferKind::Input, 2), [(0, 16), (16, 1)]);
    let output = [(0, 16), (16, 1), (17, 16), (33, 1), (34, 16), (50, 1)];
    assert_eq!(chunks(&found, BufferKind::Output, 6), output);
    assert_eq!(chunks(&found, BufferKind::Scratch, 3), [(0, 16), (16, 16), (32, 16)]);
    // Three 4-byte elements for two ranks of two chunks: some chunks are empty.
    let scatter = plan(Collective::ReduceScatter, [4, 2, 0], 2);
    let found = layout(&scatter, 24, 12, 4).unwrap();
    assert_eq!(chunks(&found, BufferKind::Input, 4), [(0, 12), (12, 0), (12, 12), (24, 0)]);
    // 100 bytes for 4 chunks: ceil(25 / 16) units each.
    let all_reduce = plan(Collective::AllReduce, [4, 4, 4], 2);
    let found = layout(&all_reduce, 100, 100, 4).unwrap();
    assert_eq!(chunks(&found, BufferKind::Input, 4), [(0, 32), (32, 32), (64, 32), (96, 4)]);
    // All-to-all divides by ranks first: 3 ranks get 7 bytes each.
    let all_to_all = plan(Collective::AllToAll, [3, 3, 0], 3);
    let found = layout(&all_to_all, 21, 21, 1).unwrap();
    assert_eq!(chunks(&found, BufferKind::Input, 3), [(0, 7), (7, 7), (14, 7)]);
}

#[test]
fn nothing_is_a_message() {
    let found = layout(&plan(Collective::AllReduce, [4, 4, 4], 2), 0, 0, 4).unwrap();
    assert_eq!(found.chunk_bytes(), 0);
    assert!(placed(&found, &[raw(BufferKind::Input, 0, 4), raw(BufferKind::Scratch, 0, 4)], None).is_empty());
    assert_eq!(found.area(0), AreaBytes::default());
}

#[test]
fn elements_and_payloads_raise_the_unit() {
    let mut narrow = plan(Collective::AllReduce, [1, 1, 1], 2);
    narrow.buffer_alignment = 4;
    assert_eq!(layout(&narrow, 8, 8, 8).unwrap().unit(), 8);
    assert_eq!(layout(&narrow, 8, 8, 2).unwrap().unit(), 4);
    let packets = with_operation(narrow, DataKind::CopyPackets, BufferKind::Input, BufferKind::Scratch);
    assert_eq!(layout(&packets, 8, 8, 2).unwrap().unit(), 8);
    let small = LayoutRequest { packet_payload: 4, ..request(8, 8, 2) };
    assert_eq!(MessageLayout::new(&packets, &small).unwrap().unit(), 4);
}

#[test]
fn areas_are_as_large_as_their_use() {
    let base = plan(Collective::AllReduce, [4, 4, 6], 2);
    let area = |plan: &Plan| layout(plan, 256, 256, 4).unwrap().area(1);
    assert_eq!(area(&base), AreaBytes { raw: 0, packets: 0 });
    let raw = with_operation(base.clone(), DataKind::Copy, BufferKind::Input, BufferKind::Scratch);
    assert_eq!(area(&raw), AreaBytes { raw: 384, packets: 0 });
    let packets = with_operation(base, DataKind::CopyPackets, BufferKind::Input, BufferKind::Scratch);
    assert_eq!(area(&packets), AreaBytes { raw: 0, packets: 768 });
    let both = with_operation(packets, DataKind::Copy, BufferKind::Scratch, BufferKind::Output);
    assert_eq!(area(&both), AreaBytes { raw: 384, packets: 768 });
}

#[test]
fn what_a_plan_does_not_take_is_refused_with_the_numbers() {
    let element = BufferKind::Input;
    let all_reduce = plan(Collective::AllReduce, [4, 4, 4], 2);
    assert_eq!(
        layout(&all_reduce, 6, 6, 4).unwrap_err(),
        LayoutError::Element { buffer: element, bytes: 6, element: 4 }
    );
    assert_eq!(
        layout(&all_reduce, 64, 60, 4).unwrap_err(),
        LayoutError::Unequal { collective: Collective::AllReduce, input: 64, output: 60, expected: 64 }
    );
    let test = plan(Collective::Test, [4, 0, 0], 2);
    let indivisible = LayoutError::Indivisible { buffer: BufferKind::Input, bytes: 80, chunks: 4, unit: 16 };
    assert_eq!(layout(&test, 80, 0, 4).unwrap_err(), indivisible);
    assert_eq!(layout(&test, 128, 7, 4).unwrap().chunk_bytes(), 32);
    let all_to_all = plan(Collective::AllToAll, [3, 3, 0], 3);
    let blocks = LayoutError::Blocks { buffer: BufferKind::Input, bytes: 8, blocks: 3, element: 4 };
    assert_eq!(layout(&all_to_all, 8, 8, 4).unwrap_err(), blocks);
    let mut bounded = plan(Collective::AllGather, [1, 2, 0], 2);
    bounded.max_message_size = 100;
    let range = LayoutError::Range { bytes: 128, min: 0, max: 100 };
    assert_eq!(layout(&bounded, 64, 128, 4).unwrap_err(), range);
    let none = plan(Collective::AllReduce, [0, 0, 4], 2);
    assert!(matches!(layout(&none, 8, 8, 4), Err(LayoutError::Counts { rank: 0, input: 0, output: 0, .. })));
    let mut unequal = plan(Collective::AllReduce, [4, 4, 4], 2);
    unequal.ranks[1].input_chunks = 3;
    unequal.ranks[1].output_chunks = 3;
    let period = LayoutError::Period { rank: 0, found: 4, other: 1, expected: 3 };
    assert_eq!(layout(&unequal, 100, 100, 4).unwrap_err(), period);
}

#[test]
fn numbers_of_a_file_do_not_overflow() {
    let huge = plan(Collective::AllReduce, [1, 1, u64::MAX], 2);
    let raw = with_operation(huge, DataKind::Copy, BufferKind::Input, BufferKind::Scratch);
    assert_eq!(layout(&raw, 32, 32, 4).unwrap_err(), LayoutError::Overflow);
    let many = plan(Collective::AllReduce, [u64::MAX, u64::MAX, 0], 2);
    let found = layout(&many, 1000, 1000, 4).unwrap();
    assert_eq!(found.chunk(0, BufferKind::Input, 62).unwrap(), Extent { offset: 992, bytes: 8 });
    assert_eq!(found.chunk(0, BufferKind::Input, u64::MAX - 1).unwrap(), Extent { offset: 1000, bytes: 0 });
    // A billion chunks of a short message in one reference: few pieces.
    let billion = plan(Collective::AllReduce, [1 << 30, 1 << 30, 0], 2);
    let found = layout(&billion, 1000, 1000, 4).unwrap();
    let whole = placed(&found, &[self::raw(BufferKind::Input, 0, 1 << 30)], None);
    assert_eq!(whole.len(), 1);
    assert_eq!(whole[0].0.bytes, 1000);
}

#[test]
fn groups_split_in_units_and_the_last_takes_the_rest() {
    let share = |member, size, bytes| {
        let Extent { offset, bytes } = split(bytes, 16, Some(GroupMember { member, size })).unwrap();
        (offset, bytes)
    };
    assert_eq!([share(0, 3, 80), share(1, 3, 80), share(2, 3, 80)], [(0, 32), (32, 32), (64, 16)]);
    assert_eq!([share(0, 2, 47), share(1, 2, 47)], [(0, 16), (16, 31)]);
    assert_eq!([share(0, 3, 16), share(1, 3, 16), share(2, 3, 16)], [(0, 16), (16, 0), (16, 0)]);
    let wrong = split(16, 16, Some(GroupMember { member: 2, size: 2 }));
    assert_eq!(wrong.unwrap_err(), LayoutError::Member { member: 2, size: 2 });
}

#[test]
fn short_chunks_are_padded_only_for_packets() {
    let gather = plan(Collective::AllGather, [1, 3, 3], 3);
    let found = layout(&gather, 20, 60, 4).unwrap();
    assert_eq!(found.chunk_bytes(), 32);
    // Two chunks of the output into two of the scratch: each is 20 bytes of data in 32 of room.
    let pieces = placed(&found, &[raw(BufferKind::Output, 1, 2), raw(BufferKind::Scratch, 0, 2)], None);
    let expected = [
        (Piece { position: 0, bytes: 20, cover: 32 }, vec![20, 0]),
        (Piece { position: 32, bytes: 20, cover: 32 }, vec![40, 32]),
    ];
    assert_eq!(pieces, expected);
    // The second of two members has the rest of the first chunk's padding nowhere: it starts at byte 32.
    let second = Some(GroupMember { member: 1, size: 2 });
    let pieces = placed(&found, &[raw(BufferKind::Output, 1, 2), raw(BufferKind::Scratch, 0, 2)], second);
    assert_eq!(pieces, [(Piece { position: 0, bytes: 20, cover: 32 }, vec![40, 32])]);
}

#[test]
fn pipelines_cover_their_chunks() {
    let found = layout(&plan(Collective::AllReduce, [4, 4, 4], 2), 256, 256, 4).unwrap();
    let pipeline = |unit_size, num_chunks| Pipeline { unit_size, num_chunks, size_id: None, body: vec![] };
    assert_eq!(found.iterations(&pipeline(32, 1)).unwrap(), 2);
    assert_eq!(found.iterations(&pipeline(48, 4)).unwrap(), 6);
    assert_eq!(found.iterations(&pipeline(24, 4)).unwrap_err(), LayoutError::Slice { slice: 24, unit: 16 });
    assert_eq!(found.iterations(&pipeline(0, 4)).unwrap_err(), LayoutError::Slice { slice: 0, unit: 16 });
    let piece = Piece { position: 32, bytes: 20, cover: 32 };
    assert_eq!(piece.slice(0, 32), None);
    assert_eq!(piece.slice(32, 16), Some((0, Piece { position: 32, bytes: 16, cover: 16 })));
    assert_eq!(piece.slice(48, 16), Some((16, Piece { position: 48, bytes: 4, cover: 16 })));
    assert_eq!(piece.slice(64, 16), None);
}

#[test]
fn reuse_mode_wraps_in_pipelines_only() {
    let mut reuse = plan(Collective::AllReduce, [1, 1, 4], 2);
    reuse.reuse_resources = true;
    let bytes = 40 << 20;
    let found = layout(&reuse, bytes, bytes, 4).unwrap();
    let room = 16 << 20;
    assert_eq!(found.scratch_chunk_bytes(), room);
    let item = [raw(BufferKind::Input, 0, 1), raw(BufferKind::Scratch, 3, 1)];
    let mut pieces = Pieces::default();
    let refused = found.place(&item, None, None, &mut pieces).unwrap_err();
    assert_eq!(refused, LayoutError::Reused { bytes, room });
    found.place(&item, None, Some(1 << 20), &mut pieces).unwrap();
    let all: Vec<_> =
        pieces.iter().map(|(piece, offsets)| (piece.position, piece.bytes, offsets[1])).collect();
    assert_eq!(all, [(0, room, 3 * room), (room, room, 3 * room), (2 * room, 8 << 20, 3 * room)]);
    // A message that fits has chunks of its own size.
    assert_eq!(layout(&reuse, 1 << 20, 1 << 20, 4).unwrap().scratch_chunk_bytes(), 1 << 20);
}

#[test]
fn in_place_buffers_lie_in_each_other_by_collective() {
    let alias = |collective, counts, input, output, rank| {
        let mut plan = plan(collective, counts, 3);
        plan.in_place = true;
        layout(&plan, input, output, 4).unwrap().alias(rank)
    };
    let gather = alias(Collective::AllGather, [1, 3, 0], 20, 60, 2);
    assert_eq!(gather, Some(Alias { input: 0, output: 40 }));
    let scatter = alias(Collective::ReduceScatter, [3, 1, 0], 60, 20, 1);
    assert_eq!(scatter, Some(Alias { input: 20, output: 0 }));
    assert_eq!(alias(Collective::AllReduce, [3, 3, 0], 20, 20, 1), Some(Alias { input: 0, output: 0 }));
    let apart = layout(&plan(Collective::AllReduce, [3, 3, 0], 3), 20, 20, 4).unwrap();
    assert_eq!(apart.alias(1), None);
}

#[test]
fn sized_chunks_come_from_the_table() {
    let mut sized = plan(Collective::AllGather, [1, 2, 2], 2);
    for (rank, own) in [(0, 0), (1, 1)] {
        let ids = SizeIds { input: vec![own], output: vec![0, 1], scratch: vec![0, 1] };
        sized.ranks[rank].size_ids = Some(ids);
    }
    let rows = |first, second, displacement| SizeRows {
        extents: BTreeMap::from([(0, first), (1, second)]),
        input: vec![0],
        output: vec![0, displacement],
    };
    let tables: Vec<ChunkTable> = (0..2)
        .map(|rank| ChunkTable::new(rank, &sized.ranks[rank as usize], &rows(6, 10, 7), 2).unwrap())
        .collect();
    let request = LayoutRequest { sizes: MessageSizes::Sized(&tables), element_size: 2, packet_payload: 8 };
    let found = MessageLayout::new(&sized, &request).unwrap();
    assert_eq!(chunks(&found, BufferKind::Output, 2), [(0, 6), (7, 10)]);
    assert_eq!(chunks(&found, BufferKind::Scratch, 2), [(0, 6), (16, 10)]);
    assert_eq!(found.buffer_bytes(0, BufferKind::Output), 17);
    let both = placed(&found, &[raw(BufferKind::Output, 0, 2), raw(BufferKind::Scratch, 0, 2)], None);
    let expected = [
        (Piece { position: 0, bytes: 6, cover: 8 }, vec![0, 0]),
        (Piece { position: 0, bytes: 10, cover: 16 }, vec![7, 16]),
    ];
    assert_eq!(both, expected);
    let overlap = ChunkTable::new(0, &sized.ranks[0], &rows(6, 10, 4), 2).unwrap();
    // Whether outputs may overlap depends on what operations do with them.
    let copies = |to| Geometry::new(&with_operation(sized.clone(), DataKind::Copy, BufferKind::Scratch, to));
    let writes = copies(BufferKind::Output);
    let at = |input, output, bytes| [Extent { offset: input, bytes: 10 }, Extent { offset: output, bytes }];
    let why = |error: LayoutError| match error {
        LayoutError::Row { buffer, chunk, why, .. } => (buffer, chunk, why),
        other => panic!("{other}"),
    };
    let out = |chunk, why| (BufferKind::Output, chunk, why);
    let wrong = overlap.check_places(&writes, 0, at(500, 1000, 100)).unwrap_err();
    assert_eq!(why(wrong), out(1, "it overlaps another chunk"));
    overlap.check_places(&copies(BufferKind::Scratch), 0, at(500, 1000, 100)).unwrap();
    let short = tables[0].check_places(&writes, 0, at(500, 1000, 16)).unwrap_err();
    assert_eq!(why(short), out(1, "it reaches beyond its buffer"));
    tables[0].check_places(&writes, 0, at(500, 1000, 17)).unwrap();
    // The input's six bytes fit before the output, and not one byte further.
    tables[0].check_places(&writes, 0, at(994, 1000, 17)).unwrap();
    let meet = tables[0].check_places(&writes, 0, at(995, 1000, 17)).unwrap_err();
    assert_eq!(why(meet), out(0, "it overlaps another chunk"));
    let empty = ChunkTable::new(0, &sized.ranks[0], &rows(6, 0, 3), 2).unwrap();
    empty.check_places(&writes, 0, at(500, 1000, 6)).unwrap();
    // In place: rank 0's input is output chunk 0, rank 1's is chunk 1.
    sized.in_place = true;
    let geometry = Geometry::new(&sized);
    tables[0].check_places(&geometry, 0, at(1000, 1000, 17)).unwrap();
    let elsewhere = tables[1].check_places(&geometry, 1, at(1000, 1000, 17)).unwrap_err();
    assert_eq!(why(elsewhere).0, BufferKind::Input);
    tables[1].check_places(&geometry, 1, at(1007, 1000, 17)).unwrap();
}

#[test]
fn scratch_of_sized_plans_has_a_step_of_its_own() {
    let mut sized = plan(Collective::AllGather, [1, 2, 3], 2);
    for own in 0..2 {
        let ids = SizeIds { input: vec![own], output: vec![0, 1], scratch: vec![0, 1, 1] };
        sized.ranks[own as usize].size_ids = Some(ids);
    }
    let step = |bytes| Geometry::new(&sized).with_scratch_chunk(bytes).unwrap().scratch_chunk();
    // A third of 64 MiB, rounded down to a power of two; whole units otherwise.
    assert_eq!((step(None), step(Some(100)), step(Some(0))), (Some(16 << 20), Some(128), Some(64)));
    let geometry = Geometry::new(&sized).with_scratch_chunk(Some(128)).unwrap();
    let extents = BTreeMap::from([(0, 6), (1, 300)]);
    let rows = SizeRows { extents: extents.clone(), input: vec![0], output: vec![0, 6] };
    let own = ChunkTable::new(0, &sized.ranks[0], &rows, 2).unwrap();
    let tables = [own, ChunkTable::of_scratch(&sized.ranks[1], &extents)];
    let request = LayoutRequest { sizes: MessageSizes::Sized(&tables), element_size: 2, packet_payload: 8 };
    let found = geometry.layout(&request).unwrap();
    assert_eq!(found.scratch_chunk_bytes(), 128);
    // No step from the file or the table may grow it, and none that is smaller moves the chunks.
    let mut pieces = Pieces::default();
    let small = [raw(BufferKind::Output, 0, 1), raw(BufferKind::Scratch, 0, 1)];
    found.place(&small, None, None, &mut pieces).unwrap();
    assert_eq!(pieces.iter().map(|(p, at)| (p.bytes, at[1])).collect::<Vec<_>>(), [(6, 0)]);
    let item = [raw(BufferKind::Output, 1, 1), Placement { rank: 1, ..raw(BufferKind::Scratch, 2, 1) }];
    let refused = LayoutError::Reused { bytes: 300, room: 128 };
    let group = Some(GroupMember { member: 0, size: 2 });
    for (group, slice) in [(None, None), (None, Some(48)), (group, Some(64))] {
        assert_eq!(found.place(&item, group, slice, &mut pieces).unwrap_err(), refused);
    }
    let packets = [item[0], Placement { form: Form::Packets, ..item[1] }];
    assert_eq!(found.place(&packets, None, Some(64), &mut pieces).unwrap_err(), refused);
    found.place(&item, None, Some(64), &mut pieces).unwrap();
    let all: Vec<_> = pieces.iter().map(|(p, at)| (p.position, p.bytes, at[0], at[1])).collect();
    assert_eq!(all, [(0, 128, 6, 256), (128, 128, 134, 256), (256, 44, 262, 256)]);
}

/// The formulas of section 6.3, chunk by chunk.
fn specified(period: u64, block: u64, chunk_bytes: u64, k: u64) -> (u64, u64) {
    let before = (k % period) * chunk_bytes;
    let start = (k / period) * block + before.min(block);
    (start, (i128::from(block) - i128::from(before)).clamp(0, i128::from(chunk_bytes)) as u64)
}

proptest! {
    #[test]
    fn chunks_cover_the_message_once(
        elements in 0u64..400,
        period in 1u64..7,
        n in 1usize..6,
        shift in 0u32..4,
        which in 0usize..4,
    ) {
        let element = 1 << shift;
        let block = elements * element;
        let blocks = n as u64;
        let (collective, counts, input, output) = match which {
            0 => (Collective::AllReduce, [period, period, 2], block, block),
            1 => (Collective::AllGather, [period, period * blocks, 2], block, block * blocks),
            2 => (Collective::ReduceScatter, [period * blocks, period, 2], block * blocks, block),
            _ => (Collective::AllToAll, [period * blocks, period * blocks, 2], block * blocks, block * blocks),
        };
        let found = layout(&plan(collective, counts, n), input, output, element).unwrap();
        let chunk = block.div_ceil(period).next_multiple_of(16);
        prop_assert_eq!(found.chunk_bytes(), chunk);
        for (buffer, count, bytes) in [(BufferKind::Input, counts[0], input), (BufferKind::Output, counts[1], output)] {
            let mut next = 0;
            for k in 0..count {
                let Extent { offset, bytes } = found.chunk(0, buffer, k).unwrap();
                prop_assert_eq!((offset, bytes), specified(period, block, chunk, k));
                prop_assert_eq!(offset, next);
                next += bytes;
            }
            prop_assert_eq!(next, bytes);
            prop_assert_eq!(found.buffer_bytes(0, buffer), bytes);
        }
    }

    /// Every byte of every member's share against the formula, chunk by chunk; slices cover the same bytes.
    #[test]
    fn pieces_are_what_the_chunks_say(
        block in 0u64..500,
        period in 1u64..5,
        n in 1usize..5,
        (from, to, size) in (0u64..8, 0u64..8, 1u64..8),
        scratch in any::<bool>(),
        members in 1u32..4,
        slice in 1u64..5,
    ) {
        let blocks = n as u64;
        let counts = [period, period * blocks, 32];
        let found = layout(&plan(Collective::AllGather, counts, n), block, block * blocks, 1).unwrap();
        let (chunk, total) = (found.chunk_bytes(), period * blocks);
        let size = size.min(total);
        let from = from.min(total - size);
        let target = if scratch { BufferKind::Scratch } else { BufferKind::Output };
        let to = if scratch { to } else { to.min(total - size) };
        let item = [raw(BufferKind::Output, from, size), raw(target, to, size)];
        // (source byte, target byte) pairs, and covered target bytes.
        let (mut moved, mut covered) = (Vec::new(), 0);
        for member in 0..members {
            let group = Some(GroupMember { member, size: members });
            let pieces = placed(&found, &item, group);
            let mut sliced = Vec::new();
            for (piece, offsets) in &pieces {
                for byte in 0..piece.bytes {
                    moved.push((offsets[0] + byte, offsets[1] + byte));
                }
                covered += piece.cover;
            }
            let step = slice * 16;
            for k in 0..(size * chunk).div_ceil(step) {
                for (piece, offsets) in &pieces {
                    if let Some((skipped, part)) = piece.slice(k * step, step) {
                        for byte in 0..part.bytes {
                            sliced.push((offsets[0] + skipped + byte, offsets[1] + skipped + byte));
                        }
                    }
                }
            }
            let whole: Vec<_> = pieces
                .iter()
                .flat_map(|(piece, o)| (0..piece.bytes).map(|b| (o[0] + b, o[1] + b)))
                .collect();
            sliced.sort_unstable();
            let mut sorted = whole.clone();
            sorted.sort_unstable();
            prop_assert_eq!(sliced, sorted);
        }
        let mut expected = Vec::new();
        for j in 0..size {
            let (source, bytes) = specified(period, block, chunk, from + j);
            let (target, room) =
                if scratch { ((to + j) * chunk, chunk) } else { specified(period, block, chunk, to + j) };
            expected.extend((0..bytes.min(room)).map(|byte| (source + byte, target + byte)));
        }
        prop_assert_eq!(moved, expected);
        prop_assert_eq!(covered, size * chunk);
    }
}
