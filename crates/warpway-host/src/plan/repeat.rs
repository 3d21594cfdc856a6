//! Launches like an earlier one: the same plan, with the same buffers, sizes and types. Most are.
//!
//! Whatever an earlier launch has found out still holds then, and is kept here: the program, the record for the peers,
//! where every buffer is. Only what counts launches changes: the sequence number, and the epochs of the areas. A launch
//! of this kind takes no lock but the one that puts launches in order, allocates nothing, and asks nobody.
//!
//! Nothing here keeps a memory. Buffers of the caller are borrowed by the launch that names them; areas say whether they
//! have got other memories ([`AreaClock::version`]).

use std::ptr::NonNull;
use std::sync::Arc;

use warpway_core::Result;
use warpway_plan::{BufferKind, DataType, Form};

use super::area::AreaClock;
use super::block_run::Run;
use super::credit::Credits;
use super::launch_bases::Bases;
use super::launching::{flags, recorded};
use super::linked::{Linked, LinkedBlock, Turn};
use super::prepared::{Compiled, Prepared};
use super::program::{BaseKey, BlockProgram, Operand};
use super::record::{LaunchRecord, Marks, Words};
use super::request::{PacketFormat, PlanLaunch, SeenView};
use super::scratch::Entered;
use super::transfer::Kernels;
use super::waiting::{Launched, Waiting};
use crate::packet::{Ll16, Packet as _};

/// Launches that are remembered.
const REPEATS: usize = 16;

/// The lock that puts launches in order. It is given back by a plain store, where a mutex that can be slept for needs a
/// second exchange: launches of a few bytes would notice. Whoever finds it taken, which is rare because several threads
/// that launch at once have no order to rely on, looks again now and then.
pub(super) type Order = spin::mutex::SpinMutex<Launches, LookNowAndThen>;

/// See [`Order`].
#[derive(Debug)]
pub(super) enum LookNowAndThen {}

impl spin::RelaxStrategy for LookNowAndThen {
    fn relax() {
        std::thread::sleep(std::time::Duration::from_micros(50));
    }
}

/// The launches of an executor, one at a time.
#[derive(Debug, Default)]
pub(super) struct Launches {
    /// Number of the last one, or of the last set-up.
    pub(super) sequence: u64,
    /// The last one used comes last.
    repeats: Vec<Repeat>,
}

/// What a launch leaves for those that repeat it.
pub(super) struct Repeat {
    key: Key,
    compiled: Arc<Compiled>,
    record: LaunchRecord,
    /// The record, up to the epochs of the areas.
    words: Words,
    marks: Marks,
    /// Raw, packets; and their versions.
    areas: [Option<(Arc<AreaClock>, u64)>; 2],
    places: Vec<SlottedPlace>,
    bases: Bases,
    kernels: Kernels,
    /// The one block begins with packets to all peers, and wakes them behind those.
    quiet: bool,
    /// See [`Run::packets_tell_all`].
    packets_tell_all: bool,
    /// Of plans whose scratch is the executor's care.
    credits: Option<Credits>,
    /// Of a short launch; it needs no bases.
    linked: Option<LinkedBlock>,
}

struct Key {
    /// Number of the prepared plan.
    plan: u64,
    input: SeenView,
    output: SeenView,
    data_type: DataType,
    packets: PacketFormat,
}

/// A buffer, or all slots of a part of scratch.
struct SlottedPlace {
    first: NonNull<u8>,
    /// From one slot to the next.
    step: u64,
    form: Form,
}

// SAFETY: addresses that launches use under the lock that orders them, each as long as the borrowed buffers and the areas
// of that launch; see the module's page.
unsafe impl Send for Repeat {}

impl Key {
    fn is(&self, plan: u64, launch: &PlanLaunch<'_>) -> bool {
        self.plan == plan
            && self.data_type == launch.data_type
            && self.packets == launch.packets
            && launch.sizes.is_none()
            && self.input.is(&launch.input)
            && self.output.is(&launch.output)
    }
}

