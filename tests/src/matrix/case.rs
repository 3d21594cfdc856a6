//! One call.

use warpway::collectives::{Algorithm, Function, Task, World};
use warpway::{DataType, PacketFormat, ReduceOp};

use super::mix;

/// Which memory the ranks give.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Memory {
    /// Slices.
    Slices,
    /// Memory of the communicator.
    Registered,
    /// Some ranks slices, others memory of the communicator.
    Mixed,
}

impl Memory {
    /// Every one.
    pub const ALL: [Self; 3] = [Self::Slices, Self::Registered, Self::Mixed];

    /// What this rank gives.
    pub(super) fn is_registered(self, rank: u32, seed: u64) -> bool {
        match self {
            Self::Slices => false,
            Self::Registered => true,
            Self::Mixed => (u64::from(rank) + seed).is_multiple_of(2),
        }
    }
}

/// One call, the same on all ranks.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    /// What computes it; `None` leaves it to the communicator.
    pub algorithm: Option<&'static Algorithm>,
    /// What is computed.
    pub function: Function,
    /// Of the elements.
    pub data_type: DataType,
    /// Of functions that fold.
    pub op: ReduceOp,
    /// Elements of what one rank contributes or gets; of functions with counts by rank, about so many.
    pub elements: u64,
    /// In one buffer.
    pub in_place: bool,
    /// Of functions that have one.
    pub root: u32,
    /// What buffers are.
    pub memory: Memory,
    /// If not what the communicator thinks best.
    pub blocks: Option<u32>,
    /// Of algorithms with packets.
    pub packets: PacketFormat,
    /// Parts lie anywhere, not one behind the other; of functions with counts by rank.
    pub displaced: bool,
    /// Makes data, counts and places.
    pub seed: u64,
}

impl Case {
    /// Sums of `int32` on slices.
    pub fn new(function: Function, elements: u64, seed: u64) -> Self {
        Self {
            algorithm: None,
            function,
            data_type: DataType::Int32,
            op: ReduceOp::Sum,
            elements,
            in_place: false,
            root: 0,
            memory: Memory::Slices,
            blocks: None,
            packets: PacketFormat::Ll16,
            displaced: false,
            seed,
        }
    }

    /// The same by an algorithm.
    pub fn by(self, algorithm: &'static Algorithm) -> Self {
        Self { algorithm: Some(algorithm), ..self }
    }

    /// What the algorithm's plan is built for.
    pub fn task(&self, world: &World) -> Task {
        Task {
            function: self.function,
            world: world.clone(),
            root: if self.function.is_rooted() { self.root } else { 0 },
            reduce_op: if self.function.reduces() { self.op } else { ReduceOp::Sum },
            in_place: self.in_place,
            n_blocks: self.blocks.unwrap_or(1),
            packet_blocks: 1,
        }
    }

    /// True if the algorithm, or any, takes it.
    pub fn fits(&self, world: &World) -> bool {
        let task = self.task(world);
        let fits =
            |algorithm: &Algorithm| algorithm.function == self.function && (algorithm.fits)(&task).is_ok();
        match self.algorithm {
            Some(algorithm) => fits(algorithm),
            None => warpway::collectives::catalogue().any(fits),
        }
    }

    /// Elements from a rank to a rank, of functions with counts by rank: none from or to some ranks.
    pub(super) fn count(&self, from: u32, to: u32) -> u64 {
        // In place what goes one way comes back the other.
        let (from, to) = if self.in_place { (from.min(to), from.max(to)) } else { (from, to) };
        let of = |salt: u64| mix(self.seed ^ salt, u64::from(from) << 32 | u64::from(to));
        let silent = |rank: u32, salt: u64| mix(self.seed ^ salt, u64::from(rank)).is_multiple_of(5);
        let none = of(1).is_multiple_of(5) || silent(from, 2) || silent(to, 3);
        if none { 0 } else { of(4) % (2 * self.elements + 1) }
    }
}

impl std::fmt::Display for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            function, data_type, op, elements, root, memory, blocks, packets, displaced, seed, ..
        } = self;
        let name = self.algorithm.map_or("(chosen)", |algorithm| algorithm.name);
        let place = if self.in_place { "in place" } else { "apart" };
        write!(
            f,
            "{function} by {name}: {elements} x {data_type}, {op}, root {root}, {place}, {memory:?}, blocks {blocks:?}, \
             {packets:?}, displaced {displaced}, seed {seed:#x}"
        )
    }
}
