//! The tutorials: every program runs and prints what its page shows, and every sample on a page is a part of
//! its program.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};

/// How long ranks may take on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a rank printed, and how it ended.
struct Ended {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

/// Processes that end with the test.
struct Ranks(Vec<Child>);

impl Ranks {
    fn start(commands: impl IntoIterator<Item = Command>) -> Self {
        let start = |mut command: Command| {
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
            command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"))
        };
        Self(commands.into_iter().map(start).collect())
    }

    fn join(mut self) -> Vec<Ended> {
        let begin = Instant::now();
        while self.0.iter_mut().any(|child| child.try_wait().unwrap().is_none()) {
            assert!(begin.elapsed() < PATIENCE, "the ranks have not ended within {PATIENCE:?}");
            thread::sleep(Duration::from_millis(10));
        }
        let children = std::mem::take(&mut self.0);
        children
            .into_iter()
            .map(|child| {
                let output = child.wait_with_output().unwrap();
                let [stdout, stderr] =
                    [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
                Ended { code: output.status.code(), stdout, stderr }
            })
            .collect()
    }
}

impl Drop for Ranks {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The built example; `cargo test` and `cargo nextest run` build examples with the tests of a package.
fn example(name: &str) -> Command {
    let test = std::env::current_exe().unwrap();
    let program = test.parent().unwrap().with_file_name("examples").join(name);
    assert!(program.exists(), "{} is not built: cargo build -p warpway --examples", program.display());
    let mut command = Command::new(program);
    command.env_clear();
    command
}

/// Runs ranks of an example with the environment that a launcher gives them.
fn launched(name: &str, arguments: &[&str], n_ranks: u32) -> Vec<Ended> {
    Ranks::start(ranks(name, arguments, n_ranks)).join()
}

fn ranks(name: &str, arguments: &[&str], n_ranks: u32) -> Vec<Command> {
    let job = format!("tutorial-{name}-{}-{}", arguments.join("-"), std::process::id());
    let rank = |rank: u32| {
        let mut command = example(name);
        command.args(arguments);
        for (variable, value) in [
            ("RANK", rank.to_string()),
            ("WORLD_SIZE", n_ranks.to_string()),
            ("LOCAL_RANK", rank.to_string()),
            ("LOCAL_WORLD_SIZE", n_ranks.to_string()),
            ("JOB_ID", job.clone()),
            ("BOOTSTRAP_TOKEN", job.clone()),
        ] {
            command.env(format!("WARPWAY_{variable}"), value);
        }
        command
    };
    (0..n_ranks).map(rank).collect()
}

/// All ranks succeeded and said nothing but `expected`, one line each, in the order of ranks.
fn assert_printed(ended: &[Ended], expected: &[&str]) {
    let text: Vec<_> =
        ended.iter().map(|rank| (rank.code, rank.stdout.as_str(), rank.stderr.as_str())).collect();
    let lines: Vec<_> = expected.iter().map(|line| format!("{line}\n")).collect();
    let wanted: Vec<_> = lines.iter().map(|line| (Some(0), line.as_str(), "")).collect();
    assert_eq!(text, wanted);
}

fn page(name: &str) -> String {
    let path = tutorials().join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn tutorials() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/tutorials")
}

/// The contents of the page's fenced blocks of one language.
fn blocks<'a>(page: &'a str, language: &str) -> Vec<&'a str> {
    let begin = format!("```{language}\n");
    page.split(&begin).skip(1).map(|rest| rest.split("```").next().unwrap()).collect()
}

/// Lines without indentation, as a page shows parts of a program.
fn flat(text: &str) -> String {
    text.lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .fold(String::new(), |all, line| all + line + "\n")
}

/// The lines that the page's `text` blocks show, without the launcher's prefixes.
fn shown(page: &str) -> Vec<&str> {
    let lines = blocks(page, "text").into_iter().flat_map(str::lines);
    lines
        .map(|line| line.split_once("] ").filter(|(tag, _)| tag.starts_with('[')).map_or(line, |(_, l)| l))
        .collect()
}

/// Numbers that differ from run to run (times, positions) made equal.
fn without_times(line: &str) -> String {
    let words = line.split(' ').collect::<Vec<_>>();
    let is_time = |at: usize| words.get(at + 1).is_some_and(|next| next.starts_with("s:"));
    let words = words.iter().enumerate().map(|(at, word)| if is_time(at) { "T" } else { word });
    words.collect::<Vec<_>>().join(" ")
}

#[test]
fn samples_on_the_pages_are_parts_of_the_programs() {
    for (name, program) in [
        ("01-ping-pong.md", "ping_pong"),
        ("02-processes.md", "processes"),
        ("03-memory-channel.md", "memory_channel"),
        ("04-port-channel.md", "port_channel"),
        ("05-all-gather.md", "all_gather"),
        ("06-plans.md", "all_reduce_plan"),
        ("07-gpu.md", "gpu_channels"),
        ("08-gpu-ports.md", "gpu_all_gather"),
        ("09-collectives.md", "all_reduce"),
    ] {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("examples/{program}.rs"));
        let source = flat(&fs::read_to_string(source).unwrap());
        let page = page(name);
        let samples = blocks(&page, "rust");
        assert!(!samples.is_empty(), "{name} shows nothing of its program");
        for sample in samples {
            assert!(source.contains(&flat(sample)), "{name}: not a part of {program}.rs:\n{sample}");
        }
    }
}

