//! Plans of the catalogue on GPUs: every algorithm that goes by memory channels and scratch, against the definition of its
//! function, between canaries, with fresh data at each launch.

use std::time::Instant;

use warpway::collectives::{Algorithm, Function, Task, World, catalogue};
use warpway::cuda::plan::{KernelSetting, Packet};
use warpway::cuda::{DeviceRange, GpuLaunch, GpuPlan, GpuPlanSetting, MessageBytes};
use warpway::plan::verify::VerifiedPlan;
use warpway::plan::{BufferKind, ChannelEntry, Plan};
use warpway::{
    Communicator, DataType, Error, Gpu, GpuBuffer, LaunchShape, Program, ReduceOp, Result, Stream,
};
use warpway_tests::matrix::{Case, Windows, mix};

use crate::ranks_channels::soon;
use crate::rig::{Ranks, rounds};

/// Elements of one rank's share: one, less than blocks, what neither units nor vectors divide, and 1 MiB and a bit.
const COUNTS: [u64; 7] = [1, 3, 29, 1000, 4097, 65_536, MEBIBYTE];
/// Stands for as many elements as make 1 MiB, and three.
const MEBIBYTE: u64 = u64::MAX;

/// Types with operators and packets.
const FORMATS: [(DataType, ReduceOp, Packet); 5] = [
    (DataType::Bfloat16, ReduceOp::Sum, Packet::LL16),
    (DataType::Float32, ReduceOp::Avg, Packet::LL8),
    (DataType::Int64, ReduceOp::Min, Packet::LL16),
    (DataType::Float8E4m3fn, ReduceOp::Sum, Packet::LL16),
    (DataType::Float16, ReduceOp::Max, Packet::Line),
];

const ROOTED: [Function; 5] =
    [Function::Broadcast, Function::Reduce, Function::Gather, Function::Scatter, Function::Barrier];

/// A plan that GPUs run today.
pub(crate) struct Proven {
    pub(crate) algorithm: &'static Algorithm,
    pub(crate) task: Task,
    pub(crate) plan: VerifiedPlan,
}

/// It goes by memory channels and scratch alone.
fn is_for_gpus(plan: &Plan) -> bool {
    plan.ranks.iter().all(|rank| {
        rank.remote_buffers.iter().all(|remote| remote.buffer == BufferKind::Scratch)
            && rank.channels.iter().all(|entry| matches!(entry, ChannelEntry::Memory(_)))
    })
}

/// All plans for `n` ranks with so many blocks and that operator.
pub(crate) fn proven(
    functions: &[Function],
    n: u32,
    (blocks, op): (u32, ReduceOp),
    places: &[bool],
) -> Vec<Proven> {
    let mut all = Vec::new();
    for algorithm in catalogue().filter(|algorithm| functions.contains(&algorithm.function)) {
        for in_place in places {
            let mut task = Task::new(algorithm.function, World::one_host(n)).with_blocks(blocks);
            task = task.with_packet_blocks(blocks);
            task.in_place = *in_place;
            if algorithm.function.is_rooted() {
                task = task.with_root(n - 1);
            }
            if algorithm.function.reduces() {
                task = task.with_op(op);
            }
            let Ok(plan) = algorithm.prove(&task) else { continue };
            if is_for_gpus(plan.plan()) {
                all.push(Proven { algorithm, task, plan });
            }
        }
    }
    all
}

impl Proven {
    fn case(&self, data_type: DataType, elements: u64, seed: u64) -> Case {
        let Task { function, root, reduce_op, in_place, .. } = self.task;
        let elements = if elements == MEBIBYTE { (1 << 20) / data_type.bytes() + 3 } else { elements };
        let case = Case::new(function, elements, seed).by(self.algorithm);
        Case { data_type, op: reduce_op, in_place, root, ..case }
    }

    /// Set up for messages of so many elements.
    fn prepare(&self, comm: &Communicator, format: (DataType, Packet), elements: u64) -> Result<GpuPlan> {
        let (data_type, packet) = format;
        let windows = Windows::new(&self.case(data_type, elements, 0), comm.rank(), comm.n_ranks());
        let largest = MessageBytes { input: windows.input.bytes as u64, output: windows.output.bytes as u64 };
        let setting = GpuPlanSetting { kernel: KernelSetting::new(data_type, packet), largest };
        comm.gpu()?.plans().prepare(&self.plan, setting)
    }

