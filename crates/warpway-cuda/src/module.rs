//! Compiled kernels, and how they are launched.

use std::ffi::{CString, c_int, c_uint, c_void};
use std::fmt;
use std::sync::{Arc, Mutex};

use warpway_core::gpu::GpuError;
use warpway_cuda_sys::driver_types::{
    CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
    CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, CU_FUNC_ATTRIBUTE_NUM_REGS, CUdeviceptr, CUfunction,
    CUfunction_attribute_enum, CUmodule,
};

use crate::arguments::Arguments;
use crate::capture::RelaxedCapture;
use crate::code;
use crate::context::{Context, lock};
use crate::in_flight::Lasting;
use crate::residency::{Claim, Residency};
use crate::signature::Signature;
use crate::stream::Stream;

/// A loaded image. Cheap to clone; the last clone unloads it, after the launches by [`Gpu`](crate::Gpu)s of the process that
/// are under way.
#[derive(Clone)]
pub struct Module(Arc<Lasting<Loaded>>);

struct Loaded {
    context: Context,
    raw: CUmodule,
}

// SAFETY: module handles may be used by any thread.
unsafe impl Send for Loaded {}
// SAFETY: as above; the driver synchronises its calls.
unsafe impl Sync for Loaded {}

impl Module {
    /// Loads a cubin, a fat binary or PTX, of NVRTC or as nvcc writes them to files.
    ///
    /// # Errors
    /// `gpu.image` for one that is not whole; `gpu.driver` for one of another architecture, or damaged in other ways.
    pub fn load(context: &Context, image: &[u8]) -> Result<Self, GpuError> {
        Self::load_as(context, "an image", image)
    }

    /// As [`load`](Self::load), with the name that errors give it.
    pub(crate) fn load_as(context: &Context, name: &str, image: &[u8]) -> Result<Self, GpuError> {
        let what = format!("loading {name} of {} bytes (device {})", image.len(), context.ordinal());
        let image = match code::whole(image) {
            Ok(image) => image,
            Err(why) => return Err(GpuError::Image { what, why }),
        };
        let _relaxed = RelaxedCapture::begin(context)?;
        let _entered = context.enter()?;
        let mut raw: CUmodule = std::ptr::null_mut();
        let load = context.driver().table().cuModuleLoadDataEx;
        let (image_at, none) = (image.as_ptr().cast::<c_void>(), std::ptr::null_mut());
        // SAFETY: writes one handle; `whole` has seen that the image ends where its headers say, or has a zero.
        let result = unsafe { load(&raw mut raw, image_at, 0, none, std::ptr::null_mut()) };
        context.driver().check(what, "cuModuleLoadDataEx", result)?;
        Ok(Self(Arc::new(Lasting::new(context, Loaded { context: context.clone(), raw }))))
    }

    /// A kernel, by the name in the image.
    ///
    /// # Errors
    /// `gpu.driver` if there is none of that name.
    pub fn kernel(&self, name: &str) -> Result<Kernel, GpuError> {
        let Loaded { context, raw } = &**self.0;
        let _entered = context.enter()?;
        let text = CString::new(name).unwrap_or_default();
        let mut function: CUfunction = std::ptr::null_mut();
        // SAFETY: writes one handle; the name ends with a zero.
        let result =
            unsafe { (context.driver().table().cuModuleGetFunction)(&raw mut function, *raw, text.as_ptr()) };
        let what = format_args!("looking for kernel {name}");
        context.check(what, "cuModuleGetFunction", result)?;
        let signature = Arc::new(Signature::ask(context, name, function)?);
        let resident = Arc::default();
        Ok(Kernel { module: self.clone(), raw: function, name: name.into(), signature, resident })
    }

    /// Address and bytes of a global variable.
    ///
    /// # Errors
    /// `gpu.driver` if there is none of that name.
    pub fn global(&self, name: &str) -> Result<(u64, u64), GpuError> {
        let Loaded { context, raw } = &**self.0;
        let _entered = context.enter()?;
        let text = CString::new(name).unwrap_or_default();
        let (mut address, mut bytes): (CUdeviceptr, usize) = (0, 0);
        let get = context.driver().table().cuModuleGetGlobal;
        // SAFETY: writes two numbers; the name ends with a zero.
        let result = unsafe { get(&raw mut address, &raw mut bytes, *raw, text.as_ptr()) };
        let what = format_args!("looking for variable {name}");
        context.check(what, "cuModuleGetGlobal", result)?;
        Ok((address, bytes as u64))
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        let _entered = self.context.enter_to_clean_up();
        // SAFETY: loaded by `Module::load`; kernels keep the module.
        let result = unsafe { (self.context.driver().table().cuModuleUnload)(self.raw) };
        self.context.note("unloading an image", "cuModuleUnload", result);
    }
}

