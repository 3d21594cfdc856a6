//! CUDA IPC: handles of cuMemAlloc's memory for other processes.

use std::ffi::{c_char, c_uint};
use std::os::fd::AsRawFd;
use std::sync::Arc;

use warpway_cuda_sys::driver_types::*;

use crate::driver::call::{driver_functions, put};
use crate::driver::physical::{Identity, Physical};
use crate::driver::region::{Kind, Region};
use crate::driver::state::state;

driver_functions! {
    /// Of any address within the allocation; the handle is that of the whole.
    required cuIpcGetMemHandle = "cuIpcGetMemHandle" (handle: *mut CUipcMemHandle, pointer: CUdeviceptr) {
        let state = state();
        state.current()?;
        match state.regions.of(pointer) {
            Some(Region { kind: Kind::Allocation(memory), size, .. }) if state.config.ipc => put(handle, pack(memory, *size)),
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }

    required cuIpcOpenMemHandle = "cuIpcOpenMemHandle_v2" (
        pointer: *mut CUdeviceptr, handle: CUipcMemHandle, flags: c_uint,
    ) {
        let mut state = state();
        let by = state.current()?;
        let (identity, descriptor, size) = unpack(&handle).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        // CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS is the only flag, and must be set.
        if flags != 1 || pointer.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        if identity.process == std::process::id() {
            return Err(CUDA_ERROR_INVALID_CONTEXT);
        }
        let device = state.ordinal(identity.device)?;
        if !state.reaches(by, device) {
            return Err(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
        }
        if let Some(Region { start, kind: Kind::Opened { count, .. }, .. }) = state.regions.opened(&identity, by) {
            *count += 1;
            return put(pointer, *start);
        }
        let memory = Physical::fetch(identity.process, descriptor, &identity).ok_or(CUDA_ERROR_MAP_FAILED)?;
        let start = state.enter(size, device, Kind::Opened { memory: Arc::new(memory), by, count: 1 })?;
        put(pointer, start)
    }

    required cuIpcCloseMemHandle = "cuIpcCloseMemHandle" (pointer: CUdeviceptr) {
        let mut state = state();
        state.current()?;
        match state.regions.starting_at(pointer) {
            Some(Region { kind: Kind::Opened { count, .. }, .. }) => {
                *count -= 1;
                if *count > 0 {
                    return Ok(());
                }
            }
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        }
        state.leave(pointer);
        Ok(())
    }
}

const MAGIC: [u8; 8] = *b"fakeipc1";

/// Magic, process, descriptor, number, size, device, zeros.
fn pack(memory: &Physical, size: u64) -> CUipcMemHandle {
    let mut bytes = Vec::with_capacity(64);
    bytes.extend(MAGIC);
    bytes.extend(memory.identity.process.to_le_bytes());
    bytes.extend(memory.descriptor().as_raw_fd().to_le_bytes());
    bytes.extend(memory.identity.number.to_le_bytes());
    bytes.extend(size.to_le_bytes());
    bytes.extend(memory.identity.device.to_le_bytes());
    let mut handle = CUipcMemHandle::default();
    for (to, byte) in handle.reserved.iter_mut().zip(bytes) {
        *to = byte as c_char;
    }
    handle
}

/// What [`pack`] has written, if it has.
fn unpack(handle: &CUipcMemHandle) -> Option<(Identity, i32, u64)> {
    let bytes = handle.reserved.map(|byte| byte as u8);
    let four = |at: usize| bytes[at..at + 4].try_into().map(u32::from_le_bytes).ok();
    let eight = |at: usize| bytes[at..at + 8].try_into().map(u64::from_le_bytes).ok();
    if bytes[..8] != MAGIC {
        return None;
    }
    let (process, descriptor, number, size, device) =
        (four(8)?, four(12)? as i32, eight(16)?, eight(24)?, four(32)?);
    Some((Identity { process, number, device, shareable: CU_MEM_HANDLE_TYPE_NONE }, descriptor, size))
}
