// What kernels of several ranks do with each other: the arguments are made by `Gpu` of warpway-cuda.
#include "warpway/epoch.cuh"
#include "warpway/grid.cuh"
#include "warpway/memory_channel.cuh"

using namespace warpway;

namespace {

__device__ u32 thread_in_grid() { return block_in_grid() * threads_per_block() + thread_in_block(); }
__device__ u32 threads_in_grid() { return blocks_in_grid() * threads_per_block(); }

/// A word of a rank's data in an epoch: no two alike.
__device__ u64 mixed(u64 rank, u64 epoch, u64 index) {
  u64 x = rank * 0x9e3779b97f4a7c15 + epoch * 0xbf58476d1ce4e5b9 + index * 0x94d049bb133111eb + 1;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

}  // namespace

/// Any grid. All threads put, one signals and takes the peer's signal. 0 at `outcome` if all went well.
extern "C" __global__ void put_signal_wait(MemoryChannel channel, DeviceSyncer* barrier, u64 target, u64 origin, u64 bytes,
                                           u64* outcome) {
  channel.put(target, origin, bytes, thread_in_grid(), threads_in_grid());
  Status status = barrier->sync(blocks_in_grid());
  if (status != Status::Ok) return;
  if (thread_in_grid() == 0) {
    channel.signal();
    status = channel.wait();
    *outcome = static_cast<u64>(status);
  }
}

/// Any grid. Each rank sends `bytes` of its memory as packets to the peer's packet buffer, which is what the channel leads
/// to, in the half that the epoch gives, and unpacks the peer's to `unpacked` in its own memory.
extern "C" __global__ void exchange_packets(MemoryChannel channel, Epochs epochs, u64 unpacked, u64 bytes, u64 half,
                                            u64* outcome) {
  const Epoch epoch = epochs.read(0);
  const u64 at = epoch.parity() * half;
  channel.putPackets<LL16>(at, 0, bytes, thread_in_grid(), threads_in_grid(), epoch.flag());
  const Status status =
      channel.unpackPackets<LL16>(unpacked, at, bytes, thread_in_grid(), threads_in_grid(), epoch.flag());
  if (status != Status::Ok) fetch_add<Scope::Device, Order::Relaxed>(outcome, u64{1});
  epochs.finish();
}

/// Any grid. One launch of very many: new data each time, half of it by put, signal and wait, half as packets, both checked.
/// `data` leads from 2 * words at `src` to the peer's memory of the same kind; `packets` from the same memory to the peer's
/// packet buffer of two halves. The peer puts to 2 * words at `received`. Words that are wrong are counted at `wrong`, and
/// launches at `wrong + 1`.
struct Replay {
  MemoryChannel data;
  MemoryChannel packets;
  DeviceSyncer* barrier;
  Epochs epochs;
  const u64* received;
  u64 words;
  u64 rank;
  u64 peer;
  u64* wrong;
};

extern "C" __global__ void replay(const Replay p) {
  const Epoch epoch = p.epochs.read(0);
  const u64 n = p.words, half = epoch.parity() * n;
  u64* source = static_cast<u64*>(p.data.src) + half;
  for (u64 i = thread_in_grid(); i < n; i += threads_in_grid()) source[i] = mixed(p.rank, epoch.value, i);
  Status status = p.barrier->sync(blocks_in_grid());
  if (status == Status::Ok) {
    p.data.put(half * 8, half * 8, n * 8, thread_in_grid(), threads_in_grid());
    p.packets.putPackets<LL16>(half * 16, half * 8, n * 8, thread_in_grid(), threads_in_grid(), epoch.flag());
    status = p.barrier->sync(blocks_in_grid());
  }
  if (status == Status::Ok) {
    if (thread_in_grid() == 0) {
      p.data.signal();
      status = p.data.wait();
    }
    u64 wrong = 0;
    for (u64 i = thread_in_grid(); i < n; i += threads_in_grid()) {
      // One packet holds one word.
      const auto payload = p.packets.unpackPacket<LL16>(half + i, epoch.flag());
      const u64 word = static_cast<u64>(payload.x) | static_cast<u64>(payload.y) << 32;
      wrong += word != mixed(p.peer, epoch.value, i);
    }
    // Behind the wait of the first block.
    status = p.barrier->sync(blocks_in_grid());
    if (status == Status::Ok) {
      for (u64 i = thread_in_grid(); i < n; i += threads_in_grid()) {
        wrong += p.received[half + i] != mixed(p.peer, epoch.value, i);
      }
    }
    if (wrong != 0) fetch_add<Scope::Device, Order::Relaxed>(p.wrong, wrong);
    if (thread_in_grid() == 0) fetch_add<Scope::Device, Order::Relaxed>(p.wrong + 1, u64{1});
  }
  p.epochs.finish();
}

/// One block per peer. The rank's share of each peer's memory is filled, and the peers' shares here are awaited.
extern "C" __global__ void all_gather(const MemoryChannel* channels, u64 offset, u64 bytes, u64* failed) {
  const MemoryChannel channel = channels[block_in_grid()];
  channel.put(offset, bytes, thread_in_block(), threads_per_block());
  block_barrier();
  if (thread_in_block() == 0) {
    channel.signal();
    if (channel.wait() != Status::Ok) fetch_add<Scope::Device, Order::Relaxed>(failed, u64{1});
  }
}

/// One block per peer, and nothing is sent before a launch: waits for the peers' shares of the launch before.
extern "C" __global__ void signal_all(const MemoryChannel* channels, u64* failed) {
  if (thread_in_block() != 0) return;
  channels[block_in_grid()].signal();
  if (channels[block_in_grid()].wait() != Status::Ok) fetch_add<Scope::Device, Order::Relaxed>(failed, u64{1});
}

/// Any grid. Tells the peer that this rank's memory is ready, waits for the same of the peer's, gets `bytes` of it, and waits
/// until the peer has got its part as well. 0 at `outcome` if all went well.
extern "C" __global__ void signal_wait_get(MemoryChannel channel, DeviceSyncer* barrier, u64 target, u64 origin, u64 bytes,
                                           u64* outcome) {
  Status status = Status::Ok;
  if (thread_in_grid() == 0) {
    channel.signal();
    status = channel.wait();
  }
  // A wait that has failed ends the other blocks' barrier as well.
  if (agree(status) != Status::Ok || barrier->sync(blocks_in_grid()) != Status::Ok) return;
  channel.get(target, origin, bytes, thread_in_grid(), threads_in_grid());
  if (barrier->sync(blocks_in_grid()) != Status::Ok) return;
  if (thread_in_grid() == 0) {
    channel.signal();
    *outcome = static_cast<u64>(channel.wait());
  }
}

/// Grid: 1 block. In each round all threads write the round into the first `words` words of `source`, which the channel
/// leads from, and put them; the peer's come to `received`. Words that are wrong are counted at `wrong`.
extern "C" __global__ void put_rounds(MemoryChannel channel, u64* source, const u64* received, u64 words, u64 rounds,
                                      u64* wrong) {
  for (u64 round = 1; round <= rounds; ++round) {
    for (u64 i = threadIdx.x; i < words; i += blockDim.x) source[i] = round << 32 | i;
    block_barrier();
    channel.put(0, 0, 8 * words, threadIdx.x, blockDim.x);
    block_barrier();
    Status status = Status::Ok;
    if (threadIdx.x == 0) {
      channel.signal();
      status = channel.wait();
    }
    if (agree(status) != Status::Ok) return;
    for (u64 i = threadIdx.x; i < words; i += blockDim.x) {
      if (received[i] != (round << 32 | i)) fetch_add<Scope::Device, Order::Relaxed>(wrong, u64{1});
    }
    block_barrier();
    if (threadIdx.x == 0) {
      // "Read": the peer may put the next round.
      channel.signal();
      status = channel.wait();
    }
    if (agree(status) != Status::Ok) return;
  }
}

/// Any grid. The last thread of the last block waits for a signal; the others for each other.
extern "C" __global__ void wait_for_peer(MemoryChannel channel, DeviceSyncer* barrier, u64* outcome) {
  Status status = Status::Ok;
  if (thread_in_grid() + 1 == threads_in_grid()) status = channel.wait();
  if (barrier->sync(blocks_in_grid()) != Status::Ok && status == Status::Ok) status = Status::Aborted;
  if (thread_in_grid() + 1 == threads_in_grid()) *outcome = 1 + static_cast<u64>(status);
}

/// One thread. Signals so often.
extern "C" __global__ void signal_peer(MemoryChannel channel, u64 times) {
  for (u64 i = 0; i < times; ++i) channel.signal();
}

/// One thread. An element of the peer's memory by a handle that a debug build finds stale.
extern "C" __global__ void put_one_byte(MemoryChannel channel, u64 offset) { channel.put(offset, 1, 0, 1); }
