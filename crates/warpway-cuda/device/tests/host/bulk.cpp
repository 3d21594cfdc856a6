// Bulk copies on an engine that the host emulates: barriers, refusals, additions, and `bulk_copy` with its ring of tiles. Ends
// with 0 if all is right, else names the check that failed.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

#include "check.h"
#include "warpway/warpway.cuh"

using namespace warpway;

namespace {

/// A communicator that has not failed, with a deadline of 5 ms.
struct World {
  HostControl host{};
  Control control{};
  World() { control.deadline_ns = 5000000, control.host = &host, control.rank = 3; }
  Site site() { return Site{&control, 1, 42}; }
  bool failed(Code code, u64 expected, u64 observed) const {
    const ErrorRecord& r = host.record;
    return control.poison == 1 && host.record_state == 2 && r.code == u16(code) && r.kind == u16(Kind::BulkBarrier) &&
           r.rank == 3 && r.peer == 1 && r.object == 42 && r.expected == expected && r.observed == observed;
  }
};

/// Phases end with their last arrival or byte, whichever is later.
void phases_count_arrivals_and_bytes() {
  BulkBarrier barrier;
  barrier.init(3);
  u32 phase = 0;
  World w;
  for (u32 round = 0; round < 4; ++round) {
    const u32 parity = round % 2;
    CHECK(!barrier.poll(parity) && barrier.poll(parity ^ 1));
    CHECK(barrier.expect(bulk_pending_limit) == Status::Ok);
    barrier.arrive(), barrier.arrive();
    if (round % 2 == 0) {
      barrier.arrive();
      CHECK(!barrier.poll(parity));
      detail::move_barrier(&barrier.storage, 0, -static_cast<i32>(bulk_pending_limit));
    } else {
      detail::move_barrier(&barrier.storage, 0, -static_cast<i32>(bulk_pending_limit));
      CHECK(!barrier.poll(parity) && barrier.arriveAndExpect(0) == Status::Ok);
    }
    CHECK(barrier.wait(phase, -1, w.site()) == Status::Ok && phase == (parity ^ 1));
  }
  CHECK(barrier.wait(phase, 10, w.site()) == Status::Timeout && phase == 0 && w.failed(Code::Timeout, 0, 1));
}

/// What the engine cannot do is refused and recorded in every build, and nothing moves; no bytes are no operation.
void calls_are_checked() {
  alignas(128) static u8 global[64], shared[64];
  for (u32 call = 0; call < 10; ++call) {
    World w;
    BulkBarrier barrier;
    barrier.init();
    const Site site = w.site();
    const u64 before = barrier.storage, beyond = bulk_pending_limit + 1;
    Status status = Status::Ok;
    u64 odd = 0;
    if (call == 0) status = bulkLoad(shared + 4, global, 16, barrier, site), odd = 4;
    if (call == 1) status = bulkLoad(shared, global + 8, 16, barrier, site), odd = 8;
    if (call == 2) status = bulkLoad(shared, global, 17, barrier, site), odd = 1;
    if (call == 3) status = bulkLoad(shared, global, beyond, barrier, site);
    if (call == 4) status = bulkStore(global + 12, shared, 16, site), odd = 12;
    if (call == 5) status = bulkStore(global, shared, beyond, site);
    if (call == 6) status = bulkReduceStore<F32>(global, shared, 12, site), odd = 12;
    if (call == 7) status = barrier.expect(beyond, site);
    if (call == 8) status = barrier.arriveAndExpect(beyond, site);
    if (call == 9) {
      CHECK(bulkLoad(shared, global, 0, barrier, site) == Status::Ok && bulkStore(global, shared, 0, site) == Status::Ok);
      CHECK(bulkReduceStore<U32>(global, shared, 0, site) == Status::Ok && w.control.poison == 0);
    } else {
      CHECK(status == Status::Aborted);
      CHECK(odd != 0 ? w.failed(Code::Alignment, 16, odd) : w.failed(Code::Misuse, bulk_pending_limit, beyond));
    }
    CHECK(barrier.storage == before && detail::host_engine.groups.back().empty() && detail::host_engine.loads.empty());
  }
}

/// Element by element, once, and only when a wait for the destination says so.
void additions_are_of_their_type() {
  alignas(16) u32 words[4] = {0xffffffff, 1, 2, 3}, floats[4] = {0x3f800000, 0x00000001, 0x7f800000, 0x80000000};
  alignas(16) u16 halves[8] = {0x3f80, 0x3f80, 0x0001, 0x7f80, 0x8000, 0, 0x4000, 0x4040};
  alignas(16) u32 word_terms[4] = {2, 3, 4, 5}, float_terms[4] = {0x40000000, 0x00000001, 0x3f800000, 0x80000000};
  alignas(16) u16 half_terms[8] = {0x3f80, 0x3b80, 0x0001, 0x3f80, 0x8000, 0x4000, 0xc000, 0x3f80};
  CHECK(bulkReduceStore<U32>(words, word_terms, 16) == Status::Ok && bulkReduceStore<F32>(floats, float_terms, 16) == Status::Ok);
  bulkStoreCommit();
  CHECK(bulkReduceStore<BF16>(halves, half_terms, 16) == Status::Ok);
  bulkStoreCommit();
  bulkStoreWaitSource();
  std::memset(word_terms, 0xee, 16), std::memset(half_terms, 0xee, 16);
  CHECK(words[0] == 0xffffffff && halves[0] == 0x3f80);
  bulkStoreWait<1>();
  CHECK(words[0] == 1 && words[1] == 4 && words[2] == 6 && words[3] == 8 && halves[0] == 0x3f80);
  CHECK(floats[0] == 0x40400000 && floats[1] == 2 && floats[2] == 0x7f800000 && floats[3] == 0x80000000);
  bulkStoreWait();
  // 1 + 2^-8 lies halfway between two numbers, and 1 is the even one.
  const u16 sums[8] = {0x4000, 0x3f80, 0x0002, 0x7f80, 0x8000, 0x4000, 0, 0x4080};
  CHECK(std::memcmp(halves, sums, 16) == 0);
}

/// Exactly the bytes, whatever the alignment and the number of tiles, with loads as early and as late as they may be.
template <u32 TileBytes, u32 Tiles>
void copies_are_exact() {
  constexpr u32 room = 2048;
  alignas(128) static u8 src[room], dst[room];
  static BulkStage<TileBytes, Tiles> stage;
  for (u32 i = 0; i < room; ++i) src[i] = static_cast<u8>(i * 7 + i / 251 + 1);
  World w;
  for (HostLoads loads : {HostLoads::AtOnce, HostLoads::WhenTested}) {
    host_loads = loads;
    for (u32 to = 128; to < 145; ++to) {
      for (u32 from : {to, to + 16, to + 1, to + 8}) {
        for (u32 bytes = 0; bytes < 1700; bytes += bytes < 300 ? 1 : 61) {
          std::memset(dst, 0xc5, room), std::memset(&stage, 0xdd, sizeof stage);
          const u32 threads = bytes % 3 + 1;
          for (u32 t = threads; t-- > 0;) {
            CHECK(bulk_copy(dst + to, src + from, bytes, stage, t, threads, w.site()) == Status::Ok);
          }
          for (u32 i = 0; i < room; ++i) {
            const u8 expected = i >= to && i < to + bytes ? src[from + i - to] : 0xc5;
            if (dst[i] == expected) continue;
            std::printf("byte %u is %u, not %u: %u bytes from %u to %u, %u tiles\n", i, dst[i], expected, bytes, from, to, Tiles);
            std::exit(1);
          }
        }
      }
    }
  }
  CHECK(w.control.poison == 0);
}

/// A load that does not come ends the copy by the deadline.
void a_copy_without_loads_ends() {
  alignas(128) static u8 src[512], dst[512];
  static BulkStage<128, 2> stage;
  World w;
  host_loads = HostLoads::Never;
  CHECK(bulk_copy(dst, src, 512, stage, 0, 1, w.site()) == Status::Timeout && w.failed(Code::Timeout, 0, 1));
  CHECK(w.host.record.elapsed_ns >= 5000000);
}

}  // namespace

int main() {
  phases_count_arrivals_and_bytes();
  calls_are_checked();
  additions_are_of_their_type();
  copies_are_exact<128, 2>();
  copies_are_exact<128, 3>();
  copies_are_exact<256, 5>();
  a_copy_without_loads_ends();
}
