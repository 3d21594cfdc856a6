//! What an average asks of each fold: which sources are inputs as they are, and which folds are the last.

use std::collections::BTreeMap;

use super::findings::Findings;
use super::report::{Diagnostic, OpPath, Place};
use super::values::{Value, Values};
use crate::repairs::OperationPlace;

/// The part of one operation in an average.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoldRole {
    /// By position in the list of sources (members of the group, for multicast): the source is an input of a rank,
    /// not yet folded. Floating-point inputs are multiplied by 1/n as they enter.
    pub inputs: Vec<bool>,
    /// The result enters no other fold. Integer results are divided by n.
    pub last: bool,
}

/// The roles of all operations that fold with `avg`. The verifier refuses plans in which one operation would have
/// different roles for different pieces.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FoldRoles(BTreeMap<OperationPlace, FoldRole>);

impl FoldRoles {
    /// The role of an operation; `None` if it does not average.
    pub fn get(&self, place: &OperationPlace) -> Option<&FoldRole> {
        self.0.get(place)
    }

    /// All of them, by rank, block and position.
    pub fn iter(&self) -> impl Iterator<Item = (&OperationPlace, &FoldRole)> {
        self.0.iter()
    }

    /// True if nothing averages.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds what a run at one size has shown; false if another size has shown otherwise.
    fn insert(&mut self, place: OperationPlace, role: FoldRole) -> bool {
        *self.0.entry(place).or_insert_with(|| role.clone()) == role
    }
}

/// What a run shows, before it is known which folds are the last.
#[derive(Debug, Default)]
pub(super) struct RoleBook(BTreeMap<OperationPlace, Observed>);

#[derive(Debug)]
struct Observed {
    inputs: Vec<bool>,
    /// One of each kind of result.
    results: Vec<Value>,
    differs: bool,
}

impl RoleBook {
    /// An operation has folded sources of these kinds to `result`.
    pub(super) fn record(&mut self, place: Place, inputs: Vec<bool>, result: Value) {
        let (Some(block), Some(OpPath { index, inner })) = (place.block, place.op) else { return };
        let place = OperationPlace { rank: place.rank, block, path: (index, inner) };
        let observed = self.0.entry(place).or_insert_with(|| Observed {
            inputs: inputs.clone(),
            results: Vec::new(),
            differs: false,
        });
        observed.differs |= observed.inputs != inputs;
        if observed.results.last().is_none_or(|last| last.node != result.node) {
            observed.results.push(result);
        }
    }

    /// Decides which folds are the last.
    pub(super) fn settle(self, values: &Values, findings: &mut Findings) {
        for (place, Observed { inputs, results, differs }) in self.0 {
            let consumed = results.iter().filter(|result| values.is_consumed(**result)).count();
            let clear = consumed == 0 || consumed == results.len();
            let role = FoldRole { inputs, last: consumed == 0 };
            let OperationPlace { rank, block, path: (index, inner) } = place;
            if differs || !clear || !findings.fold_roles.insert(place, role) {
                let message = "this average folds inputs in one piece and partial results in another, or is the \
                               last fold of one piece and not of another";
                let diagnostic = Diagnostic::error(701, message)
                    .at(Place::op(rank, block, OpPath { index, inner }))
                    .hint("make an operation of its own for each kind of chunk");
                findings.push(diagnostic);
            }
        }
    }
}
