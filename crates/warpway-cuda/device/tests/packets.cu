// Packets and lines: every number of bytes at every misalignment of the data; exchange through a channel.
#include "warpway/epoch.cuh"
#include "warpway/lines.cuh"
#include "warpway/memory_channel.cuh"

using namespace warpway;

struct PacketMatrix {
  u8* scratch;    // 4096 bytes per block, aligned to 128, any content
  u64* failures;  // count of wrong bytes, then block and size of one; zeros before
  Site site;
};

namespace {

constexpr u32 area = 2048, guard = 128;

__device__ u8 sample(u32 i) { return static_cast<u8>(i * 3 + i / 83 + 1); }

__device__ void fail(const PacketMatrix& p, u32 bytes) {
  fetch_add<Scope::Device, Order::Relaxed>(p.failures, u64{1});
  p.failures[1] = blockIdx.x, p.failures[2] = bytes;
}

/// `Form` packs into and unpacks from `guard` bytes into the area.
template <class Form>
__device__ void matrix(const PacketMatrix& p, u32 most) {
  u8* packets = p.scratch + u64{blockIdx.x} * 2 * area;
  u8* data = packets + area;
  u8* out = data + area / 2;
  const u32 shift = blockIdx.x % 16;
  for (u32 i = threadIdx.x; i < area / 2; i += blockDim.x) data[i] = sample(i);
  for (u32 bytes = 0; bytes <= most; ++bytes) {
    const u32 flag = bytes + 1;
    for (u32 i = threadIdx.x; i < area; i += blockDim.x) packets[i] = 0;
    for (u32 i = threadIdx.x; i < area / 2; i += blockDim.x) out[i] = 0xee;
    block_barrier();
    Form::pack(packets + guard, data + shift, bytes, flag);
    if (Form::unpack(out + shift, packets + guard, bytes, flag, p.site) != Status::Ok) fail(p, bytes);
    block_barrier();
    const u32 used = Form::packed(bytes);
    for (u32 i = threadIdx.x; i < area; i += blockDim.x) {
      if ((i < guard || i >= guard + used) && packets[i] != 0) fail(p, bytes);
    }
    for (u32 i = threadIdx.x; i < area / 2; i += blockDim.x) {
      const bool inside = i >= shift && i < shift + bytes;
      if (out[i] != (inside ? sample(i) : 0xee)) fail(p, bytes);
    }
    block_barrier();
  }
}

template <class Packet>
struct PacketForm {
  static constexpr u32 payload = sizeof(typename Packet::Payload);
  static __device__ void pack(void* packets, const void* data, u32 bytes, u32 flag) {
    copyToPackets<Packet>(packets, data, bytes, threadIdx.x, blockDim.x, flag);
  }
  static __device__ Status unpack(void* data, const void* packets, u32 bytes, u32 flag, const Site& site) {
    return copyFromPackets<Packet>(data, packets, bytes, threadIdx.x, blockDim.x, flag, -1, site);
  }
  static __device__ u32 packed(u32 bytes) { return (bytes + payload - 1) / payload * sizeof(Packet); }
};

struct LineForm {
  static __device__ void pack(void* lines, const void* data, u32 bytes, u32 flag) {
    copyToLines(lines, data, bytes, threadIdx.x, blockDim.x, flag);
  }
  static __device__ Status unpack(void* data, const void* lines, u32 bytes, u32 flag, const Site& site) {
    return copyFromLines(data, lines, bytes, threadIdx.x, blockDim.x, flag, -1, site);
  }
  static __device__ u32 packed(u32 bytes) { return (bytes + 119) / 120 * 128; }
};

}  // namespace

/// Grid: 16 blocks, one per misalignment of the data; threads a multiple of 32.
extern "C" __global__ void packet_matrix_ll16(const PacketMatrix p) { matrix<PacketForm<LL16>>(p, 65); }
extern "C" __global__ void packet_matrix_ll8(const PacketMatrix p) { matrix<PacketForm<LL8>>(p, 65); }
extern "C" __global__ void packet_matrix_lines(const PacketMatrix p) { matrix<LineForm>(p, 500); }

struct PacketExchange {
  MemoryChannel channel;  // dst: the peer's packet buffer; packet_buffer: the local one
  Epochs epochs;          // one area
  u64 bytes;              // of `src`; the buffers hold two halves of twice as many
  u64 target_offset;      // where in `src` the peer's data goes
};

/// One rank of an exchange, any grid, to be launched and replayed any number of times: sends `src` and receives as much.
extern "C" __global__ void packet_exchange(const PacketExchange p) {
  const Epoch epoch = p.epochs.read(0);
  const u32 thread = blockIdx.x * blockDim.x + threadIdx.x, threads = gridDim.x * blockDim.x;
  const u64 half = epoch.parity() * (p.bytes + 7) / 8 * 16;
  p.channel.putPackets(half, 0, p.bytes, thread, threads, epoch.flag());
  // Ignoring the status is right here: the host sees the record, the rest does nothing.
  static_cast<void>(p.channel.unpackPackets(p.target_offset, half, p.bytes, thread, threads, epoch.flag()));
  p.epochs.finish();
}
