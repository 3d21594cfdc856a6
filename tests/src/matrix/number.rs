//! Numbers whose folds are exact, so that every order of a fold gives the same bits: integers wrap, floats are small
//! whole multiples of a unit.

use warpway::{DataType, ReduceOp};

use super::mix;

/// The inputs of one call.
pub(super) struct Numbers {
    data_type: DataType,
    op: ReduceOp,
    n: u32,
    seed: u64,
    /// Floats to choose from, in units; none for integers, which may be anything.
    choices: Vec<i64>,
    /// Codes of what a float can be, by units from the least.
    codes: Vec<[u8; 8]>,
}

/// Beyond it data repeats: a prime, which no border between chunks is a multiple of.
const PERIOD: u64 = 4093;

/// Of a float: bits of mantissa, exponent field of 1.0. None of other types.
pub fn layout(data_type: DataType) -> Option<(u32, i32)> {
    Some(match data_type {
        DataType::Float64 => (52, 1023),
        DataType::Float32 => (23, 127),
        DataType::Float16 => (10, 15),
        DataType::Bfloat16 => (7, 127),
        DataType::Float8E4m3fn => (3, 7),
        DataType::Float8E4m3fnuz => (3, 8),
        DataType::Float8E5m2 => (2, 15),
        DataType::Float8E5m2fnuz => (2, 16),
        DataType::Float8E4m3b15 => (3, 15),
        _ => return None,
    })
}

/// The unit, as a power of two: eighths where 1.875 is the greatest number.
fn unit_exponent(data_type: DataType) -> i32 {
    if data_type == DataType::Float8E4m3b15 { -3 } else { 0 }
}

/// Greatest magnitude of a contribution in units, such that the type holds the sum of any eight exactly.
fn greatest(data_type: DataType) -> i64 {
    match data_type {
        DataType::Float64 => 1 << 40,
        DataType::Float32 => 100_000,
        DataType::Float16 => 255,
        DataType::Bfloat16 => 15,
        DataType::Float8E4m3fn | DataType::Float8E4m3fnuz => 2,
        _ => 1,
    }
}

/// True if `k` comes back from `k * n` times 1/n, both rounded to the accumulator's type.
fn divides_exactly(data_type: DataType, n: u32, k: i64) -> bool {
    match data_type {
        DataType::Float64 => (k * i64::from(n)) as f64 * (1.0 / f64::from(n)) == k as f64,
        _ => (k * i64::from(n)) as f32 * ((1.0 / f64::from(n)) as f32) == k as f32,
    }
}

impl Numbers {
    pub(super) fn new(data_type: DataType, op: ReduceOp, n: u32, seed: u64) -> Self {
        let mut numbers = Self { data_type, op, n, seed, choices: Vec::new(), codes: Vec::new() };
        if layout(data_type).is_none() {
            return numbers;
        }
        let most = greatest(data_type);
        // A few of the possible ones, the greatest among them.
        let few = || {
            (-16..=16)
                .map(|step: i64| if most > 16 { step * most / 16 } else { step })
                .filter(|k| k.abs() <= most)
        };
        numbers.choices = match op {
            ReduceOp::Avg => {
                few().filter(|k| divides_exactly(data_type, n, *k)).map(|k| k * i64::from(n)).collect()
            }
            ReduceOp::Prod => Vec::new(),
            _ => few().collect(),
        };
        numbers.choices.dedup();
        // Codes are looked up where the range is small.
        let reach = (most * 8).max(128);
        if reach <= 4096 {
            numbers.codes = (-reach..=reach).map(|value| float_code(data_type, value)).collect();
        }
        numbers
    }

    /// Element `at` of a rank's input.
    fn value(&self, rank: u32, at: u64) -> i64 {
        let mixed = mix(self.seed ^ u64::from(rank + 1) << 48, at % PERIOD);
        if layout(self.data_type).is_none() {
            return self.wrap(mixed as i64);
        }
        if self.op == ReduceOp::Prod {
            // At most 2^7 and at least 2^-3 for eight ranks, and either sign.
            let (one, other) = if self.data_type == DataType::Float8E4m3b15 { (8, 4) } else { (1, 2) };
            let few = if self.data_type == DataType::Float8E4m3b15 { rank < 3 } else { rank < 7 };
            let magnitude = if few && mixed & 1 == 0 { other } else { one };
            return if mixed & 2 == 0 { magnitude } else { -magnitude };
        }
        self.choices[(mixed % self.choices.len() as u64) as usize]
    }

    /// An integer as its type holds it, with its sign.
    fn wrap(&self, value: i64) -> i64 {
        match self.data_type {
            DataType::Uint8 => i64::from(value as u8),
            DataType::Int8 => i64::from(value as i8),
            DataType::Uint32 => i64::from(value as u32),
            DataType::Int32 => i64::from(value as i32),
            _ => value,
        }
    }

    fn folded(&self, at: u64) -> i64 {
        let values = || (0..self.n).map(|rank| self.value(rank, at));
        let (n, is_float) = (i64::from(self.n), layout(self.data_type).is_some());
        let unsigned = self.data_type == DataType::Uint64;
        match self.op {
            ReduceOp::Sum => self.wrap_integer(values().fold(0, i64::wrapping_add)),
            ReduceOp::Avg if is_float => values().sum::<i64>() / n,
            ReduceOp::Avg => {
                let sum = self.wrap(values().fold(0, i64::wrapping_add));
                if unsigned { (sum as u64 / n as u64) as i64 } else { sum / n }
            }
            ReduceOp::Prod if self.data_type == DataType::Float8E4m3b15 => values().fold(8, |a, b| a * b / 8),
            ReduceOp::Prod => self.wrap_integer(values().fold(1, i64::wrapping_mul)),
            ReduceOp::Min if unsigned => values().map(|value| value as u64).min().unwrap() as i64,
            ReduceOp::Max if unsigned => values().map(|value| value as u64).max().unwrap() as i64,
            ReduceOp::Min => values().min().unwrap(),
            ReduceOp::Max => values().max().unwrap(),
        }
    }

