//! The addresses of a launch: one per buffer that the program touches.

use std::ptr::NonNull;

use warpway_core::Result;
use warpway_core::fifo::MemoryId;
use warpway_core::memory::{MemoryError, RegisteredMemory};
use warpway_core::proxy::ProxyService;

use super::program::{Base, BaseKey};

/// Where a buffer is.
pub(super) enum Place {
    Memory {
        memory: RegisteredMemory,
        offset: u64,
        /// Its id at the proxy service, for memories that are known there for longer than this launch.
        id: Option<MemoryId>,
    },
    /// Memory of the caller that nobody else touches, mapped for so many bytes as long as the launch takes.
    Plain { first: NonNull<u8>, bytes: u64 },
}

/// By base. Every base that operations load from or store to is mapped for its reach, as long as this lives.
#[derive(Debug, Default)]
pub(super) struct Bases {
    addresses: Vec<NonNull<u8>>,
    ports: Vec<Option<(MemoryId, u64)>>,
    /// Ids that this launch has taken; given back when dropped.
    leases: Vec<MemoryId>,
    service: Option<ProxyService>,
    memories: Vec<RegisteredMemory>,
}

// SAFETY: addresses of shared memory, used by raw copies and atomics only; the value itself is immutable.
unsafe impl Send for Bases {}
// SAFETY: as above.
unsafe impl Sync for Bases {}

impl Bases {
    /// Of addresses that nobody follows.
    #[cfg(test)]
    pub(super) fn at(addresses: &[u64]) -> Self {
        let pointer = |address: &u64| NonNull::new(std::ptr::without_provenance_mut(*address as usize));
        let mut bases = Self::default();
        bases.addresses.extend(addresses.iter().filter_map(pointer));
        bases
    }

    /// Resolves every base by `find` and checks its reach; takes the room of earlier ones.
    ///
    /// # Errors
    /// `mem.bounds` for a buffer that is too short, `mem.transport` for one that is not mapped, `proxy.full`.
    pub(super) fn resolve(
        mut self,
        bases: &[Base],
        service: Option<&ProxyService>,
        mut find: impl FnMut(BaseKey) -> Result<Option<Place>>,
    ) -> Result<Self> {
        self.clear();
        let found = &mut self;
        found.service = service.cloned();
        for base in bases {
            // Nothing of an untouched buffer need be there.
            let place = if base.reach == 0 { None } else { find(base.key)? };
            let mut address = NonNull::dangling();
            let mut port = None;
            if let Some(Place::Plain { first, bytes: limit }) = place {
                if base.by_port || base.reach > limit {
                    let (operation, offset, size) = ("plan", 0, base.reach);
                    return Err(MemoryError::OutOfBounds { operation, offset, size, limit }.into());
                }
                address = first;
            } else if let Some(Place::Memory { memory, offset, id }) = place {
                // The owner has looked, too; but what it permits is for this side to keep to.
                if let (false, Some(access)) = (memory.is_local(), base.access) {
                    memory.require_access("plan", access)?;
                }
                if base.mapped {
                    address = memory.pointer("plan", offset, base.reach)?;
                }
                if let (true, Some(service)) = (base.by_port, service) {
                    memory.check_range("plan", offset, base.reach)?;
                    let id = match id {
                        Some(id) => id,
                        None => {
                            let id = service.add_memory(&memory)?;
                            found.leases.push(id);
                            id
                        }
                    };
                    port = Some((id, offset));
                }
                found.memories.push(memory);
            } else if base.reach > 0 {
                let what = "every buffer that a program touches has a place";
                return Err(warpway_core::Error::Internal { place: "plan bases", what });
            }
            found.addresses.push(address);
            found.ports.push(port);
        }
        Ok(self)
    }

    /// Takes addresses that are known, by base.
    pub(super) fn set(&mut self, addresses: impl Iterator<Item = NonNull<u8>>) {
        self.addresses.clear();
        self.addresses.extend(addresses);
    }

    /// Lets go of everything but the room.
    pub(super) fn clear(&mut self) {
        for id in self.leases.drain(..) {
            if let Some(service) = &self.service {
                // Fails only if the service is gone already.
                drop(service.remove_memory(id));
            }
        }
        self.service = None;
        self.addresses.clear();
        self.ports.clear();
        self.memories.clear();
    }

    /// First byte of a base; dangling if its reach is 0.
    #[inline]
    pub(super) fn address(&self, base: u32) -> NonNull<u8> {
        self.addresses[base as usize]
    }

    /// Memory id and first byte of a base that ports use.
    pub(super) fn port(&self, base: u32) -> Option<(MemoryId, u64)> {
        self.ports.get(base as usize).copied().flatten()
    }

    /// True if the proxy must be done with this launch before it ends.
    pub(super) fn leases_ids(&self) -> bool {
        !self.leases.is_empty()
    }
}

impl Drop for Bases {
    fn drop(&mut self) {
        self.clear();
    }
}
