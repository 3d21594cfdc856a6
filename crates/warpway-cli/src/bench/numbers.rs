//! Whole numbers in every data type, so small that folding them is exact in any order.

use anyhow::ensure;
use warpway::DataType;
use warpway::plan::ReduceOp;

use super::pattern;

/// Inputs of all ranks, and what folding them gives.
#[derive(Debug, Clone, Copy)]
pub(super) struct Numbers {
    data_type: DataType,
    op: ReduceOp,
    n_ranks: u32,
    /// Numbers run from 0 to here.
    greatest: u64,
}

/// The parts of a small float: bits of its fraction, and the exponent field of 1.
#[derive(Debug, Clone, Copy)]
struct Format {
    fraction: u32,
    one: u64,
    /// The numbers are this many powers of two smaller.
    scale: u64,
}

impl Numbers {
    /// An error where no choice of numbers makes every fold exact.
    pub(super) fn new(data_type: DataType, op: ReduceOp, n_ranks: u32) -> anyhow::Result<Self> {
        let limit = whole(data_type);
        let greatest = match op {
            ReduceOp::Sum => limit / u64::from(n_ranks),
            ReduceOp::Avg => {
                ensure!(
                    n_ranks.is_power_of_two(),
                    "averages of {n_ranks} ranks are rounded: use a power of two"
                );
                // Whole multiples, so that every scaled input is a whole number.
                limit / u64::from(n_ranks) / u64::from(n_ranks)
            }
            // One 2 per product; `float8_e4m3b15` ends below 2.
            ReduceOp::Prod => u64::from(data_type != DataType::Float8E4m3b15),
            ReduceOp::Min | ReduceOp::Max => limit,
        };
        ensure!(greatest > 0, "a {op} over {n_ranks} ranks is not exact in {data_type}: use a wider type");
        // Three digits are enough to tell elements apart.
        Ok(Self { data_type, op, n_ranks, greatest: greatest.min(1023) })
    }

    pub(super) fn data_type(&self) -> DataType {
        self.data_type
    }

    /// An element of a rank's input.
    pub(super) fn input(&self, round: u64, rank: u32, at: u64) -> Vec<u8> {
        self.encode(self.value(round, rank, at))
    }

    /// The fold of that element over all ranks.
    pub(super) fn folded(&self, round: u64, at: u64) -> Vec<u8> {
        let values = (0..self.n_ranks).map(|rank| self.value(round, rank, at));
        self.encode(match self.op {
            ReduceOp::Sum => values.sum(),
            ReduceOp::Avg => values.sum::<u64>() / u64::from(self.n_ranks),
            ReduceOp::Prod => values.product(),
            ReduceOp::Min => values.min().unwrap_or(0),
            ReduceOp::Max => values.max().unwrap_or(0),
        })
    }

    fn value(&self, round: u64, rank: u32, at: u64) -> u64 {
        let any = u64::from(pattern::byte(round, rank, 2 * at)) << 8;
        let any = any | u64::from(pattern::byte(round, rank, 2 * at + 1));
        match self.op {
            ReduceOp::Prod => {
                let turn = (at + round) % u64::from(self.n_ranks) == u64::from(rank);
                1 + u64::from(turn && any.is_multiple_of(2))
            }
            ReduceOp::Avg => any % (self.greatest + 1) * u64::from(self.n_ranks),
            _ => any % (self.greatest + 1),
        }
    }

    /// Little-endian.
    fn encode(&self, value: u64) -> Vec<u8> {
        match self.data_type {
            DataType::Float32 => (value as f32).to_le_bytes().to_vec(),
            DataType::Float64 => (value as f64).to_le_bytes().to_vec(),
            other => {
                let bits = format(other).map_or(value, |format| small_float(value, format));
                bits.to_le_bytes()[..other.bytes() as usize].to_vec()
            }
        }
    }
}

/// Up to here the type holds every whole number.
fn whole(data_type: DataType) -> u64 {
    match data_type {
        DataType::Int8 => 127,
        DataType::Uint8 => 255,
        DataType::Float32 => 1 << 24,
        DataType::Float64 | DataType::Int32 | DataType::Uint32 | DataType::Int64 | DataType::Uint64 => {
            1 << 30
        }
        other => format(other).map_or(0, |format| 2 << format.fraction),
    }
}

