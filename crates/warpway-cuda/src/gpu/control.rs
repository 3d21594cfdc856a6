//! The control block of one communicator on one device: what ends waits of kernels, and what they leave behind.
//!
//! Half of it is pinned host memory (abort word, error record), which kernels read rarely; half is device memory
//! (poison, deadline). The first failure of the communicator, wherever it is found, sets the abort word, and kernels leave.
//! A record that a kernel has left becomes the failure of the communicator, by the watchdog or by the call that
//! waits for the kernel, whoever looks first.

use std::fmt;
use std::mem::offset_of;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use warpway_core::gpu::{FailureCode, GpuError, KernelFailure, WaitKind};
use warpway_core::health::{Failure, Health};
use warpway_core::{Error, Result, Timeout};

use super::watchdog::Watchdog;
use crate::context::Context;
use crate::driver::is_device_fault;
use crate::handle::{Control, ErrorRecord, HostControl, NO_PEER, Site};
use crate::memory::{DeviceMemory, PinnedMemory, copy_from_host};
use crate::stream::Stream;

/// In [`HostControl::record_state`]: the record is whole.
const COMPLETE: u32 = 2;

/// Limit of a set-up step on a device: no kernel is waited for in it.
const SETUP: Timeout = Timeout::after(Duration::from_secs(60));

/// The control block, with the thread that watches it.
#[derive(Debug)]
pub struct ControlBlock {
    // Dropped first: the thread looks at the rest.
    _watchdog: Watchdog,
    watched: Arc<Watched>,
}

impl ControlBlock {
    /// A control block for the communicator that `health` belongs to. `timeout` limits each wait of a kernel; none:
    /// waits end by failure or abort only.
    ///
    /// # Errors
    /// `gpu.driver`, `system` if no thread can be started.
    pub fn new(context: &Context, health: &Arc<Health>, timeout: Timeout) -> Result<Self> {
        Self::on(&Arc::new(Stream::new(context)?), health, timeout)
    }

    /// The same on a stream for set-up that others use, too.
    pub(super) fn on(stream: &Arc<Stream>, health: &Arc<Health>, timeout: Timeout) -> Result<Self> {
        let watched = Arc::new(Watched::new(stream, Arc::clone(health), timeout)?);
        let weak = Arc::downgrade(&watched);
        health.subscribe(Box::new(move |failure| {
            if let Some(watched) = weak.upgrade() {
                watched.raise_abort_word(failure);
            }
        }));
        Ok(Self { _watchdog: Watchdog::start(&watched)?, watched })
    }

    /// Device address of the [`Control`].
    pub fn address(&self) -> u64 {
        self.watched.device.address()
    }

    /// The place of an object of the communicator, for its handle. `peer` is the rank at the other end; `object` is
    /// its number in errors.
    pub fn site(&self, peer: Option<u32>, object: u64) -> Site {
        let object = object.try_into().unwrap_or(u32::MAX);
        Site { control: self.address(), peer: peer.unwrap_or(NO_PEER), object }
    }

    /// What a kernel has given up on, if one has. Makes it the communicator's failure unless there is one.
    ///
    /// # Errors
    /// What happened to the kernel; of one that was aborted, why, and where it was.
    pub fn check(&self) -> Result<()> {
        self.watched.look().map_or(Ok(()), Err)
    }

    /// How work on the device has ended, given how a call that waited for it has.
    ///
    /// # Errors
    /// What a kernel has given up on, rather than what the driver or the clock say; the communicator's failure; the
    /// error of the call.
    pub(super) fn verdict(&self, worked: Result<(), GpuError>, phase: &str) -> Result<()> {
        self.check()?;
        match worked {
            Err(error) => {
                self.watched.note(&error);
                if matches!(error, GpuError::Timeout { .. }) {
                    self.watched.health.check_during(phase)?;
                }
                Err(error.into())
            }
            Ok(()) => self.watched.health.check_during(phase),
        }
    }

    /// What the watchdog and lanes share.
    pub(super) fn watched(&self) -> &Arc<Watched> {
        &self.watched
    }
}

/// The two halves, and whose they are.
pub(super) struct Watched {
    host: PinnedMemory,
    device: DeviceMemory,
    /// For set-up, and to ask whether the device still works.
    stream: Arc<Stream>,
    health: Arc<Health>,
}

