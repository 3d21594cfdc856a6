//! What is written, when, and what happens if it cannot be.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use warpway_core::config::DumpSignal;
use warpway_core::trace::{
    DumpConfig, DumpError, DumpReason, DumpService, FlightDump, Operation, OperationState,
};

use super::{Fixture, eventually, names, passes_in_child, service_threads};

#[test]
fn the_first_failure_is_dumped_whole() {
    let fixture = Fixture::new("failure", 256);
    let service = fixture.start(0x1f, fixture.config());
    fixture.record(17);
    assert!(fixture.health.abort("by the test \"quoted\""));
    let name = format!("warpway-a5a5a5a5-scope1f-rank3-pid{}-failure.json", std::process::id());
    let document = eventually("the dump", || std::fs::read(fixture.directory.join(&name)).ok());
    let dump = FlightDump::parse(&document).unwrap();
    assert_eq!((dump.version, dump.reason), (1, DumpReason::Failure));
    assert_eq!((dump.job.as_str(), dump.scope), ("a5".repeat(16).as_str(), 0x1f));
    assert_eq!((dump.rank, dump.n_ranks, dump.job_rank), (3, 17, 40));
    assert_eq!(dump.process, std::process::id());
    assert!(!dump.host.is_empty());
    assert_eq!((dump.recorded, dump.unrecorded), (17, 0));
    let failure = dump.failure.clone().unwrap();
    assert_eq!((failure.id.as_str(), failure.code, failure.culprit), ("aborted", 5, Some(3)));
    assert_eq!(failure.message, fixture.health.failure().unwrap().to_string());
    let at = failure.at_ns.unwrap();
    assert!(at > 0 && at <= dump.dumped_ns, "{at} of {}", dump.dumped_ns);
    assert_eq!(dump.operations.len(), 17);
    for (key, line) in dump.operations.iter().enumerate() {
        assert_eq!((line.sequence, line.object), (key as u64, key as u64));
        assert_eq!((line.operation, line.peer), (Operation::Put, Some(1_000_003)));
        assert_eq!((line.bytes, line.offset), (4095, u64::MAX));
        let state = match key % 3 {
            0 => OperationState::Completed,
            1 => OperationState::Failed(format!("line \"{key}\"\n\u{7}é")),
            _ => OperationState::Started,
        };
        assert_eq!(line.state, state);
        assert!(line.started_ns <= at);
    }
    // A later failure changes nothing, and nothing but the dump is in the folder.
    fixture.health.abort("again");
    drop(service);
    assert_eq!(names(&fixture.directory), [name]);
    assert_eq!(FlightDump::parse(&dump.to_json()).unwrap(), dump);
}

#[test]
fn dropping_the_service_writes_what_is_due_and_leaves_nothing() {
    let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let (threads, before) = (service_threads(), descriptors());
    let fixture = Fixture::new("drop", 3);
    for round in 0..50u64 {
        let health = Arc::new(warpway_core::Health::new(3));
        let part = Fixture {
            health,
            recorder: Arc::clone(&fixture.recorder),
            directory: fixture.directory.join("x"),
        };
        let config = DumpConfig {
            signal: DumpSignal::Number(signal_hook::consts::SIGUSR1),
            status_socket: true,
            ..part.config()
        };
        let service = part.start(round, config);
        part.health.abort("at once");
        drop(service);
        let written = names(&part.directory);
        assert_eq!(written.len(), 1, "{written:?}");
        assert!(written[0].contains(&format!("scope{round:x}-")), "{written:?}");
    }
    // A joined thread stays in /proc for a moment.
    eventually("the end of the threads", || (service_threads() == threads).then_some(()));
    // The signal library keeps a descriptor or two of its own; leaks would be at least fifty.
    assert!(descriptors() < before + 10, "{before} descriptors became {}", descriptors());
}

#[test]
fn a_ring_that_went_round_says_so() {
    let fixture = Fixture::new("wrap", 17);
    let service = fixture.start(1, fixture.config());
    fixture.record(4095);
    let path = service.dump().unwrap();
    let dump = FlightDump::parse(&std::fs::read(path).unwrap()).unwrap();
    assert_eq!((dump.reason, dump.recorded, dump.failure.as_ref()), (DumpReason::Request, 4095, None));
    let sequences: Vec<u64> = dump.operations.iter().map(|line| line.sequence).collect();
    assert_eq!(sequences, (4078..4095).collect::<Vec<_>>());
}

#[test]
fn a_failure_before_the_service_is_dumped_too() {
    let fixture = Fixture::new("before", 3);
    fixture.health.abort("early");
    drop(fixture.start(1, fixture.config()));
    let name = names(&fixture.directory).remove(0);
    let dump = FlightDump::parse(&std::fs::read(fixture.directory.join(name)).unwrap()).unwrap();
    let failure = dump.failure.unwrap();
    assert_eq!((failure.id.as_str(), failure.at_ns), ("aborted", None));
}

