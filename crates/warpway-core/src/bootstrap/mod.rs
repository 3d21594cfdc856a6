//! Joining a job, and the control plane between its ranks.

mod control;
mod error;
mod interfaces;
mod join;
mod peer;
mod traits;

pub use control::{ControlPlane, DescriptorOffer, MessageSink, ScopeGuard, ScopeId, Subscription};
pub use error::BootstrapError;
pub use interfaces::{AddressFamily, InterfaceChoice, NameFilter};
pub use join::{Admission, JobSecret, JoinPlan, RootLocation};
pub use peer::PeerInfo;
pub use traits::Bootstrap;
