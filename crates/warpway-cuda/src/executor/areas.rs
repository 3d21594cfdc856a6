//! Scratch: one memory of every rank for each kind of data, and the epoch that tells its launches apart.
//!
//! Plans that are proven to tell every rank that every peer has finished the launch before (V612) use areas of the
//! communicator: raw data and packets, with one half and with two. Every other plan has areas of its own, and its ranks meet before
//! each launch. Why launches of
//! different plans and sizes follow each other on one area: see the host's executor (`scratch.rs` there).
//!
//! A plan keeps the memories that it has been set up with. One that needs more gets new ones, which later plans use, too; those
//! before go on with theirs. That is as good as one memory: all ranks use the same in a launch, and the epoch, by
//! which launches are told apart, is one and the same counter.

use warpway_core::communicator::Communicator;
use warpway_core::memory::{MemoryError, RegisteredMemory};
use warpway_core::{Deadline, Error, Result};
use warpway_plan::Form;

use super::TAG;
use super::check::Checked;
use crate::gpu::{DeviceArray, Gpu, GpuBuffer, Keeper};
use crate::plan::Packet;

/// Packets are aligned to their size; areas to the longest, lines.
const ALIGNMENT: u64 = 128;

/// One area, as a plan uses it. Cheap to clone but for a small list.
#[derive(Debug, Clone)]
pub(super) struct Area {
    double: bool,
    /// The epoch of `plan.cuh`; this rank's own.
    counter: DeviceArray<u64>,
    /// By rank.
    parts: Vec<Part>,
}

#[derive(Debug, Clone, Default)]
struct Part {
    /// Of one half.
    bytes: u64,
    address: u64,
    memory: Option<RegisteredMemory>,
}

/// The areas that the plans of a communicator share: for raw data, for packets, for lines; of each with one half, with two.
///
/// Lines have data where other packets have flags, which could be taken for flags.
#[derive(Debug, Default)]
pub(super) struct Areas([[Option<Area>; 2]; 3]);

/// Positions in [`Areas`] of what is raw and of what the packets of a plan are.
fn kinds(checked: &Checked) -> [usize; 2] {
    [0, if checked.setting.kernel.packet == Packet::Line { 2 } else { 1 }]
}

/// The areas of one plan.
#[derive(Debug, Clone, Default)]
pub(super) struct Scratch {
    raw: Option<Area>,
    packets: Option<Area>,
}

/// The areas of a plan that is set up, and what of them is new.
#[derive(Debug)]
pub(super) struct Begun([Option<Grown>; 2]);

#[derive(Debug)]
struct Grown {
    area: Area,
    /// By rank: its part is a new memory.
    new: Vec<bool>,
    /// This rank's.
    own: Option<GpuBuffer<u64>>,
}

impl Areas {
    /// Allocates this rank's part of what a plan needs beyond what there is. Nothing is kept unless
    /// [`keep`](Self::keep) is called.
    ///
    /// # Errors
    /// `gpu.driver` if memory is exhausted, `mem.bounds` beyond 64 bits.
    pub(super) fn begin(&self, gpu: &Gpu, checked: &Checked) -> Result<Begun> {
        let double = usize::from(checked.geometry.double_scratch());
        let kinds = kinds(checked);
        let begin = |form: usize, shared: bool| {
            let needs = &checked.areas[form];
            if needs.iter().all(|bytes| *bytes == 0) {
                return Ok(None);
            }
            let known = if shared { self.0[kinds[form]][double].as_ref() } else { None };
            Grown::new(gpu, known, (double != 0, needs)).map(Some)
        };
        Ok(Begun([begin(0, checked.shares.raw)?, begin(1, checked.shares.packets)?]))
    }

    /// The plan is set up on all ranks: later ones find its areas.
    pub(super) fn keep(&mut self, scratch: &Scratch, checked: &Checked) {
        let double = usize::from(checked.geometry.double_scratch());
        let of_forms = [(&scratch.raw, checked.shares.raw), (&scratch.packets, checked.shares.packets)];
        for (kind, (area, shared)) in kinds(checked).into_iter().zip(of_forms) {
            if let (Some(area), true) = (area, shared) {
                self.0[kind][double] = Some(area.clone());
            }
        }
    }
}

