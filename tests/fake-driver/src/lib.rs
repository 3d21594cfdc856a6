//! A CUDA driver in host memory: a shared object with the functions of `libcuda.so.1` that Warpway uses, so that
//! allocation, sharing between processes, capture, launches and every failure can be tested without a GPU.
//!
//! It is not an emulator: kernels are names in a text, a few of which do something. It keeps the driver's books: what is
//! alive, what belongs to whom, what may be called when, and which error says so.
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
//! # Modules and kernels
//!
//! An image is a text that ends with a zero:
//!
//! ```text
//! fake module
//! arch 90
//! function fill_u32 parameters=8,4,8 registers=24 threads=1024 shared=0
//! global warpway_errors 256
//! ```
//!
//! Without `arch` it loads on every device. A parameter has so many bytes, and is aligned as its size is, up to 8
//! (`64@16` says otherwise). Launches are checked against registers, threads and shared memory, and written down
//! ([`Fake::launches`]) when they are executed. These functions do something besides:
//!
//! | name | parameters | what it does |
//! |---|---|---|
//! | `fill_u32` | pointer, u32 value, u64 count | writes the value so often |
//! | `copy_bytes` | to, from, u64 count | copies |
//! | `add_u64` | pointer, u64 value | adds atomically, release |
//! | `wait_u64` | pointer, u64 value, u64 milliseconds | waits until the word is at least the value, acquire |
//! | `trap` | | fails: `CUDA_ERROR_LAUNCH_FAILED`, and the context is poisoned |
//!
//! They check what they touch as hardware does: memory that is alive, aligned, open to the device by its access bits or
//! by peer access. Else the context is poisoned with `CUDA_ERROR_ILLEGAL_ADDRESS` or `CUDA_ERROR_MISALIGNED_ADDRESS`.
//!
//! # What is unlike the real driver
//!
//! * Device addresses are never given out twice, and the host cannot touch what lies there (it faults, as it should):
//!   use after free is always an error.
//! * Each stream has a thread, so work is asynchronous. A graph replays its work in the order of capture.
//! * Objects are numbers that are looked up: a wrong or destroyed handle is `CUDA_ERROR_INVALID_HANDLE`, where the
//!   real driver may crash.
//! * Waits give up after a minute with `CUDA_ERROR_LAUNCH_TIMEOUT`.
//! * IPC handles name a descriptor of the exporting process. When that process has ended, they cannot be opened. Memory of
//!   a device that the opening process does not see is refused, by handle and by descriptor.
//! * Answers are compared with those of a real driver, call by call (`tests/driver/recorded`). What was not recorded is
//!   assumed by analogy: waiting for any stream breaks a capture, as asking one does.

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
pub use library::{library, with_library_without};
pub use live::Live;
