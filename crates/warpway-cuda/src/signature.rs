//! What a kernel takes, and whether a launch's arguments are that.

use std::sync::atomic::{AtomicPtr, Ordering};

use warpway_core::gpu::{ArgumentMismatch, GpuError, ParameterExtent};
use warpway_cuda_sys::driver_types::{CUDA_ERROR_INVALID_VALUE, CUfunction};

use crate::arguments::{ArgumentTypes, Arguments};
use crate::context::Context;

/// The parameters of a kernel, as the driver knows them from its image: where they lie, not what they mean.
#[derive(Debug)]
pub(crate) struct Signature {
    /// `None` with a driver that does not tell, and where a tool takes the question for one parameter more for a fault.
    parameters: Option<Vec<ParameterExtent>>,
    /// The types that were accepted last, so that a launch like the one before compares an address only.
    accepted: AtomicPtr<ArgumentTypes>,
}

impl Signature {
    /// Asks the driver, which can tell since CUDA 12.4. The context must be current.
    pub(crate) fn ask(context: &Context, name: &str, kernel: CUfunction) -> Result<Self, GpuError> {
        let parameters = match context.driver().table().cuFuncGetParamInfo {
            Some(ask) if !context.driver().is_watched() => {
                let mut found = Vec::new();
                loop {
                    let (mut offset, mut bytes) = (0usize, 0usize);
                    // SAFETY: writes two numbers; the caller has just got the handle.
                    let result = unsafe { ask(kernel, found.len(), &raw mut offset, &raw mut bytes) };
                    if result == CUDA_ERROR_INVALID_VALUE {
                        // Behind the last one.
                        break;
                    }
                    let what = format_args!("asking what kernel {name} takes");
                    context.check(what, "cuFuncGetParamInfo", result)?;
                    found.push(ParameterExtent { offset: offset as u64, bytes: bytes as u64 });
                }
                Some(found)
            }
            _ => None,
        };
        Ok(Self { parameters, accepted: AtomicPtr::default() })
    }

    /// An error unless there is one parameter, of so many words.
    pub(crate) fn check_words(&self, kernel: &str, words: usize) -> Result<(), GpuError> {
        let Some(known) = self.parameters.as_deref() else { return Ok(()) };
        let given = ParameterExtent { offset: 0, bytes: 8 * words as u64 };
        let mismatch = match known {
            [only] if only.bytes == given.bytes => return Ok(()),
            [expected] => ArgumentMismatch::Size {
                position: 1,
                argument: "words of a launch",
                expected: *expected,
                given,
            },
            _ => ArgumentMismatch::Count { expected: known.len() as u64, given: 1 },
        };
        Err(GpuError::Arguments { kernel: kernel.into(), mismatch })
    }

    /// An error unless there are as many arguments as parameters, each of its parameter's size.
    pub(crate) fn check<A: Arguments>(&self, kernel: &str) -> Result<(), GpuError> {
        let types = std::ptr::from_ref(A::TYPES).cast_mut();
        // Relaxed: the address is compared, nothing is read through it.
        if self.accepted.load(Ordering::Relaxed) == types {
            return Ok(());
        }
        if let Some(mismatch) = self.parameters.as_deref().and_then(|known| mismatch(known, A::TYPES)) {
            return Err(GpuError::Arguments { kernel: kernel.into(), mismatch });
        }
        self.accepted.store(types, Ordering::Relaxed);
        Ok(())
    }
}

/// The driver copies each argument to its parameter's place by itself, so only sizes can be wrong.
fn mismatch(parameters: &[ParameterExtent], types: &ArgumentTypes) -> Option<ArgumentMismatch> {
    let types = types.list();
    if parameters.len() != types.len() {
        return Some(ArgumentMismatch::Count {
            expected: parameters.len() as u64,
            given: types.len() as u64,
        });
    }
    let mut end = 0u64;
    for ((position, expected), given) in (1..).zip(parameters).zip(types) {
        let offset = end.next_multiple_of(given.alignment);
        if expected.bytes != given.bytes {
            return Some(ArgumentMismatch::Size {
                position,
                argument: (given.name)(),
                expected: *expected,
                given: ParameterExtent { offset, bytes: given.bytes },
            });
        }
        end = offset + given.bytes;
    }
    None
}