impl Begun {
    /// Gives this rank's new memories to the others, and takes theirs.
    pub(super) fn exchange(self, communicator: &Communicator, deadline: Deadline) -> Result<Scratch> {
        let Self([raw, packets]) = self;
        let exchange = |grown: Option<Grown>| grown.map(|g| g.exchange(communicator, deadline)).transpose();
        Ok(Scratch { raw: exchange(raw)?, packets: exchange(packets)? })
    }
}

impl Grown {
    fn new(gpu: &Gpu, known: Option<&Area>, (double, needs): (bool, &[u64])) -> Result<Self> {
        let rank = gpu.communicator().rank();
        let halves = if double { 2 } else { 1 };
        let mut area = match known {
            Some(area) => area.clone(),
            None => Area { double, counter: gpu.array(&[0u64])?, parts: vec![Part::default(); needs.len()] },
        };
        let (mut new, mut own) = (vec![false; needs.len()], None);
        for (owner, ((part, need), new)) in (0..).zip(area.parts.iter_mut().zip(needs).zip(&mut new)) {
            if *need <= part.bytes {
                continue;
            }
            // Powers of two: few steps for growing messages.
            let bytes = need.checked_next_power_of_two().unwrap_or(*need).max(ALIGNMENT);
            let beyond = MemoryError::OutOfBounds {
                operation: "plan scratch",
                offset: 0,
                size: u64::MAX,
                limit: u64::MAX,
            };
            let words = bytes.checked_next_multiple_of(ALIGNMENT).and_then(|bytes| bytes.checked_mul(halves));
            let words = words.ok_or(beyond)? / 8;
            (*part, *new) = (Part { bytes, address: 0, memory: None }, true);
            if owner == rank {
                let buffer = gpu.alloc::<u64>(words)?;
                (part.address, part.memory) = (buffer.address(), Some(buffer.memory().clone()));
                own = Some(buffer);
            }
        }
        Ok(Self { area, new, own })
    }

    fn exchange(self, communicator: &Communicator, deadline: Deadline) -> Result<Area> {
        let Self { mut area, new, own } = self;
        let rank = communicator.rank();
        if let Some(own) = &own {
            for peer in (0..communicator.n_ranks()).filter(|peer| *peer != rank) {
                communicator.send_memory(own.memory(), peer, TAG)?;
            }
        }
        let halves = area.halves();
        let mut pending = Vec::new();
        for (owner, part) in
            (0..).zip(&mut area.parts).filter(|(owner, _)| new[*owner as usize] && *owner != rank)
        {
            pending.push((communicator.recv_memory(owner, TAG)?, part));
        }
        for (exchange, part) in pending {
            let memory = exchange.wait(deadline)?;
            if memory.size() < part.bytes * halves {
                let what = "all ranks compute the same areas";
                return Err(Error::Internal { place: "plan scratch", what });
            }
            part.address = memory.address("plan scratch", 0, part.bytes * halves)?;
            part.memory = Some(memory);
        }
        Ok(area)
    }
}

impl Area {
    fn halves(&self) -> u64 {
        if self.double { 2 } else { 1 }
    }
}

impl Scratch {
    fn area(&self, form: Form) -> Option<&Area> {
        match form {
            Form::Raw => self.raw.as_ref(),
            Form::Packets => self.packets.as_ref(),
        }
    }

    /// Address of the counter of the epoch; 0 without an area.
    pub(super) fn epoch(&self, form: Form) -> u64 {
        self.area(form).map_or(0, |area| area.counter.address())
    }

    /// Where the part of `rank` begins, how far behind it the half of odd epochs does, and bytes of a half.
    pub(super) fn place(&self, rank: u32, form: Form) -> Option<(u64, u64, u64)> {
        let area = self.area(form)?;
        let part = area.parts.get(rank as usize)?;
        Some((part.address, if area.double { part.bytes } else { 0 }, part.bytes))
    }

    /// For launches. Own memories are kept by their registrations.
    pub(super) fn keepers(&self) -> Vec<Keeper> {
        let areas = self.raw.iter().chain(&self.packets);
        areas
            .flat_map(|area| {
                let memories = area.parts.iter().filter_map(|part| part.memory.clone());
                let memories = memories.map(|memory| std::sync::Arc::new(memory) as Keeper);
                memories.chain([area.counter.keeper()])
            })
            .collect()
    }

    #[cfg(test)]
    pub(super) fn counter(&self, form: Form) -> Option<&DeviceArray<u64>> {
        self.area(form).map(|area| &area.counter)
    }
}
