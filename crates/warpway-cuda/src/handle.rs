//! What host and device share: control block, error record and handles, laid out as in `device/include/warpway`.
//!
//! Plain data. Addresses are `u64`, in the address space of the device; 0 is null. Sizes and offsets stand in
//! `layout.cuh`, where the device's compiler checks them; the tests here check the same lines against these structures.

use warpway_core::gpu::{FailureCode, WaitKind};

/// A peer where there is none.
pub const NO_PEER: u32 = u32::MAX;

/// In [`FifoHandle::tail`] and [`BasePortChannelHandle::flush_done`]: the proxy has stopped.
pub const PROXY_STOPPED: u64 = 1 << 63;

/// The first failure of a communicator on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct ErrorRecord {
    /// See [`FailureCode`].
    pub code: u16,
    /// See [`WaitKind`].
    pub kind: u16,
    /// Whose kernel failed.
    pub rank: u32,
    /// Whom it waited for, or [`NO_PEER`].
    pub peer: u32,
    /// The channel or object, as the host numbers them.
    pub object: u32,
    /// Linear index of the block in its grid.
    pub block: u32,
    /// Linear index of the thread in its block.
    pub thread: u32,
    /// Counter, flag or phase that was waited for.
    pub expected: u64,
    /// What was there instead.
    pub observed: u64,
    /// How long it waited, at least.
    pub elapsed_ns: u64,
    /// Of the scratch area, 0 where there is none.
    pub epoch: u64,
    /// The abort word where the code is [`FailureCode::Aborted`].
    pub reason: u32,
    /// Zero.
    pub reserved: u32,
}

impl ErrorRecord {
    /// `None` for a number that no device writes.
    pub fn failure_code(&self) -> Option<FailureCode> {
        FailureCode::from_number(self.code)
    }

    /// `None` for a number that no device writes.
    pub fn wait_kind(&self) -> Option<WaitKind> {
        WaitKind::from_number(self.kind)
    }
}

/// The half of the control block in pinned host memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C, align(64))]
pub struct HostControl {
    /// 0 = run, otherwise a reason. Written by the host, read by every wait now and then.
    pub abort_word: u32,
    /// 0 = no record, 1 = being written, 2 = complete; load it with acquire.
    pub record_state: u32,
    /// Zero.
    pub reserved: [u32; 14],
    /// Valid once the state is 2.
    pub record: ErrorRecord,
}

/// The half of the control block in device memory; handles point to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C, align(64))]
pub struct Control {
    /// Set by the first failure.
    pub poison: u32,
    /// Who writes the record.
    pub claim: u32,
    /// Limit of each wait; 0 = none but the abort word.
    pub deadline_ns: u64,
    /// Device address of the [`HostControl`].
    pub host: u64,
    /// Of the communicator on this device.
    pub rank: u32,
    /// Zero.
    pub reserved: [u32; 9],
}

/// Which object a call is made on; part of every handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Site {
    /// Address of the [`Control`]; 0 = none: waits end by a compiled-in deadline and record nothing.
    pub control: u64,
    /// Or [`NO_PEER`].
    pub peer: u32,
    /// As the host numbers channels and objects.
    pub object: u32,
}

impl Default for Site {
    fn default() -> Self {
        Self { control: 0, peer: NO_PEER, object: 0 }
    }
}

macro_rules! handles {
    ($($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty,)* })*) => { $(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        #[repr(C)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $type,)*
        }
    )* };
}

