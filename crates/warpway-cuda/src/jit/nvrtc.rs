//! NVRTC, opened at run time.

use std::ffi::{CStr, CString, c_char, c_int};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use warpway_core::Unavailable;
use warpway_core::config::{Config, Environment};
use warpway_cuda_sys::{
    NVRTC_ERROR_COMPILATION, NVRTC_SUCCESS, Nvrtc as Table, nvrtcProgram, nvrtcResult, preload,
};

use super::backend::{Backend, Output, Rejected, Target};
use super::compiler::Library;
use super::image::CodeKind;
use super::program::Program;
use super::search::{self, Files, ThisSystem};

/// The oldest version that knows sm_90 and reports what is needed.
const OLDEST: (c_int, c_int) = (12, 0);

/// What to do about a header that is not found.
const HAND_OVER: &str = "hand over what it includes by `Program::header` (`jit warm --header NAME=FILE`)";

/// An opened NVRTC. Its functions may be called from several threads, each with a program of its own.
pub(super) struct Nvrtc {
    table: Table,
    identity: String,
    library: Library,
    architectures: Vec<u32>,
}

impl Nvrtc {
    /// The first usable library of the places where one may be.
    pub(super) fn find(config: &Config, environment: &Environment) -> Result<Self, Unavailable> {
        let mut tried = String::new();
        for place in search::places(config.nvrtc.as_deref(), environment, &ThisSystem) {
            if place.libraries.is_empty() {
                let _ = write!(tried, "\n  {}: none", place.what);
            }
            for library in place.libraries {
                match Self::open(&library, &place.what) {
                    Ok(nvrtc) => {
                        let (identity, library) = (&nvrtc.identity, nvrtc.library.file.display());
                        tracing::debug!(target: "warpway::gpu::jit", "{identity}: {library}, by {}", place.what);
                        return Ok(nvrtc);
                    }
                    Err(why) => {
                        let _ = write!(tried, "\n  {}: {why}", place.what);
                    }
                }
            }
        }
        Err(Unavailable {
            what: "NVRTC, which compiles kernels,".into(),
            why: format!("no usable library was found, tried{tried}"),
            hint: "pip install nvidia-cuda-nvrtc, or set WARPWAY_NVRTC to a libnvrtc.so of CUDA 12 or later",
        })
    }

    fn open(library: &Path, place: &str) -> Result<Self, String> {
        // SAFETY: the name is that of NVRTC, or the user vouches for what stands in for it.
        let table = unsafe { Table::open(library) }.map_err(|error| error.to_string())?;
        let (mut major, mut minor): (c_int, c_int) = (0, 0);
        // SAFETY: writes two numbers.
        let result = unsafe { (table.nvrtcVersion)(&raw mut major, &raw mut minor) };
        if result != NVRTC_SUCCESS {
            return Err(format!("{}: nvrtcVersion failed", library.display()));
        }
        if (major, minor) < OLDEST {
            return Err(format!("{}: it is of CUDA {major}.{minor}, 12.0 is needed", library.display()));
        }
        let path = where_it_is(library);
        // The version names no patch level, the size tells them apart.
        let bytes = path.as_ref().and_then(|path| path.metadata().ok()).map_or(0, |file| file.len());
        if let Some(folder) = path.as_deref().and_then(Path::parent) {
            // Needed by every compilation, and not found by NVRTC itself where it has no search path.
            let builtins = folder.join(format!("libnvrtc-builtins.so.{major}.{minor}"));
            if builtins.exists() {
                // SAFETY: it lies beside NVRTC and is named as NVRTC names it.
                unsafe { preload(&builtins) }.map_err(|error| error.to_string())?;
            }
        }
        let architectures = architectures(&table)
            .ok_or_else(|| format!("{}: nvrtcGetSupportedArchs failed", library.display()))?;
        let found = Library { file: path.unwrap_or_else(|| library.to_owned()), place: place.to_owned() };
        let identity = format!("nvrtc {major}.{minor}, {bytes} bytes");
        Ok(Self { table, identity, library: found, architectures })
    }

