//! NVRTC: CUDA C++ to machine code, at run time.

use std::ffi::{c_char, c_int};

use crate::table::symbol_table;

/// Result of every call.
#[allow(non_camel_case_types)]
pub type nvrtcResult = c_int;
/// A program and its compiled forms.
#[allow(non_camel_case_types)]
pub type nvrtcProgram = *mut std::ffi::c_void;

/// No error.
pub const NVRTC_SUCCESS: nvrtcResult = 0;
/// The source does not compile; the program's log says why.
pub const NVRTC_ERROR_COMPILATION: nvrtcResult = 6;

symbol_table! {
    /// The functions of `libnvrtc.so`.
    pub struct Nvrtc;
    required {
        nvrtcGetErrorString = "nvrtcGetErrorString": fn(nvrtcResult) -> *const c_char;
        nvrtcVersion = "nvrtcVersion": fn(*mut c_int, *mut c_int) -> nvrtcResult;
        nvrtcCreateProgram = "nvrtcCreateProgram": fn(
            *mut nvrtcProgram, *const c_char, *const c_char, c_int, *const *const c_char, *const *const c_char,
        ) -> nvrtcResult;
        nvrtcDestroyProgram = "nvrtcDestroyProgram": fn(*mut nvrtcProgram) -> nvrtcResult;
        nvrtcCompileProgram = "nvrtcCompileProgram": fn(nvrtcProgram, c_int, *const *const c_char) -> nvrtcResult;
        nvrtcGetPTXSize = "nvrtcGetPTXSize": fn(nvrtcProgram, *mut usize) -> nvrtcResult;
        nvrtcGetPTX = "nvrtcGetPTX": fn(nvrtcProgram, *mut c_char) -> nvrtcResult;
        nvrtcGetProgramLogSize = "nvrtcGetProgramLogSize": fn(nvrtcProgram, *mut usize) -> nvrtcResult;
        nvrtcGetProgramLog = "nvrtcGetProgramLog": fn(nvrtcProgram, *mut c_char) -> nvrtcResult;
        nvrtcAddNameExpression = "nvrtcAddNameExpression": fn(nvrtcProgram, *const c_char) -> nvrtcResult;
        nvrtcGetLoweredName = "nvrtcGetLoweredName": fn(
            nvrtcProgram, *const c_char, *mut *const c_char,
        ) -> nvrtcResult;
        nvrtcGetCUBINSize = "nvrtcGetCUBINSize": fn(nvrtcProgram, *mut usize) -> nvrtcResult;
        nvrtcGetCUBIN = "nvrtcGetCUBIN": fn(nvrtcProgram, *mut c_char) -> nvrtcResult;
        nvrtcGetNumSupportedArchs = "nvrtcGetNumSupportedArchs": fn(*mut c_int) -> nvrtcResult;
        nvrtcGetSupportedArchs = "nvrtcGetSupportedArchs": fn(*mut c_int) -> nvrtcResult;
    }
    optional {
    }
}
