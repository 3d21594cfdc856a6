// How waits end: the control block of a communicator on a device, the error record, and the only spin loop.
//
// A wait tests its condition first; where that holds nothing else is read. Every 64 failed tests it looks at the
// poison word and the clock, every millisecond and at its deadline at the host's abort word. The first failure of a
// communicator writes the record and sets the poison word; from then on waits return, guarded puts and signals do
// nothing, port channels take no requests, and the kernel comes to its end. A communicator that failed stays failed.
#pragma once

#include "warpway/platform.cuh"

/// The deadline where there is no control block to say one, in ns.
#if !defined(WARPWAY_DEFAULT_DEADLINE_NS)
#define WARPWAY_DEFAULT_DEADLINE_NS 600000000000ull
#endif

/// Programs written for methods that return nothing may ignore a status; the poison word still ends their kernel.
#if defined(WARPWAY_MSCCLPP_COMPAT)
#define WARPWAY_NODISCARD
#else
#define WARPWAY_NODISCARD [[nodiscard]]
#endif

namespace warpway {

/// How a call ended.
enum class Status : u32 { Ok = 0, Timeout = 1, Aborted = 2 };

/// What went wrong.
enum class Code : u16 {
  Timeout = 1,
  Aborted = 2,
  FifoRange = 3,
  StaleHandle = 4,
  Misuse = 5,
  Alignment = 6,
  Transport = 7,
};

/// Which wait or call.
enum class Kind : u16 {
  HostToDevice = 1,
  MemoryDeviceToDevice = 2,
  Switch = 3,
  Packet = 4,
  Flush = 5,
  FifoSlot = 6,
  GridBarrier = 7,
  DeviceSemaphore = 8,
  BulkBarrier = 9,
  Call = 10,
};

/// Where there is no peer.
inline constexpr u32 no_peer = ~0u;

/// The first failure of a communicator, 64 bytes in host memory.
struct alignas(8) ErrorRecord {
  u16 code;
  u16 kind;
  u32 rank;
  u32 peer;
  u32 object;
  u32 block;
  u32 thread;
  /// Counter, flag or phase.
  u64 expected;
  u64 observed;
  u64 elapsed_ns;
  u64 epoch;
  /// The abort word where the code is `Aborted`.
  u32 reason;
  u32 reserved;
};

/// The half of the control block in pinned host memory.
struct alignas(64) HostControl {
  /// 0 = run, otherwise a reason. Written by the host.
  u32 abort_word;
  /// 0 = no record, 1 = being written, 2 = complete. Stored with release after the record.
  u32 record_state;
  u32 reserved[14];
  ErrorRecord record;
};

/// The half in device memory; handles point to it. The host writes it before it hands out a handle.
struct alignas(64) Control {
  /// Not 0 after a failure.
  u32 poison;
  /// Taken by whoever may write the record.
  u32 claim;
  /// Limit of each wait; 0 = none. May be changed while no kernel runs.
  u64 deadline_ns;
  /// Mapped for the device.
  HostControl* host;
  /// Of the communicator on this device.
  u32 rank;
  u32 reserved[9];
};

/// Which object a call is made on. Part of every handle.
struct Site {
  /// Null: waits end by `WARPWAY_DEFAULT_DEADLINE_NS`, nothing is recorded.
  Control* control = nullptr;
  u32 peer = no_peer;
  /// As the host knows the channel or object.
  u32 object = 0;
};

/// A wait, for the record.
struct Wait {
  Site site;
  Kind kind;
  u64 expected;
  u64 epoch = 0;
};

/// Whether puts and signals look at the poison word first: after a failure they do nothing then. The look costs a load from
/// the second-level cache (benchmarks/results/gpu_primitives.json, "guard"). Code that leaves when a wait fails, as compiled
/// plans do, needs none. Single elements are never guarded, for the look costs more than they do: `read` and `write` of a channel,
/// `reduce`, `broadcast` and the static `multimem` methods. After a failure they still reach memory, which stays mapped until
/// the kernel has ended.
enum class Guard { Poison, None };

/// False once the communicator has failed.
template <Guard G = Guard::Poison>
WARPWAY_DEVICE bool is_running(const Site& site) {
  if constexpr (G == Guard::None) return true;
  else return site.control == nullptr || load<Scope::Device, Order::Relaxed>(&site.control->poison) == 0;
}

/// Records a failure, unless there was one before, and poisons the communicator.
WARPWAY_COLD void record_failure(Site site, Code code, Kind kind, u64 expected, u64 observed, u64 elapsed_ns, u64 epoch) {
  Control* control = site.control;
  if (control == nullptr) return;
  const bool first = compare_exchange<Scope::Device, Order::Relaxed>(&control->claim, 0u, 1u) == 0;
  store<Scope::Device, Order::Relaxed>(&control->poison, 1u);
  if (!first) return;
  HostControl* host = control->host;
  store<Scope::System, Order::Relaxed>(&host->record_state, 1u);
  ErrorRecord& record = host->record;
  record.code = static_cast<u16>(code);
  record.kind = static_cast<u16>(kind);
  record.rank = control->rank;
  record.peer = site.peer;
  record.object = site.object;
  record.block = block_in_grid();
  record.thread = thread_in_block();
  record.expected = expected;
  record.observed = observed;
  record.elapsed_ns = elapsed_ns;
  record.epoch = epoch;
  record.reason = code == Code::Aborted ? load<Scope::System, Order::Relaxed>(&host->abort_word) : 0;
  // Pairs with the host's acquire load: whoever sees 2 sees the record.
  store<Scope::System, Order::Release>(&host->record_state, 2u);
}

/// A call that cannot be carried out. Always `Aborted`.
WARPWAY_DEVICE Status refuse(const Site& site, Code code, u64 expected, u64 observed, Kind kind = Kind::Call) {
  record_failure(site, code, kind, expected, observed, 0, 0);
  return Status::Aborted;
}

/// Failed tests between two looks at poison and clock.
inline constexpr u32 tests_between_looks = 64;

/// Between two looks at the host's abort word. A load from host memory queues behind the stores on their way to
/// peers: tens of microseconds while a link is saturated, and more blocks that look often can halve its use
/// (benchmarks/results/gpu_bulk_before.json). Whoever is told by the host poisons the communicator for the others.
inline constexpr u64 ns_between_host_looks = 1000000;

/// A wait of one thread alone. Other groups leave together: `any` is a vote of all their threads.
struct Alone {
  WARPWAY_DEVICE bool any(bool value) const { return value; }
};

/// How a wait may be bounded and slowed down besides the deadline.
struct Patience {
  /// Failed tests after which the wait ends; negative = no such bound.
  i64 max_spin = -1;
  /// Sleep after each row of 64 failed tests, in ns.
  u32 pause = 0;
};

namespace detail {

/// Waits for other blocks of the device. They come last: where such a block waits for a peer itself, its wait began at
/// about the same time and is the one to be recorded, for it names the peer. Hence a longer deadline, and an abort must
/// be seen at three looks: by then waits for peers have seen it, too.
WARPWAY_DEVICE constexpr bool is_within_device(Kind kind) {
  return kind == Kind::GridBarrier || kind == Kind::DeviceSemaphore;
}

/// A row of tests without a look. Where `tests` is known, a test is little more than its load and branch: what the loop
/// adds to a test, it adds to every flight.
template <u32 Unrolled, class Condition>
WARPWAY_DEVICE bool holds_in_row(Condition& condition, u64& observed, u32 tests) {
  WARPWAY_UNROLL_BY(Unrolled)
  for (u32 test = 0; test < tests; ++test) {
    if (condition(observed)) return true;
  }
  return false;
}

/// What a long wait remembers from look to look.
struct Watch {
  /// Of the first look, which is some tens of microseconds after the first test.
  u64 start = 0;
  u64 host_look = 0;
  /// Aborts that waits within the device let pass.
  u32 ignored = 0;

