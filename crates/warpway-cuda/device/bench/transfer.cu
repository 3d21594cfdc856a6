// Buffers moved by threads: the memory channel, and the plain copies that it is measured against.
#include "warpway/memory_channel.cuh"

using namespace warpway;

/// All grids here have blocks of at most 512 threads, two of which fit a multiprocessor.
#define WARPWAY_BENCH_GRID __launch_bounds__(512, 2)

struct ChannelTransfer {
  MemoryChannel channel;
  u64 bytes;
};
static_assert(sizeof(ChannelTransfer) == 112, "src/bench/parameters.rs");

/// Any grid: all its threads copy together. Nothing is signalled: the end of the launch orders.
template <Guard G>
__global__ void WARPWAY_BENCH_GRID channel_put(const ChannelTransfer p) {
  p.channel.put<16, true, G>(0, p.bytes, blockIdx.x * blockDim.x + threadIdx.x, gridDim.x * blockDim.x);
}
extern "C" __global__ void WARPWAY_BENCH_GRID channel_get(const ChannelTransfer p) {
  p.channel.get(0, p.bytes, blockIdx.x * blockDim.x + threadIdx.x, gridDim.x * blockDim.x);
}

struct PlainTransfer {
  Vec16* to;
  const Vec16* from;
  u64 vectors;
};
static_assert(sizeof(PlainTransfer) == 24, "src/bench/parameters.rs");

namespace {

/// Loads past the first-level cache: each vector is used once.
WARPWAY_DEVICE Vec16 load_once(const Vec16* address) {
  Vec16 v;
  asm("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
      : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(__cvta_generic_to_global(address)));
  return v;
}

/// `Depth` vectors under way per thread, and nothing else: no check, no tail of bytes.
template <u32 Depth>
WARPWAY_DEVICE void move_vectors(Vec16* to, const Vec16* from, u64 i, u64 end, u64 step) {
  for (; i + (Depth - 1) * step < end; i += Depth * step) {
    Vec16 v[Depth];
    WARPWAY_UNROLL
    for (u32 k = 0; k < Depth; ++k) v[k] = load_once(from + i + k * step);
    WARPWAY_UNROLL
    for (u32 k = 0; k < Depth; ++k) to[i + k * step] = v[k];
  }
  for (; i < end; i += step) to[i] = load_once(from + i);
}

}  // namespace

/// The floor: all threads of the grid side by side. Any grid.
template <u32 Depth>
__global__ void WARPWAY_BENCH_GRID plain_interleaved(const PlainTransfer p) {
  move_vectors<Depth>(p.to, p.from, u64{blockIdx.x} * blockDim.x + threadIdx.x, p.vectors, u64{gridDim.x} * blockDim.x);
}

/// Another floor: each block has a part of its own. Any grid.
template <u32 Depth>
__global__ void WARPWAY_BENCH_GRID plain_parts(const PlainTransfer p) {
  // Parts begin at multiples of 128 bytes.
  const u64 part = ((p.vectors + gridDim.x - 1) / gridDim.x + 7) / 8 * 8;
  const u64 begin = part * blockIdx.x;
  if (begin >= p.vectors) return;
  const u64 end = begin + part < p.vectors ? begin + part : p.vectors;
  move_vectors<Depth>(p.to, p.from, begin + threadIdx.x, end, blockDim.x);
}

struct Pattern {
  u64* words;
  u64 count;
  u64 seed;
  u64* wrong;   // raised by the words that differ
  u64 canaries; // words behind, all ones
};
static_assert(sizeof(Pattern) == 40, "src/bench/parameters.rs");

namespace {

/// No two words of a buffer, and no two seeds, have the same.
WARPWAY_DEVICE u64 pattern_word(u64 seed, u64 i) { return ((i + 1) * 0x9e3779b97f4a7c15ull) ^ (seed << 1); }

}  // namespace

/// Any grid.
extern "C" __global__ void fill_pattern(const Pattern p) {
  for (u64 i = u64{blockIdx.x} * blockDim.x + threadIdx.x; i < p.count; i += u64{gridDim.x} * blockDim.x) {
    p.words[i] = pattern_word(p.seed, i);
  }
}

/// Any grid, on the GPU where the words lie.
extern "C" __global__ void check_pattern(const Pattern p) {
  u64 wrong = 0;
  for (u64 i = u64{blockIdx.x} * blockDim.x + threadIdx.x; i < p.count + p.canaries; i += u64{gridDim.x} * blockDim.x) {
    wrong += p.words[i] != (i < p.count ? pattern_word(p.seed, i) : ~u64{0});
  }
  if (wrong != 0) fetch_add<Scope::Device, Order::Relaxed>(p.wrong, wrong);
}

struct Gate {
  const u64* word;  // pinned, raised by the host
  u64 value;
  Site site;
};
static_assert(sizeof(Gate) == 32, "src/bench/parameters.rs");

/// One thread: what follows in the stream starts when the host says so, on all GPUs at once.
extern "C" __global__ void gate(const Gate p) {
  static_cast<void>(poll_until(Wait{p.site, Kind::HostToDevice, p.value}, [&](u64& seen) {
    seen = load<Scope::System, Order::Relaxed>(p.word);
    return seen >= p.value;
  }));
}
