//! One rank's plan for one data type: the text of its kernel, and what a launch hands over.

use std::collections::BTreeSet;

use warpway_plan::lower::{Base, Lowered, LoweringError, Step, StepAction};
use warpway_plan::verify::VerifiedPlan;
use warpway_plan::{DataType, LayoutError, MessageLayout, Topology};

use super::paths::{self, Path};
use super::rows::{self, PlanRows, words_of};
use super::source;
use crate::jit::Program;

/// The name of the kernel in each program.
pub(super) const KERNEL: &str = "warpway_plan";

/// How data and flags share a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Packet {
    /// Four bytes of data, four of flag.
    LL8,
    /// Eight bytes of data, twice four of flag.
    LL16,
    /// Lines of 120 bytes of data and eight of flag, written by eight lanes at once: twice as many data per byte on a link of
    /// NVLink. Blocks have a multiple of eight threads, and writers and readers of packets divide data alike.
    Line,
}

impl Packet {
    /// Bytes of data that no division cuts: of a packet; of lines what has room for them in twice the bytes.
    pub fn payload(self) -> u64 {
        match self {
            Self::LL8 => 4,
            Self::LL16 => 8,
            Self::Line => 64,
        }
    }
}

/// What is a compile-time constant of a kernel, besides the plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct KernelSetting {
    /// Of elements.
    pub data_type: DataType,
    /// Of packets, if the plan has any.
    pub packet: Packet,
    /// Of each block; those that the plan names without. What a plan computes does not depend on it.
    pub threads: Option<u32>,
}

impl KernelSetting {
    /// With the threads that the plan names.
    pub fn new(data_type: DataType, packet: Packet) -> Self {
        Self { data_type, packet, threads: None }
    }

    /// With so many threads.
    pub fn with_threads(self, threads: u32) -> Self {
        Self { threads: Some(threads), ..self }
    }
}

/// Where the pieces of a message come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KernelForm {
    /// From words of the launch: messages that blocks divide evenly.
    Fitted,
    /// From a list in device memory: any message.
    Listed,
}

