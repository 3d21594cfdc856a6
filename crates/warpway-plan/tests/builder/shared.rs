//! The plans of MSCCL++'s repository, from programs.

use warpway_plan::{
    Action, Buffer, BufferKind, BuildError, CollectiveShape, DataSync, MemoryChannel, Plan, Program,
    ProgramOptions, Protocol, ReduceOp, Reduction, Style, ThreadBlockGroup,
};

use crate::shared_plans;

/// The text of a shared plan; `None`, with a message, where the folder is missing.
fn shared(name: &str) -> Option<String> {
    let mut plans = shared_plans::by_name();
    let at = plans.iter().position(|(of, _)| of == name);
    assert!(at.is_some() || plans.is_empty(), "no shared plan {name}");
    at.map(|at| plans.swap_remove(at).1)
}

fn program(name: &str, shape: CollectiveShape, packets: bool) -> Program {
    let protocol = if packets { Protocol::LowLatency } else { Protocol::Simple };
    let options = ProgramOptions::new(name, shape.in_place());
    Program::new(ProgramOptions { protocol, double_scratch: packets, ..options }).unwrap()
}

struct Two {
    input: [Buffer; 2],
    output: [Buffer; 2],
    scratch: [Buffer; 2],
    channel: [MemoryChannel; 2],
}

fn two(p: &mut Program, scratch_chunks: u64) -> Result<Two, BuildError> {
    Ok(Two {
        input: [p.input(0)?, p.input(1)?],
        output: [p.output(0)?, p.output(1)?],
        scratch: [p.scratch(0, scratch_chunks)?, p.scratch(1, scratch_chunks)?],
        channel: [p.memory_channel(0, 1)?, p.memory_channel(1, 0)?],
    })
}

fn assert_written(name: &str, program: Result<Program, BuildError>) {
    let Some(text) = shared(name) else { return };
    let plan = program.unwrap().finish().unwrap();
    assert_eq!(plan.to_json(Style::Pretty) + "\n", text);
}

fn reduce() -> Result<Program, BuildError> {
    let mut p = program("reduce", CollectiveShape::all_reduce(2, 2), false);
    let Two { input, scratch, channel, .. } = two(&mut p, 4)?;
    let meet = |p: &mut Program, rank: usize| -> Result<(), BuildError> {
        p.signal(channel[rank], 0, DataSync::Both)?;
        p.wait(channel[rank], 0, DataSync::Both)
    };
    let [mine, theirs] = input;
    p.copy(scratch[0].chunk(2..4)?, mine.chunk(2..4)?, 0)?;
    meet(&mut p, 0)?;
    p.read_reduce(channel[0], Reduction::of(mine.chunk(0..1)?, &[scratch[1].chunk(0..1)?]), 0)?;
    p.put(channel[0], theirs.chunk(0..1)?, mine.chunk(0..1)?, 0)?;
    p.get(channel[0], scratch[0].chunk(1..2)?, scratch[1].chunk(1..2)?, 0)?;
    p.reduce(Reduction::of(mine.chunk(1..2)?, &[scratch[0].chunk(1..2)?]), 0)?;
    p.put(channel[0], theirs.chunk(1..2)?, mine.chunk(1..2)?, 0)?;
    meet(&mut p, 0)?;

    let [theirs, mine] = input;
    p.copy(scratch[1].chunk(0..2)?, mine.chunk(0..2)?, 0)?;
    meet(&mut p, 1)?;
    // What rank 0 has copied to its scratch stays unread: the plan reads its input.
    p.read_reduce(channel[1], Reduction::of(mine.chunk(2..4)?, &[theirs.chunk(2..4)?]), 0)?;
    p.copy(scratch[1].chunk(2..4)?, mine.chunk(2..4)?, 0)?;
    p.put(channel[1], theirs.chunk(2..4)?, scratch[1].chunk(2..4)?, 0)?;
    meet(&mut p, 1)?;
    Ok(p)
}

#[test]
fn reduce_is_written() {
    assert_written("reduce", reduce());
}

fn reduce_nvls() -> Result<Program, BuildError> {
    let mut p = program("allreduce_nvls", CollectiveShape::all_reduce(2, 1), false);
    let channels = [p.memory_channel(0, 1)?, p.memory_channel(1, 0)?];
    let switch = p.switch_channel(&[0, 1], BufferKind::Input)?;
    for (rank, channel) in (0..).zip(channels) {
        p.signal_relaxed(channel, 0, DataSync::Both)?;
        p.wait_relaxed(channel, 0, DataSync::Both)?;
        let place = u64::from(rank);
        let (region, mine) = (switch.region(rank, place, 1), p.input(rank)?.chunk(place..=place)?);
        p.switch_reduce(region, mine, 0, ReduceOp::Sum)?;
        p.switch_broadcast(region, mine, 0)?;
        p.signal_relaxed(channel, 0, DataSync::Both)?;
        p.wait_relaxed(channel, 0, DataSync::Both)?;
    }
    Ok(p)
}

