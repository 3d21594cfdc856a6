//! What a compilation gives.

use serde::{Deserialize, Serialize};

/// Code that a driver can load, and what is known of its kernels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    pub(super) description: Description,
    pub(super) code: Vec<u8>,
}

/// All of an image but its code; what the cache keeps beside it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Description {
    pub(super) program: String,
    pub(super) kind: CodeKind,
    pub(super) architecture: String,
    pub(super) compiler: String,
    pub(super) kernels: Vec<Kernel>,
}

/// What the bytes of an image are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CodeKind {
    /// Machine code of one architecture.
    Cubin,
    /// Text that the driver compiles when it is loaded: of a compiler that does not know the architecture yet. A
    /// driver older than the compiler refuses it.
    Ptx,
}

/// A kernel of an image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kernel {
    /// As the program exports it; else its symbol.
    pub expression: String,
    /// What the image calls it.
    pub symbol: String,
    /// What it needs; unknown in PTX, where the driver decides.
    pub resources: Option<Resources>,
}

/// What a thread, or a block, of a kernel needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct Resources {
    /// Registers of a thread.
    pub registers: u64,
    /// Bytes of local memory of a thread, spilled registers among them.
    pub stack_bytes: u64,
    /// Bytes written because registers did not suffice, counted in the code.
    pub spill_store_bytes: u64,
    /// Bytes read for that reason.
    pub spill_load_bytes: u64,
    /// Bytes of shared memory of a block, without what is asked for at launch.
    pub shared_bytes: u64,
    /// Hardware barriers of a block.
    pub barriers: u64,
}

impl Image {
    /// What the code is.
    pub fn kind(&self) -> CodeKind {
        self.description.kind
    }

    /// The code. PTX ends with a zero byte, as the driver wants it.
    pub fn code(&self) -> &[u8] {
        &self.code
    }

    /// What it is for: `sm_90`, or `compute_90` for PTX.
    pub fn architecture(&self) -> &str {
        &self.description.architecture
    }

    /// Which compiler made it: `nvrtc 13.0 …`.
    pub fn compiler(&self) -> &str {
        &self.description.compiler
    }

    /// The exported kernels, in the order in which the program exports them; then the others of a cubin (those that
    /// are no templates are in it anyway), by symbol.
    pub fn kernels(&self) -> &[Kernel] {
        &self.description.kernels
    }

    /// The kernel of an expression, written as in the program.
    pub fn kernel(&self, expression: &str) -> Option<&Kernel> {
        self.kernels().iter().find(|kernel| kernel.expression == expression)
    }

    /// What the image calls the kernel of an expression.
    pub fn symbol(&self, expression: &str) -> Option<&str> {
        self.kernel(expression).map(|kernel| kernel.symbol.as_str())
    }
}
