//! Moves bytes: copies, packets, folds. With `linked.rs`, the one file of plans with raw pointers to data.

use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ptr::NonNull;

use warpway_core::trace::Operation;
use warpway_core::wait::WaitSite;
use warpway_core::{Error, Result};
use warpway_plan::{Form, Piece, ReduceOp};

use super::control::Control;
use super::launch_bases::Bases;
use super::program::{Operand, Transfer, TransferKind};
use super::waiting::Waiting;
use crate::copy::{copy, overlap, read, write};
use crate::numeric::{FoldKernel, FoldSource, Tile};
use crate::packet::{Flags, Ll8, Ll16, Packet, pack_groups, unpack_groups};

/// Bytes that a short fold has at most, and packet sources.
pub(super) const SHORT_FOLD: u64 = 512;
pub(super) const SHORT_SOURCES: usize = 7;
/// Bytes of data that a reader of packets lets the writer be ahead; whole packets of either format.
const LEG: u64 = 1 << 10;
/// Bytes of data in a cache line of packets.
const LINE: u64 = 32;
/// Sources whose places are at hand; those of wider folds are allocated.
const FEW_SOURCES: usize = 16;
/// Tests for a packet without a pause, before the wait that counts them.
const TESTS: u32 = 128;

/// A slice of a pipeline: first byte within the block's share, and bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Slice {
    pub(super) start: u64,
    pub(super) bytes: u64,
}

impl Slice {
    /// Outside pipelines.
    pub(super) const ALL: Self = Self { start: 0, bytes: u64::MAX };

    #[inline]
    fn is_all(self) -> bool {
        self.bytes == u64::MAX
    }
}

/// What one block needs to move data in one launch.
pub(super) struct Mover<'a> {
    pub(super) bases: &'a Bases,
    pub(super) kernels: &'a Kernels,
    pub(super) control: &'a Control,
    pub(super) waiting: Waiting<'a>,
    /// Of the packets of this launch.
    pub(super) flags: Flags,
    /// No record need be looked at: see [`Run::packets_tell_all`](super::block_run::Run::packets_tell_all).
    pub(super) packets_tell_all: bool,
    /// Number of the block, for errors.
    pub(super) block: u32,
    pub(super) room: Room<'a>,
}

/// What longer folds of a block work in, kept between launches.
#[derive(Debug, Default)]
pub(super) struct FoldRoom(Vec<Tile>);

impl FoldRoom {
    /// For folds of so many packet sources.
    pub(super) fn fit(&mut self, packet_sources: usize) -> Room<'_> {
        self.0.resize_with(packet_sources + 1, || Tile::EMPTY);
        let first = NonNull::from(&mut self.0[..]).cast();
        Room { first, tile_bytes: FoldKernel::TILE as u64, tiles: self.0.len(), _owner: PhantomData }
    }
}

/// What short folds work in: nobody has to take it.
pub(super) struct ShortRoom([MaybeUninit<[u8; SHORT_FOLD as usize]>; SHORT_SOURCES + 1]);

impl ShortRoom {
    pub(super) fn new() -> Self {
        Self([const { MaybeUninit::uninit() }; SHORT_SOURCES + 1])
    }

    pub(super) fn room(&mut self) -> Room<'_> {
        let first = NonNull::from(&mut self.0).cast();
        Room { first, tile_bytes: SHORT_FOLD, tiles: self.0.len(), _owner: PhantomData }
    }
}

/// Tiles of one block: one for the result of a fold, and one per packet source.
#[derive(Clone, Copy)]
pub(super) struct Room<'a> {
    first: NonNull<u8>,
    tile_bytes: u64,
    tiles: usize,
    _owner: PhantomData<&'a mut [u8]>,
}

impl Room<'_> {
    /// Of blocks that do not fold.
    pub(super) const NONE: Self =
        Self { first: NonNull::dangling(), tile_bytes: SHORT_FOLD, tiles: 0, _owner: PhantomData };

    fn tiles(&self) -> impl Iterator<Item = NonNull<u8>> {
        let (first, bytes) = (self.first, self.tile_bytes as usize);
        // SAFETY: the room has so many tiles, one behind the other.
        (0..self.tiles).map(move |number| unsafe { first.add(number * bytes) })
    }
}