    fn name(&self) -> String {
        let place = if self.task.in_place { "in place" } else { "apart" };
        format!("{} by {}, {place}, {} blocks", self.task.function, self.algorithm.name, self.task.n_blocks)
    }
}

/// Device memory of a rank, for one case after the other.
struct Stage {
    gpu: Gpu,
    stream: Stream,
    buffers: Vec<GpuBuffer<u8>>,
}

impl Stage {
    /// With room for every case: whoever allocates later may wait for kernels of ranks that wait for this one.
    fn new(comm: &Communicator) -> Result<Self> {
        let gpu = comm.gpu()?;
        let room = u64::from(comm.n_ranks()) * ((1 << 20) + 64) + 4096;
        let buffers = vec![gpu.alloc(room)?, gpu.alloc(room)?];
        Ok(Self { stream: gpu.stream()?, buffers, gpu })
    }

    /// Fills buffers with what a case begins with; the input and the output in them.
    fn fill(&mut self, windows: &Windows) -> Result<[DeviceRange; 2]> {
        for (at, window) in windows.all.iter().enumerate() {
            self.buffers[at].write(0, &window.before)?;
        }
        let range = |place: warpway_tests::matrix::Place| {
            DeviceRange::of(&self.buffers[place.window], place.start as u64, place.bytes as u64)
        };
        Ok([range(windows.input), range(windows.output)])
    }

    /// One launch, and what is wrong with the result.
    fn run(&mut self, plan: &GpuPlan, windows: &Windows) -> Result<Option<String>> {
        let [input, output] = self.fill(windows)?;
        // SAFETY: both lie in the buffers, which nobody else touches until they are read below.
        unsafe { plan.launch(&GpuLaunch { input, output, stream: &self.stream })? };
        self.gpu.synchronize(&self.stream, soon())?;
        for (at, window) in windows.all.iter().enumerate() {
            let mut found = vec![0; window.after.len()];
            self.buffers[at].read(0, &mut found)?;
            if let Some(wrong) = window.difference(windows.name(at), &found) {
                return Ok(Some(wrong));
            }
        }
        Ok(None)
    }
}

/// Readers of this plan, or of this size, do not divide data as writers do.
fn without_lines(error: &Error) -> bool {
    error.to_string().contains("use LL16 packets")
}

/// Every plan with two of the formats, or one where there are many ranks: each format meets every kind of plan.
fn matrix(comm: &Communicator, functions: &[Function]) -> Result<()> {
    let (me, n) = (comm.rank(), comm.n_ranks());
    let mut stage = Stage::new(comm)?;
    let (mut plans, mut launches, mut prepared) = (0u64, 0u64, Vec::new());
    let begin = Instant::now();
    let mut wrong = Vec::new();
    for (number, (data_type, op, packet)) in FORMATS.into_iter().enumerate() {
        let blocks = [1, 4][number % 2];
        let proven = proven(functions, n, (blocks, op), &[false, true]);
        for (at, proven) in proven.iter().enumerate() {
            // Each takes its time to compile.
            let turn = (at + number) % FORMATS.len();
            if turn != 0 && (n > 2 || turn != 2) {
                continue;
            }
            let before = Instant::now();
            let plan = match proven.prepare(comm, (data_type, packet), MEBIBYTE) {
                // The same on all ranks.
                Err(error) if without_lines(&error) => continue,
                plan => plan?,
            };
            prepared.push(before.elapsed());
            plans += 1;
            for (turn, count) in (0..).zip(COUNTS.into_iter().chain(COUNTS.into_iter().rev())) {
                let case = proven.case(data_type, count, 77 + turn);
                let windows = Windows::new(&case, me, n);
                let failed = match stage.run(&plan, &windows) {
                    Err(error) if without_lines(&error) => continue,
                    failed => failed.inspect_err(|error| {
                        eprintln!("rank {me} of {n}: {}, {case}: {error}", proven.name());
                    })?,
                };
                launches += 1;
                wrong.extend(
                    failed.map(|what| format!("rank {me} of {n}: {}, {case}: {what}", proven.name())),
                );
            }
        }
    }
    comm.barrier()?;
    prepared.sort();
    let median = prepared.get(prepared.len() / 2).copied().unwrap_or_default();
    if me == 0 {
        println!(
            "{{\"plans\": {plans}, \"ranks\": {n}, \"launches\": {launches}, \"wrong\": {}, \"prepare_ms_median\": {}, \
             \"seconds\": {:.1}, \"first\": \"{}\"}}",
            wrong.len(),
            median.as_millis(),
            begin.elapsed().as_secs_f64(),
            functions[0]
        );
    }
    wrong.truncate(20);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(plans > 0 || n > 2, "no plan of {functions:?} for {n} ranks");
    Ok(())
}

