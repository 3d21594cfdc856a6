// Steps of compiled plans: what the kernels are made of that the plan compiler writes (`src/plan` of this crate).
//
// Every call is made by all threads of a block, and orders nothing but what it says: the compiler puts block barriers where the
// plan has them. A thread whose packet does not come leaves the step; from then on all waits end at once, and the block leaves at
// its next barrier. What it has written is undefined then, and the communicator has failed.
#pragma once

#include "warpway/device_semaphore.cuh"
#include "warpway/epoch.cuh"
#include "warpway/fold.cuh"
#include "warpway/grid.cuh"
#include "warpway/lines.cuh"
#include "warpway/packets.cuh"
#include "warpway/semaphores.cuh"

namespace warpway {
namespace plan {

/// What an epoch counter grows by in a launch. Each block adds its share when it has finished: the sum is whole when the last one
/// has, and until then the upper bits are those of the launch under way. Nobody waits for the answer of an addition.
inline constexpr u32 epoch_bits = 20;

/// What a launch hands over, in constant memory. The host lays it out as words.
template <u32 Bases, u32 Words>
struct Launch {
  Control* control;
  /// Counters of the areas of packets and of raw scratch; null if there is none.
  u64* packet_epoch;
  u64* raw_epoch;
  const MemoryDevice2DeviceSemaphore* channels;
  DeviceSyncer* barriers;
  DeviceSemaphore* semaphores;
  /// Pieces that are no function of the block, see `Listed`.
  const u64* listed;
  /// Where buffers begin.
  u64 bases[Bases];
  /// What is added in odd epochs.
  u64 halves[Bases];
  /// Pieces that are functions of the block, see `fitted`, and iterations of loops.
  u64 words[Words];
};

/// The epoch of an area, for any thread of a block that has not called `finish_epoch`.
WARPWAY_DEVICE Epoch read_epoch(const u64* counter) {
  return Epoch{load<Scope::Device, Order::Relaxed>(counter) >> epoch_bits};
}

/// The block's share of the launch. One thread, after a barrier behind the last `read_epoch` of its block.
WARPWAY_DEVICE void finish_epoch(u64* counter, u32 blocks) {
  const u64 whole = u64{1} << epoch_bits;
  const u64 share = whole / blocks + (block_in_grid() == 0 ? whole % blocks : 0);
  fetch_add<Scope::Device, Order::Relaxed>(counter, share);
}

/// A run of bytes that lies in one piece in each of N operands, sources first.
template <u32 N>
struct Piece {
  /// Where it begins in the block's share, for slices.
  u64 position;
  /// Of data.
  u64 bytes;
  /// Of data that written packets cover, with zeros beyond `bytes`.
  u64 cover;
  /// Of data, in each operand's buffer.
  u64 offsets[N];

