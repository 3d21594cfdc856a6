// Epochs: what makes packet flags and buffer halves change from launch to launch without the host.
//
// Each scratch area has a 64-bit counter in device memory. A kernel reads the counters of the areas that it uses once
// per block at its start and leaves through `finish_epochs`; the last block to get there advances them. So a captured
// graph may be replayed any number of times, mixed with eager launches. No block may read an epoch after
// its `finish_epochs`, and no two kernels use an area at once.
#pragma once

#include "warpway/control.cuh"

namespace warpway {

/// One epoch of an area.
struct Epoch {
  u64 value;

  /// Of packets: 1 + value mod (2^32 - 1). That skips 0 without giving a flag twice in a row, as the low half of the next
  /// epoch would with 1 in place of 0. When it starts again at 1 the owner has cleared the area.
  WARPWAY_DEVICE u32 flag() const {
    // 2^32 is 1 modulo 2^32 - 1: the halves add up.
    u64 sum = (value & 0xffffffff) + (value >> 32);
    sum = (sum & 0xffffffff) + (sum >> 32);
    return sum == 0xffffffff ? 1 : static_cast<u32>(sum) + 1;
  }
  /// Of lines.
  WARPWAY_DEVICE u64 line_flag() const { return value + 1; }
  /// Which half of a doubled area.
  WARPWAY_DEVICE u32 parity() const { return static_cast<u32>(value & 1); }
};

/// The epochs that a launch reads and advances.
struct Epochs {
  /// One counter per area, all in device memory, and so is the list.
  u64* const* areas;
  /// Blocks that have finished; 0 between launches. One per context.
  u64* arrivals;
  u64 n_areas;

  /// Any thread, before `finish`.
  WARPWAY_DEVICE Epoch read(u64 area) const { return Epoch{load<Scope::Device, Order::Relaxed>(areas[area])}; }

  /// The block reads no epoch any more. All threads of all blocks of the grid, once, after a failure too.
  WARPWAY_DEVICE void finish() const {
    block_barrier();
    if (thread_in_block() != 0) return;
    // Release: the block's reads come before; acquire: all blocks' reads come before the writes below.
    if (fetch_add<Scope::Device, Order::AcqRel>(arrivals, u64{1}) + 1 != blocks_in_grid()) return;
    store<Scope::Device, Order::Relaxed>(arrivals, u64{0});
    for (u64 i = 0; i < n_areas; ++i) {
      store<Scope::Device, Order::Relaxed>(areas[i], load<Scope::Device, Order::Relaxed>(areas[i]) + 1);
    }
  }
};

}  // namespace warpway
