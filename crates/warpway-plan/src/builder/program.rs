//! The program: its options, what it has said so far, and how an operation gets into it.

use std::collections::HashMap;
use std::panic;
use std::sync::Arc;

use super::error::{BuildError, BuildProblem, Site};
use super::handles::{Blocks, Buffer, Channel, Chunk, MemoryChannel, PortChannel, Semaphore};
use super::pipeline::OpenPipeline;
use super::shape::CollectiveShape;
use super::step::{Block, Step};
use super::switch::Multicast;
use super::tables::Rank;
use crate::check::{ALIGNMENTS, is_alignment};
use crate::ir::{BufferKind, Location, Protocol, Via};

/// Blocks of a rank are numbered below this.
pub(crate) const MAX_BLOCKS: u32 = 65_536;

/// What a program is for, and how its plan is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgramOptions {
    /// Name of the plan, for logs.
    pub name: String,
    /// What it computes, on which buffers.
    pub shape: CollectiveShape,
    /// Copies of the whole program side by side, each on its share of every chunk.
    pub instances: u32,
    /// What the file says of its protocol.
    pub protocol: Protocol,
    /// Joins adjacent operations of a block.
    pub fusion: bool,
    /// Inserts the block barriers that local hazards need.
    pub auto_sync: bool,
    /// One scratch shared by all calls, of fixed size.
    pub reuse_resources: bool,
    /// Threads of each block, 1 to 1024.
    pub threads_per_block: u32,
    /// Consecutive launches alternate between two halves of the scratch.
    pub double_scratch: bool,
    /// Reuse of scratch is the executor's care: [`Extension::ScratchCredits`](crate::Extension::ScratchCredits).
    pub scratch_credits: bool,
    /// Bytes; the unit of all splitting. A power of two, 4 to 1048576.
    pub buffer_alignment: u64,
    /// The least checked size in bytes.
    pub min_message_size: u64,
    /// The greatest checked size in bytes.
    pub max_message_size: u64,
}

impl ProgramOptions {
    /// The usual choice for everything else.
    pub fn new(name: impl Into<String>, shape: CollectiveShape) -> Self {
        Self {
            name: name.into(),
            shape,
            instances: 1,
            protocol: Protocol::Simple,
            fusion: true,
            auto_sync: true,
            reuse_resources: false,
            threads_per_block: 1024,
            double_scratch: false,
            scratch_credits: false,
            buffer_alignment: 16,
            min_message_size: 0,
            max_message_size: u64::MAX,
        }
    }

    fn check(&self) -> Result<(), BuildProblem> {
        let invalid = |option, value, allowed| Err(BuildProblem::InvalidOption { option, value, allowed });
        if self.shape.n_ranks() == 0 {
            return invalid("n_ranks", 0, "at least 1");
        }
        if self.instances == 0 {
            return invalid("instances", 0, "at least 1");
        }
        if !(1..=1024).contains(&self.threads_per_block) {
            return invalid("threads_per_block", u64::from(self.threads_per_block), "1 to 1024");
        }
        if !is_alignment(self.buffer_alignment) {
            return invalid("buffer_alignment", self.buffer_alignment, ALIGNMENTS);
        }
        if self.min_message_size > self.max_message_size {
            return invalid("min_message_size", self.min_message_size, "at most max_message_size");
        }
        if self.shape.is_sized() && self.instances > 1 {
            return Err(BuildProblem::SizedInstances { instances: self.instances });
        }
        let whole = u64::from(self.shape.n_ranks()).checked_mul(self.shape.chunk_factor());
        if whole.is_none_or(|chunks| chunks.checked_mul(u64::from(self.instances)).is_none()) {
            return Err(BuildProblem::TooLarge { what: "the number of chunks" });
        }
        Ok(())
    }
}

