//! Where a plan and a machine come from: a file or the catalogue; a topology file.

use std::path::PathBuf;

use clap::Args;
use warpway_collectives::{
    Cluster, Function, MOST_BLOCKS, Message, Task, World, catalogue, estimate, estimated, find,
};
use warpway_plan::simulate::{Machine, Request};
use warpway_plan::verify::{Options, VerifiedPlan};
use warpway_plan::{DataType, Plan, Repairs};

use super::{File, Unreadable};

/// A plan for a number of ranks on hosts.
#[derive(Args)]
pub(super) struct Source {
    /// The plan's file; `-` is standard input
    #[arg(value_name = "FILE", conflicts_with = "collective", required_unless_present_any = ["collective", "example", "schema"])]
    path: Option<PathBuf>,
    /// A plan of the catalogue instead: all_reduce, all_gather, …
    #[arg(long, value_name = "FUNCTION", value_parser = function)]
    collective: Option<Function>,
    /// Which of its algorithms
    #[arg(long, requires = "collective")]
    algorithm: Option<String>,
    /// Ranks of a plan of the catalogue
    #[arg(short = 'n', long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=16_777_216))]
    ranks: u32,
    /// Hosts among which the ranks are divided evenly; without it, ranks fill the hosts of the topology
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=16_777_216))]
    hosts: Option<u32>,
    /// Blocks per rank of a plan of the catalogue
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_BLOCKS)))]
    blocks: u32,
    /// Root, of functions that have one
    #[arg(long, value_name = "RANK", default_value_t = 0)]
    root: u32,
    /// Input and output are one memory
    #[arg(long)]
    in_place: bool,
    /// Type of the elements
    #[arg(long = "type", value_name = "TYPE", default_value = "float32", value_parser = data_type)]
    data_type: DataType,
    /// The machine: a topology file, as `warpway plan calibrate` writes them; without it, a made-up one
    #[arg(long, value_name = "FILE", env = "WARPWAY_TOPOLOGY")]
    topology: Option<PathBuf>,
    /// Print a topology file to start from, and do nothing else
    #[arg(long)]
    pub(super) example: bool,
    /// Print the JSON Schema of topology files, and do nothing else
    #[arg(long)]
    pub(super) schema: bool,
}

/// Ranks of a plan of the catalogue at most.
const MOST_RANKS: u32 = 1024;

pub(super) fn function(text: &str) -> Result<Function, String> {
    let names = || Function::NAMED.iter().map(|(_, name)| *name).collect::<Vec<_>>().join(", ");
    Function::from_name(text).ok_or_else(|| format!("no function `{text}`: use one of {}", names()))
}

fn data_type(text: &str) -> Result<DataType, String> {
    text.parse().map_err(|error: warpway_plan::UnknownDataType| error.to_string())
}

/// A plan, and what an executor adds to it.
pub(super) struct Planned {
    pub(super) plan: Plan,
    pub(super) repairs: Repairs,
    pub(super) name: String,
}

impl Source {
    pub(super) fn plan(&self) -> anyhow::Result<Planned> {
        let refused = |why: String| anyhow::Error::from(Unreadable(why));
        let Some(function) = self.collective else {
            let path = self.path.clone().unwrap_or_else(|| "-".into());
            let plan = File { path }.plan()?;
            let options = Options { root: self.root, ..Options::default() };
            let proven = VerifiedPlan::new(plan, &options).map_err(|error| refused(error.to_string()))?;
            let (repairs, name) = (proven.repairs().clone(), proven.plan().name.clone());
            return Ok(Planned { plan: proven.into_plan(), repairs, name });
        };
        self.check_ranks()?;
        let algorithms = || catalogue().filter(|algorithm| algorithm.function == function);
        let names = || algorithms().map(|algorithm| algorithm.name).collect::<Vec<_>>().join(", ");
        let task = self.task(function);
        let algorithm = match &self.algorithm {
            Some(name) => find(function, name).ok_or_else(|| {
                refused(format!("no algorithm `{name}` for {function}: there are {}", names()))
            })?,
            None => algorithms()
                .find(|algorithm| (algorithm.fits)(&task).is_ok())
                .ok_or_else(|| refused(format!("no algorithm for {function} fits: there are {}", names())))?,
        };
        let proven = algorithm.prove(&task).map_err(|error| refused(error.to_string()))?;
        let name = format!("{function} by {}", algorithm.name);
        Ok(Planned { repairs: proven.repairs().clone(), plan: proven.into_plan(), name })
    }

