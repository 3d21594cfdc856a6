//! Counts that come at launch, in plans that use scratch or work in place.

use std::collections::BTreeMap;
use std::time::Duration;

use warpway::core::execution::ExecutionError;
use warpway::plan::verify::{Options, VerifiedPlan};
use warpway::plan::{BufferSizeIds, BuildError, Collective, CollectiveShape, DataSync, Plan, Program};
use warpway::plan::{ProgramOptions, Protocol, Reduction, Repairs, SizeRows};
use warpway::{Buffer, Communicator, DataType, Error, PlanLaunch, PrepareOptions, PreparedPlan, Result};
use warpway::{PacketFormat, in_process};
use warpway_tests::byte;
use warpway_tests::suite::plans::random;

use crate::rig::context;

const GAP: u64 = 7;
const CANARY: u8 = 0xb3;

/// Packets into a slot of every peer; the halves alternate.
fn gather_by_packets(n: u32) -> Result<Plan, BuildError> {
    let mut p = Program::new(ProgramOptions {
        protocol: Protocol::LowLatency,
        double_scratch: true,
        ..ProgramOptions::new("gather_by_packets_v", CollectiveShape::all_gather_v(n, 1))
    })?;
    let ids: Vec<u64> = (0..u64::from(n)).collect();
    let slots = (0..n).map(|rank| p.sized_scratch(rank, &ids)).collect::<Result<Vec<_>, _>>()?;
    for me in 0..n {
        let (mine, output) = (p.input(me)?.whole(), p.output(me)?);
        let peers: Vec<u32> = (0..n).filter(|peer| *peer != me).collect();
        for peer in &peers {
            let channel = p.memory_channel(me, *peer)?;
            let place = u64::from(me);
            p.put_packets(channel, slots[*peer as usize].chunk(place..=place)?, mine, 0)?;
        }
        p.copy(output.chunk(u64::from(me)..=u64::from(me))?, mine, 0)?;
        for peer in peers.into_iter().map(u64::from) {
            p.unpack_packets(output.chunk(peer..=peer)?, slots[me as usize].chunk(peer..=peer)?, 0)?;
        }
    }
    p.finish()
}

/// Raw data into a slot of every peer, folded there in the order of ranks.
fn scatter_by_scratch(n: u32) -> Result<Plan, BuildError> {
    let mut p =
        Program::new(ProgramOptions::new("scatter_by_scratch_v", CollectiveShape::reduce_scatter_v(n, 1)))?;
    let of = |rank: u32| vec![u64::from(rank); n as usize];
    let slots = (0..n).map(|rank| p.sized_scratch(rank, &of(rank))).collect::<Result<Vec<_>, _>>()?;
    for me in 0..n {
        let (place, input) = (u64::from(me), p.input(me)?);
        let mut channels = Vec::new();
        for peer in (0..n).filter(|peer| *peer != me) {
            channels.push((peer, p.memory_channel(me, peer)?));
        }
        for (_, channel) in &channels {
            p.signal(*channel, 0, DataSync::Before)?;
        }
        for (_, channel) in &channels {
            p.wait(*channel, 0, DataSync::After)?;
        }
        for (peer, channel) in &channels {
            let block = input.chunk(u64::from(*peer)..=u64::from(*peer))?;
            p.put(*channel, slots[*peer as usize].chunk(place..=place)?, block, 0)?;
        }
        for (_, channel) in &channels {
            p.signal(*channel, 0, DataSync::Before)?;
        }
        for (_, channel) in &channels {
            p.wait(*channel, 0, DataSync::After)?;
        }
        let slot = |peer: u32| slots[me as usize].chunk(u64::from(peer)..=u64::from(peer));
        let others = channels.iter().map(|(peer, _)| slot(*peer)).collect::<Result<Vec<_>, _>>()?;
        let mine = input.chunk(place..=place)?;
        p.reduce(Reduction::of(mine, &others).into(p.output(me)?.whole()), 0)?;
    }
    p.finish()
}

