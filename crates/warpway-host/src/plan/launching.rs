//! A launch, from its announcement on: the peers count on this rank now.

use std::num::NonZeroU32;

use warpway_core::communicator::Publication;
use warpway_core::execution::ExecutionError;
use warpway_core::trace::{Operation, Request};
use warpway_core::wait::{WaitSite, Waiter};
use warpway_core::wire::SlotId;
use warpway_core::{Error, Result};
use warpway_plan::{BufferKind, SizeRows};

use super::block_run::Run;
use super::control::Peer;
use super::credit::Credits;
use super::executor::lock;
use super::kept::{Kept, Slots};
use super::launch_bases::{Bases, Place};
use super::prepared::{Prepared, Ready};
use super::program::{BaseKey, Program};
use super::record::{BufferRecord, LaunchRecord, Marks, Step};
use super::repeat::{Found, Repeat};
use super::request::{BufferView, PlanLaunch};
use super::roles::Roles;
use super::rows::{RowMemory, digest};
use super::scratch::{Division, Entered};
use super::transfer::Kernels;
use super::waiting::{Launched, Waiting};
use crate::launcher::caught;
use crate::numeric::FoldKernel;
use crate::packet::{Flags, Ll16, Packet as _};

impl Prepared {
    /// What it leaves for launches that repeat it, if they can.
    pub(super) fn launch(
        &self,
        sequence: u64,
        launch: &PlanLaunch<'_>,
        ready: Ready<'_>,
    ) -> Result<Option<Repeat>> {
        let shared = &*self.shared;
        let mut scratch = lock(&self.scratch);
        let division = self.division(launch, &ready);
        let all = scratch.waits_for_all(division);
        let mut areas = scratch.enter();
        areas.resize(shared.comm.rank(), &self.geometry, division.chunk_bytes)?;
        // A launch that waits for all ranks at either end is announced to all.
        let everyone = all || self.contract.repairs.closing_handshake;
        let peers = if everyone { &self.roles.others[..] } else { &self.roles.peers[..] };
        let kept = &mut *lock(&self.kept);
        let publications = self.publish(kept, launch)?;
        let mut record = LaunchRecord { areas: areas.digest(), ..self.record(launch, &publications) };
        if self.has_credits {
            // Ranks that run ahead must not take one launch for another.
            record.areas = Entered::join(record.areas, sequence);
        }
        let mut extents = Vec::new();
        let mut row_memory = lock(&self.rows);
        match &ready {
            Ready::Compiled(compiled) => {
                record.chunk_bytes = compiled.layout.chunk_bytes();
                record.block_bytes = compiled.layout.block_bytes().unwrap_or(0);
            }
            Ready::Rows(rows, _) => {
                record.rows = self.publish_rows(&mut row_memory, rows, sequence)?;
                let common = |peer: &u32| self.common_ids.get(*peer as usize).map_or(&[][..], |ids| ids);
                extents.extend(peers.iter().map(|peer| digest(common(peer), rows)));
            }
        }
        let (control, rank) = (&shared.control, shared.comm.rank());
        let words = record.to_words();
        let launched = Launched {
            plan: &self.name,
            control,
            refusals: &shared.refusals,
            rank,
            sequence,
            record: &record,
            words: &words,
            peers,
            extents: &extents,
            owners: &self.roles.owners,
            told_all: false.into(),
        };
        // Whatever fails from here on may stem from what a peer has launched.
        let explained = |error| launched.explained(error);
        control.announce(sequence, &words, peers, &extents, false).map_err(explained)?;
        let (waiter, timeout) = (shared.comm.waiter(), shared.config.device_timeout);
        let waiting = Waiting { launched: &launched, waiter, timeout };
        self.open(&waiting, &mut areas, all).map_err(explained)?;
        kept.owners.clear();
        for owner in &self.roles.owners {
            kept.owners.push((*owner, started(&waiting, *owner).map_err(explained)?));
        }
        let compiled = match ready {
            Ready::Compiled(compiled) => compiled,
            Ready::Rows(rows, table) => {
                self.sized(&waiting, launch, (rows, table), &kept.owners).map_err(explained)?
            }
        };
        let program = &compiled.program;
        let mut bases = self.bases(kept, launch, &mut areas, program).map_err(explained)?;
        let payload = launch.packets.payload();
        let kernels = kept.kernels((launch.data_type, payload), || {
            let ranks = NonZeroU32::new(shared.comm.n_ranks()).unwrap_or(NonZeroU32::MIN);
            Kernels::new(payload, |op| FoldKernel::new(launch.data_type, op, ranks))
        });
        let run = Run {
            plan: &self.name,
            launched: &launched,
            channels: &self.channels,
            objects: &self.objects,
            bases: &bases,
            kernels: &kernels,
            flags: flags((areas.flag(), payload), Marks::of(&words).with_areas(record.areas)),
            packets_tell_all: false,
            timeout: shared.config.device_timeout,
        };
        self.run_blocks(&run, program).map_err(explained)?;
        if self.contract.repairs.flush_at_end || bases.leases_ids() {
            self.flush(program).map_err(explained)?;
        }
        self.close(&waiting).map_err(explained)?;
        let repeat = (self.can_repeat() && !all && scratch.can_repeat()).then(|| {
            let found = Found {
                compiled: &compiled,
                record: &record,
                bases: &bases,
                kernels: &kernels,
                peers: &self.roles.peers,
                credits: self.has_credits.then(|| Credits::new(&self.roles.scratch_owners, &launched)),
            };
            Repeat::of(self.number, launch, &areas, found)
        });
        areas.advance();
        bases.clear();
        kept.bases = bases;
        Ok(repeat)
    }

