//! GPUs by CUDA: the driver opened at run time, memory that peers can map, kernels compiled when they are needed.
//!
//! Nothing of CUDA is needed to build or load this crate. What is absent is a value:
//!
//! ```
//! use warpway_cuda::Driver;
//!
//! let absent = Driver::open("/nowhere/libcuda.so.1".as_ref()).unwrap_err();
//! assert!(absent.to_string().contains("No such file"), "{absent}");
//! ```
//!
//! | file | question it answers |
//! |---|---|
//! | `driver.rs` | is there a driver; what does a failed call say |
//! | `device.rs` | which GPUs there are, what they can do, who reaches whom |
//! | `context.rs` | on whose behalf calls are made; peer access |
//! | `stream.rs`, `event.rs`, `graph.rs` | order and time of work on a device |
//! | `module.rs` | kernels and how they are launched |
//! | `memory/` | allocations that can be exported, pinned memory, pointers of other libraries |

mod device;
mod driver;

pub use device::{Architecture, GpuInfo, PciAddress, PeerLink};
pub use driver::Driver;