/// Every rank stores its chunk of the output, where its input lies, to all others.
fn gather_in_place(n: u32) -> Result<Plan, BuildError> {
    let shape = CollectiveShape::all_gather_v(n, 1).in_place();
    let mut p = Program::new(ProgramOptions::new("gather_in_place_v", shape))?;
    for me in 0..n {
        let place = u64::from(me);
        let mine = p.input(me)?.whole();
        let mut channels = Vec::new();
        for peer in (0..n).filter(|peer| *peer != me) {
            channels.push((peer, p.memory_channel(me, peer)?));
        }
        for (_, channel) in &channels {
            p.signal_relaxed(*channel, 0, DataSync::None)?;
        }
        for (_, channel) in &channels {
            p.wait_relaxed(*channel, 0, DataSync::After)?;
        }
        for (peer, channel) in &channels {
            p.put(*channel, p.output(*peer)?.chunk(place..=place)?, mine, 0)?;
        }
        for (_, channel) in &channels {
            p.signal(*channel, 0, DataSync::Before)?;
        }
        for (_, channel) in &channels {
            p.wait(*channel, 0, DataSync::After)?;
        }
    }
    p.finish()
}

/// Rank 0 sends its input to rank 1 through that rank's scratch, slice by slice, each answered.
fn stream(slice: u64) -> Result<Plan, BuildError> {
    let ids =
        |input: &[u64], output: &[u64]| BufferSizeIds { input: input.to_vec(), output: output.to_vec() };
    let shape = CollectiveShape::custom_v(vec![ids(&[5], &[]), ids(&[], &[5])]);
    let mut p = Program::new(ProgramOptions::new("stream_v", shape))?;
    let slot = p.sized_scratch(1, &[5])?.whole();
    let (there, back) = (p.memory_channel(0, 1)?, p.memory_channel(1, 0)?);
    // What the launch before has read may be written again.
    p.signal(back, 0, DataSync::Before)?;
    p.wait(there, 0, DataSync::After)?;
    p.sized_pipeline(slice, 5, |p| {
        p.put(there, slot, p.input(0)?.whole(), 0)?;
        p.signal(there, 0, DataSync::Before)?;
        p.wait(back, 0, DataSync::After)?;
        p.copy(p.output(1)?.whole(), slot, 0)?;
        p.signal(back, 0, DataSync::Before)?;
        p.wait(there, 0, DataSync::After)
    })?;
    p.finish()
}

/// The same, the sender up to two slices ahead.
fn stream_ahead(slice: u64) -> Result<Plan, BuildError> {
    let ids =
        |input: &[u64], output: &[u64]| BufferSizeIds { input: input.to_vec(), output: output.to_vec() };
    let shape = CollectiveShape::custom_v(vec![ids(&[5], &[]), ids(&[], &[5])]);
    let mut p = Program::new(ProgramOptions::new("stream_ahead_v", shape))?;
    let slot = p.sized_scratch(1, &[5])?.whole();
    let (there, back) = (p.memory_channel(0, 1)?, p.memory_channel(1, 0)?);
    (0..2).try_for_each(|_| p.signal(back, 0, DataSync::Before))?;
    p.sized_pipeline(slice, 5, |p| {
        p.wait(there, 0, DataSync::After)?;
        p.put(there, slot, p.input(0)?.whole(), 0)?;
        p.signal(there, 0, DataSync::Before)?;
        p.wait(back, 0, DataSync::After)?;
        p.copy(p.output(1)?.whole(), slot, 0)?;
        p.signal(back, 0, DataSync::Before)
    })?;
    (0..2).try_for_each(|_| p.wait(there, 0, DataSync::After))?;
    p.finish()
}

