// What separates one GPU platform from another, and nothing else: words of the language, memory
// accesses with scope and order, fences, barriers, the clock, arithmetic that must not be rewritten. Multicast and bulk copies, which
// few need, are beside it in `platform_multimem.cuh` and `platform_bulk.cuh`.
//
// Every other header is plain C++17 on top of this one. Needs no toolkit header: only builtins and inline PTX,
// so that it compiles alike under NVRTC and nvcc. Compiled by a host compiler it takes
// `platform_host.cuh` instead, with which tests run single calls without a GPU.
//
// Orders and scopes are those of the PTX memory model. Addresses are those of global memory unless said otherwise.
#pragma once

#if __cplusplus < 201703L
#error "the headers of warpway need C++17: compile with -std=c++17 or later"
#endif

// nvcc takes an older architecture if it is told none, and the code would be of no use on the GPU that is there.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
#error "the headers of warpway are for sm_80 and later: compile with -arch=sm_90, say, or -arch=native"
#endif

namespace warpway {

using i8 = signed char;
using u8 = unsigned char;
using i16 = short;
using u16 = unsigned short;
using i32 = int;
using u32 = unsigned int;
using i64 = long long;
using u64 = unsigned long long;

/// 8 and 16 bytes that move in one instruction.
struct alignas(8) Vec8 {
  u32 x, y;
};
struct alignas(16) Vec16 {
  u32 x, y, z, w;
};

/// Who takes part: the block, the GPU, all GPUs and the host.
enum class Scope { Block, Device, System };

/// What an access orders.
enum class Order { Relaxed, Acquire, Release, AcqRel, SeqCst };

}  // namespace warpway

#if !defined(__CUDACC__) && !defined(__CUDACC_RTC__)
#include "warpway/platform_host.cuh"
#else

#define WARPWAY_DEVICE __device__ __forceinline__
#define WARPWAY_ANYWHERE __host__ __device__ __forceinline__
#define WARPWAY_COLD inline __device__ __noinline__
#define WARPWAY_SHARED __shared__
#define WARPWAY_KERNEL(threads) extern "C" __global__ void __launch_bounds__(threads)
#define WARPWAY_CONSTANT const __grid_constant__
#define WARPWAY_TABLE __constant__ const
#define WARPWAY_UNROLL _Pragma("unroll")
#define WARPWAY_UNROLL_BY(n) WARPWAY_PRAGMA(unroll n)
#define WARPWAY_PRAGMA(text) _Pragma(#text)
#define WARPWAY_ROLLED _Pragma("unroll 1")
#define WARPWAY_TRAP() __trap()
#if defined(__CUDACC_RTC__)
// NVRTC has no offsetof; this is what the macro is made of in its front end.
#define WARPWAY_OFFSET_OF(Type, field) __INTADDR__(&(static_cast<Type*>(nullptr)->field))
#else
#define WARPWAY_OFFSET_OF(Type, field) __builtin_offsetof(Type, field)
#endif

/// Compute capability times ten; 0 in the host's pass of nvcc, which compiles no device function.
#if defined(__CUDA_ARCH__)
#define WARPWAY_ARCH __CUDA_ARCH__
#else
#define WARPWAY_ARCH 0
#endif

namespace warpway {

// ---- Where a thread is ----

WARPWAY_DEVICE u32 thread_in_block() {
  return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
}
WARPWAY_DEVICE u32 threads_per_block() { return blockDim.x * blockDim.y * blockDim.z; }
WARPWAY_DEVICE u32 block_in_grid() { return blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z); }
WARPWAY_DEVICE u32 blocks_in_grid() { return gridDim.x * gridDim.y * gridDim.z; }
WARPWAY_DEVICE u32 lane() {
  u32 value;
  asm("mov.u32 %0, %%laneid;" : "=r"(value));
  return value;
}

// ---- Meeting others ----

