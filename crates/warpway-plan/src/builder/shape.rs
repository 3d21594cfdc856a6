//! The collectives and the buffers that a program for them starts with.

use crate::ir::{BufferKind, Collective};

/// A collective for a number of ranks: which buffers, of how many chunks.
///
/// `chunk_factor` is the number of chunks of one rank's share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CollectiveShape {
    collective: Collective,
    n_ranks: u32,
    chunk_factor: u64,
    in_place: bool,
    counts: Counts,
    sizes: Sizes,
}

/// Chunks of input and output.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Counts {
    Equal { input: u64, output: u64 },
    PerRank(Vec<RankBuffers>),
}

/// Size ids, by formula where the collective has one.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Sizes {
    Fixed,
    AllGather,
    ReduceScatter,
    AllToAll,
    PerRank(Vec<BufferSizeIds>),
}

/// Chunks of the user's buffers on one rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RankBuffers {
    /// Of the input.
    pub input: u64,
    /// Of the output.
    pub output: u64,
}

/// Size ids of the user's buffers on one rank, one per chunk.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BufferSizeIds {
    /// Of the input.
    pub input: Vec<u64>,
    /// Of the output.
    pub output: Vec<u64>,
}

impl CollectiveShape {
    /// Every rank gets the fold of all inputs.
    pub fn all_reduce(n_ranks: u32, chunk_factor: u64) -> Self {
        let whole = u64::from(n_ranks).saturating_mul(chunk_factor);
        Self::equal(Collective::AllReduce, n_ranks, chunk_factor, whole, whole)
    }

    /// [`all_reduce`](Self::all_reduce) of buffers of that many chunks, whatever the number of ranks.
    pub fn all_reduce_of(n_ranks: u32, chunks: u64) -> Self {
        Self::equal(Collective::AllReduce, n_ranks, chunks, chunks, chunks)
    }

    /// Every rank gets all inputs.
    pub fn all_gather(n_ranks: u32, chunk_factor: u64) -> Self {
        let whole = u64::from(n_ranks).saturating_mul(chunk_factor);
        Self::equal(Collective::AllGather, n_ranks, chunk_factor, chunk_factor, whole)
    }

    /// Every rank gets its share of the fold of all inputs.
    pub fn reduce_scatter(n_ranks: u32, chunk_factor: u64) -> Self {
        let whole = u64::from(n_ranks).saturating_mul(chunk_factor);
        Self::equal(Collective::ReduceScatter, n_ranks, chunk_factor, whole, chunk_factor)
    }

    /// Share `r` of rank `q` becomes share `q` of rank `r`.
    pub fn all_to_all(n_ranks: u32, chunk_factor: u64) -> Self {
        let whole = u64::from(n_ranks).saturating_mul(chunk_factor);
        Self::equal(Collective::AllToAll, n_ranks, chunk_factor, whole, whole)
    }

    /// Every rank gets the input of one other rank.
    pub fn send_recv(n_ranks: u32, chunk_factor: u64) -> Self {
        Self::equal(Collective::SendRecv, n_ranks, chunk_factor, chunk_factor, chunk_factor)
    }

    /// Every rank gets the input of the root.
    pub fn broadcast(n_ranks: u32, chunk_factor: u64) -> Self {
        Self::equal(Collective::Broadcast, n_ranks, chunk_factor, chunk_factor, chunk_factor)
    }

    /// The root gets the fold of all inputs.
    pub fn reduce(n_ranks: u32, chunk_factor: u64) -> Self {
        Self::equal(Collective::Reduce, n_ranks, chunk_factor, chunk_factor, chunk_factor)
    }

    /// The root gets all inputs.
    pub fn gather(n_ranks: u32, chunk_factor: u64) -> Self {
        let whole = u64::from(n_ranks).saturating_mul(chunk_factor);
        Self::equal(Collective::Gather, n_ranks, chunk_factor, chunk_factor, whole)
    }

    /// Every rank gets its share of the root's input.
    pub fn scatter(n_ranks: u32, chunk_factor: u64) -> Self {
        let whole = u64::from(n_ranks).saturating_mul(chunk_factor);
        Self::equal(Collective::Scatter, n_ranks, chunk_factor, whole, chunk_factor)
    }

    /// [`all_gather`](Self::all_gather) with counts that come at launch.
    pub fn all_gather_v(n_ranks: u32, chunk_factor: u64) -> Self {
        Self { sizes: Sizes::AllGather, ..Self::all_gather(n_ranks, chunk_factor) }
    }

    /// [`reduce_scatter`](Self::reduce_scatter) with counts that come at launch.
    pub fn reduce_scatter_v(n_ranks: u32, chunk_factor: u64) -> Self {
        Self { sizes: Sizes::ReduceScatter, ..Self::reduce_scatter(n_ranks, chunk_factor) }
    }

    /// [`all_to_all`](Self::all_to_all) with counts that come at launch.
    pub fn all_to_all_v(n_ranks: u32, chunk_factor: u64) -> Self {
        Self { sizes: Sizes::AllToAll, ..Self::all_to_all(n_ranks, chunk_factor) }
    }

    /// Buffers of any size, equal on all ranks, without a goal.
    pub fn test(n_ranks: u32, input_chunks: u64, output_chunks: u64) -> Self {
        Self::equal(Collective::Test, n_ranks, 1, input_chunks, output_chunks)
    }

    /// Buffers of any size, without a goal.
    pub fn custom(buffers: Vec<RankBuffers>) -> Self {
        let counts = Counts::PerRank(buffers.clone());
        Self { counts, ..Self::equal(Collective::Custom, buffers.len() as u32, 1, 0, 0) }
    }

