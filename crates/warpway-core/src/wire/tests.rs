use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use proptest::prelude::*;

use super::*;
use crate::endpoint::Endpoint;
use crate::memory::{Access, EthernetExport, GpuExport, IPC_HANDLE_BYTES, MemoryRecord, SharedExport};
use crate::transport::{Device, DeviceKind, Transport, TransportFlags};

const NONCE: JobNonce = JobNonce(*b"0123456789abcdef");

fn memory() -> MemoryRecord {
    MemoryRecord {
        owner: 3,
        original_address: 0x7f00_0000_1040,
        size: 1_000_003,
        host: 0x1122_3344_5566_7788,
        process: 0x99aa_bbcc_ddee_ff00,
        device: Device { kind: DeviceKind::Gpu, id: 2 },
        device_uuid: *b"GPU-0123456789ab",
        offset: 64,
        allocation_size: 1_048_576,
        transports: TransportFlags::HOST,
        access: Access::ALL,
        shared: Some(SharedExport { process_id: 4711, descriptor: 17 }),
        gpu: Some(GpuExport::Ipc {
            handle: std::array::from_fn(|i| 3 * i as u8 + 1),
            allocation: 0x0102_0304_0506_0708,
        }),
        ethernet: Some(EthernetExport { memory_id: 0x0100_0002 }),
    }
}

fn seal(mut body: Vec<u8>) -> Vec<u8> {
    let length = body.len() as u32 + 4;
    body[8..12].copy_from_slice(&length.to_le_bytes());
    let checksum = crc32c::crc32c(&body);
    body.extend(checksum.to_le_bytes());
    body
}

/// An envelope with `record` put in front of its own records.
fn with_record(bytes: &[u8], number: u16, value: &[u8]) -> Vec<u8> {
    let mut body = bytes[..36].to_vec();
    body.extend(number.to_le_bytes());
    body.extend((value.len() as u32).to_le_bytes());
    body.extend(value);
    body.extend(&bytes[36..bytes.len() - 4]);
    seal(body)
}

fn sample() -> (Handle<MemoryRecord>, Vec<u8>) {
    let label = Label { tag: 7, call: "send_memory at a.rs:1:2".into() };
    let handle = Handle { sequence: 5, label: Some(label), body: memory() };
    let bytes = handle.encode(NONCE).unwrap();
    (handle, bytes)
}

/// The layout is a contract: an independent reading of the bytes at fixed places.
#[test]
fn header_is_as_specified() {
    let (_, bytes) = sample();
    assert_eq!(&bytes[0..4], b"WPWY");
    assert_eq!(bytes[4..6], [1, 0]);
    assert_eq!(bytes[6..8], [0, 1], "version 1.0, major in the high byte");
    assert_eq!(u32::from_le_bytes(bytes[8..12].try_into().unwrap()) as usize, bytes.len());
    assert_eq!(&bytes[12..28], &NONCE.0);
    assert_eq!(u64::from_le_bytes(bytes[28..36].try_into().unwrap()), 5);
    let stored = u32::from_le_bytes(bytes[bytes.len() - 4..].try_into().unwrap());
    assert_eq!(stored, crc32c_by_definition(&bytes[..bytes.len() - 4]));
}

/// CRC-32C bit by bit: reflected polynomial 0x82f63b78.
fn crc32c_by_definition(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0x82f6_3b78 & (crc & 1).wrapping_neg()))
    })
}

#[test]
fn every_truncation_and_extension_is_refused() {
    let (_, bytes) = sample();
    for length in 0..bytes.len() {
        let error = Handle::<MemoryRecord>::decode(&bytes[..length], NONCE).unwrap_err();
        assert_eq!(error.id(), "wire.truncated", "{length}: {error}");
    }
    let mut longer = bytes.clone();
    longer.push(0);
    let error = Handle::<MemoryRecord>::decode(&longer, NONCE).unwrap_err();
    assert_eq!(error, WireError::Trailing { extra: 1 });
}

#[test]
fn every_bit_flip_is_refused() {
    let (_, bytes) = sample();
    for bit in 0..bytes.len() * 8 {
        let mut damaged = bytes.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        let error = Handle::<MemoryRecord>::decode(&damaged, NONCE).unwrap_err();
        let expected: &[&str] = match bit / 8 {
            0..4 => &["wire.magic"],
            // A flip of the minor version is another valid version with a wrong checksum.
            7 => &["wire.version"],
            8..12 => &["wire.truncated", "wire.trailing", "wire.too_long", "wire.field"],
            _ => &["wire.checksum"],
        };
        assert!(expected.contains(&error.id()), "bit {bit}: {error}");
    }
}

