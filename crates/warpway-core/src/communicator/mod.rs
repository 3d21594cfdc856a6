//! The communicator: exchange of handles between ranks, split, one-sided registration.
//!
//! Ranks here are ranks of the communicator; the control plane below counts in ranks of the job.

mod error;
mod exchange;
mod handle;
mod memory;
mod offers;
mod publish;
mod registration_table;
mod split;
mod state;
#[cfg(test)]
mod tests;
mod tokens;
mod workers;

pub use error::ExchangeError;
pub use exchange::{EndpointSource, Exchange};
pub use handle::{Communicator, CommunicatorConfig, CommunicatorParts, OpenScope};
pub use publish::Publication;
