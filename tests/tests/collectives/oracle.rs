//! What collectives are to give, worked out one element at a time.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use warpway::{Communicator, Config, Context, Error, Result, Timeout, in_process};
use warpway_tests::byte;

/// Limits of a minute: what ends sooner was found out.
pub(crate) fn context() -> Context {
    let mut config = Config::default();
    config.setup_timeout = Timeout::after(Duration::from_secs(60));
    config.device_timeout = Timeout::after(Duration::from_secs(60));
    Context::new(config)
}

pub(crate) fn ranks<T: Send>(n: u32, rank_main: impl Fn(&Communicator) -> Result<T> + Sync) -> Vec<T> {
    in_process(n, &context(), rank_main).unwrap()
}

/// Runs `rank_main` on every rank and gives each rank's error. All stay until all have one.
pub(crate) fn errors(
    n: u32,
    context: &Context,
    rank_main: impl Fn(&Communicator) -> Result<()> + Sync,
) -> Vec<Error> {
    let found: Mutex<Vec<Option<Error>>> = Mutex::new(vec![None; n as usize]);
    let started = Instant::now();
    in_process(n, context, |comm| {
        let error = rank_main(comm).expect_err("every rank gets an error");
        found.lock().unwrap()[comm.rank() as usize] = Some(error);
        while found.lock().unwrap().iter().any(Option::is_none) && started.elapsed() < Duration::from_secs(20)
        {
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    })
    .unwrap();
    found.into_inner().unwrap().into_iter().map(|error| error.expect("all ranks")).collect()
}

/// Element `at` of what `rank` has in `round`: 1 to 15, so that the sums of a few ranks are exact in every type.
pub(crate) fn value(round: u64, rank: u32, at: u64) -> i32 {
    i32::from(byte(round, rank, at) % 15) + 1
}

pub(crate) fn input(round: u64, rank: u32, len: u64) -> Vec<i32> {
    (0..len).map(|at| value(round, rank, at)).collect()
}

/// Sums over `n` ranks of elements `first..first + len`.
pub(crate) fn sums(round: u64, n: u32, first: u64, len: u64) -> Vec<i32> {
    (first..first + len).map(|at| (0..n).map(|rank| value(round, rank, at)).sum()).collect()
}
