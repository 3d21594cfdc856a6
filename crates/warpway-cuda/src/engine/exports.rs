//! How a region of a device is made known to other processes.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, Weak};

use warpway_core::Result;
use warpway_core::memory::{GpuExport, GpuPlacement, Region};

use super::devices::Shared;
use crate::context::{Context, lock};
use crate::memory::{Foreign, ForeignKind};

/// Descriptors of allocations that other libraries made, by the driver's number of the allocation, while some
/// registration has them: peers know an allocation by its descriptor.
#[derive(Default)]
pub(crate) struct Exports(Mutex<HashMap<u64, Weak<OwnedFd>>>);

/// Where a region lies, and how peers open the allocation.
pub(super) fn place(device: &Shared, region: &Region) -> Result<GpuPlacement> {
    let context = &device.context;
    let device_uuid = context.info().uuid;
    let (address, size) = (region.address().as_ptr() as u64, region.size());
    if let Some(backing) = region.backing() {
        let export = match context.fabric().works() {
            true => fabric(context, &Foreign::find(context, address, size)?),
            false => None,
        };
        return Ok(GpuPlacement {
            device_uuid,
            offset: backing.offset,
            allocation_size: backing.allocation_size,
            descriptor: Some(Arc::clone(&backing.descriptor)),
            export,
        });
    }
    let found = Foreign::find(context, address, size)?;
    let (descriptor, export) = match found.kind {
        ForeignKind::Descriptor => {
            (Some(device.exports.descriptor(device, &found)?), fabric(context, &found))
        }
        ForeignKind::Fabric => {
            let (handle, allocation) = (found.export_fabric(context)?, found.id);
            (None, Some(GpuExport::Fabric { handle, allocation }))
        }
        // Another kind than IPC is refused there.
        ForeignKind::Ipc | ForeignKind::Neither(_) => {
            (None, Some(GpuExport::Ipc { handle: found.export_ipc(context)?, allocation: found.id }))
        }
    };
    let (offset, allocation_size) = (address - found.base, found.bytes);
    Ok(GpuPlacement { device_uuid, offset, allocation_size, descriptor, export })
}

/// The fabric handle of an allocation that was made for one and has a descriptor as well.
fn fabric(context: &Context, found: &Foreign) -> Option<GpuExport> {
    if !found.fabric || !context.fabric().works() {
        return None;
    }
    match found.export_fabric(context) {
        Ok(handle) => Some(GpuExport::Fabric { handle, allocation: found.id }),
        Err(error) => {
            context.fabric().give_up(&error);
            None
        }
    }
}

impl Exports {
    fn descriptor(&self, device: &Shared, found: &Foreign) -> Result<Arc<OwnedFd>> {
        let mut exported = lock(&self.0);
        if let Some(known) = exported.get(&found.id).and_then(Weak::upgrade) {
            return Ok(known);
        }
        exported.retain(|_, weak| weak.strong_count() > 0);
        let made = Arc::new(found.export_descriptor(&device.context)?);
        exported.insert(found.id, Arc::downgrade(&made));
        Ok(made)
    }
}
