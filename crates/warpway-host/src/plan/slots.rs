//! Records in memory that ranks share: a ring of slots per writer, each read without a lock.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use warpway_core::memory::{MemoryError, RegisteredMemory};

use super::record::WORDS;

/// Launches whose records are kept; a reader further behind finds a later one.
pub(super) const RING: u64 = 32;
/// Words of a slot: the sequence number, those of the record, and what fills up cache lines.
const SLOT_WORDS: usize = (WORDS + 1).next_multiple_of(8);
const SLOT_BYTES: u64 = 8 * SLOT_WORDS as u64;
/// Bytes of one writer's ring.
pub(super) const RING_BYTES: u64 = RING * SLOT_BYTES;

/// One writer's ring, mapped at the writer or the reader.
#[derive(Debug)]
pub(super) struct Slots {
    words: NonNull<AtomicU64>,
    _memory: RegisteredMemory,
}

// SAFETY: the words are atomics, which any thread may use; the pointer itself never changes.
unsafe impl Send for Slots {}
// SAFETY: as above.
unsafe impl Sync for Slots {}

/// What a reader finds.
#[derive(Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant, reason = "lives on the stack for a moment; a launch allocates nothing")]
pub(super) enum Found {
    /// The record.
    Record([u64; WORDS]),
    /// None of that number: the last one written here was an earlier launch.
    Earlier,
    /// A later one, which has taken its place.
    Later,
}

impl Slots {
    /// At `offset` of a memory, a multiple of 8, better of a cache line.
    pub(super) fn new(memory: &RegisteredMemory, offset: u64) -> Result<Self, MemoryError> {
        memory.check_word("plan record", offset)?;
        let words = memory.pointer("plan record", offset, RING_BYTES)?.cast();
        Ok(Self { words, _memory: memory.clone() })
    }

    /// By the ring's one writer, with growing sequence numbers.
    pub(super) fn write(&self, sequence: u64, words: &[u64; WORDS]) {
        let slot = self.slot(sequence);
        // A reader that sees any of the words below sees at least this 0; pairs with the fence in `read`.
        slot[0].store(0, Ordering::Relaxed);
        fence(Ordering::Release);
        for (to, word) in slot[1..].iter().zip(words) {
            // Launches mostly repeat what earlier ones said: then the reader keeps all cache lines but the first.
            if to.load(Ordering::Relaxed) != *word {
                to.store(*word, Ordering::Relaxed);
            }
        }
        // Pairs with the first load in `read`.
        slot[0].store(sequence, Ordering::Release);
    }

    /// Changes one word of a record that has been written, which readers do not compare.
    pub(super) fn put(&self, sequence: u64, index: usize, word: u64) {
        // Relaxed: it stands for itself.
        self.slot(sequence)[1 + index].store(word, Ordering::Relaxed);
    }

    pub(super) fn read(&self, sequence: u64) -> Found {
        let slot = self.slot(sequence);
        // Acquire: the words of that number, or of a later one.
        let before = slot[0].load(Ordering::Acquire);
        if before != sequence {
            // 0: being overwritten, by a later one.
            return if before < sequence && before != 0 {
                Found::Earlier
            } else {
                self.absent(before, sequence)
            };
        }
        let words = std::array::from_fn(|at| slot[at + 1].load(Ordering::Relaxed));
        // Pairs with the fence in `write`: if a word is a later one's, the number has changed.
        fence(Ordering::Acquire);
        if slot[0].load(Ordering::Relaxed) == sequence { Found::Record(words) } else { Found::Later }
    }

    /// True if the record of that number is here and begins with these words. False says nothing: [`read`](Self::read)
    /// does.
    #[inline]
    pub(super) fn begins_with(&self, sequence: u64, words: &[u64]) -> bool {
        let slot = self.slot(sequence);
        // As in `read`.
        if slot[0].load(Ordering::Acquire) != sequence {
            return false;
        }
        let different = slot[1..]
            .iter()
            .zip(words)
            .fold(0, |different, (there, here)| different | (there.load(Ordering::Relaxed) ^ here));
        fence(Ordering::Acquire);
        different == 0 && slot[0].load(Ordering::Relaxed) == sequence
    }

    /// Has the first line of a record fetched, which changes with every launch.
    #[inline]
    pub(super) fn fetch(&self, sequence: u64) {
        // The value means nothing yet.
        std::hint::black_box(self.slot(sequence)[0].load(Ordering::Relaxed));
    }

    /// 0 is also what a slot holds that was never written: then a first record is missing.
    fn absent(&self, before: u64, sequence: u64) -> Found {
        if before == 0 && sequence <= RING { Found::Earlier } else { Found::Later }
    }

    fn slot(&self, sequence: u64) -> &[AtomicU64; WORDS + 1] {
        let index = slot(sequence) * SLOT_WORDS;
        // SAFETY: `new` has checked that the ring of `RING` slots lies in the memory, which `_memory` keeps
        // mapped, and that it is aligned; an atomic may be shared with other processes.
        unsafe { self.words.add(index).cast::<[AtomicU64; WORDS + 1]>().as_ref() }
    }
}

