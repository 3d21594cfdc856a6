//! Failures that a kernel has noted, in the numbers that device code writes.

use std::fmt;
use std::time::Duration;

use crate::error::ErrorCode;

macro_rules! numbered {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $number:literal, $text:literal;)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u16)]
        #[non_exhaustive]
        pub enum $name {
            $($(#[$variant_doc])* $variant = $number,)*
        }

        impl $name {
            /// The number in a record.
            pub const fn number(self) -> u16 {
                self as u16
            }

            /// `None` for a number without meaning.
            pub const fn from_number(number: u16) -> Option<Self> {
                match number {
                    $($number => Some(Self::$variant),)*
                    _ => None,
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(match self {
                    $(Self::$variant => $text,)*
                })
            }
        }
    };
}

numbered! {
    /// What went wrong on a device; shown as what a kernel did.
    FailureCode {
        /// The deadline passed, or the caller's own bound of tests.
        Timeout = 1, "timed out";
        /// The abort word was set, or the proxy has stopped.
        Aborted = 2, "was aborted";
        /// A request that no FIFO element can carry.
        FifoRange = 3, "pushed a request that is out of range";
        /// A handle whose object is gone.
        StaleHandle = 4, "used a stale handle";
        /// A missing buffer or barrier, a range beyond its memory.
        Misuse = 5, "misused a call";
        /// An address, offset or size that is not aligned as it must be.
        Alignment = 6, "used a misaligned address";
        /// The transport failed.
        Transport = 7, "lost its transport";
    }
}

numbered! {
    /// What a device thread was doing.
    WaitKind {
        /// Waiting for a signal of the host or its proxy.
        HostToDevice = 1, "host-to-device semaphore";
        /// Waiting for a signal of a peer's device.
        MemoryDeviceToDevice = 2, "device-to-device semaphore";
        /// Waiting for a multicast group.
        Switch = 3, "switch barrier";
        /// Waiting for a packet or line.
        Packet = 4, "packet";
        /// Waiting for the completion of requests.
        Flush = 5, "flush";
        /// Waiting for a FIFO element to be consumed.
        FifoSlot = 6, "FIFO slot";
        /// Waiting for other blocks.
        GridBarrier = 7, "grid barrier";
        /// Waiting for a unit of a semaphore of the device.
        DeviceSemaphore = 8, "device semaphore";
        /// Waiting for a bulk copy.
        BulkBarrier = 9, "bulk barrier";
        /// Not waiting: a call that was refused.
        Call = 10, "call";
    }
}

/// The first failure of a communicator in a kernel: who waited for whom, where, and for what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelFailure {
    /// What went wrong.
    pub code: FailureCode,
    /// What the thread was doing.
    pub kind: WaitKind,
    /// Whose kernel it was.
    pub rank: u32,
    /// Whom it waited for, where that is one rank.
    pub peer: Option<u32>,
    /// Ordinal of the device.
    pub device: i32,
    /// The semaphore, channel or object; numbers count per kind.
    pub object: u32,
    /// Linear index of the block in its grid.
    pub block: u32,
    /// Linear index of the thread in its block.
    pub thread: u32,
    /// Counter, flag or phase that was waited for; of a refused call, what is allowed.
    pub expected: u64,
    /// What was there instead.
    pub observed: u64,
    /// How long the wait took, at least.
    pub elapsed: Duration,
    /// Epoch of the scratch area, 0 where there is none.
    pub epoch: u64,
    /// The abort word where the code is [`FailureCode::Aborted`]; 0 if a proxy has stopped.
    pub reason: u32,
}

impl KernelFailure {
    /// The rank to blame: whoever did not come, or this one for a call that cannot be carried out.
    pub fn culprit(&self) -> Option<u32> {
        match self.code {
            FailureCode::Timeout | FailureCode::Transport => self.peer,
            FailureCode::Aborted => None,
            FailureCode::FifoRange
            | FailureCode::StaleHandle
            | FailureCode::Misuse
            | FailureCode::Alignment => Some(self.rank),
        }
    }