impl Watched {
    fn new(stream: &Arc<Stream>, health: Arc<Health>, timeout: Timeout) -> Result<Self> {
        let context = stream.context();
        let host = PinnedMemory::allocate(context, size_of::<HostControl>() as u64)?;
        let device = DeviceMemory::plain(context, size_of::<Control>() as u64, &[])?;
        // A limit that does not fit is none: 584 years.
        let deadline_ns =
            timeout.duration().map_or(0, |limit| limit.as_nanos().max(1).try_into().unwrap_or(0));
        let control =
            Control { deadline_ns, host: host.address(), rank: health.rank(), ..Control::default() };
        // SAFETY: the allocation is as long as the structure, and nobody else knows it.
        unsafe { copy_from_host(stream, device.address(), &[control])? };
        finish(stream)?;
        Ok(Self { host, device, stream: Arc::clone(stream), health })
    }

    /// The device's context.
    pub(super) fn context(&self) -> &Context {
        self.device.context()
    }

    /// The communicator's.
    pub(super) fn health(&self) -> &Health {
        &self.health
    }

    /// Makes kernels leave their waits.
    fn raise_abort_word(&self, failure: &Failure) {
        // Kernels read it relaxed, and only that it is not 0 matters to them.
        self.word(offset_of!(HostControl, abort_word)).store(1 + failure.code() as u32, Ordering::Release);
    }

    /// The error of a kernel, if one has left a record; the communicator has failed then.
    pub(super) fn look(&self) -> Option<Error> {
        let record = self.record()?;
        let (culprit, error) = match self.describe(&record) {
            Ok(failure) if failure.code == FailureCode::Aborted => match self.health.failure() {
                Some(first) => return Some(interrupted(first, &failure)),
                None => (Some(self.health.rank()), GpuError::Kernel(Box::new(failure))),
            },
            Ok(failure) => (failure.culprit(), GpuError::Kernel(Box::new(failure))),
            Err(error) => (Some(self.health.rank()), error),
        };
        self.health.fail_local("kernel", culprit, error.clone().into());
        Some(error.into())
    }

    /// Asks whether the device still works: a kernel that has touched what it must not is found out here.
    pub(super) fn probe(&self) {
        if let Err(error) = self.stream.is_idle() {
            self.note(&error);
        }
    }

    /// An error that means that a kernel or the hardware has failed, so that nothing works on the device any more, is the
    /// communicator's failure. Others are their caller's.
    pub(super) fn note(&self, error: &GpuError) {
        // A kernel's own record tells more.
        if is_device_fault(error) && self.look().is_none() {
            self.health.fail_local("device", Some(self.health.rank()), error.clone().into());
        }
    }

    fn record(&self) -> Option<ErrorRecord> {
        // Pairs with the release store behind the device's writes.
        if self.word(offset_of!(HostControl, record_state)).load(Ordering::Acquire) != COMPLETE {
            return None;
        }
        let at = offset_of!(HostControl, record);
        // SAFETY: within the allocation, aligned, plain numbers; the device writes it once, before the state.
        Some(unsafe { self.host.host().add(at).cast::<ErrorRecord>().read_volatile() })
    }

    fn describe(&self, record: &ErrorRecord) -> Result<KernelFailure, GpuError> {
        let known = FailureCode::from_number(record.code).zip(WaitKind::from_number(record.kind));
        let (code, kind) = known.ok_or_else(|| GpuError::Device {
            what: "reading the error record of a kernel".into(),
            device: self.context().ordinal(),
            why: format!("code {} of kind {} means nothing", record.code, record.kind),
            hint: Some("has a kernel written to memory that is not its own?"),
        })?;
        Ok(KernelFailure {
            code,
            kind,
            rank: record.rank,
            peer: (record.peer != NO_PEER).then_some(record.peer),
            device: self.context().ordinal(),
            object: record.object,
            block: record.block,
            thread: record.thread,
            expected: record.expected,
            observed: record.observed,
            elapsed: Duration::from_nanos(record.elapsed_ns),
            epoch: record.epoch,
            reason: record.reason,
        })
    }

    fn word(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: a 32-bit word within the allocation, aligned, that host and device touch by atomic accesses only; it
        // lives as long as `self`.
        unsafe { AtomicU32::from_ptr(self.host.host().as_ptr().add(offset).cast()) }
    }
}

/// The communicator's failure as the caller of an aborted kernel learns of it: also what the kernel was waiting for.
fn interrupted(first: Failure, kernel: &KernelFailure) -> Error {
    Failure { phase: format!("kernel in {}", kernel.place()), ..first }.into()
}

/// Waits for a set-up step, whatever has become of the communicator.
pub(super) fn finish(stream: &Stream) -> Result<(), GpuError> {
    stream.synchronize(SETUP.start())
}

impl fmt::Debug for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watched")
            .field("control", &self.device)
            .field("health", &self.health)
            .finish_non_exhaustive()
    }
}
