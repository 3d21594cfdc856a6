//! What `WARPWAY_LOG_*` ask for. Installing a subscriber is the program's business, not the library's.

use std::path::PathBuf;

/// Least severe level that is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LogLevel {
    /// Failures only.
    Error,
    /// And what the user should know; the default.
    Warn,
    /// And decisions of the library.
    Info,
    /// And details.
    Debug,
}

impl From<LogLevel> for tracing::Level {
    fn from(level: LogLevel) -> Self {
        match level {
            LogLevel::Error => Self::ERROR,
            LogLevel::Warn => Self::WARN,
            LogLevel::Info => Self::INFO,
            LogLevel::Debug => Self::DEBUG,
        }
    }
}

/// Part of the library that a log line comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Subsystem {
    /// Environment and configuration.
    Env,
    /// GPUs and their driver.
    Gpu,
    /// Bootstrap and network.
    Net,
    /// Memory, connections, semaphores, channels.
    Conn,
    /// Kernels, proxies, executor.
    Exec,
    /// NCCL's interface.
    Nccl,
    /// Choice of algorithms.
    Algo,
    /// Plans.
    Plan,
    /// The description language.
    Dsl,
}

impl Subsystem {
    const ALL: [(&'static str, Self); 9] = [
        ("ENV", Self::Env),
        ("GPU", Self::Gpu),
        ("NET", Self::Net),
        ("CONN", Self::Conn),
        ("EXEC", Self::Exec),
        ("NCCL", Self::Nccl),
        ("ALGO", Self::Algo),
        ("PLAN", Self::Plan),
        ("DSL", Self::Dsl),
    ];

    /// The subsystem of a `tracing` target (a module path); `None` for what belongs to none and is never
    /// filtered by subsystem.
    pub fn of_target(target: &str) -> Option<Self> {
        let mut parts = target.split("::");
        match (parts.next()?, parts.next().unwrap_or_default()) {
            ("warpway_core", "config") => Some(Self::Env),
            ("warpway_core", "bootstrap") | ("warpway_net", _) => Some(Self::Net),
            (
                "warpway_core",
                "memory" | "connection" | "endpoint" | "communicator" | "semaphore" | "channel" | "wire",
            ) => Some(Self::Conn),
            ("warpway", "gpu") | ("warpway_cuda", _) => Some(Self::Gpu),
            ("warpway", "collective") => Some(Self::Algo),
            ("warpway_core", "fifo" | "proxy") | ("warpway_host", _) => Some(Self::Exec),
            _ => None,
        }
    }

    const fn bit(self) -> u16 {
        1 << self as u16
    }
}

/// Which subsystems may log: a comma list of names, `ALL`, or after `^` all but those.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SubsystemFilter(u16);

impl SubsystemFilter {
    /// Every subsystem.
    pub const ALL: Self = Self(0x1ff);

    /// True if lines of this subsystem are shown.
    pub const fn accepts(self, subsystem: Subsystem) -> bool {
        self.0 & subsystem.bit() != 0
    }
}

/// Where log lines go.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum LogFile {
    /// Standard error.
    #[default]
    Stderr,
    /// A file whose name may hold `%h` (host name), `%p` (process id) and `%%`.
    Template(String),
}

impl LogFile {
    /// The path, `None` for standard error.
    pub fn path(&self, host_name: &str, process_id: u32) -> Option<PathBuf> {
        let Self::Template(template) = self else { return None };
        let mut path = String::new();
        let mut characters = template.chars();
        while let Some(c) = characters.next() {
            match (c, characters.clone().next()) {
                ('%', Some('h')) => path.push_str(host_name),
                ('%', Some('p')) => path.push_str(&process_id.to_string()),
                ('%', Some('%')) => path.push('%'),
                _ => {
                    path.push(c);
                    continue;
                }
            }
            characters.next();
        }
        Some(path.into())
    }
}

