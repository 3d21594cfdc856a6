//! The scratch areas of a plan: raw data and packets, each once or twice, with one epoch.
//!
//! A plan has areas of its own. They grow when a message needs more; all ranks see the same sizes at the same
//! launch, so growing is a step of all. Those of plans with sized chunks have the size that was agreed when the plan
//! was set up, and are made at the first launch.

use warpway_core::communicator::{Communicator, Exchange};
use warpway_core::fifo::MemoryId;
use warpway_core::memory::{Access, RegisteredMemory};
use warpway_core::proxy::ProxyService;
use warpway_core::transport::{Transport, TransportFlags};
use warpway_core::{Deadline, Error, Result};
use warpway_plan::{AreaBytes, Form, Geometry};

use super::launch_bases::Place;
use super::roles::Roles;
use super::{NO_REGION, TAG};
use crate::buffer::SharedBuffer;

/// Packets are aligned to their size; areas to cache lines.
const AREA_ALIGNMENT: u64 = 64;
/// Flags of packets are the epoch reduced to this many values, counted from 1.
const FLAGS: u64 = u32::MAX as u64;

/// Areas and epoch of one rank. The same launches bring the same epochs on all ranks.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    epoch: u64,
    double: bool,
    /// The step between chunks that the areas are made for.
    chunk_bytes: u64,
    /// By rank; `None` for ranks whose scratch is not touched.
    memories: Vec<Option<Area>>,
    /// Of the last launch.
    last: Option<Division>,
}

/// How a launch divides the areas.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Division {
    pub(super) chunk_bytes: u64,
    pub(super) packet_payload: u64,
    /// Chunks may be empty. Nobody waits for the packets of those.
    pub(super) may_be_empty: bool,
}

#[derive(Debug)]
struct Area {
    memory: RegisteredMemory,
    /// Of one half.
    bytes: AreaBytes,
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

impl Scratch {
    pub(super) fn new(double: bool) -> Self {
        Self { double, ..Self::default() }
    }

    /// True if the areas are too small for a message whose scratch chunks have that step.
    pub(super) fn must_grow(&self, geometry: &Geometry, chunk_bytes: u64) -> bool {
        let empty = Some(AreaBytes::default());
        let used = (0..geometry.n_ranks()).any(|rank| geometry.area(rank, chunk_bytes) != empty);
        used && (chunk_bytes > self.chunk_bytes || self.memories.is_empty())
    }

    /// True if the areas are divided otherwise than by the last launch, so that what the plan knows of its own slots
    /// does not hold: every peer must be known to have ended that launch.
    pub(super) fn moves(&mut self, now: Division) -> bool {
        self.last.replace(now).is_some_and(|last| last != now) && !self.memories.is_empty()
    }

    /// Makes room and exchanges the memories with the ranks that touch them. Collective.
    pub(super) fn grow(
        &mut self,
        comm: &Communicator,
        roles: &Roles,
        (geometry, chunk_bytes): (&Geometry, u64),
        deadline: Deadline,
    ) -> Result<()> {
        let (rank, n) = (comm.rank(), comm.n_ranks());
        // Powers of two: few steps for growing messages.
        let chunk_bytes = chunk_bytes.checked_next_power_of_two().unwrap_or(u64::MAX);
        let areas = (0..n).map(|rank| self.area(geometry, rank, chunk_bytes)).collect::<Option<Vec<_>>>();
        let areas = areas.ok_or(warpway_core::memory::MemoryError::OutOfBounds {
            operation: "plan scratch",
            offset: 0,
            size: u64::MAX,
            limit: u64::MAX,
        })?;
        let total = |area: &AreaBytes| (area.raw + area.packets) * self.halves();
        let mut memories: Vec<Option<Area>> = (0..n).map(|_| None).collect();
        if let Some(own) = areas.get(rank as usize).filter(|area| total(area) > 0) {
            let region = SharedBuffer::allocate(total(own))?.region().cloned().ok_or(NO_REGION)?;
            let memory =
                comm.register_memory(region, TransportFlags::from(Transport::SharedMemory), Access::ALL)?;
            for peer in &roles.scratch_users {
                comm.send_memory(&memory, *peer, TAG)?;
            }
            memories[rank as usize] = Some(Area { memory, bytes: *own, id: None });
        }
        let owners = roles.scratch_owners.iter().copied();
        let owners = owners.filter(|owner| areas.get(*owner as usize).is_some_and(|area| total(area) > 0));
        let pending: Vec<(u32, Exchange<RegisteredMemory>)> =
            owners.map(|owner| Ok((owner, comm.recv_memory(owner, TAG)?))).collect::<Result<_>>()?;
        for (owner, exchange) in pending {
            let (memory, bytes) = (exchange.wait(deadline)?, areas[owner as usize]);
            if memory.size() < total(&bytes) {
                return Err(Error::Internal {
                    place: "plan scratch",
                    what: "all ranks compute the same areas",
                });
            }
            memories[owner as usize] = Some(Area { memory, bytes, id: None });
        }
        (self.chunk_bytes, self.memories) = (chunk_bytes, memories);
        Ok(())
    }

