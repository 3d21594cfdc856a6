//! Where the bytes of one message lie, as words that the kernel reads.

use std::collections::HashMap;

use warpway_plan::lower::{Lowered, LoweredBlock, Step, StepAction, Transfer};
use warpway_plan::{Form, LayoutError, MessageLayout, Pieces};

use super::kernel::{KernelForm, PlanProblem};
use super::paths::Path;

/// One message for one rank's kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanRows {
    /// The words of the launch, in the order in which the kernel's text numbers them.
    pub words: Vec<u64>,
    /// The pieces for device memory, where they are no functions of the block; then `words` holds zeros in place of rows.
    pub listed: Option<Vec<u64>>,
    /// Bytes that operations touch from the first one of each base on.
    pub reach: Vec<u64>,
}

/// Words of a row with so many operands; `row_words` of `plan.cuh`.
pub(super) const fn row_words(width: usize) -> usize {
    5 + 3 * width
}

/// The words that a path takes.
pub(super) fn words_of(steps: &[Step]) -> usize {
    let words = |step: &Step| match &step.action {
        StepAction::Move(transfer) | StepAction::Await(transfer) => row_words(transfer.width()),
        StepAction::Loop { body, .. } => 1 + words_of(body),
        _ => 0,
    };
    steps.iter().map(words).sum()
}

/// Steps with pieces of a block.
pub(super) fn entries_of(steps: &[Step]) -> usize {
    let entries = |step: &Step| match &step.action {
        StepAction::Move(_) | StepAction::Await(_) => 1,
        StepAction::Loop { body, .. } => entries_of(body),
        _ => 0,
    };
    steps.iter().map(entries).sum()
}

/// The rows of a message; a list if it needs one, or if that form is asked for.
pub(super) fn rows(
    paths: &[Path<'_>],
    bases: usize,
    layout: &MessageLayout,
    form: KernelForm,
) -> Result<PlanRows, LayoutError> {
    let mut reader = Reader { layout, reach: vec![0; bases], pieces: Pieces::default() };
    let mut words = Vec::new();
    let mut fits = form == KernelForm::Fitted;
    let mut lists: Vec<Vec<Listed>> = Vec::new();
    for path in paths {
        let blocks: Vec<Vec<Listed>> =
            path.members.iter().map(|block| reader.block(block)).collect::<Result<_, _>>()?;
        if let Some(first) = path.members.first() {
            let fit = write_words(&first.steps, layout, &blocks, &mut 0, &mut words)?;
            fits &= fit;
        }
        lists.extend(blocks);
    }
    let listed = (!fits).then(|| list(&lists));
    Ok(PlanRows { words, listed, reach: reader.reach })
}

/// Lines lie where their piece begins, so readers and writers must divide data into the same pieces. `everybody` is empty for
/// other packets.
pub(super) fn lines_agree(everybody: &[Lowered], layout: &MessageLayout) -> Result<(), PlanProblem> {
    let mut written: HashMap<(u32, u64), u64> = HashMap::new();
    let mut read = Vec::new();
    let mut pieces = Pieces::default();
    for lowered in everybody {
        for step in lowered.blocks.iter().flat_map(|block| &block.steps) {
            let transfer = match &step.action {
                StepAction::Move(transfer) | StepAction::Await(transfer) => transfer,
                // Slices of pipelines begin anywhere.
                StepAction::Loop { body, .. } if entries_of(body) > 0 => {
                    return Err(PlanProblem::Lines { rank: lowered.rank, offset: 0 });
                }
                _ => continue,
            };
            transfer.pieces(layout, &mut pieces)?;
            for (piece, offsets) in pieces.iter() {
                for (at, (operand, offset)) in transfer.operands().zip(offsets).enumerate() {
                    let Some(base) = lowered.bases.get(operand.base as usize) else { continue };
                    match operand.form {
                        Form::Raw => {}
                        Form::Packets if at < transfer.sources.len() => {
                            read.push((base.rank, *offset, piece.bytes))
                        }
                        Form::Packets => drop(written.insert((base.rank, *offset), piece.cover)),
                    }
                }
            }
        }
    }
    let alone = |&&(rank, offset, bytes): &&(u32, u64, u64)| {
        bytes > 0 && written.get(&(rank, offset)).is_none_or(|cover| *cover < bytes)
    };
    read.iter().find(alone).map_or(Ok(()), |&(rank, offset, _)| Err(PlanProblem::Lines { rank, offset }))
}

/// The pieces of one step of one block: position, bytes, cover, offsets.
#[derive(Debug)]
struct Listed {
    width: usize,
    pieces: Vec<u64>,
}

impl Listed {
    fn record(&self) -> usize {
        3 + self.width
    }

    fn count(&self) -> usize {
        self.pieces.len() / self.record()
    }

    /// The only piece, which begins the block's share: bytes, cover, offsets.
    fn single(&self) -> Option<(u64, u64, &[u64])> {
        match *self.pieces.get(..3)? {
            [0, bytes, cover] if self.count() == 1 => Some((bytes, cover, &self.pieces[3..])),
            _ => None,
        }
    }
}

struct Reader<'m> {
    layout: &'m MessageLayout,
    reach: Vec<u64>,
    pieces: Pieces,
}

