//! Arguments that are not those of their kernel.

use std::fmt;

/// The first difference between a launch's arguments and the kernel's parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ArgumentMismatch {
    /// More or fewer.
    Count {
        /// Parameters of the kernel.
        expected: u64,
        /// Arguments of the launch.
        given: u64,
    },
    /// One that is longer or shorter.
    Size {
        /// Its place, counted from 1.
        position: u64,
        /// The argument's type.
        argument: &'static str,
        /// The kernel's parameter.
        expected: ParameterExtent,
        /// The argument, behind those before it.
        given: ParameterExtent,
    },
}

/// Where a parameter lies in the area that the kernel is handed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParameterExtent {
    /// Bytes before it.
    pub offset: u64,
    /// Its bytes.
    pub bytes: u64,
}

impl fmt::Display for ArgumentMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count { expected, given } => {
                write!(f, "arguments: {given} given, the kernel takes {expected}")
            }
            Self::Size { position, argument, expected, given } => write!(
                f,
                "argument {position} ({argument}) has {} bytes at offset {}, the kernel's parameter has {} at offset {}",
                given.bytes, given.offset, expected.bytes, expected.offset
            ),
        }
    }
}
