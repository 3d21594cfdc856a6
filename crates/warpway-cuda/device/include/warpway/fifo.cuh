// The trigger FIFO: a ring in pinned host memory through which any number of threads hand requests to a proxy.
//
// A slot is 64 bytes, four 16-byte words of two 64-bit halves:
//
// | word | first half         | second half; bit 63 is the commit bit           |
// |------|--------------------|-------------------------------------------------|
// | 0    | destination offset | kind (bits 7..0), semaphore id (bits 39..8)     |
// | 1    | source offset      | destination memory id (bits 31..0)              |
// | 2    | size in bytes      | source memory id (bits 31..0)                   |
// | 3    | value              | 0                                               |
//
// Position p goes to slot p mod size once the slot's last occupant is consumed (p < size + tail). The commit bit is 1 on
// even laps and 0 on odd ones, so a zeroed ring is empty and needs no clearing. Every word is one 16-byte store; the
// consumer takes a slot when all four show the bit of its lap. Bit 63 of the tail says that the proxy has stopped.
#pragma once

#include "warpway/control.cuh"

namespace warpway {

/// Parts of a request, carried out in this order.
inline constexpr u32 trigger_data = 1;
inline constexpr u32 trigger_flag = 2;
inline constexpr u32 trigger_sync = 4;
inline constexpr u32 trigger_atomic_add = 8;

/// One request. Fields that its kind does not use are carried, but ignored.
struct Trigger {
  u32 kind;
  u32 semaphore;
  u32 destination;
  u32 source;
  u64 destination_offset;
  u64 source_offset;
  u64 size;
  i64 value;
};

/// What a push returns that pushed nothing.
inline constexpr u64 no_position = ~u64{0};

/// In counters of the proxy: it has stopped, and what is not counted will never be done.
inline constexpr u64 proxy_stopped = u64{1} << 63;

/// Waits until a counter of the proxy has passed `position`. A stopped proxy is a failure, never a success.
WARPWAY_NODISCARD WARPWAY_DEVICE Status await_proxy(const u64* counter, u64 position, const Site& site, Kind kind,
                                                    u64& seen, Patience patience) {
  const Status status = poll_until(
      Wait{site, kind, position + 1},
      [&](u64& observed) {
        observed = seen = load<Scope::System, Order::Acquire>(counter);
        return (seen & ~proxy_stopped) > position || (seen & proxy_stopped) != 0;
      },
      patience);
  if (status != Status::Ok || (seen & ~proxy_stopped) > position) return status;
  return refuse(site, Code::Aborted, position + 1, seen, kind);
}

struct Fifo {
  /// Pinned host memory.
  u64* slots;
  /// Positions taken, local device memory.
  u64* head;
  /// Elements consumed, pinned host memory, written by the proxy only.
  const u64* tail;
  /// A value that the tail has had, local device memory.
  u64* cached_tail;
  /// Slots, a power of two.
  u64 size;
  Site site;

  /// Publishes one request and everything that the thread wrote or acquired before, and returns its position. Waits only
  /// while its slot is occupied. Nothing is pushed, and `no_position` returned, if the request does not fit its slot
  /// or its ranges end beyond 2^64 (`FifoRange`), after a failure, and if the proxy has stopped.
  WARPWAY_DEVICE u64 push(const Trigger& trigger, i64 max_spin = -1) const {
    if (!is_valid(trigger) || !is_running(site)) return no_position;
    const u64 position = fetch_add<Scope::Device, Order::Relaxed>(head, u64{1});
    // Acquire, with the release below: what one producer learnt of the consumer's reads counts for the others.
    if (position >= size + load<Scope::Device, Order::Acquire>(cached_tail)) {
      u64 seen = 0;
      if (await_proxy(tail, position - size, site, Kind::FifoSlot, seen, {max_spin}) != Status::Ok) return no_position;
      // May replace a newer value; that costs a needless look at the tail, nothing else.
      store<Scope::Device, Order::Release>(cached_tail, seen & ~proxy_stopped);
    }
    const u64 commit = (position & size) == 0 ? u64{1} << 63 : 0;
    u64* slot = slots + 8 * (position & (size - 1));
    // One release for all four words: each of them may complete the slot.
    fence<Scope::System>();
    store_whole(slot + 0, trigger.destination_offset, commit | trigger.kind | u64{trigger.semaphore} << 8);
    store_whole(slot + 2, trigger.source_offset, commit | trigger.destination);
    store_whole(slot + 4, trigger.size, commit | trigger.source);
    store_whole(slot + 6, static_cast<u64>(trigger.value), commit);
    return position;
  }

  /// True once there is nothing to wait for: the request has been consumed, though it need not be complete, or it never will
  /// be, because nothing was pushed, the proxy has stopped or the communicator has failed. So loops on it end, by a failure
  /// at the latest; `sync` says how.
  WARPWAY_DEVICE bool poll(u64 position) const {
    if (position == no_position) return true;
    const u64 seen = load<Scope::System, Order::Acquire>(tail);
    if ((seen & ~proxy_stopped) > position) return true;
    if ((seen & proxy_stopped) == 0) return !is_running(site);
    refuse(site, Code::Aborted, position + 1, seen, Kind::FifoSlot);
    return true;
  }

  /// Waits until the request has been consumed.
  WARPWAY_NODISCARD WARPWAY_DEVICE Status sync(u64 position, i64 max_spin = -1) const {
    if (position == no_position) return Status::Aborted;
    u64 seen = 0;
    return await_proxy(tail, position, site, Kind::FifoSlot, seen, {max_spin});
  }

 private:
  WARPWAY_DEVICE bool is_valid(const Trigger& trigger) const {
    u64 wrong = trigger.kind;
    bool valid = trigger.kind != 0 && trigger.kind <= 15;
    if (valid && (trigger.kind & trigger_data) != 0) {
      // The greatest offset from which `size` bytes stay below 2^64.
      const u64 last = ~trigger.size;
      const u64 highest =
          trigger.destination_offset > trigger.source_offset ? trigger.destination_offset : trigger.source_offset;
      valid = highest <= last;
      wrong = highest;
    }
    if (!valid) refuse(site, Code::FifoRange, trigger.size, wrong);
    return valid;
  }
};

}  // namespace warpway
