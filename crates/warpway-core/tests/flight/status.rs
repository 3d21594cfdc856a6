//! The status socket with polite, silent, noisy, foreign and too many clients.

use std::io::{Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::time::{Duration, Instant};

use warpway_core::Deadline;
use warpway_core::trace::{
    DumpConfig, DumpReason, DumpService, FlightDump, fetch_status, status_name, status_sockets,
};

use super::{Fixture, passes_in_child, service_threads};

/// Long enough that it does not fit into a socket's buffer.
const LINES: usize = 4095;

fn serve(fixture: &Fixture, scope: u64) -> (DumpService, String) {
    let config = DumpConfig { directory: None, status_socket: true, ..fixture.config() };
    let service = fixture.start(scope, config);
    let name = service.status_name().unwrap().to_owned();
    (service, name)
}

fn connect(name: &str) -> UnixStream {
    let stream = UnixStream::connect_addr(&SocketAddr::from_abstract_name(name).unwrap()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    stream.set_write_timeout(Some(Duration::from_secs(10))).unwrap();
    stream
}

fn ten_seconds() -> Deadline {
    Deadline::after(Duration::from_secs(10))
}

#[test]
fn answers_with_the_present_state() {
    let fixture = Fixture::new("answers", LINES);
    let (service, name) = serve(&fixture, 0x51);
    assert_eq!(name, status_name(std::process::id(), &fixture.source(0x51).identity()));
    assert!(status_sockets().unwrap().contains(&name));
    for count in [0u64, 1, 4094] {
        fixture.record(count);
        let dump = fetch_status(&name, ten_seconds()).unwrap();
        assert_eq!((dump.reason, dump.scope), (DumpReason::Status, 0x51));
        assert_eq!(dump.operations, fixture_lines(&fixture, &dump));
    }
    assert_eq!(fetch_status(&name, ten_seconds()).unwrap().operations.len(), LINES);
    fixture.health.abort("seen from outside");
    let failure = fetch_status(&name, ten_seconds()).unwrap().failure.unwrap();
    assert!(failure.message.contains("seen from outside"), "{failure:?}");
    drop(service);
    assert!(!status_sockets().unwrap().contains(&name));
    assert_eq!(fetch_status(&name, ten_seconds()).unwrap_err().id(), "trace.status");
}

/// The recorder's own lines, with the dump's times: the scale is finer the later one looks.
fn fixture_lines(fixture: &Fixture, dump: &FlightDump) -> Vec<warpway_core::trace::RecordedOperation> {
    let mut lines = fixture.recorder.snapshot();
    for (line, dumped) in lines.iter_mut().zip(&dump.operations) {
        assert!(line.started_ns.abs_diff(dumped.started_ns) < 1_000_000, "{line:?} {dumped:?}");
        (line.started_ns, line.ended_ns) = (dumped.started_ns, dumped.ended_ns);
    }
    lines
}

#[test]
fn silent_clients_are_dropped_and_others_are_served() {
    let fixture = Fixture::new("silent", LINES);
    let (_service, name) = serve(&fixture, 0x52);
    fixture.record(LINES as u64);
    // As many as are served at once, none of which reads; the polite one comes after them.
    let mut silent: Vec<UnixStream> = (0..4).map(|_| connect(&name)).collect();
    let dump = fetch_status(&name, ten_seconds()).unwrap();
    assert_eq!(dump.operations.len(), LINES);
    for stream in &mut silent {
        let mut document = Vec::new();
        let _ = stream.read_to_end(&mut document);
        assert!(FlightDump::parse(&document).is_err(), "was served after its time");
    }
}

#[test]
fn noisy_clients_are_dropped() {
    let fixture = Fixture::new("noisy", LINES);
    let (service, name) = serve(&fixture, 0x53);
    fixture.record(LINES as u64);
    let mut noisy = connect(&name);
    let mut sent = 0usize;
    while sent < 64 << 20 {
        match noisy.write(&[0xa5; 4095]) {
            Ok(n) => sent += n,
            Err(e) => {
                assert!(
                    matches!(e.kind(), std::io::ErrorKind::BrokenPipe | std::io::ErrorKind::ConnectionReset),
                    "{e}"
                );
                break;
            }
        }
    }
    assert!(sent < 64 << 20, "was never dropped");
    // Some noise and a closed sending side do not matter.
    let mut polite = connect(&name);
    polite.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    polite.shutdown(std::net::Shutdown::Write).unwrap();
    let mut document = Vec::new();
    polite.read_to_end(&mut document).unwrap();
    assert_eq!(FlightDump::parse(&document).unwrap().operations.len(), LINES);
    // A client that is being served does not hold the service up when it ends.
    let _silent = connect(&name);
    let started = Instant::now();
    drop(service);
    assert!(started.elapsed() < Duration::from_secs(10));
    assert_eq!(service_threads(), 0);
}

#[test]
fn two_of_one_name_are_no_failure() {
    let fixture = Fixture::new("twice", 3);
    let (_first, name) = serve(&fixture, 0x54);
    let config = DumpConfig { directory: None, status_socket: true, ..fixture.config() };
    let second = fixture.start(0x54, config);
    assert_eq!(second.status_name(), None);
    drop(second);
    assert!(fetch_status(&name, ten_seconds()).is_ok());
}

#[test]
fn other_users_get_nothing() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let fixture = Fixture::new("foreign", 3);
    let (_service, name) = serve(&fixture, 0x55);
    let asks = |uid| passes_in_child("status::child_asks", &[("STATUS_NAME", name.as_str())], uid);
    let (answered, text) = asks(None);
    assert!(answered, "{text}");
    let (answered, text) = asks(Some(65534));
    assert!(!answered && text.contains("another user's socket?"), "{text}");
}

#[test]
#[ignore = "run by other_users_get_nothing as another user"]
fn child_asks() {
    let name = std::env::var("STATUS_NAME").unwrap();
    fetch_status(&name, ten_seconds()).unwrap();
}
