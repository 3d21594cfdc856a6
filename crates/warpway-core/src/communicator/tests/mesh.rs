//! The same over the real control plane: authenticated links, descriptors passed by the kernel.

use super::*;
use crate::bootstrap::{
    Admission, InterfaceChoice, JobSecret, JoinOptions, JoinPlan, RootLocation, ScopeId, TcpBootstrap,
};
use crate::deadline::Timeout;
use crate::endpoint::EndpointConfig;
use crate::memory::{HostTokens, LocalMemories};
use crate::semaphore::Host2HostSemaphore;
use crate::wire::SlotId;

/// Runs `body` on every rank of a job that has joined through Unix sockets.
fn on_mesh<T: Send>(name: &str, n_ranks: u32, body: impl Fn(Communicator) -> T + Sync) -> Vec<T> {
    let root = format!("warpway-test-communicator-{name}-{}", std::process::id());
    let join = |rank| {
        let plan = JoinPlan {
            rank,
            n_ranks,
            root: RootLocation::Unix { name: root.clone().into_bytes() },
            secret: JobSecret::derive("test", &[b"communicator"]),
            admission: Admission::Secret,
            root_rank: Some(0),
            interfaces: InterfaceChoice::default(),
        };
        TcpBootstrap::initialize_plan(&plan, JoinOptions::from(Duration::from_secs(30))).unwrap()
    };
    let run = |rank| {
        let bootstrap = join(rank);
        let parts = CommunicatorParts {
            control: bootstrap.control(),
            scope: ScopeId(1),
            open: None,
            members: (0..n_ranks).collect(),
            engines: vec![Arc::new(LocalEngine::new(Transport::SharedMemory))],
            token_memory: Arc::new(HostTokens(allocate)),
            gpu_token_memory: None,
            local_memories: Arc::new(LocalMemories::new()),
            config: CommunicatorConfig::default(),
        };
        body(Communicator::new(parts).unwrap())
    };
    std::thread::scope(|scope| {
        let run = &run;
        let ranks: Vec<_> = (0..n_ranks).map(|rank| scope.spawn(move || run(rank))).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

#[test]
fn handles_and_descriptors_reach_every_rank() {
    on_mesh("exchange", 3, |comm| {
        let me = comm.rank();
        let mine = memory(&comm, 1_000_003);
        write(&mine, 0, &vec![me as u8 + 1; 1_000_003]);
        let exchanges: Vec<_> = (0..3)
            .map(|peer| {
                let cpu = EndpointConfig::cpu(Transport::SharedMemory);
                let connection = comm.connect(cpu, peer, 0).unwrap();
                let sent = comm.send_memory(&mine, peer, 0).unwrap();
                (connection, sent, comm.recv_memory(peer, 0).unwrap())
            })
            .collect();
        for (peer, (connection, sent, received)) in (0..).zip(exchanges) {
            let connection = connection.wait(patience()).unwrap();
            let theirs = received.wait(patience()).unwrap();
            sent.wait(patience()).unwrap();
            assert!(read(&theirs, 0, 1_000_003) == vec![peer as u8 + 1; 1_000_003]);
            let built = comm.build_semaphore(&connection, peer, 0).unwrap().wait(patience()).unwrap();
            let semaphore = Host2HostSemaphore::new(built).unwrap();
            semaphore.signal().unwrap();
            semaphore.wait(Timeout::from(patience())).unwrap();
            assert!(!semaphore.poll().unwrap());
        }
        comm.barrier(patience()).unwrap();
    });
}

#[test]
fn buffers_are_published_and_communicators_split() {
    on_mesh("publish", 4, |comm| {
        let child = comm.split((comm.rank() % 2) as i32, -(comm.rank() as i32), patience()).unwrap().unwrap();
        assert_eq!(child.members(), if comm.rank().is_multiple_of(2) { [2, 0] } else { [3, 1] });
        for comm in [&comm, &child] {
            let (me, n) = (comm.rank(), comm.n_ranks());
            let buffer = memory(comm, 100 + u64::from(me));
            let publication = comm.publish(&buffer).unwrap();
            publication.wait_acknowledged(patience()).unwrap();
            for owner in 0..n {
                let first = SlotId { slot: 0, generation: 0 };
                let found = comm.published(owner, first, patience()).unwrap();
                assert_eq!(found.size(), 100 + u64::from(owner));
                write(&found, u64::from(me), &[me as u8 + 1]);
            }
            comm.barrier(patience()).unwrap();
            let marks: Vec<u8> = (1..=n as u8).collect();
            assert_eq!(read(&buffer, 0, u64::from(n)), marks);
            publication.withdraw(patience()).unwrap();
            comm.barrier(patience()).unwrap();
        }
    });
}

#[test]
fn an_abort_reaches_every_rank() {
    let errors = on_mesh("abort", 3, |comm| {
        let waiting = comm.recv_memory((comm.rank() + 1) % 3, 0).unwrap();
        // The abort may overtake the end of the barrier.
        let together = comm.barrier(patience());
        if comm.rank() == 2 {
            together.unwrap();
            comm.abort("the third has had enough");
        }
        waiting.wait(patience()).unwrap_err()
    });
    for error in errors {
        // An abort that comes before the wait is an error of the communicator, later one of the wait.
        assert_eq!((error.id(), error.culprit()), ("aborted", Some(2)), "{error}");
        assert!(error.to_string().contains("had enough"), "{error}");
    }
}
