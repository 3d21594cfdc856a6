//! The files of test kernels, as they are in this tree.

use warpway_cuda::jit::Program;

/// A file of `crates/warpway-cuda/device/tests`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Source {
    name: &'static str,
    text: &'static str,
}

macro_rules! sources {
    ($($constant:ident = $name:literal;)*) => {
        impl Source {
            $(pub(crate) const $constant: Self = Self {
                name: $name,
                text: include_str!(concat!(
                    env!("CARGO_MANIFEST_DIR"), "/../crates/warpway-cuda/device/tests/", $name
                )),
            };)*
        }
    };
}

sources! {
    BULK = "bulk.cu";
    COPY = "copy.cu";
    EPOCH = "epoch.cu";
    FAILURES = "failures.cu";
    FIFO = "fifo.cu";
    FOLD = "fold.cu";
    LITMUS = "litmus.cu";
    PACKETS = "packets.cu";
    PORTS = "ports.cu";
    RANKS = "ranks.cu";
    SEMAPHORES = "semaphores.cu";
}

impl Source {
    /// With the device headers.
    pub(crate) fn program(self) -> Program {
        Program::new(self.name, self.text).device_headers()
    }
}
