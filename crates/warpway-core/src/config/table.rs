//! All settings: the one place where they are named, described, defaulted and read.

use std::path::PathBuf;
use std::time::Duration;

use super::logging::{self, LogFile, LogLevel, SubsystemFilter};
use super::values::*;
use super::{ConfigError, Environment, Notice};
use crate::bootstrap::{AddressFamily, NameFilter, RootAddress};
use crate::deadline::Timeout;

/// A row of the table, for documentation and messages.
#[derive(Debug, Clone, Copy)]
pub struct Variable {
    /// Full name.
    pub name: &'static str,
    /// Names read if this one is not set, in this order.
    pub aliases: &'static [&'static str],
    /// As one would write it; empty for none.
    pub default: &'static str,
    /// One sentence.
    pub meaning: &'static str,
    /// What acts on it.
    pub effect: Effect,
}

/// What acts on a variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// This version.
    Now,
    /// A part that this version does not have: the value is checked, and setting it gives a [`Notice`].
    Later(&'static str),
}

use Effect::{Later, Now};

const DEFAULT_STREAM: Effect = Later("connections on the default stream");
const SWITCH: Effect = Later("switch channels");
const MAPPED: Effect = Later("GPU memory mapped into the host");
const EXPERTS: Effect = Later("expert parallelism");
const PACKAGE: Effect = Later("the Python package");
const RDMA: Effect = Later("RDMA engine");
const BY_NAME: Effect = Later("plans that are found by name");
const LANGUAGE: Effect = Later("the Python language for plans");
const CONTEXTS: Effect = Later("executor contexts and shared scratch of plans on GPUs");
const NCCL: Effect = Later("libnccl");

