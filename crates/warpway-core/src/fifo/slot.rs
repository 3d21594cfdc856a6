//! One slot of the ring: how an element is published in it and recognised.

use super::trigger::{COMMIT, EncodedTrigger};
use crate::sync::{AtomicU64, Ordering};

/// One 16-byte word of a slot.
#[derive(Default)]
#[repr(C, align(16))]
struct Word {
    data: AtomicU64,
    commit: AtomicU64,
}

/// A slot of a FIFO, in memory of this process or in pinned memory that a device writes. All-zero bytes are a
/// slot that has never been written.
#[derive(Default)]
#[repr(C, align(64))]
pub struct Slot([Word; 4]);

#[cfg(not(loom))]
const _: () = assert!(size_of::<Slot>() == 64 && align_of::<Slot>() == 64);

impl Slot {
    /// The element of `position` in a ring of `size` slots (a power of two), once all four words of it are there.
    /// What its producer wrote before is visible then.
    #[inline]
    pub fn read(&self, position: u64, size: u64) -> Option<EncodedTrigger> {
        let expected = commit(position, size);
        let mut element = EncodedTrigger::default();
        for (word, [data, rest]) in self.0.iter().zip(&mut element.0) {
            // Pairs with the Release store in `write`, or with the producing device's release at system scope.
            let second = word.commit.load(Ordering::Acquire);
            if second & COMMIT != expected {
                return None;
            }
            *rest = second & !COMMIT;
            *data = word.data.load(Ordering::Relaxed);
        }
        Some(element)
    }

    /// Publishes an element at `position`, after everything that the caller wrote before. The slot must be free.
    #[inline]
    pub fn write(&self, position: u64, size: u64, element: &EncodedTrigger) {
        let commit = commit(position, size);
        for (word, [data, rest]) in self.0.iter().zip(element.0) {
            word.data.store(data, Ordering::Relaxed);
            // Pairs with the Acquire load in `read`: the other half, and what the pusher wrote before.
            word.commit.store(rest | commit, Ordering::Release);
        }
    }
}

/// The commit bit of the lap of `position`: set on even laps, so that a zeroed ring is empty.
fn commit(position: u64, size: u64) -> u64 {
    if position & size == 0 { COMMIT } else { 0 }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Whatever word arrives last, and in every lap: no part of an element is taken.
    #[test]
    fn an_element_with_one_word_missing_is_not_taken() {
        const SIZE: u64 = 4;
        let element = |n: u64| EncodedTrigger([[n, 1], [!n, 2], [n << 7, 3], [n + 5, 0]]);
        for lap in 0..4 {
            let position = lap * SIZE + 1;
            for missing in 0..4 {
                let slot = Slot::default();
                for before in 0..lap {
                    slot.write(before * SIZE + 1, SIZE, &element(before));
                }
                let old = &slot.0[missing];
                let (data, rest) = (old.data.load(Ordering::Relaxed), old.commit.load(Ordering::Relaxed));
                slot.write(position, SIZE, &element(lap));
                let word = &slot.0[missing];
                let arrived = (word.data.load(Ordering::Relaxed), word.commit.load(Ordering::Relaxed));
                word.data.store(data, Ordering::Relaxed);
                word.commit.store(rest, Ordering::Relaxed);
                assert_eq!(slot.read(position, SIZE), None, "lap {lap}, word {missing}");
                word.data.store(arrived.0, Ordering::Relaxed);
                word.commit.store(arrived.1, Ordering::Relaxed);
                assert_eq!(slot.read(position, SIZE), Some(element(lap)));
                assert_eq!(slot.read(position + SIZE, SIZE), None, "not the element of the next lap");
            }
        }
    }
}
