// The stand-in of `platform_bulk.cuh` for host compilers: an engine per thread that does as little as it may.
//
// Stores read shared memory only when a wait for their source makes them, and reach their destination only when a wait for
// that does. Loads happen at once or when their barrier is tested, as a test says, so that a tile which is used too early
// holds other bytes. What a fence between ordinary accesses and the engine's is missing for, nobody sees here.
#pragma once

#include <deque>
#include <vector>

#include "warpway/formats.cuh"

namespace warpway {

/// When loads are carried out.
enum class HostLoads { AtOnce, WhenTested, Never };
inline HostLoads host_loads = HostLoads::AtOnce;

namespace detail {

/// What a barrier's word holds.
struct HostBarrier {
  u32 arrivals, missing, phase;
  i32 bytes;

  static HostBarrier of(u64 word) {
    return {static_cast<u32>(word & 0xfffff), static_cast<u32>(word >> 20 & 0xfffff), static_cast<u32>(word >> 40 & 1),
            static_cast<i32>(static_cast<i64>(word) >> 41)};
  }
  u64 word() const {
    return static_cast<u64>(static_cast<i64>(bytes)) << 41 | u64{phase} << 40 | u64{missing} << 20 | arrivals;
  }
};

/// The barrier after some arrivals, and after bytes were announced (positive) or have come (negative).
inline void move_barrier(u64* word, u32 arrivals, i32 bytes) {
  HostBarrier b = HostBarrier::of(*word);
  if (arrivals > b.missing) WARPWAY_TRAP();
  b.missing -= arrivals, b.bytes += bytes;
  if (b.missing == 0 && b.bytes == 0) b.missing = b.arrivals, b.phase ^= 1;
  *word = b.word();
}

struct HostLoad {
  void* to;
  const void* from;
  u32 bytes;
  u64* barrier;
};

struct HostStore {
  u8* to;
  const u8* from;
  u32 bytes;
  /// Of elements, null for a copy.
  void (*add)(u8* to, const u8* from);
  u32 element;
  /// What was read from shared memory.
  std::vector<u8> data;

  void read() {
    if (data.empty()) data.assign(from, from + bytes);
  }
  void write() {
    read();
    if (add == nullptr) std::memcpy(to, data.data(), bytes);
    else for (u32 i = 0; i < bytes; i += element) add(to + i, data.data() + i);
  }
};

struct HostEngine {
  std::vector<HostLoad> loads;
  /// Oldest first; the last one is open.
  std::deque<std::vector<HostStore>> groups = std::deque<std::vector<HostStore>>(1);

  void load(const HostLoad& l) {
    std::memcpy(l.to, l.from, l.bytes);
    move_barrier(l.barrier, 0, -static_cast<i32>(l.bytes));
  }
  /// The loads of a barrier.
  void load_for(const u64* barrier) {
    std::vector<HostLoad> others;
    for (const HostLoad& l : loads) {
      if (l.barrier == barrier) load(l);
      else others.push_back(l);
    }
    loads = others;
  }
};
inline thread_local HostEngine host_engine;

template <class Format>
void add_element(u8* to, const u8* from) {
  typename Format::Bits a, b;
  std::memcpy(&a, to, sizeof a), std::memcpy(&b, from, sizeof b);
  if constexpr (same<Format, U32>) a += b;
  else a = Format::encode(add(Format::decode(a), Format::decode(b)));
  std::memcpy(to, &a, sizeof a);
}

}  // namespace detail

inline void bulk_fence() {}

inline void barrier_init(u64* barrier, u32 arrivals) { *barrier = detail::HostBarrier{arrivals, arrivals, 0, 0}.word(); }
inline void barrier_invalidate(u64* barrier) { *barrier = ~u64{0}; }
inline void barrier_expect(u64* barrier, u32 bytes) { detail::move_barrier(barrier, 0, static_cast<i32>(bytes)); }
inline void barrier_arrive(u64* barrier) { detail::move_barrier(barrier, 1, 0); }
inline void barrier_arrive_and_expect(u64* barrier, u32 bytes) { detail::move_barrier(barrier, 1, static_cast<i32>(bytes)); }
inline bool barrier_test(const u64* barrier, u32 parity) {
  const bool complete = detail::HostBarrier::of(*barrier).phase != parity;
  if (!complete && host_loads == HostLoads::WhenTested) detail::host_engine.load_for(barrier);
  return complete;
}

inline void bulk_load(void* shared, const void* global, u32 bytes, u64* barrier) {
  const detail::HostLoad load{shared, global, bytes, barrier};
  if (host_loads == HostLoads::AtOnce) detail::host_engine.load(load);
  else if (host_loads == HostLoads::WhenTested) detail::host_engine.loads.push_back(load);
}
inline void bulk_store(void* global, const void* shared, u32 bytes) {
  detail::host_engine.groups.back().push_back({static_cast<u8*>(global), static_cast<const u8*>(shared), bytes, nullptr, 1, {}});
}
template <BulkWord Word>
void bulk_add(void* global, const void* shared, u32 bytes) {
  using namespace detail;
  const auto add = Word == BulkWord::F32 ? add_element<F32> : Word == BulkWord::BF16 ? add_element<BF16> : add_element<U32>;
  host_engine.groups.back().push_back(
      {static_cast<u8*>(global), static_cast<const u8*>(shared), bytes, add, Word == BulkWord::BF16 ? 2u : 4u, {}});
}

inline void bulk_commit() { detail::host_engine.groups.emplace_back(); }
template <u32 N>
void bulk_wait() {
  auto& groups = detail::host_engine.groups;
  for (; groups.size() > N + 1; groups.pop_front()) {
    for (auto& store : groups.front()) store.write();
  }
}
template <u32 N>
void bulk_wait_source() {
  auto& groups = detail::host_engine.groups;
  for (u64 i = 0; i + N + 1 < groups.size(); ++i) {
    for (auto& store : groups[i]) store.read();
  }
}

}  // namespace warpway
