//! Holding the contest: one run of the command per function and type, in which the peers take turns.

use std::fs;
use std::process::Stdio;
use std::time::Instant;

use anyhow::{Context as _, ensure};

use super::file::{File, Run, VERSION};
use crate::bench::machine::{self, Machine};
use crate::figures;
use crate::run::{cargo, root, step};

/// Measure collectives over a range of sizes, in turns with Open MPI and Gloo, and keep the figures
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Number of ranks
    #[arg(long, default_value_t = 2)]
    ranks: u32,
    /// Which collectives
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "all_reduce,all_gather,reduce_scatter,all_to_all,broadcast"
    )]
    functions: Vec<String>,
    /// Types of the elements
    #[arg(long, value_delimiter = ',', default_value = "float32,bfloat16")]
    types: Vec<String>,
    /// Smallest size, of the larger buffer
    #[arg(long, default_value = "8")]
    min_bytes: String,
    /// Largest size
    #[arg(long, default_value = "256M")]
    max_bytes: String,
    /// Factor between sizes
    #[arg(long, default_value_t = 2)]
    factor: u32,
    /// Peers
    #[arg(long, value_delimiter = ',', default_value = "mpi,gloo")]
    vs: Vec<String>,
    /// Batches of each contestant and size at most
    #[arg(long, default_value_t = 15)]
    batches: u32,
    /// Seconds after which a size gets no further round, once it has had five
    #[arg(long, default_value = "0.5")]
    limit: String,
    /// Name of the file under benchmarks/results; by default collective_N_ranks
    #[arg(long)]
    name: Option<String>,
    /// Print the tables only, write no file
    #[arg(long)]
    dry: bool,
}

impl Arguments {
    /// The words behind `warpway`.
    fn command(&self, function: &str, data_type: &str) -> Vec<String> {
        let words = [
            "bench",
            function,
            "--ranks",
            &self.ranks.to_string(),
            "--type",
            data_type,
            "--min-bytes",
            &self.min_bytes,
            "--max-bytes",
            &self.max_bytes,
            "--factor",
            &self.factor.to_string(),
            "--vs",
            &self.vs.join(","),
            "--batches",
            &self.batches.to_string(),
            "--limit",
            &self.limit,
        ];
        words.map(str::to_owned).to_vec()
    }

    /// What makes such a file.
    fn line(&self) -> String {
        format!(
            "cargo xtask bench collectives --ranks {} --functions {} --types {} --min-bytes {} --max-bytes {} --factor {} \
             --vs {} --batches {} --limit {}",
            self.ranks,
            self.functions.join(","),
            self.types.join(","),
            self.min_bytes,
            self.max_bytes,
            self.factor,
            self.vs.join(","),
            self.batches,
            self.limit,
        )
    }

    fn name(&self) -> String {
        self.name.clone().unwrap_or_else(|| format!("collective_{}_ranks", self.ranks))
    }
}

/// Measures everything; writes the file and the pages that show it.
pub(crate) fn hold(arguments: &Arguments) -> anyhow::Result<()> {
    step("warpway", cargo("build").args(["--release", "--package", "warpway-cli"]))?;
    let mut runs = Vec::new();
    let begin = Instant::now();
    for function in &arguments.functions {
        for data_type in &arguments.types {
            let command = arguments.command(function, data_type);
            eprintln!("xtask: {:>4} s  warpway {}", begin.elapsed().as_secs(), command.join(" "));
            runs.extend(measure(&command, arguments.dry)?);
        }
    }
    eprintln!("xtask: {:>4} s  done", begin.elapsed().as_secs());
    if arguments.dry {
        return Ok(());
    }
    let (commit, modified) = machine::commit()?;
    let file = File {
        version: VERSION,
        collectives: arguments.name(),
        date: machine::date(),
        commit,
        modified,
        machine: Machine::detect()?,
        command: arguments.line(),
        runs,
    };
    let path = root().join("benchmarks/results").join(format!("{}.json", file.collectives));
    let text = file.text()?;
    File::parse(&text).context("the file would not read back")?;
    fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    eprintln!("xtask: wrote {}", path.display());
    figures::refresh(true)
}

/// One function and type; nothing if only the table is wanted.
fn measure(words: &[String], table: bool) -> anyhow::Result<Option<Run>> {
    let mut command = std::process::Command::new(root().join("target/release/warpway"));
    command.args(words).current_dir(root()).stdin(Stdio::null());
    if table {
        let status = command.status().context("cannot start warpway")?;
        ensure!(status.success(), "{}: it ended with {status}", words.join(" "));
        return Ok(None);
    }
    let output = command.arg("--json").stderr(Stdio::inherit()).output().context("cannot start warpway")?;
    ensure!(output.status.success(), "{}: it ended with {}", words.join(" "), output.status);
    Ok(Some(serde_json::from_slice(&output.stdout).context("not a document of `warpway bench`")?))
}
