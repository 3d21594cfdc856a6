// The FIFO and port channels: order, laps, a full ring, a thousand producers, flushes.
#include "warpway/port_channel.cuh"

using namespace warpway;

struct Pushes {
  Fifo fifo;
  u64* positions;  // one per thread and round
  u64 rounds;
};

/// Any grid. Thread t (of all) pushes in round r an element with destination_offset = t, source_offset = r, size = t ^ r,
/// value = -t, kind Sync | Data, semaphore = t mod 2^32, and writes down its position.
extern "C" __global__ void fifo_producers(const Pushes p) {
  const u64 t = u64{blockIdx.x} * blockDim.x + threadIdx.x, threads = u64{gridDim.x} * blockDim.x;
  for (u64 r = 0; r < p.rounds; ++r) {
    Trigger trigger{trigger_data | trigger_sync, static_cast<u32>(t), static_cast<u32>(t + 1), static_cast<u32>(t + 2),
                    t, r, t ^ r, -static_cast<i64>(t)};
    p.positions[r * threads + t] = p.fifo.push(trigger);
  }
}

struct Waits {
  Fifo fifo;
  u64 position;
  u32* status;  // of sync, then whether poll said so before
};

/// Grid: 1 thread.
extern "C" __global__ void fifo_sync(const Waits p) {
  p.status[1] = p.fifo.poll(p.position);
  p.status[0] = static_cast<u32>(p.fifo.sync(p.position));
}

struct Requests {
  PortChannel channel;
  u64 bytes;
  u64* positions;  // seven
  u32* status;     // three
};

/// Grid: 1 thread. Every call once: put, signal, putWithSignal, atomicAdd, a misaligned atomicAdd last, and the
/// waits putWithSignalAndFlush, flush, wait.
extern "C" __global__ void port_calls(const Requests p) {
  p.positions[0] = p.channel.put(0, 8, p.bytes);
  p.positions[1] = p.channel.put(16, p.bytes);
  p.positions[2] = p.channel.signal();
  p.positions[3] = p.channel.putWithSignal(24, 32, p.bytes);
  p.positions[4] = p.channel.atomicAdd(8, -5);
  p.status[0] = static_cast<u32>(p.channel.putWithSignalAndFlush(40, 48, p.bytes));
  p.status[1] = static_cast<u32>(p.channel.flush());
  p.status[2] = static_cast<u32>(p.channel.wait());
  p.positions[5] = p.channel.put(p.channel.dst_bytes, 1);
  p.positions[6] = p.channel.atomicAdd(4, 1);
}
