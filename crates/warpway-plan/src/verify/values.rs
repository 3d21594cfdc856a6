//! What chunks hold, as symbols: inputs, folds of them, nothing.
//!
//! A [`Value`] describes a whole run of chunks at once: chunk `x` holds what its node says for chunk
//! `x + offset`. Nodes are kept once each, sources of a fold relative to one of them, so that equal values have
//! equal numbers wherever they lie.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use super::range_map::Coalesce;
use crate::ir::ReduceOp;

/// Number of a node.
pub(super) type NodeId = u32;

/// See the module's page. Offsets wrap around.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Value {
    pub(super) node: NodeId,
    pub(super) offset: u64,
}

impl Value {
    /// Nothing was ever written.
    pub(super) const UNDEFINED: Self = Self { node: 0, offset: 0 };
    /// Wrong, and a finding says so already.
    pub(super) const REPORTED: Self = Self { node: 1, offset: 0 };
    /// Pieces that were cut differently hold different values.
    pub(super) const MIXED: Self = Self { node: 2, offset: 0 };

    /// Input chunk `x + offset` of `rank`.
    pub(super) fn input(rank: u32, offset: u64) -> Self {
        Self { node: FIRST_INPUT.saturating_add(rank), offset }
    }

    /// The same chunks, where chunk `x` is counted as `x - by`.
    pub(super) fn shifted(self, by: u64) -> Self {
        match self.node < FIRST_INPUT {
            true => self,
            false => Self { offset: self.offset.wrapping_add(by), ..self },
        }
    }
}

impl Coalesce for Value {
    fn coalesces(&self, other: &Self) -> bool {
        self == other
    }
}

/// Number of the node of rank 0's input.
const FIRST_INPUT: NodeId = 3;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Kind {
    Nothing,
    Input,
    /// By a block. Sources in the order in which they enter, the lesser of the first two first.
    Fold,
    /// By the multicast hardware, in an order of its own; equal only to the same instance.
    Switch(u32),
}

/// How a node came to be; the key under which it is found again.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Origin {
    kind: Kind,
    op: Option<ReduceOp>,
    /// Offsets are relative to the first source's.
    sources: Rc<[Value]>,
}

#[derive(Debug)]
struct Node {
    origin: Origin,
    /// The greatest number of folds that a contribution passes through.
    folds: u32,
    /// Enters a fold.
    consumed: bool,
}

/// Why values cannot be folded; the position of a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FoldFlaw {
    /// It holds nothing.
    Undefined(usize),
    /// It holds different values in different pieces.
    Mixed(usize),
    /// It was folded by another operator.
    Operator(usize, ReduceOp),
    /// It is wrong, and that has been said.
    Reported,
}

/// One input chunk in a value, and how many times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Contribution {
    pub(super) rank: u32,
    /// Added to the offset of the value.
    pub(super) offset: u64,
    pub(super) count: u64,
}

/// All nodes.
#[derive(Debug)]
pub(super) struct Values {
    nodes: Vec<Node>,
    index: HashMap<Origin, NodeId>,
    contributions: HashMap<NodeId, Rc<[Contribution]>>,
    /// What may still be spent on counting contributions.
    budget: u64,
}

impl Values {
    /// The inputs of that many ranks.
    pub(super) fn new(n_ranks: u32, budget: u64) -> Self {
        let leaf = |kind| {
            let origin = Origin { kind, op: None, sources: Rc::from([]) };
            Node { origin, folds: 0, consumed: false }
        };
        let specials = (0..FIRST_INPUT).map(|_| leaf(Kind::Nothing));
        let nodes = specials.chain((0..n_ranks).map(|_| leaf(Kind::Input))).collect();
        Self { nodes, index: HashMap::new(), contributions: HashMap::new(), budget }
    }

    /// The rank whose input this is.
    pub(super) fn input_rank(&self, value: Value) -> Option<u32> {
        let input = self.node(value).is_some_and(|n| n.origin.kind == Kind::Input);
        input.then(|| value.node - FIRST_INPUT)
    }

    /// The operator of the last fold.
    pub(super) fn op(&self, value: Value) -> Option<ReduceOp> {
        self.node(value)?.origin.op
    }

    /// The greatest number of folds that a contribution passes through.
    pub(super) fn folds(&self, value: Value) -> u32 {
        self.node(value).map_or(0, |n| n.folds)
    }

    /// True if the value enters a fold.
    pub(super) fn is_consumed(&self, value: Value) -> bool {
        self.node(value).is_some_and(|n| n.consumed)
    }

    fn node(&self, value: Value) -> Option<&Node> {
        self.nodes.get(value.node as usize)
    }

    /// The fold of `sources` in that order by a block. The first two commute.
    pub(super) fn fold(&mut self, op: ReduceOp, sources: &[Value]) -> Result<Value, FoldFlaw> {
        let mut sources: Vec<Value> = sources.to_vec();
        self.check(op, &sources)?;
        if let [first, second, ..] = sources.as_mut_slice() {
            // The order may not depend on where the chunks lie.
            let distance = second.offset.wrapping_sub(first.offset) as i64;
            if second.node < first.node || (second.node == first.node && distance < 0) {
                std::mem::swap(first, second);
            }
        }
        Ok(self.intern(Kind::Fold, op, sources))
    }

    /// The fold of `sources` by the multicast hardware. Different `instance`s may have different bits.
    pub(super) fn switch_fold(
        &mut self,
        op: ReduceOp,
        instance: u32,
        sources: &[Value],
    ) -> Result<Value, FoldFlaw> {
        self.check(op, sources)?;
        Ok(self.intern(Kind::Switch(instance), op, sources.to_vec()))
    }

