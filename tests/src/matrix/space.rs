//! All cases, and a sample of them.

use std::collections::HashSet;

use warpway::collectives::{Algorithm, Function, World, catalogue};
use warpway::{DataType, PacketFormat, ReduceOp};

use super::case::{Case, Memory};
use super::mix;

/// What the ranks of a communicator are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ranks {
    /// Threads of the test's process.
    Threads,
    /// Processes.
    Processes,
}

/// What the ranks are and where.
#[derive(Debug, Clone)]
pub struct Setting {
    /// Threads or processes.
    pub ranks: Ranks,
    /// The host of each rank.
    pub hosts: Vec<u32>,
}

impl Setting {
    /// The same as algorithms see it.
    pub fn world(&self) -> World {
        World::by_host(&self.hosts)
    }
}

impl std::fmt::Display for Setting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} on hosts {:?}", self.ranks, self.hosts)
    }
}

/// Every one: 1 to 8 ranks as threads and as processes on one host; 2 to 8 ranks on several hosts, as many on each and
/// not, next to each other and in turns.
pub fn settings() -> Vec<Setting> {
    let one_host = |ranks| (1..=8).map(move |n| Setting { ranks, hosts: vec![0; n] });
    let several: [(Ranks, &[u32]); 13] = [
        (Ranks::Threads, &[0, 1]),
        (Ranks::Threads, &[0, 0, 1]),
        (Ranks::Threads, &[0, 1, 1, 1]),
        (Ranks::Threads, &[0, 0, 1, 1]),
        (Ranks::Threads, &[0, 1, 0, 1]),
        (Ranks::Threads, &[0, 0, 1, 1, 2]),
        (Ranks::Threads, &[0, 0, 0, 1, 1, 1]),
        (Ranks::Threads, &[0, 0, 0, 0, 0, 1, 1]),
        (Ranks::Threads, &[0, 0, 0, 0, 1, 1, 1, 1]),
        (Ranks::Processes, &[0, 1]),
        (Ranks::Processes, &[0, 1, 1]),
        (Ranks::Processes, &[0, 0, 1, 1]),
        (Ranks::Processes, &[0, 0, 1, 1, 2, 2]),
    ];
    let several = several.map(|(ranks, hosts)| Setting { ranks, hosts: hosts.into() });
    one_host(Ranks::Threads).chain(one_host(Ranks::Processes)).chain(several).collect()
}

const OPS: [ReduceOp; 5] = [ReduceOp::Sum, ReduceOp::Min, ReduceOp::Max, ReduceOp::Prod, ReduceOp::Avg];
const PACKETS: [PacketFormat; 2] = [PacketFormat::Ll16, PacketFormat::Ll8];
const BLOCKS: [Option<u32>; 4] = [None, Some(1), Some(2), Some(3)];

/// Elements of what a rank contributes or gets, where n ranks take part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Size {
    /// So many.
    Elements(u64),
    /// As many as ranks, and so many more.
    Ranks(i64),
    /// So many bytes and three elements, all ranks together.
    Bytes(u64),
}

/// Those of the matrix.
pub const SIZES: [Size; 14] = [
    Size::Elements(0),
    Size::Elements(1),
    Size::Elements(2),
    Size::Ranks(-1),
    Size::Ranks(0),
    Size::Ranks(1),
    Size::Elements(7),
    Size::Elements(63),
    Size::Elements(64),
    Size::Elements(65),
    Size::Elements(1023),
    Size::Elements(4099),
    Size::Elements(65_537),
    Size::Bytes(1 << 20),
];

impl Size {
    fn elements(self, function: Function, data_type: DataType, n: u32) -> u64 {
        let n = u64::from(n);
        let is_shared = !matches!(function, Function::AllReduce | Function::Broadcast | Function::Reduce);
        match self {
            Self::Ranks(more) => n.saturating_add_signed(more),
            Self::Elements(65_537) if is_shared => 65_537 / n + 1,
            Self::Elements(elements) => elements,
            Self::Bytes(bytes) if is_shared => bytes / data_type.bytes() / n + 3,
            Self::Bytes(bytes) => bytes / data_type.bytes() + 3,
        }
    }

    /// Small enough for the full product.
    fn is_small(self) -> bool {
        !matches!(self, Self::Elements(65_537) | Self::Bytes(_))
    }
}

/// A case by its place in each dimension.
#[derive(Debug, Clone, Copy)]
struct Point {
    setting: u16,
    algorithm: u16,
    data_type: u16,
    op: u16,
    size: u16,
    in_place: u16,
    memory: u16,
    root: u16,
    blocks: u16,
    packets: u16,
    displaced: u16,
}

const DIMENSIONS: usize = 11;

