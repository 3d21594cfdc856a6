//! Log lines as `WARPWAY_LOG_LEVEL`, `WARPWAY_LOG_SUBSYS` and `WARPWAY_LOG_FILE` say.

use std::fs::OpenOptions;
use std::io;
use std::sync::Arc;

use tracing::subscriber::set_global_default;
use tracing::{Level, Metadata, Subscriber};
use tracing_subscriber::filter::{FilterFn, LevelFilter};
use tracing_subscriber::fmt::writer::BoxMakeWriter;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use warpway_core::bootstrap::ProcessIdentity;
use warpway_core::config::{Config, Subsystem, SubsystemFilter};
use warpway_core::{Result, SystemError};

/// What shows Warpway's log lines, and no others, as `config` says; for `tracing::subscriber`.
///
/// # Errors
/// `system` naming the file if it cannot be opened.
pub fn log_subscriber(config: &Config) -> Result<impl Subscriber + Send + Sync + 'static> {
    let level = LevelFilter::from_level(Level::from(config.log_level));
    let subsystems = config.log_subsys;
    let shown = FilterFn::new(move |line: &Metadata<'_>| is_shown(line.target(), subsystems));
    let lines = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(writer(config)?);
    Ok(tracing_subscriber::registry().with(lines.with_filter(level).with_filter(shown)))
}

/// Shows log lines unless the program has a subscriber of its own.
pub(crate) fn show_logs(config: &Config) -> Result<()> {
    if !tracing::dispatcher::has_been_set() {
        // Another thread may have been quicker, which is as good.
        let _ = set_global_default(log_subscriber(config)?);
    }
    Ok(())
}

fn is_shown(target: &str, subsystems: SubsystemFilter) -> bool {
    let own = target.split("::").next().is_some_and(|name| name.starts_with("warpway"));
    own && Subsystem::of_target(target).is_none_or(|subsystem| subsystems.accepts(subsystem))
}

fn writer(config: &Config) -> Result<BoxMakeWriter> {
    let host = ProcessIdentity::read(&config.host_id)?.host.name;
    let Some(path) = config.log_file.path(&host, std::process::id()) else {
        return Ok(BoxMakeWriter::new(io::stderr));
    };
    let file = OpenOptions::new().create(true).append(true).open(&path).map_err(|error| {
        SystemError::from_io(format!("opening {}", path.display()), &error).with_hint("see WARPWAY_LOG_FILE")
    })?;
    Ok(BoxMakeWriter::new(Arc::new(file)))
}
