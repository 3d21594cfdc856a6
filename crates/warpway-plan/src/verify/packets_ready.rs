//! Which packets a read needs before it can go on.

use std::collections::BTreeMap;

use super::accesses::{Access, Mode, waits_for_packets};
use super::intervals::IntervalSet;
use super::scale::Cut;
use super::trace::Trace;
use crate::ir::{Action, Form};

/// The packet writes to one rank's scratch, item by item, before anything runs.
///
/// A read that takes a share or a slice of its item needs the same piece of the write if the write is cut the same
/// way; else it needs the whole item, since where other pieces end depends on the size.
#[derive(Debug, Clone, Default)]
pub(super) struct PacketItems {
    /// End and cut by first unit; disjoint.
    items: BTreeMap<u64, (u64, Cut)>,
    /// What is written in several ways.
    mixed: IntervalSet,
}

impl PacketItems {
    /// By rank. Empty if no packet operation of the plan takes only a part of its items.
    pub(super) fn of(trace: &Trace<'_>) -> Vec<Self> {
        let mut found = vec![Self::default(); trace.plan().ranks.len()];
        let partial = trace.steps.iter().any(|step| match step.action {
            Action::Data(data) => waits_for_packets(data) && (data.group.is_some() || step.slice.is_some()),
            _ => false,
        });
        if !partial {
            return found;
        }
        let mut accesses = Vec::new();
        for (block, of_block) in trace.blocks.iter().enumerate() {
            for step in &trace.steps[of_block.steps.clone()] {
                let Action::Data(data) = step.action else { continue };
                if !data.kind.uses_packets() {
                    continue;
                }
                accesses.clear();
                trace.accesses(block, step, &mut accesses);
                for access in accesses.iter().filter(|a| (a.mode, a.form) == (Mode::Write, Form::Packets)) {
                    if let Some(items) = found.get_mut(access.extent.rank as usize) {
                        items.add(access.extent.whole(), access.extent.cut);
                    }
                }
            }
        }
        found
    }

    fn add(&mut self, (start, end): (u64, u64), cut: Cut) {
        if self.items.get(&start) == Some(&(end, cut)) || start >= end {
            return;
        }
        let mut overlaps = self.mixed.touches(start, end);
        while let Some((&s, &(e, _))) = self.items.range(..end).next_back() {
            if e <= start {
                break;
            }
            overlaps = true;
            self.items.remove(&s);
            self.mixed.insert(s, e);
        }
        if overlaps {
            self.mixed.insert(start, end);
        } else {
            self.items.insert(start, (end, cut));
        }
    }

    /// The units that must be written before `read` can happen.
    pub(super) fn needed(&self, read: &Access) -> (u64, u64) {
        let extent = &read.extent;
        let (start, end) = extent.whole();
        let alike = self.items.get(&start) == Some(&(end, extent.cut)) && !self.mixed.touches(start, end);
        match alike {
            true => (extent.start, extent.end),
            false if extent.is_empty() => (extent.start, extent.start),
            false => (start, end),
        }
    }
}
