// What kernels of several ranks do with port channels: the arguments are made by `Gpu` of warpway-cuda.
#include "warpway/port_channel.cuh"

using namespace warpway;

/// Grid: 1 thread. Sends `bytes` by one of the ways to do it (put and signal, both in one, all in one) and takes the peer's
/// signal. 0 at `outcome` if all went well.
extern "C" __global__ void port_exchange(PortChannel channel, u64 target, u64 origin, u64 bytes, u64 way, u64* outcome) {
  Status status = Status::Ok;
  if (way == 2) {
    status = channel.putWithSignalAndFlush(target, origin, bytes);
  } else {
    if (way == 1) {
      channel.putWithSignal(target, origin, bytes);
    } else {
      channel.put(target, origin, bytes);
      channel.signal();
    }
    status = channel.flush();
  }
  if (status == Status::Ok) status = channel.wait();
  *outcome = static_cast<u64>(status);
}

/// Any grid. Every thread adds `value` so many times to the peer's word at `offset` and flushes; failures are counted at
/// `outcome`.
extern "C" __global__ void port_adds(PortChannel channel, u64 offset, u64 value, u64 rounds, u64* outcome) {
  for (u64 round = 0; round < rounds; ++round) channel.atomicAdd(offset, static_cast<i64>(value));
  if (channel.flush() != Status::Ok) fetch_add<Scope::Device, Order::Relaxed>(outcome, u64{1});
}

/// Grid: 1 block. In each round all threads write the round into the first `words` words of `source`, which the channel
/// leads from; the peer's come to `received`. A signal comes after the data of its round and before that of the next one,
/// which the peer sends when it has been told to. Words that are wrong are counted at `wrong`.
extern "C" __global__ void port_rounds(PortChannel channel, u64* source, const u64* received, u64 words, u64 rounds,
                                       u64* wrong) {
  for (u64 round = 1; round <= rounds; ++round) {
    for (u64 i = threadIdx.x; i < words; i += blockDim.x) source[i] = round << 32 | i;
    block_barrier();
    Status status = Status::Ok;
    if (threadIdx.x == 0) {
      channel.putWithSignal(0, 0, 8 * words);
      status = channel.flush();
      if (status == Status::Ok) status = channel.wait();
    }
    if (agree(status) != Status::Ok) return;
    for (u64 i = threadIdx.x; i < words; i += blockDim.x) {
      if (received[i] != (round << 32 | i)) fetch_add<Scope::Device, Order::Relaxed>(wrong, u64{1});
    }
    block_barrier();
    if (threadIdx.x == 0) {
      // "Read": the peer may send the next round.
      channel.signal();
      status = channel.wait();
    }
    if (agree(status) != Status::Ok) return;
  }
}

/// Grid: 1 block of a warp per channel. Each sends this rank's part to one peer and waits for the peer's. Failures are
/// counted at `outcome`.
extern "C" __global__ void port_all_gather(const PortChannel* channels, u64 n_channels, u64 offset, u64 bytes, u64* outcome) {
  const u64 warp = threadIdx.x / 32;
  if (warp >= n_channels || threadIdx.x % 32 != 0) return;
  const PortChannel channel = channels[warp];
  channel.putWithSignal(offset, bytes);
  Status status = channel.flush();
  if (status == Status::Ok) status = channel.wait();
  if (status != Status::Ok) fetch_add<Scope::Device, Order::Relaxed>(outcome, u64{1});
}

/// Grid: 1 thread. Pushes until a push fails, flushing now and then; how many went well is left at `outcome`.
extern "C" __global__ void port_until_stopped(PortChannel channel, u64* outcome) {
  u64 pushed = 0;
  while (channel.signal() != no_position) {
    ++pushed;
    if (pushed % 16 == 0 && channel.flush() != Status::Ok) break;
  }
  *outcome = pushed;
}
