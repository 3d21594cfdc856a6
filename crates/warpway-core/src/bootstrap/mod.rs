//! Joining a job, and the control plane between its ranks.

mod address;
mod control;
mod error;
mod identity;
mod interfaces;
mod join;
mod launcher;
mod netlink;
mod peer;
mod rendezvous;
mod slurm;
mod traits;
mod unique_id;

pub use address::RootAddress;
pub use control::{ControlPlane, DescriptorOffer, MessageSink, ScopeGuard, ScopeId, Subscription};
pub use error::BootstrapError;
pub use identity::{HostIdentity, ProcessIdentity};
pub use interfaces::{AddressFamily, Interface, InterfaceAddress, InterfaceChoice, NameFilter};
pub use join::{Admission, JobSecret, JoinPlan, RootLocation};
pub use launcher::Launcher;
pub use peer::PeerInfo;
pub use rendezvous::{Host, Rendezvous, Seat, ThisHost};
pub use traits::Bootstrap;
pub use unique_id::UniqueId;
