//! Pieces of a message that both ranks copy, whoever comes first.

use std::ptr::NonNull;

use warpway_core::Result;
use warpway_core::channel::ChannelError;

use crate::copy::{copy, overlap};

/// Copies piece `number` of a message of `bytes` bytes in pieces of `size`.
///
/// The caller has got the pointers from checks of ranges of `bytes` bytes; see the safety comment.
///
/// # Errors
/// `channel.overlap` if the ranks of one process send a memory to itself.
pub(super) fn copy_piece(
    to: NonNull<u8>,
    from: NonNull<u8>,
    bytes: u64,
    size: u64,
    number: u64,
    peer: u32,
) -> Result<()> {
    if overlap(to, from, bytes) {
        return Err(ChannelError::Overlap { operation: "send", peer, size: bytes }.into());
    }
    let start = number * size;
    let part = size.min(bytes - start);
    // SAFETY: `start + part <= bytes`; both callers pass ranges of `bytes` bytes that they have checked and that stay
    // mapped during the call, and they do not overlap.
    unsafe { copy(to.add(start as usize), from.add(start as usize), part) };
    Ok(())
}