impl Point {
    fn from_places(places: [u16; DIMENSIONS]) -> Self {
        let [setting, algorithm, data_type, op, size, in_place, memory, root, blocks, packets, displaced] =
            places;
        Self { setting, algorithm, data_type, op, size, in_place, memory, root, blocks, packets, displaced }
    }
}

/// The dimensions.
struct Space {
    settings: Vec<(Setting, World)>,
    algorithms: Vec<&'static Algorithm>,
}

impl Space {
    fn new() -> Self {
        let settings = settings().into_iter().map(|setting| (setting.clone(), setting.world())).collect();
        Self { settings, algorithms: catalogue().collect() }
    }

    /// How many values each dimension has.
    fn extents(&self) -> [u16; DIMENSIONS] {
        let (settings, algorithms) = (self.settings.len() as u16, self.algorithms.len() as u16);
        [settings, algorithms, DataType::ALL.len() as u16, 5, SIZES.len() as u16, 2, 3, 8, 4, 2, 2]
    }

    fn case(&self, point: &Point, seed: u64) -> Case {
        let algorithm = self.algorithms[usize::from(point.algorithm)];
        let (function, data_type) = (algorithm.function, DataType::ALL[usize::from(point.data_type)]);
        let n = self.settings[usize::from(point.setting)].1.n_ranks();
        Case {
            algorithm: Some(algorithm),
            function,
            data_type,
            op: OPS[usize::from(point.op)],
            elements: SIZES[usize::from(point.size)].elements(function, data_type, n),
            in_place: point.in_place == 1,
            root: u32::from(point.root),
            memory: Memory::ALL[usize::from(point.memory)],
            blocks: BLOCKS[usize::from(point.blocks)],
            packets: PACKETS[usize::from(point.packets)],
            displaced: point.displaced == 1,
            seed,
        }
    }

    /// The places that mean something: there is no operator where nothing is folded, and the like. `None` if the
    /// algorithm does not take the case.
    fn meaning(&self, point: &Point) -> Option<Places> {
        let algorithm = self.algorithms[usize::from(point.algorithm)];
        let (function, world) = (algorithm.function, &self.settings[usize::from(point.setting)].1);
        if u32::from(point.root) >= world.n_ranks() || !self.case(point, 0).fits(world) {
            return None;
        }
        let has_data = function != Function::Barrier;
        let places = [
            (true, point.setting),
            (true, point.algorithm),
            (has_data, point.data_type),
            (function.reduces(), point.op),
            (has_data, point.size),
            (has_data, point.in_place),
            (has_data, point.memory),
            (function.is_rooted(), point.root),
            (true, point.blocks),
            (algorithm.traits.packets, point.packets),
            (function.is_sized(), point.displaced),
        ];
        let meant = (0..).zip(places).filter(|(_, (means, _))| *means);
        Some(meant.map(|(dimension, (_, place))| (dimension, place)).collect())
    }
}

/// Dimensions, ascending, and places in them.
type Places = Vec<(u8, u16)>;
type Pair = ((u8, u16), (u8, u16));

fn pairs(places: &[(u8, u16)]) -> impl Iterator<Item = Pair> + '_ {
    places.iter().enumerate().flat_map(|(at, a)| places[at + 1..].iter().map(move |b| (*a, *b)))
}

/// Cases in which every pair of values of any two dimensions occurs that occurs at all, by setting.
pub fn sample(seed: u64) -> Vec<(Setting, Vec<Case>)> {
    let space = Space::new();
    let extents = space.extents();
    let mut covered: HashSet<Pair> = HashSet::new();
    let mut cases: Vec<Vec<Case>> = vec![Vec::new(); space.settings.len()];
    let mut draws = 0u64;
    let mut draw = |below: u16| {
        draws += 1;
        (mix(seed, draws) >> 32) as u16 % below
    };
    for a in 0..DIMENSIONS {
        for b in a + 1..DIMENSIONS {
            for (x, y) in (0..extents[a]).flat_map(|x| (0..extents[b]).map(move |y| (x, y))) {
                if covered.contains(&((a as u8, x), (b as u8, y))) {
                    continue;
                }
                // Of a few points with this pair that which has the most new pairs.
                let mut best: Option<(usize, Point, Places)> = None;
                let mut found = 0;
                for _ in 0..500 {
                    let mut places = extents.map(&mut draw);
                    (places[a], places[b]) = (x, y);
                    let point = Point::from_places(places);
                    let Some(meant) = space.meaning(&point) else { continue };
                    if !meant.contains(&(a as u8, x)) || !meant.contains(&(b as u8, y)) {
                        continue;
                    }
                    let new = pairs(&meant).filter(|pair| !covered.contains(pair)).count();
                    if best.as_ref().is_none_or(|(most, ..)| new > *most) {
                        best = Some((new, point, meant));
                    }
                    found += 1;
                    if found == 6 {
                        break;
                    }
                }
                if let Some((_, point, meant)) = best {
                    covered.extend(pairs(&meant));
                    let of_setting = &mut cases[usize::from(point.setting)];
                    of_setting.push(space.case(&point, mix(seed, 1 << 40 | covered.len() as u64)));
                }
            }
        }
    }
    space.settings.into_iter().map(|(setting, _)| setting).zip(cases).collect()
}