/// The description of a collective algorithm: operations of every rank's blocks, in order. The words mean what they mean in
/// MSCCL++'s DSL.
///
/// An all-gather of two ranks:
///
/// ```
/// use warpway_plan::{CollectiveShape, DataSync, Program, ProgramOptions};
///
/// let mut p = Program::new(ProgramOptions::new("all_gather", CollectiveShape::all_gather(2, 1)))?;
/// for (me, peer) in [(0, 1), (1, 0)] {
///     let mine = p.input(me)?.whole();
///     let place = u64::from(me);
///     let channel = p.memory_channel(me, peer)?;
///     // The peer's output may be written once the peer has begun.
///     p.signal_relaxed(channel, 0, DataSync::None)?;
///     p.wait_relaxed(channel, 0, DataSync::After)?;
///     p.copy(p.output(me)?.chunk(place..place + 1)?, mine, 0)?;
///     p.put(channel, p.output(peer)?.chunk(place..place + 1)?, mine, 0)?;
///     p.signal(channel, 0, DataSync::Before)?;
///     p.wait(channel, 0, DataSync::After)?;
/// }
/// let plan = p.finish()?;
/// assert_eq!(plan.ranks[0].blocks[0].operations.len(), 9);
/// # Ok::<(), warpway_plan::BuildError>(())
/// ```
///
/// | what | how |
/// |---|---|
/// | buffers | [`Program::input`], [`output`](Program::output), [`scratch`](Program::scratch); [`Buffer::chunk`] |
/// | who does it | a block number, or a [`ThreadBlockGroup`](crate::ThreadBlockGroup) whose members share the bytes |
/// | data moves | `copy`, `put`, `get`; on a port channel `put_with_signal`, `put_with_signal_and_flush` |
/// | data is joined | `reduce`, `read_reduce` |
/// | as packets | `copy_packets`, `put_packets`, `read_put_packets`, `reduce_packets`, `unpack_packets` |
/// | through the switch | `switch_channel`; `switch_reduce`, `switch_broadcast`, `switch_broadcast_packets` |
/// | between ranks | `memory_channel`, `port_channel`; `signal`, `wait`, `signal_relaxed`, `wait_relaxed`, `flush` |
/// | between blocks | `barrier`; `semaphore`, `acquire`, `release` |
/// | loops | [`Program::pipeline`] |
/// | where it was said | the caller's line, or [`Program::set_location`] for other languages |
///
/// Block barriers (`nop`) come from three places: an operation's [`DataSync`](crate::DataSync) mark, hazards within a block, and
/// [`Program::barrier`] with one block. Everything between blocks and ranks must be said.
#[derive(Debug, Clone)]
pub struct Program {
    pub(crate) options: ProgramOptions,
    pub(crate) ranks: Vec<Rank>,
    pub(crate) multicasts: Vec<Multicast>,
    pub(crate) open: Option<OpenPipeline>,
    given_location: Option<Arc<Location>>,
    locations: HashMap<(&'static str, u32), Arc<Location>>,
}

impl Program {
    /// An empty program.
    ///
    /// # Errors
    /// [`BuildProblem::InvalidOption`] and its like.
    #[track_caller]
    pub fn new(options: ProgramOptions) -> Result<Self, BuildError> {
        if let Err(problem) = options.check() {
            let caller = panic::Location::caller();
            let location = Some(Location { file: caller.file().to_owned(), line: caller.line() });
            let site = Site { operation: "program", rank: None, block: None, location };
            return Err(BuildError::new(site, problem));
        }
        let mut ranks = Vec::new();
        ranks.resize_with(options.shape.n_ranks() as usize, Rank::default);
        let (multicasts, open) = (Vec::new(), None);
        Ok(Self { options, ranks, multicasts, open, given_location: None, locations: HashMap::new() })
    }

    /// What it was made with.
    pub fn options(&self) -> &ProgramOptions {
        &self.options
    }

    /// Number of ranks.
    pub fn n_ranks(&self) -> u32 {
        self.options.shape.n_ranks()
    }

    /// Where the following operations stand in the source of the program; `None` goes back to the line of the
    /// caller in Rust.
    pub fn set_location(&mut self, location: Option<Location>) {
        self.given_location = location.map(Arc::new);
    }

    /// The input of a rank.
    ///
    /// # Errors
    /// [`BuildProblem::RankOutOfRange`].
    #[track_caller]
    pub fn input(&self, rank: u32) -> Result<Buffer, BuildError> {
        self.buffer("input", rank, BufferKind::Input)
    }

    /// The output of a rank.
    ///
    /// # Errors
    /// [`BuildProblem::RankOutOfRange`].
    #[track_caller]
    pub fn output(&self, rank: u32) -> Result<Buffer, BuildError> {
        self.buffer("output", rank, BufferKind::Output)
    }

    /// A new region of a rank's scratch, behind the earlier ones. Its chunks are as large as those of the input and
    /// output (less under `reuse_resources`); room for the flags of packets is the executor's to add.
    ///
    /// # Errors
    /// [`BuildProblem::RankOutOfRange`]; [`BuildProblem::SizeIdCount`] in a sized program.
    #[track_caller]
    pub fn scratch(&mut self, rank: u32, chunks: u64) -> Result<Buffer, BuildError> {
        self.add_scratch(rank, chunks, &[])
    }

    /// A new region of a rank's scratch in a sized program, one chunk per size id.
    ///
    /// # Errors
    /// [`BuildProblem::RankOutOfRange`]; [`BuildProblem::SizeIdCount`] in a program that is not sized.
    #[track_caller]
    pub fn sized_scratch(&mut self, rank: u32, size_ids: &[u64]) -> Result<Buffer, BuildError> {
        self.add_scratch(rank, size_ids.len() as u64, size_ids)
    }

