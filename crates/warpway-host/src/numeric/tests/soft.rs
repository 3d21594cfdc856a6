//! Arithmetic by integers, from the definitions of the formats. Slow, and unlike the code it judges: values
//! are a sign, a significand and a power of two; nothing here touches a float of the machine.

/// The fields of a floating format.
#[derive(Debug, Clone, Copy)]
pub(super) struct Spec {
    pub(super) width: u32,
    pub(super) mantissa: u32,
    pub(super) bias: i32,
    pub(super) kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// The greatest exponent holds infinity and NaN; overflow gives infinity.
    Ieee,
    /// The same codes; overflow and infinity give the greatest number.
    IeeeSaturating,
    /// NaN has all bits one but the sign; saturates.
    Fn,
    /// NaN is where negative zero would be; saturates.
    Fnuz,
    /// All codes are numbers; rounded through binary16, ties away from zero.
    B15,
}

pub(super) const F64: Spec = Spec { width: 64, mantissa: 52, bias: 1023, kind: Kind::Ieee };
pub(super) const F32: Spec = Spec { width: 32, mantissa: 23, bias: 127, kind: Kind::Ieee };
pub(super) const F16: Spec = Spec { width: 16, mantissa: 10, bias: 15, kind: Kind::Ieee };
pub(super) const BF16: Spec = Spec { width: 16, mantissa: 7, bias: 127, kind: Kind::Ieee };
pub(super) const E4M3FN: Spec = Spec { width: 8, mantissa: 3, bias: 7, kind: Kind::Fn };
pub(super) const E4M3FNUZ: Spec = Spec { width: 8, mantissa: 3, bias: 8, kind: Kind::Fnuz };
pub(super) const E5M2: Spec = Spec { width: 8, mantissa: 2, bias: 15, kind: Kind::IeeeSaturating };
pub(super) const E5M2FNUZ: Spec = Spec { width: 8, mantissa: 2, bias: 16, kind: Kind::Fnuz };
pub(super) const E4M3B15: Spec = Spec { width: 8, mantissa: 3, bias: 15, kind: Kind::B15 };

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Value {
    Nan,
    Infinite { negative: bool },
    Finite { negative: bool, significand: u128, exponent: i32 },
}

use Value::{Finite, Infinite, Nan};

impl Spec {
    pub(super) fn sign(&self) -> u64 {
        1 << (self.width - 1)
    }

    /// The greatest code of a positive number.
    pub(super) fn greatest(&self) -> u64 {
        let below_sign = self.sign() - 1;
        match self.kind {
            Kind::Ieee | Kind::IeeeSaturating => (below_sign >> self.mantissa << self.mantissa) - 1,
            Kind::Fn => below_sign - 1,
            Kind::Fnuz | Kind::B15 => below_sign,
        }
    }

    pub(super) fn canonical_nan(&self) -> u64 {
        if self.kind == Kind::Fnuz { self.sign() } else { self.sign() - 1 }
    }

    pub(super) fn decode(&self, code: u64) -> Value {
        let negative = code & self.sign() != 0;
        let magnitude = code & (self.sign() - 1);
        if self.kind == Kind::Fnuz && code == self.sign() {
            return Nan;
        }
        if magnitude > self.greatest() {
            let infinity =
                matches!(self.kind, Kind::Ieee | Kind::IeeeSaturating) && magnitude == self.greatest() + 1;
            return if infinity { Infinite { negative } } else { Nan };
        }
        let field = (magnitude >> self.mantissa) as i32;
        let fraction = u128::from(magnitude & ((1 << self.mantissa) - 1));
        let implicit = if field == 0 { 0 } else { 1 << self.mantissa };
        let exponent = field.max(1) - self.bias - self.mantissa as i32;
        Finite { negative, significand: implicit + fraction, exponent }
    }

    pub(super) fn encode(&self, value: Value) -> u64 {
        let signed = |negative: bool, magnitude: u64| {
            if magnitude == 0 && self.kind == Kind::Fnuz {
                return 0;
            }
            magnitude | if negative { self.sign() } else { 0 }
        };
        match (value, self.kind) {
            (Nan, _) => self.canonical_nan(),
            (Infinite { negative }, Kind::Ieee) => signed(negative, self.greatest() + 1),
            (Infinite { negative }, _) => signed(negative, self.greatest()),
            (Finite { negative, .. }, Kind::B15) => signed(negative, self.by_way_of_half(value)),
            (Finite { negative, significand, exponent }, _) => {
                let magnitude = self.round(significand, exponent);
                let overflow = if self.kind == Kind::Ieee { self.greatest() + 1 } else { self.greatest() };
                signed(negative, if magnitude > self.greatest() { overflow } else { magnitude })
            }
        }
    }

    /// The code nearest to a magnitude, as if exponents had no end; ties to even.
    fn round(&self, significand: u128, exponent: i32) -> u64 {
        if significand == 0 {
            return 0;
        }
        let top = exponent + significand.ilog2() as i32;
        let unit = top.max(1 - self.bias) - self.mantissa as i32;
        let kept = match unit - exponent {
            drop @ ..=0 => significand << -drop,
            // Less than half a unit.
            drop if drop > 127 => 0,
            drop => {
                let floor = significand >> drop;
                let rest = significand & ((1 << drop) - 1);
                match rest.cmp(&(1 << (drop - 1))) {
                    std::cmp::Ordering::Less => floor,
                    std::cmp::Ordering::Equal => floor + floor % 2,
                    std::cmp::Ordering::Greater => floor + 1,
                }
            }
        };
        let hidden = 1 << self.mantissa;
        if kept < hidden {
            return kept as u64;
        }
        let field = (unit + self.mantissa as i32 + self.bias) as u64;
        (field << self.mantissa) + (kept - hidden) as u64
    }

