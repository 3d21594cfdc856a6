//! The shared object: the driver's books (this folder) and its functions (`api`).
//!
//! | file | question it answers |
//! |---|---|
//! | `api/` | the functions, by the chapters of the driver's manual; `api/control.rs` has those of the fake alone |
//! | `call.rs` | what happens around each function: log, injected failures, panics |
//! | `config.rs` | what machine it is |
//! | `state.rs` | what exists |
//! | `arena.rs`, `physical.rs`, `region.rs` | addresses, the memory behind them, what is alive and for whom |
//! | `stream.rs`, `work.rs`, `event.rs`, `capture.rs` | order of work, who does it, graphs |
//! | `image.rs`, `launch.rs`, `kernel.rs` | modules, launches, the functions that do something |

mod api;
mod arena;
mod call;
mod capture;
mod config;
mod event;
mod image;
mod kernel;
mod launch;
mod physical;
mod region;
mod state;
mod stream;
mod work;
