//! Nothing outlives the job: ranks, what they started, and what tried to get away.

use std::{
    io::{BufRead as _, BufReader},
    process::{Command, Output},
    time::{Duration, Instant},
};

use super::{Running, eventually, kill, launch, mark, processes_with, run_script, text};

/// A rank that starts a process in its group and one that leaves it, then waits.
const FAMILY: &str = "sleep 1000 & setsid sleep 1000 & echo ready; wait; wait";

/// A job of three ranks with their families, when all of them run.
fn start_families(test: &str, options: &[&str], script: &str) -> (Running, String) {
    let (name, value, entry) = mark(test);
    let arguments = [&["-n", "3"], options, &["--", "sh", "-c", script]].concat();
    let mut running = Running::start(launch(&arguments).env(name, value));
    let mut reader = BufReader::new(running.0.stdout.take().unwrap());
    for _ in 0..3 {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        assert!(line.contains("ready"), "{line}");
    }
    running.0.stdout = Some(reader.into_inner());
    // The launcher itself, and three shells with two children each.
    eventually("all processes run", || processes_with(&entry).len() >= 10);
    (running, entry)
}

#[test]
fn a_failing_rank_takes_everybody_along() {
    let (name, value, entry) = mark("failing");
    let script = format!("[ $WARPWAY_RANK = 1 ] && sleep 0.2 && exit 5; {FAMILY}");
    let output = launch(&["-n", "3", "--", "sh", "-c", &script]).env(name, value).output().unwrap();
    assert_eq!(output.status.code(), Some(5));
    assert_eq!(processes_with(&entry), Vec::<u32>::new());
}

#[test]
fn ranks_have_time_to_say_what_they_saw_of_a_failure() {
    let script = "[ $WARPWAY_RANK = 0 ] && exit 4; sleep 0.3; echo noticed; exit 42";
    let output = run_script(&["-n", "3", "--wait", "60"], script);
    assert_eq!(output.status.code(), Some(4));
    let mut lines: Vec<&str> = text(&output.stdout).lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["[1] noticed", "[2] noticed"]);
    assert!(!text(&output.stderr).contains("SIGTERM"), "{}", text(&output.stderr));
}

#[test]
fn without_a_wait_ranks_are_ended_at_once() {
    let script = "[ $WARPWAY_RANK = 0 ] && exit 4; exec sleep 1000";
    let output = run_script(&["-n", "2", "--wait", "0"], script);
    assert_eq!(output.status.code(), Some(4));
    assert!(text(&output.stderr).contains("sent SIGTERM to the 1 running rank"), "{}", text(&output.stderr));
}

/// Rank 0 fails once ranks 1 and 2 are prepared for SIGTERM by `trap`.
fn fail_when_prepared(trap: &str) -> Output {
    let folder = std::env::temp_dir().join(format!("warpway-launch-grace-{}", std::process::id()));
    std::fs::create_dir(&folder).unwrap();
    let script = format!(
        "cd {}
        if [ $WARPWAY_RANK = 0 ]; then until [ -e 1 ] && [ -e 2 ]; do sleep 0.01; done; exit 4; fi
        trap {trap} TERM; touch $WARPWAY_RANK; while :; do sleep 0.05; done",
        folder.display()
    );
    let output = run_script(&["-n", "3", "--grace", "0.6"], &script);
    std::fs::remove_dir_all(&folder).unwrap();
    output
}

#[test]
fn ranks_that_ignore_sigterm_are_killed_after_the_grace_period() {
    let begin = Instant::now();
    let output = fail_when_prepared("''");
    assert_eq!(output.status.code(), Some(4));
    assert!(begin.elapsed() >= Duration::from_millis(600));
    assert!(text(&output.stderr).contains("sent SIGKILL to ranks 1 and 2"), "{}", text(&output.stderr));
}

#[test]
fn ranks_may_use_the_grace_period() {
    let output = fail_when_prepared("'echo saved; exit 0'");
    assert_eq!(output.status.code(), Some(4));
    let mut lines: Vec<&str> = text(&output.stdout).lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["[1] saved", "[2] saved"]);
}

#[test]
fn a_signal_to_the_launcher_ends_the_job() {
    for (signal, code) in [("TERM", 143), ("INT", 130), ("HUP", 129), ("QUIT", 131)] {
        // QUIT and INT are ignored by what a shell without job control puts into the background: the grace
        // period must do.
        let (mut running, entry) = start_families(signal, &["--grace", "0.5"], FAMILY);
        kill(running.pid(), signal);
        assert_eq!(running.wait().code(), Some(code), "{signal}");
        assert_eq!(processes_with(&entry), Vec::<u32>::new(), "{signal}");
        assert!(running.stderr().contains(&format!("got SIG{signal}")));
    }
}

#[test]
fn a_second_interrupt_does_not_wait_for_the_grace_period() {
    let script =
        "trap 'echo got it' INT; sh -c 'echo ready; sleep 1000' & sleep 1000 & while :; do wait; done";
    let (mut running, entry) = start_families("second", &["--grace", "1000"], script);
    kill(running.pid(), "INT");
    let mut stdout = BufReader::new(running.0.stdout.take().unwrap());
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    assert!(line.contains("got it"), "{line}");
    kill(running.pid(), "INT");
    assert_eq!(running.wait().code(), Some(130));
    assert_eq!(processes_with(&entry), Vec::<u32>::new());
}

