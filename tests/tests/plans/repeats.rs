//! Launches like an earlier one: same plan, buffers, size and type, other contents; and what comes between them.

use warpway::plan::testing;
use warpway::plan::verify::{Options, VerifiedPlan};
use warpway::{Buffer, BufferView, Communicator, DataType, PlanLaunch, PreparedPlan, Result, in_process};

use crate::rig::context;

const RANKS: u32 = 3;
const CANARY: i32 = 0x5a3c_99c3;

fn element(turn: u64, rank: u32, at: usize) -> i32 {
    (turn as i32 * 1009 + rank as i32 * 331 + at as i32 * 7) ^ 0x55
}

/// An all-reduce into a slice or a registered buffer that lives across launches, between canaries.
struct Site {
    len: usize,
    input: Buffer<i32>,
    output: Buffer<i32>,
    slices: (Vec<i32>, Vec<i32>),
}

impl Site {
    fn new(comm: &Communicator, len: usize) -> Result<Self> {
        let output = comm.alloc(len as u64 + 2)?;
        output.fill(CANARY)?;
        let slices = (vec![0; len], vec![CANARY; len + 2]);
        Ok(Self { len, input: comm.alloc(len as u64)?, output, slices })
    }

    fn launch(&mut self, comm: &Communicator, plan: &PreparedPlan, turn: u64, plain: bool) -> Result<()> {
        let Self { len, input, output, slices } = self;
        let len = *len;
        let mine: Vec<i32> = (0..len).map(|at| element(turn, comm.rank(), at)).collect();
        let found = if plain {
            slices.0.copy_from_slice(&mine);
            let output = &mut slices.1;
            output[1..=len].fill(-1);
            plan.run(&PlanLaunch::new(&slices.0[..], &mut output[1..=len], DataType::Int32))?;
            output.clone()
        } else {
            input.write(0, &mine)?;
            output.write(1, &vec![-1; len])?;
            plan.run(&PlanLaunch::new(input.view(), output.view_of(1, len as u64), DataType::Int32))?;
            output.to_vec()?
        };
        let sum = |at| (0..RANKS).map(|rank| element(turn, rank, at)).sum();
        let expected: Vec<i32> = [CANARY].into_iter().chain((0..len).map(sum)).chain([CANARY]).collect();
        assert!(found == expected, "turn {turn}, {len} elements, plain: {plain}");
        Ok(())
    }
}

/// Between equal launches come others that grow the scratch, use its other half, and bring other memory.
#[test]
fn repeated_launches_see_new_contents_grown_scratch_and_other_buffers() {
    let proven = |plan| VerifiedPlan::new(plan, &Options::default()).unwrap();
    let packets = proven(testing::all_reduce_packets(RANKS).unwrap());
    in_process(RANKS, &context(), |comm| {
        let plan = comm.prepare(&packets)?;
        let (mut small, mut large) = (Site::new(comm, 30)?, Site::new(comm, 3000)?);
        let mut turn = 0;
        let mut launch = |site: &mut Site, plain| {
            turn += 1;
            site.launch(comm, &plan, turn, plain)
        };
        for _ in 0..5 {
            launch(&mut small, false)?;
            launch(&mut small, true)?;
        }
        // The scratch grows: what was found out about it holds no longer.
        launch(&mut large, true)?;
        for round in 0..7 {
            launch(&mut small, round % 2 == 0)?;
            launch(&mut large, round % 3 == 0)?;
        }
        // Other memory, perhaps where the old one was.
        for _ in 0..4 {
            let mut other = Site::new(comm, 30)?;
            launch(&mut other, false)?;
            launch(&mut other, false)?;
            launch(&mut other, true)?;
        }
        // The same plan, set up once more, shares the areas.
        let again = comm.prepare(&packets)?;
        for _ in 0..3 {
            turn += 1;
            small.launch(comm, &again, turn, false)?;
            turn += 1;
            small.launch(comm, &plan, turn, false)?;
        }
        drop(plan);
        turn += 1;
        small.launch(comm, &again, turn, false)?;
        comm.barrier()
    })
    .unwrap();
}

/// Every rank has launched both before, so each repeats one that it knows.
#[test]
fn ranks_that_repeat_different_launches_are_named() {
    let packets = VerifiedPlan::new(testing::all_reduce_packets(2).unwrap(), &Options::default()).unwrap();
    let outcomes = std::sync::Mutex::new(Vec::new());
    let _ = in_process(2, &context(), |comm| {
        let plan = comm.prepare(&packets)?;
        let (input, mut output) = (vec![0u32; 64], vec![0u32; 64]);
        let mut launch =
            |data_type| plan.run(&PlanLaunch::new(BufferView::from(&input[..]), &mut output[..], data_type));
        for _ in 0..4 {
            launch(DataType::Int32)?;
            launch(DataType::Float32)?;
        }
        let result = launch(if comm.rank() == 0 { DataType::Int32 } else { DataType::Float32 });
        outcomes.lock().unwrap().push(result.as_ref().map_err(ToString::to_string).cloned());
        result
    });
    let outcomes = outcomes.into_inner().unwrap();
    assert_eq!(outcomes.len(), 2);
    // One may have left before it could see what the other launched, but none takes the result for good.
    let named = |outcome: &Result<(), String>| matches!(outcome, Err(text) if text.contains("data type"));
    assert!(outcomes.iter().all(Result::is_err) && outcomes.iter().any(named), "{outcomes:?}");
}
