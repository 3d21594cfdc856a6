//! Which GPUs there are, what they can do, and who reaches whom.

use std::ffi::{CStr, c_int};
use std::fmt;
use std::str::FromStr;

use warpway_core::gpu::GpuError;
use warpway_cuda_sys::driver_types::{
    CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS,
    CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM,
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
    CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
    CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED,
    CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK, CUdevice, CUdevice_P2PAttribute_enum, CUdevice_attribute_enum,
    CUuuid,
};

use crate::driver::Driver;

/// Compute capability, `9.0` of an H200.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Architecture {
    /// 9 of 9.0.
    pub major: u32,
    /// 0 of 9.0.
    pub minor: u32,
}

impl fmt::Display for Architecture {
    /// As compilers call it: `sm_90`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sm_{}{}", self.major, self.minor)
    }
}

impl FromStr for Architecture {
    type Err = String;

    /// `sm_90`, `90` or `9.0`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let read = || {
            let digits = text.strip_prefix("sm_").unwrap_or(text);
            let (major, minor) = match digits.split_once('.') {
                Some(parts) => parts,
                None => digits.split_at_checked(digits.len().checked_sub(1)?)?,
            };
            // Decimal digits alone: `parse` would take a sign.
            let number = |text: &str| text.parse().ok().filter(|_| text.bytes().all(|b| b.is_ascii_digit()));
            Some(Self { major: number(major)?, minor: number(minor).filter(|minor| *minor < 10)? })
        };
        read().ok_or_else(|| format!("`{text}` is not an architecture such as sm_90"))
    }
}

/// Where a device sits, as the system names it: `0000:17:00.0`, in lower case.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PciAddress(pub String);

/// What is known of one device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuInfo {
    /// The driver's number for it, after `CUDA_VISIBLE_DEVICES`.
    pub ordinal: i32,
    /// The maker's name.
    pub name: String,
    /// The same in all processes, whatever their ordinals.
    pub uuid: [u8; 16],
    /// Where it sits.
    pub pci: PciAddress,
    /// What it executes.
    pub architecture: Architecture,
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// Engines that copy beside kernels, each in one direction at a time.
    pub copy_engines: u32,
    /// Bytes of memory.
    pub memory: u64,
    /// Bytes of shared memory that a block may ask for.
    pub shared_memory: u64,
    /// Memory can be exported as file descriptors.
    pub exports_descriptors: bool,
    /// Memory can be exported as fabric handles (between hosts of one NVLink domain).
    pub exports_fabric: bool,
    /// The hardware has multicast. Says nothing of whether it may be used.
    pub multicast: bool,
    /// Streams write 64-bit words by themselves.
    pub stream_words: bool,
    /// Kernels may use registered host memory by its host address.
    pub host_addresses: bool,
}

/// How one device reaches another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerLink {
    /// Loads, stores and copies work.
    pub access: bool,
    /// So do atomic operations.
    pub atomics: bool,
    /// Relative speed, 0 for the fastest.
    pub rank: u32,
}

impl Driver {
    /// How many devices there are.
    ///
    /// # Errors
    /// `gpu.driver`.
    pub fn device_count(&self) -> Result<i32, GpuError> {
        let mut count: c_int = 0;
        // SAFETY: writes one number.
        let result = unsafe { (self.table().cuDeviceGetCount)(&raw mut count) };
        self.check("counting devices", "cuDeviceGetCount", result)?;
        Ok(count)
    }

