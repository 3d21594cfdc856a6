//! `warpway jit list`.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use clap::Args;
use comfy_table::{CellAlignment, Table};
use serde::Serialize;
use warpway_cuda::jit::{CacheContents, CacheEntry, CodeKind, Compiler};

use super::{KernelJson, images, print, print_json};
use crate::table::STYLE;

/// Show what the folder holds, last used first
#[derive(Args)]
pub(super) struct Arguments {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: &Arguments, compiler: &Compiler) -> anyhow::Result<u8> {
    let Some(contents) = compiler.cache() else {
        if arguments.json {
            print_json(&Document { folder: None, bytes: 0, bytes_max: None, images: Vec::new() })?;
        } else {
            print("WARPWAY_CACHE_DIR is off\n")?;
        }
        return Ok(0);
    };
    let bytes = contents.entries.iter().map(|entry| entry.bytes).sum();
    if arguments.json {
        print_json(&Document {
            folder: Some(contents.folder),
            bytes,
            bytes_max: Some(contents.bytes_max),
            images: contents.entries.into_iter().map(Row::new).collect(),
        })?;
        return Ok(0);
    }
    if !contents.entries.is_empty() {
        print(&format!("{}\n", table(&contents)))?;
    }
    let count = images(contents.entries.len() as u64);
    let folder = contents.folder.display();
    print(&format!("{count}, {bytes} of {} bytes in {folder}\n", contents.bytes_max))?;
    Ok(0)
}

/// The form of `--json`.
#[derive(Serialize)]
struct Document {
    folder: Option<PathBuf>,
    bytes: u64,
    bytes_max: Option<u64>,
    images: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    file: String,
    bytes: u64,
    /// Seconds since 1970.
    used: f64,
    program: Option<String>,
    /// `sm_90`, or `compute_90` for PTX.
    architecture: Option<String>,
    kind: Option<CodeKind>,
    compiler: Option<String>,
    compile_milliseconds: Option<f64>,
    kernels: Vec<KernelJson>,
    /// What is wrong with the file.
    damage: Option<String>,
}

impl Row {
    fn new(entry: CacheEntry) -> Self {
        let (image, damage) = match entry.image {
            Ok(image) => (Some(image), None),
            Err(why) => (None, Some(why)),
        };
        let used = entry.used.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self {
            file: entry.file,
            bytes: entry.bytes,
            used: used.as_secs_f64(),
            kind: image.as_ref().map(|image| image.kind),
            compile_milliseconds: image.as_ref().map(|image| image.compile_time.as_secs_f64() * 1e3),
            kernels: image.iter().flat_map(|image| &image.kernels).map(KernelJson::from).collect(),
            compiler: image.as_ref().map(|image| image.compiler.clone()),
            architecture: image.as_ref().map(|image| image.architecture.clone()),
            program: image.map(|image| image.program),
            damage,
        }
    }
}

fn table(contents: &CacheContents) -> Table {
    let mut table = Table::new();
    table.load_style(STYLE);
    table.set_header(["program", "for", "kernels", "bytes", "compiled in", "used", "compiler"]);
    let now = SystemTime::now();
    for entry in &contents.entries {
        let used = now.duration_since(entry.used).map_or_else(|_| "now".to_owned(), ago);
        let bytes = entry.bytes.to_string();
        match &entry.image {
            Ok(image) => table.add_row([
                image.program.clone(),
                image.architecture.clone(),
                image.kernels.len().to_string(),
                bytes,
                format!("{:.0} ms", image.compile_time.as_secs_f64() * 1e3),
                used,
                image.compiler.clone(),
            ]),
            Err(why) => {
                let blank = String::new;
                table.add_row([format!("damaged: {why}"), blank(), blank(), bytes, blank(), used, blank()])
            }
        };
    }
    for column in [2, 3, 4] {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// `3 h ago`.
fn ago(age: Duration) -> String {
    let seconds = age.as_secs();
    match seconds {
        0..60 => "now".to_owned(),
        60..3600 => format!("{} min ago", seconds / 60),
        3600..86_400 => format!("{} h ago", seconds / 3600),
        _ => format!("{} d ago", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_readable() {
        let ages = [0, 59, 60, 3599, 3600, 86_399, 86_400, 864_000].map(|s| ago(Duration::from_secs(s)));
        assert_eq!(
            ages,
            ["now", "now", "1 min ago", "59 min ago", "1 h ago", "23 h ago", "1 d ago", "10 d ago"]
        );
    }
}