/// The compiler has counted.
const NO_TILE: Error = Error::Internal { place: "plan fold", what: "a fold has a tile per packet source" };

/// The loops of a launch's data type, by operator.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kernels {
    pub(super) payload: u64,
    by_op: [FoldKernel; 5],
}

impl Kernels {
    pub(super) fn new(payload: u64, kernel: impl Fn(ReduceOp) -> FoldKernel) -> Self {
        use ReduceOp::{Avg, Max, Min, Prod, Sum};
        Self { payload, by_op: [Sum, Min, Max, Prod, Avg].map(kernel) }
    }

    pub(super) fn of(&self, op: ReduceOp) -> &FoldKernel {
        match op {
            ReduceOp::Sum => &self.by_op[0],
            ReduceOp::Min => &self.by_op[1],
            ReduceOp::Max => &self.by_op[2],
            ReduceOp::Prod => &self.by_op[3],
            ReduceOp::Avg => &self.by_op[4],
        }
    }
}

/// A piece with the address of its first byte in every operand.
struct Stretch<'a> {
    transfer: &'a Transfer,
    piece: Piece,
    offsets: &'a [u64],
    skipped: u64,
}

impl Mover<'_> {
    /// Does the part of a transfer that falls into a slice.
    pub(super) fn run(&self, transfer: &Transfer, slice: Slice) -> Result<()> {
        match self.kernels.payload {
            4 => self.run_with::<Ll8>(transfer, slice),
            _ => self.run_with::<Ll16>(transfer, slice),
        }
    }

    /// Waits for the packets of a transfer's source and moves nothing.
    pub(super) fn wait_for_packets(&self, transfer: &Transfer, slice: Slice) -> Result<()> {
        let (Some(source), width) = (transfer.sources.first(), transfer.width()) else { return Ok(()) };
        for (piece, offsets) in transfer.pieces.iter().zip(transfer.offsets.chunks_exact(width)) {
            let Some((skipped, piece)) = piece.slice(slice.start, slice.bytes) else { continue };
            let stretch = Stretch { transfer, piece, offsets, skipped };
            let packets = stretch.address(self.bases, *source, 0);
            match self.kernels.payload {
                4 => self.each_packet::<Ll8>(transfer, packets, piece.bytes, |_, _| ())?,
                _ => self.each_packet::<Ll16>(transfer, packets, piece.bytes, |_, _| ())?,
            }
        }
        Ok(())
    }

    fn run_with<P: Packet>(&self, transfer: &Transfer, slice: Slice) -> Result<()> {
        // No `chunks_exact`: it divides, which short messages notice.
        let (width, mut offsets) = (transfer.width(), &transfer.offsets[..]);
        for piece in &transfer.pieces {
            let Some((these, others)) = offsets.split_at_checked(width) else { break };
            offsets = others;
            let (skipped, piece) = match slice.is_all() {
                true => (0, *piece),
                false => match piece.slice(slice.start, slice.bytes) {
                    Some(part) => part,
                    None => continue,
                },
            };
            let stretch = Stretch { transfer, piece, offsets: these, skipped };
            match (transfer.kind, transfer.sources.first()) {
                (TransferKind::Fold { op, last }, _) => self.fold::<P>(&stretch, op, last)?,
                (TransferKind::Copy, Some(source)) => match source.form {
                    Form::Raw => self.copy::<P>(&stretch, *source),
                    Form::Packets => self.unpack::<P>(&stretch, *source)?,
                },
                (TransferKind::Copy, None) => {}
            }
        }
        self.wake(transfer);
        Ok(())
    }

    /// Wakes whoever may sleep for the packets that a transfer has written.
    #[inline]
    pub(super) fn wake(&self, transfer: &Transfer) {
        if !transfer.wakes.is_empty() {
            self.control.ring(&transfer.wakes);
        }
    }

    /// Raw to raw or packets.
    fn copy<P: Packet>(&self, stretch: &Stretch<'_>, source: Operand) {
        let from = stretch.address(self.bases, source, 0);
        let Piece { bytes, cover, .. } = stretch.piece;
        for (number, destination) in stretch.destinations() {
            let to = stretch.address(self.bases, destination, number);
            match destination.form {
                // SAFETY: `Stretch::address` gives addresses that are mapped for the piece.
                Form::Raw => unsafe { copy_any(to, from, bytes) },
                // SAFETY: as above; `cover` is at least `bytes`, and packets lie at multiples of their size.
                Form::Packets => unsafe { pack::<P>(to, from, bytes, cover, self.flags) },
            }
        }
    }

    /// Packets to raw or packets.
    fn unpack<P: Packet>(&self, stretch: &Stretch<'_>, source: Operand) -> Result<()> {
        let from = stretch.address(self.bases, source, 0);
        let Piece { bytes, cover, .. } = stretch.piece;
        for (number, destination) in stretch.destinations() {
            let to = stretch.address(self.bases, destination, number);
            let flags = self.flags;
            match destination.form {
                Form::Raw => self.take_packets::<P>(stretch.transfer, from, to, bytes)?,
                Form::Packets => {
                    self.each_packet::<P>(stretch.transfer, from, bytes, |at, payload| {
                        // SAFETY: `at` is the offset of a packet that covers bytes below `bytes`, for which `to` is mapped; packets take twice the bytes of their data.
                        unsafe { P::store(to.add(2 * at as usize), payload, flags) }
                    })?;
                    let whole = bytes.next_multiple_of(P::PAYLOAD);
                    // SAFETY: the destination's packets cover `cover` bytes of data.
                    unsafe { pad::<P>(to, whole, cover, flags) }
                }
            }
        }
        Ok(())
    }

    fn fold<P: Packet>(&self, stretch: &Stretch<'_>, op: ReduceOp, last: bool) -> Result<()> {
        let nowhere = FoldSource { address: NonNull::dangling(), input: false };
        let number = stretch.transfer.sources.len();
        if number <= FEW_SOURCES {
            return self.fold_tiles::<P>(stretch, (op, last), &mut [nowhere; FEW_SOURCES][..number]);
        }
        self.fold_tiles::<P>(stretch, (op, last), &mut vec![nowhere; number])
    }

    /// `sources` has a place for each of the transfer's.
    fn fold_tiles<P: Packet>(
        &self,
        stretch: &Stretch<'_>,
        (op, last): (ReduceOp, bool),
        sources: &mut [FoldSource],
    ) -> Result<()> {
        let Piece { bytes, cover, .. } = stretch.piece;
        let kernel = self.kernels.of(op);
        let direct = stretch.direct(self.bases);
        let mut done = 0;
        while done < bytes {
            let part = (bytes - done).min(self.room.tile_bytes);
            let mut tiles = self.room.tiles();
            let result = tiles.next().ok_or(NO_TILE)?;
            for (number, (source, entering)) in stretch.transfer.sources.iter().zip(&mut *sources).enumerate()
            {
                let from = stretch.address(self.bases, *source, number);
                let address = match source.form {
                    // SAFETY: `done` is below `bytes`, for which the address is mapped.
                    Form::Raw => unsafe { from.add(done as usize) },
                    Form::Packets => {
                        // One per packet source, as the compiler has counted.
                        let tile = tiles.next().ok_or(NO_TILE)?;
                        // SAFETY: as above; packets take twice the bytes of their data.
                        let packets = unsafe { from.add(2 * done as usize) };
                        // A tile holds `part` bytes and is this block's own.
                        self.take_packets::<P>(stretch.transfer, packets, tile, part)?;
                        tile
                    }
                };
                *entering = FoldSource { address, input: source.input };
            }
            let out = match direct {
                // SAFETY: `done` is below `bytes`, for which the address is mapped.
                Some(first) => unsafe { first.add(done as usize) },
                None => result,
            };
            // SAFETY: sources and `out` are mapped for `part` bytes (above). `out` is a tile of this block that is no
            // source, or lies as `Stretch::direct` promises.
            unsafe { kernel.fold_into(sources, part, last, &[out]) };
            let written = usize::from(direct.is_some());
            for (number, destination) in stretch.destinations().skip(written) {
                let to = stretch.address(self.bases, destination, number);
                match destination.form {
                    // SAFETY: `done + part` is at most `bytes`, for which the address is mapped; `out` is a tile, or no
                    // other destination shares a byte with it.
                    Form::Raw => unsafe { copy(to.add(done as usize), out, part) },
                    // SAFETY: as above; tiles begin at whole packets, and the last one is padded.
                    Form::Packets => unsafe {
                        pack::<P>(to.add(2 * done as usize), out, part, part, self.flags)
                    },
                }
            }
            done += part;
        }
        for (number, destination) in stretch.destinations() {
            if destination.form == Form::Packets {
                let to = stretch.address(self.bases, destination, number);
                // SAFETY: the destination's packets cover `cover` bytes of data.
                unsafe { pad::<P>(to, bytes.next_multiple_of(P::PAYLOAD), cover, self.flags) }
            }
        }
        Ok(())
    }

    /// Stores the data of packets, each once it carries the flag, to the `bytes` bytes at `to`, for which that and the
    /// packets are mapped.
    #[inline]
    pub(super) fn take_packets<P: Packet>(
        &self,
        transfer: &Transfer,
        packets: NonNull<u8>,
        to: NonNull<u8>,
        bytes: u64,
    ) -> Result<()> {
        let mut at = 0;
        while at < bytes {
            let end = (at + LEG).min(bytes);
            if end - at > LINE {
                // A reader right behind the writer takes each line away while that still writes there. Packets are written
                // in order, mostly: when the last one is there, so are the others.
                self.packet::<P>(transfer, packets, (end - 1) / P::PAYLOAD * P::PAYLOAD)?;
            }
            while at < end {
                // SAFETY: packets take twice the bytes of their data; both ends are mapped for `bytes` bytes of that.
                unsafe {
                    let (packets, to) = (packets.add(2 * at as usize), to.add(at as usize));
                    at += unpack_groups(packets, to, end - at, self.flags);
                }
                if at < end {
                    let payload = self.packet::<P>(transfer, packets, at)?;
                    // SAFETY: `at` is below `bytes`, for which `to` is mapped.
                    unsafe { store_payload::<P>(to.add(at as usize), payload, bytes - at) };
                    at += P::PAYLOAD;
                }
            }
        }
        Ok(())
    }

    /// Hands out each packet that covers the first `bytes` bytes of data, with the offset of its data, once it
    /// carries the flag.
    fn each_packet<P: Packet>(
        &self,
        transfer: &Transfer,
        packets: NonNull<u8>,
        bytes: u64,
        mut take: impl FnMut(u64, P::Payload),
    ) -> Result<()> {
        for at in (0..bytes).step_by(P::PAYLOAD as usize) {
            take(at, self.packet::<P>(transfer, packets, at)?);
        }
        Ok(())
    }

    /// The data from byte `at` on, once its packet carries the flag. The callers' packets are mapped as far as that.
    #[inline]
    fn packet<P: Packet>(&self, transfer: &Transfer, packets: NonNull<u8>, at: u64) -> Result<P::Payload> {
        // SAFETY: the caller's word; packets take twice the bytes of their data.
        let packet = unsafe { packets.add(2 * at as usize) };
        // SAFETY: as above; packets lie at multiples of their size.
        let load = || unsafe { P::load(packet, self.flags) }.map_err(u64::from);
        for test in 0..TESTS {
            if let Ok(payload) = load() {
                return Ok(payload);
            }
            // The peers' records come just before their packets: fetched meanwhile, they are here when they are compared.
            if test % 8 == 0 && !self.packets_tell_all {
                self.waiting.launched.fetch_records();
            }
        }
        let site = || WaitSite {
            operation: Operation::ReadPackets,
            peer: transfer.writer,
            object: u64::from(self.block),
            sequence: at / P::PAYLOAD,
            expected: u64::from(self.flags.first),
        };
        self.waiting.until(site, Some(self.control.bell()), load)
    }
}

