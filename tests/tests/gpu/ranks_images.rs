//! Ranks on a machine without NVRTC: code that was built elsewhere, and what another process has compiled. The test itself
//! compiles, its ranks cannot.

use std::fs;
use std::path::PathBuf;

use warpway::core::config::{CacheFolder, Config, Environment};
use warpway::cuda::jit::{Compiler, built_in_programs};
use warpway::cuda::{Architecture, Kernel};
use warpway::{Communicator, Gpu, LaunchShape, Result, Transport};

use crate::ports_channels::{ONE_THREAD, Port};
use crate::ranks_channels::{Pair, soon};
use crate::rig::{self, Ranks, Source};

/// Names the folder of the images to a test's ranks.
const IMAGES: &str = "GPU_TESTS_IMAGES";

/// What their `WARPWAY_NVRTC` names.
const NOWHERE: &str = "/nonexistent/libnvrtc.so";

/// Bytes of each memory.
const LENGTH: u64 = 100_003;

/// Adds its second parameter to the word that the first one points to.
const ADD: &str = "\
.version 7.0
.target sm_80
.address_size 64

.visible .entry add_number(.param .u64 to, .param .u64 value) {
  .reg .b64 %a<5>;
  ld.param.u64 %a1, [to];
  ld.param.u64 %a2, [value];
  cvta.to.global.u64 %a3, %a1;
  ld.global.u64 %a4, [%a3];
  add.s64 %a4, %a4, %a2;
  st.global.u64 [%a3], %a4;
  ret;
}
";

/// A folder of the test's, removed at the end.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Runs two ranks without a compiler. They find cubins in a folder, and in the cache what `warm` is true for: everything
/// that they use, or nothing.
fn without_nvrtc(warm: bool, rank_main: fn(&Communicator) -> Result<()>) {
    let ranks = Ranks::new(2);
    if rig::is_rank() {
        return ranks.processes(rank_main);
    }
    let folder = Folder(std::env::temp_dir().join(format!("warpway-gpu-tests-{}", std::process::id())));
    let cache = folder.0.join("cache");
    fs::create_dir_all(&cache).unwrap();
    let environment = Environment::of_process().unwrap();
    let mut config = Config::read(&environment).unwrap().config;
    config.cache_dir = if warm { CacheFolder::At(cache.clone()) } else { CacheFolder::Off };
    let compiler = Compiler::new(&config, &environment);
    let here = rig::Gpu::open().context.info().architecture;
    // Neither runs the other's code.
    let another = Architecture { major: if here.major == 8 { 9 } else { 8 }, minor: 0 };
    for (source, file, architecture) in [
        (Source::RANKS, "ranks.cubin", here),
        (Source::PORTS, "ports.cubin", here),
        (Source::RANKS, "another.cubin", another),
    ] {
        let image = compiler.compile(&source.program(), architecture).unwrap();
        fs::write(folder.0.join(file), image.code()).unwrap();
    }
    for program in built_in_programs() {
        compiler.compile(&program, here).unwrap();
    }
    let cache = if warm { cache.display().to_string() } else { "off".into() };
    let ranks = ranks.with_variables(&[
        ("WARPWAY_NVRTC", NOWHERE.into()),
        ("WARPWAY_CACHE_DIR", cache),
        (IMAGES, folder.0.display().to_string()),
    ]);
    ranks.processes(rank_main);
}

/// A file that the test has made for its ranks.
fn image(file: &str) -> Vec<u8> {
    let folder = std::env::var_os(IMAGES).unwrap();
    fs::read(PathBuf::from(folder).join(file)).unwrap()
}

fn from_image(gpu: &Gpu, file: &str, name: &str) -> Result<Kernel> {
    Ok(gpu.load_image(&image(file))?.kernel(name)?)
}

fn bytes(seed: u32) -> Vec<u8> {
    (0..LENGTH).map(|at| (u64::from(seed) * 101 + at * 29 + at / 256) as u8).collect()
}

/// The peer's bytes where it has put them, and canaries around them.
fn expected(comm: &Communicator, target: u64, origin: u64, size: u64) -> Vec<u8> {
    let (mut all, theirs) = (bytes(7), bytes(1 - comm.rank()));
    let to = target as usize..(target + size) as usize;
    all[to].copy_from_slice(&theirs[origin as usize..(origin + size) as usize]);
    all
}

/// A put by a memory channel is exact.
fn put(comm: &Communicator, kernel: &Kernel) -> Result<()> {
    let pair = Pair::new(comm, LENGTH)?;
    pair.mine.write(0, &bytes(comm.rank()))?;
    pair.received.write(0, &bytes(7))?;
    pair.outcome.write(0, &[9])?;
    comm.barrier()?;
    let arguments = (&pair.handle, &pair.barrier, 3u64, 250u64, 99_001u64, &pair.outcome);
    // SAFETY: the parameters of `put_signal_wait`; both ranges are within the memories.
    unsafe { pair.gpu.launch(kernel, LaunchShape::new(3, 96), arguments, &pair.stream)? };
    pair.gpu.synchronize(&pair.stream, soon())?;
    assert_eq!(pair.outcome.to_vec()?, [0]);
    assert!(pair.received.to_vec()? == expected(comm, 3, 250, 99_001));
    comm.barrier()
}

