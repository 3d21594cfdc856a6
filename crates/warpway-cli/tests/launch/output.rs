//! Output arrives whole: no torn, merged, lost or doubled lines, whatever the ranks write and however slowly it
//! is read.

use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader, Read as _},
    process::Stdio,
    thread,
    time::Duration,
};

use super::{Running, launch, run_script, text};

/// Lines by rank, in order; every line must carry a rank.
fn by_rank(bytes: &[u8]) -> BTreeMap<u32, Vec<Vec<u8>>> {
    let mut ranks: BTreeMap<u32, Vec<Vec<u8>>> = BTreeMap::new();
    for line in bytes.split(|byte| *byte == b'\n') {
        if line.is_empty() {
            continue;
        }
        let close = line.iter().position(|byte| *byte == b']').expect("a rank in front");
        assert_eq!((line[0], line[close + 1]), (b'[', b' '));
        let rank = text(&line[1..close]).parse().unwrap();
        ranks.entry(rank).or_default().push(line[close + 2..].to_vec());
    }
    ranks
}

#[test]
fn heavy_output_of_many_ranks_keeps_its_lines_and_their_order() {
    // Lines of different lengths on both streams at once; awk writes in blocks that end in mid-line.
    let script = r#"
        seq 1 3000 | awk -v r=$WARPWAY_RANK '{ s = sprintf("%*s", $1 % 97, ""); print "e" r ":" $1 s "|" }' >&2 &
        seq 1 5000 | awk -v r=$WARPWAY_RANK '{ s = sprintf("%*s", $1 % 131, ""); print "o" r ":" $1 s "|" }'
        wait"#;
    let output = run_script(&["-n", "8"], script);
    assert!(output.status.success());
    for (bytes, letter, count, modulus) in [(&output.stdout, 'o', 5000, 131), (&output.stderr, 'e', 3000, 97)]
    {
        let ranks = by_rank(bytes);
        assert_eq!(ranks.keys().copied().collect::<Vec<_>>(), (0..8).collect::<Vec<_>>());
        for (rank, lines) in ranks {
            let want: Vec<Vec<u8>> = (1..=count)
                .map(|i| format!("{letter}{rank}:{i}{}|", " ".repeat(i % modulus)).into_bytes())
                .collect();
            assert!(lines == want, "rank {rank}, stream {letter}: {} lines", lines.len());
        }
    }
}

#[test]
fn lines_written_piece_by_piece_are_not_torn() {
    let script = r#"for i in 1 2 3; do printf "a$WARPWAY_RANK"; sleep 0.02; printf b; sleep 0.01; echo "c$i"; done
        printf "end$WARPWAY_RANK""#;
    let output = run_script(&["-n", "5"], script);
    for (rank, lines) in by_rank(&output.stdout) {
        let want: Vec<String> =
            (1..=3).map(|i| format!("a{rank}bc{i}")).chain([format!("end{rank}")]).collect();
        assert_eq!(lines.iter().map(|line| text(line)).collect::<Vec<_>>(), want);
    }
    assert!(!output.stdout.ends_with(b"\n"), "the very last line is passed on as it is");
}

#[test]
fn both_streams_into_one_file_do_not_tear_each_other() {
    let file = std::env::temp_dir().join(format!("warpway-launch-joined-{}", std::process::id()));
    let sink = std::fs::File::create(&file).unwrap();
    let script = r#"seq 1 2000 | awk '{ print "o" $1 }' & seq 1 2000 | awk '{ print "e" $1 }' >&2; wait"#;
    let status = launch(&["-n", "4", "--", "sh", "-c", script])
        .stdout(sink.try_clone().unwrap())
        .stderr(sink)
        .status()
        .unwrap();
    assert!(status.success());
    let ranks = by_rank(&std::fs::read(&file).unwrap());
    std::fs::remove_file(&file).unwrap();
    for rank in 0..4 {
        for letter in ["o", "e"] {
            let got: Vec<&str> =
                ranks[&rank].iter().map(|line| text(line)).filter(|line| line.starts_with(letter)).collect();
            assert_eq!(got, (1..=2000).map(|i| format!("{letter}{i}")).collect::<Vec<_>>());
        }
    }
}

#[test]
fn bytes_that_are_no_text_pass_unchanged() {
    let script = r"printf '\000\377\033[1m\r\n\200'";
    let output = run_script(&["-n", "1"], script);
    assert_eq!(output.stdout, b"[0] \0\xff\x1b[1m\r\n[0] \x80");
    // A megabyte with every byte value, without prefixes: not one byte more or less.
    let output =
        launch(&["-n1", "--no-prefix", "--", "head", "-c", "1000003", "/dev/urandom"]).output().unwrap();
    assert_eq!(output.stdout.len(), 1_000_003);
    let mut command = launch(&["-n1", "--no-prefix", "--", "cat"]);
    let file = std::env::temp_dir().join(format!("warpway-launch-binary-{}", std::process::id()));
    std::fs::write(&file, &output.stdout).unwrap();
    let copied = command.stdin(std::fs::File::open(&file).unwrap()).output().unwrap();
    std::fs::remove_file(&file).unwrap();
    assert!(copied.stdout == output.stdout);
}

#[test]
fn long_lines_stay_whole() {
    let script = r#"head -c 3000017 /dev/zero | tr '\0' "$WARPWAY_RANK"; echo"#;
    let output = run_script(&["-n", "4"], script);
    let ranks = by_rank(&output.stdout);
    assert_eq!(ranks.len(), 4);
    for (rank, lines) in ranks {
        assert_eq!(lines.len(), 1);
        assert!(lines[0] == vec![b'0' + rank as u8; 3_000_017], "rank {rank}: {} bytes", lines[0].len());
    }
}

#[test]
fn a_slow_reader_slows_the_ranks_and_loses_nothing() {
    let mut running = Running::start(&mut launch(&["-n", "2", "--", "seq", "1", "400000"]));
    let mut stdout = running.0.stdout.take().unwrap();
    // More than all buffers on the way hold.
    thread::sleep(Duration::from_millis(300));
    assert!(running.0.try_wait().unwrap().is_none(), "ended although nobody read its output");
    let mut all = Vec::new();
    stdout.read_to_end(&mut all).unwrap();
    assert!(running.wait().success());
    let want: Vec<Vec<u8>> = (1..=400_000).map(|i: u32| i.to_string().into_bytes()).collect();
    for (rank, lines) in by_rank(&all) {
        assert!(lines == want, "rank {rank}: {} lines", lines.len());
    }
}

#[test]
fn a_reader_that_leaves_ends_the_job() {
    let mut running = Running::start(&mut launch(&["-n", "3", "--", "yes"]));
    let mut reader = BufReader::new(running.0.stdout.take().unwrap());
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    assert!(line.ends_with("] y\n"), "{line}");
    drop(reader);
    // As in `yes | head -1`: killed by SIGPIPE.
    assert_eq!(running.wait().code(), Some(141));
}

#[test]
fn output_of_a_failing_rank_is_not_lost() {
    let script = "seq 1 20000; echo reason >&2; exit 9";
    for _ in 0..5 {
        let mut command = launch(&["-n", "2", "--", "sh", "-c", script]);
        let output = command.stdin(Stdio::null()).output().unwrap();
        assert_eq!(output.status.code(), Some(9));
        let failed = text(&output.stderr).split("rank ").nth(1).unwrap()[..1].parse::<u32>().unwrap();
        assert_eq!(by_rank(&output.stdout)[&failed].len(), 20_000);
        assert!(text(&output.stderr).contains(&format!("[{failed}] reason\n")));
    }
}