impl Launches {
    /// What an earlier launch of this kind has left, if that still holds.
    #[inline]
    pub(super) fn earlier(&mut self, plan: u64, launch: &PlanLaunch<'_>) -> Option<(u64, &mut Repeat)> {
        let at = self.repeats.iter().rposition(|repeat| repeat.key.is(plan, launch))?;
        if !self.repeats[at].holds() {
            self.repeats.remove(at);
            return None;
        }
        if at + 1 < self.repeats.len() {
            self.repeats[at..].rotate_left(1);
        }
        self.sequence += 1;
        Some((self.sequence, self.repeats.last_mut()?))
    }

    pub(super) fn remember(&mut self, repeat: Repeat) {
        if self.repeats.len() == REPEATS {
            self.repeats.remove(0);
        }
        self.repeats.push(repeat);
    }

    /// A plan is gone.
    pub(super) fn forget(&mut self, plan: u64) {
        self.repeats.retain(|repeat| repeat.key.plan != plan);
    }
}

/// What a launch has found out.
pub(super) struct Found<'a> {
    pub(super) compiled: &'a Arc<Compiled>,
    pub(super) record: &'a LaunchRecord,
    pub(super) bases: &'a Bases,
    pub(super) kernels: &'a Kernels,
    pub(super) peers: &'a [u32],
    pub(super) credits: Option<Credits>,
}

impl Repeat {
    /// Of a launch that has succeeded and has not left its areas yet.
    pub(super) fn of(plan: u64, launch: &PlanLaunch<'_>, areas: &Entered<'_>, found: Found<'_>) -> Self {
        let of_the_block = |ranks: fn(&BlockProgram) -> &Vec<u32>| match &found.compiled.program.blocks[..] {
            [block] => found.peers.iter().all(|peer| ranks(block).contains(peer)),
            _ => false,
        };
        let quiet = of_the_block(|block| &block.first_wakes);
        let marked = found.kernels.payload == Ll16::PAYLOAD;
        let words = found.record.to_words();
        let area = |form| areas.area(form).map(|area| (Arc::clone(area.clock()), area.clock().version()));
        let place = |(number, key): (u32, BaseKey)| {
            let (address, step) = (found.bases.address(number), areas.slot_bytes(key));
            let back = areas.area(key.form).map_or(0, |area| area.clock().slot() * step);
            // Wrapping, as the address of a buffer that is not touched is nothing.
            let first = NonNull::new(address.as_ptr().wrapping_sub(back as usize)).unwrap_or(address);
            SlottedPlace { first, step, form: key.form }
        };
        let keys = found.compiled.program.bases.iter().map(|base| base.key);
        let places: Vec<SlottedPlace> = (0..).zip(keys).map(place).collect();
        let linked = match &found.compiled.program.blocks[..] {
            // SAFETY: the bases of the program, which the launch has found mapped for their reach. Launches with other
            // buffers, or with areas that have got other memories, are no repetitions.
            [block] if marked || !block.uses_packets() => unsafe {
                LinkedBlock::of(block, |operand, offset| link(&places, operand, offset))
            },
            _ => None,
        };
        let PlanLaunch { input, output, data_type, packets, .. } = *launch;
        Self {
            key: Key { plan, input: input.seen(), output: output.seen(), data_type, packets },
            compiled: Arc::clone(found.compiled),
            record: *found.record,
            words,
            marks: Marks::of(&words),
            areas: [area(Form::Raw), area(Form::Packets)],
            places,
            bases: Bases::default(),
            kernels: *found.kernels,
            quiet,
            packets_tell_all: marked && of_the_block(|block| &block.hears),
            credits: found.credits,
            linked,
        }
    }

    fn clocks(&self) -> impl Iterator<Item = &(Arc<AreaClock>, u64)> {
        self.areas.iter().flatten()
    }

    fn holds(&self) -> bool {
        self.clocks().all(|(clock, version)| clock.version() == *version && !clock.must_clear())
    }

    /// Brings everything that counts launches up to date.
    fn turn(&mut self, sequence: u64) {
        let digest = self.clocks().fold(0, |digest, (clock, _)| Entered::join(digest, clock.digest()));
        self.record.areas = if self.credits.is_some() { Entered::join(digest, sequence) } else { digest };
        self.record.put_areas(&mut self.words);
        if self.linked.is_some() {
            return;
        }
        let slot = |form: Form| match (&self.areas, form) {
            ([Some((clock, _)), _], Form::Raw) | ([_, Some((clock, _))], Form::Packets) => clock.slot(),
            _ => 0,
        };
        let places = self.places.iter().map(|place| {
            let offset = slot(place.form) * place.step;
            // Wrapping, as the address of a buffer that is not touched is nothing.
            NonNull::new(place.first.as_ptr().wrapping_add(offset as usize)).unwrap_or(place.first)
        });
        self.bases.set(places);
    }
}