impl fmt::Debug for Module {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Module").field("device", &self.0.context.ordinal()).finish_non_exhaustive()
    }
}

/// How many blocks of how many threads, in one dimension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaunchShape {
    /// Blocks.
    pub blocks: u32,
    /// Threads of each.
    pub threads: u32,
    /// Bytes of dynamic shared memory of each.
    pub shared_bytes: u32,
}

impl LaunchShape {
    /// Without dynamic shared memory.
    pub fn new(blocks: u32, threads: u32) -> Self {
        Self { blocks, threads, shared_bytes: 0 }
    }
}

impl fmt::Display for LaunchShape {
    /// As errors say it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { blocks, threads, shared_bytes } = self;
        write!(f, "{blocks} blocks of {threads} threads")?;
        match shared_bytes {
            0 => Ok(()),
            bytes => write!(f, " with {bytes} bytes of shared memory"),
        }
    }
}

/// One kernel; keeps its module.
#[derive(Clone)]
pub struct Kernel {
    module: Module,
    raw: CUfunction,
    name: Arc<str>,
    signature: Arc<Signature>,
    /// Blocks that the device holds, by threads and bytes of shared memory of each; asked for once.
    resident: Arc<Mutex<Vec<(u32, u32, u64)>>>,
}

// SAFETY: function handles may be used by any thread.
unsafe impl Send for Kernel {}
// SAFETY: as above; the driver synchronises its calls.
unsafe impl Sync for Kernel {}

impl Kernel {
    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Registers of a thread.
    ///
    /// # Errors
    /// `gpu.driver`.
    pub fn registers(&self) -> Result<u32, GpuError> {
        self.attribute(CU_FUNC_ATTRIBUTE_NUM_REGS).map(|value| value as u32)
    }

    /// Bytes of a thread that do not fit registers.
    ///
    /// # Errors
    /// `gpu.driver`.
    pub fn local_bytes(&self) -> Result<u32, GpuError> {
        self.attribute(CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES).map(|value| value as u32)
    }

    /// Threads of a block at most.
    ///
    /// # Errors
    /// `gpu.driver`.
    pub fn max_threads(&self) -> Result<u32, GpuError> {
        self.attribute(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK).map(|value| value as u32)
    }

    /// Permits launches with that much dynamic shared memory; beyond 48 KiB it must be asked for.
    ///
    /// # Errors
    /// `gpu.driver` if the device has less.
    pub fn allow_shared(&self, bytes: u32) -> Result<(), GpuError> {
        let context = self.context();
        let _entered = context.enter()?;
        let attribute = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        let set = context.driver().table().cuFuncSetAttribute;
        // SAFETY: the handle lives.
        let result = unsafe { set(self.raw, attribute, bytes.try_into().unwrap_or(c_int::MAX)) };
        let what = format_args!("asking for {bytes} bytes of shared memory for {}", self.name);
        context.check(what, "cuFuncSetAttribute", result)
    }

    /// Blocks of that shape that the device holds at the same time, if nothing else runs.
    ///
    /// # Errors
    /// `gpu.driver`.
    pub fn resident_blocks(&self, shape: LaunchShape) -> Result<u64, GpuError> {
        let context = self.context();
        let mut resident = lock(&self.resident);
        let key = |entry: &&(u32, u32, u64)| (entry.0, entry.1) == (shape.threads, shape.shared_bytes);
        if let Some((_, _, blocks)) = resident.iter().find(key) {
            return Ok(*blocks);
        }
        let _entered = context.enter()?;
        let mut each: c_int = 0;
        let occupancy = context.driver().table().cuOccupancyMaxActiveBlocksPerMultiprocessor;
        let threads = shape.threads.try_into().unwrap_or(c_int::MAX);
        // SAFETY: writes one number; the handle lives.
        let result = unsafe { occupancy(&raw mut each, self.raw, threads, shape.shared_bytes as usize) };
        let what = format_args!("asking how many blocks of {} fit", self.name);
        context.check(what, "cuOccupancyMaxActiveBlocksPerMultiprocessor", result)?;
        let blocks = u64::from(each.max(0) as u32) * u64::from(context.info().multiprocessors);
        resident.push((shape.threads, shape.shared_bytes, blocks));
        Ok(blocks)
    }

