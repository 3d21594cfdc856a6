// Port channels between two ranks: the time of a message, and of a row of them.
#include "warpway/port_channel.cuh"

using namespace warpway;

namespace {

/// What a side sends in a round; the two sides send different words.
WARPWAY_DEVICE u64 flight_word(u64 round, u64 begins) { return round << 1 | begins; }

}  // namespace

/// Grid: 1 thread on each side. A put of 8 bytes with its signal goes there and back, `warm_up` times and then `rounds` times.
/// `result`: words that were wrong, rounds completed, ns and cycles of all rounds that count, then cycles of each. Cycles, since
/// the clock that tells ns may go in steps that are too long for one round. Rounds use two words in turns: the peer writes one
/// again after it has had the next round's, so what has come is looked at when that is no part of the way any more.
extern "C" __global__ void port_flight(PortChannel channel, u64* source, const u64* received, u64 warm_up, u64 rounds,
                                       u64 begins, u64* result) {
  u64 wrong = 0, begin_ns = 0, begin = 0;
  for (u64 round = 1; round <= warm_up + rounds; ++round) {
    if (round == warm_up + 1) {
      begin_ns = clock_ns();
      begin = clock64();
    }
    const u64 start = clock64();
    const u64 word = round & 1;
    if (begins == 0 && channel.wait() != Status::Ok) return;
    source[word] = flight_word(round, begins);
    if (channel.putWithSignal(sizeof(u64) * word, sizeof(u64)) == no_position) return;
    if (begins != 0 && channel.wait() != Status::Ok) return;
    const u64 cycles = clock64() - start;
    wrong += load<Scope::System, Order::Relaxed>(received + word) != flight_word(round, 1 - begins);
    if (round > warm_up) result[3 + round - warm_up] = cycles;
    result[1] = round;
  }
  result[0] = wrong;
  result[2] = clock_ns() - begin_ns;
  result[3] = clock64() - begin;
}

/// Grid: 1 thread on each side, which starts when the other one is there. Sends `bytes` so many times, each time with a
/// signal, and takes so many signals of the peer. Flushes each time, or all at once in the end.
/// `result`: ns until everything sent is complete, signals taken.
extern "C" __global__ void port_stream(PortChannel channel, u64 bytes, u64 sends, u64 awaits, u64 flush_each, u64* result) {
  if (channel.signal() == no_position || channel.wait() != Status::Ok) return;
  const u64 start = clock_ns();
  for (u64 i = 0; i < sends; ++i) {
    const bool sent = flush_each != 0 ? channel.putWithSignalAndFlush(0, bytes) == Status::Ok
                                      : channel.putWithSignal(0, 0, bytes) != no_position;
    if (!sent) return;
  }
  if (flush_each == 0 && channel.flush() != Status::Ok) return;
  result[0] = clock_ns() - start;
  for (u64 i = 0; i < awaits; ++i) {
    if (channel.wait() != Status::Ok) return;
    result[1] = i + 1;
  }
}
