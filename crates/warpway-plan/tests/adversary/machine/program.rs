//! A plan at one size, flattened: per block a list of instructions on numbered lanes, slots, channels.
//!
//! A lane is one unit of splitting. It stands for a vector that one thread moves, and for one packet.

use warpway_plan::{Action, BufferKind, Collective, Plan, ReduceOp, Topology, Via};

use super::lower::Lowering;
use crate::random::mix;

/// A concrete message size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Size {
    /// Bytes of one lane; divides the unit of every pipeline.
    pub(crate) lane_bytes: u64,
    /// Lanes of one chunk; the most that a chunk of a sized plan may have.
    pub(crate) lanes: u32,
    /// Lanes that a period of chunks lacks (6.3).
    pub(crate) missing: u32,
    /// Draws the chunk sizes of a sized plan.
    pub(crate) extents: u64,
}

impl Size {
    /// Lanes of the chunks with a size id.
    pub(crate) fn extent(self, id: u64) -> u32 {
        (mix(self.extents.wrapping_mul(0x1_0001).wrapping_add(id)) % u64::from(self.lanes + 1)) as u32
    }
}

/// Why a plan means nothing: numbers that point nowhere, lists that do not match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Meaningless(pub(crate) String);

/// A run of lanes or slots in somebody's memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Region {
    pub(crate) start: u32,
    /// Added in odd epochs of the area that it lies in.
    pub(crate) odd: u32,
    pub(crate) packets: bool,
    /// The rank whose caller's buffers these are; nobody may touch them but during its launch.
    pub(crate) callers: Option<u32>,
}

/// Every write gets the fold of all reads, lane by lane.
#[derive(Debug, Clone, Default)]
pub(crate) struct Movement {
    pub(crate) lanes: u32,
    /// Lanes of packets that are written without data, behind those.
    pub(crate) padding: u32,
    pub(crate) op: u8,
    pub(crate) reads: Vec<Region>,
    pub(crate) writes: Vec<Region>,
}

/// What a single thread does.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Call {
    /// Adds a signal to the channel with that number; `None` is a channel that nobody has.
    Signal {
        to: Option<u32>,
        relaxed: bool,
    },
    Wait {
        on: u32,
        relaxed: bool,
    },
    /// Hands movement `movement` of the same instruction to a port.
    Push {
        port: u32,
        movement: u32,
    },
    PushFlag {
        port: u32,
    },
    PushSync {
        port: u32,
    },
    AwaitSync {
        port: u32,
    },
    Acquire {
        semaphore: u32,
    },
    Release {
        semaphore: u32,
    },
}

#[derive(Debug, Clone)]
pub(crate) enum Step {
    Nop,
    Barrier {
        barrier: u32,
        blocks: u32,
    },
    /// Thread `lane` does lane `lane` of each movement, in list order.
    Lanes(Vec<Movement>),
    /// Calls by thread, in program order of the thread; the movements that they push.
    Calls {
        calls: Vec<(u32, Call)>,
        pushed: Vec<Movement>,
    },
}

/// A step, and where the plan says so.
#[derive(Debug, Clone)]
pub(crate) struct Instruction {
    pub(crate) step: Step,
    pub(crate) path: (u32, Option<u32>),
    pub(crate) name: &'static str,
}

#[derive(Debug, Clone)]
pub(crate) struct BlockProgram {
    /// The part of the program whose launches it runs in.
    pub(crate) part: u32,
    pub(crate) rank: u32,
    pub(crate) block: u32,
    pub(crate) instructions: Vec<Instruction>,
}

/// One chunk of a caller's buffer: its first lane and their number.
pub(crate) type Chunk = (u32, u32);

/// One rank's buffers in the numbering of all lanes.
#[derive(Debug, Clone, Default)]
pub(crate) struct RankLanes {
    pub(crate) input: Vec<Chunk>,
    pub(crate) output: Vec<Chunk>,
    /// First lane of the scratch and their number, of one half.
    pub(crate) raw: (u32, u32),
    pub(crate) slots: (u32, u32),
}

