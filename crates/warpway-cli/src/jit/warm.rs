//! `warpway jit warm`.

use std::io::IsTerminal as _;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;
use comfy_table::{CellAlignment, Table};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use warpway::Config;
use warpway_cuda::jit::{CodeKind, Compiler, Origin, Program, Warmed, built_in_programs};
use warpway_cuda::{Architecture, Driver};

use super::{KernelJson, print, print_json};
use crate::table::STYLE;

/// Compile now what would be compiled at first use
///
/// Without files, all kernels that are built in. With files, these instead: a kernel author sees whether they compile
/// against Warpway's device headers (`#include <warpway/….cuh>`) and those given by --header; other files are not seen. It
/// also shows what registers and spills they cost. A program that is to find them must be the same: its name is FILE as
/// written here, its headers, kernels and options are those given. `origin` in the JSON says where an image came from: compiled, disk or memory.
#[derive(Args)]
#[command(after_long_help = "\
Exit code: 0 if everything was compiled or kept already, 1 if something does not compile, or cannot be kept
(unless WARPWAY_CACHE_DIR is off).

Examples:
  warpway jit warm --arch sm_90
  warpway jit warm --arch 8.0,9.0,10.0 --json
  warpway jit warm mine.cu --kernel 'fold<float, 4>' --define THREADS=512 --json
  warpway jit warm src/mine.cu --header tiles.cuh=src/tiles.cuh")]
pub(super) struct Arguments {
    /// Sources in CUDA C++
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Architectures; default: those of the GPUs here, without a GPU sm_80, sm_90 and sm_100
    #[arg(long, value_name = "ARCH", value_delimiter = ',')]
    arch: Vec<Architecture>,
    /// A header that the files include as NAME, read from FILE (or NAME); may be repeated
    #[arg(long, value_name = "NAME[=FILE]", requires = "files")]
    header: Vec<String>,
    /// Instantiate this kernel of the files; may be repeated (what is no template needs none)
    #[arg(long, value_name = "EXPRESSION", requires = "files")]
    kernel: Vec<String>,
    /// Define a macro for the files; may be repeated
    #[arg(long, value_name = "NAME[=VALUE]", requires = "files")]
    define: Vec<String>,
    /// Pass an option to NVRTC for the files, as --option=-lineinfo; may be repeated
    #[arg(long, value_name = "OPTION", requires = "files")]
    option: Vec<String>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: &Arguments, compiler: &Compiler, config: &Config) -> anyhow::Result<u8> {
    let programs = arguments.programs()?;
    let mut architectures = match arguments.arch.as_slice() {
        [] => architectures_here(config),
        chosen => chosen.to_vec(),
    };
    architectures.sort();
    architectures.dedup();
    let progress = match std::io::stderr().is_terminal() {
        true => ProgressBar::new((programs.len() * architectures.len()) as u64)
            .with_style(ProgressStyle::with_template("{pos}/{len} {wide_bar} {msg}")?),
        false => ProgressBar::hidden(),
    };
    progress.tick();
    let warmed = compiler.warm(&programs, &architectures, |warmed| {
        progress.set_message(format!("{} for {}", warmed.program, warmed.architecture));
        progress.inc(1);
    });
    progress.finish_and_clear();
    let rows: Vec<Row> = warmed.iter().map(Row::new).collect();
    let failed = rows.iter().any(|row| row.error.is_some());
    let folder = compiler.cache().map(|cache| cache.folder);
    // Whoever warms wants to find it later.
    let lost = folder.is_some() && rows.iter().any(|row| row.kept == Some(false));
    let failed = failed || lost;
    if arguments.json {
        print_json(&Document { ok: !failed, compiler: compiler.identity().ok(), folder, programs: rows })?;
    } else {
        print(&format!("{}\n", table(&rows)))?;
        for error in first_errors(&rows) {
            eprintln!("warpway: {error}");
        }
        match folder {
            // Failures leave nothing there.
            Some(_) if rows.iter().all(|row| row.error.is_some()) => {}
            Some(folder) if lost => {
                eprintln!("warpway: not all is kept in {}; the warning above says why", folder.display());
            }
            Some(folder) => print(&format!("kept in {}\n", folder.display()))?,
            None => print("not kept: WARPWAY_CACHE_DIR is off\n")?,
        }
    }
    Ok(u8::from(failed))
}