/// Where an operand is, so many bytes into its base.
fn link(places: &[SlottedPlace], operand: Operand, offset: u64) -> Option<Linked> {
    let place = places.get(operand.base as usize)?;
    // Wrapping as in `turn`; within the base all the same.
    let first = NonNull::new(place.first.as_ptr().wrapping_add(offset as usize))?;
    Some(Linked { first, step: place.step, form: place.form })
}

impl Prepared {
    /// Launches what an earlier launch has launched.
    pub(super) fn launch_again(&self, sequence: u64, repeat: &mut Repeat) -> Result<()> {
        repeat.turn(sequence);
        let (shared, repeat) = (&*self.shared, &*repeat);
        let peers = &self.roles.peers[..];
        shared.control.announce(sequence, &repeat.words, peers, &[], repeat.quiet)?;
        let launched = Launched {
            plan: &self.name,
            control: &shared.control,
            refusals: &shared.refusals,
            rank: shared.comm.rank(),
            sequence,
            record: &repeat.record,
            words: &repeat.words,
            peers,
            extents: &[],
            owners: &self.roles.owners,
            told_all: false.into(),
        };
        if let Some(credits) = &repeat.credits {
            let timeout = shared.config.device_timeout;
            let waiting = Waiting { launched: &launched, waiter: shared.comm.waiter(), timeout };
            credits.spend(&waiting).map_err(|error| launched.explained(error))?;
        }
        let flag = repeat.areas[1].as_ref().map_or(1, |(clock, _)| clock.flag());
        let run = Run {
            plan: &self.name,
            launched: &launched,
            channels: &self.channels,
            objects: &self.objects,
            bases: &repeat.bases,
            kernels: &repeat.kernels,
            flags: flags((flag, repeat.kernels.payload), repeat.marks.with_areas(repeat.record.areas)),
            packets_tell_all: repeat.packets_tell_all,
            timeout: shared.config.device_timeout,
        };
        let program = &repeat.compiled.program;
        match (&repeat.linked, &program.blocks[..]) {
            (Some(linked), [block]) => {
                let slot = |area: usize| repeat.areas[area].as_ref().map_or(0, |(clock, _)| clock.slot());
                let turn = Turn { raw: slot(0), packets: slot(1) };
                let waiter = shared.comm.waiter();
                recorded((shared.comm.rank(), waiter), |record| {
                    run.linked_block(waiter, (block, linked, turn), record)
                })
                .map_err(|error| launched.explained(error))?;
            }
            _ => self.run_blocks(&run, program).map_err(|error| launched.explained(error))?,
        }
        // Whoever runs ahead compares when it looks for credit: the peers have not come yet.
        let is_trusted = repeat.packets_tell_all || repeat.credits.as_ref().is_some_and(Credits::compares);
        if let Some(difference) = (!is_trusted).then(|| launched.difference()).flatten() {
            return Err(difference.into());
        }
        repeat.clocks().for_each(|(clock, _)| clock.advance());
        Ok(())
    }

    /// True if launches of this plan with the same buffers need nothing that the launch before has not found out.
    pub(super) fn can_repeat(&self) -> bool {
        let repairs = &self.contract.repairs;
        let handshakes = repairs.start_handshake || repairs.closing_handshake || repairs.flush_at_end;
        let buffers = self.roles.owners.is_empty() && self.roles.users.is_empty();
        buffers && !handshakes && self.channels.port.is_empty() && !self.geometry.is_sized()
    }
}

impl std::fmt::Debug for Repeat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Repeat").field("plan", &self.key.plan).finish_non_exhaustive()
    }
}

impl Entered<'_> {
    /// From one slot of a buffer to the next; 0 for inputs and outputs.
    fn slot_bytes(&self, BaseKey { rank, buffer, form }: BaseKey) -> u64 {
        match (buffer, self.area(form)) {
            (BufferKind::Scratch, Some(area)) => area.slot_bytes(rank),
            _ => 0,
        }
    }
}