/// Puts by a port channel are exact, in each way to ask for them.
fn port(comm: &Communicator, kernel: &Kernel) -> Result<()> {
    let port = Port::new(comm, LENGTH, 16, Transport::CudaIpc)?;
    for way in 0..3u64 {
        port.mine.write(0, &bytes(comm.rank()))?;
        port.received.write(0, &bytes(7))?;
        port.outcome.write(0, &[9])?;
        comm.barrier()?;
        let arguments = (&port.handle, 257u64, 5u64, 77_777u64, way, &port.outcome);
        // SAFETY: the parameters of `port_exchange`; as above.
        unsafe { port.gpu.launch(kernel, ONE_THREAD, arguments, &port.stream)? };
        port.synchronize()?;
        assert_eq!(port.outcome.to_vec()?, [0], "way {way}");
        assert!(port.received.to_vec()? == expected(comm, 257, 5, 77_777), "way {way}");
    }
    comm.barrier()
}

/// Every thread of a block adds `value` three times to the peer's word at 8.
fn add(port: &Port, kernel: &Kernel, value: u64) -> Result<()> {
    let shape = LaunchShape::new(1, 32);
    // SAFETY: the parameters of `port_adds`; the word is within the memories.
    unsafe {
        port.gpu.launch(kernel, shape, (&port.handle, 8u64, value, 3u64, &port.outcome), &port.stream)?
    };
    port.synchronize()
}

/// What was built elsewhere works; what must be compiled says what is missing.
fn files(comm: &Communicator) -> Result<()> {
    let gpu = comm.gpu()?;
    let absent = gpu.load(&Source::RANKS.program()).unwrap_err();
    assert_eq!(absent.id(), "unavailable");
    let text = absent.to_string();
    assert!(text.contains("NVRTC") && text.contains(NOWHERE) && text.contains("pip install"), "{text}");

    let (words, stream) = (gpu.alloc::<u64>(3)?, gpu.stream()?);
    words.write(0, &[1, 2, 3])?;
    let kernel = gpu.load_image(ADD.as_bytes())?.kernel("add_number")?;
    // SAFETY: the parameters of `add_number`.
    unsafe { gpu.launch(&kernel, ONE_THREAD, (words.address() + 8, 40u64), &stream)? };
    gpu.synchronize(&stream, soon())?;
    assert_eq!(words.to_vec()?, [1, 42, 3]);

    let whole = image("ranks.cubin");
    let half = gpu.load_image(&whole[..whole.len() / 2]).unwrap_err();
    assert_eq!(half.id(), "gpu.image", "{half}");
    let another = gpu.load_image(&image("another.cubin")).unwrap_err().to_string();
    assert!(another.contains("CUDA_ERROR_NO_BINARY_FOR_GPU"), "{another}");
    let unknown = from_image(&gpu, "ranks.cubin", "no_such_kernel").unwrap_err().to_string();
    assert!(unknown.contains("no_such_kernel") && unknown.contains("CUDA_ERROR_NOT_FOUND"), "{unknown}");

    put(comm, &from_image(&gpu, "ranks.cubin", "put_signal_wait")?)?;
    port(comm, &from_image(&gpu, "ports.cubin", "port_exchange")?)
}

/// Additions need a kernel of Warpway's own: without one the kernel that asked leaves, and both ranks learn why.
fn additions_fail(comm: &Communicator) -> Result<()> {
    let port = Port::new(comm, 64, 16, Transport::CudaIpc)?;
    let kernel = from_image(&port.gpu, "ports.cubin", "port_adds")?;
    comm.barrier()?;
    if comm.rank() == 0 {
        assert!(add(&port, &kernel, 5).is_err());
        let error = comm.async_error().unwrap();
        let text = error.to_string();
        assert!(text.contains("NVRTC") && text.contains(NOWHERE) && text.contains("rank 0"), "{text}");
    } else {
        let deadline = soon();
        while comm.async_error().is_none() {
            assert!(!deadline.expired(), "the peer learns of the failure");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }
    let nothing = port.received.to_vec()?.iter().all(|byte| *byte == 0);
    assert!(nothing, "nothing was added");
    Ok(())
}

/// Everything works that another process has compiled.
fn warmed(comm: &Communicator) -> Result<()> {
    let gpu = comm.gpu()?;
    put(comm, &gpu.load(&Source::RANKS.program())?.kernel("put_signal_wait")?)?;
    let ports = gpu.load(&Source::PORTS.program())?;
    port(comm, &ports.kernel("port_exchange")?)?;
    let port = Port::new(comm, 64, 16, Transport::CudaIpc)?;
    let kernel = ports.kernel("port_adds")?;
    comm.barrier()?;
    add(&port, &kernel, u64::from(comm.rank()) + 3)?;
    assert_eq!(port.outcome.to_vec()?, [0], "flushes that failed");
    comm.barrier()?;
    let mut sum = vec![0; 64];
    sum[8..16].copy_from_slice(&(96 * (u64::from(1 - comm.rank()) + 3)).to_le_bytes());
    assert_eq!(port.received.to_vec()?, sum);
    let strange = gpu.load(&Source::COPY.program()).unwrap_err();
    assert_eq!(strange.id(), "unavailable", "not in the cache");
    comm.barrier()
}

#[test]
#[ignore = "needs a GPU: cargo xtask gpu-bundle"]
fn built_elsewhere() {
    without_nvrtc(false, files);
}

#[test]
#[ignore = "needs a GPU: cargo xtask gpu-bundle"]
fn additions_by_port_channel() {
    without_nvrtc(false, additions_fail);
}

#[test]
#[ignore = "needs a GPU: cargo xtask gpu-bundle"]
fn a_warm_cache() {
    without_nvrtc(true, warmed);
}