    fn check(&self, op: ReduceOp, sources: &[Value]) -> Result<(), FoldFlaw> {
        for (at, source) in sources.iter().enumerate() {
            match *source {
                Value::UNDEFINED => return Err(FoldFlaw::Undefined(at)),
                Value::MIXED => return Err(FoldFlaw::Mixed(at)),
                _ => {}
            }
            if let Some(other) = self.op(*source)
                && other != op
            {
                return Err(FoldFlaw::Operator(at, other));
            }
        }
        match sources.is_empty() || sources.contains(&Value::REPORTED) {
            true => Err(FoldFlaw::Reported),
            false => Ok(()),
        }
    }

    fn intern(&mut self, kind: Kind, op: ReduceOp, mut sources: Vec<Value>) -> Value {
        let offset = sources.first().map_or(0, |first| first.offset);
        let mut folds = 0;
        for source in &mut sources {
            source.offset = source.offset.wrapping_sub(offset);
            if let Some(node) = self.nodes.get_mut(source.node as usize) {
                node.consumed = true;
                folds = folds.max(node.folds);
            }
        }
        let origin = Origin { kind, op: Some(op), sources: sources.into() };
        let nodes = &mut self.nodes;
        let node = *self.index.entry(origin.clone()).or_insert_with(|| {
            nodes.push(Node { origin, folds: folds.saturating_add(1), consumed: false });
            (nodes.len() - 1) as NodeId
        });
        Value { node, offset }
    }

    /// The input chunks that a value is made of, sorted; offsets are to be added to the value's. `None` if
    /// counting them takes more than the budget.
    pub(super) fn contributions(&mut self, value: Value) -> Option<Rc<[Contribution]>> {
        if let Some(known) = self.contributions.get(&value.node) {
            return Some(Rc::clone(known));
        }
        // Sources have lesser numbers, so each node is met with the count of all ways to it.
        let mut open = BTreeMap::from([((value.node, 0_u64), 1_u64)]);
        let mut found = Vec::new();
        while let Some(((id, offset), count)) = open.pop_last() {
            self.budget = self.budget.checked_sub(1)?;
            let node = self.nodes.get(id as usize)?;
            if node.origin.kind == Kind::Input {
                found.push(Contribution { rank: id - FIRST_INPUT, offset, count });
            }
            self.budget = self.budget.checked_sub(node.origin.sources.len() as u64)?;
            for source in node.origin.sources.iter() {
                let ways = open.entry((source.node, offset.wrapping_add(source.offset))).or_default();
                *ways = ways.saturating_add(count);
            }
        }
        found.sort_unstable();
        let found: Rc<[Contribution]> = found.into();
        self.contributions.insert(value.node, Rc::clone(&found));
        Some(found)
    }

    /// What chunk `chunk` holds, for people.
    pub(super) fn describe(&mut self, value: Value, chunk: u64) -> String {
        match value {
            Value::UNDEFINED => return "nothing that was written".to_owned(),
            Value::MIXED => return "different values in pieces that were cut differently".to_owned(),
            Value::REPORTED => return "a wrong value".to_owned(),
            _ => {}
        }
        let Some(contributions) = self.contributions(value) else {
            return "too many contributions to count".to_owned();
        };
        let at = value.offset.wrapping_add(chunk);
        let list = list_inputs(contributions.iter().map(|c| (c.rank, c.offset.wrapping_add(at), c.count)));
        match self.op(value) {
            Some(op) => format!("{op} of {list}"),
            None => list,
        }
    }

    /// The order in which a value is folded, for people; shortened.
    pub(super) fn describe_tree(&self, value: Value, chunk: u64) -> String {
        let mut text = String::new();
        self.write_tree(value, chunk, 0, &mut text);
        text
    }

    fn write_tree(&self, value: Value, chunk: u64, depth: u32, text: &mut String) {
        if text.len() > LONGEST_TREE || depth > DEEPEST_TREE {
            if !text.ends_with('…') {
                text.push('…');
            }
            return;
        }
        let at = value.offset.wrapping_add(chunk);
        if let Some(rank) = self.input_rank(value) {
            text.push_str(&format!("in({rank},{at})"));
            return;
        }
        let Some(node) = self.node(value) else { return };
        text.push_str(if matches!(node.origin.kind, Kind::Switch(_)) { "switch(" } else { "(" });
        for (position, source) in node.origin.sources.iter().enumerate() {
            if text.ends_with('…') {
                break;
            }
            if position > 0 {
                text.push_str(if node.origin.op == Some(ReduceOp::Prod) { " * " } else { " + " });
            }
            self.write_tree(source.shifted(value.offset), chunk, depth + 1, text);
        }
        text.push(')');
    }
}

const LONGEST_TREE: usize = 90;
const DEEPEST_TREE: u32 = 12;

/// `in(0,5), in(1,5) twice`, shortened after eight.
pub(super) fn list_inputs(inputs: impl Iterator<Item = (u32, u64, u64)>) -> String {
    const SHOWN: usize = 8;
    let (mut text, mut total) = (String::new(), 0_usize);
    for (rank, chunk, count) in inputs {
        if total < SHOWN {
            text.push_str(if total == 0 { "" } else { ", " });
            text.push_str(&format!("in({rank},{chunk})"));
            match count {
                0 | 1 => {}
                2 => text.push_str(" twice"),
                times => text.push_str(&format!(" {times} times")),
            }
        }
        total += 1;
    }
    if total > SHOWN {
        text.push_str(&format!(", … ({total} in all)"));
    }
    text
}
