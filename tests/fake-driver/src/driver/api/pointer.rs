//! What the driver knows of an address.

use std::ffi::{c_int, c_uint, c_void};

use warpway_cuda_sys::driver_types::*;

use crate::driver::call::{Answer, driver_functions, put};
use crate::driver::region::Kind;
use crate::driver::state::{context_of, state};

driver_functions! {
    /// Any address that the driver did not give out or register is `CUDA_ERROR_INVALID_VALUE`.
    required cuPointerGetAttribute = "cuPointerGetAttribute" (
        data: *mut c_void, attribute: CUpointer_attribute_enum, pointer: CUdeviceptr,
    ) {
        let state = state();
        let region = state.regions.of(pointer).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let is_mapping = matches!(region.kind, Kind::Mapping { .. });
        // By the device of the current context, if there is one.
        let access = region.access_of(state.current().unwrap_or(region.device));
        // Of a mapping: all of the reservation that it lies in.
        let reserved = state.reservation(region.start).filter(|_| is_mapping);
        let range = reserved.unwrap_or((region.start, region.end()));
        let flag = |is_set: bool| put(data.cast::<bool>(), is_set);
        match attribute {
            CU_POINTER_ATTRIBUTE_CONTEXT => {
                // Mappings belong to no context.
                let context = if is_mapping { 0 } else { context_of(region.device) };
                put(data.cast::<CUcontext>(), context as CUcontext)
            }
            CU_POINTER_ATTRIBUTE_MEMORY_TYPE => {
                let kind = if region.is_host() { CU_MEMORYTYPE_HOST } else { CU_MEMORYTYPE_DEVICE };
                put(data.cast::<c_uint>(), kind)
            }
            // What has no such address is told to be nowhere, and that is an error.
            CU_POINTER_ATTRIBUTE_DEVICE_POINTER if access == 0 => absent(data),
            CU_POINTER_ATTRIBUTE_DEVICE_POINTER => put(data.cast::<CUdeviceptr>(), pointer),
            CU_POINTER_ATTRIBUTE_HOST_POINTER if region.is_host() => put(data.cast::<u64>(), pointer),
            CU_POINTER_ATTRIBUTE_HOST_POINTER => absent(data),
            CU_POINTER_ATTRIBUTE_BUFFER_ID => put(data.cast::<u64>(), region.buffer),
            CU_POINTER_ATTRIBUTE_SYNC_MEMOPS | CU_POINTER_ATTRIBUTE_IS_MANAGED => flag(false),
            CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL => put(data.cast::<c_int>(), region.device as c_int),
            CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE => {
                flag(matches!(region.kind, Kind::Allocation(_)) && state.config.ipc)
            }
            CU_POINTER_ATTRIBUTE_RANGE_START_ADDR => put(data.cast::<u64>(), range.0),
            CU_POINTER_ATTRIBUTE_RANGE_SIZE => put(data.cast::<usize>(), (range.1 - range.0) as usize),
            CU_POINTER_ATTRIBUTE_MAPPED => flag(true),
            CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES => {
                let kinds = region.memory().filter(|_| is_mapping).map_or(0, |memory| memory.identity.shareable);
                put(data.cast::<u64>(), u64::from(kinds))
            }
            CU_POINTER_ATTRIBUTE_ACCESS_FLAGS => put(data.cast::<c_uint>(), access),
            CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR => put(data.cast::<u64>(), region.mapped().0),
            CU_POINTER_ATTRIBUTE_MAPPING_SIZE => put(data.cast::<usize>(), region.mapped().1 as usize),
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }

    /// Only that copies be synchronous, of device memory; without effect here.
    optional cuPointerSetAttribute = "cuPointerSetAttribute" (
        value: *const c_void, attribute: CUpointer_attribute_enum, pointer: CUdeviceptr,
    ) {
        let state = state();
        let region = state.regions.of(pointer).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        if attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS || value.is_null() || region.is_host() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        Ok(())
    }
}

/// # Safety
/// Null, or a place for an address.
unsafe fn absent(data: *mut c_void) -> Answer {
    // SAFETY: the caller's contract.
    unsafe { put(data.cast::<u64>(), 0)? };
    Err(CUDA_ERROR_INVALID_VALUE)
}
