// Kernels that use a FIFO and port channels, played by threads of the host: a library that tests load. Addresses in the
// handles are the host's.
#include <sched.h>

#include "warpway/port_channel.cuh"

using namespace warpway;

/// Time stands still: waits end by the words that they look at.
extern "C" void producer_start() {
  host_tick = 0;
  host_wait = [] { sched_yield(); };
}

extern "C" u64 producer_push(const Fifo* fifo, const Trigger* trigger) { return fifo->push(*trigger); }

extern "C" u32 producer_sync(const Fifo* fifo, u64 position) { return static_cast<u32>(fifo->sync(position)); }

/// The calls of a port channel by number. Statuses are returned as they are, positions and truths as well.
extern "C" u64 producer_call(const PortChannel* channel, u32 call, u64 dst_offset, u64 src_offset, u64 size) {
  switch (call) {
    case 0: return channel->put(dst_offset, src_offset, size);
    case 1: return channel->signal();
    case 2: return channel->putWithSignal(dst_offset, src_offset, size);
    case 3: return static_cast<u64>(channel->putWithSignalAndFlush(dst_offset, src_offset, size));
    case 4: return static_cast<u64>(channel->flush());
    case 5: return channel->atomicAdd(dst_offset, static_cast<i64>(size));
    case 6: return channel->poll();
    case 7: return static_cast<u64>(channel->wait());
    default: return ~u64{0};
  }
}
