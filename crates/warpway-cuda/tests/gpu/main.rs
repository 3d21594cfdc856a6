//! One rank's GPU on a driver in host memory: what needs no real kernel.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed test")]

mod failures;
mod handles;
mod launches;
mod lifetimes;
mod memory;

use std::sync::Arc;
use std::time::{Duration, Instant};

use fake_cuda::Fake;
use warpway_core::communicator::{Communicator, CommunicatorParts};
use warpway_core::config::{Config, Environment};
use warpway_core::memory::{Region, RegisteredMemory, TokenMemory};
use warpway_core::testing::{LocalEngine, LocalJob, allocate_as};
use warpway_core::transport::{Device, DeviceKind, Transport};
use warpway_core::{Deadline, Result, Timeout};
use warpway_cuda::jit::Compiler;
use warpway_cuda::{Context, Driver, Gpu, Kernel, Module};

/// The fake's kernels.
const IMAGE: &[u8] = b"fake module
function fill_u32 parameters=8,4,8 registers=24 threads=1024 shared=0
function wait_u64 parameters=8,8,8 registers=16 threads=1024 shared=0
function add_u64 parameters=8,8 registers=16 threads=1024 shared=0
function trap registers=16 threads=1024 shared=0
\0";

const TIMEOUT: Timeout = Timeout::after(Duration::from_millis(1234));

/// Two ranks of one process. Dropped in the order of its fields.
struct Rig {
    gpus: Vec<Gpu>,
    ranks: Vec<Communicator>,
    contexts: Vec<Context>,
    fake: Fake,
}

/// Both ranks on device 0.
fn rig(settings: &str) -> Rig {
    rig_on(settings, [0, 0])
}

fn rig_on(settings: &str, ordinals: [i32; 2]) -> Rig {
    let fake = Fake::open();
    fake.set(settings);
    let driver = Driver::open(fake.path()).unwrap();
    // One context per device, so that its ranks share a ledger.
    let first = Context::primary(&driver, ordinals[0]).unwrap();
    let second = if ordinals[1] == ordinals[0] {
        first.clone()
    } else {
        Context::primary(&driver, ordinals[1]).unwrap()
    };
    let contexts = vec![first, second];
    let job = LocalJob::new(2);
    let compiler = Compiler::new(&Config::default(), &Environment::of_process().unwrap());
    let ranks: Vec<Communicator> = (0..2)
        .zip(ordinals)
        .map(|(rank, id)| {
            let parts = job.parts(rank, vec![Arc::new(LocalEngine::new(Transport::CudaIpc))]);
            let tokens: Arc<dyn TokenMemory> = Arc::new(Tokens(Device { kind: DeviceKind::Gpu, id }));
            Communicator::new(CommunicatorParts { gpu_token_memory: Some(tokens), ..parts }).unwrap()
        })
        .collect();
    let gpus = ranks.iter().zip(&contexts);
    let gpus = gpus.map(|(rank, context)| Gpu::new(rank, context, &compiler, TIMEOUT).unwrap()).collect();
    Rig { gpus, ranks, contexts, fake }
}

impl Rig {
    /// Drops everything; nothing is left in the driver.
    fn end(self) {
        let Self { gpus, ranks, contexts, fake } = self;
        drop((gpus, ranks, contexts));
        assert_eq!(fake.live().total(), 0, "{:?}", fake.live());
    }

    fn kernel(&self, rank: usize, name: &str) -> Kernel {
        Module::load(self.gpus[rank].context(), IMAGE).unwrap().kernel(name).unwrap()
    }

    /// Where the host finds a device address.
    fn host(&self, address: u64) -> *mut u8 {
        self.fake.host_address(address).unwrap()
    }
}

/// Tokens that are said to be on a GPU. Always fresh: tests use each once.
struct Tokens(Device);

impl TokenMemory for Tokens {
    fn allocate(&self, bytes: u64) -> Result<Region> {
        allocate_as(self.0, bytes)
    }

    fn reset(&self, _page: &RegisteredMemory, _offset: u64) -> Result<()> {
        Ok(())
    }
}

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(30))
}

/// Polls until it holds.
fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !condition() {
        assert!(begin.elapsed() < Duration::from_secs(30), "{what} does not come about");
        std::thread::sleep(Duration::from_millis(1));
    }
}
