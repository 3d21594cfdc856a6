//! What a proxy asks of the code that carries requests out.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::ProxyError;
use crate::error::Result;
use crate::fifo::Trigger;

/// What a handler wants next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// The next request.
    Continue,
    /// To end: what has been pushed besides is rejected, as by [`Proxy::stop`](super::Proxy::stop).
    Stop,
}

/// How much a handler has left to do without a new request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// Nothing.
    Idle,
    /// It waits for something outside and wants to be asked again soon.
    Waiting,
    /// It waits for something outside that rings the proxy's [bell](super::ProxyBell).
    Notified,
    /// It got something done.
    Busy,
}

/// What a [`Proxy`](super::Proxy) does with requests. Runs on the proxy's thread only.
///
/// An error or a panic of any method becomes a failure of the proxy's health; the proxy goes on. A closure
/// `FnMut(u64, Trigger) -> Result<Flow>` is a handler.
pub trait Handler: Send + 'static {
    /// Takes up the request at `position`. Requests come in the order of their positions.
    fn handle(&mut self, position: u64, trigger: Trigger) -> Result<Flow>;

    /// Goes on with requests taken up before. Called again and again.
    fn progress(&mut self) -> Result<Progress> {
        Ok(Progress::Idle)
    }

    /// Nothing has come for a while: what is not urgent can be done. True once there is nothing of that kind left; until
    /// then it is called again and again.
    fn rest(&mut self) -> Result<bool> {
        Ok(true)
    }

    /// False while it cannot take up more requests.
    fn accepts(&self) -> bool {
        true
    }

    /// The proxy starts, for the first time or again.
    fn start(&mut self) {}

    /// A request was not understood, or [`handle`](Self::handle) has failed; the proxy's health has been told.
    fn failed(&mut self) {}

    /// The request at `position` is not carried out because the proxy stops.
    fn reject(&mut self, _position: u64, _trigger: Trigger) {}

    /// The proxy stops: gives up what is not complete and returns how many requests that were.
    fn give_up(&mut self) -> u64 {
        0
    }
}

impl<F: FnMut(u64, Trigger) -> Result<Flow> + Send + 'static> Handler for F {
    fn handle(&mut self, position: u64, trigger: Trigger) -> Result<Flow> {
        self(position, trigger)
    }
}

/// Turns a panic into an error.
pub(super) fn guarded<T>(call: impl FnOnce() -> Result<T>) -> Result<T> {
    // The state behind a panic is the handler's own; it is told of the failure like everybody else.
    catch_unwind(AssertUnwindSafe(call))
        .unwrap_or_else(|payload| Err(ProxyError::Panicked { message: panic_message(&*payload) }.into()))
}

pub(super) fn panic_message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|s| (*s).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_else(|| "(no text)".into())
}
