//! Copies and fills. All are asynchronous; ordinary host memory is read before the call returns, and has been written
//! when it returns.

use std::ffi::{c_uint, c_ulonglong, c_void};
use std::sync::Arc;

use warpway_cuda_sys::driver_types::*;

use crate::driver::call::{Answer, driver_functions};
use crate::driver::state::{State, state};
use crate::driver::work::{Source, Work};

driver_functions! {
    required cuMemcpyAsync = "cuMemcpyAsync" (to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream) {
        let mut state = state();
        let stream = state.stream(stream)?;
        alive(&state, stream, to, bytes)?;
        alive(&state, stream, from, bytes)?;
        state.submit(stream, copies(to, Source::Address(from), bytes))
    }

    required cuMemcpyHtoDAsync = "cuMemcpyHtoDAsync_v2" (
        to: CUdeviceptr, from: *const c_void, bytes: usize, stream: CUstream,
    ) {
        let mut state = state();
        let stream = state.stream(stream)?;
        alive(&state, stream, to, bytes)?;
        let is_ordinary = ordinary(&state, from as u64, bytes)?;
        let source = if is_ordinary && state.capture_of(stream).is_none() {
            let taken = std::slice::from_raw_parts(from.cast::<u8>(), bytes);
            Source::Taken(Arc::from(taken))
        } else {
            Source::Address(from as u64)
        };
        state.submit(stream, copies(to, source, bytes))
    }

    required cuMemcpyDtoHAsync = "cuMemcpyDtoHAsync_v2" (
        to: *mut c_void, from: CUdeviceptr, bytes: usize, stream: CUstream,
    ) {
        let waiting = {
            let mut state = state();
            let stream = state.stream(stream)?;
            alive(&state, stream, from, bytes)?;
            let is_ordinary = ordinary(&state, to as u64, bytes)?;
            state.submit(stream, copies(to as u64, Source::Address(from), bytes))?;
            let target = state.streams.get(&stream).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
            (is_ordinary && target.capture.is_none()).then(|| (Arc::clone(&target.queue), target.queue.position()))
        };
        waiting.map_or(Ok(()), |(queue, position)| queue.wait(position))
    }

    required cuMemsetD8Async = "cuMemsetD8Async" (to: CUdeviceptr, value: u8, count: usize, stream: CUstream) {
        fill(to, u32::from(value), 1, count, stream)
    }

    required cuMemsetD32Async = "cuMemsetD32Async" (to: CUdeviceptr, value: c_uint, count: usize, stream: CUstream) {
        if !to.is_multiple_of(4) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        fill(to, value, 4, count, stream)
    }

    optional cuStreamWriteValue64 = "cuStreamWriteValue64_v2" (
        stream: CUstream, to: CUdeviceptr, value: c_ulonglong, flags: c_uint,
    ) {
        if flags != 0 || !to.is_multiple_of(8) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let mut state = state();
        let stream = state.stream(stream)?;
        if !state.config.words {
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        alive(&state, stream, to, 8)?;
        state.submit(stream, copies(to, Source::Taken(Arc::from(value.to_ne_bytes())), 8))
    }
}

fn fill(to: u64, value: u32, width: u64, count: usize, stream: CUstream) -> Answer {
    let mut state = state();
    let stream = state.stream(stream)?;
    let bytes = (count as u64).checked_mul(width).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    alive(&state, stream, to, bytes as usize)?;
    let work = (count > 0).then_some(Work::Fill { to, value, width, count: count as u64 });
    state.submit(stream, work.into_iter().collect())
}

fn copies(to: u64, from: Source, bytes: usize) -> Vec<Work> {
    if bytes == 0 { Vec::new() } else { vec![Work::Copy { to, from, bytes: bytes as u64 }] }
}

/// Refuses addresses that the driver does not know, and mappings that the stream's device may not touch.
fn alive(state: &State, stream: u64, address: u64, bytes: usize) -> Answer {
    let device = state.streams.get(&stream).ok_or(CUDA_ERROR_INVALID_HANDLE)?.device;
    if bytes == 0 {
        return Ok(());
    }
    state.regions.resolve(address, bytes as u64, device).map(|_| ())
}

/// Whether memory is the host's own; an error if it is ours and dead.
fn ordinary(state: &State, address: u64, bytes: usize) -> Answer<bool> {
    if bytes > 0 && address == 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    match state.regions.of(address) {
        Some(region) if address + bytes as u64 <= region.end() => Ok(false),
        None if !state.arena.contains(address) => Ok(true),
        _ => Err(CUDA_ERROR_INVALID_VALUE),
    }
}
