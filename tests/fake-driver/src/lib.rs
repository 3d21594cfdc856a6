//! A CUDA driver in host memory: a shared object with the functions of `libcuda.so.1` that Warpway uses, so that
//! allocation, sharing between processes, capture, launches and every failure can be tested without a GPU.
//!
//! It is not an emulator: kernels are names in a text, a few of which do something ([`Fake`] lists them). It keeps
//! the driver's books: what is alive, what belongs to whom, what may be called when, and which error says so.
//!
//! # How a test uses it
//!
//! A crate names this one among its `dev-dependencies`; cargo then builds the shared object together with the tests.
//! [`library`] is its path, to be handed to `Driver::open` or, in `WARPWAY_CUDA_DRIVER`, to other processes.
//! It panics if the file is absent or was made from other sources: no test passes on a stale one.
//! [`Fake::open`] gives the table of functions as well, and the switches that only the fake has.
//!
//! ```
//! use fake_cuda::Fake;
//!
//! let fake = Fake::open();
//! fake.set("devices=2,arch=90,peers=none"); // before cuInit; other processes: the variable FAKE_CUDA
//! fake.fail("cuMemAlloc", 1, 2); // the next call says "out of memory"
//! // SAFETY: a number and nothing else.
//! assert_eq!(unsafe { (fake.driver().cuInit)(0) }, 0);
//! assert_eq!(fake.calls(), ["cuInit 0"]);
//! assert_eq!(fake.live().total(), 0);
//! ```
//!
//! # What is unlike the real driver
//!
//! * Device addresses are never given out twice, and the host cannot touch what lies there (it faults, as it should):
//!   use after free is always an error.
//! * Each stream has a thread, so work is asynchronous. A graph replays its work in the order of capture.
//! * Objects are numbers that are looked up: a wrong or destroyed handle is `CUDA_ERROR_INVALID_HANDLE`, where the
//!   real driver may crash.
//! * IPC handles name a descriptor of the exporting process. When that process has ended, they cannot be opened.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "for tests: what cannot be done ends the test; the driver's functions catch it at the boundary"
)]

mod client;
mod driver;
mod library;
mod live;

pub use client::{Fake, Launch};
pub use library::library;
pub use live::Live;
