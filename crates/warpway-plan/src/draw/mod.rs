//! Pictures of plans: who does what when, who talks to whom, as SVG; the same for Perfetto.
//!
//! [`timeline`] shows a [`Simulation`](crate::simulate::Simulation) rank by rank and block by block over time;
//! [`graph`] the bytes that each rank sends to each other one; [`chrome_trace`] is for ui.perfetto.dev.
//!
//! | file | question it answers |
//! |---|---|
//! | `svg.rs` | how a picture is written |
//! | `palette.rs` | which colours |
//! | `timeline.rs` | who does what when |
//! | `graph.rs` | who talks to whom |
//! | `perfetto.rs` | the same as timeline, for Perfetto |

mod graph;
mod palette;
mod perfetto;
mod svg;
mod timeline;

pub use graph::{Traffic, graph, traffic};
pub use perfetto::chrome_trace;
pub use timeline::timeline;