/// All threads of the block.
WARPWAY_DEVICE void block_barrier() { __syncthreads(); }
/// The same, and tells everybody whether it holds for anybody.
WARPWAY_DEVICE bool block_any(bool value) { return __syncthreads_or(value) != 0; }
/// Lanes of `mask`, each of which must call.
WARPWAY_DEVICE bool lanes_any(u32 mask, bool value) { return __any_sync(mask, value) != 0; }
WARPWAY_DEVICE u32 lanes_read(u32 mask, u32 value, u32 from) { return __shfl_sync(mask, value, static_cast<int>(from)); }

// ---- Time ----

/// A clock of the whole device in ns. It may advance in steps of a microsecond.
WARPWAY_DEVICE u64 clock_ns() {
  u64 value;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(value));
  return value;
}
WARPWAY_DEVICE void pause_ns(u32 duration) { asm volatile("nanosleep.u32 %0;" ::"r"(duration)); }

// ---- Memory: scalars of 4 and 8 bytes ----

/// Acquire and release in one, or sequentially consistent.
template <Scope S, Order O = Order::AcqRel>
WARPWAY_DEVICE void fence() {
  if constexpr (O == Order::SeqCst) {
    if constexpr (S == Scope::Block) asm volatile("fence.sc.cta;" ::: "memory");
    else if constexpr (S == Scope::Device) asm volatile("fence.sc.gpu;" ::: "memory");
    else asm volatile("fence.sc.sys;" ::: "memory");
  } else {
    if constexpr (S == Scope::Block) asm volatile("fence.acq_rel.cta;" ::: "memory");
    else if constexpr (S == Scope::Device) asm volatile("fence.acq_rel.gpu;" ::: "memory");
    else asm volatile("fence.acq_rel.sys;" ::: "memory");
  }
}

/// What stands before and after a relaxed read-modify-write to give it the order `O`.
template <Scope S, Order O>
WARPWAY_DEVICE void before() {
  if constexpr (O == Order::SeqCst) fence<S, Order::SeqCst>();
  if constexpr (O == Order::Release || O == Order::AcqRel) fence<S>();
}
template <Scope S, Order O>
WARPWAY_DEVICE void after() {
  if constexpr (O != Order::Relaxed && O != Order::Release) fence<S>();
}

/// Where an address points. A generic atomic costs a dozen instructions more, in case it is shared memory.
enum class Space { Global, Generic };

