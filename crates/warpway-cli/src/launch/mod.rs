//! `warpway launch`: N ranks of a program on this machine.
//!
//! One thread, one `poll`: the launcher reads the ranks' output, forwards signals, and ends the job when a
//! rank fails. What to do is decided by [`job::Job`], a state machine without input or output; what to print
//! by [`lines::Lines`] and [`output::Output`]; [`event_loop`] joins them with the operating system.
//!
//! Nothing outlives the job. Each rank leads its own process group and is not reaped before the end, so its
//! number stays valid for signals; processes that left the group are found by the job's identity in their
//! environment ([`leftovers`]); and should the launcher itself be killed, a guard process does the same
//! ([`guard`]).

mod cores;
mod event_loop;
mod guard;
mod job;
mod leftovers;
mod lines;
mod output;
mod ranks;
mod report;
mod signals;
mod terminal;

use std::{ffi::OsString, time::Duration};

use clap::Args;

pub(crate) use guard::{COMMAND as GUARD_COMMAND, GuardArguments, run as run_guard};

/// Start N ranks of a program on this machine
///
/// Each rank finds its place in WARPWAY_RANK, WARPWAY_WORLD_SIZE, WARPWAY_LOCAL_RANK and
/// WARPWAY_LOCAL_WORLD_SIZE, and joins the others through WARPWAY_JOB_ID and WARPWAY_BOOTSTRAP_TOKEN,
/// which are new for each job. Rank 0 reads the launcher's standard input, the others read nothing.
///
/// Output arrives in whole lines with the rank in front, standard output and standard error each on its own.
/// INT, TERM, HUP, QUIT, USR1, USR2, TSTP and CONT are passed on to all ranks. When a rank fails, the others
/// have a moment to say what they saw of it; then they get SIGTERM and, after a grace period, SIGKILL, with
/// everything they started.
#[derive(Args)]
#[command(after_long_help = "\
Exit code:
  0        every rank ended with 0
  1..255   that of the first rank that failed; 128 + signal if it was killed by one
  124      the job took longer than --timeout
  126      the program cannot be executed
  127      the program was not found
  128+S    the launcher got signal S and a rank did not end with 0

Examples:
  warpway launch -n 4 -- ./train --steps 10
  warpway launch -n 2 --no-prefix --timeout 60 -- python3 job.py
  warpway launch -n 8 --json -- ./job | jq 'select(.event == \"ended\")'")]
pub(crate) struct Arguments {
    /// Number of ranks
    #[arg(short = 'n', long = "ranks", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    n_ranks: u32,
    /// Use host memory, also where there are GPUs (sets WARPWAY_ENGINE=host)
    #[arg(long)]
    host_memory: bool,
    /// Let ranks use all cores; otherwise each gets its share of them, where there are enough (as `mpirun --bind-to`)
    #[arg(long)]
    no_bind: bool,
    /// End the job if it takes longer; 0 is no limit
    #[arg(long, value_name = "SECONDS", default_value = "0", value_parser = seconds)]
    timeout: Duration,
    /// Time for ranks to end by themselves after one failed, before SIGTERM (as `srun --wait`)
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    wait: Duration,
    /// Time between SIGTERM and SIGKILL for ranks that are to end
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = seconds)]
    grace: Duration,
    /// Put `[rank] ` in front of each line (the default)
    #[arg(long, overrides_with = "no_prefix")]
    tag_output: bool,
    /// Pass lines on as they are
    #[arg(long, overrides_with = "tag_output")]
    no_prefix: bool,
    /// Print everything that happens, output included, as one JSON object a line
    #[arg(long)]
    json: bool,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

impl Arguments {
    /// Ranks of `command` whose lines are passed on as they are.
    pub(crate) fn of_program(n_ranks: u32, command: Vec<OsString>) -> Self {
        Self {
            n_ranks,
            host_memory: false,
            no_bind: false,
            timeout: Duration::ZERO,
            wait: Duration::from_secs(1),
            grace: Duration::from_secs(5),
            tag_output: false,
            no_prefix: true,
            json: false,
            command,
        }
    }

    /// The same for ranks that choose their cores themselves.
    pub(crate) fn without_binding(self) -> Self {
        Self { no_bind: true, ..self }
    }
}

/// Longest time limit, about 31 years: it can be added to any point in time.
const MAX_LENGTH: Duration = Duration::from_secs(1_000_000_000);

/// Runs the job; the launcher's exit code.
pub(crate) fn run(arguments: Arguments) -> anyhow::Result<u8> {
    event_loop::run(&arguments)
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| format!("`{text}` is not a number of seconds"))?;
    let length = Duration::try_from_secs_f64(seconds).map_err(|error| format!("`{text}`: {error}"))?;
    if length > MAX_LENGTH {
        return Err(format!("`{text}` is more than {} seconds", MAX_LENGTH.as_secs()));
    }
    // Rounding must not make it "no limit".
    if length.is_zero() && seconds > 0.0 {
        return Err(format!("`{text}` is less than a nanosecond"));
    }
    Ok(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_lengths_that_can_be_added_to_a_point_in_time() {
        assert_eq!(seconds("0"), Ok(Duration::ZERO));
        assert_eq!(seconds("1.5"), Ok(Duration::from_millis(1500)));
        assert_eq!(seconds("1e9"), Ok(MAX_LENGTH));
        for bad in ["1000000001", "1.8e19", "1e300", "inf", "nan", "-1", "1e-10", "5s", ""] {
            assert!(seconds(bad).is_err(), "{bad:?}");
        }
    }
}
