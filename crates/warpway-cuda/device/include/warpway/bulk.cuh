// Bulk asynchronous copies (TMA) between shared and global memory, local or a peer's. sm_90.
//
// One thread issues a copy. A load completes on a barrier in shared memory; stores complete in groups of the thread that
// issued them. Pointers and sizes are multiples of 16; a phase has at most 2^20 - 1 bytes under way. A call that breaks
// this does nothing and says so, in every build.
//
// The engine and ordinary accesses do not see each other by themselves: `bulkFence()` after a load's wait and
// before ordinary reads (each reading thread, or a block barrier after one that fenced), and after
// ordinary writes and before a store. `bulkStoreWait`, not the source form, comes before a peer is signalled.
#pragma once

#include "warpway/control.cuh"
#include "warpway/copy.cuh"
#include "warpway/formats.cuh"
#include "warpway/platform_bulk.cuh"

namespace warpway {

inline constexpr bool BULK_AVAILABLE = WARPWAY_ARCH >= 900;

/// Bytes that a barrier can expect in one phase.
inline constexpr u64 bulk_pending_limit = (u64{1} << 20) - 1;

namespace detail {

/// Instantiated by each method, so that only code that calls one must be compiled for a GPU that can.
template <u32 Arch>
WARPWAY_DEVICE void requires_bulk() {
  static_assert(Arch == 0 || Arch >= 900, "bulk copies need sm_90");
}

WARPWAY_DEVICE Status check_bulk(const void* a, const void* b, u64 bytes, const Site& site) {
  const u64 misaligned = (address(a) | address(b) | bytes) % 16;
  if (misaligned != 0) return refuse(site, Code::Alignment, 16, misaligned, Kind::BulkBarrier);
  if (bytes > bulk_pending_limit) return refuse(site, Code::Misuse, bulk_pending_limit, bytes, Kind::BulkBarrier);
  return Status::Ok;
}

}  // namespace detail

/// Orders this thread's ordinary accesses to shared memory and those of the engine.
template <u32 Arch = WARPWAY_ARCH>
WARPWAY_DEVICE void bulkFence() {
  detail::requires_bulk<Arch>();
  bulk_fence();
}

/// In shared memory. Its phases are counted by the caller from 0.
struct alignas(8) BulkBarrier {
  u64 storage;

