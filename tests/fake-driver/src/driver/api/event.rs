//! Events.

use std::ffi::c_uint;
use std::sync::Arc;
use std::time::Duration;

use warpway_cuda_sys::driver_types::*;

use crate::driver::call::{Answer, driver_functions, put};
use crate::driver::capture::Mark;
use crate::driver::event::Event;
use crate::driver::state::{State, state};
use crate::driver::work::{PATIENCE, Work};

driver_functions! {
    required cuEventCreate = "cuEventCreate" (event: *mut CUevent, flags: c_uint) {
        let mut state = state();
        let device = state.current()?;
        let interprocess = flags & CU_EVENT_INTERPROCESS != 0;
        let timed = flags & CU_EVENT_DISABLE_TIMING == 0;
        if flags > 7 || interprocess && timed || event.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let number = state.fresh();
        state.events.insert(number, Arc::new(Event::new(device, timed)));
        put(event, number as CUevent)
    }

    /// Work that was submitted keeps what it needs.
    required cuEventDestroy = "cuEventDestroy_v2" (event: CUevent) {
        state().events.remove(&(event as u64)).map(|_| ()).ok_or(CUDA_ERROR_INVALID_HANDLE)
    }

    required cuEventRecord = "cuEventRecord" (event: CUevent, stream: CUstream) {
        let mut state = state();
        let stream = state.stream(stream)?;
        let event = Arc::clone(state.event(event as u64)?);
        if state.streams.get(&stream).is_none_or(|stream| stream.device != event.device) {
            return Err(CUDA_ERROR_INVALID_HANDLE);
        }
        if let Some(number) = state.capture_of(stream) {
            let capture = state.captures.get(&number).ok_or(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)?;
            event.capture(capture.mark(number, stream));
            return Ok(());
        }
        state.legal(stream)?;
        let point = event.record();
        state.submit(stream, vec![Work::Record(event, point)])
    }

    required cuEventQuery = "cuEventQuery" (event: CUevent) {
        let event = settled(&mut state(), event)?;
        if event.has_passed(event.recorded()) { Ok(()) } else { Err(CUDA_ERROR_NOT_READY) }
    }

    required cuEventSynchronize = "cuEventSynchronize" (event: CUevent) {
        let event = settled(&mut state(), event)?;
        if !event.wait(event.recorded(), PATIENCE) {
            return Err(CUDA_ERROR_LAUNCH_TIMEOUT);
        }
        state().healthy(event.device)
    }

    /// Milliseconds.
    required cuEventElapsedTime = "cuEventElapsedTime" (milliseconds: *mut f32, from: CUevent, to: CUevent) {
        let state = state();
        let (from, to) = (state.event(from as u64)?, state.event(to as u64)?);
        for event in [from, to] {
            if let Some(mark) = event.captured() {
                return Err(part_of(&state, &mark));
            }
            if !event.timed || event.recorded() == 0 {
                return Err(CUDA_ERROR_INVALID_HANDLE);
            }
        }
        let (Some(start), Some(end)) = (from.time(), to.time()) else {
            return Err(CUDA_ERROR_NOT_READY);
        };
        let seconds = |time: Duration| time.as_secs_f32() * 1e3;
        let elapsed = if end >= start { seconds(end - start) } else { -seconds(start - end) };
        put(milliseconds, elapsed)
    }
}

/// An event that may be asked: not part of a capture, and asking breaks none.
fn settled(state: &mut State, event: CUevent) -> Answer<Arc<Event>> {
    let event = Arc::clone(state.event(event as u64)?);
    if let Some(mark) = event.captured() {
        state.invalidate(mark.capture);
        return Err(part_of(state, &mark));
    }
    state.uncaptured()?;
    state.healthy(event.device)?;
    Ok(event)
}

/// Why an event of a capture cannot be asked: of one that has ended, it has nothing to tell at all.
fn part_of(state: &State, mark: &Mark) -> CUresult {
    if state.captures.contains_key(&mark.capture) {
        CUDA_ERROR_CAPTURED_EVENT
    } else {
        CUDA_ERROR_INVALID_VALUE
    }
}
