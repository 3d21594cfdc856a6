//! What calls take: plans of the user, tables, overrides; and ranks that have set something else.

use std::sync::Mutex;

use warpway::collectives::{Library, Origin, Row, Sizes, Table, Timing};
use warpway::core::collective::CollectiveError;
use warpway::plan::verify::{Options, VerifiedPlan};
use warpway::plan::{CollectiveShape, DataSync, Program, ProgramOptions, Reduction};
use warpway::{
    Call, Communicator, Config, Context, DataType, Error, Function, ReduceOp, Registration, Result,
    in_process,
};

use crate::oracle::{context, ranks};

/// An all-reduce in place that takes the least number, under the name of a sum.
fn least(n: u32, op: ReduceOp) -> VerifiedPlan {
    let shape = CollectiveShape::all_reduce(n, 1).in_place();
    let mut p = Program::new(ProgramOptions::new("least", shape)).unwrap();
    for me in 0..n {
        let part = u64::from(me)..=u64::from(me);
        let mine = p.input(me).unwrap().chunk(part.clone()).unwrap();
        let peers: Vec<u32> = (0..n).filter(|peer| *peer != me).collect();
        let channels: Vec<_> = peers.iter().map(|peer| p.memory_channel(me, *peer).unwrap()).collect();
        for channel in &channels {
            p.signal_relaxed(*channel, 0, DataSync::None).unwrap();
        }
        for channel in &channels {
            p.wait_relaxed(*channel, 0, DataSync::After).unwrap();
        }
        for (peer, channel) in peers.iter().zip(&channels) {
            let theirs = [p.input(*peer).unwrap().chunk(part.clone()).unwrap()];
            p.read_reduce(*channel, Reduction::of(mine, &theirs).with(op), 0).unwrap();
        }
        for (peer, channel) in peers.iter().zip(&channels) {
            let theirs = p.input(*peer).unwrap().chunk(part.clone()).unwrap();
            p.put(*channel, theirs, mine, 0).unwrap();
        }
        for channel in &channels {
            p.signal(*channel, 0, DataSync::Before).unwrap();
        }
        for channel in &channels {
            p.wait(*channel, 0, DataSync::After).unwrap();
        }
    }
    VerifiedPlan::new(p.finish().unwrap(), &Options::default()).unwrap()
}

#[test]
fn plans_of_the_user_are_taken_where_they_fit() {
    let plan = least(3, ReduceOp::Min);
    ranks(3, |comm| {
        let mut x = vec![comm.rank() as i32 + 5; 100];
        comm.all_reduce(&mut x, ReduceOp::Min)?;
        let taken =
            |x: &mut [i32], op| Ok::<_, Error>(comm.explain(&Call::all_reduce(x, op))?.taken().to_owned());
        assert_ne!(taken(&mut x, ReduceOp::Min)?, "least");
        comm.register_plan(plan.clone(), Registration { max_bytes: 400, ..Registration::default() })?;
        // It had been set up otherwise.
        assert_eq!(taken(&mut x, ReduceOp::Min)?, "least");
        assert_ne!(taken(&mut x, ReduceOp::Max)?, "least");
        assert_ne!(taken(&mut [0; 101], ReduceOp::Min)?, "least");
        let mut x = vec![comm.rank() as i32 + 5; 100];
        comm.all_reduce(&mut x, ReduceOp::Min)?;
        assert_eq!(x, [5; 100]);
        let mut x = vec![comm.rank() as i32 + 6; 17];
        comm.collective(&Call::all_reduce(&mut x, ReduceOp::Min).with_algorithm("least"))?;
        assert_eq!(x, [6; 17]);
        let again = comm.register_plan(
            plan.clone(),
            Registration { min_bytes: 2, max_bytes: 1, ..Registration::default() },
        );
        assert_eq!(again.unwrap_err().id(), "plan.refused");
        Ok(())
    });
}

/// Every algorithm of the catalogue by its name, in place, and with several blocks.
#[test]
fn algorithms_are_taken_by_name() {
    ranks(3, |comm| {
        for algorithm in warpway::collectives::catalogue().filter(|a| a.function == Function::AllReduce) {
            for blocks in [1, 2] {
                let mut x: Vec<i64> = (0..1001).map(|at| at * (i64::from(comm.rank()) + 1)).collect();
                let call = Call::all_reduce(&mut x, ReduceOp::Sum);
                let call = call.with_algorithm(algorithm.name).with_blocks(blocks);
                match comm.collective(&call) {
                    Err(error) if error.id() == "collective.algorithm" => {
                        assert!(!error.to_string().contains("not accepted"), "{error}");
                        continue;
                    }
                    result => result?,
                }
                assert!(x.iter().zip(0..).all(|(sum, at)| *sum == 6 * at), "{algorithm:?} x{blocks}");
            }
        }
        comm.barrier()
    });
}

#[test]
fn barriers_wait_for_all() {
    use std::sync::atomic::{AtomicU32, Ordering};

    let arrived = AtomicU32::new(0);
    ranks(4, |comm| {
        for round in 1..=20 {
            arrived.fetch_add(1, Ordering::SeqCst);
            comm.collective(&Call::barrier())?;
            assert!(arrived.load(Ordering::SeqCst) >= 4 * round);
        }
        Ok(())
    });
}

