// Short vectors of elements: access by element and by 32-bit word, conversions, and a few operations.
//
// Conversions go through the value that a type is folded in: exact where the target can hold it, else
// rounded like a fold. They make NaN canonical; `bit_cast` keeps all bits. `clip` saturates and passes NaN on.
#pragma once

#include "warpway/fold.cuh"

namespace warpway {

/// `N` elements of a format, N * size at most 64 bytes, aligned to their size, at most to 16.
template <class F, u32 N>
struct alignas(sizeof(typename F::Bits) * N < 16 ? sizeof(typename F::Bits) * N : 16) Vector {
  using Format = F;
  using Bits = typename F::Bits;
  static constexpr u32 Size = N;
  static constexpr u32 bytes = sizeof(Bits) * N;
  /// At least one, if need be with unused upper bytes.
  static constexpr u32 n_words = (bytes + 3) / 4;

  Bits data[N];

  WARPWAY_DEVICE Bits& operator[](u32 i) { return data[i]; }
  WARPWAY_DEVICE const Bits& operator[](u32 i) const { return data[i]; }

  WARPWAY_DEVICE u32 word(u32 w) const {
    constexpr u32 size = sizeof(Bits);
    if constexpr (size == 8) return static_cast<u32>(static_cast<u64>(data[w / 2]) >> (w % 2 * 32));
    else if constexpr (size == 4) return static_cast<u32>(data[w]);
    else {
      u32 result = 0;
      WARPWAY_UNROLL
      for (u32 i = 0; i < 4 / size; ++i) {
        const u32 at = w * (4 / size) + i;
        if (at < N) result |= (static_cast<u32>(data[at]) & ((1u << (size * 8 % 32)) - 1)) << (i * size * 8);
      }
      return result;
    }
  }
  WARPWAY_DEVICE void set_word(u32 w, u32 value) {
    constexpr u32 size = sizeof(Bits);
    if constexpr (size == 8) {
      const u64 keep = static_cast<u64>(data[w / 2]) & ~(u64{0xffffffff} << (w % 2 * 32));
      data[w / 2] = static_cast<Bits>(keep | u64{value} << (w % 2 * 32));
    } else if constexpr (size == 4) {
      data[w] = static_cast<Bits>(value);
    } else {
      WARPWAY_UNROLL
      for (u32 i = 0; i < 4 / size; ++i) {
        const u32 at = w * (4 / size) + i;
        if (at < N) data[at] = static_cast<Bits>(value >> (i * size * 8));
      }
    }
  }
};

#define WARPWAY_VECTOR(name, Format, n) using name##x##n = Vector<Format, n>;
#define WARPWAY_VECTORS_BYTES(name, Format) \
  WARPWAY_VECTOR(name, Format, 2)           \
  WARPWAY_VECTOR(name, Format, 4) WARPWAY_VECTOR(name, Format, 8) WARPWAY_VECTOR(name, Format, 16)
WARPWAY_VECTOR(i32, I32, 1)
WARPWAY_VECTOR(i32, I32, 2)
WARPWAY_VECTOR(i32, I32, 4)
WARPWAY_VECTOR(u32, U32, 1)
WARPWAY_VECTOR(u32, U32, 2)
WARPWAY_VECTOR(u32, U32, 4)
WARPWAY_VECTOR(u8, U8, 2)
WARPWAY_VECTOR(u8, U8, 4)
WARPWAY_VECTOR(f64, F64, 1)
WARPWAY_VECTOR(f32, F32, 1)
WARPWAY_VECTOR(f32, F32, 2)
WARPWAY_VECTOR(f32, F32, 4)
WARPWAY_VECTOR(f32, F32, 8)
WARPWAY_VECTOR(f32, F32, 16)
WARPWAY_VECTOR(f16, F16, 2)
WARPWAY_VECTOR(f16, F16, 4)
WARPWAY_VECTOR(f16, F16, 8)
WARPWAY_VECTOR(f16, F16, 16)
WARPWAY_VECTOR(bf16, BF16, 2)
WARPWAY_VECTOR(bf16, BF16, 4)
WARPWAY_VECTOR(bf16, BF16, 8)
WARPWAY_VECTORS_BYTES(e4m3, E4M3)
WARPWAY_VECTORS_BYTES(e5m2, E5M2)
WARPWAY_VECTORS_BYTES(e4m3b15, E4M3B15)
#undef WARPWAY_VECTORS_BYTES
#undef WARPWAY_VECTOR

/// The same bits as another vector of the same size.
template <class To, class From>
WARPWAY_DEVICE To bit_cast(const From& from) {
  static_assert(To::bytes == From::bytes, "vectors of the same size");
  To result{};
  WARPWAY_UNROLL
  for (u32 w = 0; w < To::n_words; ++w) result.set_word(w, from.word(w));
  return result;
}

/// The same numbers in another format.
template <class To, class From>
WARPWAY_DEVICE To to(const From& from) {
  static_assert(To::Size == From::Size, "vectors of as many elements");
  using Value = typename To::Format::Value;
  To result;
  WARPWAY_UNROLL
  for (u32 i = 0; i < To::Size; ++i) {
    result[i] = To::Format::encode(static_cast<Value>(From::Format::decode(from[i])));
  }
  return result;
}

/// Element by element, rounded once.
template <ReduceOp Op, class V>
WARPWAY_DEVICE V apply(const V& a, const V& b) {
  using One = Fold<typename V::Format, Op>;
  V result;
  WARPWAY_UNROLL
  for (u32 i = 0; i < V::Size; ++i) {
    const typename V::Format::Value one(1);
    result[i] = One::leave(One::join(One::enter(a[i], one), One::enter(b[i], one)), FoldSetting{});
  }
  return result;
}

template <class F, u32 N>
WARPWAY_DEVICE Vector<F, N> operator+(const Vector<F, N>& a, const Vector<F, N>& b) {
  return apply<ReduceOp::Sum>(a, b);
}
template <class F, u32 N>
WARPWAY_DEVICE Vector<F, N> min(const Vector<F, N>& a, const Vector<F, N>& b) {
  return apply<ReduceOp::Min>(a, b);
}
template <class F, u32 N>
WARPWAY_DEVICE Vector<F, N> max(const Vector<F, N>& a, const Vector<F, N>& b) {
  return apply<ReduceOp::Max>(a, b);
}

/// Infinity becomes the greatest finite number of the type with its sign, NaN stays NaN.
template <class F, u32 N>
WARPWAY_DEVICE Vector<F, N> clip(const Vector<F, N>& v) {
  static_assert(F::is_float, "integers have no infinity");
  Vector<F, N> result = v;
  WARPWAY_UNROLL
  for (u32 i = 0; i < N; ++i) {
    const auto value = F::decode(v[i]);
    // Neither is equal to itself after subtraction, but NaN is not equal to itself before either.
    const bool infinite = value == value && value - value != value - value;
    // The code next to infinity is that of the greatest finite number.
    if (infinite) result[i] = static_cast<typename F::Bits>(v[i] - 1);
  }
  return result;
}

}  // namespace warpway
