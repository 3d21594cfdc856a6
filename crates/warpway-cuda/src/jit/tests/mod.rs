//! The compiler with its cache, without NVRTC.

mod cache;
mod compiling;
mod concurrent;
mod evicting;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use warpway_core::Unavailable;

use super::backend::{Backend, Output, Rejected, Target};
use super::store::Store;
use super::{Compiler, Library, Origin, Program};
use crate::device::Architecture;

const SM_90: Architecture = Architecture { major: 9, minor: 0 };
const ROOM: u64 = 1 << 20;

/// Whose code is the source in capital letters.
struct Fake {
    identity: &'static str,
    compiled: Arc<AtomicU64>,
}

impl Backend for Fake {
    fn identity(&self) -> &str {
        self.identity
    }

    fn library(&self) -> Library {
        Library { file: "/nowhere".into(), place: "this test".into() }
    }

    fn architectures(&self) -> &[u32] {
        &[80, 90]
    }

    fn compile(&self, program: &Program, target: Target) -> Result<Output, Rejected> {
        self.compiled.fetch_add(1, Ordering::Relaxed);
        if program.source().contains("wrong") {
            return Err(Rejected(format!("{}(1): error: wrong", program.name())));
        }
        let symbols: Vec<String> = program.kernels().iter().map(|kernel| format!("_Z{kernel}")).collect();
        let report = |symbol: &String| {
            format!(
                "ptxas info : Compiling entry function '{symbol}' for '{target}'\n\
                 ptxas info : Used 7 registers\n"
            )
        };
        let log = symbols.iter().map(report).collect();
        Ok(Output { code: code(program), symbols, log })
    }
}

fn code(program: &Program) -> Vec<u8> {
    program.source().to_ascii_uppercase().into_bytes()
}

/// A compiler as a process would have it, and how often it has really compiled.
fn compiler(identity: &'static str, store: Option<Store>) -> (Compiler, Arc<AtomicU64>) {
    let compiled = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&compiled);
    let open = move || -> Result<Arc<dyn Backend>, Unavailable> {
        Ok(Arc::new(Fake { identity, compiled: Arc::clone(&count) }))
    };
    (Compiler::with(Box::new(open), store), compiled)
}

/// Makes images of the driver in host memory: each exported kernel with parameters of so many bytes, which does
/// nothing.
struct FakeDriverImages<F>(F);

impl<F: Fn(&Program, &str) -> Vec<u64> + Send + Sync> Backend for FakeDriverImages<F> {
    fn identity(&self) -> &str {
        "images of the fake driver"
    }

    fn library(&self) -> Library {
        Library { file: "/nowhere".into(), place: "this test".into() }
    }

    fn architectures(&self) -> &[u32] {
        &[90]
    }

    fn compile(&self, program: &Program, target: Target) -> Result<Output, Rejected> {
        let symbol = |kernel: &String| kernel.replace(|c: char| !c.is_ascii_alphanumeric(), "_");
        let symbols: Vec<String> = program.kernels().iter().map(symbol).collect();
        let line = |symbol: &String| {
            let sizes: Vec<String> = (self.0)(program, symbol).iter().map(u64::to_string).collect();
            format!("function {symbol} parameters={} registers=32 threads=1024 shared=0\n", sizes.join(","))
        };
        let code = format!("fake module\n{}\0", symbols.iter().map(line).collect::<String>()).into_bytes();
        let report = |symbol: &String| {
            format!(
                "ptxas info : Compiling entry function '{symbol}' for '{target}'\nptxas info : Used 32 registers\n"
            )
        };
        let log = symbols.iter().map(report).collect();
        Ok(Output { code, symbols, log })
    }
}

/// A compiler for the fake driver; `parameter_bytes` is asked by symbol.
pub(crate) fn for_fake_driver(parameter_bytes: fn(&str) -> Vec<u64>) -> Compiler {
    of_programs(move |_, symbol| parameter_bytes(symbol))
}

