//! The ordering contract of one (peer, tag), as a state machine without I/O.
//!
//! Handles that go out are numbered, calls that await one are numbered; the i-th handle of the peer
//! meets the i-th call here. When they do not fit, both sides learn of it and this tag is broken for good:
//! what would come after could only be garbage. Other tags are not concerned.

use std::collections::{BTreeMap, VecDeque};

use crate::wire::Kind;

/// A call of the user, as the other side's errors will name it.
#[derive(Debug, Clone)]
pub(super) struct Call<P> {
    /// The handle that it awaits, `None` for a call that only sends.
    pub(super) awaits: Option<Kind>,
    /// The call and its place in the source.
    pub(super) text: String,
    /// What completes it.
    pub(super) payload: P,
}

/// A handle that has arrived.
#[derive(Debug, Clone)]
pub(super) struct Arrival<M> {
    pub(super) kind: Kind,
    pub(super) sequence: u64,
    /// The call that sent it.
    pub(super) text: String,
    pub(super) message: M,
}

/// What must be done now, in this order.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Action<P, M> {
    /// The call has met its handle. Once it has been dealt with, the peer is to be told that all its
    /// handles below `below` have.
    Meet { payload: P, message: M, below: u64 },
    /// The peer has dealt with what this call sent.
    Delivered { payload: P },
    /// The call cannot complete any more.
    Fail { payload: P, why: Break },
    /// Tell the peer that its handle met a call that does not fit.
    TellMismatched { sequence: u64, call: String },
}

/// Why a tag is broken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Break {
    /// Call here, call there.
    Mismatch { sequence: u64, here: String, there: String },
    /// A number is missing or repeated.
    Sequence { expected: u64, found: u64 },
}

#[derive(Debug)]
pub(super) struct Lane<P, M> {
    /// Number of the next handle that goes out.
    next_out: u64,
    /// Number of the next handle that comes in.
    next_in: u64,
    /// Number of the next handle to meet a call.
    next_met: u64,
    /// Calls without a handle; empty unless `arrived` is.
    expected: VecDeque<Call<P>>,
    /// Handles without a call; empty unless `expected` is.
    arrived: VecDeque<Arrival<M>>,
    /// Calls whose handles the peer has not dealt with, by number.
    sent: BTreeMap<u64, Call<P>>,
    broken: Option<Break>,
}

impl<P: Clone, M> Lane<P, M> {
    pub(super) fn new() -> Self {
        Self {
            next_out: 0,
            next_in: 0,
            next_met: 0,
            expected: VecDeque::new(),
            arrived: VecDeque::new(),
            sent: BTreeMap::new(),
            broken: None,
        }
    }

    pub(super) fn broken(&self) -> Option<&Break> {
        self.broken.as_ref()
    }

    /// The number that the next handle to go out carries.
    pub(super) fn next_out(&self) -> u64 {
        self.next_out
    }

    /// The number of the next handle to be awaited.
    pub(super) fn next_awaited(&self) -> u64 {
        self.next_met + self.expected.len() as u64
    }

    /// The handle of `call` has been sent, with the number [`next_out`](Self::next_out).
    pub(super) fn sent(&mut self, call: Call<P>) {
        self.sent.insert(self.next_out, call);
        self.next_out += 1;
    }

    /// The user awaits a handle.
    pub(super) fn expect(&mut self, call: Call<P>) -> Vec<Action<P, M>> {
        match self.arrived.pop_front() {
            Some(arrival) => self.meet(call, arrival),
            None => {
                self.expected.push_back(call);
                Vec::new()
            }
        }
    }

    /// A handle has arrived.
    pub(super) fn arrive(&mut self, arrival: Arrival<M>) -> Vec<Action<P, M>> {
        if self.broken.is_some() {
            return Vec::new();
        }
        if arrival.sequence != self.next_in {
            let (expected, found) = (self.next_in, arrival.sequence);
            let call = format!("an exchange that was due as number {expected}");
            let mut actions = vec![Action::TellMismatched { sequence: found, call }];
            actions.extend(self.break_off(Break::Sequence { expected, found }));
            return actions;
        }
        self.next_in += 1;
        match self.expected.pop_front() {
            Some(call) => self.meet(call, arrival),
            None => {
                self.arrived.push_back(arrival);
                Vec::new()
            }
        }
    }

    /// The peer has dealt with every handle below `below`.
    pub(super) fn matched(&mut self, below: u64) -> Vec<Action<P, M>> {
        let later = self.sent.split_off(&below);
        let met = std::mem::replace(&mut self.sent, later);
        met.into_values().map(|call| Action::Delivered { payload: call.payload }).collect()
    }

