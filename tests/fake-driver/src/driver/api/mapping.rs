//! Virtual memory management: memory, addresses and access as three things.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_ulonglong, c_void};
use std::os::fd::{BorrowedFd, IntoRawFd};

use warpway_cuda_sys::driver_types::*;

use crate::driver::arena::GRANULARITY;
use crate::driver::call::{Answer, driver_functions, get, put};
use crate::driver::config::Fabric;
use crate::driver::physical::{Physical, Ticket};
use crate::driver::region::{Kind, Region};
use crate::driver::state::{State, state};

driver_functions! {
    optional cuMemGetAllocationGranularity = "cuMemGetAllocationGranularity" (
        granularity: *mut usize, properties: *const CUmemAllocationProp, option: CUmemAllocationGranularity_flags_enum,
    ) {
        check(&state(), &get(properties)?)?;
        if option > CU_MEM_ALLOC_GRANULARITY_RECOMMENDED {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        put(granularity, GRANULARITY as usize)
    }

    optional cuMemCreate = "cuMemCreate" (
        handle: *mut CUmemGenericAllocationHandle, size: usize, properties: *const CUmemAllocationProp,
        flags: c_ulonglong,
    ) {
        let mut state = state();
        let properties = get(properties)?;
        let device = check(&state, &properties)?;
        if size == 0 || !whole(size) || flags != 0 || handle.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let memory = state.create(device, size as u64, properties.requestedHandleTypes)?;
        let number = state.fresh();
        state.handles.insert(number, (memory, 1));
        put(handle, number)
    }

    optional cuMemRelease = "cuMemRelease" (handle: CUmemGenericAllocationHandle) {
        let mut state = state();
        let (_, count) = state.handles.get_mut(&handle).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        *count -= 1;
        if *count == 0 {
            state.handles.remove(&handle);
        }
        Ok(())
    }

    /// The wanted address is not taken into account, which the manual allows.
    optional cuMemAddressReserve = "cuMemAddressReserve" (
        pointer: *mut CUdeviceptr, size: usize, alignment: usize, _wanted: CUdeviceptr, flags: c_ulonglong,
    ) {
        let aligned = alignment == 0 || alignment.is_power_of_two();
        if size == 0 || !whole(size) || !aligned || flags != 0 || pointer.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let mut state = state();
        let start = state.arena.take(size as u64, alignment as u64)?;
        state.reservations.insert(start, size as u64);
        put(pointer, start)
    }

    optional cuMemAddressFree = "cuMemAddressFree" (pointer: CUdeviceptr, size: usize) {
        let mut state = state();
        let is_whole = state.reservations.get(&pointer) == Some(&(size as u64));
        if !is_whole || state.regions.within(pointer, pointer + size as u64).next().is_some() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        state.reservations.remove(&pointer);
        Ok(())
    }

    optional cuMemMap = "cuMemMap" (
        pointer: CUdeviceptr, size: usize, offset: usize, handle: CUmemGenericAllocationHandle, flags: c_ulonglong,
    ) {
        let mut state = state();
        let end = pointer.checked_add(size as u64).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let (memory, _) = state.handles.get(&handle).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let is_reserved = state.reservation(pointer).is_some_and(|(_, stop)| end <= stop);
        let is_whole = size > 0 && whole(size) && whole(pointer as usize);
        // The manual: the offset must be zero.
        if !is_whole || !is_reserved || offset != 0 || flags != 0 || state.regions.within(pointer, end).next().is_some() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        if size as u64 > memory.size {
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        let memory = memory.clone();
        let device = state.ordinal(memory.identity.device)?;
        state.arena.back(pointer, size as u64, memory.descriptor())?;
        let kind = Kind::Mapping { memory, access: BTreeMap::new() };
        let buffer = state.fresh();
        state.regions.insert(Region { start: pointer, size: size as u64, buffer, device, kind });
        Ok(())
    }

    /// A range without mappings may be unmapped as well; a mapping may not be cut.
    optional cuMemUnmap = "cuMemUnmap" (pointer: CUdeviceptr, size: usize) {
        let mut state = state();
        let end = pointer.checked_add(size as u64).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let reserved = state.reservation(pointer).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let inside: Vec<(u64, u64)> =
            state.regions.within(pointer, end).map(|region| (region.start, region.end())).collect();
        let cuts_one = inside.iter().any(|(start, stop)| *start < pointer || *stop > end);
        if size == 0 || !whole(size) || end > reserved.1 || cuts_one {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        for (start, stop) in inside {
            state.regions.remove(start);
            state.arena.clear(start, stop - start);
        }
        Ok(())
    }

    optional cuMemSetAccess = "cuMemSetAccess" (
        pointer: CUdeviceptr, size: usize, descriptions: *const CUmemAccessDesc, count: usize,
    ) {
        let mut state = state();
        let covered = mapped(&state, pointer, size)?;
        for at in 0..count {
            if descriptions.is_null() {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            let CUmemAccessDesc_st { location, flags } = get(descriptions.add(at))?;
            let known = [CU_MEM_ACCESS_FLAGS_PROT_NONE, CU_MEM_ACCESS_FLAGS_PROT_READ, CU_MEM_ACCESS_FLAGS_PROT_READWRITE];
            if location.type_ != CU_MEM_LOCATION_TYPE_DEVICE || !known.contains(&flags) {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            let device = state.device(location.id)?;
            for (start, _) in &covered {
                let owner = state.regions.of(*start).map_or(device, |region| region.device);
                if !state.reaches(device, owner) {
                    return Err(CUDA_ERROR_INVALID_DEVICE);
                }
                if let Some(Region { kind: Kind::Mapping { access, .. }, .. }) = state.regions.starting_at(*start)
                    && access.insert(device, flags) == Some(flags)
                {
                    return Err(CUDA_ERROR_ALREADY_MAPPED);
                }
            }
        }
        Ok(())
    }

    optional cuMemExportToShareableHandle = "cuMemExportToShareableHandle" (
        shareable: *mut c_void, handle: CUmemGenericAllocationHandle, kind: CUmemAllocationHandleType_enum,
        flags: c_ulonglong,
    ) {
        let state = state();
        let (memory, _) = state.handles.get(&handle).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let asked_for = memory.identity.shareable & kind != 0;
        if !asked_for || flags != 0 || shareable.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        if kind == CU_MEM_HANDLE_TYPE_FABRIC {
            return put(shareable.cast(), CUmemFabricHandle { data: memory.ticket(FABRIC_MAGIC, memory.size) });
        }
        if kind != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let copy = rustix::io::fcntl_dupfd_cloexec(memory.descriptor(), 0).map_err(|_| CUDA_ERROR_OPERATING_SYSTEM)?;
        // The descriptor belongs to the caller.
        put(shareable.cast::<c_int>(), copy.into_raw_fd())
    }

    /// A descriptor is the pointer itself, and stays the caller's; a fabric handle lies behind the pointer.
    optional cuMemImportFromShareableHandle = "cuMemImportFromShareableHandle" (
        handle: *mut CUmemGenericAllocationHandle, shareable: *mut c_void, kind: CUmemAllocationHandleType_enum,
    ) {
        if handle.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let memory = match kind {
            CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR => {
                let descriptor = c_int::try_from(shareable as isize).ok().filter(|descriptor| *descriptor >= 0);
                let descriptor = descriptor.ok_or(CUDA_ERROR_INVALID_VALUE)?;
                // A closed descriptor is an error of the system calls, not undefined. The real driver knows no better word.
                Physical::import(BorrowedFd::borrow_raw(descriptor)).map_err(|_| CUDA_ERROR_UNKNOWN)?
            }
            CU_MEM_HANDLE_TYPE_FABRIC => {
                permit_fabric(&state())?;
                let CUmemFabricHandle { data } = get(shareable.cast::<CUmemFabricHandle>())?;
                let ticket = Ticket::read(&data, FABRIC_MAGIC).ok_or(CUDA_ERROR_INVALID_VALUE)?;
                ticket.fetch().ok_or(CUDA_ERROR_INVALID_HANDLE)?
            }
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        };
        let mut state = state();
        state.ordinal(memory.identity.device)?;
        let number = state.fresh();
        state.handles.insert(number, (memory.into(), 1));
        put(handle, number)
    }

    optional cuMemRetainAllocationHandle = "cuMemRetainAllocationHandle" (
        handle: *mut CUmemGenericAllocationHandle, address: *mut c_void,
    ) {
        let mut state = state();
        let memory = match state.regions.of(address as u64) {
            Some(Region { kind: Kind::Mapping { memory, .. }, .. }) => memory.clone(),
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        };
        // The same handle as long as there is one, and one count more.
        let known = state.handles.iter_mut().find(|(_, (other, _))| std::sync::Arc::ptr_eq(other, &memory));
        if let Some((number, (_, count))) = known {
            *count += 1;
            return put(handle, *number);
        }
        let number = state.fresh();
        state.handles.insert(number, (memory, 1));
        put(handle, number)
    }

    optional cuMemGetAllocationPropertiesFromHandle = "cuMemGetAllocationPropertiesFromHandle" (
        properties: *mut CUmemAllocationProp, handle: CUmemGenericAllocationHandle,
    ) {
        let state = state();
        let (memory, _) = state.handles.get(&handle).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let id = state.ordinal(memory.identity.device)? as c_int;
        put(properties, CUmemAllocationProp {
            type_: CU_MEM_ALLOCATION_TYPE_PINNED,
            // What the maker asked for is not told with what it shares.
            requestedHandleTypes: if memory.imported { CU_MEM_HANDLE_TYPE_NONE } else { memory.identity.shareable },
            location: CUmemLocation { type_: CU_MEM_LOCATION_TYPE_DEVICE, id },
            ..CUmemAllocationProp::default()
        })
    }
}

const FABRIC_MAGIC: &[u8; 8] = b"fakefab1";

fn whole(size: usize) -> bool {
    (size as u64).is_multiple_of(GRANULARITY)
}

/// The ordinal of the device on which memory of these properties is to be made.
fn check(state: &State, properties: &CUmemAllocationProp) -> Answer<usize> {
    if properties.type_ != CU_MEM_ALLOCATION_TYPE_PINNED
        || properties.location.type_ != CU_MEM_LOCATION_TYPE_DEVICE
    {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let device = state.device(properties.location.id)?;
    let kinds = properties.requestedHandleTypes;
    let known = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR | CU_MEM_HANDLE_TYPE_FABRIC;
    let descriptors = kinds & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR != 0;
    if kinds & !known != 0 || descriptors && !state.config.descriptors {
        return Err(CUDA_ERROR_NOT_SUPPORTED);
    }
    if kinds & CU_MEM_HANDLE_TYPE_FABRIC != 0 {
        permit_fabric(state)?;
    }
    Ok(device)
}

fn permit_fabric(state: &State) -> Answer {
    match state.config.fabric {
        Fabric::Works => Ok(()),
        // The hardware could, but nobody has set up the domain.
        Fabric::Claimed => Err(CUDA_ERROR_NOT_PERMITTED),
        Fabric::None => Err(CUDA_ERROR_NOT_SUPPORTED),
    }
}

/// The mappings, first address and size, that a range consists of. It must begin and end with one, without a gap.
fn mapped(state: &State, start: u64, size: usize) -> Answer<Vec<(u64, u64)>> {
    let end = start.checked_add(size as u64).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let mut reached = start;
    let mut found = Vec::new();
    for region in state.regions.within(start, end) {
        if region.start != reached || !matches!(region.kind, Kind::Mapping { .. }) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        reached = region.end();
        found.push((region.start, region.size));
    }
    if reached == end && size > 0 { Ok(found) } else { Err(CUDA_ERROR_INVALID_VALUE) }
}
