//! Roots that run ahead of their receivers: how far, what they say of one that does not come, and that nothing is lost.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use warpway::collectives::{Function, Task, World, find};
use warpway::plan::verify::VerifiedPlan;
use warpway::{BufferView, Communicator, DataType, Deadline, PlanLaunch, PreparedPlan, Result, in_process};
use warpway_tests::limited;

use crate::rig::context;

/// Launches that a root may end before a receiver has begun them.
const LEAD: u64 = 7;
const CANARY: u32 = 0x5a3c_99c3;

fn proven(function: Function, name: &str, n: u32, root: u32) -> VerifiedPlan {
    let task = Task::new(function, World::one_host(n)).with_root(root);
    find(function, name).unwrap().prove(&task).unwrap()
}

fn element(turn: u64, rank: u32, at: usize) -> u32 {
    (at as u32 ^ (turn as u32).wrapping_mul(0x85eb_ca6b) ^ rank.wrapping_mul(0x9e37_79b9))
        .wrapping_mul(0xc2b2_ae35)
}

/// The buffers of one rank for a plan, which live across launches, the output between canaries.
struct Site {
    input: Vec<u32>,
    output: Vec<u32>,
}

impl Site {
    fn new(inputs: usize, outputs: usize) -> Self {
        Self { input: vec![0; inputs], output: vec![CANARY; outputs + 2] }
    }

    fn launch(&mut self, comm: &Communicator, plan: &PreparedPlan, turn: u64) -> Result<()> {
        for (at, value) in self.input.iter_mut().enumerate() {
            *value = element(turn, comm.rank(), at);
        }
        let len = self.output.len() - 2;
        self.output[1..=len].fill(!0);
        let (input, output) = (BufferView::from(&self.input[..]), &mut self.output[1..=len]);
        plan.run(&PlanLaunch::new(input, output, DataType::Uint32))
    }

    fn check(&self, turn: u64, value: impl Fn(usize) -> u32) {
        let len = self.output.len() - 2;
        let expected: Vec<u32> = [CANARY].into_iter().chain((0..len).map(value)).chain([CANARY]).collect();
        assert!(self.output == expected, "turn {turn}, {len} elements: {:x?}", self.output);
    }
}

/// Until it is raised, or long enough for the test to fail.
fn wait_for(flag: &AtomicU64) {
    let patience = Deadline::after(Duration::from_secs(20));
    while flag.load(Ordering::SeqCst) == 0 && !patience.expired() {
        std::thread::yield_now();
    }
}

/// The root begins to run ahead when the receiver is held up, so that it finds all its credit.
#[test]
fn a_root_runs_ahead_as_far_as_there_are_slots_and_no_further() {
    const KNOWN: u64 = 4;
    const ALL: u64 = 60;
    let plan = proven(Function::Broadcast, "packets", 3, 0);
    let (ended, held) = (AtomicU64::new(0), AtomicU64::new(0));
    in_process(3, &context(), |comm| {
        let plan = comm.prepare(&plan)?;
        let mut site = Site::new(if comm.rank() == 0 { 5 } else { 0 }, 5);
        for turn in 1..=ALL {
            if comm.rank() == 0 && turn == KNOWN + 1 {
                wait_for(&held);
            }
            if comm.rank() == 1 && turn == KNOWN + 1 {
                held.store(1, Ordering::SeqCst);
                // Not for ever: the assertion below says how far it came.
                let patience = Deadline::after(Duration::from_secs(20));
                while ended.load(Ordering::SeqCst) < KNOWN + LEAD && !patience.expired() {
                    std::thread::yield_now();
                }
                // Whoever went further would have done so by now, mostly.
                std::thread::sleep(Duration::from_millis(100));
                assert_eq!(ended.load(Ordering::SeqCst), KNOWN + LEAD);
            }
            site.launch(comm, &plan, turn)?;
            site.check(turn, |at| element(turn, 0, at));
            if comm.rank() == 0 {
                ended.store(turn, Ordering::SeqCst);
            }
        }
        comm.barrier()
    })
    .unwrap();
}

#[test]
fn a_receiver_that_does_not_come_is_named_in_time() {
    let plan = proven(Function::Broadcast, "packets", 3, 2);
    let (gave_up, held) = (AtomicU64::new(0), AtomicU64::new(0));
    let errors = std::sync::Mutex::new(Vec::new());
    let _ = in_process(3, &limited(Duration::from_secs(2)), |comm| {
        let plan = comm.prepare(&plan)?;
        let mut site = Site::new(if comm.rank() == 2 { 5 } else { 0 }, 5);
        for turn in 1..=30 {
            match (comm.rank(), turn) {
                (1, 5) => {
                    held.store(1, Ordering::SeqCst);
                    wait_for(&gave_up);
                    return Ok(());
                }
                (2, 5) => wait_for(&held),
                _ => {}
            }
            if let Err(error) = site.launch(comm, &plan, turn) {
                if comm.rank() == 2 {
                    errors.lock().unwrap().push((turn, error.culprit(), error.to_string()));
                    gave_up.store(1, Ordering::SeqCst);
                }
                return Err(error);
            }
        }
        gave_up.store(1, Ordering::SeqCst);
        Ok(())
    });
    let errors = errors.into_inner().unwrap();
    assert!(matches!(&errors[..], [(12, Some(1), _)]), "{errors:?}");
}

