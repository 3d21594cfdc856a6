// Kernels of the eighth tutorial. All ranks launch the same.
#include "warpway/port_channel.cuh"

using namespace warpway;

/// The part of rank r is `part` elements from `r * part` on, on every rank. Other numbers for each rank and round.
WARPWAY_DEVICE u32 element(u64 rank, u64 round, u64 i) {
  return static_cast<u32>(i) * 2654435761u ^ static_cast<u32>(round << 8 | rank);
}

/// Every rank's part comes to every rank. One channel and one warp for each peer; blocks of whole warps, any number.
extern "C" __global__ void all_gather(const PortChannel* channels, u64 peers, u64 offset, u64 bytes) {
  const u64 warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
  // A call is made by one thread: the first of the warp.
  if (warp >= peers || threadIdx.x % 32 != 0) return;
  const PortChannel& channel = channels[warp];
  // My part to the same place there; the peer's counter rises after the bytes have arrived.
  channel.putWithSignal(offset, bytes);
  // My part has left and may be changed.
  Status status = channel.flush();
  // The peer's part has arrived and may be read. After a failure there is nothing to do: `synchronize` tells it.
  if (status == Status::Ok) status = channel.wait();
}

/// Writes this rank's part. Any grid.
extern "C" __global__ void prepare(u32* data, u64 part, u64 rank, const u64* round) {
  for (u64 i = blockIdx.x * blockDim.x + threadIdx.x; i < part; i += gridDim.x * blockDim.x) {
    data[rank * part + i] = element(rank, *round, i);
  }
}

/// Counts elements of all ranks that are not those of this round. Any grid.
extern "C" __global__ void check(const u32* data, u64 part, u64 ranks, const u64* round, u64* wrong) {
  for (u64 i = blockIdx.x * blockDim.x + threadIdx.x; i < ranks * part; i += gridDim.x * blockDim.x) {
    if (data[i] != element(i / part, *round, i % part)) atomicAdd(wrong, u64{1});
  }
}

/// "I have read yours, you may put again", among all. Grid as for `all_gather`.
extern "C" __global__ void next_round(const PortChannel* channels, u64 peers, u64* round) {
  const u64 warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
  if (warp >= peers || threadIdx.x % 32 != 0) return;
  channels[warp].signal();
  if (channels[warp].wait() == Status::Ok && warp == 0) *round += 1;
}
