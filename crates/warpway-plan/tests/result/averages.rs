//! What an average asks of each fold.

use warpway_plan::verify::{FoldRole, Options, Severity};
use warpway_plan::{Collective, DataKind, OperationPlace, ReduceOp};

use crate::collectives::{found, report, send};
use crate::program::{At, I, O, Program, S, op};

/// Folds by a chain of ranks 0, 1, 2; the last one sends the result to all.
fn chain(reduce_op: ReduceOp) -> Program {
    let mut p = Program::new(Collective::AllReduce, 3, 1, [1, 1, 1]);
    send(&mut p, 0, At(0, I, 0, 1), At(1, S, 0, 1));
    p.phase();
    let fold =
        |me: u32, to: At| op(DataKind::Reduce, &[At(me, I, 0, 1), At(me, S, 0, 1)], &[to]).with(reduce_op);
    p.push(1, 0, &fold(1, At(1, O, 0, 1)));
    send(&mut p, 1, At(1, O, 0, 1), At(2, S, 0, 1));
    p.phase();
    p.push(2, 0, &fold(2, At(2, O, 0, 1)));
    p
}

#[test]
fn inputs_and_last_folds_are_named() {
    let mut p = chain(ReduceOp::Avg);
    for peer in 0..2 {
        send(&mut p, 2, At(2, O, 0, 1), At(peer, O, 0, 1));
    }
    let found = report(&p.plan, &Options::default());
    assert!(found.diagnostics.is_empty(), "{:#?}", found.diagnostics);
    let place = |rank, index| OperationPlace { rank, block: 0, path: (index, None) };
    let roles: Vec<(&OperationPlace, &FoldRole)> = found.fold_roles.iter().collect();
    assert_eq!(
        roles,
        [
            (&place(1, 4), &FoldRole { inputs: vec![true, true], last: false }),
            (&place(2, 8), &FoldRole { inputs: vec![true, false], last: true }),
        ]
        .map(|(place, role)| (place, role))
    );
    // A sum has no roles.
    assert!(report(&chain(ReduceOp::Sum).plan, &Options::default()).fold_roles.is_empty());
}

#[test]
fn one_operation_has_one_role() {
    // Chunk 0 of the second operand is an input, chunk 1 a partial result.
    let mut p = Program::new(Collective::Reduce, 3, 1, [2, 2, 3]);
    send(&mut p, 1, At(1, I, 0, 2), At(0, S, 0, 2));
    send(&mut p, 2, At(2, I, 1, 1), At(0, S, 2, 1));
    p.phase();
    let avg = |from: &[At], to: At| op(DataKind::Reduce, from, &[to]).with(ReduceOp::Avg);
    p.push(0, 0, &avg(&[At(0, S, 1, 1), At(0, S, 2, 1)], At(0, S, 1, 1)));
    p.push(0, 0, &avg(&[At(0, I, 0, 2), At(0, S, 0, 2)], At(0, O, 0, 2)));
    let report = report(&p.plan, &Options::default());
    let errors: Vec<String> = report.of(Severity::Error).map(ToString::to_string).collect();
    assert_eq!(errors.len(), 2, "{errors:#?}");
    assert!(
        errors[0].starts_with("V701 rank 0 tb 0 op 5: this average folds inputs in one piece and partial")
    );
    // Chunk 0 lacks the input of rank 2 as well.
    assert!(
        errors[1].starts_with("V702 rank 0 tb 0 op 5: rank 0 output chunk 0 holds avg of in(0,0), in(1,0); ")
    );
}

#[test]
fn a_result_that_is_folded_again_is_not_divided() {
    // Rank 0 makes the average of both, and adds it to something that nobody asked for.
    let mut p = Program::new(Collective::Reduce, 2, 1, [1, 1, 2]);
    send(&mut p, 1, At(1, I, 0, 1), At(0, S, 0, 1));
    p.phase();
    let avg = |from: &[At], to: At| op(DataKind::Reduce, from, &[to]).with(ReduceOp::Avg);
    p.push(0, 0, &avg(&[At(0, I, 0, 1), At(0, S, 0, 1)], At(0, O, 0, 1)));
    p.push(0, 0, &avg(&[At(0, O, 0, 1), At(0, S, 0, 1)], At(0, S, 1, 1)));
    assert_eq!(
        found(&p.plan),
        [
            "V701: rank 0 output chunk 0 holds avg of in(0,0), in(1,0), a partial result that also enters another \
          fold: integers would not be divided"
        ]
    );
}