    #[track_caller]
    fn add_scratch(&mut self, rank: u32, size: u64, size_ids: &[u64]) -> Result<Buffer, BuildError> {
        let at = self.context("scratch", rank, None);
        self.check_rank(&at, rank)?;
        let expected = if self.options.shape.is_sized() { size } else { 0 };
        let found = size_ids.len() as u64;
        at.require(found == expected, || BuildProblem::SizeIdCount { size, expected, found })?;
        let too_large = || at.error(BuildProblem::TooLarge { what: "the scratch" });
        let entry = &mut self.ranks[rank as usize];
        let offset = entry.scratch_chunks;
        entry.scratch_chunks = offset.checked_add(size).ok_or_else(too_large)?;
        entry.scratch_ids.extend_from_slice(size_ids);
        Ok(Buffer { rank, kind: BufferKind::Scratch, offset, size })
    }

    #[track_caller]
    fn buffer(&self, operation: &'static str, rank: u32, kind: BufferKind) -> Result<Buffer, BuildError> {
        let at = self.context(operation, rank, None);
        self.check_rank(&at, rank)?;
        Ok(Buffer { rank, kind, offset: 0, size: self.buffer_size(rank, kind) })
    }

    /// A new memory channel of `owner` to `peer`. The k-th one from a to b pairs with the k-th one from b to a: where
    /// two ranks share several links, as in a ring of two, make both ends of each together.
    ///
    /// # Errors
    /// [`BuildProblem::RankOutOfRange`]; [`BuildProblem::Duplicate`] for a channel of a rank to itself.
    #[track_caller]
    pub fn memory_channel(&mut self, owner: u32, peer: u32) -> Result<MemoryChannel, BuildError> {
        let index = self.add_channel("memory_channel", Via::Memory, owner, peer)?;
        Ok(MemoryChannel { owner, peer, index })
    }

    /// A new port channel of `owner` to `peer`. The k-th one from a to b pairs with the k-th one from b to a.
    ///
    /// # Errors
    /// [`BuildProblem::RankOutOfRange`]; [`BuildProblem::Duplicate`] for a channel of a rank to itself.
    #[track_caller]
    pub fn port_channel(&mut self, owner: u32, peer: u32) -> Result<PortChannel, BuildError> {
        let index = self.add_channel("port_channel", Via::Port, owner, peer)?;
        Ok(PortChannel { owner, peer, index })
    }

    #[track_caller]
    fn add_channel(
        &mut self,
        name: &'static str,
        via: Via,
        owner: u32,
        peer: u32,
    ) -> Result<u32, BuildError> {
        let at = self.context(name, owner, None);
        self.check_rank(&at, owner)?;
        self.check_rank(&at, peer)?;
        at.require(owner != peer, || BuildProblem::Duplicate { what: "rank", number: peer })?;
        Ok(self.ranks[owner as usize].add_channel(via, peer))
    }

    /// A new semaphore between the blocks of a rank.
    ///
    /// # Errors
    /// [`BuildProblem::RankOutOfRange`].
    #[track_caller]
    pub fn semaphore(&mut self, rank: u32, initial_value: u64) -> Result<Semaphore, BuildError> {
        let at = self.context("semaphore", rank, None);
        self.check_rank(&at, rank)?;
        let semaphores = &mut self.ranks[rank as usize].semaphores;
        semaphores.push(initial_value);
        Ok(Semaphore { rank, index: (semaphores.len() - 1) as u32 })
    }

    /// Chunks of a buffer as far as the program has come.
    pub(crate) fn buffer_size(&self, rank: u32, kind: BufferKind) -> u64 {
        let buffers = self.options.shape.buffers(rank);
        match kind {
            BufferKind::Input => buffers.input,
            BufferKind::Output => buffers.output,
            BufferKind::Scratch => self.ranks.get(rank as usize).map_or(0, |r| r.scratch_chunks),
        }
    }

    /// Size id of a chunk of any buffer.
    pub(crate) fn size_id(&self, rank: u32, kind: BufferKind, chunk: u64) -> Option<u64> {
        match kind {
            BufferKind::Scratch => {
                self.ranks.get(rank as usize)?.scratch_ids.get(usize::try_from(chunk).ok()?).copied()
            }
            _ => self.options.shape.size_id(rank, kind, chunk),
        }
    }

    /// Who asks for what, for errors and for the plan.
    #[track_caller]
    pub(crate) fn context(&self, operation: &'static str, rank: u32, block: Option<u32>) -> Context {
        Context {
            operation,
            rank,
            block,
            given: self.given_location.clone(),
            caller: panic::Location::caller(),
        }
    }

