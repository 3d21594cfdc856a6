// 128-byte lines: 120 bytes of data and an 8-byte flag, written by one store instruction of eight lanes.
//
// The exception to the rule of packets: a line relies on all its 128 bytes arriving together. That holds for stores of a
// warp over NVLink from sm_80 on (`device/tests/litmus.cu`). Nothing tests it when a communicator starts: never send lines
// through a port channel or over PCIe. Twice the efficiency of `LL16` (94 % instead of 50 % of the link carries data).
//
// Collective in groups of eight: the number of threads is a multiple of 8, and the eight threads 8k to 8k + 7 are eight
// adjacent lanes of a warp from a multiple of 8 on. Flag 0 means "never written".
#pragma once

#include "warpway/packets.cuh"

namespace warpway {

/// As it lies in memory. The flag is the second half of the last part.
struct alignas(128) Line {
  Vec16 parts[8];
};

static_assert(sizeof(Line) == 128, "line layout");

/// Data in a line.
inline constexpr u64 line_payload = 120;

/// Eight lanes that read and write one line.
struct LineGroup {
  /// The lanes of the group.
  u32 mask;
  /// Which of the eight this is.
  u32 part;

  WARPWAY_DEVICE static LineGroup of(u32 thread_id) {
    return LineGroup{0xffu << (lane() & 24), thread_id % 8};
  }
  /// A vote of the eight.
  WARPWAY_DEVICE bool any(bool value) const { return lanes_any(mask, value); }
};

namespace detail {

/// The bytes of part `part`: 16, of the last one 8. `left` counts the bytes of data from the start of the line.
WARPWAY_DEVICE Vec16 load_part(const u8* line, u32 part, u64 left, bool aligned) {
  const u8* from = line + 16 * part;
  const u64 mine = left > 16 * part ? left - 16 * part : 0;
  const u64 capacity = part == 7 ? 8 : 16;
  Vec16 v{0, 0, 0, 0};
  if (aligned && mine >= capacity) {
    const Vec8 low = *reinterpret_cast<const Vec8*>(from);
    v.x = low.x, v.y = low.y;
    if (part != 7) {
      const Vec8 high = *reinterpret_cast<const Vec8*>(from + 8);
      v.z = high.x, v.w = high.y;
    }
  } else if (mine != 0) {
    const Vec8 low = load_bytes<Vec8>(from, mine);
    v.x = low.x, v.y = low.y;
    if (part != 7 && mine > 8) {
      const Vec8 high = load_bytes<Vec8>(from + 8, mine - 8);
      v.z = high.x, v.w = high.y;
    }
  }
  return v;
}

WARPWAY_DEVICE void store_part(u8* line, u32 part, u64 left, bool aligned, Vec16 v) {
  u8* to = line + 16 * part;
  const u64 mine = left > 16 * part ? left - 16 * part : 0;
  const u64 capacity = part == 7 ? 8 : 16;
  if (aligned && mine >= capacity) {
    *reinterpret_cast<Vec8*>(to) = Vec8{v.x, v.y};
    if (part != 7) *reinterpret_cast<Vec8*>(to + 8) = Vec8{v.z, v.w};
  } else if (mine != 0) {
    store_bytes(to, Vec8{v.x, v.y}, mine);
    if (part != 7 && mine > 8) store_bytes(to + 8, Vec8{v.z, v.w}, mine - 8);
  }
}

}  // namespace detail

/// Writes this lane's part of a line; the eighth lane adds the flag.
WARPWAY_DEVICE void write_line(Line* line, const LineGroup& group, Vec16 part, u64 flag) {
  if (group.part == 7) part.z = static_cast<u32>(flag), part.w = static_cast<u32>(flag >> 32);
  store_volatile(&line->parts[group.part], part);
}

/// Waits for a line and gives each lane its part. The eight get the same status. Zeros unless `Ok`.
WARPWAY_NODISCARD WARPWAY_DEVICE Status await_line(const Line* line, const LineGroup& group, u64 flag, Vec16& part,
                                                   const Site& site, Patience patience = {}) {
  Vec16 seen{0, 0, 0, 0};
  part = seen;
  if (!detail::can_carry(line, sizeof(Line), flag, site)) return Status::Aborted;
  const Status status = poll_until(
      Wait{site, Kind::Packet, flag, flag},
      [&](u64& observed) {
        seen = load_volatile(&line->parts[group.part]);
        observed = u64{seen.w} << 32 | seen.z;
        return !group.any(group.part == 7 && observed != flag);
      },
      patience, group);
  part = status == Status::Ok ? seen : Vec16{0, 0, 0, 0};
  return status;
}

/// Packs data into lines. Checked builds end the kernel as `copyToPackets` does. Collective, see above.
WARPWAY_DEVICE void copyToLines(void* lines, const void* src, u64 bytes, u32 thread_id, u32 num_threads, u64 flag) {
  const LineGroup group = LineGroup::of(thread_id);
  detail::must_carry(lines, sizeof(Line), flag);
  auto* out = static_cast<Line*>(lines);
  const u8* from = static_cast<const u8*>(src);
  const bool aligned = detail::address(from) % 8 == 0;
  for (u64 i = thread_id / 8; i * line_payload < bytes; i += num_threads / 8) {
    const u64 at = i * line_payload;
    write_line(out + i, group, detail::load_part(from + at, group.part, bytes - at, aligned), flag);
  }
}

/// Unpacks data from lines. Collective, see above.
WARPWAY_NODISCARD WARPWAY_DEVICE Status copyFromLines(void* dst, const void* lines, u64 bytes, u32 thread_id,
                                                      u32 num_threads, u64 flag, i64 max_spin = -1,
                                                      const Site& site = {}) {
  const LineGroup group = LineGroup::of(thread_id);
  const auto* in = static_cast<const Line*>(lines);
  u8* to = static_cast<u8*>(dst);
  const bool aligned = detail::address(to) % 8 == 0;
  for (u64 i = thread_id / 8; i * line_payload < bytes; i += num_threads / 8) {
    Vec16 part;
    const Status status = await_line(in + i, group, flag, part, site, {max_spin});
    if (status != Status::Ok) return status;
    const u64 at = i * line_payload;
    detail::store_part(to + at, group.part, bytes - at, aligned, part);
  }
  return Status::Ok;
}

}  // namespace warpway
