use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Wake, Waker};

use super::*;
use crate::connection::Connection;
use crate::deadline::Timeout;
use crate::endpoint::EndpointConfig;
use crate::error::{Error, ErrorCode};
use crate::memory::LocalMemories;
use crate::semaphore::{Host2HostSemaphore, Semaphore};
use crate::trace::{Operation, OperationState};
use crate::transport::TransportFlags;
use crate::wire::{Handle, JobNonce, SemaphoreRecord};

fn cpu() -> EndpointConfig {
    EndpointConfig::cpu(Transport::SharedMemory)
}

fn connect(comm: &Communicator, peer: u32, tag: i32) -> Connection {
    comm.connect(cpu(), peer, tag).unwrap().wait(patience()).unwrap()
}

fn build(comm: &Communicator, connection: &Connection, peer: u32, tag: i32) -> Semaphore {
    comm.build_semaphore(connection, peer, tag).unwrap().wait(patience()).unwrap()
}

#[test]
fn every_pair_exchanges_memories_connections_and_semaphores() {
    let job = LocalJob::of_processes(4);
    on_ranks(&job, |comm| {
        let me = comm.rank();
        let n = u64::from(comm.n_ranks());
        let mine = memory(&comm, 64 * n);
        write(&mine, 0, &[0xEE; 256]);
        let peers = 0..comm.n_ranks();
        let connections: Vec<_> = peers.clone().map(|peer| comm.connect(cpu(), peer, 3).unwrap()).collect();
        let sent: Vec<_> = peers.clone().map(|peer| comm.send_memory(&mine, peer, 3).unwrap()).collect();
        let memories: Vec<_> = peers.clone().map(|peer| comm.recv_memory(peer, 3).unwrap()).collect();
        for peer in peers {
            let connection = connections[peer as usize].wait(patience()).unwrap();
            assert_eq!(comm.remote_rank_of(&connection).unwrap(), peer);
            assert_eq!(comm.tag_of(&connection).unwrap(), 3);
            let theirs = memories[peer as usize].wait(patience()).unwrap();
            sent[peer as usize].wait(patience()).unwrap();
            assert_eq!((theirs.owner(), theirs.size(), theirs.is_local()), (peer, 64 * n, false));
            if peer != me {
                assert_ne!(theirs.data(), mine.data());
            }
            let semaphore = Host2HostSemaphore::new(build(&comm, &connection, peer, 3)).unwrap();
            // 17 bytes of my number into my place at the peer's, 3 bytes into the place.
            let source = memory(&comm, 17);
            write(&source, 0, &[me as u8 + 1; 17]);
            connection.write(&theirs, 64 * u64::from(me) + 3, &source, 0, 17).unwrap();
            semaphore.signal().unwrap();
            semaphore.wait(Timeout::from(patience())).unwrap();
            let place = 64 * u64::from(peer);
            let mut expected = vec![0xEE; 64];
            expected[3..20].fill(peer as u8 + 1);
            assert_eq!(read(&mine, place, 64), expected);
            assert!(!semaphore.poll().unwrap(), "one signal, one wait");
        }
        comm.barrier(patience()).unwrap();
    });
}

#[test]
fn the_ith_call_meets_the_ith_call_from_many_threads_and_tags() {
    const TAGS: i32 = 8;
    const COUNT: u64 = 40;
    let job = LocalJob::new(2);
    on_ranks(&job, |comm| {
        let peer = 1 - comm.rank();
        std::thread::scope(|scope| {
            for tag in 0..TAGS {
                let comm = &comm;
                scope.spawn(move || {
                    // The size of a memory is its number.
                    let mine: Vec<_> = (1..=COUNT).map(|size| memory(comm, size)).collect();
                    let (sender, receiver) = (comm.rank() == 0, tag);
                    let mut received = Vec::new();
                    let mut sent = Vec::new();
                    for (memory, number) in mine.iter().zip(1..) {
                        if sender {
                            sent.push(comm.send_memory(memory, peer, receiver).unwrap());
                        } else {
                            received.push((number, comm.recv_memory(peer, receiver).unwrap()));
                        }
                    }
                    // The last is done only after all before it.
                    if let Some((_, last)) = received.last() {
                        last.wait(patience()).unwrap();
                        assert!(received.iter().all(|(_, earlier)| earlier.poll().is_some()));
                    }
                    for (number, exchange) in received {
                        assert_eq!(exchange.wait(patience()).unwrap().size(), number);
                    }
                    sent.iter().for_each(|exchange| exchange.wait(patience()).unwrap());
                });
            }
        });
        comm.barrier(patience()).unwrap();
    });
}

