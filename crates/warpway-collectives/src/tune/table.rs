//! What a table says, and what it says of a task.

use warpway_plan::DataType;

use super::origin::Origin;
use crate::select::Override;
use crate::task::{Function, Task};

/// Measurements of one machine, for any number of worlds.
#[derive(Debug, Clone, PartialEq)]
pub struct Table {
    /// Where and when.
    pub origin: Origin,
    /// What is taken in any case; written by people.
    pub overrides: Vec<Override>,
    /// The measurements.
    pub measured: Vec<Sizes>,
}

/// Measurements of one function at several sizes.
#[derive(Debug, Clone, PartialEq)]
pub struct Sizes {
    /// Of this function,
    pub function: Function,
    /// with so many ranks on each host,
    pub ranks_per_host: Vec<u32>,
    /// of this type,
    pub data_type: DataType,
    /// in place or not.
    pub in_place: bool,
    /// By size, ascending.
    pub rows: Vec<Row>,
}

/// Measurements at one size.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Bytes of the larger buffer.
    pub bytes: u64,
    /// The fastest first.
    pub timings: Vec<Timing>,
}

/// One measurement.
#[derive(Debug, Clone, PartialEq)]
pub struct Timing {
    /// The algorithm.
    pub algorithm: String,
    /// Blocks per rank.
    pub blocks: u32,
    /// Median time of a call.
    pub microseconds: f64,
}

/// How far beyond the smallest and the largest measured size a table is believed, as a factor.
const REACH: u64 = 4;

impl Table {
    /// Without measurements.
    pub fn new(origin: Origin) -> Self {
        Self { origin, overrides: Vec::new(), measured: Vec::new() }
    }

    /// Adds measurements, in place of what there is for the same function, ranks, type and buffers.
    pub fn put(&mut self, sizes: Sizes) {
        match self.measured.iter_mut().find(|there| there.is_like(&sizes)) {
            Some(there) => *there = sizes,
            None => self.measured.push(sizes),
        }
    }

    /// The measurements that come closest to a task: of its function and ranks; better of the same buffers, best of the
    /// same type as well.
    pub fn closest(&self, task: &Task, data_type: DataType) -> Option<&Sizes> {
        let hosts: Vec<u32> = task.world.hosts().iter().map(|ranks| ranks.len() as u32).collect();
        let same = |sizes: &&Sizes| sizes.function == task.function && sizes.ranks_per_host == hosts;
        // The first of the best ones.
        let likeness = |sizes: &&Sizes| {
            let bytes = sizes.data_type.bytes() == data_type.bytes();
            (sizes.in_place == task.in_place, sizes.data_type == data_type, bytes)
        };
        self.measured.iter().filter(same).rev().max_by_key(likeness)
    }
}

impl Sizes {
    pub(super) fn is_like(&self, other: &Self) -> bool {
        let key = |sizes: &Self| (sizes.function, sizes.data_type, sizes.in_place);
        key(self) == key(other) && self.ranks_per_host == other.ranks_per_host
    }

    /// Each row with the sizes for which it is the nearest, ends included: borders lie at the geometric mean.
    pub fn ranges(&self) -> impl Iterator<Item = (&Row, (u64, u64))> {
        let rows = &self.rows;
        rows.iter().enumerate().map(move |(at, row)| {
            let before = at.checked_sub(1).and_then(|at| rows.get(at));
            let min = before.map_or(row.bytes / REACH, |before| mean(before.bytes, row.bytes) + 1);
            let after = rows.get(at + 1);
            let max = after.map_or(row.bytes.saturating_mul(REACH), |after| mean(row.bytes, after.bytes));
            (row, (min, max))
        })
    }
}

/// The geometric mean, rounded down.
fn mean(a: u64, b: u64) -> u64 {
    (u128::from(a) * u128::from(b)).isqrt() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_cover_the_sizes_that_are_nearest() {
        let row = |bytes| Row { bytes, timings: Vec::new() };
        let sizes = Sizes {
            function: Function::Gather,
            ranks_per_host: vec![2],
            data_type: DataType::Float32,
            in_place: false,
            rows: vec![row(8), row(128), row(u64::MAX - 1)],
        };
        let ranges: Vec<(u64, u64)> = sizes.ranges().map(|(_, range)| range).collect();
        let middle = mean(128, u64::MAX - 1);
        assert_eq!(ranges, [(2, 32), (33, middle), (middle + 1, u64::MAX)]);
        assert!(u128::from(middle).pow(2) <= 128 * u128::from(u64::MAX - 1));
    }
}
