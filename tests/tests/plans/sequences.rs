//! Different plans on one communicator: in random order, exact; their scratch, shared and given back.

use std::time::Duration;

use rustix::process::Signal;
use warpway::core::execution::ExecutionError;
use warpway::plan::verify::{Options, VerifiedPlan};
use warpway::plan::{BufferKind, Plan, Repairs, testing};
use warpway::{Communicator, DataType, Error, PrepareOptions, PreparedPlan, Result, in_process};
use warpway_tests::suite::plans::{
    Message, in_random_order, launch, on_scratch, overrunning, random, random_launch,
};
use warpway_tests::{End, Job, Leftovers, Settings};

use crate::rig::context;
use crate::sized_scratch;

fn in_threads(n: u32, seeds: std::ops::Range<u64>, turns: u64) {
    let plans = on_scratch(n);
    in_process(n, &context(), |comm| {
        seeds.clone().try_for_each(|seed| in_random_order(comm, &plans, seed, turns))
    })
    .unwrap();
}

#[test]
fn two_ranks() {
    in_threads(2, 0..2, 400);
}

#[test]
fn three_ranks() {
    in_threads(3, 10..12, 400);
}

#[test]
fn five_ranks() {
    in_threads(5, 20..21, 400);
}

#[test]
fn eight_ranks() {
    in_threads(8, 30..31, 250);
}

/// Counts that come at launch, zeros among them, in turn with sizes that all know before.
#[test]
fn sized_plans_among_others() {
    let proven = |plan: Plan| VerifiedPlan::new(plan, &Options::default()).unwrap();
    let sized = sized_scratch::through_scratch(4).map(proven);
    let fixed = on_scratch(4);
    in_process(4, &context(), |comm| {
        let options = PrepareOptions { scratch_chunk_bytes: Some(2048), ..Default::default() };
        let sized = sized.iter().map(|plan| comm.prepare_with(plan, options)).collect::<Result<Vec<_>>>()?;
        let fixed = fixed.iter().map(|plan| comm.prepare(plan)).collect::<Result<Vec<_>>>()?;
        for turn in 0..400 {
            let choice = random(turn) as usize;
            match choice % 3 {
                0 => sized_scratch::launch(comm, &sized[choice / 3 % sized.len()], turn)?,
                _ => random_launch(comm, &fixed, turn)?,
            }
        }
        comm.barrier()
    })
    .unwrap();
}

/// What two ranks know of each other only through others, they do not know of launches without bytes.
#[test]
fn a_rank_that_is_busy_is_not_overrun() {
    let plans = overrunning(5);
    in_process(5, &context(), |comm| {
        let prepared = plans.iter().map(|plan| comm.prepare(plan)).collect::<Result<Vec<_>>>()?;
        for turn in 0..40 {
            for (prepared, elements) in prepared.iter().zip([480, 0, 480]) {
                launch(comm, prepared, &Message { elements, ..message(turn) })?;
            }
        }
        comm.barrier()
    })
    .unwrap();
}

/// Ranks are stopped wherever they are, in launches as well as between them.
#[test]
fn processes_that_are_stopped_for_a_while() {
    for n in [3, 5] {
        let patience = Duration::from_secs(60);
        let settings = Settings { patience, ..Settings::new(n, "sequence --turns 300") };
        let mut job = Job::start(env!("CARGO_BIN_EXE_rank"), &settings);
        job.await_mark(0..n, "ready");
        for turn in 0..150 {
            let choice = random(turn);
            let rank = choice as u32 % n;
            job.signal(rank, Signal::STOP);
            std::thread::sleep(Duration::from_micros(choice >> 32 & 2047));
            job.signal(rank, Signal::CONT);
        }
        job.finish(&[], &Leftovers::default()).iter().for_each(End::succeeded);
    }
}

/// Mappings and descriptors of memory that ranks share, of all ranks, which are threads of this process.
fn shared_memories() -> (usize, usize) {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let open = std::fs::read_dir("/proc/self/fd").unwrap();
    let is_ours = |path: &std::path::Path| path.to_string_lossy().contains("memfd:warpway");
    let open = open.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    (maps.matches("memfd:warpway").count(), open.filter(|path| is_ours(path)).count())
}

/// On rank 0, while nobody works.
fn counted(comm: &Communicator) -> Result<(usize, usize)> {
    comm.barrier()?;
    let found = shared_memories();
    comm.barrier()?;
    Ok(found)
}

fn message(turn: u64) -> Message {
    Message { seed: turn, ..Message::new(480, DataType::Uint32) }
}