#[test]
fn nonce_kind_and_length_are_checked() {
    let (handle, bytes) = sample();
    assert_eq!(Handle::<MemoryRecord>::decode(&bytes, JobNonce::default()), Err(WireError::Nonce));
    let error = Handle::<Endpoint>::decode(&bytes, NONCE).unwrap_err();
    assert_eq!(error, WireError::Kind { expected: "endpoint", found: 1 });
    let long = with_record(&bytes, 0x123, &vec![0; MAX_ENVELOPE_BYTES]);
    assert_eq!(Handle::<MemoryRecord>::decode(&long, NONCE).unwrap_err().id(), "wire.too_long");
    let fits = MAX_ENVELOPE_BYTES - bytes.len() - 6;
    let full = with_record(&bytes, 0x123, &vec![0; fits]);
    assert_eq!(full.len(), MAX_ENVELOPE_BYTES);
    assert_eq!(Handle::<MemoryRecord>::decode(&full, NONCE), Ok(handle));
}

#[test]
fn unknown_records_are_skipped_unless_critical() {
    let (handle, bytes) = sample();
    let skipped = with_record(&bytes, 0x123, b"something new");
    assert_eq!(Handle::<MemoryRecord>::decode(&skipped, NONCE), Ok(handle));
    let critical = with_record(&bytes, 0x8123, b"something new");
    let error = Handle::<MemoryRecord>::decode(&critical, NONCE).unwrap_err();
    assert_eq!(error, WireError::UnknownCritical { record: 0x123 });
}

/// What a reader without GPUs skips is exactly the handle's record, and a handle of another length is refused.
#[test]
fn a_handle_of_a_gpu_has_one_length_and_others_skip_it() {
    let (_, bytes) = sample();
    let handle: Vec<u8> = (0..64).map(|i| 3 * i + 1).chain([8, 7, 6, 5, 4, 3, 2, 1]).collect();
    let record = [&[0x05, 0, 72, 0, 0, 0], &handle[..]].concat();
    let at = bytes.windows(record.len()).position(|window| window == record).expect("not critical, 72 bytes");

    let without = |replacement: &[u8]| {
        let body = [&bytes[..at], replacement, &bytes[at + record.len()..bytes.len() - 4]].concat();
        Handle::<MemoryRecord>::decode(&seal(body), NONCE)
    };
    assert_eq!(without(&[]).unwrap().body, MemoryRecord { gpu: None, ..memory() });
    for length in [0u8, 1, 64, 71, 73] {
        let record = [&[0x05, 0, length, 0, 0, 0][..], &vec![1; length.into()]].concat();
        let problem = without(&record).unwrap_err();
        let expected = if length < 72 { "wire.truncated" } else { "wire.record" };
        assert_eq!(problem.id(), expected, "{length}: {problem}");
    }
    // As a fabric handle; beside the other one it comes first.
    let fabric = [&[0x04, 0, 72, 0, 0, 0], &handle[..]].concat();
    let gpu = Some(GpuExport::Fabric {
        handle: handle[..64].try_into().unwrap(),
        allocation: 0x0102_0304_0506_0708,
    });
    let expected = MemoryRecord { gpu, ..memory() };
    let sent = Handle { sequence: 5, label: None, body: expected.clone() }.encode(NONCE).unwrap();
    assert!(sent.windows(fabric.len()).any(|window| window == fabric), "not critical, 72 bytes");
    assert_eq!(without(&fabric).unwrap().body, expected);
    assert_eq!(without(&[&record[..], &fabric].concat()).unwrap().body, expected);
}