#[test]
fn a_rank_exchanges_with_itself_in_any_order() {
    let job = LocalJob::new(1);
    let comm = communicator(&job, 0);
    let mine = memory(&comm, 4095);
    let receive_first = comm.recv_memory(0, 0).unwrap();
    assert!(receive_first.poll().is_none());
    comm.send_memory(&mine, 0, 0).unwrap().wait(patience()).unwrap();
    let received = receive_first.wait(patience()).unwrap();
    assert_eq!(received.data(), mine.data(), "the same process: the original pointer");

    let sent_first = comm.send_memory(&mine, 0, 1).unwrap();
    comm.recv_memory(0, 1).unwrap().wait(patience()).unwrap();
    sent_first.wait(patience()).unwrap();

    let connection = connect(&comm, 0, 2);
    let semaphore = build(&comm, &connection, 0, 2);
    semaphore.signal().unwrap();
    semaphore.wait(Timeout::from(patience())).unwrap();
    assert!(!semaphore.poll().unwrap());
}

/// N9: calls of different kinds are an error on both sides that names both calls.
#[test]
fn a_mismatch_is_an_error_on_both_sides_and_leaves_other_tags_alone() {
    type Start = fn(&Communicator, u32) -> Box<dyn Fn(Deadline) -> Option<Error>>;
    let connect: Start = |comm, peer| {
        let exchange = comm.connect(cpu(), peer, 5).unwrap();
        Box::new(move |deadline| exchange.wait(deadline).err())
    };
    let send: Start = |comm, peer| {
        let exchange = comm.send_memory(&memory(comm, 8), peer, 5).unwrap();
        Box::new(move |deadline| exchange.wait(deadline).err())
    };
    let receive: Start = |comm, peer| {
        let exchange = comm.recv_memory(peer, 5).unwrap();
        Box::new(move |deadline| exchange.wait(deadline).err())
    };
    let build: Start = |comm, peer| {
        let exchange = comm.build_semaphore(&self::connect(comm, peer, 6), peer, 5).unwrap();
        Box::new(move |deadline| exchange.wait(deadline).err())
    };
    let cases = [
        (connect, "connect", send, "send_memory"),
        (receive, "recv_memory", connect, "connect"),
        (connect, "connect", build, "build_semaphore"),
        (receive, "recv_memory", build, "build_semaphore"),
        (build, "build_semaphore", send, "send_memory"),
    ];
    for (first, first_name, second, second_name) in cases {
        let job = LocalJob::new(2);
        let other_connects = |name: &str| name == "build_semaphore";
        let errors = on_ranks(&job, |comm| {
            let (me, peer) = (comm.rank(), 1 - comm.rank());
            let (mine, theirs) = if me == 0 { (first_name, second_name) } else { (second_name, first_name) };
            // `build` needs a connection, for which its peer must connect, too.
            if other_connects(theirs) && !other_connects(mine) {
                self::connect(&comm, peer, 6);
            }
            let wait = if me == 0 { first(&comm, peer) } else { second(&comm, peer) };
            let error = wait(patience()).expect("must not succeed");
            // The tag stays broken, others work.
            let again = comm.recv_memory(peer, 5).unwrap_err();
            assert_eq!(again.id(), "exchange.mismatch");
            let connection = self::connect(&comm, peer, 7);
            self::build(&comm, &connection, peer, 7);
            comm.barrier(patience()).unwrap();
            assert!(comm.async_error().is_none());
            error
        });
        for (rank, error) in errors.iter().enumerate() {
            let names = [(first_name, second_name), (second_name, first_name)][rank];
            match error {
                Error::Exchange(ExchangeError::Mismatch {
                    rank: r,
                    peer,
                    tag: 5,
                    sequence: 0,
                    here,
                    there,
                }) => {
                    assert_eq!((*r as usize, *peer as usize), (rank, 1 - rank));
                    assert!(here.starts_with(names.0) && here.contains("exchange.rs:"), "{here}");
                    assert!(there.starts_with(names.1) && there.contains("exchange.rs:"), "{there}");
                }
                other => panic!("{first_name}/{second_name}, rank {rank}: {other}"),
            }
            assert_eq!(error.code(), ErrorCode::InvalidUsage);
        }
    }
}

