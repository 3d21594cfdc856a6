//! One mapped memfd: allocated here, or received from a peer.

use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{Advice, MapFlags, ProtFlags};
use warpway_core::memory::{Backing, MemoryError, MemoryRecord, Region};
use warpway_core::transport::Device;
use warpway_core::{Result, SystemError};

/// From this size on huge pages are asked for.
const HUGE_PAGE: u64 = 2 << 20;

/// Sizes are fixed for the life of the file, so that no process can make another one's access fault.
const SIZE_SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);

/// A shared, readable and writable mapping of a whole memfd; unmapped when dropped.
#[derive(Debug)]
pub(crate) struct Mapping {
    address: NonNull<u8>,
    size: u64,
}

// SAFETY: the mapping is an address and a length; it is accessed by raw copies and atomics only.
unsafe impl Send for Mapping {}
// SAFETY: as above; the value itself is immutable.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Allocates `size` zero bytes (not zero many) that other processes can map. Nothing appears in any
    /// file system; the memory goes with its last mapping and descriptor.
    pub(crate) fn allocate(size: u64) -> Result<(Self, Arc<OwnedFd>)> {
        check_size(size)?;
        let failed = |call: &str, errno| {
            SystemError::new(format!("{call} of {size} bytes of shared memory"), errno)
                .with_hint("see the limits on memory and open files (ulimit -a, the container's limits)")
        };
        let descriptor = rustix::fs::memfd_create("warpway", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
            .map_err(|errno| failed("memfd_create", errno))?;
        rustix::fs::ftruncate(&descriptor, size).map_err(|errno| failed("ftruncate", errno))?;
        rustix::fs::fcntl_add_seals(&descriptor, SIZE_SEALS | SealFlags::SEAL)
            .map_err(|errno| failed("sealing", errno))?;
        let mapping = Self::map(&descriptor, size)?;
        Ok((mapping, Arc::new(descriptor)))
    }

    /// Maps what rank `owner` sent, which is not trusted: it must be sealed and exactly `size` bytes long.
    pub(crate) fn import(owner: u32, descriptor: OwnedFd, size: u64) -> Result<Self> {
        check_size(size)?;
        let refuse = |why: String| MemoryError::Import { owner, size, why };
        let stat = rustix::fs::fstat(&descriptor)
            .map_err(|errno| SystemError::new(format!("fstat of memory of rank {owner}"), errno))?;
        if u64::try_from(stat.st_size) != Ok(size) {
            let why = format!("the descriptor holds {} bytes", stat.st_size);
            return Err(refuse(why).into());
        }
        // Only memfds have seals: anything else fails here.
        let seals = rustix::fs::fcntl_get_seals(&descriptor)
            .map_err(|errno| refuse(format!("the descriptor is not a memfd ({errno})")))?;
        if !seals.contains(SIZE_SEALS) {
            return Err(
                refuse("its size is not sealed, so its owner could make accesses fault".into()).into()
            );
        }
        Self::map(&descriptor, size)
    }

    /// `size` bytes at `offset`, kept mapped by `mapping`.
    pub(crate) fn region(
        mapping: &Arc<Self>,
        offset: u64,
        size: u64,
        descriptor: Option<Arc<OwnedFd>>,
    ) -> Result<Region, MemoryError> {
        let backing =
            descriptor.map(|descriptor| Backing { descriptor, offset: 0, allocation_size: mapping.size });
        let keeper: Arc<dyn std::any::Any + Send + Sync> = Arc::<Self>::clone(mapping);
        // SAFETY: the keeper owns the mapping of exactly these bytes; nobody makes references to them.
        let whole =
            unsafe { Region::new(mapping.address, mapping.size, Device::CPU, backing, Some(keeper)) }?;
        whole.slice(offset, size)
    }

    /// An error unless the record, of a memory of rank `owner`, speaks of an allocation of this size.
    pub(crate) fn expect_size(&self, owner: u32, record: &MemoryRecord) -> Result<()> {
        if record.allocation_size == self.size {
            return Ok(());
        }
        let why = format!("its allocation is {} bytes, not {}", self.size, record.allocation_size);
        Err(MemoryError::Import { owner, size: record.size, why }.into())
    }

    fn map(descriptor: &impl AsFd, size: u64) -> Result<Self> {
        let length = size as usize;
        // SAFETY: a new mapping at an address that the kernel chooses touches no existing memory.
        let address = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                length,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                descriptor,
                0,
            )
        }
        .map_err(|errno| SystemError::new(format!("mmap of {size} bytes of shared memory"), errno))?;
        let Some(address) = NonNull::new(address.cast::<u8>()) else {
            return Err(SystemError::new("mmap returned address 0", rustix::io::Errno::INVAL).into());
        };
        if size >= HUGE_PAGE {
            // SAFETY: the range was mapped just now; the advice changes no contents. A kernel that does
            // not follow it only makes more page faults.
            let _ = unsafe { rustix::mm::madvise(address.as_ptr().cast(), length, Advice::LinuxHugepage) };
        }
        Ok(Self { address, size })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `map` and is unmapped once; regions hold the mapping as their
        // keeper, so no address of it is in use. It cannot fail for such a range.
        let _ = unsafe { rustix::mm::munmap(self.address.as_ptr().cast(), self.size as usize) };
    }
}

