//! One rank's GPU: memory that peers reach, handles, kernels, and what ends a kernel's waits.
//!
//! | file | question it answers |
//! |---|---|
//! | `control.rs`, `watchdog.rs` | how waits of kernels end, and how their failures reach the communicator |
//! | `buffer.rs` | memory that peers reach |
//! | `channel.rs`, `handle_array.rs`, `liveness.rs` | device handles of channels, and how stale ones are found |
//! | `objects.rs`, `device_array.rs`, `arena.rs` | grid barriers, semaphores, epochs, plain values |
//! | `program.rs` | kernels compiled and loaded |
//! | `turns.rs`, `argument.rs` | launches: room for all blocks, order, and what must live until they have ended |

mod arena;
mod argument;
mod buffer;
mod channel;
mod control;
mod device_array;
mod handle_array;
mod liveness;
mod objects;
mod program;
mod turns;
mod watchdog;

use std::fmt;
use std::sync::{Arc, OnceLock};

use warpway_core::channel::{BaseMemoryChannel, DeviceHandle, MemoryChannel};
use warpway_core::communicator::Communicator;
use warpway_core::memory::{Access, Element, MemoryError, RegisteredMemory};
use warpway_core::transport::{Device, Transport, TransportFlags};
use warpway_core::{Deadline, Result, Timeout};

use crate::context::Context;
use crate::executor::{GpuPlans, PlansState};
use crate::handle::{MemoryChannelDeviceHandle, MemoryDevice2DeviceSemaphoreHandle};
use crate::jit::{Compiler, Program};
use crate::memory::{DeviceMemory, Foreign};
use crate::module::{Kernel, LaunchShape, Module};
use crate::proxy::{PortConfig, PortService};
use crate::stream::Stream;
use arena::Arena;
use liveness::LivenessWords;
use turns::{Turns, TurnsGraph};

pub use argument::{Keeper, KernelArgument, KernelArguments, Plain};
pub use buffer::GpuBuffer;
pub use channel::{GpuMemoryChannel, GpuSignalChannel};
pub use control::ControlBlock;
pub(crate) use device_array::DeviceArray;
pub use handle_array::HandleArray;
pub use objects::{DeviceObject, GpuEpochs, GpuSemaphore, GpuSyncer};
pub use program::LoadedProgram;

/// A communicator's GPU. Cheap to clone, `Send + Sync`.
///
/// Kernels launched by [`launch`](Self::launch) take turns: a kernel starts when the one before it has ended, whichever
/// streams they are given to. So the room that they need on the device is that of the widest one, and no two of them use
/// the same epochs at once. Kernels that are to overlap are launched in [lanes](Self::lane) of their own. Kernels
/// that wait for nobody need none of this: [`Kernel::launch`].
///
/// Set everything up before the first kernel waits for a peer: allocating and loading kernels may have to wait for the
/// kernels that run on the device, those of other ranks of this process among them. What is dropped while kernels launched here
/// (by any `Gpu` of the process) are under way is given back when they have ended.
#[derive(Clone)]
pub struct Gpu(Arc<Inner>);

struct Inner {
    // Dropped in this order: kernels end before what they use goes, the watchdog's memory after them.
    turns: Turns,
    /// Of its places in the arena none is used any more, and no scratch of it.
    plans: OnceLock<PlansState>,
    control: ControlBlock,
    arena: Arena,
    words: LivenessWords,
    /// For copies of set-up and tests.
    stream: Arc<Stream>,
    compiler: Compiler,
    context: Context,
    communicator: Communicator,
}

impl Gpu {
    /// The GPU of `context`, for the rank that `communicator` is. `timeout` limits each wait of a kernel. Communicators of
    /// one process that use the same device are given the same context.
    ///
    /// # Errors
    /// `gpu.driver`, `system` if threads are exhausted.
    pub fn new(
        communicator: &Communicator,
        context: &Context,
        compiler: &Compiler,
        timeout: Timeout,
    ) -> Result<Self> {
        // One for all copies of set-up and tests: streams share few queues of the hardware, so each one more can hold others up.
        let stream = Arc::new(Stream::new(context)?);
        let control = ControlBlock::on(&stream, communicator.health(), timeout)?;
        Ok(Self(Arc::new(Inner {
            turns: Turns::new(context, control.watched()),
            plans: OnceLock::new(),
            control,
            arena: Arena::new(&stream),
            words: LivenessWords::new(context),
            stream,
            compiler: compiler.clone(),
            context: context.clone(),
            communicator: communicator.clone(),
        })))
    }

