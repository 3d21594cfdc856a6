//! What blocks do with memory channels: one-sided copies, element access, signals.

use std::ops::Deref;
use std::ptr::NonNull;

use warpway_core::channel::MemoryChannelHandle;
use warpway_core::channel::{BaseMemoryChannel, ChannelError, DeviceHandle, MemoryChannel, SemaphoreHandle};
use warpway_core::memory::{Access, Element, RegisteredMemory};
use warpway_core::trace::Operation;
use warpway_core::wait::{WaitPolicy, Waiter};
use warpway_core::{Result, Timeout};

use crate::copy::{bytes_of, copy, overlap, read, write};
use crate::share::Share;

/// Bytes at which a collective copy is divided: whole cache lines to each participant.
const COPY_GRANULE: u64 = 64;

/// The block side of a semaphore between two ranks' blocks. `Send + Sync`: any block may call it, and
/// each wait takes exactly one signal.
///
/// After a failure of the communicator every call returns that failure at once.
#[derive(Debug, Clone)]
pub struct BlockSemaphore {
    guard: DeviceHandle<SemaphoreHandle, BaseMemoryChannel>,
    waiter: Waiter,
    timeout: Timeout,
}

impl BlockSemaphore {
    /// From the host object, which it keeps alive.
    ///
    /// # Errors
    /// `mem.transport` if the peer's token has no address here.
    pub fn new(channel: &BaseMemoryChannel) -> Result<Self> {
        let waiter = channel.semaphore().semaphore().connection().waiter().clone();
        Ok(Self { guard: channel.device_handle()?, waiter, timeout: channel.timeout() })
    }

    /// The same with another back-off: for launches of more blocks than the communicator's own policy
    /// is made for.
    pub fn with_policy(mut self, policy: WaitPolicy) -> Self {
        self.waiter.policy = policy;
        self
    }

    /// Raises the peer's counter by one. What this thread wrote or acquired before is visible to the
    /// waiter that takes the signal.
    ///
    /// # Errors
    /// The communicator's failure.
    #[inline]
    pub fn signal(&self) -> Result<()> {
        self.waiter.health.check_during(Operation::Signal)?;
        self.semaphore().remote_token()?.add(1);
        Ok(())
    }

    /// Raises the peer's counter without promising anything about data. On the host the order costs
    /// nothing, so this is [`signal`](Self::signal); do not rely on it.
    ///
    /// # Errors
    /// As [`signal`](Self::signal).
    #[inline]
    pub fn relaxed_signal(&self) -> Result<()> {
        self.signal()
    }

    /// Takes one signal if there is one; what the peer wrote before it is visible then.
    ///
    /// # Errors
    /// The communicator's failure.
    #[inline]
    pub fn poll(&self) -> Result<bool> {
        if self.semaphore().poll()? {
            return Ok(true);
        }
        self.waiter.health.check_during("poll").map(|()| false)
    }

    /// Waits for one signal and takes it; what the peer wrote before it is visible then.
    ///
    /// # Errors
    /// [`WaitError`](warpway_core::wait::WaitError) naming the peer, on timeout, abort or failure. It has
    /// taken no signal then.
    #[inline]
    pub fn wait(&self) -> Result<()> {
        self.semaphore().wait_with(&self.waiter, self.timeout)
    }

    /// Waits for one signal without promising anything about data; see
    /// [`relaxed_signal`](Self::relaxed_signal).
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    #[inline]
    pub fn relaxed_wait(&self) -> Result<()> {
        self.wait()
    }

    /// The peer's rank.
    pub fn peer(&self) -> u32 {
        self.semaphore().connection().peer()
    }

    /// What kernels in other languages take by value.
    pub fn handle(&self) -> &SemaphoreHandle {
        &self.guard
    }

    pub(crate) fn semaphore(&self) -> &warpway_core::semaphore::Semaphore {
        self.guard.channel().semaphore().semaphore()
    }

    pub(crate) fn waiter(&self) -> &Waiter {
        &self.waiter
    }

    pub(crate) fn timeout(&self) -> Timeout {
        self.timeout
    }
}

/// The block side of a memory channel. `Send + Sync`, cheap to clone; it keeps the channel alive.
///
/// Offsets and counts are bytes unless said otherwise, and always checked. `put` and `get` contain no
/// fence: [`signal`](BlockSemaphore::signal) orders them for the peer.
///
/// The calls that take a [`Share`] are made by all participants together, each with its own index.
#[derive(Debug, Clone)]
pub struct BlockChannel {
    guard: DeviceHandle<MemoryChannelHandle, MemoryChannel>,
    semaphore: BlockSemaphore,
}

