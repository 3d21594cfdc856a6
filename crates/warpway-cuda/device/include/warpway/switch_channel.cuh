// A switch channel: memory of all members of a multicast group, read reduced and written at once by the switch.
//
// sm_90 and multicast hardware; code that calls a method does not compile for less. All accesses are relaxed at
// system scope and volatile in the compiler's sense: inputs are published by an ordered group or channel barrier
// before, results after. Vectors are naturally aligned, 4, 8 or 16 bytes. The order of a reduction is the hardware's.
// Sums are in the widest accumulator that the switch has, unless `AccumT` is the type itself: f16 and bf16 in float, 8-bit floats
// (sm_100a) in half. What the switch cannot do does not compile; another operator never takes its place.
// Whole vectors only: a channel has no peers' addresses, so bytes beyond the last multiple of 4, and folds that the
// switch does not do, are for memory channels to the peers. Builds with WARPWAY_DEVICE_CHECKS check range and alignment.
#pragma once

#include "warpway/semaphores.cuh"
#include "warpway/vectors.cuh"

namespace warpway {

namespace detail {

/// How the switch folds a format; specialised for what it can do. `AccumT` is void for the widest accumulator that there is.
template <class Format, class AccumT, ReduceOp Op>
struct Multimem {
  static constexpr bool folds = false;
  static constexpr bool adds = false;
};
template <SwitchFold Fold, SwitchWord Word>
struct MultimemBy {
  static constexpr bool folds = true;
  static constexpr SwitchFold fold = Fold;
  static constexpr SwitchWord word = Word;
  /// Whether words of memory can be added to.
  static constexpr bool adds = Word != SwitchWord::E4M3x4 && Word != SwitchWord::E5M2x4;
  /// Words of one instruction.
  static constexpr u32 most = Word == SwitchWord::S32 || Word == SwitchWord::U32 ? 1 : 4;
};

#define WARPWAY_MULTIMEM(Format, AccumT, Op, fold, word) \
  template <>                                            \
  struct Multimem<Format, AccumT, ReduceOp::Op> : MultimemBy<SwitchFold::fold, SwitchWord::word> {};
#define WARPWAY_MULTIMEM_ALL(Format, word, widest)     \
  WARPWAY_MULTIMEM(Format, void, Sum, widest, word)    \
  WARPWAY_MULTIMEM(Format, void, Min, Min, word)       \
  WARPWAY_MULTIMEM(Format, void, Max, Max, word)
WARPWAY_MULTIMEM_ALL(I32, S32, Add)
WARPWAY_MULTIMEM_ALL(U32, U32, Add)
WARPWAY_MULTIMEM(F32, void, Sum, Add, F32)
WARPWAY_MULTIMEM_ALL(F16, F16x2, AddInFloat)
WARPWAY_MULTIMEM(F16, F16, Sum, Add, F16x2)
WARPWAY_MULTIMEM_ALL(BF16, BF16x2, AddInFloat)
WARPWAY_MULTIMEM(BF16, BF16, Sum, Add, BF16x2)
WARPWAY_MULTIMEM_ALL(E4M3, E4M3x4, AddInHalf)
WARPWAY_MULTIMEM(E4M3, F16, Sum, AddInHalf, E4M3x4)
WARPWAY_MULTIMEM(E4M3, E4M3, Sum, Add, E4M3x4)
WARPWAY_MULTIMEM_ALL(E5M2, E5M2x4, AddInHalf)
WARPWAY_MULTIMEM(E5M2, F16, Sum, AddInHalf, E5M2x4)
WARPWAY_MULTIMEM(E5M2, E5M2, Sum, Add, E5M2x4)
#undef WARPWAY_MULTIMEM_ALL
#undef WARPWAY_MULTIMEM

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
    static_assert(How::folds, "the switch does not fold this type so: fold the peers' memory instead");
    if constexpr (How::folds) {
      static_assert(count<V>() <= How::most, "the switch folds integers one by one");
      u32 words[4];
      multimem_load<How::fold, How::word, count<V>()>(pointer, words);
      return from_words<V>(words);
    }
  }
  /// As `broadcast`, at a multicast address.
  template <class V>
  WARPWAY_DEVICE static void multimemStore(const V& value, V* pointer) {
    if constexpr (V::bytes == 8 && V::Size == 1) {
      multimem_store_element(pointer, value);
    } else {
      u32 words[4];
      to_words(value, words);
      multimem_store<count<V>()>(pointer, words);
    }
  }
  /// Adds to all members, each element atomically and rounded to its type.
  template <class V>
  WARPWAY_DEVICE static void multimemStoreReduce(const V& value, V* pointer) {
    using How = detail::Multimem<typename V::Format, void, ReduceOp::Sum>;
    static_assert(How::adds, "the switch does not add this type");
    if constexpr (How::adds) {
      static_assert(count<V>() <= How::most, "the switch adds integers one by one");
      u32 words[4];
      to_words(value, words);
      multimem_add<How::word, count<V>()>(pointer, words);
    }
  }

  template <Guard G = Guard::Poison>
  WARPWAY_DEVICE void signal() const {
    semaphore.signal<G>();
  }
  template <Guard G = Guard::Poison>
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
  WARPWAY_DEVICE static void to_words(const V& value, u32* words) {
    WARPWAY_UNROLL
    for (u32 w = 0; w < count<V>(); ++w) words[w] = value.word(w);
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
    const u64 misaligned = reinterpret_cast<u64>(mcPtr) % sizeof(V);
    if (misaligned != 0) {
      refuse(semaphore.site, Code::Alignment, sizeof(V), misaligned);
      return false;
    }
#else
    static_cast<void>(i);
#endif
    return true;
  }
};

}  // namespace warpway