    /// The device's context.
    pub fn context(&self) -> &Context {
        &self.0.context
    }

    /// The device, for endpoints.
    pub fn device(&self) -> Device {
        self.0.context.device()
    }

    /// What ends waits of kernels.
    pub fn control(&self) -> &ControlBlock {
        &self.0.control
    }

    /// What compiles kernels.
    pub fn compiler(&self) -> &Compiler {
        &self.0.compiler
    }

    /// A new stream of the device.
    ///
    /// # Errors
    /// `gpu.driver`.
    pub fn stream(&self) -> Result<Stream> {
        Ok(Stream::new(&self.0.context)?)
    }

    /// Allocates `len` zeroed elements that peers can reach.
    ///
    /// # Errors
    /// `mem.invalid` for zero elements, `gpu.driver` if memory is exhausted.
    pub fn alloc<T: Element>(&self, len: u64) -> Result<GpuBuffer<T>> {
        self.alloc_for(len, Transport::CudaIpc.into())
    }

    fn allocate<T: Element>(&self, len: u64) -> Result<DeviceMemory> {
        let size = size_of::<T>() as u64;
        let bytes = len.checked_mul(size).ok_or(MemoryError::Invalid {
            address: 0,
            size: u64::MAX,
            why: "no memory is that large",
        })?;
        let memory = DeviceMemory::allocate(&self.0.context, bytes, &[])?;
        GpuBuffer::<T>::clear(&memory, &self.0.stream)?;
        Ok(memory)
    }

    /// Makes memory of another library known: `bytes` at the device address `address`, all in one allocation.
    ///
    /// # Errors
    /// `mem.invalid` for an address that is no memory of a device, `gpu.device` for another device's, `mem.bounds`;
    /// `mem.export` if its allocator has made it for this process only.
    ///
    /// # Safety
    /// The memory must stay allocated until the registration, all that was made of it, and the peers' use of it have ended.
    pub unsafe fn register(&self, address: u64, bytes: u64) -> Result<RegisteredMemory> {
        // SAFETY: the caller's.
        unsafe { self.register_for(address, bytes, Transport::CudaIpc.into()) }
    }

    /// [`register`](Self::register) for other transports than CudaIpc alone: port channels also reach it by TCP, through
    /// buffers of the host. For TCP alone it need not be such as other processes can open.
    ///
    /// # Errors
    /// As there; `mem.transport` for one that the communicator does not have.
    ///
    /// # Safety
    /// As there.
    pub unsafe fn register_for(
        &self,
        address: u64,
        bytes: u64,
        transports: TransportFlags,
    ) -> Result<RegisteredMemory> {
        // SAFETY: the caller's.
        let region = unsafe { Foreign::region(&self.0.context, address, bytes)? };
        self.0.communicator.register_memory(region, transports, Access::ALL)
    }

    /// [`alloc`](Self::alloc) for other transports than CudaIpc alone: port channels also reach it by TCP, through
    /// buffers of the host.
    ///
    /// # Errors
    /// As there; `mem.transport` for one that the communicator does not have.
    pub fn alloc_for<T: Element>(&self, len: u64, transports: TransportFlags) -> Result<GpuBuffer<T>> {
        let memory = self.allocate::<T>(len)?;
        let registered = self.0.communicator.register_memory(memory.region()?, transports, Access::ALL)?;
        Ok(GpuBuffer::new(memory, registered, Arc::clone(&self.0.stream), len))
    }

    /// A running service for port channels of kernels. Its handles keep it. Make it, its channels and their handles
    /// before kernels wait: pinning memory and loading kernels may have to wait for them.
    ///
    /// # Errors
    /// `fifo.size`; `gpu.driver` if memory is exhausted; `system` if no thread can be started.
    pub fn port_service(&self, config: &PortConfig) -> Result<PortService> {
        let Inner { context, communicator, control, .. } = &*self.0;
        let ports = PortService::new(context, communicator.waiter().clone(), control.address(), config)?;
        ports.service().start_proxy()?;
        Ok(ports)
    }

    /// What kernels do with a memory channel; the parameter is `warpway::MemoryChannel`, by value. Each call makes a
    /// handle of its own; all of them share the channel's signals.
    ///
    /// # Errors
    /// `conn.incompatible` unless the channel's connection is one of this device by CudaIpc; `gpu.device` if one of its
    /// memories is not on a GPU.
    pub fn memory_channel(
        &self,
        channel: &MemoryChannel,
    ) -> Result<DeviceHandle<MemoryChannelDeviceHandle, GpuMemoryChannel>> {
        channel::memory_channel(channel, self.device(), &self.0.control, &self.0.words)
    }

