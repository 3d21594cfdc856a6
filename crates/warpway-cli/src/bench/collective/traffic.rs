//! How many bytes a plan reads and writes: what the floor of its time is made of.

use warpway::plan::{Action, BufferKind, Geometry, Plan};

/// Bytes read and written by all ranks of a plan together, for buffers of `bytes`, the larger one's; `None` for plans whose
/// chunks get their sizes at launch.
///
/// Every operand of every operation counts once. In groups of blocks, whose members share an operation, the first stands for
/// all of them.
pub(super) fn of_plan(plan: &Plan, bytes: u64) -> Option<f64> {
    let geometry = Geometry::new(plan);
    if geometry.is_sized() {
        return None;
    }
    let buffers = [BufferKind::Input, BufferKind::Output];
    let chunks = |rank| buffers.map(|buffer| geometry.chunks(rank, buffer)).into_iter().max();
    let most = (0..plan.n_ranks()).filter_map(chunks).max().filter(|most| *most > 0)?;
    let moved = plan.operations().map(|(_, _, operation)| match &operation.action {
        Action::Data(data) if data.group.is_none_or(|group| group.member == 0) => {
            data.sources.iter().chain(&data.destinations).map(|reference| reference.size()).sum::<u64>()
        }
        _ => 0,
    });
    Some(moved.sum::<u64>() as f64 * bytes as f64 / most as f64)
}

#[cfg(test)]
mod tests {
    use warpway_collectives::{Function, Task, World, find};

    use super::*;

    /// Each rank reads its half of both inputs and writes it to both outputs.
    #[test]
    fn a_two_shot_all_reduce_of_two_ranks_moves_four_halves_a_rank() {
        for blocks in [1, 2] {
            let task = Task::new(Function::AllReduce, World::one_host(2)).in_place().with_blocks(blocks);
            let plan = (find(Function::AllReduce, "two_shot").unwrap().build)(&task).unwrap();
            assert_eq!(of_plan(&plan, 1 << 20), Some(4.0 * f64::from(1 << 20)));
        }
    }
}
