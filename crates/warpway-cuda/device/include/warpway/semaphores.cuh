// Semaphores between a GPU and its host, between GPUs, and within a multicast group.
//
// Counters are 64 bits wide, only grow, and need no reset between launches. Each wait takes exactly one signal: it
// draws the next ticket from the local counter and waits until as many signals have come. Any thread may call any
// method; several may wait, and each gets a signal of its own.
//
// A signal is a release of the calling thread at system scope, a wait an acquire: data of other threads of the block
// is covered if a block barrier stands between. The relaxed forms order nothing and are for "the peer has started".
#pragma once

#include "warpway/control.cuh"
#include "warpway/platform_multimem.cuh"

namespace warpway {

namespace detail {

/// Takes one of the signals counted at `inbound`, waiting for it if need be. Ticket and first test are
/// loads that do not depend on each other, so an early signal costs one round trip to memory.
template <Order O>
WARPWAY_DEVICE Status take(const u64* inbound, u64* taken, const Site& site, Kind kind, Patience patience) {
  const u64 ticket = fetch_add<Scope::Device, Order::Relaxed>(taken, u64{1}) + 1;
  return poll_until(
      Wait{site, kind, ticket},
      [=](u64& seen) {
        seen = load<Scope::System, O>(inbound);
        return seen >= ticket;
      },
      patience);
}

/// Takes a signal if there is one that nobody has drawn a ticket for.
WARPWAY_DEVICE bool try_take(const u64* inbound, u64* taken) {
  u64 before = load<Scope::Device, Order::Relaxed>(taken);
  while (load<Scope::System, Order::Acquire>(inbound) > before) {
    const u64 found = compare_exchange<Scope::Device, Order::Relaxed>(taken, before, before + 1);
    if (found == before) return true;
    before = found;
  }
  return false;
}

}  // namespace detail

/// The host or its proxy signals, the device waits.
struct Host2DeviceSemaphore {
  /// Raised by the host.
  u64* inbound;
  /// Tickets drawn, local device memory.
  u64* expected;
  Site site;

  /// True if it took a signal. Acquires then.
  WARPWAY_DEVICE bool poll() const { return detail::try_take(inbound, expected); }

  /// Takes a signal. Timeout or abort end it.
  WARPWAY_NODISCARD WARPWAY_DEVICE Status wait(i64 max_spin = -1) const {
    return detail::take<Order::Acquire>(inbound, expected, site, Kind::HostToDevice, {max_spin});
  }
};

/// A peer's GPU signals by a store over the link, this one waits.
struct MemoryDevice2DeviceSemaphore {
  /// Raised by the peer, local memory.
  u64* inbound;
  /// The peer's counter.
  u64* remote_inbound;
  /// Tickets drawn, local device memory.
  u64* expected;
  Site site;

  /// Adds 1 to the peer's counter after everything that the thread wrote or acquired. Guarded: nothing after a failure.
  template <Guard G = Guard::Poison>
  WARPWAY_DEVICE void signal() const {
    if (is_running<G>(site)) fetch_add<Scope::System, Order::Release>(remote_inbound, u64{1});
  }

  /// The same, ordering nothing.
  template <Guard G = Guard::Poison>
  WARPWAY_DEVICE void relaxedSignal() const {
    if (is_running<G>(site)) fetch_add<Scope::System, Order::Relaxed>(remote_inbound, u64{1});
  }

  /// True if it took a signal. Acquires then.
  WARPWAY_DEVICE bool poll() const { return detail::try_take(inbound, expected); }

  /// Takes a signal and sees what its sender wrote before.
  WARPWAY_NODISCARD WARPWAY_DEVICE Status wait(i64 max_spin = -1) const {
    return detail::take<Order::Acquire>(inbound, expected, site, Kind::MemoryDeviceToDevice, {max_spin});
  }

  /// Takes a signal; no data may be read on the strength of it.
  WARPWAY_NODISCARD WARPWAY_DEVICE Status relaxedWait(i64 max_spin = -1) const {
    return detail::take<Order::Relaxed>(inbound, expected, site, Kind::MemoryDeviceToDevice, {max_spin});
  }
};

/// A barrier of a multicast group in two halves. Each rank makes as many signals as waits, and all ranks equally many.
struct SwitchDevice2DeviceSemaphore {
  /// The arrival counters of all members, multicast address; null if the group has no barrier.
  u64* multicast;
  /// The local one of them.
  u64* arrivals;
  /// Arrivals that the waits so far account for, local device memory.
  u64* generation;
  u32 n_ranks;
  u32 reserved;
  Site site;

  /// Arrives, after everything that the thread wrote or acquired.
  template <Guard G = Guard::Poison>
  WARPWAY_DEVICE void signal() const {
    if (!usable() || !is_running<G>(site)) return;
    fence<Scope::System>();
    multimem_add(multicast, u64{1});
  }

  /// The same, ordering nothing.
  template <Guard G = Guard::Poison>
  WARPWAY_DEVICE void relaxedSignal() const {
    if (usable() && is_running<G>(site)) multimem_add(multicast, u64{1});
  }

  /// Waits for the arrival of all ranks.
  WARPWAY_NODISCARD WARPWAY_DEVICE Status wait(i64 max_spin = -1) const { return complete<Order::Acquire>(max_spin); }

  /// The same, ordering nothing.
  WARPWAY_NODISCARD WARPWAY_DEVICE Status relaxedWait(i64 max_spin = -1) const {
    return complete<Order::Relaxed>(max_spin);
  }

 private:
  template <Order O>
  WARPWAY_DEVICE Status complete(i64 max_spin) const {
    if (!usable()) return Status::Aborted;
    const u64 target = fetch_add<Scope::Device, Order::Relaxed>(generation, u64{n_ranks}) + n_ranks;
    const u64* counter = arrivals;
    return poll_until(
        Wait{site, Kind::Switch, target},
        [=](u64& seen) {
          seen = load<Scope::System, O>(counter);
          return static_cast<i64>(seen - target) >= 0;
        },
        {max_spin});
  }

  /// A group without barrier is an error in every build.
  WARPWAY_DEVICE bool usable() const {
    if (multicast != nullptr) return true;
    refuse(site, Code::Misuse, 1, 0);
    return false;
  }
};

}  // namespace warpway
