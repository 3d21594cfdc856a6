//! Initialisation, version, and what codes mean.

use std::ffi::{CStr, c_char, c_int, c_uint};

use warpway_cuda_sys::driver_types::*;

use crate::driver::call::{book, driver_functions, put};
use crate::driver::state::state;

driver_functions! {
    early cuInit = "cuInit" (flags: c_uint) {
        if flags != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        if state().config.visible.is_empty() {
            return Err(CUDA_ERROR_NO_DEVICE);
        }
        book().initialised = true;
        Ok(())
    }

    early cuDriverGetVersion = "cuDriverGetVersion" (version: *mut c_int) {
        put(version, state().config.version)
    }

    early cuGetErrorName = "cuGetErrorName" (code: CUresult, name: *mut *const c_char) {
        let (found, _) = words(code);
        put(name, found.map_or(std::ptr::null(), CStr::as_ptr))?;
        found.map(|_| ()).ok_or(CUDA_ERROR_INVALID_VALUE)
    }

    early cuGetErrorString = "cuGetErrorString" (code: CUresult, text: *mut *const c_char) {
        let (found, sentence) = words(code);
        put(text, found.map_or(std::ptr::null(), |_| sentence.as_ptr()))?;
        found.map(|_| ()).ok_or(CUDA_ERROR_INVALID_VALUE)
    }
}

/// Name and meaning of a code. No name: the driver does not know it.
fn words(code: CUresult) -> (Option<&'static CStr>, &'static CStr) {
    macro_rules! known {
        ($($name:ident: $text:literal,)*) => {
            match code {
                $($name => (
                    Some(const {
                        match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                            Ok(name) => name,
                            Err(_) => c"",
                        }
                    }),
                    $text,
                ),)*
                _ => (None, c""),
            }
        };
    }
    known! {
        CUDA_SUCCESS: c"no error",
        CUDA_ERROR_INVALID_VALUE: c"invalid argument",
        CUDA_ERROR_OUT_OF_MEMORY: c"out of memory",
        CUDA_ERROR_NOT_INITIALIZED: c"initialization error",
        CUDA_ERROR_DEINITIALIZED: c"driver shutting down",
        CUDA_ERROR_NO_DEVICE: c"no CUDA-capable device is detected",
        CUDA_ERROR_INVALID_DEVICE: c"invalid device ordinal",
        CUDA_ERROR_INVALID_IMAGE: c"device kernel image is invalid",
        CUDA_ERROR_INVALID_CONTEXT: c"invalid device context",
        CUDA_ERROR_MAP_FAILED: c"mapping of buffer object failed",
        CUDA_ERROR_ALREADY_MAPPED: c"resource already mapped",
        CUDA_ERROR_NO_BINARY_FOR_GPU: c"no kernel image is available for execution on the device",
        CUDA_ERROR_ECC_UNCORRECTABLE: c"uncorrectable ECC error encountered",
        CUDA_ERROR_PEER_ACCESS_UNSUPPORTED: c"peer access is not supported between these two devices",
        CUDA_ERROR_INVALID_PTX: c"a PTX JIT compilation failed",
        CUDA_ERROR_OPERATING_SYSTEM: c"OS call failed or operation not supported on this OS",
        CUDA_ERROR_INVALID_HANDLE: c"invalid resource handle",
        CUDA_ERROR_ILLEGAL_STATE: c"the operation cannot be performed in the present state",
        CUDA_ERROR_NOT_FOUND: c"named symbol not found",
        CUDA_ERROR_NOT_READY: c"device not ready",
        CUDA_ERROR_ILLEGAL_ADDRESS: c"an illegal memory access was encountered",
        CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES: c"too many resources requested for launch",
        CUDA_ERROR_LAUNCH_TIMEOUT: c"the launch timed out and was terminated",
        CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED: c"peer access is already enabled",
        CUDA_ERROR_PEER_ACCESS_NOT_ENABLED: c"peer access has not been enabled",
        CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE: c"cannot set while device is active in this process",
        CUDA_ERROR_CONTEXT_IS_DESTROYED: c"context is destroyed",
        CUDA_ERROR_TOO_MANY_PEERS: c"too many peers",
        CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED: c"part or all of the requested memory range is already mapped",
        CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED: c"pointer does not correspond to a registered memory region",
        CUDA_ERROR_MISALIGNED_ADDRESS: c"misaligned address",
        CUDA_ERROR_LAUNCH_FAILED: c"unspecified launch failure",
        CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE: c"too many blocks in cooperative launch",
        CUDA_ERROR_NOT_PERMITTED: c"operation not permitted",
        CUDA_ERROR_NOT_SUPPORTED: c"operation not supported",
        CUDA_ERROR_SYSTEM_NOT_READY: c"system not yet initialized",
        CUDA_ERROR_SYSTEM_DRIVER_MISMATCH: c"system has unsupported display driver / cuda driver combination",
        CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED: c"operation not permitted when stream is capturing",
        CUDA_ERROR_STREAM_CAPTURE_INVALIDATED: c"operation failed due to a previous error during capture",
        CUDA_ERROR_STREAM_CAPTURE_MERGE: c"operation would result in a merge of separate capture sequences",
        CUDA_ERROR_STREAM_CAPTURE_UNMATCHED: c"capture was not initiated in this stream",
        CUDA_ERROR_STREAM_CAPTURE_UNJOINED: c"capturing stream has unjoined work",
        CUDA_ERROR_STREAM_CAPTURE_ISOLATION: c"dependency created on uncaptured work in another stream",
        CUDA_ERROR_STREAM_CAPTURE_IMPLICIT: c"operation would make the legacy stream depend on a capturing blocking stream",
        CUDA_ERROR_CAPTURED_EVENT: c"operation not permitted on an event last recorded in a capturing stream",
        CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD: c"attempt to terminate a thread-local capture sequence from another thread",
        CUDA_ERROR_UNKNOWN: c"unknown error",
    }
}
