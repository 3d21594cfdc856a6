//! Packets through a memory channel.

use std::ptr::NonNull;

use warpway_core::Result;
use warpway_core::channel::ChannelError;
use warpway_core::memory::{Access, MemoryError, RegisteredMemory};
use warpway_core::trace::Operation;
use warpway_core::wait::WaitSite;

use crate::block_channel::BlockChannel;
use crate::packet::{Flags, Packet, pack, unpack};
use crate::share::Share;

/// Packets at which a collective call is divided: whole cache lines.
const PACKET_GRANULE: u64 = 8;

/// Packets: data that carries its own flag. `flag` must differ at each reuse of a packet and must not be 0;
/// packet offsets count packet bytes, which are twice the data bytes.
impl BlockChannel {
    /// Writes `bytes` bytes of local `source + origin_offset` as packets to the peer's
    /// `destination + target_offset`. The last packet is padded with zeros.
    ///
    /// # Errors
    /// `channel.packet_flag`, `mem.bounds`, `mem.alignment` (of the packets), `mem.access`, `channel.share`,
    /// or the communicator's failure. Then this participant has written nothing.
    pub fn put_packets<P: Packet>(
        &self,
        target_offset: u64,
        origin_offset: u64,
        bytes: u64,
        share: Share,
        flag: u32,
    ) -> Result<()> {
        const NAME: &str = "put_packets";
        self.waiter().health.check_during(NAME)?;
        self.check_flag(NAME, flag)?;
        let (near, far) = (self.channel().source(), self.channel().destination());
        far.require_access(NAME, Access::WRITE)?;
        let packets = packets_at::<P>(NAME, far, target_offset, bytes)?;
        let data = near.pointer(NAME, origin_offset, bytes)?;
        let part = share.part(NAME, bytes.div_ceil(P::PAYLOAD), PACKET_GRANULE)?;
        // An empty part may start behind an incomplete payload.
        let start = bytes.min(part.start * P::PAYLOAD);
        let end = bytes.min(part.end * P::PAYLOAD);
        // SAFETY: the part lies inside the ranges checked above, which the channel keeps mapped; packets are
        // aligned.
        unsafe {
            let packets = packets.add((part.start * P::BYTES) as usize);
            pack::<P>(packets, data.add(start as usize), end - start, Flags::same(flag));
        }
        // A reader that has found too few cores to spin on sleeps at its token.
        self.semaphore().remote_token()?.event().notify();
        Ok(())
    }

    /// Payload of packet `index` of the packet buffer, once it carries `flag`.
    ///
    /// # Errors
    /// `channel.no_packet_buffer`, `channel.packet_flag`, `mem.bounds`, `mem.alignment`;
    /// [`WaitError`](warpway_core::wait::WaitError) on timeout, abort or failure.
    pub fn unpack_packet<P: Packet>(&self, index: u64, flag: u32) -> Result<P::Payload> {
        const NAME: &str = "unpack_packet";
        self.check_flag(NAME, flag)?;
        let buffer = self.packet_buffer(NAME)?;
        let offset = index.saturating_mul(P::BYTES);
        let packet = packets_at::<P>(NAME, buffer, offset, P::PAYLOAD)?;
        self.receive::<P>(packet, index, flag)
    }

    /// Reads packets at `packet_buffer + target_offset` into the `bytes` bytes at local
    /// `source + origin_offset`, each once it carries `flag`. Only valid bytes are stored.
    ///
    /// # Errors
    /// As [`unpack_packet`](Self::unpack_packet) and [`put_packets`](Self::put_packets).
    pub fn unpack_packets<P: Packet>(
        &self,
        target_offset: u64,
        origin_offset: u64,
        bytes: u64,
        share: Share,
        flag: u32,
    ) -> Result<()> {
        const NAME: &str = "unpack_packets";
        self.waiter().health.check_during(NAME)?;
        self.check_flag(NAME, flag)?;
        let packets = packets_at::<P>(NAME, self.packet_buffer(NAME)?, target_offset, bytes)?;
        let data = self.channel().source().pointer(NAME, origin_offset, bytes)?;
        let part = share.part(NAME, bytes.div_ceil(P::PAYLOAD), PACKET_GRANULE)?;
        let end = bytes.min(part.end * P::PAYLOAD);
        let mut first = part.start;
        // SAFETY: the part lies inside the ranges checked above, which the channel keeps mapped.
        while let Err(missing) = unsafe { unpack::<P>(packets, data, end, first, Flags::same(flag)) } {
            first = missing.index;
            // SAFETY: it lies inside the range checked above.
            let packet = unsafe { packets.add((first * P::BYTES) as usize) };
            self.receive::<P>(packet, first, flag)?;
        }
        Ok(())
    }

    fn receive<P: Packet>(&self, packet: NonNull<u8>, index: u64, flag: u32) -> Result<P::Payload> {
        // SAFETY: the callers pass a packet that they have checked; the channel keeps it mapped.
        let load = || unsafe { P::load(packet, Flags::same(flag)) }.map_err(u64::from);
        if let Ok(payload) = load() {
            return Ok(payload);
        }
        let semaphore = self.semaphore();
        let site = || WaitSite {
            operation: Operation::ReadPackets,
            peer: Some(self.peer()),
            object: semaphore.id(),
            sequence: index,
            expected: u64::from(flag),
        };
        let event = semaphore.inbound_token()?.event();
        Ok(self.waiter().wait(site, self.timeout(), Some(event), load)?)
    }

    fn packet_buffer(&self, operation: &'static str) -> Result<&RegisteredMemory> {
        let missing = || ChannelError::NoPacketBuffer { operation, peer: self.peer() };
        Ok(self.channel().packet_buffer().ok_or_else(missing)?)
    }

    fn check_flag(&self, operation: &'static str, flag: u32) -> Result<(), ChannelError> {
        if flag == 0 {
            return Err(ChannelError::PacketFlag { operation, peer: self.peer() });
        }
        Ok(())
    }
}

/// Address of the packets for `bytes` bytes of data, bounds and alignment checked.
fn packets_at<P: Packet>(
    operation: &'static str,
    memory: &RegisteredMemory,
    offset: u64,
    bytes: u64,
) -> Result<NonNull<u8>, MemoryError> {
    let size = bytes.div_ceil(P::PAYLOAD).saturating_mul(P::BYTES);
    let packets = memory.pointer(operation, offset, size)?;
    if !(packets.as_ptr() as u64).is_multiple_of(P::BYTES) {
        return Err(MemoryError::Misaligned { operation, offset, alignment: P::BYTES });
    }
    Ok(packets)
}
