//! Capture, graphs and their launches.

use std::ffi::c_ulonglong;

use warpway_cuda_sys::driver_types::*;

use crate::driver::call::{driver_functions, get, put};
use crate::driver::capture::{Capture, MODE};
use crate::driver::state::{Executable, state};

driver_functions! {
    required cuStreamBeginCapture = "cuStreamBeginCapture_v2" (stream: CUstream, mode: CUstreamCaptureMode_enum) {
        let mut state = state();
        let stream = state.stream(stream)?;
        if mode > CU_STREAM_CAPTURE_MODE_RELAXED {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        if state.is_legacy(stream) {
            return Err(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        }
        if state.capture_of(stream).is_some() {
            return Err(CUDA_ERROR_ILLEGAL_STATE);
        }
        let number = state.fresh();
        state.captures.insert(number, Capture::new(stream, mode));
        state.streams.get_mut(&stream).ok_or(CUDA_ERROR_INVALID_HANDLE)?.capture = Some(number);
        Ok(())
    }

    /// The graph is null if the capture has failed.
    required cuStreamEndCapture = "cuStreamEndCapture" (stream: CUstream, graph: *mut CUgraph) {
        let mut state = state();
        let stream = state.stream(stream)?;
        put(graph, std::ptr::null_mut())?;
        let number = state.capture_of(stream).ok_or(CUDA_ERROR_ILLEGAL_STATE)?;
        let capture = state.captures.get(&number).ok_or(CUDA_ERROR_ILLEGAL_STATE)?;
        if capture.origin != stream {
            state.invalidate(number);
            return Err(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
        }
        if capture.mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture.thread != std::thread::current().id() {
            return Err(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
        }
        let capture = state.captures.remove(&number).ok_or(CUDA_ERROR_ILLEGAL_STATE)?;
        for stream in capture.streams() {
            if let Some(stream) = state.streams.get_mut(&stream) {
                stream.capture = None;
            }
        }
        if capture.invalid {
            return Err(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        }
        if !capture.is_joined() {
            return Err(CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
        }
        let number = state.fresh();
        state.graphs.insert(number, capture.work);
        put(graph, number as CUgraph)
    }

    required cuStreamIsCapturing = "cuStreamIsCapturing" (stream: CUstream, status: *mut CUstreamCaptureStatus_enum) {
        let mut state = state();
        let stream = state.stream(stream)?;
        state.legal(stream)?;
        let capture = state.capture_of(stream).and_then(|capture| state.captures.get(&capture));
        put(status, match capture {
            None => CU_STREAM_CAPTURE_STATUS_NONE,
            Some(capture) if capture.invalid => CU_STREAM_CAPTURE_STATUS_INVALIDATED,
            Some(_) => CU_STREAM_CAPTURE_STATUS_ACTIVE,
        })
    }

    required cuThreadExchangeStreamCaptureMode = "cuThreadExchangeStreamCaptureMode" (
        mode: *mut CUstreamCaptureMode_enum,
    ) {
        let wanted = get(mode)?;
        if wanted > CU_STREAM_CAPTURE_MODE_RELAXED {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        put(mode, MODE.replace(wanted))
    }

    required cuGraphInstantiateWithFlags = "cuGraphInstantiateWithFlags" (
        executable: *mut CUgraphExec, graph: CUgraph, _flags: c_ulonglong,
    ) {
        let mut state = state();
        let device = state.current()?;
        let work = state.graphs.get(&(graph as u64)).ok_or(CUDA_ERROR_INVALID_VALUE)?.clone();
        let number = state.fresh();
        state.executables.insert(number, Executable { device, work });
        put(executable, number as CUgraphExec)
    }

    required cuGraphLaunch = "cuGraphLaunch" (executable: CUgraphExec, stream: CUstream) {
        let mut state = state();
        let stream = state.stream(stream)?;
        let work = state.executables.get(&(executable as u64)).ok_or(CUDA_ERROR_INVALID_VALUE)?.work.clone();
        state.submit(stream, work)
    }

    required cuGraphExecDestroy = "cuGraphExecDestroy" (executable: CUgraphExec) {
        state().executables.remove(&(executable as u64)).map(|_| ()).ok_or(CUDA_ERROR_INVALID_VALUE)
    }

    required cuGraphDestroy = "cuGraphDestroy" (graph: CUgraph) {
        state().graphs.remove(&(graph as u64)).map(|_| ()).ok_or(CUDA_ERROR_INVALID_VALUE)
    }
}
