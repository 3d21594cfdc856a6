// Folds: sum, product, minimum, maximum and mean of any data type, in a fixed order, rounded once.
//
// Sources enter in order. Floats of 8, 16 and 32 bits accumulate in float, double in double, integers wrap in their own
// type. The product of a mean's factor is not fused with the sum. Minimum and maximum give one of their
// operands bit for bit and ignore NaN unless all are NaN. The bits are those of the host engine.
#pragma once

#include "warpway/copy.cuh"
#include "warpway/formats.cuh"

namespace warpway {

/// Numbers of operators, NCCL's.
enum class ReduceOp : u32 { Sum = 0, Prod = 1, Max = 2, Min = 3, Avg = 4 };

/// 1/n rounded to nearest even.
template <class Value>
WARPWAY_DEVICE Value reciprocal(u32 n) {
  const double exact = divide(1.0, static_cast<double>(n));
  // Up to 2^24 ranks 1/n is never near enough to the middle of two floats for the double rounding to matter.
  if constexpr (sizeof(Value) == 4) return narrowed(exact);
  else return exact;
}

namespace detail {

template <class T>
WARPWAY_DEVICE T plus(T a, T b) {
  if constexpr (T(0.5) != T(0)) return add(a, b);
  else return static_cast<T>(static_cast<u64>(a) + static_cast<u64>(b));
}
template <class T>
WARPWAY_DEVICE T times(T a, T b) {
  if constexpr (T(0.5) != T(0)) return multiply(a, b);
  else return static_cast<T>(static_cast<u64>(a) * static_cast<u64>(b));
}

/// Truncates toward zero; the divisor may exceed the type.
template <class T>
WARPWAY_DEVICE T quotient(T a, u32 n) {
  if constexpr (T(-1) < T(0)) return static_cast<T>(static_cast<i64>(a) / static_cast<i64>(n));
  else return static_cast<T>(static_cast<u64>(a) / n);
}

}  // namespace detail

/// What applies to a whole fold besides its sources.
struct FoldSetting {
  /// What a mean divides by; at least 1.
  u32 ranks = 1;
  /// The result enters no other fold: there a mean of integers is divided.
  bool last = true;
};

/// One element of a fold.
template <class Format, ReduceOp Op>
struct Fold {
  using Bits = typename Format::Bits;
  static constexpr bool by_key = Op == ReduceOp::Min || Op == ReduceOp::Max;
  static constexpr bool scales = Op == ReduceOp::Avg && Format::is_float;

  template <bool ByKey, class F>
  struct Choose {
    using Type = typename F::Value;
  };
  template <class F>
  struct Choose<true, F> {
    using Type = typename F::Key;
  };
  using Value = typename Choose<by_key, Format>::Type;

  /// What a source is multiplied by; only a mean of floats looks at it. `input` is false for the
  /// result of another fold.
  WARPWAY_DEVICE static typename Format::Value factor(bool input, const FoldSetting& setting) {
    if constexpr (scales) {
      return input ? reciprocal<typename Format::Value>(setting.ranks) : typename Format::Value(1);
    } else {
      return typename Format::Value(1);
    }
  }
  WARPWAY_DEVICE static Value enter(Bits bits, typename Format::Value factor) {
    if constexpr (Op == ReduceOp::Min) return Format::key(bits, Format::top);
    else if constexpr (Op == ReduceOp::Max) return Format::key(bits, Format::bottom);
    else if constexpr (scales) return detail::times(Format::decode(bits), factor);
    else return Format::decode(bits);
  }
  WARPWAY_DEVICE static Value join(Value a, Value b) {
    if constexpr (Op == ReduceOp::Min) return b < a ? b : a;
    else if constexpr (Op == ReduceOp::Max) return a < b ? b : a;
    else if constexpr (Op == ReduceOp::Prod) return detail::times(a, b);
    else return detail::plus(a, b);
  }
  WARPWAY_DEVICE static Bits leave(Value value, const FoldSetting& setting) {
    if constexpr (by_key) return Format::element(value);
    else if constexpr (Op == ReduceOp::Avg && !Format::is_float) {
      return setting.last ? detail::quotient(value, setting.ranks) : value;
    } else {
      return Format::encode(value);
    }
  }
};

/// Sixteen bytes of a fold.
template <class Format, ReduceOp Op>
struct VectorFold {
  using One = Fold<Format, Op>;
  using Bits = typename Format::Bits;
  static constexpr u32 size = 16 / sizeof(Bits);
  typename One::Value values[size];

  /// The first source, then the others in order.
  WARPWAY_DEVICE void enter(Vec16 bits, typename Format::Value factor) {
    WARPWAY_UNROLL
    for (u32 i = 0; i < size; ++i) values[i] = One::enter(element(bits, i), factor);
  }
  WARPWAY_DEVICE void join(Vec16 bits, typename Format::Value factor) {
    WARPWAY_UNROLL
    for (u32 i = 0; i < size; ++i) values[i] = One::join(values[i], One::enter(element(bits, i), factor));
  }
  WARPWAY_DEVICE Vec16 leave(const FoldSetting& setting) const {
    u32 words[4];
    WARPWAY_UNROLL
    for (u32 w = 0; w < 4; ++w) words[w] = leave_word(w, setting);
    return Vec16{words[0], words[1], words[2], words[3]};
  }

