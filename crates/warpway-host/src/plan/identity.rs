//! Which plan it is, as ranks tell each other.

use std::fmt;

use warpway_plan::{Plan, Repairs};

use super::record::hexadecimal;

/// Of a plan and its repairs: what all ranks must have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Identity(pub(super) [u8; 32]);

impl Identity {
    pub(super) fn of(plan: &Plan, repairs: &Repairs) -> Self {
        use std::hash::{DefaultHasher, Hash, Hasher};
        let text = format!("{plan:?} {repairs:?}");
        let mut identity = [0; 32];
        for (seed, bytes) in (0u64..).zip(identity.chunks_exact_mut(8)) {
            let mut hasher = DefaultHasher::new();
            (seed, &text).hash(&mut hasher);
            bytes.copy_from_slice(&hasher.finish().to_le_bytes());
        }
        Self(identity)
    }
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
    const NAME: usize = 63;
    pub(super) const BYTES: usize = 32 + 1 + Self::NAME;

    pub(super) fn to_bytes(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..32].copy_from_slice(&self.identity.0);
        bytes[32] = u8::from(self.refused);
        let end = self.name.floor_char_boundary(Self::NAME);
        bytes[33..33 + end].copy_from_slice(&self.name.as_bytes()[..end]);
        bytes
    }

    /// `bytes` are as many as [`BYTES`](Self::BYTES).
    pub(super) fn from_bytes(bytes: &[u8]) -> Self {
        let mut identity = [0; 32];
        identity.copy_from_slice(&bytes[..32]);
        let name = bytes[33..].split(|byte| *byte == 0).next().unwrap_or_default();
        Self {
            identity: Identity(identity),
            refused: bytes[32] != 0,
            name: String::from_utf8_lossy(name).into_owned(),
        }
    }
}

impl fmt::Display for Announced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "plan {:?} ({})", self.name, hexadecimal(&self.identity.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn announcements_survive_the_way_and_long_names_are_cut_between_characters() {
        let identity = Identity(std::array::from_fn(|at| at as u8));
        let short = Announced { identity, refused: true, name: "ring".into() };
        assert_eq!(Announced::from_bytes(&short.to_bytes()), short);
        let long = Announced { identity, refused: false, name: format!("{}é", "x".repeat(62)) };
        assert_eq!(Announced::from_bytes(&long.to_bytes()).name, "x".repeat(62));
        assert_eq!(short.to_string(), "plan \"ring\" (0001020304050607)");
    }
}