/// N10: futures do not point at the communicator.
#[test]
fn dropping_the_communicator_ends_what_is_under_way() {
    let job = LocalJob::new(2);
    let (comm, other) = (communicator(&job, 0), communicator(&job, 1));
    let connected = comm.connect(cpu(), 1, 9).unwrap();
    let connection = { connect_both(&comm, &other) };
    let pending = comm.recv_memory(1, 0).unwrap();
    drop(comm);
    let error = pending.wait(patience()).unwrap_err();
    assert_eq!((error.id(), error.code(), error.peer()), ("exchange.dropped", ErrorCode::Aborted, Some(1)));
    assert_eq!(connected.poll().unwrap().unwrap_err().id(), "exchange.dropped");
    // The connection lives, and as long as it does nobody is told that this rank has left.
    let token = memory(&other, 64);
    let source = memory(&other, 8);
    write(&source, 0, &7u64.to_le_bytes());
    assert!(!other.health().has_left(0));
    drop((connection, token));
    eventually("the departure", || other.health().has_left(0));
}

fn connect_both(a: &Communicator, b: &Communicator) -> (Connection, Connection) {
    let (mine, theirs) = (a.connect(cpu(), 1, 4).unwrap(), b.connect(cpu(), 0, 4).unwrap());
    (mine.wait(patience()).unwrap(), theirs.wait(patience()).unwrap())
}

#[test]
fn waits_are_bounded_and_say_who_did_not_come() {
    let job = LocalJob::new(2);
    let comm = communicator(&job, 0);
    let pending = comm.recv_memory(1, 7).unwrap();
    let error = pending.wait(briefly()).unwrap_err();
    assert_eq!((error.id(), error.peer()), ("wait.timeout", Some(1)));
    assert!(error.to_string().contains("recv_memory for rank 1 with tag 7 (exchange 0)"), "{error}");
    let lines = comm.flight_recorder().snapshot();
    let line = lines.iter().find(|line| line.operation == Operation::RecvMemory).unwrap();
    assert_eq!((line.peer, line.object, &line.state), (Some(1), 7, &OperationState::Started));
    // A wait that gave up may be repeated.
    let other = communicator(&job, 1);
    other.send_memory(&memory(&other, 3), 0, 7).unwrap().wait(patience()).unwrap();
    assert_eq!(pending.wait(patience()).unwrap().size(), 3);
}

