// A memory channel: a semaphore and a pair of memories, this rank's and the peer's, reached by plain stores and loads.
//
// Collective methods are called by `num_threads` threads, each with its own `thread_id`. A put or get has no fence: a
// block barrier and `signal` order it. Puts and signals do nothing once the communicator has failed. Zero
// bytes are no operation. Offsets and sizes are in bytes. Builds with WARPWAY_DEVICE_CHECKS check ranges, packets and
// that the handle is not stale; in every build a missing packet buffer is an error, whatever the number of bytes.
#pragma once

#include "warpway/copy.cuh"
#include "warpway/packets.cuh"
#include "warpway/semaphores.cuh"

namespace warpway {

namespace detail {

template <bool>
struct If {};
template <>
struct If<true> {
  using Type = int;
};

template <class T>
inline constexpr bool is_signed = static_cast<T>(-1) < static_cast<T>(1);
template <class T>
inline constexpr bool is_u32 = sizeof(T) == 4 && !is_signed<T>;

/// Whether the third and the last of six arguments of `unpackPackets` are a thread and a bound, not bytes and a flag.
template <class Third, class Last>
inline constexpr bool is_bound = (sizeof(Last) == 8 && is_signed<Last>) || (is_u32<Third> && !is_u32<Last>);

}  // namespace detail

struct MemoryChannel {
  MemoryDevice2DeviceSemaphore semaphore;
  /// The peer's memory.
  void* dst;
  u64 dst_bytes;
  /// The local memory.
  void* src;
  u64 src_bytes;
  /// Where the peer's packets arrive, local; may be null.
  void* packet_buffer;
  u64 packet_bytes;
  /// Differs from `generation` once the channel is gone. May be null.
  const u64* liveness;
  u64 generation;

  /// Element `index` of the peer's memory. Any thread.
  template <class T>
  WARPWAY_DEVICE T read(u64 index) const {
    return warpway::read(static_cast<const T*>(dst), index);
  }
  template <class T>
  WARPWAY_DEVICE void write(u64 index, const T& value) const {
    warpway::write(static_cast<T*>(dst), index, value);
  }

  /// Local memory to the peer's. `Align` and `CopyRemainder` as those of `copy`. Collective.
  template <u32 Align = 16, bool CopyRemainder = true, Guard G = Guard::Poison>
  WARPWAY_DEVICE void put(u64 target_offset, u64 origin_offset, u64 bytes, u32 thread_id, u32 num_threads) const {
    if (!is_running<G>(semaphore.site) || !in_range(target_offset, bytes, dst_bytes) ||
        !in_range(origin_offset, bytes, src_bytes)) return;
    copy<Align, CopyRemainder>(at(dst, target_offset), at(src, origin_offset), bytes, thread_id, num_threads);
  }
  template <u32 Align = 16, bool CopyRemainder = true, Guard G = Guard::Poison>
  WARPWAY_DEVICE void put(u64 offset, u64 bytes, u32 thread_id, u32 num_threads) const {
    put<Align, CopyRemainder, G>(offset, offset, bytes, thread_id, num_threads);
  }

  /// The peer's memory to local memory. Collective.
  template <u32 Align = 16, bool CopyRemainder = true, Guard G = Guard::Poison>
  WARPWAY_DEVICE void get(u64 target_offset, u64 origin_offset, u64 bytes, u32 thread_id, u32 num_threads) const {
    if (!is_running<G>(semaphore.site) || !in_range(target_offset, bytes, src_bytes) ||
        !in_range(origin_offset, bytes, dst_bytes)) return;
    copy<Align, CopyRemainder, far_depth>(at(src, target_offset), at(dst, origin_offset), bytes, thread_id, num_threads);
  }
  template <u32 Align = 16, bool CopyRemainder = true, Guard G = Guard::Poison>
  WARPWAY_DEVICE void get(u64 offset, u64 bytes, u32 thread_id, u32 num_threads) const {
    get<Align, CopyRemainder, G>(offset, offset, bytes, thread_id, num_threads);
  }

  /// Local data as packets into the peer's memory. `target_offset` counts bytes of packets, twice those of
  /// data. Collective.
  template <class Packet = LL16, Guard G = Guard::Poison>
  WARPWAY_DEVICE void putPackets(u64 target_offset, u64 origin_offset, u64 origin_bytes, u32 thread_id, u32 num_threads,
                                 u32 flag) const {
    if (!is_running<G>(semaphore.site) || !in_range(target_offset, packed<Packet>(origin_bytes), dst_bytes) ||
        !in_range(origin_offset, origin_bytes, src_bytes) ||
        !detail::can_carry(at(dst, target_offset), sizeof(Packet), flag, semaphore.site)) return;
    copyToPackets<Packet>(at(dst, target_offset), at(src, origin_offset), origin_bytes, thread_id, num_threads, flag);
  }
  /// As above with one offset for both sides.
  template <class Packet = LL16, Guard G = Guard::Poison>
  WARPWAY_DEVICE void putPackets(u64 offset, u64 bytes, u32 thread_id, u32 num_threads, u32 flag) const {
    putPackets<Packet, G>(offset, offset, bytes, thread_id, num_threads, flag);
  }

