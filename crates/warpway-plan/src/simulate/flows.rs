//! Transfers as fluid: each runs at a rate, limited by itself and by resources that it shares max-min fairly.
//!
//! Rates of all transfers rise together from zero. One stops rising when it reaches its own limit or when a resource
//! that it uses has no more to give (progressive filling; Bertsekas and Gallager, *Data Networks*, 6.5.2). Rates change
//! only when a transfer begins or ends, so its end is known until the next change.

use std::cmp::Ordering;
use std::collections::{BTreeSet, BinaryHeap};

/// Units per nanosecond of what takes no time; finite, so that sums of products are numbers.
const FASTEST: f64 = 1e15;

/// Number of a transfer.
pub(super) type FlowId = usize;
/// Number of a resource.
pub(super) type ResourceId = usize;

#[derive(Debug, Default)]
pub(super) struct Flows {
    resources: Vec<Resource>,
    flows: Vec<Option<Flow>>,
    free: Vec<FlowId>,
    ends: BinaryHeap<End>,
    /// Resources whose users have changed, and transfers that share none.
    dirty: BTreeSet<ResourceId>,
    fresh: Vec<FlowId>,
    stamps: u64,
}

#[derive(Debug)]
struct Resource {
    capacity: f64,
    users: BTreeSet<FlowId>,
    /// What has been used of it, in units of capacity times time.
    used: f64,
}

#[derive(Debug)]
struct Flow {
    remaining: f64,
    rate: f64,
    limit: f64,
    /// What one unit of the transfer takes of each resource.
    uses: Vec<(ResourceId, f64)>,
    /// When `remaining` was worked out.
    at: f64,
    stamp: u64,
    /// Who waits for its end.
    owner: usize,
}

/// When a transfer ends if nothing changes. The heap gives the earliest; of equals the one that was worked out first.
#[derive(Debug, PartialEq)]
struct End {
    at: f64,
    stamp: u64,
    flow: FlowId,
}

impl Eq for End {}

impl Ord for End {
    fn cmp(&self, other: &Self) -> Ordering {
        other.at.total_cmp(&self.at).then(other.stamp.cmp(&self.stamp))
    }
}

impl PartialOrd for End {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Flows {
    /// A resource that gives so many units per nanosecond.
    pub(super) fn resource(&mut self, capacity: f64) -> ResourceId {
        self.resources.push(Resource { capacity, users: BTreeSet::new(), used: 0.0 });
        self.resources.len() - 1
    }

    /// Begins a transfer of `amount` units at most at `limit` units per nanosecond.
    pub(super) fn start(
        &mut self,
        now: f64,
        amount: f64,
        limit: f64,
        uses: Vec<(ResourceId, f64)>,
        owner: usize,
    ) {
        let limit = limit.min(FASTEST);
        let flow = Flow { remaining: amount, rate: 0.0, limit, uses, at: now, stamp: 0, owner };
        let id = match self.free.pop() {
            Some(id) => id,
            None => {
                self.flows.push(None);
                self.flows.len() - 1
            }
        };
        for (resource, _) in &flow.uses {
            self.resources[*resource].users.insert(id);
            self.dirty.insert(*resource);
        }
        self.flows[id] = Some(flow);
        self.fresh.push(id);
    }

    /// Lets the transfer that `owner` waits for last that long from now on, if it would be shorter by itself.
    pub(super) fn delay(&mut self, now: f64, owner: usize, lasts: f64) {
        let mut flows = self.flows.iter_mut().enumerate();
        let Some((id, flow)) = flows
            .find_map(|(id, flow)| flow.as_mut().filter(|flow| flow.owner == owner).map(|flow| (id, flow)))
        else {
            return;
        };
        let left = (flow.remaining - (now - flow.at) * flow.rate).max(0.0);
        if lasts > 0.0 && left / lasts < flow.limit {
            flow.limit = left / lasts;
            self.dirty.extend(flow.uses.iter().map(|(resource, _)| *resource));
            self.fresh.push(id);
        }
    }

    /// The earliest end of a transfer, once rates are worked out anew.
    pub(super) fn next_end(&mut self, now: f64) -> Option<f64> {
        self.settle(now);
        while let Some(end) = self.ends.peek() {
            let is_current = self.flows[end.flow].as_ref().is_some_and(|flow| flow.stamp == end.stamp);
            if is_current {
                return Some(end.at);
            }
            self.ends.pop();
        }
        None
    }