#[test]
fn death_abort_and_departure_of_a_peer_end_exchanges() {
    struct Flag(std::sync::atomic::AtomicBool);
    impl Wake for Flag {
        fn wake(self: Arc<Self>) {
            self.0.store(true, std::sync::atomic::Ordering::SeqCst);
        }
    }
    type End = fn(&LocalJob, Communicator);
    let kill: End = |job, comm| {
        job.kill(1);
        drop(comm);
    };
    let abort: End = |_, comm| comm.abort("enough");
    let leave: End = |_, comm| drop(comm);
    for (end, id, code) in [
        (kill, "peer.died", ErrorCode::RemoteError),
        (abort, "aborted", ErrorCode::Aborted),
        (leave, "peer.left", ErrorCode::RemoteError),
    ] {
        let job = LocalJob::new(2);
        let (comm, other) = (communicator(&job, 0), communicator(&job, 1));
        let waited = comm.recv_memory(1, 0).unwrap();
        let awaited = comm.connect(cpu(), 1, 1).unwrap();
        let flag = Arc::new(Flag(false.into()));
        let waker = Waker::from(Arc::clone(&flag));
        let mut future = pin!(awaited);
        assert!(future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        end(&job, other);
        let error = waited.wait(patience()).unwrap_err();
        assert_eq!((error.id(), error.code(), error.peer()), (id, code, Some(1)));
        // Also for those who only await.
        eventually("the waker's call", || flag.0.load(std::sync::atomic::Ordering::SeqCst));
        match future.poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(Err(error)) => assert_eq!(error.id(), id),
            other => panic!("{id}: {other:?}"),
        }
        if id != "peer.left" {
            assert_eq!(comm.recv_memory(1, 5).unwrap_err().id(), id, "later calls fail at once");
        }
    }
}

/// An exchange that begins after its peer has left ends like one that began before.
#[test]
fn exchanges_with_a_rank_that_has_left_end_without_a_waiter() {
    let job = LocalJob::new(2);
    let comm = communicator(&job, 0);
    drop(communicator(&job, 1));
    eventually("the departure", || comm.health().has_left(1));
    let late = comm.recv_memory(1, 0).unwrap();
    eventually("the end", || late.poll().is_some());
    assert_eq!(late.poll().unwrap().unwrap_err().id(), "peer.left");
}

#[test]
fn nothing_outlives_a_dropped_communicator() {
    let job = LocalJob::of_processes(2);
    let remains = on_ranks(&job, |comm| {
        let peer = 1 - comm.rank();
        let connection = connect(&comm, peer, 0);
        let semaphore = build(&comm, &connection, peer, 0);
        let mine = memory(&comm, 100);
        let sent = comm.send_memory(&mine, peer, 0).unwrap();
        let received = comm.recv_memory(peer, 0).unwrap().wait(patience()).unwrap();
        sent.wait(patience()).unwrap();
        let publication = comm.publish(&mine).unwrap();
        publication.wait_acknowledged(patience()).unwrap();
        let found = comm.published(peer, publication.slot(), patience()).unwrap();
        let child = comm.split(0, 0, patience()).unwrap().unwrap();
        let open = child.recv_memory(peer, 0).unwrap();
        comm.barrier(patience()).unwrap();
        let states = [comm.state(), child.state()].map(Arc::downgrade);
        let memories = [mine.downgrade(), received.downgrade(), found.downgrade()];
        let connection = connection.downgrade();
        drop((semaphore, publication, child));
        assert_eq!(open.wait(patience()).unwrap_err().id(), "exchange.dropped");
        drop(comm);
        (states, memories, connection)
    });
    for (states, memories, connection) in remains {
        eventually("end of the states", || states.iter().all(|state| state.strong_count() == 0));
        eventually("end of the memories", || memories.iter().all(|memory| memory.upgrade().is_none()));
        eventually("end of the connection", || connection.upgrade().is_none());
    }
}

#[test]
fn arguments_are_checked_before_anything_is_sent() {
    let job = LocalJob::new(2);
    let comm = communicator(&job, 0);
    let mine = memory(&comm, 8);
    assert_eq!(comm.send_memory(&mine, 2, 0).unwrap_err().id(), "bootstrap.peer");
    assert_eq!(comm.recv_memory(1, -1).unwrap_err().id(), "exchange.argument");
    let elsewhere = EndpointConfig::cpu(Transport::Ib(0));
    assert_eq!(comm.connect(elsewhere, 1, 0).unwrap_err().id(), "unavailable");
    let plain = allocate(8).unwrap();
    let error = comm.register_memory(plain, TransportFlags::HOST, Access::ALL).unwrap_err();
    assert_eq!(error.id(), "unavailable", "no TCP engine here: {error}");
    let other = communicator(&job, 1);
    let (connection, _theirs) = connect_both(&comm, &other);
    assert_eq!(comm.build_semaphore(&connection, 0, 0).unwrap_err().id(), "exchange.argument");
    assert_eq!(other.tag_of(&connection).unwrap_err().id(), "exchange.argument");
    assert_eq!(comm.token_usage().0, 0);
}

