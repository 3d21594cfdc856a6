//! Wire form of memory records and of semaphore tokens.
//!
//! The address of the server that hands out descriptors (spec 6.1) is not repeated in the record: it is
//! the owner's entry in the peer table, which has been authenticated.

use super::envelope::{Kind, Reader, RecordType, Records, Writer};
use super::{Body, WireError};
use crate::memory::{Access, EthernetExport, GpuExport, MemoryRecord, SharedExport};
use crate::transport::{Device, DeviceKind, TransportFlags};

const IDENTITY: RecordType = RecordType { number: 0x01, name: "identity" };
const OFFSET: RecordType = RecordType { number: 0x02, name: "offset" };
const TRANSPORTS: RecordType = RecordType { number: 0x03, name: "transports" };
const FABRIC: RecordType = RecordType { number: 0x04, name: "cuda_ipc.fabric" };
const CUDA_IPC: RecordType = RecordType { number: 0x05, name: "cuda_ipc" };
const SHARED_MEMORY: RecordType = RecordType { number: 0x07, name: "shared_memory" };
const ACCESS: RecordType = RecordType { number: 0x09, name: "access" };
const ETHERNET: RecordType = RecordType { number: 0x0a, name: "ethernet" };
const OWNER: RecordType = RecordType { number: 0x0b, name: "owner" };
const TOKEN: RecordType = RecordType { number: 0x30, name: "token" };

pub(super) const MEMORY_RECORDS: &[RecordType] =
    &[IDENTITY, OFFSET, TRANSPORTS, FABRIC, CUDA_IPC, SHARED_MEMORY, ACCESS, ETHERNET, OWNER];

/// What the peer must know to raise a semaphore's token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SemaphoreRecord {
    /// The memory that the token lies in.
    pub memory: MemoryRecord,
    /// Where, a multiple of 64.
    pub offset: u64,
    /// Number of the token in the owner's pool; given back under it.
    pub token: u64,
    /// Id of the owner's endpoint of the connection.
    pub connection: u64,
    /// Kind of device that waits.
    pub device: DeviceKind,
}

#[expect(private_interfaces, reason = "sealed")]
impl Body for MemoryRecord {
    const KIND: Kind = Kind::Memory;
    const RECORDS: &'static [&'static [RecordType]] = &[MEMORY_RECORDS];

    fn write(&self, writer: &mut Writer) {
        writer.critical(OWNER, |v| {
            v.u32(self.owner).u8(self.device.kind as u8);
        });
        writer.critical(IDENTITY, |v| {
            v.u64(self.original_address).u64(self.size).u64(self.host).u64(self.process);
            v.i32(self.device.id).bytes(&self.device_uuid);
        });
        writer.critical(OFFSET, |v| {
            v.u64(self.offset).u64(self.allocation_size);
        });
        writer.critical(TRANSPORTS, |v| {
            v.u32(self.transports.bits());
        });
        writer.critical(ACCESS, |v| {
            v.u32(self.access.bits());
        });
        // What one transport needs may be skipped by a reader that does not have that transport.
        if let Some(SharedExport { process_id, descriptor }) = &self.shared {
            writer.optional(SHARED_MEMORY, |v| {
                v.u32(*process_id).u64(*descriptor);
            });
        }
        if let Some(export) = &self.gpu {
            let (record, handle, allocation) = match export {
                GpuExport::Ipc { handle, allocation } => (CUDA_IPC, handle, allocation),
                GpuExport::Fabric { handle, allocation } => (FABRIC, handle, allocation),
            };
            writer.optional(record, |v| {
                v.bytes(handle).u64(*allocation);
            });
        }
        if let Some(EthernetExport { memory_id }) = &self.ethernet {
            writer.optional(ETHERNET, |v| {
                v.u64(*memory_id);
            });
        }
    }

    fn read(records: &Records<'_>) -> Result<Self, WireError> {
        let (owner, kind) = records.required(OWNER, |r| Ok((r.u32()?, device_kind(r)?)))?;
        let (original_address, size, host, process, id, device_uuid) = records.required(IDENTITY, |r| {
            Ok((r.u64()?, r.u64()?, r.u64()?, r.u64()?, r.i32()?, r.array::<16>()?))
        })?;
        let (offset, allocation_size) = records.required(OFFSET, |r| Ok((r.u64()?, r.u64()?)))?;
        let transports = TransportFlags::from_bits(records.required(TRANSPORTS, Reader::u32)?);
        let bits = records.required(ACCESS, Reader::u32)?;
        let access =
            Access::from_bits(bits).ok_or(WireError::Field { field: "access", value: u64::from(bits) })?;
        let shared = records
            .optional(SHARED_MEMORY, |r| Ok(SharedExport { process_id: r.u32()?, descriptor: r.u64()? }))?;
        let fabric = records
            .optional(FABRIC, |r| Ok(GpuExport::Fabric { handle: r.array()?, allocation: r.u64()? }))?;
        let ipc = records
            .optional(CUDA_IPC, |r| Ok(GpuExport::Ipc { handle: r.array()?, allocation: r.u64()? }))?;
        // The one that reaches farther, of a sender that gives both.
        let gpu = fabric.or(ipc);
        let ethernet = records.optional(ETHERNET, |r| Ok(EthernetExport { memory_id: r.u64()? }))?;

        if size == 0 || original_address.checked_add(size).is_none() {
            return Err(WireError::Field { field: "size", value: size });
        }
        if offset.checked_add(size).is_none_or(|end| end > allocation_size) {
            return Err(WireError::Field { field: "allocation size", value: allocation_size });
        }
        let device = Device { kind, id };
        Ok(Self {
            owner,
            original_address,
            size,
            host,
            process,
            device,
            device_uuid,
            offset,
            allocation_size,
            transports,
            access,
            shared,
            gpu,
            ethernet,
        })
    }
}

#[expect(private_interfaces, reason = "sealed")]
impl Body for SemaphoreRecord {
    const KIND: Kind = Kind::Semaphore;
    const RECORDS: &'static [&'static [RecordType]] = &[MEMORY_RECORDS, &[TOKEN]];

    fn write(&self, writer: &mut Writer) {
        self.memory.write(writer);
        writer.critical(TOKEN, |v| {
            v.u64(self.offset).u64(self.token).u64(self.connection).u8(self.device as u8);
        });
    }

    fn read(records: &Records<'_>) -> Result<Self, WireError> {
        let memory = MemoryRecord::read(records)?;
        let (offset, token, connection, device) =
            records.required(TOKEN, |r| Ok((r.u64()?, r.u64()?, r.u64()?, device_kind(r)?)))?;
        Ok(Self { memory, offset, token, connection, device })
    }
}

pub(super) fn device_kind(reader: &mut Reader<'_>) -> Result<DeviceKind, WireError> {
    match reader.u8()? {
        0 => Ok(DeviceKind::Unknown),
        1 => Ok(DeviceKind::Cpu),
        2 => Ok(DeviceKind::Gpu),
        other => Err(WireError::Field { field: "device kind", value: u64::from(other) }),
    }
}
