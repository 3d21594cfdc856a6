//! What ranks are told and how the launcher reports what they did.

use std::{collections::BTreeSet, io::Write as _, process::Stdio, time::Instant};

use super::{launch, run_script, text};

/// Standard output of a job without prefixes, its lines sorted.
fn sorted_lines(options: &[&str], script: &str) -> Vec<String> {
    let output = run_script(&[options, &["--no-prefix"]].concat(), script);
    assert!(output.status.success(), "{output:?}");
    let mut lines: Vec<String> = text(&output.stdout).lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

#[test]
fn ranks_know_their_place() {
    let script = "echo $WARPWAY_RANK $WARPWAY_WORLD_SIZE $WARPWAY_LOCAL_RANK $WARPWAY_LOCAL_WORLD_SIZE";
    assert_eq!(sorted_lines(&["-n", "3"], script), ["0 3 0 3", "1 3 1 3", "2 3 2 3"]);
}

/// Else two ranks that wait for each other may stay on one core.
#[test]
fn ranks_have_cores_of_their_own_where_there_are_enough() {
    let cores = |options: &[&str]| sorted_lines(options, "sed -n 's/^Cpus_allowed:.//p' /proc/self/status");
    // A mask in hexadecimal, in groups of 32 bits.
    let mask = |line: &String| line.split(',').map(|word| u32::from_str_radix(word, 16).unwrap()).collect();
    let masks = |options: &[&str]| cores(options).iter().map(mask).collect::<Vec<Vec<u32>>>();
    let count = |mask: &[u32]| mask.iter().map(|word| word.count_ones()).sum::<u32>();
    let own = masks(&["-n", "1"]);
    let all = count(&own[0]);
    assert_eq!(masks(&["-n", "2", "--no-bind"]), [own[0].clone(), own[0].clone()]);
    let both = masks(&["-n", "2"]);
    if all < 2 {
        assert_eq!(both, [own[0].clone(), own[0].clone()]);
        return;
    }
    let joined: Vec<u32> = both[0].iter().zip(&both[1]).map(|(a, b)| a | b).collect();
    assert_eq!(joined, own[0]);
    assert_eq!(count(&both[0]) + count(&both[1]), all, "{both:?}");
    assert!(both.iter().all(|mask| count(mask) >= all / 2), "{both:?}");
    // More ranks than cores use all of them.
    let many = masks(&["-n", &(all + 1).to_string()]);
    assert!(many.iter().all(|mask| *mask == own[0]), "{many:?}");
}

#[test]
fn ranks_share_an_identity_and_a_secret_that_other_jobs_do_not_have() {
    let script = "echo $WARPWAY_JOB_ID $WARPWAY_BOOTSTRAP_TOKEN";
    let mut all = BTreeSet::new();
    for _ in 0..3 {
        let lines: BTreeSet<String> = sorted_lines(&["-n", "4"], script).into_iter().collect();
        assert_eq!(lines.len(), 1, "{lines:?}");
        all.extend(lines);
    }
    assert_eq!(all.len(), 3);
    for line in all {
        let (job, token) = line.split_once(' ').unwrap();
        assert_eq!((job.len(), token.len()), (16, 32));
        assert!(line.bytes().all(|byte| byte == b' ' || byte.is_ascii_hexdigit()), "{line}");
    }
}

#[test]
fn the_engine_can_be_chosen_and_another_jobs_root_is_not_inherited() {
    let script = "echo engine=$WARPWAY_ENGINE root=$WARPWAY_COMM_ID";
    let output = launch(&["-n1", "--no-prefix", "--host-memory", "--", "sh", "-c", script])
        .env("WARPWAY_COMM_ID", "10.0.0.1:1234")
        .env_remove("WARPWAY_ENGINE")
        .output()
        .unwrap();
    assert_eq!(text(&output.stdout), "engine=host root=\n");
}

#[test]
fn only_rank_zero_reads_the_input() {
    let mut command = launch(&["-n", "3", "--", "cat"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"one\ntwo\nlast").unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    assert_eq!(text(&output.stdout), "[0] one\n[0] two\n[0] last");
}

#[test]
fn the_exit_code_is_that_of_the_rank_that_failed() {
    for code in [1, 3, 77, 255] {
        let script = format!("[ $WARPWAY_RANK = 2 ] && exit {code}; exec sleep 100");
        let output = run_script(&["-n", "4"], &script);
        assert_eq!(output.status.code(), Some(code));
        let said = text(&output.stderr);
        assert!(said.contains("rank 2 (pid "), "{said}");
        assert!(
            said.contains(&format!(") exited with code {code}; sent SIGTERM to the 3 running ranks")),
            "{said}"
        );
    }
}

#[test]
fn a_rank_killed_by_a_signal_gives_128_and_the_signal() {
    for (signal, code) in [("KILL", 137), ("SEGV", 139), ("ABRT", 134)] {
        let script = format!("[ $WARPWAY_RANK = 1 ] && kill -{signal} $$; exec sleep 100");
        let output = run_script(&["-n", "3"], &script);
        assert_eq!(output.status.code(), Some(code));
        let said = text(&output.stderr);
        assert!(said.contains("rank 1 (pid "), "{said}");
        assert!(said.contains(&format!("was killed by SIG{signal}")), "{said}");
    }
}

#[test]
fn a_program_that_is_not_there_gives_127_and_one_that_may_not_run_126() {
    let missing = launch(&["-n", "4", "--", "no-such-program-anywhere"]).output().unwrap();
    assert_eq!(missing.status.code(), Some(127));
    assert!(text(&missing.stderr).contains("`no-such-program-anywhere`: not found in PATH"), "{missing:?}");
    let missing = launch(&["-n", "4", "--", "./no/such/file"]).output().unwrap();
    assert_eq!(missing.status.code(), Some(127));
    let forbidden = launch(&["-n", "4", "--", "/etc/passwd"]).output().unwrap();
    assert_eq!(forbidden.status.code(), Some(126));
    assert!(text(&forbidden.stderr).contains("not executable"), "{forbidden:?}");
}

#[test]
fn wrong_arguments_are_refused() {
    for arguments in
        [&["-n", "0", "--", "true"][..], &["-n", "2"], &["--", "true"], &["-n", "x", "--", "true"]]
    {
        assert_eq!(launch(arguments).output().unwrap().status.code(), Some(2), "{arguments:?}");
    }
}

#[test]
fn sixty_four_ranks_start_and_end() {
    let begin = Instant::now();
    let output = launch(&["-n", "64", "--", "true"]).output().unwrap();
    println!("64 ranks: {:?}", begin.elapsed());
    assert!(output.status.success());
    assert_eq!((text(&output.stdout), text(&output.stderr)), ("", ""));
}

/// The events of a job and its exit code.
fn events(n_ranks: &str, script: &str) -> (Option<i32>, Vec<serde_json::Value>) {
    let output = run_script(&["-n", n_ranks, "--json"], script);
    assert_eq!(text(&output.stderr), "");
    let lines = text(&output.stdout).lines();
    (output.status.code(), lines.map(|line| serde_json::from_str(line).unwrap()).collect())
}

#[test]
fn events_are_json_one_a_line() {
    let (code, all) = events("2", "echo out; echo err >&2");
    assert_eq!(code, Some(0));
    let count = |name: &str| all.iter().filter(|event| event["event"] == name).count();
    assert_eq!((count("started"), count("ended"), count("output"), count("finished")), (2, 2, 4, 1));
    let last = all.last().unwrap();
    assert_eq!((&last["event"], &last["exit_code"]), (&"finished".into(), &0.into()));
    assert_eq!(last["cause"], serde_json::Value::Null);
    for rank in 0..2 {
        for (stream, line) in [("stdout", "out"), ("stderr", "err")] {
            let is_it = |event: &&serde_json::Value| event["rank"] == rank && event["stream"] == stream;
            assert_eq!(all.iter().find(is_it).unwrap()["text"], line);
        }
    }

    let (code, all) = events("1", "exit 7");
    assert_eq!(code, Some(7));
    let last = all.last().unwrap();
    assert_eq!(last["cause"]["rank"]["rank"], 0);
    assert_eq!(last["cause"]["rank"]["ending"]["code"], 7);
}