impl Reader<'_> {
    fn block(&mut self, block: &LoweredBlock) -> Result<Vec<Listed>, LayoutError> {
        let mut all = Vec::new();
        self.steps(&block.steps, &mut all)?;
        Ok(all)
    }

    fn steps(&mut self, steps: &[Step], all: &mut Vec<Listed>) -> Result<(), LayoutError> {
        for step in steps {
            match &step.action {
                StepAction::Move(transfer) | StepAction::Await(transfer) => {
                    all.push(self.transfer(transfer)?)
                }
                StepAction::Loop { body, .. } => self.steps(body, all)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn transfer(&mut self, transfer: &Transfer) -> Result<Listed, LayoutError> {
        transfer.pieces(self.layout, &mut self.pieces)?;
        let mut listed = Listed { width: transfer.width(), pieces: Vec::new() };
        for (piece, offsets) in self.pieces.iter() {
            listed.pieces.extend([piece.position, piece.bytes, piece.cover]);
            listed.pieces.extend(offsets);
            for (operand, offset) in transfer.operands().zip(offsets) {
                // Packets cover whole ones; raw data has what it has.
                let (scale, bytes) = match operand.form {
                    Form::Raw => (1, piece.bytes),
                    Form::Packets => (2, piece.cover),
                };
                let end = offset.checked_add(bytes).and_then(|end| end.checked_mul(scale));
                let end = end.ok_or(LayoutError::Overflow)?;
                if let Some(reach) = self.reach.get_mut(operand.base as usize) {
                    *reach = end.max(*reach);
                }
            }
        }
        Ok(listed)
    }
}

/// The words of a path's steps; false if some step is no function of the block. `at` counts the steps with pieces.
fn write_words(
    steps: &[Step],
    layout: &MessageLayout,
    blocks: &[Vec<Listed>],
    at: &mut usize,
    words: &mut Vec<u64>,
) -> Result<bool, LayoutError> {
    let mut fits = true;
    for step in steps {
        match &step.action {
            StepAction::Move(transfer) | StepAction::Await(transfer) => {
                let row = fit(blocks, *at, transfer.width());
                *at += 1;
                fits &= row.is_some();
                words.extend(row.unwrap_or_else(|| vec![0; row_words(transfer.width())]));
            }
            StepAction::Loop { pipeline, body } => {
                words.push(layout.iterations(pipeline)?);
                fits &= write_words(body, layout, blocks, at, words)?;
            }
            _ => {}
        }
    }
    Ok(fits)
}

/// The row that gives the pieces of step `at` of all blocks, if one does. See `fitted` in `plan.cuh`.
fn fit(blocks: &[Vec<Listed>], at: usize, width: usize) -> Option<Vec<u64>> {
    let pieces: Vec<(u64, u64, &[u64])> =
        blocks.iter().map(|block| block.get(at)?.single()).collect::<Option<_>>()?;
    let (&(first_bytes, ..), &(last_bytes, last_cover, _)) = (pieces.first()?, pieces.last()?);
    let members = pieces.len();
    let inner = &pieces[..members - 1];
    let longer = inner.iter().take_while(|(bytes, ..)| *bytes == first_bytes).count();
    // Where all but the last are equal, nothing tells longer shares from others; then none is longer.
    let (longer, rest) = if longer == members - 1 { (0, first_bytes) } else { (longer, pieces[longer].0) };
    let mut row = vec![longer as u64, first_bytes, rest, last_bytes, last_cover];
    for operand in 0..width {
        let offset =
            |member: usize| pieces.get(member).and_then(|(_, _, offsets)| offsets.get(operand)).copied();
        let first = offset(0)?;
        // Behind the longer ones the step is plain; before them it has the addition.
        let step_at = |member: usize| Some(offset(member + 1)?.wrapping_sub(offset(member)?));
        let (step, more) = match members {
            1 => (0, 0),
            _ if longer == 0 => (step_at(0)?, 0),
            _ => {
                // longer < members - 1, so that one of the others has a successor unless it is the last.
                let plain = step_at(longer)?;
                (plain, step_at(0)?.wrapping_sub(plain))
            }
        };
        row.extend([first, step, more]);
    }
    let agrees = (0..members).all(|member| {
        let (bytes, cover, offsets) = evaluate(&row, member as u64, members as u64);
        let found = pieces[member];
        (bytes, cover) == (found.0, found.1) && offsets == found.2
    });
    agrees.then_some(row)
}

/// What `fitted` computes.
fn evaluate(row: &[u64], member: u64, members: u64) -> (u64, u64, Vec<u64>) {
    let longer = row[0];
    let last = member + 1 == members;
    let bytes = match last {
        true => row[3],
        false if member < longer => row[1],
        false => row[2],
    };
    let before = member.min(longer);
    let offset =
        |o: &[u64]| o[0].wrapping_add(member.wrapping_mul(o[1])).wrapping_add(before.wrapping_mul(o[2]));
    (bytes, if last { row[4] } else { bytes }, row[5..].chunks_exact(3).map(offset).collect())
}

/// Heads of all steps of all blocks, then their pieces.
fn list(blocks: &[Vec<Listed>]) -> Vec<u64> {
    let steps = || blocks.iter().flatten();
    let mut words = Vec::new();
    let mut at = 2 * steps().count();
    for step in steps() {
        words.extend([at as u64, step.count() as u64]);
        at += step.pieces.len();
    }
    steps().for_each(|step| words.extend(&step.pieces));
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Blocks that share `units` of 16 bytes, as groups do: the first ones have one unit more.
    fn shares(blocks: u64, units: u64, tail: u64, scales: &[u64]) -> Vec<Vec<Listed>> {
        let share = |member: u64| units / blocks + u64::from(member < units % blocks);
        (0..blocks)
            .map(|member| {
                let start: u64 = (0..member).map(share).sum();
                let last = member + 1 == blocks;
                let cover = 16 * share(member) + if last { tail.next_multiple_of(8) } else { 0 };
                let bytes = 16 * share(member) + if last { tail } else { 0 };
                let offsets = (0..).zip(scales).map(|(n, scale)| 1000 * n + 16 * start * scale);
                vec![Listed {
                    width: scales.len(),
                    pieces: [0, bytes, cover].into_iter().chain(offsets).collect(),
                }]
            })
            .collect()
    }

    /// Whatever is left over, and for operands that move at another pace.
    #[test]
    fn shares_of_a_group_fit_a_row() {
        for blocks in 1..=9 {
            for units in blocks..blocks + 20 {
                for tail in [0, 3, 8] {
                    let all = shares(blocks, units, tail, &[1, 1, 0, 3]);
                    let row =
                        fit(&all, 0, 4).unwrap_or_else(|| panic!("{units} units on {blocks}, {tail} more"));
                    for (member, block) in (0..).zip(&all) {
                        let (bytes, cover, offsets) = evaluate(&row, member, blocks);
                        let found = block[0].single().unwrap();
                        assert_eq!(
                            (bytes, cover, &offsets[..]),
                            found,
                            "{units} units on {blocks}, {tail} more"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn anything_else_is_listed() {
        let mut all = shares(5, 20, 0, &[1, 1]);
        all[2][0].pieces[3] += 16;
        assert_eq!(fit(&all, 0, 2), None, "a place out of the row");
        let mut all = shares(5, 20, 0, &[1, 1]);
        all[1][0].pieces[1] -= 1;
        assert_eq!(fit(&all, 0, 2), None, "bytes out of the row");
        let mut all = shares(5, 20, 0, &[1, 1]);
        let again = all[3][0].pieces.clone();
        all[3][0].pieces.extend(again);
        assert_eq!(fit(&all, 0, 2), None, "two pieces");
    }
}
