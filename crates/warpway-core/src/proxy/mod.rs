//! The proxy: a thread that takes requests from a [FIFO](crate::fifo) and carries them out.
//!
//! [`ProxyService`] is what port channels use: requests name semaphores and memories by id, and the
//! service writes, signals, adds and flushes on their connections. [`Proxy`] is the bare loop, for
//! handlers of one's own.
//!
//! Requests come from host threads, or from a device whose engine gives the proxy a [`TriggerSource`]. A proxy has one
//! of the two: positions of one ring order its requests.
//!
//! What the service guarantees:
//! * requests of one connection are carried out in the order of their positions; a connection whose write
//!   queue is full, or whose peer is slow, does not hold up others;
//! * a flush completes when *its* requests are complete, whatever is pushed after it;
//! * an id whose object was removed is an error, never another object;
//! * a request that fails, or an engine that panics, fails the communicator of that connection (see
//!   [`Health`](crate::health::Health)); connections of other communicators are served as before;
//! * a stop ends the waits for what it leaves undone with an error, never with success.

mod bell;
mod dispatch;
mod error;
mod handler;
mod intake;
mod lane;
mod lanes;
mod registry;
mod removals;
mod service;
mod source;
mod worker;

pub use bell::ProxyBell;
pub use error::ProxyError;
pub use handler::{Flow, Handler, Progress};
pub(crate) use lane::{Entry, FlushState};
pub use service::{ProxyService, ProxyServiceConfig};
pub use source::{PROXY_STOPPED, PollPolicy, ProgressWord, TriggerSource};
pub use worker::{Proxy, ProxyConfig, StopReport, ThreadInit};