/// Bytes by size id in one launch; a third are none.
fn extents(plan: &Plan, turn: u64) -> BTreeMap<u64, u64> {
    let ids = plan.ranks.iter().filter_map(|rank| rank.size_ids.as_ref());
    let ids = ids.flat_map(|ids| ids.input.iter().chain(&ids.output));
    let extent = |id: u64| match random(turn << 32 | id) {
        zero if zero % 3 == 0 => 0,
        some => some % 1500,
    };
    ids.map(|id| (*id, extent(*id))).collect()
}

/// Where chunks of these ids lie, with gaps, from the last to the first; and the bytes of their buffer.
fn placed(ids: &[u64], extents: &BTreeMap<u64, u64>) -> (Vec<u64>, u64) {
    let mut next = GAP;
    let mut offsets: Vec<u64> = Vec::new();
    for id in ids.iter().rev() {
        offsets.push(next);
        next += extents[id] + GAP;
    }
    offsets.reverse();
    (offsets, next)
}

fn data(turn: u64, rank: u32, chunk: u64, bytes: u64) -> Vec<u8> {
    (0..bytes).map(|at| byte(turn * 64 + chunk, rank, at)).collect()
}

/// Those that use scratch, by packets and raw.
pub(crate) fn through_scratch(n: u32) -> [Plan; 2] {
    [gather_by_packets(n), scatter_by_scratch(n)].map(Result::unwrap)
}

/// One launch between canaries, compared byte by byte.
pub(crate) fn launch(comm: &Communicator, prepared: &PreparedPlan, turn: u64) -> Result<()> {
    let (plan, rank) = (prepared.plan(), comm.rank());
    let extents = extents(plan, turn);
    let ids = plan.ranks[rank as usize].size_ids.as_ref().unwrap();
    let ((mut inputs, input_bytes), (outputs, output_bytes)) =
        (placed(&ids.input, &extents), placed(&ids.output, &extents));
    let output = comm.alloc::<u8>(output_bytes)?;
    let input: Buffer<u8> = if plan.in_place { output.clone() } else { comm.alloc(input_bytes)? };
    if plan.in_place {
        inputs = vec![outputs[rank as usize]];
    }
    input.fill(CANARY)?;
    output.fill(CANARY)?;
    for ((chunk, id), offset) in (0..).zip(&ids.input).zip(&inputs) {
        input.write(*offset, &data(turn, rank, chunk, extents[id]))?;
    }
    let rows = SizeRows { extents: extents.clone(), input: inputs, output: outputs.clone() };
    let packets = if turn.is_multiple_of(2) { PacketFormat::Ll16 } else { PacketFormat::Ll8 };
    let call = PlanLaunch::new(input.view(), output.view(), DataType::Uint8);
    prepared.run(&call.with_packets(packets).with_sizes(&rows))?;
    let n = comm.n_ranks();
    let mut expected = vec![CANARY; output_bytes as usize];
    for ((chunk, id), offset) in (0u32..).zip(&ids.output).zip(&outputs) {
        let bytes = match plan.collective {
            Collective::AllGather => data(turn, chunk, 0, extents[id]),
            Collective::ReduceScatter => (0..n)
                .map(|from| data(turn, from, u64::from(rank), extents[id]))
                .reduce(|a, b| a.iter().zip(b).map(|(a, b)| a.wrapping_add(b)).collect())
                .unwrap(),
            _ => data(turn, 0, 0, extents[id]),
        };
        expected[*offset as usize..][..bytes.len()].copy_from_slice(&bytes);
    }
    assert!(output.to_vec()? == expected, "{} rank {rank} of {n}, turn {turn}", plan.name);
    Ok(())
}

#[test]
fn any_counts_through_scratch_and_in_place() {
    for n in [2, 3, 5] {
        let plans = [gather_by_packets(n), scatter_by_scratch(n), gather_in_place(n)].map(Result::unwrap);
        in_process(n, &context(), |comm| {
            for plan in &plans {
                let prepared = comm.prepare_unverified(plan, &Repairs::default())?;
                (0..40).try_for_each(|turn| launch(comm, &prepared, turn))?;
            }
            comm.barrier()
        })
        .unwrap();
    }
}