    /// What kernels do with a channel that only signals: `warpway::MemoryDevice2DeviceSemaphore`, by value.
    ///
    /// # Errors
    /// As [`memory_channel`](Self::memory_channel).
    pub fn signal_channel(
        &self,
        channel: &BaseMemoryChannel,
    ) -> Result<DeviceHandle<MemoryDevice2DeviceSemaphoreHandle, GpuSignalChannel>> {
        channel::signal_channel(channel, self.device(), &self.0.control)
    }

    /// Handles as an array in device memory, for kernels that take many; it keeps what they name. The parameter is a pointer.
    ///
    /// # Errors
    /// `gpu.driver`.
    pub fn handle_array<H, C>(&self, handles: &[DeviceHandle<H, C>]) -> Result<HandleArray<H, C>>
    where
        H: Copy,
        C: Clone,
    {
        HandleArray::new(&self.0.arena, handles)
    }

    /// A grid barrier. `object` is its number in errors.
    ///
    /// # Errors
    /// `gpu.driver`.
    pub fn syncer(&self, object: u64) -> Result<GpuSyncer> {
        GpuSyncer::ready(&self.0.arena, self.0.control.site(None, object))
    }

    /// A counting semaphore with so many units. `object` is its number in errors.
    ///
    /// # Errors
    /// `gpu.driver`.
    pub fn semaphore(&self, units: u64, object: u64) -> Result<GpuSemaphore> {
        GpuSemaphore::with(&self.0.arena, units, self.0.control.site(None, object))
    }

    /// The epochs of `areas` scratch areas.
    ///
    /// # Errors
    /// `gpu.driver`.
    pub fn epochs(&self, areas: u64) -> Result<GpuEpochs> {
        GpuEpochs::new(&self.0.arena, areas)
    }

    /// Plain values in device memory.
    pub(crate) fn array<T: Copy>(&self, content: &[T]) -> Result<DeviceArray<T>> {
        DeviceArray::new(&self.0.arena, content)
    }

    /// Sees to it that so many more arrays of these bytes can be made while kernels run that the driver might wait for.
    pub(crate) fn reserve_arrays(&self, bytes: u64, count: usize) -> Result<()> {
        self.0.arena.reserve(bytes, count)
    }

    /// The communicator that the GPU works for.
    pub(crate) fn communicator(&self) -> &Communicator {
        &self.0.communicator
    }

    /// What the plans of the communicator share on this GPU.
    pub fn plans(&self) -> GpuPlans {
        GpuPlans::new(self.clone(), self.0.plans.get_or_init(PlansState::default))
    }

    /// As [`launch`](Self::launch), for a kernel whose one parameter is a structure of so many words. `keeper` lives until the
    /// kernel has ended.
    ///
    /// # Safety
    /// As there.
    pub(crate) unsafe fn launch_words(
        &self,
        kernel: &Kernel,
        shape: LaunchShape,
        (words, keeper): (&[u64], Keeper),
        stream: &Stream,
    ) -> Result<()> {
        // SAFETY: the caller's.
        unsafe { self.0.turns.launch_words(kernel, shape, (words, keeper), stream) }
    }

    /// Compiles a program for the device, or finds it in the cache, and loads it.
    ///
    /// # Errors
    /// `gpu.compile` with the lines that are wrong, `unavailable` without a compiler, `gpu.driver`.
    pub fn load(&self, program: &Program) -> Result<LoadedProgram> {
        LoadedProgram::load(&self.0.context, &self.0.compiler, program)
    }

    /// Loads code that was built elsewhere: a cubin, a fat binary or PTX, as nvcc writes them.
    ///
    /// # Errors
    /// `gpu.image` for code that is not whole; `gpu.driver` for code of another architecture.
    pub fn load_image(&self, image: &[u8]) -> Result<Module> {
        Ok(Module::load(&self.0.context, image)?)
    }

