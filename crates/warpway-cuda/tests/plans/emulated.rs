//! The text of the kernels, compiled by a host C++ compiler: ranks and blocks are threads, a block has one thread.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};

use libloading::Library;
use warpway_collectives::{Function, device_catalogue};
use warpway_cuda::plan::{KernelForm, KernelSetting, LaunchPlaces, Packet, PlanKernel};
use warpway_plan::{BufferKind, DataType, Form, Geometry, LayoutRequest, MessageSizes, Topology, Via};

use super::{Case, cases, host_compiler, shape};

const PACKET: Packet = Packet::LL16;
const LAUNCHES: u64 = 5;
const CANARY: i32 = -77;
/// Elements of canaries on each side.
const GUARD: usize = 8;

type Run = unsafe extern "C" fn(*const u64, u32, u32, u32);

/// Sources that may stand in one file: each in a namespace, with an entry of a name of its own.
fn unit(kernels: &[(String, String)]) -> String {
    let mut text = String::from(
        "#include <warpway/plan.cuh>\n#include <sched.h>\nusing namespace warpway;\n\
         static void warpway_yield() { sched_yield(); }\n",
    );
    for (name, source) in kernels {
        let body = source
            .replace("#include <warpway/plan.cuh>\n", "")
            .replace("warpway_plan(", &format!("kernel_{name}("));
        text += &format!(
            "namespace of_{name} {{\n{body}\n\
             extern \"C\" void run_{name}(const u64* words, u32 block, u32 blocks, u32) {{\n\
               Launch launch;\n\
               std::memcpy(&launch, words, sizeof launch);\n\
               host_thread = 0, host_threads = 1, host_block = block, host_blocks = blocks;\n\
               host_wait = warpway_yield;\n\
               kernel_{name}(launch);\n\
             }}\n}}\n"
        );
    }
    text
}

/// A rank's memory for one plan.
struct Rank {
    raw: Vec<u64>,
    packets: Vec<u64>,
    /// Packets, raw.
    epochs: [u64; 2],
    /// By channel: what the peer raises, tickets.
    tokens: Vec<[u64; 2]>,
    /// Generation, arrivals, and the site: control, peer and object.
    barriers: Vec<[u64; 4]>,
}

#[derive(Clone, Copy)]
struct Shared(*const Rank);
// SAFETY: threads reach what it points to by addresses in the words of launches, as kernels would.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

fn value(launch: u64, rank: u64, at: u64) -> i32 {
    (launch * 1009 + rank * 131 + at * 7 + 1) as i32 % 10_000
}

/// The element at `at` of the output of `rank`.
fn expected(function: Function, launch: u64, n: u64, count: u64, rank: u64, at: u64) -> Option<i32> {
    let sum = |at: u64| (0..n).map(|q| value(launch, q, at)).sum();
    let root = n - 1;
    match function {
        Function::AllReduce => Some(sum(at)),
        Function::AllGather => Some(value(launch, at / count, at % count)),
        Function::ReduceScatter => Some(sum(rank * count + at)),
        Function::AllToAll => Some(value(launch, at / count, rank * count + at % count)),
        Function::Broadcast => Some(value(launch, root, at)),
        Function::Reduce => (rank == root).then(|| sum(at)),
        Function::Gather => (rank == root).then(|| value(launch, at / count, at % count)),
        Function::Scatter => Some(value(launch, root, rank * count + at)),
        _ => None,
    }
}