/// A thousand launches of plans that share scratch, drawn at random, eager and from graphs, with other data each time and without
/// the host waiting in between.
fn sequence(comm: &Communicator) -> Result<()> {
    let (me, n, gpu) = (comm.rank(), comm.n_ranks(), comm.gpu()?);
    let (data_type, counts, inputs) = (DataType::Int32, [1u64, 29, 1003, 65_539], 7u64);
    let longest = 65_539;
    let mut all = Vec::new();
    for blocks in [1, 4] {
        all.extend(proven(&[Function::AllReduce], n, (blocks, ReduceOp::Sum), &[false]));
    }
    assert!(!all.is_empty());
    let plans: Vec<GpuPlan> =
        all.iter().map(|p| p.prepare(comm, (data_type, Packet::LL16), longest)).collect::<Result<_>>()?;
    let stream = gpu.stream()?;
    let (input, output) = (gpu.alloc::<i32>(longest)?, gpu.alloc::<i32>(longest)?);
    // The inputs that launches are given one after the other, and what they come to.
    let case = |which: u64| all[0].case(data_type, longest, 500 + which);
    let (mut staged, mut expected) = (Vec::new(), Vec::new());
    for which in 0..inputs {
        let windows = Windows::new(&case(which), me, n);
        let of = |bytes: &[u8], place: warpway_tests::matrix::Place| -> Vec<i32> {
            let part = bytes[place.start..place.start + place.bytes].chunks_exact(4);
            part.map(|word| i32::from_le_bytes(word.try_into().unwrap())).collect()
        };
        let stage = gpu.alloc::<i32>(longest)?;
        stage.write(0, &of(&windows.all[0].before, windows.input))?;
        staged.push(stage);
        expected.push(of(&windows.all[1].after, windows.output));
    }
    let launch = |plan: &GpuPlan, count: u64| {
        let (input, output) = (DeviceRange::of(&input, 0, count), DeviceRange::of(&output, 0, count));
        // SAFETY: within the buffers, which only work of the stream touches.
        unsafe { plan.launch(&GpuLaunch { input, output, stream: &stream }) }
    };
    let mut graphs = Vec::new();
    for plan in &plans {
        for count in counts {
            graphs.push(gpu.capture(&stream, || launch(plan, count))?);
        }
    }
    let turns = rounds(1000);
    let draw = |turn: u64| {
        let drawn = mix(0x5e9, turn);
        let (plan, count) = (drawn % plans.len() as u64, drawn >> 16 & 3);
        (plan as usize, count as usize, drawn >> 32 & 3 != 0, (drawn >> 40) % inputs)
    };
    // What each turn has come to.
    let lengths: Vec<u64> = (0..turns).map(|turn| counts[draw(turn).1]).collect();
    let log = gpu.alloc::<i32>(lengths.iter().sum())?;
    comm.barrier()?;
    let begin = Instant::now();
    let mut at = 0;
    for turn in 0..turns {
        let (plan, count, replayed, which) = draw(turn);
        let length = counts[count];
        let copy = |to: u64, from: u64| {
            // SAFETY: as many elements as there are at both places, in the order of the stream.
            unsafe { warpway::cuda::copy(&stream, to, from, length * 4) }
        };
        copy(input.address(), staged[which as usize].address())?;
        if replayed {
            graphs[plan * counts.len() + count].launch(&stream)?;
        } else {
            launch(&plans[plan], length)?;
        }
        copy(log.address() + at * 4, output.address())?;
        at += length;
    }
    gpu.synchronize(&stream, soon())?;
    let seconds = begin.elapsed().as_secs_f64();
    let (found, mut at) = (log.to_vec()?, 0);
    for turn in 0..turns {
        let (plan, count, replayed, which) = draw(turn);
        let length = counts[count] as usize;
        let (found, expected) = (&found[at..at + length], &expected[which as usize][..length]);
        let name = all[plan].name();
        assert!(found == expected, "rank {me}, turn {turn}: {name}, {length} elements, replayed: {replayed}");
        at += length;
    }
    if me == 0 {
        println!(
            "{{\"sequence\": {turns}, \"ranks\": {n}, \"plans\": {}, \"graphs\": {}, \"seconds\": {seconds:.3}}}",
            plans.len(),
            graphs.len()
        );
    }
    comm.barrier()
}

