//! Registration of local memory, and import of a peer's.

use std::sync::Arc;
use std::time::Duration;

use super::state::State;
use crate::deadline::Deadline;
use crate::engine::Engine;
use crate::error::{Error, Result, Unavailable};
use crate::health::{Cause, Failure};
use crate::memory::{
    Access, Export, GpuExport, Import, ImportAttempt, ImportReport, MemoryError, MemoryRecord, Region,
    RegisteredMemory, SharedExport,
};
use crate::trace::Operation;
use crate::transport::{Transport, TransportFlags};
use crate::wire::{Handle, WireError};

/// How long news of an owner's end may come after its sockets have closed.
const NEWS: Duration = Duration::from_millis(250);

impl State {
    pub(super) fn engine(&self, transport: Transport) -> Result<&Arc<dyn Engine>> {
        let found = self.engines.iter().find(|engine| engine.transport() == transport);
        found.ok_or_else(|| {
            let there: Vec<String> = self.engines.iter().map(|e| e.transport().to_string()).collect();
            Error::Unavailable(Unavailable {
                what: format!("transport {transport}"),
                why: format!("this communicator has engines for: {}", there.join(", ")),
                hint: "choose one of these",
            })
        })
    }

    /// Registers `region` for every transport in `transports`.
    pub(super) fn register(
        &self,
        region: Region,
        transports: TransportFlags,
        access: Access,
    ) -> Result<RegisteredMemory> {
        let mut exports = Vec::new();
        for transport in transports.iter() {
            let engine = self.engine(transport)?;
            exports.push(engine.export(&self.context, &region, access)?);
        }
        self.finish_registration(region, exports, access)
    }

    /// Registers `region` for every transport that can export it; at least one must.
    pub(super) fn register_widely(&self, region: Region, access: Access) -> Result<RegisteredMemory> {
        let mut exports = Vec::new();
        let mut problem = None;
        for engine in &self.engines {
            match engine.export(&self.context, &region, access) {
                Ok(export) => exports.push(export),
                Err(error) => problem = Some(error),
            }
        }
        match problem {
            Some(error) if exports.is_empty() => Err(error),
            _ => self.finish_registration(region, exports, access),
        }
    }

    fn finish_registration(
        &self,
        region: Region,
        mut exports: Vec<Export>,
        access: Access,
    ) -> Result<RegisteredMemory> {
        let transports = exports.iter().fold(TransportFlags::NONE, |flags, e| flags | e.transport);
        let ethernet = exports.iter().find_map(|export| export.ethernet.clone());
        let mapped = [Transport::SharedMemory, Transport::CudaIpc].into_iter().find(|t| transports.has(*t));
        let gpu = exports.iter().find_map(|export| export.gpu.clone());
        let backing = region.backing();
        let descriptor = match &gpu {
            Some(placement) => placement.descriptor.as_ref(),
            None => backing.map(|backing| &backing.descriptor),
        };
        let shared = match (mapped, descriptor) {
            (Some(transport), Some(descriptor)) => {
                let offer = self.offers.offer(&*self.context.control, descriptor)?;
                let descriptor = offer.number();
                exports.push(Export { guard: Some(offer), ..Export::new(transport) });
                Some(SharedExport { process_id: std::process::id(), descriptor })
            }
            _ => None,
        };
        let me = self.me();
        let (offset, allocation_size) = match &gpu {
            Some(placement) => (placement.offset, placement.allocation_size),
            None => backing.map_or((0, region.size()), |b| (b.offset, b.allocation_size)),
        };
        let record = MemoryRecord {
            owner: me.rank,
            original_address: region.address().as_ptr() as u64,
            size: region.size(),
            host: me.host,
            process: me.process,
            device: region.device(),
            device_uuid: gpu.as_ref().map_or([0; 16], |placement| placement.device_uuid),
            offset,
            allocation_size,
            transports,
            access,
            shared,
            gpu: gpu.and_then(|placement| placement.export),
            ethernet,
        };
        let memory = RegisteredMemory::local(record, region, exports).with_owner_rank(self.rank);
        self.local_memories.insert(self.nonce(), &memory);
        Ok(memory)
    }

    /// An error unless the memory is this rank's: only the owner can vouch for it.
    pub(super) fn require_own(&self, operation: &'static str, memory: &RegisteredMemory) -> Result<()> {
        if memory.is_local() && memory.owner() == self.me().rank {
            return Ok(());
        }
        let what = "an imported memory cannot be passed on; its owner must send it";
        Err(MemoryError::WrongSide { operation, what }.into())
    }

    pub(super) fn serialize(&self, memory: &RegisteredMemory) -> Result<Vec<u8>> {
        self.require_own("serialize", memory)?;
        Ok(Handle { sequence: 0, label: None, body: memory.record().clone() }.encode(self.nonce())?)
    }

    pub(super) fn deserialize(&self, bytes: &[u8]) -> Result<RegisteredMemory> {
        let record = Handle::<MemoryRecord>::decode(bytes, self.nonce())?.body;
        if self.context.members.rank_of(record.owner).is_none() {
            return Err(WireError::Field { field: "owner", value: u64::from(record.owner) }.into());
        }
        self.import(&record, record.owner)
    }