    /// The nearest magnitude to the half nearest to the value, found among all of them.
    fn by_way_of_half(&self, value: Value) -> u64 {
        let scaled = |v: Value| match v {
            Finite { significand, exponent, .. } => significand << (exponent + 40),
            _ => u128::MAX,
        };
        let half = scaled(F16.decode(F16.encode(value) & 0x7fff));
        let distance = |code: &u64| (scaled(self.decode(*code)).abs_diff(half), self.greatest() - code);
        (0..=self.greatest()).min_by_key(distance).unwrap()
    }
}

/// The exact sum, or one that every format rounds alike.
pub(super) fn add(a: Value, b: Value) -> Value {
    match (a, b) {
        (Nan, _) | (_, Nan) => Nan,
        (Infinite { negative: x }, Infinite { negative: y }) if x != y => Nan,
        (Infinite { .. }, _) => a,
        (_, Infinite { .. }) => b,
        (
            Finite { negative: x, significand: p, exponent: i },
            Finite { negative: y, significand: q, exponent: j },
        ) => {
            if p == 0 || q == 0 {
                return match (p, q) {
                    (0, 0) => Finite { negative: x && y, significand: 0, exponent: 0 },
                    (0, _) => b,
                    _ => a,
                };
            }
            let ((p, i), (q, j)) = (high(p, i), high(q, j));
            let exponent = i.max(j);
            let (p, q) = (aligned(p, exponent - i), aligned(q, exponent - j));
            let signed = |negative: bool, v: u128| if negative { -(v as i128) } else { v as i128 };
            let sum = signed(x, p) + signed(y, q);
            Finite { negative: sum < 0, significand: sum.unsigned_abs(), exponent }
        }
    }
}

/// The exact product.
pub(super) fn multiply(a: Value, b: Value) -> Value {
    let sign = |v: Value| match v {
        Infinite { negative } | Finite { negative, .. } => negative,
        Nan => false,
    };
    let negative = sign(a) != sign(b);
    match (a, b) {
        (Nan, _) | (_, Nan) => Nan,
        (Infinite { .. }, Finite { significand: 0, .. })
        | (Finite { significand: 0, .. }, Infinite { .. }) => Nan,
        (Infinite { .. }, _) | (_, Infinite { .. }) => Infinite { negative },
        (Finite { significand: p, exponent: i, .. }, Finite { significand: q, exponent: j, .. }) => {
            Finite { negative, significand: p * q, exponent: i + j }
        }
    }
}

/// 1/n, to more bits than any format has.
pub(super) fn reciprocal(n: u32) -> Value {
    let (quotient, rest) = ((1u128 << 120) / u128::from(n), (1u128 << 120) % u128::from(n));
    Finite { negative: false, significand: quotient | u128::from(rest != 0), exponent: -120 }
}

/// Moves the leading bit to position 100.
fn high(significand: u128, exponent: i32) -> (u128, i32) {
    let up = 100 - significand.ilog2() as i32;
    (significand << up, exponent - up)
}

/// Shifts right; bits that fall out leave a mark in the last place.
fn aligned(significand: u128, by: i32) -> u128 {
    if by > 100 {
        return 1;
    }
    let kept = significand >> by;
    kept | u128::from(kept << by != significand)
}

/// How two values are ordered; NaN is not.
pub(super) fn below(a: Value, b: Value) -> bool {
    // Position on the line, by sign, then magnitude: infinity, leading bit, bits.
    let key = |v: Value| match v {
        Nan => unreachable!("NaN is sorted out before"),
        Infinite { negative } => (negative, i32::MAX, 0),
        Finite { negative, significand: 0, .. } => (negative, i32::MIN, 0),
        Finite { negative, significand, exponent } => {
            let (significand, exponent) = high(significand, exponent);
            (negative, exponent, significand)
        }
    };
    let ((x, i, p), (y, j, q)) = (key(a), key(b));
    match (x, y) {
        (true, false) => true,
        (false, true) => false,
        (false, false) => (i, p) < (j, q),
        (true, true) => (i, p) > (j, q),
    }
}

/// The judge is judged: by the machine's own `f32` and `f64`.
#[test]
fn agrees_with_the_machine() {
    let mut random = super::data::Random::new(11);
    for _ in 0..200_000 {
        let (x, y) = (random.next(), random.next());
        // Half of the pairs are of similar exponents, where sums cancel.
        let y = if y & 1 == 0 { y } else { x ^ (y & 0x800f_ffff_ffff_ffff) };
        check(&F64, x, y, |a, b| {
            let (a, b) = (f64::from_bits(a), f64::from_bits(b));
            [(a + b).to_bits(), (a * b).to_bits()]
        });
        let near = if y & 2 == 0 { y >> 32 } else { x >> 32 ^ (y & 0x807f_ffff) };
        check(&F32, x >> 32, near & 0xffff_ffff, |a, b| {
            let (a, b) = (f32::from_bits(a as u32), f32::from_bits(b as u32));
            [(a + b).to_bits().into(), (a * b).to_bits().into()]
        });
    }
}

fn check(spec: &Spec, x: u64, y: u64, machine: impl Fn(u64, u64) -> [u64; 2]) {
    let (a, b) = (spec.decode(x), spec.decode(y));
    let ours = [spec.encode(add(a, b)), spec.encode(multiply(a, b))];
    for (ours, machine) in ours.into_iter().zip(machine(x, y)) {
        if spec.decode(machine) == Nan {
            assert_eq!(ours, spec.canonical_nan());
        } else {
            assert_eq!(ours, machine, "{x:x} {y:x}");
        }
    }
}
