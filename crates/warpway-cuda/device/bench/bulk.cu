// Buffers moved by the bulk copy engine (TMA): the headers' form, and a plain one that it is measured against. sm_90.
#include "warpway/bulk.cuh"

using namespace warpway;

/// Each block has a part of its own; the last one may be shorter.
struct BulkTransfer {
  u8* to;
  const u8* from;
  u64 bytes;  // a multiple of 16
  Site site;
};
static_assert(sizeof(BulkTransfer) == 40, "src/bench/parameters.rs");

namespace {

struct Part {
  u64 begin, bytes;
};

WARPWAY_DEVICE Part part_of(u64 bytes) {
  const u64 part = (bytes / gridDim.x + 127) / 128 * 128;
  const u64 begin = part * blockIdx.x;
  if (begin >= bytes) return {0, 0};
  return {begin, blockIdx.x + 1 == gridDim.x || begin + part > bytes ? bytes - begin : part};
}

}  // namespace

static_assert(sizeof(BulkStage<>) == 196736, "src/bench/transfer.rs");

/// Any grid; dynamic shared memory: sizeof(BulkStage<>).
extern "C" __global__ void bulk_put(const BulkTransfer p) {
  extern __shared__ __align__(128) u8 shared[];
  auto& stage = *reinterpret_cast<BulkStage<>*>(shared);
  const Part part = part_of(p.bytes);
  static_cast<void>(bulk_copy(p.to + part.begin, p.from + part.begin, part.bytes, stage, threadIdx.x, blockDim.x, p.site));
}

/// Any grid of blocks of 32 threads, of which one works. `Tiles` of `Bytes` each in dynamic shared memory, behind
/// them a barrier each; loads run `Ahead` tiles before stores.
template <u32 Bytes, u32 Tiles, u32 Ahead>
__global__ void plain_bulk(const BulkTransfer p) {
  static_assert(Ahead < Tiles, "a tile is stored before it is loaded again");
  extern __shared__ __align__(128) u8 shared[];
  if (threadIdx.x != 0) return;
  const Part part = part_of(p.bytes);
  const u64 count = (part.bytes + Bytes - 1) / Bytes;
  const u32 tiles = static_cast<u32>(__cvta_generic_to_shared(shared)), barriers = tiles + Tiles * Bytes;
  for (u32 t = 0; t < Tiles; ++t) asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barriers + 8 * t) : "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  const u64 from = static_cast<u64>(__cvta_generic_to_global(p.from + part.begin));
  const u64 to = static_cast<u64>(__cvta_generic_to_global(p.to + part.begin));
  const auto size = [&](u64 i) { return static_cast<u32>(i + 1 < count ? Bytes : part.bytes - i * Bytes); };
  const auto load = [&](u64 i) {
    const u32 t = static_cast<u32>(i % Tiles);
    asm volatile("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], %1;" ::"r"(barriers + 8 * t), "r"(size(i)) : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                 ::"r"(tiles + t * Bytes), "l"(from + i * Bytes), "r"(size(i)), "r"(barriers + 8 * t) : "memory");
  };
  for (u64 i = 0; i < Ahead && i < count; ++i) load(i);
  for (u64 i = 0; i < count; ++i) {
    const u32 t = static_cast<u32>(i % Tiles), phase = static_cast<u32>(i / Tiles % 2);
    u32 done = 0;
    // Bounded: a load that does not come ends the kernel, and the check finds the missing bytes.
    for (u32 tries = 0; done == 0; ++tries) {
      asm volatile("{\n\t.reg .pred p;\n\tmbarrier.try_wait.parity.acquire.cta.shared::cta.b64 p, [%1], %2;\n\tselp.u32 %0, 1, 0, p;\n\t}"
                   : "=r"(done) : "r"(barriers + 8 * t), "r"(phase) : "memory");
      if (tries > 10000000) return;
    }
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to + i * Bytes), "r"(tiles + t * Bytes), "r"(size(i)) : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    if (i + Ahead < count) {
      asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(Tiles - Ahead) : "memory");
      load(i + Ahead);
    }
  }
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}