/// What is computed: one plan at one size.
#[derive(Debug, Clone)]
pub(crate) struct Part {
    pub(crate) collective: Collective,
    pub(crate) in_place: bool,
    /// What results are joined by; 0 if nothing is.
    pub(crate) reduce_op: u8,
    pub(crate) ranks: Vec<RankLanes>,
}

/// Which part a launch runs, in which epochs of its areas.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Turn {
    pub(crate) part: u32,
    pub(crate) raw: u32,
    pub(crate) packets: u32,
}

impl Turn {
    /// The flag of packets.
    pub(crate) fn flag(&self) -> u32 {
        self.packets + 1
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Program {
    /// One, but for sequences of plans.
    pub(crate) parts: Vec<Part>,
    /// Block after block, part after part.
    pub(crate) blocks: Vec<BlockProgram>,
    /// Number of lanes, of slots.
    pub(crate) cells: u32,
    pub(crate) slots: u32,
    /// Owner and index of each channel that is waited on: memory channels, then ports.
    pub(crate) channels: Vec<(u32, Via, u32)>,
    /// Per port: the number of the channel at its other end.
    pub(crate) ports: Vec<Option<u32>>,
    /// Number of the first port of each rank.
    pub(crate) first_port: Vec<u32>,
    /// Rank and initial value.
    pub(crate) semaphores: Vec<(u32, u64)>,
    pub(crate) barriers: u32,
}

/// The number of a reduction.
pub(crate) fn op_number(op: ReduceOp) -> u8 {
    match op {
        ReduceOp::Sum => 1,
        ReduceOp::Min => 2,
        ReduceOp::Max => 3,
        ReduceOp::Prod => 4,
        ReduceOp::Avg => 5,
    }
}

impl Program {
    pub(crate) fn new(plan: &Plan, size: Size) -> Result<Self, Meaningless> {
        let mut program = Self::lay_out(plan, size)?;
        let topology = Topology::new(plan);
        program.number_channels(&topology);
        let first_fold = plan.operations().find_map(|(_, _, operation)| match &operation.action {
            Action::Data(data) => data.fold.as_ref().map(|fold| op_number(fold.op)),
            _ => None,
        });
        program.parts[0].reduce_op = first_fold.unwrap_or(0);
        for (rank, r) in (0u32..).zip(&plan.ranks) {
            for (block, b) in (0u32..).zip(&r.blocks) {
                let instructions = Lowering::new(&program, &topology, size, (rank, block), b).run()?;
                program.blocks.push(BlockProgram { part: 0, rank, block, instructions });
            }
        }
        Ok(program)
    }

    /// Gives lanes to all buffers; aliased ones share them.
    fn lay_out(plan: &Plan, size: Size) -> Result<Self, Meaningless> {
        let mut ranks = Vec::new();
        let mut program = Self {
            parts: Vec::new(),
            blocks: Vec::new(),
            cells: 0,
            slots: 0,
            channels: Vec::new(),
            ports: Vec::new(),
            first_port: Vec::new(),
            semaphores: Vec::new(),
            barriers: 0,
        };
        for (rank, r) in (0u32..).zip(&plan.ranks) {
            let wrong = || Meaningless(format!("rank {rank}: chunks of no meaning"));
            let most = r.input_chunks.max(r.output_chunks).max(r.scratch_chunks);
            if most.checked_mul(u64::from(size.lanes)).is_none_or(|lanes| lanes > 1 << 20) {
                return Err(wrong());
            }
            let (mut input, mut output) = (Vec::new(), Vec::new());
            for (buffer, chunks) in [(BufferKind::Input, &mut input), (BufferKind::Output, &mut output)] {
                for k in 0..r.chunks(buffer) {
                    let lanes = chunk_lanes(plan, rank, (buffer, k), size).ok_or_else(wrong)?;
                    chunks.push((program.cells, lanes));
                    program.cells += lanes;
                }
            }
            if plan.in_place && !input.is_empty() && !output.is_empty() {
                let (aliased, within, first) = match plan.collective {
                    Collective::ReduceScatter | Collective::Scatter => {
                        (&mut output, &input, rank as usize * r.output_chunks as usize)
                    }
                    Collective::AllGather | Collective::Gather => {
                        (&mut input, &output, rank as usize * r.input_chunks as usize)
                    }
                    _ => (&mut output, &input, 0),
                };
                for (k, chunk) in aliased.iter_mut().enumerate() {
                    *chunk = *within.get(first + k).ok_or_else(wrong)?;
                }
            }
            let (halves, s) = (1 + u32::from(plan.double_scratch), r.scratch_chunks as u32 * size.lanes);
            let (raw, slots) = ((program.cells, s), (program.slots, s));
            program.cells += s * halves;
            program.slots += s * halves;
            ranks.push(RankLanes { input, output, raw, slots });
            program.semaphores.extend(r.semaphores.iter().map(|init| (rank, *init)));
        }
        program.barriers = plan.ranks.len() as u32 * BARRIERS_PER_RANK;
        let Plan { collective, in_place, .. } = *plan;
        program.parts.push(Part { collective, in_place, reduce_op: 0, ranks });
        Ok(program)
    }

    /// The buffers of a program of one part.
    pub(crate) fn ranks(&self) -> &[RankLanes] {
        self.parts.first().map_or(&[], |part| &part.ranks)
    }

    /// Launches of a program of one part.
    pub(crate) fn turns(launches: u32) -> Vec<Turn> {
        (0..launches).map(|epoch| Turn { part: 0, raw: epoch, packets: epoch }).collect()
    }

    fn number_channels(&mut self, topology: &Topology<'_>) {
        let ranks = 0..self.ranks().len() as u32;
        for via in [Via::Memory, Via::Port] {
            for rank in ranks.clone() {
                let count = topology.rank(rank).map_or(0, |r| r.links(via).len() as u32);
                if via == Via::Port {
                    self.first_port.push(self.ports.len() as u32);
                    self.ports.extend((0..count).map(|_| None));
                }
                self.channels.extend((0..count).map(|c| (rank, via, c)));
            }
        }
        for rank in ranks {
            let count = topology.rank(rank).map_or(0, |r| r.port.len() as u32);
            for c in 0..count {
                let port = (self.first_port[rank as usize] + c) as usize;
                self.ports[port] = self.other_end(topology, (rank, Via::Port, c));
            }
        }
    }

    /// The number of the channel that hears the signals of a channel.
    pub(crate) fn other_end(&self, topology: &Topology<'_>, channel: (u32, Via, u32)) -> Option<u32> {
        let (rank, via, index) = channel;
        let peer = topology.link(rank, via, index)?.peer;
        self.channel_number((peer, via, topology.partner(rank, via, index)?))
    }

    pub(crate) fn channel_number(&self, channel: (u32, Via, u32)) -> Option<u32> {
        self.channels.iter().position(|c| *c == channel).map(|n| n as u32)
    }
}

/// Lanes of one chunk of an input or output; `None` if it has no size.
pub(super) fn chunk_lanes(
    plan: &Plan,
    rank: u32,
    (buffer, chunk): (BufferKind, u64),
    size: Size,
) -> Option<u32> {
    let r = &plan.ranks[rank as usize];
    if let Some(ids) = &r.size_ids {
        let ids = match buffer {
            BufferKind::Input => &ids.input,
            BufferKind::Output => &ids.output,
            BufferKind::Scratch => &ids.scratch,
        };
        return ids.get(chunk as usize).map(|id| size.extent(*id));
    }
    if size.missing == 0 || buffer == BufferKind::Scratch {
        return Some(size.lanes);
    }
    let period = match plan.collective {
        Collective::AllGather | Collective::ReduceScatter => r.input_chunks.min(r.output_chunks),
        Collective::AllToAll => r.input_chunks / plan.ranks.len() as u64,
        _ => r.input_chunks,
    };
    let bytes = (period * u64::from(size.lanes)).checked_sub(size.missing.into())?;
    let before = chunk.checked_rem(period)? * u64::from(size.lanes);
    Some(bytes.saturating_sub(before).min(size.lanes.into()) as u32)
}

/// Barriers have a rank's number and an id; ids from here on are refused.
pub(crate) const BARRIERS_PER_RANK: u32 = 32;
