//! NVRTC, where there is one: CI must have it.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod nvrtc;

use std::collections::{BTreeMap, BTreeSet};

use nvrtc::{nvrtc, open};
use warpway_core::gpu::GpuError;
use warpway_core::{Error, Unavailable};
use warpway_cuda::Architecture;
use warpway_cuda::jit::{
    CodeKind, Compiler, DEVICE_HEADERS, Image, Origin, Program, Resources, built_in_programs,
};

const SM_80: Architecture = Architecture { major: 8, minor: 0 };
const SM_90: Architecture = Architecture { major: 9, minor: 0 };
const SM_100: Architecture = Architecture { major: 10, minor: 0 };

fn needs(image: &Image, kernel: &str) -> Resources {
    image.kernel(kernel).unwrap().resources.unwrap()
}

#[test]
fn kernels_by_expression_for_three_architectures() {
    let Some(compiler) = nvrtc() else { return };
    let known = compiler.architectures().unwrap();
    assert!(known.contains(&SM_80) && known.contains(&SM_90) && known.contains(&SM_100), "{known:?}");
    let source = "#include <parts/fill.cuh>\n\
        extern \"C\" __global__ void zero(unsigned* to) { fill_with(to, ZERO); }\n";
    let header = "template <class T> __device__ void fill_with(T* to, T value) { to[threadIdx.x] = value; }\n\
        namespace deep { template <class T, int N> __global__ void fill(T* to) { fill_with(to, T(N)); } }\n";
    let program = Program::new("fill.cu", source)
        .header("parts/fill.cuh", header)
        .define("ZERO", "0u")
        .kernel("deep::fill<float, 3>")
        .kernel("zero")
        .kernel("deep::fill<unsigned long long, 3>");
    for architecture in [SM_80, SM_90, SM_100] {
        let image = compiler.compile(&program, architecture).unwrap();
        assert_eq!((image.kind(), image.architecture()), (CodeKind::Cubin, &*architecture.to_string()));
        assert_eq!(image.symbol("zero"), Some("zero"));
        assert_eq!(image.symbol("deep::fill<float, 3>"), Some("_ZN4deep4fillIfLi3EEEvPT_"));
        assert_eq!(image.symbol("deep::fill<unsigned long long, 3>"), Some("_ZN4deep4fillIyLi3EEEvPT_"));
        assert!(image.code().starts_with(b"\x7fELF"));
        for symbol in image.kernels().iter().map(|kernel| kernel.symbol.as_bytes()) {
            assert!(image.code().windows(symbol.len()).any(|window| window == symbol));
        }
        let needs = needs(&image, "zero");
        assert!((1..=24).contains(&needs.registers), "{needs:?}");
        assert_eq!((needs.stack_bytes, needs.spill_store_bytes, needs.shared_bytes), (0, 0, 0));
    }
}

/// Two hundred values alive at once, in at most 32 registers.
#[test]
fn spills_and_shared_memory_are_reported() {
    let Some(compiler) = nvrtc() else { return };
    let source = "extern \"C\" __global__ void __launch_bounds__(1024, 2) spill(float* x) {\n\
        __shared__ float part[256];\n  float v[200];\n\
        #pragma unroll\n  for (int i = 0; i < 200; ++i) v[i] = x[i * 1024 + threadIdx.x];\n\
        part[threadIdx.x & 255] = v[7];\n  __syncthreads();\n\
        #pragma unroll\n  for (int i = 0; i < 200; ++i) x[i * 1024 + threadIdx.x] = v[i] * v[199 - i] + part[i];\n}\n";
    let image = compiler.compile(&Program::new("spill.cu", source).kernel("spill"), SM_90).unwrap();
    let needs = needs(&image, "spill");
    assert!(needs.registers <= 32 && needs.stack_bytes > 0, "{needs:?}");
    assert!(needs.spill_store_bytes > 0 && needs.spill_load_bytes > 0, "{needs:?}");
    assert!(needs.shared_bytes >= 1024 && needs.barriers == 1, "{needs:?}");
}

/// Nobody has to export what is no template; the symbols say what it is called.
#[test]
fn kernels_that_are_not_exported_are_listed_after_the_others() {
    let Some(compiler) = nvrtc() else { return };
    let source = "extern \"C\" __global__ void z() {}\n__global__ void b(int) {}\nextern \"C\" __global__ void a() {}\n";
    let image = compiler.compile(&Program::new("k.cu", source).kernel("z"), SM_90).unwrap();
    let names = image.kernels().iter().map(|kernel| (kernel.expression.as_str(), kernel.symbol.as_str()));
    assert_eq!(names.collect::<Vec<_>>(), [("z", "z"), ("_Z1bi", "_Z1bi"), ("a", "a")]);
    assert!(image.kernels().iter().all(|kernel| kernel.resources.is_some()));
}

