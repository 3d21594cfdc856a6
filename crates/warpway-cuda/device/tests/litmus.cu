// Two devices at once: what arrives together, and what a flag says of the data beside it.
#include "warpway/lines.cuh"

using namespace warpway;

struct PacketLitmus {
  void* remote;  // the peer's slots: two of each thread (a line of eight threads), zeros before
  void* local;
  u64 rounds;    // less than 2^32
  u64* wrong;    // payloads that are not those of their flag; zero before
  Site site;
  u32 rank;      // 0 or 1
  u32 reserved;
};

namespace {

/// A number that the receiver knows and that differs from round to round in every byte.
__device__ u32 number(u64 round, u32 thread, u32 rank, u32 word) {
  u32 x = static_cast<u32>(round) * 2654435761u + thread * 40503u + rank * 77777u + word * 1013u;
  x ^= x >> 15, x *= 2246822519u, x ^= x >> 13;
  return x;
}

/// Now and then up to a microsecond.
__device__ void dawdle(u32& random) {
  random = random * 1664525 + 1013904223;
  if (random >> 29 == 0) pause_ns(random >> 19 & 1023);
}

template <class Packet>
__device__ typename Packet::Payload payload(u64 round, u32 thread, u32 rank) {
  if constexpr (sizeof(Packet) == 16) return Vec8{number(round, thread, rank, 0), number(round, thread, rank, 1)};
  else return number(round, thread, rank, 0);
}

/// A slot is written again two rounds later: the peer's packet of the round between says that it has read it.
template <class Packet>
__device__ void packets_in_turns(const PacketLitmus& p) {
  const u32 thread = blockIdx.x * blockDim.x + threadIdx.x;
  u32 random = thread * 2654435761u + p.rank;
  for (u64 round = 1; round <= p.rounds; ++round) {
    const u64 slot = 2 * u64{thread} + round % 2;
    dawdle(random);
    static_cast<Packet*>(p.remote)[slot].write(payload<Packet>(round, thread, p.rank), static_cast<u32>(round));
    typename Packet::Payload data;
    const auto* packet = static_cast<const Packet*>(p.local) + slot;
    if (await_packet(packet, static_cast<u32>(round), data, p.site) != Status::Ok) return;
    if (detail::widen(data) != detail::widen(payload<Packet>(round, thread, 1 - p.rank))) {
      fetch_add<Scope::Device, Order::Relaxed>(p.wrong, u64{1});
    }
  }
}

}  // namespace

/// Any grid, the same on both devices.
extern "C" __global__ void packets_in_turns_ll16(const PacketLitmus p) { packets_in_turns<LL16>(p); }
extern "C" __global__ void packets_in_turns_ll8(const PacketLitmus p) { packets_in_turns<LL8>(p); }

/// The same with lines. Any grid of multiples of 32 threads.
extern "C" __global__ void lines_in_turns(const PacketLitmus p) {
  const u32 thread = blockIdx.x * blockDim.x + threadIdx.x;
  const LineGroup group = LineGroup::of(threadIdx.x);
  u32 random = thread / 8 * 2654435761u + p.rank;
  for (u64 round = 1; round <= p.rounds; ++round) {
    const u64 slot = 2 * u64{thread / 8} + round % 2;
    dawdle(random);
    const auto part = [&](u32 rank) {
      return Vec16{number(round, thread, rank, 0), number(round, thread, rank, 1), number(round, thread, rank, 2),
                   number(round, thread, rank, 3)};
    };
    write_line(static_cast<Line*>(p.remote) + slot, group, part(p.rank), round);
    Vec16 seen;
    if (await_line(static_cast<const Line*>(p.local) + slot, group, round, seen, p.site) != Status::Ok) return;
    const Vec16 expected = part(1 - p.rank);
    // The flag is the second half of the last part.
    const bool whole = seen.x == expected.x && seen.y == expected.y &&
                       (group.part == 7 || (seen.z == expected.z && seen.w == expected.w));
    if (!whole) fetch_add<Scope::Device, Order::Relaxed>(p.wrong, u64{1});
  }
}

struct Whole {
  Line* lines;   // of the reader, one per eight threads, zeros before
  u64 rounds;    // stores to each line
  u64* counts;   // of the reader: looks, those that found another store than the look before, torn ones; zeros before
  u32 writes;    // 1: this device writes, 0: it reads
  u32 reserved;
};

/// Any grid of multiples of 32 threads, the same on both devices. All words of a line are the number of its store. The
/// reader ends when it has seen the last store, or after two seconds.
extern "C" __global__ void lines_arrive_whole(const Whole p) {
  const u32 thread = blockIdx.x * blockDim.x + threadIdx.x;
  const LineGroup group = LineGroup::of(threadIdx.x);
  Vec16* at = &p.lines[thread / 8].parts[group.part];
  if (p.writes != 0) {
    u32 random = thread / 8;
    for (u32 i = 1; i <= p.rounds; ++i) {
      store_volatile(at, Vec16{i, i, i, i});
      if (i % 16 == 0) dawdle(random);
    }
    return;
  }
  const u64 start = clock_ns();
  u64 looks = 0, changes = 0, torn = 0;
  u32 before = 0;
  bool late = false;
  while (before < p.rounds && !group.any(late)) {
    const Vec16 seen = load_volatile(at);
    const u32 first = lanes_read(group.mask, seen.x, lane() & 24);
    ++looks;
    changes += first != before;
    torn += group.any(seen.x != first || seen.y != first || seen.z != first || seen.w != first);
    before = first;
    if (looks % 64 == 0) late = clock_ns() - start > 2000000000ull;
  }
  if (group.part != 0) return;
  fetch_add<Scope::Device, Order::Relaxed>(p.counts + 0, looks);
  fetch_add<Scope::Device, Order::Relaxed>(p.counts + 1, changes);
  fetch_add<Scope::Device, Order::Relaxed>(p.counts + 2, torn);
}
