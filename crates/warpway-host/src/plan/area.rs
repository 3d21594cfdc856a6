//! One scratch area: raw data or packets of every rank, in one slot or several, with one epoch.
//!
//! All ranks make the same launches, so all know the size of every rank's part at every launch, and when it grows. A
//! part that grows is new memory. The ranks that touch it differ by plan; each takes it over at its first launch of a plan
//! that touches it, and both it and the owner know which launch that is. Nobody waits for ranks that still use the old
//! memory: they keep it mapped, and nobody else looks at it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use warpway_core::communicator::Exchange;
use warpway_core::fifo::MemoryId;
use warpway_core::memory::{Access, MemoryError, RegisteredMemory};
use warpway_core::proxy::ProxyService;
use warpway_core::{Deadline, Error, Result};
use warpway_plan::Form;

use super::executor::Shared;
use super::launch_bases::Place;
use super::roles::Roles;
use super::{NO_REGION, TAG};
use crate::buffer::SharedBuffer;

/// Packets are aligned to their size; areas to cache lines.
const ALIGNMENT: u64 = 64;
/// Flags of packets are the epoch reduced to this many values, counted from 1.
const FLAGS: u64 = u32::MAX as u64;

/// See the module's page. The same launches make it the same on all ranks, but for the memories.
#[derive(Debug)]
pub(super) struct Area {
    /// Of this area among those of the communicator.
    number: u64,
    /// Consecutive launches use one after the other.
    slots: u64,
    clock: Arc<AreaClock>,
    /// By rank.
    parts: Vec<Part>,
    /// By rank: it has been sent this rank's memory.
    given: Vec<bool>,
}

/// What changes from launch to launch, and whether anything else has: what a launch like an earlier one asks without
/// the area's lock. Only launches use it, and those of an executor follow each other.
#[derive(Debug)]
pub(super) struct AreaClock {
    form: Form,
    slots: u64,
    /// Launches that have used the area.
    epoch: AtomicU64,
    /// How often some part has become a new memory.
    version: AtomicU64,
    /// Of the area and its parts.
    digest: AtomicU64,
}

impl AreaClock {
    /// Launches that have used the area.
    pub(super) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Relaxed)
    }

    /// Unequal if parts have been replaced.
    pub(super) fn version(&self) -> u64 {
        self.version.load(Ordering::Relaxed)
    }

    /// A number for which area it is, its epoch and its parts. Ranks with unequal ones must not work together.
    pub(super) fn digest(&self) -> u64 {
        add(self.digest.load(Ordering::Relaxed), self.epoch())
    }

    /// The flag of this launch's packets; never 0, which means "never written".
    pub(super) fn flag(&self) -> u32 {
        (self.epoch() % FLAGS) as u32 + 1
    }

    /// Which slot this launch uses.
    pub(super) fn slot(&self) -> u64 {
        self.epoch() % self.slots
    }

    /// After a launch.
    pub(super) fn advance(&self) {
        self.epoch.store(self.epoch() + 1, Ordering::Relaxed);
    }

    /// True before the first launch whose flags have been used before: memories are taken anew, which are clear.
    pub(super) fn must_clear(&self) -> bool {
        let epoch = self.epoch();
        self.form == Form::Packets && epoch > 0 && epoch.is_multiple_of(FLAGS)
    }
}

/// FNV-1a, by words.
fn add(digest: u64, word: u64) -> u64 {
    (digest ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23)
}

#[derive(Debug, Default)]
struct Part {
    /// Of one slot.
    bytes: u64,
    /// How often its memory has been replaced.
    generation: u64,
    /// As far as this rank has needed it.
    memory: Option<Mapped>,
}

#[derive(Debug)]
struct Mapped {
    memory: RegisteredMemory,
    id: Option<PortId>,
}

/// Gives the id back when dropped.
#[derive(Debug)]
struct PortId {
    id: MemoryId,
    service: ProxyService,
}

impl Drop for PortId {
    fn drop(&mut self) {
        // Fails only if the service is gone already.
        drop(self.service.remove_memory(self.id));
    }
}

impl Area {
    /// Of `n` ranks, empty.
    pub(super) fn new(number: u64, form: Form, slots: u64, n: u32) -> Self {
        let slots = slots.max(1);
        let parts = (0..n).map(|_| Part::default()).collect();
        let zero = || AtomicU64::new(0);
        let clock = Arc::new(AreaClock { form, slots, epoch: zero(), version: zero(), digest: zero() });
        let area = Self { number, slots, clock, parts, given: vec![false; n as usize] };
        area.note_parts();
        area
    }

