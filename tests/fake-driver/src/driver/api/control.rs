//! The functions that only the fake has: its machine, failures, what lives, what was called.

use std::ffi::{CStr, c_char};
use std::sync::Mutex;

use warpway_cuda_sys::driver_types::{CUDA_ERROR_INVALID_VALUE, CUresult};

use crate::driver::arena::Arena;
use crate::driver::call::{book, lock};
use crate::driver::region::Kind;
use crate::driver::state::state;
use crate::live::Live;

/// Writes what is alive.
///
/// # Safety
/// The pointer is valid for a write.
#[unsafe(no_mangle)]
unsafe extern "C" fn fake_cuda_live(live: *mut Live) {
    let state = state();
    let count = |wanted: fn(&Kind) -> u64| state.regions.iter().map(|region| wanted(&region.kind)).sum();
    let counts = Live {
        contexts: state.contexts.len() as u64,
        allocations: count(|kind| u64::from(matches!(kind, Kind::Allocation(_)))),
        handles: state.handles.values().map(|(_, count)| count).sum(),
        reservations: state.reservations.len() as u64,
        mappings: count(|kind| u64::from(matches!(kind, Kind::Mapping { .. }))),
        opened: count(|kind| if let Kind::Opened { count, .. } = kind { *count } else { 0 }),
        pinned: count(|kind| u64::from(matches!(kind, Kind::Pinned))),
        registered: count(|kind| u64::from(matches!(kind, Kind::Registered))),
        streams: (state.streams.len() - state.contexts.len()) as u64,
        events: state.events.len() as u64,
        modules: state.modules.len() as u64,
        graphs: state.graphs.len() as u64,
        executables: state.executables.len() as u64,
        abandoned: state.abandoned,
    };
    // SAFETY: the caller's contract.
    unsafe { live.write(counts) };
}

/// `set SETTINGS` changes the machine (before `cuInit`), `fail FUNCTION NTH CODE` lets a call fail, `forget` takes all
/// such orders back. 0, or `CUDA_ERROR_INVALID_VALUE` if the command is not understood.
///
/// # Safety
/// A text that ends with a zero.
#[unsafe(no_mangle)]
unsafe extern "C" fn fake_cuda_control(command: *const c_char) -> CUresult {
    // SAFETY: the caller's contract.
    let command = unsafe { CStr::from_ptr(command) }.to_string_lossy();
    obey(&command).map_or(CUDA_ERROR_INVALID_VALUE, |()| 0)
}

fn obey(command: &str) -> Option<()> {
    let words: Vec<&str> = command.split_whitespace().collect();
    match words[..] {
        ["set", settings] if !book().initialised => state().config.apply(settings).ok(),
        ["fail", function, nth, code] => {
            book().fail(function, nth.parse().ok()?, code.parse().ok()?);
            Some(())
        }
        ["forget"] => {
            book().forget_failures();
            Some(())
        }
        _ => None,
    }
}

/// Takes a log, a line per entry: `calls` (function and result) or `launches` (as they were executed). Returns how many
/// bytes it has; if that is more than there is room for, nothing is written and nothing taken.
///
/// # Safety
/// `what` is a text that ends with a zero; so many bytes may be written.
#[unsafe(no_mangle)]
unsafe extern "C" fn fake_cuda_log(what: *const c_char, to: *mut u8, room: usize) -> usize {
    /// Logs that were taken but did not fit yet.
    static WAITING: Mutex<(String, String)> = Mutex::new((String::new(), String::new()));

    // SAFETY: the caller's contract.
    let what = unsafe { CStr::from_ptr(what) }.to_string_lossy();
    let mut waiting = lock(&WAITING);
    let log = if what == "calls" {
        let calls = book().take_calls();
        waiting.0.extend(calls.into_iter().map(|line| line + "\n"));
        &mut waiting.0
    } else {
        let launches = std::mem::take(&mut state().launches);
        waiting.1.extend(launches.into_iter().map(|launched| launched.text + "\n"));
        &mut waiting.1
    };
    let length = log.len();
    if length <= room {
        // SAFETY: the caller vouches for the room.
        unsafe { std::ptr::copy_nonoverlapping(log.as_ptr(), to, length) };
        log.clear();
    }
    length
}

/// Where the host finds the bytes of an address of a device, or 0 if it is not alive. For tests that look at memory
/// without a copy; the memory must stay alive meanwhile.
#[unsafe(no_mangle)]
extern "C" fn fake_cuda_host_address(address: u64) -> u64 {
    let state = state();
    match state.regions.of(address) {
        Some(region) if region.is_host() => address,
        Some(_) => Arena::bytes(address),
        None => 0,
    }
}

/// The number of the sources that it was made from.
#[unsafe(no_mangle)]
extern "C" fn fake_cuda_build() -> *const c_char {
    crate::library::MARKER.as_ptr()
}