    fn halves(&self) -> u64 {
        if self.double { 2 } else { 1 }
    }

    /// The areas of a rank for chunks of that size.
    fn area(&self, geometry: &Geometry, rank: u32, chunk_bytes: u64) -> Option<AreaBytes> {
        let AreaBytes { raw, packets } = geometry.area(rank, chunk_bytes)?;
        let whole = |bytes: u64| bytes.checked_next_multiple_of(AREA_ALIGNMENT);
        let area = AreaBytes { raw: whole(raw)?, packets: whole(packets)? };
        area.raw.checked_add(area.packets)?.checked_mul(self.halves())?;
        Some(area)
    }

    /// Where the area of `rank` for this launch begins.
    pub(super) fn place(
        &mut self,
        rank: u32,
        form: Form,
        service: Option<&ProxyService>,
    ) -> Result<Option<Place>> {
        let (halves, parity) = (self.halves(), self.epoch % self.halves());
        let Some(area) = self.memories.get_mut(rank as usize).and_then(Option::as_mut) else {
            return Ok(None);
        };
        let offset = match form {
            Form::Raw => parity * area.bytes.raw,
            Form::Packets => halves * area.bytes.raw + parity * area.bytes.packets,
        };
        if let (Some(service), None) = (service, &area.id) {
            area.id = Some(PortId { id: service.add_memory(&area.memory)?, service: service.clone() });
        }
        let id = area.id.as_ref().map(|id| id.id);
        Ok(Some(Place { memory: area.memory.clone(), offset, id }))
    }

    /// The flag of this launch's packets; never 0, which means "never written".
    pub(super) fn flag(&self) -> u32 {
        (self.epoch % FLAGS) as u32 + 1
    }

    /// True before the first launch whose flags have been used before: all areas must be cleared, by all ranks.
    pub(super) fn must_clear(&self) -> bool {
        self.epoch > 0 && self.epoch.is_multiple_of(FLAGS)
    }

    /// Forgets the areas: the next launch takes new ones, which are clear.
    pub(super) fn clear(&mut self) {
        self.memories.clear();
        self.chunk_bytes = 0;
    }

    /// After a launch.
    pub(super) fn advance(&mut self) {
        self.epoch += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_never_zero_and_begin_anew_with_clear_areas() {
        let at = |epoch| Scratch { epoch, ..Scratch::new(true) };
        let flags = [0, 1, FLAGS - 1, FLAGS, FLAGS + 1].map(|epoch| at(epoch).flag());
        assert_eq!(flags, [1, 2, u32::MAX, 1, 2]);
        let clears = [0, 1, FLAGS - 1, FLAGS, FLAGS + 1, 2 * FLAGS].map(|epoch| at(epoch).must_clear());
        assert_eq!(clears, [false, false, false, true, false, true]);
    }
}