    /// The numeric code.
    pub fn error_code(&self) -> ErrorCode {
        match self.code {
            FailureCode::Timeout => ErrorCode::Timeout,
            FailureCode::Aborted => ErrorCode::Aborted,
            FailureCode::Transport => ErrorCode::RemoteError,
            FailureCode::FifoRange
            | FailureCode::StaleHandle
            | FailureCode::Misuse
            | FailureCode::Alignment => ErrorCode::InvalidUsage,
        }
    }

    /// A stable id.
    pub fn id(&self) -> &'static str {
        match self.code {
            FailureCode::Timeout => "device.timeout",
            FailureCode::Aborted => "device.aborted",
            FailureCode::FifoRange => "fifo.range",
            FailureCode::StaleHandle => "device.stale_handle",
            FailureCode::Misuse => "device.misuse",
            FailureCode::Alignment => "device.alignment",
            FailureCode::Transport => "device.transport",
        }
    }

    /// Where and on what, without what went wrong: `device-to-device semaphore 3, waiting for rank 1`.
    pub fn place(&self) -> impl fmt::Display {
        fmt::from_fn(|f| {
            let Self { kind, object, peer, device, block, thread, .. } = self;
            write!(f, "{kind} {object}")?;
            match peer {
                Some(peer) if *kind == WaitKind::Call => write!(f, " with rank {peer}")?,
                Some(peer) => write!(f, ", waiting for rank {peer}")?,
                None => {}
            }
            write!(f, " (block {block}, thread {thread} on device {device})")
        })
    }
}

impl fmt::Display for KernelFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { code, rank, expected, observed, elapsed, epoch, .. } = self;
        write!(f, "rank {rank}: a kernel {code}: {}: ", self.place())?;
        write!(f, "expected {expected}, observed {observed}")?;
        if *epoch != 0 {
            write!(f, ", epoch {epoch}")?;
        }
        if !elapsed.is_zero() {
            write!(f, ", after {:.3} s", elapsed.as_secs_f64())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;
    use crate::gpu::GpuError;

    const TIMEOUT: KernelFailure = KernelFailure {
        code: FailureCode::Timeout,
        kind: WaitKind::MemoryDeviceToDevice,
        rank: 0,
        peer: Some(1),
        device: 2,
        object: 3,
        block: 4,
        thread: 5,
        expected: 7,
        observed: 6,
        elapsed: Duration::from_millis(2001),
        epoch: 0,
        reason: 0,
    };

    #[test]
    fn a_failure_says_who_waited_for_whom() {
        let error = Error::from(GpuError::Kernel(Box::new(TIMEOUT)));
        assert_eq!(
            error.to_string(),
            "rank 0: a kernel timed out: device-to-device semaphore 3, waiting for rank 1 \
             (block 4, thread 5 on device 2): expected 7, observed 6, after 2.001 s"
        );
        assert_eq!((error.code(), error.id()), (ErrorCode::Timeout, "device.timeout"));
        assert_eq!((error.peer(), error.culprit()), (Some(1), Some(1)));
    }

    #[test]
    fn a_refused_call_blames_its_own_rank() {
        let refused = KernelFailure {
            code: FailureCode::Misuse,
            kind: WaitKind::Call,
            elapsed: Duration::ZERO,
            epoch: 9,
            ..TIMEOUT
        };
        let error = Error::from(GpuError::Kernel(Box::new(refused)));
        assert_eq!(
            error.to_string(),
            "rank 0: a kernel misused a call: call 3 with rank 1 (block 4, thread 5 on device 2): \
             expected 7, observed 6, epoch 9"
        );
        assert_eq!((error.code(), error.culprit()), (ErrorCode::InvalidUsage, Some(0)));
    }
}
