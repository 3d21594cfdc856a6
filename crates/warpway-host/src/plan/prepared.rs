//! A plan that is set up, and its launches.

use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};

use warpway_core::communicator::Publication;
use warpway_core::execution::ExecutionError;
use warpway_core::trace::Operation;
use warpway_core::wait::WaitSite;
use warpway_core::{Error, Result};
use warpway_plan::verify::Sizes;
use warpway_plan::{
    Action, BufferKind, Geometry, LayoutRequest, MessageLayout, MessageSizes, Plan, ReduceOp, Topology,
};

use super::block_run::Run;
use super::compile::compile;
use super::control::Peer;
use super::executor::{Contract, Shared, lock};
use super::identity::Identity;
use super::launch_bases::{Bases, Place};
use super::program::{BaseKey, Program};
use super::record::{BufferRecord, LaunchRecord};
use super::request::{BufferView, PlanLaunch};
use super::roles::Roles;
use super::scratch::Scratch;
use super::setup::{BlockObjects, Channels};
use super::transfer::Kernels;
use super::waiting::{Launched, Waiting};
use crate::numeric::FoldKernel;

/// Message sizes whose programs are kept.
const PROGRAMS: usize = 16;

/// A plan that every rank has set up. Cheap to clone; the last clone gives its channels and scratch back.
#[derive(Clone)]
pub struct PreparedPlan(Arc<Prepared>);

struct Prepared {
    shared: Arc<Shared>,
    plan: Arc<Plan>,
    geometry: Geometry,
    identity: Identity,
    contract: Contract,
    roles: Roles,
    channels: Channels,
    objects: BlockObjects,
    reduce_op: Option<ReduceOp>,
    scratch: Mutex<Scratch>,
    /// The last one used comes last.
    programs: Mutex<Vec<Arc<Compiled>>>,
}

/// What depends on the message's size.
struct Compiled {
    key: SizeKey,
    layout: MessageLayout,
    program: Program,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SizeKey {
    input: u64,
    output: u64,
    element: u64,
    payload: u64,
}

impl PreparedPlan {
    pub(super) fn new(
        shared: Arc<Shared>,
        plan: Arc<Plan>,
        contract: Contract,
        identity: Identity,
        channels: Channels,
        objects: BlockObjects,
    ) -> Self {
        Self(Arc::new(Prepared {
            geometry: Geometry::new(&plan),
            roles: Roles::of(&plan, shared.comm.rank()),
            reduce_op: first_fold(&plan),
            scratch: Mutex::new(Scratch::new(plan.double_scratch)),
            programs: Mutex::default(),
            shared,
            plan,
            identity,
            contract,
            channels,
            objects,
        }))
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.0.plan
    }

    /// Runs the plan once. Returns when this rank's part is done: its output is complete then, and its input may be
    /// written again. All ranks launch the same plans in the same order.
    ///
    /// # Errors
    /// `plan.launch` for sizes and buffers that the plan does not take: nothing has been launched then.
    /// `plan.difference` if a peer has launched something else; [`WaitError`](warpway_core::wait::WaitError) naming a
    /// peer and the operation at a timeout; the communicator's failure. After any of these the communicator is
    /// broken.
    pub fn run(&self, launch: &PlanLaunch<'_>) -> Result<()> {
        let prepared = &*self.0;
        let shared = &*prepared.shared;
        let mut launches = lock(&shared.launches);
        shared.comm.health().check_during(Operation::Launch)?;
        let compiled = prepared.compiled(launch)?;
        prepared.check_alias(launch, &compiled.layout)?;
        *launches += 1;
        prepared.launch(*launches, launch, &compiled).inspect_err(|error| shared.fail(error))
    }
}

impl std::fmt::Debug for PreparedPlan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PreparedPlan").field("plan", &self.0.plan.name).finish_non_exhaustive()
    }
}

/// Before the launch.
impl Prepared {
    fn usage(&self, why: String) -> Error {
        let (rank, plan) = (self.shared.comm.rank(), self.plan.name.clone());
        ExecutionError::Launch { rank, plan, why }.into()
    }