    fn wrap_integer(&self, value: i64) -> i64 {
        if layout(self.data_type).is_some() { value } else { self.wrap(value) }
    }

    fn code(&self, value: i64) -> [u8; 8] {
        if layout(self.data_type).is_none() {
            return value.to_le_bytes();
        }
        match self.codes.len() {
            0 => float_code(self.data_type, value),
            len => self.codes[(value + (len / 2) as i64) as usize],
        }
    }

    /// Elements `first..first + len` of a rank's input.
    pub(super) fn of_rank(&self, rank: u32, first: u64, len: u64) -> Vec<u8> {
        self.bytes(first, len, |at| self.code(self.value(rank, at)))
    }

    /// The same of the fold of all ranks' inputs.
    pub(super) fn of_fold(&self, first: u64, len: u64) -> Vec<u8> {
        self.bytes(first, len, |at| self.code(self.folded(at)))
    }

    fn bytes(&self, first: u64, len: u64, code: impl Fn(u64) -> [u8; 8]) -> Vec<u8> {
        let size = self.data_type.bytes() as usize;
        let mut bytes = Vec::with_capacity(len as usize * size);
        for at in first..first + len.min(PERIOD) {
            bytes.extend_from_slice(&code(at)[..size]);
        }
        while bytes.len() < len as usize * size {
            let more = (len as usize * size - bytes.len()).min(PERIOD as usize * size);
            bytes.extend_from_within(..more);
        }
        bytes
    }
}

/// The code of a whole number of units, which the type must hold exactly.
fn float_code(data_type: DataType, units: i64) -> [u8; 8] {
    let Some((mantissa, bias)) = layout(data_type) else { return [0; 8] };
    if units == 0 {
        return [0; 8];
    }
    let size = data_type.bytes() * 8;
    let magnitude = units.unsigned_abs();
    let exponent = 63 - magnitude.leading_zeros();
    let fraction = magnitude ^ 1 << exponent;
    let fraction = match mantissa.checked_sub(exponent) {
        Some(up) => fraction << up,
        // Numbers between those that a type holds are never asked for.
        None => fraction >> (exponent - mantissa),
    };
    let field = (exponent as i32 + bias + unit_exponent(data_type)) as u64;
    let sign = u64::from(units < 0) << (size - 1);
    (sign | field << mantissa | fraction).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_those_of_the_types() {
        assert_eq!(float_code(DataType::Float32, -13)[..4], (-13f32).to_le_bytes());
        assert_eq!(float_code(DataType::Float64, 1 << 43), ((1u64 << 43) as f64).to_le_bytes());
        assert_eq!(float_code(DataType::Float16, 2040)[..2], 0x67f8u16.to_le_bytes());
        assert_eq!(float_code(DataType::Bfloat16, -120)[..2], ((-120f32).to_bits() >> 16).to_le_bytes()[..2]);
        assert_eq!(float_code(DataType::Float8E4m3fn, 1)[0], 0x38);
        assert_eq!(float_code(DataType::Float8E4m3fnuz, 1)[0], 0x40);
        assert_eq!(float_code(DataType::Float8E5m2, -2)[0], 0xc0);
        assert_eq!(float_code(DataType::Float8E5m2fnuz, 1)[0], 0x40);
        // 1.0 is eight eighths.
        assert_eq!(float_code(DataType::Float8E4m3b15, 8)[0], 0x78);
    }

    /// Sums of any of eight, in any order, and averages of up to eight ranks.
    #[test]
    fn what_is_folded_is_exact() {
        for data_type in DataType::ALL {
            let Some((mantissa, _)) = layout(data_type) else { continue };
            assert!(greatest(data_type) * 8 <= 1 << (mantissa + 1), "{data_type}");
            for n in 1..=8 {
                let numbers = Numbers::new(data_type, ReduceOp::Avg, n, 1);
                assert!(numbers.choices.len() >= 3, "{data_type}, {n} ranks: {:?}", numbers.choices);
                assert!(numbers.choices.iter().all(|value| value.abs() <= 1 << (mantissa + 1)
                    || value.unsigned_abs() >> value.trailing_zeros() < 1 << (mantissa + 1)));
            }
        }
    }

    #[test]
    fn integers_wrap_and_averages_truncate() {
        let of = |data_type, op| Numbers::new(data_type, op, 3, 5);
        for at in 0..500 {
            let sum = of(DataType::Int8, ReduceOp::Sum);
            let expected = (0..3).fold(0i8, |all, rank| all.wrapping_add(sum.value(rank, at) as i8));
            assert_eq!(sum.folded(at), i64::from(expected));
            assert_eq!(of(DataType::Int8, ReduceOp::Avg).folded(at), i64::from(expected / 3));
            let numbers = of(DataType::Uint64, ReduceOp::Avg);
            let expected =
                (0..3).fold(0u64, |all, rank| all.wrapping_add(numbers.value(rank, at) as u64)) / 3;
            assert_eq!(numbers.folded(at) as u64, expected);
        }
    }

    #[test]
    fn long_data_repeats_from_wherever_it_begins() {
        let numbers = Numbers::new(DataType::Uint32, ReduceOp::Sum, 2, 9);
        let all = numbers.of_rank(1, 0, 20_000);
        assert_eq!(numbers.of_rank(1, 777, 10_000), all[777 * 4..10_777 * 4]);
        assert_ne!(numbers.of_rank(0, 0, 20_000), all);
    }
}
