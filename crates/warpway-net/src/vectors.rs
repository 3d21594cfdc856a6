//! Scatter and gather over memory that others may change: addresses go to the kernel, no Rust reference
//! to the bytes is ever made.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::ptr::NonNull;

use rustix::io::Result;
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};

/// An address and a length, laid out as the system's `iovec`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct RawBuffer {
    address: *mut u8,
    length: usize,
}

const _: () = assert!(size_of::<RawBuffer>() == size_of::<IoSlice<'_>>());
const _: () = assert!(align_of::<RawBuffer>() == align_of::<IoSlice<'_>>());

impl RawBuffer {
    /// `length` bytes at `address`.
    pub(crate) fn new(address: NonNull<u8>, length: usize) -> Self {
        Self { address: address.as_ptr(), length }
    }

    /// Own bytes that are read.
    pub(crate) fn reading(bytes: &[u8]) -> Self {
        Self { address: bytes.as_ptr().cast_mut(), length: bytes.len() }
    }

    /// Own bytes that are written.
    pub(crate) fn writing(bytes: &mut [u8]) -> Self {
        Self { address: bytes.as_mut_ptr(), length: bytes.len() }
    }
}

/// Sends what fits into the socket's buffer.
///
/// # Safety
/// Every buffer must be readable for the length of the call.
pub(crate) unsafe fn send(socket: impl AsFd, buffers: [RawBuffer; 3]) -> Result<usize> {
    // SAFETY: `IoSlice` is guaranteed to have the layout of `iovec`, which `RawBuffer` has; the slices are
    // handed to the kernel and never dereferenced here; readability is the caller's promise.
    let slices = unsafe { std::mem::transmute::<[RawBuffer; 3], [IoSlice<'_>; 3]>(buffers) };
    let mut space: [MaybeUninit<u8>; 0] = [];
    let mut control = SendAncillaryBuffer::new(&mut space);
    sendmsg(socket, &slices, &mut control, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)
}

/// Reads what is there (the socket is non-blocking), filling the first buffer first.
///
/// # Safety
/// Every buffer must be writable for the length of the call.
pub(crate) unsafe fn receive(socket: impl AsFd, buffers: [RawBuffer; 2]) -> Result<usize> {
    // SAFETY: as in `send`; writability is the caller's promise.
    let mut slices = unsafe { std::mem::transmute::<[RawBuffer; 2], [IoSliceMut<'_>; 2]>(buffers) };
    rustix::io::readv(socket, &mut slices)
}