#[test]
fn the_death_of_the_launcher_is_the_death_of_all() {
    let (mut running, entry) = start_families("killed", &[], FAMILY);
    kill(running.pid(), "KILL");
    running.wait();
    eventually("no process is left", || processes_with(&entry).is_empty());
}

#[test]
fn a_launcher_within_a_job_cleans_up_behind_itself() {
    let inner =
        format!("{} launch -n 2 -- sh -c 'sleep 1000 & wait' & {FAMILY}", env!("CARGO_BIN_EXE_warpway"));
    let (mut running, entry) = start_families("nested", &[], &inner);
    eventually("the inner ranks run", || processes_with(&entry).len() >= 10 + 3 * 5);
    kill(running.pid(), "KILL");
    running.wait();
    eventually("no process is left", || processes_with(&entry).is_empty());
}

#[test]
fn what_a_successful_job_leaves_behind_is_ended() {
    let (name, value, entry) = mark("leftover");
    let script = "sleep 1000 & setsid sleep 1000 >/dev/null 2>&1 & echo done";
    let output = launch(&["-n", "2", "--", "sh", "-c", script]).env(name, value).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(processes_with(&entry), Vec::<u32>::new());
    assert!(text(&output.stderr).contains("processes that ranks left behind"));
}

#[test]
fn what_finishes_soon_after_its_rank_may_finish() {
    let script = "(sleep 0.3; echo late) & echo early";
    let output = run_script(&["-n", "2"], script);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(text(&output.stdout).matches("late").count(), 2, "{}", text(&output.stdout));
    assert_eq!(text(&output.stderr), "");
}

#[test]
fn a_job_that_takes_too_long_is_ended() {
    let output = run_script(&["-n", "2", "--timeout", "0.3"], "exec sleep 1000");
    assert_eq!(output.status.code(), Some(124));
    assert!(text(&output.stderr).contains("not done after 0.3 s"), "{}", text(&output.stderr));
}

#[test]
fn user_signals_reach_every_rank() {
    let script = "trap 'echo one' USR1; trap 'echo two; exit 0' USR2; sleep 1000 & sleep 1000 & echo ready
        while :; do wait; done";
    let (mut running, _) = start_families("user", &["--grace", "0.5"], script);
    let mut lines = BufReader::new(running.0.stdout.take().unwrap()).lines();
    kill(running.pid(), "USR1");
    let mut got: Vec<String> = lines.by_ref().take(3).map(Result::unwrap).collect();
    got.sort();
    assert_eq!(got, ["[0] one", "[1] one", "[2] one"]);
    kill(running.pid(), "USR2");
    let mut got: Vec<String> = lines.by_ref().take(3).map(Result::unwrap).collect();
    got.sort();
    assert_eq!(got, ["[0] two", "[1] two", "[2] two"]);
}

#[test]
fn a_stopped_job_stops_and_goes_on() {
    // All in their ranks' groups: what has left them is out of reach for a terminal, too.
    let script = "sleep 1000 & sleep 1000 & echo ready; wait";
    let (mut running, entry) = start_families("stopped", &["--grace", "0.5"], script);
    let states = || -> String {
        let state = |pid: &u32| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next())
        };
        processes_with(&entry).iter().filter_map(state).collect()
    };
    kill(running.pid(), "TSTP");
    eventually("the job is stopped", || states() == "T".repeat(10));
    kill(running.pid(), "CONT");
    eventually("the job goes on", || !states().contains('T'));
    kill(running.pid(), "TERM");
    assert_eq!(running.wait().code(), Some(143));
}

#[test]
fn signals_ignored_at_the_start_stay_ignored() {
    let script = format!(
        "trap '' HUP; exec {} launch -n 1 -- sh -c 'echo ready; sleep 0.5; echo survived'",
        env!("CARGO_BIN_EXE_warpway")
    );
    let mut running = Running::start(Command::new("sh").args(["-c", &script]));
    let mut lines = BufReader::new(running.0.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "[0] ready");
    kill(running.pid(), "HUP");
    assert_eq!(lines.next().unwrap().unwrap(), "[0] survived");
    assert_eq!(running.wait().code(), Some(0));
}

#[test]
fn a_guard_that_is_killed_is_replaced() {
    let (mut running, entry) = start_families("guard", &[], FAMILY);
    let children = || -> Vec<u32> {
        let path = format!("/proc/{0}/task/{0}/children", running.pid());
        std::fs::read_to_string(path).unwrap().split_whitespace().map(|pid| pid.parse().unwrap()).collect()
    };
    let is_guard = |pid: &u32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|word| word == b"launch-guard")
    };
    let first = children().into_iter().find(is_guard).expect("a guard");
    kill(first, "KILL");
    eventually("another guard", || children().iter().any(|pid| *pid != first && is_guard(pid)));
    // Its list of groups is written right after it was started.
    kill(running.pid(), "KILL");
    running.wait();
    eventually("no process is left", || processes_with(&entry).is_empty());
}