  /// The payload of packet `index` of the local packet buffer; zeros if it does not come. Any thread.
  template <class Packet = LL16>
  WARPWAY_DEVICE typename Packet::Payload unpackPacket(u64 index, u32 flag, i64 max_spin = -1) const {
    typename Packet::Payload data{};
    if (has_packets() && in_range(index * sizeof(Packet), sizeof(Packet), packet_bytes)) {
      static_cast<void>(await_packet(static_cast<const Packet*>(packet_buffer) + index, flag, data, semaphore.site, {max_spin}));
    }
    return data;
  }

  /// Packets of the local buffer into local memory. Each thread has the status of its own packets. Collective.
  template <class Packet = LL16>
  WARPWAY_NODISCARD WARPWAY_DEVICE Status unpackPackets(u64 target_offset, u64 origin_offset, u64 origin_bytes,
                                                        u32 thread_id, u32 num_threads, u32 flag,
                                                        i64 max_spin = -1) const {
    if (!has_packets() || !in_range(origin_offset, packed<Packet>(origin_bytes), packet_bytes) ||
        !in_range(target_offset, origin_bytes, src_bytes)) return Status::Aborted;
    return copyFromPackets<Packet>(at(src, target_offset), at(packet_buffer, origin_offset), origin_bytes, thread_id,
                                   num_threads, flag, max_spin, semaphore.site);
  }
  /// As above with one offset for both sides.
  template <class Packet = LL16>
  WARPWAY_NODISCARD WARPWAY_DEVICE Status unpackPackets(u64 offset, u64 bytes, u32 thread_id, u32 num_threads,
                                                        u32 flag) const {
    return unpackPackets<Packet>(offset, offset, bytes, thread_id, num_threads, flag);
  }
  /// With a bound as well. Six arguments are these if the last is of type i64, or if the third is a u32 and the last is none;
  /// else they are those of the form with two offsets.
  template <class Packet = LL16, class Thread, class Spin, typename detail::If<detail::is_bound<Thread, Spin>>::Type = 0>
  WARPWAY_NODISCARD WARPWAY_DEVICE Status unpackPackets(u64 offset, u64 bytes, Thread thread_id, u32 num_threads, u32 flag,
                                                        Spin max_spin) const {
    return unpackPackets<Packet>(offset, offset, bytes, static_cast<u32>(thread_id), num_threads, flag,
                                 static_cast<i64>(max_spin));
  }

  // The semaphore's, each by one thread.
  template <Guard G = Guard::Poison>
  WARPWAY_DEVICE void signal() const {
    semaphore.signal<G>();
  }
  template <Guard G = Guard::Poison>
  WARPWAY_DEVICE void relaxedSignal() const {
    semaphore.relaxedSignal<G>();
  }
  WARPWAY_DEVICE bool poll() const { return semaphore.poll(); }
  WARPWAY_NODISCARD WARPWAY_DEVICE Status wait(i64 max_spin = -1) const { return semaphore.wait(max_spin); }
  WARPWAY_NODISCARD WARPWAY_DEVICE Status relaxedWait(i64 max_spin = -1) const { return semaphore.relaxedWait(max_spin); }

 private:
  WARPWAY_DEVICE static u8* at(void* memory, u64 offset) { return static_cast<u8*>(memory) + offset; }

  template <class Packet>
  WARPWAY_DEVICE static u64 packed(u64 bytes) {
    constexpr u64 size = sizeof(typename Packet::Payload);
    return (bytes / size + (bytes % size != 0)) * sizeof(Packet);
  }

  WARPWAY_DEVICE bool has_packets() const {
    if (packet_buffer != nullptr) return true;
    refuse(semaphore.site, Code::Misuse, 1, 0);
    return false;
  }

  /// Always true without WARPWAY_DEVICE_CHECKS.
  WARPWAY_DEVICE bool in_range(u64 offset, u64 bytes, u64 size) const {
#if defined(WARPWAY_DEVICE_CHECKS)
    // Anew each time: it may change while the kernel runs.
    const u64 alive = liveness != nullptr ? load<Scope::System, Order::Relaxed>(liveness) : generation;
    if (alive != generation) {
      refuse(semaphore.site, Code::StaleHandle, generation, alive);
      return false;
    }
    if (offset > size || bytes > size - offset) {
      refuse(semaphore.site, Code::Misuse, size, offset + bytes);
      return false;
    }
#else
    static_cast<void>(offset), static_cast<void>(bytes), static_cast<void>(size);
#endif
    return true;
  }
};

}  // namespace warpway
