//! What is asked of a compiler; NVRTC answers it, and tests do.

use std::fmt;

use super::compiler::Library;
use super::image::CodeKind;
use super::program::Program;
use crate::device::Architecture;

/// A compiler of CUDA C++.
pub(super) trait Backend: Send + Sync {
    /// Name and version: two with the same identity make the same code of the same program.
    fn identity(&self) -> &str;

    /// The file, and why it was taken.
    fn library(&self) -> Library;

    /// The architectures it knows, `90` for 9.0.
    fn architectures(&self) -> &[u32];

    /// Compiles. The log reports what each kernel needs if the target is machine code.
    fn compile(&self, program: &Program, target: Target) -> Result<Output, Rejected>;
}

/// What a compiler gives.
#[derive(Debug, Clone)]
pub(super) struct Output {
    pub(super) code: Vec<u8>,
    /// What the image calls the exported kernels, in their order.
    pub(super) symbols: Vec<String>,
    pub(super) log: String,
}

/// The program does not compile: the compiler's words.
#[derive(Debug, Clone)]
pub(super) struct Rejected(pub(super) String);

/// What code is made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) kind: CodeKind,
    /// `90` for 9.0.
    pub(super) number: u32,
}

impl Target {
    /// Machine code if the compiler knows the architecture; if it is too old for it, PTX of the latest that it
    /// knows; `None` if it is too new and has forgotten it.
    pub(super) fn choose(architecture: Architecture, known: &[u32]) -> Option<Self> {
        let wanted = number(architecture);
        if known.contains(&wanted) {
            return Some(Self { kind: CodeKind::Cubin, number: wanted });
        }
        let latest = known.iter().copied().filter(|known| *known < wanted).max()?;
        Some(Self { kind: CodeKind::Ptx, number: latest })
    }
}

impl fmt::Display for Target {
    /// As compilers call it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            CodeKind::Cubin => write!(f, "sm_{}", self.number),
            CodeKind::Ptx => write!(f, "compute_{}", self.number),
        }
    }
}

fn number(architecture: Architecture) -> u32 {
    architecture.major.saturating_mul(10).saturating_add(architecture.minor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machine_code_if_it_can_be() {
        let known = [75, 80, 90, 100];
        let choose = |major, minor| {
            Target::choose(Architecture { major, minor }, &known).map(|target| target.to_string())
        };
        assert_eq!(choose(9, 0).as_deref(), Some("sm_90"));
        assert_eq!(choose(10, 0).as_deref(), Some("sm_100"));
        assert_eq!(choose(8, 6).as_deref(), Some("compute_80"));
        assert_eq!(choose(12, 1).as_deref(), Some("compute_100"));
        assert_eq!(choose(7, 0), None);
        assert_eq!(Target::choose(Architecture { major: 9, minor: 0 }, &[]), None);
    }
}
