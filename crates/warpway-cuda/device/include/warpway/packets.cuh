// Packets: data that carries its own flag, so that one store both brings and announces it.
//
// A packet orders nothing but itself. `LL16` and `LL8` rely only on aligned 8 bytes arriving whole. A slot needs
// another flag at each reuse (see `epoch.cuh`); flag 0 means "never written". Packet buffers are aligned to a packet and
// hold nothing else; data may lie anywhere and have any number of bytes: the last packet is padded with zeros, and
// unpacking stores the valid bytes only. After a failure of the communicator reads return zeros. Builds with
// WARPWAY_DEVICE_CHECKS refuse misaligned packets and flag 0.
#pragma once

#include "warpway/control.cuh"
#include "warpway/copy.cuh"

namespace warpway {

/// data1, flag, data2, flag: 8 bytes of payload.
struct alignas(16) LL16 {
  using Payload = Vec8;
  u32 data1, flag1, data2, flag2;

  WARPWAY_DEVICE void write(u32 low, u32 high, u32 flag) {
    store_volatile(reinterpret_cast<Vec16*>(this), Vec16{low, flag, high, flag});
  }
  WARPWAY_DEVICE void write(Payload data, u32 flag) { write(data.x, data.y, flag); }
  WARPWAY_DEVICE void write(u64 data, u32 flag) { write(static_cast<u32>(data), static_cast<u32>(data >> 32), flag); }

  /// One look. True if the packet does not carry the flag yet; `found` is a flag that it carries.
  WARPWAY_DEVICE bool readOnce(u32 flag, Payload& data, u32& found) const {
    const Vec16 seen = load_volatile(reinterpret_cast<const Vec16*>(this));
    data = Payload{seen.x, seen.z};
    found = seen.y == flag ? seen.w : seen.y;
    return seen.y != flag || seen.w != flag;
  }
  WARPWAY_DEVICE bool readOnce(u32 flag, Payload& data) const {
    u32 found;
    return readOnce(flag, data, found);
  }
  /// Waits for the flag; zeros if that fails.
  WARPWAY_DEVICE Payload read(u32 flag, i64 max_spin = -1, const Site& site = {}) const;
  WARPWAY_DEVICE void clear() { store_volatile(reinterpret_cast<Vec16*>(this), Vec16{0, 0, 0, 0}); }
};

/// data, flag: 4 bytes of payload.
struct alignas(8) LL8 {
  using Payload = u32;
  u32 data, flag_word;

  WARPWAY_DEVICE void write(Payload value, u32 flag) { store_volatile(reinterpret_cast<Vec8*>(this), Vec8{value, flag}); }