    /// Runs all blocks. A single one runs here, without the launcher.
    pub(super) fn run_blocks(&self, run: &Run<'_>, program: &Program) -> Result<()> {
        let shared = &*self.shared;
        let [block] = &program.blocks[..] else {
            if program.blocks.is_empty() {
                return Ok(());
            }
            return shared.launcher.launch(program.blocks.len() as u32, |block| {
                let program = program.blocks.get(block.index() as usize);
                program.map_or(Ok(()), |program| run.block(block.waiter(), program, || ()))
            });
        };
        let waiter = shared.comm.waiter();
        recorded((shared.comm.rank(), waiter), |record| run.block(waiter, block, record))
    }

    /// Writes the rows of this launch; where peers find them.
    fn publish_rows(
        &self,
        memory: &mut Option<RowMemory>,
        rows: &SizeRows,
        sequence: u64,
    ) -> Result<Option<SlotId>> {
        let Some(own) = self.plan.ranks.get(self.shared.comm.rank() as usize) else { return Ok(None) };
        let memory = match memory {
            Some(memory) => memory,
            None => memory.insert(RowMemory::new(&self.shared, own, &self.roles.users)?),
        };
        let deadline = self.shared.config.device_timeout.start();
        memory.write((own, rows), sequence, &self.inboxes, deadline)?;
        Ok(memory.slot())
    }

