// Switch channels, sm_90 and multicast hardware. Compiled everywhere such GPUs are targets; run only where there is a switch.
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

}  // namespace

/// Grid: 1 block per rank, all ranks at once.
#define SUM(name, ...) \
  extern "C" __global__ void switch_##name(const SwitchCall p) { reduce_and_broadcast<__VA_ARGS__>(p); }
SUM(i32x1, i32x1)
SUM(u32x1_min, u32x1, void, ReduceOp::Min)
SUM(f32x1, f32x1)
SUM(f32x2, f32x2)
SUM(f32x4, f32x4)
SUM(f16x2, f16x2)
SUM(f16x4, f16x4)
SUM(f16x8, f16x8)
SUM(f16x8_in_type, f16x8, F16)
SUM(f16x8_max, f16x8, void, ReduceOp::Max)
SUM(bf16x2, bf16x2)
SUM(bf16x8, bf16x8)
SUM(bf16x4_min, bf16x4, void, ReduceOp::Min)

/// Adds its own vector to all members'.
extern "C" __global__ void switch_store_reduce(const SwitchCall p) {
  auto* to = static_cast<f32x4*>(p.channel.mcPtr);
  for (u64 i = threadIdx.x; i < p.count; i += blockDim.x) {
    SwitchChannel::multimemStoreReduce(reinterpret_cast<const f32x4*>(p.out)[i], to + i);
  }
}
extern "C" __global__ void switch_store_f64(const SwitchCall p) {
  for (u64 i = threadIdx.x; i < p.count; i += blockDim.x) p.channel.broadcast(i, reinterpret_cast<const f64x1*>(p.out)[i]);
}
