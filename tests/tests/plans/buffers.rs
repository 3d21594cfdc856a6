//! Launches keep what they found out about buffers for the next launch: it must not outlive the buffers.

use warpway::plan::verify::{Options, VerifiedPlan};
use warpway::{Buffer, Communicator, DataType, PlanLaunch, PreparedPlan, Result, in_process};

use crate::rig::{context, shared_plan};

const LEN: u64 = 4096;

/// All-reduces `buffer` and checks every element.
fn launch(comm: &Communicator, prepared: &PreparedPlan, buffer: &Buffer<i32>, turn: i32) -> Result<()> {
    let element = |rank: u32, at: u64| turn * 1000 + rank as i32 * 7 + at as i32;
    let own: Vec<i32> = (0..LEN).map(|at| element(comm.rank(), at)).collect();
    buffer.write(0, &own)?;
    prepared.run(&PlanLaunch::new(buffer.view(), buffer.view(), DataType::Int32))?;
    let right: Vec<i32> = (0..LEN).map(|at| element(0, at) + element(1, at)).collect();
    assert_eq!(buffer.to_vec()?, right, "turn {turn}");
    Ok(())
}

#[test]
fn buffers_may_change_go_and_come_back_between_launches() {
    let Some(plan) = shared_plan("reduce.json") else { return };
    let plan = VerifiedPlan::new(plan, &Options::default()).unwrap();
    let addresses = in_process(2, &context(), |comm| {
        let prepared = comm.prepare(&plan)?;
        let [one, other] = [comm.alloc::<i32>(LEN)?, comm.alloc::<i32>(LEN)?];
        // Each rank by a rhythm of its own.
        for turn in 0..12 {
            let second = turn % (2 + comm.rank() as i32) == 0;
            launch(comm, &prepared, if second { &other } else { &one }, turn)?;
        }
        drop([one, other]);
        // Mostly at the address of the one before, always in other memory.
        let mut addresses = Vec::new();
        for turn in 12..600 {
            let buffer = comm.alloc::<i32>(LEN)?;
            addresses.push(buffer.memory().original_address());
            launch(comm, &prepared, &buffer, turn)?;
            launch(comm, &prepared, &buffer, turn)?;
        }
        comm.barrier()?;
        Ok(addresses)
    })
    .unwrap();
    // More buffers than there are slots: some were given up, and their slots used again.
    assert!(addresses.iter().all(|of_rank| of_rank.len() > 2 * 256));
}