#[test]
fn kernels_on_the_pages_are_those_of_the_programs() {
    for (name, program, count) in
        [("07-gpu.md", "gpu_channels.cu", 3), ("08-gpu-ports.md", "gpu_all_gather.cu", 2)]
    {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples").join(program);
        let source = flat(&fs::read_to_string(source).unwrap());
        let page = page(name);
        let kernels = blocks(&page, "cuda");
        assert_eq!(kernels.len(), count, "{name}");
        for kernel in kernels {
            assert!(source.contains(&flat(kernel)), "{name}: not a part of {program}:\n{kernel}");
        }
    }
}

/// As threads and as processes, by each transport; what they do on a GPU is the suite `examples` of the GPU bundle.
#[test]
fn gpu_programs_without_a_gpu() {
    let without_driver = |mut rank: Command| {
        rank.env("WARPWAY_CUDA_DRIVER", "/nowhere/libcuda.so.1");
        rank
    };
    let programs: [(&str, &[&str]); 4] = [
        ("gpu_channels", &[]),
        ("gpu_all_gather", &[]),
        ("gpu_all_gather", &["tcp"]),
        ("gpu_all_gather", &["tcp", "5"]),
    ];
    for (name, arguments) in programs {
        let mut threads = example(name);
        threads.args(arguments);
        let processes = ranks(name, arguments, 2).into_iter().chain([threads]);
        let ended = Ranks::start(processes.map(without_driver)).join();
        assert_eq!(ended.len(), 3);
        for Ended { code, stdout, stderr } in ended {
            assert_eq!((code, stdout.as_str()), (Some(1), ""), "{name}: {stderr}");
            assert!(stderr.starts_with("Error: the CUDA driver is unavailable: "), "{name}: {stderr}");
            let what_to_do = "unset WARPWAY_CUDA_DRIVER or name the NVIDIA driver by it";
            assert!(stderr.contains(what_to_do), "{name}: {stderr}");
        }
    }
}

/// Whoever has started the processes: a rank that is alone says that it needs others, and starts no threads instead.
#[test]
fn gpu_programs_know_launchers() {
    let torchrun =
        [("RANK", "0"), ("WORLD_SIZE", "1"), ("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", "29500")];
    let open_mpi = [("OMPI_COMM_WORLD_RANK", "0"), ("OMPI_COMM_WORLD_SIZE", "1")];
    let warpway = [("WARPWAY_RANK", "0"), ("WARPWAY_WORLD_SIZE", "1")];
    let launchers: [&[(&str, &str)]; 3] = [&torchrun, &open_mpi, &warpway];
    let programs = [
        ("gpu_channels", "this program is for 2 ranks, not 1"),
        ("gpu_all_gather", "an all-gather takes at least 2 ranks"),
    ];
    for (name, words) in programs {
        for variables in launchers {
            let mut rank = example(name);
            rank.envs(variables.iter().copied());
            let ended = Ranks::start([rank]).join();
            let Ended { code, stderr, .. } = &ended[0];
            assert_eq!(*code, Some(1), "{name} {variables:?}: {stderr}");
            assert!(stderr.starts_with(&format!("Error: {words}")), "{name} {variables:?}: {stderr}");
        }
    }
}

#[test]
fn ping_pong() {
    let ended = Ranks::start([example("ping_pong")]).join();
    let page = page("01-ping-pong.md");
    assert_printed(&ended, &[&shown(&page).join("\n")]);
}

#[test]
fn processes_under_a_launcher() {
    let page = page("02-processes.md");
    assert_printed(&launched("processes", &[], 4), &shown(&page)[..4]);
}

