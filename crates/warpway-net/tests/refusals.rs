//! What a receiver refuses, and that nothing else suffers from it.
#![allow(clippy::unwrap_used, reason = "test code, which the lint does not recognise outside of #[test]")]

mod ranks;

use ranks::{Pair, bytes, eventually, fill, import, imported, limit, memory_id};
use warpway_core::ErrorCode;
use warpway_core::connection::Connection;
use warpway_core::engine::Engine;
use warpway_core::memory::{Access, EthernetExport, MemoryRecord, RegisteredMemory};
use warpway_core::token::TOKEN_BYTES;

/// A pair with a memory of 4096 bytes at rank 1, and a lie about it.
struct Case {
    pair: Pair,
    ends: [Connection; 2],
    source: RegisteredMemory,
    target: RegisteredMemory,
}

impl Case {
    fn new(access: Access) -> Self {
        let pair = Pair::new();
        let source = pair.ranks[0].memory(8 << 20, Access::ALL);
        fill(&source, |_| 1);
        let target = pair.ranks[1].memory(4096, access);
        let ends = pair.connect();
        Self { pair, ends, source, target }
    }

    /// The operation is refused with these words; nothing has changed at the target, the other direction
    /// and other connections work, no communicator has failed, and the connection stays failed.
    fn assert_refused(&self, words: &str, post: impl FnOnce(&Connection)) {
        let [here, there] = &self.ends;
        post(here);
        let error = here.flush(limit()).unwrap_err();
        assert_eq!(
            (error.id(), error.code(), error.peer()),
            ("conn.refused", ErrorCode::RemoteError, Some(1))
        );
        assert!(error.to_string().contains(words), "{error}");
        let again = here.write(&imported(&self.target, larger), 0, &self.source, 0, 1).unwrap_err();
        assert_eq!(again.id(), "conn.refused");
        assert!(bytes(&self.target).iter().all(|b| *b == 0));
        let back = self.pair.ranks[0].memory(64, Access::ALL);
        there.atomic_add(&import(&back), 8, 5).unwrap();
        there.flush(limit()).unwrap();
        assert_eq!(bytes(&back)[8], 5);
        let [other, _keep] = self.pair.connect();
        let sound = self.pair.ranks[1].memory(64, Access::ALL);
        other.write(&import(&sound), 0, &self.source, 0, 64).unwrap();
        other.flush(limit()).unwrap();
        assert_eq!(bytes(&sound), [1; 64]);
        self.pair.assert_healthy();
    }
}

fn larger(record: &mut MemoryRecord) {
    record.size = u64::MAX;
    record.access = Access::ALL;
}

#[test]
fn a_write_that_ends_beyond_the_memory() {
    let case = Case::new(Access::ALL);
    let lie = imported(&case.target, larger);
    case.assert_refused("outside the memory", |here| {
        here.write(&lie, 4090, &case.source, 0, 7).unwrap();
    });
}

#[test]
fn a_long_write_that_begins_inside_is_refused_before_its_first_byte() {
    let case = Case::new(Access::ALL);
    let lie = imported(&case.target, larger);
    case.assert_refused("8388608 bytes", |here| {
        here.write(&lie, 0, &case.source, 0, 8 << 20).unwrap();
        // Behind the refused one: must not be applied.
        let _ = here.write(&lie, 0, &case.source, 0, 8);
    });
}

#[test]
fn an_offset_near_the_end_of_the_address_space() {
    let case = Case::new(Access::ALL);
    let lie = imported(&case.target, larger);
    case.assert_refused("outside the memory", |here| {
        here.write(&lie, u64::MAX - 8, &case.source, 0, 8).unwrap();
    });
}

#[test]
fn words_outside_and_misaligned() {
    let case = Case::new(Access::ALL);
    let lie = imported(&case.target, larger);
    case.assert_refused("outside the memory", |here| {
        here.atomic_add(&lie, 4096, 1).unwrap();
    });
    let case = Case::new(Access::ALL);
    // A record whose address is odd passes the sender's check with an offset that is odd too.
    let lie = imported(&case.target, |record| record.original_address += 4);
    case.assert_refused("not 8-byte aligned", |here| {
        here.update_and_sync(&lie, 4, &mut 0, 1).unwrap();
    });
}