/// `DEBUG`, `INFO`, `WARN`, `ERROR`, in any case.
pub(super) fn level(text: &str) -> Result<LogLevel, String> {
    match text.to_ascii_uppercase().as_str() {
        "ERROR" => Ok(LogLevel::Error),
        "WARN" => Ok(LogLevel::Warn),
        "INFO" => Ok(LogLevel::Info),
        "DEBUG" => Ok(LogLevel::Debug),
        _ => Err("DEBUG, INFO, WARN or ERROR".into()),
    }
}

/// The levels of `MSCCLPP_DEBUG`, mapped to the nearest of ours.
pub(super) fn level_of_mscclpp(text: &str) -> Result<LogLevel, String> {
    match text.to_ascii_uppercase().as_str() {
        "NONE" | "ABORT" => Ok(LogLevel::Error),
        "VERSION" => Ok(LogLevel::Warn),
        "TRACE" => Ok(LogLevel::Debug),
        _ => level(text).map_err(|_| "NONE, VERSION, WARN, INFO, ABORT or TRACE".into()),
    }
}

pub(super) fn subsystems(text: &str) -> Result<SubsystemFilter, String> {
    let (invert, list) = text.strip_prefix('^').map_or((false, text), |rest| (true, rest));
    let mut bits = 0;
    for name in list.split(',').map(|name| name.trim().to_ascii_uppercase()) {
        match Subsystem::ALL.iter().find(|(known, _)| *known == name) {
            Some((_, subsystem)) => bits |= subsystem.bit(),
            None if name == "ALL" => bits = SubsystemFilter::ALL.0,
            None => {
                let names: Vec<&str> = Subsystem::ALL.iter().map(|(name, _)| *name).collect();
                return Err(format!("a comma list of {} or ALL, after ^ all but those", names.join(" ")));
            }
        }
    }
    Ok(SubsystemFilter(if invert { !bits & SubsystemFilter::ALL.0 } else { bits }))
}

pub(super) fn file(text: &str) -> Result<LogFile, String> {
    match text {
        "stderr" => Ok(LogFile::Stderr),
        text => super::values::path(text).map(|_| LogFile::Template(text.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subsystem_lists() {
        let accepted = |text| {
            let filter = subsystems(text).unwrap();
            Subsystem::ALL
                .iter()
                .filter(|(_, s)| filter.accepts(*s))
                .map(|(name, _)| *name)
                .collect::<Vec<_>>()
        };
        assert_eq!(accepted("net, Exec"), ["NET", "EXEC"]);
        assert_eq!(accepted("^env,gpu,net,conn,exec,nccl"), ["ALGO", "PLAN", "DSL"]);
        assert_eq!(accepted("ALL").len(), 9);
        assert_eq!(accepted("^ALL").len(), 0);
        for bad in ["NETWORK", "NET,", "^", "NET EXEC"] {
            assert!(subsystems(bad).unwrap_err().contains("CONN"), "{bad}");
        }
    }

    #[test]
    fn file_names() {
        let path = |text| file(text).unwrap().path("node7", 42).map(|p| p.to_str().unwrap().to_owned());
        assert_eq!(path("stderr"), None);
        assert_eq!(path("/tmp/%h.%p.log").unwrap(), "/tmp/node7.42.log");
        assert_eq!(path("100%%p%x%").unwrap(), "100%p%x%");
    }

    #[test]
    fn targets() {
        assert_eq!(Subsystem::of_target("warpway_core::bootstrap::mesh"), Some(Subsystem::Net));
        assert_eq!(Subsystem::of_target("warpway_host::blocks"), Some(Subsystem::Exec));
        assert_eq!(Subsystem::of_target("warpway::gpu::jit"), Some(Subsystem::Gpu));
        assert_eq!(Subsystem::of_target("warpway_core"), None);
        assert_eq!(Subsystem::of_target("hyper::proxy"), None);
    }
}
