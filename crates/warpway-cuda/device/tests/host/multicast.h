// What tests need around `platform_multimem_host.cuh`: addresses, memories with canaries, blocks of threads, kernels of CUDA.
#pragma once

#include <sched.h>
#include <sys/mman.h>

#include <condition_variable>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "check.h"
#include "warpway/switch_channel.cuh"

// The words of CUDA that kernels for tests use.
#define __global__
#define __device__ inline
struct Coordinates {
  unsigned x;
};
inline thread_local Coordinates threadIdx{0}, blockDim{1};

namespace warpway {

/// Memory of one member between canaries.
class Guarded {
 public:
  explicit Guarded(u64 bytes) : bytes_(bytes), memory_(new Part[2 + (bytes + sizeof(Part) - 1) / sizeof(Part)]) {
    std::memset(memory_.get(), 0xa5, sizeof(Part) * 2 + bytes);
  }
  u8* data() const { return memory_[1].bytes; }
  u64 size() const { return bytes_; }
  void check() const {
    const u8* all = memory_[0].bytes;
    for (u64 i = 0; i < sizeof(Part); ++i) CHECK(all[i] == 0xa5 && all[sizeof(Part) + bytes_ + i] == 0xa5);
  }

 private:
  struct alignas(64) Part {
    u8 bytes[64];
  };
  u64 bytes_;
  std::unique_ptr<Part[]> memory_;
};

/// A group over `n` members' memories of `bytes` bytes. Its addresses are none of memory: a plain access ends the test.
class Group {
 public:
  Group(u32 n, u64 bytes, u32 first = 0) {
    length_ = bytes;
    void* range = mmap(nullptr, length_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(range != MAP_FAILED && n <= HostMulticast::most);
    for (u32 m = 0; m < n; ++m) memories_.emplace_back(bytes);
    group_ = HostMulticast{reinterpret_cast<u64>(range), bytes, {}, n, first, host_multicasts};
    for (u32 m = 0; m < n; ++m) group_.members[m] = memories_[m].data();
    host_multicasts = &group_;
  }
  Group(const Group&) = delete;
  ~Group() {
    CHECK(host_multicasts == &group_);
    host_multicasts = group_.next;
    munmap(reinterpret_cast<void*>(group_.base), length_);
    for (const Guarded& memory : memories_) memory.check();
  }
  u8* base() const { return reinterpret_cast<u8*>(group_.base); }
  u8* member(u32 m) const { return memories_[m].data(); }

 private:
  u64 length_;
  std::vector<Guarded> memories_;
  HostMulticast group_;
};

/// Several members with a barrier of their own over memory of `bytes` bytes each. A wait gives up after a minute of looks.
class Ranks {
 public:
  Ranks(u32 n, u64 bytes, u32 first = 0) : data(n, bytes, first), counters(n, 8), generations(n), controls(n) {
    for (u32 m = 0; m < n; ++m) {
      std::memset(counters.member(m), 0, 8);
      Both& both = controls[m];
      both.control.host = &both.host, both.control.rank = m, both.control.deadline_ns = 60000000000;
    }
  }
  u32 size() const { return static_cast<u32>(controls.size()); }
  Site site(u32 m) { return Site{&controls[m].control, no_peer, 7}; }
  SwitchDevice2DeviceSemaphore barrier(u32 m) {
    return {reinterpret_cast<u64*>(counters.base()), reinterpret_cast<u64*>(counters.member(m)), &generations[m], size(), 0, site(m)};
  }
  /// Of the bytes from `offset` on.
  SwitchChannel channel(u32 m, u64 offset, u64 bytes) {
    return {data.member(m) + offset, data.base() + offset, bytes, barrier(m)};
  }
  bool unharmed() const {
    for (const Both& both : controls) {
      if (both.control.poison != 0 || both.host.record_state != 0) return false;
    }
    return true;
  }

  struct Both {
    HostControl host{};
    Control control{};
  };
  Group data;
  Group counters;
  std::vector<u64> generations;
  std::vector<Both> controls;
};

/// Where the threads of a block meet.
class Block {
 public:
  explicit Block(u32 threads) : threads_(threads) {}
  bool meet(bool vote) {
    std::unique_lock<std::mutex> lock(mutex_);
    votes_ = votes_ || vote;
    const u64 generation = generation_;
    if (++arrived_ == threads_) {
      result_ = votes_, votes_ = false, arrived_ = 0, ++generation_;
      all_.notify_all();
    } else {
      all_.wait(lock, [&] { return generation_ != generation; });
    }
    return result_;
  }

 private:
  const u32 threads_;
  std::mutex mutex_;
  std::condition_variable all_;
  u32 arrived_ = 0;
  u64 generation_ = 0;
  bool votes_ = false, result_ = false;
};
inline thread_local Block* block_of_thread = nullptr;

/// One block of `threads` threads per rank, all at once.
inline void launch(u32 ranks, u32 threads, const std::function<void(u32 rank)>& kernel) {
  host_wait = [] { sched_yield(); };
  std::vector<std::unique_ptr<Block>> blocks;
  std::vector<std::thread> running;
  for (u32 rank = 0; rank < ranks; ++rank) {
    blocks.push_back(std::make_unique<Block>(threads));
    for (u32 thread = 0; thread < threads; ++thread) {
      running.emplace_back([&kernel, rank, ranks, thread, threads, block = blocks.back().get()] {
        host_thread = threadIdx.x = thread, host_threads = blockDim.x = threads, host_block = rank, host_blocks = ranks;
        block_of_thread = block;
        host_meet = [](bool vote) { return block_of_thread->meet(vote); };
        kernel(rank);
        fence<Scope::System>();
      });
    }
  }
  for (std::thread& thread : running) thread.join();
}

}  // namespace warpway
