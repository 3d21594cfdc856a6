//! Switch channels: reduction and broadcast by multicast hardware.
//!
//! The types are here so that programs compile everywhere. They are off unless [`Config::enable_multicast`] is set, and
//! [`Config::force_disable_nvls`] wins over that. No engine of this version makes them, so set or not, making one of these
//! objects is an error that says which of the two it is; nothing is tried on the hardware. What kernels call
//! (`switch_channel.cuh`) is complete, and tested on groups that the host emulates.

use std::convert::Infallible;

use crate::config::Config;
use crate::error::{Result, Unavailable};
use crate::memory::Region;
use crate::transport::DeviceKind;

/// Whether switch channels can be made with these settings. A question: nothing is tried.
///
/// # Errors
/// [`Unavailable`], with what stands in the way: a variable, or this version.
pub fn check_multicast(config: &Config) -> Result<(), Unavailable> {
    Err(unavailable(config, "a multicast object", None))
}

/// A multicast object over a group of GPUs. Cannot be made without multicast hardware.
#[derive(Debug, Clone)]
pub struct NvlsConnection(Infallible);

impl NvlsConnection {
    /// The root's side: an object of `buffer_size` bytes over `n_devices` GPUs.
    ///
    /// # Errors
    /// Those of [`check_multicast`].
    pub fn new(config: &Config, _buffer_size: u64, _n_devices: u32) -> Result<Self> {
        Err(unavailable(config, "a multicast object", None).into())
    }

    /// The other members' side, from what [`serialize`](Self::serialize) gave the root.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn from_handle(config: &Config, _bytes: &[u8]) -> Result<Self> {
        Err(unavailable(config, "a multicast object", None).into())
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
pub fn connect_nvls_collective(config: &Config, ranks: &[u32], buffer_size: u64) -> Result<NvlsConnection> {
    NvlsConnection::new(config, buffer_size, ranks.len() as u32)
}

/// Whether a switch channel could use this memory. A question, never an abort.
///
/// # Errors
/// [`Unavailable`] with the reason and what to use instead.
pub fn check_bindable(config: &Config, region: &Region) -> Result<(), Unavailable> {
    let why = match region.device().kind {
        DeviceKind::Cpu => Some("it is host memory; multicast binds GPU allocations only"),
        _ if region.backing().is_none() => Some("its allocator gives no exportable physical allocation"),
        _ => None,
    };
    Err(unavailable(config, "binding this memory to a multicast object", why))
}

/// `why` if there is a reason in the thing itself; otherwise the settings', or that of this version.
fn unavailable(config: &Config, what: &str, why: Option<&str>) -> Unavailable {
    let why = why.unwrap_or(match (config.force_disable_nvls, config.enable_multicast) {
        (true, _) => "WARPWAY_FORCE_DISABLE_NVLS forbids it",
        (false, false) => "it is off (WARPWAY_ENABLE_MULTICAST=0), and no engine of this version has it",
        (false, true) => "WARPWAY_ENABLE_MULTICAST=1 allows it, but no engine of this version has it",
    });
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
    use crate::config::Environment;
    use crate::transport::Device;

    fn settings(variables: &[(&str, &str)]) -> Config {
        let pairs = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Config::read(&pairs.collect::<Environment>()).unwrap().config
    }

    /// Whatever the settings, and each says what stands in the way.
    #[test]
    fn absent_multicast_is_an_error_with_a_reason() {
        const ENABLE: &str = "WARPWAY_ENABLE_MULTICAST";
        const FORBID: &str = "WARPWAY_FORCE_DISABLE_NVLS";
        let off = "it is off (WARPWAY_ENABLE_MULTICAST=0), and no engine of this version has it";
        let on = "WARPWAY_ENABLE_MULTICAST=1 allows it, but no engine of this version has it";
        let forbidden = "WARPWAY_FORCE_DISABLE_NVLS forbids it";
        let cases: [(&[(&str, &str)], &str); 6] = [
            (&[], off),
            (&[(ENABLE, "0")], off),
            (&[(ENABLE, "1")], on),
            (&[(FORBID, "1")], forbidden),
            (&[(ENABLE, "1"), (FORBID, "1")], forbidden),
            (&[(ENABLE, "1"), ("MSCCLPP_FORCE_DISABLE_NVLS", "true")], forbidden),
        ];
        for (variables, why) in cases {
            let config = settings(variables);
            let found = check_multicast(&config).unwrap_err();
            assert_eq!((found.what.as_str(), found.why.as_str()), ("a multicast object", why));
            assert!(found.hint.contains("memory channel"));
            for error in [
                NvlsConnection::new(&config, 1 << 20, 2).unwrap_err(),
                NvlsConnection::from_handle(&config, &[]).unwrap_err(),
                connect_nvls_collective(&config, &[0, 1], 1 << 20).unwrap_err(),
            ] {
                assert_eq!((error.id(), error.to_string()), ("unavailable", found.to_string()));
            }
        }
    }

    /// What the memory lacks is said first: no setting would change that.
    #[test]
    fn bindable_answers_with_a_reason() {
        let gpu = Device { kind: DeviceKind::Gpu, ..Device::CPU };
        let cases = [
            (Device::CPU, "it is host memory; multicast binds GPU allocations only"),
            (gpu, "its allocator gives no exportable physical allocation"),
        ];
        for (device, why) in cases {
            let mut byte = 0u8;
            // SAFETY: the byte outlives the region and nothing else touches it.
            let region = unsafe { Region::new(NonNull::from(&mut byte), 1, device, None, None) }.unwrap();
            for enabled in ["0", "1"] {
                let config = settings(&[("WARPWAY_ENABLE_MULTICAST", enabled)]);
                assert_eq!(check_bindable(&config, &region).unwrap_err().why, why);
            }
        }
    }
}
