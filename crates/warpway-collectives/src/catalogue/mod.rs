//! The algorithms: a file per function, or a folder where there are many.
//!
//! Names of algorithms say who moves the data: `push` stores to peers, `pull` and `read` load from them; `packets` carry
//! flags inside the data; `split` shares the work of one rank among all.

mod all_gather;
mod all_reduce;
mod all_to_all;
mod barrier;
mod broadcast;
mod draft;
mod fits;
mod fold;
mod gather;
mod hierarchical;
mod reduce;
mod reduce_scatter;
mod scatter;
mod slots;
mod tiles;

use crate::algorithm::Algorithm;
use crate::task::Function;

/// Every algorithm, by function; the order within a function has no meaning.
pub fn catalogue() -> impl Iterator<Item = &'static Algorithm> {
    let one_file = [
        all_gather::ALGORITHMS,
        all_to_all::ALGORITHMS,
        barrier::ALGORITHMS,
        broadcast::ALGORITHMS,
        gather::ALGORITHMS,
        reduce::ALGORITHMS,
        reduce_scatter::ALGORITHMS,
        scatter::ALGORITHMS,
    ];
    let folders = [all_reduce::ALGORITHMS, hierarchical::ALGORITHMS];
    folders.into_iter().flatten().copied().chain(one_file).flatten()
}

/// Algorithms for devices, beside those of [`catalogue`]: with a block for each processor of a GPU. Host memory has no use for them.
pub fn device_catalogue() -> impl Iterator<Item = &'static Algorithm> {
    tiles::ALGORITHMS.iter()
}

/// The algorithm of that name.
pub fn find(function: Function, name: &str) -> Option<&'static Algorithm> {
    catalogue().find(|algorithm| algorithm.function == function && algorithm.name == name)
}