#[test]
fn reduce_nvls_is_written() {
    assert_written("reduce_nvls", reduce_nvls());
}

fn reduce_pack_tbg() -> Result<Program, BuildError> {
    let mut p = program("reduce_pack_tbg", CollectiveShape::all_reduce(2, 1), true);
    let Two { input, scratch, channel, .. } = two(&mut p, 3)?;
    let [packing, folding, unpacking] =
        [ThreadBlockGroup::new([0, 1])?, ThreadBlockGroup::new([2, 3])?, ThreadBlockGroup::new([4, 5])?];
    let at = |buffer: Buffer, chunk: u64| buffer.chunk(chunk..=chunk);

    p.put_packets(channel[0], at(scratch[1], 1)?, at(input[0], 1)?, &packing)?;
    p.reduce_packets(Reduction::of(at(input[0], 0)?, &[at(scratch[0], 0)?]), &folding)?;
    p.put_packets(channel[0], at(scratch[1], 0)?, at(input[0], 0)?, &folding)?;
    p.unpack_packets(at(input[0], 1)?, at(scratch[0], 1)?, &unpacking)?;

    p.put_packets(channel[1], at(scratch[0], 0)?, at(input[1], 0)?, &packing)?;
    p.reduce_packets(Reduction::of(at(input[1], 1)?, &[at(scratch[1], 1)?]), &folding)?;
    p.copy_packets(at(scratch[1], 2)?, at(input[1], 1)?, &folding)?;
    p.read_put_packets(channel[1], at(scratch[0], 1)?, at(scratch[1], 2)?, &folding)?;
    p.unpack_packets(at(input[1], 0)?, at(scratch[1], 0)?, &unpacking)?;
    Ok(p)
}

#[test]
fn reduce_pack_tbg_is_written() {
    assert_written("reduce_pack_tbg", reduce_pack_tbg());
}

fn transfer_pack() -> Result<Program, BuildError> {
    let mut p = program("transfer_pack", CollectiveShape::all_gather(2, 1), true);
    let Two { output, scratch, channel, .. } = two(&mut p, 2)?;
    let at = |buffer: Buffer, chunk: u64| buffer.chunk(chunk..=chunk);
    p.put_packets(channel[0], at(scratch[1], 0)?, at(output[0], 0)?, 0)?;
    p.unpack_packets(at(output[0], 1)?, at(scratch[0], 1)?, 1)?;
    p.copy_packets(at(scratch[1], 1)?, at(output[1], 1)?, 0)?;
    p.read_put_packets(channel[1], at(scratch[0], 1)?, at(scratch[1], 1)?, 1)?;
    p.unpack_packets(at(output[1], 0)?, at(scratch[1], 0)?, 2)?;
    Ok(p)
}

#[test]
fn transfer_pack_is_written() {
    assert_written("transfer_pack", transfer_pack());
}

fn allreduce_packet() -> Result<Program, BuildError> {
    let mut p = program("allreduce_pkt", CollectiveShape::all_reduce(2, 2), true);
    let Two { input, scratch, channel, .. } = two(&mut p, 4)?;
    for (rank, peer) in [(0, 1), (1, 0)] {
        let (own, other) = ([0, 2][rank], [0, 2][peer]);
        let (mine, slots, remote) = (input[rank], scratch[rank], scratch[peer]);
        p.put_packets(channel[rank], remote.chunk(0..2)?, mine.chunk(other..other + 2)?, 0)?;
        for block in 0..2 {
            let at = u64::from(block);
            let part = mine.chunk(own + at..=own + at)?;
            p.reduce_packets(Reduction::of(part, &[slots.chunk(at..=at)?]), block)?;
            p.put_packets(channel[rank], remote.chunk(2 + at..=2 + at)?, part, block)?;
        }
        let unpacking = [1, 0][rank];
        p.unpack_packets(mine.chunk(other..other + 2)?, slots.chunk(2..4)?, unpacking)?;
    }
    Ok(p)
}

/// Written by hand, without the barrier that the passes put before the last unpacking of rank 1.
#[test]
fn allreduce_packet_is_written_with_one_more_barrier() {
    let Some(text) = shared("allreduce_packet") else { return };
    let mut expected = Plan::from_json(text.as_bytes()).unwrap().plan;
    expected.ranks[1].blocks[0].operations.insert(2, Action::Nop.into());
    let plan = allreduce_packet().unwrap().finish().unwrap();
    assert_eq!(plan.to_json(Style::Pretty), expected.to_json(Style::Pretty));
}
