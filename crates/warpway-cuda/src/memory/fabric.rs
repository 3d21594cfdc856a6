//! Whether a device's memory goes by fabric handles: devices claim them that are in no NVLink domain.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

use warpway_core::Result;

use super::mapping::Physical;
use crate::context::Context;
use crate::device::GpuInfo;

/// What is known of a device's fabric handles. Kept with its context, so that it is found out once.
#[derive(Debug)]
pub(crate) struct FabricUse {
    device: i32,
    works: AtomicBool,
    noted: AtomicBool,
}

impl FabricUse {
    /// They work where the device claims them, until the driver refuses one; `watched`: a refusal would be taken for a fault.
    pub(crate) fn of(info: &GpuInfo, watched: bool) -> Self {
        let works = AtomicBool::new(info.exports_fabric && !watched);
        Self { device: info.ordinal, works, noted: AtomicBool::new(false) }
    }

    /// False for a device without them, and since the driver has refused to make one.
    pub(crate) fn works(&self) -> bool {
        // Relaxed: who sees it late is refused once more.
        self.works.load(Ordering::Relaxed)
    }

    /// The driver has refused to make one; none is asked for any more.
    pub(crate) fn give_up(&self, why: &impl fmt::Display) {
        self.works.store(false, Ordering::Relaxed);
        self.note(why);
    }

    /// Another way was taken. Said once.
    pub(crate) fn note(&self, why: &impl fmt::Display) {
        if !self.noted.swap(true, Ordering::Relaxed) {
            let device = self.device;
            tracing::info!(target: "warpway::gpu", "device {device}: memory is shared without fabric handles: {why}");
        }
    }
}

/// Makes a fabric handle and drops it.
///
/// # Errors
/// `gpu.driver`: what the driver says where there is no domain.
pub(crate) fn try_fabric(context: &Context) -> Result<()> {
    Physical::allocate_for_fabric(context, 1)?.export_fabric().map(drop)
}
