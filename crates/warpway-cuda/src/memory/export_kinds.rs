//! Which ways of giving memory to other processes work on a device, found by using each once.

use std::os::fd::AsFd as _;

use warpway_core::{Result, Unavailable};

use super::device::DeviceMemory;
use super::fabric::try_fabric;
use super::foreign::Foreign;
use super::mapping::{Mapping, Physical};
use crate::context::Context;

/// What came of each way. Attributes of a device promise what a container or a driver's settings may forbid.
#[derive(Debug)]
#[non_exhaustive]
pub struct ExportKinds {
    /// A file descriptor: exported, imported and mapped again.
    pub descriptor: Result<()>,
    /// A CUDA IPC handle. It was made; only another process could open it.
    pub ipc: Result<()>,
    /// A fabric handle, for the hosts of one NVLink domain.
    pub fabric: Result<()>,
}

impl ExportKinds {
    /// Tries each with the least allocation there is, and gives that back.
    pub fn probe(context: &Context) -> Self {
        Self { descriptor: descriptor(context), ipc: ipc(context), fabric: fabric(context) }
    }
}

fn descriptor(context: &Context) -> Result<()> {
    if !context.info().exports_descriptors {
        return Err(absent(context, "memory as a file descriptor", "CUDA IPC does instead"));
    }
    let memory = Physical::allocate(context, 1)?;
    let exported = memory.export()?;
    let imported = Physical::import(context, exported.as_fd(), memory.bytes())?;
    Mapping::new(imported, &[]).map(drop)
}

fn ipc(context: &Context) -> Result<()> {
    let memory = DeviceMemory::plain(context, 1, &[])?;
    Foreign::find(context, memory.address(), 1)?.export_ipc(context).map(drop)
}

fn fabric(context: &Context) -> Result<()> {
    if !context.info().exports_fabric {
        return Err(absent(context, "memory as a fabric handle", "only hosts of one NVLink domain need it"));
    }
    try_fabric(context)
}

fn absent(context: &Context, what: &str, hint: &'static str) -> warpway_core::Error {
    let what = format!("{what} (device {})", context.ordinal());
    Unavailable { what, why: "the device does not have it".into(), hint }.into()
}
