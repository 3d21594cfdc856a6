//! `docs/environment.md`, made from the table so that it cannot say what the code does not do.

use std::fmt::Write;

use super::Effect;
use super::table::{NOT_HONOURED, VARIABLES};

const RULES: &str = "\
# Environment variables

<!-- Generated from crates/warpway-core/src/config/table.rs; a test compares. To write it anew:
     UPDATE_DOCS=1 cargo nextest run -p warpway-core environment_page -->

* A setting made in code (`Config::builder()`) wins; its variable is not even read.
* A `WARPWAY_` name wins over its aliases. The use of an alias is logged.
* An empty value counts as not set.
* Booleans are `1 true yes on` and `0 false no off` in any case, integers are decimal digits; anything else is an
  error that names the variable.
* A `WARPWAY_` name that does not exist gives a warning with the nearest that does.
* Values are read once per `Config`, not once per process.
";

const LAUNCHERS: &str = "
## Launchers

Rank and world size come from the first of these that sets both; rank and size on the host come along.

| launcher | rank and size | job | host of rank 0, unless `MASTER_ADDR` is set |
|---|---|---|---|
| `warpway launch` | `WARPWAY_RANK`, `WARPWAY_WORLD_SIZE` | `WARPWAY_JOB_ID` | - |
| torchrun | `RANK`, `WORLD_SIZE` | `TORCHELASTIC_RUN_ID`, `TORCHELASTIC_RESTART_COUNT`, `MASTER_PORT` | - |
| Open MPI | `OMPI_COMM_WORLD_RANK`, `OMPI_COMM_WORLD_SIZE` | `PMIX_NAMESPACE`, `OMPI_MCA_orte_precondition_transports` | `OMPI_MCA_orte_hnp_uri` (4.x, the host of mpirun), else Slurm's first node |
| MPICH, Intel MPI (Hydra) | `PMI_RANK`, `PMI_SIZE` | the process `hydra_pmi_proxy` of the host, else Slurm's | Slurm's first node |
| srun | `SLURM_PROCID`, `SLURM_STEP_NUM_TASKS` | `SLURM_JOB_ID`, `SLURM_STEP_ID`, `SLURM_RESTART_COUNT` | first of `SLURM_STEP_NODELIST` |

`WARPWAY_JOB_ID` names the job in place of the launcher. If all ranks are on one host (local size = world size, one
node, or a loopback address) they meet at an abstract Unix socket named by user and job; without a token only
processes of the same user are let in. Otherwise they meet over TCP, at `WARPWAY_COMM_ID`, or on the host of rank 0 at
`WARPWAY_COMM_PORT` or the first free of 16 ports derived from the job; that takes `WARPWAY_BOOTSTRAP_TOKEN`, the same
on all ranks, or `WARPWAY_BOOTSTRAP_INSECURE=1`.
";

/// The page, in Markdown.
pub fn environment_page() -> String {
    let mut page = String::from(RULES);
    page.push_str("\n## Variables\n\n| variable | alias | default | meaning |\n|---|---|---|---|\n");
    table(&mut page, |effect| effect == Effect::Now);
    page.push_str(LAUNCHERS);
    page.push_str(
        "\n## Reserved\n\nThese are checked, but the part that acts on them is not in this version; setting one gives a \
         warning.\n\n| variable | alias | default | meaning |\n|---|---|---|---|\n",
    );
    table(&mut page, |effect| effect != Effect::Now);
    page.push_str(
        "\n## Not honoured\n\nSetting one of these gives a warning.\n\n| variable | instead |\n|---|---|\n",
    );
    for (name, instead) in NOT_HONOURED {
        // Writing to a string cannot fail.
        let _ = writeln!(page, "| `{name}` | {instead} |");
    }
    page
}

fn table(page: &mut String, wanted: impl Fn(Effect) -> bool) {
    for variable in VARIABLES.iter().filter(|variable| wanted(variable.effect)) {
        let code = |text: &str| if text.is_empty() { String::new() } else { format!("`{text}`") };
        let aliases: Vec<String> = variable.aliases.iter().map(|alias| code(alias)).collect();
        let part = match variable.effect {
            Effect::Now => String::new(),
            Effect::Later(part) => format!(" ({part})"),
        };
        let _ = writeln!(
            page,
            "| `{}` | {} | {} | {}{part} |",
            variable.name,
            aliases.join(", "),
            code(variable.default),
            variable.meaning
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn environment_page_is_fresh() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/environment.md");
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(path, environment_page()).unwrap();
        }
        let written = std::fs::read_to_string(path).unwrap();
        assert!(
            written == environment_page(),
            "docs/environment.md is stale; run this test with UPDATE_DOCS=1"
        );
    }

    #[test]
    fn every_variable_is_on_the_page_once() {
        let page = environment_page();
        for variable in VARIABLES {
            assert_eq!(page.matches(&format!("\n| `{}` |", variable.name)).count(), 1, "{}", variable.name);
        }
    }
}
