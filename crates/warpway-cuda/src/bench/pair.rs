//! Two GPUs of this process that reach each other, with everything that measurements need.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use warpway_core::gpu::GpuError;
use warpway_core::{Deadline, Result};

use super::parameters::Gate;
use super::programs::Source;
use crate::arguments::Arguments;
use crate::context::Context;
use crate::device::GpuInfo;
use crate::driver::Driver;
use crate::handle::{Control, ErrorRecord, HostControl, MemoryDevice2DeviceSemaphoreHandle, Site};
use crate::jit::{Compiler, Image};
use crate::memory::{DeviceMemory, PinnedMemory, copy_from_host, copy_to_host, fill};
use crate::module::{Kernel, LaunchShape, Module};
use crate::stream::Stream;

/// Each wait of a kernel.
const DEVICE_DEADLINE: Duration = Duration::from_secs(5);
/// Each wait of the host; longer, so that a kernel's own words come first.
const HOST_DEADLINE: Duration = Duration::from_secs(20);
/// Words behind each buffer that nobody may touch.
pub(super) const CANARIES: u64 = 32;

/// Offsets in the words of a side, device memory.
pub(super) mod word {
    pub(in crate::bench) const TOKEN: u64 = 0;
    pub(in crate::bench) const EXPECTED: u64 = 32;
    pub(in crate::bench) const FLAG: u64 = 64;
    pub(in crate::bench) const SLOT: u64 = 128;
    pub(in crate::bench) const RESULT: u64 = 256;
    pub(in crate::bench) const FIFO_HEAD: u64 = 384;
    pub(in crate::bench) const CACHED_TAIL: u64 = 392;
    /// Where small puts go.
    pub(in crate::bench) const PAYLOAD: u64 = 448;
    /// One place; the memory has room for many, since some lie nearer to a multiprocessor than others.
    const PLACE: u64 = 512;
    /// Everything before is set to zero before each measurement.
    pub(in crate::bench) const CLEARED: u64 = 1 << 20;
    /// The numbers from 1 on, to be copied.
    pub(in crate::bench) const NUMBERS: u64 = CLEARED;

    /// Where the words of the n-th place begin: far from each other, and not at a regular distance of a power of two.
    pub(in crate::bench) fn place(n: u64) -> u64 {
        n * 37 % (CLEARED / PLACE) * PLACE
    }
}

/// Offsets in the pinned memory of a side.
pub(super) mod pinned {
    pub(in crate::bench) const REPLY: u64 = 0;
    pub(in crate::bench) const INBOUND: u64 = 64;
    pub(in crate::bench) const STAMP: u64 = 128;
    pub(in crate::bench) const CLOCK: u64 = 192;
    pub(in crate::bench) const TAIL: u64 = 256;
    /// The ring.
    pub(in crate::bench) const SLOTS: u64 = 4096;
    /// The numbers from 1 on, to be copied.
    pub(in crate::bench) const NUMBERS: u64 = 4096 + 64 * super::RING;
}

/// Slots of the ring.
pub(super) const RING: u64 = 128;
/// The most rounds of a measurement with the host: so many numbers are laid ready.
pub(super) const MOST_ROUNDS: u64 = 4096;

/// Samples of one run.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Times {
    /// Microseconds, in the order in which they were taken.
    pub us: Vec<f64>,
    /// Requests, payloads and words that were not what they should be, and those that are missing.
    pub wrong: u64,
}

/// Two GPUs, with a source and a destination buffer on each. For one thread.
#[derive(Debug)]
pub struct Pair {
    pub(super) sides: [Side; 2],
    compiler: Compiler,
    /// Holds the work of both GPUs until everything is in their streams.
    gate: PinnedMemory,
    opened: Cell<u64>,
    seed: Cell<u64>,
    most_bytes: u64,
}

#[derive(Debug)]
pub(super) struct Side {
    pub(super) context: Context,
    /// Of the measured work.
    pub(super) stream: Stream,
    /// Of what the host gives while a kernel runs.
    pub(super) second: Stream,
    pub(super) source: DeviceMemory,
    pub(super) destination: DeviceMemory,
    pub(super) words: DeviceMemory,
    pub(super) pinned: PinnedMemory,
    control: DeviceMemory,
    host_control: PinnedMemory,
    modules: RefCell<HashMap<Source, (Module, Arc<Image>)>>,
}

impl Pair {
    /// Two devices, which may be the same one, with buffers of `most_bytes`.
    ///
    /// # Errors
    /// `gpu.device` without peer access, `gpu.driver` for devices that do not exist and memory that is exhausted.
    pub fn open(driver: &Driver, compiler: &Compiler, devices: [i32; 2], most_bytes: u64) -> Result<Self> {
        let [first, second] = devices;
        let contexts = [Context::primary(driver, first)?, Context::primary(driver, second)?];
        let gate = PinnedMemory::allocate(&contexts[0], 64)?;
        let sides = [
            Side::open(&contexts[0], &contexts[1], most_bytes)?,
            Side::open(&contexts[1], &contexts[0], most_bytes)?,
        ];
        let pair = Self {
            sides,
            compiler: compiler.clone(),
            gate,
            opened: Cell::new(0),
            seed: Cell::new(0),
            most_bytes: most_bytes.next_multiple_of(16),
        };
        pair.revive()?;
        Ok(pair)
    }

