//! What the fake does, asked through the table of functions that programs use. One process per test (`cargo nextest`).
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "what cannot be done ends the test, with its place"
)]

mod device;
mod fault;
mod mapping;
mod memory;
mod module;
mod recorded;
mod sharing;
mod stream;

use std::ffi::{CString, c_void};

use fake_cuda::Fake;
use warpway_cuda_sys::Driver;
use warpway_cuda_sys::driver_types::*;

/// Calls a function of the table; the result is its code.
macro_rules! call {
    ($driver:expr, $function:ident($($argument:expr),* $(,)?)) => {
        // SAFETY: the test passes what the function's signature wants, and pointers to values of its own.
        unsafe { ($driver.$function)($($argument),*) }
    };
}
pub(crate) use call;

/// Calls a function that must succeed.
macro_rules! ok {
    ($driver:expr, $function:ident($($argument:expr),* $(,)?)) => {
        assert_eq!(crate::call!($driver, $function($($argument),*)), 0, stringify!($function))
    };
}
pub(crate) use ok;

/// Calls an optional function; the result is its code.
macro_rules! optional {
    ($driver:expr, $function:ident($($argument:expr),* $(,)?)) => {{
        let function = $driver.$function.expect(stringify!($function));
        // SAFETY: as for `call`.
        unsafe { function($($argument),*) }
    }};
}
pub(crate) use optional;

/// A driver of these settings, initialised, with the context of device 0 current.
fn start(settings: &str) -> Fake {
    let fake = Fake::open();
    fake.set(settings);
    ok!(fake.driver(), cuInit(0));
    enter(fake.driver(), 0);
    fake
}

/// Retains the context of a device and makes it current.
fn enter(driver: &Driver, device: CUdevice) -> CUcontext {
    let mut context = std::ptr::null_mut();
    ok!(driver, cuDevicePrimaryCtxRetain(&raw mut context, device));
    ok!(driver, cuCtxSetCurrent(context));
    context
}

fn allocate(driver: &Driver, size: usize) -> CUdeviceptr {
    let mut pointer = 0;
    ok!(driver, cuMemAlloc(&raw mut pointer, size));
    pointer
}

/// A stream that does not wait for the legacy one.
fn stream(driver: &Driver) -> CUstream {
    let mut stream = std::ptr::null_mut();
    ok!(driver, cuStreamCreateWithPriority(&raw mut stream, CU_STREAM_NON_BLOCKING, 0));
    stream
}

fn event(driver: &Driver) -> CUevent {
    let mut event = std::ptr::null_mut();
    ok!(driver, cuEventCreate(&raw mut event, CU_EVENT_DEFAULT));
    event
}

/// The bytes of device memory.
fn read(driver: &Driver, pointer: CUdeviceptr, bytes: usize) -> Vec<u8> {
    let mut result = vec![0; bytes];
    let stream = std::ptr::null_mut();
    ok!(driver, cuMemcpyDtoHAsync(result.as_mut_ptr().cast(), pointer, bytes, stream));
    ok!(driver, cuStreamSynchronize(stream));
    result
}

fn write(driver: &Driver, pointer: CUdeviceptr, bytes: &[u8]) {
    let stream = std::ptr::null_mut();
    ok!(driver, cuMemcpyHtoDAsync(pointer, bytes.as_ptr().cast(), bytes.len(), stream));
    ok!(driver, cuStreamSynchronize(stream));
}

/// A function of a module that has been loaded.
fn function(driver: &Driver, module: CUmodule, name: &str) -> CUfunction {
    let (mut function, name) = (std::ptr::null_mut(), CString::new(name).unwrap());
    ok!(driver, cuModuleGetFunction(&raw mut function, module, name.as_ptr()));
    function
}

fn load(driver: &Driver, image: &str) -> CUmodule {
    let (mut module, image) = (std::ptr::null_mut(), CString::new(image).unwrap());
    let none = std::ptr::null_mut();
    ok!(driver, cuModuleLoadDataEx(&raw mut module, image.as_ptr().cast(), 0, none, none.cast()));
    module
}

/// Launches one block of 32 threads with arguments of 8 bytes; the image says how many bytes of each count.
fn launch(driver: &Driver, function: CUfunction, stream: CUstream, arguments: &[u64]) -> CUresult {
    let mut pointers: Vec<*mut c_void> =
        arguments.iter().map(|argument| std::ptr::from_ref(argument).cast_mut().cast()).collect();
    call!(
        driver,
        cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, pointers.as_mut_ptr(), std::ptr::null_mut())
    )
}

/// Every symbol that a table asks for is there; a table without required ones does not open at all.
#[test]
fn all_symbols_are_exported() {
    let path = fake_cuda::library();
    // SAFETY: our own file, without initialisers.
    let library = unsafe { libloading::Library::new(&path) }.unwrap();
    for symbol in Driver::REQUIRED.iter().chain(Driver::OPTIONAL) {
        // SAFETY: the address is not called.
        let found = unsafe { library.get::<*const ()>(symbol.as_bytes()) };
        assert!(found.is_ok(), "{symbol}");
    }
}
