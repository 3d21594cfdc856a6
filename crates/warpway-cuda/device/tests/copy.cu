// Copies: exact for every misalignment and size, and as fast as plain stores.
#include "warpway/memory_channel.cuh"

using namespace warpway;

struct CopyMatrix {
  u8* scratch;     // 1024 bytes per block, any content
  u64* failures;   // count of wrong bytes, then block and size of one of them; zeros before
};

/// Grid: 1024 blocks, one per pair of misalignments 0..31; any number of threads, a multiple of 32. All sizes 0..257.
extern "C" __global__ void copy_matrix(const CopyMatrix p) {
  constexpr u32 room = 512, guard = 64;
  u8* dst = p.scratch + u64{blockIdx.x} * 2 * room;
  u8* src = dst + room;
  const u32 to = guard + blockIdx.x / 32, from = guard + blockIdx.x % 32;
  for (u32 i = threadIdx.x; i < room; i += blockDim.x) src[i] = static_cast<u8>(i * 7 + i / 251 + 1);
  for (u32 bytes = 0; bytes <= 257; ++bytes) {
    for (u32 i = threadIdx.x; i < room; i += blockDim.x) dst[i] = 0xc5;
    block_barrier();
    copy(dst + to, static_cast<const void*>(src + from), bytes, threadIdx.x, blockDim.x);
    block_barrier();
    for (u32 i = threadIdx.x; i < room; i += blockDim.x) {
      const bool inside = i >= to && i < to + bytes;
      const u32 at = i - to + from;
      const u8 expected = inside ? static_cast<u8>(at * 7 + at / 251 + 1) : 0xc5;
      if (dst[i] != expected) {
        fetch_add<Scope::Device, Order::Relaxed>(p.failures, u64{1});
        p.failures[1] = blockIdx.x, p.failures[2] = bytes;
      }
    }
    block_barrier();
  }
}

struct CopyBytes {
  void* dst;
  const void* src;
  u64 bytes;
};

/// Any grid: all its threads copy together. `copy_aligned` is for multiples of 16.
extern "C" __global__ void copy_bytes(const CopyBytes p) {
  copy(p.dst, p.src, p.bytes, blockIdx.x * blockDim.x + threadIdx.x, gridDim.x * blockDim.x);
}
extern "C" __global__ void copy_aligned(const CopyBytes p) {
  copy<16, false>(p.dst, p.src, p.bytes, blockIdx.x * blockDim.x + threadIdx.x, gridDim.x * blockDim.x);
}

/// The yardstick: four 16-byte stores in flight and nothing else. Multiples of 16.
extern "C" __global__ void plain_stores(const CopyBytes p) {
  Vec16* dst = static_cast<Vec16*>(p.dst);
  const Vec16* src = static_cast<const Vec16*>(p.src);
  const u64 count = p.bytes / 16, step = u64{gridDim.x} * blockDim.x;
  u64 i = u64{blockIdx.x} * blockDim.x + threadIdx.x;
  for (; i + 3 * step < count; i += 4 * step) {
    const Vec16 a = src[i], b = src[i + step], c = src[i + 2 * step], d = src[i + 3 * step];
    dst[i] = a, dst[i + step] = b, dst[i + 2 * step] = c, dst[i + 3 * step] = d;
  }
  for (; i < count; i += step) dst[i] = src[i];
}

struct ChannelPut {
  MemoryChannel channel;
  u64 target_offset;
  u64 origin_offset;
  u64 bytes;
};

/// Any grid. Nothing is signalled: the end of the launch orders.
extern "C" __global__ void channel_put(const ChannelPut p) {
  p.channel.put(p.target_offset, p.origin_offset, p.bytes, blockIdx.x * blockDim.x + threadIdx.x, gridDim.x * blockDim.x);
}
extern "C" __global__ void channel_get(const ChannelPut p) {
  p.channel.get(p.target_offset, p.origin_offset, p.bytes, blockIdx.x * blockDim.x + threadIdx.x, gridDim.x * blockDim.x);
}