    /// Makes this rank's buffers known to the ranks that touch them.
    fn publish(&self, kept: &mut Kept, launch: &PlanLaunch<'_>) -> Result<[Option<Publication>; 2]> {
        let publish = |slots: &mut Slots, view: &BufferView<'_>, users: &[u32]| match view.memory() {
            Some(memory) if view.bytes > 0 && !users.is_empty() => {
                slots.publish(&self.shared.comm, memory, users).map(Some)
            }
            _ => Ok(None),
        };
        let Roles { input_users, output_users, .. } = &self.roles;
        let input = publish(&mut kept.inputs, &launch.input, input_users)?;
        Ok([input, publish(&mut kept.outputs, &launch.output, output_users)?])
    }

    fn record(&self, launch: &PlanLaunch<'_>, publications: &[Option<Publication>; 2]) -> LaunchRecord {
        let buffer = |view: &BufferView<'_>, publication: &Option<Publication>| BufferRecord {
            bytes: view.bytes,
            place: publication.as_ref().map(|publication| (publication.slot(), view.offset)),
        };
        LaunchRecord {
            step: Step::Launch,
            collective: self.plan.collective,
            function: self.function,
            identity: self.identity.plan,
            chunk_bytes: 0,
            block_bytes: 0,
            data_type: launch.data_type,
            reduce_op: self.reduce_op,
            root: self.root,
            // Of plans without packets it means nothing, so ranks need not agree.
            packet_payload: if self.geometry.uses_packets() { launch.packets.payload() } else { 0 },
            input: buffer(&launch.input, &publications[0]),
            output: buffer(&launch.output, &publications[1]),
            areas: 0,
            rows: None,
            extents: 0,
        }
    }

    /// How this launch divides the scratch.
    fn division(&self, launch: &PlanLaunch<'_>, ready: &Ready<'_>) -> Division {
        let packets = self.geometry.uses_packets();
        let (chunk_bytes, may_be_empty, is_silent) = match ready {
            Ready::Compiled(compiled) => {
                let layout = &compiled.layout;
                // Without any bytes pipelines have no rounds; with some they have as many on all ranks.
                let nothing = layout.chunk_bytes() == 0;
                let ragged = layout.block_bytes().is_some();
                // Of a chunk that is shorter than others a share or a slice may be empty.
                let gaps = ragged && (self.divides_chunks || layout.has_empty_chunks());
                (layout.scratch_chunk_bytes(), gaps || nothing, nothing || (gaps && packets))
            }
            Ready::Rows(..) => {
                (self.geometry.scratch_chunk().unwrap_or(0), true, packets || self.has_pipelines)
            }
        };
        Division { chunk_bytes, packet_payload: launch.packets.payload(), may_be_empty, is_silent }
    }

    /// Waits for whom this launch must wait before it begins, and takes scratch over.
    fn open(&self, waiting: &Waiting<'_>, areas: &mut Entered<'_>, all: bool) -> Result<()> {
        let shared = &*self.shared;
        // A launch that is not the first of its kind runs ahead; this one begins when its peers have.
        let first = match (all, self.contract.repairs.start_handshake || self.has_credits) {
            (true, _) => &self.roles.others[..],
            (false, true) => &self.roles.peers[..],
            (false, false) => &[],
        };
        // An owner that has begun agrees about what there is to take over.
        for peer in first.iter().chain(&areas.missing(&self.roles)) {
            started(waiting, *peer)?;
        }
        areas.exchange(shared, &self.roles, shared.config.setup_timeout.start())
    }

    /// Addresses of own and peers' buffers.
    fn bases(
        &self,
        kept: &mut Kept,
        launch: &PlanLaunch<'_>,
        areas: &mut Entered<'_>,
        program: &Program,
    ) -> Result<Bases> {
        let shared = &*self.shared;
        let service = if self.channels.port.is_empty() { None } else { Some(shared.service()?) };
        let Kept { imports, bases, owners, .. } = kept;
        std::mem::take(bases).resolve(&program.bases, service.as_ref(), |BaseKey { rank, buffer, form }| {
            if buffer == BufferKind::Scratch {
                return areas.place(rank, form, service.as_ref());
            }
            if rank == shared.comm.rank() {
                let view = if buffer == BufferKind::Input { launch.input } else { launch.output };
                return Ok(view.place());
            }
            let record = owners.iter().find(|(owner, _)| *owner == rank).map(|(_, record)| record);
            let found = record.map(|r| if buffer == BufferKind::Input { r.input } else { r.output });
            let needed = program.reach(BaseKey { rank, buffer, form });
            let bytes = found.map_or(0, |found| found.bytes);
            let Some((slot, offset)) = found.and_then(|found| found.place).filter(|_| needed <= bytes) else {
                let (rank, peer) = (shared.comm.rank(), rank);
                let buffer = if buffer == BufferKind::Input { "input" } else { "output" };
                return Err(ExecutionError::PeerBuffer { rank, peer, buffer, needed, bytes }.into());
            };
            let deadline = || shared.config.setup_timeout.start();
            let memory = imports.find(&shared.comm, rank, slot, deadline)?;
            Ok(Some(Place::Memory { memory, offset, id: None }))
        })
    }

    /// Completes the requests of this launch.
    fn flush(&self, program: &Program) -> Result<()> {
        for channel in &program.putting {
            if let Some(handle) = self.channels.port.get(*channel as usize) {
                handle.flush()?;
            }
        }
        Ok(())
    }

    /// The end of the launch: peers that exchanged data with this rank have told what they launched.
    fn close(&self, waiting: &Waiting<'_>) -> Result<()> {
        if let Some(difference) = waiting.launched.difference() {
            return Err(difference.into());
        }
        if !self.contract.repairs.closing_handshake {
            return Ok(());
        }
        // All ranks, not the plan's peers: two that never meet may write to the scratch of a third.
        let Launched { control, sequence, peers, .. } = *waiting.launched;
        control.announce_end(sequence, peers)?;
        for peer in peers {
            let Some((_, event)) = control.ended(*peer) else { continue };
            waiting.until(
                || site(*peer, sequence),
                Some(event),
                || match control.ended(*peer) {
                    Some((ended, _)) if ended < sequence => Err(ended),
                    _ => Ok(()),
                },
            )?;
        }
        Ok(())
    }
}

