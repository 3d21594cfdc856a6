// A barrier of thread blocks: all of a grid, or any fixed group of them.
//
// The object lies in device memory and belongs to the context that launches the kernel. All blocks that take part must be
// on the GPU at once, which the launch checks. Uses that overlap in time have the same participants; others need not.
#pragma once

#include "warpway/control.cuh"

namespace warpway {

/// All zero (but for the site) is ready for use; nothing needs to be reset between launches.
struct DeviceSyncer {
  /// Barriers completed.
  u64 generation = 0;
  /// Blocks that have come to the one under way.
  u64 arrivals = 0;
  Site site = {};

  /// Waits for `n_blocks` blocks. All threads of each of them call, and all threads of a block get the same status.
  /// Everything that the blocks did before is visible, on this device, to everything they do afterwards.
  WARPWAY_NODISCARD WARPWAY_DEVICE Status sync(u32 n_blocks, i64 max_spin = -1) {
    if (n_blocks <= 1) {
      block_barrier();
      return Status::Ok;
    }
    block_barrier();
    Status status = Status::Ok;
    if (thread_in_block() == 0) status = meet(n_blocks, max_spin);
    return agree(status);
  }

 private:
  WARPWAY_DEVICE Status meet(u32 n_blocks, i64 max_spin) {
    // The generation cannot pass on before this block has arrived, but must be read before it does: the fence of the
    // arrival sees to that, and takes longer than the load.
    const u64 before = load<Scope::Device, Order::Relaxed>(&generation);
    if (fetch_add<Scope::Device, Order::AcqRel>(&arrivals, u64{1}) + 1 == n_blocks) {
      store<Scope::Device, Order::Relaxed>(&arrivals, u64{0});
      // Releases what all blocks released when they arrived.
      store<Scope::Device, Order::Release>(&generation, before + 1);
      return Status::Ok;
    }
    return poll_until(
        Wait{site, Kind::GridBarrier, before + 1},
        [&](u64& seen) {
          seen = load<Scope::Device, Order::Acquire>(&generation);
          return seen != before;
        },
        {max_spin});
  }
};

}  // namespace warpway