/// The same, where `parameter_bytes` is told the program, too.
pub(crate) fn of_programs(
    parameter_bytes: impl Fn(&Program, &str) -> Vec<u64> + Clone + Send + Sync + 'static,
) -> Compiler {
    let open = move || -> Result<Arc<dyn Backend>, Unavailable> {
        Ok(Arc::new(FakeDriverImages(parameter_bytes.clone())))
    };
    Compiler::with(Box::new(open), None)
}

/// A compiler whose image of any program is `code`, in which each kernel is called `symbol`.
pub(crate) fn always(code: &'static [u8], symbol: &'static str) -> Compiler {
    struct Always(&'static [u8], &'static str);
    impl Backend for Always {
        fn identity(&self) -> &str {
            "always 1"
        }
        fn library(&self) -> Library {
            Library { file: "/nowhere".into(), place: "this test".into() }
        }
        fn architectures(&self) -> &[u32] {
            &[80, 90]
        }
        fn compile(&self, program: &Program, _target: Target) -> Result<Output, Rejected> {
            let symbols = program.kernels().iter().map(|_| self.1.to_owned()).collect();
            Ok(Output { code: self.0.to_vec(), symbols, log: String::new() })
        }
    }
    let open = move || -> Result<Arc<dyn Backend>, Unavailable> { Ok(Arc::new(Always(code, symbol))) };
    Compiler::with(Box::new(open), None)
}

fn without_nvrtc(store: Option<Store>) -> Compiler {
    let open = || Err(Unavailable { what: "NVRTC".into(), why: "this is a test".into(), hint: "none" });
    Compiler::with(Box::new(open), store)
}

fn program(number: usize) -> Program {
    Program::new("k.cu", format!("kernel {number}")).kernel("k")
}

/// Where the image of a program came from, after comparing its code.
fn origin(compiler: &Compiler, program: &Program) -> Origin {
    let (image, record) = compiler.image(program, SM_90).unwrap();
    assert_eq!(image.code(), code(program));
    record.origin
}

/// A cache folder of a test's own, removed with the value.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("warpway-{test}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn store(&self) -> Store {
        Store::new(self.0.clone(), ROOM)
    }

    fn jit(&self) -> PathBuf {
        self.0.join("jit")
    }

    /// Paths of the files there, sorted.
    fn files(&self) -> Vec<PathBuf> {
        let Ok(files) = fs::read_dir(self.jit()) else { return Vec::new() };
        let mut files: Vec<PathBuf> = files.map(|file| file.unwrap().path()).collect();
        files.sort();
        files
    }

    fn only_file(&self) -> PathBuf {
        let files = self.files();
        assert_eq!(files.len(), 1, "{files:?}");
        files[0].clone()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = set_mode(&self.jit(), 0o700);
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn set_mode(path: &Path, mode: u32) -> std::io::Result<()> {
    fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode))
}

/// Messages of warnings while `run` runs on this thread.
fn warnings(run: impl FnOnce()) -> Vec<String> {
    messages(tracing::Level::WARN, run)
}

/// Messages of a level and of those above it while `run` runs on this thread.
pub(crate) fn messages(level: tracing::Level, run: impl FnOnce()) -> Vec<String> {
    let heard = Arc::new(Mutex::new(Vec::new()));
    tracing::subscriber::with_default(Ear(level, Arc::clone(&heard)), run);
    let heard = heard.lock().unwrap();
    heard.clone()
}

struct Ear(tracing::Level, Arc<Mutex<Vec<String>>>);

impl tracing::Subscriber for Ear {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() <= self.0
    }

    fn event(&self, event: &tracing::Event<'_>) {
        struct Message<'a>(&'a mut String);
        impl tracing::field::Visit for Message<'_> {
            fn record_debug(&mut self, _: &tracing::field::Field, value: &dyn std::fmt::Debug) {
                *self.0 += &format!("{value:?}");
            }
        }
        let mut text = String::new();
        event.record(&mut Message(&mut text));
        self.1.lock().unwrap().push(text);
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}