    /// A failed call, other than that the program is wrong.
    fn failure(&self, call: &str, result: nvrtcResult) -> Rejected {
        // SAFETY: gives a constant text for every number.
        let text = unsafe { (self.table.nvrtcGetErrorString)(result) };
        let text = match text.is_null() {
            true => "unknown".into(),
            // SAFETY: not null, and NVRTC's texts end with a zero.
            false => unsafe { CStr::from_ptr(text) }.to_string_lossy(),
        };
        Rejected(format!("{call} failed: {text} ({result})"))
    }

    fn check(&self, call: &str, result: nvrtcResult) -> Result<(), Rejected> {
        if result == NVRTC_SUCCESS { Ok(()) } else { Err(self.failure(call, result)) }
    }
}

impl Backend for Nvrtc {
    fn identity(&self) -> &str {
        &self.identity
    }

    fn library(&self) -> Library {
        self.library.clone()
    }

    fn architectures(&self) -> &[u32] {
        &self.architectures
    }

    fn compile(&self, program: &Program, target: Target) -> Result<Output, Rejected> {
        if let Some(what) = program.reads_file() {
            return Err(Rejected(format!("`{what}` reads files, and a program sees none: {HAND_OVER}")));
        }
        let open = Open::new(self, program)?;
        let expressions = strings("name of a kernel", program.kernels().iter().map(String::as_str))?;
        for expression in &expressions {
            // SAFETY: the program is open and not compiled yet; the text is copied.
            let result = unsafe { (self.table.nvrtcAddNameExpression)(open.program, expression.as_ptr()) };
            self.check("nvrtcAddNameExpression", result)?;
        }
        let architecture = format!("--gpu-architecture={target}");
        // Otherwise files beside one of the program's name are included, although nothing of them is in its digest.
        let own = [architecture.as_str(), "--ptxas-options=-v", "--no-source-include"];
        let options = strings("option", program.options().iter().map(String::as_str).chain(own))?;
        let pointers: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
        // SAFETY: as many texts as said, which live until the call returns.
        let result = unsafe {
            (self.table.nvrtcCompileProgram)(open.program, pointers.len() as c_int, pointers.as_ptr())
        };
        let log = open.bytes(
            "nvrtcGetProgramLog",
            self.table.nvrtcGetProgramLogSize,
            self.table.nvrtcGetProgramLog,
        )?;
        let log = String::from_utf8_lossy(&log).trim_end_matches('\0').to_owned();
        match result {
            NVRTC_SUCCESS => {}
            NVRTC_ERROR_COMPILATION if !log.trim().is_empty() => {
                let hint = match log.contains("open source file") {
                    true => format!("\nA program sees no files: {HAND_OVER}"),
                    false => String::new(),
                };
                return Err(Rejected(log + &hint));
            }
            other => {
                let Rejected(failure) = self.failure("nvrtcCompileProgram", other);
                return Err(Rejected(format!("{log}{}{failure}", if log.is_empty() { "" } else { "\n" })));
            }
        }
        let code = match target.kind {
            CodeKind::Cubin => {
                open.bytes("nvrtcGetCUBIN", self.table.nvrtcGetCUBINSize, self.table.nvrtcGetCUBIN)
            }
            CodeKind::Ptx => open.bytes("nvrtcGetPTX", self.table.nvrtcGetPTXSize, self.table.nvrtcGetPTX),
        }?;
        let symbols =
            expressions.iter().map(|expression| open.symbol(expression)).collect::<Result<_, _>>()?;
        Ok(Output { code, symbols, log })
    }
}

/// A program inside NVRTC, until it is dropped.
struct Open<'a> {
    nvrtc: &'a Nvrtc,
    program: nvrtcProgram,
}

