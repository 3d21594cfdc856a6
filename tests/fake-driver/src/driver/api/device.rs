//! Devices and what they can do.

use std::ffi::{c_char, c_int};

use warpway_cuda_sys::driver_types::*;

use crate::driver::call::{Answer, driver_functions, put};
use crate::driver::config::{Config, Fabric};
use crate::driver::launch::limits;
use crate::driver::state::state;

driver_functions! {
    required cuDeviceGetCount = "cuDeviceGetCount" (count: *mut c_int) {
        put(count, state().config.visible.len() as c_int)
    }

    required cuDeviceGet = "cuDeviceGet" (device: *mut CUdevice, ordinal: c_int) {
        state().device(ordinal)?;
        put(device, ordinal)
    }

    required cuDeviceGetName = "cuDeviceGetName" (name: *mut c_char, length: c_int, device: CUdevice) {
        state().device(device)?;
        text(name, length, "Fake H200")
    }

    required cuDeviceGetUuid = "cuDeviceGetUuid_v2" (uuid: *mut CUuuid, device: CUdevice) {
        let state = state();
        let number = state.config.visible[state.device(device)?];
        let mut bytes = *b"fake-cuda-gpu\0\0\0";
        bytes[15] = number as u8;
        put(uuid, CUuuid { bytes: bytes.map(|byte| byte as c_char) })
    }

    required cuDeviceTotalMem = "cuDeviceTotalMem_v2" (bytes: *mut usize, device: CUdevice) {
        let state = state();
        state.device(device)?;
        put(bytes, state.config.memory as usize)
    }

    required cuDeviceGetAttribute = "cuDeviceGetAttribute" (
        value: *mut c_int, attribute: CUdevice_attribute_enum, device: CUdevice,
    ) {
        let state = state();
        let number = state.config.visible[state.device(device)?];
        put(value, attribute_of(&state.config, number, attribute)?)
    }

    required cuDeviceGetPCIBusId = "cuDeviceGetPCIBusId" (name: *mut c_char, length: c_int, device: CUdevice) {
        let state = state();
        let number = state.config.visible[state.device(device)?];
        text(name, length, &format!("0000:{:02X}:00.0", 16 + number))
    }

    required cuDeviceCanAccessPeer = "cuDeviceCanAccessPeer" (answer: *mut c_int, device: CUdevice, peer: CUdevice) {
        let state = state();
        let (device, peer) = (state.device(device)?, state.device(peer)?);
        put(answer, c_int::from(device != peer && state.reaches(device, peer)))
    }

    required cuDeviceGetP2PAttribute = "cuDeviceGetP2PAttribute" (
        value: *mut c_int, attribute: CUdevice_P2PAttribute_enum, device: CUdevice, peer: CUdevice,
    ) {
        let state = state();
        let (device, peer) = (state.device(device)?, state.device(peer)?);
        if device == peer {
            return Err(CUDA_ERROR_INVALID_DEVICE);
        }
        let reached = c_int::from(state.reaches(device, peer));
        let answer = match attribute {
            CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK => 1 - reached,
            CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED
            | CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED
            | CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED => reached,
            CU_DEVICE_P2P_ATTRIBUTE_ONLY_PARTIAL_NATIVE_ATOMIC_SUPPORTED => 0,
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        };
        put(value, answer)
    }
}

/// Attributes that programs ask for have the figures of an H200 or of the settings, the other ones are 0.
fn attribute_of(config: &Config, number: u32, attribute: CUdevice_attribute_enum) -> Answer<c_int> {
    if !(1..CU_DEVICE_ATTRIBUTE_MAX).contains(&attribute) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    Ok(match attribute {
        CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK
        | CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X
        | CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y => limits::THREADS_PER_BLOCK,
        CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z => 64,
        CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X => c_int::MAX,
        CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y | CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z => 65_535,
        CU_DEVICE_ATTRIBUTE_WARP_SIZE => 32,
        CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT => 3,
        CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK
        | CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR => limits::REGISTERS,
        CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT => config.multiprocessors,
        CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK => limits::SHARED,
        CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN => limits::SHARED_OPT_IN,
        CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR => limits::SHARED_PER_MULTIPROCESSOR,
        CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK => limits::SHARED_RESERVED,
        CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR => limits::THREADS_PER_MULTIPROCESSOR,
        CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR => limits::BLOCKS_PER_MULTIPROCESSOR,
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR => config.architecture.0,
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR => config.architecture.1,
        CU_DEVICE_ATTRIBUTE_PCI_BUS_ID => 16 + number as c_int,
        CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED => c_int::from(config.descriptors),
        CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED => c_int::from(config.fabric != Fabric::None),
        CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS => c_int::from(config.words),
        CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED => c_int::from(config.multicast),
        CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY
        | CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS
        | CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING
        | CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED
        | CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM
        | CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH
        | CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED
        | CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
        | CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED => 1,
        _ => 0,
    })
}

/// Writes a text of at most `length` bytes, the zero at its end included; longer ones are cut.
///
/// # Safety
/// So many bytes may be written, unless the pointer is null.
unsafe fn text(to: *mut c_char, length: c_int, text: &str) -> Answer {
    let room = usize::try_from(length).ok().filter(|room| *room > 0 && !to.is_null());
    let kept = text.len().min(room.ok_or(CUDA_ERROR_INVALID_VALUE)? - 1);
    // SAFETY: kept + 1 is at most the room that the caller vouches for.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr(), to.cast(), kept);
        to.add(kept).write(0);
    }
    Ok(())
}
