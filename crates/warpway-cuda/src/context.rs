//! A device's primary context: on whose behalf calls are made, which peers it reaches, what is resident on it.
//!
//! Other libraries of the process (PyTorch, JAX) use the same primary context, so memory, streams and events are common.
//! One value per device is made by the program and shared by its communicators; nothing here is global.

use std::collections::BTreeSet;
use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use warpway_core::gpu::GpuError;
use warpway_core::transport::{Device, DeviceKind};
use warpway_cuda_sys::driver_types::{
    CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, CUDA_SUCCESS, CUcontext, CUdevice, CUresult,
};

use crate::capture::RelaxedCapture;
use crate::device::GpuInfo;
use crate::driver::Driver;
use crate::memory::FabricUse;
use crate::residency::Ledger;

/// A retained primary context. Cheap to clone; the last clone releases it.
#[derive(Clone)]
pub struct Context(Arc<Retained>);

struct Retained {
    driver: Driver,
    info: GpuInfo,
    device: CUdevice,
    raw: CUcontext,
    /// Ordinals of the devices whose memory kernels here may touch.
    peers: Mutex<BTreeSet<i32>>,
    ledger: Ledger,
    fabric: FabricUse,
}

// SAFETY: a context handle may be used by any thread; which thread it is current for is the thread's state.
unsafe impl Send for Retained {}
// SAFETY: as above; the rest is synchronised by itself.
unsafe impl Sync for Retained {}

impl Context {
    /// Retains the primary context of a device, and makes it if nobody has yet.
    ///
    /// # Errors
    /// `gpu.driver`, for an ordinal that does not exist or a device that cannot be used.
    pub fn primary(driver: &Driver, ordinal: i32) -> Result<Self, GpuError> {
        let info = driver.device(ordinal)?;
        let device = driver.handle(ordinal)?;
        let mut raw: CUcontext = std::ptr::null_mut();
        // SAFETY: writes one handle; the device exists.
        let result = unsafe { (driver.table().cuDevicePrimaryCtxRetain)(&raw mut raw, device) };
        let what = format_args!("taking the primary context of device {ordinal}");
        driver.check(what, "cuDevicePrimaryCtxRetain", result)?;
        let driver = driver.clone();
        let (peers, ledger, fabric) =
            (Mutex::default(), Ledger::new(ordinal), FabricUse::of(&info, driver.is_watched()));
        Ok(Self(Arc::new(Retained { driver, info, device, raw, peers, ledger, fabric })))
    }

    /// The ordinal of the device whose context is current on this thread; `None` if none is.
    ///
    /// # Errors
    /// `gpu.driver`.
    pub fn current_device(driver: &Driver) -> Result<Option<i32>, GpuError> {
        let mut raw: CUcontext = std::ptr::null_mut();
        // SAFETY: writes one handle.
        let result = unsafe { (driver.table().cuCtxGetCurrent)(&raw mut raw) };
        driver.check("asking for the current context", "cuCtxGetCurrent", result)?;
        if raw.is_null() {
            return Ok(None);
        }
        let mut device: CUdevice = 0;
        // SAFETY: writes one number; a context is current.
        let result = unsafe { (driver.table().cuCtxGetDevice)(&raw mut device) };
        driver.check("asking for the current device", "cuCtxGetDevice", result)?;
        Ok(Some(device))
    }

