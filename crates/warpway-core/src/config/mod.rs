//! Configuration, from code or from the environment.
//!
//! ```
//! use warpway_core::config::{Config, Environment};
//! use warpway_core::Timeout;
//!
//! let environment: Environment = [("WARPWAY_BOOTSTRAP_TIMEOUT_S", "5")].into_iter().collect();
//! let loaded = Config::read(&environment)?;
//! assert_eq!(loaded.config.bootstrap_timeout, Timeout::after(std::time::Duration::from_secs(5)));
//! // What is set in code wins.
//! let loaded = Config::builder().bootstrap_timeout(Timeout::NONE).read(&environment)?;
//! assert_eq!(loaded.config.bootstrap_timeout, Timeout::NONE);
//! # Ok::<(), warpway_core::config::ConfigError>(())
//! ```
//!
//! Nothing here reads the process's environment except [`Environment::of_process`], and nothing is kept per
//! process: every [`Config`] is read anew.

mod document;
mod environment;
mod error;
mod logging;
mod notice;
mod table;
mod values;

use std::path::PathBuf;

pub use document::environment_page;
pub use environment::Environment;
pub use error::ConfigError;
pub use logging::{LogFile, LogLevel, Subsystem, SubsystemFilter};
pub use notice::Notice;
pub use table::{Config, ConfigBuilder, Effect, Variable};
pub use values::{BootstrapToken, CacheFolder, DumpSignal, EngineChoice, PlanProfile, PlanVerify, VerbsMode};

/// Settings, and what the user should know about how they came about.
#[derive(Debug, Clone, PartialEq)]
pub struct Loaded {
    /// The settings.
    pub config: Config,
    /// To be logged once logging is set up ([`Notice::log`]).
    pub notices: Vec<Notice>,
}

impl Config {
    /// Settings of an environment.
    ///
    /// # Errors
    /// `config.value` for the first variable that cannot be read.
    pub fn read(environment: &Environment) -> Result<Loaded, ConfigError> {
        Self::builder().read(environment)
    }

    /// Settings made in code.
    pub fn builder() -> ConfigBuilder {
        ConfigBuilder::default()
    }

    /// All variables, in the order of the documentation.
    pub fn variables() -> &'static [Variable] {
        table::VARIABLES
    }

    /// The cache folder, `None` if there is to be none: `WARPWAY_CACHE_DIR`, else `warpway` in an absolute
    /// XDG_CACHE_HOME or in `~/.cache`, else (without an absolute HOME) a folder of the user's in TMPDIR or `/tmp`.
    /// Others may have made the last one, so check whose it is before use.
    pub fn cache_folder(&self, environment: &Environment) -> Option<PathBuf> {
        match &self.cache_dir {
            CacheFolder::Off => return None,
            CacheFolder::At(folder) => return Some(folder.clone()),
            CacheFolder::Usual => {}
        }
        let absolute = |name| environment.get(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let caches = absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")));
        Some(match caches {
            Some(caches) => caches.join("warpway"),
            None => absolute("TMPDIR")
                .unwrap_or_else(|| "/tmp".into())
                .join(format!("warpway-{}", rustix::process::geteuid().as_raw())),
        })
    }
}

