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
//! | `driver.rs`, `mapped.rs` | is there a driver, and where; what does a failed call say |
//! | `device.rs` | which GPUs there are, what they can do, who reaches whom |
//! | `context.rs` | on whose behalf calls are made; peer access |
//! | `residency.rs` | how much of a device is held by blocks that may wait |
//! | `in_flight.rs` | what lives until launches have ended |
//! | `stream.rs`, `event.rs`, `graph.rs` | order and time of work on a device |
//! | `handle.rs` | what host and device share; `device/include/warpway` holds the headers |
//! | `module.rs`, `code.rs`, `arguments.rs` | kernels and how they are launched |
//! | `jit/` | kernels compiled by NVRTC, kept in memory and on disk |
//! | `proxy/` | port channels: the ring that kernels fill, the proxy's thread, device handles |
//! | `engine/` | the transport between ranks on GPUs of one host |
//! | `gpu/` | one rank's GPU: what programs use |
//! | `plan/` | plans as kernels |
//! | `executor/` | plans set up by all ranks, and their launches |
//! | `memory/` | allocations that can be exported, pinned memory, pointers of other libraries |
//! | `bench/` | measurements between two GPUs, each beside its plain form |

mod arguments;
pub mod bench;
mod capture;
mod code;
mod context;
mod device;
mod driver;
mod engine;
mod event;
mod executor;
mod gpu;
mod graph;
mod handle;
mod in_flight;
pub mod jit;
mod mapped;
mod memory;
mod module;
pub mod plan;
mod proxy;
mod residency;
mod signature;
mod stream;

pub use arguments::{ArgumentTypes, Arguments};
pub use context::{Context, Entered};
pub use device::{Architecture, GpuInfo, PciAddress, PeerLink};
pub use driver::Driver;
pub use engine::{CudaEngine, DeviceChoice, Devices, GpuTokens, WordForm};
pub use event::Event;
pub use executor::{DeviceRange, GpuLaunch, GpuPlan, GpuPlanSetting, GpuPlans, MessageBytes};
pub use gpu::{
    ControlBlock, DeviceObject, Gpu, GpuBuffer, GpuEpochs, GpuGraph, GpuMemoryChannel, GpuSemaphore,
    GpuSignalChannel, GpuSyncer, HandleArray, Keeper, KernelArgument, KernelArguments, Lane, LoadedProgram,
    Plain,
};
pub use graph::Graph;
pub use handle::{
    BasePortChannelHandle, Control, DeviceSemaphore, DeviceSyncer, EpochsHandle, ErrorRecord, FifoHandle,
    Host2DeviceSemaphoreHandle, HostControl, MemoryChannelDeviceHandle, MemoryDevice2DeviceSemaphoreHandle,
    NO_PEER, PROXY_STOPPED, PortChannelHandle, Site, SwitchChannelHandle, SwitchDevice2DeviceSemaphoreHandle,
};
pub use memory::{
    DeviceMemory, ExportKinds, Foreign, ForeignKind, IPC_HANDLE_BYTES, ImportedMemory, PinnedMemory, copy,
    copy_from_host, copy_to_host, fill, write_word,
};
pub use module::{Kernel, LaunchShape, Module};
pub use proxy::{DeviceFifo, PortConfig, PortService};
pub use residency::{Claim, Ledger, Residency};
pub use stream::Stream;

pub use warpway_core::gpu::{FailureCode, WaitKind};