#[test]
fn plans_that_share_take_no_more_memory_the_more_they_are() {
    let named = |number: u32| {
        let plan = testing::all_reduce_packets(3).unwrap();
        VerifiedPlan::new(Plan { name: format!("{}_{number}", plan.name), ..plan }, &Options::default())
            .unwrap()
    };
    let plans: Vec<VerifiedPlan> = (0..12).map(named).collect();
    in_process(3, &context(), |comm| {
        let run =
            |prepared: &PreparedPlan| (0..3).try_for_each(|turn| launch(comm, prepared, &message(turn)));
        let first = comm.prepare(&plans[0])?;
        run(&first)?;
        let before = counted(comm)?;
        let more = plans[1..].iter().map(|plan| comm.prepare(plan)).collect::<Result<Vec<_>>>()?;
        more.iter().try_for_each(run)?;
        assert_eq!(counted(comm)?, before);
        // Those without a proof have areas of their own: the count sees them, and sees them go.
        let own = comm.prepare_unverified(plans[0].plan(), &Repairs::default())?;
        run(&own)?;
        assert!(counted(comm)? > before);
        drop((own, first, more));
        assert_eq!(counted(comm)?, before);
        Ok(())
    })
    .unwrap();
}

#[test]
fn a_thousand_launches_leak_nothing() {
    // Of buffers that peers map, the last ones stay known for a while.
    let mut plans = on_scratch(3);
    plans.retain(|proof| {
        let mut remote = proof.plan().ranks.iter().flat_map(|rank| &rank.remote_buffers);
        remote.all(|remote| remote.buffer == BufferKind::Scratch)
    });
    assert_eq!(plans.len(), 15);
    in_process(3, &context(), |comm| {
        let prepared = plans.iter().map(|plan| comm.prepare(plan)).collect::<Result<Vec<_>>>()?;
        // The largest message, so that no area grows later; then buffers of the size that all others have.
        for elements in [5000, 480] {
            let message = Message { elements, ..message(0) };
            prepared.iter().try_for_each(|prepared| launch(comm, prepared, &message))?;
        }
        let before = counted(comm)?;
        for turn in 0..1000 {
            launch(comm, &prepared[random(turn) as usize % prepared.len()], &message(turn))?;
        }
        assert_eq!(counted(comm)?, before);
        Ok(())
    })
    .unwrap();
}

/// In any order, also while others still work with the areas; those made anew go on where all ranks are.
#[test]
fn plans_are_dropped_and_set_up_again() {
    let plans = on_scratch(3);
    in_process(3, &context(), |comm| {
        let mut prepared: Vec<Option<PreparedPlan>> = plans.iter().map(|_| None).collect();
        for turn in 0..300 {
            let at = random(turn) as usize % plans.len();
            let plan = match &prepared[at] {
                Some(plan) => plan.clone(),
                None => prepared[at].insert(comm.prepare(&plans[at])?).clone(),
            };
            launch(comm, &plan, &message(turn))?;
            // Another one: ranks do not agree about when it goes, if only all set it up again.
            let gone = random(turn ^ 1 << 40) as usize % plans.len();
            if comm.rank() == 0 {
                std::thread::sleep(Duration::from_micros(random(turn) >> 40 & 255));
            }
            prepared[gone] = None;
        }
        comm.barrier()
    })
    .unwrap();
}

#[test]
fn two_communicators_of_one_process_have_areas_of_their_own() {
    let plans = on_scratch(3);
    in_process(3, &context(), |comm| {
        let other = comm.split(0, comm.rank() as i32)?;
        let other = other.as_ref().unwrap_or(comm);
        let here = plans.iter().map(|plan| comm.prepare(plan)).collect::<Result<Vec<_>>>()?;
        let there = plans.iter().map(|plan| other.prepare(plan)).collect::<Result<Vec<_>>>()?;
        for turn in 0..200 {
            random_launch(comm, &here, turn)?;
            if random(turn).is_multiple_of(3) {
                random_launch(other, &there, turn << 20)?;
            }
        }
        comm.barrier()
    })
    .unwrap();
}

#[test]
fn a_rank_without_the_proof_is_named() {
    let proof = VerifiedPlan::new(testing::all_reduce_packets(2).unwrap(), &Options::default()).unwrap();
    assert!(proof.repairs().is_empty());
    let error = in_process(2, &context(), |comm| match comm.rank() {
        0 => comm.prepare(&proof),
        _ => comm.prepare_unverified(proof.plan(), &Repairs::default()),
    })
    .unwrap_err();
    assert_eq!(error.id(), "plan.disagreement");
    let text = error.to_string();
    assert_eq!(text.matches("proven to share its packet scratch").count(), 1, "{text}");
}

/// The same plan, set up twice: two areas, and ranks that take unequal ones.
#[test]
fn ranks_on_unequal_areas_are_named() {
    let plan = testing::all_reduce_packets(2).unwrap();
    let error = in_process(2, &context(), |comm| {
        let none = Repairs::default();
        let twice = [comm.prepare_unverified(&plan, &none)?, comm.prepare_unverified(&plan, &none)?];
        launch(comm, &twice[comm.rank() as usize], &message(0))
    })
    .unwrap_err();
    let Error::Execution(ExecutionError::Difference { field: "scratch", .. }) = error else {
        panic!("{error}")
    };
}