    /// Ends the transfer that [`next_end`](Self::next_end) has found; who waited for it.
    pub(super) fn end_next(&mut self) -> Option<usize> {
        let end = self.ends.pop()?;
        let flow = self.flows[end.flow].take()?;
        for (resource, share) in &flow.uses {
            let resource = &mut self.resources[*resource];
            resource.users.remove(&end.flow);
            resource.used += (end.at - flow.at) * flow.rate * share;
        }
        self.dirty.extend(flow.uses.iter().map(|(resource, _)| *resource));
        self.free.push(end.flow);
        Some(flow.owner)
    }

    /// Share of a resource that was used until `end`, and how much.
    pub(super) fn load(&self, resource: ResourceId, end: f64) -> (f64, f64) {
        let Resource { capacity, used, .. } = self.resources[resource];
        (if end > 0.0 { used / (capacity * end) } else { 0.0 }, used)
    }

    /// Works out the rates of all transfers that are affected by what began and ended.
    fn settle(&mut self, now: f64) {
        if self.dirty.is_empty() && self.fresh.is_empty() {
            return;
        }
        let (flows, resources) = self.affected();
        let mut free: Vec<(ResourceId, f64)> =
            resources.iter().map(|resource| (*resource, self.resources[*resource].capacity)).collect();
        let mut open: Vec<FlowId> = flows.iter().copied().collect();
        let mut rates: Vec<(FlowId, f64)> = Vec::with_capacity(open.len());
        let place =
            |list: &[(ResourceId, f64)], resource: ResourceId| list.binary_search_by_key(&resource, |r| r.0);
        while !open.is_empty() {
            // How far all can rise: to the least limit, or until a resource is used up.
            let mut demand = vec![0.0; free.len()];
            let mut level = f64::INFINITY;
            for flow in open.iter().filter_map(|id| self.flows[*id].as_ref()) {
                level = level.min(flow.limit);
                for (resource, share) in &flow.uses {
                    if let Ok(at) = place(&free, *resource) {
                        demand[at] += share;
                    }
                }
            }
            let mut scarce = vec![false; free.len()];
            for ((_, left), demand) in free.iter().zip(&demand) {
                if *demand > 0.0 {
                    level = level.min(left.max(0.0) / demand);
                }
            }
            for (at, ((_, left), demand)) in free.iter().zip(&demand).enumerate() {
                scarce[at] = *demand > 0.0 && left.max(0.0) / demand <= level * (1.0 + 1e-12);
            }
            let before = open.len();
            open.retain(|id| {
                let Some(flow) = &self.flows[*id] else { return false };
                let is_scarce = |(resource, share): &(ResourceId, f64)| {
                    *share > 0.0 && place(&free, *resource).is_ok_and(|at| scarce[at])
                };
                let fixed = flow.limit <= level || flow.uses.iter().any(is_scarce);
                if fixed {
                    rates.push((*id, level.min(flow.limit)));
                }
                !fixed
            });
            for (id, rate) in &rates[rates.len() - (before - open.len())..] {
                let Some(flow) = &self.flows[*id] else { continue };
                for (resource, share) in &flow.uses {
                    if let Ok(at) = place(&free, *resource) {
                        free[at].1 -= rate * share;
                    }
                }
            }
            if before == open.len() {
                break;
            }
        }
        for (id, rate) in rates {
            self.set_rate(now, id, rate);
        }
    }

    /// What changes reach through shared resources.
    fn affected(&mut self) -> (BTreeSet<FlowId>, BTreeSet<ResourceId>) {
        let mut flows: BTreeSet<FlowId> = self.fresh.drain(..).collect();
        let mut resources = std::mem::take(&mut self.dirty);
        let mut open: Vec<ResourceId> = resources.iter().copied().collect();
        while let Some(resource) = open.pop() {
            for id in &self.resources[resource].users {
                if flows.insert(*id) || self.flows[*id].as_ref().is_some_and(|flow| flow.stamp == 0) {
                    let uses = self.flows[*id].iter().flat_map(|flow| &flow.uses);
                    open.extend(uses.map(|(other, _)| *other).filter(|other| resources.insert(*other)));
                }
            }
        }
        (flows, resources)
    }

