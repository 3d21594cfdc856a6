// The part of the platform that moves memory by the bulk copy engine: its barriers, copies and groups of stores. sm_90;
// `bulk.cuh` refuses to compile calls for less, checks pointers and sizes, and says how they are used.
//
// Barriers and tiles are in shared memory, the other side in global memory. Compiled by a host compiler it takes
// `platform_bulk_host.cuh` instead, where an engine is emulated.
#pragma once

#include "warpway/platform.cuh"

namespace warpway {

/// What the engine can add.
enum class BulkWord { F32, BF16, U32 };

}  // namespace warpway

#if !defined(__CUDACC__) && !defined(__CUDACC_RTC__)
#include "warpway/platform_bulk_host.cuh"
#else

namespace warpway {

namespace detail {

WARPWAY_DEVICE u32 shared_address(const void* pointer) { return static_cast<u32>(__cvta_generic_to_shared(pointer)); }
WARPWAY_DEVICE u64 global_address(const void* pointer) { return static_cast<u64>(__cvta_generic_to_global(pointer)); }

}  // namespace detail

/// Between this thread's ordinary accesses to shared memory and those of the engine.
WARPWAY_DEVICE void bulk_fence() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// ---- Barriers ----
// A phase is complete when all arrivals have been made and as many bytes have come as are expected.

WARPWAY_DEVICE void barrier_init(u64* barrier, u32 arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(detail::shared_address(barrier)), "r"(arrivals) : "memory");
}
WARPWAY_DEVICE void barrier_invalidate(u64* barrier) {
  asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(detail::shared_address(barrier)) : "memory");
}
WARPWAY_DEVICE void barrier_expect(u64* barrier, u32 bytes) {
  asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(detail::shared_address(barrier)), "r"(bytes)
               : "memory");
}
/// A release of the block's scope.
WARPWAY_DEVICE void barrier_arrive(u64* barrier) {
  asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" ::"r"(detail::shared_address(barrier)) : "memory");
}
WARPWAY_DEVICE void barrier_arrive_and_expect(u64* barrier, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], %1;"
               ::"r"(detail::shared_address(barrier)), "r"(bytes) : "memory");
}
/// Whether the phase of this parity, 0 or 1, is complete: the one before the phase under way. An acquire then.
WARPWAY_DEVICE bool barrier_test(const u64* barrier, u32 parity) {
  u32 complete;
  asm volatile(
      "{\n\t.reg .pred done;\n\t"
      "mbarrier.test_wait.parity.acquire.cta.shared::cta.b64 done, [%1], %2;\n\t"
      "selp.u32 %0, 1, 0, done;\n\t}"
      : "=r"(complete) : "r"(detail::shared_address(barrier)), "r"(parity) : "memory");
  return complete != 0;
}

// ---- Copies ----

/// The barrier counts the bytes.
WARPWAY_DEVICE void bulk_load(void* shared, const void* global, u32 bytes, u64* barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
               ::"r"(detail::shared_address(shared)), "l"(detail::global_address(global)), "r"(bytes),
               "r"(detail::shared_address(barrier)) : "memory");
}
/// Part of the thread's open group, as are additions.
WARPWAY_DEVICE void bulk_store(void* global, const void* shared, u32 bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;"
               ::"l"(detail::global_address(global)), "r"(detail::shared_address(shared)), "r"(bytes) : "memory");
}
template <BulkWord Word>
WARPWAY_DEVICE void bulk_add(void* global, const void* shared, u32 bytes) {
  const u64 to = detail::global_address(global);
  const u32 from = detail::shared_address(shared);
  if constexpr (Word == BulkWord::F32) {
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(to), "r"(from), "r"(bytes) : "memory");
  } else if constexpr (Word == BulkWord::BF16) {
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.noftz.bf16 [%0], [%1], %2;" ::"l"(to), "r"(from), "r"(bytes) : "memory");
  } else {
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%0], [%1], %2;" ::"l"(to), "r"(from), "r"(bytes) : "memory");
  }
}

/// Closes the open group.
WARPWAY_DEVICE void bulk_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
/// Until at most the N newest groups are incomplete at their destination.
template <u32 N>
WARPWAY_DEVICE void bulk_wait() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(N) : "memory");
}
/// Until at most the N newest groups still read shared memory.
template <u32 N>
WARPWAY_DEVICE void bulk_wait_source() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory");
}

}  // namespace warpway
#endif
