// Conversions and folds of one data type, to be compared bit by bit with the host engine. Compile it a second
// time with WARPWAY_INTEGER_CONVERSIONS defined: the bits are the same.
#include "warpway/fold.cuh"

using namespace warpway;

struct Codes {
  void* out;       // decode: 4 bytes (8 of F64) per element; encode: elements
  const void* in;  // decode: elements; encode: 4 (8) bytes per element
  u64 count;
};

struct FoldCall {
  void* dst;
  const FoldSource* sources;  // device memory
  u64 count;
  u32 n_sources;
  u32 op;                     // ReduceOp
  u32 ranks;
  u32 last;
};

namespace {

template <class Format>
__device__ void decode_all(const Codes& p) {
  const u64 step = u64{gridDim.x} * blockDim.x;
  for (u64 i = u64{blockIdx.x} * blockDim.x + threadIdx.x; i < p.count; i += step) {
    static_cast<typename Format::Value*>(p.out)[i] = Format::decode(static_cast<const typename Format::Bits*>(p.in)[i]);
  }
}

template <class Format>
__device__ void encode_all(const Codes& p) {
  const u64 step = u64{gridDim.x} * blockDim.x;
  for (u64 i = u64{blockIdx.x} * blockDim.x + threadIdx.x; i < p.count; i += step) {
    static_cast<typename Format::Bits*>(p.out)[i] = Format::encode(static_cast<const typename Format::Value*>(p.in)[i]);
  }
}

template <class Format>
__device__ void fold_all(const FoldCall& p) {
  const FoldSetting setting{p.ranks, p.last != 0};
  const u32 thread = blockIdx.x * blockDim.x + threadIdx.x, threads = gridDim.x * blockDim.x;
  switch (static_cast<ReduceOp>(p.op)) {
    case ReduceOp::Sum: return fold<Format, ReduceOp::Sum>(p.dst, p.sources, p.n_sources, p.count, setting, thread, threads);
    case ReduceOp::Prod: return fold<Format, ReduceOp::Prod>(p.dst, p.sources, p.n_sources, p.count, setting, thread, threads);
    case ReduceOp::Max: return fold<Format, ReduceOp::Max>(p.dst, p.sources, p.n_sources, p.count, setting, thread, threads);
    case ReduceOp::Min: return fold<Format, ReduceOp::Min>(p.dst, p.sources, p.n_sources, p.count, setting, thread, threads);
    case ReduceOp::Avg: return fold<Format, ReduceOp::Avg>(p.dst, p.sources, p.n_sources, p.count, setting, thread, threads);
  }
}

}  // namespace

/// Any grid. `decode`, `encode` and `fold` of one format: compile with -DFORMAT=F16, ... (names of `formats.cuh`).
#if !defined(FORMAT)
#define FORMAT BF16
#endif
extern "C" __global__ void decode(const Codes p) { decode_all<FORMAT>(p); }
extern "C" __global__ void encode(const Codes p) { encode_all<FORMAT>(p); }
extern "C" __global__ void fold_elements(const FoldCall p) { fold_all<FORMAT>(p); }
