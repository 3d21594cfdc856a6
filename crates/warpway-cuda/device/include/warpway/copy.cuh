// Copies by threads, any address and any number of bytes.
//
// Collective: each of `num_threads` threads calls with its own `thread_id`; thread i moves vectors i, i + n, i + 2n, ...
// Each vector is loaded to registers and then stored, several per thread at a time: what is under way on a link is
// its rate times the time of a load. No fence inside: the caller orders. Ranges must not overlap.
//
// Never is a byte written outside [dst, dst + bytes) or read outside [src, src + bytes).
#pragma once

#include "warpway/platform.cuh"

namespace warpway {

/// Vectors of a thread under way. Loads from the device's own memory are back soon, and nobody waits for stores to a
/// peer: four fill NVLink with eight blocks of 512 threads. Loads from a peer take longer, so eight.
inline constexpr u32 near_depth = 4;
inline constexpr u32 far_depth = 8;

namespace detail {

/// Moves vectors i, i + step, ..., `Depth` of them.
template <u32 Depth, class V>
WARPWAY_DEVICE void copy_round(V* dst, const V* src, u64 i, u64 step) {
  V v[Depth];
  WARPWAY_UNROLL
  for (u32 k = 0; k < Depth; ++k) v[k] = src[i + k * step];
  WARPWAY_UNROLL
  for (u32 k = 0; k < Depth; ++k) dst[i + k * step] = v[k];
}

template <u32 Depth, class V>
WARPWAY_DEVICE void copy_vectors(V* dst, const V* src, u64 count, u32 thread_id, u32 num_threads) {
  const u64 step = num_threads;
  u64 i = thread_id;
  // The last vector of a full round is the farthest one.
  WARPWAY_ROLLED
  for (const u64 reach = (Depth - 1) * step; i + reach < count; i += Depth * step) copy_round<Depth>(dst, src, i, step);
  // What is left of a deep round in rounds of half the depth: one after the other, each would take the time of a load.
  if constexpr (Depth > near_depth) {
    static_assert(Depth == 8, "halves of it");
    if (i + 3 * step < count) copy_round<4>(dst, src, i, step), i += 4 * step;
    if (i + step < count) copy_round<2>(dst, src, i, step), i += 2 * step;
  }
  WARPWAY_ROLLED
  for (; i < count; i += step) dst[i] = src[i];
}

WARPWAY_DEVICE u64 address(const void* pointer) { return reinterpret_cast<u64>(pointer); }

template <class V>
WARPWAY_DEVICE void copy_few(V* dst, const V* src, u32 count, u32 thread_id, u32 num_threads) {
  WARPWAY_ROLLED
  for (u32 i = thread_id; i < count; i += num_threads) dst[i] = src[i];
}

/// Fewer bytes than a vector has, in words where the addresses allow it, the rest in bytes.
WARPWAY_DEVICE void copy_edge(u8* dst, const u8* src, u32 bytes, u32 thread_id, u32 num_threads) {
  u32 words = 0;
  if (((address(dst) | address(src)) & 3) == 0) {
    words = bytes / 4;
    copy_few(reinterpret_cast<u32*>(dst), reinterpret_cast<const u32*>(src), words, thread_id, num_threads);
  }
  copy_few(dst + 4 * words, src + 4 * words, bytes - 4 * words, thread_id, num_threads);
}

/// Both addresses have the same distance to a multiple of the vector's size.
template <u32 Depth, class V>
WARPWAY_DEVICE void copy_aligning(u8* dst, const u8* src, u64 bytes, u32 thread_id, u32 num_threads) {
  constexpr u64 size = sizeof(V);
  u64 head = (0 - address(dst)) % size;
  if (head > bytes) head = bytes;
  const u64 vectors = (bytes - head) / size;
  const u64 tail = bytes - head - vectors * size;
  if (head != 0) copy_edge(dst, src, static_cast<u32>(head), thread_id, num_threads);
  copy_vectors<Depth>(reinterpret_cast<V*>(dst + head), reinterpret_cast<const V*>(src + head), vectors, thread_id,
                      num_threads);
  if (tail != 0) copy_edge(dst + (bytes - tail), src + (bytes - tail), static_cast<u32>(tail), thread_id, num_threads);
}

/// Addresses whose distance is no multiple of the preferred vector. Not inlined: it is long, and where it is needed the
/// call is not what costs.
template <u32 Depth>
WARPWAY_COLD void copy_narrow(u8* dst, const u8* src, u64 bytes, u32 thread_id, u32 num_threads) {
  const u64 distance = address(dst) ^ address(src);
  if (distance % 8 == 0) return copy_aligning<Depth, Vec8>(dst, src, bytes, thread_id, num_threads);
  if (distance % 4 == 0) return copy_aligning<Depth, u32>(dst, src, bytes, thread_id, num_threads);
  if (distance % 2 == 0) return copy_aligning<Depth, u16>(dst, src, bytes, thread_id, num_threads);
  copy_vectors<Depth>(dst, src, bytes, thread_id, num_threads);
}

template <u32 Bytes>
struct VectorOf;
template <>
struct VectorOf<4> {
  using Type = u32;
};
template <>
struct VectorOf<8> {
  using Type = Vec8;
};
template <>
struct VectorOf<16> {
  using Type = Vec16;
};

}  // namespace detail

/// Elements of an aligned array. Collective.
template <class T>
WARPWAY_DEVICE void copy(T* dst, const T* src, u64 count, u32 thread_id, u32 num_threads) {
  detail::copy_vectors<near_depth>(dst, src, count, thread_id, num_threads);
}

/// Bytes. `Align` is 4, 8 or 16, the preferred vector. `CopyRemainder = false` promises that both addresses and the
/// number of bytes are multiples of it. Otherwise the vector is the widest that fits the distance of
/// the addresses, down to single bytes. `Depth` is `far_depth` where the source is a peer's memory. Collective.
template <u32 Align = 16, bool CopyRemainder = true, u32 Depth = near_depth>
WARPWAY_DEVICE void copy(void* dst, const void* src, u64 bytes, u32 thread_id, u32 num_threads) {
  static_assert(Align == 4 || Align == 8 || Align == 16, "Align is 4, 8 or 16");
  using Vector = typename detail::VectorOf<Align>::Type;
  u8* to = static_cast<u8*>(dst);
  const u8* from = static_cast<const u8*>(src);
#if defined(WARPWAY_DEVICE_CHECKS)
  if (detail::address(to) - detail::address(from) < bytes || detail::address(from) - detail::address(to) < bytes) {
    if (bytes != 0) WARPWAY_TRAP();
  }
#endif
  if constexpr (!CopyRemainder) {
    detail::copy_vectors<Depth>(reinterpret_cast<Vector*>(to), reinterpret_cast<const Vector*>(from), bytes / Align,
                                thread_id, num_threads);
  } else {
    if ((detail::address(to) ^ detail::address(from)) % Align == 0) {
      detail::copy_aligning<Depth, Vector>(to, from, bytes, thread_id, num_threads);
    } else {
      detail::copy_narrow<Depth>(to, from, bytes, thread_id, num_threads);
    }
  }
}

/// Plain access to an element.
template <class T>
WARPWAY_DEVICE T read(const T* pointer, u64 index) {
  return pointer[index];
}
template <class T>
WARPWAY_DEVICE void write(T* pointer, u64 index, const T& value) {
  pointer[index] = value;
}

}  // namespace warpway
