//! Switch channels: reduction and broadcast by multicast hardware.
//!
//! The types are here so that programs compile everywhere. No engine provides multicast yet; making one
//! of these objects says so.

use std::convert::Infallible;

use crate::error::{Result, Unavailable};
use crate::memory::Region;
use crate::transport::DeviceKind;

/// A multicast object over a group of GPUs. Cannot be made without multicast hardware.
#[derive(Debug, Clone)]
pub struct NvlsConnection(Infallible);

impl NvlsConnection {
    /// The root's side: an object of `buffer_size` bytes over `n_devices` GPUs.
    ///
    /// # Errors
    /// [`Unavailable`] where there is no multicast hardware.
    pub fn new(_buffer_size: u64, _n_devices: u32) -> Result<Self> {
        Err(unavailable("a multicast object", "no engine with multicast is in this build").into())
    }

    /// The other members' side, from what [`serialize`](Self::serialize) gave the root.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn from_handle(_bytes: &[u8]) -> Result<Self> {
        Err(unavailable("a multicast object", "no engine with multicast is in this build").into())
    }

    /// The handle for the other members.
    pub fn serialize(&self) -> Vec<u8> {
        match self.0 {}
    }

    /// Adds the group barrier of `n_ranks` members.
    ///
    /// # Errors
    /// If the counters cannot be bound.
    pub fn attach_barrier(&self, _n_ranks: u32) -> Result<()> {
        match self.0 {}
    }

    /// Binds a local memory to the object.
    ///
    /// # Errors
    /// If it is not [bindable](check_bindable), or the object is exhausted.
    pub fn bind_allocated_memory(&self, _region: &Region) -> Result<SwitchChannel> {
        match self.0 {}
    }
}

/// One rank's memory bound to a multicast object.
#[derive(Debug, Clone)]
pub struct SwitchChannel(Infallible);

impl SwitchChannel {
    /// Bytes that are bound.
    pub fn size(&self) -> u64 {
        match self.0 {}
    }
}

/// Makes one multicast object over `ranks`, with its barrier. Collective over them where it is possible.
///
/// # Errors
/// As [`NvlsConnection::new`].
pub fn connect_nvls_collective(ranks: &[u32], buffer_size: u64) -> Result<NvlsConnection> {
    NvlsConnection::new(buffer_size, ranks.len() as u32)
}

/// Whether a switch channel could use this memory. A question, never an abort.
///
/// # Errors
/// [`Unavailable`] with the reason and what to use instead.
pub fn check_bindable(region: &Region) -> Result<(), Unavailable> {
    let what = "binding this memory to a multicast object";
    Err(match region.device().kind {
        DeviceKind::Cpu => unavailable(what, "it is host memory; multicast binds GPU allocations only"),
        _ if region.backing().is_none() => {
            unavailable(what, "its allocator gives no exportable physical allocation")
        }
        _ => unavailable(what, "no engine with multicast is in this build"),
    })
}

fn unavailable(what: &str, why: &str) -> Unavailable {
    Unavailable {
        what: what.into(),
        why: why.into(),
        hint: "use a memory channel, which reads and writes each peer's memory",
    }
}

#[cfg(test)]
mod tests {
    use std::ptr::NonNull;

    use super::*;
    use crate::transport::Device;

    #[test]
    fn absent_multicast_is_an_error_with_a_reason() {
        let error = connect_nvls_collective(&[0, 1], 1 << 20).unwrap_err();
        assert_eq!(error.id(), "unavailable");
        assert_eq!(NvlsConnection::from_handle(&[]).unwrap_err().id(), "unavailable");
    }

    #[test]
    fn bindable_answers_with_a_reason() {
        let mut byte = 0u8;
        // SAFETY: the byte outlives the region and nothing else touches it.
        let region = unsafe { Region::new(NonNull::from(&mut byte), 1, Device::CPU, None, None) }.unwrap();
        let why = check_bindable(&region).unwrap_err().to_string();
        assert!(why.contains("host memory"), "{why}");
    }
}
