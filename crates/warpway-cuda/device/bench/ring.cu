// Between a GPU and its host: requests pushed to a ring, words that answer, and words that streams write.
#include "warpway/fifo.cuh"
#include "warpway/semaphores.cuh"

using namespace warpway;

struct Echo {
  const u64* inbound;  // counts up from 0, written by the host, a stream or a peer
  u64* reply;          // gets each value that was seen
  u64 rounds;
  Site site;
};
static_assert(sizeof(Echo) == 40, "src/bench/parameters.rs");

/// One thread answers each value of `inbound`, 1 to `rounds`, by storing it to `reply`.
extern "C" __global__ void echo(const Echo p) {
  for (u64 i = 1; i <= p.rounds; ++i) {
    const Status status = poll_until(Wait{p.site, Kind::HostToDevice, i}, [&](u64& seen) {
      seen = load<Scope::System, Order::Acquire>(p.inbound);
      return seen >= i;
    });
    if (status != Status::Ok) return;
    store<Scope::System, Order::Release>(p.reply, i);
  }
}

struct Pushes {
  Fifo fifo;
  const u64* inbound;  // the host's answer to each push, or the peer's
  u64 rounds;
};
static_assert(sizeof(Pushes) == 72, "src/bench/parameters.rs");

/// One thread pushes requests 1 to `rounds`, each after the answer to the one before.
extern "C" __global__ void push_and_wait(const Pushes p) {
  for (u64 i = 1; i <= p.rounds; ++i) {
    const Trigger trigger{trigger_data | trigger_flag, 1, 2, 3, i, i * 3, 8, 0};
    if (p.fifo.push(trigger) == no_position) return;
    const Status status = poll_until(Wait{p.fifo.site, Kind::HostToDevice, i}, [&](u64& seen) {
      seen = load<Scope::System, Order::Acquire>(p.inbound);
      return seen >= i;
    });
    if (status != Status::Ok) return;
  }
}

struct Stamps {
  const u64* clock;   // pinned: the host's clock, which another thread keeps writing
  u64* stamp;         // pinned: that clock as last read, then a sequence number
  const u64* inbound; // the host's answer
  u64 rounds;
  u64* read_cycles;   // the read of the clock, sum over all rounds
  u64* read_ns;       // the same in ns, for the rate of the cycles
  Site site;
};
static_assert(sizeof(Stamps) == 64, "src/bench/parameters.rs");

/// One thread sends the host its own clock back, 1 to `rounds` times, each after the answer to the one before. The host's
/// clock minus the stamp is half a read of pinned memory and one flight to the host.
extern "C" __global__ void stamp(const Stamps p) {
  u64 cycles = 0;
  for (u64 i = 1; i <= p.rounds; ++i) {
    const u64 before = clock64();
    const u64 now = load<Scope::System, Order::Relaxed>(p.clock);
    store_whole(p.stamp, now, i);
    cycles += clock64() - before;
    const Status status = poll_until(Wait{p.site, Kind::HostToDevice, i}, [&](u64& seen) {
      seen = load<Scope::System, Order::Acquire>(p.inbound);
      return seen >= i;
    });
    if (status != Status::Ok) return;
  }
  // How long a cycle is.
  const u64 begin_ns = clock_ns(), begin = clock64();
  while (clock_ns() - begin_ns < 200000) {
  }
  *p.read_ns = cycles * (clock_ns() - begin_ns) / (clock64() - begin);
  *p.read_cycles = cycles;
}