    /// What is known of a device.
    ///
    /// # Errors
    /// `gpu.driver`, also for an ordinal that does not exist.
    pub fn device(&self, ordinal: i32) -> Result<GpuInfo, GpuError> {
        let device = self.handle(ordinal)?;
        let what = format_args!("asking device {ordinal}");
        let number = |attribute| self.attribute(ordinal, device, attribute);
        let flag = |attribute| Ok::<_, GpuError>(number(attribute)? != 0);
        // Attributes that the driver is too old to know.
        let newer = |attribute| number(attribute).is_ok_and(|value| value != 0);

        let mut name = [0; 256];
        // SAFETY: writes at most that many bytes, with a zero at the end.
        let result =
            unsafe { (self.table().cuDeviceGetName)(name.as_mut_ptr(), name.len() as c_int, device) };
        self.check(what, "cuDeviceGetName", result)?;
        let mut pci = [0; 32];
        // SAFETY: as above.
        let result =
            unsafe { (self.table().cuDeviceGetPCIBusId)(pci.as_mut_ptr(), pci.len() as c_int, device) };
        self.check(what, "cuDeviceGetPCIBusId", result)?;
        let mut uuid = CUuuid::default();
        // SAFETY: writes 16 bytes.
        let result = unsafe { (self.table().cuDeviceGetUuid)(&raw mut uuid, device) };
        self.check(what, "cuDeviceGetUuid", result)?;
        let mut memory = 0usize;
        // SAFETY: writes one number.
        let result = unsafe { (self.table().cuDeviceTotalMem)(&raw mut memory, device) };
        self.check(what, "cuDeviceTotalMem", result)?;

        Ok(GpuInfo {
            ordinal,
            name: text(&name),
            uuid: uuid.bytes.map(|byte| byte as u8),
            pci: PciAddress(text(&pci).to_ascii_lowercase()),
            architecture: Architecture {
                major: number(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)? as u32,
                minor: number(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)? as u32,
            },
            multiprocessors: number(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)? as u32,
            copy_engines: number(CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT)? as u32,
            memory: memory as u64,
            shared_memory: number(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)? as u64,
            exports_descriptors: flag(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)?
                && flag(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED)?,
            exports_fabric: newer(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED),
            multicast: newer(CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED),
            stream_words: newer(CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS),
            host_addresses: flag(CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM)?,
        })
    }

    /// All devices, in the driver's order.
    ///
    /// # Errors
    /// `gpu.driver`.
    pub fn devices(&self) -> Result<Vec<GpuInfo>, GpuError> {
        (0..self.device_count()?).map(|ordinal| self.device(ordinal)).collect()
    }

    /// How kernels and copies of `from` reach the memory of `to`.
    ///
    /// # Errors
    /// `gpu.driver`.
    pub fn peer_link(&self, from: i32, to: i32) -> Result<PeerLink, GpuError> {
        if from == to {
            return Ok(PeerLink { access: true, atomics: true, rank: 0 });
        }
        let (source, peer) = (self.handle(from)?, self.handle(to)?);
        let ask = |attribute: CUdevice_P2PAttribute_enum| {
            let mut value: c_int = 0;
            // SAFETY: writes one number; both devices exist.
            let result =
                unsafe { (self.table().cuDeviceGetP2PAttribute)(&raw mut value, attribute, source, peer) };
            let what = format_args!("asking how device {from} reaches device {to}");
            self.check(what, "cuDeviceGetP2PAttribute", result).map(|()| value)
        };
        Ok(PeerLink {
            access: ask(CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED)? != 0,
            atomics: ask(CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED)? != 0,
            rank: ask(CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK)? as u32,
        })
    }

    /// The driver's handle of a device.
    pub(crate) fn handle(&self, ordinal: i32) -> Result<CUdevice, GpuError> {
        let mut device: CUdevice = 0;
        // SAFETY: writes one number.
        let result = unsafe { (self.table().cuDeviceGet)(&raw mut device, ordinal) };
        self.check(format_args!("opening device {ordinal}"), "cuDeviceGet", result)?;
        Ok(device)
    }

    fn attribute(
        &self,
        ordinal: i32,
        device: CUdevice,
        attribute: CUdevice_attribute_enum,
    ) -> Result<i32, GpuError> {
        let mut value: c_int = 0;
        // SAFETY: writes one number; the device exists.
        let result = unsafe { (self.table().cuDeviceGetAttribute)(&raw mut value, attribute, device) };
        let what = format_args!("asking device {ordinal} for attribute {attribute}");
        self.check(what, "cuDeviceGetAttribute", result)?;
        Ok(value)
    }
}

/// The text in a zero-terminated array.
fn text(bytes: &[std::ffi::c_char]) -> String {
    let bytes: Vec<u8> = bytes.iter().map(|byte| *byte as u8).collect();
    CStr::from_bytes_until_nul(&bytes).map(|text| text.to_string_lossy().into_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn architectures_are_read_as_people_write_them() {
        for (text, major, minor) in
            [("sm_90", 9, 0), ("86", 8, 6), ("sm_103", 10, 3), ("12.1", 12, 1), ("9.0", 9, 0)]
        {
            assert_eq!(text.parse(), Ok(Architecture { major, minor }), "{text}");
        }
        for text in ["", "9", "sm_", "sm_9a", "sm_90a", "+90", "9.10", "9.-1", ".5", "compute_90", "é"] {
            assert!(text.parse::<Architecture>().is_err_and(|error| error.contains("sm_90")), "{text}");
        }
    }
}