  /// Whether the wait goes on (`Ok`) or how it ends. `spent`: no more tests are allowed.
  template <class Group>
  WARPWAY_DEVICE Status look(const Wait& wait, u64 observed, bool spent, const Group& group) {
    Control* const control = wait.site.control;
    const bool last = is_within_device(wait.kind);
    const u64 now = clock_ns();
    if (start == 0) start = now, host_look = now + ns_between_host_looks, ignored = last ? 2 : 0;
    // Who failed first has written the record.
    const bool poisoned = control != nullptr && load<Scope::Device, Order::Relaxed>(&control->poison) != 0;
    Status verdict = poisoned ? Status::Aborted : Status::Ok;
    Code code = Code::Timeout;
    if (!poisoned) {
      u64 deadline = control == nullptr ? WARPWAY_DEFAULT_DEADLINE_NS : control->deadline_ns;
      if (last) deadline += deadline / 4;
      if (spent || (deadline != 0 && now - start >= deadline)) verdict = Status::Timeout;
      if (control != nullptr && (verdict != Status::Ok || now >= host_look)) {
        host_look = now + ns_between_host_looks;
        if (load<Scope::System, Order::Relaxed>(&control->host->abort_word) != 0 && ignored-- == 0) {
          verdict = Status::Aborted;
          code = Code::Aborted;
        }
      }
    }
    if (!group.any(verdict != Status::Ok)) return Status::Ok;
    if (verdict == Status::Ok) return Status::Aborted;
    if (!poisoned) record_failure(wait.site, code, wait.kind, wait.expected, observed, now - start, wait.epoch);
    return verdict;
  }
};

}  // namespace detail

/// Spins until `condition(observed)` holds; it sets `observed` to what it saw. The deadline counts from the
/// first look, some tens of microseconds after the first test, so it is never early.
///
/// The first row of tests stands before everything else: most waits end in it, and there the deadline costs nothing
/// (benchmarks/results/gpu_primitives.json, "flight").
template <class Condition, class Group = Alone>
WARPWAY_DEVICE Status poll_until(const Wait& wait, Condition&& condition, Patience patience = {}, Group group = {}) {
  u64 observed = 0;
  // Of failed tests; negative: out of reach. One test is made in any case.
  const u64 limit = static_cast<u64>(patience.max_spin);
  u64 failed = tests_between_looks;
  if (limit >= tests_between_looks) {
    if (detail::holds_in_row<16>(condition, observed, tests_between_looks)) return Status::Ok;
  } else {
    failed = limit + 1;
    if (detail::holds_in_row<1>(condition, observed, static_cast<u32>(failed))) return Status::Ok;
  }
  // What follows is kept short: it stands between the tests above and what the caller does next.
  detail::Watch watch;
  for (;;) {
    const Status verdict = watch.look(wait, observed, failed > limit, group);
    if (verdict != Status::Ok) return verdict;
    if (patience.pause != 0) pause_ns(patience.pause);
    const u64 left = limit - failed + 1;
    const u32 row = left < tests_between_looks ? static_cast<u32>(left) : tests_between_looks;
    if (detail::holds_in_row<1>(condition, observed, row)) return Status::Ok;
    failed += row;
  }
}

/// Which of two conditions a wait ended by.
enum class Either : u32 { First = 0, Second = 1 };

/// Spins until one of two conditions holds, of which `first` is the cheaper one: it is tested before the other, and alone where it
/// holds. `which` is set with `Ok` only. Wait and record are those of `first`.
template <class First, class Second, class Group = Alone>
WARPWAY_NODISCARD WARPWAY_DEVICE Status poll_until_either(const Wait& wait, First&& first, Second&& second, Either& which,
                                                          Patience patience = {}, Group group = {}) {
  Either held = Either::First;
  const Status status = poll_until(
      wait,
      [&](u64& observed) {
        held = Either::First;
        if (first(observed)) return true;
        held = Either::Second;
        u64 other = 0;
        return second(other);
      },
      patience, group);
  if (status == Status::Ok) which = held;
  return status;
}

/// Joins what the threads of a block met: a block barrier after which all of them know whether all may go on.
/// Loops with a wait leave by this, so that nobody is left at a barrier. All threads of the block.
WARPWAY_DEVICE Status agree(Status status) {
  return block_any(status != Status::Ok) ? (status == Status::Ok ? Status::Aborted : status) : Status::Ok;
}

}  // namespace warpway
