// The barrier of a multicast group and what a switch channel refuses, on emulated groups. Ends with 0 if all is right, else names the
// check that failed. With WARPWAY_DEVICE_CHECKS the channel refuses what is out of range; without, the accesses are made.
#include "multicast.h"

#include "../switch.cu"

using namespace warpway;

namespace {

using Both = Ranks::Both;

bool failed(const Both& rank, Code code, Kind kind, u64 expected, u64 observed) {
  const ErrorRecord& r = rank.host.record;
  return rank.control.poison == 1 && rank.host.record_state == 2 && r.code == u16(code) && r.kind == u16(kind) &&
         r.rank == rank.control.rank && r.peer == no_peer && r.object == 7 && r.expected == expected && r.observed == observed;
}

u64 arrivals(const Ranks& ranks, u32 m) {
  u64 value;
  std::memcpy(&value, ranks.counters.member(m), 8);
  return value;
}

/// Arrivals reach everybody; a wait takes those of its generation, whether they came before or after it began.
void arrival_and_completion_are_apart() {
  Ranks ranks(3, 64);
  for (u32 m = 0; m < 3; ++m) ranks.barrier(m).signal();
  ranks.barrier(1).relaxedSignal();
  for (u32 m = 0; m < 3; ++m) CHECK(arrivals(ranks, m) == 4 && ranks.barrier(m).wait() == Status::Ok && ranks.generations[m] == 3);
  ranks.barrier(0).signal(), ranks.barrier(2).signal();
  for (u32 m = 0; m < 3; ++m) CHECK(ranks.barrier(m).relaxedWait() == Status::Ok && ranks.generations[m] == 6);
  CHECK(ranks.unharmed());
}

/// The counters go on from 2^64 - 1 with 0.
void counters_wrap() {
  Ranks ranks(4, 64);
  const u64 start = ~u64{0} - 5;
  for (u32 m = 0; m < 4; ++m) ranks.generations[m] = start, std::memcpy(ranks.counters.member(m), &start, 8);
  for (u32 round = 1; round <= 3; ++round) {
    CHECK(ranks.barrier(2).wait(0) == Status::Timeout && failed(ranks.controls[2], Code::Timeout, Kind::Switch, start + 4 * round, start + 4 * (round - 1)));
    ranks.controls[2] = Both{};
    ranks.controls[2].control.host = &ranks.controls[2].host, ranks.controls[2].control.rank = 2;
    for (u32 m = 0; m < 4; ++m) ranks.barrier(m).signal();
    for (u32 m = 0; m < 4; ++m) {
      if (m != 2) CHECK(ranks.barrier(m).wait(0) == Status::Ok);
    }
  }
  CHECK(arrivals(ranks, 0) == start + 12 && start + 12 == 6);
}

void waits_end() {
  // By the deadline, which counts from the first look.
  Ranks late(3, 64);
  late.controls[1].control.deadline_ns = 5000000;
  late.barrier(0).signal(), late.barrier(1).signal();
  CHECK(late.barrier(1).wait() == Status::Timeout && failed(late.controls[1], Code::Timeout, Kind::Switch, 3, 2));
  CHECK(late.controls[1].host.record.elapsed_ns >= 5000000 && late.controls[1].host.record.elapsed_ns < 5100000);
  // From then on nothing is waited for, guarded signals tell nobody, and the first record stays.
  CHECK(late.barrier(1).relaxedWait() == Status::Aborted && late.controls[1].host.record.expected == 3);
  late.barrier(1).signal<Guard::Poison>(), late.barrier(1).relaxedSignal<Guard::Poison>();
  CHECK(arrivals(late, 0) == 2);
  late.barrier(1).signal<Guard::None>();
  CHECK(arrivals(late, 0) == 3 && late.barrier(0).wait() == Status::Ok);

  // By the host's word.
  Ranks stopped(2, 64);
  stopped.controls[0].host.abort_word = 9;
  CHECK(stopped.barrier(0).wait() == Status::Aborted && failed(stopped.controls[0], Code::Aborted, Kind::Switch, 2, 0));
  CHECK(stopped.controls[0].host.record.reason == 9);

  // By poison, without a record of its own.
  Ranks poisoned(2, 64);
  poisoned.controls[0].control.poison = 1;
  CHECK(poisoned.barrier(0).wait() == Status::Aborted && poisoned.controls[0].host.record_state == 0);

  // By the caller's bound.
  Ranks bounded(2, 64);
  CHECK(bounded.barrier(1).relaxedWait(100) == Status::Timeout && failed(bounded.controls[1], Code::Timeout, Kind::Switch, 2, 0));

  // At once where the group has no barrier; that is misuse, also of a signal.
  for (u32 call = 0; call < 4; ++call) {
    Ranks none(2, 64);
    SwitchChannel channel = none.channel(0, 0, 64);
    channel.semaphore.multicast = nullptr;
    if (call == 0) channel.signal();
    if (call == 1) channel.relaxedSignal();
    if (call == 2) CHECK(channel.wait() == Status::Aborted);
    if (call == 3) CHECK(channel.relaxedWait() == Status::Aborted);
    CHECK(failed(none.controls[0], Code::Misuse, Kind::Call, 1, 0) && none.generations[0] == 0 && arrivals(none, 0) == 0);
  }
}

/// M9: a signal comes after the stores of its thread and, behind a block barrier, of its block; a relaxed one need not.
void a_signal_publishes_what_was_stored() {
  Ranks ranks(3, 64);
  const SwitchChannel channel = ranks.channel(0, 0, 64);
  const f32x4 value{{1, 2, 3, 4}};
  for (u32 m = 0; m < 3; ++m) std::memset(ranks.data.member(m), 0xee, 64);
  channel.broadcast(1, value);
  channel.relaxedSignal();
  CHECK(arrivals(ranks, 2) == 1 && ranks.data.member(2)[16] == 0xee);
  channel.signal();
  CHECK(arrivals(ranks, 2) == 2);
  for (u32 m = 0; m < 3; ++m) CHECK(std::memcmp(ranks.data.member(m) + 16, &value, 16) == 0 && ranks.data.member(m)[15] == 0xee);
}

/// The inputs of one round; sums of 16 of them are exact in every type.
i32 input(u32 round, u32 member, u64 i) { return static_cast<i32>((round * 31 + member * 7 + i * 13) % 61) - 30; }

template <class Format>
typename Format::Bits number(i32 value) {
  return Format::encode(static_cast<typename Format::Value>(value));
}

/// Rounds of reduce-scatter and all-gather: inputs are filled anew and outputs spoilt before each, and both barriers of a round are
/// needed. The second half of each memory are the outputs.
template <class V>
void rounds(u32 members, u32 threads, u32 count) {
  using Format = typename V::Format;
  using Bits = typename V::Bits;
  constexpr u64 vectors = 5;  // of each member
  const u64 part = vectors * V::bytes, half = part * members, elements = half / sizeof(Bits);
  Ranks ranks(members, 2 * half);
  launch(members, threads, [&](u32 m) {
    const SwitchChannel in = ranks.channel(m, m * part, part), out = ranks.channel(m, half + m * part, part);
    auto* inputs = reinterpret_cast<Bits*>(ranks.data.member(m));
    auto* outputs = reinterpret_cast<Bits*>(ranks.data.member(m) + half);
    const auto meet = [&] {
      block_barrier();
      Status status = Status::Ok;
      if (host_thread == 0) in.signal(), status = in.wait();
      CHECK(agree(status) == Status::Ok);
    };
    for (u32 round = 0; round < count; ++round) {
      for (u64 i = host_thread; i < elements; i += threads) {
        inputs[i] = number<Format>(input(round, m, i));
        outputs[i] = number<Format>(static_cast<i32>(round % 50) + 500);
      }
      meet();
      if ((round + m) % 3 == 0) sched_yield();
      for (u64 i = host_thread; i < vectors; i += threads) out.broadcast(i, in.reduce<V>(i));
      meet();
      for (u64 i = host_thread; i < elements; i += threads) {
        i32 sum = 0;
        for (u32 from = 0; from < members; ++from) sum += input(round, from, i);
        CHECK(outputs[i] == number<Format>(sum) && inputs[i] == number<Format>(input(round, m, i)));
      }
    }
  });
  CHECK(ranks.unharmed());
  for (u32 m = 0; m < members; ++m) CHECK(arrivals(ranks, m) == u64{2} * count * members && ranks.generations[m] == arrivals(ranks, m));
}

/// Each signal and each wait counts, whichever thread makes it.
void several_threads_of_a_rank_arrive() {
  Ranks ranks(3, 64);
  launch(3, 4, [&](u32 m) {
    for (u32 round = 0; round < 200; ++round) {
      ranks.barrier(m).signal();
      CHECK(ranks.barrier(m).wait() == Status::Ok);
    }
  });
  for (u32 m = 0; m < 3; ++m) CHECK(arrivals(ranks, m) == 2400 && ranks.generations[m] == 2400);
  CHECK(ranks.unharmed());
}

/// A kernel whose peer does not come ends, with all threads of all blocks, and leaves the memories alone.
void an_absent_rank_is_not_waited_for(bool abort) {
  Ranks ranks(4, 256);
  for (u32 m = 0; m < 4; ++m) std::memset(ranks.data.member(m), 0x11 * static_cast<int>(m + 1), 256);
  std::vector<Guarded> out;
  for (u32 m = 0; m < 4; ++m) out.emplace_back(64), std::memset(out[m].data(), 0x77, 64);
  for (Both& both : ranks.controls) {
    both.control.deadline_ns = abort ? 0 : 20000000;
    both.host.abort_word = abort ? 3 : 0;
  }
  // Time begins when all the others have come.
  const u64 tick = host_tick;
  host_tick = 0;
  launch(4, 3, [&](u32 m) {
    if (m != 2) return reduce_and_broadcast<f16x8>(SwitchCall{ranks.channel(m, m * 64, 64), out[m].data(), 4});
    while (load<Scope::System, Order::Acquire>(ranks.barrier(m).arrivals) != 3) sched_yield();
    store<Scope::System, Order::Relaxed>(&host_tick, tick);
  });
  for (u32 m = 0; m < 4; ++m) {
    CHECK(m == 2 ? ranks.controls[m].host.record_state == 0
                 : failed(ranks.controls[m], abort ? Code::Aborted : Code::Timeout, Kind::Switch, 4, 3));
    for (u32 i = 0; i < 256; ++i) CHECK(ranks.data.member(m)[i] == 0x11 * (m + 1));
    for (u32 i = 0; i < 64; ++i) CHECK(out[m].data()[i] == 0x77);
  }
}

u32 faults = 0;
const char* last_fault = "";

/// Vectors of one size: those inside are served, the first one outside is not, nor is one at an address that is no multiple.
template <class V>
void edges() {
  constexpr u64 whole = 48, bytes = whole + V::bytes - 1;  // no room for one more vector
  Ranks ranks(2, 64 + whole);
  for (u32 m = 0; m < 2; ++m) std::memset(ranks.data.member(m), 0, 64 + whole);
  const V value = [] {
    V v{};
    v.set_word(0, 0x3c003c00);
    return v;
  }();
  const SwitchChannel channel = ranks.channel(0, 64, bytes);
  const u64 last = whole / V::bytes - 1;
  channel.broadcast(last, value), channel.broadcast(0, value);
  fence<Scope::System>();
  CHECK(faults == 0 && channel.reduce<V>(last).word(0) == (value + value).word(0) && ranks.unharmed());

  SwitchChannel crooked = channel;
  crooked.mcPtr = ranks.data.base() + V::bytes / 2;
#if defined(WARPWAY_DEVICE_CHECKS)
  CHECK(channel.reduce<V>(last + 1).word(0) == 0 && failed(ranks.controls[0], Code::Misuse, Kind::Call, last + 1, last + 1));
  channel.broadcast(~u64{0} / V::bytes, value);
  Ranks other(2, 64);
  crooked.semaphore = other.barrier(1);
  CHECK(crooked.reduce<V>(0).word(0) == 0 && failed(other.controls[1], Code::Alignment, Kind::Call, V::bytes, V::bytes / 2));
  crooked.broadcast(0, value);
  CHECK(faults == 0);
#else
  CHECK(channel.reduce<V>(last + 1).word(0) == ~0u && faults == 1 && std::strcmp(last_fault, "illegal address") == 0);
  channel.broadcast(last + 1, value);
  SwitchChannel::multimemStore(value, reinterpret_cast<V*>(ranks.data.base()) - 1);
  CHECK(faults == 3 && std::strcmp(last_fault, "illegal address") == 0);
  crooked.broadcast(0, value);
  CHECK(crooked.reduce<V>(0).word(0) == ~0u && faults == 5 && std::strcmp(last_fault, "misaligned address") == 0);
  faults = 0;
#endif
  fence<Scope::System>();
  for (u32 m = 0; m < 2; ++m) {
    for (u32 i = 0; i < 64; ++i) CHECK(ranks.data.member(m)[i] == 0);
  }
}

}  // namespace

int main() {
  arrival_and_completion_are_apart();
  counters_wrap();
  waits_end();
  a_signal_publishes_what_was_stored();
  for (u32 members : {2u, 3u, 4u, 8u}) {
    rounds<f32x4>(members, 1, 400);
    rounds<f16x8>(members, 3, 100);
    rounds<i32x1>(members, 2, 100);
  }
  several_threads_of_a_rank_arrive();
  an_absent_rank_is_not_waited_for(false);
  an_absent_rank_is_not_waited_for(true);
  host_multicast_fault = [](const char* what, u64) { ++faults, last_fault = what; };
  edges<f16x2>();
  edges<f16x4>();
  edges<f16x8>();
}