/// Floats whose sums depend on the order: all ranks hold the same bits, and those of the host's engine.
fn bits(comm: &Communicator) -> Result<()> {
    let (me, n) = (comm.rank(), comm.n_ranks());
    let gpu = comm.gpu()?;
    let stream = gpu.stream()?;
    let count = 4097u64;
    let mut compared = 0;
    for (data_type, op) in [(DataType::Float32, ReduceOp::Sum), (DataType::Bfloat16, ReduceOp::Avg)] {
        let functions = [Function::AllReduce, Function::ReduceScatter, Function::Reduce];
        for proven in proven(&functions, n, (4, op), &[false]) {
            let windows = Windows::new(&proven.case(data_type, count, 0), me, n);
            let [inputs, outputs] = [windows.input.bytes as u64, windows.output.bytes as u64];
            let size = data_type.bytes();
            // Numbers of either sign between 2^-4 and 2^4, of any mantissa.
            let number = |at: u64| {
                let mixed = mix(0xb175 + u64::from(me), at);
                let exponent = 123 + (mixed >> 40) as u32 % 8;
                (mixed as u32 & 0x807f_ffff) | exponent << 23
            };
            let of_bits = |bits: u32| match size {
                4 => bits.to_le_bytes().to_vec(),
                _ => bits.to_le_bytes()[2..].to_vec(),
            };
            let given: Vec<u8> = (0..inputs / size).flat_map(|at| of_bits(number(at))).collect();
            let mut on_host = vec![0u8; outputs as usize];
            let host = comm.prepare(&proven.plan)?;
            host.run(&warpway::PlanLaunch::new(&given[..], &mut on_host[..], data_type))?;
            let (input, output) = (gpu.alloc::<u8>(inputs.max(1))?, gpu.alloc::<u8>(outputs.max(1))?);
            // Its end is the same for all: nobody allocates any more when the first one launches.
            let plan = proven.prepare(comm, (data_type, Packet::LL16), count)?;
            input.write(0, &given)?;
            let launch = GpuLaunch {
                input: DeviceRange::of(&input, 0, inputs),
                output: DeviceRange::of(&output, 0, outputs),
                stream: &stream,
            };
            // SAFETY: the buffers live until the stream has been waited for.
            unsafe { plan.launch(&launch)? };
            gpu.synchronize(&stream, soon())?;
            let mut found = vec![0; outputs as usize];
            output.read(0, &mut found)?;
            let wrong = found.iter().zip(&on_host).position(|(found, expected)| found != expected);
            assert!(wrong.is_none(), "rank {me}: {}, {data_type:?}: byte {wrong:?}", proven.name());
            if proven.task.function == Function::AllReduce {
                let digest = found.iter().fold(7u64, |digest, byte| mix(digest, u64::from(*byte)));
                let mut all = vec![0u8; 8 * n as usize];
                all[8 * me as usize..][..8].copy_from_slice(&digest.to_le_bytes());
                let bootstrap = comm.core().bootstrap();
                warpway::Bootstrap::all_gather(&**bootstrap, &mut all, 8, soon())?;
                assert!(all.chunks_exact(8).all(|one| one == digest.to_le_bytes()), "{}", proven.name());
            }
            compared += 1;
        }
    }
    if me == 0 {
        println!("{{\"same_bits\": {compared}, \"ranks\": {n}}}");
    }
    comm.barrier()
}

