// Bulk copies, sm_90.
#include "warpway/bulk.cuh"

using namespace warpway;

struct BulkCopy {
  u8* dst;
  const u8* src;
  u64 bytes;     // of each block
  Site site;
  u32* status;   // one per block
};

/// Any grid; each block copies its own part of `bytes` bytes, any alignment. Dynamic shared memory:
/// sizeof(BulkStage<8192>) = 24704.
extern "C" __global__ void bulk_copy_parts(const BulkCopy p) {
  extern __shared__ u8 shared[];
  auto& stage = *reinterpret_cast<BulkStage<8192>*>(shared);
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
