//! The programs that Warpway brings along.

use super::headers::DEVICE_HEADERS;
use super::program::Program;

/// One thread: the sum is visible to the whole system after everything that the stream did before.
const ADD_WORD: &str = "\
extern \"C\" __global__ void warpway_add_word(unsigned long long address, unsigned long long delta) {
    asm volatile(\"fence.acq_rel.sys;\\n\\tred.relaxed.sys.global.add.u64 [%0], %1;\" :: \"l\"(address), \"l\"(delta) : \"memory\");
}
";

/// What `warpway jit warm` compiles: every program whose text does not depend on a plan.
pub fn built_in_programs() -> Vec<Program> {
    vec![all_headers(), add_word()]
}

/// Adds to a word of 64 bits: `warpway_add_word(address, delta)`.
pub(crate) fn add_word() -> Program {
    Program::new("warpway_add_word.cu", ADD_WORD).kernel("warpway_add_word")
}

/// All headers together, so that one that does not compile is found before a kernel needs it. But those for programs
/// written against other names: they want to come first.
fn all_headers() -> Program {
    let headers = DEVICE_HEADERS.iter().filter(|(name, _)| !name.ends_with("_compat.cuh"));
    let mut source: String = headers.map(|(name, _)| format!("#include <{name}>\n")).collect();
    source.push_str("extern \"C\" __global__ void warpway_headers() {}\n");
    Program::new("warpway_headers.cu", source).device_headers().kernel("warpway_headers")
}
