//! The books of the driver.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};

use warpway_cuda_sys::driver_types::{
    CUDA_ERROR_CONTEXT_IS_DESTROYED, CUDA_ERROR_INVALID_CONTEXT, CUDA_ERROR_INVALID_DEVICE,
    CUDA_ERROR_INVALID_HANDLE, CUDA_ERROR_OUT_OF_MEMORY, CUcontext, CUdevice, CUresult,
};

use super::arena::Arena;
use super::call::{Answer, lock};
use super::capture::Capture;
use super::config::Config;
use super::event::Event;
use super::image::{Function, Module};
use super::launch::Launched;
use super::physical::Physical;
use super::region::{Kind, Region, Regions};
use super::stream::Stream;
use super::work::Work;

pub(super) struct State {
    pub(super) config: Config,
    pub(super) contexts: BTreeMap<usize, Context>,
    pub(super) arena: Arena,
    pub(super) regions: Regions,
    /// Reserved addresses: first, and how many.
    pub(super) reservations: BTreeMap<u64, u64>,
    /// Handles of cuMemCreate, with how often each was handed out.
    pub(super) handles: HashMap<u64, (Arc<Physical>, u64)>,
    pub(super) streams: HashMap<u64, Stream>,
    pub(super) events: HashMap<u64, Arc<Event>>,
    pub(super) modules: HashMap<u64, Module>,
    pub(super) functions: HashMap<u64, Function>,
    pub(super) graphs: HashMap<u64, Vec<Work>>,
    pub(super) executables: HashMap<u64, Executable>,
    pub(super) captures: HashMap<u64, Capture>,
    pub(super) launches: Vec<Launched>,
    /// Objects that died with their context instead of being destroyed.
    pub(super) abandoned: u64,
    /// All memory made here that may still be alive.
    memories: Vec<Weak<Physical>>,
    next: u64,
}

/// A graph that can be launched.
pub(super) struct Executable {
    pub(super) device: usize,
    pub(super) work: Vec<Work>,
}

/// The primary context of a device.
#[derive(Debug, Default)]
pub(super) struct Context {
    pub(super) retained: u64,
    /// Devices whose memory kernels of this one may touch.
    pub(super) peers: BTreeSet<usize>,
    /// A failed kernel poisons its context.
    pub(super) error: Option<CUresult>,
    /// The stream called 0.
    pub(super) legacy: u64,
}

pub(super) fn state() -> MutexGuard<'static, State> {
    static STATE: OnceLock<Mutex<State>> = OnceLock::new();
    lock(STATE.get_or_init(|| Mutex::new(State::new())))
}

