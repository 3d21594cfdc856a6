//! Random programs: the default against MSCCL++'s passes.

use proptest::prelude::*;
use warpway_plan::{
    Action, CollectiveShape, Compat, DataSync, Operation, Plan, Program, ProgramOptions, Reduction,
};

use crate::Pair;

/// One call on block 0 of rank 0. Chunks are numbers 0 to 23: input, output, scratch.
#[derive(Debug, Clone)]
enum Call {
    Copy(u64, u64),
    Put(u64, u64),
    Get(u64, u64),
    Reduce(u64, u64),
    ReducePackets(u64, u64),
    Unpack(u64, u64),
    Nop,
    Signal(usize, DataSync),
    Wait(usize, DataSync),
    Pipeline(Vec<Call>),
}

fn flat_call() -> impl Strategy<Value = Call> {
    let chunk = || 0u64..24;
    let sync =
        || prop::sample::select(vec![DataSync::None, DataSync::Before, DataSync::After, DataSync::Both]);
    prop_oneof![
        4 => (chunk(), chunk()).prop_map(|(a, b)| Call::Copy(a, b)),
        2 => (chunk(), chunk()).prop_map(|(a, b)| Call::Put(a, b)),
        2 => (chunk(), chunk()).prop_map(|(a, b)| Call::Get(a, b)),
        3 => (chunk(), chunk()).prop_map(|(a, b)| Call::Reduce(a, b)),
        2 => (chunk(), 16u64..24).prop_map(|(a, b)| Call::ReducePackets(a, b)),
        1 => (chunk(), 16u64..24).prop_map(|(a, b)| Call::Unpack(a, b)),
        2 => Just(Call::Nop),
        2 => (0usize..2, sync()).prop_map(|(c, s)| Call::Signal(c, s)),
        2 => (0usize..2, sync()).prop_map(|(c, s)| Call::Wait(c, s)),
    ]
}

fn calls() -> impl Strategy<Value = Vec<Call>> {
    let pipeline = prop::collection::vec(flat_call(), 1..6).prop_map(Call::Pipeline);
    prop::collection::vec(prop_oneof![6 => flat_call(), 1 => pipeline], 1..40)
}

fn say(t: &mut Pair, call: &Call) {
    let at = |number: u64| format!("{}{}", ["i", "o", "s"][number as usize / 8], number % 8);
    let there = |number: u64| format!("{}'", at(number));
    match call {
        Call::Copy(to, from) => t.copy(&at(*to), &at(*from)),
        Call::Put(to, from) => t.put(&there(*to), &at(*from)),
        Call::Get(to, from) => {
            let (to, from) = (t.at(&at(*to)), t.at(&there(*from)));
            t.p.get(t.memory[0], to, from, 0).unwrap();
        }
        Call::Reduce(to, from) => {
            let (to, from) = (t.at(&at(*to)), t.at(&at(*from)));
            t.p.reduce(Reduction::of(to, &[from]), 0).unwrap();
        }
        Call::ReducePackets(to, from) => {
            let (to, from) = (t.at(&at(*to)), t.at(&at(*from)));
            t.p.reduce_packets(Reduction::of(to, &[from]), 0).unwrap();
        }
        Call::Unpack(to, from) => {
            let (to, from) = (t.at(&at(*to)), t.at(&at(*from)));
            t.p.unpack_packets(to, from, 0).unwrap();
        }
        Call::Nop => t.p.barrier(0, &[0]).unwrap(),
        Call::Signal(channel, sync) => t.signal(*channel, *sync),
        Call::Wait(channel, sync) => t.wait(*channel, *sync),
        Call::Pipeline(body) => {
            t.p.begin_pipeline(16, 1, None).unwrap();
            body.iter().for_each(|call| say(t, call));
            t.p.end_pipeline().unwrap();
        }
    }
}

/// Block 0 of rank 0, bodies flattened, without source locations.
fn lines(plan: &Plan) -> Vec<Action> {
    let strip = |operation: &Operation| match &operation.action {
        Action::Pipeline(pipeline) => {
            let mut pipeline = pipeline.clone();
            let body = std::mem::take(&mut pipeline.body);
            std::iter::once(Action::Pipeline(pipeline)).chain(body.into_iter().map(|o| o.action)).collect()
        }
        action => vec![action.clone()],
    };
    plan.ranks[0].blocks.first().into_iter().flat_map(|block| &block.operations).flat_map(strip).collect()
}