  /// What a slice of a pipeline has of it: nothing if `cover` is 0.
  WARPWAY_DEVICE Piece slice(u64 start, u64 length) const {
    const u64 own_end = position + cover, slice_end = start + length;
    const u64 from = start > position ? start : position, end = slice_end < own_end ? slice_end : own_end;
    Piece part{from, 0, 0, {}};
    if (from >= end) return part;
    const u64 skipped = from - position;
    part.cover = end - from;
    const u64 left = bytes > skipped ? bytes - skipped : 0;
    part.bytes = left < part.cover ? left : part.cover;
    WARPWAY_UNROLL
    for (u32 n = 0; n < N; ++n) part.offsets[n] = offsets[n] + skipped;
    return part;
  }
};

/// Words of the row of a fitted piece.
template <u32 N>
inline constexpr u32 row_words = 5 + 3 * N;

/// The piece of block `member` of `members` that do the same. The row: how many members have the longer share; bytes of those,
/// of the others, of the last member; what the last one covers; for each operand its first offset, the step from member to member,
/// and what is added once for each longer share before.
template <u32 N>
WARPWAY_DEVICE Piece<N> fitted(const u64* row, u32 member, u32 members) {
  const u64 longer = row[0];
  const bool last = member + 1 == members;
  const u64 bytes = last ? row[3] : member < longer ? row[1] : row[2];
  Piece<N> piece{0, bytes, last ? row[4] : bytes, {}};
  const u64 before = member < longer ? member : longer;
  WARPWAY_UNROLL
  for (u32 n = 0; n < N; ++n) piece.offsets[n] = row[5 + 3 * n] + member * row[6 + 3 * n] + before * row[7 + 3 * n];
  return piece;
}

/// Pieces of one step of one block, as a list in device memory: at `2 * entry` the word where the first one begins, and how many
/// there are; each is position, bytes, cover and its offsets.
template <u32 N, class Body>
WARPWAY_DEVICE void each_listed(const u64* listed, u64 entry, Body&& body) {
  const u64* at = listed + listed[2 * entry];
  for (u64 left = listed[2 * entry + 1]; left != 0; --left, at += 3 + N) {
    Piece<N> piece{at[0], at[1], at[2], {}};
    WARPWAY_UNROLL
    for (u32 n = 0; n < N; ++n) piece.offsets[n] = at[3 + n];
    body(piece);
  }
}

template <class T>
WARPWAY_DEVICE T* place(u64 base, u64 offset) {
  return reinterpret_cast<T*>(base + offset);
}

/// The packets of data from byte `offset` on.
template <class Packet>
WARPWAY_DEVICE Packet* packets_at(u64 base, u64 offset) {
  return reinterpret_cast<Packet*>(base + 2 * offset);
}

/// Raw to raw.
WARPWAY_DEVICE void copy(u64 dst, u64 src, u64 bytes) {
  warpway::copy(place<void>(dst, 0), place<const void>(src, 0), bytes, thread_in_block(), threads_per_block());
}

/// Raw to packets; whatever `cover` has beyond the data gets zeros.
template <class Packet>
WARPWAY_DEVICE void pack(Packet* to, u64 src, u64 bytes, u64 cover, u32 flag) {
  constexpr u64 size = sizeof(typename Packet::Payload);
  copyToPackets<Packet>(to, place<const void>(src, 0), bytes, thread_in_block(), threads_per_block(), flag);
  for (u64 i = (bytes + size - 1) / size + thread_in_block(); i * size < cover; i += threads_per_block()) {
    to[i].write(typename Packet::Payload{}, flag);
  }
}

/// Packets to raw. As all that waits for packets: false for a thread whose packet has not come.
template <class Packet>
WARPWAY_NODISCARD WARPWAY_DEVICE bool unpack(u64 dst, const Packet* from, u64 bytes, u32 flag, const Site& site) {
  return copyFromPackets<Packet>(place<void>(dst, 0), from, bytes, thread_in_block(), threads_per_block(), flag, -1,
                                 site) == Status::Ok;
}

/// Packets to packets: each is sent on when it is there.
template <class Packet, u32 M>
WARPWAY_NODISCARD WARPWAY_DEVICE bool forward(Packet* const (&to)[M], const Packet* from, u64 bytes, u64 cover, u32 flag,
                                              const Site& site) {
  constexpr u64 size = sizeof(typename Packet::Payload);
  for (u64 i = thread_in_block(); i * size < cover; i += threads_per_block()) {
    typename Packet::Payload data{};
    if (i * size < bytes && await_packet(from + i, flag, data, site) != Status::Ok) return false;
    WARPWAY_UNROLL
    for (u32 m = 0; m < M; ++m) to[m][i].write(data, flag);
  }
  return true;
}

/// Waits for packets and leaves them where they are.
template <class Packet>
WARPWAY_NODISCARD WARPWAY_DEVICE bool await_all(const Packet* from, u64 bytes, u32 flag, const Site& site) {
  constexpr u64 size = sizeof(typename Packet::Payload);
  for (u64 i = thread_in_block(); i * size < bytes; i += threads_per_block()) {
    typename Packet::Payload data;
    if (await_packet(from + i, flag, data, site) != Status::Ok) return false;
  }
  return true;
}

namespace detail {

WARPWAY_DEVICE Vec16 widened(Vec8 v) { return Vec16{v.x, v.y, 0, 0}; }
WARPWAY_DEVICE Vec16 widened(u32 v) { return Vec16{v, 0, 0, 0}; }
WARPWAY_DEVICE Vec16 widened(Vec16 v) { return v; }

template <class Payload>
WARPWAY_DEVICE Payload narrowed_to(Vec16 v) {
  if constexpr (sizeof(Payload) == 8) return Payload{v.x, v.y};
  else return v.x;
}

template <class Payload>
WARPWAY_DEVICE Payload load_payload(u64 src, u64 left) {
  if (left >= sizeof(Payload) && src % sizeof(Payload) == 0) return *place<const Payload>(src, 0);
  return warpway::detail::load_bytes<Payload>(place<const u8>(src, 0), left);
}
template <class Payload>
WARPWAY_DEVICE void store_payload(u64 dst, Payload data, u64 left) {
  if (left >= sizeof(Payload) && dst % sizeof(Payload) == 0) *place<Payload>(dst, 0) = data;
  else warpway::detail::store_bytes(place<u8>(dst, 0), data, left);
}

}  // namespace detail

/// What is known of a fold when it is compiled. Bit n of `PacketSources` says that source n holds packets, of `Inputs` that it
/// is what the user gave, bit m of `PacketResults` that destination m gets packets.
template <class F, ReduceOp O, u32 N, u32 M, u32 PacketSources, u32 PacketResults, u32 Inputs>
struct Shape {
  using Format = F;
  static constexpr ReduceOp op = O;
  static constexpr u32 sources = N;
  static constexpr u32 results = M;
  WARPWAY_DEVICE static constexpr bool packed(u32 source) { return PacketSources >> source & 1; }
  WARPWAY_DEVICE static constexpr bool packs(u32 result) { return PacketResults >> result & 1; }
  WARPWAY_DEVICE static constexpr bool input(u32 source) { return Inputs >> source & 1; }
  static constexpr bool raw_only = PacketSources == 0 && PacketResults == 0;
  WARPWAY_DEVICE static constexpr u32 count_packed() {
    u32 count = 0;
    for (u32 n = 0; n < N; ++n) count += packed(n);
    return count;
  }
};

namespace detail {

/// What the sources of a fold are multiplied by: one division for all elements.
template <class S>
struct Factors {
  using One = Fold<typename S::Format, S::op>;
  typename S::Format::Value scaled, plain;