/// Eight-bit floats are bytes with a type; bfloat16 has a type of its own.
#[test]
fn types_without_a_rust_type_are_named() {
    ranks(2, |comm| {
        // 1.0 in E4M3 with bias 7; 2.0 is one exponent more.
        let mut x = [0x38u8; 5];
        let call = Call::all_reduce(&mut x, ReduceOp::Sum).with_data_type(DataType::Float8E4m3fn);
        comm.collective(&call)?;
        assert_eq!(x, [0x40; 5]);
        let mut x = comm.alloc::<warpway::bf16>(7)?;
        x.fill(warpway::bf16::from_f32(1.5))?;
        comm.all_reduce(&mut x, ReduceOp::Sum)?;
        assert!(x.to_vec()?.iter().all(|x| x.to_f32() == 3.0));
        Ok(())
    });
}

fn with(change: impl Fn(&mut Config)) -> Context {
    let mut config = context().config().clone();
    change(&mut config);
    Context::new(config)
}

/// A file that is gone at the end of the test.
struct File(std::path::PathBuf);

impl File {
    fn new(name: &str, text: &str) -> Self {
        let path = std::env::temp_dir().join(format!("warpway-{}-{name}.json", std::process::id()));
        std::fs::write(&path, text).unwrap();
        Self(path)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn table(comm: &Communicator, algorithm: &str) -> Table {
    let (date, command) = (String::new(), String::new());
    let mut table = Table::new(Origin { machine: comm.machine(), library: Library::this(), date, command });
    let timings = vec![Timing { algorithm: algorithm.into(), blocks: 1, microseconds: 1.0 }];
    table.put(Sizes {
        function: Function::AllReduce,
        ranks_per_host: vec![2],
        data_type: DataType::Int32,
        in_place: true,
        rows: vec![Row { bytes: 64, timings }],
    });
    table
}

#[test]
fn tables_are_used_unless_they_are_stale_or_wrong() {
    let own = ranks(2, |comm| Ok(table(comm, "two_shot"))).pop().unwrap();
    let run = |file: &File, force: bool| -> Result<Vec<String>> {
        let context = with(|config| {
            config.tuning_file = Some(file.0.clone());
            config.tuning_force = force;
        });
        in_process(2, &context, |comm| {
            let mut x = [comm.rank() as i32 + 1; 16];
            comm.all_reduce(&mut x, ReduceOp::Sum)?;
            assert_eq!(x, [3; 16]);
            Ok(comm.explain(&Call::all_reduce(&mut x, ReduceOp::Sum))?.taken().to_owned())
        })
    };
    let good = File::new("good", &own.to_json());
    assert_eq!(run(&good, false).unwrap(), ["two_shot"; 2]);
    let mut other = own.clone();
    other.origin.machine.cpu = "another".into();
    let stale = File::new("stale", &other.to_json());
    assert_eq!(run(&stale, false).unwrap(), ["one_shot_packets"; 2]);
    assert_eq!(run(&stale, true).unwrap(), ["two_shot"; 2]);
    let wrong = File::new("torn", own.to_json().split_at(60).0);
    let error = run(&wrong, true).unwrap_err();
    assert_eq!(error.id(), "collective.table");
    let text = error.to_string();
    assert!(text.contains("torn.json: line 4") || text.contains("torn.json: line 5"), "{text}");
    let gone = File::new("gone", "");
    std::fs::remove_file(&gone.0).unwrap();
    assert!(run(&gone, false).unwrap_err().to_string().contains("No such file"));
}

/// Ranks as processes would have variables of their own; here each has a context of its own.
#[test]
fn settings_that_differ_are_named_on_all_ranks() {
    let root = warpway::UniqueIdRoot::create(&Config::default()).unwrap();
    let found: Mutex<Vec<Error>> = Mutex::default();
    std::thread::scope(|scope| {
        for rank in 0..2 {
            let (root, found) = (&root, &found);
            scope.spawn(move || {
                let context = with(|config| {
                    config.algorithm = (rank == 1).then(|| "all_reduce=two_shot".to_owned());
                });
                let comm = context.join_id(root.id(), rank, 2).unwrap();
                let error = comm.all_reduce(&mut [1i32; 4], ReduceOp::Sum).unwrap_err();
                found.lock().unwrap().push(error);
                comm.barrier().unwrap();
            });
        }
    });
    let found = found.into_inner().unwrap();
    assert_eq!(found.len(), 2);
    for error in &found {
        let Error::Collective(CollectiveError::Settings { what, rank, here, peer, there }) = error else {
            panic!("{error}")
        };
        assert_eq!((*what, *peer), ("WARPWAY_ALGORITHM", 1 - rank));
        let text = |rank| if rank == 1 { "\"all_reduce=two_shot\"" } else { "nothing" };
        assert_eq!((here.as_str(), there.as_str()), (text(*rank), text(*peer)));
    }
}