/// Records a launch that runs here as the launcher does; `run` says when it begins.
#[inline]
pub(super) fn recorded(
    (rank, waiter): (u32, &Waiter),
    run: impl FnOnce(&mut dyn FnMut()) -> Result<()>,
) -> Result<()> {
    let request = Request { operation: Operation::Launch, peer: None, object: 1, bytes: 0, offset: 0 };
    let mut record = None;
    let result = caught(rank, (0, 1), || run(&mut || record = Some(waiter.recorder.start(request))));
    match (record, &result) {
        (Some(record), Ok(())) => waiter.recorder.complete(record),
        (Some(record), Err(error)) => waiter.recorder.fail(record, error),
        (None, _) => {}
    }
    result
}

/// Of the packets of a launch, in the format of that payload.
#[inline]
pub(super) fn flags((flag, payload): (u32, u64), mark: u32) -> Flags {
    // Of shorter packets every word is one, which must be known to be new.
    if payload == Ll16::PAYLOAD { Flags { first: flag, second: mark } } else { Flags::same(flag) }
}

/// Waits until a peer has started this launch; its record, which is equal to this rank's.
fn started(waiting: &Waiting<'_>, peer: u32) -> Result<LaunchRecord> {
    let launched = waiting.launched;
    let (control, sequence) = (launched.control, launched.sequence);
    let event = control.started(peer);
    let words = waiting.until(
        || site(peer, sequence),
        event,
        || match control.peer(peer, sequence) {
            Peer::Behind(started) => Err(started),
            Peer::Here(words) => Ok(Ok(words)),
            Peer::Apart => {
                launched.control.settle();
                Ok(Err(Error::from(launched.apart(peer))))
            }
            Peer::Gone => {
                let what = "a rank that is waited for does not run ahead";
                Ok(Err(Error::Internal { place: "plan handshake", what }))
            }
        },
    )??;
    if let Some(difference) = launched.compare(peer, &words) {
        control.settle();
        return Err(difference.into());
    }
    let what = "all ranks write records alike";
    LaunchRecord::from_words(&words).ok_or(Error::Internal { place: "plan handshake", what })
}

fn site(peer: u32, sequence: u64) -> WaitSite {
    WaitSite { operation: Operation::Launch, peer: Some(peer), object: 0, sequence, expected: sequence }
}
