//! What a launch leaves for the next one of the same plan: mostly it brings the same buffers.
//!
//! Nothing here keeps a memory: buffers may be withdrawn, dropped and allocated anew between launches. A slot counts
//! only if the communicator finds this very registration in it, an import only while somebody else still has it.

use warpway_core::Result;
use warpway_core::communicator::{Communicator, Publication};
use warpway_core::deadline::Deadline;
use warpway_core::memory::{RegisteredMemory, WeakMemory};
use warpway_core::wire::SlotId;
use warpway_plan::DataType;

use super::launch_bases::Bases;
use super::record::LaunchRecord;
use super::transfer::Kernels;

/// Buffers that are remembered, of each kind.
const BUFFERS: usize = 8;
/// Imports that are remembered.
const IMPORTS: usize = 64;

/// See the module's page. Used by one launch at a time.
#[derive(Debug, Default)]
pub(super) struct Kept {
    pub(super) inputs: Slots,
    pub(super) outputs: Slots,
    pub(super) imports: Imports,
    /// Without contents: their room.
    pub(super) bases: Bases,
    pub(super) owners: Vec<(u32, LaunchRecord)>,
    kernels: Option<((DataType, u64), Kernels)>,
}

impl Kept {
    /// The loops for a data type and a packet's payload.
    pub(super) fn kernels(&mut self, key: (DataType, u64), make: impl FnOnce() -> Kernels) -> Kernels {
        match &self.kernels {
            Some((found, kernels)) if *found == key => *kernels,
            _ => self.kernels.insert((key, make())).1,
        }
    }
}

/// Slots in which buffers of this rank were published to all who use them; the last one used comes last.
#[derive(Debug, Default)]
pub(crate) struct Slots(Vec<(u64, SlotId)>);

impl Slots {
    /// Makes a buffer known to `users`, the same ones in every call.
    ///
    /// # Errors
    /// Those of [`Communicator::publish_to`].
    pub(crate) fn publish(
        &mut self,
        comm: &Communicator,
        memory: &RegisteredMemory,
        users: &[u32],
    ) -> Result<Publication> {
        // Addresses come back with other memories; they only say which slot to try.
        let address = memory.original_address();
        if let Some(at) = self.0.iter().rposition(|(there, _)| *there == address) {
            if let Some(publication) = comm.republish(memory, self.0[at].1) {
                self.0[at..].rotate_left(1);
                return Ok(publication);
            }
            self.0.remove(at);
        }
        let publication = comm.publish_to(memory, users)?;
        if self.0.len() == BUFFERS {
            self.0.remove(0);
        }
        self.0.push((address, publication.slot()));
        Ok(publication)
    }
}

/// Buffers of peers, by owner and slot.
#[derive(Debug, Default)]
pub(crate) struct Imports(Vec<((u32, SlotId), WeakMemory)>);

impl Imports {
    /// The buffer that `owner` has published as `slot`.
    ///
    /// # Errors
    /// Those of [`Communicator::published`].
    pub(crate) fn find(
        &mut self,
        comm: &Communicator,
        owner: u32,
        slot: SlotId,
        deadline: impl FnOnce() -> Deadline,
    ) -> Result<RegisteredMemory> {
        let key = (owner, slot);
        if let Some(at) = self.0.iter().position(|(there, _)| *there == key) {
            if let Some(memory) = self.0[at].1.upgrade() {
                return Ok(memory);
            }
            self.0.remove(at);
        }
        let memory = comm.published(owner, slot, deadline())?;
        if self.0.len() == IMPORTS {
            self.0.remove(0);
        }
        self.0.push((key, memory.downgrade()));
        Ok(memory)
    }
}
