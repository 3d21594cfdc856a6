//! What a communicator asks of the GPUs of its host.

use std::fmt;
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use warpway_core::bootstrap::BootstrapError;
use warpway_core::connection::{ConnectionError, RawConnection};
use warpway_core::deadline::Deadline;
use warpway_core::endpoint::{Endpoint, EndpointConfig};
use warpway_core::engine::{Engine, EngineContext};
use warpway_core::gpu::GpuError;
use warpway_core::memory::{Access, Export, GpuExport, Import, MemoryError, MemoryRecord, Region};
use warpway_core::transport::{DeviceKind, Transport};
use warpway_core::{Error, Result, Unavailable};

use super::adopt::adopt;
use super::connection::CudaConnection;
use super::devices::{Devices, Shared};
use super::exports::place;
use super::imports::{AllocationKey, Name};
use super::tokens::GpuTokens;
use super::word_writer::WordForm;
use crate::capture::RelaxedCapture;
use crate::context::{Context, lock};
use crate::memory::{ImportedMemory, try_fabric};

/// Memory of GPUs as a transport, for one rank and its device. Cheap to clone. Nothing is opened before a GPU is asked
/// for, so a communicator on a machine without one has the engine for nothing.
#[derive(Clone)]
pub struct CudaEngine(Arc<Inner>);

struct Inner {
    devices: Devices,
    choice: DeviceChoice,
    words: WordForm,
    device: Mutex<Option<Arc<Shared>>>,
    next: AtomicU64,
}

/// Which device a rank uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DeviceChoice {
    /// This one.
    pub ordinal: Option<u32>,
    /// Otherwise the one that is current on the thread that first needs it, and if none is, this number modulo the
    /// number of visible devices.
    pub local_rank: u32,
}

impl CudaEngine {
    /// An engine whose device is chosen when it is first needed.
    pub fn new(devices: &Devices, choice: DeviceChoice) -> Self {
        let (devices, words, next) = (devices.clone(), WordForm::default(), AtomicU64::new(1));
        Self(Arc::new(Inner { devices, choice, words, device: Mutex::default(), next }))
    }

    /// The same engine, and its connections write words in another way. No effect on an engine that has been cloned.
    pub fn with_words(mut self, words: WordForm) -> Self {
        if let Some(inner) = Arc::get_mut(&mut self.0) {
            inner.words = words;
        }
        self
    }

    /// Driver, compiler and contexts.
    pub fn devices(&self) -> &Devices {
        &self.0.devices
    }

    /// The context of the rank's device; opens driver and device.
    ///
    /// # Errors
    /// `unavailable` without a driver or a device, `gpu.driver`.
    pub fn context(&self) -> Result<Context> {
        self.device().map(|device| device.context.clone())
    }

    /// Where the tokens of semaphores lie that kernels of the device wait for.
    pub fn tokens(&self) -> GpuTokens {
        GpuTokens::new(self.clone())
    }

    fn device(&self) -> Result<Arc<Shared>> {
        let mut device = lock(&self.0.device);
        if let Some(device) = &*device {
            return Ok(Arc::clone(device));
        }
        let driver = self.0.devices.driver()?;
        let count = driver.device_count()?;
        let absent = |what: String, why: String| {
            Error::from(Unavailable { what, why, hint: "look at CUDA_VISIBLE_DEVICES and `warpway doctor`" })
        };
        let ordinal = match self.0.choice.ordinal.map(|chosen| (chosen, i32::try_from(chosen))) {
            Some((_, Ok(ordinal))) if ordinal < count => ordinal,
            Some((chosen, _)) => {
                let why =
                    format!("it was chosen (WARPWAY_DEVICE), but the driver shows {count}, counted from 0");
                return Err(absent(format!("GPU {chosen}"), why));
            }
            None => match Context::current_device(&driver)? {
                Some(current) => current,
                None if count == 0 => return Err(absent("a GPU".into(), "the driver shows none".into())),
                None => (i64::from(self.0.choice.local_rank) % i64::from(count)) as i32,
            },
        };
        Ok(Arc::clone(device.insert(self.0.devices.shared(ordinal)?)))
    }