    /// The program for this size, made if need be.
    fn compiled(&self, launch: &PlanLaunch<'_>) -> Result<Arc<Compiled>> {
        let (element, payload) = (launch.data_type.bytes(), launch.packets.payload());
        let (input, output) = (launch.input.bytes, launch.output.bytes);
        let key = SizeKey { input, output, element, payload };
        let mut programs = lock(&self.programs);
        if let Some(at) = programs.iter().rposition(|compiled| compiled.key == key) {
            let last = programs.len() - 1;
            programs[at..].rotate_left(1);
            return Ok(Arc::clone(&programs[last]));
        }
        let rank = self.shared.comm.rank();
        let sizes = MessageSizes::Message { rank, input_bytes: input, output_bytes: output };
        let request = LayoutRequest { sizes, element_size: element, packet_payload: payload };
        let layout = self.geometry.layout(&request).map_err(|why| self.usage(why.to_string()))?;
        if let Some(Sizes::ChunkBytes(proven)) = &self.contract.sizes
            && !proven.contains(&layout.chunk_bytes())
        {
            let found = layout.chunk_bytes();
            let why = format!("its proof holds for chunks of {proven:?} bytes, and these have {found}");
            return Err(self.usage(why));
        }
        let program = compile(&Topology::new(&self.plan), rank, &layout, &self.contract.fold_roles)
            .map_err(|why| self.usage(why.to_string()))?;
        let compiled = Arc::new(Compiled { key, layout, program });
        if programs.len() == PROGRAMS {
            programs.remove(0);
        }
        programs.push(Arc::clone(&compiled));
        Ok(compiled)
    }

    /// Buffers must lie in each other exactly as the plan says, or be apart.
    fn check_alias(&self, launch: &PlanLaunch<'_>, layout: &MessageLayout) -> Result<()> {
        let PlanLaunch { input, output, .. } = launch;
        for (name, view) in [("input", input), ("output", output)] {
            let Some(memory) = view.memory.filter(|_| view.bytes > 0) else {
                if view.bytes > 0 {
                    return Err(self.usage(format!("the {name} has {} bytes and no memory", view.bytes)));
                }
                continue;
            };
            memory.check_range("plan launch", view.offset, view.bytes)?;
        }
        let (Some(from), Some(to)) = (input.address(), output.address()) else { return Ok(()) };
        if input.bytes == 0 || output.bytes == 0 {
            return Ok(());
        }
        match layout.alias(self.shared.comm.rank()) {
            Some(alias) if from.wrapping_add(alias.input) != to.wrapping_add(alias.output) => {
                let why = format!(
                    "it works in place, so byte {} of the input must be byte {} of the output",
                    alias.input, alias.output
                );
                Err(self.usage(why))
            }
            None if from < to.saturating_add(output.bytes) && to < from.saturating_add(input.bytes) => {
                Err(self.usage("input and output overlap, and it does not work in place".into()))
            }
            _ => Ok(()),
        }
    }
}

/// The launch itself: from here on the peers count on this rank.
impl Prepared {
    fn launch(&self, sequence: u64, launch: &PlanLaunch<'_>, compiled: &Compiled) -> Result<()> {
        let shared = &*self.shared;
        let Compiled { layout, program, .. } = compiled;
        let mut scratch = lock(&self.scratch);
        let publications = self.publish(launch)?;
        let launched = Launched {
            control: &shared.control,
            rank: shared.comm.rank(),
            sequence,
            record: self.record(launch, layout, &publications),
            peers: &self.roles.peers,
        };
        shared.control.announce(sequence, &launched.record, &self.roles.peers);
        let waiting = Waiting {
            launched: &launched,
            waiter: shared.comm.waiter(),
            timeout: shared.config.device_timeout,
        };
        self.open(&waiting, &mut scratch, layout)?;
        let bases = self.bases(&waiting, launch, &mut scratch, program)?;
        let ranks = NonZeroU32::new(shared.comm.n_ranks()).unwrap_or(NonZeroU32::MIN);
        let kernels =
            Kernels::new(launch.packets.payload(), |op| FoldKernel::new(launch.data_type, op, ranks));
        let run = Run {
            plan: &self.plan.name,
            launched: &launched,
            channels: &self.channels,
            objects: &self.objects,
            bases: &bases,
            kernels: &kernels,
            flag: scratch.flag(),
            timeout: shared.config.device_timeout,
        };
        if !program.blocks.is_empty() {
            shared.launcher.launch(program.blocks.len() as u32, |block| {
                let program = program.blocks.get(block.index() as usize);
                program.map_or(Ok(()), |program| run.block(block, program))
            })?;
        }
        if self.contract.repairs.flush_at_end || bases.leases_ids() {
            self.flush(program)?;
        }
        self.close(&waiting)?;
        scratch.advance();
        Ok(())
    }

