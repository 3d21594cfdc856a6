//! Kernels compiled when they are needed, and kept.
//!
//! A [`Program`] is CUDA C++ with everything it includes; a [`Compiler`] makes an [`Image`] of it for an
//! architecture. NVRTC is opened at the first compilation and no GPU is needed. Images are kept in memory per
//! compiler value and on disk per user, so a machine whose cache is warm needs no NVRTC at all.
//!
//! ```no_run
//! use warpway_core::config::{Config, Environment};
//! use warpway_cuda::jit::{Compiler, Program};
//! use warpway_cuda::Architecture;
//!
//! let environment = Environment::of_process()?;
//! let compiler = Compiler::new(&Config::read(&environment)?.config, &environment);
//! let program = Program::new("fill.cu", "template <class T> __global__ void fill(T* to, T value) { to[threadIdx.x] = value; }")
//!     .kernel("fill<float>");
//! let image = compiler.compile(&program, Architecture { major: 9, minor: 0 })?;
//! assert_eq!(image.symbol("fill<float>"), Some("_Z4fillIfEvPT_S0_"));
//! # Ok::<(), warpway_core::Error>(())
//! ```
//!
//! | file | question it answers |
//! |---|---|
//! | `compiler.rs` | who is asked for an image: memory, disk, NVRTC |
//! | `warm.rs` | how images are made ahead of time |
//! | `journal.rs` | what was compiled, how long it took |
//! | `store.rs`, `entry.rs` | how images are kept on disk, and what is believed of a file there |
//! | `nvrtc.rs` | how NVRTC is called |
//! | `search.rs` | where NVRTC is |
//! | `backend.rs` | what is asked of a compiler |
//! | `diagnostics.rs` | how errors are shown with their lines |
//! | `resources.rs` | registers, stack and spills of each kernel |
//! | `image.rs`, `program.rs` | what comes out, what goes in |
//! | `headers.rs`, `built_in.rs` | the device headers, and the programs that Warpway brings along |

mod backend;
mod built_in;
mod compiler;
mod diagnostics;
mod entry;
mod headers;
mod image;
mod journal;
mod nvrtc;
mod program;
mod resources;
mod search;
mod store;
mod warm;

#[cfg(test)]
pub(crate) mod tests;

pub(crate) use built_in::add_word;
pub use built_in::built_in_programs;
pub use compiler::{Compiler, Library};
pub use headers::DEVICE_HEADERS;
pub use image::{CodeKind, Image, Kernel, Resources};
pub use journal::{Journal, Origin, Record};
pub use program::Program;
pub use store::{CacheContents, CacheEntry, CachedImage};
pub use warm::Warmed;