    /// Maps the allocation that a record speaks of, or finds it mapped.
    fn map(
        &self,
        context: &EngineContext,
        record: &MemoryRecord,
        device: &Shared,
        deadline: Deadline,
    ) -> Result<ImportedMemory> {
        let owner = context.rank_of(record.owner);
        let refuse = |why: &str| {
            let why = format!("{}: {why}", Transport::CudaIpc);
            Error::from(MemoryError::Import { owner, size: record.size, why })
        };
        let key = |name| AllocationKey::new(context.control.job_nonce(), record, name);
        let by_descriptor = record.shared.is_some() && is_of_this_host(context, record);
        if let Some(export @ GpuExport::Fabric { handle, .. }) = &record.gpu
            && (device.context.fabric().works() || !by_descriptor)
        {
            let opened = device.imports.find_or_open(key(Name::Export(*export)), owner, record, || {
                ImportedMemory::from_fabric_handle(&device.context, handle, record.allocation_size)
            });
            match opened {
                Err(Error::Gpu(error)) if by_descriptor => device.context.fabric().note(&error),
                Err(Error::Gpu(error)) => {
                    return Err(refuse(&format!(
                        "{error}; are both GPUs in one NVLink domain, and does its service (IMEX) run?"
                    )));
                }
                opened => return opened,
            }
        }
        if let Some(shared) = &record.shared {
            let key = key(Name::Descriptor(shared.descriptor));
            if let Some(known) = device.imports.find(&key, owner, record)? {
                return Ok(known);
            }
            // Not under the lock: the owner may be slow to answer.
            let descriptor = context.control.fetch_descriptor(record.owner, shared.descriptor, deadline);
            let descriptor = descriptor.map_err(|error| match error {
                // It names ranks of the job.
                Error::Bootstrap(BootstrapError::Descriptor { why, .. }) => refuse(&why),
                other => other,
            })?;
            return device.imports.find_or_open(key, owner, record, || {
                ImportedMemory::from_descriptor(&device.context, descriptor.as_fd(), record.allocation_size)
            });
        }
        match &record.gpu {
            Some(export @ GpuExport::Ipc { handle, .. }) => {
                if Some(record.process) == own_process(context) {
                    return Err(refuse(
                        "the owner is in this process, where CUDA IPC cannot open it; make all ranks of a process \
                         from one Context",
                    ));
                }
                device.imports.find_or_open(key(Name::Export(*export)), owner, record, || {
                    ImportedMemory::from_ipc_handle(&device.context, handle, record.allocation_size)
                })
            }
            _ => Err(refuse("the owner offers no way to open it that is known here")),
        }
    }
}

impl Engine for CudaEngine {
    fn transport(&self) -> Transport {
        Transport::CudaIpc
    }

    fn export(&self, _context: &EngineContext, region: &Region, _access: Access) -> Result<Export> {
        let (address, size) = (region.address().as_ptr() as u64, region.size());
        let refuse = |why| MemoryError::NotExportable { address, size, transport: Transport::CudaIpc, why };
        // First of all, so that host memory does not open the driver.
        if region.device().kind != DeviceKind::Gpu {
            return Err(refuse("it is host memory; register it for SharedMemory or Ethernet").into());
        }
        let device = self.device()?;
        if region.device() != device.context.device() {
            return Err(refuse(
                "it is on another GPU than the communicator's; copy it, or make a communicator on that GPU",
            )
            .into());
        }
        let _relaxed = RelaxedCapture::begin(&device.context)?;
        let gpu = Some(place(&device, region)?);
        Ok(Export { gpu, ..Export::new(Transport::CudaIpc) })
    }

