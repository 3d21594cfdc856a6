//! Before a launch is announced: its sizes and buffers, and the program for them.

use std::sync::Arc;
use std::time::Duration;

use warpway_core::execution::ExecutionError;
use warpway_core::memory::Access;
use warpway_core::{Deadline, Error, Result};
use warpway_plan::lower::{Lowered, LoweringError};
use warpway_plan::{
    Alias, BufferKind, ChunkTable, Extent, LayoutError, LayoutRequest, MessageLayout, MessageSizes, RankPlan,
    SizeRows, Topology,
};

use super::compile::compile;
use super::executor::lock;
use super::prepared::{Compiled, Prepared, Ready, SizeKey};
use super::program::Program;
use super::record::LaunchRecord;
use super::request::{BufferView, PlanLaunch};
use super::roles::Roles;
use super::rows;
use super::waiting::Waiting;

/// How long a rank that finds rows different leaves it to its peers to find that, too.
const COMPARING: Duration = Duration::from_millis(300);
/// Message sizes whose programs are kept.
const PROGRAMS: usize = 16;

impl Prepared {
    pub(super) fn usage(&self, why: String) -> Error {
        let (rank, plan) = (self.shared.comm.rank(), self.name.clone());
        ExecutionError::Launch { rank, plan, why }.into()
    }

