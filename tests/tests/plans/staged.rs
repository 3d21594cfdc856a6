//! Launches on plain slices, beside ranks and buffers that are registered.

use std::collections::BTreeMap;

use warpway::plan::verify::{Options, VerifiedPlan};
use warpway::plan::{Plan, Repairs, SizeRows, testing};
use warpway::{
    Buffer, BufferView, Communicator, Context, DataType, PlanLaunch, PreparedPlan, Result, in_process,
};
use warpway_tests::byte;

use crate::rig::context;

const CANARY: i32 = 0x5a3c_99c3;
const MARGIN: usize = 5;

/// Elements of one rank's buffer between margins, in memory of one of the two kinds.
enum Memory {
    Slice(Vec<i32>),
    Registered(Buffer<i32>),
}

impl Memory {
    fn new(comm: &Communicator, plain: bool, elements: &[i32]) -> Result<Self> {
        let mut data = vec![CANARY; elements.len() + 2 * MARGIN];
        data[MARGIN..][..elements.len()].copy_from_slice(elements);
        if plain {
            return Ok(Self::Slice(data));
        }
        let buffer = comm.alloc(data.len() as u64)?;
        buffer.write(0, &data)?;
        Ok(Self::Registered(buffer))
    }

    fn view(&mut self) -> BufferView<'_> {
        match self {
            Self::Slice(data) => {
                let end = data.len() - MARGIN;
                BufferView::from(&mut data[MARGIN..end])
            }
            Self::Registered(buffer) => buffer.view_of(MARGIN as u64, buffer.len() - 2 * MARGIN as u64),
        }
    }

    /// What lies between the margins, which must be whole.
    fn elements(&self) -> Result<Vec<i32>> {
        let data = match self {
            Self::Slice(data) => data.clone(),
            Self::Registered(buffer) => buffer.to_vec()?,
        };
        let (head, rest) = data.split_at(MARGIN);
        let (elements, tail) = rest.split_at(rest.len() - MARGIN);
        assert!(head.iter().chain(tail).all(|element| *element == CANARY), "a margin has changed");
        Ok(elements.to_vec())
    }
}

fn element(turn: u64, rank: u32, at: usize) -> i32 {
    i32::from(byte(turn, rank, at as u64)) - 100
}

fn contribution(turn: u64, rank: u32, count: usize) -> Vec<i32> {
    (0..count).map(|at| element(turn, rank, at)).collect()
}

/// Whether input and output of this rank are plain in a launch: every combination, differently on the ranks.
fn kinds(turn: u64, rank: u32) -> [bool; 2] {
    let number = turn + 3 * u64::from(rank);
    [number.is_multiple_of(2), (number / 2).is_multiple_of(2)]
}

/// All-gather, or all-reduce in place, once; `count` elements of one rank.
fn launch(comm: &Communicator, prepared: &PreparedPlan, turn: u64, count: usize) -> Result<()> {
    let (n, rank, plan) = (comm.n_ranks(), comm.rank(), prepared.plan());
    let [plain_input, plain_output] = kinds(turn, rank);
    let mine = contribution(turn, rank, count);
    let inputs: Vec<Vec<i32>> = (0..n).map(|rank| contribution(turn, rank, count)).collect();
    let gathers = plan.collective == warpway::plan::Collective::AllGather;
    let expected: Vec<i32> = match gathers {
        true => inputs.concat(),
        false => (0..count).map(|at| inputs.iter().map(|input| input[at]).sum()).collect(),
    };
    let found = if plan.in_place {
        let mut data = Memory::new(comm, plain_output, &mine)?;
        let view = data.view();
        prepared.run(&PlanLaunch::new(view, view, DataType::Int32))?;
        data.elements()?
    } else {
        let mut input = Memory::new(comm, plain_input, &mine)?;
        let mut output = Memory::new(comm, plain_output, &vec![-1; expected.len()])?;
        prepared.run(&PlanLaunch::new(input.view(), output.view(), DataType::Int32))?;
        assert_eq!(input.elements()?, mine);
        output.elements()?
    };
    assert!(found == expected, "{} rank {rank} of {n}, turn {turn}, {count} elements", plan.name);
    Ok(())
}