impl ConfigBuilder {
    /// Adds what the environment says about everything that was not set in code.
    ///
    /// # Errors
    /// `config.value` for the first variable that cannot be read.
    pub fn read(self, environment: &Environment) -> Result<Loaded, ConfigError> {
        let mut notices = Vec::new();
        let config = self.read_fields(environment, &mut notices)?;
        notices.extend(notice::foreign(environment));
        Ok(Loaded { config, notices })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deadline::Timeout;
    use std::time::Duration;

    fn read(variables: &[(&str, &str)]) -> Result<Loaded, ConfigError> {
        Config::read(&variables.iter().copied().collect())
    }

    #[test]
    fn n63_warnings_are_visible_by_default() {
        let config = read(&[]).unwrap().config;
        assert_eq!(config.log_level, LogLevel::Warn);
        assert!(config.log_level >= LogLevel::Warn);
        assert_eq!(config.log_subsys, SubsystemFilter::ALL);
        assert_eq!(config, Config::default());
    }

    /// A value for each variable that differs from its default. A variable that nothing reads fails here.
    fn example(name: &str) -> &'static str {
        match name {
            "WARPWAY_LOG_LEVEL" => "info",
            "WARPWAY_LOG_SUBSYS" => "^NET",
            "WARPWAY_LOG_FILE" => "/tmp/%h",
            "WARPWAY_COMM_ID" | "MSCCLPP_COMM_ID" => "10.0.0.1:1",
            "WARPWAY_SOCKET_FAMILY" => "AF_INET6",
            "WARPWAY_ENGINE" => "host",
            "WARPWAY_TRACE_SIGNAL" => "off",
            "WARPWAY_TRACE_SOCKET" => "0",
            "WARPWAY_PLAN_VERIFY" => "warn",
            "WARPWAY_PLAN_PROFILE" => "strict",
            "WARPWAY_DSL_COMPAT" => "mscclpp",
            "WARPWAY_CACHE_BYTES" | "WARPWAY_SCRATCH_BYTES" => "3 GiB",
            "WARPWAY_EP_SENTINEL" => "num_experts",
            "WARPWAY_IBV_MODE" => "host-no-atomic",
            "WARPWAY_NCCL_VERSION" => "22907",
            "WARPWAY_FIFO_SIZE" => "2",
            // Also a port, a boolean, a name.
            _ => "1",
        }
    }

    #[test]
    fn n65_every_documented_variable_is_read() {
        for variable in Config::variables() {
            for name in std::iter::once(&variable.name).chain(variable.aliases) {
                let loaded = read(&[(name, example(variable.name))]).unwrap();
                assert_ne!(loaded.config, Config::default(), "{name} changes nothing");
                let alias = Notice::Alias { name: variable.name, alias: name };
                assert_eq!(loaded.notices.contains(&alias), *name != variable.name);
                let later = matches!(variable.effect, Effect::Later(_));
                let no_effect = loaded.notices.iter().any(|n| matches!(n, Notice::NoEffect { .. }));
                assert_eq!(no_effect, later, "{name}");
            }
        }
    }

    #[test]
    fn n65_names_that_are_not_honoured_warn() {
        for (name, instead) in table::NOT_HONOURED {
            let loaded = read(&[(name, "1")]).unwrap();
            assert_eq!(loaded.config, Config::default());
            assert_eq!(loaded.notices, [Notice::NotHonoured { name, instead }]);
        }
        assert_eq!(read(&[("MSCCLPP_MASTER_ADDR", "x"), ("MSCCLPP_MASTER_PORT", "y")]).unwrap().notices, []);
    }

    #[test]
    fn n67_bad_values_are_errors_and_empty_ones_are_not_set() {
        for variable in Config::variables() {
            assert_eq!(read(&[(variable.name, "")]).unwrap(), read(&[]).unwrap(), "{}", variable.name);
        }
        for (name, bad) in [
            ("WARPWAY_BOOTSTRAP_INSECURE", "maybe"),
            ("WARPWAY_RANK", "0x1"),
            ("WARPWAY_RANK", "-1"),
            ("WARPWAY_WORLD_SIZE", "0"),
            ("WARPWAY_WORLD_SIZE", "4294967296"),
            ("WARPWAY_FIFO_SIZE", "500"),
            ("WARPWAY_BOOTSTRAP_TIMEOUT_S", "30s"),
            ("WARPWAY_SOCKET_FAMILY", "inet"),
            ("WARPWAY_COMM_ID", "10.0.0.1"),
            ("MSCCLPP_DEBUG", "LOUD"),
            ("WARPWAY_LOG_LEVEL", "TRACE"),
        ] {
            let error = read(&[(name, bad)]).unwrap_err();
            let ConfigError::Value { variable, value, expected } = &error else { panic!("{error}") };
            assert_eq!((variable.as_str(), value.as_str()), (name, bad));
            assert!(!expected.is_empty() && error.to_string().contains(name));
        }
    }