    /// What is known of the two.
    pub fn devices(&self) -> [&GpuInfo; 2] {
        [self.sides[0].context.info(), self.sides[1].context.info()]
    }

    /// The largest transfer.
    pub fn most_bytes(&self) -> u64 {
        self.most_bytes
    }

    /// Clears what a failed measurement has left: poison, error record and abort word. Waits for its kernels.
    ///
    /// # Errors
    /// `gpu.timeout` if they do not end, `gpu.driver` if the context is lost.
    pub fn revive(&self) -> Result<()> {
        self.wait_idle()?;
        for (rank, side) in self.sides.iter().enumerate() {
            side.write_host_control(HostControl::default());
            let control = Control {
                deadline_ns: DEVICE_DEADLINE.as_nanos() as u64,
                host: side.host_control.address(),
                rank: rank as u32,
                ..Control::default()
            };
            // SAFETY: the block is ours and no kernel runs.
            unsafe { copy_from_host(&side.stream, side.control.address(), &[control])? };
            side.stream.synchronize(host_deadline())?;
        }
        Ok(())
    }

    /// A kernel on one side, compiled and loaded when it is first asked for.
    pub(super) fn kernel(&self, side: usize, source: Source, expression: &str) -> Result<Kernel> {
        let side = &self.sides[side];
        let mut modules = side.modules.borrow_mut();
        let (module, image) = match modules.entry(source) {
            Entry::Occupied(loaded) => loaded.into_mut(),
            Entry::Vacant(place) => {
                let image = self.compiler.compile(&source.program(), side.context.info().architecture)?;
                let module = Module::load(&side.context, image.code())?;
                place.insert((module, image))
            }
        };
        Ok(module.kernel(image.symbol(expression).unwrap_or(expression))?)
    }

    /// The semaphore between the sides at a place, as `side` sees it.
    pub(super) fn semaphore(&self, side: usize, place: u64) -> MemoryDevice2DeviceSemaphoreHandle {
        let [here, there] = [side, 1 - side].map(|at| self.sides[at].words.address() + place);
        MemoryDevice2DeviceSemaphoreHandle {
            inbound: here + word::TOKEN,
            remote_inbound: there + word::TOKEN,
            expected: here + word::EXPECTED,
            site: self.site(side),
        }
    }

    pub(super) fn site(&self, side: usize) -> Site {
        Site { control: self.sides[side].control.address(), peer: 1 - side as u32, object: 0 }
    }

    /// A number that no measurement before has had.
    pub(super) fn next_seed(&self) -> u64 {
        self.seed.set(self.seed.get() + 1);
        self.seed.get()
    }

    /// What comes next in the side's stream waits for [`open_gate`](Self::open_gate).
    pub(super) fn enqueue_gate(&self, side: usize) -> Result<()> {
        let kernel = self.kernel(side, Source::Transfer, "gate")?;
        let arguments =
            Gate { word: self.gate.address(), value: self.opened.get() + 1, site: self.site(side) };
        // SAFETY: the kernel's parameters; the gate's word outlives the kernels.
        unsafe { self.sides[side].launch(&kernel, LaunchShape::new(1, 1), &(arguments,)) }
    }

    pub(super) fn open_gate(&self) {
        self.opened.set(self.opened.get() + 1);
        // SAFETY: an aligned word of our pinned memory, touched by atomic operations only while kernels run.
        let gate = unsafe { AtomicU64::from_ptr(self.gate.host().as_ptr().cast()) };
        gate.store(self.opened.get(), Ordering::Release);
    }

    /// Zeroes the words of both sides.
    pub(super) fn clear_words(&self) -> Result<()> {
        for side in &self.sides {
            // SAFETY: ours, and no kernel runs.
            unsafe { fill(&side.stream, side.words.address(), 0, word::CLEARED)? };
        }
        self.synchronize()
    }

    /// Waits for both sides; what a kernel has recorded comes before everything else.
    pub(super) fn synchronize(&self) -> Result<()> {
        let waited = self.wait_idle();
        self.sides.iter().try_for_each(Side::recorded)?;
        waited
    }

    fn wait_idle(&self) -> Result<()> {
        for side in &self.sides {
            side.stream.synchronize(host_deadline())?;
            side.second.synchronize(host_deadline())?;
        }
        Ok(())
    }

