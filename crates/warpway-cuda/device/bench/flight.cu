// One-way latency between two GPUs: a message goes back and forth between one thread (of lines: eight lanes) on each.
#include "warpway/lines.cuh"
#include "warpway/semaphores.cuh"

using namespace warpway;

/// What crosses.
enum class Message : u32 {
  VolatileFlag,   // an 8-byte volatile store and load: the floor of everything
  RelaxedFlag,    // the same with relaxed accesses of system scope
  ReleasedFlag,   // store-release, load-acquire: the floor of a signal
  Packet16,
  Packet8,
  Line,
  RelaxedSignal,  // the semaphore's
  Signal,
};

struct Flight {
  MemoryDevice2DeviceSemaphore semaphore;
  u64* flag;          // local, 8 bytes
  u64* remote_flag;   // the peer's
  void* slot;         // local, 128 bytes, zero before
  void* remote_slot;  // the peer's
  u64 warm_up;        // rounds before the clock starts
  u64 rounds;
  u64* result;        // ns of all rounds; payloads that were wrong; rounds completed
  u32 begins;         // 1 on the side that sends first
  u32 dither;         // not 0: that side delays each message by up to so many cycles, which are not counted
};
static_assert(sizeof(Flight) == 104, "src/bench/parameters.rs");

namespace {

/// Failed tests after which a bare wait gives up: some seconds.
constexpr u32 bare_limit = 1u << 24;

template <Message M>
constexpr bool is_line = M == Message::Line;

template <Message M, Guard G>
WARPWAY_DEVICE void send(const Flight& p, u64 i) {
  const u32 flag = static_cast<u32>(i);
  if constexpr (M == Message::VolatileFlag) store_volatile(reinterpret_cast<Vec8*>(p.remote_flag), Vec8{flag, 0});
  if constexpr (M == Message::RelaxedFlag) store<Scope::System, Order::Relaxed>(p.remote_flag, i);
  if constexpr (M == Message::ReleasedFlag) store<Scope::System, Order::Release>(p.remote_flag, i);
  if constexpr (M == Message::Packet16) static_cast<LL16*>(p.remote_slot)->write(i * 3, flag);
  if constexpr (M == Message::Packet8) static_cast<LL8*>(p.remote_slot)->write(flag * 3, flag);
  if constexpr (M == Message::Line) {
    const LineGroup group = LineGroup::of(threadIdx.x);
    write_line(static_cast<Line*>(p.remote_slot), group, Vec16{flag * 3, group.part, flag, flag}, i);
  }
  if constexpr (M == Message::RelaxedSignal) p.semaphore.relaxedSignal<G>();
  if constexpr (M == Message::Signal) p.semaphore.signal<G>();
}

/// What came with a message.
struct Payload {
  Vec16 part;
};

/// One look for message `i`.
template <Message M>
WARPWAY_DEVICE bool arrived(const Flight& p, u64 i, u64& seen, Payload& payload) {
  const u32 flag = static_cast<u32>(i);
  if constexpr (M == Message::VolatileFlag) {
    seen = load_volatile(reinterpret_cast<const Vec8*>(p.flag)).x;
    return seen >= i;
  }
  if constexpr (M == Message::RelaxedFlag) {
    seen = load<Scope::System, Order::Relaxed>(p.flag);
    return seen >= i;
  }
  if constexpr (M == Message::ReleasedFlag) {
    seen = load<Scope::System, Order::Acquire>(p.flag);
    return seen >= i;
  }
  if constexpr (M == Message::Packet16) {
    Vec8 data;
    u32 found;
    const bool missing = static_cast<const LL16*>(p.slot)->readOnce(flag, data, found);
    seen = found;
    payload.part.x = data.x, payload.part.y = data.y;
    return !missing;
  }
  if constexpr (M == Message::Packet8) {
    u32 found;
    const bool missing = static_cast<const LL8*>(p.slot)->readOnce(flag, payload.part.x, found);
    seen = found;
    return !missing;
  }
  if constexpr (M == Message::Line) {
    const LineGroup group = LineGroup::of(threadIdx.x);
    payload.part = load_volatile(&static_cast<const Line*>(p.slot)->parts[group.part]);
    seen = u64{payload.part.w} << 32 | payload.part.z;
    return !group.any(group.part == 7 && seen != i);
  }
  // Of the semaphore's waits this is the look; `i` is the ticket.
  if constexpr (M == Message::RelaxedSignal) {
    seen = load<Scope::System, Order::Relaxed>(p.semaphore.inbound);
    return seen >= i;
  }
  if constexpr (M == Message::Signal) {
    seen = load<Scope::System, Order::Acquire>(p.semaphore.inbound);
    return seen >= i;
  }
}

/// Whether message `i` brought what was sent.
template <Message M>
WARPWAY_DEVICE bool is_wrong(u64 i, const Payload& payload) {
  const u32 flag = static_cast<u32>(i);
  const Vec16& part = payload.part;
  if constexpr (M == Message::Packet16) return (u64{part.y} << 32 | part.x) != i * 3;
  else if constexpr (M == Message::Packet8) return part.x != flag * 3;
  else if constexpr (M == Message::Line) {
    const u32 lane = LineGroup::of(threadIdx.x).part;
    return part.x != flag * 3 || part.y != lane || (lane != 7 && (part.z != flag || part.w != flag));
  } else return false;
}

template <Message M, bool Bounded>
WARPWAY_DEVICE bool receive(const Flight& p, u64 i, Payload& payload) {
  if constexpr (Bounded && M == Message::RelaxedSignal) return p.semaphore.relaxedWait() == Status::Ok;
  else if constexpr (Bounded && M == Message::Signal) return p.semaphore.wait() == Status::Ok;
  else if constexpr (Bounded) {
    const auto look = [&](u64& seen) { return arrived<M>(p, i, seen, payload); };
    if constexpr (is_line<M>) {
      return poll_until(Wait{p.semaphore.site, Kind::Packet, i}, look, {}, LineGroup::of(threadIdx.x)) == Status::Ok;
    } else {
      return poll_until(Wait{p.semaphore.site, Kind::Packet, i}, look) == Status::Ok;
    }
  } else {
    u64 awaited = i;
    if constexpr (M == Message::RelaxedSignal || M == Message::Signal) {
      awaited = fetch_add<Scope::Device, Order::Relaxed>(p.semaphore.expected, u64{1}) + 1;
    }
    u64 seen;
    for (u32 tries = 0; tries < bare_limit; ++tries) {
      if (arrived<M>(p, awaited, seen, payload)) return true;
    }
    return false;
  }
}

WARPWAY_DEVICE u64 clock_cycles() {
  u64 now;
  asm volatile("mov.u64 %0, %clock64;" : "=l"(now)::"memory");
  return now;
}

/// Two loops that wait for each other fall into step: what a message waits for the next test is then the same in
/// each round, and a few cycles more or less in either loop move it by up to a whole test. Delays of random length
/// make all distances equally frequent. `spent` counts their cycles.
WARPWAY_DEVICE void delay(u32 most, u32& random, u64& spent) {
  const u64 start = clock_cycles();
  random = random * 1664525 + 1013904223;
  const u64 length = (u64{random >> 8} * most) >> 24;
  u64 passed;
  do passed = clock_cycles() - start;
  while (passed < length);
  spent += passed;
}

struct Tally {
  u64 wrong = 0;
  u64 delayed = 0;
  u32 random = 1;
};

/// Messages `first` to `last`. A message is judged once the next one is on its way, so that the flight does not pay
/// for it.
template <Message M, Guard G, bool Bounded, bool Begins>
WARPWAY_DEVICE bool play(const Flight& p, u64 first, u64 last, Tally& tally) {
  Payload payload{};
  for (u64 i = first; i <= last; ++i) {
    if constexpr (Begins) {
      if (p.dither != 0) delay(p.dither, tally.random, tally.delayed);
      send<M, G>(p, i);
      if (i != first) tally.wrong += is_wrong<M>(i - 1, payload);
    }
    if (!receive<M, Bounded>(p, i, payload)) return false;
    if constexpr (!Begins) {
      send<M, G>(p, i);
      tally.wrong += is_wrong<M>(i, payload);
    }
  }
  if (Begins && first <= last) tally.wrong += is_wrong<M>(last, payload);
  return true;
}

template <Message M, Guard G, bool Bounded, bool Begins>
WARPWAY_DEVICE void play_on_the_clock(const Flight& p) {
  Tally tally;
  const u64 last = p.warm_up + p.rounds;
  if (!play<M, G, Bounded, Begins>(p, 1, p.warm_up, tally)) return;
  tally.delayed = 0;
  const u64 start = clock_ns(), start_cycles = clock_cycles();
  if (!play<M, G, Bounded, Begins>(p, p.warm_up + 1, last, tally)) return;
  const u64 cycles = clock_cycles() - start_cycles, elapsed = clock_ns() - start;
  u64 wrong = tally.wrong;
  if constexpr (is_line<M>) wrong = __reduce_add_sync(0xff, static_cast<u32>(wrong));
  if (threadIdx.x != 0) return;
  p.result[0] = cycles == 0 ? 0 : elapsed * (cycles - tally.delayed) / cycles;
  p.result[1] = wrong, p.result[2] = last;
}

}  // namespace

/// Grid: 1 block of 1 thread on each GPU, of lines 8 threads. `Bounded` waits are the library's, with abort word and
/// deadline; bare ones only count.
template <Message M, Guard G, bool Bounded>
__global__ void flight(const Flight p) {
  if (p.begins != 0) play_on_the_clock<M, G, Bounded, true>(p);
  else play_on_the_clock<M, G, Bounded, false>(p);
}