/// Why there is no kernel for a plan.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanProblem {
    /// A step that compiled kernels do not have.
    #[error("block {block}, operation {operation} ({name}): compiled kernels have no {what}")]
    Unsupported {
        /// The block.
        block: u32,
        /// The operation.
        operation: u32,
        /// Its name in the file.
        name: &'static str,
        /// What is missing.
        what: &'static str,
    },
    /// Elements that a packet cannot hold.
    #[error(
        "{data_type:?} elements of {size} bytes do not fit the {payload} bytes of data of an {packet:?} packet"
    )]
    Packet {
        /// The data type.
        data_type: DataType,
        /// Bytes of an element.
        size: u64,
        /// The packet.
        packet: Packet,
        /// Its bytes of data.
        payload: u64,
    },
    /// The plan is right only with what an executor adds.
    #[error(
        "the plan needs repairs, which compiled kernels do not make: verify it with the profile `strict`"
    )]
    Repairs,
    /// Lines are read otherwise than they are written.
    #[error(
        "rank {rank} reads lines from byte {offset} of its scratch on, where nobody writes a piece that begins there and is as \
         long; use LL16 packets"
    )]
    Lines {
        /// The reader.
        rank: u32,
        /// Of data.
        offset: u64,
    },
    /// More words than a launch can hand over.
    #[error("a launch of this plan takes {words} words, at most {limit} can be handed over")]
    Parameters {
        /// Needed.
        words: usize,
        /// At most.
        limit: usize,
    },
    /// See there.
    #[error(transparent)]
    Lowering(#[from] LoweringError),
    /// See there.
    #[error(transparent)]
    Layout(#[from] LayoutError),
}

/// Words that a launch hands over at most: what the driver takes, 4 KiB.
const LIMIT: usize = 512;
/// Words in front of the bases: see `Launch` in `plan.cuh`.
const HEAD: usize = 7;

/// One rank's kernel.
#[derive(Debug)]
pub struct PlanKernel {
    lowered: Lowered,
    setting: KernelSetting,
    name: String,
    identity: String,
    threads: u32,
    n_ranks: u32,
    words: usize,
    /// All ranks, where readers and writers of lines must be compared.
    everybody: Vec<Lowered>,
}

/// What a launch needs besides the rows of its message: device addresses, 0 where the plan has none.
#[derive(Debug, Clone, Default)]
pub struct LaunchPlaces {
    /// The communicator's control block.
    pub control: u64,
    /// Counters of the epochs of packets and of raw scratch.
    pub packet_epoch: u64,
    /// See above.
    pub raw_epoch: u64,
    /// `MemoryDevice2DeviceSemaphore[]`, by channel of the rank.
    pub channels: u64,
    /// `DeviceSyncer[]`, by barrier of the rank.
    pub barriers: u64,
    /// `DeviceSemaphore[]`, by semaphore of the rank.
    pub semaphores: u64,
    /// The list of the message's pieces.
    pub listed: u64,
    /// By base: where it begins, and how far behind lies the half of odd epochs.
    pub bases: Vec<(u64, u64)>,
}

impl PlanKernel {
    /// The part of `rank`.
    ///
    /// # Errors
    /// Plans with repairs, port channels or multicast; elements that do not fit a packet; too many operands.
    pub fn new(plan: &VerifiedPlan, rank: u32, setting: KernelSetting) -> Result<Self, PlanProblem> {
        if !plan.repairs().is_empty() {
            return Err(PlanProblem::Repairs);
        }
        let topology = Topology::new(plan.plan());
        let lowered = Lowered::new(&topology, rank, &plan.report().fold_roles)?;
        let size = setting.data_type.bytes();
        let packets = lowered.bases.iter().any(|base| base.form == warpway_plan::Form::Packets);
        if packets && size > setting.packet.payload() {
            let (data_type, packet, payload) = (setting.data_type, setting.packet, setting.packet.payload());
            return Err(PlanProblem::Packet { data_type, size, packet, payload });
        }
        let words = paths::paths(&lowered)?
            .iter()
            .filter_map(|path| path.members.first())
            .map(|block| words_of(&block.steps))
            .sum();
        let lines = packets && setting.packet == Packet::Line;
        let everybody = (0..if lines { plan.plan().n_ranks() } else { 0 })
            .map(|rank| Lowered::new(&topology, rank, &plan.report().fold_roles))
            .collect::<Result<_, _>>()?;
        let kernel = Self {
            words,
            everybody,
            setting,
            name: plan.plan().name.clone(),
            identity: plan.identity().to_string(),
            threads: setting.threads.unwrap_or(plan.plan().threads_per_block),
            n_ranks: plan.plan().n_ranks(),
            lowered,
        };
        match kernel.parameter_words() {
            needed if needed > LIMIT => Err(PlanProblem::Parameters { words: needed, limit: LIMIT }),
            _ => Ok(kernel),
        }
    }

    /// Its text. The kernel is `extern "C"`, of the name that [`kernel_name`](Self::kernel_name) says.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn program(&self, form: KernelForm) -> Result<Program, PlanProblem> {
        let text = source::source(self, form)?;
        let name = format!("{}.rank{}.cu", self.name, self.lowered.rank);
        Ok(Program::new(name, text).device_headers().kernel(KERNEL))
    }

    /// The kernel's name.
    pub fn kernel_name(&self) -> &'static str {
        KERNEL
    }

    /// Buffers by the numbers that [`LaunchPlaces::bases`] and [`PlanRows::reach`] go by.
    pub fn bases(&self) -> &[Base] {
        &self.lowered.bases
    }

    /// Blocks of the grid. At least one, so that epochs go on.
    pub fn blocks(&self) -> u32 {
        (self.lowered.blocks.len() as u32).max(1)
    }

    /// Threads of each block.
    pub fn threads(&self) -> u32 {
        self.threads
    }

    /// The rank.
    pub fn rank(&self) -> u32 {
        self.lowered.rank
    }

    /// Compile-time constants.
    pub fn setting(&self) -> KernelSetting {
        self.setting
    }

    /// Memory channels that its blocks use, ascending.
    pub fn channels(&self) -> BTreeSet<u32> {
        let mut found = BTreeSet::new();
        self.for_each_step(|step| {
            if let StepAction::Signal { channels, .. } | StepAction::Wait { channels, .. } = &step.action {
                found.extend(channels);
            }
        });
        found
    }

    /// One more than the highest barrier that its blocks use.
    pub fn barriers(&self) -> u32 {
        let mut count = 0;
        self.for_each_step(|step| {
            if let StepAction::Barrier { id, .. } = &step.action {
                count = count.max(id + 1);
            }
        });
        count
    }

    /// Where the bytes of a message lie. The layout is one of this plan, with the packet's payload.
    ///
    /// # Errors
    /// Offsets beyond 64 bits.
    pub fn rows(&self, layout: &MessageLayout) -> Result<PlanRows, PlanProblem> {
        rows::lines_agree(&self.everybody, layout)?;
        Ok(rows::rows(&self.paths()?, self.lowered.bases.len(), layout, KernelForm::Fitted)?)
    }

    /// The same as a list, also where rows would do: for [`KernelForm::Listed`].
    ///
    /// # Errors
    /// As [`rows`](Self::rows).
    pub fn listed_rows(&self, layout: &MessageLayout) -> Result<PlanRows, PlanProblem> {
        rows::lines_agree(&self.everybody, layout)?;
        Ok(rows::rows(&self.paths()?, self.lowered.bases.len(), layout, KernelForm::Listed)?)
    }

    /// The parameter of a launch: `Launch` of `plan.cuh`, as words.
    pub fn parameters(&self, places: &LaunchPlaces, rows: &PlanRows) -> Vec<u64> {
        let LaunchPlaces { control, packet_epoch, raw_epoch, channels, barriers, semaphores, listed, bases } =
            places;
        let mut words = vec![*control, *packet_epoch, *raw_epoch, *channels, *barriers, *semaphores, *listed];
        let slots = self.base_slots();
        for of in [|place: &(u64, u64)| place.0, |place: &(u64, u64)| place.1] {
            words.extend(bases.iter().map(of).chain(std::iter::repeat(0)).take(slots));
        }
        words.extend(&rows.words);
        words.resize(self.parameter_words(), 0);
        words
    }

    /// How many words [`parameters`](Self::parameters) gives: the size of the kernel's one parameter is eight times that.
    pub fn parameter_words(&self) -> usize {
        HEAD + 2 * self.base_slots() + self.word_slots()
    }

    /// The word of the parameter that says where base number `base` begins.
    pub fn base_word(&self, base: usize) -> usize {
        HEAD + base
    }

    /// Elements of the kernel's arrays: one at least.
    pub(super) fn base_slots(&self) -> usize {
        self.lowered.bases.len().max(1)
    }

    pub(super) fn word_slots(&self) -> usize {
        self.words.max(1)
    }

    pub(super) fn n_ranks(&self) -> u32 {
        self.n_ranks
    }

    pub(super) fn identity(&self) -> &str {
        &self.identity
    }

    pub(super) fn paths(&self) -> Result<Vec<Path<'_>>, PlanProblem> {
        paths::paths(&self.lowered)
    }

    fn for_each_step(&self, mut visit: impl FnMut(&Step)) {
        for step in self.lowered.blocks.iter().flat_map(|block| &block.steps) {
            visit(step);
            if let StepAction::Loop { body, .. } = &step.action {
                body.iter().for_each(&mut visit);
            }
        }
    }
}