    /// Checks what can be checked without the peers.
    pub(super) fn ready<'a>(&self, launch: &PlanLaunch<'a>) -> Result<Ready<'a>> {
        let rank = self.shared.comm.rank();
        let own = self.plan.ranks.get(rank as usize);
        let (true, Some(own)) = (self.geometry.is_sized(), own) else {
            if launch.sizes.is_some() {
                return Err(self.usage("it has no sized chunks, so a launch brings no rows".into()));
            }
            // Before sizes: those of a part that goes beyond its view mean nothing.
            self.check_memory(launch)?;
            let compiled = self.compiled(launch)?;
            self.check_alias(launch, compiled.layout.alias(rank))?;
            return Ok(Ready::Compiled(compiled));
        };
        let rows =
            launch.sizes.ok_or_else(|| self.usage("it has sized chunks, so a launch brings rows".into()))?;
        let refused = |why: LayoutError| self.usage(why.to_string());
        let table = ChunkTable::new(rank, own, rows, launch.data_type.bytes()).map_err(refused)?;
        self.check_memory(launch)?;
        if !self.geometry.in_place() {
            self.check_alias(launch, None)?;
        }
        let place = |view: &BufferView<'_>| Extent { offset: view.address().unwrap_or(0), bytes: view.bytes };
        table
            .check_places(&self.geometry, rank, [place(&launch.input), place(&launch.output)])
            .map_err(refused)?;
        Ok(Ready::Rows(rows, table))
    }

    /// The program for rows that have come from all ranks whose buffers this one touches.
    pub(super) fn sized(
        &self,
        waiting: &Waiting<'_>,
        launch: &PlanLaunch<'_>,
        own: (&SizeRows, ChunkTable),
        owners: &[(u32, LaunchRecord)],
    ) -> Result<Arc<Compiled>> {
        let (rank, element) = (self.shared.comm.rank(), launch.data_type.bytes());
        let failed = |why: String| {
            let plan = self.name.clone();
            Error::from(ExecutionError::Size { rank, plan, why })
        };
        if let Some(proven) = &self.contract.sizes
            && let Some(bytes) = own.1.sizes().find(|bytes| *bytes > 0 && !proven.admit(*bytes))
        {
            return Err(failed(format!("its proof does not hold for chunks of {bytes} bytes: {proven:?}")));
        }
        let of_scratch = |plan: &RankPlan| ChunkTable::of_scratch(plan, &own.0.extents);
        let mut tables: Vec<ChunkTable> = self.plan.ranks.iter().map(of_scratch).collect();
        for (owner, record) in owners {
            let Some(plan) = self.plan.ranks.get(*owner as usize) else { continue };
            let memory = match (self.inboxes.of_owner(*owner), record.rows) {
                (Some(inbox), _) => inbox.clone(),
                (None, None) => continue,
                (None, Some(slot)) => {
                    let deadline = self.shared.config.setup_timeout.start();
                    self.shared.comm.published(*owner, slot, deadline)?
                }
            };
            let Some(rows) = rows::read(&memory, plan, waiting.launched.sequence)? else { continue };
            if let Some((id, here, there)) = rows::difference(own.0, &rows) {
                let text = |bytes| format!("{bytes} bytes for size id {id}");
                let sequence = waiting.launched.sequence;
                waiting.launched.control.settle();
                self.leave_it_to_peers();
                let (here, there) = (text(here), text(there));
                return Err(ExecutionError::Difference {
                    sequence,
                    plan: self.name.clone(),
                    field: "count",
                    rank,
                    here,
                    peer: *owner,
                    there,
                }
                .into());
            }
            tables[*owner as usize] =
                ChunkTable::new(*owner, plan, &rows, element).map_err(|why| failed(why.to_string()))?;
        }
        tables[rank as usize] = own.1;
        let payload = launch.packets.payload();
        let request = LayoutRequest {
            sizes: MessageSizes::Sized(&tables),
            element_size: element,
            packet_payload: payload,
        };
        let layout = self.geometry.layout(&request).map_err(|why| failed(why.to_string()))?;
        let program = self.program(&layout).map_err(failed)?;
        let key = SizeKey { input: launch.input.bytes, output: launch.output.bytes, element, payload };
        Ok(Arc::new(Compiled { key, layout, program }))
    }

    /// Before this rank fails for rows that differ: whoever compares the same rows finds it, too, and can say more of it than
    /// that somebody has failed. Not long: a peer need not compare.
    fn leave_it_to_peers(&self) {
        let until = Deadline::after(COMPARING);
        while !self.shared.comm.health().is_failed() && !until.expired() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// What this rank does with a message.
    fn program(&self, layout: &MessageLayout) -> std::result::Result<Program, String> {
        let rank = self.shared.comm.rank();
        let lower = || Lowered::new(&Topology::new(&self.plan), rank, &self.contract.fold_roles);
        let lowered = self.lowered.get_or_init(lower).as_ref().map_err(LoweringError::to_string)?;
        compile(&self.plan, lowered, layout).map_err(|why| why.to_string())
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
        if let Some(proven) = &self.contract.sizes
            && !proven.admit(layout.chunk_bytes())
        {
            let bytes = layout.chunk_bytes();
            return Err(
                self.usage(format!("its proof does not hold for chunks of {bytes} bytes: {proven:?}"))
            );
        }
        let program = self.program(&layout).map_err(|why| self.usage(why))?;
        let compiled = Arc::new(Compiled { key, layout, program });
        if programs.len() == PROGRAMS {
            programs.remove(0);
        }
        programs.push(Arc::clone(&compiled));
        Ok(compiled)
    }

    /// Buffers must be memory from their first byte to their last, and peers must be able to map those they touch.
    fn check_memory(&self, launch: &PlanLaunch<'_>) -> Result<()> {
        let PlanLaunch { input, output, .. } = launch;
        let Roles { input_users, output_users, input_uses, output_uses, .. } = &self.roles;
        let buffers =
            [("input", input, input_users, input_uses), ("output", output, output_users, output_uses)];
        for (name, view, users, uses) in buffers {
            if !view.check("plan launch")? {
                return Err(self.usage(format!("the {name} has {} bytes and no memory", view.bytes)));
            }
            let (Some(memory), Some(user)) = (view.memory(), users.first()) else { continue };
            let hosts = &self.shared.hosts;
            let unreached = users.iter().find(|user| !memory.transports().has(hosts.transport_to(**user)));
            if view.bytes > 0 && !memory.is_local() {
                return Err(self.usage(format!(
                    "rank {user} uses the {name}, which is memory of another rank: bring memory that this rank has \
                     registered"
                )));
            }
            if let Some(user) = unreached.filter(|_| view.bytes > 0) {
                let transport = match hosts.is_far(*user) {
                    false => "shared memory",
                    true => "Ethernet, by which that rank is reached on its host",
                };
                return Err(self.usage(format!(
                    "rank {user} uses the {name}, which is not registered for {transport}: register it for that \
                     transport, too"
                )));
            }
            let needs = [
                (uses.reader, Access::READ, "reads the", "reading"),
                (uses.writer, Access::WRITE, "writes to the", "writing"),
            ];
            for (user, access, does, what) in needs {
                let Some(user) = user.filter(|_| view.bytes > 0 && !memory.access().contains(access)) else {
                    continue;
                };
                return Err(self.usage(format!(
                    "rank {user} {does} {name}, which is not registered for {what} by peers: register it with that \
                     access, too"
                )));
            }
        }
        let (name, result) = self.result(launch);
        if result.bytes > 0 && result.is_read_only() {
            return Err(self.usage(format!("the {name} is to hold the result, and may only be read")));
        }
        Ok(())
    }

    /// Where the caller looks for the result: plans in place may do without an output.
    pub(super) fn result<'v>(&self, launch: &'v PlanLaunch<'_>) -> (&'static str, &'v BufferView<'v>) {
        let rank = self.shared.comm.rank();
        match self.geometry.in_place() && self.geometry.chunks(rank, BufferKind::Output) == 0 {
            true => ("input", &launch.input),
            false => ("output", &launch.output),
        }
    }

    /// Buffers must lie in each other exactly as the plan says, or be apart.
    fn check_alias(&self, launch: &PlanLaunch<'_>, alias: Option<Alias>) -> Result<()> {
        let PlanLaunch { input, output, .. } = launch;
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
