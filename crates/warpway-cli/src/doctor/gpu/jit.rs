//! The compiler of kernels, and the folder where they are kept.

use std::path::PathBuf;
use std::time::Instant;

use serde::Serialize;
use warpway::{Config, Environment, Error};
use warpway_core::config::CacheFolder;
use warpway_cuda::jit::{CodeKind, Compiler, Program};
use warpway_cuda::{Architecture, Context, Module};

use super::{Gpus, ordinals};
use crate::doctor::report::{Area, Report, Status, bytes};

#[derive(Debug, Serialize)]
pub(super) struct NvrtcJson {
    /// `nvrtc 13.0, …`.
    version: String,
    file: PathBuf,
    /// Where the search found it.
    found_by: String,
    architectures: Vec<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct CacheJson {
    folder: PathBuf,
    images: usize,
    damaged: usize,
    bytes: u64,
    bytes_max: u64,
    /// Why nothing new is kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    obstacle: Option<String>,
}

/// Of each generation that kernels are written for; what is compiled where there is no GPU.
const USUAL: Architecture = Architecture { major: 9, minor: 0 };

pub(super) fn check(
    report: &mut Report,
    gpus: &mut Gpus,
    contexts: &[Context],
    config: &Config,
    environment: &Environment,
) {
    let mut area = report.area("jit");
    // What is compiled here is of no use to anybody, so it is not kept.
    let mut forgetful = config.clone();
    forgetful.cache_dir = CacheFolder::Off;
    let compiler = Compiler::new(&forgetful, environment);
    let kept = Compiler::new(config, environment).cache();
    let images =
        kept.as_ref().map_or(0, |kept| kept.entries.iter().filter(|entry| entry.image.is_ok()).count());
    let needed = !contexts.is_empty() || config.nvrtc.is_some();
    if let Some(found) = nvrtc(&mut area, &compiler, needed, images) {
        gpus.nvrtc = Some(found);
        compile(&mut area, &compiler, contexts);
    }
    let Some(kept) = kept else {
        area.ok("kernel cache", "off (WARPWAY_CACHE_DIR): kernels are compiled in each process");
        return;
    };
    let found = CacheJson {
        images,
        damaged: kept.entries.len() - images,
        bytes: kept.entries.iter().map(|entry| entry.bytes).sum(),
        bytes_max: kept.bytes_max,
        folder: kept.folder,
        obstacle: kept.obstacle,
    };
    cache(&mut area, &found);
    gpus.cache = Some(found);
}

fn nvrtc(area: &mut Area<'_>, compiler: &Compiler, needed: bool, images: usize) -> Option<NvrtcJson> {
    let found = || Ok::<_, Error>((compiler.identity()?, compiler.library()?, compiler.architectures()?));
    match found() {
        Ok((version, library, architectures)) => {
            let architectures: Vec<String> = architectures.iter().map(Architecture::to_string).collect();
            let range = match architectures.as_slice() {
                [first, .., last] => format!("{first} to {last}"),
                few => few.concat(),
            };
            area.ok("NVRTC", format!("{version}, {range}: {} ({})", library.file.display(), library.place));
            Some(NvrtcJson { version, file: library.file, found_by: library.place, architectures })
        }
        Err(error) => {
            let (why, hint) = match &error {
                Error::Unavailable(absent) => (absent.why.replace("\n  ", "\n    "), absent.hint),
                other => (other.to_string(), ""),
            };
            let hint = match images {
                0 => hint.to_owned(),
                images => format!("{hint} (the {images} kernels in the cache work without)"),
            };
            let value = match needed {
                true => format!("none: {why}"),
                false => format!("none, nothing here needs it; for `jit warm`: {hint}; {why}"),
            };
            area.add("NVRTC", Status::warn_if(needed), value, hint);
            None
        }
    }
}

/// Compiles a kernel for each kind of device, and loads it: an NVRTC newer than the driver makes what that refuses.
fn compile(area: &mut Area<'_>, compiler: &Compiler, contexts: &[Context]) {
    let mut architectures: Vec<Architecture> =
        contexts.iter().map(|context| context.info().architecture).collect();
    architectures.sort();
    architectures.dedup();
    if architectures.is_empty() {
        architectures.push(USUAL);
    }
    for architecture in architectures {
        let devices: Vec<&Context> =
            contexts.iter().filter(|context| context.info().architecture == architecture).collect();
        let name = format!("kernel for {architecture}");
        let start = Instant::now();
        let program = Program::new("doctor.cu", "extern \"C\" __global__ void doctor() {}\n");
        let image = match compiler.compile(&program, architecture) {
            Ok(image) => image,
            Err(error) => {
                area.add(
                    name,
                    Status::Warn,
                    error.to_string(),
                    "set WARPWAY_NVRTC to another version's library",
                );
                continue;
            }
        };
        let milliseconds = start.elapsed().as_secs_f64() * 1e3;
        let refused = devices.iter().find_map(|context| {
            let kernel =
                Module::load(context, image.code()).and_then(|module| module.kernel("doctor").map(drop));
            kernel.err()
        });
        let code = match image.kind() {
            CodeKind::Cubin => "compiled",
            CodeKind::Ptx => "compiled as PTX, since NVRTC is too old to know it,",
        };
        let compiled = format!("{code} in {milliseconds:.0} ms");
        match refused {
            Some(error) => area.add(
                name,
                Status::Warn,
                format!("{compiled}, but it cannot be loaded: {error}"),
                "the driver must be as new as NVRTC: update it, or set WARPWAY_NVRTC to an older version's library",
            ),
            None if devices.is_empty() => area.ok(name, compiled),
            None => area.ok(name, format!("{compiled}, can be loaded on GPU {}", ordinals(devices))),
        }
    }
}

fn cache(area: &mut Area<'_>, found: &CacheJson) {
    let folder = found.folder.display();
    let damaged = match found.damaged {
        0 => String::new(),
        damaged => format!(", {damaged} damaged"),
    };
    let state = format!(
        "{folder}: {} kernels{damaged}, {} of {}",
        found.images,
        bytes(found.bytes),
        bytes(found.bytes_max)
    );
    match &found.obstacle {
        Some(why) => area.add(
            "kernel cache",
            Status::Warn,
            format!("{state}; nothing is kept: {why}"),
            "each process compiles its kernels anew: set WARPWAY_CACHE_DIR to a folder of yours, or to off",
        ),
        None => area.add(
            "kernel cache",
            Status::warn_if(found.damaged > 0),
            state,
            "damaged files are replaced when their kernels are compiled; warpway jit clear removes them",
        ),
    }
}
