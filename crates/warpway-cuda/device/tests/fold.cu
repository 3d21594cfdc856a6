// Conversions and folds of every data type and operator, to be compared bit by bit with the host engine. Compile it a second
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

/// Any grid.
#define KERNELS(name, Format)                                                            \
  extern "C" __global__ void decode_##name(const Codes p) { decode_all<Format>(p); }     \
  extern "C" __global__ void encode_##name(const Codes p) { encode_all<Format>(p); }     \
  extern "C" __global__ void fold_##name(const FoldCall p) { fold_all<Format>(p); }
KERNELS(int32, I32)
KERNELS(uint32, U32)
KERNELS(float16, F16)
KERNELS(float32, F32)
KERNELS(bfloat16, BF16)
KERNELS(float8_e4m3fn, E4M3)
KERNELS(float8_e4m3fnuz, E4M3FNUZ)
KERNELS(float8_e5m2, E5M2)
KERNELS(float8_e5m2fnuz, E5M2FNUZ)
KERNELS(uint8, U8)
KERNELS(float8_e4m3b15, E4M3B15)
KERNELS(int8, I8)
KERNELS(int64, I64)
KERNELS(uint64, U64)
KERNELS(float64, F64)
