//! A plan that is set up, and its launches.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, OnceLock};

use warpway_core::Result;
use warpway_core::trace;
use warpway_plan::lower::{Lowered, LoweringError};
use warpway_plan::{
    Action, BufferKind, ChunkTable, Collective, Geometry, MessageLayout, Operation, Plan, ReduceOp,
    Reference, SizeRows,
};

use super::executor::{Contract, Shared, lock};
use super::identity::{Identity, first_fold, root};
use super::kept::Kept;
use super::program::Program;
use super::record::Label;
use super::request::PlanLaunch;
use super::roles::Roles;
use super::rows::{self, RowInboxes, RowMemory};
use super::scratch::Scratch;
use super::setup::{BlockObjects, Channels};
use super::stage;

/// A plan that every rank has set up. Cheap to clone; the last clone gives its channels and scratch back.
#[derive(Clone)]
pub struct PreparedPlan(Arc<Prepared>);

pub(super) struct Prepared {
    pub(super) shared: Arc<Shared>,
    /// Among the plans of the executor.
    pub(super) number: u64,
    pub(super) plan: Arc<Plan>,
    /// This rank's part, from the first launch on.
    pub(super) lowered: OnceLock<std::result::Result<Lowered, LoweringError>>,
    /// For errors: that of the plan, and of the function that it was set up for.
    pub(super) name: String,
    pub(super) function: Label,
    pub(super) geometry: Geometry,
    pub(super) identity: Identity,
    pub(super) contract: Contract,
    pub(super) roles: Roles,
    /// By rank: size ids that it and this rank use.
    pub(super) common_ids: Vec<Vec<u64>>,
    pub(super) channels: Channels,
    pub(super) objects: BlockObjects,
    pub(super) reduce_op: Option<ReduceOp>,
    pub(super) root: Option<u32>,
    pub(super) has_pipelines: bool,
    /// Reuse of its scratch is the executor's care.
    pub(super) has_credits: bool,
    /// Blocks or pipelines take parts of chunks.
    pub(super) divides_chunks: bool,
    /// Some operation of this rank writes to its own input.
    pub(super) writes_input: bool,
    pub(super) scratch: Mutex<Scratch>,
    pub(super) kept: Mutex<Kept>,
    /// The last one used comes last.
    pub(super) programs: Mutex<Vec<Arc<Compiled>>>,
    /// Of plans with sized chunks, from the first launch on.
    pub(super) rows: Mutex<Option<RowMemory>>,
    /// Rows of, and for, ranks of other hosts.
    pub(super) inboxes: RowInboxes,
}

/// What is known before anything is set up.
pub(super) struct Known {
    pub(super) plan: Arc<Plan>,
    pub(super) name: String,
    pub(super) function: Label,
    pub(super) geometry: Geometry,
    pub(super) identity: Identity,
    pub(super) contract: Contract,
    pub(super) scratch: Scratch,
    pub(super) roles: Roles,
    pub(super) inboxes: RowInboxes,
}

/// What a launch has before it is announced.
pub(super) enum Ready<'a> {
    Compiled(Arc<Compiled>),
    /// Sized chunks: the program depends on the peers' rows, too.
    Rows(&'a SizeRows, ChunkTable),
}