    /// What a launch asks without this area's lock.
    pub(super) fn clock(&self) -> &Arc<AreaClock> {
        &self.clock
    }

    /// Bytes of one slot of the part of `rank`.
    pub(super) fn slot_bytes(&self, rank: u32) -> u64 {
        self.parts.get(rank as usize).map_or(0, |part| part.bytes)
    }

    fn note_parts(&self) {
        let first = add(0xcbf2_9ce4_8422_2325, self.number);
        let digest =
            self.parts.iter().fold(first, |digest, part| add(add(digest, part.bytes), part.generation));
        self.clock.digest.store(digest, Ordering::Relaxed);
    }

    /// Makes the parts at least as large as a launch needs, in bytes of one slot by rank, and replaces all of them when
    /// flags begin anew. Before each launch; the same on all ranks.
    ///
    /// # Errors
    /// `mem.bounds` beyond 64 bits; nothing has changed then.
    pub(super) fn resize(&mut self, rank: u32, needs: impl Iterator<Item = Option<u64>>) -> Result<()> {
        let slots = self.slots;
        let rounded = |need: u64| {
            // Powers of two: few steps for growing messages.
            let bytes = need.max(ALIGNMENT).checked_next_power_of_two().unwrap_or(need);
            let bytes = bytes.checked_next_multiple_of(ALIGNMENT)?;
            bytes.checked_mul(slots).map(|_| bytes)
        };
        let beyond = MemoryError::OutOfBounds {
            operation: "plan scratch",
            offset: 0,
            size: u64::MAX,
            limit: u64::MAX,
        };
        let wanted: Option<Vec<u64>> = needs
            .zip(&self.parts)
            .map(|(need, part)| match need? {
                need if need <= part.bytes => Some(part.bytes),
                need => rounded(need),
            })
            .collect();
        let clear = self.clock.must_clear();
        let mut replaced = false;
        for ((part, bytes), owner) in self.parts.iter_mut().zip(wanted.ok_or(beyond)?).zip(0..) {
            if bytes > part.bytes || (clear && bytes > 0) {
                *part = Part { bytes, generation: part.generation + 1, memory: None };
                replaced = true;
                if owner == rank {
                    self.given.fill(false);
                }
            }
        }
        if replaced {
            self.clock.version.fetch_add(1, Ordering::Relaxed);
            self.note_parts();
        }
        Ok(())
    }

    /// See [`AreaClock::digest`].
    pub(super) fn digest(&self) -> u64 {
        self.clock.digest()
    }

    /// Ranks whose memory this one has yet to take over before a launch with these roles.
    pub(super) fn missing<'a>(&'a self, roles: &'a Roles) -> impl Iterator<Item = u32> + 'a {
        roles.scratch_owners.iter().copied().filter(|owner| {
            self.parts.get(*owner as usize).is_some_and(|part| part.bytes > 0 && part.memory.is_none())
        })
    }

    /// Takes over the memories that a launch needs, and gives this rank's to those that need it.
    pub(super) fn exchange(&mut self, shared: &Shared, roles: &Roles, deadline: Deadline) -> Result<()> {
        let comm = &shared.comm;
        let slots = self.slots;
        if let Some(own) = self.parts.get_mut(comm.rank() as usize).filter(|part| part.bytes > 0) {
            let memory = match &own.memory {
                Some(mapped) => mapped.memory.clone(),
                None => {
                    let region =
                        SharedBuffer::allocate(own.bytes * slots)?.region().cloned().ok_or(NO_REGION)?;
                    let memory = comm.register_memory(region, shared.hosts.transports(), Access::ALL)?;
                    own.memory = Some(Mapped { memory: memory.clone(), id: None });
                    memory
                }
            };
            for user in &roles.scratch_users {
                if let Some(given @ false) = self.given.get_mut(*user as usize) {
                    comm.send_memory(&memory, *user, TAG)?;
                    *given = true;
                }
            }
        }
        let pending: Vec<(u32, Exchange<RegisteredMemory>)> = self
            .missing(roles)
            .map(|owner| Ok((owner, comm.recv_memory(owner, TAG)?)))
            .collect::<Result<_>>()?;
        for (owner, exchange) in pending {
            let memory = exchange.wait(deadline)?;
            let Some(part) = self.parts.get_mut(owner as usize) else { continue };
            if memory.size() < part.bytes * slots {
                let what = "all ranks compute the same areas";
                return Err(Error::Internal { place: "plan scratch", what });
            }
            part.memory = Some(Mapped { memory, id: None });
        }
        Ok(())
    }