 private:
  WARPWAY_DEVICE static u32 word(Vec16 v, u32 i) { return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w; }

  WARPWAY_DEVICE static Bits element(Vec16 v, u32 i) {
    if constexpr (sizeof(Bits) == 8) return static_cast<Bits>(u64{word(v, 2 * i + 1)} << 32 | word(v, 2 * i));
    else {
      constexpr u32 per_word = 4 / sizeof(Bits);
      return static_cast<Bits>(word(v, i / per_word) >> (i % per_word * sizeof(Bits) * 8));
    }
  }

  WARPWAY_DEVICE u32 leave_word(u32 w, const FoldSetting& setting) const {
    if constexpr (sizeof(Bits) == 8) {
      return static_cast<u32>(static_cast<u64>(One::leave(values[w / 2], setting)) >> (w % 2 * 32));
    } else {
      constexpr u32 per_word = 4 / sizeof(Bits);
#if defined(WARPWAY_CONVERTS_HALVES)
      if constexpr (!One::by_key && sizeof(Bits) == 2) return two<Format>(values[2 * w], values[2 * w + 1]);
#endif
#if defined(WARPWAY_CONVERTS_BYTES)
      if constexpr (!One::by_key && converts_pairs<Format>()) {
        return two<Format>(values[4 * w], values[4 * w + 1]) | two<Format>(values[4 * w + 2], values[4 * w + 3]) << 16;
      }
#endif
      u32 result = 0;
      WARPWAY_UNROLL
      for (u32 i = 0; i < per_word; ++i) {
        constexpr u32 mask = sizeof(Bits) == 4 ? ~0u : (1u << (sizeof(Bits) % 4 * 8)) - 1;
        result |= (static_cast<u32>(One::leave(values[w * per_word + i], setting)) & mask) << (i * sizeof(Bits) * 8);
      }
      return result;
    }
  }

  template <class F>
  WARPWAY_DEVICE static constexpr bool converts_pairs() {
    return detail::same<F, E4M3> || detail::same<F, E5M2>;
  }

#if defined(WARPWAY_CONVERTS_HALVES)
  /// Two elements by one instruction.
  template <class F>
  WARPWAY_DEVICE static u32 two(float low, float high) {
    if constexpr (detail::same<F, F16>) return floats_to_halves(low, high);
    else if constexpr (detail::same<F, BF16>) return floats_to_bfloats(low, high);
#if defined(WARPWAY_CONVERTS_BYTES)
    else if constexpr (detail::same<F, E4M3>) return floats_to_e4m3(low, high);
    else return floats_to_e5m2(low, high);
#endif
  }
#endif
};

/// One source of `fold`.
struct FoldSource {
  const void* address;
  /// True for a contribution as the user gave it, false for the result of another fold.
  bool input;
};

/// Folds `count` elements of `n` sources into `dst`, which may be exactly one of them. Addresses are multiples of the
/// element's size; where all are multiples of 16, sixteen bytes at a time. Nothing outside is touched. Collective.
template <class Format, ReduceOp Op>
WARPWAY_DEVICE void fold(void* dst, const FoldSource* sources, u32 n, u64 count, FoldSetting setting, u32 thread_id,
                         u32 num_threads) {
  using One = Fold<Format, Op>;
  using Bits = typename Format::Bits;
  constexpr u64 per_vector = 16 / sizeof(Bits);
  if (n == 0) return;
  u64 misaligned = detail::address(dst);
  for (u32 s = 0; s < n; ++s) misaligned |= detail::address(sources[s].address);
  const u64 vectors = misaligned % 16 == 0 ? count / per_vector : 0;
  // One division for all elements.
  const auto scaled = One::factor(true, setting), plain = One::factor(false, setting);
  const auto factor = [&](u32 s) { return sources[s].input ? scaled : plain; };
  for (u64 i = thread_id; i < vectors; i += num_threads) {
    VectorFold<Format, Op> values;
    values.enter(static_cast<const Vec16*>(sources[0].address)[i], factor(0));
    for (u32 s = 1; s < n; ++s) {
      values.join(static_cast<const Vec16*>(sources[s].address)[i], factor(s));
    }
    static_cast<Vec16*>(dst)[i] = values.leave(setting);
  }
  for (u64 i = vectors * per_vector + thread_id; i < count; i += num_threads) {
    auto value = One::enter(static_cast<const Bits*>(sources[0].address)[i], factor(0));
    for (u32 s = 1; s < n; ++s) {
      const Bits next = static_cast<const Bits*>(sources[s].address)[i];
      value = One::join(value, One::enter(next, factor(s)));
    }
    static_cast<Bits*>(dst)[i] = One::leave(value, setting);
  }
}

}  // namespace warpway