    /// Makes the context current for this thread until the guard is dropped.
    ///
    /// # Errors
    /// `gpu.driver`, if the context has been destroyed by a reset.
    pub fn enter(&self) -> Result<Entered<'_>, GpuError> {
        let driver = self.driver();
        let mut current: CUcontext = std::ptr::null_mut();
        // SAFETY: writes one handle.
        let result = unsafe { (driver.table().cuCtxGetCurrent)(&raw mut current) };
        self.check("asking for the current context", "cuCtxGetCurrent", result)?;
        let pushed = current != self.0.raw;
        if pushed {
            // SAFETY: the context is retained by `self`.
            let result = unsafe { (driver.table().cuCtxPushCurrent)(self.0.raw) };
            self.check("entering the context", "cuCtxPushCurrent", result)?;
        }
        Ok(Entered { context: self, pushed, of_thread: PhantomData })
    }

    /// The same where nothing can be returned: a failure is noted, and the clean-up tried without. Values may be dropped
    /// while somebody captures a stream: that capture stays as it is.
    pub(crate) fn enter_to_clean_up(&self) -> CleanUp<'_> {
        // SAFETY: the context is retained by `self`.
        let result = unsafe { (self.driver().table().cuCtxPushCurrent)(self.0.raw) };
        self.note("entering the context to clean up", "cuCtxPushCurrent", result);
        let entered = || Entered { context: self, pushed: true, of_thread: PhantomData };
        let relaxed = RelaxedCapture::begin(self);
        let relaxed = relaxed.inspect_err(|error| tracing::warn!(target: "warpway::gpu", "{error}"));
        CleanUp { _entered: (result == CUDA_SUCCESS).then(entered), _relaxed: relaxed.ok() }
    }

    /// Lets kernels and copies here touch all memory of `peer` made by plain allocations. Memory that is mapped piece
    /// by piece carries its own permissions and does not need it.
    ///
    /// # Errors
    /// `gpu.device` if the hardware does not do it.
    pub fn enable_peer(&self, peer: &Self) -> Result<(), GpuError> {
        let (here, there) = (self.ordinal(), peer.ordinal());
        let mut peers = lock(&self.0.peers);
        if here == there || peers.contains(&there) {
            return Ok(());
        }
        if !self.driver().peer_link(here, there)?.access {
            return Err(GpuError::Device {
                what: format!("reaching the memory of device {there}"),
                device: here,
                why: "the two have no peer access".into(),
                hint: Some("use a port channel, or devices with NVLink or peer PCIe"),
            });
        }
        let entered = self.enter()?;
        // SAFETY: both contexts are retained; flags must be 0.
        let result = unsafe { (self.driver().table().cuCtxEnablePeerAccess)(peer.0.raw, 0) };
        drop(entered);
        // Another library may have been first.
        if result != CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED {
            let what = format_args!("reaching the memory of device {there} from device {here}");
            self.driver().check(what, "cuCtxEnablePeerAccess", result)?;
        }
        peers.insert(there);
        Ok(())
    }

    /// Bytes of the device's memory that nobody has taken, of all processes together.
    ///
    /// # Errors
    /// `gpu.driver`.
    pub fn free_memory(&self) -> Result<u64, GpuError> {
        let _entered = self.enter()?;
        let (mut free, mut total) = (0usize, 0usize);
        // SAFETY: writes two numbers; the context is current.
        let result = unsafe { (self.driver().table().cuMemGetInfo)(&raw mut free, &raw mut total) };
        self.check("asking for free memory", "cuMemGetInfo", result)?;
        Ok(free as u64)
    }

    /// The driver.
    pub fn driver(&self) -> &Driver {
        &self.0.driver
    }

    /// What is known of the device.
    pub fn info(&self) -> &GpuInfo {
        &self.0.info
    }

    /// The driver's number of the device.
    pub fn ordinal(&self) -> i32 {
        self.0.info.ordinal
    }

    /// The device as the core names it.
    pub fn device(&self) -> Device {
        Device { kind: DeviceKind::Gpu, id: self.ordinal() }
    }

    /// Blocks that may wait for each other or for peers, of all kernels on the device.
    pub fn ledger(&self) -> &Ledger {
        &self.0.ledger
    }

    /// Whether streams write 64-bit words by themselves.
    pub(crate) fn writes_words(&self) -> bool {
        self.driver().table().cuStreamWriteValue64.is_some() && self.info().stream_words
    }

    /// Whether memory goes by fabric handles here.
    pub(crate) fn fabric(&self) -> &FabricUse {
        &self.0.fabric
    }

    /// An error that says where, unless a call has succeeded. Nothing is put into words before that is known.
    #[inline]
    pub(crate) fn check(
        &self,
        what: impl fmt::Display,
        call: &'static str,
        result: CUresult,
    ) -> Result<(), GpuError> {
        let here = self.ordinal();
        self.driver().check(format_args!("{what} (device {here})"), call, result)
    }

    /// Notes a failure of clean-up.
    pub(crate) fn note(&self, what: &str, call: &'static str, result: CUresult) {
        self.driver().note(format_args!("{what} (device {})", self.ordinal()), call, result);
    }
}

impl Drop for Retained {
    fn drop(&mut self) {
        // SAFETY: retained once by `primary`.
        let result = unsafe { (self.driver.table().cuDevicePrimaryCtxRelease)(self.device) };
        self.driver.note("releasing a primary context", "cuDevicePrimaryCtxRelease", result);
    }
}

impl PartialEq for Context {
    /// True if both are of one device.
    fn eq(&self, other: &Self) -> bool {
        self.0.raw == other.0.raw
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("device", &self.ordinal()).finish_non_exhaustive()
    }
}

/// The context is current on this thread; the one before comes back when this is dropped.
#[derive(Debug)]
pub struct Entered<'c> {
    context: &'c Context,
    pushed: bool,
    /// Not for other threads.
    of_thread: PhantomData<*mut ()>,
}

/// As far as it went; see [`Context::enter_to_clean_up`].
pub(crate) struct CleanUp<'c> {
    _entered: Option<Entered<'c>>,
    _relaxed: Option<RelaxedCapture<'c>>,
}

impl Entered<'_> {
    pub(crate) fn context(&self) -> &Context {
        self.context
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        let _ = self.of_thread;
        if !self.pushed {
            return;
        }
        let mut popped: CUcontext = std::ptr::null_mut();
        // SAFETY: pops what `enter` pushed on this thread; guards are dropped in reverse order of their making.
        let result = unsafe { (self.context.driver().table().cuCtxPopCurrent)(&raw mut popped) };
        self.context.note("leaving the context", "cuCtxPopCurrent", result);
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