thread_local! {
    /// The contexts of this thread, the current one last.
    pub(super) static STACK: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

/// Handles of contexts, the same whenever the context of a device is made again.
const CONTEXT: u64 = 0xc0de_0000;

pub(super) fn context_of(device: usize) -> u64 {
    CONTEXT + device as u64 * 16
}

impl State {
    fn new() -> Self {
        Self {
            config: Config::from_env(),
            contexts: BTreeMap::new(),
            arena: Arena::new(),
            regions: Regions::default(),
            reservations: BTreeMap::new(),
            handles: HashMap::new(),
            streams: HashMap::new(),
            events: HashMap::new(),
            modules: HashMap::new(),
            functions: HashMap::new(),
            graphs: HashMap::new(),
            executables: HashMap::new(),
            captures: HashMap::new(),
            launches: Vec::new(),
            abandoned: 0,
            memories: Vec::new(),
            next: 0x1000,
        }
    }

    /// A number that no object has had. Small, so that a confused program that follows it as a pointer faults.
    pub(super) fn fresh(&mut self) -> u64 {
        self.next += 16;
        self.next
    }

    /// The ordinal of a device handle. Handles are ordinals.
    pub(super) fn device(&self, device: CUdevice) -> Answer<usize> {
        usize::try_from(device)
            .ok()
            .filter(|ordinal| *ordinal < self.config.visible.len())
            .ok_or(CUDA_ERROR_INVALID_DEVICE)
    }

    /// The ordinal of a device of the machine, if this process sees it.
    pub(super) fn ordinal(&self, device: u32) -> Answer<usize> {
        self.config.visible.iter().position(|visible| *visible == device).ok_or(CUDA_ERROR_INVALID_DEVICE)
    }

    /// Whether a device reaches the memory of another, by ordinals.
    pub(super) fn reaches(&self, from: usize, to: usize) -> bool {
        from == to || self.config.reaches(self.config.visible[from], self.config.visible[to])
    }

    /// First address and end of the reservation around an address.
    pub(super) fn reservation(&self, address: u64) -> Option<(u64, u64)> {
        let (start, size) = self.reservations.range(..=address).next_back()?;
        (address < start + size).then_some((*start, start + size))
    }

    /// The device of a context that is alive.
    pub(super) fn context(&self, context: CUcontext) -> Answer<usize> {
        self.alive(context as u64)
    }

    fn alive(&self, context: u64) -> Answer<usize> {
        let device = (context.wrapping_sub(CONTEXT) / 16) as usize;
        if device >= self.config.visible.len() || context_of(device) != context {
            return Err(CUDA_ERROR_INVALID_CONTEXT);
        }
        if self.contexts.contains_key(&device) { Ok(device) } else { Err(CUDA_ERROR_CONTEXT_IS_DESTROYED) }
    }

    /// The device of the calling thread's context; an error if there is none or it is poisoned.
    pub(super) fn current(&self) -> Answer<usize> {
        let top = STACK.with_borrow(|stack| stack.last().copied()).ok_or(CUDA_ERROR_INVALID_CONTEXT)?;
        let device = self.alive(top)?;
        self.healthy(device)?;
        Ok(device)
    }

    /// The error that poisons a device's context.
    pub(super) fn healthy(&self, device: usize) -> Answer {
        match self.contexts.get(&device) {
            Some(Context { error: Some(error), .. }) => Err(*error),
            Some(_) => Ok(()),
            None => Err(CUDA_ERROR_CONTEXT_IS_DESTROYED),
        }
    }

    pub(super) fn poison(&mut self, device: usize, error: CUresult) {
        if let Some(context) = self.contexts.get_mut(&device) {
            context.error.get_or_insert(error);
        }
    }

    /// Bytes in use on a device, by the machine's number, as far as this process made them.
    pub(super) fn used(&mut self, device: u32) -> u64 {
        self.memories.retain(|memory| memory.strong_count() != 0);
        let alive = self.memories.iter().filter_map(Weak::upgrade);
        alive.filter(|memory| memory.identity.device == device).map(|memory| memory.size).sum()
    }

    /// New memory of a device.
    pub(super) fn create(&mut self, device: usize, size: u64, shareable: u32) -> Answer<Arc<Physical>> {
        let number = self.config.visible[device];
        if size > self.config.memory.saturating_sub(self.used(number)) {
            return Err(CUDA_ERROR_OUT_OF_MEMORY);
        }
        let memory = Arc::new(Physical::create(number, size, shareable)?);
        self.memories.push(Arc::downgrade(&memory));
        Ok(memory)
    }

    /// Makes addresses alive that lead to all of a memory.
    pub(super) fn enter(&mut self, size: u64, device: usize, kind: Kind) -> Answer<u64> {
        let start = self.arena.take(size, 1)?;
        let region = Region { start, size, buffer: self.fresh(), device, kind };
        match region.memory() {
            Some(memory) => self.arena.back(start, memory.size, memory.descriptor())?,
            None => self.arena.pin(start, size)?,
        }
        self.regions.insert(region);
        Ok(start)
    }

    /// Ends the life of a region.
    pub(super) fn leave(&mut self, start: u64) {
        if let Some(region) = self.regions.remove(start)
            && !matches!(region.kind, Kind::Registered)
        {
            let size = region.memory().map_or(region.size, |memory| memory.size);
            self.arena.clear(start, size);
        }
    }

    /// An object by its handle.
    pub(super) fn event(&self, handle: u64) -> Answer<&Arc<Event>> {
        self.events.get(&handle).ok_or(CUDA_ERROR_INVALID_HANDLE)
    }
}
