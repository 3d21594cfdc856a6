// A switch channel: memory of all members of a multicast group, read reduced and written at once by the switch.
//
// sm_90 and multicast hardware; code that calls a method does not compile for less. All accesses are relaxed at
// system scope and volatile in the compiler's sense: inputs are published by an ordered group or channel barrier
// before, results after. Vectors are naturally aligned, 4, 8 or 16 bytes. The order of a reduction is the hardware's.
// f16 and bf16 are summed in float, unless `AccumT` is their own format; 8-bit floats (sm_100a) in float, unless
// `AccumT` is F16. What the switch cannot do does not compile; another operator never takes its place.
#pragma once

#include "warpway/semaphores.cuh"
#include "warpway/vectors.cuh"

namespace warpway {

namespace detail {

template <class T>
inline constexpr bool has_multicast = sizeof(T) != 0 && (WARPWAY_ARCH == 0 || WARPWAY_ARCH >= 900);

/// How the switch folds a format. Specialised for what it can do.
template <class Format, class AccumT, ReduceOp Op>
struct Multimem {
  static constexpr bool loads = false;
  static constexpr bool adds = false;
};

/// One instruction for 1, 2 or 4 words; `kind` is operator and accumulator, `type` that of a word.
#define WARPWAY_LOAD_REDUCE(kind, type)                                                                          \
  template <u32 Words>                                                                                           \
  WARPWAY_DEVICE static void load(u64 at, u32* w) {                                                              \
    if constexpr (Words == 1) {                                                                                  \
      asm volatile("multimem.ld_reduce.relaxed.sys.global." kind "." type " %0, [%1];"                           \
                   : "=r"(w[0]) : "l"(at) : "memory");                                                           \
    } else if constexpr (Words == 2) {                                                                           \
      asm volatile("multimem.ld_reduce.relaxed.sys.global." kind ".v2." type " {%0, %1}, [%2];"                  \
                   : "=r"(w[0]), "=r"(w[1]) : "l"(at) : "memory");                                               \
    } else {                                                                                                     \
      asm volatile("multimem.ld_reduce.relaxed.sys.global." kind ".v4." type " {%0, %1, %2, %3}, [%4];"          \
                   : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3]) : "l"(at) : "memory");                       \
    }                                                                                                            \
  }