    fn task(&self, function: Function) -> Task {
        let world = match self.ranks_per_host(self.ranks) {
            Some(hosts) => World::of_hosts(&hosts),
            None => World::one_host(self.ranks),
        };
        let task = Task::new(function, world).with_blocks(self.blocks);
        let task = if function.is_rooted() { task.with_root(self.root) } else { task };
        if self.in_place { task.in_place() } else { task }
    }

    fn ranks_per_host(&self, n_ranks: u32) -> Option<Vec<u32>> {
        let hosts = self.hosts?;
        Some((0..hosts).map(|host| n_ranks / hosts + u32::from(host < n_ranks % hosts)).collect())
    }

    /// The topology; ranks that it has no room for are placed all the same where nothing is said of hosts.
    pub(super) fn machine(&self) -> anyhow::Result<Machine> {
        let Some(path) = &self.topology else {
            super::complain(
                "no --topology: these are times of a made-up machine (see `warpway plan calibrate`)",
            );
            return Ok(Machine { stragglers: Vec::new(), ..Machine::example() });
        };
        let file = path.display();
        let text = std::fs::read_to_string(path).map_err(|error| Unreadable(format!("{file}: {error}")))?;
        Ok(Machine::from_json(&text).map_err(|error| Unreadable(format!("{file}: {error}")))?)
    }

    /// A request for a message of so many bytes of the plan.
    pub(super) fn request(&self, planned: &Planned, bytes: u64) -> Request<'static> {
        let n_ranks = planned.plan.n_ranks();
        // Of one host, unless hosts are named: more ranks than cores are possible there.
        let ranks_per_host = self.ranks_per_host(n_ranks).unwrap_or_else(|| vec![n_ranks]);
        Request {
            data_type: self.data_type,
            repairs: planned.repairs.clone(),
            ranks_per_host: Some(ranks_per_host),
            ..Request::message(bytes)
        }
    }

    /// Nanoseconds of an algorithm for a message, step by step for a typical rank.
    pub(super) fn estimate(&self, machine: &Machine, bytes: u64) -> anyhow::Result<f64> {
        let refused = |why: String| anyhow::Error::from(Unreadable(why));
        let hosts = self.hosts.unwrap_or(1);
        if !self.ranks.is_multiple_of(hosts) {
            return Err(refused(format!("{} ranks are not divided evenly among {hosts} hosts", self.ranks)));
        }
        let cluster = Cluster { hosts, ranks_per_host: self.ranks / hosts };
        let message = Message { bytes, data_type: self.data_type };
        let name = self.algorithm.as_deref().unwrap_or_default();
        let found = self.collective.and_then(|function| estimate(function, name, machine, cluster, message));
        found.ok_or_else(|| {
            let list: Vec<String> =
                estimated().map(|(function, name)| format!("{function} by {name}")).collect();
            refused(format!("no estimate for that on {hosts} hosts: there are {}", list.join(", ")))
        })
    }

    /// What `estimate` is about.
    pub(super) fn title(&self) -> String {
        let function = self.collective.map(|function| function.to_string()).unwrap_or_default();
        let algorithm = self.algorithm.as_deref().unwrap_or_default();
        format!("{function} by {algorithm}: {} ranks on {} hosts", self.ranks, self.hosts.unwrap_or(1))
    }

    /// Plans of so many ranks are not built.
    fn check_ranks(&self) -> anyhow::Result<()> {
        match self.ranks {
            0..=MOST_RANKS => Ok(()),
            ranks => {
                Err(Unreadable(format!("{ranks} ranks are more than {MOST_RANKS}: use --estimate")).into())
            }
        }
    }

    /// Prints what is asked for instead of a simulation; true if something was.
    pub(super) fn prints(&self) -> anyhow::Result<bool> {
        if self.example {
            super::print(&Machine::example().to_json())?;
        } else if self.schema {
            super::print(&warpway_plan::simulate::machine_schema())?;
        }
        Ok(self.example || self.schema)
    }
}