/// True if `longer` is `shorter` with more `nop`s in it.
fn only_adds_nops(longer: &[Action], shorter: &[Action]) -> bool {
    let mut shorter = shorter.iter().peekable();
    for action in longer {
        if shorter.peek() == Some(&action) {
            shorter.next();
        } else if *action != Action::Nop {
            return false;
        }
    }
    shorter.next().is_none()
}

fn nops(actions: &[Action]) -> usize {
    actions.iter().filter(|action| **action == Action::Nop).count()
}

fn programs(calls: &[Call], in_place: bool) -> (Plan, Plan) {
    let shape = CollectiveShape::all_reduce(2, 4);
    let shape = if in_place { shape.in_place() } else { shape };
    let mut t = Pair::with(ProgramOptions::new("random", shape));
    calls.iter().for_each(|call| say(&mut t, call));
    let emit = |program: &Program, compat| program.emit(compat).unwrap().plan;
    (emit(&t.p, Compat::None), emit(&t.p, Compat::Mscclpp))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    /// In these programs folds are in place with other sources apart (no X1), chunks are whole (no X17), there are no
    /// switches (no X2 to X4) and no instances (no X18, X19).
    #[test]
    fn the_default_only_adds_barriers(calls in calls(), in_place: bool) {
        let apart = |call: &Call| !matches!(call, Call::Reduce(a, b) | Call::ReducePackets(a, b) if a == b);
        let keep = |call: Call| match call {
            Call::Pipeline(body) => Call::Pipeline(body.into_iter().filter(apart).collect()),
            call => call,
        };
        let calls: Vec<Call> = calls.into_iter().filter(apart).map(keep).collect();
        let (default, compat) = programs(&calls, in_place);
        let (default, compat) = (lines(&default), lines(&compat));
        prop_assert!(nops(&default) >= nops(&compat));
        prop_assert!(only_adds_nops(&default, &compat), "{default:#?}\n{compat:#?}");
    }

    /// Read in order, no two operations of the default conflict without a barrier in between: an analysis that
    /// compares all pairs.
    #[test]
    fn the_default_leaves_no_hazard(calls in calls(), in_place: bool) {
        let (plan, _) = programs(&calls, in_place);
        let mut since = Vec::new();
        for action in lines(&plan) {
            if matches!(action, Action::Nop | Action::Barrier { .. }) {
                since.clear();
            }
            let Action::Data(data) = action else { continue };
            let touched = hazards::touches(&data, in_place);
            for (earlier, write) in &since {
                for (place, writes) in &touched {
                    prop_assert!(place != earlier || !(*write || *writes), "{plan:#?}");
                }
            }
            since.extend(touched);
        }
    }

    #[test]
    fn equal_programs_give_equal_plans(calls in calls()) {
        prop_assert_eq!(programs(&calls, true), programs(&calls, true));
    }
}

/// An oracle of its own for what operations touch, chunk by chunk.
mod hazards {
    use warpway_plan::{BufferKind, DataOperation, Form, Reference};

    pub(super) type Touch = ((BufferKind, u64), bool);

    pub(super) fn touches(data: &DataOperation, in_place: bool) -> Vec<Touch> {
        let mut touches = Vec::new();
        let mut add = |reference: &Reference, form: Form, write: bool| {
            let Reference::Local { buffer, index, size } = *reference else { return };
            if form == Form::Packets {
                return;
            }
            let buffer = if in_place && buffer == BufferKind::Output { BufferKind::Input } else { buffer };
            touches.extend((index..index + size).map(|chunk| ((buffer, chunk), write)));
        };
        for (at, source) in data.sources.iter().enumerate() {
            add(source, data.source_form(at), false);
        }
        for (at, destination) in data.destinations.iter().enumerate() {
            add(destination, data.destination_form(at), true);
        }
        touches
    }
}
