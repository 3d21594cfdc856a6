//! The algorithms.

mod all_reduce;

use crate::algorithm::Algorithm;
use crate::task::Function;

/// Every algorithm, by function; the order within a function has no meaning.
pub fn catalogue() -> impl Iterator<Item = &'static Algorithm> {
    [all_reduce::ALGORITHMS].into_iter().flatten()
}

/// The algorithm of that name.
pub fn find(function: Function, name: &str) -> Option<&'static Algorithm> {
    catalogue().find(|algorithm| algorithm.function == function && algorithm.name == name)
}