    /// [`custom`](Self::custom) with counts that come at launch: one chunk per size id.
    pub fn custom_v(ids: Vec<BufferSizeIds>) -> Self {
        let count = |ids: &BufferSizeIds| RankBuffers {
            input: ids.input.len() as u64,
            output: ids.output.len() as u64,
        };
        let buffers = ids.iter().map(count).collect();
        Self { sizes: Sizes::PerRank(ids), ..Self::custom(buffers) }
    }

    /// Of a broadcast, reduce, gather or scatter from or to `root`: other ranks have no buffer on the root's side, that is no
    /// input of a broadcast or scatter, no output of a reduce or gather. Other collectives stay as they are.
    pub fn with_root(self, root: u32) -> Self {
        let (input, output) = match self.collective {
            Collective::Broadcast | Collective::Scatter => (0, 1),
            Collective::Reduce | Collective::Gather => (1, 0),
            _ => return self,
        };
        let others = |rank| {
            let RankBuffers { input: i, output: o } = self.buffers(rank);
            if rank == root { (i, o) } else { (i * input, o * output) }
        };
        let buffers = (0..self.n_ranks).map(others).map(|(input, output)| RankBuffers { input, output });
        Self { counts: Counts::PerRank(buffers.collect()), ..self }
    }

    /// Input and output are one memory, by the convention of the collective. The program still chooses which of the
    /// two it names.
    pub fn in_place(self) -> Self {
        Self { in_place: true, ..self }
    }

    fn equal(collective: Collective, n_ranks: u32, chunk_factor: u64, input: u64, output: u64) -> Self {
        let counts = Counts::Equal { input, output };
        Self { collective, n_ranks, chunk_factor, in_place: false, counts, sizes: Sizes::Fixed }
    }

    /// What is computed.
    pub fn collective(&self) -> Collective {
        self.collective
    }

    /// Number of ranks.
    pub fn n_ranks(&self) -> u32 {
        self.n_ranks
    }

    /// Chunks of one rank's share.
    pub fn chunk_factor(&self) -> u64 {
        self.chunk_factor
    }

    /// True if input and output are one memory.
    pub fn is_in_place(&self) -> bool {
        self.in_place
    }

    /// True if counts come at launch.
    pub fn is_sized(&self) -> bool {
        self.sizes != Sizes::Fixed
    }

    /// Chunks of the user's buffers of a rank; none for a rank that does not exist.
    pub fn buffers(&self, rank: u32) -> RankBuffers {
        match &self.counts {
            Counts::Equal { input, output } => RankBuffers { input: *input, output: *output },
            Counts::PerRank(ranks) => {
                ranks.get(rank as usize).copied().unwrap_or(RankBuffers { input: 0, output: 0 })
            }
        }
    }

    /// Size id of a chunk of the input or output.
    pub(crate) fn size_id(&self, rank: u32, buffer: BufferKind, chunk: u64) -> Option<u64> {
        let (n, c, r) = (u64::from(self.n_ranks), self.chunk_factor, u64::from(rank));
        let input = buffer == BufferKind::Input;
        match &self.sizes {
            Sizes::Fixed => None,
            Sizes::AllGather if input => Some(r * c + chunk),
            Sizes::AllGather => Some(chunk),
            Sizes::ReduceScatter if input => Some(chunk),
            Sizes::ReduceScatter => Some(r * c + chunk),
            Sizes::AllToAll => {
                let (block, part) = (chunk.checked_div(c)?, chunk.checked_rem(c)?);
                let pair = if input { r * n + block } else { block * n + r };
                pair.checked_mul(c)?.checked_add(part)
            }
            Sizes::PerRank(ids) => {
                let ids = ids.get(rank as usize)?;
                let list = if input { &ids.input } else { &ids.output };
                list.get(usize::try_from(chunk).ok()?).copied()
            }
        }
    }

    /// Where a chunk of the input or output lies if the two are one memory: one name for every place.
    pub(crate) fn alias(&self, rank: u32) -> Alias {
        use BufferKind::{Input, Output};
        if !self.in_place {
            return Alias::NONE;
        }
        let share = u64::from(rank).saturating_mul(self.chunk_factor);
        match self.collective {
            Collective::AllReduce
            | Collective::AllToAll
            | Collective::SendRecv
            | Collective::Broadcast
            | Collective::Reduce => Alias { from: Some(Output), to: Input, shift: 0 },
            Collective::AllGather | Collective::Gather => {
                Alias { from: Some(Input), to: Output, shift: share }
            }
            Collective::ReduceScatter | Collective::Scatter => {
                Alias { from: Some(Output), to: Input, shift: share }
            }
            Collective::Test | Collective::Custom => Alias::NONE,
        }
    }
}

/// One buffer of a rank named as part of another.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Alias {
    from: Option<BufferKind>,
    to: BufferKind,
    shift: u64,
}

impl Alias {
    /// Every buffer is itself.
    pub(crate) const NONE: Self = Self { from: None, to: BufferKind::Input, shift: 0 };

    /// The one name of a place.
    pub(crate) fn resolve(self, buffer: BufferKind, index: u64) -> (BufferKind, u64) {
        if self.from == Some(buffer) { (self.to, index.saturating_add(self.shift)) } else { (buffer, index) }
    }

    /// True if input and output share memory.
    pub(crate) fn joins_buffers(self) -> bool {
        self.from.is_some()
    }
}
