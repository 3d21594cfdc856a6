//! Joining a job, and the control plane between its ranks.

mod control;
mod error;
mod peer;
mod traits;

pub use control::{ControlPlane, DescriptorOffer, MessageSink, ScopeGuard, ScopeId, Subscription};
pub use error::BootstrapError;
pub use peer::PeerInfo;
pub use traits::Bootstrap;
