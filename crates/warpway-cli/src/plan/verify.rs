//! `warpway plan verify`.

use std::io::IsTerminal as _;

use clap::{Args, ValueEnum};
use warpway_plan::verify::{self, Diagnostic, Options, Report, Rule, Verdict};
use warpway_plan::{Plan, ReadError, ReadPlan, Repairs};

use super::{File, Unreadable, print, print_json};
use crate::size;

/// Prove that a plan ends, is free of races and computes what it claims
#[derive(Args)]
#[command(after_long_help = "\
The profile `default` warns about what MSCCL++ programs commonly do and Warpway repairs when it
runs them; `strict` makes it errors. For the target `mscclpp`, which repairs nothing, only strict
counts. docs/plan-rules.md lists the rules.

Exit code:
  0  accepted; warnings are allowed
  1  rejected
  2  inconclusive
  3  unreadable: no such file, not JSON, or wrong arguments

Examples:
  warpway plan verify allreduce.json
  warpway plan verify allreduce.json --profile strict --target mscclpp --json
  warpway plan verify custom.json --bytes 1M,64M --waive V306")]
pub(super) struct Arguments {
    #[command(flatten)]
    file: File,
    /// How strict
    #[arg(long, value_enum, default_value = "default")]
    profile: Profile,
    /// Whose executor the plan is for
    #[arg(long, value_enum, default_value = "warpway")]
    target: Target,
    /// Check these message sizes as well; suffixes K, M, G
    #[arg(long, alias = "size", value_delimiter = ',', value_parser = size::parse)]
    bytes: Vec<u64>,
    /// Root of broadcast, reduce, gather and scatter
    #[arg(long, value_name = "RANK", default_value_t = 0)]
    root: u32,
    /// Take findings of this rule for notes, e.g. V306 (may be repeated)
    #[arg(long, value_name = "RULE", value_parser = rule)]
    waive: Vec<Rule>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Profile {
    /// Habits of MSCCL++ programs are warnings
    Default,
    /// They are errors
    Strict,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Target {
    /// Warpway's
    Warpway,
    /// MSCCL++'s, with its limits and defects
    Mscclpp,
}

/// `V306`.
fn rule(text: &str) -> Result<Rule, String> {
    let number = text.strip_prefix(['V', 'v']).and_then(|digits| digits.parse().ok());
    number
        .filter(|number| (100..1000).contains(number))
        .map(Rule)
        .ok_or_else(|| format!("`{text}` is not a rule such as V306"))
}

impl Arguments {
    fn options(&self) -> Options<'static> {
        Options {
            target: match self.target {
                Target::Warpway => verify::Target::Warpway,
                Target::Mscclpp => verify::Target::Mscclpp,
            },
            profile: match self.profile {
                Profile::Default => verify::Profile::Default,
                Profile::Strict => verify::Profile::Strict,
            },
            root: self.root,
            sizes: self.bytes.clone(),
            waivers: self.waive.clone(),
            ..Options::default()
        }
    }
}

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<u8> {
    let (plan, report) = match Plan::from_json(&arguments.file.bytes()?) {
        Ok(ReadPlan { plan, warnings, .. }) => {
            if arguments.root >= plan.n_ranks() {
                let what = format!("--root {}: the plan has {} ranks", arguments.root, plan.n_ranks());
                return Err(Unreadable(what).into());
            }
            let mut report = verify::verify(&plan, &arguments.options());
            // What the reader alone has seen: the plan does not hold keys that mean nothing.
            let known = |noted: &Diagnostic| {
                report.diagnostics.iter().any(|d| (d.rule, &d.message) == (noted.rule, &noted.message))
            };
            let noted = warnings.into_iter().map(Diagnostic::from);
            let noted: Vec<Diagnostic> = noted.filter(|noted| !known(noted)).collect();
            report.diagnostics.splice(0..0, noted);
            (Some(plan), report)
        }
        Err(ReadError::NoPlan { errors, more_errors, warnings }) => {
            let mut diagnostics: Vec<Diagnostic> = errors.into_iter().map(Diagnostic::from).collect();
            if more_errors > 0 {
                diagnostics
                    .push(Diagnostic::info(101, format!("{more_errors} more errors of form are not listed")));
            }
            diagnostics.extend(warnings.into_iter().map(Diagnostic::from));
            diagnostics.sort_by_key(|diagnostic| diagnostic.rule);
            let report = Report {
                verdict: Verdict::Reject,
                roundings: None,
                fold_roles: verify::FoldRoles::default(),
                shareable_areas: verify::ShareableAreas::default(),
                reused_slices: None,
                repairs: Repairs::default(),
                sizes: None,
                diagnostics,
            };
            (None, report)
        }
        Err(error) => {
            return Err(Unreadable(format!("{}: {error}", arguments.file.path.display())).into());
        }
    };
    if arguments.json {
        print_json(&report)?;
    } else {
        let colours = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        print(&report.display(plan.as_ref()).with_colours(colours).to_string())?;
    }
    Ok(report.verdict.exit_code())
}