handles! {
    /// The host signals, the device waits.
    Host2DeviceSemaphoreHandle {
        /// Counter that the host raises.
        inbound: u64,
        /// Counter of tickets drawn, device memory.
        expected: u64,
        /// Where it belongs.
        site: Site,
    }

    /// A peer's device signals, this one waits, and the reverse.
    MemoryDevice2DeviceSemaphoreHandle {
        /// Counter that the peer raises, local memory.
        inbound: u64,
        /// The peer's counter.
        remote_inbound: u64,
        /// Counter of tickets drawn, local device memory.
        expected: u64,
        /// Where it belongs.
        site: Site,
    }

    /// The barrier of a multicast group.
    SwitchDevice2DeviceSemaphoreHandle {
        /// Multicast address of the arrival counters; 0 = no barrier.
        multicast: u64,
        /// The local arrival counter.
        arrivals: u64,
        /// Arrivals that waits account for, local device memory.
        generation: u64,
        /// Members.
        n_ranks: u32,
        /// Zero.
        reserved: u32,
        /// Where it belongs.
        site: Site,
    }

    /// A memory channel.
    MemoryChannelDeviceHandle {
        /// Its semaphore.
        semaphore: MemoryDevice2DeviceSemaphoreHandle,
        /// The peer's memory.
        dst: u64,
        /// Its bytes.
        dst_bytes: u64,
        /// The local memory.
        src: u64,
        /// Its bytes.
        src_bytes: u64,
        /// The local packet buffer, may be 0.
        packet_buffer: u64,
        /// Its bytes.
        packet_bytes: u64,
        /// Address of the word that changes when the channel goes; 0 = not watched.
        liveness: u64,
        /// What that word held when the handle was made.
        generation: u64,
    }

    /// The producer's side of a trigger FIFO.
    FifoHandle {
        /// The ring, pinned host memory: 64 bytes per slot, zeroed.
        slots: u64,
        /// Positions taken, device memory.
        head: u64,
        /// Elements consumed, pinned host memory; bit 63: see [`PROXY_STOPPED`].
        tail: u64,
        /// A value that the tail has had, device memory.
        cached_tail: u64,
        /// Slots, a power of two.
        size: u64,
        /// Where it belongs.
        site: Site,
    }

    /// A port channel whose calls name their memories.
    BasePortChannelHandle {
        /// As the proxy knows it.
        semaphore_id: u32,
        /// Zero.
        reserved: u32,
        /// Raised by the peer's requests.
        semaphore: Host2DeviceSemaphoreHandle,
        /// Where requests go.
        fifo: FifoHandle,
        /// One past the highest position that is complete, pinned host memory; bit 63: see [`PROXY_STOPPED`].
        flush_done: u64,
    }

    /// A port channel with its memories.
    PortChannelHandle {
        /// The channel.
        base: BasePortChannelHandle,
        /// Id of the peer's memory.
        dst: u32,
        /// Id of the local memory.
        src: u32,
        /// Bytes of the peer's memory.
        dst_bytes: u64,
        /// Bytes of the local memory.
        src_bytes: u64,
    }

    /// A switch channel.
    SwitchChannelHandle {
        /// The local memory.
        device_pointer: u64,
        /// The multicast address of all members' memory.
        multicast_pointer: u64,
        /// Their bytes.
        bytes: u64,
        /// The barrier of the group.
        semaphore: SwitchDevice2DeviceSemaphoreHandle,
    }

    /// A grid barrier, an object in device memory.
    DeviceSyncer {
        /// Barriers completed.
        generation: u64,
        /// Blocks that have come.
        arrivals: u64,
        /// Where it belongs.
        site: Site,
    }

    /// A counting semaphore, an object in device memory.
    DeviceSemaphore {
        /// Tickets drawn.
        tickets: u64,
        /// The initial units and those returned.
        units: u64,
        /// Where it belongs.
        site: Site,
    }

    /// The epochs that a launch reads and advances.
    EpochsHandle {
        /// Array of addresses of 64-bit counters; array and counters in device memory.
        areas: u64,
        /// Counter of blocks that have finished, device memory, 0 between launches.
        arrivals: u64,
        /// Areas.
        n_areas: u64,
    }
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;

    /// `Type(bytes, alignment)` and `Type.field = offset` of everything above, under the names of the device.
    macro_rules! layouts {
        ($($type:ident as $device:literal { $($field:ident as $device_field:literal),* })*) => {
            [$(
                format!("WARPWAY_SIZE({}, {}, {})", $device, size_of::<$type>(), align_of::<$type>()),
                $(format!("WARPWAY_OFFSET({}, {}, {})", $device, $device_field, offset_of!($type, $field)),)*
            )*]
        };
    }

    /// Every line of the device's list is one of ours and the reverse: a field moved, added or forgotten on one side only fails.
    #[test]
    fn both_sides_have_the_same_layout() {
        let ours = layouts! {
            ErrorRecord as "ErrorRecord" {
                code as "code", kind as "kind", rank as "rank", peer as "peer", object as "object", block as "block",
                thread as "thread", expected as "expected", observed as "observed", elapsed_ns as "elapsed_ns",
                epoch as "epoch", reason as "reason"
            }
            HostControl as "HostControl" {
                abort_word as "abort_word", record_state as "record_state", record as "record"
            }
            Control as "Control" {
                poison as "poison", claim as "claim", deadline_ns as "deadline_ns", host as "host", rank as "rank"
            }
            Site as "Site" { control as "control", peer as "peer", object as "object" }
            Host2DeviceSemaphoreHandle as "Host2DeviceSemaphore" {
                inbound as "inbound", expected as "expected", site as "site"
            }
            MemoryDevice2DeviceSemaphoreHandle as "MemoryDevice2DeviceSemaphore" {
                inbound as "inbound", remote_inbound as "remote_inbound", expected as "expected", site as "site"
            }
            SwitchDevice2DeviceSemaphoreHandle as "SwitchDevice2DeviceSemaphore" {
                multicast as "multicast", arrivals as "arrivals", generation as "generation", n_ranks as "n_ranks",
                site as "site"
            }
            MemoryChannelDeviceHandle as "MemoryChannel" {
                semaphore as "semaphore", dst as "dst", dst_bytes as "dst_bytes", src as "src", src_bytes as "src_bytes",
                packet_buffer as "packet_buffer", packet_bytes as "packet_bytes", liveness as "liveness",
                generation as "generation"
            }
            FifoHandle as "Fifo" {
                slots as "slots", head as "head", tail as "tail", cached_tail as "cached_tail", size as "size", site as "site"
            }
            BasePortChannelHandle as "BasePortChannel" {
                semaphore_id as "semaphore_id", semaphore as "semaphore", fifo as "fifo", flush_done as "flush_done"
            }
            PortChannelHandle as "PortChannel" {
                base as "base", dst as "dst", src as "src", dst_bytes as "dst_bytes", src_bytes as "src_bytes"
            }
            SwitchChannelHandle as "SwitchChannel" {
                device_pointer as "devicePtr", multicast_pointer as "mcPtr", bytes as "bytes", semaphore as "semaphore"
            }
            DeviceSyncer as "DeviceSyncer" { generation as "generation", arrivals as "arrivals", site as "site" }
            DeviceSemaphore as "DeviceSemaphore" { tickets as "tickets", units as "units", site as "site" }
            EpochsHandle as "Epochs" { areas as "areas", arrivals as "arrivals", n_areas as "n_areas" }
        };
        let theirs: Vec<&str> = include_str!("../device/include/warpway/layout.cuh")
            .lines()
            .filter(|line| line.starts_with("WARPWAY_SIZE(") || line.starts_with("WARPWAY_OFFSET("))
            .collect();
        assert_eq!(ours.to_vec(), theirs);
    }

    /// The enumerations of `control.cuh`, line by line.
    #[test]
    fn codes_and_kinds_have_the_same_numbers() {
        let header = include_str!("../device/include/warpway/control.cuh");
        let of = |name: &str| -> Vec<(String, u16)> {
            let start = header.find(&format!("enum class {name} : u16 {{")).unwrap();
            let body = &header[start..start + header[start..].find("};").unwrap()];
            body.lines()
                .filter_map(|line| line.trim().trim_end_matches(',').split_once(" = "))
                .map(|(name, number)| (name.to_string(), number.parse().unwrap()))
                .collect()
        };
        let codes: Vec<_> =
            (0..99).filter_map(FailureCode::from_number).map(|c| (format!("{c:?}"), c.number())).collect();
        let kinds: Vec<_> =
            (0..99).filter_map(WaitKind::from_number).map(|k| (format!("{k:?}"), k.number())).collect();
        assert_eq!((codes.len(), kinds.len()), (7, 10));
        assert_eq!((of("Code"), of("Kind")), (codes, kinds));
    }
}
