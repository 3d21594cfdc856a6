// Semaphores, device semaphores and grid barriers under contention; message passing; the time of a flight.
#include "warpway/atomics.cuh"
#include "warpway/device_semaphore.cuh"
#include "warpway/grid.cuh"
#include "warpway/semaphores.cuh"

using namespace warpway;

struct Contention {
  MemoryDevice2DeviceSemaphore semaphore;  // its own peer: remote_inbound == inbound
  u64 rounds;
  u64* waits;  // signals taken by wait, then those taken by poll; zeros before
};

/// Grid: 2 blocks of n threads, 1 <= n <= 64. Block 0 signals n * rounds times, block 1 takes as many, odd threads by
/// polling. Afterwards both counters are n * rounds and so is the sum of `waits`.
extern "C" __global__ void semaphore_contention(const Contention p) {
  for (u64 i = 0; i < p.rounds; ++i) {
    if (blockIdx.x == 0) {
      p.semaphore.signal();
    } else if (threadIdx.x % 2 == 0) {
      if (p.semaphore.wait() != Status::Ok) return;
      fetch_add<Scope::Device, Order::Relaxed>(p.waits, u64{1});
    } else {
      const u64 start = clock_ns();
      while (!p.semaphore.poll()) {
        if (clock_ns() - start > 2000000000ull) return;
      }
      fetch_add<Scope::Device, Order::Relaxed>(p.waits + 1, u64{1});
    }
  }
}

struct Litmus {
  MemoryDevice2DeviceSemaphore ping;  // block 0 signals, block 1 waits (on one GPU: its own peer)
  MemoryDevice2DeviceSemaphore pong;
  u64* data;     // one word per thread; on two GPUs the receiver's memory
  u64 rounds;
  u64* stale;    // wrong words seen; zero before
  u32 first;     // block 0 of the grid plays this role, block 1 the next one: 0 on one GPU
  u32 reserved;
};

/// M1 and M2. Grid: 2 blocks on one GPU (first = 0), or 1 block on each of two (first = 0 and 1); any number of threads.
extern "C" __global__ void message_passing(const Litmus p) {
  const u32 role = p.first + blockIdx.x;
  u32 random = threadIdx.x * 2654435761u + 12345;
  for (u64 i = 1; i <= p.rounds; ++i) {
    random = random * 1664525 + 1013904223;
    if (random >> 30 == 0) pause_ns(random >> 22 & 1023);
    Status status = Status::Ok;
    if (role == 0) {
      p.data[threadIdx.x] = i;
      block_barrier();
      if (threadIdx.x == 0) {
        p.ping.signal();
        status = p.pong.wait();
      }
    } else {
      if (threadIdx.x == 0) status = p.ping.wait();
      if (agree(status) != Status::Ok) return;
      if (p.data[threadIdx.x] != i) fetch_add<Scope::Device, Order::Relaxed>(p.stale, u64{1});
      block_barrier();
      if (threadIdx.x == 0) p.pong.signal();
    }
    if (agree(status) != Status::Ok) return;
  }
}

struct Flight {
  MemoryDevice2DeviceSemaphore semaphore;  // raised by the peer, raises the peer's
  u64 rounds;
  u64* elapsed_ns;
  u32 first;  // 1 for the side that begins
  u32 mode;   // 1 relaxed signal and wait, 2 signal and wait, both guarded; 3 and 4: the same unguarded
};

/// Ping-pong of one thread on each of two GPUs (or two blocks' worth of launches on one). Grid: 1 block of 1 thread.
extern "C" __global__ void flight(const Flight p) {
  const u64 start = clock_ns();
  for (u64 i = 1; i <= p.rounds; ++i) {
    for (u32 turn = 0; turn < 2; ++turn) {
      const bool sends = (turn == 0) == (p.first != 0);
      if (sends) {
        if (p.mode == 1) p.semaphore.relaxedSignal();
        if (p.mode == 2) p.semaphore.signal();
        if (p.mode == 3) p.semaphore.relaxedSignal<Guard::None>();
        if (p.mode == 4) p.semaphore.signal<Guard::None>();
      } else {
        if ((p.mode % 2 == 1 ? p.semaphore.relaxedWait() : p.semaphore.wait()) != Status::Ok) return;
      }
    }
  }
  *p.elapsed_ns = clock_ns() - start;
}

struct Barriers {
  DeviceSyncer* syncer;
  u64* slots;    // one per block
  u64 rounds;
  u64* wrong;    // zero before
};

/// Grid: any that is resident at once. Every block sees every other block's last write after each barrier.
extern "C" __global__ void grid_barrier(const Barriers p) {
  for (u64 i = 1; i <= p.rounds; ++i) {
    if (threadIdx.x == 0) p.slots[blockIdx.x] = i;
    if (p.syncer->sync(gridDim.x) != Status::Ok) return;
    for (u32 b = threadIdx.x; b < gridDim.x; b += blockDim.x) {
      if (p.slots[b] != i) fetch_add<Scope::Device, Order::Relaxed>(p.wrong, u64{1});
    }
    if (p.syncer->sync(gridDim.x) != Status::Ok) return;
  }
}

struct Units {
  DeviceSemaphore* semaphore;
  u64* counter;   // raised without atomics: right only if one unit lets one block in at a time
  u64* inside;    // blocks between acquire and release
  u64* most;      // the most that were seen there
  u64 rounds;
};

/// Grid: 1..64 blocks of any size.
extern "C" __global__ void device_semaphore(const Units p) {
  for (u64 i = 0; i < p.rounds; ++i) {
    Status status = Status::Ok;
    if (threadIdx.x == 0) status = p.semaphore->acquire();
    if (agree(status) != Status::Ok) return;
    if (threadIdx.x == 0) {
      const u64 here = fetch_add<Scope::Device, Order::Relaxed>(p.inside, u64{1}) + 1;
      if (here > *p.most) *p.most = here;
      *p.counter = *p.counter + 1;
      fetch_add<Scope::Device, Order::Relaxed>(p.inside, ~u64{0});
    }
    block_barrier();
    if (threadIdx.x == 0) p.semaphore->release();
  }
}

struct Atomics {
  u64* words;  // 8 zeros
  u32 order;   // Order
  u32 reserved;
};

/// Any grid; afterwards each word holds the number of threads (word 4 to 7 as two 32-bit halves of which the first counts).
extern "C" __global__ void atomics(const Atomics p) {
  const Order order = static_cast<Order>(p.order);
  atomicFetchAdd<u64, Scope::System>(p.words + 0, 1, order);
  atomicFetchAdd<u64, Scope::Device>(p.words + 1, 1, order);
  atomicFetchAdd<i64, Scope::System>(reinterpret_cast<i64*>(p.words + 2), 1, order);
  atomicFetchAdd<i64, Scope::Device>(reinterpret_cast<i64*>(p.words + 3), 1, order);
  atomicFetchAdd<u32, Scope::System>(reinterpret_cast<u32*>(p.words + 4), 1, order);
  atomicFetchAdd<u32, Scope::Device>(reinterpret_cast<u32*>(p.words + 5), 1, order);
  atomicFetchAdd<i32, Scope::System>(reinterpret_cast<i32*>(p.words + 6), 1, order);
  atomicFetchAdd<i32, Scope::Device>(reinterpret_cast<i32*>(p.words + 7), 1, order);
}
