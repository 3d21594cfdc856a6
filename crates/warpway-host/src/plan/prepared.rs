//! A plan that is set up, and its launches.

use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};

use warpway_core::communicator::Publication;
use warpway_core::execution::ExecutionError;
use warpway_core::trace::Operation;
use warpway_core::wait::WaitSite;
use warpway_core::wire::SlotId;
use warpway_core::{Error, Result};
use warpway_plan::verify::Sizes;
use warpway_plan::{
    Action, Alias, BufferKind, ChunkTable, Geometry, LayoutError, LayoutRequest, MessageLayout, MessageSizes,
    Plan, ReduceOp, SizeRows, Topology,
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
use super::rows::{self, RowMemory};
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
    /// Of plans with sized chunks, from the first launch on.
    rows: Mutex<Option<RowMemory>>,
}

/// What a launch has before it is announced.
enum Ready<'a> {
    Compiled(Arc<Compiled>),
    /// Sized chunks: the program depends on the peers' rows, too.
    Rows(&'a SizeRows, ChunkTable),
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
            rows: Mutex::default(),
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
        let ready = prepared.ready(launch)?;
        *launches += 1;
        prepared.launch(*launches, launch, ready).inspect_err(|error| shared.fail(error))
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

    /// Checks what can be checked without the peers.
    fn ready<'a>(&self, launch: &PlanLaunch<'a>) -> Result<Ready<'a>> {
        let rank = self.shared.comm.rank();
        let own = self.plan.ranks.get(rank as usize);
        let (true, Some(own)) = (self.geometry.is_sized(), own) else {
            if launch.sizes.is_some() {
                return Err(self.usage("it has no sized chunks, so a launch brings no rows".into()));
            }
            let compiled = self.compiled(launch)?;
            self.check_alias(launch, compiled.layout.alias(rank))?;
            return Ok(Ready::Compiled(compiled));
        };
        let rows =
            launch.sizes.ok_or_else(|| self.usage("it has sized chunks, so a launch brings rows".into()))?;
        let refused = |why: LayoutError| self.usage(why.to_string());
        let table = ChunkTable::new(rank, own, rows, launch.data_type.bytes()).map_err(refused)?;
        for (buffer, bytes) in
            [(BufferKind::Input, launch.input.bytes), (BufferKind::Output, launch.output.bytes)]
        {
            table.check_disjoint(rank, buffer, bytes).map_err(refused)?;
        }
        self.check_alias(launch, None)?;
        Ok(Ready::Rows(rows, table))
    }

    /// The program for rows that have come from all ranks whose buffers this one touches.
    fn sized(
        &self,
        waiting: &Waiting<'_>,
        launch: &PlanLaunch<'_>,
        own: (&SizeRows, ChunkTable),
        owners: &[(u32, LaunchRecord)],
    ) -> Result<Arc<Compiled>> {
        let (rank, element) = (self.shared.comm.rank(), launch.data_type.bytes());
        let refused = |why: String| self.usage(why);
        let mut tables = vec![ChunkTable::default(); self.plan.ranks.len()];
        for (owner, record) in owners {
            let (Some(slot), Some(plan)) = (record.rows, self.plan.ranks.get(*owner as usize)) else {
                continue;
            };
            let memory =
                self.shared.comm.published(*owner, slot, self.shared.config.setup_timeout.start())?;
            let Some(rows) = rows::read(&memory, plan, waiting.launched.sequence)? else { continue };
            if let Some((id, here, there)) = rows::difference(own.0, &rows) {
                let text = |bytes| format!("{bytes} bytes for size id {id}");
                let sequence = waiting.launched.sequence;
                let (here, there) = (text(here), text(there));
                return Err(ExecutionError::Difference {
                    sequence,
                    field: "count",
                    rank,
                    here,
                    peer: *owner,
                    there,
                }
                .into());
            }
            tables[*owner as usize] =
                ChunkTable::new(*owner, plan, &rows, element).map_err(|why| refused(why.to_string()))?;
        }
        tables[rank as usize] = own.1;
        let payload = launch.packets.payload();
        let request = LayoutRequest {
            sizes: MessageSizes::Sized(&tables),
            element_size: element,
            packet_payload: payload,
        };
        let layout = self.geometry.layout(&request).map_err(|why| refused(why.to_string()))?;
        let program = compile(&Topology::new(&self.plan), rank, &layout, &self.contract.fold_roles)
            .map_err(|why| refused(why.to_string()))?;
        let key = SizeKey { input: launch.input.bytes, output: launch.output.bytes, element, payload };
        Ok(Arc::new(Compiled { key, layout, program }))
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
    fn check_alias(&self, launch: &PlanLaunch<'_>, alias: Option<Alias>) -> Result<()> {
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
        match alias {
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
    fn launch(&self, sequence: u64, launch: &PlanLaunch<'_>, ready: Ready<'_>) -> Result<()> {
        let shared = &*self.shared;
        let mut scratch = lock(&self.scratch);
        let publications = self.publish(launch)?;
        let mut record = self.record(launch, &publications);
        let mut row_memory = lock(&self.rows);
        match &ready {
            Ready::Compiled(compiled) => {
                record.chunk_bytes = compiled.layout.chunk_bytes();
                record.block_bytes = compiled.layout.block_bytes().unwrap_or(0);
            }
            Ready::Rows(rows, _) => record.rows = self.publish_rows(&mut row_memory, rows, sequence)?,
        }
        let (control, rank, peers) = (&shared.control, shared.comm.rank(), &self.roles.peers[..]);
        let launched = Launched { control, rank, sequence, record, peers };
        control.announce(sequence, &record, peers);
        let (waiter, timeout) = (shared.comm.waiter(), shared.config.device_timeout);
        let waiting = Waiting { launched: &launched, waiter, timeout };
        self.open(&waiting, &mut scratch, &ready)?;
        let owners = self.roles.owners.iter().map(|owner| Ok((*owner, started(&waiting, *owner)?)));
        let owners: Vec<(u32, LaunchRecord)> = owners.collect::<Result<_>>()?;
        let compiled = match ready {
            Ready::Compiled(compiled) => compiled,
            Ready::Rows(rows, table) => self.sized(&waiting, launch, (rows, table), &owners)?,
        };
        let program = &compiled.program;
        let bases = self.bases(&owners, launch, &mut scratch, program)?;
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
            None => memory.insert(RowMemory::new(&self.shared.comm, own, &self.roles.users)?),
        };
        memory.write(own, rows, sequence)?;
        Ok(Some(memory.publication().slot()))
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

    fn record(&self, launch: &PlanLaunch<'_>, publications: &[Option<Publication>; 2]) -> LaunchRecord {
        let buffer = |view: &BufferView<'_>, publication: &Option<Publication>| BufferRecord {
            bytes: view.bytes,
            place: publication.as_ref().map(|publication| (publication.slot(), view.offset)),
        };
        LaunchRecord {
            collective: self.plan.collective,
            identity: self.identity.plan,
            chunk_bytes: 0,
            block_bytes: 0,
            data_type: launch.data_type,
            reduce_op: self.reduce_op,
            packet_payload: launch.packets.payload(),
            input: buffer(&launch.input, &publications[0]),
            output: buffer(&launch.output, &publications[1]),
            rows: None,
        }
    }

    /// Waits for whom this launch must wait before it begins, and makes room in the scratch.
    fn open(&self, waiting: &Waiting<'_>, scratch: &mut Scratch, ready: &Ready<'_>) -> Result<()> {
        let shared = &*self.shared;
        if scratch.must_clear() {
            scratch.clear();
        }
        let layout = match ready {
            Ready::Compiled(compiled) => Some(&compiled.layout),
            Ready::Rows(..) => None,
        };
        let growing = layout.filter(|layout| scratch.must_grow(layout, shared.comm.rank()));
        // Chunks lie elsewhere than in the last launch: a peer that still runs that one must not be met.
        let moves = layout.is_some_and(|layout| scratch.moves(layout));
        if growing.is_some() || moves || self.contract.repairs.start_handshake {
            for peer in &self.roles.peers {
                started(waiting, *peer)?;
            }
        }
        if let Some(layout) = growing {
            scratch.grow(&shared.comm, &self.roles, layout, shared.config.setup_timeout.start())?;
        }
        Ok(())
    }

    /// Addresses of own and peers' buffers.
    fn bases(
        &self,
        owners: &[(u32, LaunchRecord)],
        launch: &PlanLaunch<'_>,
        scratch: &mut Scratch,
        program: &Program,
    ) -> Result<Bases> {
        let shared = &*self.shared;
        let service = if self.channels.port.is_empty() { None } else { Some(shared.service()?) };
        Bases::resolve(&program.bases, service.as_ref(), |BaseKey { rank, buffer, form }| {
            if buffer == BufferKind::Scratch {
                return scratch.place(rank, form, service.as_ref());
            }
            if rank == shared.comm.rank() {
                let view = if buffer == BufferKind::Input { launch.input } else { launch.output };
                let memory = view.memory.cloned();
                return Ok(memory.map(|memory| Place { memory, offset: view.offset, id: None }));
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
