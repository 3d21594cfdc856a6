// Atomic accesses whose order is an argument and whose scope is a parameter, under the names of MSCCL++.
//
// Any thread, any memory. T is i32, u32, i64 or u64, naturally aligned. Orders that an access cannot have (release of
// a load, acquire of a store) are raised to sequential consistency. Memory of a peer may be named only where the link
// has native atomics, which is checked when the connection is made.
#pragma once

#include "warpway/platform.cuh"

namespace warpway {

namespace detail {

template <u32 Bytes>
struct Word;
template <>
struct Word<4> {
  using Type = u32;
};
template <>
struct Word<8> {
  using Type = u64;
};
template <class T>
using WordOf = typename Word<sizeof(T)>::Type;

}  // namespace detail

template <class T, Scope S = Scope::System>
WARPWAY_DEVICE T atomicLoad(const T* address, Order order) {
  const auto* word = reinterpret_cast<const detail::WordOf<T>*>(address);
  switch (order) {
    case Order::Relaxed: return static_cast<T>(load<S, Order::Relaxed, Space::Generic>(word));
    case Order::Acquire: return static_cast<T>(load<S, Order::Acquire, Space::Generic>(word));
    default: return static_cast<T>(load<S, Order::SeqCst, Space::Generic>(word));
  }
}

template <class T, Scope S = Scope::System>
WARPWAY_DEVICE void atomicStore(T* address, const T& value, Order order) {
  auto* word = reinterpret_cast<detail::WordOf<T>*>(address);
  const auto bits = static_cast<detail::WordOf<T>>(value);
  switch (order) {
    case Order::Relaxed: return store<S, Order::Relaxed, Space::Generic>(word, bits);
    case Order::Release: return store<S, Order::Release, Space::Generic>(word, bits);
    default: return store<S, Order::SeqCst, Space::Generic>(word, bits);
  }
}

/// Adds, wrapping, and returns what was there before.
template <class T, Scope S = Scope::System>
WARPWAY_DEVICE T atomicFetchAdd(T* address, const T& value, Order order) {
  auto* word = reinterpret_cast<detail::WordOf<T>*>(address);
  const auto bits = static_cast<detail::WordOf<T>>(value);
  switch (order) {
    case Order::Relaxed: return static_cast<T>(fetch_add<S, Order::Relaxed, Space::Generic>(word, bits));
    case Order::Acquire: return static_cast<T>(fetch_add<S, Order::Acquire, Space::Generic>(word, bits));
    case Order::Release: return static_cast<T>(fetch_add<S, Order::Release, Space::Generic>(word, bits));
    case Order::AcqRel: return static_cast<T>(fetch_add<S, Order::AcqRel, Space::Generic>(word, bits));
    default: return static_cast<T>(fetch_add<S, Order::SeqCst, Space::Generic>(word, bits));
  }
}

}  // namespace warpway
