// The part of the platform that reaches memory through the multicast hardware of the switch: loads that fold all members' words,
// stores and additions to all of them. sm_90; code that calls one does not compile for less.
//
// All are relaxed at system scope and volatile in the compiler's sense. Addresses are multicast addresses, multiples of what an
// access moves: 1, 2 or 4 words of 32 bits. Without such a group nothing may call them. Compiled by a
// host compiler it takes `platform_multimem_host.cuh` instead, where a group is emulated.
#pragma once

#include "warpway/platform.cuh"

namespace warpway {

/// What the switch takes a word for.
enum class SwitchWord { S32, U32, F32, F16x2, BF16x2, E4M3x4, E5M2x4 };

/// How it folds words of all members. The order is its own. `Add` rounds every partial sum to the type itself; the others add in a
/// wider one and round once at the end.
enum class SwitchFold { Add, AddInFloat, AddInHalf, Min, Max };

namespace detail {

/// Dependent on a parameter of whoever asks, so that only what is called must compile.
template <u32 Words>
inline constexpr bool has_multicast = Words != 0 && (WARPWAY_ARCH == 0 || WARPWAY_ARCH >= 900);

#if WARPWAY_ARCH == 0 || defined(__CUDA_ARCH_FAMILY_SPECIFIC__) || defined(__CUDA_ARCH_FEAT_SM100_ALL)
inline constexpr bool switch_folds_bytes = WARPWAY_ARCH == 0 || WARPWAY_ARCH >= 1000;
#else
inline constexpr bool switch_folds_bytes = false;
#endif

template <SwitchWord Word, u32 Words>
WARPWAY_DEVICE constexpr void requires_multicast() {
  constexpr bool of_bytes = Word == SwitchWord::E4M3x4 || Word == SwitchWord::E5M2x4;
  static_assert(has_multicast<Words>, "multicast needs sm_90");
  static_assert(!of_bytes || switch_folds_bytes, "multicast of 8-bit floats needs sm_100a or sm_100f");
}

}  // namespace detail

}  // namespace warpway

#if !defined(__CUDACC__) && !defined(__CUDACC_RTC__)
#include "warpway/platform_multimem_host.cuh"
#else

namespace warpway {

namespace detail {

/// One instruction for 1, 2 or 4 words.
template <SwitchFold Fold, SwitchWord Word>
struct MultimemLoad;
template <SwitchWord Word>
struct MultimemAdd;

#define WARPWAY_MULTIMEM_LOAD(Fold, Word, kind, type)                                                      \
  template <>                                                                                              \
  struct MultimemLoad<SwitchFold::Fold, SwitchWord::Word> {                                                \
    template <u32 Words>                                                                                   \
    WARPWAY_DEVICE static void load(u64 at, u32* w) {                                                      \
      if constexpr (Words == 1) {                                                                          \
        asm volatile("multimem.ld_reduce.relaxed.sys.global." kind "." type " %0, [%1];"                   \
                     : "=r"(w[0]) : "l"(at) : "memory");                                                   \
      } else if constexpr (Words == 2) {                                                                   \
        asm volatile("multimem.ld_reduce.relaxed.sys.global." kind ".v2." type " {%0, %1}, [%2];"          \
                     : "=r"(w[0]), "=r"(w[1]) : "l"(at) : "memory");                                       \
      } else {                                                                                             \
        asm volatile("multimem.ld_reduce.relaxed.sys.global." kind ".v4." type " {%0, %1, %2, %3}, [%4];"  \
                     : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3]) : "l"(at) : "memory");               \
      }                                                                                                    \
    }                                                                                                      \
  };
