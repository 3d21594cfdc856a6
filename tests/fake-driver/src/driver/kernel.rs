//! The functions that do something; the crate's page lists them. Others are only written down.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use warpway_cuda_sys::driver_types::{
    CUDA_ERROR_ILLEGAL_ADDRESS, CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_LAUNCH_FAILED,
    CUDA_ERROR_LAUNCH_TIMEOUT, CUDA_ERROR_MISALIGNED_ADDRESS,
};

use super::call::Answer;
use super::launch::Launch;
use super::region::Kind;
use super::state::{State, state};

/// Runs a kernel on a device.
pub(super) fn run(launch: &Launch, device: usize) -> Answer {
    let argument = |at| launch.number(at).ok_or(CUDA_ERROR_INVALID_VALUE);
    match launch.function.name.as_str() {
        "fill_u32" => {
            let (pointer, value, count) = (argument(0)?, argument(1)? as u32, argument(2)?);
            let state = state();
            let bytes = count.checked_mul(4).ok_or(CUDA_ERROR_ILLEGAL_ADDRESS)?;
            let start = reach(&state, pointer, bytes, 4, device)? as *mut u32;
            for at in 0..count {
                // SAFETY: `reach` says that so many bytes are alive, and the lock keeps them so.
                unsafe { start.add(at as usize).write_volatile(value) };
            }
            Ok(())
        }
        "copy_bytes" => {
            let (to, from, bytes) = (argument(0)?, argument(1)?, argument(2)?);
            let state = state();
            let (to, from) = (reach(&state, to, bytes, 1, device)?, reach(&state, from, bytes, 1, device)?);
            // SAFETY: as above.
            unsafe { std::ptr::copy(from as *const u8, to as *mut u8, bytes as usize) };
            Ok(())
        }
        "add_u64" => {
            let (pointer, value) = (argument(0)?, argument(1)?);
            let state = state();
            let word = reach(&state, pointer, 8, 8, device)? as *mut u64;
            // SAFETY: as above, and aligned. Release: pairs with the acquire of `wait_u64`, here or in another process.
            unsafe { AtomicU64::from_ptr(word) }.fetch_add(value, Ordering::Release);
            Ok(())
        }
        "wait_u64" => {
            let (pointer, value) = (argument(0)?, argument(1)?);
            let deadline = Instant::now() + Duration::from_millis(argument(2)?);
            loop {
                let seen = {
                    let state = state();
                    let word = reach(&state, pointer, 8, 8, device)? as *mut u64;
                    // SAFETY: as above. Acquire: pairs with the release of `add_u64`.
                    unsafe { AtomicU64::from_ptr(word) }.load(Ordering::Acquire)
                };
                if seen >= value {
                    return Ok(());
                }
                if Instant::now() > deadline {
                    return Err(CUDA_ERROR_LAUNCH_TIMEOUT);
                }
                std::thread::sleep(Duration::from_micros(100));
            }
        }
        "trap" => Err(CUDA_ERROR_LAUNCH_FAILED),
        _ => Ok(()),
    }
}

/// Where the bytes are that a kernel of a device touches.
fn reach(state: &State, address: u64, bytes: u64, alignment: u64, device: usize) -> Answer<u64> {
    if !address.is_multiple_of(alignment) {
        return Err(CUDA_ERROR_MISALIGNED_ADDRESS);
    }
    let region = state.regions.of(address).ok_or(CUDA_ERROR_ILLEGAL_ADDRESS)?;
    // Mappings carry their own access bits, which `resolve` checks; opening by IPC gives access.
    let by_peer_access = matches!(region.kind, Kind::Allocation(_) | Kind::Global(_));
    if by_peer_access && region.device != device {
        let enabled =
            state.contexts.get(&device).is_some_and(|context| context.peers.contains(&region.device));
        if !enabled {
            return Err(CUDA_ERROR_ILLEGAL_ADDRESS);
        }
    }
    state.regions.resolve(address, bytes, device).map_err(|_| CUDA_ERROR_ILLEGAL_ADDRESS)
}