#define WARPWAY_LOAD_AS(where, order, bits, letter) \
  asm volatile("ld." order "." where ".b" #bits " %0, [%1];" : "=" letter(value) : "l"(at) : "memory");
#define WARPWAY_STORE_AS(where, order, bits, letter) \
  asm volatile("st." order "." where ".b" #bits " [%0], %1;" ::"l"(at), letter(value) : "memory");
#define WARPWAY_ADD_AS(where, order, bits, letter) \
  asm volatile("atom." order "." where ".add.u" #bits " %0, [%1], %2;" \
               : "=" letter(old) : "l"(at), letter(value) : "memory");
#define WARPWAY_CAS_AS(where, order, bits, letter) \
  asm volatile("atom." order "." where ".cas.b" #bits " %0, [%1], %2, %3;" \
               : "=" letter(old) : "l"(at), letter(expected), letter(desired) : "memory");

/// One access, with scope and space spelt as PTX does.
#define WARPWAY_SCOPED(ACCESS, order, bits, letter)                                              \
  {                                                                                              \
    const u64 at = Where == Space::Global ? static_cast<u64>(__cvta_generic_to_global(address))  \
                                          : reinterpret_cast<u64>(address);                      \
    if constexpr (Where == Space::Global) {                                                      \
      if constexpr (S == Scope::Block) ACCESS("cta.global", order, bits, letter)                 \
      else if constexpr (S == Scope::Device) ACCESS("gpu.global", order, bits, letter)           \
      else ACCESS("sys.global", order, bits, letter)                                             \
    } else {                                                                                     \
      if constexpr (S == Scope::Block) ACCESS("cta", order, bits, letter)                        \
      else if constexpr (S == Scope::Device) ACCESS("gpu", order, bits, letter)                  \
      else ACCESS("sys", order, bits, letter)                                                    \
    }                                                                                            \
  }

#define WARPWAY_SCALAR(T, bits, letter)                                                          \
  template <Scope S, Order O, Space Where = Space::Global>                                       \
  WARPWAY_DEVICE T load(const T* address) {                                                      \
    static_assert(O == Order::Relaxed || O == Order::Acquire || O == Order::SeqCst, "load");     \
    T value;                                                                                     \
    if constexpr (O == Order::SeqCst) fence<S, Order::SeqCst>();                                 \
    if constexpr (O == Order::Relaxed) WARPWAY_SCOPED(WARPWAY_LOAD_AS, "relaxed", bits, letter)  \
    else WARPWAY_SCOPED(WARPWAY_LOAD_AS, "acquire", bits, letter)                                \
    return value;                                                                                \
  }                                                                                              \
  template <Scope S, Order O, Space Where = Space::Global>                                       \
  WARPWAY_DEVICE void store(T* address, T value) {                                               \
    static_assert(O == Order::Relaxed || O == Order::Release || O == Order::SeqCst, "store");    \
    if constexpr (O == Order::SeqCst) fence<S, Order::SeqCst>();                                 \
    if constexpr (O == Order::Release) WARPWAY_SCOPED(WARPWAY_STORE_AS, "release", bits, letter) \
    else WARPWAY_SCOPED(WARPWAY_STORE_AS, "relaxed", bits, letter)                               \
  }                                                                                              \
  template <Scope S, Order O, Space Where = Space::Global>                                       \
  WARPWAY_DEVICE T fetch_add(T* address, T value) {                                              \
    T old;                                                                                       \
    if constexpr (O == Order::Release) WARPWAY_SCOPED(WARPWAY_ADD_AS, "release", bits, letter)   \
    else {                                                                                       \
      before<S, O>();                                                                            \
      WARPWAY_SCOPED(WARPWAY_ADD_AS, "relaxed", bits, letter)                                    \
      after<S, O>();                                                                             \
    }                                                                                            \
    return old;                                                                                  \
  }                                                                                              \
  template <Scope S, Order O, Space Where = Space::Global>                                       \
  WARPWAY_DEVICE T compare_exchange(T* address, T expected, T desired) {                         \
    T old;                                                                                       \
    before<S, O>();                                                                              \
    WARPWAY_SCOPED(WARPWAY_CAS_AS, "relaxed", bits, letter)                                      \
    after<S, O>();                                                                               \
    return old;                                                                                  \
  }

WARPWAY_SCALAR(u32, 32, "r")
WARPWAY_SCALAR(u64, 64, "l")

#undef WARPWAY_SCALAR
#undef WARPWAY_SCOPED
#undef WARPWAY_CAS_AS
#undef WARPWAY_ADD_AS
#undef WARPWAY_STORE_AS
#undef WARPWAY_LOAD_AS

// ---- Memory: vectors ----
// Volatile: neither merged, moved among each other nor dropped. They order nothing else. Each aligned 8 bytes are
// seen whole.

WARPWAY_DEVICE Vec8 load_volatile(const Vec8* address) {
  Vec8 v;
  asm volatile("ld.volatile.global.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(__cvta_generic_to_global(address)));
  return v;
}
WARPWAY_DEVICE void store_volatile(Vec8* address, Vec8 v) {
  asm volatile("st.volatile.global.v2.u32 [%0], {%1, %2};" ::"l"(__cvta_generic_to_global(address)), "r"(v.x), "r"(v.y));
}
WARPWAY_DEVICE Vec16 load_volatile(const Vec16* address) {
  Vec16 v;
  asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(__cvta_generic_to_global(address)));
  return v;
}
WARPWAY_DEVICE void store_volatile(Vec16* address, Vec16 v) {
  asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(address)), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w));
}
/// One single 16-byte store to global or pinned memory, relaxed, system scope.
WARPWAY_DEVICE void store_whole(void* address, u64 low, u64 high) {
  asm volatile("{\n\t.reg .b128 both;\n\tmov.b128 both, {%1, %2};\n\tst.relaxed.sys.global.b128 [%0], both;\n\t}"
               ::"l"(__cvta_generic_to_global(address)), "l"(low), "l"(high) : "memory");
}