  /// As that of `LL16`.
  WARPWAY_DEVICE bool readOnce(u32 flag, Payload& value, u32& found) const {
    const Vec8 seen = load_volatile(reinterpret_cast<const Vec8*>(this));
    value = seen.x;
    found = seen.y;
    return seen.y != flag;
  }
  WARPWAY_DEVICE bool readOnce(u32 flag, Payload& value) const {
    u32 found;
    return readOnce(flag, value, found);
  }
  /// As that of `LL16`.
  WARPWAY_DEVICE Payload read(u32 flag, i64 max_spin = -1, const Site& site = {}) const;
  WARPWAY_DEVICE void clear() { store_volatile(reinterpret_cast<Vec8*>(this), Vec8{0, 0}); }
};

static_assert(sizeof(LL16) == 16 && sizeof(LL8) == 8, "packet layouts");

namespace detail {

/// Whether a packet or line of `size` bytes can be at `place` and carry `flag`. Always true without WARPWAY_DEVICE_CHECKS.
WARPWAY_DEVICE bool can_carry(const void* place, u64 size, u64 flag, const Site& site) {
#if defined(WARPWAY_DEVICE_CHECKS)
  const u64 misaligned = address(place) % size;
  if (misaligned != 0) refuse(site, Code::Alignment, size, misaligned, Kind::Packet);
  else if (flag == 0) refuse(site, Code::Misuse, 1, 0, Kind::Packet);
  return misaligned == 0 && flag != 0;
#else
  static_cast<void>(place), static_cast<void>(size), static_cast<void>(flag), static_cast<void>(site);
  return true;
#endif
}

/// The same where there is no site to report to.
WARPWAY_DEVICE void must_carry(const void* place, u64 size, u64 flag) {
  if (!can_carry(place, size, flag, Site{})) WARPWAY_TRAP();
}

}  // namespace detail

/// Waits for a packet. `data` is zero unless the status is `Ok`.
template <class Packet>
WARPWAY_NODISCARD WARPWAY_DEVICE Status await_packet(const Packet* packet, u32 flag, typename Packet::Payload& data,
                                                     const Site& site, Patience patience = {}, u64 epoch = 0) {
  typename Packet::Payload seen{};
  data = seen;
  if (!detail::can_carry(packet, sizeof(Packet), flag, site)) return Status::Aborted;
  const Status status = poll_until(
      Wait{site, Kind::Packet, flag, epoch},
      [&](u64& observed) {
        u32 found;
        const bool missing = packet->readOnce(flag, seen, found);
        observed = found;
        return !missing;
      },
      patience);
  data = status == Status::Ok ? seen : typename Packet::Payload{};
  return status;
}

WARPWAY_DEVICE Vec8 LL16::read(u32 flag, i64 max_spin, const Site& site) const {
  Payload value;
  static_cast<void>(await_packet(this, flag, value, site, {max_spin}));
  return value;
}
WARPWAY_DEVICE u32 LL8::read(u32 flag, i64 max_spin, const Site& site) const {
  Payload value;
  static_cast<void>(await_packet(this, flag, value, site, {max_spin}));
  return value;
}

namespace detail {

/// The first `bytes` bytes at any address, zeros beyond, and the reverse.
template <class Payload>
WARPWAY_DEVICE Payload load_bytes(const u8* src, u64 bytes) {
  u64 gathered = 0;
  WARPWAY_UNROLL
  for (u32 i = 0; i < sizeof(Payload); ++i) {
    if (i < bytes) gathered |= u64{src[i]} << (8 * i);
  }
  if constexpr (sizeof(Payload) == 8) return Payload{static_cast<u32>(gathered), static_cast<u32>(gathered >> 32)};
  else return static_cast<Payload>(gathered);
}

WARPWAY_DEVICE u64 widen(Vec8 v) { return u64{v.y} << 32 | v.x; }
WARPWAY_DEVICE u64 widen(u32 v) { return v; }

template <class Payload>
WARPWAY_DEVICE void store_bytes(u8* dst, Payload payload, u64 bytes) {
  const u64 gathered = widen(payload);
  WARPWAY_UNROLL
  for (u32 i = 0; i < sizeof(Payload); ++i) {
    if (i < bytes) dst[i] = static_cast<u8>(gathered >> (8 * i));
  }
}

}  // namespace detail

/// Packs data. Checked builds end the kernel by a trap if the packets are misaligned or the flag is 0. Collective.
template <class Packet = LL16>
WARPWAY_DEVICE void copyToPackets(void* packets, const void* src, u64 bytes, u32 thread_id, u32 num_threads, u32 flag) {
  using Payload = typename Packet::Payload;
  constexpr u64 size = sizeof(Payload);
  detail::must_carry(packets, sizeof(Packet), flag);
  auto* out = static_cast<Packet*>(packets);
  const u8* from = static_cast<const u8*>(src);
  u64 aligned = detail::address(from) % size == 0 ? bytes / size : 0;
  const auto* payloads = static_cast<const Payload*>(src);
  u64 i = thread_id;
  const u64 step = num_threads;
  for (; i + 3 * step < aligned; i += 4 * step) {
    Payload data[4];
    WARPWAY_UNROLL
    for (u32 k = 0; k < 4; ++k) data[k] = payloads[i + k * step];
    WARPWAY_UNROLL
    for (u32 k = 0; k < 4; ++k) out[i + k * step].write(data[k], flag);
  }
  for (; i < aligned; i += step) out[i].write(payloads[i], flag);
  // The last packet, or all of them where the data is not aligned.
  for (const u64 count = (bytes + size - 1) / size; i < count; i += step) {
    out[i].write(detail::load_bytes<Payload>(from + i * size, bytes - i * size), flag);
  }
}

namespace detail {

/// Waits for packets i, i + step, ... of a thread, at most `Depth` and below `count`, looking at all of them at a time:
/// one after the other, each would take the time of a load.
template <u32 Depth, class Packet>
WARPWAY_NODISCARD WARPWAY_DEVICE Status await_packets(const Packet* in, u64 i, u64 step, u64 count, u32 flag,
                                                      typename Packet::Payload (&data)[Depth], const Site& site,
                                                      Patience patience) {
  return poll_until(
      Wait{site, Kind::Packet, flag},
      [&](u64& observed) {
        u32 found[Depth], missing = 0;
        WARPWAY_UNROLL
        for (u32 k = 0; k < Depth; ++k) {
          // The last one again instead of one beyond: no branch keeps the loads apart.
          const u64 at = i + k * step;
          missing |= u32{in[at < count ? at : count - 1].readOnce(flag, data[k], found[k])} << k;
        }
        WARPWAY_UNROLL
        for (u32 k = Depth; k-- > 0;) {
          if (missing >> k & 1) observed = found[k];
        }
        return missing == 0;
      },
      patience);
}

}  // namespace detail

/// Unpacks data. A thread whose packet does not come stops there; what it has not unpacked stays as it was.
/// Collective.
template <class Packet = LL16>
WARPWAY_NODISCARD WARPWAY_DEVICE Status copyFromPackets(void* dst, const void* packets, u64 bytes, u32 thread_id,
                                                        u32 num_threads, u32 flag, i64 max_spin = -1,
                                                        const Site& site = {}) {
  using Payload = typename Packet::Payload;
  constexpr u64 size = sizeof(Payload);
  const auto* in = static_cast<const Packet*>(packets);
  u8* to = static_cast<u8*>(dst);
  const bool aligned = detail::address(to) % size == 0;
  const auto put = [&](u64 i, Payload data) {
    const u64 left = bytes - i * size;
    if (aligned && left >= size) *reinterpret_cast<Payload*>(to + i * size) = data;
    else detail::store_bytes(to + i * size, data, left);
  };
  const u64 count = bytes / size + (bytes % size != 0), step = num_threads;
  u64 i = thread_id;
  for (; i + step < count; i += near_depth * step) {
    Payload data[near_depth];
    const Status status = detail::await_packets<near_depth>(in, i, step, count, flag, data, site, {max_spin});
    if (status != Status::Ok) return status;
    WARPWAY_UNROLL
    for (u32 k = 0; k < near_depth; ++k) {
      if (i + k * step < count) put(i + k * step, data[k]);
    }
  }
  if (i >= count) return Status::Ok;
  Payload data;
  const Status status = await_packet(in + i, flag, data, site, {max_spin});
  if (status == Status::Ok) put(i, data);
  return status;
}

}  // namespace warpway
