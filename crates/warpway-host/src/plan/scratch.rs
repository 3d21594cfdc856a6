//! The scratch of a plan, and what a launch must know of other ranks before it may use it.
//!
//! A plan that is proven to tell every rank that every peer has finished the launch before (V612) uses areas of the
//! communicator, one for each kind of data, with and without double buffering. Every other plan has areas of its own.
//! Why launches of different plans, sizes and packet formats follow each other on one area without a word:
//!
//! * *Double buffering.* At the end of launch e of the area every rank knows, by the plan of e alone, that all have begun
//!   e, so have ended e - 1. Launch e + 1 writes to the half of e - 1, which nobody uses any more, however it was
//!   divided.
//! * *Without.* Before it first writes in launch e a rank knows, by the plan of e alone, that all have begun e, so have
//!   ended e - 1.
//! * *Chunks that may be empty.* Nobody waits for the packets of those, and pipelines of no rounds send no signals; then the plan
//!   tells nothing. Such a launch begins when all ranks have begun it, which is what either case above asks of e; e + 1 asks
//!   nothing of it. All ranks, not the plan's peers: the slots of e are those of others in e - 1.
//!
//! * *Credits.* A plan whose scratch is the executor's care writes only where `credit.rs` finds room.
//!
//! On an area of its own a plan knows what it knows from its launches before, so that it also waits for all ranks
//! when chunks lie elsewhere than in the last launch, or were perhaps empty then.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use warpway_core::Result;
use warpway_core::deadline::Deadline;
use warpway_core::proxy::ProxyService;
use warpway_plan::verify::ShareableAreas;
use warpway_plan::{Form, Geometry};

use super::area::Area;
use super::credit::AHEAD;
use super::executor::{Shared, lock};
use super::launch_bases::Place;
use super::roles::Roles;

/// The areas that the plans of a communicator share. They live as long as its executor: ranks drop plans when they
/// like, but an epoch must be the same on all.
#[derive(Debug)]
pub(super) struct Areas {
    ranks: u32,
    shared: [Arc<Mutex<Area>>; 4],
    /// Areas so far, those of single plans included.
    count: AtomicU64,
}

/// The areas of one plan.
#[derive(Debug)]
pub(super) struct Scratch {
    raw: Option<Arc<Mutex<Area>>>,
    packets: Option<Arc<Mutex<Area>>>,
    /// Some area is this plan's alone.
    own: bool,
    /// Its ranks wait for credit before they write ([`Credits`](super::credit::Credits)).
    credits: bool,
    /// Of the last launch.
    last: Option<Division>,
}

/// How a launch divides the areas.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Division {
    pub(super) chunk_bytes: u64,
    pub(super) packet_payload: u64,
    /// Chunks may be empty.
    pub(super) may_be_empty: bool,
    /// And then the plan tells ranks nothing of each other.
    pub(super) is_silent: bool,
}

/// The areas of a plan in the hands of a launch.
pub(super) struct Entered<'a> {
    raw: Option<MutexGuard<'a, Area>>,
    packets: Option<MutexGuard<'a, Area>>,
}

/// Which areas of scratch a plan uses.
pub(super) fn used(geometry: &Geometry) -> ShareableAreas {
    // Beyond 64 bits: some launch will say so.
    let any = |of: fn(warpway_plan::AreaBytes) -> u64| {
        (0..geometry.n_ranks()).any(|rank| geometry.area(rank, 1).is_none_or(|area| of(area) > 0))
    };
    ShareableAreas { raw: any(|area| area.raw), packets: any(|area| area.packets) }
}

impl Areas {
    pub(super) fn new(ranks: u32) -> Self {
        let kinds = [(Form::Raw, 1), (Form::Raw, 2), (Form::Packets, 1), (Form::Packets, 2)];
        let mut number = 0..;
        let area = |(form, slots)| {
            Arc::new(Mutex::new(Area::new(number.next().unwrap_or_default(), form, slots, ranks)))
        };
        Self { ranks, shared: kinds.map(area), count: AtomicU64::new(kinds.len() as u64) }
    }

