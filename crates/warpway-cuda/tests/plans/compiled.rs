//! NVRTC compiles the kernels.

use std::time::Instant;

use warpway_cuda::Architecture;
use warpway_cuda::plan::{KernelForm, KernelSetting, Packet};
use warpway_plan::DataType;

use super::cases;
use super::nvrtc::nvrtc;

/// Those of packets also with lines.
#[test]
fn packets_compile_as_lines() {
    let Some(compiler) = nvrtc() else { return };
    for case in cases(2, 4).into_iter().filter(|case| case.algorithm.traits.packets) {
        let kernel = case.kernel(0, KernelSetting::new(DataType::Bfloat16, Packet::Line).with_threads(512));
        let program = kernel.program(KernelForm::Fitted).unwrap();
        let image = compiler.compile(&program, Architecture { major: 9, minor: 0 }).unwrap();
        let needs = image.kernel(kernel.kernel_name()).unwrap().resources.unwrap();
        println!("{:?}: {needs:?}", case.algorithm);
        assert!(needs.spill_store_bytes <= 64, "{:?}: {needs:?}", case.algorithm);
    }
}

/// Without spills to speak of.
#[test]
fn every_algorithm_of_two_ranks_compiles() {
    let Some(compiler) = nvrtc() else { return };
    let architecture = Architecture { major: 9, minor: 0 };
    // In place another buffer has the same address: the text differs in nothing but numbers.
    for case in cases(2, 4).into_iter().filter(|case| !case.task.in_place) {
        let setting = KernelSetting::new(DataType::Bfloat16, Packet::LL16).with_threads(512);
        let kernel = case.kernel(1, setting);
        for form in [KernelForm::Fitted, KernelForm::Listed] {
            let program = kernel.program(form).unwrap();
            let started = Instant::now();
            let image = compiler
                .compile(&program, architecture)
                .unwrap_or_else(|e| panic!("{:?} {form:?}: {e}\n{}", case.algorithm, program.source()));
            let needs = image.kernel(kernel.kernel_name()).unwrap().resources.unwrap();
            println!(
                "{:?} in place {} {form:?}: {needs:?}, {:?}",
                case.algorithm,
                case.task.in_place,
                started.elapsed()
            );
            // What is called when a wait fails costs a few bytes around the call; what reads lists is not for speed.
            assert!(
                needs.spill_store_bytes <= 64 || form == KernelForm::Listed,
                "{:?} {form:?}: {needs:?}",
                case.algorithm
            );
        }
    }
}
