//! The proxy: a thread that carries out port-channel requests.

mod error;

pub use error::ProxyError;
