//! What can go wrong with a GPU. The engines that drive one are other crates; their errors meet the others here.

mod argument_mismatch;
mod kernel_failure;

use std::time::Duration;

use crate::error::ErrorCode;

pub use argument_mismatch::{ArgumentMismatch, ParameterExtent};
pub use kernel_failure::{FailureCode, KernelFailure, WaitKind};

/// A GPU's driver, its memory or a kernel for it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GpuError {
    /// A call of the driver failed.
    #[error("{what}: {call} failed: {name} ({code}): {text}{}", advice(.hint))]
    Driver {
        /// What was being done, with its sizes and its device.
        what: String,
        /// The function.
        call: &'static str,
        /// What it returned.
        code: u32,
        /// The driver's name for it.
        name: String,
        /// The driver's words.
        text: String,
        /// What the user may do about it, if anything is known.
        hint: Option<&'static str>,
    },
    /// A kernel does not compile.
    #[error("{name} does not compile for {architecture}:\n{log}")]
    Compile {
        /// The program.
        name: String,
        /// `sm_90` and the like.
        architecture: String,
        /// The compiler's words, each with the line that it is about.
        log: String,
    },
    /// Code for a device that is not whole. The driver has not seen it.
    #[error("{what}: {why}; build it anew")]
    Image {
        /// What was being done, with its bytes and its device.
        what: String,
        /// What is wrong.
        why: String,
    },
    /// Arguments that are not those of the kernel. It was not launched.
    #[error("launching {kernel}: {mismatch}")]
    Arguments {
        /// The kernel.
        kernel: String,
        /// What is wrong with them.
        mismatch: ArgumentMismatch,
    },
    /// A device that is not the one needed, or that lacks what is asked for.
    #[error("{what}: device {device}: {why}{}", advice(.hint))]
    Device {
        /// What was being done.
        what: String,
        /// The ordinal.
        device: i32,
        /// What is wrong with it.
        why: String,
        /// What the user may do about it, if anything is known.
        hint: Option<&'static str>,
    },
    /// Work on a device did not end in time.
    #[error("{what}: device {device} was not done after {:.3} s; it goes on, and what it uses must be kept", .elapsed.as_secs_f64())]
    Timeout {
        /// What was waited for.
        what: String,
        /// The ordinal.
        device: i32,
        /// Time spent.
        elapsed: Duration,
    },
    /// More blocks than can be resident at the same time: they could wait for each other for ever.
    #[error(
        "{kernel}: {blocks} blocks of {threads} threads cannot be resident on device {device}: \
         at most {limit} can, of which {taken} are taken by other kernels; launch fewer blocks"
    )]
    Residency {
        /// The kernel.
        kernel: String,
        /// The device's ordinal.
        device: i32,
        /// Blocks asked for.
        blocks: u64,
        /// Threads of each.
        threads: u64,
        /// Blocks of this kind that the device holds.
        limit: u64,
        /// Of them, taken by kernels that may wait for peers.
        taken: u64,
    },
    /// A kernel gave up, or refused a call; it has come to its end.
    #[error("{0}")]
    Kernel(Box<KernelFailure>),
}

fn advice(hint: &Option<&'static str>) -> String {
    hint.map(|hint| format!("; {hint}")).unwrap_or_default()
}

impl GpuError {
    /// The numeric code.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Driver { .. } => ErrorCode::SystemError,
            Self::Timeout { .. } => ErrorCode::Timeout,
            Self::Compile { .. }
            | Self::Image { .. }
            | Self::Arguments { .. }
            | Self::Device { .. }
            | Self::Residency { .. } => ErrorCode::InvalidUsage,
            Self::Kernel(failure) => failure.error_code(),
        }
    }

    /// A stable id.
    pub fn id(&self) -> &'static str {
        match self {
            Self::Driver { .. } => "gpu.driver",
            Self::Compile { .. } => "gpu.compile",
            Self::Image { .. } => "gpu.image",
            Self::Arguments { .. } => "gpu.arguments",
            Self::Device { .. } => "gpu.device",
            Self::Timeout { .. } => "gpu.timeout",
            Self::Residency { .. } => "gpu.residency",
            Self::Kernel(failure) => failure.id(),
        }
    }

    /// The other rank concerned.
    pub fn peer(&self) -> Option<u32> {
        match self {
            Self::Kernel(failure) => failure.peer,
            _ => None,
        }
    }
}