    /// Launches a kernel that may wait for its own blocks or for peers: all its blocks have room on the device, it
    /// starts after the kernels launched here before, and what the arguments point to lives until it has ended. In
    /// a stream that is captured the launch becomes part of the graph; see [`capture`](Self::capture).
    ///
    /// # Errors
    /// The communicator's failure; `gpu.arguments` for other arguments than the kernel takes, by number or size, if the
    /// driver can tell (CUDA 12.4); `gpu.residency` if the blocks cannot all run at once beside what others have claimed;
    /// `gpu.device` for a stream or kernel of another device; `gpu.driver`. Nothing was launched then.
    ///
    /// # Safety
    /// The arguments must be those of the kernel, in order and each of its parameter's layout. What a [`Plain`] argument
    /// points to must be valid until the kernel has ended, and the kernel must stay within what it is given.
    pub unsafe fn launch(
        &self,
        kernel: &Kernel,
        shape: LaunchShape,
        arguments: impl KernelArguments,
        stream: &Stream,
    ) -> Result<()> {
        // SAFETY: the caller's.
        unsafe { self.0.turns.launch(kernel, shape, &arguments, stream) }
    }

    /// Records what `work` gives to `stream`, for many launches. The graph keeps what the launches in it use.
    ///
    /// What other libraries capture (PyTorch's graphs) may contain launches as well; what those use is kept as
    /// long as this value, since nobody says when such a graph is gone.
    ///
    /// # Errors
    /// Those of `work`, which end the capture; `gpu.driver` for what cannot be captured.
    pub fn capture(&self, stream: &Stream, work: impl FnOnce() -> Result<()>) -> Result<GpuGraph> {
        Ok(GpuGraph { graph: self.0.turns.capture(stream, work)?, gpu: self.clone() })
    }

    /// Kernels that take turns among themselves only, beside those of [`launch`](Self::launch) and of other lanes.
    pub fn lane(&self) -> Lane {
        Lane { turns: Turns::new(&self.0.context, self.0.control.watched()), gpu: self.clone() }
    }

    /// Waits until everything given to `stream` has been done.
    ///
    /// # Errors
    /// What a kernel has given up on: who waited for whom, where; of a kernel that was aborted, why. The
    /// communicator's failure. `gpu.driver` if a kernel has touched what it must not: nothing works on this device any more.
    /// `gpu.timeout` at the deadline: the work goes on.
    pub fn synchronize(&self, stream: &Stream, deadline: Deadline) -> Result<()> {
        let worked = stream.synchronize(deadline);
        self.0.turns.tidy();
        self.0.control.verdict(worked, "kernel")
    }
}

impl fmt::Debug for Gpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gpu")
            .field("device", &self.0.context.ordinal())
            .field("rank", &self.0.communicator.rank())
            .finish_non_exhaustive()
    }
}

/// Kernels that take turns among themselves, beside others. Cheap to clone.
#[derive(Clone)]
pub struct Lane {
    // Dropped before the control block that ends its kernels.
    turns: Turns,
    gpu: Gpu,
}

impl Lane {
    /// As [`Gpu::launch`].
    ///
    /// # Errors
    /// As there.
    ///
    /// # Safety
    /// As there.
    pub unsafe fn launch(
        &self,
        kernel: &Kernel,
        shape: LaunchShape,
        arguments: impl KernelArguments,
        stream: &Stream,
    ) -> Result<()> {
        // SAFETY: the caller's.
        unsafe { self.turns.launch(kernel, shape, &arguments, stream) }
    }

    /// As [`Gpu::capture`].
    ///
    /// # Errors
    /// As there.
    pub fn capture(&self, stream: &Stream, work: impl FnOnce() -> Result<()>) -> Result<GpuGraph> {
        Ok(GpuGraph { graph: self.turns.capture(stream, work)?, gpu: self.gpu.clone() })
    }

    /// As [`Gpu::synchronize`].
    ///
    /// # Errors
    /// As there.
    pub fn synchronize(&self, stream: &Stream, deadline: Deadline) -> Result<()> {
        let worked = stream.synchronize(deadline);
        self.turns.tidy();
        self.gpu.control().verdict(worked, "kernel")
    }
}

impl fmt::Debug for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.turns.fmt(f)
    }
}

/// Captured work; keeps what it uses. Cheap to clone. Its launches take turns with those beside it.
#[derive(Clone)]
pub struct GpuGraph {
    graph: TurnsGraph,
    gpu: Gpu,
}

impl GpuGraph {
    /// Does the work once more, after what `stream` has been given.
    ///
    /// # Errors
    /// The communicator's failure, `gpu.driver`.
    pub fn launch(&self, stream: &Stream) -> Result<()> {
        self.graph.launch(stream)
    }
}

impl fmt::Debug for GpuGraph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GpuGraph").field("gpu", &self.gpu).finish_non_exhaustive()
    }
}