/// Nobody waits for an empty chunk, so nothing but the executor keeps a rank whose chunk is empty from being left
/// behind, its slots written again before it has read them.
#[test]
fn ranks_that_send_nothing_are_not_overrun() {
    let plan = gather_by_packets(3).unwrap();
    in_process(3, &context(), |comm| {
        let prepared = comm.prepare_unverified(&plan, &Repairs::default())?;
        for turn in 0..300 {
            let pause = random(turn << 8 | u64::from(comm.rank()));
            if pause.is_multiple_of(4) {
                std::thread::sleep(Duration::from_micros(pause >> 32 & 511));
            }
            // The same format throughout: another one would make the ranks wait for each other.
            launch(comm, &prepared, 2 * turn)?;
        }
        comm.barrier()
    })
    .unwrap();
}

#[test]
fn verified_plans_take_any_counts() {
    let verified =
        |plan: Result<Plan, BuildError>| VerifiedPlan::new(plan.unwrap(), &Options::default()).unwrap();
    let plans =
        [verified(gather_by_packets(3)), verified(scatter_by_scratch(3)), verified(gather_in_place(3))];
    in_process(3, &context(), |comm| {
        for plan in &plans {
            let prepared = comm.prepare(plan)?;
            (0..10).try_for_each(|turn| launch(comm, &prepared, turn))?;
        }
        comm.barrier()
    })
    .unwrap();
}

#[test]
fn slices_share_the_scratch_of_a_chunk_that_is_larger() {
    let plan = stream(64).unwrap();
    in_process(2, &context(), |comm| {
        let options = PrepareOptions { scratch_chunk_bytes: Some(128), ..Default::default() };
        let prepared = comm.prepare_unverified_with(&plan, &Repairs::default(), options)?;
        (0..20).try_for_each(|turn| launch(comm, &prepared, turn))?;
        comm.barrier()
    })
    .unwrap();
}

#[test]
fn proven_slices_share_as_much_scratch_as_they_need() {
    for (plan, rooms) in [(stream(64), [64, 128]), (stream_ahead(64), [128, 256])] {
        let plan = VerifiedPlan::new(plan.unwrap(), &Options::default()).unwrap();
        in_process(2, &context(), |comm| {
            for room in rooms {
                let options = PrepareOptions { scratch_chunk_bytes: Some(room), ..Default::default() };
                let prepared = comm.prepare_with(&plan, options)?;
                (0..40).try_for_each(|turn| launch(comm, &prepared, turn))?;
            }
            comm.barrier()
        })
        .unwrap();
    }
}

/// Two slices ahead need room for two: with one, or three, slices would be overwritten before they are read.
#[test]
fn slices_that_would_meet_are_refused() {
    let plan = stream_ahead(64).unwrap();
    let proof = VerifiedPlan::new(plan.clone(), &Options::default()).unwrap();
    for room in [64, 192] {
        let found = outcomes_of(&plan, |comm| {
            comm.prepare_with(
                &proof,
                PrepareOptions { scratch_chunk_bytes: Some(room), ..Default::default() },
            )
        });
        assert_eq!(found.len(), 2);
        for error in found {
            let text = format!("1000 bytes does not fit the {room}");
            assert!(error.to_string().contains(&text), "{error}");
        }
    }
}

/// What becomes of a launch of `plan` with 1000 bytes for each id, and room for so many.
fn outcomes(plan: &Plan, room: u64) -> Vec<Error> {
    let options = PrepareOptions { scratch_chunk_bytes: Some(room), ..Default::default() };
    outcomes_of(plan, |comm| comm.prepare_unverified_with(plan, &Repairs::default(), options))
}

