//! What a kernel does, done by a thread of the host.

use fake_cuda::Fake;
use libloading::os::unix::{Library, Symbol};
use warpway_core::channel::{DeviceHandle, PortChannel};
use warpway_core::fifo::Trigger;
use warpway_cuda::{BasePortChannelHandle, FifoHandle, Host2DeviceSemaphoreHandle, PortChannelHandle};

use crate::host_compiler;

/// What a push returns that pushed nothing.
pub(crate) const NO_POSITION: u64 = u64::MAX;
/// How a wait of a kernel ends.
pub(crate) const OK: u32 = 0;
pub(crate) const ABORTED: u32 = 2;

type Push = unsafe extern "C" fn(*const FifoHandle, *const DeviceTrigger) -> u64;
type Call = unsafe extern "C" fn(*const PortChannelHandle, u32, u64, u64, u64) -> u64;
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

/// The kernel's end of a port channel.
pub(crate) struct KernelChannel {
    handle: PortChannelHandle,
    call: Symbol<Call>,
    guard: DeviceHandle<PortChannelHandle, PortChannel>,
}

impl Producer {
    /// The kernel's end of a port channel.
    pub(crate) fn channel(
        &self,
        fake: &Fake,
        guard: DeviceHandle<PortChannelHandle, PortChannel>,
    ) -> KernelChannel {
        let host = |address| fake.host_address(address).unwrap() as u64;
        let base = guard.base;
        let semaphore = Host2DeviceSemaphoreHandle {
            inbound: host(base.semaphore.inbound),
            expected: host(base.semaphore.expected),
            ..base.semaphore
        };
        let (fifo, flush_done) = (on_host(fake, &base.fifo), host(base.flush_done));
        let base = BasePortChannelHandle { semaphore, fifo, flush_done, ..base };
        // SAFETY: the function's own signature.
        let call = unsafe { self.symbol(b"producer_call") };
        KernelChannel { handle: PortChannelHandle { base, ..*guard }, call, guard }
    }
}

impl KernelChannel {
    fn call(&self, number: u32, dst_offset: u64, src_offset: u64, size: u64) -> u64 {
        // SAFETY: the handle is laid out as in the headers, and what it names lives.
        unsafe { (self.call)(&raw const self.handle, number, dst_offset, src_offset, size) }
    }

    pub(crate) fn put(&self, dst_offset: u64, src_offset: u64, size: u64) -> u64 {
        self.call(0, dst_offset, src_offset, size)
    }

    pub(crate) fn signal(&self) -> u64 {
        self.call(1, 0, 0, 0)
    }

    pub(crate) fn put_with_signal(&self, dst_offset: u64, src_offset: u64, size: u64) -> u64 {
        self.call(2, dst_offset, src_offset, size)
    }

    pub(crate) fn put_with_signal_and_flush(&self, dst_offset: u64, src_offset: u64, size: u64) -> u64 {
        self.call(3, dst_offset, src_offset, size)
    }

    pub(crate) fn flush(&self) -> u64 {
        self.call(4, 0, 0, 0)
    }

    pub(crate) fn poll(&self) -> bool {
        self.call(6, 0, 0, 0) != 0
    }

    pub(crate) fn wait(&self) -> u64 {
        self.call(7, 0, 0, 0)
    }

    /// The channel that the handle was made of.
    pub(crate) fn channel(&self) -> &PortChannel {
        self.guard.channel()
    }

    /// The same with a lie about the length of both memories.
    pub(crate) fn with_sizes(&self, bytes: u64) -> Self {
        let handle = PortChannelHandle { dst_bytes: bytes, src_bytes: bytes, ..self.handle };
        Self { handle, call: self.call.clone(), guard: self.guard.clone() }
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
