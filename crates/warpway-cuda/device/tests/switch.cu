// Switch channels, sm_90 and multicast hardware. Compiled everywhere such GPUs are targets; run where there is a switch, and by
// threads of the host on emulated groups (`host/switch_folds.cpp`, which takes the lists and templates from here).
#include "warpway/switch_channel.cuh"

using namespace warpway;

struct SwitchCall {
  SwitchChannel channel;
  u8* out;      // per kernel: the vectors read
  u64 count;    // vectors
};

namespace {

/// This rank's part of `count` vectors: reduced, written down, and stored to all.
template <class V, class AccumT = void, ReduceOp Op = ReduceOp::Sum>
__device__ void reduce_and_broadcast(const SwitchCall& p) {
  if (threadIdx.x == 0) p.channel.signal();
  Status status = Status::Ok;
  if (threadIdx.x == 0) status = p.channel.wait();
  if (agree(status) != Status::Ok) return;
  for (u64 i = threadIdx.x; i < p.count; i += blockDim.x) {
    const V v = p.channel.reduce<V, AccumT, Op>(i);
    reinterpret_cast<V*>(p.out)[i] = v;
    p.channel.broadcast(i, v);
  }
}

/// Adds its own vectors to all members'.
template <class V>
__device__ void add_to_all(const SwitchCall& p) {
  auto* to = static_cast<V*>(p.channel.mcPtr);
  for (u64 i = threadIdx.x; i < p.count; i += blockDim.x) {
    SwitchChannel::multimemStoreReduce(reinterpret_cast<const V*>(p.out)[i], to + i);
  }
}

/// Stores its own vectors to all members.
template <class V>
__device__ void store_to_all(const SwitchCall& p) {
  for (u64 i = threadIdx.x; i < p.count; i += blockDim.x) p.channel.broadcast(i, reinterpret_cast<const V*>(p.out)[i]);
}

}  // namespace

/// All that the switch of sm_90 folds: a name, then vector, accumulator and operator. `more` is passed on.
#define SWITCH_FOLDS_OF_INTEGERS(FOLD, more, type)                \
  FOLD(more, type##x1, type##x1)                                  \
  FOLD(more, type##x1_min, type##x1, void, ReduceOp::Min)         \
  FOLD(more, type##x1_max, type##x1, void, ReduceOp::Max)
#define SWITCH_FOLDS_OF_HALVES(FOLD, more, type, Format, n)       \
  FOLD(more, type##x##n, type##x##n)                              \
  FOLD(more, type##x##n##_in_type, type##x##n, Format)            \
  FOLD(more, type##x##n##_min, type##x##n, void, ReduceOp::Min)   \
  FOLD(more, type##x##n##_max, type##x##n, void, ReduceOp::Max)
#define SWITCH_FOLDS(FOLD, more)                                  \
  SWITCH_FOLDS_OF_INTEGERS(FOLD, more, i32)                       \
  SWITCH_FOLDS_OF_INTEGERS(FOLD, more, u32)                       \
  FOLD(more, f32x1, f32x1)                                        \
  FOLD(more, f32x2, f32x2)                                        \
  FOLD(more, f32x4, f32x4)                                        \
  SWITCH_FOLDS_OF_HALVES(FOLD, more, f16, F16, 2)                 \
  SWITCH_FOLDS_OF_HALVES(FOLD, more, f16, F16, 4)                 \
  SWITCH_FOLDS_OF_HALVES(FOLD, more, f16, F16, 8)                 \
  SWITCH_FOLDS_OF_HALVES(FOLD, more, bf16, BF16, 2)               \
  SWITCH_FOLDS_OF_HALVES(FOLD, more, bf16, BF16, 4)               \
  SWITCH_FOLDS_OF_HALVES(FOLD, more, bf16, BF16, 8)
/// What it adds to memory, and what else it stores.
#define SWITCH_ADDS(ADD, more)                                                        \
  ADD(more, i32x1) ADD(more, u32x1) ADD(more, f32x1) ADD(more, f32x2) ADD(more, f32x4) \
  ADD(more, f16x2) ADD(more, f16x4) ADD(more, f16x8)                                  \
  ADD(more, bf16x2) ADD(more, bf16x4) ADD(more, bf16x8)
#define SWITCH_STORES(STORE, more)                                                       \
  STORE(more, f64x1) STORE(more, i32x2) STORE(more, i32x4) STORE(more, u32x2)            \
  STORE(more, u32x4) STORE(more, u8x4) STORE(more, e4m3x4) STORE(more, e4m3x8)           \
  STORE(more, e4m3x16) STORE(more, e5m2x4) STORE(more, e5m2x8) STORE(more, e5m2x16)

/// Grid: 1 block per rank, all ranks at once.
#define FOLD(more, name, ...) \
  extern "C" __global__ void switch_##name(const SwitchCall p) { reduce_and_broadcast<__VA_ARGS__>(p); }
SWITCH_FOLDS(FOLD, )
#undef FOLD

#define ADD(more, V) \
  extern "C" __global__ void switch_add_##V(const SwitchCall p) { add_to_all<V>(p); }
SWITCH_ADDS(ADD, )
#undef ADD

#define STORE(more, V) \
  extern "C" __global__ void switch_store_##V(const SwitchCall p) { store_to_all<V>(p); }
SWITCH_STORES(STORE, )
#undef STORE