/// Each rank launches what it takes for the next broadcast from itself, again and again: nobody receives.
#[test]
fn two_roots_find_out_that_there_are_two() {
    let plans = [0, 1].map(|root| proven(Function::Broadcast, "packets", 2, root));
    let texts = std::sync::Mutex::new(Vec::new());
    let _ = in_process(2, &context(), |comm| {
        let plans = [comm.prepare(&plans[0])?, comm.prepare(&plans[1])?];
        let rank = comm.rank();
        let mut sites = [0, 1].map(|root| Site::new(if rank == root { 5 } else { 0 }, 5));
        for turn in 1..=6 {
            for root in [0, 1] {
                sites[root].launch(comm, &plans[root], turn)?;
                sites[root].check(turn, |at| element(turn, root as u32, at));
            }
        }
        let own = rank as usize;
        let result = (7..=60).try_for_each(|turn| sites[own].launch(comm, &plans[own], turn));
        texts.lock().unwrap().push(result.as_ref().map_err(ToString::to_string).cloned());
        result
    });
    let texts = texts.into_inner().unwrap();
    // One may have left before it could see what the other launched.
    let named = |text: &std::result::Result<(), String>| matches!(text, Err(text) if text.contains("root"));
    assert!(texts.len() == 2 && texts.iter().all(|text| text.is_err()), "{texts:?}");
    assert!(texts.iter().any(named), "{texts:?}");
}

/// Broadcasts from all ranks in two sizes, other collectives and a plan that needs all ranks, in any order, ranks late at
/// random.
#[test]
fn mixtures_are_exact() {
    const N: u32 = 3;
    const TURNS: u64 = 10_000;
    const SIZES: [usize; 3] = [3, 90, 700];
    let broadcasts = [0, 1, 2].map(|root| proven(Function::Broadcast, "packets", N, root));
    let reduce = proven(Function::AllReduce, "one_shot_packets", N, 0);
    let gather = proven(Function::AllGather, "packets", N, 0);
    in_process(N, &context(), |comm| {
        let rank = comm.rank();
        let broadcasts = [0, 1, 2].map(|root: usize| comm.prepare(&broadcasts[root]).unwrap());
        let (reduce, gather) = (comm.prepare(&reduce)?, comm.prepare(&gather)?);
        let mut of_broadcasts =
            [0, 1, 2].map(|root| SIZES.map(|size| Site::new(if rank == root { size } else { 0 }, size)));
        let mut of_reduce = SIZES.map(|size| Site::new(size, size));
        let mut of_gather = SIZES.map(|size| Site::new(size, size * N as usize));
        let (mut common, mut own) = (0x1234_5678_9abc_def1_u64, 0xfeed_0000_0001_u64 + u64::from(rank));
        let next = |state: &mut u64| {
            // xorshift64.
            *state ^= *state << 13;
            *state ^= *state >> 7;
            *state ^= *state << 17;
            *state >> 11
        };
        for turn in 1..=TURNS {
            let (what, mut size) = (next(&mut common) % 16, (next(&mut common) % 40) as usize);
            // Mostly small; the largest one comes late, so that areas grow meanwhile.
            size = if size == 39 && turn > TURNS / 8 { 2 } else { size % 2 };
            match next(&mut own) % 64 {
                0 => std::thread::sleep(Duration::from_micros(next(&mut own) % 200)),
                1..8 => (0..next(&mut own) % 2000).for_each(|_| std::hint::spin_loop()),
                _ => {}
            }
            let root = (what % 3) as u32;
            match what {
                0..12 => {
                    // Runs of one root, so that it does run ahead.
                    let root = if turn / 50 % 2 == 0 { (turn / 50 % 3) as u32 } else { root };
                    let site = &mut of_broadcasts[root as usize][size];
                    // Other memory now and then, which is no repetition.
                    if turn % 61 == u64::from(rank) {
                        *site = Site::new(site.input.len(), site.output.len() - 2);
                    }
                    site.launch(comm, &broadcasts[root as usize], turn)?;
                    site.check(turn, |at| element(turn, root, at));
                }
                12 | 13 => {
                    of_reduce[size].launch(comm, &reduce, turn)?;
                    let sum = |at| (0..N).fold(0, |sum: u32, from| sum.wrapping_add(element(turn, from, at)));
                    of_reduce[size].check(turn, sum);
                }
                _ => {
                    of_gather[size].launch(comm, &gather, turn)?;
                    let count = SIZES[size];
                    of_gather[size].check(turn, |at| element(turn, (at / count) as u32, at % count));
                }
            }
        }
        comm.barrier()
    })
    .unwrap();
}