impl Stretch<'_> {
    /// With their numbers among the operands.
    fn destinations(&self) -> impl Iterator<Item = (usize, Operand)> {
        let first = self.transfer.sources.len();
        self.transfer.destinations.iter().enumerate().map(move |(at, operand)| (first + at, *operand))
    }

    /// The first destination, if a fold may write to it as it goes: raw, and where a source lies exactly or where no
    /// other operand has a byte.
    fn direct(&self, bases: &Bases) -> Option<NonNull<u8>> {
        let (_, first) = self.destinations().next().filter(|(_, first)| first.form == Form::Raw)?;
        let to = self.address(bases, first, self.transfer.sources.len());
        let free = |number: usize, operand: Operand, same: bool| {
            let at = self.address(bases, operand, number);
            let Piece { bytes, cover, .. } = self.piece;
            let packets = cover.next_multiple_of(Ll16::PAYLOAD).saturating_mul(2);
            let (from, to) = (at.as_ptr() as u64, to.as_ptr() as u64);
            let until = from.saturating_add(if operand.form == Form::Packets { packets } else { bytes });
            (same && from == to && operand.form == Form::Raw)
                || until <= to
                || to.saturating_add(bytes) <= from
        };
        let free =
            self.transfer.sources.iter().enumerate().all(|(number, source)| free(number, *source, true))
                && self.destinations().skip(1).all(|(number, other)| free(number, other, false));
        free.then_some(to)
    }

    /// The first byte of an operand. It is mapped for the piece's bytes: raw `bytes`; packets twice `bytes` rounded up
    /// to whole packets as a source, twice `cover` as a destination. The compiler has put the end of every piece
    /// into its base's reach, and `Bases` holds no base that is shorter.
    fn address(&self, bases: &Bases, operand: Operand, number: usize) -> NonNull<u8> {
        let factor = if operand.form == Form::Packets { 2 } else { 1 };
        let offset = self.offsets[number] + factor * self.skipped;
        // SAFETY: the offset lies within the base's reach (above).
        unsafe { bases.address(operand.base).add(offset as usize) }
    }
}

