//! Streams.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::Arc;

use warpway_cuda_sys::driver_types::*;

use crate::driver::call::{driver_functions, put};
use crate::driver::state::state;
use crate::driver::stream::Stream;
use crate::driver::work::Work;

driver_functions! {
    /// Priorities out of range are taken for the nearest, so any is accepted.
    required cuStreamCreateWithPriority = "cuStreamCreateWithPriority" (
        stream: *mut CUstream, flags: c_uint, _priority: c_int,
    ) {
        let mut state = state();
        let device = state.current()?;
        if flags > CU_STREAM_NON_BLOCKING || stream.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let number = state.fresh();
        state.streams.insert(number, Stream::new(device, flags != CU_STREAM_NON_BLOCKING));
        put(stream, number as CUstream)
    }

    /// Returns at once; what was submitted is still done. Ends a capture without a graph.
    required cuStreamDestroy = "cuStreamDestroy_v2" (stream: CUstream) {
        let mut state = state();
        if state.is_legacy(stream as u64) {
            return Err(CUDA_ERROR_INVALID_HANDLE);
        }
        let removed = state.streams.remove(&(stream as u64)).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        if let Some(capture) = removed.capture {
            state.invalidate(capture);
        }
        removed.queue.close();
        Ok(())
    }

    required cuStreamSynchronize = "cuStreamSynchronize" (stream: CUstream) {
        let (queue, position, device) = {
            let mut state = state();
            let stream = state.stream(stream)?;
            state.not_capturing(stream)?;
            state.uncaptured()?;
            state.legal(stream)?;
            // The legacy stream is done when the blocking ones are.
            let is_legacy = state.is_legacy(stream);
            if is_legacy {
                state.submit(stream, Vec::new())?;
            }
            let stream = state.streams.get(&stream).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
            (Arc::clone(&stream.queue), stream.queue.position(), stream.device)
        };
        queue.wait(position)?;
        state().healthy(device)
    }

    required cuStreamQuery = "cuStreamQuery" (stream: CUstream) {
        let mut state = state();
        let stream = state.stream(stream)?;
        state.not_capturing(stream)?;
        state.uncaptured()?;
        state.legal(stream)?;
        let stream = state.streams.get(&stream).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        if stream.queue.reached(stream.queue.position()) { Ok(()) } else { Err(CUDA_ERROR_NOT_READY) }
    }

    required cuStreamWaitEvent = "cuStreamWaitEvent" (stream: CUstream, event: CUevent, flags: c_uint) {
        let mut state = state();
        let stream = state.stream(stream)?;
        let event = Arc::clone(state.event(event as u64)?);
        // CU_EVENT_WAIT_EXTERNAL (1) is for nodes that wait outside of their graph; not used.
        if flags != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        match (event.captured(), state.capture_of(stream)) {
            (Some(mark), own) => {
                if own.is_some_and(|own| own != mark.capture) {
                    state.invalidate(mark.capture);
                    return Err(CUDA_ERROR_STREAM_CAPTURE_MERGE);
                }
                let capture = state.captures.get_mut(&mark.capture).ok_or(CUDA_ERROR_INVALID_VALUE)?;
                if capture.invalid {
                    return Err(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
                }
                capture.join(stream, &mark);
                if let Some(stream) = state.streams.get_mut(&stream) {
                    stream.capture = Some(mark.capture);
                }
                Ok(())
            }
            (None, Some(own)) => {
                if event.recorded() == 0 {
                    return Ok(());
                }
                state.invalidate(own);
                Err(CUDA_ERROR_STREAM_CAPTURE_ISOLATION)
            }
            (None, None) => {
                let point = event.recorded();
                let wait = (!event.has_passed(point)).then_some(Work::Wait(event, point));
                state.submit(stream, wait.into_iter().collect())
            }
        }
    }

    required cuLaunchHostFunc = "cuLaunchHostFunc" (stream: CUstream, function: CUhostFn, argument: *mut c_void) {
        let mut state = state();
        let stream = state.stream(stream)?;
        if function.is_none() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        state.submit(stream, vec![Work::Host(function, argument as usize)])
    }
}