    /// Takes room on the device for blocks that wait for each other or for peers, as long as the value lives.
    ///
    /// # Errors
    /// `gpu.residency` if they do not fit, `gpu.driver`.
    pub fn reserve(&self, shape: LaunchShape) -> Result<Residency, GpuError> {
        self.context().ledger().claim(&self.claim(shape)?)
    }

    /// What a launch of that shape needs.
    pub(crate) fn claim(&self, shape: LaunchShape) -> Result<Claim<'_>, GpuError> {
        Ok(Claim {
            kernel: &self.name,
            blocks: shape.blocks.into(),
            threads: shape.threads.into(),
            limit: self.resident_blocks(shape)?,
        })
    }

    /// An error if arguments of these types cannot be the kernel's: `gpu.arguments`.
    pub(crate) fn check_arguments<A: Arguments>(&self) -> Result<(), GpuError> {
        self.signature.check::<A>(&self.name)
    }

    /// Launches the kernel. The driver copies the arguments before the call returns.
    ///
    /// Nobody keeps what they point to, nor knows of the launch: memory that is dropped meanwhile is unmapped under the kernel,
    /// and a [`DeviceMemory::plain`](crate::DeviceMemory::plain), pinned memory or the last clone of the kernel's module make
    /// the dropping thread wait for it. Keep all of it, channels of handles and the control block among it, until the stream
    /// has been [waited for](Stream::synchronize). [`Gpu::launch`](crate::Gpu::launch) does that by itself.
    ///
    /// # Errors
    /// `gpu.arguments` for other arguments than the kernel takes, by number or size, if the driver can tell (CUDA 12.4);
    /// `gpu.driver`, for a shape that the device does not take; failures of the kernel itself come with later calls.
    ///
    /// # Safety
    /// The arguments must be those of the kernel, in order and each of its parameter's layout, and every address in them
    /// be valid for what the kernel does with it until the launch has ended. Of a launch that is captured: until the graph is
    /// gone and its last launch has ended.
    pub unsafe fn launch<A: Arguments>(
        &self,
        stream: &Stream,
        shape: LaunchShape,
        arguments: &A,
    ) -> Result<(), GpuError> {
        self.check_arguments::<A>()?;
        // SAFETY: the caller answers for the arguments, of which there are as many as parameters.
        unsafe { self.submit(stream, shape, &mut arguments.addresses()) }
    }

    /// The same for a kernel whose one parameter is a structure of words.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Safety
    /// As there.
    pub(crate) unsafe fn launch_words(
        &self,
        stream: &Stream,
        shape: LaunchShape,
        words: &[u64],
    ) -> Result<(), GpuError> {
        self.signature.check_words(&self.name, words.len())?;
        // SAFETY: the caller answers for the words, which are as many as the parameter has.
        unsafe { self.submit(stream, shape, &mut [words.as_ptr().cast_mut().cast()]) }
    }

    /// An error if a structure of so many words cannot be the kernel's one parameter: `gpu.arguments`.
    pub(crate) fn check_words(&self, words: usize) -> Result<(), GpuError> {
        self.signature.check_words(&self.name, words)
    }

    /// # Safety
    /// As [`launch`](Self::launch); `parameters` has the address of each of the kernel's.
    unsafe fn submit(
        &self,
        stream: &Stream,
        shape: LaunchShape,
        parameters: &mut [*mut c_void],
    ) -> Result<(), GpuError> {
        let context = self.context();
        let _entered = context.enter()?;
        let LaunchShape { blocks, threads, shared_bytes } = shape;
        let (one, none): (c_uint, *mut *mut c_void) = (1, std::ptr::null_mut());
        // SAFETY: the caller answers for the parameters.
        let result = unsafe {
            (context.driver().table().cuLaunchKernel)(
                self.raw,
                blocks,
                one,
                one,
                threads,
                one,
                one,
                shared_bytes,
                stream.raw(),
                parameters.as_mut_ptr(),
                none,
            )
        };
        let what = format_args!("launching {} with {shape}", self.name);
        context.check(what, "cuLaunchKernel", result)
    }

    pub(crate) fn context(&self) -> &Context {
        &self.module.0.context
    }

    fn attribute(&self, attribute: CUfunction_attribute_enum) -> Result<i32, GpuError> {
        let context = self.context();
        let _entered = context.enter()?;
        let mut value: c_int = 0;
        // SAFETY: writes one number; the handle lives.
        let result =
            unsafe { (context.driver().table().cuFuncGetAttribute)(&raw mut value, attribute, self.raw) };
        let what = format_args!("asking kernel {}", self.name);
        context.check(what, "cuFuncGetAttribute", result)?;
        Ok(value)
    }
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kernel").field("name", &self.name).finish_non_exhaustive()
    }
}
