//! Arguments and variables out of range: one line that says what is wrong, and an exit code of its own.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::{Command, Output, Stdio};

fn warpway(arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_warpway"));
    command.args(arguments).envs(variables.iter().copied()).stdin(Stdio::null()).output().unwrap()
}

/// The exit code and what was said, after making sure that nobody panicked or was killed.
fn refused(arguments: &[&str], variables: &[(&str, &str)]) -> (i32, String) {
    let output = warpway(arguments, variables);
    let said = String::from_utf8(output.stderr).unwrap();
    for word in ["panicked", "memory allocation", "was killed by"] {
        assert!(!said.contains(word), "{arguments:?} {variables:?}: {said}");
    }
    (output.status.code().unwrap(), said)
}

#[test]
fn lengths_of_time_that_cannot_be_waited_for() {
    for option in ["--grace", "--timeout"] {
        for value in ["1.8e19", "1000000001", "nan", "1e-10"] {
            let (code, said) = refused(&["launch", "-n", "1", option, value, "--", "false"], &[]);
            assert_eq!(code, 2, "{said}");
            assert!(said.contains(option) && said.contains(value), "{said}");
        }
    }
    // The longest that is allowed works, also where it is added to the time of day.
    let longest = ["launch", "-n", "2", "--grace", "1e9", "--timeout", "1e9", "--", "sh", "-c", "exit 3"];
    assert_eq!(refused(&longest, &[]).0, 3);
}

#[test]
fn sizes_and_numbers_of_the_benchmarks() {
    for (option, value) in [
        ("--max-bytes", "18446744073709551615"),
        ("--max-bytes", "1025G"),
        ("--producers", "0"),
        ("--producers", "1000000"),
        ("--factor", "1"),
        ("--ranks", "0"),
    ] {
        let (code, said) = refused(&["bench", "put", "fifo", option, value], &[]);
        assert_eq!(code, 2, "{said}");
        assert!(said.contains(option) && said.contains(value), "{said}");
    }
    let (code, said) = refused(&["bench", "put", "-n", "1", "--max-bytes", "8"], &[]);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("use -n 2"), "{said}");
}

/// Tables of that size are not even tried: an allocation that fails ends the process.
#[test]
fn sizes_in_the_environment() {
    let bench = ["bench", "put", "-n", "2", "--transport", "tcp", "--max-bytes", "8", "--batches", "1"];
    for size in ["0", "1", "3", "2097152", "1073741824", "9223372036854775808"] {
        let (code, said) = refused(&bench, &[("WARPWAY_FIFO_SIZE", size)]);
        assert_eq!(code, 1, "{said}");
        assert!(said.contains("WARPWAY_FIFO_SIZE") && said.contains("1048576"), "{said}");
    }
    for size in ["0", "1048577", "4294967295"] {
        let rank = [("WARPWAY_RANK", "0"), ("WARPWAY_WORLD_SIZE", size), ("WARPWAY_LOCAL_WORLD_SIZE", size)];
        let (code, said) = refused(&bench, &rank);
        assert_eq!(code, 1, "{said}");
        assert!(said.contains("WARPWAY_WORLD_SIZE") && said.contains("1048576"), "{said}");
    }
    // By another launcher's variables.
    let (code, said) = refused(
        &bench,
        &[
            ("RANK", "0"),
            ("WORLD_SIZE", "4294967295"),
            ("LOCAL_WORLD_SIZE", "4294967295"),
            ("TORCHELASTIC_RUN_ID", "x"),
        ],
    );
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("1 to 1048576"), "{said}");
}
