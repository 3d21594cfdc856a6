//! Wire form of endpoints.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use super::envelope::{Kind, Reader, RecordType, Records, Writer};
use super::memory::device_kind;
use super::{Body, WireError};
use crate::endpoint::Endpoint;
use crate::transport::{Device, Transport};

const ENDPOINT: RecordType = RecordType { number: 0x20, name: "endpoint" };
const TRANSPORT: RecordType = RecordType { number: 0x21, name: "transport" };
const DEVICE: RecordType = RecordType { number: 0x22, name: "device" };
const WRITE_QUEUE: RecordType = RecordType { number: 0x23, name: "write queue" };
const ADDRESSES: RecordType = RecordType { number: 0x24, name: "socket addresses" };

const MAX_ADDRESSES: usize = 8;

#[expect(private_interfaces, reason = "sealed")]
impl Body for Endpoint {
    const KIND: Kind = Kind::Endpoint;
    const RECORDS: &'static [&'static [RecordType]] =
        &[&[ENDPOINT, TRANSPORT, DEVICE, WRITE_QUEUE, ADDRESSES]];

    fn write(&self, writer: &mut Writer) {
        writer.critical(ENDPOINT, |v| {
            v.u32(self.owner).u64(self.host).u64(self.process).u64(self.id);
        });
        writer.critical(TRANSPORT, |v| {
            let (family, adapter) = transport_numbers(self.transport);
            v.u16(family).u16(adapter);
        });
        writer.critical(DEVICE, |v| {
            v.u8(self.device.kind as u8).i32(self.device.id);
        });
        writer.optional(WRITE_QUEUE, |v| {
            v.i32(self.max_write_queue_size);
        });
        let addresses = &self.addresses[..self.addresses.len().min(MAX_ADDRESSES)];
        if !addresses.is_empty() {
            writer.optional(ADDRESSES, |v| {
                v.u8(addresses.len() as u8);
                for address in addresses {
                    match address {
                        SocketAddr::V4(a) => v.u8(4).u16(a.port()).bytes(&a.ip().octets()),
                        SocketAddr::V6(a) => {
                            v.u8(6).u16(a.port()).bytes(&a.ip().octets()).u32(a.flowinfo()).u32(a.scope_id())
                        }
                    };
                }
            });
        }
    }

    fn read(records: &Records<'_>) -> Result<Self, WireError> {
        let (owner, host, process, id) =
            records.required(ENDPOINT, |r| Ok((r.u32()?, r.u64()?, r.u64()?, r.u64()?)))?;
        let transport = records.required(TRANSPORT, transport)?;
        let device = records.required(DEVICE, |r| Ok(Device { kind: device_kind(r)?, id: r.i32()? }))?;
        let max_write_queue_size = records.optional(WRITE_QUEUE, Reader::i32)?.unwrap_or(-1);
        let addresses = records.optional(ADDRESSES, addresses)?.unwrap_or_default();
        Ok(Self { owner, transport, device, host, process, max_write_queue_size, addresses, id })
    }
}

fn transport_numbers(transport: Transport) -> (u16, u16) {
    match transport {
        Transport::Unknown => (0, 0),
        Transport::CudaIpc => (1, 0),
        Transport::Ib(adapter) => (2, adapter),
        Transport::Ethernet => (3, 0),
        Transport::SharedMemory => (4, 0),
    }
}

fn transport(reader: &mut Reader<'_>) -> Result<Transport, WireError> {
    match (reader.u16()?, reader.u16()?) {
        (0, 0) => Ok(Transport::Unknown),
        (1, 0) => Ok(Transport::CudaIpc),
        (2, adapter) => Ok(Transport::Ib(adapter)),
        (3, 0) => Ok(Transport::Ethernet),
        (4, 0) => Ok(Transport::SharedMemory),
        (family, _) => Err(WireError::Field { field: "transport", value: u64::from(family) }),
    }
}

fn addresses(reader: &mut Reader<'_>) -> Result<Vec<SocketAddr>, WireError> {
    let count = usize::from(reader.u8()?);
    if count > MAX_ADDRESSES {
        return Err(WireError::Field { field: "number of addresses", value: count as u64 });
    }
    let mut addresses = Vec::with_capacity(count);
    for _ in 0..count {
        let (family, port) = (reader.u8()?, reader.u16()?);
        addresses.push(match family {
            4 => SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::from(reader.array::<4>()?), port)),
            6 => {
                let ip = Ipv6Addr::from(reader.array::<16>()?);
                SocketAddr::V6(SocketAddrV6::new(ip, port, reader.u32()?, reader.u32()?))
            }
            other => return Err(WireError::Field { field: "address family", value: u64::from(other) }),
        });
    }
    Ok(addresses)
}