    /// The location of an operation, shared with all others of its line.
    pub(crate) fn location(&mut self, at: &Context) -> Arc<Location> {
        if let Some(given) = &at.given {
            return Arc::clone(given);
        }
        let (file, line) = (at.caller.file(), at.caller.line());
        let make = || Arc::new(Location { file: file.to_owned(), line });
        Arc::clone(self.locations.entry((file, line)).or_insert_with(make))
    }

    /// Where the next step of a block goes: the block, or the body of the open pipeline.
    pub(crate) fn push(&mut self, rank: u32, block: u32, step: Step) {
        let entry: &mut Block = self.ranks[rank as usize].block(block);
        match &mut self.open {
            Some(pipeline) => pipeline.push(rank, block, step),
            None => entry.steps.push(step),
        }
    }

    pub(crate) fn check_rank(&self, at: &Context, rank: u32) -> Result<(), BuildError> {
        let n_ranks = self.n_ranks();
        at.require(rank < n_ranks, || BuildProblem::RankOutOfRange { rank, n_ranks })
    }

    pub(crate) fn check_blocks(&self, at: &Context, blocks: Blocks<'_>) -> Result<(), BuildError> {
        let check = |block: u32| {
            let problem = || BuildProblem::BlockOutOfRange { block: u64::from(block), limit: MAX_BLOCKS };
            at.require(block < MAX_BLOCKS, problem)
        };
        match blocks {
            Blocks::One(block) => check(block),
            Blocks::Group(group) => group.blocks().iter().try_for_each(|block| check(*block)),
        }
    }

    pub(crate) fn check_channel(&self, at: &Context, channel: Channel) -> Result<(), BuildError> {
        let peers = self.ranks.get(channel.owner() as usize).map_or(&[][..], |r| r.peers(channel.via()));
        let known = peers.get(channel.index() as usize) == Some(&channel.peer());
        at.require(known, || BuildProblem::UnknownHandle { what: "channel" })
    }

    /// A chunk that lies on a rank, within its buffer.
    pub(crate) fn check_chunk(
        &self,
        at: &Context,
        role: &'static str,
        chunk: Chunk,
        rank: u32,
    ) -> Result<(), BuildError> {
        let found = chunk.rank;
        at.require(found == rank, || BuildProblem::WrongRank { role, expected: rank, found })?;
        let (buffer, size) = (chunk.buffer, self.buffer_size(rank, chunk.buffer));
        let end = chunk.index.saturating_add(chunk.size);
        at.require(end <= size, || BuildProblem::BeyondBuffer { buffer, rank, end, size })
    }

    /// Chunks that are moved onto each other: as many, and in sized programs with the same ids.
    pub(crate) fn check_equal(
        &self,
        at: &Context,
        role: &'static str,
        chunk: Chunk,
        first: Chunk,
    ) -> Result<(), BuildError> {
        let (expected, found) = (first.size, chunk.size);
        at.require(found == expected, || BuildProblem::SizeMismatch { role, expected, found })?;
        if !self.options.shape.is_sized() {
            return Ok(());
        }
        let pipeline_id = self.open.as_ref().and_then(OpenPipeline::size_id);
        for offset in 0..found {
            let own = self.size_id(first.rank, first.buffer, first.index + offset);
            let expected = pipeline_id.or(own);
            let found = self.size_id(chunk.rank, chunk.buffer, chunk.index + offset);
            let bad = if own == expected { found } else { own };
            at.require(own == expected && found == expected, || BuildProblem::DifferentSizeIds {
                role,
                chunk: offset,
                expected,
                found: bad,
            })?;
        }
        Ok(())
    }
}

/// One call of a program: what and where.
#[derive(Debug, Clone)]
pub(crate) struct Context {
    operation: &'static str,
    rank: u32,
    block: Option<u32>,
    given: Option<Arc<Location>>,
    caller: &'static panic::Location<'static>,
}

impl Context {
    /// Where it is.
    pub(crate) fn site(&self) -> Site {
        let caller = || Location { file: self.caller.file().to_owned(), line: self.caller.line() };
        let location = self.given.as_deref().cloned().unwrap_or_else(caller);
        Site { operation: self.operation, rank: Some(self.rank), block: self.block, location: Some(location) }
    }

    pub(crate) fn error(&self, problem: BuildProblem) -> BuildError {
        BuildError::new(self.site(), problem)
    }

    pub(crate) fn require(
        &self,
        condition: bool,
        problem: impl FnOnce() -> BuildProblem,
    ) -> Result<(), BuildError> {
        if condition { Ok(()) } else { Err(self.error(problem())) }
    }

    pub(crate) fn scratch(&self, role: &'static str, chunk: Chunk) -> Result<(), BuildError> {
        self.require(chunk.buffer == BufferKind::Scratch, || BuildProblem::NotScratch {
            role,
            found: chunk.buffer,
        })
    }
}