fn outcomes_of(plan: &Plan, prepare: impl Fn(&Communicator) -> Result<PreparedPlan> + Sync) -> Vec<Error> {
    let outcomes = std::sync::Mutex::new(Vec::new());
    let _ = in_process(plan.n_ranks(), &context(), |comm| {
        let prepared = prepare(comm)?;
        let memory = comm.alloc::<u8>(8000)?;
        let ids = plan.ranks[comm.rank() as usize].size_ids.as_ref().unwrap();
        let extents = ids.input.iter().chain(&ids.output).map(|id| (*id, 1000)).collect();
        let offsets = |count: usize| (0..count as u64).map(|at| at * 1000).collect::<Vec<u64>>();
        let (input, output) = (offsets(ids.input.len()), offsets(ids.output.len()));
        let rows = SizeRows { extents, input, output };
        let call = PlanLaunch::new(memory.view_of(0, 4000), memory.view_of(4000, 4000), DataType::Uint8);
        let result = prepared.run(&call.with_sizes(&rows));
        outcomes.lock().unwrap().push(result.clone().unwrap_err());
        result
    });
    outcomes.into_inner().unwrap()
}

#[test]
fn chunks_without_room_in_the_scratch_fail_on_every_rank() {
    // 1000 bytes in 960, 64 of which are no whole slices of 128.
    for plan in [gather_by_packets(2), scatter_by_scratch(2), stream(128)].map(Result::unwrap) {
        let found = outcomes(&plan, 960);
        assert_eq!(found.len(), 2);
        for error in found {
            let own = match &error {
                Error::Execution(ExecutionError::Size { why, .. }) => {
                    why.contains("1000 bytes does not fit the 960")
                }
                // Told by the rank that found out first.
                other => other.to_string().contains("does not fit the 960"),
            };
            assert!(own, "{}: {error}", plan.name);
        }
    }
}

#[test]
fn unequal_room_and_unequal_counts_are_named() {
    let plan = gather_by_packets(2).unwrap();
    let error = in_process(2, &context(), |comm| {
        let options = PrepareOptions { scratch_chunk_bytes: Some(64 << comm.rank()), ..Default::default() };
        comm.prepare_unverified_with(&plan, &Repairs::default(), options)
    })
    .unwrap_err();
    assert_eq!(error.id(), "plan.disagreement");
    let text = error.to_string();
    assert!(text.contains("chunks of 64 bytes") && text.contains("chunks of 128 bytes"), "{text}");
    // No rank touches another's buffers, so the counts travel with the announcement.
    let error = in_process(2, &context(), |comm| {
        let prepared = comm.prepare_unverified(&plan, &Repairs::default())?;
        let memory = comm.alloc::<u8>(64)?;
        let extents = BTreeMap::from([(0, 6), (1, 10 + u64::from(comm.rank()))]);
        let rows = SizeRows { extents, input: vec![0], output: vec![0, 6] };
        let call = PlanLaunch::new(memory.view_of(0, 12), memory.view_of(16, 32), DataType::Uint8);
        prepared.run(&call.with_sizes(&rows))
    })
    .unwrap_err();
    assert!(matches!(error, Error::Execution(ExecutionError::Difference { field: "count", .. })), "{error}");
}

#[test]
fn chunks_in_place_lie_where_the_collective_says() {
    let plan = gather_in_place(2).unwrap();
    in_process(2, &context(), |comm| {
        let prepared = comm.prepare_unverified(&plan, &Repairs::default())?;
        let memory = comm.alloc::<u8>(64)?;
        let place = [0, 6][comm.rank() as usize];
        let rows = |input| SizeRows {
            extents: BTreeMap::from([(0, 6), (1, 10)]),
            input: vec![input],
            output: vec![0, 6],
        };
        let call = PlanLaunch::new(memory.view(), memory.view(), DataType::Uint8);
        let error = prepared.run(&call.with_sizes(&rows(place + 1))).unwrap_err();
        assert_eq!(error.id(), "plan.launch");
        assert!(error.to_string().contains("works in place"), "{error}");
        prepared.run(&call.with_sizes(&rows(place)))?;
        comm.barrier()
    })
    .unwrap();
}
