// Data types: how each is read into what it is folded in, rounded back, and ordered.
//
// Bits are those of `device.md` 12 and of the host engine: rounding to nearest, ties to even (`E4m3b15` rounds twice);
// NaN becomes the canonical NaN of the type; types without infinity saturate, and so does `E5m2`; subnormal numbers are
// kept. Integer arithmetic throughout, or an instruction where it gives the same bits.
#pragma once

#include "warpway/platform.cuh"

namespace warpway {

/// Numbers of data types in plans and calls.
enum class DataType : u32 {
  Int32 = 0,
  Uint32 = 1,
  Float16 = 2,
  Float32 = 3,
  Bfloat16 = 4,
  Float8E4m3fn = 5,
  Float8E4m3fnuz = 6,
  Float8E5m2 = 7,
  Float8E5m2fnuz = 8,
  Uint8 = 9,
  Float8E4m3b15 = 10,
  Int8 = 11,
  Int64 = 12,
  Uint64 = 13,
  Float64 = 14,
};

// A format has
//   Bits, Value, Key     an element in memory, what it is folded in, an integer ordered like the elements
//   decode(Bits)         the exact value
//   encode(Value)        the nearest element
//   key(Bits, nan)       its place in the order, `nan` for NaN; -0 is below +0
//   element(Key)         the reverse; `top` and `bottom`, which lose to every number, give NaN
//   is_float             whether a mean scales what enters

namespace detail {

template <class A, class B>
inline constexpr bool same = false;
template <class A>
inline constexpr bool same<A, A> = true;

template <class T, bool Signed = (T(-1) < T(0))>
struct Integer {
  using Bits = T;
  using Value = T;
  using Key = T;
  static constexpr bool is_float = false;
  static constexpr T bottom = Signed ? T(T(1) << (sizeof(T) * 8 - 1)) : T(0);
  static constexpr T top = T(~bottom);
  WARPWAY_DEVICE static T decode(T bits) { return bits; }
  WARPWAY_DEVICE static T encode(T value) { return value; }
  WARPWAY_DEVICE static T key(T bits, T) { return bits; }
  WARPWAY_DEVICE static T element(T key) { return key; }
};

/// Sign and magnitude, the greatest magnitude that is a number being `Greatest`. Keys are two's complement
/// (one less where negative, so that -0 has a key of its own).
template <class B, class K, u64 Greatest>
struct Ordered {
  using Key = K;
  static constexpr K top = K(~(u64{1} << (sizeof(K) * 8 - 1)));
  static constexpr K bottom = K(~top);
  WARPWAY_DEVICE static K key_of(B bits, K nan) {
    const K raw = static_cast<K>(bits);
    return (static_cast<B>(raw & top) > static_cast<B>(Greatest)) ? nan : static_cast<K>(raw ^ ((raw < 0) ? top : K(0)));
  }
  WARPWAY_DEVICE static B element_of(K key) {
    if (key == bottom) key = top;
    return static_cast<B>(key ^ ((key < 0) ? top : K(0)));
  }
};

}  // namespace detail

struct I8 : detail::Integer<i8> {};
struct U8 : detail::Integer<u8> {};
struct I32 : detail::Integer<i32> {};
struct U32 : detail::Integer<u32> {};
struct I64 : detail::Integer<i64> {};
struct U64 : detail::Integer<u64> {};

struct F32 : detail::Ordered<u32, i32, 0x7f800000> {
  using Bits = u32;
  using Value = float;
  static constexpr bool is_float = true;
  WARPWAY_DEVICE static float decode(u32 bits) { return float_of(bits); }
  WARPWAY_DEVICE static u32 encode(float value) { return value != value ? 0x7fffffffu : bits_of(value); }
  WARPWAY_DEVICE static i32 key(u32 bits, i32 nan) { return key_of(bits, nan); }
  WARPWAY_DEVICE static u32 element(i32 key) { return element_of(key); }
};

struct F64 : detail::Ordered<u64, i64, 0x7ff0000000000000> {
  using Bits = u64;
  using Value = double;
  static constexpr bool is_float = true;
  WARPWAY_DEVICE static double decode(u64 bits) { return double_of(bits); }
  WARPWAY_DEVICE static u64 encode(double value) { return value != value ? 0x7fffffffffffffffull : bits_of(value); }
  WARPWAY_DEVICE static i64 key(u64 bits, i64 nan) { return key_of(bits, nan); }
  WARPWAY_DEVICE static u64 element(i64 key) { return element_of(key); }
};

/// The upper half of a float.
struct BF16 : detail::Ordered<u16, i16, 0x7f80> {
  using Bits = u16;
  using Value = float;
  static constexpr bool is_float = true;
  WARPWAY_DEVICE static float decode(u16 bits) { return float_of(u32{bits} << 16); }
  WARPWAY_DEVICE static u16 encode(float value) {
#if defined(WARPWAY_CONVERTS_HALVES)
    return float_to_bfloat(value);
#else
    const u32 bits = bits_of(value);
    // Half a unit of the last place that stays; a tie goes up only from an odd one. The carry runs on into infinity.
    const u32 rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    return value != value ? u16{0x7fff} : static_cast<u16>(rounded);
#endif
  }
  WARPWAY_DEVICE static i16 key(u16 bits, i16 nan) { return key_of(bits, nan); }
  WARPWAY_DEVICE static u16 element(i16 key) { return element_of(key); }
};

namespace detail {

/// 2 to the power of `exponent`, that of a normal float.
WARPWAY_DEVICE float power_of_two(i32 exponent) { return float_of(static_cast<u32>(exponent + 127) << 23); }

/// What describes a float narrower than `float` in both fields, so that every value of it is a normal float.
template <class B, u32 Mantissa, u32 Bias, u32 Special, u32 LimitBits, bool NegativeZeroIsNan, u32 Nan>
struct Narrow {
  using Bits = B;
  using Value = float;
  static constexpr bool is_float = true;
  static constexpr u32 sign = 1u << (sizeof(B) * 8 - 1);
  static constexpr u32 shift = 23 - Mantissa;

