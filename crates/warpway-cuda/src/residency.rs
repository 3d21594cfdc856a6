//! Who holds how much of a device: blocks that wait for each other, or for peers, must all be resident at once.
//!
//! Kernels of different shapes share a device; each block of a kernel of which the device holds `limit` takes
//! `1 / limit` of it. That is exact for one shape, and on the safe side for mixtures up to the rounding of blocks per
//! multiprocessor, which is why a claim is refused from the whole on.

use std::sync::{Arc, Mutex};

use warpway_core::gpu::GpuError;

use crate::context::lock;

/// One device in parts; divisible by every number of blocks that matters well enough.
const WHOLE: u64 = 1 << 40;

/// The claims on one device. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Ledger {
    device: i32,
    taken: Arc<Mutex<u64>>,
}

/// What a claim is about.
#[derive(Debug, Clone)]
pub struct Claim<'k> {
    /// The kernel, for messages.
    pub kernel: &'k str,
    /// Blocks of the launch.
    pub blocks: u64,
    /// Threads of each.
    pub threads: u64,
    /// Blocks of that shape that the empty device holds.
    pub limit: u64,
}

/// A part of a device, given back when dropped.
#[derive(Debug)]
pub struct Residency {
    ledger: Ledger,
    parts: u64,
}

impl Ledger {
    pub(crate) fn new(device: i32) -> Self {
        Self { device, taken: Arc::default() }
    }

    /// Takes room for all blocks of a kernel.
    ///
    /// # Errors
    /// `gpu.residency` if they do not fit beside what is taken.
    pub fn claim(&self, claim: &Claim<'_>) -> Result<Residency, GpuError> {
        let mut residency = Residency { ledger: self.clone(), parts: 0 };
        residency.widen(claim)?;
        Ok(residency)
    }
}

impl Residency {
    /// Takes more room, if this one does not suffice for all blocks of a kernel: for kernels that take turns.
    ///
    /// # Errors
    /// `gpu.residency` if they do not fit beside what others have taken; it stays as wide as it was.
    pub fn widen(&mut self, claim: &Claim<'_>) -> Result<(), GpuError> {
        let Claim { kernel, blocks, threads, limit } = *claim;
        let parts = u128::from(blocks) * u128::from(WHOLE) / u128::from(limit.max(1));
        if blocks <= limit && parts <= u128::from(self.parts) {
            return Ok(());
        }
        let mut taken = lock(&self.ledger.taken);
        let others = *taken - self.parts;
        if blocks > limit || u128::from(others) + parts > u128::from(WHOLE) {
            let of_kind = |parts: u64| (u128::from(parts) * u128::from(limit)).div_ceil(u128::from(WHOLE));
            return Err(GpuError::Residency {
                kernel: kernel.to_owned(),
                device: self.ledger.device,
                blocks,
                threads,
                limit,
                taken: of_kind(others) as u64,
            });
        }
        *taken = others + parts as u64;
        self.parts = parts as u64;
        Ok(())
    }
}

impl Drop for Residency {
    fn drop(&mut self) {
        *lock(&self.ledger.taken) -= self.parts;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_add_up_to_the_device_and_come_back() {
        let ledger = Ledger::new(3);
        let claim = |blocks, limit| ledger.claim(&Claim { kernel: "k", blocks, threads: 512, limit });
        let half = claim(66, 132).unwrap();
        let other_shape = claim(132, 264).unwrap();
        let refused = claim(1, 132).unwrap_err();
        assert!(refused.to_string().contains("at most 132 can, of which 132 are taken"), "{refused}");
        assert_eq!(refused.id(), "gpu.residency");
        drop(half);
        drop(claim(66, 132).unwrap());
        drop(other_shape);
        drop(claim(132, 132).unwrap());
        assert!(claim(133, 132).is_err());
        assert!(claim(u64::MAX, u64::MAX - 1).is_err());
        assert!(claim(1, 0).is_err());
    }

    #[test]
    fn kernels_that_take_turns_need_room_for_the_widest() {
        let ledger = Ledger::new(0);
        let of = |blocks, limit| Claim { kernel: "k", blocks, threads: 512, limit };
        let mut turns = ledger.claim(&of(33, 132)).unwrap();
        let other = ledger.claim(&of(66, 132)).unwrap();
        turns.widen(&of(66, 264)).unwrap();
        turns.widen(&of(66, 132)).unwrap();
        let refused = turns.widen(&of(67, 132)).unwrap_err();
        assert!(refused.to_string().contains("at most 132 can, of which 66 are taken"), "{refused}");
        assert!(ledger.claim(&of(1, 132)).is_err());
        drop(other);
        turns.widen(&of(132, 132)).unwrap();
        assert!(turns.widen(&of(1, 0)).is_err());
        drop(turns);
        drop(ledger.claim(&of(132, 132)).unwrap());
    }
}
