//! What a kernel does, done by a thread of the host.

use fake_cuda::Fake;
use libloading::os::unix::{Library, Symbol};
use warpway_core::fifo::Trigger;
use warpway_cuda::FifoHandle;

use crate::host_compiler;

/// What a push returns that pushed nothing.
pub(crate) const NO_POSITION: u64 = u64::MAX;
/// How a wait of a kernel ends.
pub(crate) const OK: u32 = 0;
pub(crate) const ABORTED: u32 = 2;

type Push = unsafe extern "C" fn(*const FifoHandle, *const DeviceTrigger) -> u64;
type Sync = unsafe extern "C" fn(*const FifoHandle, u64) -> u32;

/// `warpway::Trigger`.
#[repr(C)]
pub(crate) struct DeviceTrigger {
    pub(crate) kind: u32,
    pub(crate) semaphore: u32,
    pub(crate) destination: u32,
    pub(crate) source: u32,
    pub(crate) destination_offset: u64,
    pub(crate) source_offset: u64,
    pub(crate) size: u64,
    pub(crate) value: i64,
}

impl From<Trigger> for DeviceTrigger {
    fn from(trigger: Trigger) -> Self {
        Self {
            kind: trigger.kind.bits().into(),
            semaphore: trigger.semaphore.bits(),
            destination: trigger.destination.bits(),
            source: trigger.source.bits(),
            destination_offset: trigger.destination_offset,
            source_offset: trigger.source_offset,
            size: trigger.size,
            value: trigger.value,
        }
    }
}

/// The compiled headers.
pub(crate) struct Producer {
    library: Library,
}

impl Producer {
    /// `None` without a compiler.
    pub(crate) fn load() -> Option<Self> {
        let path = host_compiler::compile("producer", &["-O1", "-shared", "-fPIC"])?;
        // SAFETY: our own library, whose initialisers do nothing.
        let library = unsafe { Library::new(&path).unwrap() };
        std::fs::remove_file(path).unwrap();
        let producer = Self { library };
        // SAFETY: the function's own signature; nothing runs yet.
        unsafe { producer.symbol::<unsafe extern "C" fn()>(b"producer_start")() };
        Some(producer)
    }

    /// # Safety
    /// `T` must be the function's signature.
    unsafe fn symbol<T>(&self, name: &[u8]) -> Symbol<T> {
        // SAFETY: the caller's.
        unsafe { self.library.get(name).unwrap() }
    }

    /// The kernel's end of a FIFO.
    pub(crate) fn fifo(&self, fake: &Fake, handle: &FifoHandle) -> KernelFifo {
        // SAFETY: the functions' own signatures.
        let (push, sync) = unsafe { (self.symbol(b"producer_push"), self.symbol(b"producer_sync")) };
        KernelFifo { handle: on_host(fake, handle), push, sync }
    }
}

/// The same handle with addresses of the host.
fn on_host(fake: &Fake, handle: &FifoHandle) -> FifoHandle {
    let host = |address| fake.host_address(address).unwrap() as u64;
    FifoHandle {
        slots: host(handle.slots),
        head: host(handle.head),
        tail: host(handle.tail),
        cached_tail: host(handle.cached_tail),
        ..*handle
    }
}

pub(crate) struct KernelFifo {
    handle: FifoHandle,
    push: Symbol<Push>,
    sync: Symbol<Sync>,
}

impl KernelFifo {
    pub(crate) fn push(&self, trigger: impl Into<DeviceTrigger>) -> u64 {
        let trigger = trigger.into();
        // SAFETY: both structures are laid out as in the headers; the FIFO lives.
        unsafe { (self.push)(&raw const self.handle, &raw const trigger) }
    }

    pub(crate) fn sync(&self, position: u64) -> u32 {
        // SAFETY: as above.
        unsafe { (self.sync)(&raw const self.handle, position) }
    }
}