  /// Before use, by one thread; a block barrier lets the others know. `arrivals` complete a phase, once the
  /// expected bytes have come too.
  template <u32 Arch = WARPWAY_ARCH>
  WARPWAY_DEVICE void init(u32 arrivals = 1) {
    relaxedInit<Arch>(arrivals);
    bulkFence<Arch>();
  }
  /// Without the fence: call `bulkFence()` after several of them.
  template <u32 Arch = WARPWAY_ARCH>
  WARPWAY_DEVICE void relaxedInit(u32 arrivals) {
    detail::requires_bulk<Arch>();
    barrier_init(&storage, arrivals);
  }
  /// Before the storage is used for anything else.
  template <u32 Arch = WARPWAY_ARCH>
  WARPWAY_DEVICE void invalidate() {
    detail::requires_bulk<Arch>();
    barrier_invalidate(&storage);
  }
  /// All of these of a phase come before the arrival that completes it.
  template <u32 Arch = WARPWAY_ARCH>
  WARPWAY_NODISCARD WARPWAY_DEVICE Status expect(u64 bytes, const Site& site = {}) {
    detail::requires_bulk<Arch>();
    if (bytes > bulk_pending_limit) return refuse(site, Code::Misuse, bulk_pending_limit, bytes, Kind::BulkBarrier);
    barrier_expect(&storage, static_cast<u32>(bytes));
    return Status::Ok;
  }
  template <u32 Arch = WARPWAY_ARCH>
  WARPWAY_DEVICE void arrive() {
    detail::requires_bulk<Arch>();
    barrier_arrive(&storage);
  }
  /// The recommended form, with all bytes of the phase.
  template <u32 Arch = WARPWAY_ARCH>
  WARPWAY_NODISCARD WARPWAY_DEVICE Status arriveAndExpect(u64 bytes, const Site& site = {}) {
    detail::requires_bulk<Arch>();
    if (bytes > bulk_pending_limit) return refuse(site, Code::Misuse, bulk_pending_limit, bytes, Kind::BulkBarrier);
    barrier_arrive_and_expect(&storage, static_cast<u32>(bytes));
    return Status::Ok;
  }
  /// True once the phase is complete. Any thread.
  template <u32 Arch = WARPWAY_ARCH>
  WARPWAY_DEVICE bool poll(u32 phase) const {
    detail::requires_bulk<Arch>();
    return barrier_test(&storage, phase & 1);
  }
  /// Waits for the phase and moves on to the next one. Any thread, each with its own count.
  template <u32 Arch = WARPWAY_ARCH>
  WARPWAY_NODISCARD WARPWAY_DEVICE Status wait(u32& phase, i64 max_spin = -1, const Site& site = {}) const {
    const u32 awaited = phase;
    const Status status = poll_until(
        Wait{site, Kind::BulkBarrier, awaited},
        [&](u64& seen) {
          const bool done = poll<Arch>(awaited);
          seen = done ? awaited : awaited ^ 1;
          return done;
        },
        {max_spin});
    if (status == Status::Ok) phase = awaited ^ 1;
    return status;
  }
};

static_assert(sizeof(BulkBarrier) == 8, "barrier layout");

/// Global to shared memory; the barrier counts the bytes.
template <u32 Arch = WARPWAY_ARCH>
WARPWAY_NODISCARD WARPWAY_DEVICE Status bulkLoad(void* shared, const void* global, u64 bytes, BulkBarrier& barrier,
                                                 const Site& site = {}) {
  detail::requires_bulk<Arch>();
  const Status status = detail::check_bulk(shared, global, bytes, site);
  if (status != Status::Ok || bytes == 0) return status;
  bulk_load(shared, global, static_cast<u32>(bytes), &barrier.storage);
  return Status::Ok;
}

/// Shared to global memory. Joins the open group.
template <u32 Arch = WARPWAY_ARCH>
WARPWAY_NODISCARD WARPWAY_DEVICE Status bulkStore(void* global, const void* shared, u64 bytes, const Site& site = {}) {
  detail::requires_bulk<Arch>();
  const Status status = detail::check_bulk(shared, global, bytes, site);
  if (status != Status::Ok || bytes == 0) return status;
  bulk_store(global, shared, static_cast<u32>(bytes));
  return Status::Ok;
}

/// The operator of `bulkReduceStore`.
struct Add {};

/// Adds shared memory to global memory element by element. T is F32, BF16 (accumulates in bf16) or U32. Not assumed
/// to be atomic against other devices: let one at a time add to an address.
template <class T, class Op = Add, u32 Arch = WARPWAY_ARCH>
WARPWAY_NODISCARD WARPWAY_DEVICE Status bulkReduceStore(void* global, const void* shared, u64 bytes, const Site& site = {}) {
  detail::requires_bulk<Arch>();
  const Status status = detail::check_bulk(shared, global, bytes, site);
  if (status != Status::Ok || bytes == 0) return status;
  if constexpr (detail::same<T, F32>) {
    bulk_add<BulkWord::F32>(global, shared, static_cast<u32>(bytes));
  } else if constexpr (detail::same<T, BF16>) {
    bulk_add<BulkWord::BF16>(global, shared, static_cast<u32>(bytes));
  } else {
    static_assert(detail::same<T, U32>, "F32, BF16 or U32");
    bulk_add<BulkWord::U32>(global, shared, static_cast<u32>(bytes));
  }
  return Status::Ok;
}

/// Closes the open group.
template <u32 Arch = WARPWAY_ARCH>
WARPWAY_DEVICE void bulkStoreCommit() {
  detail::requires_bulk<Arch>();
  bulk_commit();
}
/// Until at most the N newest groups are incomplete at their destination. The engine ends by itself: no deadline.
template <u32 N = 0, u32 Arch = WARPWAY_ARCH>
WARPWAY_DEVICE void bulkStoreWait() {
  detail::requires_bulk<Arch>();
  bulk_wait<N>();
}
/// Until at most the N newest groups still read shared memory.
template <u32 N = 0, u32 Arch = WARPWAY_ARCH>
WARPWAY_DEVICE void bulkStoreWaitSource() {
  detail::requires_bulk<Arch>();
  bulk_wait_source<N>();
}

/// Shared memory of `bulk_copy`. Half of the tiles are loaded ahead while the others are stored: a few blocks fill a
/// link with 12 tiles of 16 KiB, many blocks do with 3 of 32 KiB.
template <u32 TileBytes = 16384, u32 Tiles = 12>
struct BulkStage {
  static_assert(TileBytes % 128 == 0 && TileBytes <= bulk_pending_limit, "tile size");
  static_assert(Tiles >= 2, "one tile is loaded while another is stored");
  static constexpr u32 tiles = Tiles;
  static constexpr u32 ahead = (Tiles + 1) / 2;
  alignas(128) u8 tile[tiles][TileBytes];
  BulkBarrier loaded[tiles];
};

/// Copies global memory of any alignment and size: the middle by the engine through `stage`, the edges (everything, if
/// the addresses differ modulo 16) by threads. When the first thread returns, the engine's part is at its destination.
/// Each thread has its own status. Collective within one block.
template <u32 TileBytes, u32 Tiles, u32 Arch = WARPWAY_ARCH>
WARPWAY_NODISCARD WARPWAY_DEVICE Status bulk_copy(void* dst, const void* src, u64 bytes, BulkStage<TileBytes, Tiles>& stage,
                                                  u32 thread_id, u32 num_threads, const Site& site = {}) {
  using Stage = BulkStage<TileBytes, Tiles>;
  u8* to = static_cast<u8*>(dst);
  const u8* from = static_cast<const u8*>(src);
  u64 head = (0 - detail::address(to)) % 16;
  if (head > bytes || (detail::address(to) ^ detail::address(from)) % 16 != 0) head = bytes;
  const u64 middle = (bytes - head) / 16 * 16;
  copy(to, from, head, thread_id, num_threads);
  copy(to + head + middle, from + head + middle, bytes - head - middle, thread_id, num_threads);
  if (thread_id != 0 || middle == 0) return Status::Ok;

  to += head, from += head;
  const u64 count = (middle + TileBytes - 1) / TileBytes;
  const auto size = [=](u64 i) { return i + 1 < count ? u64{TileBytes} : middle - i * TileBytes; };
  const auto start_load = [&](u64 i) {
    const u32 s = static_cast<u32>(i % Stage::tiles);
    static_cast<void>(stage.loaded[s].template arriveAndExpect<Arch>(size(i)));
    static_cast<void>(bulkLoad<Arch>(stage.tile[s], from + i * TileBytes, size(i), stage.loaded[s]));
  };
  for (u32 s = 0; s < Stage::tiles; ++s) stage.loaded[s].template relaxedInit<Arch>(1);
  bulkFence<Arch>();
  for (u64 i = 0; i < Stage::ahead && i < count; ++i) start_load(i);
  Status status = Status::Ok;
  for (u64 i = 0; i < count && status == Status::Ok; ++i) {
    const u32 s = static_cast<u32>(i % Stage::tiles);
    u32 phase = static_cast<u32>(i / Stage::tiles % 2);
    status = stage.loaded[s].template wait<Arch>(phase, -1, site);
    if (status != Status::Ok) break;
    static_cast<void>(bulkStore<Arch>(to + i * TileBytes, stage.tile[s], size(i)));
    bulkStoreCommit<Arch>();
    if (i + Stage::ahead < count) {
      // The tile that is loaded next was stored `tiles - ahead` rounds ago: its store must have read it.
      bulkStoreWaitSource<Stage::tiles - Stage::ahead, Arch>();
      start_load(i + Stage::ahead);
    }
  }
  bulkStoreWait<0, Arch>();
  if (status == Status::Ok) {
    for (u32 s = 0; s < Stage::tiles; ++s) stage.loaded[s].template invalidate<Arch>();
  }
  return status;
}

}  // namespace warpway