/// Takes the pages of `region` now, so that later accesses do not fault. Contents stay.
pub(crate) fn populate(region: &Region) -> Result<()> {
    let start = region.address().as_ptr();
    let into_page = start as usize % rustix::param::page_size();
    let length = region.size() as usize + into_page;
    // SAFETY: whole pages of a live mapping; populating changes no contents.
    unsafe {
        let page = start.wrapping_sub(into_page);
        rustix::mm::madvise(page.cast(), length, Advice::LinuxPopulateWrite)
    }
    .map_err(|errno| {
        SystemError::new(format!("populating {} bytes of shared memory", region.size()), errno)
            .with_hint("memory is exhausted, or the kernel is older than 5.14")
    })?;
    Ok(())
}

fn check_size(size: u64) -> Result<(), MemoryError> {
    if size == 0 || size > isize::MAX as u64 {
        let why = "a mapping holds 1 to 2^63 - 1 bytes";
        return Err(MemoryError::Invalid { address: 0, size, why });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memfd(size: u64) -> OwnedFd {
        let fd = rustix::fs::memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&fd, size).unwrap();
        fd
    }

    #[test]
    fn an_import_must_be_sealed_and_of_the_size_announced() {
        let error = Mapping::import(7, memfd(4096), 4096).unwrap_err();
        assert!(error.id() == "mem.import" && error.peer() == Some(7), "{error}");
        assert!(error.to_string().contains("not sealed"), "{error}");

        let (_mapping, fd) = Mapping::allocate(4095).unwrap();
        let copy = || fd.as_fd().try_clone_to_owned().unwrap();
        assert!(Mapping::import(7, copy(), 4096).unwrap_err().to_string().contains("holds 4095 bytes"));
        assert_eq!(Mapping::import(7, copy(), 0).unwrap_err().id(), "mem.invalid");
        assert_eq!(Mapping::import(7, copy(), u64::MAX).unwrap_err().id(), "mem.invalid");
        Mapping::import(7, copy(), 4095).unwrap();
        // Also the owner can no longer shorten or lengthen it, nor take the seals back.
        assert_eq!(rustix::fs::ftruncate(&fd, 0), Err(rustix::io::Errno::PERM));
        assert_eq!(rustix::fs::ftruncate(&fd, 8192), Err(rustix::io::Errno::PERM));
        assert_eq!(rustix::fs::fcntl_add_seals(&fd, SealFlags::WRITE), Err(rustix::io::Errno::PERM));
    }

    #[test]
    fn an_ordinary_file_is_refused() {
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        let size = file.metadata().unwrap().len();
        let error = Mapping::import(1, file.into(), size).unwrap_err();
        assert_eq!(error.id(), "mem.import");
    }
}