#[test]
fn access_that_the_owner_did_not_give() {
    let case = Case::new(Access::READ);
    let lie = imported(&case.target, larger);
    case.assert_refused("not exported for this kind of access", |here| {
        here.write(&lie, 0, &case.source, 0, 8).unwrap();
    });
    let case = Case::new(Access::WRITE);
    let lie = imported(&case.target, larger);
    case.assert_refused("not exported for this kind of access", |here| {
        here.atomic_add(&lie, 0, 1).unwrap();
    });
}

#[test]
fn words_of_a_token_that_are_not_its_counter() {
    let case = Case::new(Access::ALL | Access::TOKENS);
    let remote = import(&case.target);
    case.assert_refused("not the counter of a token", |here| {
        here.atomic_add(&remote, TOKEN_BYTES + 8, 1).unwrap();
    });
}

#[test]
fn a_number_that_is_stale_or_was_never_given() {
    let case = Case::new(Access::ALL);
    let gone = case.pair.ranks[1].memory(4096, Access::ALL);
    let stale = import(&gone);
    drop(gone);
    // The slot is used again, with the next generation.
    let successor = case.pair.ranks[1].memory(4096, Access::ALL);
    assert_eq!(memory_id(&stale) as u32, memory_id(&successor) as u32);
    assert_ne!(memory_id(&stale), memory_id(&successor));
    case.assert_refused("no memory with this id", |here| {
        here.write(&stale, 0, &case.source, 0, 8).unwrap();
    });
    assert!(bytes(&successor).iter().all(|b| *b == 0));
    for id in [u64::MAX, 0, 1 << 32 | 77] {
        let case = Case::new(Access::ALL);
        let lie = imported(&case.target, |record| record.ethernet = Some(EthernetExport { memory_id: id }));
        case.assert_refused("no memory with this id", |here| {
            here.write(&lie, 0, &case.source, 0, 0).unwrap();
        });
    }
}

#[test]
fn memory_withdrawn_while_bytes_arrive_is_not_touched_afterwards() {
    const SIZE: u64 = 64 << 20;
    let pair = Pair::new();
    let source = pair.ranks[0].memory(SIZE, Access::ALL);
    fill(&source, |_| 7);
    let target = pair.ranks[1].memory(SIZE, Access::ALL);
    let (region, remote) = (target.region().unwrap().clone(), import(&target));
    let [here, _there] = pair.connect();
    // SAFETY: the region lives; a racing read of a byte that the kernel writes is what is being tested.
    let byte = |offset: u64| unsafe { region.address().add(offset as usize).read_volatile() };
    for _ in 0..8 {
        here.write(&remote, 0, &source, 0, SIZE).unwrap();
    }
    eventually("the first byte", || byte(0) == 7);
    drop(target);
    // From here on the owner may use the bytes for something else.
    let settled: Vec<u8> = (0..SIZE).step_by(4096).map(byte).collect();
    let error = here.flush(limit()).unwrap_err();
    assert_eq!(error.id(), "conn.refused");
    let later: Vec<u8> = (0..SIZE).step_by(4096).map(byte).collect();
    assert!(settled == later);
    pair.assert_healthy();
}

#[test]
fn gpu_memory_and_records_without_tcp_are_refused_at_once() {
    use warpway_core::memory::Region;
    use warpway_core::transport::{Device, DeviceKind};
    let pair = Pair::new();
    let rank = &pair.ranks[0];
    let host = warpway_core::testing::allocate(4096).unwrap();
    let device = Device { kind: DeviceKind::Gpu, id: 0 };
    // SAFETY: the host memory is kept by `host`; it only claims to be on a GPU.
    let gpu = unsafe { Region::new(host.address(), 4096, device, None, None) }.unwrap();
    let error = rank.engine.export(&rank.context, &gpu, Access::ALL).err().unwrap();
    assert_eq!(error.id(), "mem.export");
    let memory = rank.memory(4096, Access::ALL);
    let record = MemoryRecord { ethernet: None, ..memory.record().clone() };
    let error = rank.engine.import(&rank.context, &record, limit()).err().unwrap();
    assert_eq!(error.id(), "mem.import");
}
