//! Channels: a semaphore together with the memories that it orders.
//!
//! These are the host objects. What blocks do with them (put, get, packets, signal, wait) is in the
//! engine crates; a channel gives them a plain-data handle inside a [`DeviceHandle`].

mod error;
mod handle;
mod memory;
mod port;
mod port_handle;
mod switch;

pub use error::ChannelError;
pub use handle::{DeviceHandle, Liveness, MemoryChannelHandle, SemaphoreHandle};
pub use memory::{BaseMemoryChannel, DEVICE_TIMEOUT, MemoryChannel};
pub use port::{BasePortChannel, PortChannel, PortCopy};
pub use port_handle::{BasePortChannelHandle, PortChannelHandle};
pub use switch::{NvlsConnection, SwitchChannel, check_bindable, check_multicast, connect_nvls_collective};