fn slot(sequence: u64) -> usize {
    (sequence % RING) as usize
}

/// One writer's ring on another host, as the writer has left it: nobody else changes it.
#[derive(Debug)]
pub(super) struct FarSlots([[u64; WORDS + 1]; RING as usize]);

impl FarSlots {
    /// Of memory that is all zeroes.
    pub(super) fn new() -> Self {
        Self([[0; WORDS + 1]; RING as usize])
    }

    /// What to store, one after the other, as offsets in the ring and words, so that a reader finds what
    /// [`Slots::write`] leaves.
    pub(super) fn write(&mut self, sequence: u64, words: &[u64; WORDS]) -> Vec<(u64, u64)> {
        let start = slot(sequence) as u64 * SLOT_BYTES;
        let there = &mut self.0[slot(sequence)];
        let mut stores = vec![(start, 0)];
        for (number, (there, word)) in (1..).zip(there[1..].iter_mut().zip(words)) {
            if there != word {
                *there = *word;
                stores.push((start + 8 * number, *word));
            }
        }
        there[0] = sequence;
        stores.push((start, sequence));
        stores
    }

    /// As [`Slots::put`].
    pub(super) fn put(&mut self, sequence: u64, index: usize, word: u64) -> (u64, u64) {
        self.0[slot(sequence)][1 + index] = word;
        (slot(sequence) as u64 * SLOT_BYTES + 8 * (1 + index as u64), word)
    }
}

#[cfg(test)]
mod tests {
    use warpway_core::memory::{Access, MemoryRecord, Region};
    use warpway_core::transport::{Device, DeviceKind, TransportFlags};

    use super::*;
    use crate::buffer::SharedBuffer;

    fn slots() -> Slots {
        let region: Region = SharedBuffer::allocate(RING_BYTES).unwrap().region().cloned().unwrap();
        let record = MemoryRecord {
            owner: 0,
            original_address: region.address().as_ptr() as u64,
            size: region.size(),
            host: 0,
            process: 0,
            device: Device { kind: DeviceKind::Cpu, id: -1 },
            device_uuid: [0; 16],
            offset: 0,
            allocation_size: region.size(),
            transports: TransportFlags::NONE,
            access: Access::ALL,
            shared: None,
            gpu: None,
            ethernet: None,
        };
        Slots::new(&RegisteredMemory::local(record, region, Vec::new()), 0).unwrap()
    }

    #[test]
    fn a_reader_finds_the_record_or_learns_why_not() {
        let slots = slots();
        let words = |sequence: u64| std::array::from_fn(|at| sequence * 100 + at as u64);
        assert_eq!(slots.read(3), Found::Earlier);
        for sequence in 1..=40 {
            slots.write(sequence, &words(sequence));
            assert_eq!(slots.read(sequence), Found::Record(words(sequence)));
        }
        assert_eq!(slots.read(40 - RING + 1), Found::Record(words(40 - RING + 1)));
        assert_eq!(slots.read(40 - RING), Found::Later);
        assert_eq!(slots.read(41), Found::Earlier);
    }

    /// The words that are stored from afar make the same ring, and only those travel that have changed.
    #[test]
    fn a_ring_that_is_written_from_afar_is_read_like_any_other() {
        let (slots, mut far) = (slots(), FarSlots::new());
        let words = |sequence: u64| std::array::from_fn(|at| if at == 0 { sequence } else { 7 * at as u64 });
        for sequence in 1..=40 {
            let stores = far.write(sequence, &words(sequence));
            // The number twice, the word that always changes, and the others when the slot is new.
            assert_eq!(stores.len(), if sequence <= RING { 2 + WORDS } else { 3 }, "{sequence}");
            let (last, before) = stores.split_last().unwrap();
            let store = |(offset, word): &(u64, u64)| {
                // SAFETY: the ring has that many words; nobody reads them now.
                unsafe { slots.words.byte_add(*offset as usize).as_ref() }.store(*word, Ordering::Release)
            };
            before.iter().for_each(store);
            assert_ne!(
                slots.read(sequence),
                Found::Record(words(sequence)),
                "not before its number is there"
            );
            store(last);
            assert_eq!(slots.read(sequence), Found::Record(words(sequence)));
        }
    }

    /// A record is never a mixture of two.
    #[test]
    fn records_are_whole_while_they_are_overwritten() {
        let slots = slots();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                (1..=20_000u64).for_each(|sequence| slots.write(sequence * RING, &[sequence; WORDS]))
            });
            let mut sequence = 1;
            while sequence < 20_000 {
                match slots.read(sequence * RING) {
                    Found::Record(words) => {
                        assert_eq!(words, [sequence; WORDS]);
                        sequence += 1;
                    }
                    Found::Later => sequence += 1,
                    Found::Earlier => std::hint::spin_loop(),
                }
            }
        });
    }
}
