//! A ring as a device has it, and producers that write into it as kernels do.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use warpway_core::Result;
use warpway_core::error::SystemError;
use warpway_core::fifo::{EncodedTrigger, Slot, Trigger};
use warpway_core::proxy::{PROXY_STOPPED, ProgressWord, TriggerSource};

/// The memory that host and device share.
pub(crate) struct DeviceRing {
    slots: Vec<Slot>,
    head: AtomicU64,
    pub(crate) tail: AtomicU64,
    words: Mutex<Vec<Arc<Word>>>,
    /// The device does not answer any more.
    pub(crate) dead: AtomicBool,
}

pub(crate) struct Word(AtomicU64);

impl ProgressWord for Word {
    fn store(&self, value: u64) {
        self.0.store(value, Ordering::Release);
    }

    fn address(&self) -> u64 {
        self.0.as_ptr() as u64
    }
}

/// How a wait of a kernel ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Status {
    Pending,
    Ok,
    Aborted,
}

impl DeviceRing {
    pub(crate) fn new(size: u64) -> Arc<Self> {
        Arc::new(Self {
            slots: (0..size).map(|_| Slot::default()).collect(),
            head: AtomicU64::new(0),
            tail: AtomicU64::new(0),
            words: Mutex::default(),
            dead: AtomicBool::new(false),
        })
    }

    /// The first half of a push.
    pub(crate) fn take_position(&self) -> u64 {
        self.head.fetch_add(1, Ordering::Relaxed)
    }

    /// Whether the slot of a position is free.
    pub(crate) fn slot_status(&self, position: u64) -> Status {
        match position.checked_sub(self.size()) {
            Some(before) => self.status(self.tail.load(Ordering::Acquire), before),
            None => Status::Ok,
        }
    }

    /// The second half.
    pub(crate) fn write(&self, position: u64, element: &EncodedTrigger) {
        self.slots[(position % self.size()) as usize].write(position, self.size(), element);
    }

    /// Both; waits like a kernel. `None` if the proxy has stopped.
    pub(crate) fn push(&self, trigger: &Trigger) -> Option<u64> {
        let position = self.take_position();
        loop {
            match self.slot_status(position) {
                Status::Ok => break,
                Status::Aborted => return None,
                Status::Pending => std::thread::yield_now(),
            }
        }
        self.write(position, &trigger.encode().unwrap());
        Some(position)
    }

    pub(crate) fn consumed(&self, position: u64) -> Status {
        self.status(self.tail.load(Ordering::Acquire), position)
    }

    /// The flush at `position` on the `lane`th connection.
    pub(crate) fn flushed(&self, lane: usize, position: u64) -> Status {
        self.status(self.words.lock().unwrap()[lane].0.load(Ordering::Acquire), position)
    }

    pub(crate) fn word(&self, lane: usize) -> u64 {
        self.words.lock().unwrap()[lane].0.load(Ordering::Acquire)
    }

    /// The rule of `await_proxy` in fifo.cuh.
    fn status(&self, seen: u64, position: u64) -> Status {
        match () {
            () if seen & !PROXY_STOPPED > position => Status::Ok,
            () if seen & PROXY_STOPPED != 0 => Status::Aborted,
            () => Status::Pending,
        }
    }
}

impl TriggerSource for DeviceRing {
    fn size(&self) -> u64 {
        self.slots.len() as u64
    }

    fn front(&self, position: u64) -> Option<EncodedTrigger> {
        self.slots[(position % self.size()) as usize].read(position, self.size())
    }

    fn publish_tail(&self, tail: u64) {
        self.tail.store(tail, Ordering::Release);
    }

    fn head(&self) -> Result<u64> {
        if self.dead.load(Ordering::Relaxed) {
            return Err(
                SystemError::from_io("asking the device", &std::io::ErrorKind::BrokenPipe.into()).into()
            );
        }
        Ok(self.head.load(Ordering::Relaxed))
    }

    fn progress_word(&self) -> Result<Arc<dyn ProgressWord>> {
        let word = Arc::new(Word(AtomicU64::new(0)));
        self.words.lock().unwrap().push(Arc::clone(&word));
        Ok(word)
    }
}