/// What depends on the message's size.
pub(super) struct Compiled {
    pub(super) key: SizeKey,
    pub(super) layout: MessageLayout,
    pub(super) program: Program,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SizeKey {
    pub(super) input: u64,
    pub(super) output: u64,
    pub(super) element: u64,
    pub(super) payload: u64,
}

impl PreparedPlan {
    pub(super) fn new(shared: Arc<Shared>, known: Known, channels: Channels, objects: BlockObjects) -> Self {
        let Known { plan, name, function, geometry, identity, contract, scratch, roles, inboxes } = known;
        let is_pipeline = |operation: &Operation| matches!(operation.action, Action::Pipeline(_));
        let has_pipelines = plan.operations().any(|(_, _, operation)| is_pipeline(operation));
        Self(Arc::new(Prepared {
            common_ids: rows::common_ids(&plan, shared.comm.rank()),
            reduce_op: first_fold(&plan),
            root: root(&plan),
            lowered: OnceLock::new(),
            has_pipelines,
            has_credits: plan.has_scratch_credits(),
            divides_chunks: has_pipelines || plan.operations().any(|(_, _, operation)| is_shared(operation)),
            writes_input: writes_input(&plan, shared.comm.rank()),
            roles,
            inboxes,
            scratch: Mutex::new(scratch),
            kept: Mutex::default(),
            programs: Mutex::default(),
            rows: Mutex::default(),
            number: shared.plans.fetch_add(1, Ordering::Relaxed),
            shared,
            plan,
            name,
            function,
            geometry,
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
    /// written again. All ranks launch the same plans in the same order. Slices that peers use are copied (to a stage, and
    /// the result from there); other slices, and registered memory, are not.
    ///
    /// # Errors
    /// `plan.launch` for sizes and buffers that the plan does not take: nothing has been launched then. It counts as a step
    /// all the same: ranks that all refuse a call go on, while others that launch are told who has refused it and why
    /// (`plan.peer_refused`).
    /// `plan.difference` if a peer has launched something else; [`WaitError`](warpway_core::wait::WaitError) naming a
    /// peer and the operation at a timeout; the communicator's failure. After any of these the communicator is
    /// broken.
    pub fn run(&self, launch: &PlanLaunch<'_>) -> Result<()> {
        let prepared = &*self.0;
        let shared = &*prepared.shared;
        let mut launches = shared.launches.lock();
        shared.comm.health().check_during(trace::Operation::Launch)?;
        if let Some((sequence, repeat)) = launches.earlier(prepared.number, launch) {
            return prepared.launch_again(sequence, repeat).inspect_err(|error| shared.fail(error));
        }
        let ready = prepared.ready(launch);
        let ready = ready.inspect_err(|error| shared.refuse(&mut launches, prepared.function, error))?;
        let mut stages = lock(&shared.stages);
        let needed = prepared.needs_stages(launch);
        let staged = stages.enter(&shared.comm, launch, needed, !prepared.fills_output());
        let staged = staged.inspect_err(|error| shared.refuse(&mut launches, prepared.function, error))?;
        launches.sequence += 1;
        let repeat =
            prepared.launch(launches.sequence, &staged, ready).inspect_err(|error| shared.fail(error))?;
        // What was staged must be staged again.
        if let (Some(repeat), [false, false]) = (repeat, needed) {
            launches.remember(repeat);
        }
        let (_, result) = prepared.result(launch);
        let (_, found) = prepared.result(&staged);
        stage::leave(result, found)
    }
}

impl Drop for Prepared {
    fn drop(&mut self) {
        self.shared.launches.lock().forget(self.number);
    }
}

impl Prepared {
    /// Whether slices of the caller must be staged, as the input and as the output: if anybody else touches them, or
    /// if the plan writes to an input that the caller only lends.
    fn needs_stages(&self, launch: &PlanLaunch<'_>) -> [bool; 2] {
        let ports = !self.channels.port.is_empty();
        let written = self.writes_input && launch.input.is_read_only();
        [ports || written || !self.roles.input_users.is_empty(), ports || !self.roles.output_users.is_empty()]
    }

    /// True if every byte of this rank's output is known to be written.
    fn fills_output(&self) -> bool {
        use Collective::{AllGather, AllReduce, AllToAll, Broadcast, ReduceScatter, SendRecv};
        let everywhere = matches!(
            self.plan.collective,
            AllGather | AllReduce | AllToAll | Broadcast | ReduceScatter | SendRecv
        );
        // A plan in place may name the output only: then it holds the input, too.
        let rank = self.shared.comm.rank();
        let apart = !self.geometry.in_place() || self.geometry.chunks(rank, BufferKind::Input) > 0;
        // Between sized chunks there may be other bytes.
        everywhere && apart && self.contract.sizes.is_some() && !self.geometry.is_sized()
    }
}

impl std::fmt::Debug for PreparedPlan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PreparedPlan").field("plan", &self.0.plan.name).finish_non_exhaustive()
    }
}

/// Done by a group of blocks, each with its share of the chunks.
fn is_shared(operation: &Operation) -> bool {
    matches!(&operation.action, Action::Data(data) if data.group.is_some())
}

fn writes_input(plan: &Plan, rank: u32) -> bool {
    let is_input =
        |reference: &Reference| matches!(reference, Reference::Local { buffer: BufferKind::Input, .. });
    plan.operations().filter(|(owner, ..)| *owner == rank).any(|(_, _, operation)| match &operation.action {
        Action::Data(data) => data.destinations.iter().any(is_input),
        _ => false,
    })
}
