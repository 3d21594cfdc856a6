//! Arguments, environments and peers that do not fit: errors where they are made, and nothing else.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "test code, which the lints do not recognise outside of #[test]"
)]

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use warpway::core::bootstrap::NameFilter;
use warpway::{Config, Environment, ErrorCode, UniqueIdRoot};
use warpway_tests::{End, Job, Leftovers, Meeting, Settings};

const WAYS: [&str; 2] = ["shared", "tcp"];

fn run(settings: &Settings) -> Vec<End> {
    Job::start(env!("CARGO_BIN_EXE_rank"), settings).finish(&[], &Leftovers::default())
}

#[test]
fn calls_out_of_range_are_refused_and_change_nothing() {
    for way in WAYS {
        run(&Settings::new(2, &format!("misuse {way}"))).iter().for_each(End::succeeded);
    }
}

#[test]
fn exchanges_that_do_not_fit_tell_both_sides() {
    for way in WAYS {
        for end in run(&Settings::new(2, &format!("mismatch {way}"))) {
            end.succeeded();
            let fault = end.met()[0].clone();
            assert_eq!(fault.id, "exchange.mismatch", "{way}: {fault:?}");
            assert_eq!(fault.culprit, Some(1 - end.rank), "{way}: {fault:?}");
            for call in ["build_semaphore", "memory"] {
                assert!(fault.message.contains(call), "{way}: {fault:?}");
            }
        }
    }
}

#[test]
fn different_world_sizes_are_refused() {
    for meeting in [Meeting::Unix, Meeting::Tcp] {
        let mut settings = Settings { meeting, ..Settings::new(3, "barrier").impatient() };
        settings.overrides.push((2, "WARPWAY_WORLD_SIZE", "5".into()));
        settings.overrides.push((2, "WARPWAY_LOCAL_WORLD_SIZE", "5".into()));
        if meeting == Meeting::Tcp {
            settings.overrides.pop();
        }
        for end in run(&settings) {
            let fault = end.fault();
            assert_eq!((fault.id.as_str(), fault.culprit), ("bootstrap.refused", Some(2)), "{fault:?}");
            assert!(fault.message.contains('5') && fault.message.contains('3'), "{fault:?}");
        }
    }
}

#[test]
fn two_ranks_with_one_number_are_refused() {
    for meeting in [Meeting::Unix, Meeting::Tcp] {
        let mut settings = Settings { meeting, ..Settings::new(3, "barrier").impatient() };
        settings.overrides.push((2, "WARPWAY_RANK", "1".into()));
        for end in run(&settings) {
            let fault = end.fault();
            assert_eq!((fault.id.as_str(), fault.culprit), ("bootstrap.refused", Some(1)), "{fault:?}");
        }
    }
}

/// Nobody who lacks the token gets in; those inside miss him.
#[test]
fn a_wrong_token_does_not_get_in() {
    for meeting in [Meeting::Unix, Meeting::Tcp] {
        let mut settings = Settings { meeting, ..Settings::new(3, "barrier").impatient() };
        settings.overrides.push((2, "WARPWAY_BOOTSTRAP_TOKEN", "guessed".into()));
        let ends = run(&settings);
        for end in &ends[..2] {
            let fault = end.fault();
            assert_eq!((fault.id.as_str(), fault.culprit), ("bootstrap.missing", Some(2)), "{fault:?}");
            assert_eq!(fault.code, ErrorCode::Timeout as i32);
        }
        let fault = ends[2].fault();
        let ids = ["bootstrap.authentication", "bootstrap.unreachable"];
        assert!(ids.contains(&fault.id.as_str()), "{meeting:?}: {fault:?}");
    }
}

#[test]
fn a_rank_that_never_comes_is_named() {
    for meeting in [Meeting::Unix, Meeting::Tcp] {
        let settings = Settings { started: 2, meeting, ..Settings::new(3, "barrier").impatient() };
        for end in run(&settings) {
            let fault = end.fault();
            assert_eq!((fault.id.as_str(), fault.culprit), ("bootstrap.missing", Some(2)), "{fault:?}");
        }
    }
}