#[test]
fn memories_travel_as_bytes() {
    let job = LocalJob::of_processes(2);
    let (comm, other) = (communicator(&job, 0), communicator(&job, 1));
    let whole = allocate(8192).unwrap();
    let part = whole.slice(65, 1003).unwrap();
    let registered = comm.register_memory(part, Transport::SharedMemory.into(), Access::ALL).unwrap();
    write(&registered, 0, &[9; 1003]);
    let bytes = comm.serialize_memory(&registered).unwrap();
    let imported = other.deserialize_memory(&bytes).unwrap();
    assert_eq!(imported.original_address(), registered.original_address());
    assert_ne!(imported.data(), registered.data());
    assert_eq!(read(&imported, 0, 1003), [9; 1003]);
    imported.require("test", Transport::SharedMemory).unwrap();
    let error = imported.require("test", Transport::Ethernet).unwrap_err();
    assert_eq!(error.id(), "mem.transport");
    assert_eq!(other.serialize_memory(&imported).unwrap_err().id(), "mem.side");

    // One descriptor for all that lies in it.
    let again = comm.register_memory(whole, Transport::SharedMemory.into(), Access::ALL).unwrap();
    assert_eq!(again.record().shared, registered.record().shared);

    // A stranger's bytes, and claims that the bootstrap knows better.
    let record = registered.record().clone();
    let seal = |nonce, body| Handle { sequence: 0, label: None, body }.encode(nonce).unwrap();
    let nonce = comm.control().job_nonce();
    let refused = |bytes: &[u8]| other.deserialize_memory(bytes).unwrap_err().id();
    assert_eq!(refused(&seal(JobNonce::default(), record.clone())), "wire.nonce");
    for wrong in [
        crate::memory::MemoryRecord { owner: 7, ..record.clone() },
        crate::memory::MemoryRecord { host: 5, ..record.clone() },
        crate::memory::MemoryRecord { process: 5, ..record.clone() },
    ] {
        assert_eq!(refused(&seal(nonce, wrong)), "wire.field");
    }
    let longer = crate::memory::MemoryRecord { size: 9000, allocation_size: 9500, ..record };
    assert_eq!(refused(&seal(nonce, longer)), "mem.import");
    drop((registered, again));
    assert_eq!(refused(&bytes), "mem.import", "the descriptor is offered only while it is registered");
}

#[test]
fn an_address_from_the_wire_is_never_trusted() {
    let job = LocalJob::new(2);
    let engine = || Arc::new(LocalEngine::new(Transport::SharedMemory));
    let shared = Arc::new(LocalMemories::new());
    let with_table = |rank| {
        let parts = job.parts(rank, vec![engine()]);
        Communicator::new(CommunicatorParts { local_memories: Arc::clone(&shared), ..parts }).unwrap()
    };
    let (comm, other) = (with_table(0), with_table(1));
    let registered = memory(&comm, 64);
    let bytes = comm.serialize_memory(&registered).unwrap();
    let imported = other.deserialize_memory(&bytes).unwrap();
    assert_eq!(imported.data(), registered.data(), "one process, one table: the original pointer");
    // The same record once the registration is gone: no pointer, and no descriptor either.
    drop((imported, registered));
    assert_eq!(other.deserialize_memory(&bytes).unwrap_err().id(), "mem.import");
}

