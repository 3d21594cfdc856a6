//! One set-up, any counts: zeros, gaps between chunks that nobody may touch, rows that are wrong.

use std::collections::BTreeMap;

use warpway::core::execution::ExecutionError;
use warpway::plan::{Collective, Plan, RankPlan, Repairs, SizeRows, testing};
use warpway::{Communicator, DataType, Error, PlanLaunch, PreparedPlan, Result, in_process};
use warpway_tests::byte;

use crate::rig::context;

const GAP: u64 = 5;
const CANARY: u8 = 0xb3;

/// Bytes by size id in one launch; every third is none.
fn extents(plan: &Plan, turn: u64) -> BTreeMap<u64, u64> {
    let ids = plan.ranks.iter().filter_map(|rank| rank.size_ids.as_ref());
    let ids = ids.flat_map(|ids| ids.input.iter().chain(&ids.output));
    ids.map(|id| (*id, if (id + turn).is_multiple_of(3) { 0 } else { (id * 37 + turn * 11) % 1500 }))
        .collect()
}

/// A rank's rows with gaps, and the bytes of its buffers.
fn rows(rank: &RankPlan, extents: &BTreeMap<u64, u64>) -> (SizeRows, [u64; 2]) {
    let ids = rank.size_ids.as_ref().unwrap();
    let place = |ids: &[u64]| {
        let mut next = GAP;
        let offsets: Vec<u64> = ids
            .iter()
            .map(|id| {
                let offset = next;
                next += extents[id] + GAP;
                offset
            })
            .collect();
        (offsets, next)
    };
    let ((input, input_bytes), (output, output_bytes)) = (place(&ids.input), place(&ids.output));
    (SizeRows { extents: extents.clone(), input, output }, [input_bytes, output_bytes])
}

pub(crate) fn launch(comm: &Communicator, prepared: &PreparedPlan, turn: u64) -> Result<()> {
    let plan = prepared.plan();
    let (rank, extents) = (comm.rank(), extents(plan, turn));
    let own = &plan.ranks[rank as usize];
    let (rows, [input_bytes, output_bytes]) = rows(own, &extents);
    let ids = own.size_ids.as_ref().unwrap();
    let (input, output) = (comm.alloc::<u8>(input_bytes)?, comm.alloc::<u8>(output_bytes)?);
    output.fill(CANARY)?;
    let data = |from: u32, chunk: u64, bytes: u64| -> Vec<u8> {
        (0..bytes).map(|at| byte(turn * 64 + chunk, from, at)).collect()
    };
    for ((chunk, id), offset) in (0..).zip(&ids.input).zip(&rows.input) {
        input.write(*offset, &data(rank, chunk, extents[id]))?;
    }
    prepared.run(&PlanLaunch::new(input.view(), output.view(), DataType::Uint8).with_sizes(&rows))?;
    let mut expected = vec![CANARY; output_bytes as usize];
    for ((from, id), offset) in (0..).zip(&ids.output).zip(&rows.output) {
        let chunk = if plan.collective == Collective::AllGather { 0 } else { u64::from(rank) };
        let bytes = data(from, chunk, extents[id]);
        expected[*offset as usize..][..bytes.len()].copy_from_slice(&bytes);
    }
    assert!(output.to_vec()? == expected, "{} rank {rank} of {}, turn {turn}", plan.name, comm.n_ranks());
    Ok(())
}

#[test]
fn one_set_up_serves_all_counts() {
    for n in [2, 3, 5, 8] {
        let plans = [testing::all_gather_v(n).unwrap(), testing::all_to_all_v(n).unwrap()];
        in_process(n, &context(), |comm| {
            for plan in &plans {
                let prepared = comm.prepare_unverified(plan, &Repairs::default())?;
                (0..25).try_for_each(|turn| launch(comm, &prepared, turn))?;
            }
            comm.barrier()
        })
        .unwrap();
    }
}

#[test]
fn wrong_rows_are_refused_before_anything_is_launched() {
    let plan = testing::all_gather_v(2).unwrap();
    let fixed = testing::all_gather_put(2).unwrap();
    in_process(2, &context(), |comm| {
        let prepared = comm.prepare_unverified(&plan, &Repairs::default())?;
        let memory = comm.alloc::<u8>(64)?;
        let bytes = [6, 10][comm.rank() as usize];
        let call = PlanLaunch::new(memory.view_of(0, bytes), memory.view_of(16, 16), DataType::Uint8);
        let rows = |displacement| SizeRows {
            extents: BTreeMap::from([(0, 6), (1, 10)]),
            input: vec![0],
            output: vec![0, displacement],
        };
        let refused = |error: Error, text: &str| {
            assert_eq!(error.id(), "plan.launch");
            assert!(error.to_string().contains(text), "{error}");
        };
        refused(prepared.run(&call.with_sizes(&rows(4))).unwrap_err(), "overlaps");
        refused(prepared.run(&call.with_sizes(&rows(7))).unwrap_err(), "beyond its buffer");
        refused(prepared.run(&call).unwrap_err(), "brings rows");
        let other = comm.prepare_unverified(&fixed, &Repairs::default())?;
        refused(other.run(&call.with_sizes(&rows(6))).unwrap_err(), "no sized chunks");
        prepared.run(&call.with_sizes(&rows(6)))?;
        comm.barrier()
    })
    .unwrap();
}

#[test]
fn unequal_counts_are_named() {
    let plan = testing::all_gather_v(2).unwrap();
    let error = in_process(2, &context(), |comm| {
        let prepared = comm.prepare_unverified(&plan, &Repairs::default())?;
        let memory = comm.alloc::<u8>(64)?;
        let second = if comm.rank() == 0 { 10 } else { 12 };
        let rows =
            SizeRows { extents: BTreeMap::from([(0, 6), (1, second)]), input: vec![0], output: vec![0, 6] };
        let call = PlanLaunch::new(memory.view_of(0, 12), memory.view_of(16, 32), DataType::Uint8);
        prepared.run(&call.with_sizes(&rows))
    })
    .unwrap_err();
    let Error::Execution(ExecutionError::Difference { field: "count", rank, here, peer, there, .. }) = &error
    else {
        panic!("{error}")
    };
    let text = |rank: u32| format!("{} bytes for size id 1", if rank == 0 { 10 } else { 12 });
    assert_eq!((here, there), (&text(*rank), &text(*peer)));
}
