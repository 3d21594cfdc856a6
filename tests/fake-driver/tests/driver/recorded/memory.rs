//! Memory: piece by piece, in one piece, of the host; what is known of it, and how it leaves the process.

use std::ffi::c_void;
use std::os::fd::AsRawFd as _;
use std::ptr::null_mut;

use warpway_cuda_sys::driver_types::*;

use super::replay::{GRANULE, Replay, create, properties};
use crate::{call, optional};

pub(super) fn all(replay: &mut Replay<'_>) {
    let handle = mapping(replay);
    allocation(replay, handle);
    sharing(replay, handle);
    host(replay);
}

/// The handle of the memory that is mapped twice.
fn mapping(replay: &mut Replay<'_>) -> u64 {
    let d = replay.driver;
    let (mut unit, mut handle, mut reserved, mut other) = (0, 0, 0, 0);
    let wanted = properties();
    let granularity = optional!(d, cuMemGetAllocationGranularity(&raw mut unit, &raw const wanted, 0));
    replay.say("gran", granularity);
    replay.value(unit);
    replay.say("createodd", create(d, &mut handle, 4096));
    replay.say("create", create(d, &mut handle, GRANULE));
    replay.say("res", optional!(d, cuMemAddressReserve(&raw mut reserved, 4 * GRANULE, 0, 0, 0)));
    replay.say("resodd", optional!(d, cuMemAddressReserve(&raw mut other, 4096, 0, 0, 0)));
    replay.reserved = reserved;
    let at = |granules: u64| reserved + granules * GRANULE as u64;
    let map = |address, bytes| optional!(d, cuMemMap(address, bytes, 0, handle, 0));
    replay.say("map", map(at(0), GRANULE));
    replay.say("map2", map(at(0), GRANULE));
    replay.say("mapodd", map(at(1) + 4096, GRANULE));
    replay.say("mapbig", map(at(1), 2 * GRANULE));
    replay.say("mapout", map(at(8), GRANULE));
    let access =
        CUmemAccessDesc { location: properties().location, flags: CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
    replay.say("acc", optional!(d, cuMemSetAccess(at(0), GRANULE, &raw const access, 1)));
    replay.say("accunm", optional!(d, cuMemSetAccess(at(2), GRANULE, &raw const access, 1)));
    replay.say("freemapped", optional!(d, cuMemAddressFree(at(0), 4 * GRANULE)));
    replay.say("map b", map(at(1), GRANULE));
    let mut context = null_mut();
    replay.say("ret", call!(d, cuDevicePrimaryCtxRetain(&raw mut context, 0)));
    replay.context = context;
    replay.say("setcur", call!(d, cuCtxSetCurrent(context)));
    replay.attributes("vmm", at(0) + 64);
    replay.range("vmm", at(0) + 64);
    replay.range("vmm2", at(1) + 64);
    replay.attributes("noacc", at(1));
    replay.attributes("resonly", at(2));
    replay.range("resonly", at(2));
    let mut bytes = vec![0u8; 2 * GRANULE];
    let mut read =
        |from, count| call!(d, cuMemcpyDtoHAsync(bytes.as_mut_ptr().cast(), from, count, null_mut()));
    replay.say("cpnoacc", read(at(1), 8));
    replay.say("cpspan", read(at(0) + 64, GRANULE));
    replay.say("cpbad", read(4096, 8));
    replay.say("sync", call!(d, cuCtxSynchronize()));
    handle
}

fn allocation(replay: &mut Replay<'_>, mapped: u64) {
    let d = replay.driver;
    let mut address = 0;
    replay.say("alloc0", call!(d, cuMemAlloc(&raw mut address, 0)));
    replay.say("alloc", call!(d, cuMemAlloc(&raw mut address, 1000)));
    replay.attributes("mal", address + 8);
    replay.range("mal", address + 8);
    replay.range("bad", 4096);
    replay.range("end", address + 1000);
    let mut bytes = [0u8; 4096];
    let mut read =
        |from, count| call!(d, cuMemcpyDtoHAsync(bytes.as_mut_ptr().cast(), from, count, null_mut()));
    replay.say("cpend", read(address + 500, 1000));
    replay.say("cp0", read(address, 0));
    replay.say("set end", call!(d, cuMemsetD8Async(address, 0, 1001, null_mut())));
    replay.say("d32odd", call!(d, cuMemsetD32Async(address + 1, 0, 1, null_mut())));

    let (mut handle, mut other, mut opened) = (CUipcMemHandle::default(), CUipcMemHandle::default(), 0);
    replay.say("ipcget", call!(d, cuIpcGetMemHandle(&raw mut handle, address)));
    replay.say("ipcmid", call!(d, cuIpcGetMemHandle(&raw mut other, address + 8)));
    replay.say("ipcvmm", call!(d, cuIpcGetMemHandle(&raw mut other, replay.reserved)));
    replay.say("ipcsame", call!(d, cuIpcOpenMemHandle(&raw mut opened, handle, 1)));
    replay.say("ipczero", call!(d, cuIpcOpenMemHandle(&raw mut opened, CUipcMemHandle::default(), 1)));
    replay.say("ipcflag0", call!(d, cuIpcOpenMemHandle(&raw mut opened, handle, 0)));
    replay.say("ipcclosebad", call!(d, cuIpcCloseMemHandle(address)));
    let mut retained = 0;
    replay.say(
        "retalloc",
        optional!(d, cuMemRetainAllocationHandle(&raw mut retained, address as *mut c_void)),
    );
    let inside = replay.reserved + 8;
    replay.say("retvmm", optional!(d, cuMemRetainAllocationHandle(&raw mut retained, inside as *mut c_void)));
    replay.value(if retained == mapped { "True" } else { "False" });
    replay.say("freemid", call!(d, cuMemFree(address + 8)));
    replay.say("freevmm", call!(d, cuMemFree(replay.reserved)));
    replay.say("free", call!(d, cuMemFree(address)));
    replay.say("free2", call!(d, cuMemFree(address)));
    replay.attributes("freed", address);
}

fn sharing(replay: &mut Replay<'_>, handle: u64) {
    let d = replay.driver;
    let (mut descriptor, mut fabric, mut imported) = (-1, CUmemFabricHandle::default(), 0);
    let export = |to, kind| optional!(d, cuMemExportToShareableHandle(to, handle, kind, 0));
    replay.say("exp", export((&raw mut descriptor).cast(), CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    replay.say("expfab", export((&raw mut fabric).cast(), CU_MEM_HANDLE_TYPE_FABRIC));
    let import = |to, number: i32| {
        let number = std::ptr::without_provenance_mut(number as usize);
        optional!(d, cuMemImportFromShareableHandle(to, number, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR))
    };
    replay.say("imp", import(&raw mut imported, descriptor));
    replay.value(if imported == handle { "True" } else { "False" });
    let mut other = 0;
    // No process of a test has so many files open.
    replay.say("impbad", import(&raw mut other, 777));
    let nothing = std::fs::File::open("/dev/null").unwrap();
    replay.say("impnull", import(&raw mut other, nothing.as_raw_fd()));
    let mut found = CUmemAllocationProp::default();
    replay.say("props", optional!(d, cuMemGetAllocationPropertiesFromHandle(&raw mut found, imported)));
    let location = found.location;
    replay.value(format!(
        "({}, {}, {}, {})",
        found.type_, found.requestedHandleTypes, location.type_, location.id
    ));
    replay.say("rel m", optional!(d, cuMemRelease(imported)));
    replay.say("rel k", optional!(d, cuMemRelease(handle)));
    replay.say("rel x", optional!(d, cuMemRelease(handle)));
    replay.say("rel x2", optional!(d, cuMemRelease(handle)));
    let (start, all) = (replay.reserved, 4 * GRANULE);
    replay.say("unmaphalf", optional!(d, cuMemUnmap(start, GRANULE / 2)));
    replay.say("unmap2", optional!(d, cuMemUnmap(start, 2 * GRANULE)));
    replay.say("unmapagain", optional!(d, cuMemUnmap(start, GRANULE)));
    replay.say("afpart", optional!(d, cuMemAddressFree(start, GRANULE)));
    replay.say("af", optional!(d, cuMemAddressFree(start, all)));
    replay.say("af2", optional!(d, cuMemAddressFree(start, all)));
}

/// The registered memory began so far into a page.
const INTO_PAGE: usize = 0xcb0;
const PAGE: usize = 4096;

fn host(replay: &mut Replay<'_>) {
    let d = replay.driver;
    let mut pinned = null_mut::<c_void>();
    replay.say("halloc", call!(d, cuMemHostAlloc(&raw mut pinned, 100, 3)));
    replay.attributes("host", pinned as u64 + 8);
    replay.range("host", pinned as u64);
    let (mut device, mut buffer) = (0, [0u8; 64]);
    let ordinary: *mut c_void = buffer.as_mut_ptr().cast();
    replay.say("hdev", call!(d, cuMemHostGetDevicePointer(&raw mut device, pinned, 0)));
    replay.say("hregown", call!(d, cuMemHostRegister(pinned, 64, 3)));
    replay.say("hdevbad", call!(d, cuMemHostGetDevicePointer(&raw mut device, ordinary, 0)));
    replay.say("hfreemid", call!(d, cuMemFreeHost(pinned.wrapping_byte_add(8))));

    let bytes = 1 << 16;
    let mut room = vec![0u8; bytes + 2 * PAGE];
    let skipped = room.as_ptr().align_offset(PAGE) + INTO_PAGE;
    let memory: *mut c_void = room[skipped..].as_mut_ptr().cast();
    replay.say("reg", call!(d, cuMemHostRegister(memory, bytes, 3)));
    replay.say("reg2", call!(d, cuMemHostRegister(memory, 100, 3)));
    replay.attributes("reg", memory as u64 + 5);
    replay.say("freereg", call!(d, cuMemFreeHost(memory)));
    replay.say("unreg", call!(d, cuMemHostUnregister(memory)));
    replay.say("unreg2", call!(d, cuMemHostUnregister(memory)));
    replay.say("unregalloc", call!(d, cuMemHostUnregister(pinned)));
    replay.say("hfree", call!(d, cuMemFreeHost(pinned)));
    replay.say("hfree2", call!(d, cuMemFreeHost(pinned)));
    replay.attributes("stack", ordinary as u64);
}