// ---- Arithmetic ----
// By instructions with their rounding spelt out: no flag of the compiler flushes or fuses them.

WARPWAY_DEVICE float add(float a, float b) {
  float r;
  asm("add.rn.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
}
WARPWAY_DEVICE float multiply(float a, float b) {
  float r;
  asm("mul.rn.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
}
WARPWAY_DEVICE double add(double a, double b) {
  double r;
  asm("add.rn.f64 %0, %1, %2;" : "=d"(r) : "d"(a), "d"(b));
  return r;
}
WARPWAY_DEVICE double multiply(double a, double b) {
  double r;
  asm("mul.rn.f64 %0, %1, %2;" : "=d"(r) : "d"(a), "d"(b));
  return r;
}
WARPWAY_DEVICE double divide(double a, double b) {
  double r;
  asm("div.rn.f64 %0, %1, %2;" : "=d"(r) : "d"(a), "d"(b));
  return r;
}
WARPWAY_DEVICE float narrowed(double a) {
  float r;
  asm("cvt.rn.f32.f64 %0, %1;" : "=f"(r) : "d"(a));
  return r;
}
WARPWAY_DEVICE u32 bits_of(float v) {
  u32 r;
  asm("mov.b32 %0, %1;" : "=r"(r) : "f"(v));
  return r;
}
WARPWAY_DEVICE float float_of(u32 v) {
  float r;
  asm("mov.b32 %0, %1;" : "=f"(r) : "r"(v));
  return r;
}
WARPWAY_DEVICE u64 bits_of(double v) {
  u64 r;
  asm("mov.b64 %0, %1;" : "=l"(r) : "d"(v));
  return r;
}
WARPWAY_DEVICE double double_of(u64 v) {
  double r;
  asm("mov.b64 %0, %1;" : "=d"(r) : "l"(v));
  return r;
}

/// Conversions by instruction where their bits are those of the contract (device.md 12); tests define
/// WARPWAY_INTEGER_CONVERSIONS to compare both ways.
#if !defined(WARPWAY_INTEGER_CONVERSIONS)
#define WARPWAY_CONVERTS_HALVES 1
WARPWAY_DEVICE float half_to_float(u16 v) {
  float r;
  asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(v));
  return r;
}
WARPWAY_DEVICE u16 float_to_half(float v) {
  u16 r;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r) : "f"(v));
  return r;
}
WARPWAY_DEVICE u16 float_to_bfloat(float v) {
  u16 r;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r) : "f"(v));
  return r;
}
/// Two at once, the first one in the lower half.
WARPWAY_DEVICE u32 floats_to_halves(float low, float high) {
  u32 r;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}
WARPWAY_DEVICE u32 floats_to_bfloats(float low, float high) {
  u32 r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}
#if WARPWAY_ARCH >= 890
#define WARPWAY_CONVERTS_BYTES 1
/// Two at once, the first one in the lower byte. Both types saturate at their greatest finite number; NaN gives 0x7f.
WARPWAY_DEVICE u16 floats_to_e4m3(float low, float high) {
  u16 r;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(r) : "f"(high), "f"(low));
  return r;
}
WARPWAY_DEVICE u16 floats_to_e5m2(float low, float high) {
  u16 r;
  asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(r) : "f"(high), "f"(low));
  return r;
}
/// Two at once to two halves, exactly.
WARPWAY_DEVICE u32 e4m3_to_halves(u16 v) {
  u32 r;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(r) : "h"(v));
  return r;
}
#endif
#endif

}  // namespace warpway
#endif