#[test]
fn a_used_unique_id_starts_no_second_job() {
    let mut config = Config::builder().read(&Environment::default()).unwrap().config;
    config.socket_ifname = NameFilter::Exact(vec!["lo".into()]);
    let root = UniqueIdRoot::create(&config).unwrap();
    let digits: String = root.id().to_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    let settings = Settings::new(3, &format!("join-id {digits}")).impatient();
    run(&settings).iter().for_each(End::succeeded);
    for end in run(&settings) {
        let fault = end.fault();
        let ids = ["bootstrap.refused", "bootstrap.unreachable", "bootstrap.authentication"];
        assert!(ids.contains(&fault.id.as_str()), "{fault:?}");
    }
}

/// Strangers at every socket of a job: silent ones, noisy ones, and ones that hang up at once.
#[test]
fn strangers_do_not_disturb_a_job() {
    for (way, meeting) in [("shared", Meeting::Unix), ("tcp", Meeting::Tcp)] {
        let settings = Settings { meeting, ..Settings::new(3, &format!("work {way} 2500")) };
        let mut job = Job::start(env!("CARGO_BIN_EXE_rank"), &settings);
        let processes = job.processes();
        let leftovers = Leftovers::default();
        let stop = AtomicBool::new(false);
        let (sockets, strangers) = std::thread::scope(|scope| {
            let crowd = scope.spawn(|| strangers::crowd(&processes, &stop));
            job.await_mark(0..3, "working");
            std::thread::sleep(Duration::from_millis(1500));
            leftovers.observe(&processes);
            stop.store(true, Ordering::Relaxed);
            crowd.join().unwrap()
        });
        println!("{way}: {strangers} strangers at {sockets:?}");
        // Several at each socket; how many there is time for depends on the machine.
        assert!(strangers >= 40, "{strangers} strangers only");
        // Status, links and descriptors of each rank; TCP engines and meshes where they are in use.
        assert!(sockets.0 >= 6 && (way == "shared" || sockets.1 >= 3), "{sockets:?}");
        job.finish(&[], &leftovers).iter().for_each(End::succeeded);
    }
}

mod strangers {
    use std::collections::BTreeSet;
    use std::io::{Read, Write};
    use std::net::TcpStream;
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixStream};
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use warpway_tests::{byte, listeners};

    /// Visits all sockets of the processes until told to stop: how many there were (abstract ones, TCP
    /// ones), and how many visits.
    pub(super) fn crowd(processes: &[u32], stop: &AtomicBool) -> ((usize, usize), u64) {
        let (mut unix, mut tcp) = (BTreeSet::new(), BTreeSet::new());
        // The silent ones stay; few enough that they are no flood.
        let mut silent: Vec<Box<dyn Send>> = Vec::new();
        let mut visits = 0;
        while !stop.load(Ordering::Relaxed) {
            let (names, addresses) = listeners(processes);
            for name in names {
                let known = !unix.insert(name.clone());
                let Ok(address) = SocketAddr::from_abstract_name(&name) else { continue };
                visits += 1;
                if let Ok(stream) = UnixStream::connect_addr(&address) {
                    stream.set_nonblocking(true).unwrap();
                    visit(stream, visits, known, &mut silent);
                }
            }
            for address in addresses {
                let known = !tcp.insert(address);
                visits += 1;
                if let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_millis(200)) {
                    stream.set_nonblocking(true).unwrap();
                    visit(stream, visits, known, &mut silent);
                }
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        ((unix.len(), tcp.len()), visits)
    }

    fn visit(
        mut stream: impl Read + Write + Send + 'static,
        number: u64,
        known: bool,
        silent: &mut Vec<Box<dyn Send>>,
    ) {
        if !known {
            silent.push(Box::new(stream));
            return;
        }
        let noise: Vec<u8> = (0..number * 37 % 70_000).map(|at| byte(number, 0, at)).collect();
        let _ = match number % 4 {
            // Says that a very long message follows.
            0 => stream.write(&[0xff; 16]),
            // Says that a short one follows, and hangs up in its middle.
            1 => stream.write(&[40, 0, 0, 0, 1, 2, 3]),
            2 => Ok(0),
            _ => stream.write(&noise),
        };
        let _ = stream.read(&mut [0; 64]);
    }
}