#define WARPWAY_MULTIMEM_ADD(Word, type)                                                                         \
  template <>                                                                                                    \
  struct MultimemAdd<SwitchWord::Word> {                                                                         \
    template <u32 Words>                                                                                         \
    WARPWAY_DEVICE static void add(u64 at, const u32* w) {                                                       \
      if constexpr (Words == 1) {                                                                                \
        asm volatile("multimem.red.relaxed.sys.global.add." type " [%0], %1;" ::"l"(at), "r"(w[0]) : "memory");  \
      } else if constexpr (Words == 2) {                                                                         \
        asm volatile("multimem.red.relaxed.sys.global.add.v2." type " [%0], {%1, %2};"                           \
                     ::"l"(at), "r"(w[0]), "r"(w[1]) : "memory");                                                \
      } else {                                                                                                   \
        asm volatile("multimem.red.relaxed.sys.global.add.v4." type " [%0], {%1, %2, %3, %4};"                   \
                     ::"l"(at), "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3]) : "memory");                          \
      }                                                                                                          \
    }                                                                                                            \
  };
/// The switch folds integers one by one: of more words the instruction does not exist.
#define WARPWAY_MULTIMEM_INTEGER(Word, type)         \
  WARPWAY_MULTIMEM_LOAD(Add, Word, "add", type)      \
  WARPWAY_MULTIMEM_LOAD(Min, Word, "min", type)      \
  WARPWAY_MULTIMEM_LOAD(Max, Word, "max", type)      \
  WARPWAY_MULTIMEM_ADD(Word, type)
#define WARPWAY_MULTIMEM_NARROW(Word, type, Wider, accumulator)            \
  WARPWAY_MULTIMEM_LOAD(Add, Word, "add", type)                            \
  WARPWAY_MULTIMEM_LOAD(Wider, Word, "add.acc::" accumulator, type)        \
  WARPWAY_MULTIMEM_LOAD(Min, Word, "min", type)                            \
  WARPWAY_MULTIMEM_LOAD(Max, Word, "max", type)

WARPWAY_MULTIMEM_INTEGER(S32, "s32")
WARPWAY_MULTIMEM_INTEGER(U32, "u32")
WARPWAY_MULTIMEM_LOAD(Add, F32, "add", "f32")
WARPWAY_MULTIMEM_ADD(F32, "f32")
WARPWAY_MULTIMEM_NARROW(F16x2, "f16x2", AddInFloat, "f32")
WARPWAY_MULTIMEM_ADD(F16x2, "f16x2")
WARPWAY_MULTIMEM_NARROW(BF16x2, "bf16x2", AddInFloat, "f32")
WARPWAY_MULTIMEM_ADD(BF16x2, "bf16x2")
WARPWAY_MULTIMEM_NARROW(E4M3x4, "e4m3x4", AddInHalf, "f16")
WARPWAY_MULTIMEM_NARROW(E5M2x4, "e5m2x4", AddInHalf, "f16")

#undef WARPWAY_MULTIMEM_NARROW
#undef WARPWAY_MULTIMEM_INTEGER
#undef WARPWAY_MULTIMEM_ADD
#undef WARPWAY_MULTIMEM_LOAD

WARPWAY_DEVICE u64 multicast_address(const void* address) { return static_cast<u64>(__cvta_generic_to_global(address)); }

}  // namespace detail

/// Folds the words of all members.
template <SwitchFold Fold, SwitchWord Word, u32 Words>
WARPWAY_DEVICE void multimem_load(const void* address, u32* words) {
  detail::requires_multicast<Word, Words>();
  detail::MultimemLoad<Fold, Word>::template load<Words>(detail::multicast_address(address), words);
}

/// Adds to the words of all members, each element atomically.
template <SwitchWord Word, u32 Words>
WARPWAY_DEVICE void multimem_add(void* address, const u32* words) {
  detail::requires_multicast<Word, Words>();
  detail::MultimemAdd<Word>::template add<Words>(detail::multicast_address(address), words);
}

/// Adds to a 64-bit counter of all members.
template <class T>
WARPWAY_DEVICE void multimem_add(T* counter, T value) {
  detail::requires_multicast<SwitchWord::U32, sizeof(T) / 4>();
  static_assert(sizeof(T) == 8, "a 64-bit counter");
  asm volatile("multimem.red.relaxed.sys.global.add.u64 [%0], %1;" ::"l"(detail::multicast_address(counter)), "l"(value) : "memory");
}

/// Stores the same bits to all members.
template <u32 Words>
WARPWAY_DEVICE void multimem_store(void* address, const u32* w) {
  detail::requires_multicast<SwitchWord::U32, Words>();
  const u64 at = detail::multicast_address(address);
  if constexpr (Words == 1) {
    asm volatile("multimem.st.relaxed.sys.global.b32 [%0], %1;" ::"l"(at), "r"(w[0]) : "memory");
  } else if constexpr (Words == 2) {
    asm volatile("multimem.st.relaxed.sys.global.v2.f32 [%0], {%1, %2};" ::"l"(at), "r"(w[0]), "r"(w[1]) : "memory");
  } else {
    asm volatile("multimem.st.relaxed.sys.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(at), "r"(w[0]), "r"(w[1]), "r"(w[2]),
                 "r"(w[3]) : "memory");
  }
}

/// The same for a vector of one element of 8 bytes.
template <class V>
WARPWAY_DEVICE void multimem_store_element(void* address, const V& value) {
  static_assert(V::bytes == 8 && V::Size == 1, "one element of 8 bytes");
  detail::requires_multicast<SwitchWord::U32, V::n_words>();
  const u64 at = detail::multicast_address(address);
  const u64 both = u64{value.word(1)} << 32 | value.word(0);
  asm volatile("multimem.st.relaxed.sys.global.b64 [%0], %1;" ::"l"(at), "l"(both) : "memory");
}

}  // namespace warpway
#endif