/// Copies between ranges that may be the same.
///
/// # Safety
/// Both must be mapped.
pub(super) unsafe fn copy_any(to: NonNull<u8>, from: NonNull<u8>, bytes: u64) {
    if to == from {
        return;
    }
    if overlap(to, from, bytes) {
        // SAFETY: mapped by the caller's word.
        unsafe { std::ptr::copy(from.as_ptr(), to.as_ptr(), bytes as usize) }
    } else {
        // SAFETY: mapped by the caller's word, disjoint as just found.
        unsafe { copy(to, from, bytes) }
    }
}

/// Packs `bytes` bytes, and zeros up to `cover`.
///
/// # Safety
/// The data must be mapped for `bytes` bytes, the packets, aligned, for twice `cover` rounded up to whole packets.
#[inline]
pub(super) unsafe fn pack<P: Packet>(
    packets: NonNull<u8>,
    data: NonNull<u8>,
    bytes: u64,
    cover: u64,
    flags: Flags,
) {
    let whole = bytes / P::PAYLOAD;
    // SAFETY: the caller's word.
    let done = unsafe { pack_groups(packets, data, bytes, flags) } / P::PAYLOAD;
    for i in done as usize..whole as usize {
        // SAFETY: packet and payload `i` lie inside the caller's ranges.
        unsafe {
            let payload: P::Payload = read(data.add(i * P::PAYLOAD as usize));
            P::store(packets.add(i * P::BYTES as usize), payload, flags);
        }
    }
    let mut end = whole * P::PAYLOAD;
    if end < bytes {
        let mut payload = P::Payload::default();
        // SAFETY: only the valid bytes of the last payload are read, fewer than it has.
        unsafe {
            copy(NonNull::from(&mut payload).cast(), data.add(end as usize), bytes - end);
            P::store(packets.add(2 * end as usize), payload, flags);
        }
        end += P::PAYLOAD;
    }
    // SAFETY: the caller's word.
    unsafe { pad::<P>(packets, end, cover, flags) }
}