#define WARPWAY_STORE_REDUCE(type)                                                                               \
  template <u32 Words>                                                                                           \
  WARPWAY_DEVICE static void add(u64 at, const u32* w) {                                                         \
    if constexpr (Words == 1) {                                                                                  \
      asm volatile("multimem.red.relaxed.sys.global.add." type " [%0], %1;" ::"l"(at), "r"(w[0]) : "memory");    \
    } else if constexpr (Words == 2) {                                                                           \
      asm volatile("multimem.red.relaxed.sys.global.add.v2." type " [%0], {%1, %2};"                             \
                   ::"l"(at), "r"(w[0]), "r"(w[1]) : "memory");                                                  \
    } else {                                                                                                     \
      asm volatile("multimem.red.relaxed.sys.global.add.v4." type " [%0], {%1, %2, %3, %4};"                     \
                   ::"l"(at), "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3]) : "memory");                            \
    }                                                                                                            \
  }
#define WARPWAY_ONE_WORD(kind, type)                                                                             \
  template <u32 Words>                                                                                           \
  WARPWAY_DEVICE static void load(u64 at, u32* w) {                                                              \
    static_assert(Words == 1, "the switch folds integers one by one");                                           \
    asm volatile("multimem.ld_reduce.relaxed.sys.global." kind "." type " %0, [%1];"                             \
                 : "=r"(w[0]) : "l"(at) : "memory");                                                             \
  }
#define WARPWAY_ADD_ONE_WORD(type)                                                                               \
  template <u32 Words>                                                                                           \
  WARPWAY_DEVICE static void add(u64 at, const u32* w) {                                                         \
    static_assert(Words == 1, "the switch folds integers one by one");                                           \
    asm volatile("multimem.red.relaxed.sys.global.add." type " [%0], %1;" ::"l"(at), "r"(w[0]) : "memory");      \
  }
#define WARPWAY_MULTIMEM(Format, AccumT, Op, Adds, ...)       \
  template <>                                                 \
  struct Multimem<Format, AccumT, ReduceOp::Op> {             \
    static constexpr bool loads = true;                       \
    static constexpr bool adds = Adds;                        \
    __VA_ARGS__                                               \
  };

WARPWAY_MULTIMEM(I32, void, Sum, true, WARPWAY_ONE_WORD("add", "s32") WARPWAY_ADD_ONE_WORD("s32"))
WARPWAY_MULTIMEM(I32, void, Min, false, WARPWAY_ONE_WORD("min", "s32"))
WARPWAY_MULTIMEM(I32, void, Max, false, WARPWAY_ONE_WORD("max", "s32"))
WARPWAY_MULTIMEM(U32, void, Sum, true, WARPWAY_ONE_WORD("add", "u32") WARPWAY_ADD_ONE_WORD("u32"))
WARPWAY_MULTIMEM(U32, void, Min, false, WARPWAY_ONE_WORD("min", "u32"))
WARPWAY_MULTIMEM(U32, void, Max, false, WARPWAY_ONE_WORD("max", "u32"))
WARPWAY_MULTIMEM(F32, void, Sum, true, WARPWAY_LOAD_REDUCE("add", "f32") WARPWAY_STORE_REDUCE("f32"))
WARPWAY_MULTIMEM(F16, void, Sum, true, WARPWAY_LOAD_REDUCE("add.acc::f32", "f16x2") WARPWAY_STORE_REDUCE("f16x2"))
WARPWAY_MULTIMEM(F16, F16, Sum, true, WARPWAY_LOAD_REDUCE("add", "f16x2") WARPWAY_STORE_REDUCE("f16x2"))
WARPWAY_MULTIMEM(F16, void, Min, false, WARPWAY_LOAD_REDUCE("min", "f16x2"))
WARPWAY_MULTIMEM(F16, void, Max, false, WARPWAY_LOAD_REDUCE("max", "f16x2"))
WARPWAY_MULTIMEM(BF16, void, Sum, true, WARPWAY_LOAD_REDUCE("add.acc::f32", "bf16x2") WARPWAY_STORE_REDUCE("bf16x2"))
WARPWAY_MULTIMEM(BF16, BF16, Sum, true, WARPWAY_LOAD_REDUCE("add", "bf16x2") WARPWAY_STORE_REDUCE("bf16x2"))
WARPWAY_MULTIMEM(BF16, void, Min, false, WARPWAY_LOAD_REDUCE("min", "bf16x2"))
WARPWAY_MULTIMEM(BF16, void, Max, false, WARPWAY_LOAD_REDUCE("max", "bf16x2"))
WARPWAY_MULTIMEM(E4M3, void, Sum, false, WARPWAY_LOAD_REDUCE("add", "e4m3x4"))
WARPWAY_MULTIMEM(E4M3, F16, Sum, false, WARPWAY_LOAD_REDUCE("add.acc::f16", "e4m3x4"))
WARPWAY_MULTIMEM(E5M2, void, Sum, false, WARPWAY_LOAD_REDUCE("add", "e5m2x4"))
WARPWAY_MULTIMEM(E5M2, F16, Sum, false, WARPWAY_LOAD_REDUCE("add.acc::f16", "e5m2x4"))

#undef WARPWAY_MULTIMEM
#undef WARPWAY_ADD_ONE_WORD
#undef WARPWAY_ONE_WORD
#undef WARPWAY_STORE_REDUCE
#undef WARPWAY_LOAD_REDUCE

}  // namespace detail

struct SwitchChannel {
  /// The local memory of the group.
  void* devicePtr;
  /// All members' at once.
  void* mcPtr;
  u64 bytes;
  SwitchDevice2DeviceSemaphore semaphore;

  /// Element `i` of all members, folded. Zeros after a refusal.
  template <class V, class AccumT = void, ReduceOp Op = ReduceOp::Sum>
  WARPWAY_DEVICE V reduce(u64 i) const {
    return in_range<V>(i) ? multimemLoadReduce<V, AccumT, Op>(static_cast<V*>(mcPtr) + i) : V{};
  }
  /// Stores element `i` of all members.
  template <class V>
  WARPWAY_DEVICE void broadcast(u64 i, const V& value) const {
    if (in_range<V>(i)) multimemStore(value, static_cast<V*>(mcPtr) + i);
  }

  /// As `reduce`, at a multicast address.
  template <class V, class AccumT = void, ReduceOp Op = ReduceOp::Sum>
  WARPWAY_DEVICE static V multimemLoadReduce(const V* pointer) {
    using How = detail::Multimem<typename V::Format, AccumT, Op>;
    static_assert(detail::has_multicast<V>, "multicast needs sm_90");
    static_assert(How::loads, "the switch does not fold this type so: fold the peers' memory instead");
    u32 words[4];
    How::template load<count<V>()>(global(pointer), words);
    return from_words<V>(words);
  }
  /// As `broadcast`, at a multicast address.
  template <class V>
  WARPWAY_DEVICE static void multimemStore(const V& value, V* pointer) {
    static_assert(detail::has_multicast<V>, "multicast needs sm_90");
    const u64 at = global(pointer);
    if constexpr (count<V>() == 1) {
      asm volatile("multimem.st.relaxed.sys.global.b32 [%0], %1;" ::"l"(at), "r"(value.word(0)) : "memory");
    } else if constexpr (V::Size == 1) {
      const u64 both = u64{value.word(1)} << 32 | value.word(0);
      asm volatile("multimem.st.relaxed.sys.global.b64 [%0], %1;" ::"l"(at), "l"(both) : "memory");
    } else if constexpr (count<V>() == 2) {
      asm volatile("multimem.st.relaxed.sys.global.v2.f32 [%0], {%1, %2};" ::"l"(at), "r"(value.word(0)),
                   "r"(value.word(1)) : "memory");
    } else {
      asm volatile("multimem.st.relaxed.sys.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(at), "r"(value.word(0)),
                   "r"(value.word(1)), "r"(value.word(2)), "r"(value.word(3)) : "memory");
    }
  }
  /// Adds to all members, each element atomically.
  template <class V>
  WARPWAY_DEVICE static void multimemStoreReduce(const V& value, V* pointer) {
    using How = detail::Multimem<typename V::Format, void, ReduceOp::Sum>;
    static_assert(detail::has_multicast<V>, "multicast needs sm_90");
    static_assert(How::adds, "the switch does not add this type");
    u32 words[4];
    WARPWAY_UNROLL
    for (u32 w = 0; w < count<V>(); ++w) words[w] = value.word(w);
    How::template add<count<V>()>(global(pointer), words);
  }

  template <Guard G = default_guard>
  WARPWAY_DEVICE void signal() const {
    semaphore.signal<G>();
  }
  template <Guard G = default_guard>
  WARPWAY_DEVICE void relaxedSignal() const {
    semaphore.relaxedSignal<G>();
  }
  WARPWAY_NODISCARD WARPWAY_DEVICE Status wait(i64 max_spin = -1) const { return semaphore.wait(max_spin); }
  WARPWAY_NODISCARD WARPWAY_DEVICE Status relaxedWait(i64 max_spin = -1) const { return semaphore.relaxedWait(max_spin); }

 private:
  template <class V>
  WARPWAY_DEVICE static constexpr u32 count() {
    static_assert(V::bytes == 4 || V::bytes == 8 || V::bytes == 16, "vectors of 4, 8 or 16 bytes");
    return V::n_words;
  }
  template <class V>
  WARPWAY_DEVICE static u64 global(const V* pointer) {
    return static_cast<u64>(__cvta_generic_to_global(pointer));
  }
  template <class V>
  WARPWAY_DEVICE static V from_words(const u32* words) {
    V result{};
    WARPWAY_UNROLL
    for (u32 w = 0; w < V::n_words; ++w) result.set_word(w, words[w]);
    return result;
  }
  /// Always true without WARPWAY_DEVICE_CHECKS.
  template <class V>
  WARPWAY_DEVICE bool in_range(u64 i) const {
#if defined(WARPWAY_DEVICE_CHECKS)
    if (i >= bytes / sizeof(V)) {
      refuse(semaphore.site, Code::Misuse, bytes / sizeof(V), i);
      return false;
    }
#else
    static_cast<void>(i);
#endif
    return true;
  }
};

}  // namespace warpway