#[test]
fn imports_report_each_transport() {
    let job = LocalJob::with_peers(|rank| (u64::from(rank), u64::from(rank)), 2);
    let engines = || -> Vec<Arc<dyn crate::engine::Engine>> {
        vec![
            Arc::new(LocalEngine::new(Transport::SharedMemory)),
            Arc::new(LocalEngine::new(Transport::Ethernet)),
        ]
    };
    let comm = Communicator::new(job.parts(0, engines())).unwrap();
    let other = Communicator::new(job.parts(1, engines())).unwrap();
    let region = allocate(100).unwrap();
    let registered = comm.register_memory(region, TransportFlags::HOST, Access::READ).unwrap();
    let imported = other.deserialize_memory(&comm.serialize_memory(&registered).unwrap()).unwrap();
    assert_eq!(imported.transports(), TransportFlags::from(Transport::Ethernet));
    let report = imported.import_report().to_string();
    assert!(report.contains("SharedMemory: ") && report.contains("another host"), "{report}");
    assert!(report.contains("Ethernet: works"), "{report}");
    let error = imported.require("put", Transport::SharedMemory).unwrap_err();
    assert!(error.to_string().contains("another host"), "{error}");
}

#[test]
fn tokens_are_reused_only_when_both_sides_are_done() {
    let job = LocalJob::new(2);
    let (comm, other) = (communicator(&job, 0), communicator(&job, 1));
    let (connection, theirs) = connect_both(&comm, &other);
    let pair = || {
        let exchanges =
            (comm.build_semaphore(&connection, 1, 0).unwrap(), other.build_semaphore(&theirs, 0, 0).unwrap());
        (exchanges.0.wait(patience()).unwrap(), exchanges.1.wait(patience()).unwrap())
    };
    let pairs: Vec<_> = (0..65).map(|_| pair()).collect();
    assert_eq!((comm.token_usage(), other.token_usage()), ((65, 128), (65, 128)));
    let (mine, others): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
    // Dropped here, but the peer may still raise my tokens.
    drop(mine);
    eventually("release of the peer's tokens", || other.token_usage().0 == 65);
    assert_eq!(comm.token_usage().0, 65);
    others.iter().for_each(|semaphore| semaphore.signal().unwrap());
    drop(others);
    eventually("release on both sides", || comm.token_usage().0 + other.token_usage().0 == 0);
    // A reused token has forgotten the signal.
    let pairs: Vec<_> = (0..128).map(|_| pair()).collect();
    assert_eq!((comm.token_usage(), other.token_usage()), ((128, 128), (128, 128)));
    assert!(pairs.iter().all(|(mine, theirs)| !mine.poll().unwrap() && !theirs.poll().unwrap()));
}

#[test]
fn a_hostile_semaphore_record_is_refused() {
    let job = LocalJob::of_processes(2);
    let (comm, other) = (communicator(&job, 0), communicator(&job, 1));
    let (connection, _theirs) = connect_both(&comm, &other);
    let pending = comm.build_semaphore(&connection, 1, 0).unwrap();
    // Rank 1 sends a token beyond the end of a plain memory.
    let plain = memory(&other, 64);
    let body = SemaphoreRecord {
        memory: plain.record().clone(),
        offset: 64,
        token: 0,
        connection: 0,
        device: crate::transport::DeviceKind::Cpu,
    };
    let label = Some(crate::wire::Label { tag: 0, call: "forged".into() });
    let bytes = Handle { sequence: 0, label, body }.encode(other.control().job_nonce()).unwrap();
    other.control().post(other.scope(), 0, super::super::state::COMMUNICATOR_TAG, &bytes).unwrap();
    assert_eq!(pending.wait(patience()).unwrap_err().id(), "mem.bounds");
    // Bytes that are no envelope fail the communicator and name the sender.
    other.control().post(other.scope(), 0, super::super::state::COMMUNICATOR_TAG, b"noise").unwrap();
    eventually("the failure", || comm.async_error().is_some());
    let error = comm.async_error().unwrap();
    assert_eq!((error.id(), error.peer()), ("wire.magic", Some(1)));
}
