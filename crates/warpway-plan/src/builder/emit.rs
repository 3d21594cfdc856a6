//! From program to plan: the passes in their order, then the tables of the file.

use super::error::{BuildError, BuildProblem, Site};
use super::program::{MAX_BLOCKS, Program};
use super::step::{Block, Step, StepAction, SyncKind};
use super::tables::{BlockTables, Rank};
use crate::ir::{
    Action, BufferKind, ChannelEntry, ChannelRefs, ChannelType, Extension, Operation, Pipeline, Plan,
    RankGroup, RankPlan, RemoteBufferRefs, SizeIds, ThreadBlock, Via,
};
use crate::passes::{
    BuildWarning, Compat, PassResult, Scope, Shift, check_balance, mark_unused, replicate, replicated,
    run_block,
};

/// A plan and what was odd about its program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Emitted {
    /// The plan.
    pub plan: Plan,
    /// By rank, then block, then order of the program.
    pub warnings: Vec<BuildWarning>,
}

impl Program {
    /// The plan; its warnings are those of [`emit`](Self::emit).
    ///
    /// # Errors
    /// [`BuildProblem::SignalWaitMismatch`], [`BuildProblem::BeyondBuffer`] of multicast scratch,
    /// [`BuildProblem::OpenPipeline`], [`BuildProblem::TooLarge`].
    pub fn finish(self) -> Result<Plan, BuildError> {
        self.lower(Compat::None).map(|emitted| emitted.plan)
    }

    /// The plan and its warnings. The program stays as it is.
    ///
    /// # Errors
    /// As those of [`finish`](Self::finish); [`BuildProblem::NeedsExtension`] under [`Compat::Mscclpp`].
    pub fn emit(&self, compat: Compat) -> Result<Emitted, BuildError> {
        self.clone().lower(compat)
    }

    fn lower(mut self, compat: Compat) -> Result<Emitted, BuildError> {
        if self.open.is_some() {
            return Err(refused(BuildProblem::OpenPipeline));
        }
        check_balance(&self)?;
        self.check_scratch_regions()?;
        if self.options.fusion && compat == Compat::None {
            mark_unused(&mut self);
        }
        let mut warnings = Vec::new();
        let mut ranks = Vec::with_capacity(self.ranks.len());
        for number in 0..self.n_ranks() {
            let blocks = std::mem::take(&mut self.ranks[number as usize].blocks);
            let mut plan = self.tables(number)?;
            for (block, mut entry) in (0..).zip(blocks) {
                let steps = std::mem::take(&mut entry.steps);
                let mut scope = Scope {
                    rank: number,
                    block,
                    compat,
                    alias: self.options.shape.alias(number),
                    switch_buffers: self.switch_buffers(number, &entry.tables),
                    warnings: &mut warnings,
                };
                let steps = run_block(steps, &self, &mut scope);
                self.push_instances(&mut plan.blocks, steps, &entry, compat)?;
            }
            ranks.push(plan);
        }
        let plan = self.plan(ranks);
        if compat == Compat::Mscclpp
            && let Some(extension) = plan.extensions.first()
        {
            return Err(refused(BuildProblem::NeedsExtension(*extension)));
        }
        Ok(Emitted { plan, warnings })
    }

    fn plan(self, ranks: Vec<RankPlan>) -> Plan {
        let options = self.options;
        let mut plan = Plan {
            name: options.name,
            collective: options.shape.collective(),
            protocol: options.protocol,
            in_place: options.shape.is_in_place(),
            reuse_resources: options.reuse_resources,
            double_scratch: options.double_scratch,
            threads_per_block: options.threads_per_block,
            buffer_alignment: options.buffer_alignment,
            min_message_size: options.min_message_size,
            max_message_size: options.max_message_size,
            ranks,
            extensions: options.scratch_credits.then_some(Extension::ScratchCredits).into_iter().collect(),
        };
        plan.extensions = plan.used_extensions();
        plan
    }

    /// A rank's plan without its blocks.
    fn tables(&self, number: u32) -> PassResult<RankPlan> {
        let rank = &self.ranks[number as usize];
        let instances = self.options.instances;
        let chunks = |buffer| {
            let count = self.buffer_size(number, buffer).checked_mul(u64::from(instances));
            count.ok_or_else(|| refused(BuildProblem::TooLarge { what: "the number of chunks" }))
        };
        let ids = |buffer| {
            let size = self.buffer_size(number, buffer);
            (0..size).map(|chunk| self.size_id(number, buffer, chunk).unwrap_or(0)).collect()
        };
        let size_ids = self.options.shape.is_sized().then(|| SizeIds {
            input: ids(BufferKind::Input),
            output: ids(BufferKind::Output),
            scratch: ids(BufferKind::Scratch),
        });
        Ok(RankPlan {
            input_chunks: chunks(BufferKind::Input)?,
            output_chunks: chunks(BufferKind::Output)?,
            scratch_chunks: chunks(BufferKind::Scratch)?,
            size_ids,
            blocks: Vec::with_capacity(rank.blocks.len() * instances as usize),
            channels: self.channels(rank),
            remote_buffers: rank.remote_buffers.clone(),
            semaphores: replicated(&rank.semaphores, instances),
        })
    }