/// What a launch costs the host: of a plan, of an empty kernel that takes turns, and of one that the driver is just given.
fn cost(comm: &Communicator) -> Result<()> {
    const LAUNCHES: u32 = 200;
    let (me, n, gpu) = (comm.rank(), comm.n_ranks(), comm.gpu()?);
    let stream = gpu.stream()?;
    let empty =
        gpu.load(&Program::new("empty.cu", "extern \"C\" __global__ void empty() {}").kernel("empty"))?;
    let (empty, shape) = (empty.kernel("empty")?, LaunchShape::new(1, 32));
    let (input, output) = (gpu.alloc::<u8>(1024)?, gpu.alloc::<u8>(1024)?);
    let proven = proven(&[Function::AllReduce], n, (1, ReduceOp::Sum), &[false]);
    let count = 256;
    let plans: Vec<GpuPlan> = proven
        .iter()
        .map(|proven| proven.prepare(comm, (DataType::Float32, Packet::LL16), count))
        .collect::<Result<_>>()?;
    let launch = GpuLaunch {
        input: DeviceRange::of(&input, 0, 4 * count),
        output: DeviceRange::of(&output, 0, 4 * count),
        stream: &stream,
    };
    let time = |launch: &dyn Fn() -> Result<()>| -> Result<(f64, f64)> {
        let each = |begin: Instant| begin.elapsed().as_secs_f64() * 1e6 / f64::from(LAUNCHES);
        let mut best = (f64::MAX, f64::MAX);
        for _ in 0..10 {
            comm.barrier()?;
            let begin = Instant::now();
            for _ in 0..LAUNCHES {
                launch()?;
            }
            let host = each(begin);
            gpu.synchronize(&stream, soon())?;
            best = (best.0.min(host), best.1.min(each(begin)));
        }
        Ok(best)
    };
    // SAFETY: without parameters.
    let plain = time(&|| Ok(unsafe { empty.launch(&stream, shape, &()) }?))?;
    // SAFETY: as above.
    let in_turn = time(&|| unsafe { gpu.launch(&empty, shape, (), &stream) })?;
    let mut all = Vec::new();
    for (proven, plan) in proven.iter().zip(&plans) {
        // SAFETY: the buffers live until the stream has been waited for.
        all.push((proven.algorithm.name, time(&|| unsafe { plan.launch(&launch) })?));
    }
    if me == 0 {
        for (name, (host, whole)) in
            [("empty kernel", plain), ("empty kernel in turn", in_turn)].into_iter().chain(all)
        {
            println!(
                "{{\"launch\": \"{name}\", \"ranks\": {n}, \"host_us\": {host:.3}, \"us\": {whole:.3}}}"
            );
        }
    }
    comm.barrier()
}

fn all_reduce(comm: &Communicator) -> Result<()> {
    matrix(comm, &[Function::AllReduce])
}

fn all_gather(comm: &Communicator) -> Result<()> {
    matrix(comm, &[Function::AllGather])
}

fn reduce_scatter(comm: &Communicator) -> Result<()> {
    matrix(comm, &[Function::ReduceScatter])
}

fn all_to_all(comm: &Communicator) -> Result<()> {
    matrix(comm, &[Function::AllToAll])
}

fn rooted(comm: &Communicator) -> Result<()> {
    matrix(comm, &ROOTED)
}

/// Tests of a number of ranks, as threads or as processes.
macro_rules! of_ranks {
    ($($name:ident: $count:literal $how:ident [$($test:ident),*];)*) => { $(
        mod $name {
            $(
                #[test]
                #[ignore = "needs a GPU: cargo xtask gpu-bundle"]
                fn $test() {
                    super::Ranks::new($count).$how(super::$test);
                }
            )*
        }
    )* };
}

of_ranks! {
    two_threads: 2 threads [all_reduce, all_gather, reduce_scatter, all_to_all, rooted, sequence, bits, cost];
    two_processes: 2 processes [all_reduce, all_gather, reduce_scatter, all_to_all, rooted, sequence, cost];
    three_threads: 3 threads [all_reduce, all_gather, reduce_scatter, all_to_all, rooted, sequence, bits];
    four_threads: 4 threads [all_reduce, all_gather, reduce_scatter, all_to_all, rooted, sequence, bits];
    four_processes: 4 processes [all_reduce, sequence, bits];
    eight_threads: 8 threads [all_reduce, all_gather, reduce_scatter, all_to_all, sequence, bits];
    eight_processes: 8 processes [all_reduce];
}
