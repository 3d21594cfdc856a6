//! The communicator: exchange of handles between ranks, split, one-sided registration.

mod error;

pub use error::ExchangeError;
