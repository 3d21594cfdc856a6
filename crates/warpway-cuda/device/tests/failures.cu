// Every kind of wait that nobody fulfils, and what calls do after a failure.
#include "warpway/device_semaphore.cuh"
#include "warpway/grid.cuh"
#include "warpway/lines.cuh"
#include "warpway/memory_channel.cuh"
#include "warpway/port_channel.cuh"
#if WARPWAY_ARCH >= 900
#include "warpway/bulk.cuh"
#endif

using namespace warpway;

struct Stuck {
  Control* control;
  u64* zeros;     // 64 words of device memory, aligned to 128 bytes, zeros before each launch
  u64* host;      // 1024 words of pinned memory, zeros
  u32 kind;       // Kind, or 11 for a line, 12 for a full FIFO, 13 for a packet buffer that is missing,
                  // 14 for a misaligned addition
  u32 peer;
  u32 object;
  u32 reserved;
  i64 max_spin;
  u32* status;    // one per thread of the grid, and one more: what zeros[32] holds after a put and a signal
};

namespace {

__device__ Status stuck_wait(const Stuck& p, const Site& site) {
  u64* z = p.zeros;
  const Host2DeviceSemaphore h2d{p.host, z, site};
  const Fifo fifo{p.host + 8, z + 1, p.host + 1, z + 2, 2, site};
  switch (p.kind) {
    case 1: return h2d.wait(p.max_spin);
    case 2: return MemoryDevice2DeviceSemaphore{z + 3, z + 4, z + 5, site}.wait(p.max_spin);
#if WARPWAY_ARCH >= 900
    case 3: return SwitchDevice2DeviceSemaphore{z + 6, z + 7, z + 8, 2, 0, site}.wait(p.max_spin);
#endif
    case 4: {
      Vec8 data;
      return await_packet(reinterpret_cast<const LL16*>(z + 10), 7, data, site, {p.max_spin});
    }
    // A ring with room for a request of each of 64 threads, so that none waits for a slot.
    case 5: return BasePortChannel{9, 0, h2d, Fifo{p.host + 64, z + 1, p.host + 1, z + 2, 64, site}, p.host + 2}.flush(p.max_spin);
    case 6: return fifo.sync(3, p.max_spin);
    case 7: return reinterpret_cast<DeviceSyncer*>(z + 12)->sync(gridDim.x + 1, p.max_spin);
    case 8: return reinterpret_cast<DeviceSemaphore*>(z + 16)->acquire(p.max_spin);
#if WARPWAY_ARCH >= 900
    case 9: {
      __shared__ BulkBarrier barrier;
      if (threadIdx.x == 0) barrier.init();
      block_barrier();
      u32 phase = 0;
      return barrier.wait(phase, p.max_spin, site);
    }
#endif
    case 11: {
      Vec16 part;
      return await_line(reinterpret_cast<const Line*>(z + 48), LineGroup::of(threadIdx.x), 5, part, site, {p.max_spin});
    }
    case 12: {
      const Trigger trigger{trigger_sync, 0, 0, 0, 0, 0, 0, 0};
      u64 position = 0;
      for (u32 i = 0; i < 3; ++i) position = fifo.push(trigger, p.max_spin);
      return position == no_position ? Status::Aborted : Status::Ok;
    }
    case 13: {
      MemoryChannel channel{};
      channel.semaphore.site = site;
      return channel.unpackPackets(0, 8, threadIdx.x, blockDim.x, 1, p.max_spin);
    }
    case 14: return BasePortChannel{9, 0, h2d, fifo, p.host + 2}.atomicAdd(0, 4, 1) == no_position ? Status::Aborted : Status::Ok;
    default: return Status::Ok;
  }
}

}  // namespace

/// Any grid of multiples of 32 threads, at most 64 in all for a flush. All threads wait for what never comes. Then, with the communicator failed, all of
/// them wait again, put and signal: nothing of that may do anything.
extern "C" __global__ void stuck(const Stuck p) {
  const Site site{p.control, p.peer, p.object};
  if (threadIdx.x == 0 && blockIdx.x == 0) {
    reinterpret_cast<DeviceSyncer*>(p.zeros + 12)->site = site;
    reinterpret_cast<DeviceSemaphore*>(p.zeros + 16)->site = site;
  }
  block_barrier();
  const u32 thread = blockIdx.x * blockDim.x + threadIdx.x;
  p.status[thread] = static_cast<u32>(stuck_wait(p, site));
  if (agree(static_cast<Status>(p.status[thread])) == Status::Ok) return;
  MemoryChannel channel{};
  channel.semaphore = MemoryDevice2DeviceSemaphore{p.zeros + 3, p.zeros + 32, p.zeros + 5, site};
  channel.dst = p.zeros + 32, channel.dst_bytes = 128;
  channel.src = p.status, channel.src_bytes = 4;
  channel.put(8, 0, 4, threadIdx.x, blockDim.x);
  channel.putPackets(16, 0, 4, threadIdx.x, blockDim.x, 1);
  if (threadIdx.x == 0) channel.signal(), channel.relaxedSignal();
  block_barrier();
  u64 seen = 0;
  for (u32 i = 32; i < 48; ++i) seen |= p.zeros[i];
  if (threadIdx.x == 0) p.status[gridDim.x * blockDim.x] = seen != 0;
}
