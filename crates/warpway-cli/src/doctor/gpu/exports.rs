//! How a device's memory can be given to other processes.

use serde::Serialize;
use warpway::Error;
use warpway_cuda::{Context, ExportKinds};

use crate::doctor::report::{Area, Status};

#[derive(Debug, Serialize)]
pub(super) struct ExportsJson {
    /// A file descriptor: exported, imported and mapped.
    descriptor: Outcome,
    /// A CUDA IPC handle: made.
    ipc: Outcome,
    /// A fabric handle: made.
    fabric: Outcome,
}

#[derive(Debug, Serialize)]
struct Outcome {
    works: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    why_not: Option<String>,
}

impl ExportsJson {
    /// Another process of this host can map the device's memory.
    pub(super) fn within_host(&self) -> bool {
        self.descriptor.works || self.ipc.works
    }
}

pub(super) fn check(area: &mut Area<'_>, context: &Context) -> ExportsJson {
    let probed = ExportKinds::probe(context);
    let outcome = |tried: &warpway::Result<()>| Outcome {
        works: tried.is_ok(),
        why_not: tried.as_ref().err().map(reason),
    };
    let exports = ExportsJson {
        descriptor: outcome(&probed.descriptor),
        ipc: outcome(&probed.ipc),
        fabric: outcome(&probed.fabric),
    };
    // What the device does not claim is a fact; what it claims and does not do is worth a warning. Not so with fabric
    // handles: devices claim them wherever a domain could be set up, and one host needs none.
    let is_broken = |tried: &warpway::Result<()>| {
        tried.as_ref().is_err_and(|error| !matches!(error, Error::Unavailable(_)))
    };
    let broken = is_broken(&probed.descriptor) || is_broken(&probed.ipc);
    let kinds = [
        ("file descriptor", &exports.descriptor),
        ("CUDA IPC", &exports.ipc),
        ("fabric handle", &exports.fabric),
    ];
    let working: Vec<&str> = kinds.iter().filter(|(_, kind)| kind.works).map(|(name, _)| *name).collect();
    let mut value = if working.is_empty() { "none".to_owned() } else { working.join(", ") };
    for (name, kind) in kinds {
        if let Some(why) = &kind.why_not {
            value += &format!("; no {name} ({why})");
        }
    }
    let hint = match exports.within_host() {
        true => "the others are used; in a container, look at its security settings",
        false => {
            "peers cannot map its memory, so puts are staged: in a container, look at its security settings"
        }
    };
    let name = format!("GPU {} exports", context.ordinal());
    area.add(name, Status::warn_if(broken || !exports.within_host()), value, hint);
    exports
}

fn reason(error: &Error) -> String {
    match error {
        Error::Unavailable(absent) => absent.why.clone(),
        other => other.to_string(),
    }
}