/// Row: `NAME field: type = default, "default as text", [alias => parser], parser, effect, "meaning"`.
macro_rules! settings {
    ($($name:literal $field:ident: $type:ty = $default:expr, $shown:literal, [$($alias:literal => $alias_parse:expr),*],
        $parse:expr, $effect:expr, $meaning:literal;)*) => {
        /// Every setting, from code ([`Config::builder`]) or the environment.
        #[derive(Debug, Clone, PartialEq)]
        #[non_exhaustive]
        pub struct Config {
            $(#[doc = concat!("`", $name, "`: ", $meaning)] pub $field: $type,)*
        }

        impl Default for Config {
            /// What holds if neither code nor environment say anything.
            fn default() -> Self {
                Self { $($field: $default,)* }
            }
        }

        /// Settings made in code; they win over the environment, whose value is not even read then.
        #[derive(Debug, Clone, Default)]
        pub struct ConfigBuilder {
            $($field: Option<$type>,)*
        }

        impl ConfigBuilder {
            $(
                #[doc = concat!("In place of `", $name, "`: ", $meaning)]
                pub fn $field(mut self, value: $type) -> Self {
                    self.$field = Some(value);
                    self
                }
            )*

            pub(super) fn read_fields(
                self,
                environment: &Environment,
                notices: &mut Vec<Notice>,
            ) -> Result<Config, ConfigError> {
                Ok(Config {
                    $($field: match self.$field {
                        Some(value) => value,
                        None => {
                            let found: Option<$type> = find(environment, $name, $parse)?;
                            $(
                                let found: Option<$type> = match found {
                                    Some(value) => Some(value),
                                    None => {
                                        let value = find(environment, $alias, $alias_parse)?;
                                        if value.is_some() {
                                            notices.push(Notice::Alias { name: $name, alias: $alias });
                                        }
                                        value
                                    }
                                };
                            )*
                            if let (Some(_), Later(part)) = (&found, $effect) {
                                notices.push(Notice::NoEffect { name: $name, part });
                            }
                            match found {
                                Some(value) => value,
                                None => $default,
                            }
                        }
                    },)*
                })
            }
        }

        /// The table, in the order of the documentation.
        pub(super) const VARIABLES: &[Variable] = &[$(Variable {
            name: $name,
            aliases: &[$($alias),*],
            default: $shown,
            meaning: $meaning,
            effect: $effect,
        },)*];

        /// For each row with a default: its name, and whether the text shown is what is used.
        #[cfg(test)]
        pub(super) fn defaults_as_documented() -> Vec<(&'static str, bool)> {
            let mut rows = Vec::new();
            $(
                let default: $type = $default;
                let parse = $parse;
                if !$shown.is_empty() {
                    rows.push(($name, parse($shown) == Ok(default)));
                }
            )*
            rows
        }
    };
}

settings! {
    "WARPWAY_LOG_LEVEL" log_level: LogLevel = LogLevel::Warn, "WARN",
        ["MSCCLPP_LOG_LEVEL" => logging::level, "MSCCLPP_DEBUG" => logging::level_of_mscclpp],
        logging::level, Now, "least severe level shown: DEBUG, INFO, WARN or ERROR";
    "WARPWAY_LOG_SUBSYS" log_subsys: SubsystemFilter = SubsystemFilter::ALL, "ALL",
        ["MSCCLPP_LOG_SUBSYS" => logging::subsystems], logging::subsystems, Now,
        "comma list of ENV GPU NET CONN EXEC NCCL ALGO PLAN DSL; after `^` all but those";
    "WARPWAY_LOG_FILE" log_file: LogFile = LogFile::Stderr, "stderr",
        ["MSCCLPP_LOG_FILE" => logging::file, "MSCCLPP_DEBUG_FILE" => logging::file], logging::file, Now,
        "file for log lines; `%h` is the host name, `%p` the process id, `%%` a percent sign";

    "WARPWAY_COMM_ID" comm_id: Option<RootAddress> = None, "", [], optional(root_address), Now,
        "where rank 0 listens: `host:port`, `interface:ip:port` or `[ipv6]:port`; the same on all ranks";
    "MSCCLPP_COMM_ID" subnet_hint: Option<RootAddress> = None, "", [], optional(root_address), Now,
        "address whose subnet is preferred among interfaces; never the root's address";
    "WARPWAY_RANK" rank: Option<u32> = None, "", [], optional(whole), Now,
        "this rank; if not set, what the launcher says (RANK, OMPI_COMM_WORLD_RANK, PMI_RANK, SLURM_PROCID)";
    "WARPWAY_WORLD_SIZE" world_size: Option<u32> = None, "", [], optional(world_size), Now,
        "how many ranks the job has; goes with WARPWAY_RANK";
    "WARPWAY_LOCAL_RANK" local_rank: Option<u32> = None, "", [], optional(whole), Now,
        "this rank among those of its host; if not set, what the launcher says";
    "WARPWAY_LOCAL_WORLD_SIZE" local_world_size: Option<u32> = None, "", [], optional(world_size), Now,
        "ranks on this host; if it is all of them, they meet at an abstract Unix socket";
    "WARPWAY_JOB_ID" job_id: Option<String> = None, "", [], optional(text), Now,
        "names the job, so that jobs of one user do not meet; if not set, what the launcher says";
    "WARPWAY_COMM_PORT" comm_port: Option<u16> = None, "", [], optional(port), Now,
        "port at the master's address (MASTER_ADDR) in place of 16 that are derived from the job";
    "WARPWAY_BOOTSTRAP_TOKEN" bootstrap_token: Option<BootstrapToken> = None, "", [], optional(token), Now,
        "secret shared by the ranks; `warpway launch` makes a random one";
    "WARPWAY_BOOTSTRAP_INSECURE" bootstrap_insecure: bool = false, "0", [], boolean, Now,
        "without a token, let ranks of other hosts in: anybody who can reach the root may join the job";
    "WARPWAY_BOOTSTRAP_TIMEOUT_S" bootstrap_timeout: Timeout = Timeout::after(Duration::from_secs(30)), "30", [],
        seconds, Now, "seconds for bootstrap calls; 0 = no limit";
    "WARPWAY_HOSTID" host_id: String = String::new(), "", ["MSCCLPP_HOSTID" => text], text, Now,
        "mixed into the host's identity: ranks with different values do not share memory";
    "WARPWAY_SOCKET_FAMILY" socket_family: Option<AddressFamily> = None, "",
        ["MSCCLPP_SOCKET_FAMILY" => optional(family)], optional(family), Now,
        "AF_INET or AF_INET6: only addresses of this family";
    "WARPWAY_SOCKET_IFNAME" socket_ifname: NameFilter = NameFilter::Any, "",
        ["MSCCLPP_SOCKET_IFNAME" => interface_names], interface_names, Now,
        "interfaces to use: comma list of prefixes; a leading `=` means exact names, a leading `^` all but those";

    "WARPWAY_SETUP_TIMEOUT_S" setup_timeout: Timeout = Timeout::after(Duration::from_secs(60)), "60", [], seconds, Now,
        "seconds for connecting and for other set-up that ranks agree on; 0 = no limit";
    "WARPWAY_DEVICE_TIMEOUT_MS" device_timeout: Timeout = Timeout::after(Duration::from_secs(600)), "600000", [],
        milliseconds, Now, "milliseconds for waits inside kernels; 0 = until failure or abort";
    "WARPWAY_ENGINE" engine: EngineChoice = EngineChoice::Auto, "auto", [], engine, Now,
        "auto, cuda or host; auto takes CUDA if its driver loads and shows a device";
    "WARPWAY_DEVICE" device: Option<u32> = None, "", [], optional(whole), Now,
        "ordinal of the GPU; if not set, that of the calling thread's current context, else the local rank modulo the visible ones";
    "WARPWAY_FIFO_SIZE" fifo_size: u64 = 512, "512", [], fifo_size, Now,
        "triggers that a proxy's FIFO holds; a power of two, 2 to 1048576";

    "WARPWAY_ALGORITHM" algorithm: Option<String> = None, "", [], optional(text), Now,
        "comma list of `function=algorithm`, or `function:MIN-MAX=algorithm` for some sizes, that collectives take; the same on all ranks";
    "WARPWAY_TUNING_FILE" tuning_file: Option<PathBuf> = None, "", [], optional(path), Now,
        "table of `warpway tune` by which collectives choose; the same on all ranks";
    "WARPWAY_TUNING_FORCE" tuning_force: bool = false, "0", [], boolean, Now,
        "uses the table although it was measured on another machine or with another version";

    "WARPWAY_TRACE_DIR" trace_dir: Option<PathBuf> = None, "", [], optional(path), Now,
        "folder for dumps of the flight recorder; off if not set";
    "WARPWAY_TRACE_SIGNAL" trace_signal: DumpSignal = DumpSignal::Number(rustix::process::Signal::USR2.as_raw()),
        "SIGUSR2", [], dump_signal, Now,
        "signal that dumps the flight recorder if TRACE_DIR is set: SIGUSR1, SIGUSR2, SIGHUP or off";
    "WARPWAY_TRACE_RECORDS" trace_records: u32 = 1024, "1024", [], positive, Now,
        "operations that the flight recorder keeps per communicator";
    "WARPWAY_TRACE_SOCKET" trace_socket: bool = true, "1", [], boolean, Now,
        "whether the flight recorder answers on a status socket to processes of the same user";

    "WARPWAY_CACHE_DIR" cache_dir: CacheFolder = CacheFolder::Usual, "", [], cache_folder, Now,
        "folder for native code, or off; if not set, `warpway` in XDG_CACHE_HOME or ~/.cache, without HOME a folder of the user's in TMPDIR";
    "WARPWAY_CACHE_BYTES" cache_bytes: u64 = 256 << 20, "256 MiB", [], bytes, Now,
        "what native code may take there; what was not used for longest is removed";
    "MSCCLPP_CACHE_DIR" plan_search_path: Option<PathBuf> = None, "", [], optional(path), BY_NAME,
        "a further folder to look for plans in; never written";
    "WARPWAY_PLAN_VERIFY" plan_verify: PlanVerify = PlanVerify::Error, "error", [], plan_verify, BY_NAME,
        "what findings of the verifier do: off, warn or error";
    "WARPWAY_PLAN_PROFILE" plan_profile: PlanProfile = PlanProfile::Default, "default", [], plan_profile, BY_NAME,
        "rules that plans must keep: default or strict";
    "WARPWAY_DSL_COMPAT" dsl_compat: bool = false, "", [], mscclpp, LANGUAGE,
        "`mscclpp`: the language writes plans as MSCCL++ does, byte for byte";
    "WARPWAY_CONTEXT_CACHE_MAX" context_cache_max: u32 = 256, "256", [], positive, CONTEXTS,
        "executor contexts that are kept";
    "WARPWAY_SCRATCH_BYTES" scratch_bytes: u64 = 128 << 20, "128 MiB", [], bytes, CONTEXTS,
        "default size of shared scratch memory";

    "WARPWAY_CUDA_DRIVER" cuda_driver: PathBuf = PathBuf::from("libcuda.so.1"), "libcuda.so.1", [], path, Now,
        "the driver library";
    "WARPWAY_NVRTC" nvrtc: Option<PathBuf> = None, "", [], optional(path), Now,
        "the library that compiles kernels; if not set, one that is mapped, of Python's packages, of CUDA_HOME or the loader's";
    "WARPWAY_CUDAIPC_USE_DEFAULT_STREAM" cudaipc_use_default_stream: bool = false, "0",
        ["MSCCLPP_CUDAIPC_USE_DEFAULT_STREAM" => boolean], boolean, DEFAULT_STREAM, "copies of GPU connections go to the default stream";
    "WARPWAY_ENABLE_MULTICAST" enable_multicast: bool = false, "0", [], boolean, SWITCH,
        "switch channels and multicast objects may be made; FORCE_DISABLE_NVLS wins";
    "WARPWAY_FORCE_DISABLE_NVLS" force_disable_nvls: bool = false, "0",
        ["MSCCLPP_FORCE_DISABLE_NVLS" => boolean], boolean, SWITCH, "never use multicast in the switch";
    "WARPWAY_FORCE_DISABLE_GDR" force_disable_gdr: bool = false, "0",
        ["MSCCLPP_FORCE_DISABLE_GDR" => boolean], boolean, MAPPED, "never map GPU memory into the host";
    "WARPWAY_EP_SENTINEL" ep_sentinel_num_experts: bool = false, "-1", [], sentinel, EXPERTS,
        "what marks unused places in expert-parallel index tensors: -1 or num_experts";
    "WARPWAY_HOME" home: Option<PathBuf> = None, "", [], optional(path), PACKAGE,
        "folder of headers and libraries; if not set, the package's own";

    "WARPWAY_HCA_DEVICES" hca_devices: Option<Vec<String>> = None, "",
        ["MSCCLPP_HCA_DEVICES" => optional(list)], optional(list), RDMA,
        "comma list of adapters; its order defines `Ib(n)`; if not set, all";
    "WARPWAY_IBV_SO" ibv_so: Option<PathBuf> = None, "", ["MSCCLPP_IBV_SO" => optional(path)], optional(path), RDMA,
        "the verbs library; if not set, libibverbs.so, then libibverbs.so.1";
    "WARPWAY_IBV_MODE" ibv_mode: VerbsMode = VerbsMode::Host, "host", ["MSCCLPP_IBV_MODE" => verbs_mode], verbs_mode,
        RDMA, "host or host-no-atomic";
    "WARPWAY_IB_GID_INDEX" ib_gid_index: Option<u32> = None, "", ["MSCCLPP_IB_GID_INDEX" => optional(whole)],
        optional(whole), RDMA, "index of the address of an adapter's port; if not set, chosen by its kind";

    "WARPWAY_NCCL_LIB_PATH" nccl_lib_path: Option<PathBuf> = None, "", ["MSCCLPP_NCCL_LIB_PATH" => optional(path)],
        optional(path), NCCL, "the real NCCL, for operations that fall back; a file";
    "WARPWAY_FORCE_NCCL_FALLBACK_OPERATION" force_nccl_fallback_operation: Vec<String> = Vec::new(), "",
        ["MSCCLPP_FORCE_NCCL_FALLBACK_OPERATION" => list], list, NCCL,
        "comma list of operations that fall back, or all";
    "WARPWAY_NCCL_SYMMETRIC_MEMORY" nccl_symmetric_memory: bool = false, "0",
        ["MSCCLPP_NCCL_SYMMETRIC_MEMORY" => boolean], boolean, NCCL, "promises equal offsets on all ranks";
    "WARPWAY_NCCL_VERSION" nccl_version: Option<u32> = None, "", [], optional(nccl_version), NCCL,
        "version that libnccl reports: 22809, 22907, 23007, 23102 or 23203";
    "WARPWAY_TIMEOUT_S" timeout: Option<Timeout> = None, "", [], optional(seconds), NCCL,
        "seconds for an operation, in place of BOOTSTRAP_TIMEOUT_S and DEVICE_TIMEOUT_MS";
    "WARPWAY_WARN_AFTER_S" warn_after: Timeout = Timeout::after(Duration::from_secs(30)), "30", [], seconds, NCCL,
        "seconds after which a stuck wait is logged; 0 = never";
    "WARPWAY_DETERMINISTIC" deterministic: bool = false, "0", [], boolean, NCCL,
        "also fixes algorithm and chunking across sizes and registration";
}

/// Names of MSCCL++ that do nothing here, and what does.
pub(super) const NOT_HONOURED: &[(&str, &str)] = &[
    ("MSCCLPP_ENABLE_NCCL_FALLBACK", "WARPWAY_NCCL_LIB_PATH enables it"),
    ("MSCCLPP_DEBUG_SUBSYS", "set WARPWAY_LOG_SUBSYS"),
    ("MSCCLPP_NPKIT_DUMP_DIR", "set WARPWAY_TRACE_DIR"),
    ("MSCCLPP_HOME", "set WARPWAY_HOME"),
];

fn find<T>(
    environment: &Environment,
    name: &str,
    parse: impl Fn(&str) -> Parsed<T>,
) -> Result<Option<T>, ConfigError> {
    let Some(value) = environment.get(name) else { return Ok(None) };
    parse(value).map(Some).map_err(|expected| ConfigError::Value {
        variable: name.into(),
        value: value.into(),
        expected,
    })
}