    /// Of a plan that shares some of its areas; of the others it gets its own. The same plans in the same order on all
    /// ranks.
    pub(super) fn scratch(&self, geometry: &Geometry, shares: ShareableAreas, credits: bool) -> Scratch {
        let ShareableAreas { raw, packets } = used(geometry);
        let double = geometry.double_scratch();
        let slots = match (credits, double) {
            (true, _) => AHEAD,
            (false, true) => 2,
            (false, false) => 1,
        };
        let area = |form, shared| match (form, shared) {
            (Form::Raw, true) => Arc::clone(&self.shared[usize::from(double)]),
            (Form::Packets, true) => Arc::clone(&self.shared[2 + usize::from(double)]),
            (form, false) => {
                let number = self.count.fetch_add(1, Ordering::Relaxed);
                Arc::new(Mutex::new(Area::new(number, form, slots, self.ranks)))
            }
        };
        Scratch {
            raw: raw.then(|| area(Form::Raw, shares.raw)),
            packets: packets.then(|| area(Form::Packets, shares.packets)),
            own: (raw && !shares.raw) || (packets && !shares.packets),
            credits,
            last: None,
        }
    }
}

impl Scratch {
    /// True if a launch that divides the areas like this may touch them only when all ranks have begun it. Once
    /// before each launch; the same on all ranks.
    pub(super) fn waits_for_all(&mut self, now: Division) -> bool {
        let moves = self.last.replace(now).is_some_and(|last| last != now);
        let used = self.raw.is_some() || self.packets.is_some();
        // Where there is credit a slot is free, however it was divided.
        used && (now.is_silent || (self.own && moves && !self.credits))
    }

    /// True if a launch may find out less than the first one did: the areas are those of many plans, or waiting for credit is
    /// all that there is to do.
    pub(super) fn can_repeat(&self) -> bool {
        !self.own || self.credits
    }

    /// While launches of the executor wait for this one.
    pub(super) fn enter(&self) -> Entered<'_> {
        Entered { raw: self.raw.as_deref().map(lock), packets: self.packets.as_deref().map(lock) }
    }
}

impl Entered<'_> {
    fn all(&self) -> impl Iterator<Item = &Area> {
        self.raw.iter().chain(&self.packets).map(|area| &**area)
    }

    fn all_mut(&mut self) -> impl Iterator<Item = &mut Area> {
        self.raw.iter_mut().chain(&mut self.packets).map(|area| &mut **area)
    }

    /// Sees to the room for chunks of so many bytes. Before the launch is announced.
    pub(super) fn resize(&mut self, rank: u32, geometry: &Geometry, chunk_bytes: u64) -> Result<()> {
        let needs = || (0..geometry.n_ranks()).map(|rank| geometry.area(rank, chunk_bytes));
        if let Some(area) = &mut self.raw {
            area.resize(rank, needs().map(|area| Some(area?.raw)))?;
        }
        if let Some(area) = &mut self.packets {
            area.resize(rank, needs().map(|area| Some(area?.packets)))?;
        }
        Ok(())
    }

    /// Equal on ranks that agree about the areas.
    pub(super) fn digest(&self) -> u64 {
        self.all().fold(0, |digest, area| Self::join(digest, area.digest()))
    }

    /// The digest of several areas.
    pub(super) fn join(digest: u64, area: u64) -> u64 {
        digest.rotate_left(1) ^ area
    }

    /// Ranks whose memories this launch takes over.
    pub(super) fn missing(&self, roles: &Roles) -> Vec<u32> {
        let mut missing: Vec<u32> = self.all().flat_map(|area| area.missing(roles)).collect();
        missing.sort_unstable();
        missing.dedup();
        missing
    }

    /// Takes them over, and gives this rank's memories to those that need them.
    pub(super) fn exchange(&mut self, shared: &Shared, roles: &Roles, deadline: Deadline) -> Result<()> {
        self.all_mut().try_for_each(|area| area.exchange(shared, roles, deadline))
    }

    /// Where the part of `rank` begins.
    pub(super) fn place(
        &mut self,
        rank: u32,
        form: Form,
        service: Option<&ProxyService>,
    ) -> Result<Option<Place>> {
        let area = match form {
            Form::Raw => &mut self.raw,
            Form::Packets => &mut self.packets,
        };
        area.as_mut().map_or(Ok(None), |area| area.place(rank, service))
    }

    /// The flag of this launch's packets.
    pub(super) fn flag(&self) -> u32 {
        self.packets.as_ref().map_or(1, |area| area.clock().flag())
    }

    /// After the launch.
    pub(super) fn advance(&self) {
        self.all().for_each(|area| area.clock().advance());
    }

    /// The area of one kind of data.
    pub(super) fn area(&self, form: Form) -> Option<&Area> {
        let area = match form {
            Form::Raw => &self.raw,
            Form::Packets => &self.packets,
        };
        area.as_deref()
    }
}
