//! Multicast groups (V901, V903).

use std::collections::BTreeMap;

use super::findings::Findings;
use super::options::{Options, Target};
use super::report::{Diagnostic, Place};
use super::walk::sites;
use crate::ir::{Action, BufferKind, ChannelType, ReduceOp};
use crate::topology::Topology;

/// The buffer and the members of a switch channel.
type Group<'p> = (BufferKind, &'p [u32]);

/// V901 on the channel lists, V903 on the operations.
pub(super) fn check(topology: &Topology<'_>, options: &Options<'_>, findings: &mut Findings) {
    agreement(topology, findings);
    capabilities(topology, options, findings);
}

/// V901. Groups are set up in list order by all members, so any two ranks must list the groups that they have in
/// common equally.
fn agreement(topology: &Topology<'_>, findings: &mut Findings) {
    let n_ranks = topology.plan().n_ranks();
    let mut common: BTreeMap<(u32, u32), [Vec<Group<'_>>; 2]> = BTreeMap::new();
    for rank in 0..n_ranks {
        let Some(channels) = topology.rank(rank) else { continue };
        for channel in channels.switch.iter().filter(|channel| channel.group.ranks.contains(&rank)) {
            let group = (channel.buffer, channel.group.ranks.as_slice());
            for &member in channel.group.ranks.iter().filter(|m| **m != rank && **m < n_ranks) {
                let side = usize::from(rank > member);
                common.entry((rank.min(member), rank.max(member))).or_default()[side].push(group);
            }
        }
    }
    for ((low, high), [left, right]) in common {
        let first = (0..left.len().max(right.len())).find(|at| left.get(*at) != right.get(*at));
        if let Some(at) = first {
            let name = |group: Option<&Group<'_>>| match group {
                None => "none".to_owned(),
                Some((buffer, ranks)) => format!("buffer {buffer} of ranks {ranks:?}"),
            };
            let message = format!(
                "the switch channels of ranks {low} and {high} with each other differ at number {at}: {} and {}",
                name(left.get(at)),
                name(right.get(at)),
            );
            let hint = "list the same groups, members and buffers in the same order on all members";
            let places = Diagnostic::error(901, message).at(Place::rank(low)).at(Place::rank(high));
            findings.push(places.hint(hint));
        }
    }
}

/// V903, as far as the device is known.
fn capabilities(topology: &Topology<'_>, options: &Options<'_>, findings: &mut Findings) {
    let multicast = options.device.map(|device| device.multicast);
    if multicast.is_none() && options.target == Target::Warpway {
        return;
    }
    for site in sites(topology.plan()) {
        let Action::Data(data) = site.action else { continue };
        if data.channel_type != Some(ChannelType::Switch) {
            continue;
        }
        let op = data.fold.as_ref().map(|fold| fold.op).filter(|_| data.kind.is_switch_fold());
        let message = match (multicast, op) {
            (Some(false), _) => "the device has no multicast".to_owned(),
            (_, Some(op @ (ReduceOp::Prod | ReduceOp::Avg))) => format!("multicast cannot reduce by {op}"),
            _ => continue,
        };
        findings.push(Diagnostic::error(903, message).at(site.place()));
    }
}
