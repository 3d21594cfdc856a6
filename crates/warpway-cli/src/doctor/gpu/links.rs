//! How devices reach each other's memory.

use std::collections::BTreeMap;

use serde::Serialize;
use warpway_cuda::{Context, Driver, PeerLink};

use super::{Gpus, list};
use crate::doctor::report::{Area, Status};

#[derive(Debug, Serialize)]
pub(super) struct LinkJson {
    from: i32,
    to: i32,
    /// Loads, stores and copies work; they were enabled.
    access: bool,
    /// So do atomic operations, as the driver says.
    native_atomics: bool,
    /// The driver's order of speed, 0 for the fastest; of no use without access.
    performance_rank: u32,
    /// Why not, if the driver's attributes say otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// What peers have in common, for one line of text.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Reach {
    Atomics(u32),
    NoAtomics(u32),
    Nothing,
    Broken(String),
}

/// Adds a line for each device: the peers that it reaches, alike ones together.
pub(super) fn check(area: &mut Area<'_>, gpus: &mut Gpus, driver: &Driver, contexts: &[Context]) {
    for from in contexts {
        let mut groups: BTreeMap<Reach, Vec<i32>> = BTreeMap::new();
        for to in contexts.iter().filter(|to| *to != from) {
            let link = link(driver, from, to);
            groups.entry(link.reach()).or_default().push(link.to);
            gpus.links.push(link);
        }
        if groups.is_empty() {
            continue;
        }
        let well = groups.keys().all(|reach| matches!(reach, Reach::Atomics(_) | Reach::NoAtomics(_)));
        let words =
            groups.iter().map(|(reach, peers)| format!("{} {}", list(peers.iter().copied()), words(reach)));
        area.add(
            format!("GPU {} reaches", from.ordinal()),
            Status::warn_if(!well),
            words.collect::<Vec<_>>().join("; "),
            "without peer access only port channels connect devices, by way of host memory: see nvidia-smi topo -p2p rw, \
             and whether an IOMMU or the container is in the way",
        );
    }
}

/// Asks, then enables: the hardware may reach what the system forbids.
fn link(driver: &Driver, from: &Context, to: &Context) -> LinkJson {
    let none = PeerLink { access: false, atomics: false, rank: 0 };
    let asked = driver.peer_link(from.ordinal(), to.ordinal());
    let enabled =
        asked.and_then(|link| if link.access { from.enable_peer(to).map(|()| link) } else { Ok(link) });
    let (link, error) = match enabled {
        Ok(link) => (link, None),
        Err(error) => (none, Some(error.to_string())),
    };
    LinkJson {
        from: from.ordinal(),
        to: to.ordinal(),
        access: link.access,
        native_atomics: link.access && link.atomics,
        performance_rank: link.rank,
        error,
    }
}

impl LinkJson {
    fn reach(&self) -> Reach {
        match (&self.error, self.access, self.native_atomics) {
            (Some(error), ..) => Reach::Broken(error.clone()),
            (None, false, _) => Reach::Nothing,
            (None, true, true) => Reach::Atomics(self.performance_rank),
            (None, true, false) => Reach::NoAtomics(self.performance_rank),
        }
    }
}

fn words(reach: &Reach) -> String {
    match reach {
        Reach::Atomics(rank) => format!("with native atomics (performance rank {rank})"),
        Reach::NoAtomics(rank) => format!("without native atomics (performance rank {rank})"),
        Reach::Nothing => "not at all".to_owned(),
        Reach::Broken(error) => format!("not: {error}"),
    }
}