/// Zeros for the data from `from` to `cover`.
///
/// # Safety
/// As [`pack`].
unsafe fn pad<P: Packet>(packets: NonNull<u8>, from: u64, cover: u64, flags: Flags) {
    for at in (from..cover).step_by(P::PAYLOAD as usize) {
        // SAFETY: the packet of byte `at` lies inside the caller's range.
        unsafe { P::store(packets.add(2 * at as usize), P::Payload::default(), flags) }
    }
}

/// Stores a payload, or as much of it as there is room for.
///
/// # Safety
/// `to` must be mapped for `room` bytes or a payload's, whichever is less.
unsafe fn store_payload<P: Packet>(to: NonNull<u8>, mut payload: P::Payload, room: u64) {
    if room >= P::PAYLOAD {
        // SAFETY: the caller's word.
        unsafe { write(to, payload) }
    } else {
        // SAFETY: the caller's word; the payload is a local.
        unsafe { copy(to, NonNull::from(&mut payload).cast(), room) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where a fold of 100 bytes writes as it goes, of operands at these addresses: the destinations come last.
    fn direct(sources: &[(u64, Form)], destinations: &[(u64, Form)]) -> Option<u64> {
        let operands = |list: &[(u64, Form)], from: usize| -> Vec<Operand> {
            let operand = |(at, (_, form)): (usize, &(u64, Form))| Operand {
                base: (from + at) as u32,
                form: *form,
                input: true,
            };
            list.iter().enumerate().map(operand).collect()
        };
        let addresses: Vec<u64> = sources.iter().chain(destinations).map(|(address, _)| *address).collect();
        let piece = Piece { position: 0, bytes: 100, cover: 104 };
        let transfer = Transfer {
            kind: TransferKind::Fold { op: ReduceOp::Sum, last: true },
            sources: operands(sources, 0),
            destinations: operands(destinations, sources.len()),
            pieces: vec![piece],
            offsets: vec![0; addresses.len()],
            wakes: Vec::new(),
            writer: None,
        };
        let stretch = Stretch { transfer: &transfer, piece, offsets: &transfer.offsets, skipped: 0 };
        stretch.direct(&Bases::at(&addresses)).map(|first| first.as_ptr() as u64)
    }

    /// A block of elements is read before its result is written: that is right in place and apart, nowhere between.
    #[test]
    fn folds_write_directly_only_where_no_operand_shares_a_part() {
        use Form::{Packets, Raw};
        assert_eq!(direct(&[(1000, Raw), (2000, Raw)], &[(1000, Raw)]), Some(1000), "in place");
        assert_eq!(direct(&[(1000, Raw), (2000, Raw)], &[(2000, Raw)]), Some(2000), "in place of the second");
        assert_eq!(direct(&[(1000, Raw)], &[(1100, Raw)]), Some(1100), "right behind");
        assert_eq!(direct(&[(1000, Raw)], &[(900, Raw)]), Some(900), "right before");
        for shift in [1, 4, 50, 99] {
            assert_eq!(direct(&[(1000, Raw)], &[(1000 + shift, Raw)]), None, "{shift} behind");
            assert_eq!(direct(&[(1000, Raw)], &[(1000 - shift, Raw)]), None, "{shift} before");
            let second = direct(&[(1000, Raw), (5000 + shift, Raw)], &[(5000, Raw)]);
            assert_eq!(second, None, "the second source, by {shift}");
        }
        assert_eq!(direct(&[(1000, Raw)], &[(3000, Raw), (5000, Raw)]), Some(3000));
        // What the first destination gets is copied to the others at the end: none may lie in its way.
        assert_eq!(direct(&[(1000, Raw)], &[(3000, Raw), (3099, Raw)]), None);
        assert_eq!(direct(&[(1000, Raw)], &[(3000, Raw), (3000, Raw)]), None);
        // Packets take twice their cover, rounded up to whole ones: 208 bytes.
        assert_eq!(direct(&[(1000, Packets)], &[(1207, Raw)]), None);
        assert_eq!(direct(&[(1000, Packets)], &[(1208, Raw)]), Some(1208));
        assert_eq!(direct(&[(1000, Packets)], &[(1000, Raw)]), None, "packets are not read in place");
        assert_eq!(direct(&[(1000, Raw)], &[(3000, Packets)]), None, "packets are written from a tile");
    }
}
