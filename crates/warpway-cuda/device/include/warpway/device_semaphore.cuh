// A counting semaphore of one GPU, first come, first served.
//
// Each `acquire` draws a ticket and is served once as many units have been there: nobody can be overtaken and no wake-up
// is lost, whatever the number of contenders. Callers are single threads; a block brackets a call with block barriers.
#pragma once

#include "warpway/control.cuh"

namespace warpway {

struct DeviceSemaphore {
  /// Tickets drawn.
  u64 tickets = 0;
  /// The initial units and those returned.
  u64 units = 0;
  Site site = {};

  DeviceSemaphore() = default;
  WARPWAY_ANYWHERE constexpr explicit DeviceSemaphore(u64 initial) : units(initial) {}

  /// Starts again with `value` units. Only while nobody uses it.
  WARPWAY_DEVICE void set(u64 value) {
    store<Scope::Device, Order::Relaxed>(&tickets, u64{0});
    store<Scope::Device, Order::Release>(&units, value);
  }

  /// Takes a unit, waiting for one if need be. Sees what was done before the unit was returned.
  WARPWAY_NODISCARD WARPWAY_DEVICE Status acquire(i64 max_spin = -1) {
    const u64 ticket = fetch_add<Scope::Device, Order::Relaxed>(&tickets, u64{1});
    return poll_until(
        Wait{site, Kind::DeviceSemaphore, ticket + 1},
        [&](u64& seen) {
          seen = load<Scope::Device, Order::Acquire>(&units);
          return seen > ticket;
        },
        {max_spin});
  }

  /// Returns a unit.
  WARPWAY_DEVICE void release() { fetch_add<Scope::Device, Order::Release>(&units, u64{1}); }
};

}  // namespace warpway