fn play(case: &Case, kernels: &[PlanKernel], form: KernelForm, runs: &[Run], count: u64) {
    let function = case.algorithm.function;
    let what = format!("{:?}, in place {}, {count} elements", case.algorithm, case.task.in_place);
    let plan = case.plan.plan();
    let n = u64::from(plan.n_ranks());
    let geometry = Geometry::new(plan);
    let topology = Topology::new(plan);
    let shape_of = |rank: u64| shape(function, n, count, rank == n - 1);
    let layout = |rank: u64| {
        let (input, output) = shape_of(rank);
        geometry.layout(&LayoutRequest {
            sizes: MessageSizes::Message {
                rank: rank as u32,
                input_bytes: 4 * input,
                output_bytes: 4 * output,
            },
            element_size: 4,
            packet_payload: PACKET.payload(),
        })
    };
    // Rooted functions: the root knows.
    let Ok(layout) = layout(n - 1) else { return };
    if layout.has_empty_chunks() {
        return;
    }
    let all_rows: Vec<_> = kernels.iter().map(|kernel| kernel.rows(&layout).unwrap()).collect();
    if form == KernelForm::Fitted && all_rows.iter().any(|rows| rows.listed.is_some()) {
        return;
    }
    let double = if geometry.double_scratch() { 2 } else { 1 };
    let mut ranks: Vec<Rank> = (0..n as u32)
        .map(|rank| {
            let area = geometry.area(rank, layout.chunk_bytes()).unwrap();
            let words = |bytes: u64| vec![0u64; (bytes * double) as usize / 8 + 2];
            Rank {
                raw: words(area.raw),
                packets: words(area.packets),
                epochs: [0; 2],
                tokens: vec![[0; 2]; topology.rank(rank).unwrap().links(Via::Memory).len()],
                barriers: vec![[0; 4]; kernels[rank as usize].barriers() as usize],
            }
        })
        .collect();
    let aligned = |words: &mut Vec<u64>| (words.as_mut_ptr() as u64).next_multiple_of(16);
    let scratch: Vec<[u64; 2]> =
        ranks.iter_mut().map(|rank| [aligned(&mut rank.raw), aligned(&mut rank.packets)]).collect();
    let token = |rank: u32, channel: u32| -> u64 {
        ranks[rank as usize].tokens.as_ptr().wrapping_add(channel as usize) as u64
    };
    let channels: Vec<Vec<[u64; 5]>> = (0..n as u32)
        .map(|rank| {
            let links = topology.rank(rank).unwrap().links(Via::Memory);
            (0..)
                .zip(links)
                .map(|(channel, link)| {
                    let partner = topology.partner(rank, Via::Memory, channel).unwrap();
                    let own = token(rank, channel);
                    [own, token(link.peer, partner), own + 8, 0, 0]
                })
                .collect()
        })
        .collect();
    // Inputs and outputs of all launches, filled before: ranks run ahead of each other.
    let in_place = case.task.in_place;
    let length = |elements: u64| elements as usize + 2 * GUARD;
    let mut buffers: Vec<Vec<[Vec<i32>; 2]>> = (0..n)
        .map(|rank| {
            let (input, output) = shape_of(rank);
            let one = |launch: u64| {
                let mut buffers = [vec![CANARY; length(input)], vec![CANARY; length(output)]];
                let in_output = in_place
                    && matches!(
                        function,
                        Function::AllGather
                            | Function::Gather
                            | Function::AllReduce
                            | Function::AllToAll
                            | Function::Broadcast
                            | Function::Reduce
                    )
                    && output > 0;
                let offset = match function {
                    Function::AllGather | Function::Gather => rank * count,
                    _ => 0,
                };
                for at in 0..input {
                    let to = if in_output {
                        &mut buffers[1][GUARD + (offset + at) as usize]
                    } else {
                        &mut buffers[0][GUARD + at as usize]
                    };
                    *to = value(launch, rank, at);
                }
                buffers
            };
            (0..LAUNCHES).map(one).collect()
        })
        .collect();
    let address =
        |buffers: &mut [Vec<i32>; 2], which: usize| -> u64 { buffers[which][GUARD..].as_mut_ptr() as u64 };
    let places: Vec<Vec<[u64; 2]>> = buffers
        .iter_mut()
        .zip(0..)
        .map(|(all, rank)| {
            all.iter_mut()
                .map(|one| {
                    let (input, output) = (address(one, 0), address(one, 1));
                    match (in_place, function) {
                        (false, _) => [input, output],
                        (true, Function::ReduceScatter) => [input, input + 4 * rank * count],
                        (true, Function::Scatter) if rank == n - 1 => [input, input + 4 * rank * count],
                        (true, Function::Scatter) => [input, output],
                        (true, Function::AllGather) => [output + 4 * rank * count, output],
                        (true, Function::Gather) if rank == n - 1 => [output + 4 * rank * count, output],
                        (true, Function::Gather) => [input, output],
                        (true, _) => [output, output],
                    }
                })
                .collect()
        })
        .collect();
    let half = |rank: u32, form| {
        let area = geometry.area(rank, layout.chunk_bytes()).unwrap();
        match form {
            _ if double == 1 => 0,
            Form::Raw => area.raw,
            Form::Packets => area.packets,
        }
    };
    let done = AtomicU64::new(0);
    // As the executor does before each launch of a plan that leaves the reuse of its scratch to it.
    let meeting = plan.has_scratch_credits().then(|| Barrier::new(n as usize));
    let shared: Vec<Shared> = ranks.iter().map(|rank| Shared(rank)).collect();
    std::thread::scope(|scope| {
        for (rank, kernel) in (0..).zip(kernels) {
            let (channels, places, scratch, shared, done) = (&channels, &places, &scratch, &shared, &done);
            let meeting = &meeting;
            let (layout, half, run) = (&layout, &half, runs[rank as usize]);
            scope.spawn(move || {
                let own = shared[rank as usize].0 as *mut Rank;
                // SAFETY: only addresses are taken.
                let (epochs, barriers) =
                    unsafe { ((&raw mut (*own).epochs) as u64, (*own).barriers.as_ptr() as u64) };
                let rows = match form {
                    KernelForm::Fitted => kernel.rows(layout).unwrap(),
                    KernelForm::Listed => kernel.listed_rows(layout).unwrap(),
                };
                for launch in 0..LAUNCHES {
                    let launch = launch as usize;
                    if let Some(meeting) = meeting {
                        meeting.wait();
                    }
                    let bases = kernel.bases().iter().map(|base| match (base.buffer, base.form) {
                        (BufferKind::Input, _) => (places[base.rank as usize][launch][0], 0),
                        (BufferKind::Output, _) => (places[base.rank as usize][launch][1], 0),
                        (BufferKind::Scratch, form) => (
                            scratch[base.rank as usize][usize::from(form == Form::Packets)],
                            half(base.rank, form),
                        ),
                    });
                    let words = kernel.parameters(
                        &LaunchPlaces {
                            packet_epoch: epochs,
                            raw_epoch: epochs + 8,
                            channels: channels[rank as usize].as_ptr() as u64,
                            barriers,
                            listed: rows.listed.as_ref().map_or(0, |listed| listed.as_ptr() as u64),
                            bases: bases.collect(),
                            ..LaunchPlaces::default()
                        },
                        &rows,
                    );
                    std::thread::scope(|blocks| {
                        for block in 0..kernel.blocks() {
                            let words = &words;
                            blocks.spawn(move || {
                                // SAFETY: the words are a launch of this kernel, and what they name lives.
                                unsafe { run(words.as_ptr(), block, kernel.blocks(), 0) }
                            });
                        }
                    });
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(done.load(Ordering::Relaxed), n * LAUNCHES);
    for (rank, all) in (0..).zip(&buffers) {
        let (input, output) = shape_of(rank);
        for (launch, [input_buffer, output_buffer]) in (0..).zip(all) {
            let (buffer, elements, first) = match (in_place, function) {
                (true, Function::ReduceScatter) => (input_buffer, input, rank * count),
                (true, Function::Scatter) if rank == n - 1 => (input_buffer, input, rank * count),
                _ => (output_buffer, output, 0),
            };
            let found = |at: u64| buffer[GUARD + (first + at) as usize];
            for at in 0..output {
                if let Some(value) = expected(function, launch, n, count, rank, at) {
                    assert_eq!(found(at), value, "{what}: rank {rank}, launch {launch}, element {at}");
                }
            }
            let canaries = buffer[..GUARD].iter().chain(&buffer[GUARD + elements as usize..]);
            assert!(
                canaries.into_iter().all(|canary| *canary == CANARY),
                "{what}: rank {rank}, launch {launch}"
            );
        }
    }
}

fn all_compute(n: u32, blocks: u32, counts: &[u64]) {
    computes(n, blocks, counts, |_| true);
}

fn computes(n: u32, blocks: u32, counts: &[u64], which: impl Fn(&Case) -> bool) {
    let setting = KernelSetting::new(DataType::Int32, PACKET).with_threads(1);
    let mut cases = cases(n, blocks);
    cases.retain(which);
    assert!(!cases.is_empty());
    let mut names = Vec::new();
    let mut kernels: Vec<Vec<PlanKernel>> = Vec::new();
    for (number, case) in cases.iter().enumerate() {
        kernels.push((0..n).map(|rank| case.kernel(rank, setting)).collect());
        for kernel in &kernels[number] {
            for form in [KernelForm::Fitted, KernelForm::Listed] {
                let name = format!("{number}_{}_{form:?}", kernel.rank());
                names.push((name, kernel.program(form).unwrap().source().to_owned()));
            }
        }
    }
    // A minute of looks at the emulated clock.
    let options = ["-O1", "-shared", "-fPIC", "-DWARPWAY_DEFAULT_DEADLINE_NS=200000000ull"];
    let Some(path) =
        host_compiler::compile_text(&format!("plans-{n}-{}", cases.len()), &unit(&names), &options)
    else {
        return;
    };
    // SAFETY: compiled above; nothing runs when it is loaded.
    let library = unsafe { Library::new(&path) }.unwrap();
    let run = |case: usize, rank: u32, form: KernelForm| -> Run {
        let name = format!("run_{case}_{rank}_{form:?}");
        // SAFETY: of that type by `unit`.
        unsafe { *library.get::<Run>(name.as_bytes()).unwrap() }
    };
    for (number, case) in cases.iter().enumerate() {
        for &count in counts {
            for form in [KernelForm::Fitted, KernelForm::Listed] {
                let runs: Vec<Run> = (0..n).map(|rank| run(number, rank, form)).collect();
                play(case, &kernels[number], form, &runs, count);
            }
        }
    }
    std::fs::remove_file(path).unwrap();
}

#[test]
fn generated_text_of_two_ranks_computes_what_it_should() {
    all_compute(2, 3, &[1, 2, 3, 24, 64, 65, 1000, 4099]);
}

#[test]
fn generated_text_of_three_ranks_computes_what_it_should() {
    all_compute(3, 2, &[1, 3, 48, 100, 1001]);
}

/// Pipelines of several slices, the last of them shorter, on devices' own algorithms.
#[test]
fn generated_text_of_pipelines_computes_what_it_should() {
    let devices: Vec<&str> = device_catalogue().map(|algorithm| algorithm.name).collect();
    for n in [2, 3] {
        computes(n, 2, &[65_536, 70_001, 100_000], |case| devices.contains(&case.algorithm.name));
    }
}