fn rejected(compiler: &Compiler, program: &Program) -> String {
    match compiler.compile(program, SM_90) {
        Err(Error::Gpu(GpuError::Compile { name, architecture, log })) => {
            assert_eq!((name.as_str(), architecture.as_str()), (program.name(), "sm_90"));
            log
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_does_not_compile_is_shown_with_its_lines() {
    let Some(compiler) = nvrtc() else { return };
    let source = "#include \"a.cuh\"\n\n__global__ void k(int* x) {\n  *x = twice(y);\n}\n";
    let header = "// A header.\n__device__ int twice(int x) {\n  return x * tow;\n}\n";
    let log = rejected(&compiler, &Program::new("k.cu", source).header("a.cuh", header));
    let expected = [
        "a.cuh(3): error: identifier \"tow\" is undefined\n  1 | // A header.\n  2 | __device__ int twice(int x) {\n\
         > 3 |   return x * tow;\n    |              ^\n  4 | }\n",
        "k.cu(4): error: identifier \"y\" is undefined\n  2 |\n  3 | __global__ void k(int* x) {\n\
         > 4 |   *x = twice(y);\n    |              ^\n  5 | }\n",
    ];
    for part in expected {
        assert!(log.contains(part), "{log}");
    }
    assert!(!log.contains("ptxas"), "{log}");
}

#[test]
fn what_else_can_be_wrong() {
    let Some(compiler) = nvrtc() else { return };
    let plain = || Program::new("k.cu", "extern \"C\" __global__ void k() {}\n");
    for (program, expected) in [
        (plain().option("--no-such-option"), "no-such-option"),
        (plain().kernel("missing<3>"), "missing"),
        (Program::new("k.cu", "#include <cstdint>\n"), "cstdint"),
        // Headers of a toolkit are seen by nobody.
        (Program::new("k.cu", "#include <cuda_bf16.h>\n"), "cuda_bf16.h"),
        (Program::new("k.cu", "int a\0b;"), "a source has a zero byte at 5"),
        (plain().header("h\0", ""), "a name of a header has a zero byte at 1"),
    ] {
        let log = rejected(&compiler, &program);
        assert!(log.contains(expected), "{expected}: {log}");
    }
}

/// What is kept is found by source and headers, so nothing else may decide what it is.
#[test]
fn a_program_sees_no_files() {
    let Some(compiler) = nvrtc() else { return };
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("no_files");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("beside.cuh"), "#define VALUE 7\n").unwrap();
    let name = folder.join("k.cu").display().to_string();
    let including = |what: &str| {
        Program::new(
            &name,
            format!("#include {what}\nextern \"C\" __global__ void k(int* x) {{ *x = VALUE; }}\n"),
        )
    };
    let beside = || including("\"beside.cuh\"");
    assert!(compiler.compile(&beside().header("beside.cuh", "#define VALUE 8\n"), SM_90).is_ok());
    let absolute = folder.join("beside.cuh").display().to_string();
    for (program, expected) in [
        (beside(), "\"beside.cuh\""),
        (including("\"../no_files/beside.cuh\""), "no_files/beside.cuh"),
        (including(&format!("\"{absolute}\"")), "reads files"),
        (including(&format!(" <{absolute}>")), "reads files"),
        (beside().option(format!("-I{}", folder.display())), "`-I"),
        (beside().option("-I").option(folder.display().to_string()), "`-I` reads files"),
        (beside().option(format!("--include-path={}", folder.display())), "`--include-path="),
        (beside().option(format!("-include={absolute}")), "`-include="),
        (beside().option(format!("--pre-include={absolute}")), "`--pre-include="),
    ] {
        let log = rejected(&compiler, &program);
        assert!(log.contains(expected) && log.contains("Program::header"), "{expected}: {log}");
    }
}

#[test]
fn the_headers_refuse_an_architecture_older_than_theirs() {
    let Some(compiler) = nvrtc() else { return };
    let old = Architecture { major: 7, minor: 5 };
    if !compiler.architectures().unwrap().contains(&old) {
        return;
    }
    let source = "#include <warpway/grid.cuh>\nextern \"C\" __global__ void k() {}\n";
    let error = compiler.compile(&Program::new("k.cu", source).device_headers(), old).unwrap_err();
    assert!(error.to_string().contains("for sm_80 and later"), "{error}");
}

#[test]
fn an_architecture_of_tomorrow_gets_ptx() {
    let Some(compiler) = nvrtc() else { return };
    let program =
        Program::new("k.cu", "template <int N> __global__ void k(int* x) { *x = N; }\n").kernel("k<7>");
    let image = compiler.compile(&program, Architecture { major: 99, minor: 9 }).unwrap();
    assert_eq!(image.kind(), CodeKind::Ptx);
    let latest = compiler.architectures().unwrap().into_iter().max().unwrap();
    assert_eq!(image.architecture(), latest.to_string().replace("sm", "compute"));
    assert_eq!(image.code().last(), Some(&0));
    let text = std::str::from_utf8(image.code()).unwrap();
    assert!(text.contains(&format!(".entry {}", image.symbol("k<7>").unwrap())), "{text}");
    assert_eq!(image.kernel("k<7>").unwrap().resources, None);

    let error = compiler.compile(&program, Architecture { major: 2, minor: 0 }).unwrap_err();
    assert!(matches!(&error, Error::Unavailable(_)), "{error}");
}

#[test]
fn what_is_built_in_compiles_without_spills() {
    let Some(compiler) = nvrtc() else { return };
    for program in built_in_programs() {
        for architecture in [SM_80, SM_90, SM_100] {
            let image = compiler.compile(&program, architecture).unwrap();
            for kernel in image.kernels() {
                assert_eq!(kernel.resources.unwrap().spill_store_bytes, 0, "{architecture}: {kernel:?}");
            }
        }
    }
}

/// A header that leans on what another happens to include breaks the kernel that includes it alone.
#[test]
fn each_device_header_compiles_alone() {
    let Some(compiler) = nvrtc() else { return };
    for (name, _) in DEVICE_HEADERS {
        let program = Program::new("alone.cu", format!("#include <{name}>\n")).device_headers();
        for architecture in [SM_80, SM_90, SM_100] {
            compiler.compile(&program, architecture).unwrap_or_else(|error| panic!("{name}: {error}"));
        }
    }
}

/// Calls with plain numbers are not ambiguous, checks compile, and conditions may be lambdas of a kernel.
#[test]
fn calls_as_people_write_them_compile() {
    let Some(compiler) = nvrtc() else { return };
    let source = "#include \"warpway/warpway.cuh\"\nusing namespace warpway;\n\
        extern \"C\" __global__ void kernel(MemoryChannel c, u64 bytes, u32* status) {\n\
          Either which = Either::Second;\n\
          const u32* word = status;\n\
          const auto raised = [=](u64& seen) { return (seen = load<Scope::Device, Order::Acquire>(word)) != 0; };\n\
          const auto arrived = [=](u64&) { return c.poll(); };\n\
          Status end = poll_until_either(Wait{c.semaphore.site, Kind::Call, 1}, raised, arrived, which, {1000});\n\
          if (end == Status::Ok) end = c.unpackPackets(0, 0, 8, 0, 1, 9);\n\
          if (end == Status::Ok) end = c.unpackPackets(0, bytes, threadIdx.x, blockDim.x, 9u, 100);\n\
          if (end == Status::Ok) end = c.unpackPackets<LL8>(0, 0, 8, 0, 1, 9, 100);\n\
          *status = static_cast<u32>(end) + static_cast<u32>(which);\n}\n";
    let plain = Program::new("calls.cu", source).device_headers();
    for program in [plain.clone(), plain.define("WARPWAY_DEVICE_CHECKS", 1)] {
        compiler.compile(&program, SM_90).unwrap_or_else(|error| panic!("{error}"));
    }
}

#[test]
fn a_warm_folder_serves_where_there_is_no_nvrtc() {
    let Some(_) = nvrtc() else { return };
    let folder = std::env::temp_dir().join(format!("warpway-jit-{}", std::process::id()));
    let cache = folder.to_str().unwrap();
    let program = Program::new("k.cu", "extern \"C\" __global__ void k() {}\n").kernel("k");
    let there = open(&[("WARPWAY_CACHE_DIR", cache)]);
    let image = there.compile(&program, SM_90).unwrap();
    let here = open(&[("WARPWAY_CACHE_DIR", cache), ("WARPWAY_NVRTC", "/nowhere/libnvrtc.so")]);
    assert_eq!(here.compile(&program, SM_90).unwrap(), image);
    assert_eq!(here.journal().records[0].origin, Origin::Disk);
    assert!(matches!(here.compile(&program, SM_80), Err(Error::Unavailable(_))));
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_library_that_is_named_and_is_none() {
    for (library, expected) in [
        ("/nowhere/libnvrtc.so", "No such file"),
        ("/proc/self/maps", "/proc/self/maps"),
        ("libc.so.6", "libc.so.6 has no nvrtcGetErrorString"),
    ] {
        let compiler = open(&[("WARPWAY_NVRTC", library), ("WARPWAY_CACHE_DIR", "off")]);
        let Err(Error::Unavailable(Unavailable { why, hint, .. })) = compiler.identity() else {
            panic!("{library} is no NVRTC")
        };
        assert!(why.contains("WARPWAY_NVRTC: ") && why.contains(expected), "{why}");
        assert_eq!(why.matches(library).count(), 1, "{why}");
        assert!(hint.contains("WARPWAY_NVRTC"), "{hint}");
    }
}

/// Multicast is refused where the GPU has none, by whatever call; without a call the header compiles.
#[test]
fn multicast_is_refused_where_there_is_none() {
    let Some(compiler) = nvrtc() else { return };
    let none = "multicast needs sm_90";
    let bytes = "multicast of 8-bit floats needs sm_100a or sm_100f";
    let calls = [
        ("static_cast<void>(c.wait())", [None, None, None]),
        ("c.signal()", [Some(none), None, None]),
        ("c.relaxedSignal()", [Some(none), None, None]),
        ("c.broadcast(1, f32x4{})", [Some(none), None, None]),
        ("c.broadcast(1, f64x1{})", [Some(none), None, None]),
        ("c.broadcast(1, c.reduce<f32x2>(0))", [Some(none), None, None]),
        (
            "SwitchChannel::multimemStoreReduce(u32x1{}, static_cast<u32x1*>(c.mcPtr))",
            [Some(none), None, None],
        ),
        ("c.broadcast(1, c.reduce<e4m3x16>(0))", [Some(none), Some(bytes), Some(bytes)]),
        ("c.broadcast(1, c.reduce<f32x2, void, ReduceOp::Min>(0))", [Some("the switch does not fold"); 3]),
    ];
    for (call, expected) in calls {
        let source = format!(
            "#include \"warpway/switch_channel.cuh\"\nusing namespace warpway;\n\
             extern \"C\" __global__ void kernel(SwitchChannel c) {{ {call}; }}\n"
        );
        let program = Program::new("call.cu", source).device_headers();
        for (architecture, expected) in [SM_80, SM_90, SM_100].into_iter().zip(expected) {
            match (compiler.compile(&program, architecture), expected) {
                (Ok(_), None) => {}
                (Err(error), Some(expected)) => {
                    let said = error.to_string();
                    assert!(said.contains(expected), "{call} for {architecture}: {said}");
                }
                (Ok(_), Some(_)) => panic!("{call} compiles for {architecture}"),
                (Err(error), None) => panic!("{call} for {architecture}: {error}"),
            }
        }
    }
}

/// Of `formats.cuh`: each way of conversion and of folding once.
const FORMATS: [&str; 6] = ["BF16", "E4M3", "E4M3B15", "F16", "F64", "I32"];

/// The kernels of the examples, which are whole programs of users.
#[test]
fn kernels_of_the_examples_compile() {
    let Some(compiler) = nvrtc() else { return };
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../warpway/examples");
    let mut compiled = 0;
    for path in std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()) {
        if path.extension().is_none_or(|extension| extension != "cu") {
            continue;
        }
        let name = path.file_name().unwrap().to_str().unwrap();
        let program = Program::new(name, std::fs::read_to_string(&path).unwrap()).device_headers();
        for architecture in [SM_80, SM_90, SM_100] {
            let image = compiler.compile(&program, architecture).unwrap_or_else(|error| panic!("{error}"));
            let spilled =
                |kernel: &warpway_cuda::jit::Kernel| kernel.resources.unwrap().spill_store_bytes > 0;
            assert!(!image.kernels().iter().any(spilled), "{name} for {architecture}");
        }
        compiled += 1;
    }
    assert_eq!(compiled, 2);
}

/// What `docs/kernels.md` shows.
#[test]
fn kernels_on_the_page_compile() {
    let Some(compiler) = nvrtc() else { return };
    let page = include_str!("../../../docs/kernels.md");
    let kernels: Vec<&str> =
        page.split("```cuda\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert_eq!(kernels.len(), 1);
    for kernel in kernels {
        let program = Program::new("kernels.md", kernel).device_headers();
        let image = compiler.compile(&program, SM_80).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(image.kernels().len(), 1);
    }
}

/// Kernels of the GPU tests: none may spill, and their registers are those of `resources.txt`, if NVRTC is the one that made it.
/// After a change, run this with `UPDATE_RESOURCES=1`.
#[test]
fn kernels_of_the_gpu_tests_have_the_known_resources() {
    let Some(compiler) = nvrtc() else { return };
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("device/tests");
    let mut files: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "cu"));
    files.sort();
    let mut found = BTreeMap::new();
    for path in files {
        let name = path.file_name().unwrap().to_str().unwrap();
        let program = Program::new(name, std::fs::read_to_string(&path).unwrap()).device_headers();
        // One file holds the kernels of any one format.
        let programs = if name == "fold.cu" {
            FORMATS
                .map(|format| (format!("{name}:{format}"), program.clone().define("FORMAT", format)))
                .to_vec()
        } else {
            vec![(name.to_owned(), program)]
        };
        // These say themselves that they need it.
        let since_sm_90 = ["bulk.cu", "switch.cu"].contains(&name);
        for (name, program) in programs {
            for architecture in [SM_80, SM_90, SM_100].into_iter().skip(usize::from(since_sm_90)) {
                let image =
                    compiler.compile(&program, architecture).unwrap_or_else(|error| panic!("{error}"));
                for kernel in image.kernels() {
                    let needs = kernel.resources.unwrap();
                    let spilled = (needs.spill_store_bytes, needs.spill_load_bytes);
                    assert_eq!(spilled, (0, 0), "{name} for {architecture}: {kernel:?}");
                    let mut line = format!("{architecture} {name} {} {}", kernel.symbol, needs.registers);
                    if needs.stack_bytes > 0 {
                        line.push_str(&format!(" stack {}", needs.stack_bytes));
                    }
                    found.insert((name.clone(), kernel.symbol.clone(), architecture), line);
                }
            }
        }
    }
    let head = "# Registers per thread of each test kernel, NVRTC 13.0. None spills; bytes of a stack frame follow where there is one.";
    let found = std::iter::once(head)
        .chain(found.values().map(String::as_str))
        .fold(String::new(), |all, line| all + line + "\n");
    let file = folder.join("resources.txt");
    if std::env::var_os("UPDATE_RESOURCES").is_some() {
        return std::fs::write(file, found).unwrap();
    }
    if !compiler.identity().unwrap().starts_with("nvrtc 13.0") {
        return eprintln!("not compared: {} makes other code", compiler.identity().unwrap());
    }
    let known = std::fs::read_to_string(file).unwrap();
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<BTreeSet<_>>();
    let (known, found) = (lines(&known), lines(&found));
    let (gone, new): (Vec<_>, Vec<_>) =
        (known.difference(&found).collect(), found.difference(&known).collect());
    assert!(known == found, "see above the test; resources.txt has {gone:#?}, compiled {new:#?}");
}

/// Kernels of the measurements, with as many registers as the last time; a change is to be looked at, then written down by
/// running this with `UPDATE_RESOURCES=1`.
#[test]
fn kernels_of_the_measurements_need_what_is_written_down() {
    let Some(compiler) = nvrtc() else { return };
    let mut lines = Vec::new();
    for program in warpway_cuda::bench::programs() {
        for architecture in [SM_80, SM_90, SM_100].into_iter().skip(usize::from(program.name() == "bulk.cu"))
        {
            let image = compiler.compile(&program, architecture).unwrap_or_else(|error| panic!("{error}"));
            for kernel in image.kernels() {
                let needs = kernel.resources.unwrap();
                assert_eq!(
                    (needs.stack_bytes, needs.spill_store_bytes, needs.spill_load_bytes),
                    (0, 0, 0),
                    "{architecture}: {kernel:?}"
                );
                let Resources { registers, .. } = needs;
                lines.push(format!("{architecture} {} {} {registers}", program.name(), kernel.expression));
            }
        }
    }
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("device/bench/resources.txt");
    let known = std::fs::read_to_string(&file).unwrap();
    let (head, known) = known.split_once('\n').unwrap();
    let found = lines.join("\n") + "\n";
    if std::env::var_os("UPDATE_RESOURCES").is_some() {
        return std::fs::write(file, format!("{head}\n{found}")).unwrap();
    }
    // Another version of the compiler allots registers otherwise.
    if compiler.identity().unwrap().starts_with("nvrtc 13.0") {
        assert!(known == found, "device/bench/resources.txt should have:\n{found}");
    }
}