  WARPWAY_DEVICE explicit Factors(const FoldSetting& setting)
      : scaled(One::factor(true, setting)), plain(One::factor(false, setting)) {}
  WARPWAY_DEVICE typename S::Format::Value of(u32 source) const { return S::input(source) ? scaled : plain; }
};

/// Element `k` of what all sources gave, folded.
template <class S, u32 Depth, class Payload>
WARPWAY_DEVICE Vec16 folded(const Payload (&data)[S::sources][Depth], u32 k, const Factors<S>& factors,
                            const FoldSetting& setting) {
  VectorFold<typename S::Format, S::op> values;
  values.enter(widened(data[0][k]), factors.of(0));
  WARPWAY_UNROLL
  for (u32 n = 1; n < S::sources; ++n) values.join(widened(data[n][k]), factors.of(n));
  return values.leave(setting);
}

}  // namespace detail

/// What the flags of an epoch's packets are.
template <class Packet>
WARPWAY_DEVICE auto flag_of(Epoch epoch) {
  if constexpr (warpway::detail::same<Packet, Line>) return epoch.line_flag();
  else return epoch.flag();
}

/// Folds raw data and packets into raw data and packets. `at` are the addresses of the piece in the sources and then in the
/// destinations.
template <class S, class Packet>
WARPWAY_NODISCARD WARPWAY_DEVICE bool fold_packets(const u64 (&at)[S::sources + S::results], u64 bytes, u64 cover, u32 flag,
                                                   const FoldSetting& setting, const Site& site) {
  using Payload = typename Packet::Payload;
  constexpr u64 size = sizeof(Payload);
  static_assert(size % sizeof(typename S::Format::Bits) == 0, "an element lies in one packet");
  // All packets of a round are looked at together: one after the other, each would take the time of a load.
  constexpr u32 packed = S::count_packed();
  constexpr u32 depth = packed <= 1 ? 4 : packed <= 2 ? 2 : 1;
  const detail::Factors<S> factors(setting);
  const u64 step = threads_per_block(), count = (bytes + size - 1) / size;
  for (u64 first = thread_in_block(); first < count; first += depth * step) {
    Payload data[S::sources][depth];
    WARPWAY_UNROLL
    for (u32 n = 0; n < S::sources; ++n) {
      if (S::packed(n)) continue;
      WARPWAY_UNROLL
      for (u32 k = 0; k < depth; ++k) {
        const u64 i = first + k * step;
        if (i < count) data[n][k] = detail::load_payload<Payload>(at[n] + i * size, bytes - i * size);
      }
    }
    const Status status = poll_until(Wait{site, Kind::Packet, flag}, [&](u64& observed) {
      u32 missing = 0;
      WARPWAY_UNROLL
      for (u32 n = 0; n < S::sources; ++n) {
        if (!S::packed(n)) continue;
        WARPWAY_UNROLL
        for (u32 k = 0; k < depth; ++k) {
          // The first one again instead of one beyond: no branch keeps the loads apart.
          const u64 i = first + k * step;
          u32 found;
          const auto* packet = place<const Packet>(at[n], sizeof(Packet) * (i < count ? i : first));
          const bool absent = packet->readOnce(flag, data[n][k], found);
          if (absent) observed = found;
          missing |= absent;
        }
      }
      return missing == 0;
    });
    if (status != Status::Ok) return false;
    WARPWAY_UNROLL
    for (u32 k = 0; k < depth; ++k) {
      const u64 i = first + k * step;
      if (i >= count) break;
      const Vec16 folded = detail::folded<S>(data, k, factors, setting);
      const Payload result = detail::narrowed_to<Payload>(folded);
      const u64 left = bytes - i * size;
      WARPWAY_UNROLL
      for (u32 m = 0; m < S::results; ++m) {
        const u64 to = at[S::sources + m];
        if (S::packs(m)) place<Packet>(to, sizeof(Packet) * i)->write(result, flag);
        else detail::store_payload(to + i * size, result, left);
      }
    }
  }
  for (u64 i = count + thread_in_block(); i * size < cover; i += step) {
    WARPWAY_UNROLL
    for (u32 m = 0; m < S::results; ++m) {
      if (S::packs(m)) place<Packet>(at[S::sources + m], sizeof(Packet) * i)->write(Payload{}, flag);
    }
  }
  return true;
}

namespace detail {

/// Vectors first, first + step, ..., `Depth` of them: all loads before the first store.
template <class S, u32 Depth>
WARPWAY_DEVICE void fold_round(const u64 (&at)[S::sources + S::results], u64 first, u64 step,
                               const Factors<S>& factors, const FoldSetting& setting) {
  Vec16 data[S::sources][Depth];
  WARPWAY_UNROLL
  for (u32 n = 0; n < S::sources; ++n) {
    WARPWAY_UNROLL
    for (u32 k = 0; k < Depth; ++k) data[n][k] = place<const Vec16>(at[n], 0)[first + k * step];
  }
  WARPWAY_UNROLL
  for (u32 k = 0; k < Depth; ++k) {
    const Vec16 result = folded<S>(data, k, factors, setting);
    WARPWAY_UNROLL
    for (u32 m = 0; m < S::results; ++m) place<Vec16>(at[S::sources + m], 0)[first + k * step] = result;
  }
}

}  // namespace detail

/// Folds raw data into raw data. A destination may be exactly a source.
template <class S>
WARPWAY_DEVICE void fold_raw(const u64 (&at)[S::sources + S::results], u64 bytes, const FoldSetting& setting) {
  static_assert(S::raw_only, "see fold_packets");
  using One = Fold<typename S::Format, S::op>;
  using Bits = typename S::Format::Bits;
  const detail::Factors<S> factors(setting);
  u64 misaligned = 0;
  WARPWAY_UNROLL
  for (u32 n = 0; n < S::sources + S::results; ++n) misaligned |= at[n];
  const u64 vectors = misaligned % 16 == 0 ? bytes / 16 : 0;
  constexpr u32 depth = S::sources <= 2 ? 4 : S::sources <= 4 ? 2 : 1;
  const u64 step = threads_per_block();
  u64 i = thread_in_block();
  WARPWAY_ROLLED
  for (; i + (depth - 1) * step < vectors; i += depth * step) detail::fold_round<S, depth>(at, i, step, factors, setting);
  WARPWAY_ROLLED
  for (; i < vectors; i += step) detail::fold_round<S, 1>(at, i, step, factors, setting);
  const u64 count = bytes / sizeof(Bits);
  for (u64 e = vectors * (16 / sizeof(Bits)) + thread_in_block(); e < count; e += step) {
    auto value = One::enter(place<const Bits>(at[0], 0)[e], factors.of(0));
    WARPWAY_UNROLL
    for (u32 n = 1; n < S::sources; ++n) {
      value = One::join(value, One::enter(place<const Bits>(at[n], 0)[e], factors.of(n)));
    }
    const Bits result = One::leave(value, setting);
    WARPWAY_UNROLL
    for (u32 m = 0; m < S::results; ++m) place<Bits>(at[S::sources + m], 0)[e] = result;
  }
}

// The same with lines. Groups of eight lanes take lines k, k + threads / 8, ...; blocks have a multiple of eight threads. Writer and
// reader divide the data into the same pieces: line k holds bytes 120 k to 120 k + 119 of its piece, and a piece of `cover` bytes, a
// multiple of 64, has room for its lines in twice as many bytes.

/// Raw to lines.
WARPWAY_DEVICE void pack(Line* to, u64 src, u64 bytes, u64 cover, u64 flag) {
  const u32 thread = thread_in_block(), threads = threads_per_block();
  copyToLines(to, place<const void>(src, 0), bytes, thread, threads, flag);
  const LineGroup group = LineGroup::of(thread);
  for (u64 i = (bytes + line_payload - 1) / line_payload + thread / 8; i * line_payload < cover; i += threads / 8) {
    write_line(to + i, group, Vec16{0, 0, 0, 0}, flag);
  }
}
template <class Packet>
WARPWAY_DEVICE void pack(Line* to, u64 src, u64 bytes, u64 cover, u64 flag) {
  pack(to, src, bytes, cover, flag);
}

/// Lines to raw.
template <class Packet>
WARPWAY_NODISCARD WARPWAY_DEVICE bool unpack(u64 dst, const Line* from, u64 bytes, u64 flag, const Site& site) {
  return copyFromLines(place<void>(dst, 0), from, bytes, thread_in_block(), threads_per_block(), flag, -1, site) ==
         Status::Ok;
}

/// Lines to lines.
template <u32 M>
WARPWAY_NODISCARD WARPWAY_DEVICE bool forward(Line* const (&to)[M], const Line* from, u64 bytes, u64 cover, u64 flag,
                                              const Site& site) {
  const LineGroup group = LineGroup::of(thread_in_block());
  for (u64 i = thread_in_block() / 8; i * line_payload < cover; i += threads_per_block() / 8) {
    Vec16 part{0, 0, 0, 0};
    if (i * line_payload < bytes && await_line(from + i, group, flag, part, site) != Status::Ok) return false;
    WARPWAY_UNROLL
    for (u32 m = 0; m < M; ++m) write_line(to[m] + i, group, part, flag);
  }
  return true;
}

/// Waits for lines and leaves them where they are.
template <class Packet>
WARPWAY_NODISCARD WARPWAY_DEVICE bool await_all(const Line* from, u64 bytes, u64 flag, const Site& site) {
  const LineGroup group = LineGroup::of(thread_in_block());
  for (u64 i = thread_in_block() / 8; i * line_payload < bytes; i += threads_per_block() / 8) {
    Vec16 part;
    if (await_line(from + i, group, flag, part, site) != Status::Ok) return false;
  }
  return true;
}

/// Folds raw data and lines into raw data and lines.
template <class S>
WARPWAY_NODISCARD WARPWAY_DEVICE bool fold_lines(const u64 (&at)[S::sources + S::results], u64 bytes, u64 cover, u64 flag,
                                                 const FoldSetting& setting, const Site& site) {
  // Lines of a round: what is under way is worth a load's time, for each source.
  constexpr u32 depth = S::count_packed() <= 1 ? 2 : 1;
  const detail::Factors<S> factors(setting);
  const LineGroup group = LineGroup::of(thread_in_block());
  u64 raw_address = 0;
  WARPWAY_UNROLL
  for (u32 n = 0; n < S::sources; ++n) raw_address |= S::packed(n) ? 0 : at[n];
  WARPWAY_UNROLL
  for (u32 m = 0; m < S::results; ++m) raw_address |= S::packs(m) ? 0 : at[S::sources + m];
  const bool aligned = raw_address % 8 == 0;
  const u64 step = threads_per_block() / 8, count = (bytes + line_payload - 1) / line_payload;
  for (u64 first = thread_in_block() / 8; first < count; first += depth * step) {
    Vec16 data[S::sources][depth];
    WARPWAY_UNROLL
    for (u32 n = 0; n < S::sources; ++n) {
      if (S::packed(n)) continue;
      WARPWAY_UNROLL
      for (u32 k = 0; k < depth; ++k) {
        const u64 byte = (first + k * step) * line_payload;
        data[n][k] = Vec16{0, 0, 0, 0};
        if (byte < bytes) {
          data[n][k] = warpway::detail::load_part(place<const u8>(at[n], byte), group.part, bytes - byte, aligned);
        }
      }
    }
    const Status status = poll_until(
        Wait{site, Kind::Packet, flag},
        [&](u64& observed) {
          bool missing = false;
          WARPWAY_UNROLL
          for (u32 n = 0; n < S::sources; ++n) {
            if (!S::packed(n)) continue;
            WARPWAY_UNROLL
            for (u32 k = 0; k < depth; ++k) {
              // The first one again instead of one beyond: no branch keeps the loads apart.
              const u64 i = first + k * step;
              const auto* line = place<const Line>(at[n], sizeof(Line) * (i < count ? i : first));
              const Vec16 seen = load_volatile(&line->parts[group.part]);
              const u64 found = u64{seen.w} << 32 | seen.z;
              if (group.part == 7 && found != flag) missing = true, observed = found;
              data[n][k] = seen;
            }
          }
          return !group.any(missing);
        },
        {}, group);
    if (status != Status::Ok) return false;
    WARPWAY_UNROLL
    for (u32 k = 0; k < depth; ++k) {
      const u64 i = first + k * step, byte = i * line_payload;
      if (i >= count) break;
      const Vec16 result = detail::folded<S>(data, k, factors, setting);
      WARPWAY_UNROLL
      for (u32 m = 0; m < S::results; ++m) {
        const u64 to = at[S::sources + m];
        if (S::packs(m)) write_line(place<Line>(to, sizeof(Line) * i), group, result, flag);
        else warpway::detail::store_part(place<u8>(to, byte), group.part, bytes - byte, aligned, result);
      }
    }
  }
  for (u64 i = count + thread_in_block() / 8; i * line_payload < cover; i += step) {
    WARPWAY_UNROLL
    for (u32 m = 0; m < S::results; ++m) {
      if (S::packs(m)) write_line(place<Line>(at[S::sources + m], sizeof(Line) * i), group, Vec16{0, 0, 0, 0}, flag);
    }
  }
  return true;
}

}  // namespace plan
}  // namespace warpway
