//! Memory of other processes. A test starts itself once more as the other process, which makes the memory, says where
//! it is, and then does what it is told, a line at a time.

use std::ffi::{c_char, c_void};
use std::io::{BufRead, BufReader, Lines, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use warpway_cuda_sys::Driver;
use warpway_cuda_sys::driver_types::*;

use crate::mapping::{PAGE, create, map, open, reserve};
use crate::{allocate, call, enter, ok, optional, read, start, write};

/// The variable that makes a test the other process.
const OWNER: &str = "FAKE_CUDA_TEST_OWNER";

/// The other process.
struct Owner {
    process: Child,
    orders: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Owner {
    fn start(settings: &str) -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "sharing::owner", "--nocapture", "--include-ignored"])
            .env(OWNER, "1")
            .env("FAKE_CUDA", settings)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let orders = process.stdin.take().unwrap();
        let answers = BufReader::new(process.stdout.take().unwrap()).lines();
        Self { process, orders, answers }
    }

    /// Gives an order, and returns what the owner answers.
    fn ask(&mut self, order: &str) -> String {
        writeln!(self.orders, "{order}").unwrap();
        let answer = self.answers.find_map(|line| Some(line.unwrap().split_once("answer ")?.1.to_owned()));
        answer.expect("the owner has ended")
    }

    fn handle(&mut self) -> CUipcMemHandle {
        let text = self.ask("handle");
        let bytes: Vec<u8> =
            (0..64).map(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap()).collect();
        CUipcMemHandle { reserved: std::array::from_fn(|at| bytes[at] as c_char) }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The other process: allocates on its device 0, and serves orders until its input ends.
#[test]
#[ignore = "the other process of these tests"]
fn owner() {
    if std::env::var_os(OWNER).is_none() {
        return;
    }
    let fake = fake_cuda::Fake::open();
    let driver = fake.driver();
    ok!(driver, cuInit(0));
    enter(driver, 0);
    let pointer = allocate(driver, 100);
    write(driver, pointer, &[1; 100]);
    let memory = create(driver, 0, PAGE).unwrap();
    let base = reserve(driver, PAGE);
    assert_eq!(map(driver, base, PAGE, memory) + open(driver, base, PAGE, 0), 0);
    for order in std::io::stdin().lines() {
        let answer = match order.unwrap().as_str() {
            "handle" => {
                let mut handle = CUipcMemHandle::default();
                // Of an address within: the handle is that of the allocation.
                ok!(driver, cuIpcGetMemHandle(&raw mut handle, pointer + 50));
                handle.reserved.map(|byte| format!("{:02x}", byte as u8)).concat()
            }
            "descriptor" => {
                let (mut descriptor, kind) = (0 as RawFd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
                let place = (&raw mut descriptor).cast();
                assert_eq!(optional!(driver, cuMemExportToShareableHandle(place, memory, kind, 0)), 0);
                descriptor.to_string()
            }
            "read" => format!("{:?}", read(driver, pointer, 4)),
            "read mapped" => format!("{:?}", read(driver, base, 4)),
            "free" => {
                ok!(driver, cuMemFree(pointer));
                "freed".to_owned()
            }
            "allocate" => {
                allocate(driver, 100);
                "allocated".to_owned()
            }
            other => panic!("{other}"),
        };
        println!("\nanswer {answer}");
    }
}

fn opened(driver: &Driver, handle: CUipcMemHandle, flags: u32) -> Result<CUdeviceptr, CUresult> {
    let mut pointer = 0;
    match call!(driver, cuIpcOpenMemHandle(&raw mut pointer, handle, flags)) {
        0 => Ok(pointer),
        error => Err(error),
    }
}

#[test]
fn allocations_are_opened_by_handle() {
    let mut owner = Owner::start("visible=1");
    let handle = owner.handle();
    let fake = start("visible=0+1");
    let driver = fake.driver();
    let pointer = opened(driver, handle, 1).unwrap();
    assert_eq!(opened(driver, handle, 1), Ok(pointer), "the same context gets the same address");
    assert_eq!(opened(driver, handle, 0), Err(CUDA_ERROR_INVALID_VALUE));
    write(driver, pointer, &[9, 8, 7, 6]);
    assert_eq!(owner.ask("read"), "[9, 8, 7, 6]");
    assert_eq!(read(driver, pointer + 96, 4), [1; 4]);
    let (mut start, mut size, mut device) = (0, 0, -1);
    ok!(driver, cuMemGetAddressRange(&raw mut start, &raw mut size, pointer + 9));
    assert_eq!((start, size), (pointer, 100));
    let attribute = CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL;
    ok!(driver, cuPointerGetAttribute((&raw mut device).cast::<c_void>(), attribute, pointer));
    assert_eq!(device, 1, "the device that the owner calls 0");
    // What was opened cannot be passed on or freed.
    let mut again = CUipcMemHandle::default();
    assert_eq!(call!(driver, cuIpcGetMemHandle(&raw mut again, pointer)), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(call!(driver, cuMemFree(pointer)), CUDA_ERROR_INVALID_VALUE);

    ok!(driver, cuIpcCloseMemHandle(pointer));
    assert_eq!(fake.live().opened, 1);
    ok!(driver, cuIpcCloseMemHandle(pointer));
    assert_eq!(call!(driver, cuIpcCloseMemHandle(pointer)), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(call!(driver, cuMemsetD8Async(pointer, 0, 1, std::ptr::null_mut())), CUDA_ERROR_INVALID_VALUE);
}

#[test]
fn handles_that_lead_nowhere_are_refused() {
    let mut owner = Owner::start("visible=1");
    let handle = owner.handle();
    let fake = start("visible=0+1,peers=none");
    let (driver, mut own) = (fake.driver(), CUipcMemHandle::default());
    assert_eq!(opened(driver, handle, 1), Err(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED));
    assert_eq!(opened(driver, CUipcMemHandle::default(), 1), Err(CUDA_ERROR_INVALID_VALUE));
    ok!(driver, cuIpcGetMemHandle(&raw mut own, allocate(driver, 8)));
    assert_eq!(opened(driver, own, 1), Err(CUDA_ERROR_INVALID_CONTEXT), "of this process");
    enter(driver, 1);
    assert_eq!(owner.ask("free"), "freed");
    assert_eq!(opened(driver, handle, 1), Err(CUDA_ERROR_MAP_FAILED), "freed");
    // The new memory has the descriptor that the handle names.
    assert_eq!(owner.ask("allocate"), "allocated");
    assert_eq!(opened(driver, handle, 1), Err(CUDA_ERROR_MAP_FAILED), "other memory");
    drop(owner);
    assert_eq!(opened(driver, handle, 1), Err(CUDA_ERROR_MAP_FAILED), "the owner has ended");
}

#[test]
fn memory_of_a_device_that_is_not_visible_is_refused() {
    let mut owner = Owner::start("visible=1");
    let handle = owner.handle();
    let fake = start("visible=0");
    assert_eq!(opened(fake.driver(), handle, 1), Err(CUDA_ERROR_INVALID_DEVICE));
}

#[test]
fn mappings_are_shared_by_descriptor() {
    let mut owner = Owner::start("visible=1");
    let number = owner.ask("descriptor");
    // As it would come over a socket.
    let path = format!("/proc/{}/fd/{number}", owner.process.id());
    let received = std::fs::File::options().read(true).write(true).open(path).unwrap();
    let fake = start("visible=0+1");
    let driver = fake.driver();
    let import = |descriptor: RawFd| {
        let (mut handle, kind) = (0, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
        let pointer = descriptor as usize as *mut c_void;
        match optional!(driver, cuMemImportFromShareableHandle(&raw mut handle, pointer, kind)) {
            0 => Ok(handle),
            error => Err(error),
        }
    };
    let handle = import(received.as_raw_fd()).unwrap();
    // The descriptor stays ours, and is not needed any more.
    drop(received);
    let base = reserve(driver, PAGE);
    assert_eq!(map(driver, base, PAGE, handle) + open(driver, base, PAGE, 0), 0);
    write(driver, base, &[4, 3, 2, 1]);
    assert_eq!(owner.ask("read mapped"), "[4, 3, 2, 1]");
    let mut found = CUmemAllocationProp::default();
    assert_eq!(optional!(driver, cuMemGetAllocationPropertiesFromHandle(&raw mut found, handle)), 0);
    assert_eq!(found.location.id, 1);
    // Memory lives on without its owner.
    drop(owner);
    assert_eq!(read(driver, base, 4), [4, 3, 2, 1]);

    let stranger = std::fs::File::open("/dev/null").unwrap();
    assert_eq!(import(stranger.as_raw_fd()), Err(CUDA_ERROR_UNKNOWN));
    assert_eq!(import(9999), Err(CUDA_ERROR_UNKNOWN), "not open");
    let mut descriptor = -1;
    let export = |kind, place: &mut RawFd| {
        optional!(driver, cuMemExportToShareableHandle(std::ptr::from_mut(place).cast(), handle, kind, 0))
    };
    assert_eq!(export(CU_MEM_HANDLE_TYPE_FABRIC, &mut descriptor), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(export(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, &mut descriptor), 0);
    // SAFETY: just exported, and nobody else has it.
    drop(unsafe { OwnedFd::from_raw_fd(descriptor) });
}
