//! Host memory that devices reach.

use std::ffi::{c_uint, c_void};

use warpway_cuda_sys::driver_types::*;

use crate::driver::api::context::idle;
use crate::driver::call::{driver_functions, put};
use crate::driver::region::{Kind, Region};
use crate::driver::state::state;

driver_functions! {
    required cuMemHostAlloc = "cuMemHostAlloc" (pointer: *mut *mut c_void, size: usize, flags: c_uint) {
        let mut state = state();
        let device = state.current()?;
        state.uncaptured()?;
        if size == 0 || pointer.is_null() || flags > 7 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let start = state.enter(size as u64, device, Kind::Pinned)?;
        put(pointer, start as *mut c_void)
    }

    required cuMemFreeHost = "cuMemFreeHost" (pointer: *mut c_void) {
        let device = {
            let mut state = state();
            state.current()?;
            state.uncaptured()?;
            match state.regions.starting_at(pointer as u64) {
                Some(region) if matches!(region.kind, Kind::Pinned) => region.device,
                _ => return Err(CUDA_ERROR_INVALID_VALUE),
            }
        };
        idle(device)?;
        state().leave(pointer as u64);
        Ok(())
    }

    required cuMemHostRegister = "cuMemHostRegister_v2" (pointer: *mut c_void, size: usize, flags: c_uint) {
        let mut state = state();
        let device = state.current()?;
        state.uncaptured()?;
        let start = pointer as u64;
        let end = start.checked_add(size as u64).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        if size == 0 || pointer.is_null() || flags > 15 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        match state.regions.within(start, end).next() {
            None => {}
            Some(Region { kind: Kind::Registered, .. }) => return Err(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED),
            Some(_) => return Err(CUDA_ERROR_INVALID_VALUE),
        }
        let buffer = state.fresh();
        state.regions.insert(Region { start, size: size as u64, buffer, device, kind: Kind::Registered });
        Ok(())
    }

    required cuMemHostUnregister = "cuMemHostUnregister" (pointer: *mut c_void) {
        let mut state = state();
        state.current()?;
        state.uncaptured()?;
        match state.regions.starting_at(pointer as u64) {
            Some(Region { kind: Kind::Registered, .. }) => {}
            Some(_) => return Err(CUDA_ERROR_INVALID_VALUE),
            None => return Err(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED),
        }
        state.leave(pointer as u64);
        Ok(())
    }

    required cuMemHostGetDevicePointer = "cuMemHostGetDevicePointer_v2" (
        device: *mut CUdeviceptr, pointer: *mut c_void, flags: c_uint,
    ) {
        let state = state();
        state.current()?;
        let found = state.regions.of(pointer as u64).filter(|region| region.is_host() && flags == 0);
        found.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        // One address space, and host addresses are usable on devices.
        put(device, pointer as u64)
    }
}
