//! The driver, opened at run time, and its errors.

use std::ffi::{CStr, c_char, c_int};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock, Weak};

use warpway_core::gpu::GpuError;
use warpway_core::{Result, Unavailable};
use warpway_cuda_sys::driver_types::{
    CUDA_ERROR_ALREADY_MAPPED, CUDA_ERROR_ASSERT, CUDA_ERROR_CONTAINED, CUDA_ERROR_CONTEXT_IS_DESTROYED,
    CUDA_ERROR_DEVICE_UNAVAILABLE, CUDA_ERROR_ECC_UNCORRECTABLE, CUDA_ERROR_EXTERNAL_DEVICE,
    CUDA_ERROR_HARDWARE_STACK_ERROR, CUDA_ERROR_ILLEGAL_ADDRESS, CUDA_ERROR_ILLEGAL_INSTRUCTION,
    CUDA_ERROR_INVALID_ADDRESS_SPACE, CUDA_ERROR_INVALID_CONTEXT, CUDA_ERROR_INVALID_PC,
    CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_LAUNCH_FAILED, CUDA_ERROR_LAUNCH_TIMEOUT,
    CUDA_ERROR_MISALIGNED_ADDRESS, CUDA_ERROR_NO_BINARY_FOR_GPU, CUDA_ERROR_NO_DEVICE, CUDA_ERROR_NOT_FOUND,
    CUDA_ERROR_NVLINK_UNCORRECTABLE, CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_PEER_ACCESS_UNSUPPORTED,
    CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, CUDA_ERROR_SYSTEM_NOT_READY,
    CUDA_ERROR_TENSOR_MEMORY_LEAK, CUDA_ERROR_UNKNOWN, CUDA_ERROR_UNSUPPORTED_PTX_VERSION, CUDA_SUCCESS,
    CUresult,
};
use warpway_cuda_sys::{Driver as Table, LoadError};

use crate::in_flight::InFlight;
use crate::mapped;

/// The oldest driver whose functions are used: CUDA 12.0.
const OLDEST: i32 = 12_000;

/// What is opened unless the user has set something else.
const LIBRARY: &str = "libcuda.so.1";

/// An initialised driver. Cheap to clone; the library is never unloaded, since it keeps threads.
#[derive(Clone)]
pub struct Driver(Arc<Opened>);

struct Opened {
    table: Table,
    version: i32,
    in_flight: InFlight,
    /// See [`Driver::is_watched`]; found out once.
    watched: OnceLock<bool>,
}

/// A driver that may be gone.
pub(crate) struct WeakDriver(Weak<Opened>);

impl WeakDriver {
    pub(crate) fn is(&self, driver: &Driver) -> bool {
        std::ptr::eq(self.0.as_ptr(), Arc::as_ptr(&driver.0))
    }
}

impl Driver {
    /// Opens and initialises the driver: `libcuda.so.1`, or the path that the user has set.
    ///
    /// # Errors
    /// `unavailable` if there is no driver, no device, or a driver older than CUDA 12.0.
    pub fn open(library: &Path) -> Result<Self> {
        // SAFETY: the name is that of the CUDA driver, or the user vouches for what stands in for it.
        let table = unsafe { Table::open(library) }.map_err(|error| {
            let hint = match &error {
                _ if library != Path::new(LIBRARY) => {
                    "unset WARPWAY_CUDA_DRIVER or name the NVIDIA driver by it (CUDA 12.0 or later)"
                }
                LoadError::Symbol { .. } => "install a driver for CUDA 12.0 or later",
                _ => {
                    "install the NVIDIA driver or set WARPWAY_CUDA_DRIVER; only host memory works without it"
                }
            };
            absent(error.to_string(), hint)
        })?;
        let mut version: c_int = 0;
        // SAFETY: may be called before initialisation; writes one number.
        let result = unsafe { (table.cuDriverGetVersion)(&raw mut version) };
        if result != CUDA_SUCCESS {
            let why = format!("cuDriverGetVersion failed: {result}");
            return Err(absent(why, "install the driver anew").into());
        }
        if version < OLDEST {
            let why = format!("it supports CUDA {}, 12.0 is needed", dotted(version));
            return Err(absent(why, "install a newer driver").into());
        }
        let driver = Self(Arc::new(Opened {
            table,
            version,
            in_flight: InFlight::default(),
            watched: OnceLock::new(),
        }));
        // SAFETY: no argument but flags, which must be 0; may be called any number of times.
        let result = unsafe { (driver.table().cuInit)(0) };
        driver
            .check("starting the driver", "cuInit", result)
            .map_err(|error| absent(error.to_string(), "look at nvidia-smi and the kernel's log"))?;
        Ok(driver)
    }

    /// The functions.
    pub(crate) fn table(&self) -> &Table {
        &self.0.table
    }

    /// The launches of the process whose end is not known.
    pub(crate) fn in_flight(&self) -> &InFlight {
        &self.0.in_flight
    }

    /// Whether a tool takes calls that fail for faults of the program. What only a failing call could tell is not asked then.
    pub(crate) fn is_watched(&self) -> bool {
        *self.0.watched.get_or_init(mapped::has_sanitizer)
    }

    /// The CUDA version that the driver supports, `13000` for 13.0.
    pub fn version(&self) -> i32 {
        self.0.version
    }

    /// The file that the loader took; `None` where the system does not tell.
    pub fn file(&self) -> Option<PathBuf> {
        mapped::file_at(self.table().cuInit as usize)
    }