    fn channels(&self, rank: &Rank) -> Vec<ChannelEntry> {
        let instances = self.options.instances;
        let mut entries = Vec::new();
        let order = if rank.port_first { [Via::Port, Via::Memory] } else { [Via::Memory, Via::Port] };
        for via in order {
            let peers = replicated(rank.peers(via), instances);
            if !peers.is_empty() {
                entries.push(match via {
                    Via::Memory => ChannelEntry::Memory(peers),
                    Via::Port => ChannelEntry::Port(peers),
                });
            }
        }
        for number in replicated(&rank.switch, instances) {
            let multicast = &self.multicasts[number as usize];
            let ranks: Vec<u32> = multicast.members.iter().map(|(rank, _)| *rank).collect();
            let groups = vec![RankGroup { size: ranks.len() as u64, ranks }];
            entries.push(ChannelEntry::Switch { buffer: multicast.buffer, groups });
        }
        entries
    }

    fn switch_buffers(&self, rank: u32, tables: &BlockTables) -> Vec<BufferKind> {
        let channels = &self.ranks[rank as usize].switch;
        let buffer = |number: &u32| {
            let multicast = channels.get(*number as usize).and_then(|m| self.multicasts.get(*m as usize));
            multicast.map(|multicast| multicast.buffer)
        };
        tables.switch.numbers().iter().filter_map(buffer).collect()
    }

    fn push_instances(
        &self,
        blocks: &mut Vec<ThreadBlock>,
        steps: Vec<Step>,
        block: &Block,
        compat: Compat,
    ) -> PassResult {
        let instances = self.options.instances;
        let limit = MAX_BLOCKS;
        if blocks.len() as u64 + u64::from(instances) > u64::from(limit) {
            let block = blocks.len() as u64 + u64::from(instances) - 1;
            return Err(refused(BuildProblem::BlockOutOfRange { block, limit }));
        }
        if instances == 1 {
            let shift = Shift { instance: 0, instances };
            blocks.push(thread_block(steps, &block.tables, shift)?);
            return Ok(());
        }
        for instance in 0..instances {
            let shift = Shift { instance, instances };
            let copy = replicate(&steps, shift, compat)?;
            blocks.push(thread_block(copy, &block.tables, shift)?);
        }
        Ok(())
    }
}

fn thread_block(steps: Vec<Step>, tables: &BlockTables, shift: Shift) -> PassResult<ThreadBlock> {
    let mut channels = Vec::new();
    for (channel_type, positions) in [
        (ChannelType::Memory, &tables.memory),
        (ChannelType::Port, &tables.port),
        (ChannelType::Switch, &tables.switch),
    ] {
        if !positions.numbers().is_empty() {
            let numbers = positions.numbers().iter().map(|number| shift.number(*number));
            channels.push(ChannelRefs { channel_type, channels: numbers.collect::<PassResult<_>>()? });
        }
    }
    let mut remote_buffers = Vec::new();
    for access in [ChannelType::Memory, ChannelType::Port] {
        let buffers = tables.remote_numbers(access);
        if !buffers.is_empty() {
            remote_buffers.push(RemoteBufferRefs { access, buffers: buffers.to_vec() });
        }
    }
    Ok(ThreadBlock { operations: steps.into_iter().map(operation).collect(), channels, remote_buffers })
}

fn operation(step: Step) -> Operation {
    let action = match step.action {
        StepAction::Nop { .. } => Action::Nop,
        StepAction::Barrier { id, blocks } => Action::Barrier { id, blocks },
        StepAction::Sync(sync) => {
            let channels = sync.ids;
            match sync.kind {
                SyncKind::Signal(via) => Action::Signal { via, relaxed: false, channels },
                SyncKind::RelaxedSignal(via) => Action::Signal { via, relaxed: true, channels },
                SyncKind::Wait(via) => Action::Wait { via, relaxed: false, channels },
                SyncKind::RelaxedWait(via) => Action::Wait { via, relaxed: true, channels },
                SyncKind::Flush => Action::Flush { channels },
                SyncKind::Acquire => Action::Acquire { semaphores: channels },
                SyncKind::Release => Action::Release { semaphores: channels },
            }
        }
        StepAction::Data(data) => Action::Data(Box::new(data.operation)),
        StepAction::Pipeline(pipeline) => Action::Pipeline(Box::new(Pipeline {
            unit_size: pipeline.unit_size,
            num_chunks: pipeline.num_chunks,
            size_id: pipeline.size_id,
            body: pipeline.body.into_iter().map(operation).collect(),
        })),
    };
    Operation { action, location: step.location }
}

fn refused(problem: BuildProblem) -> BuildError {
    BuildError::new(Site { operation: "program", rank: None, block: None, location: None }, problem)
}
