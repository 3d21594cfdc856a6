//! Memory of another process: the test starts itself once more as rank 1, which owns memory and looks at what arrives.

use std::process::{Child, Command};

use warpway_core::Result;
use warpway_core::bootstrap::{
    Admission, InterfaceChoice, JobSecret, JoinOptions, JoinPlan, RootLocation, ScopeId, TcpBootstrap,
};
use warpway_core::communicator::{CommunicatorConfig, CommunicatorParts};
use warpway_core::endpoint::EndpointConfig;
use warpway_core::memory::HostTokens;

use super::*;

/// The variable that makes a test the other process; its value names the meeting.
const OTHER: &str = "WARPWAY_TEST_ENGINE_OTHER";

/// The other process, ended with the test.
struct Other(Child);

impl Other {
    /// Runs `test` as rank 1, on a machine of its own.
    fn start(test: &str, settings: &str) -> (Self, String) {
        let meeting = format!("warpway-test-engine-{}-{}", std::process::id(), test.len());
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", &format!("engine::tests::processes::{test}"), "--nocapture"])
            .env(OTHER, &meeting)
            .env("FAKE_CUDA", settings)
            .spawn()
            .unwrap();
        (Self(child), meeting)
    }

    fn succeeded(mut self) -> bool {
        self.0.wait().unwrap().success()
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Rank 0 or 1 of a job of two processes.
struct Process {
    rank: Rank,
    bootstrap: TcpBootstrap,
    fake: Fake,
}

impl Process {
    fn join(meeting: &str, rank: u32, fake: Fake) -> Result<Self> {
        let plan = JoinPlan {
            rank,
            n_ranks: 2,
            root: RootLocation::Unix { name: meeting.as_bytes().to_vec() },
            secret: JobSecret::derive("test", &[b"engine"]),
            admission: Admission::Secret,
            root_rank: Some(0),
            interfaces: InterfaceChoice::default(),
        };
        let bootstrap = TcpBootstrap::initialize_plan(&plan, JoinOptions::from(Duration::from_secs(30)))?;
        let engine = CudaEngine::new(&devices(&fake), DeviceChoice { ordinal: None, local_rank: rank });
        let comm = Communicator::new(CommunicatorParts {
            control: bootstrap.control(),
            scope: ScopeId(1),
            open: None,
            members: vec![0, 1],
            engines: vec![Arc::new(engine.clone())],
            token_memory: Arc::new(HostTokens(warpway_core::testing::allocate)),
            gpu_token_memory: Some(Arc::new(engine.tokens())),
            local_memories: Arc::default(),
            config: CommunicatorConfig::default(),
        })?;
        let stream = Stream::new(&engine.context()?)?;
        Ok(Self { rank: Rank { comm, engine, stream }, bootstrap, fake })
    }

    fn comm(&self) -> &Communicator {
        &self.rank.comm
    }

    fn barrier(&self) {
        self.comm().barrier(patience()).unwrap();
    }

    fn connect(&self) -> warpway_core::connection::Connection {
        let gpu = EndpointConfig { transport: Transport::CudaIpc, ..EndpointConfig::default() };
        self.comm().connect(gpu, 1 - self.comm().rank(), 1).unwrap().wait(patience()).unwrap()
    }

    fn receive(&self) -> Result<RegisteredMemory> {
        self.comm().recv_memory(1, 0)?.wait(patience())
    }

    fn send(&self, memory: &RegisteredMemory) {
        self.comm().send_memory(memory, 0, 0).unwrap().wait(patience()).unwrap();
    }

    /// Leaves together with the other one; nothing is left then.
    fn leave(self) {
        self.barrier();
        let Self { rank, bootstrap, fake } = self;
        drop(rank);
        drop(bootstrap);
        nothing_is_left(&fake, "the end");
    }
}

/// Runs the two sides of a test, each in its process.
fn in_two(test: &str, settings: [&str; 2], owner: impl FnOnce(Process), user: impl FnOnce(Process)) {
    if let Ok(meeting) = std::env::var(OTHER) {
        return owner(Process::join(&meeting, 1, Fake::open()).unwrap());
    }
    let (other, meeting) = Other::start(test, settings[1]);
    let fake = Fake::open();
    fake.set(settings[0]);
    user(Process::join(&meeting, 0, fake).unwrap());
    assert!(other.succeeded());
}

#[test]
fn ranges_of_both_kinds_are_mapped_and_written() {
    let owner = |process: Process| {
        let expected = |seed| {
            let mut bytes = pattern(seed, 9001);
            bytes[4099..4099 + 2003].copy_from_slice(&pattern(5, 2100)[11..11 + 2003]);
            bytes
        };
        for plain in [false, true] {
            let (memory, whole) = process.rank.memory(plain, &pattern(u64::from(plain), 9001));
            let part = process.rank.register(memory.region().unwrap().slice(4099, 2003).unwrap());
            assert_eq!(whole.record().gpu.is_some(), plain);
            process.send(&whole);
            process.send(&part);
            let connection = process.connect();
            process.barrier();
            assert!(read(&process.rank.stream, memory.address(), 9001) == expected(u64::from(plain)));
            process.barrier();
            drop(connection);
        }
        process.leave();
    };
    let user = |process: Process| {
        for plain in [false, true] {
            let before = process.fake.live();
            let there = process.receive().unwrap();
            let part = process.receive().unwrap();
            let [first, second] = [&there, &part].map(|memory| memory.address("test", 0, 1).unwrap());
            assert_eq!(second, first + 4099);
            let mapped = process.fake.live();
            let grown = (mapped.mappings - before.mappings, mapped.opened - before.opened);
            assert_eq!(grown, if plain { (0, 1) } else { (1, 0) }, "one mapping for both ranges");
            assert!(read(&process.rank.stream, first, 9001) == pattern(u64::from(plain), 9001));
            let (_source, source) = process.rank.memory(false, &pattern(5, 2100));
            let connection = process.connect();
            connection.write(&part, 0, &source, 11, 2003).unwrap();
            connection.flush(patience()).unwrap();
            process.barrier();
            process.barrier();
            drop((there, connection));
            assert_eq!(process.fake.live().opened, mapped.opened, "the other range is still in use");
            drop(part);
            let after = process.fake.live();
            assert_eq!((after.mappings - 1, after.opened), (before.mappings, before.opened), "{after:?}");
        }
        process.leave();
    };
    let machine = "devices=2,peers=all";
    in_two("ranges_of_both_kinds_are_mapped_and_written", [machine; 2], owner, user);
}

#[test]
fn signals_reach_tokens_of_another_process() {
    // Once with tokens that are plain memory.
    let run = |process: Process| {
        let connection = process.connect();
        let peer = 1 - process.comm().rank();
        let semaphore =
            process.comm().build_semaphore(&connection, peer, 2).unwrap().wait(patience()).unwrap();
        (0..=peer).for_each(|_| semaphore.signal().unwrap());
        connection.flush(patience()).unwrap();
        process.barrier();
        let expected = u64::from(process.comm().rank()) + 1;
        assert_eq!(word(&process.rank.stream, semaphore.inbound_address().unwrap()), expected);
        process.barrier();
        drop((semaphore, connection));
        process.leave();
    };
    let machine = "devices=2,peers=all,descriptors=no";
    in_two("signals_reach_tokens_of_another_process", [machine; 2], run, run);
}

#[test]
fn a_gpu_that_this_process_does_not_see_is_named() {
    let owner = |process: Process| {
        for plain in [false, true] {
            let (memory, mine) = process.rank.memory(plain, &[1; 64]);
            process.send(&mine);
            drop((memory, mine));
        }
        process.leave();
    };
    let user = |process: Process| {
        for _ in 0..2 {
            let error = process.receive().unwrap_err();
            assert_eq!(error.id(), "mem.import");
            assert!(error.to_string().contains("CUDA_VISIBLE_DEVICES"), "{error}");
        }
        process.leave();
    };
    in_two("a_gpu_that_this_process_does_not_see_is_named", ["visible=0", "visible=1"], owner, user);
}