    /// Makes a peer's memory usable: in this process its original address, elsewhere what the engines
    /// find. `sender` is the job rank that the record came from.
    pub(super) fn import(&self, record: &MemoryRecord, sender: u32) -> Result<RegisteredMemory> {
        self.check_identity(sender, [record.owner.into(), record.host, record.process])?;
        let original = (record.process == self.me().process)
            .then(|| self.local_memories.find(self.nonce(), record))
            .flatten();
        let original = original.as_ref().and_then(|memory| memory.region().cloned());
        let mut region = original.clone();
        let mut transports = TransportFlags::NONE;
        let mut attempts = Vec::new();
        let deadline = self.setup_deadline();
        for engine in self.engines.iter().filter(|engine| record.transports.has(engine.transport())) {
            let transport = engine.transport();
            let problem =
                match self.try_import(&**engine, record, original.as_ref(), region.is_some(), deadline) {
                    Ok(mapped) => {
                        transports = transports | transport;
                        region = region.or(mapped);
                        None
                    }
                    Err(error) => {
                        self.check_owner(record, &error)?;
                        Some(error.to_string())
                    }
                };
            attempts.push(ImportAttempt { transport, problem });
        }
        for transport in record.transports.iter() {
            if attempts.iter().all(|attempt| attempt.transport != transport) {
                let problem = Some("this communicator has no engine for it".to_owned());
                attempts.push(ImportAttempt { transport, problem });
            }
        }
        let report = ImportReport(attempts);
        if transports.none() {
            let why = if record.transports.none() {
                "it was registered for no transport".to_owned()
            } else {
                report.to_string()
            };
            return Err(MemoryError::Import {
                owner: self.context.rank_of(record.owner),
                size: record.size,
                why,
            }
            .into());
        }
        if record.host == self.me().host && region.is_none() {
            tracing::warn!(owner = self.context.rank_of(record.owner), %report, "a memory of this host could not be mapped");
        }
        let memory = RegisteredMemory::imported(record.clone(), region, transports, report);
        Ok(memory.with_owner_rank(self.context.rank_of(record.owner)))
    }

    /// An owner that does not answer may have ended: that is the error then, not a memory that another
    /// transport seems to reach. The news may come a little after the broken connection.
    fn check_owner(&self, record: &MemoryRecord, error: &Error) -> Result<()> {
        let unanswered = matches!(error, Error::Bootstrap(_) | Error::Memory(MemoryError::Import { .. }));
        if !unanswered || record.host != self.me().host {
            return Ok(());
        }
        let (owner, until) = (self.context.rank_of(record.owner), Deadline::after(NEWS));
        loop {
            self.health().check_during(Operation::ImportMemory)?;
            if self.health().has_left(owner) {
                let (rank, phase) = (self.rank, Operation::ImportMemory.to_string());
                return Err(Failure { rank, culprit: Some(owner), phase, cause: Cause::PeerLeft }.into());
            }
            if until.expired() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Imports by one engine; the region if it mapped one. `original` is the memory itself where it is this
    /// process's, `mapped` says that there is an address already.
    fn try_import(
        &self,
        engine: &dyn Engine,
        record: &MemoryRecord,
        original: Option<&Region>,
        mapped: bool,
        deadline: Deadline,
    ) -> Result<Option<Region>> {
        let transport = engine.transport();
        let maps = matches!(transport, Transport::SharedMemory | Transport::CudaIpc);
        if maps && let Some(original) = original {
            return engine.adopt(&self.context, original).map(|()| None);
        }
        if maps && mapped {
            return Ok(None);
        }
        let refuse = |why: &str| {
            let owner = self.context.rank_of(record.owner);
            Error::Memory(MemoryError::Import { owner, size: record.size, why: why.into() })
        };
        let by_fabric = matches!(record.gpu, Some(GpuExport::Fabric { .. }));
        if maps && record.host != self.me().host && !by_fabric {
            return Err(refuse("the owner is on another host"));
        }
        let Import { region, .. } = engine.import(&self.context, record, deadline)?;
        match region {
            Some(region) if region.size() != record.size => {
                Err(refuse("what was mapped has another size than the record says"))
            }
            None if maps => Err(refuse("the engine mapped nothing")),
            region => Ok(region),
        }
    }

    /// What a handle says about its owner must be what the bootstrap has authenticated.
    /// `claimed` holds rank, host and process.
    pub(super) fn check_identity(&self, sender: u32, claimed: [u64; 3]) -> Result<()> {
        let Some(peer) = self.context.control.peers().get(sender as usize) else {
            return Err(WireError::Field { field: "owner", value: sender.into() }.into());
        };
        let known = [u64::from(peer.rank), peer.host, peer.process];
        let fields = ["owner", "host", "process"];
        match fields
            .into_iter()
            .zip(claimed.into_iter().zip(known))
            .find(|(_, (claim, known))| claim != known)
        {
            Some((field, (value, _))) => Err(WireError::Field { field, value }.into()),
            None => Ok(()),
        }
    }
}
