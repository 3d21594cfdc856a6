//! A device as tests use it.

use std::time::Duration;

use warpway_core::Deadline;
use warpway_core::config::{Config, Environment};
use warpway_cuda::jit::{Compiler, Program};
use warpway_cuda::{Context, Driver, Graph, Kernel, LaunchShape, Module, Stream};

use super::Source;
use super::buffer::{Buffer, Pinned};

/// Longer than any wait of a kernel, which the device ends by itself.
pub(super) const PATIENCE: Duration = Duration::from_secs(40);

/// A device with a stream of its own.
pub(crate) struct Gpu {
    pub(crate) context: Context,
    pub(crate) stream: Stream,
    compiler: Compiler,
}

impl Gpu {
    /// The first device.
    pub(crate) fn open() -> Self {
        let [gpu] = Self::all();
        gpu
    }

    /// The first two, which reach each other.
    pub(crate) fn pair() -> [Self; 2] {
        let pair: [Self; 2] = Self::all();
        pair[0].context.enable_peer(&pair[1].context).unwrap();
        pair[1].context.enable_peer(&pair[0].context).unwrap();
        pair
    }

    /// The first `N`.
    fn all<const N: usize>() -> [Self; N] {
        let environment = Environment::of_process().unwrap();
        let config = Config::read(&environment).unwrap().config;
        let driver = Driver::open(&config.cuda_driver).unwrap();
        let compiler = Compiler::new(&config, &environment);
        std::array::from_fn(|ordinal| {
            let context = Context::primary(&driver, ordinal as i32).unwrap();
            let stream = Stream::new(&context).unwrap();
            Self { context, stream, compiler: compiler.clone() }
        })
    }

    /// A kernel of a file.
    pub(crate) fn kernel(&self, source: Source, name: &str) -> Kernel {
        self.kernel_of(&source.program(), name)
    }

    /// A kernel of a program, compiled for this device.
    pub(crate) fn kernel_of(&self, program: &Program, name: &str) -> Kernel {
        let architecture = self.context.info().architecture;
        let image = self.compiler.compile(program, architecture).unwrap_or_else(|error| panic!("{error}"));
        Module::load(&self.context, image.code()).unwrap().kernel(name).unwrap()
    }

    /// Launches a kernel whose one parameter is a structure.
    ///
    /// Structures here repeat those of the kernel files field by field; what they name lives until `finish`.
    pub(crate) fn launch<P: Copy>(&self, kernel: &Kernel, shape: LaunchShape, parameters: P) {
        // SAFETY: as said above. Kernels reach memory of devices and `Pinned` memory only, to which nobody has references.
        unsafe { kernel.launch(&self.stream, shape, &(parameters,)) }.unwrap();
    }

    /// Launches a kernel and waits for its end.
    pub(crate) fn run<P: Copy>(&self, kernel: &Kernel, shape: LaunchShape, parameters: P) {
        self.launch(kernel, shape, parameters);
        self.finish();
    }

    /// Waits for all that was launched.
    pub(crate) fn finish(&self) {
        self.stream.synchronize(Deadline::after(PATIENCE)).unwrap_or_else(|error| panic!("{error}"));
    }

    /// Records launches.
    pub(crate) fn capture(&self, launches: impl FnOnce()) -> Graph {
        self.stream
            .capture(|| {
                launches();
                Ok(())
            })
            .unwrap()
    }

    /// Device memory with these values.
    pub(crate) fn upload<T: Copy>(&self, values: &[T]) -> Buffer<T> {
        Buffer::new(self, values, &[])
    }

    /// The same where another device may read and write too.
    pub(crate) fn share<T: Copy>(&self, values: &[T], with: &Self) -> Buffer<T> {
        Buffer::new(self, values, &[&with.context])
    }

    /// Device memory with so many zeros.
    pub(crate) fn zeros<T: Copy + Default>(&self, count: usize) -> Buffer<T> {
        self.upload(&vec![T::default(); count])
    }

    /// Host memory that kernels reach, with so many zeros.
    pub(crate) fn pinned<T: Copy>(&self, count: usize) -> Pinned<T> {
        Pinned::new(self, count)
    }
}

/// Rounds of a loop: as many as given, but a hundredth of them where a tool slows kernels down.
pub(crate) fn rounds(count: u64) -> u64 {
    if under_a_tool() { (count / 100).max(2) } else { count }
}

/// True under compute-sanitizer.
pub(super) fn under_a_tool() -> bool {
    std::env::var_os("GPU_TESTS_UNDER").is_some()
}