    fn import(&self, context: &EngineContext, record: &MemoryRecord, deadline: Deadline) -> Result<Import> {
        let refuse = |why: String| {
            let owner = context.rank_of(record.owner);
            Error::from(MemoryError::Import { owner, size: record.size, why })
        };
        if record.device.kind != DeviceKind::Gpu {
            return Err(refuse("it is not memory of a GPU".into()));
        }
        let end = record.offset.checked_add(record.size);
        if end.is_none_or(|end| end > record.allocation_size) {
            return Err(refuse("the record reaches beyond its allocation".into()));
        }
        let device = self.device()?;
        let here = device.context.ordinal();
        let there = self.0.devices.ordinal_of(&record.device_uuid)?;
        if let Some(there) = there
            && !self.0.devices.driver()?.peer_link(here, there)?.access
        {
            return Err(refuse(format!(
                "GPU {here} has no peer access to GPU {there}; use a port channel by Ethernet, or GPUs with NVLink"
            )));
        }
        let _relaxed = RelaxedCapture::begin(&device.context)?;
        let mapped = self.map(context, record, &device, deadline);
        let mapped = match (mapped, there) {
            // Drivers may map memory of devices that they do not show; where they do not, this is the likely reason.
            (Err(Error::Gpu(error)), None) => {
                return Err(refuse(format!(
                    "{error}; this process does not see the GPU it is on (CUDA_VISIBLE_DEVICES)"
                )));
            }
            (mapped, _) => mapped?,
        };
        let region = mapped.region(record.offset, record.size)?;
        Ok(Import { transport: Transport::CudaIpc, region: Some(region) })
    }

    fn adopt(&self, _context: &EngineContext, region: &Region) -> Result<()> {
        if region.device().kind != DeviceKind::Gpu {
            return Ok(());
        }
        let device = self.device()?;
        if region.device() == device.context.device() {
            return Ok(());
        }
        let _relaxed = RelaxedCapture::begin(&device.context)?;
        let owner = self.0.devices.context(region.device().id)?;
        let _alone = self.0.devices.adopting();
        adopt(&device.context, &owner, region)
    }

    fn endpoint(&self, _context: &EngineContext, config: &EndpointConfig) -> Result<Endpoint> {
        let device = match config.device.kind {
            DeviceKind::Gpu => {
                let own = self.context()?.device();
                if config.device.id >= 0 && config.device != own {
                    return Err(GpuError::Device {
                        what: "making an endpoint".into(),
                        device: config.device.id,
                        why: format!("this communicator is on device {}", own.id),
                        hint: Some("use that one, or −1 for it"),
                    }
                    .into());
                }
                own
            }
            DeviceKind::Cpu | DeviceKind::Unknown => config.device,
        };
        let id = self.0.next.fetch_add(1, Ordering::Relaxed);
        Ok(Endpoint::new(Transport::CudaIpc, device, config, id))
    }

    fn connect(
        &self,
        context: &EngineContext,
        local: &Endpoint,
        remote: &Endpoint,
        _deadline: Deadline,
    ) -> Result<Box<dyn RawConnection>> {
        let peer = context.rank_of(remote.owner);
        let refuse = |why| {
            let (local, remote) = (local.transport, remote.transport);
            Error::from(ConnectionError::Incompatible { local, remote, peer, why })
        };
        let device = self.device()?;
        // What a GPU claims may not be set up.
        if local.host != remote.host
            && !(device.context.fabric().works() && try_fabric(&device.context).is_ok())
        {
            return Err(refuse(
                "CudaIpc reaches another host by fabric handles only, which do not work on this GPU; use Ethernet",
            ));
        }
        // Only in this process do the peer's ordinals mean the same devices; elsewhere its memory's UUID will tell.
        if remote.process == local.process && remote.device.kind == DeviceKind::Gpu {
            let link = self.0.devices.driver()?.peer_link(device.context.ordinal(), remote.device.id)?;
            if !link.access {
                return Err(refuse("the two GPUs have no peer access; use Ethernet, or GPUs with NVLink"));
            }
        }
        let _relaxed = RelaxedCapture::begin(&device.context)?;
        let health = Arc::clone(&context.waiter.health);
        let queue = local.max_write_queue_size;
        Ok(Box::new(CudaConnection::new(&device, self.0.words, peer, health, queue)?))
    }
}

/// Whether the owner could hand a descriptor over.
fn is_of_this_host(context: &EngineContext, record: &MemoryRecord) -> bool {
    let control = &context.control;
    control.peers().get(control.job_rank() as usize).is_some_and(|me| me.host == record.host)
}

/// This process as the job knows it.
fn own_process(context: &EngineContext) -> Option<u64> {
    let control = &context.control;
    control.peers().get(control.job_rank() as usize).map(|me| me.process)
}

impl fmt::Debug for CudaEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let device = lock(&self.0.device).as_ref().map(|device| device.context.ordinal());
        f.debug_struct("CudaEngine").field("device", &device).finish_non_exhaustive()
    }
}