/// The whole product on one setting, by algorithm: types, operators, places, roots and sizes. The first root with each kind
/// of memory, the others and the two largest sizes with one after the other; blocks, packets and places of parts, too, come
/// in turn.
pub fn product(setting: &Setting, seed: u64) -> Vec<(&'static Algorithm, Vec<Case>)> {
    let world = setting.world();
    let n = world.n_ranks();
    let mut all = Vec::new();
    for algorithm in catalogue() {
        let function = algorithm.function;
        let mut cases = Vec::new();
        let ops = if function.reduces() { &OPS[..] } else { &OPS[..1] };
        let roots = if function.is_rooted() { n } else { 1 };
        let mut turn = mix(seed, u64::from(n)) as usize % 12;
        for data_type in DataType::ALL {
            for op in ops {
                for (in_place, root) in
                    [false, true].into_iter().flat_map(|p| (0..roots).map(move |r| (p, r)))
                {
                    let case = Case {
                        data_type,
                        op: *op,
                        in_place,
                        root,
                        ..Case::new(function, 0, 0).by(algorithm)
                    };
                    if !case.fits(&world) {
                        continue;
                    }
                    // So that what comes in turn does not stay in step with the sizes.
                    turn += 1;
                    for size in SIZES {
                        for memory in Memory::ALL {
                            turn += 1;
                            // Other roots and the largest sizes: one kind of memory after the other.
                            let is_rare = u64::from(root > 0) + 2 * u64::from(!size.is_small());
                            if !turn.is_multiple_of([1, 3, 3, 9][is_rare as usize]) {
                                continue;
                            }
                            let blocks = BLOCKS[turn / 3 % BLOCKS.len()];
                            let packets = PACKETS[turn / 5 % 2];
                            let (displaced, elements) =
                                (turn % 2 == 1, size.elements(function, data_type, n));
                            let seed = mix(seed, turn as u64);
                            let case = Case { memory, blocks, packets, displaced, elements, seed, ..case };
                            if case.fits(&world) {
                                cases.push(case);
                            }
                        }
                    }
                }
            }
            if function == Function::Barrier {
                break;
            }
        }
        if !cases.is_empty() {
            all.push((algorithm, cases));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of pairs that a random point has, all are in the sample.
    #[test]
    fn every_pair_that_there_is_is_in_the_sample() {
        let space = Space::new();
        let sample = sample(1);
        let mut covered = HashSet::new();
        let place = |at: Option<usize>| at.unwrap() as u16;
        for (setting, (_, cases)) in (0..).zip(&sample) {
            for case in cases {
                let algorithm = case.algorithm.unwrap();
                let n = space.settings[usize::from(setting)].1.n_ranks();
                let same_size =
                    |size: &Size| size.elements(case.function, case.data_type, n) == case.elements;
                let point = Point {
                    setting,
                    algorithm: place(
                        space.algorithms.iter().position(|other| std::ptr::eq(*other, algorithm)),
                    ),
                    data_type: place(DataType::ALL.iter().position(|other| *other == case.data_type)),
                    op: place(OPS.iter().position(|other| *other == case.op)),
                    size: place(SIZES.iter().position(same_size)),
                    in_place: u16::from(case.in_place),
                    memory: place(Memory::ALL.iter().position(|other| *other == case.memory)),
                    root: case.root as u16,
                    blocks: place(BLOCKS.iter().position(|other| *other == case.blocks)),
                    packets: place(PACKETS.iter().position(|other| *other == case.packets)),
                    displaced: u16::from(case.displaced),
                };
                // Several sizes may be one number of elements.
                for (size, other) in (0..).zip(SIZES) {
                    if same_size(&other) {
                        covered.extend(pairs(&space.meaning(&Point { size, ..point }).unwrap()));
                    }
                }
            }
        }
        let extents = space.extents();
        let mut missing = HashSet::new();
        for turn in 0..40_000u64 {
            let mut at = 0;
            let places = extents.map(|below| {
                at += 1;
                (mix(77, turn * 16 + at) >> 32) as u16 % below
            });
            let meant = space.meaning(&Point::from_places(places)).unwrap_or_default();
            missing.extend(pairs(&meant).filter(|pair| !covered.contains(pair)));
        }
        assert_eq!(missing, HashSet::new());
        let cases: usize = sample.iter().map(|(_, cases)| cases.len()).sum();
        println!("{cases} cases, {} pairs", covered.len());
        assert!(sample.iter().all(|(_, cases)| !cases.is_empty()));
    }
}
