//! Operands: random ones, and all that is special about a type.

use warpway_plan::DataType;

use super::soft::{self, Kind, Spec};

/// A sequence that is the same in every run.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub(super) fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }
}

/// The format of a floating type.
pub(super) fn spec(data_type: DataType) -> Option<Spec> {
    Some(match data_type {
        DataType::Float16 => soft::F16,
        DataType::Float32 => soft::F32,
        DataType::Bfloat16 => soft::BF16,
        DataType::Float8E4m3fn => soft::E4M3FN,
        DataType::Float8E4m3fnuz => soft::E4M3FNUZ,
        DataType::Float8E5m2 => soft::E5M2,
        DataType::Float8E5m2fnuz => soft::E5M2FNUZ,
        DataType::Float8E4m3b15 => soft::E4M3B15,
        DataType::Float64 => soft::F64,
        _ => return None,
    })
}

/// Codes of one element: a third special, a third any bits, a third numbers of similar size, which cancel
/// and tie.
pub(super) fn element(data_type: DataType, random: &mut Random) -> u64 {
    let width = data_type.bytes() as u32 * 8;
    let any = random.next() >> (64 - width);
    let Some(spec) = spec(data_type) else {
        let corner = [0, 1, !0, 1 << (width - 1), (1 << (width - 1)) - 1][random.below(5)];
        return if random.below(3) == 0 { corner & (!0 >> (64 - width)) } else { any };
    };
    match random.below(3) {
        0 => {
            let special = specials(&spec);
            special[random.below(special.len())] | random.next() & spec.sign()
        }
        1 => any,
        _ => {
            let one = (spec.bias as u64) << spec.mantissa;
            // Few bits of fraction: sums tie often.
            let fraction = random.next() & ((1 << spec.mantissa) - (1 << (spec.mantissa / 2)));
            let magnitude = one + fraction + ((random.next() & 3) << spec.mantissa);
            magnitude.min(spec.greatest()) | random.next() & spec.sign()
        }
    }
}

/// Without signs.
fn specials(spec: &Spec) -> Vec<u64> {
    let hidden = 1 << spec.mantissa;
    let mut all = vec![0, 1, hidden / 2, hidden - 1, hidden, spec.greatest(), spec.greatest() - 1];
    if spec.kind == Kind::Fnuz {
        all.push(spec.sign());
    }
    // Infinity, NaN signalling and quiet, of several payloads.
    let beyond = spec.greatest() + 1;
    all.extend([beyond, beyond + 1, beyond + hidden / 2, beyond + hidden / 2 + 1, spec.sign() - 1]);
    all.retain(|code| *code < spec.sign() || spec.kind == Kind::Fnuz && *code == spec.sign());
    all
}

/// Elements to bytes, from the lowest.
pub(super) fn to_bytes(data_type: DataType, codes: &[u64]) -> Vec<u8> {
    let size = data_type.bytes() as usize;
    codes.iter().flat_map(|code| code.to_le_bytes().into_iter().take(size)).collect()
}
