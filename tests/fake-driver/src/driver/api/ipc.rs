//! CUDA IPC: handles of cuMemAlloc's memory for other processes.

use std::ffi::{c_char, c_uint};
use std::sync::Arc;

use warpway_cuda_sys::driver_types::*;

use crate::driver::call::{driver_functions, put};
use crate::driver::physical::Ticket;
use crate::driver::region::{Kind, Region};
use crate::driver::state::state;

driver_functions! {
    /// Of any address within the allocation; the handle is that of the whole.
    required cuIpcGetMemHandle = "cuIpcGetMemHandle" (handle: *mut CUipcMemHandle, pointer: CUdeviceptr) {
        let state = state();
        state.current()?;
        match state.regions.of(pointer) {
            Some(Region { kind: Kind::Allocation(memory), size, .. }) if state.config.ipc => {
                put(handle, CUipcMemHandle { reserved: memory.ticket(MAGIC, *size).map(|byte| byte as c_char) })
            }
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }

    required cuIpcOpenMemHandle = "cuIpcOpenMemHandle_v2" (
        pointer: *mut CUdeviceptr, handle: CUipcMemHandle, flags: c_uint,
    ) {
        let mut state = state();
        let by = state.current()?;
        let ticket = Ticket::read(&handle.reserved.map(|byte| byte as u8), MAGIC).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let identity = &ticket.identity;
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
        if let Some(Region { start, kind: Kind::Opened { count, .. }, .. }) = state.regions.opened(identity, by) {
            *count += 1;
            return put(pointer, *start);
        }
        let memory = ticket.fetch().ok_or(CUDA_ERROR_MAP_FAILED)?;
        let start = state.enter(ticket.size, device, Kind::Opened { memory: Arc::new(memory), by, count: 1 })?;
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

const MAGIC: &[u8; 8] = b"fakeipc1";
