//! Signals, waits, flushes, semaphores and barriers.

use super::error::{BuildError, BuildProblem};
use super::handles::{Blocks, Channel, DataSync, MemoryChannel, PortChannel, Semaphore, duplicate};
use super::program::{Context, Program};
use super::step::{Step, StepAction, SyncKind, SyncStep};
use crate::ir::Via;

impl Program {
    /// Tells the peer of a channel that the data before it is there.
    ///
    /// # Errors
    /// [`BuildProblem::UnknownHandle`], [`BuildProblem::BlockOutOfRange`].
    #[track_caller]
    pub fn signal(
        &mut self,
        channel: impl Into<Channel>,
        block: u32,
        data_sync: DataSync,
    ) -> Result<(), BuildError> {
        let channel = channel.into();
        let at = self.context("signal", channel.owner(), Some(block));
        self.push_on_channel(&at, channel, block, SyncKind::Signal(channel.via()), data_sync)
    }

    /// Waits for the next signal of the peer.
    ///
    /// # Errors
    /// As those of [`signal`](Self::signal).
    #[track_caller]
    pub fn wait(
        &mut self,
        channel: impl Into<Channel>,
        block: u32,
        data_sync: DataSync,
    ) -> Result<(), BuildError> {
        let channel = channel.into();
        let at = self.context("wait", channel.owner(), Some(block));
        self.push_on_channel(&at, channel, block, SyncKind::Wait(channel.via()), data_sync)
    }

    /// A signal that orders no data.
    ///
    /// # Errors
    /// As those of [`signal`](Self::signal).
    #[track_caller]
    pub fn signal_relaxed(
        &mut self,
        channel: MemoryChannel,
        block: u32,
        data_sync: DataSync,
    ) -> Result<(), BuildError> {
        let at = self.context("signal_relaxed", channel.owner(), Some(block));
        self.push_on_channel(&at, channel.into(), block, SyncKind::RelaxedSignal(Via::Memory), data_sync)
    }

    /// A wait that orders no data.
    ///
    /// # Errors
    /// As those of [`signal`](Self::signal).
    #[track_caller]
    pub fn wait_relaxed(
        &mut self,
        channel: MemoryChannel,
        block: u32,
        data_sync: DataSync,
    ) -> Result<(), BuildError> {
        let at = self.context("wait_relaxed", channel.owner(), Some(block));
        self.push_on_channel(&at, channel.into(), block, SyncKind::RelaxedWait(Via::Memory), data_sync)
    }

    /// Waits until all earlier requests of a port channel are complete.
    ///
    /// # Errors
    /// As those of [`signal`](Self::signal).
    #[track_caller]
    pub fn flush(&mut self, channel: PortChannel, block: u32, data_sync: DataSync) -> Result<(), BuildError> {
        let at = self.context("flush", channel.owner(), Some(block));
        self.push_on_channel(&at, channel.into(), block, SyncKind::Flush, data_sync)
    }

    /// Takes one from a semaphore, waiting while it is zero.
    ///
    /// # Errors
    /// As those of [`signal`](Self::signal).
    #[track_caller]
    pub fn acquire(
        &mut self,
        semaphore: Semaphore,
        block: u32,
        data_sync: DataSync,
    ) -> Result<(), BuildError> {
        let at = self.context("acquire", semaphore.rank, Some(block));
        self.push_on_semaphore(&at, semaphore, block, SyncKind::Acquire, data_sync)
    }

    /// Adds one to a semaphore.
    ///
    /// # Errors
    /// As those of [`signal`](Self::signal).
    #[track_caller]
    pub fn release(
        &mut self,
        semaphore: Semaphore,
        block: u32,
        data_sync: DataSync,
    ) -> Result<(), BuildError> {
        let at = self.context("release", semaphore.rank, Some(block));
        self.push_on_semaphore(&at, semaphore, block, SyncKind::Release, data_sync)
    }

    /// All threads of the named blocks of a rank meet. One block is a `nop`.
    ///
    /// # Errors
    /// [`BuildProblem::Empty`], [`BuildProblem::Duplicate`], [`BuildProblem::RankOutOfRange`],
    /// [`BuildProblem::BlockOutOfRange`].
    #[track_caller]
    pub fn barrier(&mut self, rank: u32, blocks: &[u32]) -> Result<(), BuildError> {
        let at = self.context("barrier", rank, blocks.first().copied());
        self.check_rank(&at, rank)?;
        at.require(!blocks.is_empty(), || BuildProblem::Empty { what: "blocks" })?;
        if let Some(number) = duplicate(blocks) {
            return Err(at.error(BuildProblem::Duplicate { what: "block", number }));
        }
        for block in blocks {
            self.check_blocks(&at, Blocks::One(*block))?;
        }
        let location = self.location(&at);
        let action = match blocks.len() {
            1 => StepAction::Nop { extra: false },
            count => {
                StepAction::Barrier { id: self.ranks[rank as usize].barrier(blocks), blocks: count as u32 }
            }
        };
        for block in blocks {
            self.push(rank, *block, Step { action: action.clone(), location: Some(location.clone()) });
        }
        Ok(())
    }

    fn push_on_channel(
        &mut self,
        at: &Context,
        channel: Channel,
        block: u32,
        kind: SyncKind,
        marks: DataSync,
    ) -> Result<(), BuildError> {
        self.check_channel(at, channel)?;
        self.check_blocks(at, Blocks::One(block))?;
        let tables = &mut self.ranks[channel.owner() as usize].block(block).tables;
        let position = tables.channels(channel.via()).of(channel.index());
        self.push_sync(at, channel.owner(), block, SyncStep::new(kind, position, marks));
        Ok(())
    }

    fn push_on_semaphore(
        &mut self,
        at: &Context,
        semaphore: Semaphore,
        block: u32,
        kind: SyncKind,
        marks: DataSync,
    ) -> Result<(), BuildError> {
        let semaphores = self.ranks.get(semaphore.rank as usize).map_or(0, |rank| rank.semaphores.len());
        let known = (semaphore.index as usize) < semaphores;
        at.require(known, || BuildProblem::UnknownHandle { what: "semaphore" })?;
        self.check_blocks(at, Blocks::One(block))?;
        self.push_sync(at, semaphore.rank, block, SyncStep::new(kind, semaphore.index, marks));
        Ok(())
    }

    fn push_sync(&mut self, at: &Context, rank: u32, block: u32, step: SyncStep) {
        let location = Some(self.location(at));
        self.push(rank, block, Step { action: StepAction::Sync(step), location });
    }
}

impl SyncStep {
    fn new(kind: SyncKind, id: u32, marks: DataSync) -> Self {
        Self { kind, ids: vec![id], marks, extra_after: false }
    }
}
