// Kernels of the seventh tutorial. Both ranks launch the same.
#include "warpway/epoch.cuh"
#include "warpway/grid.cuh"
#include "warpway/memory_channel.cuh"

using namespace warpway;

/// A number goes to and fro: rank 0 sends even ones, rank 1 answers each with the next odd one. Grid: 1 thread.
extern "C" __global__ void ping_pong(MemoryChannel channel, const u32* inbox, u32 rank, u32 trips) {
  u32 number = 0;
  for (u32 turn = 0; turn < 2 * trips; ++turn) {
    if (turn % 2 == rank) {
      // One value is stored as it is; `put` is for memory.
      channel.write<u32>(0, number);
      channel.signal();
    } else {
      if (channel.wait() != Status::Ok) return;
      number = *inbox;
    }
    ++number;
  }
}

/// Each rank puts its bytes into the peer's memory. Any grid.
extern "C" __global__ void swap(MemoryChannel channel, DeviceSyncer* barrier, u64 bytes) {
  const u32 thread = blockIdx.x * blockDim.x + threadIdx.x, threads = gridDim.x * blockDim.x;
  // All threads copy, each its share of the bytes.
  channel.put(0, bytes, thread, threads);
  // A signal covers what its own thread has done or has seen done: the barrier makes thread 0 see all puts.
  Status status = barrier->sync(gridDim.x);
  if (status == Status::Ok && thread == 0) {
    channel.signal();
    status = channel.wait();
  }
  // What thread 0 has seen by its wait, all blocks see after this.
  status = barrier->sync(gridDim.x);
}

/// Each rank's numbers become the sum of both ranks'. The flag travels inside the packets, so there is no signal and no
/// barrier. Any grid.
extern "C" __global__ void add_packets(MemoryChannel channel, Epochs epochs, float* numbers, u64 count) {
  const u32 thread = blockIdx.x * blockDim.x + threadIdx.x, threads = gridDim.x * blockDim.x;
  // Another flag and the other half of the buffer in each launch, also when a graph is replayed.
  const Epoch epoch = epochs.read(0);
  const u64 half = epoch.parity() * count;
  channel.putPackets<LL8>(half * sizeof(LL8), 0, count * sizeof(float), thread, threads, epoch.flag());
  // Packet i is written by the thread that adds to number i.
  for (u64 i = thread; i < count; i += threads) {
    numbers[i] += __uint_as_float(channel.unpackPacket<LL8>(half + i, epoch.flag()));
  }
  epochs.finish();
}
