// What the headers do when one host thread calls: copies, packets, lines, waits, requests. Threads of a collective call one
// after the other. Ends with 0 if all is right, else names the check that failed.
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

#include "check.h"
#include "warpway/device_semaphore.cuh"
#include "warpway/epoch.cuh"
#include "warpway/grid.cuh"
#include "warpway/lines.cuh"
#include "warpway/memory_channel.cuh"
#include "warpway/port_channel.cuh"
#include "warpway/vectors.cuh"

using namespace warpway;

namespace {

u8 sample(u32 i) { return static_cast<u8>(i * 7 + i / 251 + 1); }

/// Exactly `bytes` bytes of `out` from `from` on are those of `data`, all others `filler`.
void check_only(const u8* out, const u8* data, u32 room, u32 from, u32 bytes, u8 filler) {
  for (u32 i = 0; i < room; ++i) {
    const u8 expected = i >= from && i < from + bytes ? data[i - from] : filler;
    if (out[i] == expected) continue;
    std::printf("byte %u is %u, not %u: %u bytes from %u\n", i, out[i], expected, bytes, from);
    std::exit(1);
  }
}

template <u32 Depth>
void copies_are_exact() {
  alignas(64) static u8 src[512], dst[512];
  for (u32 i = 0; i < 512; ++i) src[i] = sample(i);
  for (u32 threads : {1u, 3u, 32u}) {
    for (u32 to = 64; to < 96; ++to) {
      for (u32 from = 64; from < 96; ++from) {
        for (u32 bytes = 0; bytes <= 257; ++bytes) {
          std::memset(dst, 0xc5, sizeof dst);
          for (u32 t = 0; t < threads; ++t) {
            copy<16, true, Depth>(dst + to, static_cast<const void*>(src + from), bytes, t, threads);
          }
          check_only(dst, src + from, 512, to, bytes, 0xc5);
        }
      }
    }
  }
  for (u32 bytes = 0; bytes <= 256; bytes += 4) {
    std::memset(dst, 0xc5, sizeof dst);
    for (u32 t = 0; t < 5; ++t) copy<4, false, Depth>(dst + 64, src + 68, bytes, t, 5);
    check_only(dst, src + 68, 512, 64, bytes, 0xc5);
  }
}

template <class Packet>
void packets_take_any_number_of_bytes() {
  alignas(64) u8 data[128], out[128], packets[512];
  constexpr u32 payload = sizeof(typename Packet::Payload), guard = 64;
  for (u32 i = 0; i < 128; ++i) data[i] = sample(i);
  for (u32 shift = 0; shift < 9; ++shift) {
    for (u32 bytes = 0; bytes <= 65; ++bytes) {
      for (u32 threads : {1u, 4u, 7u}) {
        std::memset(packets, 0xa5, sizeof packets);
        std::memset(out, 0xee, sizeof out);
        for (u32 t = 0; t < threads; ++t) copyToPackets<Packet>(packets + guard, data + shift, bytes, t, threads, 9);
        const u32 count = (bytes + payload - 1) / payload;
        for (u32 i = 0; i < 512; ++i) {
          if (i < guard || i >= guard + count * sizeof(Packet)) CHECK(packets[i] == 0xa5);
        }
        if (count > 0) {
          typename Packet::Payload last;
          u8 padded[8];
          CHECK(!reinterpret_cast<Packet*>(packets + guard)[count - 1].readOnce(9, last));
          std::memcpy(padded, &last, payload);
          for (u32 i = bytes - (count - 1) * payload; i < payload; ++i) CHECK(padded[i] == 0);
        }
        for (u32 t = 0; t < threads; ++t) {
          CHECK(copyFromPackets<Packet>(out + shift, packets + guard, bytes, t, threads, 9) == Status::Ok);
        }
        check_only(out, data + shift, 128, shift, bytes, 0xee);
      }
    }
  }
}

void lines_take_any_number_of_bytes() {
  alignas(128) static u8 lines[2048];
  alignas(64) static u8 data[600], out[600];
  for (u32 i = 0; i < 600; ++i) data[i] = sample(i);
  for (u32 shift = 0; shift < 9; ++shift) {
    for (u32 bytes = 0; bytes <= 500; ++bytes) {
      std::memset(lines, 0xa5, sizeof lines);
      std::memset(out, 0xee, sizeof out);
      for (u32 t = 0; t < 16; ++t) copyToLines(lines + 128, data + shift, bytes, t, 16, 77);
      for (u32 i = 0; i < 2048; ++i) {
        if (i < 128 || i >= 128 + (bytes + 119) / 120 * 128) CHECK(lines[i] == 0xa5);
      }
      for (u32 t = 0; t < 16; ++t) CHECK(copyFromLines(out + shift, lines + 128, bytes, t, 16, 77) == Status::Ok);
      check_only(out, data + shift, 600, shift, bytes, 0xee);
    }
  }
}

/// A communicator that has not failed, with a deadline of 5 ms.
struct World {
  HostControl host{};
  Control control{};
  World() { control.deadline_ns = 5000000, control.host = &host, control.rank = 3; }
  Site site() { return Site{&control, 1, 42}; }
  bool failed(Code code, Kind kind, u64 expected, u64 observed) const {
    const ErrorRecord& r = host.record;
    return control.poison == 1 && host.record_state == 2 && r.code == u16(code) && r.kind == u16(kind) && r.rank == 3 &&
           r.peer == 1 && r.object == 42 && r.expected == expected && r.observed == observed;
  }
};

void semaphores_wait_and_fail() {
  World w;
  u64 inbound = 2, remote = 0, expected = 0;
  const MemoryDevice2DeviceSemaphore semaphore{&inbound, &remote, &expected, w.site()};
  CHECK(semaphore.wait() == Status::Ok && semaphore.poll() && !semaphore.poll() && expected == 2);
  semaphore.signal(), semaphore.relaxedSignal();
  CHECK(remote == 2);
  CHECK(semaphore.wait(100) == Status::Timeout);
  CHECK(w.failed(Code::Timeout, Kind::MemoryDeviceToDevice, 3, 2));
  semaphore.signal(), semaphore.relaxedSignal();
  CHECK(remote == 2);
  CHECK(semaphore.wait() == Status::Aborted && w.host.record.expected == 3);

  World late;
  const Host2DeviceSemaphore slow{&inbound, &expected, late.site()};
  CHECK(slow.wait() == Status::Timeout && late.failed(Code::Timeout, Kind::HostToDevice, 5, 2));
  CHECK(late.host.record.elapsed_ns >= 5000000 && late.host.record.elapsed_ns < 5100000);

  World stopped;
  stopped.host.abort_word = 9;
  const Host2DeviceSemaphore aborted{&inbound, &expected, stopped.site()};
  CHECK(aborted.wait() == Status::Aborted && stopped.failed(Code::Aborted, Kind::HostToDevice, 6, 2));
  CHECK(stopped.host.record.reason == 9 && stopped.host.record.elapsed_ns >= ns_between_host_looks);
  CHECK(stopped.host.record.elapsed_ns < 2 * ns_between_host_looks);

  // A deadline before the first look at the host's word is an abort where there was one.
  World brief;
  brief.host.abort_word = 7, brief.control.deadline_ns = ns_between_host_looks / 2;
  const Host2DeviceSemaphore hurried{&inbound, &expected, brief.site()};
  CHECK(hurried.wait() == Status::Aborted && brief.failed(Code::Aborted, Kind::HostToDevice, 7, 2));
  CHECK(brief.host.record.reason == 7 && brief.host.record.elapsed_ns < ns_between_host_looks);

  World units;
  DeviceSemaphore one(1);
  one.site = units.site();
  CHECK(one.acquire() == Status::Ok);
  one.release();
  CHECK(one.acquire() == Status::Ok && one.acquire(10) == Status::Timeout);
  CHECK(units.failed(Code::Timeout, Kind::DeviceSemaphore, 3, 2));

  World blocks;
  DeviceSyncer syncer;
  syncer.site = blocks.site();
  CHECK(syncer.sync(1) == Status::Ok && syncer.sync(2, 10) == Status::Timeout && syncer.arrivals == 1);
  CHECK(blocks.failed(Code::Timeout, Kind::GridBarrier, 1, 0));
  CHECK(syncer.sync(2) == Status::Ok && syncer.generation == 1 && syncer.arrivals == 0);

  // Blocks that wait for blocks give those that wait for a peer time to speak first.
  World others;
  DeviceSyncer unmet;
  unmet.site = others.site();
  CHECK(unmet.sync(2) == Status::Timeout && others.host.record.elapsed_ns >= 6250000 && others.host.record.elapsed_ns < 6400000);
  World given_up;
  given_up.host.abort_word = 1;
  DeviceSemaphore nobody(0);
  nobody.site = given_up.site();
  CHECK(nobody.acquire() == Status::Aborted && given_up.host.record.elapsed_ns >= 3 * ns_between_host_looks);

  World none;
  MemoryChannel channel{};
  channel.semaphore = MemoryDevice2DeviceSemaphore{&inbound, &remote, &expected, none.site()};
  CHECK(channel.unpackPackets(0, 8, 0, 1, 1) == Status::Aborted && none.failed(Code::Misuse, Kind::Call, 1, 0));

  World silent;
  LL16 packet{};
  Vec8 data{1, 1};
  CHECK(await_packet(&packet, 5, data, silent.site()) == Status::Timeout && data.x == 0 && data.y == 0);
  CHECK(silent.failed(Code::Timeout, Kind::Packet, 5, 0));

  // Of nine packets of a thread the seventh has another flag: it is named, and what was unpacked before it stays.
  World partial;
  alignas(16) LL16 nine[9];
  u64 unpacked[9] = {};
  for (u32 i = 0; i < 9; ++i) nine[i].write(u64{i} + 1, i == 6 ? 4 : 5);
  CHECK(copyFromPackets(unpacked, nine, sizeof unpacked, 0, 1, 5, -1, partial.site()) == Status::Timeout);
  CHECK(partial.failed(Code::Timeout, Kind::Packet, 5, 4));
  for (u32 i = 0; i < 9; ++i) CHECK(unpacked[i] == (i < near_depth ? i + 1 : 0));
}

void half_a_packet_is_none() {
  alignas(16) LL16 packet{};
  Vec8 data{};
  packet.write(1, 2, 5);
  CHECK(!packet.readOnce(5, data) && data.x == 1 && data.y == 2);
  packet.flag1 = 6;
  CHECK(packet.readOnce(5, data) && packet.readOnce(6, data));
  packet.flag1 = 5, packet.flag2 = 6;
  CHECK(packet.readOnce(5, data) && packet.readOnce(6, data));
}

void a_bound_counts_failed_tests() {
  for (i64 bound : {i64{0}, i64{1}, i64{63}, i64{64}, i64{100}}) {
    World w;
    i64 tests = 0;
    const auto never = [&](u64&) { return ++tests < 0; };
    CHECK(poll_until(Wait{w.site(), Kind::Call, 1}, never, {bound}) == Status::Timeout && tests == bound + 1);
  }
  // Poison is seen at the first look, after a row of tests, and not before.
  World w;
  w.control.poison = 1;
  u32 tests = 0;
  const auto late = [&](u64&) { return ++tests == tests_between_looks; };
  CHECK(poll_until(Wait{w.site(), Kind::Call, 1}, late) == Status::Ok);
  tests = 0;
  CHECK(poll_until(Wait{w.site(), Kind::Call, 1}, [&](u64&) { return ++tests == 100; }) == Status::Aborted);
  CHECK(tests == tests_between_looks && w.host.record_state == 0);
}

/// The cheaper one is tested first, and the other only where it fails; the record is that of the first.
void either_of_two_conditions_ends_a_wait() {
  for (u32 first_at : {1u, 70u, ~0u}) {
    for (u32 second_at : {1u, 70u, 200u, ~0u}) {
      World w;
      u32 firsts = 0, seconds = 0;
      const u32 end = first_at <= second_at ? first_at : second_at;
      const Either expected = first_at == end ? Either::First : Either::Second;
      // What it must become, it is not before; what it must stay after a failure, the last test was not.
      const Either before = end <= 100 && expected == Either::First ? Either::Second : Either::First;
      Either which = before;
      const auto first = [&](u64& seen) { return seen = 5, ++firsts >= first_at; };
      const auto second = [&](u64& seen) { return seen = 6, ++seconds >= second_at; };
      const Status status = poll_until_either(Wait{w.site(), Kind::Call, 9}, first, second, which, {99});
      if (end > 100) {
        CHECK(status == Status::Timeout && firsts == 100 && seconds == 100 && which == before);
        CHECK(w.failed(Code::Timeout, Kind::Call, 9, 5));
      } else {
        CHECK(status == Status::Ok && firsts == end && which == expected);
        CHECK(seconds == (expected == Either::First ? end - 1 : end) && w.control.poison == 0);
      }
    }
  }
}

/// Six arguments are two offsets and no bound, or one offset and a bound.
void arguments_of_unpackPackets_say_what_they_are() {
  alignas(16) u8 packets[64], data[40];
  u64 words[3] = {};
  World w;
  const MemoryChannel c{{&words[0], &words[1], &words[2], w.site()}, packets, 64, data, 40, packets, 64, nullptr, 0};
  const auto moved = [&](u32 to, u32 from, auto call) {
    for (u32 i = 0; i < 40; ++i) data[i] = static_cast<u8>(i + 1);
    for (u32 i = 0; i < 4; ++i) c.putPackets(16 * i, 8 * i, 8, 0, 1, 9);
    std::memset(data, 0xee, 40);
    CHECK(call() == Status::Ok && w.control.poison == 0);
    for (u32 i = 0; i < 40; ++i) CHECK(data[i] == (i >= to && i < to + 8 ? from + i - to + 1 : 0xee));
  };
  const u64 bytes = 8;
  const u32 thread = 0, flag = 9;
  moved(24, 8, [&] { return c.unpackPackets(24, 16, 8, 0, 1, 9); });
  moved(24, 8, [&] { return c.unpackPackets<LL16>(24, 16, sizeof bytes, thread, 1, 9); });
  moved(24, 8, [&] { return c.unpackPackets(24, 16, bytes, thread, 1u, flag); });
  moved(24, 8, [&] { return c.unpackPackets(24, 16, 8u, thread, 1u, flag); });
  moved(24, 8, [&] { return c.unpackPackets(24, 16, 8, 0, 1, 9, 100); });
  moved(16, 8, [&] { return c.unpackPackets(16, 8, 0, 1, 9); });
  moved(16, 8, [&] { return c.unpackPackets(16, bytes, thread, 1u, flag, 100); });
  moved(16, 8, [&] { return c.unpackPackets(16, bytes, thread, 1, 9, 100l); });
  moved(16, 8, [&] { return c.unpackPackets<LL16>(16, 8, 0, 1, 9, i64{100}); });
  moved(16, 8, [&] { return c.unpackPackets(16, bytes, u64{0}, 1u, flag, i64{100}); });
}

void requests_lie_as_the_proxy_expects() {
  constexpr u64 commit = u64{1} << 63;
  World w;
  alignas(64) u64 slots[16] = {};
  u64 head = 0, tail = 0, cached = 0;
  const Fifo fifo{slots, &head, &tail, &cached, 2, w.site()};
  // The element of `the_layout_is_the_documented_one` in warpway-core.
  const Trigger trigger{5, 0x87654321, 0xfedcba98, 0x01234567, 0x1111222233334444, 0x5555666677778888, 0x0999aaaabbbbcccc, -2};
  const u64 words[8] = {0x1111222233334444, commit | 0x8765432105, 0x5555666677778888, commit | 0xfedcba98,
                        0x0999aaaabbbbcccc, commit | 0x01234567, 0xfffffffffffffffe, commit};
  CHECK(fifo.push(trigger) == 0 && std::memcmp(slots, words, 64) == 0);
  CHECK(fifo.push(trigger) == 1 && !fifo.poll(0));
  tail = 1;
  CHECK(fifo.poll(0) && !fifo.poll(1) && fifo.sync(0) == Status::Ok);
  CHECK(fifo.push(trigger) == 2 && slots[1] == 0x8765432105 && slots[7] == 0 && cached == 1);
  CHECK(fifo.push(trigger) == no_position && w.failed(Code::Timeout, Kind::FifoSlot, 2, 1));
  CHECK(fifo.push(trigger) == no_position && head == 4);
  // Nobody is kept in a loop: consumed, failed, never pushed, stopped.
  CHECK(fifo.poll(0) && fifo.poll(1) && fifo.poll(no_position) && fifo.sync(1) == Status::Aborted);

  World last;
  tail = 2 | proxy_stopped;
  const Fifo polled{slots, &head, &tail, &cached, 2, last.site()};
  CHECK(polled.poll(1) && last.control.poison == 0);
  CHECK(polled.poll(2) && last.failed(Code::Aborted, Kind::FifoSlot, 3, tail));

  World stopped;
  tail = 2 | proxy_stopped;
  const Fifo dead{slots, &head, &tail, &cached, 2, stopped.site()};
  CHECK(dead.sync(1) == Status::Ok && dead.sync(2) == Status::Aborted);
  CHECK(stopped.failed(Code::Aborted, Kind::FifoSlot, 3, tail));

  for (u32 wrong = 0; wrong < 3; ++wrong) {
    World refused;
    Trigger bad = trigger;
    if (wrong == 0) bad.size = ~u64{0} - 3;
    if (wrong == 1) bad.kind = 16;
    if (wrong == 2) bad.kind = 0;
    CHECK((Fifo{slots, &head, &tail, &cached, 2, refused.site()}.push(bad) == no_position));
    CHECK(refused.host.record.code == u16(Code::FifoRange) && head == 4);
  }
}

/// An addition needs eight bytes of the peer's memory, at a multiple of eight.
void additions_stay_within_their_memory() {
  for (u64 bytes : {u64{0}, u64{7}, u64{8}, u64{24}, u64{28}}) {
    for (u64 offset : {u64{0}, u64{4}, u64{16}, u64{24}, u64{1} << 63, ~u64{7}}) {
      World w;
      alignas(64) u64 slots[16] = {};
      u64 head = 0, tail = 0, cached = 0;
      const PortChannel channel{{3, 0, {}, Fifo{slots, &head, &tail, &cached, 2, w.site()}, &tail}, 5, 6, bytes, 0};
      const bool fits = bytes >= 8 && offset <= bytes - 8;
      if (fits && offset % 8 == 0) {
        CHECK(channel.atomicAdd(offset, -2) == 0 && slots[0] == offset && slots[6] == ~u64{1} && w.control.poison == 0);
        continue;
      }
      CHECK(channel.atomicAdd(offset, -2) == no_position && head == 0);
      CHECK(fits ? w.failed(Code::Alignment, Kind::Call, 8, offset) : w.failed(Code::FifoRange, Kind::Call, 8, offset));
    }
  }
}

#if defined(WARPWAY_DEVICE_CHECKS)
/// Packets and lines with flag 0 or at an odd place are neither written nor waited for.
void checked_packets_refuse() {
  alignas(128) u8 place[256], data[8] = {};
  u64 words[3] = {};
  for (u32 call = 0; call < 10; ++call) {
    std::memset(place, 0, 256);
    World w;
    const MemoryChannel c{{&words[0], &words[1], &words[2], w.site()}, place, 256, data, 8, place, 256, nullptr, 0};
    MemoryChannel shifted = c;
    shifted.packet_buffer = place + 8;
    Vec8 payload{1, 1};
    Vec16 part{1, 1, 1, 1};
    const auto* line = reinterpret_cast<const Line*>(place);
    const auto* beside = reinterpret_cast<const Line*>(place + 16);
    u64 size = 0, off = 0;
    if (call == 0) c.putPackets(0, 0, 8, 0, 1, 0);
    if (call == 1) c.putPackets(24, 0, 8, 0, 1, 9), size = 16, off = 8;
    if (call == 2) c.putPackets<LL8>(4, 0, 8, 0, 1, 9), size = 8, off = 4;
    if (call == 3) CHECK(c.unpackPackets(0, 8, 0, 1, 0) == Status::Aborted);
    if (call == 4) { CHECK(shifted.unpackPackets(0, 8, 0, 1, 9) == Status::Aborted); size = 16, off = 8; }
    if (call == 5) CHECK(c.unpackPacket(0, 0).x == 0);
    if (call == 6) { CHECK(await_packet(reinterpret_cast<LL16*>(place + 8), 9, payload, w.site()) == Status::Aborted); size = 16, off = 8; }
    if (call == 7) CHECK(await_packet(reinterpret_cast<LL8*>(place), 0, payload.x, w.site()) == Status::Aborted);
    if (call == 8) CHECK(await_line(line, LineGroup::of(0), 0, part, w.site()) == Status::Aborted && part.x == 0);
    if (call == 9) { CHECK(await_line(beside, LineGroup::of(0), 9, part, w.site()) == Status::Aborted); size = 128, off = 16; }
    CHECK(size == 0 ? w.failed(Code::Misuse, Kind::Packet, 1, 0) : w.failed(Code::Alignment, Kind::Packet, size, off));
    CHECK(payload.x == (call == 6 || call == 7 ? 0 : 1));
    for (u32 i = 0; i < 256; ++i) CHECK(place[i] == 0);
  }
}

/// Who has no site to report to ends by a trap.
void checked_packing_traps() {
  alignas(128) static u8 place[256], data[8];
  for (u32 call = 0; call < 5; ++call) {
    const pid_t child = fork();
    if (child == 0) {
      if (call == 0) copyToPackets(place, data, 8, 0, 1, 9), copyToLines(place, data, 8, 0, 8, 9);
      if (call == 1) copyToPackets(place, data, 8, 0, 1, 0);
      if (call == 2) copyToPackets(place + 8, data, 8, 0, 1, 9);
      if (call == 3) copyToLines(place, data, 8, 0, 8, 0);
      if (call == 4) copyToLines(place + 64, data, 8, 0, 8, 9);
      _exit(0);
    }
    int status = 0;
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    CHECK(call == 0 ? WIFEXITED(status) && WEXITSTATUS(status) == 0 : WIFSIGNALED(status) && WTERMSIG(status) != SIGSEGV);
  }
}

/// Ranges that end beyond their memory, or begin there, and handles whose channel is gone: nothing is moved.
void checked_channels_refuse() {
  alignas(16) u8 remote[80], local[80], arrived[160];
  u64 counters[3] = {}, alive = 4;
  const auto channel = [&](World& w) {
    return MemoryChannel{{&counters[0], &counters[1], &counters[2], w.site()}, remote, 64, local, 48, arrived, 128, &alive, 4};
  };
  for (u32 call = 0; call < 8; ++call) {
    std::memset(remote, 1, 80), std::memset(local, 2, 80), std::memset(arrived, 0, 160);
    alive = call == 7 ? 5 : 4;
    World w;
    const MemoryChannel c = channel(w);
    u64 size = 0, end = 0;
    if (call == 0) c.put(60, 0, 5, 0, 1), size = 64, end = 65;
    if (call == 1) c.put(0, 48, 1, 0, 1), size = 48, end = 49;
    if (call == 2) c.get(41, 0, 8, 0, 1), size = 48, end = 49;
    if (call == 3) c.get(0, 65, 0, 0, 1), size = 64, end = 65;
    if (call == 4) c.putPackets(16, 0, 25, 0, 1, 9), size = 64, end = 80;
    if (call == 5) { CHECK(c.unpackPackets(u64{0}, u64{112}, u64{9}, 0u, 1u, 9u) == Status::Aborted); size = 128, end = 144; }
    if (call == 6) { CHECK(c.unpackPacket<LL8>(16, 9) == 0); size = 128, end = 136; }
    if (call == 7) c.put(0, 8, 0, 1);
    CHECK(call == 7 ? w.failed(Code::StaleHandle, Kind::Call, 4, 5) : w.failed(Code::Misuse, Kind::Call, size, end));
    for (u32 i = 0; i < 80; ++i) CHECK(remote[i] == 1 && local[i] == 2);
  }
  alive = 4;
  World w;
  channel(w).put(16, 0, 48, 0, 1);
  channel(w).putPackets(0, 40, 8, 0, 1, 9);
  CHECK(w.control.poison == 0 && remote[16] == 2 && remote[63] == 2 && remote[64] == 1 && remote[4] == 9);
}
#endif

/// The forms with one offset push what those with two would.
void one_offset_stands_for_both() {
  World w;
  alignas(64) u64 slots[32] = {};
  u64 head = 0, tail = 0, cached = 0, done = 4;
  const BasePortChannel channel{3, 0, {}, Fifo{slots, &head, &tail, &cached, 4, w.site()}, &done};
  CHECK(channel.put(5, 6, 40, 8) == 0 && channel.putWithSignal(5, 6, 40, 8) == 1);
  CHECK(channel.putWithSignalAndFlush(5, 6, 40, 8) == Status::Ok && head == 3);
  for (u64 i = 0; i < 3; ++i) {
    constexpr u64 commit = u64{1} << 63;
    const u64 kind = i == 0 ? 1 : i == 1 ? 3 : 7;
    const u64 words[8] = {40, commit | 3 << 8 | kind, 40, commit | 5, 8, commit | 6, 0, commit};
    CHECK(std::memcmp(slots + 8 * i, words, 64) == 0);
  }
}

void flags_follow_epochs() {
  for (u64 value : {u64{0}, u64{1}, u64{0xfffffffe}, u64{0xffffffff}, u64{1} << 32, ~u64{0}, u64{0xfffffffeffffffff}}) {
    CHECK((Epoch{value}.flag() == value % 0xffffffff + 1 && Epoch{value}.parity() == value % 2));
  }
}

void vectors_hold_words_and_clip() {
  const f16x4 v{{0x7c00, 0xfc00, 0x7e01, 0x3c00}};
  CHECK(v.word(0) == 0xfc007c00 && v.word(1) == 0x3c007e01);
  const f16x4 clipped = clip(v);
  CHECK(clipped[0] == 0x7bff && clipped[1] == 0xfbff && clipped[2] == 0x7e01 && clipped[3] == 0x3c00);
  CHECK((to<f32x4>(v)[3] == 0x3f800000 && to<e5m2x4>(v)[0] == 0x7b && bit_cast<u32x2>(v)[0] == 0xfc007c00));
  const bf16x2 zeros{{0x8000, 0x0000}}, swapped{{0x0000, 0x8000}};
  CHECK(min(zeros, swapped).word(0) == 0x80008000 && max(zeros, swapped).word(0) == 0);
}

}  // namespace

int main() {
  copies_are_exact<near_depth>();
  copies_are_exact<far_depth>();
  packets_take_any_number_of_bytes<LL16>();
  packets_take_any_number_of_bytes<LL8>();
  lines_take_any_number_of_bytes();
  half_a_packet_is_none();
  a_bound_counts_failed_tests();
  either_of_two_conditions_ends_a_wait();
  arguments_of_unpackPackets_say_what_they_are();
  semaphores_wait_and_fail();
  requests_lie_as_the_proxy_expects();
  one_offset_stands_for_both();
  additions_stay_within_their_memory();
#if defined(WARPWAY_DEVICE_CHECKS)
  checked_packets_refuse();
  checked_packing_traps();
  checked_channels_refuse();
#endif
  flags_follow_epochs();
  vectors_hold_words_and_clip();
}
