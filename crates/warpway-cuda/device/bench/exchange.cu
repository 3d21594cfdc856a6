// The first thing that two ranks do: what a start is measured to.
#include "warpway/memory_channel.cuh"

using namespace warpway;

/// Grid: 1 block. Each rank puts `bytes`, signals, and waits for the peer's.
extern "C" __global__ void exchange(MemoryChannel channel, u64 bytes) {
  channel.put(0, bytes, threadIdx.x, blockDim.x);
  block_barrier();
  if (threadIdx.x != 0) return;
  channel.signal();
  // A wait that gives up leaves a record, which the host finds.
  static_cast<void>(channel.wait());
}