    /// The handle `sequence` met a call of the peer that does not fit.
    pub(super) fn mismatched(&mut self, sequence: u64, there: String) -> Vec<Action<P, M>> {
        let here = self.sent.get(&sequence).map(|call| call.text.clone());
        let here = here.unwrap_or_else(|| "an earlier call".to_owned());
        self.break_off(Break::Mismatch { sequence, here, there })
    }

    fn meet(&mut self, call: Call<P>, arrival: Arrival<M>) -> Vec<Action<P, M>> {
        if call.awaits == Some(arrival.kind) {
            self.next_met += 1;
            let (payload, message, below) = (call.payload, arrival.message, self.next_met);
            return vec![Action::Meet { payload, message, below }];
        }
        let Arrival { sequence, text, .. } = arrival;
        let mut actions = vec![Action::TellMismatched { sequence, call: call.text.clone() }];
        let why = Break::Mismatch { sequence, here: call.text.clone(), there: text };
        actions.push(Action::Fail { payload: call.payload, why: why.clone() });
        actions.extend(self.break_off(why));
        actions
    }

    fn break_off(&mut self, why: Break) -> Vec<Action<P, M>> {
        if self.broken.is_some() {
            return Vec::new();
        }
        self.broken = Some(why.clone());
        self.arrived.clear();
        let calls = std::mem::take(&mut self.expected).into_iter();
        let calls = calls.chain(std::mem::take(&mut self.sent).into_values());
        calls.map(|call| Action::Fail { payload: call.payload, why: why.clone() }).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn call(text: &str, awaits: Option<Kind>) -> Call<String> {
        Call { awaits, text: text.into(), payload: text.into() }
    }

    fn arrival(sequence: u64, kind: Kind, text: &str) -> Arrival<u64> {
        Arrival { kind, sequence, text: text.into(), message: sequence }
    }

    #[test]
    fn a_mismatch_names_both_calls_and_ends_the_tag() {
        let mut lane = Lane::new();
        lane.sent(call("send", None));
        assert_eq!(lane.expect(call("recv a", Some(Kind::Memory))), []);
        assert_eq!(lane.expect(call("recv b", Some(Kind::Memory))), []);
        let why = Break::Mismatch { sequence: 0, here: "recv a".into(), there: "connect x".into() };
        let fail = |payload: &str| Action::Fail { payload: payload.into(), why: why.clone() };
        let told = Action::TellMismatched { sequence: 0, call: "recv a".into() };
        let actions = lane.arrive(arrival(0, Kind::Endpoint, "connect x"));
        assert_eq!(actions, [told, fail("recv a"), fail("recv b"), fail("send")]);
        assert_eq!(lane.broken(), Some(&why));
        assert_eq!(lane.arrive(arrival(1, Kind::Memory, "send y")), []);
    }

    #[test]
    fn the_sender_learns_which_of_its_calls_did_not_fit() {
        let mut lane = Lane::<_, u64>::new();
        for text in ["send 0", "send 1", "send 2"] {
            lane.sent(call(text, None));
        }
        assert_eq!(lane.matched(1), [Action::Delivered { payload: "send 0".into() }]);
        let why = Break::Mismatch { sequence: 1, here: "send 1".into(), there: "connect x".into() };
        let fail = |payload: &str| Action::Fail { payload: payload.into(), why: why.clone() };
        assert_eq!(lane.mismatched(1, "connect x".into()), [fail("send 1"), fail("send 2")]);
    }

    #[test]
    fn gaps_and_repetitions_are_found() {
        for (first, found) in [(Some(0), 0), (Some(0), 2), (None, 1), (None, u64::MAX)] {
            let mut lane = Lane::<String, _>::new();
            if let Some(first) = first {
                assert_eq!(lane.arrive(arrival(first, Kind::Memory, "send")), []);
            }
            lane.arrive(arrival(found, Kind::Memory, "send"));
            let expected = first.map_or(0, |first| first + 1);
            assert_eq!(lane.broken(), Some(&Break::Sequence { expected, found }));
        }
    }

    proptest! {
        /// Whatever the interleaving, call i meets handle i.
        #[test]
        fn the_ith_call_meets_the_ith_handle(calls_first in proptest::collection::vec(any::<bool>(), 0..60)) {
            let mut lane = Lane::new();
            let (mut calls, mut handles, mut met) = (0u64, 0u64, 0u64);
            for is_call in calls_first {
                let actions = if is_call {
                    calls += 1;
                    assert_eq!(lane.next_awaited(), calls - 1);
                    lane.expect(call(&(calls - 1).to_string(), Some(Kind::Memory)))
                } else {
                    handles += 1;
                    lane.arrive(arrival(handles - 1, Kind::Memory, "send"))
                };
                let expected: Vec<Action<String, u64>> = if calls.min(handles) > met {
                    met += 1;
                    vec![Action::Meet { payload: (met - 1).to_string(), message: met - 1, below: met }]
                } else {
                    vec![]
                };
                prop_assert_eq!(actions, expected);
            }
        }
    }
}