    /// Where the part of `rank` begins in this launch.
    pub(super) fn place(&mut self, rank: u32, service: Option<&ProxyService>) -> Result<Option<Place>> {
        let slot = self.clock.slot();
        let Some(part) = self.parts.get_mut(rank as usize) else { return Ok(None) };
        let offset = slot * part.bytes;
        let Some(mapped) = &mut part.memory else { return Ok(None) };
        if let (Some(service), None) = (service, &mapped.id) {
            mapped.id = Some(PortId { id: service.add_memory(&mapped.memory)?, service: service.clone() });
        }
        let id = mapped.id.as_ref().map(|id| id.id);
        Ok(Some(Place::Memory { memory: mapped.memory.clone(), offset, id }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(area: &Area) -> Vec<(u64, u64)> {
        area.parts.iter().map(|part| (part.bytes, part.generation)).collect()
    }

    fn resize(area: &mut Area, needs: [u64; 3]) {
        area.resize(0, needs.into_iter().map(Some)).unwrap();
    }

    #[test]
    fn parts_grow_by_powers_of_two_and_are_given_anew() {
        let mut area = Area::new(0, Form::Raw, 2, 3);
        resize(&mut area, [0, 1, 100]);
        assert_eq!(sizes(&area), [(0, 0), (64, 1), (128, 1)]);
        area.given.fill(true);
        // Another plan: smaller here, larger there. Own memory stays known.
        resize(&mut area, [0, 65, 3]);
        assert_eq!((sizes(&area), &area.given[..]), (vec![(0, 0), (128, 2), (128, 1)], &[true; 3][..]));
        resize(&mut area, [4096, 0, 0]);
        assert_eq!(sizes(&area), [(4096, 1), (128, 2), (128, 1)]);
        assert_eq!(area.given, [false; 3]);
        // Two slots are too much; nothing has changed.
        let before = area.digest();
        let error = area.resize(0, [Some(5000), Some(1 << 63), Some(0)].into_iter()).unwrap_err();
        assert_eq!((error.id(), area.digest()), ("mem.bounds", before));
        assert!(area.resize(0, [Some(0), None, Some(0)].into_iter()).is_err());
    }

    #[test]
    fn flags_are_never_zero_and_begin_anew_with_new_memory() {
        let at = |form, epoch| {
            let area = Area::new(0, form, 2, 3);
            area.clock.epoch.store(epoch, Ordering::Relaxed);
            area
        };
        let flags = [0, 1, FLAGS - 1, FLAGS, FLAGS + 1].map(|epoch| at(Form::Packets, epoch).clock.flag());
        assert_eq!(flags, [1, 2, u32::MAX, 1, 2]);
        for (form, cleared) in [(Form::Packets, 1), (Form::Raw, 0)] {
            let mut area = at(form, FLAGS - 1);
            resize(&mut area, [64, 0, 64]);
            area.given.fill(true);
            area.clock.advance();
            for _ in 0..2 {
                resize(&mut area, [64, 0, 64]);
                assert_eq!(sizes(&area), [(64, 1 + cleared), (0, 0), (64, 1 + cleared)]);
                assert_eq!(area.given, [cleared == 0; 3]);
                area.clock.advance();
            }
        }
    }

    #[test]
    fn digests_tell_areas_epochs_and_sizes_apart() {
        let digest = |number, epochs, needs| {
            let mut area = Area::new(number, Form::Packets, 1, 3);
            (0..epochs).for_each(|_| area.clock.advance());
            resize(&mut area, needs);
            area.digest()
        };
        let all = [
            digest(1, 0, [64, 64, 64]),
            digest(2, 0, [64, 64, 64]),
            digest(1, 1, [64, 64, 64]),
            digest(1, 0, [64, 64, 65]),
        ];
        assert_eq!(all[0], digest(1, 0, [1, 2, 3]));
        assert!((1..4).all(|at| all[at] != all[0]), "{all:x?}");
    }
}
