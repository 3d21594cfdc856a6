//! The fake as a test sees it.

use std::ffi::{CString, c_char};
use std::path::PathBuf;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use warpway_cuda_sys::Driver;
use warpway_cuda_sys::driver_types::CUresult;

use crate::library::library;
use crate::live::Live;

/// The shared object, loaded into this process: the table of functions, and the switches of the fake.
///
/// All values of a process are the same driver, also those that `warpway-cuda` opens by the path: state is per process.
/// `cargo nextest` gives each test a process of its own; with `cargo test`, tests of one file share the driver.
#[derive(Debug)]
pub struct Fake {
    driver: Driver,
    library: Library,
    path: PathBuf,
}

/// A kernel that has been executed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launch {
    /// Its function.
    pub function: String,
    /// The ordinal of the device.
    pub device: u32,
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub shared: u32,
    /// By cuLaunchCooperativeKernel.
    pub cooperative: bool,
    /// The parameter area: each parameter at its aligned offset.
    pub arguments: Vec<u8>,
}

impl Fake {
    /// Loads the shared object that belongs to this build.
    ///
    /// # Panics
    /// If there is none (see [`library`]).
    #[allow(clippy::new_without_default)]
    pub fn open() -> Self {
        let path = library();
        // SAFETY: `library` has found our own file, which has the driver's functions and no initialisers.
        let (driver, library) = unsafe {
            let driver = Driver::open(&path).expect("the table of the fake's functions");
            (driver, Library::open(Some(&path), RTLD_NOW | RTLD_LOCAL).expect("the fake"))
        };
        Self { driver, library, path }
    }

    /// Its file, for `WARPWAY_CUDA_DRIVER` and `Driver::open`.
    pub fn path(&self) -> &PathBuf {
        &self.path
    }

    /// The functions of the driver.
    pub fn driver(&self) -> &Driver {
        &self.driver
    }

    /// Changes the machine: `devices=2,arch=90,peers=none,memory=1048576,version=13000,sms=132,visible=1+0,
    /// descriptors=no,ipc=no,fabric=works,words=no,multicast=yes`, or some of these. Other processes read them from `FAKE_CUDA`.
    ///
    /// # Panics
    /// After `cuInit`, or if a setting is not understood.
    pub fn set(&self, settings: &str) {
        self.obey(&format!("set {settings}"));
    }

    /// Lets the nth call of a function from now on (1 is the next) return a code and do nothing. The name is that of
    /// the table, `cuMemAlloc`, or `*` for any function. Other processes: `FAKE_CUDA_FAIL=cuMemAlloc:1=2`.
    pub fn fail(&self, function: &str, nth: u64, code: CUresult) {
        self.obey(&format!("fail {function} {nth} {code}"));
    }

    /// Takes back all failures that have not happened yet.
    pub fn forget_failures(&self) {
        self.obey("forget");
    }

    /// What is alive. For a test of leaks: `assert_eq!(fake.live(), Live::default())`.
    pub fn live(&self) -> Live {
        let mut live = Live::default();
        // SAFETY: the function's own signature, and a place for its result.
        unsafe {
            let function: libloading::os::unix::Symbol<unsafe extern "C" fn(*mut Live)> =
                self.library.get(b"fake_cuda_live").expect("fake_cuda_live");
            function(&raw mut live);
        }
        live
    }

    /// The calls since this was last asked, `cuMemAlloc 0`: function and result.
    pub fn calls(&self) -> Vec<String> {
        self.log("calls")
    }

    /// The kernels that were executed since this was last asked, in the order of their execution.
    pub fn launches(&self) -> Vec<Launch> {
        self.log("launches").iter().map(|line| Launch::parse(line).expect("a launch")).collect()
    }

    /// Where the host finds the bytes of a device address, `None` if it is not alive. What is read there must stay
    /// allocated meanwhile.
    pub fn host_address(&self, address: u64) -> Option<*mut u8> {
        // SAFETY: the function's own signature.
        let found = unsafe {
            let function: libloading::os::unix::Symbol<unsafe extern "C" fn(u64) -> u64> =
                self.library.get(b"fake_cuda_host_address").expect("fake_cuda_host_address");
            function(address)
        };
        (found != 0).then_some(found as *mut u8)
    }

    fn obey(&self, command: &str) {
        let text = CString::new(command).expect("no zero in a command");
        // SAFETY: the function's own signature, and a text that ends with a zero.
        let result = unsafe {
            let function: libloading::os::unix::Symbol<unsafe extern "C" fn(*const c_char) -> CUresult> =
                self.library.get(b"fake_cuda_control").expect("fake_cuda_control");
            function(text.as_ptr())
        };
        assert_eq!(result, 0, "the fake driver does not do this (now): {command}");
    }

    fn log(&self, what: &str) -> Vec<String> {
        let what = CString::new(what).expect("a word");
        let mut bytes = vec![0; 1 << 16];
        // SAFETY: the function's own signature, a text that ends with a zero, and as much room as it is told.
        let length = unsafe {
            let function: libloading::os::unix::Symbol<
                unsafe extern "C" fn(*const c_char, *mut u8, usize) -> usize,
            > = self.library.get(b"fake_cuda_log").expect("fake_cuda_log");
            loop {
                let length = function(what.as_ptr(), bytes.as_mut_ptr(), bytes.len());
                if length <= bytes.len() {
                    break length;
                }
                bytes.resize(length * 2, 0);
            }
        };
        let text = std::str::from_utf8(&bytes[..length]).expect("text");
        text.lines().map(str::to_owned).collect()
    }
}

impl Launch {
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let function = words.next()?.to_owned();
        let device = words.next()?.parse().ok()?;
        let mut three = || -> Option<[u32; 3]> {
            let extents: Vec<u32> =
                words.next()?.split(',').map(|word| word.parse().ok()).collect::<Option<_>>()?;
            extents.try_into().ok()
        };
        let (grid, block) = (three()?, three()?);
        let (shared, cooperative) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        let digits = words.next()?;
        let byte = |at: usize| u8::from_str_radix(digits.get(2 * at..2 * at + 2)?, 16).ok();
        let arguments = (0..digits.len() / 2).map(byte).collect::<Option<_>>()?;
        Some(Self { function, device, grid, block, shared, cooperative, arguments })
    }
}