impl Arguments {
    fn programs(&self) -> anyhow::Result<Vec<Program>> {
        if self.files.is_empty() {
            return Ok(built_in_programs());
        }
        let read = |path: &str| std::fs::read_to_string(path).with_context(|| format!("cannot read {path}"));
        let header = |header: &String| {
            let (name, file) = header.split_once('=').unwrap_or((header, header));
            Ok((name.to_owned(), read(file)?))
        };
        let headers = self.header.iter().map(header).collect::<anyhow::Result<Vec<_>>>()?;
        let program = |path: &PathBuf| {
            let name = path.display().to_string();
            let source = std::fs::read_to_string(path).with_context(|| format!("cannot read {name}"))?;
            let mut program = Program::new(name, source).device_headers();
            for (name, text) in &headers {
                program = program.header(name, text.clone());
            }
            for define in &self.define {
                program = program.option(format!("-D{define}"));
            }
            program = self.option.iter().fold(program, Program::option);
            Ok(self.kernel.iter().fold(program, Program::kernel))
        };
        self.files.iter().map(program).collect()
    }
}

/// Those of the GPUs of this machine, or the oldest of each generation that kernels are written for.
fn architectures_here(config: &Config) -> Vec<Architecture> {
    let devices = Driver::open(&config.cuda_driver).ok().and_then(|driver| driver.devices().ok());
    match devices {
        Some(devices) if !devices.is_empty() => devices.iter().map(|device| device.architecture).collect(),
        _ => [8, 9, 10].map(|major| Architecture { major, minor: 0 }).into(),
    }
}

/// The form of `--json`.
#[derive(Serialize)]
struct Document {
    ok: bool,
    compiler: Option<String>,
    folder: Option<PathBuf>,
    programs: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    program: String,
    /// As asked for.
    architecture: String,
    /// `cubin` or `ptx`.
    kind: Option<CodeKind>,
    /// `compiled`, `disk` or `memory`.
    origin: Option<&'static str>,
    /// On disk, for later processes.
    kept: Option<bool>,
    milliseconds: Option<f64>,
    code_bytes: Option<u64>,
    kernels: Vec<KernelJson>,
    error: Option<String>,
}

impl Row {
    fn new(warmed: &Warmed) -> Self {
        let record = warmed.result.as_ref().ok().map(|(_, record)| record);
        let kernels = warmed.result.iter().flat_map(|(image, _)| image.kernels()).map(KernelJson::from);
        Self {
            program: warmed.program.clone(),
            architecture: warmed.architecture.to_string(),
            kind: record.map(|record| record.kind),
            origin: record.map(|record| match record.origin {
                Origin::Compiled => "compiled",
                Origin::Disk => "disk",
                Origin::Memory => "memory",
            }),
            kept: record.map(|record| record.kept),
            milliseconds: record.map(|record| record.duration.as_secs_f64() * 1e3),
            code_bytes: record.map(|record| record.code_bytes),
            kernels: kernels.collect(),
            error: warmed.result.as_ref().err().map(ToString::to_string),
        }
    }
}

/// A line per kernel.
fn table(rows: &[Row]) -> Table {
    let mut table = Table::new();
    table.load_style(STYLE);
    table.set_header(["program", "for", "from", "ms", "bytes", "kernel", "registers", "stack", "spilled"]);
    let number = |value: Option<u64>| value.map_or(String::new(), |value| value.to_string());
    for row in rows {
        let from = match (row.origin, row.kind) {
            (Some(origin), Some(CodeKind::Ptx)) => format!("{origin} (PTX)"),
            (origin, _) => origin.unwrap_or("failed").to_owned(),
        };
        let milliseconds = row.milliseconds.map_or(String::new(), |value| format!("{value:.1}"));
        let head =
            [row.program.clone(), row.architecture.clone(), from, milliseconds, number(row.code_bytes)];
        let blank = ["", "", "", "", ""].map(String::from);
        let tails = row.kernels.iter().map(|kernel| {
            let spilled = kernel.spill_store_bytes.max(kernel.spill_load_bytes);
            [kernel.kernel.clone(), number(kernel.registers), number(kernel.stack_bytes), number(spilled)]
        });
        let mut tails: Vec<[String; 4]> = tails.collect();
        if tails.is_empty() {
            tails.push(["", "", "", ""].map(String::from));
        }
        for (at, tail) in tails.into_iter().enumerate() {
            let head = if at == 0 { head.clone() } else { blank.clone() };
            table.add_row(head.into_iter().chain(tail));
        }
    }
    for column in [3, 4, 6, 7, 8] {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// Errors, each once: a program is often wrong in the same way for all architectures, and NVRTC absent for all.
fn first_errors(rows: &[Row]) -> Vec<&str> {
    let mut seen: Vec<(&str, &str)> = Vec::new();
    for row in rows {
        let Some(error) = &row.error else { continue };
        let detail = error.split_once(":\n").map_or(error.as_str(), |(_, detail)| detail);
        if !seen.iter().any(|(_, known)| *known == detail) {
            seen.push((error, detail));
        }
    }
    seen.into_iter().map(|(error, _)| error).collect()
}
