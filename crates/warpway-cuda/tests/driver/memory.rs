//! Allocations, exports and imports.

use std::os::fd::AsFd as _;

use warpway_core::memory::MemoryError;
use warpway_core::{Error, ErrorCode};
use warpway_cuda::{
    Context, DeviceMemory, ExportKinds, Foreign, ForeignKind, ImportedMemory, PinnedMemory, Stream, copy,
    copy_from_host, copy_to_host,
};
use warpway_cuda_sys::driver_types::{
    CU_MEM_ACCESS_FLAGS_PROT_READWRITE, CU_MEM_ALLOCATION_TYPE_PINNED,
    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, CU_MEM_LOCATION_TYPE_DEVICE, CUDA_ERROR_OUT_OF_MEMORY,
    CUmemAccessDesc, CUmemAllocationProp, CUmemLocation,
};

use super::{soon, start};

fn write(stream: &Stream, address: u64, data: &[u32]) {
    // SAFETY: the tests give ranges of live memory.
    unsafe { copy_from_host(stream, address, data).unwrap() };
    stream.synchronize(soon()).unwrap();
}

fn read(stream: &Stream, address: u64, count: usize) -> Vec<u32> {
    let mut data = vec![0; count];
    // SAFETY: as above.
    unsafe { copy_to_host(stream, &mut data, address).unwrap() };
    stream.synchronize(soon()).unwrap();
    data
}

fn numbers(count: u32) -> Vec<u32> {
    (0..count).map(|i| i.wrapping_mul(2_654_435_761)).collect()
}

#[test]
fn an_export_is_the_same_memory() {
    let (fake, _, context) = start("devices=1");
    let stream = Stream::new(&context).unwrap();
    for bytes in [4u64, 4 * 17, 4 << 20] {
        let memory = DeviceMemory::allocate(&context, bytes, &[]).unwrap();
        let region = memory.region().unwrap();
        assert_eq!((region.size(), region.device()), (bytes, context.device()));
        let backing = region.backing().unwrap().clone();
        assert!(backing.allocation_size >= bytes);
        // Exported once, however often it is asked for.
        assert!(std::sync::Arc::ptr_eq(
            &backing.descriptor,
            &memory.region().unwrap().backing().unwrap().descriptor
        ));
        let there =
            ImportedMemory::from_descriptor(&context, backing.descriptor.as_fd(), backing.allocation_size)
                .unwrap();
        assert_ne!(there.address(), memory.address());
        let data = numbers((bytes / 4) as u32);
        write(&stream, memory.address(), &data);
        assert_eq!(read(&stream, there.address(), data.len()), data);
        // Ranges are checked, and keep the mapping.
        let range = there.region(4, bytes - 4);
        assert_eq!(range.is_ok(), bytes > 4);
        let error = there.region(backing.allocation_size, 1).unwrap_err();
        assert_eq!(error.id(), "mem.bounds");
        assert_eq!(there.region(1, u64::MAX).unwrap_err().id(), "mem.bounds");
        drop((memory, region, backing, there));
        if let Ok(range) = range {
            let address = range.address().as_ptr() as u64;
            assert_eq!(read(&stream, address, 1), data[1..2]);
        }
    }
    drop((stream, context));
    assert_eq!(fake.live().total(), 0);
}

#[test]
fn peers_in_the_process_reach_both_kinds() {
    let (fake, driver, first) = start("devices=2,peers=all");
    let second = Context::primary(&driver, 1).unwrap();
    let stream = Stream::new(&second).unwrap();
    for plain in [false, true] {
        let memory = match plain {
            true => DeviceMemory::plain(&first, 4096, &[&second]).unwrap(),
            false => DeviceMemory::allocate(&first, 4096, &[&second]).unwrap(),
        };
        let own = DeviceMemory::allocate(&second, 4096, &[]).unwrap();
        let data = numbers(1024);
        write(&stream, own.address(), &data);
        // SAFETY: both ranges are live, and the second device may write to the first.
        unsafe { copy(&stream, memory.address(), own.address(), 4096).unwrap() };
        assert_eq!(read(&stream, memory.address(), 1024), data);
    }
    drop((stream, first, second));
    assert_eq!(fake.live().total(), 0);
}

