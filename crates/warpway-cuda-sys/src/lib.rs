//! What the CUDA driver and NVRTC look like from outside: types, constants, and a table of function pointers for each
//! library, filled at run time. Nothing is linked and nothing runs at build time, so a program without CUDA starts.
//!
//! This is not a wrapper: calls are as unsafe as in C. `warpway-cuda` checks and owns.
//!
//! A table names each symbol once, as required or optional. A library without a required symbol is refused as a
//! whole ([`LoadError::Symbol`]); an optional one is an `Option`, and who needs it says what is missing.
//!
//! ```
//! use warpway_cuda_sys::{Driver, LoadError};
//!
//! // SAFETY: there is no such library, so no code of it runs.
//! match unsafe { Driver::open("/nowhere/libcuda.so.1") } {
//!     Err(LoadError::Library { why, .. }) => assert!(why.starts_with("cannot open"), "{why}"),
//!     other => panic!("{other:?}"),
//! }
//! ```

mod driver;
pub mod driver_types;
mod nvrtc;
mod table;

pub use driver::Driver;
pub use nvrtc::{NVRTC_ERROR_COMPILATION, NVRTC_SUCCESS, Nvrtc, nvrtcProgram, nvrtcResult};
pub use table::{LoadError, preload};
