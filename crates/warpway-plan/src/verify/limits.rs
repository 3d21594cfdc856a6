//! What an executor or a device can hold (V8, V406).

use std::collections::BTreeSet;

use super::findings::Findings;
use super::options::{Options, Target};
use super::report::{Diagnostic, Place};
use super::walk::{Site, sites};
use crate::ir::{Action, Plan, Reference, Via};
use crate::topology::Topology;

/// The limits of one executor that depend on the plan alone.
struct Limits {
    name: &'static str,
    channels_per_block: usize,
    channels_per_operation: usize,
    references: usize,
    remote_references: usize,
    operations: usize,
    barriers: usize,
    semaphores: usize,
    proxy_memories: usize,
    proxy_semaphores: usize,
}

impl Limits {
    fn of(plan: &Plan, target: Target) -> Self {
        match target {
            Target::Warpway => Self {
                name: "Warpway",
                channels_per_block: usize::MAX,
                channels_per_operation: plan.threads_per_block as usize,
                references: 64,
                remote_references: 64,
                operations: 65_536,
                barriers: 4096,
                semaphores: 4096,
                proxy_memories: 1 << 24,
                proxy_semaphores: 1 << 24,
            },
            Target::Mscclpp => Self {
                name: "MSCCL++",
                channels_per_block: 16,
                channels_per_operation: 8,
                references: 10,
                remote_references: 8,
                operations: 64,
                barriers: 16,
                semaphores: 16,
                proxy_memories: 512,
                proxy_semaphores: 1024,
            },
        }
    }
}

/// V801 to V805, V808, V810, V811, V406.
pub(super) fn check(topology: &Topology<'_>, options: &Options<'_>, findings: &mut Findings) {
    let plan = topology.plan();
    let limits = Limits::of(plan, options.target);
    let mut checker = Checker { limits: &limits, findings };
    for (rank, of_rank) in (0..).zip(&plan.ranks) {
        let at = Place::rank(rank);
        for (block, of_block) in (0..).zip(&of_rank.blocks) {
            let at = Place { block: Some(block), ..at.clone() };
            for refs in &of_block.channels {
                let what = format!("{} channels of a block", refs.channel_type);
                checker.most(801, &at, &what, refs.channels.len(), limits.channels_per_block);
            }
            let count: usize = of_block
                .operations
                .iter()
                .map(|operation| match &operation.action {
                    Action::Pipeline(pipeline) => 1 + pipeline.body.len(),
                    _ => 1,
                })
                .sum();
            checker.most(804, &at, "operations of a block", count, limits.operations);
        }
        checker.most(805, &at, "semaphores of a rank", of_rank.semaphores.len(), limits.semaphores);
        let ports = topology.rank(rank).map_or(0, |channels| channels.links(Via::Port).len());
        checker.most(808, &at, "port channels of a rank", ports, limits.proxy_semaphores);
        let memories = of_rank.remote_buffers.iter().filter(|remote| remote.port_access).count();
        checker.most(808, &at, "memories that the proxy of a rank reaches", memories, limits.proxy_memories);
        if let Some(device) = options.device {
            let blocks = of_rank.blocks.iter().filter(|block| !block.operations.is_empty()).count();
            if blocks as u64 > device.resident_blocks {
                let rule = if options.target == Target::Mscclpp { 810 } else { 406 };
                let message = format!(
                    "the rank has {blocks} blocks, but the device holds {} at a time: those that wait keep the \
                     others from starting",
                    device.resident_blocks
                );
                checker.findings.push(Diagnostic::error(rule, message).at(at.clone()));
            }
        }
    }
    let mut barriers: BTreeSet<(u32, u32)> = BTreeSet::new();
    for site in sites(plan) {
        checker.operation(&site);
        if let Action::Barrier { id, .. } = site.action {
            barriers.insert((site.rank, *id));
        }
    }
    for rank in 0..plan.n_ranks() {
        let count = barriers.range((rank, 0)..=(rank, u32::MAX)).count();
        checker.most(805, &Place::rank(rank), "barriers of a rank", count, limits.barriers);
    }
    if options.target == Target::Mscclpp {
        for extension in plan.used_extensions().union(&plan.extensions) {
            let message = format!("MSCCL++ does not know the extension {extension}");
            checker.findings.push(Diagnostic::error(811, message));
        }
    }
}

struct Checker<'c> {
    limits: &'c Limits,
    findings: &'c mut Findings,
}

impl Checker<'_> {
    fn most(&mut self, rule: u16, at: &Place, what: &str, found: usize, limit: usize) {
        if found > limit {
            let message = format!("{found} {what}: {} takes {limit}", self.limits.name);
            self.findings.push(Diagnostic::error(rule, message).at(at.clone()));
        }
    }

    fn operation(&mut self, site: &Site<'_>) {
        let limits = self.limits;
        let at = site.place();
        match site.action {
            Action::Signal { channels, .. } | Action::Wait { channels, .. } | Action::Flush { channels } => {
                self.most(
                    802,
                    &at,
                    "channels of an operation",
                    channels.len(),
                    limits.channels_per_operation,
                );
            }
            Action::Acquire { semaphores } | Action::Release { semaphores } => {
                let most = limits.semaphores.min(limits.channels_per_operation.max(16));
                self.most(805, &at, "semaphores of an operation", semaphores.len(), most);
            }
            Action::Data(data) => {
                self.most(
                    802,
                    &at,
                    "channels of an operation",
                    data.channels.len(),
                    limits.channels_per_operation,
                );
                for (list, name) in [(&data.sources, "sources"), (&data.destinations, "destinations")] {
                    self.most(803, &at, name, list.len(), limits.references);
                    let remote = list.iter().filter(|r| !matches!(r, Reference::Local { .. })).count();
                    if list.len() <= limits.references {
                        let what = format!("remote {name}");
                        self.most(803, &at, &what, remote, limits.remote_references);
                    }
                }
            }
            Action::Nop | Action::Barrier { .. } | Action::Pipeline(_) => {}
        }
    }
}