#[test]
fn the_signal_dumps_and_the_programs_own_handlers_still_run() {
    use signal_hook::consts::SIGUSR2;
    let raise = || {
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::USR2).unwrap();
    };
    let (before, after) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let counter = Arc::clone(&before);
    // SAFETY: the action only touches an atomic, which is allowed in a signal handler.
    unsafe {
        signal_hook::low_level::register(SIGUSR2, move || {
            counter.fetch_add(1, Ordering::SeqCst);
        })
        .unwrap();
    }
    let fixture = Fixture::new("signal", 3);
    let config = DumpConfig { signal: DumpSignal::Number(SIGUSR2), ..fixture.config() };
    // Two communicators of one process both answer.
    let services = [fixture.start(1, config.clone()), fixture.start(2, config)];
    signal_hook::flag::register(SIGUSR2, Arc::clone(&after)).unwrap();
    raise();
    eventually("both dumps", || {
        (names(&fixture.directory).iter().filter(|name| name.ends_with("-signal.json")).count() == 2)
            .then_some(())
    });
    for name in names(&fixture.directory) {
        let dump = FlightDump::parse(&std::fs::read(fixture.directory.join(name)).unwrap()).unwrap();
        assert_eq!((dump.reason, dump.failure), (DumpReason::Signal, None));
    }
    assert_eq!(before.load(Ordering::SeqCst), 1);
    assert!(after.load(Ordering::SeqCst));
    drop(services);
    std::fs::remove_dir_all(&fixture.directory).unwrap();
    raise();
    eventually("the program's handler", || (before.load(Ordering::SeqCst) == 2).then_some(()));
    assert!(!fixture.directory.exists(), "a dropped service wrote a dump");
}

#[test]
fn signals_that_cannot_be_handled_are_no_panic() {
    let fixture = Fixture::new("forbidden", 3);
    for signal in [9, 11, 19, 0, -1, 4095] {
        let config = DumpConfig { signal: DumpSignal::Number(signal), ..fixture.config() };
        assert!(fixture.start(1, config).dump().is_ok());
    }
}

#[test]
fn without_a_folder_nothing_is_written_and_no_thread_runs() {
    let fixture = Fixture::new("none", 3);
    let config = DumpConfig { directory: None, ..fixture.config() };
    let threads = service_threads();
    let service = fixture.start(1, config);
    assert_eq!(service_threads(), threads);
    let error = service.dump().unwrap_err();
    assert_eq!(error.id(), "trace.directory");
    assert!(error.to_string().contains("WARPWAY_TRACE_DIR"), "{error}");
    fixture.health.abort("unseen");
    drop(service);
    assert_eq!(names(&fixture.directory), [""; 0]);
}

#[test]
fn a_folder_that_cannot_be_written_is_an_error_with_its_path() {
    let fixture = Fixture::new("unwritable", 3);
    std::fs::create_dir_all(&fixture.directory).unwrap();
    let file = fixture.directory.join("file");
    std::fs::write(&file, "canary").unwrap();
    let service = fixture.start(1, DumpConfig { directory: Some(file.join("below")), ..fixture.config() });
    let DumpError::Write { rank, path, source } = service.dump().unwrap_err() else { panic!() };
    assert_eq!((rank, source.errno), (3, rustix::io::Errno::NOTDIR.raw_os_error()));
    assert!(path.starts_with(&file), "{path:?}");
    // The failure's dump goes wrong on the service's thread, which must survive that.
    fixture.health.abort("with a bad folder");
    drop(service);
    assert_eq!(std::fs::read(&file).unwrap(), b"canary");
    assert_eq!(names(&fixture.directory), ["file"]);
}

#[test]
fn a_file_that_cannot_be_put_in_place_leaves_no_temporary() {
    let fixture = Fixture::new("in-place", 3);
    let service = fixture.start(1, fixture.config());
    let name = service.capture().file_name();
    // A folder with something in it cannot be replaced by a file.
    std::fs::create_dir_all(fixture.directory.join(&name).join("full")).unwrap();
    assert_eq!(service.dump().unwrap_err().id(), "trace.write");
    assert_eq!(names(&fixture.directory), [name]);
}

#[test]
fn a_full_disk_leaves_the_earlier_dump() {
    let (passed, text) = passes_in_child("files::child_with_a_full_disk", &[], None);
    assert!(passed, "{text}");
}

#[test]
#[ignore = "run by a_full_disk_leaves_the_earlier_dump: it limits the whole process"]
fn child_with_a_full_disk() {
    use rustix::process::{Resource, Rlimit, setrlimit};
    let fixture = Fixture::new("full", 256);
    let service = fixture.start(1, fixture.config());
    let path = service.dump().unwrap();
    let earlier = std::fs::read(&path).unwrap();
    fixture.record(256);
    // With the signal handled, a write past the limit fails as on a full disk.
    signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::new(AtomicBool::new(false))).unwrap();
    setrlimit(Resource::Fsize, Rlimit { current: Some(4095), maximum: None }).unwrap();
    let DumpError::Write { source, .. } = service.dump().unwrap_err() else { panic!() };
    assert_eq!(source.errno, rustix::io::Errno::FBIG.raw_os_error());
    assert_eq!(names(&fixture.directory).len(), 1);
    assert_eq!(std::fs::read(&path).unwrap(), earlier);
}

#[test]
fn readers_refuse_what_is_not_theirs() {
    let fixture = Fixture::new("parse", 3);
    fixture.record(3);
    let dump = fixture.source(1).capture(DumpReason::Request);
    let document = dump.to_json();
    // The closing brace and the line end are the last two bytes.
    for length in 0..document.len() - 1 {
        let error = FlightDump::parse(&document[..length]).unwrap_err();
        assert_eq!(error.id(), "trace.malformed", "{length} bytes");
    }
    let text = String::from_utf8(document).unwrap();
    let newer = text.replace("\"version\": 1", "\"version\": 2");
    assert_eq!(
        FlightDump::parse(newer.as_bytes()).unwrap_err(),
        DumpError::Version { found: 2, supported: 1 }
    );
    let grown = text.replacen('{', "{\"a later field\": [1, {}],", 1);
    assert_eq!(FlightDump::parse(grown.as_bytes()).unwrap(), dump);
}

/// The service is moved into whatever owns it.
const _: fn() = || {
    fn is_send_and_sync<T: Send + Sync>() {}
    is_send_and_sync::<DumpService>();
};
