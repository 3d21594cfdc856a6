// The stand-in of `platform.cuh` for host compilers: atomics are the compiler's, blocks are what a test makes of its threads. It
// is for tests of what needs no GPU: layouts, conversions, copies, packets, encodings, protocols with the host, multicast.
#pragma once

#include <cstring>

#define WARPWAY_DEVICE inline
#define WARPWAY_ANYWHERE inline
#define WARPWAY_COLD inline
#define WARPWAY_SHARED static
#define WARPWAY_KERNEL(threads) extern "C" void
#define WARPWAY_CONSTANT const
#define WARPWAY_TABLE static const
#define WARPWAY_UNROLL
#define WARPWAY_UNROLL_BY(n)
#define WARPWAY_ROLLED
#define WARPWAY_TRAP() __builtin_trap()
#define WARPWAY_OFFSET_OF(Type, field) __builtin_offsetof(Type, field)
#define WARPWAY_ARCH 0

namespace warpway {

/// What the test says; there is no grid. Each host thread has a place and a clock of its own; `host_clock` advances by
/// `host_tick` ns at each look.
inline thread_local u32 host_thread = 0, host_threads = 1, host_block = 0, host_blocks = 1;
inline thread_local u64 host_clock = 0;
inline u64 host_tick = 1000;

inline u32 thread_in_block() { return host_thread; }
inline u32 threads_per_block() { return host_threads; }
inline u32 block_in_grid() { return host_block; }
inline u32 blocks_in_grid() { return host_blocks; }
inline u32 lane() { return host_thread % 32; }

/// How the threads of a block meet and vote, if a test has several.
inline thread_local bool (*host_meet)(bool) = nullptr;

/// What a fence completes, if anything: accesses that an emulation holds back. A block barrier does the same, since a fence of
/// one thread after it covers what the others did before.
inline void (*host_fence)() = nullptr;

inline bool block_any(bool value) {
  if (host_fence != nullptr) host_fence();
  return host_meet != nullptr ? host_meet(value) : value;
}
inline void block_barrier() { block_any(false); }
inline bool lanes_any(u32, bool value) { return value; }
inline u32 lanes_read(u32, u32 value, u32) { return value; }

/// What a wait does now and then, if anything: threads that wait for each other share cores.
inline void (*host_wait)() = nullptr;

inline u64 clock_ns() {
  if (host_wait != nullptr) host_wait();
  return host_clock += __atomic_load_n(&host_tick, __ATOMIC_RELAXED);
}
inline void pause_ns(u32 duration) { host_clock += duration; }

enum class Space { Global, Generic };

template <Scope S, Order O = Order::AcqRel>
inline void fence() {
  if (S == Scope::System && host_fence != nullptr) host_fence();
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
template <Scope S, Order O, Space Where = Space::Global, class T>
inline T load(const T* address) {
  return __atomic_load_n(address, __ATOMIC_SEQ_CST);
}
template <Scope S, Order O, Space Where = Space::Global, class T>
inline void store(T* address, T value) {
  __atomic_store_n(address, value, __ATOMIC_SEQ_CST);
}
template <Scope S, Order O, Space Where = Space::Global, class T>
inline T fetch_add(T* address, T value) {
  return __atomic_fetch_add(address, value, __ATOMIC_SEQ_CST);
}
template <Scope S, Order O, Space Where = Space::Global, class T>
inline T compare_exchange(T* address, T expected, T desired) {
  __atomic_compare_exchange_n(address, &expected, desired, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
  return expected;
}

// Eight bytes at a time, whole, as on a device.
inline Vec8 load_volatile(const Vec8* address) {
  const u64 v = __atomic_load_n(reinterpret_cast<const u64*>(address), __ATOMIC_ACQUIRE);
  return Vec8{static_cast<u32>(v), static_cast<u32>(v >> 32)};
}
inline void store_volatile(Vec8* address, Vec8 v) {
  __atomic_store_n(reinterpret_cast<u64*>(address), u64{v.y} << 32 | v.x, __ATOMIC_RELEASE);
}
inline Vec16 load_volatile(const Vec16* address) {
  const auto* halves = reinterpret_cast<const Vec8*>(address);
  const Vec8 low = load_volatile(halves), high = load_volatile(halves + 1);
  return Vec16{low.x, low.y, high.x, high.y};
}
inline void store_volatile(Vec16* address, Vec16 v) {
  auto* halves = reinterpret_cast<Vec8*>(address);
  store_volatile(halves, Vec8{v.x, v.y});
  store_volatile(halves + 1, Vec8{v.z, v.w});
}
inline void store_whole(void* address, u64 low, u64 high) {
  // The second half says that the first one is there.
  __atomic_store_n(static_cast<u64*>(address), low, __ATOMIC_RELAXED);
  __atomic_store_n(static_cast<u64*>(address) + 1, high, __ATOMIC_RELEASE);
}

// Compile with -ffp-contract=off.
inline float add(float a, float b) { return a + b; }
inline float multiply(float a, float b) { return a * b; }
inline double add(double a, double b) { return a + b; }
inline double multiply(double a, double b) { return a * b; }
inline double divide(double a, double b) { return a / b; }
inline float narrowed(double a) { return static_cast<float>(a); }

template <class To, class From>
inline To same_bits(From from) {
  To to;
  static_assert(sizeof to == sizeof from, "same size");
  std::memcpy(&to, &from, sizeof to);
  return to;
}
inline u32 bits_of(float v) { return same_bits<u32>(v); }
inline float float_of(u32 v) { return same_bits<float>(v); }
inline u64 bits_of(double v) { return same_bits<u64>(v); }
inline double double_of(u64 v) { return same_bits<double>(v); }

}  // namespace warpway
