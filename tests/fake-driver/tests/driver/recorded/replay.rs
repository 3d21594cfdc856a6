//! Answers in the form of the record.

use warpway_cuda_sys::Driver;
use warpway_cuda_sys::driver_types::*;

use crate::{call, optional};

pub(super) struct Replay<'a> {
    pub(super) driver: &'a Driver,
    pub(super) answers: Vec<String>,
    /// Reserved addresses, of which the first two granules are mapped.
    pub(super) reserved: CUdeviceptr,
    pub(super) context: CUcontext,
}

/// Granules of the driver's virtual memory.
pub(super) const GRANULE: usize = 2 << 20;

impl<'a> Replay<'a> {
    pub(super) fn new(driver: &'a Driver) -> Self {
        Self { driver, answers: Vec::new(), reserved: 0, context: std::ptr::null_mut() }
    }

    /// The result of a call.
    pub(super) fn say(&mut self, name: &str, code: CUresult) {
        self.answers.push(format!("{name}={code}"));
    }

    /// A value that belongs to the call before it.
    pub(super) fn value(&mut self, value: impl ToString) {
        self.answers.push(value.to_string());
    }

    /// All that is known of an address.
    pub(super) fn attributes(&mut self, name: &str, address: u64) {
        for attribute in [1, 2, 3, 4, 7, 8, 9, 10, 11, 12, 13, 14, 16, 18, 19] {
            // The driver writes as many bytes as the attribute has.
            let mut value = 0xee_u64;
            let code = call!(self.driver, cuPointerGetAttribute((&raw mut value).cast(), attribute, address));
            self.answers.push(format!("{name}.{attribute}={code}:{value:x}"));
        }
    }

    /// The allocation around an address.
    pub(super) fn range(&mut self, name: &str, address: u64) {
        let (mut base, mut bytes) = (0, 0);
        let code = call!(self.driver, cuMemGetAddressRange(&raw mut base, &raw mut bytes, address));
        self.say(&format!("rng {name}"), code);
        self.value(format!("{:x}+{bytes:x}", base.wrapping_sub(address) & 0xffff_ffff));
    }

    /// A call during a capture of a stream, what the capture is then, and what it gives.
    pub(super) fn captured(
        &mut self,
        name: &str,
        mode: u32,
        stream: CUstream,
        during: impl FnOnce(&Driver) -> CUresult,
    ) {
        let driver = self.driver;
        self.say("begin", call!(driver, cuStreamBeginCapture(stream, mode)));
        self.say(&format!("cap{mode} {name}"), during(driver));
        let (mut status, mut graph) = (9, std::ptr::null_mut());
        call!(driver, cuStreamIsCapturing(stream, &raw mut status));
        let end = call!(driver, cuStreamEndCapture(stream, &raw mut graph));
        self.value(format!("st={status} end={end} g={}", if graph.is_null() { "False" } else { "True" }));
    }
}

/// What is allocated piece by piece: for one device, exportable as a descriptor.
pub(super) fn properties() -> CUmemAllocationProp {
    CUmemAllocationProp {
        type_: CU_MEM_ALLOCATION_TYPE_PINNED,
        requestedHandleTypes: CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        location: CUmemLocation { type_: CU_MEM_LOCATION_TYPE_DEVICE, id: 0 },
        ..CUmemAllocationProp::default()
    }
}

/// The result of making memory that is not mapped anywhere.
pub(super) fn create(driver: &Driver, handle: &mut u64, bytes: usize) -> CUresult {
    let wanted = properties();
    optional!(driver, cuMemCreate(handle, bytes, &raw const wanted, 0))
}