  WARPWAY_DEVICE static float decode(B bits) {
    const u32 code = bits;
    const u32 magnitude = code & (sign - 1);
    u32 value = (magnitude << shift) + ((127 - Bias) << 23);
    if (magnitude < (1u << Mantissa)) {
      // Fewer bits than a float has: conversion and product are exact.
      value = bits_of(multiply(static_cast<float>(static_cast<i32>(magnitude)),
                               power_of_two(1 - static_cast<i32>(Bias) - static_cast<i32>(Mantissa))));
    }
    if (magnitude >= Special) value = 0x7f800000u | magnitude << shift;
    if (code >= sign) value |= 0x80000000u;
    if (NegativeZeroIsNan && code == sign) value = 0x7fffffffu;
    return float_of(value);
  }

  WARPWAY_DEVICE static B encode(float value) {
    const u32 bits = bits_of(value);
    u32 magnitude = bits & 0x7fffffffu;
    const bool nan = magnitude > 0x7f800000u;
    if (magnitude > LimitBits) magnitude = LimitBits;
    // Half a unit of the last place, as above; then the exponent counts from the other bias.
    const u32 rounded = magnitude + ((1u << (shift - 1)) - 1) + (magnitude >> shift & 1);
    u32 code = (rounded >> shift) - ((127 - Bias) << Mantissa);
    if (magnitude < ((128 - Bias) << 23)) {
      // The last place of `anchor` is that of the subnormal numbers: the addition rounds.
      const float anchor = power_of_two(24 - static_cast<i32>(Bias) - static_cast<i32>(Mantissa));
      code = bits_of(add(float_of(magnitude), anchor)) - bits_of(anchor);
    }
    if ((!NegativeZeroIsNan || code != 0) && (bits >> 31) != 0) code |= sign;
    return static_cast<B>(nan ? Nan : code);
  }
};

/// Every code is a number, or all but that of the negative zero: NaN needs keys outside those of a byte.
struct WideKeys {
  using Key = i16;
  static constexpr i16 top = 0x7fff;
  static constexpr i16 bottom = -0x8000;
  WARPWAY_DEVICE static i16 key(u8 bits, i16 nan) { return bits == 0x80 ? nan : Ordered<u8, i8, 0x7f>::key_of(bits, 0); }
  WARPWAY_DEVICE static u8 element(i16 key) {
    if (key == top || key == bottom) return 0x80;
    const i8 narrow = static_cast<i8>(key);
    return static_cast<u8>(narrow < 0 ? narrow ^ 0x7f : narrow);
  }
};

}  // namespace detail

/// IEEE binary16. Rounded beyond 65504 is infinite, as if the next number were 65536.
struct F16 : detail::Narrow<u16, 10, 15, 0x7c00, 0x47800000, false, 0x7fff>, detail::Ordered<u16, i16, 0x7c00> {
#if defined(WARPWAY_CONVERTS_HALVES)
  WARPWAY_DEVICE static float decode(u16 bits) { return half_to_float(bits); }
  WARPWAY_DEVICE static u16 encode(float value) { return float_to_half(value); }
#endif
  WARPWAY_DEVICE static i16 key(u16 bits, i16 nan) { return key_of(bits, nan); }
  WARPWAY_DEVICE static u16 element(i16 key) { return element_of(key); }
};

/// Saturates at 448.
struct E4M3 : detail::Narrow<u8, 3, 7, 0x7f, 0x43e00000, false, 0x7f>, detail::Ordered<u8, i8, 0x7e> {
#if defined(WARPWAY_CONVERTS_BYTES)
  WARPWAY_DEVICE static float decode(u8 bits) { return half_to_float(static_cast<u16>(e4m3_to_halves(bits))); }
  WARPWAY_DEVICE static u8 encode(float value) { return static_cast<u8>(floats_to_e4m3(value, 0.0f)); }
#endif
  WARPWAY_DEVICE static i8 key(u8 bits, i8 nan) { return key_of(bits, nan); }
  WARPWAY_DEVICE static u8 element(i8 key) { return element_of(key); }
};

/// Saturates at 57344, from infinity too, as the instructions do.
struct E5M2 : detail::Narrow<u8, 2, 15, 0x7c, 0x47600000, false, 0x7f>, detail::Ordered<u8, i8, 0x7c> {
#if defined(WARPWAY_CONVERTS_HALVES)
  /// The upper half of a binary16.
  WARPWAY_DEVICE static float decode(u8 bits) { return half_to_float(static_cast<u16>(bits << 8)); }
#endif
#if defined(WARPWAY_CONVERTS_BYTES)
  WARPWAY_DEVICE static u8 encode(float value) { return static_cast<u8>(floats_to_e5m2(value, 0.0f)); }
#endif
  WARPWAY_DEVICE static i8 key(u8 bits, i8 nan) { return key_of(bits, nan); }
  WARPWAY_DEVICE static u8 element(i8 key) { return element_of(key); }
};

/// Saturates at 240.
struct E4M3FNUZ : detail::Narrow<u8, 3, 8, ~0u, 0x43700000, true, 0x80>, detail::WideKeys {};
/// Saturates at 57344.
struct E5M2FNUZ : detail::Narrow<u8, 2, 16, ~0u, 0x47600000, true, 0x80>, detail::WideKeys {};

/// Every code is a finite number. Defined through binary16: rounds to it, then to 3 bits with ties away from zero.
struct E4M3B15 : detail::Ordered<u8, i8, 0x7f> {
  using Bits = u8;
  using Value = float;
  static constexpr bool is_float = true;
  WARPWAY_DEVICE static float decode(u8 bits) {
    return F16::decode(static_cast<u16>((bits & 0x80) << 8 | (bits & 0x7f) << 7));
  }
  /// NaN gives the greatest number with its sign; that of a fold is positive.
  WARPWAY_DEVICE static u8 encode(float value) {
    // The canonical half has lost the sign of a NaN.
    const u32 half = value != value ? 0x7fffu : F16::encode(value);
    u32 magnitude = half & 0x7fff;
    if (magnitude > 0x3f80) magnitude = 0x3f80;  // 1.875
    return static_cast<u8>((half >> 8 & 0x80) | (magnitude + 0x40) >> 7);
  }
  WARPWAY_DEVICE static i8 key(u8 bits, i8) { return key_of(bits, 0); }
  WARPWAY_DEVICE static u8 element(i8 key) { return static_cast<u8>(key < 0 ? key ^ 0x7f : key); }
};

}  // namespace warpway