/// Signals and waits.
impl Deref for BlockChannel {
    type Target = BlockSemaphore;
    fn deref(&self) -> &BlockSemaphore {
        &self.semaphore
    }
}

impl BlockChannel {
    /// From the host object, which it keeps alive.
    ///
    /// # Errors
    /// `mem.transport` if the peer's token has no address here.
    pub fn new(channel: &MemoryChannel) -> Result<Self> {
        Ok(Self { guard: channel.device_handle()?, semaphore: BlockSemaphore::new(channel.base())? })
    }

    /// See [`BlockSemaphore::with_policy`].
    pub fn with_policy(mut self, policy: WaitPolicy) -> Self {
        self.semaphore = self.semaphore.with_policy(policy);
        self
    }

    /// Copies local `source + origin_offset` to the peer's `destination + target_offset`.
    ///
    /// # Errors
    /// `mem.bounds`, `mem.access`, `channel.overlap`, `channel.share`, or the communicator's failure. Then
    /// this participant has written nothing.
    pub fn put(&self, target_offset: u64, origin_offset: u64, bytes: u64, share: Share) -> Result<()> {
        let (near, far) = (self.channel().source(), self.channel().destination());
        far.require_access("put", Access::WRITE)?;
        self.transfer("put", End(far, target_offset), End(near, origin_offset), bytes, share)
    }

    /// [`put`](Self::put) with the same offset on both sides.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn put_same(&self, offset: u64, bytes: u64, share: Share) -> Result<()> {
        self.put(offset, offset, bytes, share)
    }

    /// Copies the peer's `destination + origin_offset` to local `source + target_offset`.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn get(&self, target_offset: u64, origin_offset: u64, bytes: u64, share: Share) -> Result<()> {
        let (near, far) = (self.channel().source(), self.channel().destination());
        far.require_access("get", Access::READ)?;
        self.transfer("get", End(near, target_offset), End(far, origin_offset), bytes, share)
    }

    /// [`get`](Self::get) with the same offset on both sides.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn get_same(&self, offset: u64, bytes: u64, share: Share) -> Result<()> {
        self.get(offset, offset, bytes, share)
    }

    /// Element `index` of the peer's memory.
    ///
    /// # Errors
    /// `mem.bounds`, `mem.access`, or the communicator's failure.
    pub fn read<T: Element>(&self, index: u64) -> Result<T> {
        let address = self.element::<T>("read", index, Access::READ)?;
        // SAFETY: `element` has checked the range; the channel keeps it mapped.
        Ok(unsafe { read(address) })
    }

    /// Sets element `index` of the peer's memory.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn write<T: Element>(&self, index: u64, value: T) -> Result<()> {
        let address = self.element::<T>("write", index, Access::WRITE)?;
        // SAFETY: as in `read`.
        unsafe { write(address, value) };
        Ok(())
    }

    /// The host object.
    pub fn channel(&self) -> &MemoryChannel {
        self.guard.channel()
    }

    /// What kernels in other languages take by value.
    pub fn memory_handle(&self) -> &MemoryChannelHandle {
        &self.guard
    }

    fn transfer(
        &self,
        name: &'static str,
        to: End<'_>,
        from: End<'_>,
        bytes: u64,
        share: Share,
    ) -> Result<()> {
        self.waiter().health.check_during(name)?;
        let (to, from) = (to.pointer(name, bytes)?, from.pointer(name, bytes)?);
        if overlap(to, from, bytes) {
            return Err(ChannelError::Overlap { operation: name, peer: self.peer(), size: bytes }.into());
        }
        let part = share.part(name, bytes, COPY_GRANULE)?;
        // SAFETY: the part lies inside both ranges, which `pointer` has checked and the channel keeps
        // mapped; the ranges are disjoint.
        unsafe {
            copy(to.add(part.start as usize), from.add(part.start as usize), part.end - part.start);
        }
        Ok(())
    }

    fn element<T: Element>(&self, name: &'static str, index: u64, access: Access) -> Result<NonNull<u8>> {
        self.waiter().health.check_during(name)?;
        let memory = self.channel().destination();
        memory.require_access(name, access)?;
        let offset = bytes_of::<T>(name, index, memory.size())?;
        Ok(memory.pointer(name, offset, size_of::<T>() as u64)?)
    }
}

/// One end of a copy.
struct End<'a>(&'a RegisteredMemory, u64);

impl End<'_> {
    fn pointer(&self, name: &'static str, bytes: u64) -> Result<NonNull<u8>> {
        Ok(self.0.pointer(name, self.1, bytes)?)
    }
}
