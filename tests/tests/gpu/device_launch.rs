//! What a launch checks before the device hears of it.

use warpway_core::gpu::{ArgumentMismatch, GpuError, ParameterExtent};
use warpway_cuda::LaunchShape;
use warpway_cuda::jit::Program;

use crate::rig::Gpu;

/// The second parameter begins at 16, the third at 48.
const SOURCE: &str = r#"
struct alignas(8) Pair { int a, b; };
struct alignas(16) Six { int words[6]; int more[2]; };
extern "C" __global__ void takes(char first, Six six, Pair pair, unsigned long long* out) {
  *out = first + six.words[5] * 10 + six.more[1] * 100 + pair.b * 1000;
}
extern "C" __global__ void takes_nothing() {}
"#;

#[derive(Clone, Copy)]
#[repr(C, align(16))]
struct Six([i32; 8]);

/// The driver's own list of parameters (CUDA 12.4 and later).
#[test]
#[ignore = "needs a GPU: cargo xtask gpu-bundle"]
fn arguments_are_compared_with_the_kernels_parameters() {
    let gpu = Gpu::open();
    let program = Program::new("takes.cu", SOURCE);
    let (takes, nothing) = (gpu.kernel_of(&program, "takes"), gpu.kernel_of(&program, "takes_nothing"));
    let (out, one) = (gpu.zeros::<u64>(1), LaunchShape::new(1, 1));
    let six = Six([0, 0, 0, 0, 0, 2, 0, 3]);
    // SAFETY: the kernel's parameters, one of them with another alignment, which the driver does not mind.
    unsafe {
        takes.launch(&gpu.stream, one, &(1u8, six, [0i32, 4], out.address())).unwrap();
        nothing.launch(&gpu.stream, one, &()).unwrap();
    }
    gpu.finish();
    assert_eq!(out.read(), [4321]);

    let mismatch = |error| match error {
        Err(GpuError::Arguments { kernel, mismatch }) if kernel == "takes" => mismatch,
        other => panic!("{other:?}"),
    };
    // SAFETY: refused.
    unsafe {
        assert_eq!(
            mismatch(takes.launch(&gpu.stream, one, &(1u8, six, 4i32, out.address()))),
            ArgumentMismatch::Size {
                position: 3,
                argument: "i32",
                expected: ParameterExtent { offset: 48, bytes: 8 },
                given: ParameterExtent { offset: 48, bytes: 4 },
            }
        );
        assert_eq!(
            mismatch(takes.launch(&gpu.stream, one, &(1u8, six))),
            ArgumentMismatch::Count { expected: 4, given: 2 }
        );
        let error = nothing.launch(&gpu.stream, one, &(1u8,)).unwrap_err();
        assert_eq!(error.to_string(), "launching takes_nothing: arguments: 1 given, the kernel takes 0");
    }
    gpu.finish();
    assert_eq!(out.read(), [4321]);
}
