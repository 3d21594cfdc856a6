// The stand-in of `platform_multimem.cuh` for host compilers: multicast groups in host memory.
//
// A group maps a range of addresses, which need not be memory, to the memories of its members. Loads fold over the members as the
// PTX ISA says (multimem.ld_reduce): sums in the accumulator that is named, by default the type itself, so that each partial sum is
// rounded. The ISA leaves open in which order (here from `first` on, so that tests can say), what minimum and maximum make of NaN
// and zeros (here what its min and max make of them: NaN loses, -0 is less than +0), and whether a sum of 8-bit
// floats saturates (here it does, as conversions to them do).
//
// Weak where the hardware may be: a thread's stores reach the members one after another, some only with its next fence at system
// scope, and additions to counters overtake them. Misuse, which ends the context of a GPU, goes to `host_multicast_fault`.
#pragma once

#include <cstdio>

#include "warpway/formats.cuh"

namespace warpway {

/// A multicast group, registered before anybody uses it.
struct HostMulticast {
  static constexpr u32 most = 16;
  /// The addresses `base` to `base + bytes` stand for as many bytes of each member.
  u64 base;
  u64 bytes;
  u8* members[most];
  u32 n_members;
  /// Where folds begin.
  u32 first;
  HostMulticast* next;
};

inline HostMulticast* host_multicasts = nullptr;

/// An access that a GPU would not survive. If this returns, loads give ones in all bits and stores do nothing.
inline void (*host_multicast_fault)(const char* what, u64 address) = [](const char* what, u64 address) {
  std::fprintf(stderr, "multicast: %s at %#llx\n", what, address);
  WARPWAY_TRAP();
};

namespace detail {

/// The group behind `bytes` bytes; null after a fault.
inline const HostMulticast* multicast_at(const void* address, u64 bytes) {
  const u64 at = reinterpret_cast<u64>(address);
  if (at % bytes != 0) return host_multicast_fault("misaligned address", at), nullptr;
  for (const HostMulticast* group = host_multicasts; group != nullptr; group = group->next) {
    if (at >= group->base && at - group->base <= group->bytes && group->bytes - (at - group->base) >= bytes) return group;
  }
  return host_multicast_fault("illegal address", at), nullptr;
}

template <class T>
T* of_member(const HostMulticast& group, u32 member, const void* address) {
  return reinterpret_cast<T*>(group.members[member] + (reinterpret_cast<u64>(address) - group.base));
}

/// A store that has not reached the members yet.
struct HeldStore {
  u64* at;
  u64 bits;
  u32 bytes;
};
struct HeldStores {
  static constexpr u32 most = 64;
  HeldStore stores[most];
  u32 count = 0;

