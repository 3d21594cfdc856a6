//! What the switch cannot do does not compile: another operator, type or accumulator never takes its place.

use crate::host_compiler;

const FOLD: &str = "the switch does not fold this type so";
const ADD: &str = "the switch does not add this type";
const ONE: &str = "integers one by one";
const SIZE: &str = "vectors of 4, 8 or 16 bytes";

/// Calls and what the compiler must say to them; nothing to those that are right.
const CALLS: [(&str, &str); 34] = [
    ("multimemLoadReduce<f32x4>(address<f32x4>())", ""),
    ("multimemLoadReduce<f16x8, F16>(address<f16x8>())", ""),
    ("multimemLoadReduce<bf16x2, void, ReduceOp::Max>(address<bf16x2>())", ""),
    ("multimemLoadReduce<e4m3x16, E4M3>(address<e4m3x16>())", ""),
    ("multimemLoadReduce<f32x1, void, ReduceOp::Min>(address<f32x1>())", FOLD),
    ("multimemLoadReduce<f32x4, void, ReduceOp::Max>(address<f32x4>())", FOLD),
    ("multimemLoadReduce<f32x4, void, ReduceOp::Prod>(address<f32x4>())", FOLD),
    ("multimemLoadReduce<f32x4, void, ReduceOp::Avg>(address<f32x4>())", FOLD),
    ("multimemLoadReduce<i32x1, void, ReduceOp::Prod>(address<i32x1>())", FOLD),
    ("multimemLoadReduce<f16x8, void, ReduceOp::Prod>(address<f16x8>())", FOLD),
    ("multimemLoadReduce<bf16x8, void, ReduceOp::Avg>(address<bf16x8>())", FOLD),
    ("multimemLoadReduce<f16x8, BF16>(address<f16x8>())", FOLD),
    ("multimemLoadReduce<bf16x8, F16>(address<bf16x8>())", FOLD),
    ("multimemLoadReduce<f32x4, F16>(address<f32x4>())", FOLD),
    ("multimemLoadReduce<f16x8, F16, ReduceOp::Min>(address<f16x8>())", FOLD),
    ("multimemLoadReduce<e4m3x16, E5M2>(address<e4m3x16>())", FOLD),
    ("multimemLoadReduce<e4m3b15x4>(address<e4m3b15x4>())", FOLD),
    ("multimemLoadReduce<u8x4>(address<u8x4>())", FOLD),
    ("multimemLoadReduce<f64x1>(address<f64x1>())", FOLD),
    ("multimemLoadReduce<i32x2>(address<i32x2>())", ONE),
    ("multimemLoadReduce<u32x4, void, ReduceOp::Max>(address<u32x4>())", ONE),
    ("multimemLoadReduce<f32x8>(address<f32x8>())", SIZE),
    ("multimemLoadReduce<f16x16>(address<f16x16>())", SIZE),
    ("multimemLoadReduce<e5m2x2>(address<e5m2x2>())", SIZE),
    ("multimemStoreReduce(bf16x8{}, address<bf16x8>())", ""),
    ("multimemStoreReduce(u32x1{}, address<u32x1>())", ""),
    ("multimemStoreReduce(e4m3x4{}, address<e4m3x4>())", ADD),
    ("multimemStoreReduce(f64x1{}, address<f64x1>())", ADD),
    ("multimemStoreReduce(u8x4{}, address<u8x4>())", ADD),
    ("multimemStoreReduce(u32x2{}, address<u32x2>())", ONE),
    ("multimemStore(f64x1{}, address<f64x1>())", ""),
    ("multimemStore(e4m3x16{}, address<e4m3x16>())", ""),
    ("multimemStore(f32x8{}, address<f32x8>())", SIZE),
    ("multimemStore(e4m3x2{}, address<e4m3x2>())", SIZE),
];

#[test]
fn what_the_switch_lacks_does_not_compile() {
    for (call, expected) in CALLS {
        let source = format!(
            "#include \"warpway/switch_channel.cuh\"\n\
             using namespace warpway;\n\
             template <class V> V* address() {{ return nullptr; }}\n\
             void caller() {{ SwitchChannel::{call}; }}\n"
        );
        let Some(said) = host_compiler::complaints(&source) else { return };
        match expected {
            "" => assert_eq!(said, "", "{call}"),
            _ => assert!(said.contains(expected), "{call}: {said}"),
        }
    }
}