#[test]
fn without_peer_access_the_two_devices_are_named() {
    let (_fake, driver, first) = start("devices=2,peers=none");
    let second = Context::primary(&driver, 1).unwrap();
    let error = DeviceMemory::allocate(&first, 4096, &[&second]).unwrap_err();
    let text = error.to_string();
    assert_eq!(error.id(), "gpu.device");
    assert!(
        text.contains("reaching the memory of device 0: device 1") && text.contains("port channel"),
        "{text}"
    );
}

#[test]
fn without_descriptors_allocations_are_plain() {
    let (fake, _, context) = start("devices=1,descriptors=no");
    let memory = DeviceMemory::allocate(&context, 100, &[]).unwrap();
    assert!(memory.region().unwrap().backing().is_none());
    let found = Foreign::find(&context, memory.address() + 10, 90).unwrap();
    assert_eq!((found.base, found.device, found.kind), (memory.address(), 0, ForeignKind::Ipc));
    assert!(found.bytes >= 100);
    let handle = found.export_ipc(&context).unwrap();
    let error = found.export_descriptor(&context).unwrap_err().to_string();
    assert!(error.contains("exported by CUDA IPC"), "{error}");
    // The driver opens handles of other processes only.
    let error = ImportedMemory::from_ipc_handle(&context, &handle, found.bytes).unwrap_err().to_string();
    assert!(error.contains("opening an IPC handle"), "{error}");
    drop((memory, context));
    assert_eq!(fake.live().total(), 0);
}

#[test]
fn pointers_of_others_are_looked_up_and_checked() {
    let (fake, _, context) = start("devices=1");
    let memory = DeviceMemory::allocate(&context, 3 << 20, &[]).unwrap();
    let address = memory.address();
    let found = Foreign::find(&context, address + 4097, 100).unwrap();
    assert_eq!((found.base, found.kind), (address, ForeignKind::Descriptor));
    let descriptor = found.export_descriptor(&context).unwrap();
    let there = ImportedMemory::from_descriptor(&context, descriptor.as_fd(), found.bytes).unwrap();
    let stream = Stream::new(&context).unwrap();
    write(&stream, address, &numbers(10));
    assert_eq!(read(&stream, there.address(), 10), numbers(10));
    // Beyond the end, on the host, nowhere, freed.
    let error = Foreign::find(&context, address + 4096, found.bytes).unwrap_err();
    assert!(matches!(error, Error::Memory(MemoryError::OutOfBounds { offset: 4096, .. })), "{error}");
    let pinned = PinnedMemory::allocate(&context, 4096).unwrap();
    let error = Foreign::find(&context, pinned.address(), 1).unwrap_err().to_string();
    assert!(error.contains("host memory"), "{error}");
    assert_eq!(Foreign::find(&context, 0x1000, 1).unwrap_err().id(), "mem.invalid");
    drop((memory, there));
    let error = Foreign::find(&context, address, 1).unwrap_err().to_string();
    assert!(error.contains("has it been freed?"), "{error}");
    drop((pinned, stream, context));
    assert_eq!(fake.live().total(), 0);
}