    fn set_rate(&mut self, now: f64, id: FlowId, rate: f64) {
        let Some(flow) = &mut self.flows[id] else { return };
        if flow.stamp > 0 && flow.rate == rate {
            return;
        }
        let done = (now - flow.at) * flow.rate;
        flow.remaining = (flow.remaining - done).max(0.0);
        for (resource, share) in &flow.uses {
            self.resources[*resource].used += done * share;
        }
        self.stamps += 1;
        (flow.rate, flow.at, flow.stamp) = (rate, now, self.stamps);
        let lasts = if flow.remaining == 0.0 { 0.0 } else { flow.remaining / rate };
        self.ends.push(End { at: now + lasts, stamp: flow.stamp, flow: id });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs until nothing is left; (owner, end) in order.
    fn run(flows: &mut Flows) -> Vec<(usize, f64)> {
        let (mut now, mut ends) = (0.0, Vec::new());
        while let Some(end) = flows.next_end(now) {
            now = end;
            ends.push((flows.end_next().unwrap(), now));
        }
        ends
    }

    /// Bertsekas and Gallager's kind of example: a long transfer over two links, a short one over each; the second link
    /// is wider. The first link gives 1/2 to each of its two, what the long one leaves of the second link goes to the other.
    #[test]
    fn a_wider_link_gives_what_a_narrow_one_leaves() {
        let mut flows = Flows::default();
        let (narrow, wide) = (flows.resource(1.0), flows.resource(3.0));
        flows.start(0.0, 10.0, f64::INFINITY, vec![(narrow, 1.0), (wide, 1.0)], 0);
        flows.start(0.0, 5.0, f64::INFINITY, vec![(narrow, 1.0)], 1);
        flows.start(0.0, 50.0, f64::INFINITY, vec![(wide, 1.0)], 2);
        // 0 and 1 at 1/2, 2 at 5/2. At 10 transfer 1 ends: 0 has 5 left and gets 1, 2 has 25 left and gets 2. At 15
        // transfer 0 ends; 2 has 15 left and gets 3.
        assert_eq!(run(&mut flows), [(1, 10.0), (0, 15.0), (2, 20.0)]);
        assert_eq!(flows.load(narrow, 20.0), (0.75, 15.0));
        assert_eq!(flows.load(wide, 20.0), (1.0, 60.0));
    }

    #[test]
    fn limits_and_weights_count() {
        let mut flows = Flows::default();
        let memory = flows.resource(1.0);
        // Each byte of transfer 0 takes a quarter of a nanosecond of memory, of transfer 1 half a one.
        flows.start(0.0, 8.0, 1.0, vec![(memory, 0.25)], 0);
        flows.start(0.0, 6.0, f64::INFINITY, vec![(memory, 0.5)], 1);
        flows.start(0.0, 3.0, 1.5, Vec::new(), 2);
        // 0 is limited to 1 and leaves 3/4 of the memory: 1 runs at 3/2. Both end memory's work at 4; then 0 goes on at 1.
        assert_eq!(run(&mut flows), [(2, 2.0), (1, 4.0), (0, 8.0)]);
    }

    #[test]
    fn a_transfer_can_be_delayed_on_its_way() {
        let mut flows = Flows::default();
        let memory = flows.resource(1.0);
        flows.start(0.0, 8.0, 2.0, vec![(memory, 0.25)], 0);
        flows.start(0.0, 8.0, f64::INFINITY, vec![(memory, 0.25)], 1);
        // Each has 2 for itself; from 1 on the first has 6 left to last 12, so the other one may go faster: 3.5.
        assert_eq!(flows.next_end(0.0), Some(4.0));
        flows.delay(1.0, 0, 12.0);
        assert_eq!(flows.next_end(1.0), Some(1.0 + 6.0 / 3.5));
        flows.delay(1.0, 0, 3.0);
        assert_eq!(run(&mut flows), [(1, 1.0 + 6.0 / 3.5), (0, 13.0)]);
    }

    #[test]
    fn nothing_to_move_ends_at_once() {
        let mut flows = Flows::default();
        let link = flows.resource(1.0);
        flows.start(5.0, 0.0, 1.0, vec![(link, 1.0)], 7);
        assert_eq!(flows.next_end(5.0), Some(5.0));
        assert_eq!(flows.end_next(), Some(7));
        assert_eq!(flows.next_end(5.0), None);
    }
}