  void complete() {
    for (u32 i = 0; i < count; ++i) {
      const HeldStore& s = stores[i];
      if (s.bytes == 8) __atomic_store_n(s.at, s.bits, __ATOMIC_RELAXED);
      else __atomic_store_n(reinterpret_cast<u32*>(s.at), static_cast<u32>(s.bits), __ATOMIC_RELAXED);
    }
    count = 0;
  }
  void hold(const HostMulticast& group, const void* address, u64 bits, u32 bytes) {
    // Not all begin with the same member.
    for (u32 m = 0; m < group.n_members; ++m) {
      if (count == most) complete();
      stores[count++] = {of_member<u64>(group, (m + host_block) % group.n_members, address), bits, bytes};
    }
  }
};
inline thread_local HeldStores held_stores;

/// Kernels end with a fence, too.
inline const bool fences_complete_stores = (host_fence = [] { held_stores.complete(); }, true);

template <SwitchWord Word>
struct ElementOf;
template <>
struct ElementOf<SwitchWord::S32> { using Format = I32; };
template <>
struct ElementOf<SwitchWord::U32> { using Format = U32; };
template <>
struct ElementOf<SwitchWord::F32> { using Format = F32; };
template <>
struct ElementOf<SwitchWord::F16x2> { using Format = F16; };
template <>
struct ElementOf<SwitchWord::BF16x2> { using Format = BF16; };
template <>
struct ElementOf<SwitchWord::E4M3x4> { using Format = E4M3; };
template <>
struct ElementOf<SwitchWord::E5M2x4> { using Format = E5M2; };

inline float sum_of(float a, float b) { return add(a, b); }
inline i32 sum_of(i32 a, i32 b) { return static_cast<i32>(static_cast<u32>(a) + static_cast<u32>(b)); }
inline u32 sum_of(u32 a, u32 b) { return a + b; }

/// Elements of all members, one after the other.
template <SwitchFold Fold, class Format>
typename Format::Bits fold_elements(const typename Format::Bits* elements, u32 n) {
  if constexpr (Fold == SwitchFold::Min || Fold == SwitchFold::Max) {
    constexpr auto absent = Fold == SwitchFold::Min ? Format::top : Format::bottom;
    auto best = Format::key(elements[0], absent);
    for (u32 i = 1; i < n; ++i) {
      const auto next = Format::key(elements[i], absent);
      if (Fold == SwitchFold::Min ? next < best : best < next) best = next;
    }
    return Format::element(best);
  } else {
    auto sum = Format::decode(elements[0]);
    for (u32 i = 1; i < n; ++i) {
      sum = sum_of(sum, Format::decode(elements[i]));
      if constexpr (Fold == SwitchFold::Add) sum = Format::decode(Format::encode(sum));
      if constexpr (Fold == SwitchFold::AddInHalf) sum = F16::decode(F16::encode(sum));
    }
    return Format::encode(sum);
  }
}

/// Words of all members, element by element.
template <SwitchFold Fold, class Format>
u32 fold_words(const u32* words, u32 n) {
  constexpr u32 size = sizeof(typename Format::Bits);
  u32 result = 0;
  for (u32 at = 0; at < 4; at += size) {
    typename Format::Bits elements[HostMulticast::most] = {};
    for (u32 i = 0; i < n; ++i) elements[i] = static_cast<typename Format::Bits>(words[i] >> (8 * at));
    const u64 folded = static_cast<u64>(fold_elements<Fold, Format>(elements, n)) & (~u64{0} >> (64 - 8 * size));
    result |= static_cast<u32>(folded << (8 * at));
  }
  return result;
}

}  // namespace detail

template <SwitchFold Fold, SwitchWord Word, u32 Words>
void multimem_load(const void* address, u32* words) {
  const HostMulticast* group = detail::multicast_at(address, 4 * Words);
  detail::held_stores.complete();
  for (u32 w = 0; w < Words; ++w) {
    words[w] = ~0u;
    if (group == nullptr) continue;
    u32 all[HostMulticast::most] = {};
    for (u32 i = 0; i < group->n_members; ++i) {
      all[i] = __atomic_load_n(detail::of_member<u32>(*group, (group->first + i) % group->n_members, address) + w, __ATOMIC_RELAXED);
    }
    words[w] = detail::fold_words<Fold, typename detail::ElementOf<Word>::Format>(all, group->n_members);
  }
}

template <SwitchWord Word, u32 Words>
void multimem_add(void* address, const u32* words) {
  const HostMulticast* group = detail::multicast_at(address, 4 * Words);
  if (group == nullptr) return;
  detail::held_stores.complete();
  for (u32 m = 0; m < group->n_members; ++m) {
    u32* to = detail::of_member<u32>(*group, (m + host_block) % group->n_members, address);
    for (u32 w = 0; w < Words; ++w) {
      u32 both[2] = {__atomic_load_n(to + w, __ATOMIC_RELAXED), words[w]};
      while (!__atomic_compare_exchange_n(
          to + w, both, detail::fold_words<SwitchFold::Add, typename detail::ElementOf<Word>::Format>(both, 2), true,
          __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
      }
    }
  }
}

inline void multimem_add(u64* counter, u64 value) {
  const HostMulticast* group = detail::multicast_at(counter, 8);
  if (group == nullptr) return;
  for (u32 m = 0; m < group->n_members; ++m) {
    __atomic_fetch_add(detail::of_member<u64>(*group, (m + host_block) % group->n_members, counter), value, __ATOMIC_RELAXED);
  }
}

template <u32 Words>
void multimem_store(void* address, const u32* words) {
  const HostMulticast* group = detail::multicast_at(address, 4 * Words);
  if (group == nullptr) return;
  for (u32 w = 0; w < Words; ++w) detail::held_stores.hold(*group, static_cast<u32*>(address) + w, words[w], 4);
}

template <class V>
void multimem_store_element(void* address, const V& value) {
  const HostMulticast* group = detail::multicast_at(address, 8);
  if (group != nullptr) detail::held_stores.hold(*group, address, u64{value.word(1)} << 32 | value.word(0), 8);
}

}  // namespace warpway