/// As PyTorch makes a segment that can grow: pieces that are mapped side by side.
#[test]
fn a_range_of_several_pieces_is_refused_by_that_name() {
    const PIECE: usize = 2 << 20;
    let (fake, _, context) = start("devices=1");
    let entered = context.enter().unwrap();
    let table = fake.driver();
    let location = CUmemLocation { type_: CU_MEM_LOCATION_TYPE_DEVICE, id: 0 };
    let properties = CUmemAllocationProp {
        type_: CU_MEM_ALLOCATION_TYPE_PINNED,
        requestedHandleTypes: CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        location,
        ..CUmemAllocationProp::default()
    };
    let access = CUmemAccessDesc { location, flags: CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
    let mut base = 0;
    // SAFETY: numbers, and structures that live on; addresses are the fake's own.
    unsafe {
        assert_eq!(table.cuMemAddressReserve.unwrap()(&raw mut base, 3 * PIECE, 0, 0, 0), 0);
        for at in [base, base + PIECE as u64] {
            let mut handle = 0;
            assert_eq!(table.cuMemCreate.unwrap()(&raw mut handle, PIECE, &raw const properties, 0), 0);
            assert_eq!(table.cuMemMap.unwrap()(at, PIECE, 0, handle, 0), 0);
            assert_eq!(table.cuMemRelease.unwrap()(handle), 0);
        }
        assert_eq!(table.cuMemSetAccess.unwrap()(base, 2 * PIECE, &raw const access, 1), 0);
    }
    let second = Foreign::find(&context, base + PIECE as u64 + 5, 10).unwrap();
    assert_eq!((second.base, second.bytes), (base + PIECE as u64, PIECE as u64));
    let error = Foreign::find(&context, base + 5, PIECE as u64).unwrap_err();
    assert_eq!(error.id(), "mem.invalid");
    assert!(error.to_string().contains("expandable segments"), "{error}");
    // Nothing is behind the second one.
    assert_eq!(
        Foreign::find(&context, base + PIECE as u64, PIECE as u64 + 1).unwrap_err().id(),
        "mem.bounds"
    );
    // SAFETY: as above.
    unsafe {
        assert_eq!(table.cuMemUnmap.unwrap()(base, 2 * PIECE), 0);
        assert_eq!(table.cuMemAddressFree.unwrap()(base, 3 * PIECE), 0);
    }
    drop(entered);
    drop(context);
    assert_eq!(fake.live().total(), 0);
}

#[test]
fn impossible_sizes_are_errors() {
    let (fake, _, context) = start("devices=1,memory=16777216");
    for allocate in [DeviceMemory::allocate, DeviceMemory::plain] {
        let error = allocate(&context, 1 << 40, &[]).unwrap_err();
        assert_eq!((error.id(), error.code()), ("gpu.driver", ErrorCode::SystemError));
        assert!(error.to_string().contains("free device memory"), "{error}");
        assert!(allocate(&context, u64::MAX, &[]).is_err());
    }
    assert_eq!(DeviceMemory::allocate(&context, 0, &[]).unwrap_err().id(), "mem.invalid");
    assert_eq!(PinnedMemory::allocate(&context, 0).unwrap_err().id(), "mem.invalid");
    // What is no export.
    let file = std::fs::File::open("/dev/null").unwrap();
    let error = ImportedMemory::from_descriptor(&context, file.as_fd(), 4096).unwrap_err();
    assert_eq!(error.id(), "gpu.driver");
    drop(context);
    assert_eq!(fake.live().total(), 0);
}

#[test]
fn pinned_memory_is_zeroed_and_common() {
    let (fake, _, context) = start("devices=1");
    let pinned = PinnedMemory::allocate(&context, 4096).unwrap();
    let stream = Stream::new(&context).unwrap();
    assert_eq!(read(&stream, pinned.address(), 1024), vec![0; 1024]);
    write(&stream, pinned.address(), &numbers(1024));
    // SAFETY: 4096 bytes, aligned to pages; nobody writes any more.
    let seen = unsafe { std::slice::from_raw_parts(pinned.host().as_ptr().cast::<u32>(), 1024) };
    assert_eq!(seen, numbers(1024));
    drop((pinned, stream, context));
    assert_eq!(fake.live().total(), 0);
}

#[test]
fn ways_of_export_are_tried_and_nothing_stays() {
    let (fake, _driver, context) = start("devices=1,fabric=claimed");
    let before = fake.live();
    let kinds = ExportKinds::probe(&context);
    kinds.descriptor.unwrap();
    kinds.ipc.unwrap();
    let refused = kinds.fabric.unwrap_err().to_string();
    assert!(refused.contains("CUDA_ERROR_NOT_PERMITTED"), "{refused}");
    for (call, of_descriptors) in [
        ("cuMemCreate", true),
        ("cuMemExportToShareableHandle", true),
        ("cuMemImportFromShareableHandle", true),
        ("cuMemMap", true),
        ("cuMemSetAccess", true),
        ("cuMemAlloc", false),
        ("cuIpcGetMemHandle", false),
    ] {
        fake.fail(call, 1, 999);
        let kinds = ExportKinds::probe(&context);
        let (failed, other) = match of_descriptors {
            true => (kinds.descriptor, kinds.ipc),
            false => (kinds.ipc, kinds.descriptor),
        };
        assert!(failed.unwrap_err().to_string().contains(&format!("{call} failed")), "{call}");
        other.unwrap();
        assert_eq!(fake.live(), before, "{call}");
    }
}

#[test]
fn memory_is_made_for_the_fabric_where_that_works() {
    let (fake, driver, context) = start("devices=1,fabric=works");
    assert!(ExportKinds::probe(&context).fabric.is_ok());
    let stream = Stream::new(&context).unwrap();
    let memory = DeviceMemory::allocate(&context, 4096, &[]).unwrap();
    write(&stream, memory.address(), &[1, 2, 3]);
    let found = Foreign::find(&context, memory.address(), 4096).unwrap();
    assert_eq!((found.kind, found.fabric), (ForeignKind::Descriptor, true));
    let handle = found.export_fabric(&context).unwrap();
    let imported = ImportedMemory::from_fabric_handle(&context, &handle, found.bytes).unwrap();
    assert_eq!(read(&stream, imported.address(), 3), [1, 2, 3]);
    let error = ImportedMemory::from_fabric_handle(&context, &[7; 64], 4096).unwrap_err().to_string();
    let words = "importing 4096 bytes from the fabric (device 0): cuMemImportFromShareableHandle failed";
    assert!(error.contains(words), "{error}");
    // Memory that runs out says nothing of the fabric.
    fake.fail("cuMemCreate", 1, CUDA_ERROR_OUT_OF_MEMORY);
    assert!(DeviceMemory::allocate(&context, 4096, &[]).is_err());
    let later = DeviceMemory::allocate(&context, 4096, &[]).unwrap();
    assert!(Foreign::find(&context, later.address(), 4096).unwrap().fabric);
    drop((memory, later, imported, stream, context, driver));
    assert_eq!(fake.live().total(), 0);
}

/// Devices claim fabric handles also where no domain is set up.
#[test]
fn memory_that_the_fabric_refuses_is_made_without_it() {
    let (fake, driver, context) = start("devices=1,fabric=claimed");
    fake.calls();
    let memories = [1, 2].map(|_| DeviceMemory::allocate(&context, 4096, &[]).unwrap());
    for memory in &memories {
        let found = Foreign::find(&context, memory.address(), 4096).unwrap();
        assert_eq!((found.kind, found.fabric), (ForeignKind::Descriptor, false));
        assert!(memory.region().unwrap().backing().is_some());
    }
    let calls = fake.calls();
    let asked: Vec<_> = calls.iter().filter(|call| call.starts_with("cuMemGetAllocationG")).collect();
    assert_eq!(
        asked,
        [
            "cuMemGetAllocationGranularity 800",
            "cuMemGetAllocationGranularity 0",
            "cuMemGetAllocationGranularity 0"
        ]
    );
    drop((memories, context, driver));
    assert_eq!(fake.live().total(), 0);
}