impl<'a> Open<'a> {
    fn new(nvrtc: &'a Nvrtc, program: &Program) -> Result<Self, Rejected> {
        let [source, name] = [("source", program.source()), ("name", program.name())]
            .map(|(what, text)| strings(what, std::iter::once(text)));
        let (source, name) = (source?, name?);
        let names = strings("name of a header", program.headers().map(|(name, _)| name))?;
        let texts = strings("header", program.headers().map(|(_, text)| text))?;
        let pointers = |strings: &[CString]| -> Vec<*const c_char> {
            strings.iter().map(|text| text.as_ptr()).collect()
        };
        let (source, name) = (pointers(&source), pointers(&name));
        let (name_pointers, text_pointers) = (pointers(&names), pointers(&texts));
        let mut opened: nvrtcProgram = std::ptr::null_mut();
        // SAFETY: texts end with a zero, the two lists are as long as said, all is copied by the call.
        let result = unsafe {
            (nvrtc.table.nvrtcCreateProgram)(
                &raw mut opened,
                source[0],
                name[0],
                text_pointers.len() as c_int,
                text_pointers.as_ptr(),
                name_pointers.as_ptr(),
            )
        };
        nvrtc.check("nvrtcCreateProgram", result)?;
        Ok(Self { nvrtc, program: opened })
    }

    /// A result that NVRTC writes into memory of ours once it has said how large it is.
    fn bytes(
        &self,
        call: &str,
        size: unsafe extern "C" fn(nvrtcProgram, *mut usize) -> nvrtcResult,
        get: unsafe extern "C" fn(nvrtcProgram, *mut c_char) -> nvrtcResult,
    ) -> Result<Vec<u8>, Rejected> {
        let mut count = 0;
        // SAFETY: the program is open; writes one number.
        self.nvrtc.check(call, unsafe { size(self.program, &raw mut count) })?;
        let mut bytes = vec![0u8; count];
        // SAFETY: the program is open; writes as many bytes as it has just said.
        self.nvrtc.check(call, unsafe { get(self.program, bytes.as_mut_ptr().cast()) })?;
        Ok(bytes)
    }

    fn symbol(&self, expression: &CStr) -> Result<String, Rejected> {
        let mut symbol: *const c_char = std::ptr::null();
        // SAFETY: the program is compiled and the expression was added before.
        let result = unsafe {
            (self.nvrtc.table.nvrtcGetLoweredName)(self.program, expression.as_ptr(), &raw mut symbol)
        };
        self.nvrtc.check("nvrtcGetLoweredName", result)?;
        // SAFETY: on success a text that ends with a zero and lives as long as the program.
        Ok(unsafe { CStr::from_ptr(symbol) }.to_string_lossy().into_owned())
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        // SAFETY: open, and nothing of it is used after this.
        unsafe { (self.nvrtc.table.nvrtcDestroyProgram)(&raw mut self.program) };
    }
}

fn architectures(table: &Table) -> Option<Vec<u32>> {
    let mut count: c_int = 0;
    // SAFETY: writes one number.
    if unsafe { (table.nvrtcGetNumSupportedArchs)(&raw mut count) } != NVRTC_SUCCESS {
        return None;
    }
    let mut numbers = vec![0; usize::try_from(count).ok()?];
    // SAFETY: writes as many numbers as it has just said.
    let result = unsafe { (table.nvrtcGetSupportedArchs)(numbers.as_mut_ptr()) };
    (result == NVRTC_SUCCESS)
        .then(|| numbers.into_iter().filter_map(|number| u32::try_from(number).ok()).collect())
}

/// The file of a library that has just been opened by a path, or by a name that the loader knows.
fn where_it_is(library: &Path) -> Option<PathBuf> {
    if library.components().count() > 1 {
        return Some(library.to_owned());
    }
    let mapped = search::mapped(&ThisSystem as &dyn Files);
    let named = |path: &&PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&*library.to_string_lossy()))
    };
    mapped.iter().find(named).cloned()
}

fn strings<'a>(what: &str, texts: impl Iterator<Item = &'a str>) -> Result<Vec<CString>, Rejected> {
    texts
        .map(|text| {
            CString::new(text)
                .map_err(|zero| Rejected(format!("a {what} has a zero byte at {}", zero.nul_position())))
        })
        .collect()
}
