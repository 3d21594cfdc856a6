//! The CUDA driver. Symbols carry the version that CUDA 12.0 and later headers select.

use std::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};

use crate::driver_types::*;
use crate::table::symbol_table;

symbol_table! {
    /// The functions of `libcuda.so.1`.
    pub struct Driver;
    required {
        cuInit = "cuInit": fn(c_uint) -> CUresult;
        cuDriverGetVersion = "cuDriverGetVersion": fn(*mut c_int) -> CUresult;
        cuGetErrorName = "cuGetErrorName": fn(CUresult, *mut *const c_char) -> CUresult;
        cuGetErrorString = "cuGetErrorString": fn(CUresult, *mut *const c_char) -> CUresult;

        cuDeviceGetCount = "cuDeviceGetCount": fn(*mut c_int) -> CUresult;
        cuDeviceGet = "cuDeviceGet": fn(*mut CUdevice, c_int) -> CUresult;
        cuDeviceGetName = "cuDeviceGetName": fn(*mut c_char, c_int, CUdevice) -> CUresult;
        cuDeviceGetUuid = "cuDeviceGetUuid_v2": fn(*mut CUuuid, CUdevice) -> CUresult;
        cuDeviceTotalMem = "cuDeviceTotalMem_v2": fn(*mut usize, CUdevice) -> CUresult;
        cuDeviceGetAttribute = "cuDeviceGetAttribute": fn(*mut c_int, CUdevice_attribute_enum, CUdevice) -> CUresult;
        cuDeviceGetPCIBusId = "cuDeviceGetPCIBusId": fn(*mut c_char, c_int, CUdevice) -> CUresult;
        cuDeviceCanAccessPeer = "cuDeviceCanAccessPeer": fn(*mut c_int, CUdevice, CUdevice) -> CUresult;
        cuDeviceGetP2PAttribute = "cuDeviceGetP2PAttribute": fn(
            *mut c_int, CUdevice_P2PAttribute_enum, CUdevice, CUdevice,
        ) -> CUresult;

        cuDevicePrimaryCtxRetain = "cuDevicePrimaryCtxRetain": fn(*mut CUcontext, CUdevice) -> CUresult;
        cuDevicePrimaryCtxRelease = "cuDevicePrimaryCtxRelease_v2": fn(CUdevice) -> CUresult;
        cuCtxGetCurrent = "cuCtxGetCurrent": fn(*mut CUcontext) -> CUresult;
        cuCtxSetCurrent = "cuCtxSetCurrent": fn(CUcontext) -> CUresult;
        cuCtxPushCurrent = "cuCtxPushCurrent_v2": fn(CUcontext) -> CUresult;
        cuCtxPopCurrent = "cuCtxPopCurrent_v2": fn(*mut CUcontext) -> CUresult;
        cuCtxGetDevice = "cuCtxGetDevice": fn(*mut CUdevice) -> CUresult;
        cuCtxSynchronize = "cuCtxSynchronize": fn() -> CUresult;
        cuCtxEnablePeerAccess = "cuCtxEnablePeerAccess": fn(CUcontext, c_uint) -> CUresult;

        cuModuleLoadDataEx = "cuModuleLoadDataEx": fn(
            *mut CUmodule, *const c_void, c_uint, *mut CUjit_option_enum, *mut *mut c_void,
        ) -> CUresult;
        cuModuleUnload = "cuModuleUnload": fn(CUmodule) -> CUresult;
        cuModuleGetFunction = "cuModuleGetFunction": fn(*mut CUfunction, CUmodule, *const c_char) -> CUresult;
        cuModuleGetGlobal = "cuModuleGetGlobal_v2": fn(*mut CUdeviceptr, *mut usize, CUmodule, *const c_char) -> CUresult;
        cuFuncGetAttribute = "cuFuncGetAttribute": fn(*mut c_int, CUfunction_attribute_enum, CUfunction) -> CUresult;
        cuFuncSetAttribute = "cuFuncSetAttribute": fn(CUfunction, CUfunction_attribute_enum, c_int) -> CUresult;
        cuOccupancyMaxActiveBlocksPerMultiprocessor = "cuOccupancyMaxActiveBlocksPerMultiprocessor": fn(
            *mut c_int, CUfunction, c_int, usize,
        ) -> CUresult;
        cuLaunchKernel = "cuLaunchKernel": fn(
            CUfunction, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, CUstream,
            *mut *mut c_void, *mut *mut c_void,
        ) -> CUresult;
        cuLaunchHostFunc = "cuLaunchHostFunc": fn(CUstream, CUhostFn, *mut c_void) -> CUresult;

        cuStreamCreateWithPriority = "cuStreamCreateWithPriority": fn(*mut CUstream, c_uint, c_int) -> CUresult;
        cuStreamDestroy = "cuStreamDestroy_v2": fn(CUstream) -> CUresult;
        cuStreamSynchronize = "cuStreamSynchronize": fn(CUstream) -> CUresult;
        cuStreamQuery = "cuStreamQuery": fn(CUstream) -> CUresult;
        cuStreamWaitEvent = "cuStreamWaitEvent": fn(CUstream, CUevent, c_uint) -> CUresult;
        cuStreamBeginCapture = "cuStreamBeginCapture_v2": fn(CUstream, CUstreamCaptureMode_enum) -> CUresult;
        cuStreamEndCapture = "cuStreamEndCapture": fn(CUstream, *mut CUgraph) -> CUresult;
        cuStreamIsCapturing = "cuStreamIsCapturing": fn(CUstream, *mut CUstreamCaptureStatus_enum) -> CUresult;
        cuThreadExchangeStreamCaptureMode = "cuThreadExchangeStreamCaptureMode": fn(
            *mut CUstreamCaptureMode_enum,
        ) -> CUresult;
        cuGraphInstantiateWithFlags = "cuGraphInstantiateWithFlags": fn(
            *mut CUgraphExec, CUgraph, c_ulonglong,
        ) -> CUresult;
        cuGraphLaunch = "cuGraphLaunch": fn(CUgraphExec, CUstream) -> CUresult;
        cuGraphExecDestroy = "cuGraphExecDestroy": fn(CUgraphExec) -> CUresult;
        cuGraphDestroy = "cuGraphDestroy": fn(CUgraph) -> CUresult;

        cuEventCreate = "cuEventCreate": fn(*mut CUevent, c_uint) -> CUresult;
        cuEventDestroy = "cuEventDestroy_v2": fn(CUevent) -> CUresult;
        cuEventRecord = "cuEventRecord": fn(CUevent, CUstream) -> CUresult;
        cuEventQuery = "cuEventQuery": fn(CUevent) -> CUresult;
        cuEventSynchronize = "cuEventSynchronize": fn(CUevent) -> CUresult;
        cuEventElapsedTime = "cuEventElapsedTime": fn(*mut f32, CUevent, CUevent) -> CUresult;

        cuMemAlloc = "cuMemAlloc_v2": fn(*mut CUdeviceptr, usize) -> CUresult;
        cuMemFree = "cuMemFree_v2": fn(CUdeviceptr) -> CUresult;
        cuMemGetInfo = "cuMemGetInfo_v2": fn(*mut usize, *mut usize) -> CUresult;
        cuMemGetAddressRange = "cuMemGetAddressRange_v2": fn(*mut CUdeviceptr, *mut usize, CUdeviceptr) -> CUresult;
        cuPointerGetAttribute = "cuPointerGetAttribute": fn(
            *mut c_void, CUpointer_attribute_enum, CUdeviceptr,
        ) -> CUresult;
        cuMemHostAlloc = "cuMemHostAlloc": fn(*mut *mut c_void, usize, c_uint) -> CUresult;
        cuMemFreeHost = "cuMemFreeHost": fn(*mut c_void) -> CUresult;
        cuMemHostRegister = "cuMemHostRegister_v2": fn(*mut c_void, usize, c_uint) -> CUresult;
        cuMemHostUnregister = "cuMemHostUnregister": fn(*mut c_void) -> CUresult;
        cuMemHostGetDevicePointer = "cuMemHostGetDevicePointer_v2": fn(*mut CUdeviceptr, *mut c_void, c_uint) -> CUresult;
        cuMemcpyAsync = "cuMemcpyAsync": fn(CUdeviceptr, CUdeviceptr, usize, CUstream) -> CUresult;
        cuMemcpyHtoDAsync = "cuMemcpyHtoDAsync_v2": fn(CUdeviceptr, *const c_void, usize, CUstream) -> CUresult;
        cuMemcpyDtoHAsync = "cuMemcpyDtoHAsync_v2": fn(*mut c_void, CUdeviceptr, usize, CUstream) -> CUresult;
        cuMemsetD8Async = "cuMemsetD8Async": fn(CUdeviceptr, u8, usize, CUstream) -> CUresult;
        cuMemsetD32Async = "cuMemsetD32Async": fn(CUdeviceptr, c_uint, usize, CUstream) -> CUresult;

        cuIpcGetMemHandle = "cuIpcGetMemHandle": fn(*mut CUipcMemHandle, CUdeviceptr) -> CUresult;
        cuIpcOpenMemHandle = "cuIpcOpenMemHandle_v2": fn(*mut CUdeviceptr, CUipcMemHandle, c_uint) -> CUresult;
        cuIpcCloseMemHandle = "cuIpcCloseMemHandle": fn(CUdeviceptr) -> CUresult;
    }
    optional {
        cuMemGetAllocationGranularity = "cuMemGetAllocationGranularity": fn(
            *mut usize, *const CUmemAllocationProp, CUmemAllocationGranularity_flags_enum,
        ) -> CUresult;
        cuMemCreate = "cuMemCreate": fn(
            *mut CUmemGenericAllocationHandle, usize, *const CUmemAllocationProp, c_ulonglong,
        ) -> CUresult;
        cuMemRelease = "cuMemRelease": fn(CUmemGenericAllocationHandle) -> CUresult;
        cuMemAddressReserve = "cuMemAddressReserve": fn(
            *mut CUdeviceptr, usize, usize, CUdeviceptr, c_ulonglong,
        ) -> CUresult;
        cuMemAddressFree = "cuMemAddressFree": fn(CUdeviceptr, usize) -> CUresult;
        cuMemMap = "cuMemMap": fn(
            CUdeviceptr, usize, usize, CUmemGenericAllocationHandle, c_ulonglong,
        ) -> CUresult;
        cuMemUnmap = "cuMemUnmap": fn(CUdeviceptr, usize) -> CUresult;
        cuMemSetAccess = "cuMemSetAccess": fn(CUdeviceptr, usize, *const CUmemAccessDesc, usize) -> CUresult;
        cuMemExportToShareableHandle = "cuMemExportToShareableHandle": fn(
            *mut c_void, CUmemGenericAllocationHandle, CUmemAllocationHandleType_enum, c_ulonglong,
        ) -> CUresult;
        cuMemImportFromShareableHandle = "cuMemImportFromShareableHandle": fn(
            *mut CUmemGenericAllocationHandle, *mut c_void, CUmemAllocationHandleType_enum,
        ) -> CUresult;
        cuMemRetainAllocationHandle = "cuMemRetainAllocationHandle": fn(
            *mut CUmemGenericAllocationHandle, *mut c_void,
        ) -> CUresult;
        cuMemGetAllocationPropertiesFromHandle = "cuMemGetAllocationPropertiesFromHandle": fn(
            *mut CUmemAllocationProp, CUmemGenericAllocationHandle,
        ) -> CUresult;
        cuFuncGetParamInfo = "cuFuncGetParamInfo": fn(CUfunction, usize, *mut usize, *mut usize) -> CUresult;
        cuLaunchCooperativeKernel = "cuLaunchCooperativeKernel": fn(
            CUfunction, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, CUstream, *mut *mut c_void,
        ) -> CUresult;
        cuStreamWriteValue64 = "cuStreamWriteValue64_v2": fn(CUstream, CUdeviceptr, c_ulonglong, c_uint) -> CUresult;
        cuPointerSetAttribute = "cuPointerSetAttribute": fn(
            *const c_void, CUpointer_attribute_enum, CUdeviceptr,
        ) -> CUresult;
    }
}