/// Starts the ranks of tutorial 2 by hand; the last one with a further argument.
fn by_hand(test: &str, n_ranks: usize, last: &[&str]) -> Vec<Ended> {
    let folder = std::env::temp_dir().join(format!("warpway-{test}-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let ended = Ranks::start((0..n_ranks).map(|rank| {
        let mut command = example("processes");
        command.arg(folder.join("id")).args([rank.to_string(), n_ranks.to_string()]);
        if rank == n_ranks - 1 {
            command.args(last);
        }
        command
    }))
    .join();
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0, "rank 0 removes the id");
    fs::remove_dir(&folder).unwrap();
    ended
}

#[test]
fn processes_by_hand() {
    let ended = by_hand("by-hand", 3, &[]);
    let lines: Vec<_> =
        (0..3).map(|rank| format!("rank {rank}: the process ids of 3 ranks are where they belong")).collect();
    assert_printed(&ended, &lines.iter().map(String::as_str).collect::<Vec<_>>());
}

/// The survivor ends by itself, with the message that the page shows.
#[test]
fn a_rank_that_dies() {
    let ended = by_hand("dies", 2, &["die"]);
    assert_eq!((ended[1].code, ended[1].stdout.as_str(), ended[1].stderr.as_str()), (Some(7), "", ""));
    assert_eq!((ended[0].code, ended[0].stdout.as_str()), (Some(1), ""), "{}", ended[0].stderr);
    let page = page("02-processes.md");
    let shown = without_times(shown(&page)[4]);
    let found = without_times(ended[0].stderr.trim_end());
    assert_eq!(found, shown);
}

#[test]
fn memory_channel() {
    let page = page("03-memory-channel.md");
    assert_printed(&launched("memory_channel", &[], 2), &shown(&page));
}

#[test]
fn port_channel_over_both_transports() {
    let page = page("04-port-channel.md");
    assert_printed(&launched("port_channel", &["shared"], 2), &shown(&page)[..2]);
    assert_printed(&launched("port_channel", &["tcp"], 2), &shown(&page)[2..]);
}

#[test]
fn all_gather() {
    let page = page("05-all-gather.md");
    assert_printed(&launched("all_gather", &[], 4), &shown(&page));
}

#[test]
fn collectives_of_the_library() {
    let page = page("09-collectives.md");
    assert_printed(&launched("all_reduce", &[], 4), &shown(&page));
}

#[test]
fn plans_run_by_processes() {
    let page = page("06-plans.md");
    assert_printed(&launched("all_reduce_plan", &[], 4), &shown(&page)[..4]);
}

/// Every command of the page with the program prints the block behind it, `…` standing for lines left out.
#[test]
fn plans_that_are_wrong_and_right() {
    let page = page("06-plans.md");
    let mut codes = Vec::new();
    for rest in page.split("```sh\ntarget/release/examples/all_reduce_plan ").skip(1) {
        let arguments: Vec<&str> = rest.lines().next().unwrap().split(' ').collect();
        if arguments.contains(&">") {
            continue;
        }
        let mut command = example("all_reduce_plan");
        command.args(&arguments);
        let ended = &Ranks::start([command]).join()[0];
        let printed = format!("{}{}", ended.stdout, ended.stderr);
        let [first, pieces @ ..] = &blocks(rest, "text")[0].split("…\n").collect::<Vec<_>>()[..] else {
            unreachable!("split gives at least one piece");
        };
        assert!(printed.starts_with(first), "{arguments:?} prints\n{printed}instead of\n{first}");
        match pieces {
            [] => assert_eq!(printed, *first, "{arguments:?}"),
            [last] => assert!(printed[first.len()..].ends_with(last), "{arguments:?} prints\n{printed}"),
            _ => unreachable!("{arguments:?}: one gap"),
        }
        codes.push((arguments.join(" "), ended.code.unwrap()));
    }
    let expected = [
        ("verify none", 0),
        ("verify nop", 0),
        ("verify order", 0),
        ("verify opening", 0),
        ("verify wait", 1),
        ("threads", 0),
        ("threads nop", 1),
    ];
    assert_eq!(codes, expected.map(|(arguments, code)| (arguments.to_owned(), code)));
}

#[test]
fn programs_for_two_ranks_say_so() {
    for (name, says) in [
        ("memory_channel", "this program is for 2 ranks, not 1"),
        ("gpu_channels", "this program is for 2 ranks, not 1"),
        ("gpu_all_gather", "an all-gather takes at least 2 ranks"),
    ] {
        let ended = launched(name, &[], 1);
        assert_eq!((ended[0].code, ended[0].stderr.as_str()), (Some(1), &*format!("Error: {says}\n")));
    }
}