    /// Makes this rank's buffers known to the ranks that touch them.
    fn publish(&self, launch: &PlanLaunch<'_>) -> Result<[Option<Publication>; 2]> {
        let publish = |view: &BufferView<'_>| match view.memory {
            Some(memory) if view.bytes > 0 && !self.roles.users.is_empty() => {
                self.shared.comm.publish_to(memory, &self.roles.users).map(Some)
            }
            _ => Ok(None),
        };
        Ok([publish(&launch.input)?, publish(&launch.output)?])
    }

    fn record(
        &self,
        launch: &PlanLaunch<'_>,
        layout: &MessageLayout,
        publications: &[Option<Publication>; 2],
    ) -> LaunchRecord {
        let buffer = |view: &BufferView<'_>, publication: &Option<Publication>| BufferRecord {
            bytes: view.bytes,
            place: publication.as_ref().map(|publication| (publication.slot(), view.offset)),
        };
        LaunchRecord {
            collective: self.plan.collective,
            identity: self.identity.plan,
            chunk_bytes: layout.chunk_bytes(),
            block_bytes: layout.block_bytes().unwrap_or(0),
            data_type: launch.data_type,
            reduce_op: self.reduce_op,
            packet_payload: launch.packets.payload(),
            input: buffer(&launch.input, &publications[0]),
            output: buffer(&launch.output, &publications[1]),
        }
    }

    /// Waits for whom this launch must wait before it begins, and makes room in the scratch.
    fn open(&self, waiting: &Waiting<'_>, scratch: &mut Scratch, layout: &MessageLayout) -> Result<()> {
        let shared = &*self.shared;
        if scratch.must_clear() {
            scratch.clear();
        }
        let grows = scratch.must_grow(layout, shared.comm.rank());
        // Chunks lie elsewhere than in the last launch: a peer that still runs that one must not be met.
        let moves = scratch.moves(layout);
        if grows || moves || self.contract.repairs.start_handshake {
            for peer in &self.roles.peers {
                started(waiting, *peer)?;
            }
        }
        if grows {
            scratch.grow(&shared.comm, &self.roles, layout, shared.config.setup_timeout.start())?;
        }
        Ok(())
    }

    /// Addresses of own and peers' buffers. Waits for every rank whose input or output this one touches.
    fn bases(
        &self,
        waiting: &Waiting<'_>,
        launch: &PlanLaunch<'_>,
        scratch: &mut Scratch,
        program: &Program,
    ) -> Result<Bases> {
        let shared = &*self.shared;
        let service = if self.channels.port.is_empty() { None } else { Some(shared.service()?) };
        let mut records: Vec<(u32, LaunchRecord)> = Vec::with_capacity(self.roles.owners.len());
        for owner in &self.roles.owners {
            records.push((*owner, started(waiting, *owner)?));
        }
        Bases::resolve(&program.bases, service.as_ref(), |BaseKey { rank, buffer, form }| {
            if buffer == BufferKind::Scratch {
                return scratch.place(rank, form, service.as_ref());
            }
            if rank == shared.comm.rank() {
                let view = if buffer == BufferKind::Input { launch.input } else { launch.output };
                let memory = view.memory.cloned();
                return Ok(memory.map(|memory| Place { memory, offset: view.offset, id: None }));
            }
            let record = records.iter().find(|(owner, _)| *owner == rank).map(|(_, record)| record);
            let found = record.map(|r| if buffer == BufferKind::Input { r.input } else { r.output });
            let needed = program.reach(BaseKey { rank, buffer, form });
            let bytes = found.map_or(0, |found| found.bytes);
            let Some((slot, offset)) = found.and_then(|found| found.place).filter(|_| needed <= bytes) else {
                let (rank, peer) = (shared.comm.rank(), rank);
                let buffer = if buffer == BufferKind::Input { "input" } else { "output" };
                return Err(ExecutionError::PeerBuffer { rank, peer, buffer, needed, bytes }.into());
            };
            let memory = shared.comm.published(rank, slot, shared.config.setup_timeout.start())?;
            Ok(Some(Place { memory, offset, id: None }))
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
        let Launched { control, sequence, peers, .. } = *waiting.launched;
        if !self.contract.repairs.closing_handshake {
            return Ok(());
        }
        control.announce_end(sequence, peers);
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

/// Waits until a peer has started this launch; its record, which is equal to this rank's.
fn started(waiting: &Waiting<'_>, peer: u32) -> Result<LaunchRecord> {
    let launched = waiting.launched;
    let (control, sequence) = (launched.control, launched.sequence);
    let event = control.started(peer);
    let record = waiting.until(
        || site(peer, sequence),
        event,
        || match control.peer(peer, sequence) {
            Peer::Behind(started) => Err(started),
            Peer::Here(record) => Ok(Ok(record)),
            Peer::Apart => Ok(Err(Error::from(launched.apart(peer)))),
            Peer::Gone => {
                let what = "a rank that is waited for does not run ahead";
                Ok(Err(Error::Internal { place: "plan handshake", what }))
            }
        },
    )??;
    match launched.compare(peer, &record) {
        Some(difference) => Err(difference.into()),
        None => Ok(record),
    }
}

fn site(peer: u32, sequence: u64) -> WaitSite {
    WaitSite { operation: Operation::Launch, peer: Some(peer), object: 0, sequence, expected: sequence }
}

/// The operator of the plan's first fold.
fn first_fold(plan: &Plan) -> Option<ReduceOp> {
    plan.operations().find_map(|(_, _, operation)| match &operation.action {
        Action::Data(data) => data.fold.as_ref().map(|fold| fold.op),
        _ => None,
    })
}
