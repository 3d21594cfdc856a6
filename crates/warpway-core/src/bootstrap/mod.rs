//! Joining a job, and the control plane between its ranks.

mod address;
mod codec;
mod control;
mod error;
mod identity;
mod interfaces;
mod join;
mod join_machine;
mod launcher;
mod link;
mod lobby;
mod mesh;
mod message;
mod netlink;
mod peer;
mod poller;
mod processors;
mod rendezvous;
mod root;
mod root_machine;
mod scoped;
mod session;
#[cfg(test)]
mod simulation;
mod slurm;
mod socket;
mod tcp;
mod traits;
mod unique_id;

pub use address::RootAddress;
pub use control::{ControlPlane, DescriptorOffer, MessageSink, ScopeGuard, ScopeId, Subscription};
pub use error::{BootstrapError, MAX_RANKS};
pub use identity::{HostIdentity, ProcessIdentity};
pub use interfaces::{AddressFamily, Interface, InterfaceAddress, InterfaceChoice, NameFilter};
pub use join::{Admission, JobSecret, JoinPlan, RootLocation};
pub use launcher::Launcher;
#[cfg(fuzzing)]
#[doc(hidden)]
pub use message::fuzz_messages;
pub use peer::PeerInfo;
pub use processors::Processors;
pub use rendezvous::{Host, Rendezvous, Seat, ThisHost};
pub use scoped::ScopedBootstrap;
pub use tcp::{JoinOptions, TcpBootstrap, UniqueIdRoot, join_over};
pub use traits::Bootstrap;
pub use unique_id::UniqueId;