#[test]
fn repeated_missing_and_overlong_records_are_refused() {
    let (_, bytes) = sample();
    let repeated = with_record(&bytes, 0x03, &[0; 4]);
    let error = Handle::<MemoryRecord>::decode(&repeated, NONCE).unwrap_err();
    assert_eq!(error, WireError::Record { record: "transports", problem: "repeated" });

    let empty = seal(bytes[..36].to_vec());
    let error = Handle::<MemoryRecord>::decode(&empty, NONCE).unwrap_err();
    assert_eq!(error, WireError::Record { record: "owner", problem: "missing" });

    let overlong = with_record(&empty, 0x800b, &[0; 6]);
    let error = Handle::<MemoryRecord>::decode(&overlong, NONCE).unwrap_err();
    assert_eq!(error, WireError::Record { record: "owner", problem: "longer than its content" });

    // A record that claims more bytes than there are.
    let mut body = empty[..36].to_vec();
    body.extend([0x0b, 0, 9, 0, 0, 0, 1, 2, 3]);
    let error = Handle::<MemoryRecord>::decode(&seal(body), NONCE).unwrap_err();
    assert_eq!(error, WireError::Truncated { what: "record", offset: 6, needed: 9, have: 3 });
}

#[test]
fn ranges_that_no_owner_has_are_refused() {
    let cases = [
        (MemoryRecord { size: 0, ..memory() }, "size"),
        (MemoryRecord { original_address: u64::MAX, ..memory() }, "size"),
        (MemoryRecord { offset: u64::MAX, ..memory() }, "allocation size"),
        (MemoryRecord { allocation_size: 1_000_066, ..memory() }, "allocation size"),
    ];
    for (record, expected) in cases {
        let bytes = Handle { sequence: 0, label: None, body: record }.encode(NONCE).unwrap();
        match Handle::<MemoryRecord>::decode(&bytes, NONCE) {
            Err(WireError::Field { field, .. }) => assert_eq!(field, expected),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn long_call_sites_are_cut_between_characters() {
    let label = Label { tag: 0, call: "ä".repeat(4000) };
    let bytes = Handle { sequence: 0, label: Some(label), body: memory() }.encode(NONCE).unwrap();
    let handle = Handle::<MemoryRecord>::decode(&bytes, NONCE).unwrap();
    assert_eq!(handle.label.unwrap().call, "ä".repeat(512));
}

fn any_device() -> impl Strategy<Value = Device> {
    let kind = prop_oneof![Just(DeviceKind::Unknown), Just(DeviceKind::Cpu), Just(DeviceKind::Gpu)];
    (kind, any::<i32>()).prop_map(|(kind, id)| Device { kind, id })
}

fn any_memory() -> impl Strategy<Value = MemoryRecord> {
    let sizes = (1u64..1 << 48, 0u64..1 << 47, 0u64..1 << 47, 0u64..1 << 47);
    let names = (any::<u32>(), any::<[u64; 2]>(), any_device(), any::<[u8; 16]>());
    let handle =
        proptest::option::of((proptest::collection::vec(any::<u8>(), IPC_HANDLE_BYTES), any::<u64>()));
    let exports = (any::<u32>(), 0u32..16, any::<Option<(u32, u64)>>(), handle, any::<Option<u64>>());
    (sizes, names, exports).prop_map(|((size, address, offset, rest), names, exports)| {
        let (owner, [host, process], device, device_uuid) = names;
        let (transports, access, shared, handle, ethernet) = exports;
        MemoryRecord {
            owner,
            original_address: address,
            size,
            host,
            process,
            device,
            device_uuid,
            offset,
            allocation_size: offset + size + rest,
            transports: TransportFlags::from_bits(transports),
            access: Access::from_bits(access).unwrap(),
            shared: shared.map(|(process_id, descriptor)| SharedExport { process_id, descriptor }),
            gpu: handle.map(|(bytes, allocation)| {
                let handle = bytes.try_into().unwrap();
                match allocation % 2 {
                    0 => GpuExport::Ipc { handle, allocation },
                    _ => GpuExport::Fabric { handle, allocation },
                }
            }),
            ethernet: ethernet.map(|memory_id| EthernetExport { memory_id }),
        }
    })
}

fn any_address() -> impl Strategy<Value = SocketAddr> {
    prop_oneof![
        (any::<[u8; 4]>(), any::<u16>()).prop_map(|(ip, port)| (Ipv4Addr::from(ip), port).into()),
        (any::<[u8; 16]>(), any::<u16>(), any::<[u32; 2]>())
            .prop_map(|(ip, port, [flow, scope])| SocketAddrV6::new(Ipv6Addr::from(ip), port, flow, scope))
            .prop_map(SocketAddr::V6),
    ]
}

fn any_endpoint() -> impl Strategy<Value = Endpoint> {
    let transport = prop_oneof![
        Just(Transport::Unknown),
        Just(Transport::CudaIpc),
        Just(Transport::Ethernet),
        Just(Transport::SharedMemory),
        any::<u16>().prop_map(Transport::Ib),
    ];
    let addresses = proptest::collection::vec(any_address(), 0..=8);
    (any::<u32>(), transport, any_device(), any::<[u64; 3]>(), any::<i32>(), addresses).prop_map(
        |(owner, transport, device, [host, process, id], max_write_queue_size, addresses)| Endpoint {
            owner,
            transport,
            device,
            host,
            process,
            max_write_queue_size,
            addresses,
            id,
        },
    )
}

fn any_semaphore() -> impl Strategy<Value = SemaphoreRecord> {
    (any_memory(), any::<[u64; 3]>()).prop_map(|(memory, [offset, token, connection])| SemaphoreRecord {
        memory,
        offset,
        token,
        connection,
        device: DeviceKind::Cpu,
    })
}

fn any_control() -> impl Strategy<Value = ControlMessage> {
    let slot = || any::<(u64, u64)>().prop_map(|(slot, generation)| SlotId { slot, generation });
    prop_oneof![
        any::<(i32, u64)>().prop_map(|(tag, below)| ControlMessage::Matched { tag, below }),
        (any::<i32>(), any::<u64>(), ".{0,40}")
            .prop_map(|(tag, sequence, call)| ControlMessage::Mismatched { tag, sequence, call }),
        (slot(), any_memory()).prop_map(|(slot, memory)| ControlMessage::Publish { slot, memory }),
        (slot(), proptest::option::of(".{0,40}"))
            .prop_map(|(slot, refusal)| ControlMessage::Acknowledge { slot, refusal }),
        slot().prop_map(|slot| ControlMessage::Withdraw { slot }),
        slot().prop_map(|slot| ControlMessage::Released { slot }),
        any::<u64>().prop_map(|token| ControlMessage::TokenReleased { token }),
    ]
}

fn any_label() -> impl Strategy<Value = Option<Label>> {
    proptest::option::of((any::<i32>(), ".{0,60}").prop_map(|(tag, call)| Label { tag, call }))
}

fn roundtrip<T: Body + Clone + PartialEq + std::fmt::Debug>(
    sequence: u64,
    label: Option<Label>,
    body: T,
    wrap: fn(Handle<T>) -> AnyHandle,
) {
    let handle = Handle { sequence, label, body };
    let bytes = handle.encode(NONCE).unwrap();
    assert_eq!(Handle::decode(&bytes, NONCE), Ok(handle.clone()));
    assert_eq!(AnyHandle::decode(&bytes), Ok((wrap(handle), NONCE)));
}

proptest! {
    #[test]
    fn memory_roundtrip(s in any::<u64>(), l in any_label(), body in any_memory()) {
        roundtrip(s, l, body, AnyHandle::Memory);
    }

    #[test]
    fn endpoint_roundtrip(s in any::<u64>(), l in any_label(), body in any_endpoint()) {
        roundtrip(s, l, body, AnyHandle::Endpoint);
    }

    #[test]
    fn semaphore_roundtrip(s in any::<u64>(), l in any_label(), body in any_semaphore()) {
        roundtrip(s, l, body, AnyHandle::Semaphore);
    }

    #[test]
    fn control_roundtrip(s in any::<u64>(), l in any_label(), body in any_control()) {
        roundtrip(s, l, body, AnyHandle::Control);
    }

    #[test]
    fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(AnyHandle::decode(&bytes).is_err());
    }

    /// Random records behind a valid header and checksum reach every reader.
    #[test]
    fn random_records_never_panic(
        kind in 0u16..8,
        records in proptest::collection::vec((0u16..0x60, proptest::collection::vec(any::<u8>(), 0..60)), 0..12),
        tail in proptest::collection::vec(any::<u8>(), 0..8),
    ) {
        let (_, valid) = sample();
        let mut body = valid[..36].to_vec();
        body[4..6].copy_from_slice(&kind.to_le_bytes());
        for (number, value) in records {
            body.extend(number.to_le_bytes());
            body.extend((value.len() as u32).to_le_bytes());
            body.extend(value);
        }
        body.extend(tail);
        let _ = AnyHandle::decode(&seal(body));
    }
}