    /// An error unless a call has succeeded.
    pub(crate) fn check(
        &self,
        what: impl fmt::Display,
        call: &'static str,
        result: CUresult,
    ) -> Result<(), GpuError> {
        if result == CUDA_SUCCESS { Ok(()) } else { Err(self.error(&what, call, result)) }
    }

    #[cold]
    fn error(&self, what: &dyn fmt::Display, call: &'static str, code: CUresult) -> GpuError {
        let text = |function: unsafe extern "C" fn(CUresult, *mut *const c_char) -> CUresult| {
            let mut words: *const c_char = std::ptr::null();
            // SAFETY: writes a pointer to a constant text, or null for numbers that it does not know.
            unsafe { function(code, &raw mut words) };
            if words.is_null() {
                return "unknown to this driver".to_owned();
            }
            // SAFETY: the driver's texts are constants that end with a zero.
            unsafe { CStr::from_ptr(words) }.to_string_lossy().into_owned()
        };
        GpuError::Driver {
            what: what.to_string(),
            call,
            code,
            name: text(self.table().cuGetErrorName),
            text: text(self.table().cuGetErrorString),
            hint: hint(call, code),
        }
    }

    /// Does not keep it open.
    pub(crate) fn downgrade(&self) -> WeakDriver {
        WeakDriver(Arc::downgrade(&self.0))
    }

    /// Notes a failure where nothing can be returned.
    pub(crate) fn note(&self, what: impl fmt::Display, call: &'static str, result: CUresult) {
        if let Err(error) = self.check(what, call, result) {
            tracing::warn!(target: "warpway::gpu", "{error}");
        }
    }
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver").field("version", &self.version()).finish_non_exhaustive()
    }
}

/// True for an error after which the driver refuses all work of the process on that device: a kernel, or the hardware,
/// has failed, and every call says so.
pub(crate) fn is_device_fault(error: &GpuError) -> bool {
    let GpuError::Driver { code, .. } = error else { return false };
    matches!(
        *code,
        CUDA_ERROR_ILLEGAL_ADDRESS
            | CUDA_ERROR_LAUNCH_TIMEOUT
            | CUDA_ERROR_CONTEXT_IS_DESTROYED
            | CUDA_ERROR_ASSERT
            | CUDA_ERROR_HARDWARE_STACK_ERROR
            | CUDA_ERROR_ILLEGAL_INSTRUCTION
            | CUDA_ERROR_MISALIGNED_ADDRESS
            | CUDA_ERROR_INVALID_ADDRESS_SPACE
            | CUDA_ERROR_INVALID_PC
            | CUDA_ERROR_LAUNCH_FAILED
            | CUDA_ERROR_TENSOR_MEMORY_LEAK
            | CUDA_ERROR_ECC_UNCORRECTABLE
            | CUDA_ERROR_NVLINK_UNCORRECTABLE
            | CUDA_ERROR_CONTAINED
            | CUDA_ERROR_DEVICE_UNAVAILABLE
            | CUDA_ERROR_EXTERNAL_DEVICE
            | CUDA_ERROR_UNKNOWN
    )
}

/// `13.0` for 13000.
fn dotted(version: i32) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

fn absent(why: String, hint: &'static str) -> Unavailable {
    Unavailable { what: "the CUDA driver".into(), why, hint }
}

/// A call that this driver does not have.
pub(crate) fn missing(call: &'static str) -> Unavailable {
    Unavailable {
        what: format!("{call} of the CUDA driver"),
        why: "this driver does not have it".into(),
        hint: "install a newer driver",
    }
}

fn hint(call: &str, code: CUresult) -> Option<&'static str> {
    Some(match code {
        CUDA_ERROR_OUT_OF_MEMORY => "free device memory, or use smaller buffers",
        CUDA_ERROR_NO_DEVICE => "no GPU is visible; look at CUDA_VISIBLE_DEVICES",
        CUDA_ERROR_SYSTEM_DRIVER_MISMATCH => "the kernel module and the library are of different versions",
        CUDA_ERROR_SYSTEM_NOT_READY => "is the fabric manager running?",
        CUDA_ERROR_PEER_ACCESS_UNSUPPORTED => "use a port channel, or devices with NVLink or peer PCIe",
        CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED => "this call cannot be captured; make it before the capture",
        CUDA_ERROR_ILLEGAL_ADDRESS | CUDA_ERROR_LAUNCH_FAILED | CUDA_ERROR_ECC_UNCORRECTABLE => {
            "an earlier kernel may have failed; the process must be restarted"
        }
        CUDA_ERROR_INVALID_CONTEXT | CUDA_ERROR_CONTEXT_IS_DESTROYED => {
            "the device's primary context has been reset; make no communicator across a reset"
        }
        CUDA_ERROR_NO_BINARY_FOR_GPU => {
            "build it for the architecture of this device, which `warpway doctor` shows"
        }
        CUDA_ERROR_UNSUPPORTED_PTX_VERSION => {
            "the compiler is newer than the driver: update the driver, or set WARPWAY_NVRTC to an older version's library"
        }
        CUDA_ERROR_INVALID_VALUE if call == "cuLaunchKernel" => {
            "compare the shape with what kernel and device permit, and the arguments with the kernel's parameters"
        }
        CUDA_ERROR_NOT_FOUND if call == "cuModuleGetFunction" => {
            "declare it extern \"C\", or export it by Program::kernel and look for the same expression"
        }
        CUDA_ERROR_ALREADY_MAPPED => "the handle is open in this process already",
        _ => return None,
    })
}
