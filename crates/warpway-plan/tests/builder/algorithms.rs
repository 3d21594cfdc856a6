//! The algorithms that other tests use as inputs.

use warpway_plan::{Action, DataKind, Plan, testing};

fn names(plan: &Plan, rank: usize, block: usize) -> Vec<String> {
    let name = |action: &Action| match action {
        Action::Nop => "nop".to_owned(),
        Action::Barrier { .. } => "barrier".to_owned(),
        Action::Signal { relaxed, channels, .. } => format!("signal {relaxed} {channels:?}"),
        Action::Wait { relaxed, channels, .. } => format!("wait {relaxed} {channels:?}"),
        Action::Flush { .. } => "flush".to_owned(),
        Action::Acquire { .. } => "acquire".to_owned(),
        Action::Release { .. } => "release".to_owned(),
        Action::Data(data) => format!("{} {}->{}", data.kind, data.sources.len(), data.destinations.len()),
        Action::Pipeline(pipeline) => format!("pipeline {}", pipeline.body.len()),
    };
    plan.ranks[rank].blocks[block].operations.iter().map(|operation| name(&operation.action)).collect()
}

#[test]
fn have_sound_form() {
    for n_ranks in [2, 3, 5] {
        for plan in testing::all(n_ranks).unwrap() {
            let findings = plan.check();
            assert!(findings.is_empty(), "{} of {n_ranks} ranks: {findings:?}", plan.name);
        }
    }
}

#[test]
fn are_the_same_each_time() {
    assert_eq!(testing::all(4).unwrap(), testing::all(4).unwrap());
}

#[test]
fn all_gather_is_that_of_the_specification() {
    let plan = testing::all_gather_put(2).unwrap();
    let expected = [
        "signal true [0]",
        "wait true [0]",
        "nop",
        "copy 1->1",
        "put 1->1",
        "nop",
        "signal false [0]",
        "wait false [0]",
        "nop",
    ];
    assert_eq!(names(&plan, 0, 0), expected);
    assert_eq!(names(&plan, 1, 0), expected);
}

#[test]
fn two_shot_is_one_operation_on_data() {
    let plan = testing::all_reduce_two_shot(4).unwrap();
    let expected = [
        "signal true [0, 1, 2]",
        "wait true [0, 1, 2]",
        "nop",
        "rres 4->4",
        "nop",
        "signal false [0, 1, 2]",
        "wait false [0, 1, 2]",
        "nop",
    ];
    assert_eq!(names(&plan, 3, 0), expected);
}

#[test]
fn packets_fold_in_rank_order() {
    let plan = testing::all_reduce_packets(3).unwrap();
    let orders: Vec<_> = plan
        .operations()
        .filter_map(|(_, _, operation)| match &operation.action {
            Action::Data(data) if data.kind == DataKind::ReducePackets => data.fold.clone(),
            _ => None,
        })
        .map(|fold| fold.order)
        .collect();
    assert_eq!(orders, [None, Some(vec![1, 0, 2]), Some(vec![1, 2, 0])]);
}
