// Bulk copies, sm_90.
#include "warpway/bulk.cuh"
#include "warpway/semaphores.cuh"

using namespace warpway;

struct BulkCopy {
  u8* dst;
  const u8* src;
  u64 bytes;     // of each block
  Site site;
  u32* status;   // one per block
};

/// Any grid; each block copies its own part of `bytes` bytes, any alignment. Dynamic shared memory:
/// sizeof(BulkStage<8192, 3>) = 24704.
extern "C" __global__ void bulk_copy_parts(const BulkCopy p) {
  extern __shared__ u8 shared[];
  auto& stage = *reinterpret_cast<BulkStage<8192, 3>*>(shared);
  const u64 at = blockIdx.x * p.bytes;
  const Status status = bulk_copy(p.dst + at, p.src + at, p.bytes, stage, threadIdx.x, blockDim.x, p.site);
  if (threadIdx.x == 0) p.status[blockIdx.x] = static_cast<u32>(status);
}

struct BulkAdd {
  u8* dst;       // 16-byte aligned
  const u8* src;
  u64 bytes;     // a multiple of 16, at most 16384
  u32 type;      // DataType: float32, bfloat16, uint32
  u32 reserved;
  u32* status;   // load, wait, store, then a misaligned store
};

/// Grid: 1 block. dst += src through shared memory: loaded by the engine, doubled by threads, added by the engine; so
/// dst += 2 * src for uint32 (others are added as they are).
extern "C" __global__ void bulk_add(const BulkAdd p) {
  alignas(128) __shared__ u32 tile[4096];
  __shared__ BulkBarrier barrier;
  if (threadIdx.x == 0) {
    barrier.init();
    p.status[0] = static_cast<u32>(barrier.arriveAndExpect(p.bytes));
    p.status[0] |= static_cast<u32>(bulkLoad(tile, p.src, p.bytes, barrier));
  }
  block_barrier();
  u32 phase = 0;
  const Status status = barrier.wait(phase);
  bulkFence();
  if (p.type == 1) {
    for (u32 i = threadIdx.x; i < p.bytes / 4; i += blockDim.x) tile[i] *= 2;
  }
  bulkFence();
  block_barrier();
  if (threadIdx.x != 0) return;
  p.status[1] = static_cast<u32>(status) | (phase ^ 1);
  switch (static_cast<DataType>(p.type)) {
    case DataType::Float32: p.status[2] = static_cast<u32>(bulkReduceStore<F32>(p.dst, tile, p.bytes)); break;
    case DataType::Bfloat16: p.status[2] = static_cast<u32>(bulkReduceStore<BF16>(p.dst, tile, p.bytes)); break;
    default: p.status[2] = static_cast<u32>(bulkReduceStore<U32>(p.dst, tile, p.bytes)); break;
  }
  p.status[3] = static_cast<u32>(bulkStore(p.dst + 4, tile, 16));
  bulkStoreCommit();
  bulkStoreWait();
  barrier.invalidate();
}

struct BulkMessages {
  MemoryDevice2DeviceSemaphore ping;  // the first device signals, the second one waits
  MemoryDevice2DeviceSemaphore pong;
  u64* data;     // 2048 words of the second device
  u64 rounds;
  u64* stale;    // wrong words seen; zero before
  u32 first;     // 0: sends, 1: receives
  u32 reserved;
};

/// M10. Grid: 1 block of any size on each of two devices. Words in shared memory travel by bulk stores.
extern "C" __global__ void bulk_messages(const BulkMessages p) {
  constexpr u32 words = 2048;
  alignas(128) __shared__ u64 tile[words];
  u32 random = threadIdx.x * 2654435761u + 12345;
  for (u64 i = 1; i <= p.rounds; ++i) {
    random = random * 1664525 + 1013904223;
    if (random >> 30 == 0) pause_ns(random >> 22 & 1023);
    Status status = Status::Ok;
    if (p.first == 0) {
      for (u32 w = threadIdx.x; w < words; w += blockDim.x) tile[w] = i;
      bulkFence();
      block_barrier();
      if (threadIdx.x == 0) {
        // Two groups: the wait is for both.
        status = bulkStore(p.data, tile, sizeof tile / 2);
        bulkStoreCommit();
        if (status == Status::Ok) status = bulkStore(p.data + words / 2, tile + words / 2, sizeof tile / 2);
        bulkStoreCommit();
        bulkStoreWait();
        p.ping.signal();
        if (status == Status::Ok) status = p.pong.wait();
      }
    } else {
      if (threadIdx.x == 0) status = p.ping.wait();
      if (agree(status) != Status::Ok) return;
      for (u32 w = threadIdx.x; w < words; w += blockDim.x) {
        if (p.data[w] != i) fetch_add<Scope::Device, Order::Relaxed>(p.stale, u64{1});
      }
      block_barrier();
      if (threadIdx.x == 0) p.pong.signal();
    }
    if (agree(status) != Status::Ok) return;
  }
}