    /// Ends all waits of kernels.
    pub(super) fn abort(&self) {
        for side in &self.sides {
            side.abort_word().store(1, Ordering::Release);
        }
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        // Kernels of a measurement that failed may still wait; memory is not taken from under them.
        self.abort();
        if let Err(error) = self.wait_idle() {
            tracing::debug!(target: "warpway::gpu", "the last measurement: {error}");
        }
    }
}

impl Side {
    fn open(context: &Context, peer: &Context, most_bytes: u64) -> Result<Self> {
        let other = [peer];
        let peers: &[&Context] = if context == peer { &[] } else { &other };
        let buffer_bytes = most_bytes.next_multiple_of(16) + 8 * CANARIES;
        let numbers: Vec<u64> = (1..=MOST_ROUNDS).collect();
        let side = Self {
            context: context.clone(),
            stream: Stream::new(context)?,
            second: Stream::new(context)?,
            source: DeviceMemory::allocate(context, buffer_bytes, peers)?,
            destination: DeviceMemory::allocate(context, buffer_bytes, peers)?,
            words: DeviceMemory::allocate(context, word::NUMBERS + 8 * MOST_ROUNDS, peers)?,
            pinned: PinnedMemory::allocate(context, pinned::NUMBERS + 8 * MOST_ROUNDS)?,
            control: DeviceMemory::allocate(context, size_of::<Control>() as u64, &[])?,
            host_control: PinnedMemory::allocate(context, size_of::<HostControl>() as u64)?,
            modules: RefCell::default(),
        };
        for (at, number) in numbers.iter().enumerate() {
            side.pinned_word(pinned::NUMBERS + 8 * at as u64).store(*number, Ordering::Relaxed);
        }
        // SAFETY: ours; nothing uses it yet.
        unsafe { copy_from_host(&side.stream, side.words.address() + word::NUMBERS, &numbers)? };
        side.stream.synchronize(host_deadline())?;
        Ok(side)
    }

    /// Launches on the stream of the measured work.
    ///
    /// # Safety
    /// As [`Kernel::launch`].
    pub(super) unsafe fn launch<A: Arguments>(
        &self,
        kernel: &Kernel,
        shape: LaunchShape,
        arguments: &A,
    ) -> Result<()> {
        // SAFETY: the caller answers for the arguments.
        unsafe { kernel.launch(&self.stream, shape, arguments) }.map_err(Into::into)
    }

    /// Words of device memory, after everything in the stream.
    pub(super) fn read<const N: usize>(&self, offset: u64) -> Result<[u64; N]> {
        let mut words = [0; N];
        // SAFETY: in our words; synchronised before they are looked at.
        unsafe { copy_to_host(&self.stream, &mut words, self.words.address() + offset)? };
        self.stream.synchronize(host_deadline())?;
        Ok(words)
    }

    /// A word of pinned memory, which kernels reach as well.
    pub(super) fn pinned_word(&self, offset: u64) -> &AtomicU64 {
        debug_assert!(offset.is_multiple_of(8) && offset < self.pinned.bytes());
        // SAFETY: aligned and inside; host and device use atomic operations or single stores of whole words.
        unsafe { AtomicU64::from_ptr(self.pinned.host().as_ptr().add(offset as usize).cast()) }
    }

    fn host_control(&self) -> NonNull<HostControl> {
        self.host_control.host().cast()
    }

    pub(super) fn write_host_control(&self, control: HostControl) {
        // SAFETY: ours, aligned by pages, and no kernel runs.
        unsafe { self.host_control().write_volatile(control) };
    }

    fn abort_word(&self) -> &AtomicU32 {
        // SAFETY: the first word of the block; kernels read it by atomic loads.
        unsafe { AtomicU32::from_ptr(self.host_control.host().as_ptr().cast()) }
    }

    /// An error if a kernel has written one down.
    fn recorded(&self) -> Result<(), GpuError> {
        // SAFETY: the second word of the block; the device stores it with release.
        let state = unsafe { AtomicU32::from_ptr(self.host_control.host().as_ptr().add(4).cast()) };
        if state.load(Ordering::Acquire) != 2 {
            return Ok(());
        }
        // SAFETY: complete, says the state; nobody writes it again.
        let record: ErrorRecord = unsafe { (*self.host_control().as_ptr()).record };
        let shown = |text: Option<String>, number: u16| text.unwrap_or_else(|| number.to_string());
        Err(GpuError::Device {
            what: "measuring".into(),
            device: self.context.ordinal(),
            why: format!(
                "a kernel gave up: {} {} after {:.3} s, expected {}, observed {}",
                shown(record.wait_kind().map(|kind| kind.to_string()), record.kind),
                shown(record.failure_code().map(|code| code.to_string()), record.code),
                Duration::from_nanos(record.elapsed_ns).as_secs_f64(),
                record.expected,
                record.observed
            ),
            hint: None,
        })
    }
}

pub(super) fn host_deadline() -> Deadline {
    Deadline::after(HOST_DEADLINE)
}
