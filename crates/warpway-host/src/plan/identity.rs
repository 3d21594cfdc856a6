//! Which plan it is, as ranks tell each other.

use std::fmt;

use warpway_plan::verify::ShareableAreas;
use warpway_plan::{Action, Collective, Plan, RankPlan, ReduceOp, Repairs};

use super::record::hexadecimal;

/// Of a plan and its repairs: what all ranks must have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Identity {
    pub(super) plan: [u8; 32],
    /// One bit per kind of handshake.
    repairs: u8,
    /// Raw, packets: whether it uses the scratch of the communicator.
    shares: [bool; 2],
    /// Of plans with sized chunks and scratch: the step between scratch chunks; else 0.
    scratch_chunk: u64,
}

impl Identity {
    pub(super) fn of(plan: &Plan, repairs: &Repairs, scratch_chunk: u64, shares: ShareableAreas) -> Self {
        let Repairs { start_handshake, flush_at_end, closing_handshake, .. } = repairs;
        let bits = [*start_handshake, *flush_at_end, *closing_handshake];
        let repairs = bits.into_iter().fold(0, |bits, bit| bits << 1 | u8::from(bit));
        Self { plan: plan.identity().0, repairs, shares: [shares.raw, shares.packets], scratch_chunk }
    }
}

/// The operator of the plan's first fold.
pub(super) fn first_fold(plan: &Plan) -> Option<ReduceOp> {
    plan.operations().find_map(|(_, _, operation)| match &operation.action {
        Action::Data(data) => data.fold.as_ref().map(|fold| fold.op),
        _ => None,
    })
}

/// The rank that alone has a buffer on one side.
pub(super) fn root(plan: &Plan) -> Option<u32> {
    let chunks: fn(&RankPlan) -> u64 = match plan.collective {
        Collective::Broadcast | Collective::Scatter => |rank| rank.input_chunks,
        Collective::Reduce | Collective::Gather => |rank| rank.output_chunks,
        _ => return None,
    };
    let mut with_buffer = (0..).zip(&plan.ranks).filter(|(_, rank)| chunks(rank) > 0);
    with_buffer.next().filter(|_| with_buffer.next().is_none()).map(|(rank, _)| rank)
}

/// A plan's name, with that of the function that it is set up for.
pub(super) fn called(plan: &str, function: Option<&str>) -> String {
    match function.filter(|function| !plan.contains(function)) {
        Some(function) => format!("{function} by {plan}"),
        None => plan.to_owned(),
    }
}

/// Its name, and what plans of one name may differ in.
pub(super) fn described(plan: &Plan, name: &str) -> String {
    let op = first_fold(plan).map(|op| format!(", {op}")).unwrap_or_default();
    let root = root(plan).map(|root| format!(", root {root}")).unwrap_or_default();
    let place = if plan.in_place { ", in place" } else { "" };
    format!("{name}{op}{root}{place}")
}

/// What a rank tells of the plan that it sets up.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Announced {
    pub(super) identity: Identity,
    /// It cannot run it.
    pub(super) refused: bool,
    pub(super) name: String,
}

impl Announced {
    /// Bytes of the name that are sent.
    const NAME: usize = 100;
    pub(super) const BYTES: usize = 32 + 8 + 4 + Self::NAME;

    pub(super) fn to_bytes(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..32].copy_from_slice(&self.identity.plan);
        bytes[32..40].copy_from_slice(&self.identity.scratch_chunk.to_le_bytes());
        bytes[40] = u8::from(self.refused);
        bytes[41] = self.identity.repairs;
        let end = self.name.floor_char_boundary(Self::NAME);
        bytes[42..44].copy_from_slice(&self.identity.shares.map(u8::from));
        bytes[44..44 + end].copy_from_slice(&self.name.as_bytes()[..end]);
        bytes
    }

    /// `bytes` are as many as [`BYTES`](Self::BYTES).
    pub(super) fn from_bytes(bytes: &[u8]) -> Self {
        let mut identity = [0; 32];
        identity.copy_from_slice(&bytes[..32]);
        let mut scratch_chunk = [0; 8];
        scratch_chunk.copy_from_slice(&bytes[32..40]);
        let scratch_chunk = u64::from_le_bytes(scratch_chunk);
        let name = bytes[44..].split(|byte| *byte == 0).next().unwrap_or_default();
        Self {
            identity: Identity {
                plan: identity,
                repairs: bytes[41],
                shares: [bytes[42] != 0, bytes[43] != 0],
                scratch_chunk,
            },
            refused: bytes[40] != 0,
            name: String::from_utf8_lossy(name).into_owned(),
        }
    }
}

impl fmt::Display for Announced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "plan {:?} ({})", self.name, hexadecimal(&self.identity.plan))?;
        match self.identity.scratch_chunk {
            0 => {}
            bytes => write!(f, " with scratch chunks of {bytes} bytes")?,
        }
        match self.identity.shares {
            [false, false] => {}
            [true, false] => f.write_str(", proven to share its raw scratch")?,
            [false, true] => f.write_str(", proven to share its packet scratch")?,
            [true, true] => f.write_str(", proven to share its scratch")?,
        }
        for (bit, repair) in
            [(4, "an opening handshake"), (2, "a flush at its end"), (1, "a closing handshake")]
        {
            if self.identity.repairs & bit != 0 {
                write!(f, ", with {repair}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn announcements_survive_the_way_and_long_names_are_cut_between_characters() {
        let identity = Identity {
            plan: std::array::from_fn(|at| at as u8),
            repairs: 5,
            shares: [false, true],
            scratch_chunk: 1 << 40,
        };
        let short = Announced { identity, refused: true, name: "ring".into() };
        assert_eq!(Announced::from_bytes(&short.to_bytes()), short);
        let long = Announced { identity, refused: false, name: format!("{}é", "x".repeat(99)) };
        assert_eq!(Announced::from_bytes(&long.to_bytes()).name, "x".repeat(99));
        let text = "plan \"ring\" (0001020304050607) with scratch chunks of 1099511627776 bytes, proven to share its \
                    packet scratch, with an opening handshake, with a closing handshake";
        assert_eq!(short.to_string(), text);
        let fixed = Announced {
            identity: Identity { scratch_chunk: 0, shares: [false; 2], repairs: 0, ..identity },
            ..short
        };
        assert_eq!(fixed.to_string(), "plan \"ring\" (0001020304050607)");
    }
}
