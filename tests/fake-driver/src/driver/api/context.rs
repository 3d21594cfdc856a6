//! Primary contexts, the stack of each thread, peer access.

use std::ffi::c_uint;

use warpway_cuda_sys::driver_types::*;

use crate::driver::call::{Answer, driver_functions, put};
use crate::driver::region::Kind;
use crate::driver::state::{Context, STACK, State, context_of, state};
use crate::driver::stream::Stream;

driver_functions! {
    required cuDevicePrimaryCtxRetain = "cuDevicePrimaryCtxRetain" (context: *mut CUcontext, device: CUdevice) {
        let mut state = state();
        let device = state.device(device)?;
        put(context, context_of(device) as CUcontext)?;
        if !state.contexts.contains_key(&device) {
            let legacy = state.fresh();
            state.streams.insert(legacy, Stream::new(device, false));
            state.contexts.insert(device, Context { legacy, ..Context::default() });
        }
        state.contexts.entry(device).and_modify(|context| context.retained += 1);
        Ok(())
    }

    required cuDevicePrimaryCtxRelease = "cuDevicePrimaryCtxRelease_v2" (device: CUdevice) {
        let mut state = state();
        let device = state.device(device)?;
        let context = state.contexts.get_mut(&device).ok_or(CUDA_ERROR_INVALID_CONTEXT)?;
        context.retained -= 1;
        if context.retained == 0 {
            destroy(&mut state, device);
        }
        Ok(())
    }

    required cuCtxGetCurrent = "cuCtxGetCurrent" (context: *mut CUcontext) {
        let top = STACK.with_borrow(|stack| stack.last().copied());
        put(context, top.unwrap_or_default() as CUcontext)
    }

    required cuCtxSetCurrent = "cuCtxSetCurrent" (context: CUcontext) {
        if !context.is_null() {
            state().context(context)?;
        }
        STACK.with_borrow_mut(|stack| {
            stack.pop();
            if !context.is_null() {
                stack.push(context as u64);
            }
        });
        Ok(())
    }

    required cuCtxPushCurrent = "cuCtxPushCurrent_v2" (context: CUcontext) {
        if context.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        state().context(context)?;
        STACK.with_borrow_mut(|stack| stack.push(context as u64));
        Ok(())
    }

    required cuCtxPopCurrent = "cuCtxPopCurrent_v2" (context: *mut CUcontext) {
        let top = STACK.with_borrow_mut(Vec::pop).ok_or(CUDA_ERROR_INVALID_CONTEXT)?;
        if context.is_null() { Ok(()) } else { put(context, top as CUcontext) }
    }

    required cuCtxGetDevice = "cuCtxGetDevice" (device: *mut CUdevice) {
        put(device, state().current()? as CUdevice)
    }

    required cuCtxSynchronize = "cuCtxSynchronize" () {
        let device = {
            let mut state = state();
            let device = state.current()?;
            state.waitable(device)?;
            device
        };
        idle(device)?;
        state().healthy(device)
    }

    required cuCtxEnablePeerAccess = "cuCtxEnablePeerAccess" (peer: CUcontext, flags: c_uint) {
        let mut state = state();
        let device = state.current()?;
        let peer = state.context(peer)?;
        if flags != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        if device == peer || !state.reaches(device, peer) {
            return Err(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
        }
        let context = state.contexts.get_mut(&device).ok_or(CUDA_ERROR_INVALID_CONTEXT)?;
        if context.peers.insert(peer) { Ok(()) } else { Err(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) }
    }
}

/// Waits until a device has nothing to do. The state must not be locked.
pub(super) fn idle(device: usize) -> Answer {
    let outstanding = state().outstanding(device);
    outstanding.iter().try_for_each(|(queue, position)| queue.wait(*position))
}

/// Ends a context and what lives in it. Objects that their owners had not destroyed are counted.
fn destroy(state: &mut State, device: usize) {
    let legacy = state.contexts.remove(&device).map(|context| context.legacy);
    let mut abandoned = 0;
    for (number, stream) in &state.streams {
        if stream.device == device {
            stream.queue.close();
            abandoned += u64::from(Some(*number) != legacy);
        }
    }
    state.streams.retain(|_, stream| stream.device != device);
    let count = |before: usize, after: usize| (before - after) as u64;
    let before = state.events.len() + state.modules.len() + state.executables.len();
    state.events.retain(|_, event| event.device != device);
    state.modules.retain(|_, module| module.device != device);
    state.functions.retain(|_, function| function.device != device);
    state.executables.retain(|_, executable| executable.device != device);
    abandoned += count(before, state.events.len() + state.modules.len() + state.executables.len());
    // Memory of cuMemCreate belongs to no context; its handles and mappings live on.
    let dead: Vec<(u64, bool)> = (state.regions.iter())
        .filter(|region| match region.kind {
            Kind::Mapping { .. } => false,
            Kind::Opened { by, .. } => by == device,
            _ => region.device == device,
        })
        .map(|region| (region.start, matches!(region.kind, Kind::Global(_))))
        .collect();
    for (start, is_global) in dead {
        state.leave(start);
        abandoned += u64::from(!is_global);
    }
    state.abandoned += abandoned;
}