fn format(data_type: DataType) -> Option<Format> {
    let (fraction, one, scale) = match data_type {
        DataType::Float16 => (10, 15, 0),
        DataType::Bfloat16 => (7, 127, 0),
        DataType::Float8E4m3fn => (3, 7, 0),
        DataType::Float8E4m3fnuz => (3, 8, 0),
        DataType::Float8E5m2 => (2, 15, 0),
        DataType::Float8E5m2fnuz => (2, 16, 0),
        // Its greatest number is below 2.
        DataType::Float8E4m3b15 => (3, 15, 8),
        _ => return None,
    };
    Some(Format { fraction, one, scale })
}

/// The bits of a whole number up to twice the greatest fraction.
fn small_float(value: u64, Format { fraction, one, scale }: Format) -> u64 {
    if value == 0 {
        return 0;
    }
    let exponent = value.ilog2();
    let significand = (value << fraction) >> exponent;
    (one + u64::from(exponent) - scale) << fraction | (significand - (1 << fraction))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bits(data_type: DataType, value: u64) -> u64 {
        let numbers = Numbers { data_type, op: ReduceOp::Sum, n_ranks: 1, greatest: 1 };
        numbers.encode(value).iter().rev().fold(0, |bits, byte| bits << 8 | u64::from(*byte))
    }

    /// By the definitions of the formats.
    #[test]
    fn whole_numbers_have_their_bits() {
        let of = |data_type| [0, 1, 2, 3, 6].map(|value| bits(data_type, value));
        assert_eq!(of(DataType::Float32), [0, 0x3f80_0000, 0x4000_0000, 0x4040_0000, 0x40c0_0000]);
        assert_eq!(of(DataType::Bfloat16), [0, 0x3f80, 0x4000, 0x4040, 0x40c0]);
        assert_eq!(of(DataType::Float16), [0, 0x3c00, 0x4000, 0x4200, 0x4600]);
        assert_eq!(of(DataType::Float8E4m3fn), [0, 0x38, 0x40, 0x44, 0x4c]);
        assert_eq!(of(DataType::Float8E4m3fnuz), [0, 0x40, 0x48, 0x4c, 0x54]);
        assert_eq!(of(DataType::Float8E5m2), [0, 0x3c, 0x40, 0x42, 0x46]);
        assert_eq!(of(DataType::Float8E5m2fnuz), [0, 0x40, 0x44, 0x46, 0x4a]);
        // 2^-8 times as much.
        assert_eq!(of(DataType::Float8E4m3b15), [0, 0x38, 0x40, 0x44, 0x4c]);
        assert_eq!(of(DataType::Int64), [0, 1, 2, 3, 6]);
        assert_eq!(bits(DataType::Float16, 2048), 0x6800);
        assert_eq!(bits(DataType::Bfloat16, 256), 0x4380);
        assert_eq!(bits(DataType::Float8E4m3fn, 15), 0x57);
    }

    #[test]
    fn folds_stay_where_whole_numbers_are_exact() {
        for data_type in DataType::ALL {
            for op in [ReduceOp::Sum, ReduceOp::Min, ReduceOp::Max, ReduceOp::Prod, ReduceOp::Avg] {
                let Ok(numbers) = Numbers::new(data_type, op, 4) else { continue };
                for at in 0..500 {
                    let sum: u64 = (0..4).map(|rank| numbers.value(1, rank, at)).sum();
                    let product: u64 = (0..4).map(|rank| numbers.value(1, rank, at)).product();
                    match op {
                        ReduceOp::Sum | ReduceOp::Avg => assert!(sum <= whole(data_type), "{data_type} {op}"),
                        ReduceOp::Prod => assert!(product == 1 || product == 2),
                        _ => {}
                    }
                }
            }
        }
        let refused = |data_type, op, n| Numbers::new(data_type, op, n).unwrap_err().to_string();
        assert!(refused(DataType::Float8E5m2, ReduceOp::Sum, 16).contains("wider type"));
        assert!(refused(DataType::Float32, ReduceOp::Avg, 3).contains("power of two"));
    }
}
