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
  u32 reserved;
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

/// One look for message `i`; `wrong` counts payloads that are not what was sent.
template <Message M>
WARPWAY_DEVICE bool arrived(const Flight& p, u64 i, u64& seen, u64& wrong) {
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
    if (!missing) wrong += detail::widen(data) != i * 3;
    return !missing;
  }
  if constexpr (M == Message::Packet8) {
    u32 data, found;
    const bool missing = static_cast<const LL8*>(p.slot)->readOnce(flag, data, found);
    seen = found;
    if (!missing) wrong += data != flag * 3;
    return !missing;
  }
  if constexpr (M == Message::Line) {
    const LineGroup group = LineGroup::of(threadIdx.x);
    const Vec16 part = load_volatile(&static_cast<const Line*>(p.slot)->parts[group.part]);
    seen = u64{part.w} << 32 | part.z;
    const bool missing = group.any(group.part == 7 && seen != i);
    if (!missing) wrong += part.x != flag * 3 || part.y != group.part || (group.part != 7 && (part.z != flag || part.w != flag));
    return !missing;
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

template <Message M, bool Bounded>
WARPWAY_DEVICE bool receive(const Flight& p, u64 i, u64& wrong) {
  if constexpr (Bounded && M == Message::RelaxedSignal) return p.semaphore.relaxedWait() == Status::Ok;
  else if constexpr (Bounded && M == Message::Signal) return p.semaphore.wait() == Status::Ok;
  else if constexpr (Bounded) {
    const auto look = [&](u64& seen) { return arrived<M>(p, i, seen, wrong); };
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
      if (arrived<M>(p, awaited, seen, wrong)) return true;
    }
    return false;
  }
}

}  // namespace

/// Grid: 1 block of 1 thread on each GPU, of lines 8 threads. `Bounded` waits are the library's, with abort word and
/// deadline; bare ones only count.
template <Message M, Guard G, bool Bounded>
__global__ void flight(const Flight p) {
  u64 start = 0, wrong = 0;
  const u64 last = p.warm_up + p.rounds;
  for (u64 i = 1; i <= last; ++i) {
    if (i == p.warm_up + 1) start = clock_ns();
    if (p.begins != 0) send<M, G>(p, i);
    if (!receive<M, Bounded>(p, i, wrong)) return;
    if (p.begins == 0) send<M, G>(p, i);
  }
  const u64 end = clock_ns();
  if constexpr (is_line<M>) wrong = __reduce_add_sync(0xff, static_cast<u32>(wrong));
  if (threadIdx.x == 0) p.result[0] = end - start, p.result[1] = wrong, p.result[2] = last;
}
