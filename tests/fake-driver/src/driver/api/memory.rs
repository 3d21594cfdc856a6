//! Device memory in one piece.

use warpway_cuda_sys::driver_types::*;

use crate::driver::api::context::idle;
use crate::driver::call::{driver_functions, put};
use crate::driver::region::Kind;
use crate::driver::state::state;

/// Sizes of memory are multiples of pages.
const PAGE: u64 = 4096;

driver_functions! {
    required cuMemAlloc = "cuMemAlloc_v2" (pointer: *mut CUdeviceptr, size: usize) {
        let mut state = state();
        let device = state.current()?;
        state.uncaptured()?;
        if size == 0 || pointer.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let rounded = (size as u64).checked_next_multiple_of(PAGE).ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
        let memory = state.create(device, rounded, CU_MEM_HANDLE_TYPE_NONE)?;
        let start = state.enter(size as u64, device, Kind::Allocation(memory))?;
        put(pointer, start)
    }

    /// Needs no context. Waits, as the real one does, for the work of the device.
    required cuMemFree = "cuMemFree_v2" (pointer: CUdeviceptr) {
        if pointer == 0 {
            return Ok(());
        }
        let device = {
            let mut state = state();
            state.uncaptured()?;
            let device = match state.regions.starting_at(pointer) {
                Some(region) if matches!(region.kind, Kind::Allocation(_)) => region.device,
                _ => return Err(CUDA_ERROR_INVALID_VALUE),
            };
            state.healthy(device)?;
            device
        };
        idle(device)?;
        state().leave(pointer);
        Ok(())
    }

    required cuMemGetInfo = "cuMemGetInfo_v2" (free: *mut usize, total: *mut usize) {
        let mut state = state();
        let device = state.current()?;
        let number = state.config.visible[device];
        put(total, state.config.memory as usize)?;
        put(free, (state.config.memory - state.used(number)) as usize)
    }

    /// Of a mapping: the mapping, not its reservation, and only if the current device may touch it.
    required cuMemGetAddressRange = "cuMemGetAddressRange_v2" (
        start: *mut CUdeviceptr, size: *mut usize, pointer: CUdeviceptr,
    ) {
        let state = state();
        let device = state.current()?;
        let region = state.regions.of(pointer).filter(|region| region.access_of(device) != 0);
        let region = region.ok_or(CUDA_ERROR_NOT_FOUND)?;
        // Both may be null if only one is wanted.
        if !start.is_null() {
            put(start, region.start)?;
        }
        if !size.is_null() {
            put(size, region.size as usize)?;
        }
        Ok(())
    }
}