    #[test]
    fn n68_without_home_the_cache_is_in_a_folder_of_the_user() {
        let folder = |variables: &[(&str, &str)]| {
            let environment: Environment = variables.iter().copied().collect();
            Config::read(&environment).unwrap().config.cache_folder(&environment).unwrap()
        };
        let user = format!("warpway-{}", rustix::process::geteuid().as_raw());
        assert_eq!(folder(&[("HOME", "/home/ada")]), PathBuf::from("/home/ada/.cache/warpway"));
        assert_eq!(folder(&[]), PathBuf::from("/tmp").join(&user));
        assert_eq!(folder(&[("HOME", ""), ("TMPDIR", "/scratch")]), PathBuf::from("/scratch").join(&user));
        assert_eq!(folder(&[("HOME", "~")]), PathBuf::from("/tmp").join(&user));
        assert_eq!(folder(&[("WARPWAY_CACHE_DIR", "/c"), ("HOME", "/h")]), PathBuf::from("/c"));
        assert_eq!(folder(&[("XDG_CACHE_HOME", "/x"), ("HOME", "/h")]), PathBuf::from("/x/warpway"));
        assert_eq!(folder(&[("XDG_CACHE_HOME", "x"), ("HOME", "/h")]), PathBuf::from("/h/.cache/warpway"));
        assert_eq!(folder(&[("WARPWAY_CACHE_DIR", "./off")]), PathBuf::from("./off"));
        assert!(read(&[("WARPWAY_CACHE_DIR", "~/cache")]).is_err(), "nobody expands it");
        for off in ["off", "OFF"] {
            let environment: Environment = [("WARPWAY_CACHE_DIR", off), ("HOME", "/h")].into_iter().collect();
            assert_eq!(Config::read(&environment).unwrap().config.cache_folder(&environment), None);
        }
    }

    #[test]
    fn the_own_name_beats_the_alias_and_code_beats_both() {
        let both =
            [("WARPWAY_LOG_LEVEL", "ERROR"), ("MSCCLPP_LOG_LEVEL", "DEBUG"), ("MSCCLPP_DEBUG", "garbage")];
        let loaded = read(&both).unwrap();
        assert_eq!((loaded.config.log_level, loaded.notices), (LogLevel::Error, vec![]));

        let aliases = [("MSCCLPP_DEBUG", "TRACE"), ("WARPWAY_LOG_LEVEL", "")];
        let loaded = read(&aliases).unwrap();
        assert_eq!(loaded.config.log_level, LogLevel::Debug);
        assert_eq!(loaded.notices, [Notice::Alias { name: "WARPWAY_LOG_LEVEL", alias: "MSCCLPP_DEBUG" }]);

        let environment = [("WARPWAY_LOG_LEVEL", "garbage")].into_iter().collect();
        let loaded = Config::builder().log_level(LogLevel::Info).read(&environment).unwrap();
        assert_eq!((loaded.config.log_level, loaded.notices), (LogLevel::Info, vec![]));
    }

    #[test]
    fn defaults_are_as_documented() {
        for (name, agrees) in table::defaults_as_documented() {
            assert!(agrees, "{name}: the default and its text differ");
        }
        assert_eq!(Config::default().bootstrap_timeout, Timeout::after(Duration::from_secs(30)));
    }

    #[test]
    fn secrets_are_not_printed() {
        let variables = [("WARPWAY_BOOTSTRAP_TOKEN", "hunter2")];
        let environment: Environment = variables.into_iter().collect();
        let shown = format!("{environment:?} {:?}", Config::read(&environment).unwrap());
        assert!(!shown.contains("hunter2") && shown.contains("WARPWAY_BOOTSTRAP_TOKEN"));
    }
}
