//! The consumer's end of whatever a proxy takes its requests from.

use std::sync::Arc;
use std::time::Instant;

use super::ProxyError;
use super::source::{PROXY_STOPPED, PollPolicy, TriggerSource};
use crate::error::Result;
use crate::fifo::{Fifo, FifoHandle, Trigger};
use crate::wait::EventCount;

/// One source of requests. Elements are consumed in the order of their positions.
pub(super) enum Intake {
    /// Host threads push, and wake the proxy.
    Host(Fifo),
    /// A device pushes.
    Device(DeviceIntake),
}

/// See [`Intake::Device`].
pub(super) struct DeviceIntake {
    source: Arc<dyn TriggerSource>,
    poll: PollPolicy,
    /// Position of the next element.
    tail: u64,
    /// Elements consumed, as the device knows it.
    consumed: u64,
    /// Since when nothing has come.
    idle_since: Option<Instant>,
    /// Where the thread naps.
    alarm: Arc<EventCount>,
    /// A stop has left something undone. Kernels were told that it will never be done, and some may not have
    /// looked yet: the words they look at keep saying so, hence this ring cannot be used again.
    spent: bool,
}

impl Intake {
    pub(super) fn device(source: Arc<dyn TriggerSource>, poll: PollPolicy) -> Self {
        let alarm = Arc::new(EventCount::new());
        Self::Device(DeviceIntake {
            source,
            poll,
            tail: 0,
            consumed: 0,
            idle_since: None,
            alarm,
            spent: false,
        })
    }

    /// What wakes the thread that sleeps here.
    pub(super) fn alarm(&self) -> Alarm {
        match self {
            Self::Host(fifo) => Alarm::Host(fifo.handle()),
            Self::Device(device) => Alarm::Device(Arc::clone(&device.alarm)),
        }
    }

    /// The next element, if it is there.
    #[inline]
    pub(super) fn poll(&mut self) -> Option<Result<Trigger, ProxyError>> {
        match self {
            Self::Host(fifo) => fifo.poll(),
            Self::Device(device) => Some(device.source.front(device.tail)?.decode()),
        }
    }

    /// Consumes the element that [`poll`](Self::poll) showed.
    #[inline]
    pub(super) fn pop(&mut self) {
        match self {
            Self::Host(fifo) => {
                fifo.pop();
            }
            Self::Device(device) => {
                device.tail += 1;
                device.consumed = device.tail;
                device.source.publish_tail(device.consumed);
            }
        }
    }

    /// The same for an element that is not carried out. A device does not see it: its place stays occupied.
    pub(super) fn discard(&mut self) {
        match self {
            Self::Host(fifo) => {
                fifo.pop();
            }
            Self::Device(device) => device.tail += 1,
        }
    }

    /// Position of the next element.
    #[inline]
    pub(super) fn tail(&self) -> u64 {
        match self {
            Self::Host(fifo) => fifo.tail(),
            Self::Device(device) => device.tail,
        }
    }

    /// Positions that producers have taken. For a device this is a copy across the bus.
    pub(super) fn head(&self) -> Result<u64> {
        match self {
            Self::Host(fifo) => Ok(fifo.head()),
            Self::Device(device) => device.source.head(),
        }
    }

    /// The proxy starts. False if it must not, see [`DeviceIntake::spent`].
    pub(super) fn open(&mut self) -> bool {
        match self {
            Self::Host(fifo) => fifo.handle().open(),
            Self::Device(device) if device.spent => return false,
            Self::Device(device) => {
                device.idle_since = None;
                device.source.publish_tail(device.consumed);
            }
        }
        true
    }

    /// The proxy has ended; `undone`: some request was not carried out.
    pub(super) fn close(&mut self, undone: bool) {
        match self {
            Self::Host(fifo) => fifo.handle().close(),
            Self::Device(device) => {
                device.spent |= undone;
                // What was discarded stays uncounted: whoever waits for it must not take it for consumed.
                device.source.publish_tail(device.consumed | PROXY_STOPPED);
            }
        }
    }
}

impl DeviceIntake {
    /// Looks at the ring before the first yield.
    pub(super) fn spins(&self) -> u32 {
        self.poll.spins
    }

    /// The proxy has found nothing to do for the `round`th time. Returns early once `called` holds and the alarm
    /// was given.
    pub(super) fn back_off(&mut self, round: u32, called: impl FnMut() -> bool) {
        if round <= 1 {
            self.idle_since = None;
        }
        if round <= self.poll.spins {
            return crate::sync::spin_loop();
        }
        let idle = self.idle_since.get_or_insert_with(Instant::now).elapsed();
        match self.poll.nap(idle) {
            None => crate::sync::yield_now(),
            Some(nap) => self.alarm.sleep_unless(nap, called),
        }
    }
}

/// Wakes a proxy's thread, wherever it sleeps.
#[derive(Clone)]
pub(super) enum Alarm {
    /// At the ring of host threads.
    Host(FifoHandle),
    /// Napping between two looks at a device's ring.
    Device(Arc<EventCount>),
}

impl Alarm {
    pub(super) fn wake(&self) {
        match self {
            Self::Host(fifo) => fifo.wake(),
            Self::Device(event) => event.notify(),
        }
    }
}