#[test]
fn slices_and_registered_memory_mix() {
    for n in [2, 3] {
        let plans: Vec<Plan> = [
            testing::all_gather_put(n),
            testing::all_gather_ring(n),
            testing::all_reduce_two_shot(n),
            testing::all_reduce_packets(n),
        ]
        .map(|plan| plan.unwrap())
        .into();
        let proven: Vec<VerifiedPlan> =
            plans.iter().map(|plan| VerifiedPlan::new(plan.clone(), &Options::default()).unwrap()).collect();
        in_process(n, &context(), |comm| {
            for (plan, proven) in plans.iter().zip(&proven) {
                // With a proof, outputs are not copied in.
                let prepared =
                    [comm.prepare(proven)?, comm.prepare_unverified(plan, &proven.report().repairs)?];
                for prepared in &prepared {
                    // Stages grow, and are used for less afterwards.
                    for (turn, count) in (0u64..).zip([0, 1, 3, 17, 4095, 40_000, 24, 1, 300_000, 17, 18, 19])
                    {
                        launch(comm, prepared, turn, count)?;
                    }
                }
            }
            comm.barrier()
        })
        .unwrap();
    }
}

/// The proxy copies from and to stages.
#[test]
fn ports_reach_stages() {
    let plan = testing::send_recv_port(3).unwrap();
    in_process(3, &context(), |comm| {
        let prepared = comm.prepare_unverified(&plan, &Repairs::default())?;
        for turn in 0..12 {
            let [plain_input, plain_output] = kinds(turn, comm.rank());
            let mut input = Memory::new(comm, plain_input, &contribution(turn, comm.rank(), 1000))?;
            let mut output = Memory::new(comm, plain_output, &[0; 1000])?;
            prepared.run(&PlanLaunch::new(input.view(), output.view(), DataType::Int32))?;
            assert_eq!(output.elements()?, contribution(turn, (comm.rank() + 2) % 3, 1000));
        }
        comm.barrier()
    })
    .unwrap();
}

/// What a plan leaves as it is stays as it is: between sized chunks, and where it writes nothing at all.
#[test]
fn bytes_that_no_operation_writes_survive() {
    let (gather, broadcast) = (testing::all_gather_v(2).unwrap(), testing::broadcast(2, 0).unwrap());
    in_process(2, &context(), |comm| {
        let rank = comm.rank();
        let prepared = comm.prepare_unverified(&gather, &Repairs::default())?;
        let rows = SizeRows { extents: BTreeMap::from([(0, 3), (1, 4)]), input: vec![1], output: vec![2, 7] };
        let mut output = [9u8; 12];
        let input: [u8; 5] = if rank == 0 { [0, 1, 2, 3, 0] } else { [0, 4, 5, 6, 7] };
        let call = PlanLaunch::new(&input[..], &mut output[..], DataType::Uint8);
        prepared.run(&call.with_sizes(&rows))?;
        assert_eq!(output, [9, 9, 1, 2, 3, 9, 9, 4, 5, 6, 7, 9]);
        let proven = VerifiedPlan::new(broadcast.clone(), &Options::default()).unwrap();
        let prepared = comm.prepare(&proven)?;
        let (input, mut output) = ([rank as i32 + 5; 8], [7i32; 8]);
        prepared.run(&PlanLaunch::new(&input[..], &mut output[..], DataType::Int32))?;
        assert_eq!(output, [5; 8]);
        comm.barrier()
    })
    .unwrap();
}

#[test]
fn slices_are_checked_before_anything_is_launched() {
    let (gather, reduce) = (testing::all_gather_put(1).unwrap(), testing::all_reduce_two_shot(1).unwrap());
    in_process(1, &Context::new(warpway::Config::default()), |comm| {
        let prepared = comm.prepare_unverified(&gather, &Repairs::default())?;
        let (input, mut output) = ([1i32; 4], [0i32; 4]);
        let refused = |launch: PlanLaunch<'_>, id: &str, text: &str| {
            let error = prepared.run(&launch).unwrap_err();
            assert!(error.id() == id && error.to_string().contains(text), "{error}");
        };
        let read_only = PlanLaunch::new(&input[..], &input[..], DataType::Int32);
        refused(read_only, "plan.launch", "may only be read");
        let view = BufferView::from(&mut output[..]);
        let beyond = |part| PlanLaunch::new(&input[..], part, DataType::Int32);
        for (offset, bytes) in [(4, 16), (0, 20), (u64::MAX, 16), (16, u64::MAX), (u64::MAX, 0)] {
            let error = prepared.run(&beyond(view.part(offset, bytes))).unwrap_err();
            assert!(["mem.bounds", "plan.launch"].contains(&error.id()), "{error}");
        }
        // In place by the plan's own word only.
        refused(PlanLaunch::new(view, view, DataType::Int32), "plan.launch", "overlap");
        let in_place = comm.prepare_unverified(&reduce, &Repairs::default())?;
        let apart = in_place.run(&PlanLaunch::new(&input[..], view, DataType::Int32)).unwrap_err();
        assert!(apart.to_string().contains("works in place"), "{apart}");
        prepared.run(&beyond(view.part(0, 16)))?;
        assert_eq!(output, [1; 4]);
        Ok(())
    })
    .unwrap();
}
